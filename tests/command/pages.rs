//! The guide and the pages of the recipes: their blocks of Rust are compiled and run here, their scripts run, and the
//! znodes that they draw are those on a server.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper::{
    Barrier, Client, CountDownLatch, DoubleBarrier, Election, ExclusiveNode, FencingToken, Group,
    Instance, Mutex, Names, Pool, Presence, Publication, Queue, Registration, RwLock, Semaphore,
    Shared, TreeCache, TtlPresence,
};
use lockkeeper_engine::Engine;
use lockkeeper_testkit::command::lockkeeper;

use crate::support::{Ended, Home};

/// Every page whose blocks run here. The programs of others are examples, which have tests of their own.
const PAGES: [&str; 17] = [
    "barriers.md",
    "caches.md",
    "elections.md",
    "groups.md",
    "guide.md",
    "locks.md",
    "multi-locks.md",
    "names.md",
    "once.md",
    "partitions.md",
    "pools.md",
    "publications.md",
    "queues.md",
    "read-write-locks.md",
    "semaphores.md",
    "values.md",
    "worker-ids.md",
];

/// Pages whose scripts have tests of their own.
const SCRIPTS_NOT_RUN: [&str; 1] = ["pools.md"];

fn page(name: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no folder above")?;
    fs::read_to_string(root.join("docs").join(name)).with_context(|| format!("no {name}"))
}

/// The blocks of one language on a page, also those in lists.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut pieces = page.split("```");
    pieces.next();
    while let Some(block) = pieces.next() {
        let body = block.strip_prefix(language).and_then(|rest| rest.strip_prefix('\n'));
        found.extend(body);
        pieces.next();
    }
    found
}

/// Lines without their indentation, which a page does not have.
fn dedented(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn every_block_of_rust_is_part_of_a_program_that_runs() -> Result<()> {
    let programs = dedented(include_str!("pages.rs"));
    for name in PAGES {
        let page = page(name)?;
        let blocks = blocks(&page, "rust");
        ensure!(!blocks.is_empty(), "{name} shows no program");
        for block in blocks {
            ensure!(programs.contains(&dedented(block)), "{name}: nothing runs\n{block}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_script_runs() -> Result<()> {
    let scripts = PAGES.into_iter().filter(|name| !SCRIPTS_NOT_RUN.contains(name));
    for name in scripts.chain(["services.md"]) {
        let home = Home::new()?;
        let script: String = blocks(&page(name)?, "sh").concat();
        ensure!(!script.is_empty(), "{name} shows no command");
        let program = lockkeeper()?;
        let folder = program.parent().context("a program in no folder")?.display().to_string();
        let path = format!("{folder}:{}", std::env::var("PATH")?);
        let mut shell = std::process::Command::new("sh");
        for (variable, value) in home.command("ls").get_envs() {
            match value {
                Some(value) => shell.env(variable, value),
                None => shell.env_remove(variable),
            };
        }
        shell.args(["-euc", &script]).env("PATH", path).current_dir(home.folder());
        let ended = Ended::of(&mut shell)?;
        ensure!(ended.code == Some(0), "{name}: {ended:?}");
    }
    Ok(())
}

/// A server, and a client of it.
async fn start() -> Result<(Engine, Client)> {
    let engine = Engine::builder().allow_ttl_nodes().start().await?;
    let client = Client::connect(&engine.connect_string()).await?;
    Ok((engine, client))
}

/// The paths that a page draws below its heading `Znodes`: each name ends at a blank, and two blanks more are one level.
fn drawn(page: &str) -> Vec<String> {
    let below = page.split("\n## Znodes\n").nth(1).unwrap_or_default();
    let pictures = blocks(below.split("\n## ").next().unwrap_or_default(), "text");
    let mut paths = Vec::new();
    let mut above: Vec<&str> = Vec::new();
    for line in pictures.iter().flat_map(|picture| picture.lines()) {
        let Some(name) = line.split_whitespace().next() else { continue };
        above.truncate((line.len() - line.trim_start().len()) / 2);
        above.push(name);
        paths.push(above.join("/"));
    }
    paths
}

/// Whether a path is this one of a picture, in which `…`, with the beginning of an id before it, and numbers stand for
/// any.
fn is_like(path: &str, drawn: &str) -> bool {
    path.split('/').count() == drawn.split('/').count()
        && path.split('/').zip(drawn.split('/')).all(|(name, drawn)| is_name_like(name, drawn))
}

fn is_name_like(name: &str, drawn: &str) -> bool {
    let mut pattern = String::new();
    for c in drawn.chars() {
        if c == '…' {
            let kept = pattern.trim_end_matches(|c: char| c == '#' || c.is_ascii_hexdigit()).len();
            pattern.truncate(kept);
        }
        pattern.push(if c == '…' || c.is_ascii_digit() { '#' } else { c });
    }

    let mut pieces = pattern.split('#');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.is_empty() || pattern.ends_with('#')
}

/// Waits until everything that a page draws is on the servers.
async fn is_as_drawn(client: &Client, name: &str) -> Result<()> {
    let drawn = drawn(&page(name)?);
    ensure!(!drawn.is_empty(), "{name} draws no znodes");
    let mut missing = Vec::new();
    for _ in 0..60 {
        let snapshot = TreeCache::open(client, "/").await?.snapshot();
        let paths: BTreeSet<_> = snapshot.nodes().into_iter().map(|(path, _)| path).collect();
        let mut left = paths.clone();
        missing.clear();
        for wanted in &drawn {
            match left.iter().find(|path| is_like(path, wanted)).cloned() {
                Some(path) => _ = left.remove(&path),
                None => missing.push(wanted.clone()),
            }
        }
        if missing.is_empty() {
            if std::env::var_os("SHOW_ZNODES").is_some() {
                println!("{name}\n{}", paths.into_iter().collect::<Vec<_>>().join("\n"));
            }
            return Ok(());
        }
        missing.push(format!("{paths:#?}"));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("{name}: not there: {}", missing.join("\n"))
}

#[test]
fn pictures_are_read_as_paths() {
    let page = "\n## Znodes\n\n```text\n/a       here\n  b…-007\n    c\n```\n\n## Cost\n\n```text\n/x\n```\n";
    assert_eq!(drawn(page), ["/a", "/a/b…-007", "/a/b…-007/c"]);
    for (path, drawn) in [
        ("/a", "/a"),
        ("/a/b7-x-0000000012", "/a/bc0…-x-007"),
        ("/q/12/c", "/q/7/c"),
        ("/q/9f31.2-17", "/q/5ec….0-007"),
    ] {
        assert!(is_like(path, drawn), "{path} {drawn}");
    }
    for (path, drawn) in [
        ("/ab", "/a"),
        ("/a/c-1", "/a/x…-007"),
        ("/b/a", "/a"),
        ("/a/x", "/a/y"),
        ("/a/b", "/a/…/b"),
    ] {
        assert!(!is_like(path, drawn), "{path} {drawn}");
    }
}

/// The work under a lock.
async fn ship(_token: FencingToken) {}

#[tokio::test]
async fn the_guide() -> Result<()> {
    let (engine, _) = start().await?;
    let servers = engine.connect_string();
    use lockkeeper::{Client, Mutex};

    let client = Client::connect(&servers).await?;
    let lock = Mutex::new(&client, "/orders")?;
    let guard = lock.acquire().await?;
    println!("held, with token {}", guard.token());
    guard.release().await?;

    match lock.acquire_timeout(Duration::from_secs(30)).await {
        Ok(guard) => guard.release().await?,
        Err(error) => println!("not acquired: {error}"),
    }
    if let Some(guard) = lock.try_acquire().await? {
        guard.release().await?;
    }

    let guard = lock.acquire().await?;
    guard.run(ship(guard.token())).await?;

    guard.ensure(Duration::from_secs(1))?; // fails if less than a second of the lease is left
    ship(guard.token()).await;
    guard.release().await?;

    let fence = lockkeeper::Fence::new();
    let guard = lock.acquire().await?;
    fence.admit(guard.token())?; // fails for a token below the highest one so far
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn the_page_on_locks() -> Result<()> {
    let (engine, client) = start().await?;
    let servers = engine.connect_string();
    let first = Mutex::new(&client, "/locks/orders")?.acquire().await?;
    let handles = (Mutex::new(&client, "/locks/orders")?, Mutex::new(&client, "/locks/orders")?);
    let waiters =
        <[_; 2]>::from(handles).map(|lock| tokio::spawn(async move { lock.acquire().await }));
    is_as_drawn(&client, "locks.md").await?;
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    first.release().await?;

    {
        use lockkeeper::{Client, Mutex};

        let client = Client::connect(&servers).await?;
        let lock = Mutex::new(&client, "/locks/orders")?;
        let guard = lock.acquire_timeout(Duration::from_secs(5)).await?;
        guard.run(ship(guard.token())).await?; // dropped at the moment the lock is lost
        guard.release().await?;
    }

    {
        use lockkeeper::Locks;

        let orders = Locks::new(&client, "/locks/by-order")?;
        let guard = orders.get("2026/07/Zürich")?.acquire().await?;
        guard.release().await?;
    }

    let node = ExclusiveNode::new(&client, "/locks/node")?.acquire().await?;
    node.release().await?;
    Ok(())
}

#[tokio::test]
async fn the_page_on_read_write_locks() -> Result<()> {
    let (_engine, client) = start().await?;
    let catalogue = RwLock::new(&client, "/locks/catalogue")?;
    let readers = (catalogue.read().await?, catalogue.read().await?);
    let (writes, reads) = (catalogue.clone(), RwLock::new(&client, "/locks/catalogue")?);
    let writer = tokio::spawn(async move { writes.write().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let reader = tokio::spawn(async move { reads.read().await });
    is_as_drawn(&client, "read-write-locks.md").await?;
    writer.abort();
    reader.abort();
    drop(readers);

    {
        use lockkeeper::RwLock;

        let prices = RwLock::new(&client, "/locks/prices")?;
        let (one, two) = (prices.read().await?, prices.read().await?);
        one.release().await?;
        two.release().await?;

        let writing = prices.write().await?;
        let reading = writing.downgrade().await?; // no writer in between
        reading.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_semaphores() -> Result<()> {
    let (_engine, client) = start().await?;
    let held = Semaphore::new(&client, "/locks/scanners", 2)?.acquire_many(2).await?;
    drop(held);
    {
        use lockkeeper::Semaphore;

        let printers = Semaphore::new(&client, "/locks/printers", 3)?;
        let one = printers.acquire().await?;
        let two = printers.acquire_many(2).await?; // both, or it waits
        printers.set_permits(4).await?;
        two.release().await?;
        one.release().await?;
    }
    let printers = || Semaphore::new(&client, "/locks/copiers", 2);
    let held = (printers()?.acquire().await?, printers()?.acquire().await?);
    let waits = printers()?;
    let waiter = tokio::spawn(async move { waits.acquire().await });
    is_as_drawn(&client, "semaphores.md").await?;
    waiter.abort();
    drop(held);
    Ok(())
}

#[tokio::test]
async fn the_page_on_multi_locks() -> Result<()> {
    let (_engine, client) = start().await?;
    let bob = Mutex::new(&client, "/accounts/bob")?.acquire().await?;
    let all = lockkeeper::MultiLock::new(&client, ["/accounts/alice", "/accounts/bob"])?;
    let waiter = tokio::spawn(async move { all.acquire().await });
    is_as_drawn(&client, "multi-locks.md").await?;
    waiter.abort();
    bob.release().await?;
    {
        use lockkeeper::MultiLock;

        let both = MultiLock::new(&client, ["/accounts/bob", "/accounts/alice"])?;
        let guard = both.acquire_timeout(Duration::from_secs(5)).await?;
        for (path, token) in guard.tokens() {
            println!("{path}: {token}");
        }
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_names() -> Result<()> {
    let (_engine, client) = start().await?;
    let held = Names::builder(&client, "/machines").build()?.claim("worker-1").await?;
    is_as_drawn(&client, "names.md").await?;
    held.release().await?;
    {
        use lockkeeper::Names;

        let names = Names::builder(&client, "/machines").label("10.0.0.7:80").build()?;
        let claim = names.claim_any(["worker-1", "worker-2"]).await?.context("both are taken")?;
        println!("{} with token {}", claim.name(), claim.token());
        claim.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_elections() -> Result<()> {
    let (_engine, client) = start().await?;
    let leads = Election::builder(&client, "/election/scheduler").id("node-1").build()?;
    let leadership = leads.campaign().await?;
    leadership.proclaim("10.0.0.1:4000").await?;
    let stands = Election::builder(&client, "/election/scheduler").id("node-2").build()?;
    let candidate = tokio::spawn(async move { stands.campaign().await });
    is_as_drawn(&client, "elections.md").await?;
    candidate.abort();
    leadership.resign().await?;

    async fn schedule(_: &lockkeeper::Leadership) -> Result<()> {
        Ok(())
    }
    {
        use lockkeeper::Election;

        let election = Election::builder(&client, "/election/scheduler").id("node-7").build()?;
        election
            .lead(async |leadership| {
                leadership.proclaim("10.0.0.7:4000").await?;
                schedule(&leadership).await // ends with the leadership, and starts again with the next
            })
            .await??;
    }
    {
        let election = Election::builder(&client, "/election/scheduler").id("node-8").build()?;
        let leadership = election.campaign().await?;
        leadership.proclaim("10.0.0.8:4000").await?;

        let leaders = election.observe().await?;
        if let Some(leader) = leaders.current() {
            println!("{} leads, at {:?}", leader.id, leader.value);
        }
        leadership.resign().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_groups() -> Result<()> {
    let (_engine, client) = start().await?;
    let group = Group::new(&client, "/workers")?;
    let member = group.join("host-1", "10.0.0.1:80").await?;
    let presence = Presence::builder(&client, "/cameras/3").start().await?;
    let ttl = Duration::from_secs(60);
    let camera = TtlPresence::builder(&client, "/cameras/7", ttl).start().await?;
    is_as_drawn(&client, "groups.md").await?;
    camera.end().await?;
    presence.end().await?;
    member.leave().await?;
    {
        use lockkeeper::Group;

        let group = Group::new(&client, "/workers")?;
        let me = group.join("host-7", "10.0.0.7:80").await?;
        let members = group.watch().await?;
        let view = members.wait_for(1).await?;
        println!("view {:?} has {} members", view.id(), view.len());
        me.leave().await?;
    }
    {
        use lockkeeper::Presence;

        let presence = Presence::builder(&client, "/cameras/8").data("10.0.0.8").start().await?;
        println!("{:?}", presence.state());
        presence.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_services() -> Result<()> {
    let (_engine, client) = start().await?;
    let instance = Instance::new("web", "web-1").address("10.0.0.1").port(8080);
    let registration = Registration::start(&client, "/services", instance).await?;
    is_as_drawn(&client, "services.md").await?;
    registration.unregister().await?;
    Ok(())
}

/// A job, as JSON in a queue.
#[derive(serde::Serialize, serde::Deserialize)]
struct Resize {
    image: String,
}

async fn resize(_: &Resize) -> Result<lockkeeper::Verdict, std::io::Error> {
    Ok(lockkeeper::Verdict::Done)
}

#[tokio::test]
async fn the_page_on_queues() -> Result<()> {
    let (_engine, client) = start().await?;
    let queue: Queue<String> = Queue::new(&client, "/images/jobs")?;
    for number in 0..3 {
        queue.put(&format!("cat{number}.jpg")).await?;
    }
    queue.take().await?.bury("no image").await?;
    let item = queue.take().await?;
    is_as_drawn(&client, "queues.md").await?;
    item.done().await?;
    drop(item);
    queue.delete().await.ok();

    let work = {
        use lockkeeper::Queue;

        let jobs = Queue::<Resize>::builder(&client, "/resize").max_tries(3).build()?;
        jobs.put(&Resize { image: "cat.jpg".to_owned() }).await?;
        let work = jobs.work(2, async |job| resize(job.value()).await);
        tokio::time::timeout(Duration::from_millis(300), work).await
    };
    ensure!(work.is_err(), "it works on until it is dropped");

    {
        use lockkeeper::PutOptions;

        let jobs = Queue::<Resize>::new(&client, "/resize")?;
        let hour = PutOptions::new().delay(Duration::from_secs(3600));
        jobs.put_with(&Resize { image: "later.jpg".to_owned() }, &hour).await?;
        let ordered = PutOptions::new().key("customer-7");
        jobs.put_with(&Resize { image: "7.jpg".to_owned() }, &ordered).await?;
    }

    let jobs = Queue::<Resize>::new(&client, "/answers")?;
    let (works, job) = (jobs.clone(), Resize { image: "cat.jpg".to_owned() });
    let worker = tokio::spawn(async move {
        let item = works.take().await?;
        item.done_with_answer(&640).await
    });
    {
        let request = jobs.request(&job).await?;
        match tokio::time::timeout(Duration::from_secs(30), request.answer::<u32>()).await {
            Ok(answer) => println!("{:?}", answer?),
            Err(_) => drop(request.cancel().await?), // no worker has answered
        }
    }
    worker.await??;
    Ok(())
}

#[tokio::test]
async fn the_page_on_barriers() -> Result<()> {
    let (_engine, client) = start().await?;
    let barrier = Barrier::new(&client, "/barriers/migration")?;
    barrier.close().await?;
    let latch = CountDownLatch::new(&client, "/latches/loaded", 6)?;
    latch.count_down().await?;
    let step = DoubleBarrier::new(&client, "/steps/reduce", 3)?;
    let (a, b) = (step.clone(), step.clone());
    let (a, b, c) = tokio::join!(a.enter("a"), b.enter("b"), step.enter("c"));
    let (a, b, c) = (a?, b?, c?);
    let left = tokio::spawn(c.leave());
    is_as_drawn(&client, "barriers.md").await?;
    barrier.open().await?;
    let (a, b) = tokio::join!(a.leave(), b.leave());
    ensure!(a?.is_empty() && b?.is_empty() && left.await??.is_empty(), "a party has died");

    async fn work(_: u32) {}
    async fn party(client: Client, name: &'static str) -> Result<()> {
        use lockkeeper::DoubleBarrier;

        let step = DoubleBarrier::builder(&client, "/steps/map").names(["a", "b"]).build()?;
        let round = step.enter_timeout(name, Duration::from_secs(30)).await?;
        tokio::select! {
            () = work(round.number()) => {}
            died = round.failed() => bail!("{died:?} died"),
            reason = round.lost() => bail!("lost: {reason}"),
        }
        round.leave().await?;
        Ok(())
    }
    let (a, b) = tokio::join!(party(client.clone(), "a"), party(client.clone(), "b"));
    a?;
    b?;

    {
        use lockkeeper::{Barrier, CountDownLatch};

        let barrier = Barrier::new(&client, "/barriers/migration")?;
        barrier.close().await?;
        barrier.open().await?;
        barrier.wait().await?; // returns at once: it is open

        let latch = CountDownLatch::new(&client, "/latches/tables", 2)?;
        latch.count_down().await?;
        latch.count_down().await?;
        latch.wait().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_values() -> Result<()> {
    let (_engine, client) = start().await?;
    let limits: Shared<Vec<u32>> = Shared::new(&client, "/limits")?;
    limits.set(&vec![1]).await?;
    let orders = lockkeeper::Counter::new(&client, "/orders")?;
    orders.add(1).await?;
    let news = lockkeeper::Notify::new(&client, "/news")?;
    news.notify().await?;
    is_as_drawn(&client, "values.md").await?;
    {
        use lockkeeper::{Counter, IdBlocks, Notify, Shared};

        let limits: Shared<Vec<u32>> = Shared::new(&client, "/limits")?;
        limits.set(&vec![10, 20]).await?;
        limits.update(|old| [old.cloned().unwrap_or_default(), vec![30]].concat()).await?;

        let orders = Counter::new(&client, "/orders")?;
        println!("{} orders", orders.add(5).await?.after);
        let ids = IdBlocks::new(&orders, 1_000); // one write for a thousand numbers
        println!("order {}", ids.next().await?);

        let news = Notify::new(&client, "/news")?;
        let known = news.last().await?;
        news.notify().await?;
        news.wait_past(known).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_publications() -> Result<()> {
    let (_engine, client) = start().await?;
    let routes: Publication<Vec<String>> = Publication::new(&client, "/routes")?;
    routes.publish(&vec!["a".into()]).await?;
    routes.publish(&vec!["b".into()]).await?;
    is_as_drawn(&client, "publications.md").await?;
    {
        use lockkeeper::{Publication, ValueChange};

        let routes: Publication<Vec<String>> = Publication::new(&client, "/routes")?;
        let first = routes.publish(&vec!["a".into()]).await?;
        routes.publish(&vec!["a".into(), "b".into()]).await?;

        let mut editions = routes.follow();
        if let ValueChange::Set(now) = editions.next().await? {
            println!("{:?}", now.value);
        }
        routes.rollback(first).await?; // the first one again, under a new number
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_caches() -> Result<()> {
    let (_engine, client) = start().await?;
    {
        use lockkeeper::{CreateMode, TreeCache, ZnodePath};

        let (config, color) = (ZnodePath::new("/config")?, ZnodePath::new("/config/color")?);
        client.create(&config, "", CreateMode::Persistent).await?;
        let cache = TreeCache::builder(&client, "/config").max_nodes(10_000).open().await?;
        let mut changes = cache.changes();

        client.create(&color, "red", CreateMode::Persistent).await?;
        let update = changes.next().await?;
        println!("{} changes", update.changes.len());
        println!("{:?}", cache.snapshot().get("/config/color").map(|node| node.data().to_vec()));
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_partitions() -> Result<()> {
    let (_engine, client) = start().await?;
    async fn crawl(_: &str, _: FencingToken) {}
    async fn finish(_: &str) {}
    {
        use lockkeeper::Partitions;

        let shards = (0..3).map(|n| format!("shard-{n}"));
        let partitions = Partitions::builder(&client, "/crawl").items(shards).build()?;
        let member = partitions.join("host-7").await?;
        let shard = member.next().await?;
        tokio::select! {
            () = crawl(shard.item(), shard.token()) => {}
            _until = shard.moving() => finish(shard.item()).await,
            reason = shard.lost() => println!("stop at once: {reason}"),
        }
        is_as_drawn(&client, "partitions.md").await?;
        shard.release().await?;
        member.leave().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_pools() -> Result<()> {
    let (_engine, client) = start().await?;
    let stored = Pool::new(&client, "/pools/phones")?;
    stored.change(|names| names.extend(["pixel".to_owned(), "fairphone".to_owned()])).await?;
    let phones = Pool::builder(&client, "/pools/phones").at_most("ann", 1).build()?;
    let held = (phones.acquire().await?, stored.acquire().await?);
    let waits = stored.clone();
    let waiter = tokio::spawn(async move { waits.acquire().await });
    is_as_drawn(&client, "pools.md").await?;
    waiter.abort();
    drop(held);

    async fn train(_: &str) {}
    let user = "ann";
    {
        use lockkeeper::Pool;

        let gpus = Pool::builder(&client, "/pools/gpu")
            .things(["gpu-0", "gpu-1"])
            .at_most(user, 1)
            .build()?;
        let gpu = gpus.acquire().await?;
        tokio::select! {
            () = train(gpu.name()) => {}
            reason = gpu.lost() => println!("stop at once: {reason}"),
        }
        gpu.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_page_on_what_is_done_once() -> Result<()> {
    let (_engine, client) = start().await?;
    async fn sync() -> i32 {
        0
    }
    {
        use std::time::SystemTime;

        use lockkeeper::{Begun, Mutex, Once, Tick};

        let once = Once::new(&client, "/jobs/sync")?;
        let guard = Mutex::new(&client, "/jobs/sync")?.acquire().await?;
        let tick = Tick::cut(SystemTime::now(), Duration::from_secs(300)); // counted in UTC
        if let Begun::Run(run) = once.begin(&guard, tick).await? {
            let code = sync().await;
            run.end(code).await?;
        }
        guard.release().await?;
    }
    let once = lockkeeper::Once::new(&client, "/jobs/sync")?;
    let guard = Mutex::new(&client, "/jobs/sync")?.acquire().await?;
    ensure!(matches!(once.begin(&guard, "migration-0042").await?, lockkeeper::Begun::Run(_)));
    is_as_drawn(&client, "once.md").await?;
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn the_page_on_worker_ids() -> Result<()> {
    let (_engine, client) = start().await?;
    {
        use lockkeeper::WorkerIds;

        let workers = WorkerIds::builder(&client, "/order-ids").numbers(0..64).build()?;
        let worker = workers.acquire().await?;
        let id = worker.mint()?; // no request
        println!("order {id:?} of worker {}", worker.number());
        is_as_drawn(&client, "worker-ids.md").await?;
        worker.release().await?;
    }
    Ok(())
}
