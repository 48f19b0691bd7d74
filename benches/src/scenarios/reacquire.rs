//! A lock that the same process takes again and again: its node may linger, or serve a cohort.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{Client, Mutex};
use lockkeeper_engine::Durability;

use crate::bench::Bench;
use crate::measure::{Release, cycles, hand_offs};
use crate::system::System;

/// Tasks of one process that want the lock, where several do.
const COHORT_TASKS: usize = 8;

#[derive(Clone, Copy)]
enum Reuse {
    /// One task; the node lingers.
    Linger,
    /// Several tasks; the node is given back after each.
    Strict,
    /// Several tasks; the node serves up to a hundred of them in a row.
    Cohort,
}

impl fmt::Display for Reuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linger => "linger",
            Self::Strict => "strict order",
            Self::Cohort => "cohort",
        })
    }
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.settings.rounds;
    let mut turns = Vec::new();
    for system in [System::Engine(Durability::Os), System::OnZooKeeper] {
        turns.extend([Reuse::Linger, Reuse::Strict, Reuse::Cohort].map(|how| (system, how)));
    }
    // For P8, in the same rounds.
    let curator = [(System::Curator, Reuse::Strict)];
    bench.interleave(rounds, &[&turns[..], &curator].concat(), measure).await;
    Ok(())
}

async fn measure(bench: &mut Bench, &(system, how): &(System, Reuse)) -> Result<()> {
    let plan = bench.settings.plan;
    if system == System::Curator {
        let measured = bench.peers.curator().await?.measure("cycles", 1, plan).await?;
        bench.note(system, 1, "cycles_per_s", measured.per_second);
        return Ok(());
    }

    let servers = bench.peers.server_of(system).await?;
    let client = Client::connect(&servers).await?;
    let builder = Mutex::builder(&client, "/locks/reacquire");
    let config = format!("{}, {how}", system.config());
    let who = (system.name(), config.as_str());

    match how {
        Reuse::Linger => {
            let lock = builder.linger(Duration::from_secs(60)).build()?;
            let measured = cycles(vec![lock], plan, Release::Awaited).await?;
            bench.note_as(who, 1, "cycles_per_s", measured.per_second);
            bench.note_latency(who, 1, "cycle", measured.latency);
        }
        Reuse::Strict | Reuse::Cohort => {
            let lock = match how {
                Reuse::Cohort => builder.cohort(100, Duration::from_secs(1)).build()?,
                _ => builder.build()?,
            };
            let measured = hand_offs(vec![lock; COHORT_TASKS], plan, Release::Awaited).await?;
            bench.note_as(who, COHORT_TASKS, "hand_offs_per_s", measured.per_second);
            bench.note_latency(who, COHORT_TASKS, "hand_off", measured.latency);
        }
    }
    client.close().await;
    Ok(())
}
