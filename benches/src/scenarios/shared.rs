//! Read-write locks at several shares of reads, and semaphores: one path, which several clients
//! want, each with a connection of its own.

use std::fmt;

use anyhow::Result;
use lockkeeper::{RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore};
use lockkeeper_engine::Durability;

use crate::bench::Bench;
use crate::lines::{close, sessions};
use crate::measure::{Lock, Release, cycles};
use crate::system::System;

const CLIENTS: usize = 16;

#[derive(Clone, Copy)]
enum Recipe {
    /// So many in a hundred are reads.
    RwLock { reads: u8 },
    /// So many may hold at the same time.
    Semaphore { permits: u32 },
}

const KINDS: [Recipe; 7] = [
    Recipe::RwLock { reads: 0 },
    Recipe::RwLock { reads: 10 },
    Recipe::RwLock { reads: 50 },
    Recipe::RwLock { reads: 100 },
    Recipe::Semaphore { permits: 1 },
    Recipe::Semaphore { permits: 4 },
    Recipe::Semaphore { permits: 16 },
];

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RwLock { reads } => write!(f, "read-write, {reads} % reads"),
            Self::Semaphore { permits } => write!(f, "semaphore, {permits} permits"),
        }
    }
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.settings.rounds;
    for system in [System::Engine(Durability::Os), System::OnZooKeeper] {
        let turns = KINDS.map(|kind| (system, kind));
        bench.interleave(rounds, &turns, measure).await;
    }
    Ok(())
}

async fn measure(bench: &mut Bench, &(system, kind): &(System, Recipe)) -> Result<()> {
    let servers = bench.peers.server_of(system).await?;
    let plan = bench.settings.plan;
    let clients = sessions(&servers, CLIENTS).await?;
    let measured = match kind {
        Recipe::RwLock { reads } => {
            let lock =
                |client| Ok(MixedRwLock { lock: RwLock::new(client, "/locks/shared")?, reads });
            let locks = clients.iter().map(lock).collect::<Result<Vec<_>>>()?;
            cycles(locks, plan, Release::Awaited).await?
        }
        Recipe::Semaphore { permits } => {
            // The number of permits is kept at the path.
            let path = format!("/locks/permits-{permits}");
            let lock = |client| Ok(Semaphore::new(client, &path, permits)?);
            let locks = clients.iter().map(lock).collect::<Result<Vec<_>>>()?;
            cycles(locks, plan, Release::Awaited).await?
        }
    };

    let config = format!("{}, {kind}", system.config());
    let who = (system.name(), config.as_str());
    bench.note_as(who, CLIENTS, "cycles_per_s", measured.per_second);
    bench.note_latency(who, CLIENTS, "acquire", measured.acquire);
    close(clients).await;
    Ok(())
}

/// A read-write lock, and how often it is wanted for reading.
struct MixedRwLock {
    lock: RwLock,
    reads: u8,
}

enum MixedGuard {
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
}

impl Lock for MixedRwLock {
    type Guard = Box<MixedGuard>;

    async fn acquire(&mut self) -> Result<Self::Guard> {
        let reads = fastrand::u8(..100) < self.reads;
        Ok(Box::new(match reads {
            true => MixedGuard::Read(self.lock.read().await?),
            false => MixedGuard::Write(self.lock.write().await?),
        }))
    }

    async fn release(&mut self, guard: Self::Guard) -> Result<()> {
        match *guard {
            MixedGuard::Read(guard) => guard.release().await?,
            MixedGuard::Write(guard) => guard.release().await?,
        }
        Ok(())
    }
}
