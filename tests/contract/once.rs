//! Something is done once for each key, whichever program comes first.

use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use lockkeeper::{
    Begun, BuildError, CreateMode, IfUnfinished, Mutex, MutexGuard, Once, OnceError, OnceKey, Tick,
    ZnodePath, inspect, revoke,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_wire::OpCode;

use crate::{LOCK, Pair, contract, lock_path};

contract!(once);

const HOUR: Duration = Duration::from_secs(3_600);

fn path(suffix: &str) -> Result<ZnodePath> {
    Ok(ZnodePath::new(&format!("{LOCK}-__once__{suffix}"))?)
}

async fn hold(who: &Participant) -> Result<MutexGuard> {
    Ok(Mutex::new(&who.client, LOCK)?.acquire().await?)
}

fn once(who: &Participant) -> Result<Once> {
    Ok(Once::new(&who.client, LOCK)?)
}

/// What has come of it, in a word and with the attempt.
fn word(begun: &Begun<'_>) -> String {
    match begun {
        Begun::Run(run) => format!("run {}", run.attempt()),
        Begun::Done(record) => format!("done {}", record.attempt),
        Begun::Unfinished(record) => format!("unfinished {}", record.attempt),
        Begun::Passed(tick) => format!("passed by {}", tick.unix_ms()),
    }
}

/// Begins something, and ends it with this code if that is to be done.
async fn take_turn(who: &Participant, key: impl Into<OnceKey>, code: i32) -> Result<String> {
    let guard = hold(who).await?;
    let begun = once(who)?.begin(&guard, key).await?;
    let word = word(&begun);
    if let Begun::Run(run) = begun {
        run.end(code).await?;
    }
    guard.release().await?;
    Ok(word)
}

async fn a_key_is_done_once((alice, bob): Pair) -> Result<()> {
    assert_eq!(take_turn(&alice, "v1", 3).await?, "run 1");
    assert_eq!(take_turn(&bob, "v1", 0).await?, "done 1");
    assert_eq!(take_turn(&alice, "v1", 0).await?, "done 1");
    assert_eq!(take_turn(&bob, "v2", 0).await?, "run 1");

    let records = once(&alice)?.records().await?;
    let ended: Vec<_> =
        records.iter().map(|r| (r.key.to_string(), r.end.map(|e| e.code))).collect();
    assert_eq!(ended, [("v1".to_owned(), Some(3)), ("v2".to_owned(), Some(0))]);
    assert_eq!(records[0].owner.pid, std::process::id());
    assert_eq!(once(&alice)?.last_tick().await?, None);
    Ok(())
}

/// Makes a program start work and lose the lock during it.
async fn vanish(backend: &Backend, key: impl Into<OnceKey>) -> Result<()> {
    let alice = backend.participant().await?;
    let guard = hold(&alice).await?;
    let Begun::Run(run) = once(&alice)?.begin(&guard, key).await? else { bail!("not first") };
    alice.proxy.expire_session().await?;
    guard.lost().await;
    assert!(matches!(run.end(0).await, Err(OnceError::Lost { .. })));
    Ok(())
}

async fn what_nobody_ended_is_begun_again(backend: Backend) -> Result<()> {
    let now = Tick::at(SystemTime::now());
    vanish(&backend, "v1").await?;
    vanish(&backend, now).await?;

    let bob = backend.participant().await?;
    let guard = hold(&bob).await?;
    for key in [OnceKey::from("v1"), OnceKey::from(now)] {
        let Begun::Run(run) = once(&bob)?.begin(&guard, key.clone()).await? else {
            bail!("not begun again")
        };
        assert_eq!((run.key(), run.attempt()), (&key, 2));
        assert_eq!(run.earlier().map(|earlier| (earlier.attempt, earlier.end)), Some((1, None)));
        run.end(0).await?;
        assert_eq!(word(&once(&bob)?.begin(&guard, key).await?), "done 2");
    }
    Ok(())
}

async fn what_nobody_ended_is_not_begun_again_at_most_once(backend: Backend) -> Result<()> {
    vanish(&backend, "v1").await?;
    let bob = backend.participant().await?;
    let guard = hold(&bob).await?;
    let at_most = Once::builder(&bob.client, LOCK).if_unfinished(IfUnfinished::Skip).build()?;
    assert_eq!(word(&at_most.begin(&guard, "v1").await?), "unfinished 1");
    assert_eq!(word(&at_most.begin(&guard, "v2").await?), "run 1");
    Ok(())
}

async fn a_passed_tick_never_begins(backend: Backend) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let now = SystemTime::now();
    let tick = |ago: u32| Tick::at(now - HOUR * ago);
    assert_eq!(take_turn(&alice, tick(2), 0).await?, "run 1");
    assert_eq!(take_turn(&bob, tick(1), 0).await?, "run 1");
    let passed = format!("passed by {}", tick(1).unix_ms());
    // One that was skipped, and one that is too late.
    for ago in [3, 9_000] {
        assert_eq!(take_turn(&alice, tick(ago), 0).await?, passed);
    }
    // The result is that the work is done, and not that it is late.
    assert_eq!(take_turn(&alice, tick(2), 0).await?, "done 1");
    assert_eq!(once(&alice)?.last_tick().await?, Some(tick(1)));

    // Its record is no longer kept.
    assert!(once(&bob)?.forget(tick(1)).await?);
    assert_eq!(take_turn(&bob, tick(1), 0).await?, passed);
    // Nor is one that a later tick has passed begun again.
    vanish(&backend, tick(0)).await?;
    assert_eq!(take_turn(&bob, Tick::at(now + Duration::from_millis(1)), 0).await?, "run 1");
    assert!(take_turn(&bob, tick(0), 0).await?.starts_with("passed by"));
    Ok(())
}

/// A machine whose clock is a year ahead keeps no other from its ticks.
async fn a_tick_far_ahead_is_refused((alice, bob): Pair) -> Result<()> {
    let now = SystemTime::now();
    let guard = hold(&alice).await?;
    let refused = once(&alice)?.begin(&guard, Tick::at(now + 9_000 * HOUR)).await;
    assert!(matches!(refused, Err(OnceError::Ahead { by }) if by > 8_999 * HOUR), "{refused:?}");
    guard.release().await?;

    assert_eq!(take_turn(&bob, Tick::at(now), 0).await?, "run 1");
    let guard = hold(&alice).await?;
    let ahead = Once::builder(&alice.client, LOCK).ahead(2 * HOUR).build()?;
    let begun = ahead.begin(&guard, Tick::at(now + HOUR)).await?;
    assert_eq!(word(&begun), "run 1");
    Ok(())
}

/// A guard may be as old as it likes: what counts is the time now.
async fn a_tick_is_judged_by_the_time_that_it_is(alice: Participant) -> Result<()> {
    let guard = hold(&alice).await?;
    let exact = Once::builder(&alice.client, LOCK).ahead(Duration::ZERO).build()?;
    assert_eq!(word(&exact.begin(&guard, "first").await?), "run 1");

    // Later than all that was seen of the servers' clock until now, which has gone on since.
    let seen = alice.client.exists(&path("")?).await?.map_or(0, |stat| stat.mtime);
    let own = alice.client.exists(guard.node()).await?.map_or(0, |stat| stat.ctime);
    let tick = Tick::from_unix_ms(u64::try_from(seen.max(own))? + 1);
    while SystemTime::now() <= tick.time() {
        alice.client.sync(&lock_path()).await?;
    }
    assert_eq!(word(&exact.begin(&guard, tick).await?), "run 1");
    Ok(())
}

async fn a_lost_reply_begins_nothing_twice(backend: Backend) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let at_most = Once::builder(&alice.client, LOCK).if_unfinished(IfUnfinished::Skip).build()?;
    let now = SystemTime::now();
    let keys = [OnceKey::from("v1"), OnceKey::from(Tick::at(now))];
    for key in keys {
        for loss in [Loss::BeforeReply, Loss::BeforeRequest] {
            let guard = hold(&alice).await?;
            alice.proxy.lose_next(OpCode::Multi, loss);
            let begun = at_most.begin(&guard, key.clone()).await?;
            assert_eq!(alice.proxy.losses_to_come(), 0);
            assert_eq!(word(&begun), "run 1", "{key} {loss:?}");
            drop(begun);
            guard.release().await?;
            assert!(once(&bob)?.forget(key.clone()).await?);
            if matches!(key, OnceKey::Tick(_)) {
                break;
            }
        }
    }

    // The second attempt is one, too.
    vanish(&backend, "v3").await?;
    let guard = hold(&alice).await?;
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    let Begun::Run(run) = once(&alice)?.begin(&guard, "v3").await? else { bail!("not begun") };
    assert_eq!((run.attempt(), run.earlier().map(|earlier| earlier.attempt)), (2, Some(1)));
    Ok(())
}

async fn a_lost_reply_ends_nothing_twice(alice: Participant) -> Result<()> {
    for (key, loss) in [("v1", Loss::BeforeReply), ("v2", Loss::BeforeRequest)] {
        let guard = hold(&alice).await?;
        let Begun::Run(run) = once(&alice)?.begin(&guard, key).await? else { bail!("not begun") };
        alice.proxy.lose_next(OpCode::Multi, loss);
        run.end(7).await?;
        assert_eq!(alice.proxy.losses_to_come(), 0);
        assert_eq!(word(&once(&alice)?.begin(&guard, key).await?), "done 1");
        guard.release().await?;
    }
    let records = once(&alice)?.records().await?;
    assert!(records.iter().all(|record| record.end.is_some_and(|end| end.code == 7)));
    Ok(())
}

/// The lock was taken by force: the program at work can neither record the end nor start other work.
async fn an_end_is_not_recorded_without_the_lock((alice, bob): Pair) -> Result<()> {
    let guard = hold(&alice).await?;
    let Begun::Run(run) = once(&alice)?.begin(&guard, "v1").await? else { bail!("not begun") };
    revoke::revoke_within(&bob.client, &lock_path(), Duration::ZERO).await?;
    let ended = run.end(0).await;
    assert!(matches!(ended, Err(OnceError::Lost { .. })), "{ended:?}");
    let begun = once(&alice)?.begin(&guard, "v2").await;
    assert!(matches!(begun, Err(OnceError::Lost { .. })), "{begun:?}");

    assert_eq!(take_turn(&bob, "v1", 0).await?, "run 2");
    assert_eq!(take_turn(&bob, "v2", 0).await?, "run 1");
    Ok(())
}

async fn the_guard_of_another_lock_is_refused(alice: Participant) -> Result<()> {
    let guard = Mutex::new(&alice.client, "/locks/other")?.acquire().await?;
    let begun = once(&alice)?.begin(&guard, "v1").await;
    assert!(matches!(begun, Err(OnceError::OtherLock { .. })), "{begun:?}");
    Ok(())
}

async fn old_records_are_deleted(alice: Participant) -> Result<()> {
    let few = Once::builder(&alice.client, LOCK).keep(3).build()?;
    let guard = hold(&alice).await?;
    let now = SystemTime::now();
    let tick = |ago: u32| Tick::at(now - HOUR * ago);
    for number in 0..6 {
        for key in [OnceKey::from(format!("v{number}")), OnceKey::from(tick(10 - number))] {
            let Begun::Run(run) = few.begin(&guard, key).await? else { bail!("not begun") };
            run.end(0).await?;
        }
    }
    let mut kept: Vec<_> = few.records().await?.into_iter().map(|record| record.key).collect();
    kept.sort();
    let named = (3..6).map(|number| OnceKey::from(format!("v{number}")));
    assert_eq!(kept, named.chain((3..6).map(|n| tick(10 - n).into())).collect::<Vec<_>>());
    assert!(word(&few.begin(&guard, tick(10)).await?).starts_with("passed"));
    Ok(())
}

async fn a_key_that_is_forgotten_is_done_again(alice: Participant) -> Result<()> {
    assert_eq!(take_turn(&alice, "v1", 1).await?, "run 1");
    assert!(once(&alice)?.forget("v1").await?);
    assert!(!once(&alice)?.forget("v1").await?);
    assert_eq!(take_turn(&alice, "v1", 0).await?, "run 1");

    // The program at work for it gets an error.
    let guard = hold(&alice).await?;
    let Begun::Run(run) = once(&alice)?.begin(&guard, "v2").await? else { bail!("not begun") };
    assert!(once(&alice)?.forget("v2").await?);
    let ended = run.end(0).await;
    assert!(matches!(ended, Err(OnceError::Replaced { .. })), "{ended:?}");
    Ok(())
}

async fn what_is_no_record_is_left_alone(alice: Participant) -> Result<()> {
    let guard = hold(&alice).await?;
    let begin = async |key| {
        once(&alice)?
            .begin(&guard, key)
            .await
            .map(|begun| word(&begun))
            .map_err(anyhow::Error::from)
    };
    begin("first").await?;
    alice.client.create(&path("/key-v1")?, "theirs", CreateMode::Persistent).await?;
    let refused = begin("v1").await.expect_err("it is no record");
    assert!(matches!(refused.downcast_ref(), Some(OnceError::Foreign { .. })), "{refused}");
    let (data, _) = alice.client.data(&path("/key-v1")?).await?;
    assert_eq!(data, "theirs");
    assert_eq!(once(&alice)?.records().await?.len(), 1, "the others are listed");
    alice.client.set_data(&path("")?, "theirs", None).await?;
    let refused = begin("v2").await.expect_err("there is no floor");
    assert!(matches!(refused.downcast_ref(), Some(OnceError::Foreign { .. })), "{refused}");
    Ok(())
}

async fn records_are_no_locks(alice: Participant) -> Result<()> {
    for among in [path("")?, path("/key-v1")?] {
        let refused = Mutex::new(&alice.client, among.as_str()).map(drop);
        assert_eq!(refused, Err(BuildError::Beside(among)));
    }
    assert_eq!(take_turn(&alice, "v1", 0).await?, "run 1");
    assert_eq!(take_turn(&alice, Tick::at(SystemTime::now()), 0).await?, "run 1");
    let guard = hold(&alice).await?;
    alice.proxy.clear();
    let found = inspect::queues(&alice.client, &ZnodePath::root()).await?;
    let paths: Vec<_> = found.queues.into_iter().map(|queue| queue.path).collect();
    assert_eq!(paths, [lock_path()]);
    // Nor is any of them looked at.
    let looks = alice.proxy.requests().iter().filter(|op| **op == OpCode::GetChildren2).count();
    let above = 4; // the root, /zookeeper or /locks, and the lock
    assert!(looks <= above, "{looks}");
    drop(guard);
    Ok(())
}

async fn it_costs_one_write_to_begin_and_one_to_end(alice: Participant) -> Result<()> {
    let now = SystemTime::now();
    assert_eq!(take_turn(&alice, Tick::at(now), 0).await?, "run 1");
    for key in [OnceKey::from("v1"), OnceKey::from(Tick::at(now + Duration::from_millis(1)))] {
        let guard = hold(&alice).await?;
        alice.proxy.clear();
        let Begun::Run(run) = once(&alice)?.begin(&guard, key).await? else { bail!("not begun") };
        let counted = |op: &OpCode| *op != OpCode::Ping;
        let sent = |who: &Participant| {
            who.proxy.requests().into_iter().filter(counted).collect::<Vec<_>>()
        };
        let begin = [OpCode::GetData, OpCode::GetData, OpCode::Exists, OpCode::Multi];
        assert_eq!(sent(&alice), begin);
        run.end(0).await?;
        assert_eq!(sent(&alice)[4..], [OpCode::Multi]);
        guard.release().await?;
    }
    Ok(())
}
