//! A counter, and the writes below it whose outcome is certain when replies are lost.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use lockkeeper::{
    Added, Client, Counter, CounterLayout, CreateMode, IdBlocks, Outcome, TransactionError,
    ValueError, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;
use tokio::task::JoinHandle;

use crate::{Observed, Pair, contract, next_session};

contract!(counter);

const COUNTER: &str = "/orders";

fn path() -> ZnodePath {
    ZnodePath::new(COUNTER).expect("a path")
}

fn counter(participant: &Participant) -> Result<Counter> {
    Ok(Counter::new(&participant.client, COUNTER)?)
}

/// The number in the node, as everyone else reads it.
async fn written(client: &Client) -> Result<i64> {
    let (data, _) = client.data(&path()).await?;
    Ok(i64::from_be_bytes(data[..].try_into()?))
}

/// Adds in a task of its own.
fn adds(counter: &Counter, delta: i64) -> JoinHandle<Result<Added, ValueError>> {
    let counter = counter.clone();
    tokio::spawn(async move { counter.add(delta).await })
}

fn count(passed: &[Passed], wanted: &Passed) -> usize {
    passed.iter().filter(|passed| *passed == wanted).count()
}

async fn adds_tell_the_values_around_them((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (counter(&alice)?, counter(&bob)?);
    assert_eq!(ours.value().await?, 0, "without a node");
    assert_eq!(ours.add(5).await?, Added { before: 0, after: 5 });
    assert_eq!(theirs.add(-7).await?, Added { before: 5, after: -2 });
    assert_eq!(ours.add(1).await?, Added { before: -2, after: -1 }, "after a conflict");
    assert_eq!(written(&bob.client).await?, -1);
    let layouts = [(CounterLayout::CuratorInt, 4), (CounterLayout::KazooAscii, 2)];
    for (number, (layout, length)) in layouts.into_iter().enumerate() {
        let other = Counter::builder(&alice.client, &format!("/other-{number}"));
        let other = other.layout(layout).build()?;
        assert_eq!(other.add(41).await?.after, 41);
        assert_eq!(other.add(1).await?, Added { before: 41, after: 42 });
        assert_eq!(alice.client.data(other.path()).await?.0.len(), length);
    }
    Ok(())
}

/// Curator's and kazoo's counters count twice here: the reply to a write is lost, the write is sent again, and
/// the version error is taken for the write of another client.
///
/// Fails, like the two tests that follow and the one about the end of the session, with a new marker
/// for each try.
async fn a_lost_reply_counts_once((alice, observer): Observed) -> Result<()> {
    let counter = counter(&alice)?;
    counter.add(1).await?;
    for round in 1..4 {
        alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
        assert_eq!(counter.add(1).await?, Added { before: round, after: round + 1 });
        assert_eq!(written(&observer).await?, round + 1);
    }
    // Also when the reply to the second try is lost.
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    assert_eq!(counter.add(1).await?, Added { before: 4, after: 5 });
    assert_eq!(counter.add(1).await?, Added { before: 5, after: 6 }, "from what is known");
    assert_eq!(written(&observer).await?, 6);
    Ok(())
}

/// The transaction that creates the marker, and the counter with it.
async fn a_lost_reply_to_the_very_first_add_counts_once((alice, observer): Observed) -> Result<()> {
    // The very first write is refused, because the directory of markers does not exist yet.
    Counter::new(&observer, "/other")?.add(1).await?;
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    assert_eq!(counter(&alice)?.add(3).await?, Added { before: 0, after: 3 });
    assert_eq!(written(&observer).await?, 3);
    Ok(())
}

/// The value that a look would find is the other program's by then.
async fn a_lost_reply_and_an_add_by_another_program_between((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (counter(&alice)?, counter(&bob)?);
    ours.add(1).await?;
    alice.proxy.clear();
    alice.proxy.hold_replies();
    let adding = adds(&ours, 1);
    while written(&bob.client).await? == 1 {}
    alice.proxy.refuse();
    assert_eq!(theirs.add(10).await?, Added { before: 2, after: 12 });
    alice.proxy.restore();
    assert_eq!(adding.await??, Added { before: 1, after: 2 });
    assert_eq!(ours.add(1).await?, Added { before: 12, after: 13 });
    Ok(())
}

async fn a_request_that_never_arrived_is_sent_again((alice, observer): Observed) -> Result<()> {
    let counter = counter(&alice)?;
    counter.add(1).await?;
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeRequest);
    assert_eq!(counter.add(1).await?, Added { before: 1, after: 2 });
    assert_eq!(written(&observer).await?, 2);
    Ok(())
}

/// Somebody tidies up while the reply is lost: the marker goes, and the directory that it was in.
///
/// Fails with a marker that the transaction itself creates: the repeat created it anew, and the
/// add was made twice.
async fn a_marker_that_somebody_deletes_leaves_it_unknown((alice, bob): Observed) -> Result<()> {
    let markers = ZnodePath::new("/lockkeeper-outcomes")?;
    bob.ensure(&markers, CreateMode::Container).await?;
    Counter::new(&bob, COUNTER)?.add(1).await?;
    children_reach(&bob, &markers, 0).await?;

    let counter = counter(&alice)?;
    // In the second round the handle has written before.
    for round in 1..3 {
        alice.proxy.hold_replies();
        let adding = adds(&counter, 1);
        answer_until(&alice, OpCode::Multi).await;
        while written(&bob).await? == round {}
        alice.proxy.refuse();
        for name in bob.children(&markers).await?.0 {
            bob.delete(&markers.child(&name)?, None).await?;
        }
        bob.delete(&markers, None).await?;
        alice.proxy.restore();

        let error = adding.await?.expect_err("the outcome is unknown");
        assert_eq!(error.outcome(), Outcome::Unknown, "{error:?}");
        assert_eq!(written(&bob).await?, round + 1, "once");
        assert_eq!(counter.add(0).await?.after, round + 1, "exact again");
    }
    Ok(())
}

/// Lets whatever comes before the next request of a kind be answered, but not that one.
async fn answer_until(participant: &Participant, op: OpCode) {
    let proxy = &participant.proxy;
    proxy.clear();
    let mut seen = 0;
    loop {
        proxy.passes(|passed| passed.len() > seen).await;
        let passed = proxy.passed();
        if passed.contains(&Passed::Request(op)) {
            return;
        }
        seen = passed.len();
        proxy.answer();
    }
}

/// Nobody can tell any more: the marker went with the session. What comes after is exact again.
async fn the_end_of_the_session_on_the_way_is_unknown((alice, bob): Observed) -> Result<()> {
    Counter::new(&bob, COUNTER)?.add(1).await?;
    for round in 1..3 {
        // In the second round the handle has a marker already.
        let counter = counter(&alice)?;
        if round == 2 {
            counter.add(0).await?;
        }
        counter.value().await?;
        let old = alice.client.session_id();
        alice.proxy.hold_replies();
        let adding = adds(&counter, 1);
        answer_until(&alice, OpCode::Multi).await;
        while written(&bob).await? == round {}
        alice.proxy.refuse();
        alice.proxy.expire_session().await?;
        alice.proxy.restore();
        let error = adding.await?.expect_err("the outcome is unknown");
        assert!(matches!(error, ValueError::Unknown { .. }), "{error:?}");
        assert_eq!(error.outcome(), Outcome::Unknown);
        next_session(&alice, old).await?;
        let added = counter.add(0).await?;
        assert_eq!(added.after, written(&bob).await?);
        assert_eq!(added.after, round + 1, "once");
    }
    Ok(())
}

/// The connection goes, the session ends and the next one begins, all before the program learns of the
/// first. The marker could be created anew in that session.
///
/// Fails without `in_session` in `ExactWriter`: it counts twice.
async fn the_next_session_before_the_program_hears_of_it((alice, bob): Observed) -> Result<()> {
    Counter::new(&bob, COUNTER)?.add(1).await?;
    let counter = counter(&alice)?;
    let old = alice.client.session_id();
    let mut adding = std::pin::pin!(counter.add(1));
    let sent = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::Create2));
    // The read before it comes back, and that the marker is there, and then nothing does.
    tokio::select! {
        biased;
        () = alice.proxy.passes(sent) => alice.proxy.hold_replies(),
        added = &mut adding => panic!("without an answer: {added:?}"),
    }
    let applied = async {
        while written(&bob).await? == 1 {}
        anyhow::Ok(())
    };
    tokio::select! {
        biased;
        applied = applied => applied?,
        added = &mut adding => panic!("without an answer: {added:?}"),
    }
    alice.proxy.refuse();
    alice.proxy.expire_session().await?;
    alice.proxy.restore();
    next_session(&alice, old).await?;

    let error = adding.await.expect_err("the outcome is unknown");
    assert_eq!(error.outcome(), Outcome::Unknown, "{error:?}");
    assert_eq!(written(&bob).await?, 2, "once");
    Ok(())
}

/// Servers that were set back to a backup have ended the session: what they have by then may have the same
/// version as what was there before.
async fn what_is_remembered_is_of_this_session((alice, bob): Observed) -> Result<()> {
    let ours = counter(&alice)?;
    ours.add(5).await?;
    bob.delete(&path(), None).await?;
    Counter::new(&bob, COUNTER)?.add(7).await?;
    let old = alice.client.session_id();
    alice.proxy.expire_session().await?;
    next_session(&alice, old).await?;
    assert_eq!(ours.add(1).await?, Added { before: 7, after: 8 });
    Ok(())
}

/// A transaction that is tried again must not get into the next session, where its marker could be
/// created anew.
///
/// Fails with `Transaction::in_session` that keeps no session.
async fn a_transaction_of_an_ended_session_is_not_applied(alice: Participant) -> Result<()> {
    let old = alice.client.session_id();
    let create = || alice.client.transaction().create(&path(), "1", CreateMode::Persistent);
    alice.proxy.expire_session().await?;
    next_session(&alice, old).await?;
    let error = create().in_session(old).commit().await.expect_err("it has ended");
    match error {
        TransactionError::Request(error) => {
            assert!(error.is_session_expired(), "{error:?}");
            assert_eq!(error.outcome(), Outcome::NotApplied);
        }
        error => panic!("{error:?}"),
    }
    assert_eq!(alice.client.exists(&path()).await?, None);
    create().in_session(alice.client.session_id()).commit().await?;
    Ok(())
}

async fn the_end_of_the_session_before_it_is_sent_is_not(
    (alice, observer): Observed,
) -> Result<()> {
    let counter = counter(&alice)?;
    counter.add(1).await?;
    alice.proxy.refuse();
    alice.proxy.expire_session().await?;
    let adding = adds(&counter, 1);
    alice.proxy.restore();
    assert_eq!(adding.await??, Added { before: 1, after: 2 });
    assert_eq!(written(&observer).await?, 2);
    Ok(())
}

/// However many tasks add, one write is under way, and one waits.
async fn adds_of_one_handle_are_one_write(backend: Backend) -> Result<()> {
    const TASKS: i64 = 64;
    let alice = backend.participant().await?;
    let counter = counter(&alice)?;
    counter.add(0).await?;
    alice.proxy.clear();
    alice.proxy.hold_replies();
    let first = adds(&counter, 1);
    alice.proxy.passes(|passed| passed.contains(&Passed::Request(OpCode::GetData))).await;
    let others: Vec<_> = (0..TASKS).map(|_| adds(&counter, 1)).collect();
    // They have all asked by the time that a task which came after them has run.
    tokio::spawn(async {}).await?;
    alice.proxy.restore();
    let mut seen = vec![first.await??];
    for other in others {
        seen.push(other.await??);
    }
    seen.sort_by_key(|added| added.before);
    for (before, added) in (0..).zip(seen) {
        assert_eq!(added, Added { before, after: before + 1 });
    }
    let writes = count(&alice.proxy.passed(), &Passed::Request(OpCode::Multi));
    assert_eq!(writes, 2, "the first, and all others");
    Ok(())
}

/// Tasks that are answered together add again together.
///
/// Fails when the first of them to run sent its add alone: there were two writes for each add of a
/// task.
async fn tasks_that_add_again_and_again_share_each_write(backend: Backend) -> Result<()> {
    const TASKS: usize = 16;
    const ADDS: usize = 20;
    let alice = backend.participant().await?;
    let counter = counter(&alice)?;
    counter.add(0).await?;
    alice.proxy.clear();

    let add_again = || {
        let counter = counter.clone();
        tokio::spawn(async move {
            for _ in 0..ADDS {
                counter.add(1).await?;
            }
            anyhow::Ok(())
        })
    };
    let adding: Vec<_> = (0..TASKS).map(|_| add_again()).collect();
    for adding in adding {
        adding.await??;
    }

    assert_eq!(written(&alice.client).await?, (TASKS * ADDS) as i64);
    let writes = count(&alice.proxy.passed(), &Passed::Request(OpCode::Multi));
    assert!(writes <= ADDS + 2, "{writes} writes for {ADDS} adds of each task");
    Ok(())
}

/// The task that moves the write on is cancelled; others have added with it, or wait behind it.
///
/// Fails with a flight that belongs to the task: the others wait for ever.
async fn a_cancelled_add_takes_no_other_with_it(alice: Participant) -> Result<()> {
    let counter = counter(&alice)?;
    counter.add(0).await?;
    alice.proxy.clear();
    alice.proxy.hold_replies();
    let mut tasks: Vec<_> = (0..4).map(|_| adds(&counter, 1)).collect();
    alice.proxy.passes(|passed| passed.contains(&Passed::Request(OpCode::GetData))).await;
    let leader = tasks.remove(0);
    leader.abort();
    assert!(leader.await.is_err(), "cancelled");
    alice.proxy.restore();
    for task in tasks {
        let added = task.await??;
        assert_eq!(added.after, added.before + 1);
    }
    // The cancelled one had been sent.
    assert_eq!(counter.value().await?, 4);
    Ok(())
}

/// Programs that add concurrently waste few requests, and all of them finish. The unit tests of the backoff
/// check, without randomness, that each gets its share.
///
/// Fails with every refused add sent again at once: 1,088 transactions for 400 adds.
async fn rivals_take_turns(backend: Backend) -> Result<()> {
    const PROGRAMS: usize = 4;
    const EACH: usize = 100;
    let mut programs = Vec::new();
    for _ in 0..PROGRAMS {
        let participant = backend.participant().await?;
        programs.push(tokio::spawn(async move {
            let counter = counter(&participant)?;
            let mut seen = Vec::new();
            for _ in 0..EACH {
                seen.push(usize::try_from(counter.add(1).await?.after)?);
            }
            let sent = count(&participant.proxy.passed(), &Passed::Request(OpCode::Multi));
            anyhow::Ok((seen, sent))
        }));
    }

    let (mut all, mut sent) = (Vec::new(), 0);
    for program in programs {
        let (seen, transactions) = program.await??;
        sent += transactions;
        all.extend(seen);
    }
    all.sort_unstable();
    assert_eq!(all, (1..=PROGRAMS * EACH).collect::<Vec<_>>());
    assert!(sent < 2 * all.len(), "{sent} transactions for {} adds", all.len());
    Ok(())
}

/// One round trip with the last value known, one more for a conflict; the first one reads.
async fn what_an_add_costs(backend: Backend) -> Result<()> {
    use OpCode::{Create2, GetData, Multi};
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let (ours, theirs) = (counter(&alice)?, counter(&bob)?);
    theirs.add(1).await?;

    alice.proxy.clear();
    ours.add(1).await?;
    // The marker is created while the value is read.
    assert_eq!(alice.proxy.requests(), [GetData, Create2, Multi, GetData], "the first one");

    // A round trip is what is sent before any answer to it has come.
    for conflicts in 0..2 {
        if conflicts == 1 {
            theirs.add(1).await?;
        }
        alice.proxy.clear();
        alice.proxy.hold_replies();
        let adding = adds(&ours, 1);
        for trip in 1..=conflicts + 1 {
            let sent = [Multi, GetData].repeat(trip);
            let requests = |passed: &[Passed]| {
                passed.iter().filter(|passed| matches!(passed, Passed::Request(_))).count()
            };
            alice.proxy.passes(|passed| requests(passed) == sent.len()).await;
            assert_eq!(alice.proxy.requests(), sent);
            alice.proxy.answer();
        }
        adding.await??;
        assert_eq!(alice.proxy.requests().len(), 2 * (conflicts + 1), "and nothing more");
        alice.proxy.restore();
    }
    Ok(())
}

async fn what_is_no_number_stays(alice: Participant) -> Result<()> {
    let foreign = Bytes::from_static(b"a configuration");
    alice.client.create(&path(), foreign.clone(), CreateMode::Persistent).await?;
    let counter = counter(&alice)?;
    for _ in 0..2 {
        let error = counter.add(1).await.expect_err("no number");
        assert_eq!(error.outcome(), Outcome::NotApplied);
        let text = error.to_string();
        assert!(text.contains("a configuration") && text.contains("CuratorLong"), "{text}");
        assert!(counter.value().await.is_err());
    }
    assert_eq!(alice.client.data(&path()).await?.0, foreign);
    // Written by another program between two adds: found out by the conflict.
    alice.client.set_data(&path(), Bytes::copy_from_slice(&7_i64.to_be_bytes()), None).await?;
    counter.add(1).await?;
    alice.client.set_data(&path(), foreign.clone(), None).await?;
    counter.add(1).await.expect_err("no number");
    assert_eq!(alice.client.data(&path()).await?.0, foreign);
    Ok(())
}

async fn a_number_that_is_too_large_is_refused_alone(alice: Participant) -> Result<()> {
    let counter = Counter::builder(&alice.client, COUNTER).layout(CounterLayout::CuratorInt);
    let counter = counter.build()?;
    counter.add(i64::from(i32::MAX) - 1).await?;
    let (one, two, three) = tokio::join!(counter.add(2), counter.add(1), counter.add(i64::MAX));
    for refused in [one, three] {
        assert!(matches!(refused, Err(ValueError::Overflow { .. })), "{refused:?}");
    }
    assert_eq!(two?.after, i64::from(i32::MAX));
    assert_eq!(counter.value().await?, i64::from(i32::MAX));
    Ok(())
}

/// What a handle remembers refuses nothing: another program may have made room.
async fn a_refusal_is_of_the_number_that_is_there((alice, bob): Pair) -> Result<()> {
    let counter = |participant: &Participant| {
        Counter::builder(&participant.client, COUNTER).layout(CounterLayout::CuratorInt).build()
    };
    let (ours, theirs) = (counter(&alice)?, counter(&bob)?);
    let most = i64::from(i32::MAX);
    ours.add(most).await?;
    theirs.add(-100).await?;
    assert_eq!(ours.add(1).await?, Added { before: most - 100, after: most - 99 });
    let refused = ours.add(100).await;
    assert!(matches!(refused, Err(ValueError::Overflow { value, .. }) if value == most - 99));
    Ok(())
}

/// As Curator's recipes do; what is made goes with the last node in it.
async fn a_missing_parent_is_made(alice: Participant) -> Result<()> {
    let counter = Counter::new(&alice.client, "/shop/berlin/orders")?;
    assert_eq!(counter.value().await?, 0);
    assert_eq!(alice.client.exists(&ZnodePath::new("/shop")?).await?, None, "reading makes none");
    assert_eq!(counter.add(1).await?.after, 1);
    assert_eq!(counter.add(1).await?.after, 2);
    Ok(())
}

/// Servers compare nothing with -1: a write could go over another one.
async fn a_version_that_has_come_around_is_told(alice: Participant) -> Result<()> {
    let counter = counter(&alice)?;
    alice.client.create(&path(), Bytes::new(), CreateMode::Persistent).await?;
    alice.proxy.show_version(Some(-1));
    alice.proxy.clear();
    for _ in 0..2 {
        let text = counter.add(1).await.expect_err("unsafe").to_string();
        assert!(text.contains("/orders") && text.contains("-1"), "{text}");
        assert!(text.contains("Nothing was changed"), "{text}");
    }
    assert!(!alice.proxy.requests().contains(&OpCode::Multi), "nothing was sent");
    assert_eq!(counter.value().await?, 0, "it can be read");
    alice.proxy.show_version(None);
    assert_eq!(counter.add(1).await?.after, 1);
    Ok(())
}

async fn nothing_is_left_behind((alice, observer): Observed) -> Result<()> {
    let markers = ZnodePath::new("/lockkeeper-outcomes")?;
    let counter = counter(&alice)?;
    counter.add(1).await?;
    counter.add(1).await?;
    children_reach(&observer, &markers, 1).await?;
    drop(counter);
    children_reach(&observer, &markers, 0).await
}

async fn ids_come_once((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (IdBlocks::new(&counter(&alice)?, 10), IdBlocks::new(&counter(&bob)?, 10));
    let mut seen = Vec::new();
    for _ in 0..25 {
        seen.extend([ours.next().await?, theirs.next().await?]);
    }
    assert_eq!(seen[..4], [1, 11, 2, 12]);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 50);
    assert_eq!(written(&alice.client).await?, 60, "three blocks each");
    let writes = count(&alice.proxy.passed(), &Passed::Request(OpCode::Multi));
    assert!(writes <= 8, "{writes}: one for each block, and for conflicts");
    Ok(())
}

/// Fails with each block taken by itself: 50 writes for 100 numbers.
async fn ids_for_many_who_wait_are_one_write(backend: Backend) -> Result<()> {
    const TASKS: usize = 100;
    let alice = backend.participant().await?;
    let ids = IdBlocks::new(&counter(&alice)?, 2);
    assert_eq!(ids.next().await?, 1);
    alice.proxy.clear();
    let tasks = (0..TASKS).map(|_| {
        let ids = ids.clone();
        tokio::spawn(async move { ids.next().await })
    });
    let mut seen = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        seen.push(task.await??);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), TASKS);
    // The first one that asks takes a block for itself, and then come all others.
    let writes = count(&alice.proxy.passed(), &Passed::Request(OpCode::Multi));
    assert!(writes <= 3, "{writes} writes for {TASKS} numbers");
    assert!(written(&alice.client).await? <= 104, "no more than they need");
    Ok(())
}

async fn a_block_whose_fate_is_unknown_is_skipped((alice, observer): Observed) -> Result<()> {
    let ids = IdBlocks::new(&counter(&alice)?, 10);
    assert_eq!(ids.next().await?, 1);
    for id in 2..11 {
        assert_eq!(ids.next().await?, id);
    }
    alice.proxy.hold_replies();
    let next = tokio::spawn(async move { ids.next().await });
    while written(&observer).await? == 10 {}
    alice.proxy.refuse();
    alice.proxy.expire_session().await?;
    alice.proxy.restore();
    let id = tokio::time::timeout(Duration::from_secs(120), next).await???;
    assert_eq!(id, 21, "the block from 11 to 20 may belong to another client");
    Ok(())
}
