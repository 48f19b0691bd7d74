//! The mutex among the tasks of one process: their own line, nodes that linger, cohorts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use lockkeeper::{Client, LossReason, Mutex, MutexBuilder, TransactionError};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;
use tokio::sync::Mutex as LocalMutex;
use tokio::task::JoinSet;

use crate::{LOCK, Pair, contract, lock_path, mutex, queue_empties, queue_up};

contract!(mutex_local);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

fn lingering(participant: &Participant, period: Duration) -> Result<Mutex> {
    Ok(Mutex::builder(&participant.client, LOCK).linger(period).build()?)
}

async fn many_tasks_put_one_contender_on_the_server(backend: Backend) -> Result<()> {
    const TASKS: usize = 1_000;
    let alice = backend.participant().await?;
    let lock = mutex(&alice)?;
    lock.acquire().await?.release().await?;
    alice.proxy.clear();
    let inside = Arc::new(LocalMutex::new(()));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, inside) = (lock.clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            let guard = lock.acquire().await?;
            let alone = inside.try_lock().is_ok();
            guard.release().await?;
            anyhow::Ok(alone)
        });
    }
    while let Some(alone) = tasks.join_next().await {
        assert!(alone??, "two at once");
    }
    let requests = alone_on_the_server(&alice);
    assert_eq!(requests, TASKS * 2, "a create and a delete for each");
    Ok(())
}

/// Ten times as many tasks take about ten times as long: the cost of one does not grow with the length of the
/// queue. A machine that pauses at the wrong moment gets another try. A cost that grows with the
/// length of the queue takes a hundred times as long each time.
#[tokio::test]
async fn ten_thousand_tasks_cost_ten_times_as_much_as_a_thousand() -> Result<()> {
    const CHANCES: usize = 4;
    let backend = Backend::embedded().await?;
    let client = backend.observer().await?;
    for chance in 1..=CHANCES {
        let few = time_of_tasks(&client, 1_000).await?;
        let many = time_of_tasks(&client, 10_000).await?;
        println!("1,000 tasks: {few:?}, 10,000 tasks: {many:?}");
        if many < few * 25 {
            break;
        }
        assert!(chance < CHANCES, "10,000 tasks take {many:?}, 1,000 only {few:?}");
    }
    children_reach(&client, &lock_path(), 0).await
}

/// Twice as many waiting tasks take twice as much memory, and add no contenders on the server. Runs in a
/// process of its own, whose memory no other test changes.
#[test]
fn the_memory_of_waiting_tasks_grows_with_their_number() -> Result<()> {
    let test = "mutex_local::the_memory_of_waiting_tasks";
    let mut child = std::process::Command::new(std::env::current_exe()?);
    let output = child.args([test, "--exact", "--ignored", "--nocapture"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sizes = text.lines().filter_map(|line| line.strip_prefix("resident: ")?.parse().ok());
    let sizes: Vec<u64> = sizes.collect();
    let [before, half, whole] = sizes[..] else { panic!("{output:?}") };
    println!("bytes for each of 20,000 waiting tasks: {}", (whole - before) / 20_000);
    let slack = 4 << 20;
    assert!(whole - half < 2 * (half - before) + slack, "{sizes:?}");
    Ok(())
}

/// Not a test: what is measured above.
#[tokio::test]
#[ignore = "started by the test above"]
async fn the_memory_of_waiting_tasks() -> Result<()> {
    let backend = Backend::embedded().await?;
    let client = backend.observer().await?;
    let lock = Mutex::new(&client, LOCK)?;
    let _guard = lock.acquire().await?;
    let mut waiting = JoinSet::new();
    for tasks in [0, 10_000, 20_000] {
        while waiting.len() < tasks {
            let lock = lock.clone();
            waiting.spawn(async move { lock.acquire().await.map(drop) });
        }
        // All tasks are in the queue before this task continues.
        tokio::task::yield_now().await;
        children_reach(&backend.observer().await?, &lock_path(), 1).await?;
        let status = std::fs::read_to_string("/proc/self/status")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = resident.and_then(|size| size.trim().strip_suffix(" kB"));
        let kilobytes: u64 = kilobytes.unwrap_or_default().trim().parse()?;
        println!("\nresident: {}", kilobytes * 1024);
    }
    Ok(())
}

/// How long so many tasks take that all want one lock.
async fn time_of_tasks(client: &Client, tasks: usize) -> Result<Duration> {
    let lock = Mutex::new(client, LOCK)?;
    let started = Instant::now();
    let mut waiting = JoinSet::new();
    for _ in 0..tasks {
        let lock = lock.clone();
        waiting.spawn(
            async move { lock.acquire().await?.release().await.map_err(anyhow::Error::from) },
        );
    }
    while let Some(done) = waiting.join_next().await {
        done??;
    }
    Ok(started.elapsed())
}

/// How many creates and deletes there were, after making sure that they took turns.
fn alone_on_the_server(participant: &Participant) -> usize {
    let writes = participant.proxy.requests().into_iter();
    let writes: Vec<_> =
        writes.filter(|op| [OpCode::Create2, OpCode::Delete].contains(op)).collect();
    for pair in writes.chunks(2) {
        assert_eq!(pair, [OpCode::Create2, OpCode::Delete], "two contenders at once");
    }
    writes.len()
}

async fn a_task_that_gives_up_its_turn_blocks_nobody(alice: Participant) -> Result<()> {
    let lock = mutex(&alice)?;
    let guard = lock.acquire().await?;
    for _ in 0..10 {
        assert!(lock.acquire_timeout(Duration::from_millis(1)).await.is_err());
    }
    assert!(lock.try_acquire().await?.is_none());
    guard.release().await?;
    lock.acquire().await?.release().await?;
    queue_empties(&alice).await
}

async fn a_lingering_node_is_taken_again_without_a_round_trip(alice: Participant) -> Result<()> {
    let lock = lingering(&alice, LONG)?;
    let guard = lock.acquire().await?;
    let mut token = guard.token();
    guard.release().await?;
    // The keeper asks for the own node and the listing, once.
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;
    alice.client.sync(&lock_path()).await?;
    alice.proxy.clear();
    for _ in 0..100 {
        let guard = lock.acquire().await?;
        assert!(guard.token() > token, "tokens grow without a new node");
        token = guard.token();
        guard.release().await?;
    }
    // What was sent before this would have passed before it.
    alice.client.sync(&lock_path()).await?;
    assert_eq!(alice.proxy.requests(), [OpCode::Sync]);
    Ok(())
}

/// A loop without requests could run forever without a turn for the client's own task. Pings
/// would not be sent, and new contenders would not be noticed.
async fn a_lingering_node_leaves_its_thread_to_others(alice: Participant) -> Result<()> {
    let lock = lingering(&alice, LONG)?;
    lock.acquire().await?.release().await?;
    let turns = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counting.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    tokio::task::yield_now().await;
    let before = turns.load(Ordering::Relaxed);
    for _ in 0..1_000 {
        lock.acquire().await?.release().await?;
    }
    let after = turns.load(Ordering::Relaxed);
    other.abort();
    assert!(after > before, "no other task ran during 1,000 cycles");
    Ok(())
}

async fn a_lingering_node_is_given_to_whoever_comes((alice, bob): Pair) -> Result<()> {
    let lock = lingering(&alice, LONG)?;
    lock.acquire().await?.release().await?;
    let theirs = mutex(&bob)?.acquire().await?;
    assert!(lock.try_acquire().await?.is_none());
    theirs.release().await?;

    // And when it comes while the lock is held, the release gives it away.
    lock.acquire().await?.release().await?;
    let ours = lock.acquire().await?;
    let waiting = queue_up(&alice, &mutex(&bob)?, 2).await?;
    ours.release().await?;
    waiting.await??.release().await?;
    Ok(())
}

async fn a_lingering_node_goes_when_nobody_uses_it(alice: Participant) -> Result<()> {
    let lock = lingering(&alice, Duration::from_millis(20))?;
    lock.acquire().await?.release().await?;
    queue_empties(&alice).await?;
    lock.acquire().await?.release().await?;
    queue_empties(&alice).await
}

async fn a_lingering_node_that_was_deleted_is_not_granted_again((alice, bob): Pair) -> Result<()> {
    let lock = lingering(&alice, LONG)?;
    let guard = lock.acquire().await?;
    let node = guard.node().clone();
    guard.release().await?;
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;
    alice.proxy.clear();
    bob.client.delete(&node, None).await?;
    let told = |passed: &[Passed]| passed.iter().any(|p| matches!(p, Passed::Event(..)));
    alice.proxy.passes(told).await;
    // The keeper now sees that it is gone, and gives it up.
    alice.proxy.passes(|passed| passed.contains(&Passed::Request(OpCode::Delete))).await;
    let guard = lock.acquire().await?;
    assert_ne!(guard.node(), &node);
    guard.verify().await?;
    Ok(())
}

/// A transaction of the holder before was applied under the next one, whose node is the same.
async fn a_transaction_goes_with_the_holder_that_began_it(alice: Participant) -> Result<()> {
    let lock = lingering(&alice, LONG)?;
    let first = lock.acquire().await?;
    let (node, late) = (first.node().clone(), first.transaction());
    first.transaction().commit().await?;
    first.release().await?;
    let next = lock.acquire().await?;
    assert_eq!(next.node(), &node);
    let refused = late.commit().await;
    assert!(
        matches!(&refused, Err(TransactionError::Request(error)) if error.is_not_held()),
        "{refused:?}"
    );
    next.transaction().commit().await?;
    Ok(())
}

async fn a_lingering_node_does_not_outlive_its_lock(alice: Participant) -> Result<()> {
    let lock = lingering(&alice, LONG)?;
    lock.acquire().await?.release().await?;
    drop(lock);
    queue_empties(&alice).await
}

async fn a_cohort_passes_the_node_on_and_ends_at_its_bound(backend: Backend) -> Result<()> {
    a_cohort_of_three_ends(backend, |lock| lock).await
}

/// The node that had served the whole cohort was left to linger, and the next task of the same process took
/// it.
async fn a_cohort_whose_nodes_linger_ends_at_its_bound_too(backend: Backend) -> Result<()> {
    a_cohort_of_three_ends(backend, |lock| lock.linger(LONG)).await
}

async fn a_cohort_of_three_ends(
    backend: Backend,
    configure: impl FnOnce(MutexBuilder) -> MutexBuilder,
) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let lock = configure(Mutex::builder(&alice.client, LOCK).cohort(3, LONG)).build()?;
    let first = lock.acquire().await?;
    let waiting = queue_up(&alice, &mutex(&bob)?, 2).await?;
    let (entered, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (lock, entered) = (lock.clone(), entered.clone());
        tasks.spawn(async move {
            let guard = lock.acquire().await?;
            entered.send(("alice", guard.token()))?;
            // Until the others of the cohort wait too.
            tokio::task::yield_now().await;
            guard.release().await?;
            anyhow::Ok(())
        });
    }
    tasks.spawn(async move {
        let guard = waiting.await??;
        entered.send(("bob", guard.token()))?;
        guard.release().await?;
        Ok(())
    });
    tokio::task::yield_now().await;
    let mut token = first.token();
    first.release().await?;
    let mut names = Vec::new();
    while let Some((name, next)) = order.recv().await {
        assert!(next > token, "tokens grow over nodes and within them");
        token = next;
        names.push(name);
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    assert_eq!(names[..3], ["alice", "alice", "bob"], "the first holder was one of the three");
    // No node lingers longer than its lock.
    drop(lock);
    queue_empties(&alice).await
}

async fn a_cohort_leaves_nothing_to_a_task_that_gave_up(alice: Participant) -> Result<()> {
    let lock = Mutex::builder(&alice.client, LOCK).cohort(u32::MAX, LONG).build()?;
    for _ in 0..20 {
        let guard = lock.acquire().await?;
        let other = lock.clone();
        let waiting = tokio::spawn(async move { other.acquire().await });
        tokio::task::yield_now().await;
        // The node is left for the waiting task, which is cancelled before it runs again.
        guard.release().await?;
        waiting.abort();
        drop(waiting.await);
        children_reach(&alice.observer().await?, &lock_path(), 0).await?;
    }
    Ok(())
}

async fn a_lost_lock_stays_taken_within_its_process(alice: Participant) -> Result<()> {
    let lock = mutex(&alice)?;
    let guard = lock.acquire().await?;
    alice.proxy.expire_session().await?;
    assert_eq!(guard.lost().await, LossReason::SessionExpired);
    assert!(lock.try_acquire().await?.is_none(), "it may still be at work");
    drop(guard);
    assert!(lock.try_acquire().await?.is_some());
    Ok(())
}
