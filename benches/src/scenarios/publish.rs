//! `publish`: one value, and a thousand subscribers in ten processes: from the call that writes it to
//! the moment in which the last of them has it.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::Client;
use lockkeeper_engine::Durability;
use lockkeeper_testkit::clock;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::measure::{Latency, Plan, Recorder};
use crate::peers::Worker;
use crate::subscribers::{self, Kind};
use crate::system::System;

/// Processes that subscribers are in.
const PROCESSES: usize = 10;

/// The subscribers of each.
const EACH: usize = 100;

/// What is written before it counts, and then.
const WARM_UP: u64 = 20;
const WRITES: u64 = 100;

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.settings.rounds;
    let systems = [System::OnZooKeeper, System::Engine(Durability::Sync)];
    let turns: Vec<_> = systems
        .into_iter()
        .flat_map(|system| [(system, Kind::Shared), (system, Kind::Bare)])
        .collect();
    bench
        .interleave(rounds, &turns, async |bench, &(system, kind)| {
            let latency = measure(bench, system, kind).await?;
            let name = if kind == Kind::Bare { "bare watches" } else { system.name() };
            let side = (name, system.config());
            bench.note_latency(side, PROCESSES * EACH, "last_told", latency);
            Ok(())
        })
        .await;
    Ok(())
}

async fn measure(bench: &mut Bench, system: System, kind: Kind) -> Result<Latency> {
    let servers = bench.peers.server_of(system).await?;
    let client = Client::connect(&servers).await?;
    let value = subscribers::value(&client).await?;
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Worker::subscribers(&servers, EACH, kind)?);
    }
    // Each has what is there now, and waits for more.
    all_told(&mut processes).await?;

    let recorder = Recorder::new();
    for number in 0..WARM_UP + WRITES {
        let published = now();
        let (set, last) = tokio::join!(value.set(&published), all_told(&mut processes));
        set?;
        let last = last?;
        if number >= WARM_UP {
            recorder.record(last);
        }
    }
    client.close().await;
    Ok(recorder.summary())
}

/// The time, as the value carries it to those who are told of it.
fn now() -> u64 {
    u64::try_from(clock::now().as_nanos()).unwrap_or(u64::MAX)
}

/// How long after it was published the last of all had the value.
async fn all_told(processes: &mut Vec<Worker>) -> Result<Duration> {
    let mut telling = JoinSet::new();
    for mut process in processes.drain(..) {
        telling.spawn(async move {
            let told = process.measure("told", 0, Plan::ONCE).await;
            (process, told)
        });
    }
    let mut last = Duration::ZERO;
    for (process, told) in telling.join_all().await {
        processes.push(process);
        last = last.max(told?.latency.max);
    }
    Ok(last)
}
