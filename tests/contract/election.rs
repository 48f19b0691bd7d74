//! Elections: one leader at a time, and what observers see of it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{
    AcquireError, Client, CreateMode, Election, ElectionLayout, Leader, Leaders, LossReason,
    ObserveError, ProclaimError, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::rw_lock::replies;
use crate::{Pair, contract};

contract!(election);

const ELECTION: &str = "/election/scheduler";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(60);

fn election(participant: &Participant, id: &str) -> Result<Election> {
    Ok(Election::builder(&participant.client, ELECTION).id(id).build()?)
}

async fn next(leaders: &mut Leaders) -> Result<Option<Leader>> {
    Ok(tokio::time::timeout(LONG, leaders.next()).await.context("nothing changes")??)
}

/// Waits for the next leader, and skips other changes.
async fn until(leaders: &mut Leaders, wanted: impl Fn(Option<&Leader>) -> bool) -> Result<()> {
    while !wanted(leaders.current()) {
        next(leaders).await?;
    }
    Ok(())
}

fn is(id: &'static str, value: Option<&'static str>) -> impl Fn(Option<&Leader>) -> bool {
    move |leader| leader.is_some_and(|leader| leader.id == id && leader.value.as_deref() == value)
}

async fn candidates_lead_one_after_the_other((alice, bob): Pair) -> Result<()> {
    let (first, second) = (election(&alice, "alice")?, election(&bob, "bob")?);
    let leadership = first.campaign().await?;
    assert!(second.try_campaign().await?.is_none());
    let short = second.campaign_timeout(Duration::from_millis(200)).await;
    assert!(matches!(short, Err(AcquireError::Timeout { .. })), "{short:?}");

    let waiting = tokio::spawn({
        let second = second.clone();
        async move { second.campaign().await }
    });
    children_reach(&alice.observer().await?, second.path(), 2).await?;
    let token = leadership.token();
    leadership.resign().await?;
    let next = waiting.await??;
    assert!(next.token() > token && next.is_held());
    next.resign().await?;
    Ok(())
}

async fn a_campaign_costs_what_a_lock_costs(alice: Participant) -> Result<()> {
    let election = election(&alice, "alice")?;
    election.campaign().await?.resign().await?;
    use OpCode::{Create2, Delete, GetChildren2, GetData, Multi};
    alice.proxy.clear();
    let leadership = election.campaign().await?;
    assert_eq!(alice.proxy.requests(), [Create2, GetChildren2]);
    alice.proxy.clear();
    leadership.proclaim("a").await?;
    leadership.proclaim("b").await?;
    assert_eq!(alice.proxy.requests(), [GetData, Multi, Multi]);
    alice.proxy.clear();
    leadership.resign().await?;
    assert_eq!(alice.proxy.requests(), [Delete]);
    Ok(())
}

/// To the next one, and to one that had more than one ahead and so lists the candidates.
async fn a_hand_over_is_one_event_and_at_most_one_round_trip(backend: Backend) -> Result<()> {
    let alice = backend.participant().await?;
    let observer = backend.observer().await?;
    let mut leadership = election(&alice, "alice")?.campaign().await?;
    let mut waiting = Vec::new();
    for id in ["bob", "carol", "dave"] {
        let participant = backend.participant().await?;
        let election = election(&participant, id)?;
        let campaign = tokio::spawn(async move { election.campaign().await });
        children_reach(&observer, leadership.path(), waiting.len() + 2).await?;
        // It watches the one ahead.
        let watches = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::GetData));
        participant.proxy.passes(watches).await;
        participant.proxy.clear();
        waiting.push((participant, campaign));
    }
    let mut led = Vec::new();
    while !waiting.is_empty() {
        let (next, campaign) = waiting.remove(0);
        leadership.resign().await?;
        leadership = campaign.await??;
        let passed = next.proxy.passed();
        assert_eq!(next.proxy.events().len(), 1, "{passed:?}");
        let event = passed.iter().position(|passed| matches!(passed, Passed::Event(..)));
        let after = &passed[event.context("it is told")?..];
        // Its own node may be watched from now on, in the same round trip.
        let lists = after.iter().filter(|p| **p == Passed::Request(OpCode::GetChildren2)).count();
        assert!(lists <= 1, "{passed:?}");
        for (other, _) in &waiting {
            assert_eq!(other.proxy.events(), [], "no other candidate is woken");
        }
        led.push(next);
    }
    Ok(())
}

async fn nodes_are_named_as_curator_and_kazoo_name_them(alice: Participant) -> Result<()> {
    for (layout, marker) in [
        (ElectionLayout::CuratorLatch, "-latch-"),
        (ElectionLayout::CuratorSelector, "-lock-"),
        (ElectionLayout::Kazoo, "__lock__"),
    ] {
        let path = format!("/election{marker}");
        let builder = Election::builder(&alice.client, &path).layout(layout).id("node-7");
        let election = builder.build()?;
        let leadership = election.campaign().await?;
        let name = leadership.node().name();
        assert!(name.len() > 40 && name[..name.len() - 10].ends_with(marker), "{name}");
        let (data, stat) = alice.client.data(leadership.node()).await?;
        assert_eq!((&data[..], stat.ephemeral_owner), (&b"node-7"[..], alice.client.session_id()));
        leadership.proclaim("here").await?;
        let leaders = election.observe().await?;
        assert!(is("node-7", Some("here"))(leaders.current()), "{layout:?}: {leaders:?}");
    }
    Ok(())
}

async fn observers_see_each_leader_and_its_value((alice, bob): Pair) -> Result<()> {
    let leadership = election(&alice, "alice")?.campaign().await?;
    let mut leaders = election(&bob, "nobody")?.observe().await?;
    assert!(is("alice", None)(leaders.current()));
    assert_eq!(leaders.current().map(|leader| leader.token), Some(leadership.token()));

    leadership.proclaim("10.0.0.1").await?;
    let leader = next(&mut leaders).await?;
    assert!(is("alice", Some("10.0.0.1"))(leader.as_ref()), "{leader:?}");
    leadership.proclaim("10.0.0.2").await?;
    until(&mut leaders, is("alice", Some("10.0.0.2"))).await?;

    // The value belonged to alice. Bob's leadership does not have a value until he proclaims one.
    let second = election(&bob, "bob")?;
    let waiting = tokio::spawn(async move { second.campaign().await });
    children_reach(&alice.observer().await?, leadership.path(), 2).await?;
    leadership.resign().await?;
    let leader = next(&mut leaders).await?;
    assert!(is("bob", None)(leader.as_ref()), "{leader:?}");
    let leadership = waiting.await??;
    leadership.proclaim("10.0.0.9").await?;
    until(&mut leaders, is("bob", Some("10.0.0.9"))).await?;
    Ok(())
}

async fn an_observer_is_told_that_nobody_leads((alice, bob): Pair) -> Result<()> {
    let first = election(&alice, "alice")?.campaign().await?;
    first.proclaim("x").await?;
    let token = first.token();
    let mut leaders = election(&bob, "bob")?.observe().await?;
    first.resign().await?;
    assert_eq!(next(&mut leaders).await?, None);

    // The value of her earlier leadership does not count for the new one.
    let again = election(&alice, "alice")?.campaign().await?;
    let leader = next(&mut leaders).await?.context("alice leads again")?;
    assert!(leader.token > token && leader.value.is_none(), "{leader:?}");
    drop(again);
    assert_eq!(next(&mut leaders).await?, None);
    Ok(())
}

async fn an_observer_needs_no_election_node((alice, bob): Pair) -> Result<()> {
    let mut leaders = election(&bob, "bob")?.observe().await?;
    assert_eq!(leaders.current(), None);
    let leadership = election(&alice, "alice")?.campaign().await?;
    until(&mut leaders, is("alice", None)).await?;
    leadership.proclaim("x").await?;
    until(&mut leaders, is("alice", Some("x"))).await
}

/// However many candidates there are.
async fn a_change_of_leader_is_one_event_and_one_read_for_each_observer(
    backend: Backend,
) -> Result<()> {
    const CANDIDATES: usize = 50;
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let mut waiting = Vec::new();
    let observer = backend.observer().await?;
    let path = ZnodePath::new(ELECTION)?;
    for candidate in 0..CANDIDATES {
        let election = election(&alice, &format!("node-{candidate}"))?;
        waiting.push(tokio::spawn(async move { election.campaign().await }));
        children_reach(&observer, &path, candidate + 1).await?;
    }
    let mut leaders = election(&bob, "bob")?.observe().await?;
    bob.proxy.clear();
    for candidate in waiting.drain(..5) {
        candidate.await??.resign().await?;
        next(&mut leaders).await?;
    }
    assert_eq!(leaders.current().map(|leader| leader.id.as_str()), Some("node-5"));
    assert_eq!(bob.proxy.requests(), [OpCode::GetData; 5]);
    assert_eq!(bob.proxy.events().len(), 5);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

/// An observer remembers the candidates, and looked for each that had left, one round trip after the other.
///
/// Fails without the bound: 31 reads.
async fn an_observer_does_not_look_for_each_that_has_gone(backend: Backend) -> Result<()> {
    const GONE: usize = 30;
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let (carol, dave) = (backend.participant().await?, backend.participant().await?);
    let observer = backend.observer().await?;
    let leadership = election(&alice, "alice")?.campaign().await?;
    for candidate in 0..GONE {
        let election = election(&carol, "carol")?;
        tokio::spawn(async move { election.campaign().await });
        children_reach(&observer, leadership.path(), candidate + 2).await?;
    }
    let last = election(&dave, "dave")?;
    let last = tokio::spawn(async move { last.campaign().await });
    children_reach(&observer, leadership.path(), GONE + 2).await?;
    let mut leaders = election(&bob, "bob")?.observe().await?;
    carol.client.close().await;
    children_reach(&observer, leadership.path(), 2).await?;

    bob.proxy.clear();
    leadership.resign().await?;
    until(&mut leaders, is("dave", None)).await?;
    use OpCode::{GetChildren2, GetData};
    assert_eq!(bob.proxy.requests(), [GetData, GetData, GetChildren2, GetData]);
    drop(last.await??);
    Ok(())
}

/// Fails with the value written without a check of the own node.
async fn a_deposed_leader_proclaims_nothing((alice, bob): Pair) -> Result<()> {
    let old = election(&alice, "alice")?.campaign().await?;
    old.proclaim("old").await?;
    // Nothing tells alice yet: her heartbeat has not found it.
    bob.client.delete(old.node(), None).await?;
    let new = election(&bob, "bob")?.campaign().await?;
    new.proclaim("new").await?;
    assert_eq!(old.proclaim("again").await, Err(ProclaimError::Lost(LossReason::NodeDeleted)));
    let leaders = election(&bob, "bob")?.observe().await?;
    assert!(is("bob", Some("new"))(leaders.current()), "{leaders:?}");
    assert!(!old.is_held());
    Ok(())
}

async fn a_lost_reply_to_a_proclamation_is_sent_again(alice: Participant) -> Result<()> {
    let election = election(&alice, "alice")?;
    let leadership = election.campaign().await?;
    for (value, loss) in
        [("a", Loss::BeforeReply), ("b", Loss::BeforeRequest), ("c", Loss::BeforeReply)]
    {
        alice.proxy.lose_next(OpCode::Multi, loss);
        leadership.proclaim(value).await?;
        let leaders = election.observe().await?;
        assert_eq!(leaders.current().and_then(|leader| leader.value.as_deref()), Some(value));
    }
    Ok(())
}

/// A client that may send more at once than its server takes: each try cost it the connection, and there
/// was no end of them.
async fn a_proclamation_at_which_servers_close_the_connection_is_given_up(
    backend: Backend,
) -> Result<()> {
    let builder = Client::builder().session_timeout(Duration::from_secs(60)).max_frame(8 << 20);
    let alice = backend.participant_with(builder).await?;
    let election = election(&alice, "alice")?;
    let leadership = election.campaign().await?;
    for before in [None, Some("short")] {
        if let Some(value) = before {
            leadership.proclaim(value).await?;
        }
        match leadership.proclaim("x".repeat(2_000_000)).await {
            Err(ProclaimError::TooLong { bytes, tries: 3, .. }) if bytes > 2_000_000 => {}
            other => panic!("{other:?}"),
        }
        let leaders = election.observe().await?;
        assert_eq!(leaders.current().and_then(|leader| leader.value.as_deref()), before);
    }
    leadership.proclaim("another").await?;
    assert!(leadership.is_held());
    Ok(())
}

async fn foreign_data_is_not_overwritten(alice: Participant) -> Result<()> {
    let leadership = election(&alice, "alice")?.campaign().await?;
    let record = ZnodePath::new(&format!("{ELECTION}-__leader__"))?;
    alice.client.create(&record, "a stranger's", CreateMode::Persistent).await?;
    let refused = leadership.proclaim("x").await;
    assert_eq!(refused, Err(ProclaimError::Foreign { node: record.clone() }));
    assert_eq!(&alice.client.data(&record).await?.0[..], b"a stranger's");
    let leaders = election(&alice, "alice")?.observe().await?;
    assert!(is("alice", None)(leaders.current()));
    Ok(())
}

async fn foreign_candidates_are_named(alice: Participant) -> Result<()> {
    let path = ZnodePath::new(&format!("{ELECTION}/stranger"))?;
    alice.client.ensure(&path, CreateMode::Persistent).await?;
    let election = election(&alice, "alice")?;
    let campaign = election.campaign().await.err();
    assert!(matches!(campaign, Some(AcquireError::Foreign { .. })), "{campaign:?}");
    let observe = election.observe().await.err();
    assert!(matches!(observe, Some(ObserveError::Foreign { .. })), "{observe:?}");
    assert!(alice.client.exists(&path).await?.is_some());
    Ok(())
}

/// A node like a candidate's that no session's end deletes, as one that was created by hand.
///
/// Fails without the look at its owner: it was shown as the leader.
async fn a_first_node_that_is_not_ephemeral_is_no_leader(alice: Participant) -> Result<()> {
    let path = ZnodePath::new(&format!("{ELECTION}/_c_by-hand-latch-0000000000"))?;
    alice.client.ensure(&path, CreateMode::Persistent).await?;
    let election = election(&alice, "alice")?;
    let refused = election.observe().await.err();
    let named = ObserveError::NotEphemeral { path: ZnodePath::new(ELECTION)?, node: path.clone() };
    assert_eq!(refused, Some(named));
    assert!(alice.client.exists(&path).await?.is_some());

    alice.client.delete(&path, None).await?;
    let leaders = election.observe().await?;
    assert_eq!(leaders.current(), None);
    Ok(())
}

/// It does not want to acquire anything.
///
/// Fails with the errors of an acquire.
async fn an_observer_says_what_it_cannot_see(alice: Participant) -> Result<()> {
    let election = election(&alice, "alice")?;
    let mut leaders = election.observe().await?;
    let stranger = ZnodePath::new(&format!("{ELECTION}/stranger"))?;
    alice.client.ensure(&stranger, CreateMode::Persistent).await?;
    let foreign = leaders.next().await.err().context("a foreign node is in the queue")?;
    alice.client.close().await;
    let closed = leaders.next().await.err().context("the client is closed")?;
    let first = election.observe().await.err().context("the client is closed")?;
    for error in [foreign, closed, first] {
        let text = error.to_string();
        assert!(text.contains(ELECTION) && !text.contains("acquire"), "{text}");
        assert!(!text.contains("lock"), "{text}");
    }
    Ok(())
}

async fn work_is_dropped_at_the_loss_and_begun_again(alice: Participant) -> Result<()> {
    let election = election(&alice, "alice")?;
    let (begun, went_on) = (AtomicU32::new(0), AtomicU32::new(0));
    let (begun, went_on) = (&begun, &went_on);
    let observer = &alice.observer().await?;
    let work = election.lead(|leadership| async move {
        let time = begun.fetch_add(1, Ordering::SeqCst);
        if time < 2 {
            observer.delete(leadership.node(), None).await.expect("deletes");
            std::future::pending::<()>().await;
            went_on.fetch_add(1, Ordering::SeqCst);
        }
        (time, leadership.token())
    });
    let (time, _) = tokio::time::timeout(LONG, work).await??;
    assert_eq!((time, went_on.load(Ordering::SeqCst)), (2, 0));
    observer.sync(election.path()).await?;
    assert!(observer.children(election.path()).await?.0.is_empty(), "it has resigned");
    Ok(())
}

async fn an_observer_goes_on_with_the_next_session(backend: Backend) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let old = election(&alice, "alice")?.campaign().await?;
    let mut leaders = election(&bob, "bob")?.observe().await?;
    bob.proxy.expire_session().await?;
    old.resign().await?;
    let carol = backend.participant().await?;
    let new = election(&carol, "carol")?.campaign().await?;
    new.proclaim("x").await?;
    until(&mut leaders, is("carol", Some("x"))).await?;
    new.resign().await?;
    until(&mut leaders, |leader| leader.is_none()).await
}

async fn a_request_to_leave_is_no_id((alice, bob): Pair) -> Result<()> {
    let leadership = election(&alice, "alice")?.campaign().await?;
    leadership.proclaim("x").await?;
    let mut leaders = election(&bob, "bob")?.observe().await?;
    bob.client.set_data(leadership.node(), "__REVOKE__", None).await?;
    leadership.revoke_requested().await?;
    leadership.proclaim("y").await?;
    until(&mut leaders, is("alice", Some("y"))).await
}

/// Symptom: a leader that had waited in line had no id, or the request for one, once it was asked to leave.
/// Cause: it wrote back what it had read, which was nothing; and observers took the request for an id.
async fn a_leader_that_was_asked_after_a_wait_is_still_known((alice, bob): Pair) -> Result<()> {
    let first = election(&alice, "alice")?.campaign().await?;
    let bobs = election(&bob, "bob")?;
    let waiting = tokio::spawn(async move { bobs.campaign().await });
    // The one ahead, and its own node.
    let watches = |passed: &[Passed]| replies(passed, OpCode::GetData) == 2;
    bob.proxy.passes(watches).await;
    first.resign().await?;
    let leadership = waiting.await??;

    alice.client.set_data(leadership.node(), "__REVOKE__", None).await?;
    let mut leaders = election(&alice, "alice")?.observe().await?;
    assert_eq!(leaders.current().context("bob leads")?.id, "");
    leadership.revoke_requested().await?;
    until(&mut leaders, is("bob", None)).await
}
