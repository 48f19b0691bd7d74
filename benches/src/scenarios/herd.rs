//! Many waiters, each with a connection of its own: how many watch events one release makes, and
//! how long it takes until the next one holds.
//!
//! The naive lock is the textbook's first: everyone watches the whole queue. All connections go
//! through a relay that counts, on both sides alike.

use std::fmt;
use std::time::Instant;

use anyhow::Result;
use lockkeeper::{Client, CreateMode, Mutex, MutexGuard, ZnodePath};
use lockkeeper_engine::Durability;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::lines::{close, next, sessions, wait_for_queue};
use crate::measure::micros;
use crate::system::System;
use crate::tap::Tap;

#[derive(Clone, Copy, PartialEq, Eq)]
enum LockKind {
    Fair,
    Naive,
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fair => "fair",
            Self::Naive => "naive",
        })
    }
}

/// Releases that are looked at, of each kind.
const RELEASES: usize = 5;

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let systems = [System::Engine(Durability::Os), System::OnZooKeeper];
    let turns: Vec<_> = systems
        .into_iter()
        .flat_map(|system| [(system, LockKind::Fair), (system, LockKind::Naive)])
        .collect();
    // One round: its releases are the repetitions.
    bench.interleave(1, &turns, measure).await;
    Ok(())
}

async fn measure(bench: &mut Bench, &(system, kind): &(System, LockKind)) -> Result<()> {
    let servers = bench.peers.server_of(system).await?;
    let waiters = bench.settings.herd;
    let path = ZnodePath::new(&format!("/locks/herd-{kind}"))?;
    let tap = Tap::start(&servers).await?;
    let clients = sessions(&tap.address(), waiters + 1).await?;
    clients[0].ensure(&path, CreateMode::Container).await?;

    let (grants, mut granted) = mpsc::unbounded_channel();
    let mut waiting = JoinSet::new();
    for client in &clients {
        let (client, path, grants) = (client.clone(), path.clone(), grants.clone());
        waiting.spawn(async move {
            let held = match kind {
                LockKind::Fair => Held::fair(&client, &path).await,
                LockKind::Naive => Held::naive(&client, &path).await,
            };
            // The one who listens goes away when enough was seen.
            let _ = grants.send(held);
        });
    }

    let mut holder = next(&mut granted).await?;
    wait_for_queue(&clients[0], &path, waiters + 1).await?;
    let config = format!("{}, {kind}", system.config());
    for _ in 0..RELEASES {
        tap.settle().await;
        let (before, start) = (tap.passed().events, Instant::now());
        holder.release(&clients[0]).await?;
        holder = next(&mut granted).await?;
        let took = start.elapsed();
        tap.settle().await;
        let events = tap.passed().events - before;
        let who = (system.name(), config.as_str());
        bench.note_as(who, waiters, "events_per_release", events as f64);
        bench.note_as(who, waiters, "next_holder_us", micros(took));
    }

    waiting.shutdown().await;
    drop(holder);
    close(clients).await;
    Ok(())
}

/// A held lock of either kind.
enum Held {
    Fair(Box<MutexGuard>),
    Naive(ZnodePath),
}

impl Held {
    async fn fair(client: &Client, path: &ZnodePath) -> Result<Self> {
        Ok(Self::Fair(Box::new(Mutex::new(client, path.as_str())?.acquire().await?)))
    }

    async fn naive(client: &Client, path: &ZnodePath) -> Result<Self> {
        let prefix = path.child("lock-")?;
        let own = client.create(&prefix, "", CreateMode::EphemeralSequential).await?.path;
        loop {
            let ((names, _), mut changed) = client.children_watched(path).await?;
            if names.iter().min().is_some_and(|first| first == own.name()) {
                return Ok(Self::Naive(own));
            }
            changed.changed().await?;
        }
    }

    async fn release(self, anyone: &Client) -> Result<()> {
        match self {
            Self::Fair(guard) => guard.release().await?,
            Self::Naive(node) => anyone.delete(&node, None).await?,
        }
        Ok(())
    }
}
