//! `cache`: a part of the tree in memory: how long it takes until it is complete, and how soon it tells
//! of a change.
//!
//! Beside it the floors: the same reads by the same client, without a watch and without waiting for a
//! listing to know what to read, where what comes is thrown away; and a watch whose events are answered with
//! a read, by hand.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use lockkeeper::{AddWatchMode, Client, CreateMode, TreeCache, ZnodePath};
use lockkeeper_engine::Durability;
use lockkeeper_testkit::process::Process;
use lockkeeper_wire::{PathRequest, ReadOp};

use crate::bench::Bench;
use crate::locks::bare::SecondLook;
use crate::measure::{Latency, Plan, Recorder};
use crate::peers::{child, ready_line};
use crate::system::System;

/// A directory with its children.
const PER_DIRECTORY: usize = 1_000;

/// How many nodes the cache has whose changes are timed.
const SMALL: usize = 1_000;

/// As many reads are on their way as the cache has.
const WINDOW: usize = 256;

/// Reads of one `multiRead`.
const TOGETHER: usize = 32;

/// Nodes that are made by one transaction.
const BATCH: usize = 500;

/// A node's data.
const DATA: &[u8] = &[0x55; 100];

/// How a tree is read.
#[derive(Clone, Copy)]
enum ReadBy {
    /// By a cache.
    Cache,
    /// By a request for each node.
    OneByOne,
    /// By `multiRead`, so many nodes in one request, as a cache does once it knows how long they are.
    Together,
}

impl ReadBy {
    fn note(self) -> &'static str {
        match self {
            Self::Cache | Self::OneByOne => "",
            Self::Together => ", multiRead",
        }
    }
}

impl fmt::Display for ReadBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cache => "a cache",
            Self::OneByOne => "one by one",
            Self::Together => "by multiRead",
        })
    }
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for nodes in bench.settings.cached.clone() {
        open_all(bench, nodes).await;
    }

    let rounds = bench.settings.rounds;
    let systems = [
        System::OnZooKeeper,
        System::Curator,
        System::BareRequests(SecondLook::Never),
        System::Engine(Durability::Sync),
    ];
    let turns = systems.map(|system| (system, "changes".to_owned()));
    bench
        .interleave_systems(&turns, true, async |bench, &(system, _), plan| {
            let latency = changes(bench, system, plan).await?;
            bench.note_latency((system.name(), system.config()), SMALL, "change_seen", latency);
            Ok(())
        })
        .await;

    let most = bench.settings.cached_most;
    let turns = [(System::Engine(Durability::Memory), format!("{most} nodes in memory"))];
    bench.interleave(rounds, &turns, fill).await;
    remove_all(bench, &[System::Engine(Durability::Memory)], most).await;
    Ok(())
}

/// Curator's cache says that it is complete when it has 65,535 and some: with more, it has no time.
async fn open_all(bench: &mut Bench, nodes: usize) {
    let bare = System::BareRequests(SecondLook::Never);
    let turns = [
        (System::OnZooKeeper, ReadBy::Cache),
        (System::Curator, ReadBy::Cache),
        (bare, ReadBy::OneByOne),
        (bare, ReadBy::Together),
        (System::Engine(Durability::Sync), ReadBy::Cache),
    ];
    let rounds = bench.settings.rounds;
    bench
        .interleave(rounds, &turns, async |bench, &(system, how)| {
            let took = open(bench, system, how, nodes).await?;
            let config = format!("{}{}", system.config(), how.note());
            let side = (system.name(), config.as_str());
            bench.note_as(side, nodes, "open_ms", took.as_secs_f64() * 1e3);
            Ok(())
        })
        .await;

    remove_all(bench, &[System::OnZooKeeper, System::Engine(Durability::Sync)], nodes).await;
}

/// What a cache of very many nodes takes: in a process of its own, as what another one had before would
/// be used again.
async fn fill(bench: &mut Bench, &(system, _): &(System, String)) -> Result<()> {
    let nodes = bench.settings.cached_most;
    let (servers, folder) = (bench.peers.server_of(system).await?, bench.peers.folder()?);
    make(&servers, nodes).await?;
    let path = top(nodes)?.to_string();
    let mut process = Process::spawn("cache", &child(&["cache", &servers, &path])?, &folder)?;
    let line = ready_line(&mut process).await?;
    let words: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [found, millis, bytes] = words[..] else { bail!("the child says {line}") };
    ensure!(found as usize == nodes + 1, "{found} nodes in the cache");
    bench.note(system, nodes, "open_ms", millis);
    bench.note(system, nodes, "bytes_per_node", bytes / found);
    Ok(())
}

/// The top of a tree of so many nodes below it.
fn top(nodes: usize) -> Result<ZnodePath> {
    Ok(ZnodePath::new(&format!("/bench-cache-{nodes}"))?)
}

/// Its directories, and the nodes in each.
fn directories(nodes: usize) -> Result<Vec<(ZnodePath, Vec<ZnodePath>)>> {
    let top = top(nodes)?;
    let directory = |index| {
        let directory = top.child(&format!("d-{index:03}"))?;
        let children = (0..PER_DIRECTORY - 1).map(|node| directory.child(&format!("n-{node:03}")));
        let children = children.collect::<Result<Vec<_>, _>>()?;
        anyhow::Ok((directory, children))
    };
    (0..nodes / PER_DIRECTORY).map(directory).collect()
}

/// Makes the tree, unless it is there.
async fn make(servers: &str, nodes: usize) -> Result<()> {
    let (client, top) = (Client::connect(servers).await?, top(nodes)?);
    if client.exists(&top).await?.is_none() {
        client.create(&top, "", CreateMode::Persistent).await?;
        for (directory, children) in directories(nodes)? {
            client.create(&directory, "", CreateMode::Persistent).await?;
            for batch in children.chunks(BATCH) {
                let data = Bytes::from_static(DATA);
                let create = |all: lockkeeper::Transaction, node| {
                    all.create(node, data.clone(), CreateMode::Persistent)
                };
                batch.iter().fold(client.transaction(), create).commit().await?;
            }
        }
    }
    client.close().await;
    Ok(())
}

/// Deletes the tree that these have: later scenarios measure memory.
async fn remove_all(bench: &mut Bench, systems: &[System], nodes: usize) {
    let turns: Vec<_> = systems.iter().map(|system| (*system, "removal".to_owned())).collect();
    bench
        .interleave(1, &turns, async |bench, (system, _)| {
            remove(&bench.peers.server_of(*system).await?, nodes).await
        })
        .await;
}

async fn remove(servers: &str, nodes: usize) -> Result<()> {
    let (client, top) = (Client::connect(servers).await?, top(nodes)?);
    for (directory, children) in directories(nodes)? {
        for batch in children.chunks(BATCH) {
            let delete = |all: lockkeeper::Transaction, node| all.delete(node, None);
            batch.iter().fold(client.transaction(), delete).commit().await?;
        }
        client.delete(&directory, None).await?;
    }
    client.delete(&top, None).await?;
    client.close().await;
    Ok(())
}

async fn open(bench: &mut Bench, system: System, how: ReadBy, nodes: usize) -> Result<Duration> {
    let servers = bench.peers.server_of(system).await?;
    make(&servers, nodes).await?;
    if system == System::Curator {
        let filled = bench.peers.curator().await?.measure("cache", nodes, Plan::ONCE).await?;
        return Ok(filled.latency.p50);
    }

    let client = Client::connect(&servers).await?;
    let took = match how {
        ReadBy::OneByOne => read_all(&client, nodes).await?,
        ReadBy::Together => read_together(&client, nodes).await?,
        ReadBy::Cache => {
            let start = Instant::now();
            let cache = TreeCache::open(&client, top(nodes)?.as_str()).await?;
            let took = start.elapsed();
            let found = cache.snapshot().len();
            ensure!(found == nodes + 1, "{found} nodes in the cache");
            took
        }
    };
    client.close().await;
    Ok(took)
}

/// The reads that no cache can do without.
async fn read_all(client: &Client, nodes: usize) -> Result<Duration> {
    enum Read {
        Data(ZnodePath),
        List(ZnodePath),
    }
    let mut reads = vec![Read::Data(top(nodes)?), Read::List(top(nodes)?)];
    for (directory, children) in directories(nodes)? {
        reads.extend([Read::Data(directory.clone()), Read::List(directory)]);
        reads.extend(children.into_iter().map(Read::Data));
    }

    let start = Instant::now();
    let (mut data, mut lists) = (VecDeque::new(), VecDeque::new());
    for read in &reads {
        match read {
            Read::Data(path) => data.push_back(client.data(path)),
            Read::List(path) => lists.push_back(client.children(path)),
        }
        if data.len() + lists.len() >= WINDOW {
            // Answers come in order, so the lists that were asked before are here by then.
            data.pop_front().context("there are more nodes than lists")?.await?;
        }
    }
    for reply in data {
        reply.await?;
    }
    for reply in lists {
        reply.await?;
    }
    Ok(start.elapsed())
}

/// The same by `multiRead`, with as many nodes on their way.
async fn read_together(client: &Client, nodes: usize) -> Result<Duration> {
    let mut reads =
        vec![ReadOp::GetData(request(&top(nodes)?)), ReadOp::GetChildren(request(&top(nodes)?))];
    for (directory, children) in directories(nodes)? {
        let directory = request(&directory);
        reads.extend([ReadOp::GetData(directory.clone()), ReadOp::GetChildren(directory)]);
        reads.extend(children.iter().map(|child| ReadOp::GetData(request(child))));
    }

    let (start, mut replies) = (Instant::now(), VecDeque::new());
    for batch in reads.chunks(TOGETHER) {
        replies.push_back(client.multi_read(batch.to_vec()));
        if replies.len() * TOGETHER >= WINDOW {
            replies.pop_front().context("there is one")?.await?;
        }
    }
    for reply in replies {
        reply.await?;
    }
    Ok(start.elapsed())
}

fn request(path: &ZnodePath) -> PathRequest {
    PathRequest { path: path.to_string() }
}

/// From the call that changes a node to the cache's word of it, over another connection.
async fn changes(bench: &mut Bench, system: System, plan: Plan) -> Result<Latency> {
    let servers = bench.peers.server_of(system).await?;
    make(&servers, SMALL).await?;
    if system == System::Curator {
        return Ok(bench.peers.curator().await?.measure("changes", SMALL, plan).await?.latency);
    }

    let (writer, reader) = (Client::connect(&servers).await?, Client::connect(&servers).await?);
    let node = top(SMALL)?.child("d-000")?.child("n-000")?;
    let latency = match system {
        System::BareRequests(_) => {
            let mut events = reader.watch(&top(SMALL)?, AddWatchMode::PersistentRecursive).await?;
            time_changes(&writer, &node, plan, async || {
                events.next().await?;
                reader.data(&node).await?;
                Ok(())
            })
            .await?
        }
        _ => {
            let cache = TreeCache::open(&reader, top(SMALL)?.as_str()).await?;
            let mut changes = cache.changes();
            time_changes(&writer, &node, plan, async || {
                let update = changes.next().await?;
                ensure!(update.changes.len() == 1, "one node was changed");
                Ok(())
            })
            .await?
        }
    };
    reader.close().await;
    writer.close().await;
    Ok(latency)
}

/// Changes the node again and again, each time until the change was `seen`.
async fn time_changes(
    writer: &Client,
    node: &ZnodePath,
    plan: Plan,
    mut seen: impl AsyncFnMut() -> Result<()>,
) -> Result<Latency> {
    let (window, recorder) = (plan.begin(), Recorder::new());
    while !window.is_over(Instant::now()) {
        let start = Instant::now();
        let seen = async {
            seen().await?;
            let end = Instant::now();
            if window.counts(end) {
                recorder.record(end - start);
            }
            Ok(())
        };
        let written = writer.set_data(node, Bytes::from_static(DATA), None);
        let (written, seen): (_, Result<()>) = tokio::join!(written, seen);
        written?;
        seen?;
    }
    Ok(recorder.summary())
}
