//! Typed values that programs share and follow.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use lockkeeper::{
    Client, Contact, CreateMode, Outcome, Raw, Revision, Shared, Swap, ValueChange, ValueChanges,
    ValueError, Zxid,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::{Observed, Pair, contract, gets, next_session};

contract!(shared);

const LIMITS: &str = "/limits";

type Limits = Shared<Vec<u32>>;

fn limits(participant: &Participant) -> Result<Limits> {
    Ok(Shared::new(&participant.client, LIMITS)?)
}

/// The next change, which is a value.
async fn next(changes: &mut ValueChanges<Vec<u32>>) -> Result<Vec<u32>> {
    match changes.next().await? {
        ValueChange::Set(now) => Ok(now.value),
        other => panic!("{other:?}"),
    }
}

/// Until the client has sent what it needs to hear of the next change.
async fn armed(participant: &Participant, reads: usize) {
    participant.proxy.passes(|passed| gets(passed) == reads).await;
}

async fn it_is_set_and_read((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (limits(&alice)?, limits(&bob)?);
    assert_eq!(ours.get().await?, None);
    let first = ours.set(&vec![1]).await?;
    let seen = theirs.get().await?.expect("it is set");
    assert_eq!((&seen.value, seen.revision.mzxid), (&vec![1], first));
    assert!(theirs.set(&vec![2]).await? > first);
    assert_eq!(ours.get().await?.expect("it is set").value, [2]);
    assert_eq!(&alice.client.data(ours.path()).await?.0[..], b"[2]");

    let raw: Shared<Bytes, Raw> = Shared::builder(&alice.client, "/raw").codec(Raw).build()?;
    raw.set(&Bytes::from_static(b"\xff")).await?;
    assert_eq!(&alice.client.data(raw.path()).await?.0[..], b"\xff");
    Ok(())
}

async fn a_compare_and_set_tells_what_is_there((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (limits(&alice)?, limits(&bob)?);
    let Swap::Done(first) = ours.compare_and_set(None, vec![1]).await? else { panic!("created") };
    let Swap::Conflict(Some(found)) = theirs.compare_and_set(None, vec![2]).await? else {
        panic!("it exists")
    };
    assert_eq!(found, first);
    let Swap::Done(second) = theirs.compare_and_set(Some(found.revision), vec![3]).await? else {
        panic!("it is as it was")
    };
    assert_eq!(ours.get().await?, Some(second.clone()), "with the same revision");
    let old = ours.compare_and_set(Some(first.revision), vec![4]).await?;
    assert_eq!(old, Swap::Conflict(Some(second)));

    // What servers compare with nothing.
    let wrapped = Revision { version: -1, ..first.revision };
    let error = ours.compare_and_set(Some(wrapped), vec![5]).await.expect_err("unsafe");
    assert!(matches!(error, ValueError::VersionWrapped { .. }), "{error:?}");
    assert_eq!(ours.get().await?.expect("it is set").value, [3]);

    alice.client.delete(ours.path(), None).await?;
    assert_eq!(ours.compare_and_set(Some(found.revision), vec![6]).await?, Swap::Conflict(None));
    Ok(())
}

async fn an_update_is_made_on_what_it_replaces(backend: Backend) -> Result<()> {
    const EACH: usize = 10;
    let mut tasks = Vec::new();
    let mut participants = Vec::new();
    for number in 0..3_u32 {
        let participant = backend.participant().await?;
        let limits = limits(&participant)?;
        tasks.push(tokio::spawn(async move {
            for _ in 0..EACH {
                let add = |old: Option<&Vec<u32>>| {
                    [old.cloned().unwrap_or_default(), vec![number]].concat()
                };
                limits.update(add).await?;
            }
            Ok::<_, ValueError>(())
        }));
        participants.push(participant);
    }
    for task in tasks {
        task.await??;
    }
    let all = limits(&participants[0])?.get().await?.expect("it is set").value;
    for number in 0..3 {
        assert_eq!(all.iter().filter(|other| **other == number).count(), EACH, "{all:?}");
    }
    Ok(())
}

/// A compare-and-set that was applied said that it was not, and an update was made twice.
///
/// Fails with a new marker for each try.
async fn a_lost_reply_changes_it_once(alice: Participant) -> Result<()> {
    let limits = limits(&alice)?;
    limits.set(&vec![]).await?;
    let mut last = Zxid(0);
    for round in 0..3 {
        alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
        let pushed = limits.update(|old| [old.cloned().unwrap_or_default(), vec![round]].concat());
        let pushed = pushed.await?;
        assert_eq!(limits.get().await?, Some(pushed.clone()));
        assert!(pushed.revision.mzxid > last);
        last = pushed.revision.mzxid;
    }
    assert_eq!(limits.get().await?.expect("it is set").value, [0, 1, 2]);
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    let set = limits.set(&vec![7]).await?;
    assert_eq!(limits.get().await?.expect("it is set").revision.mzxid, set);
    Ok(())
}

/// A client that may send more at once than its server takes: it was tried for as long as the session
/// lasted, and each try cost all of the client's locks their connection.
async fn a_value_at_which_servers_close_the_connection_is_given_up(backend: Backend) -> Result<()> {
    let builder = Client::builder().session_timeout(Duration::from_secs(60)).max_frame(8 << 20);
    let alice = backend.participant_with(builder).await?;
    let raw: Shared<Bytes, Raw> = Shared::builder(&alice.client, "/raw").codec(Raw).build()?;
    let session = alice.client.session_id();
    let data = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
    let given_up = |bytes| {
        let path = raw.path().clone();
        Err(ValueError::TooLong { path, bytes, tries: 3 })
    };
    // Without a value, and with an existing one.
    let mut before = None;
    for _ in 0..2 {
        let set = raw.set(&data(2_000_000)).await;
        assert_eq!(set, given_up(2_000_000));
        let error = set.expect_err("it is too long");
        assert_eq!((error.outcome(), error.is_retryable()), (Outcome::NotApplied, false));
        assert_eq!(raw.get().await?.map(|now| now.revision.mzxid), before);
        before = Some(raw.set(&data(3)).await?);
    }

    // A value is not too long if only the replies were lost, and it is not written later.
    let lose = |loss| (0..3).for_each(|_| alice.proxy.lose_next(OpCode::Multi, loss));
    lose(Loss::BeforeReply);
    let set = raw.set(&data(600_000)).await?;
    assert_eq!(raw.get().await?.map(|now| now.revision.mzxid), Some(set));
    lose(Loss::BeforeRequest);
    assert_eq!(raw.set(&data(600_001)).await, given_up(600_001));
    assert_eq!(raw.get().await?.map(|now| now.revision.mzxid), Some(set));

    // The reply to the check may be lost, too.
    lose(Loss::BeforeRequest);
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    assert_eq!(raw.set(&data(600_001)).await, given_up(600_001));
    assert_eq!(raw.get().await?.map(|now| now.revision.mzxid), Some(set));
    lose(Loss::BeforeReply);
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    let set = raw.set(&data(600_001)).await?;
    assert_eq!(raw.get().await?.map(|now| now.revision.mzxid), Some(set));
    let last = raw.set(&data(600_002)).await?;
    assert_eq!(raw.get().await?.map(|now| now.revision.mzxid), Some(last));
    assert_eq!(alice.client.session_id(), session);
    Ok(())
}

async fn what_cannot_be_read_is_kept_and_told((alice, bob): Observed) -> Result<()> {
    let limits = limits(&alice)?;
    let mut changes = limits.changes();
    assert_eq!(changes.next().await?, ValueChange::Absent);
    limits.set(&vec![1]).await?;
    assert_eq!(next(&mut changes).await?, [1]);

    let foreign = Bytes::from_static(b"[1, 2");
    bob.set_data(limits.path(), foreign.clone(), None).await?;
    match changes.next().await? {
        ValueChange::Invalid { reason, .. } => assert!(reason.contains("EOF"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(changes.latest().expect("the last good one").value, [1]);
    for error in [
        limits.get().await.expect_err("no value"),
        limits.update(|_| vec![9]).await.expect_err("no value"),
    ] {
        assert!(matches!(error, ValueError::Undecodable { .. }), "{error:?}");
    }
    assert_eq!(bob.data(limits.path()).await?.0, foreign, "nothing is overwritten");

    limits.set(&vec![2]).await?;
    assert_eq!(next(&mut changes).await?, [2]);
    bob.delete(limits.path(), None).await?;
    assert_eq!(changes.next().await?, ValueChange::Absent);
    assert_eq!(changes.latest().expect("the last good one").value, [2]);
    Ok(())
}

async fn what_cannot_be_written_changes_nothing(alice: Participant) -> Result<()> {
    let large: Shared<String> = Shared::new(&alice.client, "/large")?;
    for error in [
        large.set(&"x".repeat(2_000_000)).await.expect_err("too large"),
        large.update(|_| "x".repeat(2_000_000)).await.expect_err("too large"),
    ] {
        assert!(matches!(error, ValueError::TooLarge { .. }), "{error:?}");
        let text = error.to_string();
        for part in ["/large", "Publication", "jute.maxbuffer", "2000", "1048575"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    assert_eq!(alice.client.exists(large.path()).await?, None);

    let rate: Shared<f64> = Shared::new(&alice.client, "/rate")?;
    rate.set(&0.5).await?;
    let error = rate.set(&f64::NAN).await.expect_err("JSON has no such number");
    assert!(matches!(error, ValueError::Unencodable { .. }), "{error:?}");
    assert!(error.to_string().contains("JSON has no number NaN"), "{error}");
    assert_eq!(rate.get().await?.expect("it is set").value, 0.5);
    Ok(())
}

/// As Curator's recipes do.
async fn a_missing_parent_is_made(alice: Participant) -> Result<()> {
    let set: Shared<u32> = Shared::new(&alice.client, "/shop/set")?;
    set.set(&1).await?;
    let updated: Shared<u32> = Shared::new(&alice.client, "/store/updated")?;
    assert_eq!(updated.update(|old| old.map_or(2, |old| old + 1)).await?.value, 2);
    assert_eq!(set.get().await?.expect("it is set").value, 1);
    assert_eq!(updated.get().await?.expect("it is set").value, 2);
    Ok(())
}

/// Servers compare nothing with -1: a write could go over another one.
async fn a_version_that_has_come_around_is_told(alice: Participant) -> Result<()> {
    let limits = limits(&alice)?;
    limits.set(&vec![1]).await?;
    alice.proxy.show_version(Some(-1));
    alice.proxy.clear();
    let text = limits.update(|_| vec![2]).await.expect_err("unsafe").to_string();
    assert!(text.contains("/limits") && text.contains("-1"), "{text}");
    assert!(!alice.proxy.requests().contains(&OpCode::Multi), "nothing was sent");
    // Whoever wants to write over whatever is there can, and so ends it.
    limits.set(&vec![3]).await?;
    alice.proxy.show_version(None);
    assert_eq!(limits.update(|old| old.expect("set").clone()).await?.value, [3]);
    Ok(())
}

async fn a_burst_is_one_event_and_one_read((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (limits(&alice)?, limits(&bob)?);
    theirs.set(&vec![0]).await?;
    let mut changes = ours.changes();
    assert_eq!(next(&mut changes).await?, [0]);
    alice.proxy.clear();
    alice.proxy.hold_replies();
    for number in 1..6 {
        theirs.set(&vec![number]).await?;
    }
    alice.proxy.restore();
    assert_eq!(next(&mut changes).await?, [5]);
    assert_eq!(alice.proxy.events().len(), 1);
    assert_eq!(alice.proxy.requests(), [OpCode::GetData]);
    Ok(())
}

/// Curator's cache compares the version, which is 0 both times, and misses it.
async fn a_node_made_anew_is_told_although_its_version_is_the_same(
    (alice, bob): Observed,
) -> Result<()> {
    let limits = limits(&alice)?;
    let create = |data: &'static str| bob.create(limits.path(), data, CreateMode::Persistent);
    let old = create("[1]").await?.stat;
    let mut changes = limits.changes();
    assert_eq!(next(&mut changes).await?, [1]);
    alice.proxy.refuse();
    bob.delete(limits.path(), None).await?;
    let new = create("[2]").await?.stat;
    assert_eq!(old.version, new.version);
    alice.proxy.restore();
    match changes.next().await? {
        ValueChange::Set(now) => {
            assert_eq!((now.value, now.revision.czxid), (vec![2], new.czxid));
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

async fn changes_go_on_in_the_next_session((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (limits(&alice)?, limits(&bob)?);
    theirs.set(&vec![1]).await?;
    let mut changes = ours.changes();
    assert_eq!(next(&mut changes).await?, [1]);
    let old = alice.client.session_id();
    alice.proxy.refuse();
    alice.proxy.expire_session().await?;
    theirs.set(&vec![2]).await?;
    alice.proxy.restore();
    assert_eq!(next(&mut changes).await?, [2]);
    next_session(&alice, old).await?;
    // And the same state is not told twice.
    let again = alice.client.session_id();
    alice.proxy.clear();
    let following = tokio::spawn(async move { next(&mut changes).await });
    alice.proxy.expire_session().await?;
    next_session(&alice, again).await?;
    armed(&alice, 1).await;
    theirs.set(&vec![3]).await?;
    assert_eq!(following.await??, [3]);
    Ok(())
}

/// It failed at once, each time, for as long as the outage lasted: a loop over it took a processor.
///
/// Fails without `retry::reachable`.
async fn a_follower_waits_while_no_server_can_be_reached(backend: Backend) -> Result<()> {
    let short = Client::builder().session_timeout(Duration::from_secs(2));
    let (alice, bob) = (backend.participant_with(short).await?, backend.participant().await?);
    let (ours, theirs) = (limits(&alice)?, limits(&bob)?);
    theirs.set(&vec![1]).await?;
    alice.proxy.refuse();
    let mut status = alice.client.status();
    status.wait_for(|status| status.contact == Contact::Unreachable).await?;

    let mut changes = ours.changes();
    let early = tokio::time::timeout(Duration::from_millis(200), changes.next()).await;
    assert!(early.is_err(), "{early:?}");
    alice.proxy.restore();
    assert_eq!(next(&mut changes).await?, [1]);
    alice.client.close().await;
    let closed = changes.next().await.expect_err("the client is closed");
    assert!(!closed.is_retryable(), "{closed}");
    Ok(())
}

async fn what_each_costs(backend: Backend) -> Result<()> {
    use OpCode::{GetData, Multi};
    let alice = backend.participant().await?;
    let limits = limits(&alice)?;
    limits.set(&vec![1]).await?;
    alice.proxy.clear();
    limits.set(&vec![2]).await?;
    assert_eq!(alice.proxy.requests(), [Multi]);

    let now = limits.get().await?.expect("it is set");
    alice.proxy.clear();
    alice.proxy.hold_replies();
    let swapping = tokio::spawn({
        let limits = limits.clone();
        async move { limits.compare_and_set(Some(now.revision), vec![3]).await }
    });
    alice.proxy.passes(|passed| passed == [Passed::Request(Multi), Passed::Request(GetData)]).await;
    alice.proxy.restore();
    assert!(matches!(swapping.await??, Swap::Done(_)));
    assert_eq!(alice.proxy.requests(), [Multi, GetData], "in one round trip");
    Ok(())
}
