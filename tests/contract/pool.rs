//! What a pool promises, on every server.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{
    Client, Contact, CreateMode, LossReason, Mutex, Pool, PoolError, PoolGuard, SessionId,
    ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;
use tokio::task::JoinHandle;

use crate::jeopardy::short;
use crate::{Clients, Observed, Pair, contract};

contract!(pool);

const GPUS: &str = "/pools/gpu";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(20);

/// Too short for a holder to release a resource.
const SHORT: Duration = Duration::from_millis(300);

type Acquiring = JoinHandle<Result<PoolGuard, PoolError>>;

fn gpus(client: &Client) -> Result<Pool> {
    Ok(Pool::builder(client, GPUS).things(["0", "1"]).build()?)
}

fn stored(client: &Client) -> Result<Pool> {
    Ok(Pool::new(client, GPUS)?)
}

fn limited(client: &Client, holder: &str, limit: u32) -> Result<Pool> {
    Ok(Pool::builder(client, GPUS).things(["0", "1"]).at_most(holder, limit).build()?)
}

fn node(below: &str) -> ZnodePath {
    ZnodePath::new(&format!("{GPUS}/{below}")).expect("a path")
}

async fn take(pool: &Pool) -> Result<PoolGuard> {
    pool.try_acquire().await?.context("there is something free")
}

async fn nothing(pool: &Pool) -> Result<()> {
    let taken = pool.try_acquire().await?;
    anyhow::ensure!(taken.is_none(), "{taken:?}");
    Ok(())
}

/// In the background. Returns when so many wait.
async fn wait(pool: &Pool, place: usize) -> Result<Acquiring> {
    let waits = pool.clone();
    let acquiring = tokio::spawn(async move { waits.acquire().await });
    waiting(pool, place).await?;
    Ok(acquiring)
}

async fn waiting(pool: &Pool, count: usize) -> Result<()> {
    let reached = async {
        while pool.inspect().await?.waiting.len() != count {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(LONG, reached).await.with_context(|| format!("{count} do not wait"))?
}

async fn got(acquiring: Acquiring) -> Result<PoolGuard> {
    Ok(tokio::time::timeout(LONG, acquiring).await.context("it waits")???)
}

/// Returns when all nodes of the holders are gone.
async fn all_is_gone(client: &Client) -> Result<()> {
    for below in ["held", "line"] {
        children_reach(client, &node(below), 0).await?;
    }
    Ok(())
}

async fn each_gets_another_thing((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (gpus(&one)?, gpus(&two)?);
    let first = ours.acquire().await?;
    let second = theirs.acquire().await?;
    assert_eq!((first.name(), second.name()), ("0", "1"));
    assert_eq!(first.node(), &node("held/0"));
    assert!(first.is_held() && second.token() > first.token());
    nothing(&ours).await?;

    let old = first.token();
    first.release().await?;
    let again = take(&theirs).await?;
    assert_eq!(again.name(), "0");
    assert!(again.token() > old);
    drop((again, second));
    all_is_gone(&one).await
}

async fn a_wish_is_met_or_waited_for((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (gpus(&one)?, gpus(&two)?);
    let last = take(&ours.prefer(["7", "1"])).await?;
    assert_eq!(last.name(), "1");
    nothing(&theirs.only(["1"])).await?;
    let waits = wait(&theirs.only(["1"]), 1).await?;
    // It does not want what is free.
    let first = take(&ours.prefer(["1"])).await?;
    assert_eq!(first.name(), "0");
    first.release().await?;
    assert!(!waits.is_finished());
    last.release().await?;
    assert_eq!(got(waits).await?.name(), "1");

    let error = ours.only(["7"]).acquire().await.err().context("there is no such thing")?;
    assert_eq!(
        error.to_string(),
        "no thing of /pools/gpu can be taken: the things are 0, 1, and only 7 may be taken"
    );
    // The second one is what counts.
    assert_eq!(ours.only(["7"]).only(["1"]).acquire().await?.name(), "1");
    Ok(())
}

async fn what_can_never_be_had_is_not_waited_for(client: Client) -> Result<()> {
    let none = Pool::builder(&client, GPUS).things([""; 0]).build()?;
    let no_one: [&str; 0] = [];
    for (pool, why) in [
        (none, "the program gives no things"),
        (gpus(&client)?.only(no_one), "`only` names no things"),
        (stored(&client)?.only(no_one), "`only` names no things"),
    ] {
        let acquired = tokio::time::timeout(LONG, pool.acquire()).await.context("it waits")?;
        let error = acquired.err().context("there is something")?.to_string();
        assert_eq!(error, format!("no thing of /pools/gpu can be taken: {why}"));
    }
    Ok(())
}

async fn who_waits_is_served_in_order((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (gpus(&one)?, gpus(&two)?);
    let (zero, last) = (take(&ours).await?, take(&ours).await?);
    let first = wait(&theirs.only(["0"]), 1).await?;
    let second = wait(&ours, 2).await?;
    let third = wait(&theirs, 3).await?;

    // The first one does not want this.
    last.release().await?;
    let last = got(second).await?;
    assert_eq!(last.name(), "1");
    assert!(!first.is_finished() && !third.is_finished());
    zero.release().await?;
    let zero = got(first).await?;
    assert_eq!(zero.name(), "0");
    assert!(!third.is_finished());
    drop(zero);
    assert_eq!(got(third).await?.name(), "0");
    Ok(())
}

/// Somebody waits, and has not heard yet that something is free: it is not for others.
async fn who_comes_later_does_not_overtake((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (gpus(&participant.client)?, gpus(&other)?);
    let (zero, last) = (take(&theirs).await?, take(&theirs).await?);
    let waits = wait(&ours.only(["0"]), 1).await?;
    participant.proxy.hold_replies();
    zero.release().await?;
    nothing(&theirs).await?;
    last.release().await?;
    // Nobody else wants this one.
    let last = take(&theirs).await?;
    assert_eq!(last.name(), "1");
    participant.proxy.restore();
    assert_eq!(got(waits).await?.name(), "0");
    Ok(())
}

/// Somebody looks, and then others come into the line: what it has seen is not for it any more.
async fn who_has_looked_before_does_not_overtake((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (gpus(&alice.client)?, gpus(&bob.client)?);
    // The outcome markers are known from then on.
    let (zero, last) = (take(&ours).await?, take(&theirs).await?);
    last.release().await?;
    alice.proxy.clear();
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeRequest);
    let late = ours.clone();
    let late = tokio::spawn(async move { late.acquire().await });
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::MultiRead))).await;
    alice.proxy.refuse();

    let last = take(&theirs).await?;
    let waits = wait(&theirs.only(["1"]), 1).await?;
    bob.proxy.hold_replies();
    let observer = bob.observer().await?;
    observer.delete(last.node(), None).await?;
    alice.proxy.restore();
    waiting(&gpus(&observer)?, 2).await?;
    bob.proxy.restore();
    // Held until the end: its release would give the waiter this one.
    let one = got(waits).await?;
    assert_eq!(one.name(), "1");
    assert!(!late.is_finished());
    zero.release().await?;
    assert_eq!(got(late).await?.name(), "0");
    Ok(())
}

async fn a_holder_has_no_more_than_its_limit((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (limited(&one, "ann", 1)?, limited(&two, "ann", 1)?);
    let others = limited(&two, "bob", 2)?;
    let first = take(&ours).await?;
    nothing(&theirs).await?;
    let second = wait(&theirs, 1).await?;
    // Others overtake a holder that is at its limit.
    let bobs = take(&others).await?;
    assert_eq!(bobs.name(), "1");
    bobs.release().await?;
    assert!(!second.is_finished());

    let report = ours.inspect().await?;
    assert_eq!(report.held[0].holder.as_deref(), Some("ann"));
    assert_eq!(report.waiting[0].holder.as_deref(), Some("ann"));
    first.release().await?;
    let second = got(second).await?;
    nothing(&ours).await?;
    drop(second);
    all_is_gone(&one).await?;
    let (a, b) = (take(&others).await?, take(&others).await?);
    assert_ne!(a.name(), b.name());
    Ok(())
}

async fn the_stored_set_may_change((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (stored(&one)?, stored(&two)?);
    assert_eq!(theirs.things().await?, [] as [&str; 0]);
    nothing(&ours).await?;
    let waits = wait(&ours, 1).await?;
    let others = wait(&ours.only(["b"]), 2).await?;
    assert_eq!(theirs.change(|names| names.push("a".to_owned())).await?, ["a"]);
    let first = got(waits).await?;
    assert_eq!(first.name(), "a");
    assert!(!others.is_finished());
    theirs.change(|names| names.push("b".to_owned())).await?;
    let second = got(others).await?;
    assert_eq!(second.name(), "b");

    // What is taken out is not given to others, and stays with its holder.
    theirs.change(|names| names.retain(|name| name != "a")).await?;
    assert!(first.verify().await.is_ok());
    first.release().await?;
    nothing(&theirs).await?;
    second.release().await?;
    assert_eq!(take(&theirs).await?.name(), "b");
    assert_eq!(ours.things().await?, ["b"]);

    let given = gpus(&one)?;
    let path = ZnodePath::new(GPUS)?;
    assert_eq!(given.things().await.err(), Some(PoolError::Given { path }));
    Ok(())
}

/// It is seen to be free, and taken out before it is claimed.
async fn what_was_taken_out_is_not_given((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (stored(&participant.client)?, stored(&other)?);
    theirs.change(|names| names.push("a".to_owned())).await?;
    take(&ours).await?.release().await?;
    participant.proxy.clear();
    participant.proxy.lose_next(OpCode::Multi, Loss::BeforeRequest);
    let trying = tokio::spawn(async move { ours.try_acquire().await });
    participant.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::MultiRead))).await;
    participant.proxy.refuse();
    theirs.change(Vec::clear).await?;
    participant.proxy.restore();
    let taken = trying.await??;
    assert!(taken.is_none(), "{taken:?}");
    Ok(())
}

async fn lost_replies_neither_take_twice_nor_leak((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (limited(&participant.client, "ann", 1)?, gpus(&other)?);
    take(&ours).await?.release().await?;
    for loss in [Loss::BeforeRequest, Loss::BeforeReply, Loss::BeforeReply] {
        participant.proxy.lose_next(OpCode::Multi, loss);
        let zero = take(&ours).await?;
        assert_eq!((zero.name(), theirs.inspect().await?.held.len()), ("0", 1), "{loss:?}");
        participant.proxy.lose_next(OpCode::Delete, loss);
        zero.release().await?;
        all_is_gone(&other).await?;

        // In line, and the claim out of it.
        let held = (take(&theirs).await?, take(&theirs).await?);
        participant.proxy.lose_next(OpCode::Multi, loss);
        let waits = wait(&ours, 1).await?;
        participant.proxy.lose_next(OpCode::Multi, loss);
        held.1.release().await?;
        let last = got(waits).await?;
        assert_eq!((last.name(), theirs.inspect().await?.held.len()), ("1", 2), "{loss:?}");
        assert!(last.verify().await.is_ok());
        drop((held.0, last));
        participant.proxy.lose_no_more();
        all_is_gone(&other).await?;
    }
    Ok(())
}

async fn who_waits_goes_on_in_the_next_session((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (gpus(&participant.client)?, gpus(&other)?);
    let held = (take(&theirs).await?, take(&theirs).await?);
    let waits = wait(&ours, 1).await?;
    participant.proxy.expire_session().await?;
    // What is left of the old session does not count.
    waiting(&theirs, 1).await?;
    held.0.release().await?;
    let guard = got(waits).await?;
    assert_eq!(guard.session(), participant.client.session_id());
    assert!(guard.verify().await.is_ok());
    Ok(())
}

async fn who_dies_gives_back_and_knows_before((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (limited(&participant.client, "ann", 2)?, limited(&other, "ann", 2)?);
    let dying = (take(&ours).await?, take(&ours).await?);
    let waits = wait(&theirs, 1).await?;
    participant.proxy.refuse();
    participant.proxy.expire_session().await?;
    let guard = got(waits).await?;
    assert!(
        !dying.0.is_held() || dying.0.name() != guard.name() || guard.token() > dying.0.token()
    );
    participant.proxy.restore();
    assert_eq!(dying.0.lost().await, LossReason::SessionExpired);
    assert!(dying.1.release().await.is_err());
    // A late give-back does not hit those of later holders.
    drop(dying.0);
    participant.client.sync(&node("held")).await?;
    assert!(guard.verify().await.is_ok());
    drop(guard);
    all_is_gone(&other).await
}

/// What is dropped after any number of messages leaves nothing behind.
async fn a_wait_can_end_at_any_moment((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (limited(&participant.client, "ann", 1)?, gpus(&other)?);
    take(&ours).await?.release().await?;
    for frees in [true, false] {
        for messages in 0..14 {
            let (zero, last) = (take(&theirs).await?, take(&theirs).await?);
            participant.proxy.clear();
            let pool = ours.clone();
            let acquiring = tokio::spawn(async move { pool.acquire().await });
            let held = match frees {
                true => {
                    zero.release().await?;
                    vec![last]
                }
                false => vec![zero, last],
            };
            let passes = participant.proxy.passes(|passed| passed.len() >= messages);
            // There may be fewer.
            let _ = tokio::time::timeout(Duration::from_millis(50), passes).await;
            acquiring.abort();
            drop((acquiring.await, held));
            all_given_back(&other, &ours)
                .await
                .with_context(|| format!("after {messages} messages"))?;
        }
    }
    Ok(())
}

async fn all_given_back(client: &Client, ours: &Pool) -> Result<()> {
    all_is_gone(client).await?;
    // And its holder has its place again.
    take(ours).await?.release().await?;
    Ok(())
}

async fn who_gives_up_leaves_nothing((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (gpus(&participant.client)?, gpus(&other)?);
    let held = (take(&theirs).await?, take(&theirs).await?);
    assert!(ours.acquire_timeout(SHORT).await?.is_none());
    assert!(ours.acquire_timeout(Duration::ZERO).await?.is_none());
    children_reach(&other, &node("line"), 0).await?;
    // The next one is not kept back.
    let giving_up = wait(&ours, 1).await?;
    let waits = wait(&theirs, 2).await?;
    giving_up.abort();
    held.0.release().await?;
    assert_eq!(got(waits).await?.name(), "0");
    Ok(())
}

/// A timeout includes outages.
async fn a_wait_with_a_limit_outlasts_an_outage(backend: Backend) -> Result<()> {
    let (participant, other) = (short(&backend).await?, backend.observer().await?);
    let (ours, theirs) = (gpus(&participant.client)?, gpus(&other)?);
    let held = (take(&theirs).await?, take(&theirs).await?);
    let pool = ours.clone();
    let waits = tokio::spawn(async move { pool.acquire_timeout(LONG).await });
    let forever = wait(&ours, 2).await?;
    participant.proxy.refuse();
    participant.client.status().wait_for(|it| it.contact == Contact::Unreachable).await?;
    let failed = forever.await?.err().context("it waits through an outage")?;
    assert!(matches!(failed, PoolError::Take { .. } | PoolError::Client { .. }), "{failed}");
    participant.proxy.restore();
    waiting(&theirs, 1).await?;
    held.0.release().await?;
    let guard = tokio::time::timeout(LONG, waits).await???.context("it was given back in time")?;
    assert_eq!(guard.name(), "0");
    Ok(())
}

async fn what_is_no_pool_is_named(backend: Backend) -> Result<()> {
    let client = backend.observer().await?;
    let pool = gpus(&client)?;
    take(&pool).await?.release().await?;
    for (below, data) in [("held/%zz", ""), ("line/x", ""), ("things", "0, 1")] {
        client.create(&node(below), data, CreateMode::Persistent).await?;
        let error = pool.try_acquire().await.err().context("it goes on")?;
        assert!(matches!(error, PoolError::Foreign { .. }), "{error}");
        client.delete(&node(below), None).await?;
    }
    let path = ZnodePath::new("/other")?;
    client.create(&path, "{\"lockkeeper-pool\":2}", CreateMode::Persistent).await?;
    let error = Pool::new(&client, "/other")?.acquire().await.err().context("it goes on")?;
    let expected = "/other is not part of a pool: it has the pool layout 2 instead of 1";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert!(client.children(&path).await?.0.is_empty());

    let path = ZnodePath::new("/words")?;
    client.create(&path, "some words", CreateMode::Persistent).await?;
    let error = Pool::new(&client, "/words")?.acquire().await.err().context("it goes on")?;
    assert!(error.to_string().contains("it has the data \"some words\";"), "{error}");

    for bad in ["/", "x"] {
        assert!(Pool::new(&client, bad).is_err());
    }
    let none = Pool::builder(&client, GPUS).at_most("ann", 0).build().err();
    assert_eq!(none, Some(PoolError::NoPlaces { holder: "ann".to_owned() }));
    Ok(())
}

/// Symptom: after the last holder of a lock, its node could not become a pool until servers had removed it.
async fn a_node_that_nothing_uses_becomes_a_pool(client: Client) -> Result<()> {
    let path = ZnodePath::new(GPUS)?;
    let lock = Mutex::new(&client, GPUS)?;
    let held = lock.acquire().await?;
    let error = gpus(&client)?.try_acquire().await.err().context("it is a lock")?;
    assert!(error.to_string().contains("it has no data;"), "{error}");
    held.release().await?;
    assert_eq!(take(&gpus(&client)?).await?.name(), "0");
    assert_eq!(&client.data(&path).await?.0[..], b"{\"lockkeeper-pool\":1}");
    Ok(())
}

/// An administrator creates and deletes the node of a thing, to take it out of use for a while.
async fn a_node_that_was_made_by_hand_keeps_a_thing_out_of_use((one, two): Clients) -> Result<()> {
    let pool = gpus(&one)?;
    take(&pool).await?.release().await?;
    two.create(&node("held/0"), "", CreateMode::Persistent).await?;
    assert_eq!(take(&pool).await?.name(), "1");
    nothing(&pool.only(["0"])).await?;
    let held = pool.inspect().await?.held;
    let kept = held.iter().find(|it| it.name == "0").context("it is not shown")?;
    assert_eq!((kept.session, &kept.info), (SessionId::NONE, &None));

    let waits = wait(&pool.only(["0"]), 1).await?;
    two.delete(&node("held/0"), None).await?;
    assert_eq!(got(waits).await?.name(), "0");
    Ok(())
}

/// The pool is deleted while it is used: it is created again, and the waiters enter again.
async fn a_pool_that_was_deleted_is_made_again((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (gpus(&participant.client)?, gpus(&other)?);
    let held = (take(&theirs).await?, take(&theirs).await?);
    let waits = wait(&ours, 1).await?;
    let line = other.children(&node("line")).await?.0;
    let all = other.transaction().delete(&node(&format!("line/{}", line[0])), None);
    let all = all.delete(held.0.node(), None).delete(held.1.node(), None);
    let all = ["held", "line"].iter().fold(all, |all, below| all.delete(&node(below), None));
    all.delete(&ZnodePath::new(GPUS)?, None).commit().await?;
    assert_eq!(got(waits).await?.name(), "0");
    assert!(held.0.verify().await.is_err(), "it is held by another one");
    Ok(())
}

async fn a_look_tells_who_has_what((one, two): Clients) -> Result<()> {
    let ours = Pool::builder(&one, GPUS).things(["0", "1"]).label("training").build()?;
    let theirs = stored(&two)?;
    let held = take(&ours.only(["1"])).await?;
    let waits = wait(&theirs.only(["1", "x"]), 1).await?;
    let report = ours.inspect().await?;
    assert_eq!(report.free, ["0"]);
    let info = report.held[0].info.as_ref().context("it describes its program")?;
    assert_eq!((report.held[0].name.as_str(), info.label.as_deref()), ("1", Some("training")));
    assert_eq!((report.held[0].token, report.held[0].session), (held.token(), held.session()));
    let only = BTreeSet::from(["1", "x"].map(str::to_owned));
    assert_eq!(report.waiting[0].only, Some(only));
    waits.abort();
    waiting(&ours, 0).await
}

/// A read and a claim. A waiter is woken for the resource that it gets.
async fn what_a_thing_costs((alice, bob): Pair) -> Result<()> {
    use OpCode::{Delete, GetData, Multi, MultiRead, Sync};
    let (ours, theirs) = (gpus(&alice.client)?, gpus(&bob.client)?);
    let (zero, last) = (take(&ours).await?, take(&theirs).await?);
    alice.proxy.clear();
    zero.release().await?;
    let passed = alice.proxy.requests();
    assert_eq!(passed[..3], [Sync, GetData, Delete]);
    alice.proxy.clear();
    let zero = ours.acquire().await?;
    assert_eq!(alice.proxy.requests()[..2], [MultiRead, Multi]);
    drop((zero, last));
    all_is_gone(&bob.client).await?;

    // All want the same. A grant wakes the first, and with its leaving the next.
    let held = (take(&theirs).await?, take(&theirs).await?);
    let mut line = Vec::new();
    for place in 1..=6 {
        line.push(wait(&ours, place).await?);
    }
    // Each has looked once more since it has begun to watch.
    children_reach(&bob.client, &node("line"), 6).await?;
    alice.client.sync(&node("line")).await?;
    tokio::task::yield_now().await;
    alice.proxy.clear();
    held.0.release().await?;
    let first = got(line.remove(0)).await?;
    assert_eq!(first.name(), "0");
    waiting(&theirs, 5).await?;
    bob.client.sync(&node("line")).await?;
    alice.client.sync(&node("line")).await?;
    let events = alice.proxy.events();
    assert!(events.len() <= 2, "{events:?}");
    for waits in line {
        waits.abort();
    }
    drop((first, held.1));
    all_is_gone(&bob.client).await
}
