//! How large and how fast to start the engine is, beside Apache ZooKeeper on the same machine.
//!
//! Measures rather than tests, so it runs when asked for only: `cargo xtask engine-size`. Both
//! servers are processes of their own, as users start them, each alone while it is measured.

mod servers;

use std::time::{Duration, Instant};

use anyhow::Result;
use lockkeeper_client::{Client, CreateMode, ZnodePath};

use crate::servers::{Memory, Server, directory};

const DATA: [u8; 100] = [b'x'; 100];
const PARENTS: usize = 1_000;
const STARTS: usize = 11;
/// The load after which a server is idle once more: so many clients at once, each so often.
const CLIENTS: usize = 16;
const ROUNDS: usize = 1_000;
/// How long a server is left alone before it counts as idle.
const REST: Duration = Duration::from_secs(10);
/// What a JVM takes depends on how much garbage it has made; the middle of these is told.
const IDLE_RUNS: usize = 3;

/// How many nodes; a million unless `LOCKKEEPER_SIZE_NODES` says otherwise.
fn nodes() -> usize {
    let given = std::env::var("LOCKKEEPER_SIZE_NODES").ok();
    given.and_then(|count| count.parse().ok()).unwrap_or(1_000_000)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

/// Creates the nodes, below parents of a thousand each, 500 in a transaction.
async fn fill(connect: &str, nodes: usize) -> Result<()> {
    let client = Client::connect(connect).await?;
    let per_parent = nodes.div_ceil(PARENTS);
    for parent in 0..PARENTS {
        let parent = ZnodePath::new(&format!("/n{parent:04}"))?;
        client.create(&parent, "", CreateMode::Persistent).await?;
        let mut number = 0;
        while number < per_parent {
            let mut transaction = client.transaction();
            for _ in 0..500.min(per_parent - number) {
                let path = ZnodePath::new(&format!("{parent}/{number:06}"))?;
                transaction = transaction.create(&path, &DATA[..], CreateMode::Persistent);
                number += 1;
            }
            transaction.commit().await?;
        }
    }
    client.close().await;
    Ok(())
}

/// What locks are to a server: ephemeral nodes that come, are looked at, and go.
async fn work(connect: &str) -> Result<()> {
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let client = Client::connect(connect).await?;
        clients.push(tokio::spawn(async move {
            let path = ZnodePath::new(&format!("/work-{number}"))?;
            for _ in 0..ROUNDS {
                client.create(&path, &DATA[..], CreateMode::Ephemeral).await?;
                client.data(&path).await?;
                client.delete(&path, None).await?;
            }
            client.close().await;
            anyhow::Ok(())
        }));
    }
    for client in clients {
        client.await??;
    }
    Ok(())
}

/// Idle memory: of a server that has just started, and of one that has worked.
async fn idle(
    name: &str,
    start: impl Fn(&std::path::Path) -> Result<Server>,
) -> Result<[Memory; 2]> {
    let mut runs = Vec::new();
    for _ in 0..IDLE_RUNS {
        let (_dir, data) = directory()?;
        let server = start(&data)?;
        tokio::time::sleep(REST).await;
        let fresh = server.memory()?;
        work(&server.connect).await?;
        tokio::time::sleep(REST).await;
        runs.push([fresh, server.memory()?]);
    }
    runs.sort_by_key(|[fresh, _]| fresh.resident);
    let middle = runs[IDLE_RUNS / 2];
    for (when, memory) in ["just started", "after work"].iter().zip(middle) {
        println!(
            "{name}, idle, {when}: {:.1} MiB resident, {:.1} MiB of it not of files",
            mib(memory.resident),
            mib(memory.own)
        );
    }
    Ok(middle)
}

async fn compare_idle() -> Result<()> {
    let engine = idle("engine", Server::engine).await?;
    let zookeeper = idle("zookeeper", |dir| Server::zookeeper(dir, "")).await?;
    for (when, (ours, theirs)) in
        ["just started", "after work"].iter().zip(engine.into_iter().zip(zookeeper))
    {
        println!(
            "idle, {when}: ZooKeeper takes {:.1} times the engine's resident memory, {:.0} times \
             what is not of files",
            theirs.resident as f64 / ours.resident as f64,
            theirs.own as f64 / ours.own as f64
        );
    }
    Ok(())
}

/// Best and middle of some starts.
fn starts(name: &str, start: impl Fn(&std::path::Path) -> Result<Server>) -> Result<()> {
    let mut all = Vec::new();
    for _ in 0..STARTS {
        let (_dir, data) = directory()?;
        all.push(start(&data)?.took);
    }
    all.sort_unstable();
    println!(
        "{name}: start to first answer {:.1?} at best, {:.1?} in the middle of {STARTS}",
        all[0],
        all[STARTS / 2]
    );
    Ok(())
}

fn print_full(what: &str, nodes: usize, took: Duration, idle: u64, full: u64) {
    println!(
        "{what} in {took:.1?}, then {:.1} MiB resident, {} bytes per node",
        mib(full),
        full.saturating_sub(idle) / nodes as u64
    );
}

async fn fill_engine(nodes: usize) -> Result<()> {
    let (_dir, data) = directory()?;
    let server = Server::engine(&data)?;
    let idle = server.memory()?.resident;
    let start = Instant::now();
    fill(&server.connect, nodes).await?;
    let full = server.memory()?.resident;
    print_full(&format!("engine: {nodes} nodes"), nodes, start.elapsed(), idle, full);
    drop(server);
    let server = Server::engine(&data)?;
    let full = server.memory()?.resident;
    print_full("engine: started again on them", nodes, server.took, idle, full);
    Ok(())
}

async fn fill_zookeeper(nodes: usize) -> Result<()> {
    let (_dir, data) = directory()?;
    // More room, so that the collector of garbage is not what is measured.
    let server = Server::zookeeper(&data, "-Xmx3g")?;
    let idle = server.memory()?.resident;
    let idle_heap = server.live_heap();
    let start = Instant::now();
    fill(&server.connect, nodes).await?;
    let full = server.memory()?.resident;
    print_full(&format!("zookeeper: {nodes} nodes"), nodes, start.elapsed(), idle, full);
    if let (Some(before), Some(after)) = (idle_heap, server.live_heap()) {
        let per_node = after.saturating_sub(before) / nodes as u64;
        println!("zookeeper: of that, {per_node} bytes per node are live objects");
    }
    Ok(())
}

async fn compare(nodes: usize) -> Result<()> {
    compare_idle().await?;
    starts("zookeeper", |dir| Server::zookeeper(dir, ""))?;
    fill_zookeeper(nodes).await
}

#[tokio::test]
#[ignore = "a measurement: cargo xtask engine-size"]
async fn measure() {
    let nodes = nodes();
    starts("engine", Server::engine).unwrap();
    if let Err(e) = compare(nodes).await {
        println!("zookeeper: not measured: {e:#}");
    }
    fill_engine(nodes).await.unwrap();
}
