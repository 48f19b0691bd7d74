//! `counter`: one number that everybody adds 1 to: by tasks of one process, whose adds go into one
//! write where the library can do that, and by several processes.

use std::fmt;

use anyhow::{Context, Result};
use lockkeeper::Client;
use lockkeeper_engine::Durability;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::counters;
use crate::locks::redis;
use crate::measure::{Plan, Repeats};
use crate::peers::Worker;
use crate::system::{Fsync, System};

/// Tasks of one process.
const TASKS: [usize; 2] = [1, 64];

/// Processes with one task each.
const PROCESSES: usize = 8;

/// Curator on the same ZooKeeper, and Redis, each beside what is held against it.
const SYSTEMS: [System; 5] = [
    System::OnZooKeeper,
    System::Curator,
    System::Engine(Durability::Sync),
    System::Engine(Durability::Os),
    System::Redis(Fsync::Always),
];

/// Who adds.
#[derive(Clone, Copy)]
enum Adders {
    Tasks(usize),
    Processes(usize),
}

impl fmt::Display for Adders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tasks(count) => write!(f, "{count} tasks"),
            Self::Processes(count) => write!(f, "{count} processes"),
        }
    }
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for tasks in TASKS {
        let turns = SYSTEMS.map(|system| (system, Adders::Tasks(tasks)));
        bench
            .interleave_systems(&turns, true, async |bench, &(system, adders), plan| {
                let added = in_one_process(bench, system, tasks, plan).await?;
                note(bench, system, adders, added);
                Ok(())
            })
            .await;
    }

    // They live for all rounds: a program that is compiled while it runs gets faster.
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let turns = [System::OnZooKeeper, System::Curator].map(|it| (it, Adders::Processes(PROCESSES)));
    bench
        .interleave_systems(&turns, true, async |bench, &(system, adders), plan| {
            let workers = if system == System::Curator { &mut theirs } else { &mut ours };
            while workers.len() < PROCESSES {
                workers.push(bench.peers.adder(system).await?);
            }
            let added = in_processes(workers, plan).await?;
            note(bench, system, adders, added);
            Ok(())
        })
        .await;
    Ok(())
}

fn note(bench: &mut Bench, system: System, adders: Adders, added: Repeats) {
    let (count, config) = match adders {
        Adders::Tasks(count) => (count, system.config().to_owned()),
        Adders::Processes(count) => (count, format!("{}, a process each", system.config())),
    };
    let side = (system.name(), config.as_str());
    bench.note_as(side, count, "adds_per_s", added.per_second);
    bench.note_latency(side, count, "add", added.latency);
}

async fn in_one_process(
    bench: &mut Bench,
    system: System,
    tasks: usize,
    plan: Plan,
) -> Result<Repeats> {
    if system == System::Curator {
        return bench.peers.curator().await?.counter(tasks, plan).await;
    }
    let address = bench.peers.server_of(system).await?;
    if let System::Redis(_) = system {
        let (connection, _) = redis::connect(&address).await?;
        return counters::increment(&connection, tasks, plan).await;
    }
    let client = Client::connect(&address).await?;
    let added = counters::add(&client, tasks, plan).await?;
    client.close().await;
    Ok(added)
}

/// All at once; their adds a second together, and the percentiles of the one that was slowest in the
/// middle.
async fn in_processes(workers: &mut Vec<Worker>, plan: Plan) -> Result<Repeats> {
    let mut adding = JoinSet::new();
    for mut worker in workers.drain(..) {
        adding.spawn(async move {
            let added = worker.counter(1, plan).await;
            (worker, added)
        });
    }

    let (mut per_second, mut slowest) = (0.0, None);
    for (worker, added) in adding.join_all().await {
        workers.push(worker);
        let added = added?;
        per_second += added.per_second;
        let is_slower = |than: &Repeats| than.latency.p50 < added.latency.p50;
        if slowest.as_ref().is_none_or(is_slower) {
            slowest = Some(added);
        }
    }
    let latency = slowest.context("there are processes")?.latency;
    Ok(Repeats { per_second, latency })
}
