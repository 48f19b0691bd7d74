//! What a known tree shows of recipes is what they show of themselves.

use anyhow::{Context, Result, ensure};
use lockkeeper::overview::Overview;
use lockkeeper::{
    Client, Election, Group, Instance, Item, Mutex, Once, OnceKey, Pool, PutOptions, Queue,
    Registration, TreeCache, ZnodePath,
};

use crate::{Clients, contract};

contract!(overview);

async fn overview(client: &Client) -> Result<Overview> {
    let cache = TreeCache::builder(client, "/o").open().await?;
    Ok(Overview::in_tree(&*cache.snapshot(), &ZnodePath::new("/o")?))
}

/// Waits until the cache has all that was written: a cache is of one moment, and the first one may lag behind on a follower.
async fn agrees(client: &Client, queue: &Queue<u32>, pool: &Pool) -> Result<Overview> {
    loop {
        let seen = overview(client).await?;
        let (of_queue, of_pool) = (queue.inspect().await?, pool.inspect().await?);
        let queue_report = seen.queues.first().map(|it| &it.report);
        let pool_report = seen.pools.first().map(|it| &it.report);
        if queue_report == Some(&of_queue) && pool_report == Some(&of_pool) {
            return Ok(seen);
        }
    }
}

async fn a_queue_and_a_pool_are_shown_as_they_show_themselves((one, two): Clients) -> Result<()> {
    let queue: Queue<u32> = Queue::new(&one, "/o/jobs")?;
    let pool = Pool::new(&two, "/o/gpu")?;
    pool.change(|things| things.extend(["0".to_owned(), "1".to_owned()])).await?;
    for value in 0..5 {
        queue.put(&value).await?;
    }
    queue.put_with(&7, &PutOptions::default().delay(std::time::Duration::from_secs(600))).await?;
    queue.put_with(&8, &PutOptions::default().priority(-3)).await?;
    let claimed: Item<u32> = queue.take().await?;
    queue.take().await?.bury("it is broken").await?;
    let _held = pool.acquire().await?;

    let seen = agrees(&one, &queue, &pool).await?;
    let report = &seen.queues[0].report;
    assert_eq!((report.waiting, report.claimed, report.delayed, report.dead), (4, 1, 1, 1));
    assert_eq!((report.workers, report.oldest_unix_ms.is_some()), (1, true));
    assert_eq!((seen.pools[0].report.held.len(), seen.pools[0].report.free.len()), (1, 1));
    assert!(seen.locks.is_empty(), "the nodes of recipes are not locks: {:?}", seen.locks);
    let holds: Vec<_> = seen.sessions.iter().flat_map(|session| &session.holds).collect();
    assert_eq!(holds.len(), 2, "an item and a thing: {:?}", seen.sessions);
    claimed.done().await?;
    Ok(())
}

async fn elections_groups_services_and_runs_are_shown((one, two): Clients) -> Result<()> {
    let leads = Election::builder(&one, "/o/leader").id("first").build()?;
    let leads = leads.campaign().await?;
    leads.proclaim("10.0.0.1").await?;
    let member = Group::new(&two, "/o/group")?.join("m", "").await?;
    let instance = Instance::new("web", "7").address("10.0.0.7").port(80);
    let registered = Registration::start(&two, "/o/services", instance).await?;
    let lock = Mutex::new(&one, "/o/lock")?;
    let guard = lock.acquire().await?;
    let once = Once::new(&one, "/o/lock")?;
    let run = match once.begin(&guard, OnceKey::from("a")).await? {
        lockkeeper::Begun::Run(run) => run,
        other => anyhow::bail!("{other:?}"),
    };

    let seen = overview(&one).await?;
    let leader = seen.elections.first().and_then(|it| it.leader.as_ref()).context("it leads")?;
    assert_eq!((leader.id.as_str(), leader.value.as_deref()), ("first", Some("10.0.0.1")));
    assert_eq!(leader.token, leads.token());
    ensure!(seen.groups.iter().any(|it| it.path.as_str() == "/o/group" && it.members.len() == 1));
    ensure!(seen.services.len() == 1 && seen.services[0].instances[0].0.id == "7");
    let paths: Vec<_> = seen.locks.iter().map(|lock| lock.path.as_str()).collect();
    assert_eq!(paths, ["/o/leader", "/o/lock"]);
    let log = seen.once.first().context("its record")?;
    let queue = seen.lock(&log.lock);
    assert_eq!((log.records.len(), log.abandoned(queue).count()), (1, 0));
    assert_eq!(log.abandoned(None).count(), 1, "had it left the lock");
    run.end(0).await?;
    let seen = overview(&one).await?;
    assert_eq!(seen.once[0].abandoned(None).count(), 0);

    guard.release().await?;
    registered.unregister().await?;
    member.leave().await?;
    leads.resign().await?;
    Ok(())
}
