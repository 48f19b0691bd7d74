//! `counter`: one number that everybody adds 1 to: by tasks of one process, whose adds go into one
//! write where the library can do that, and by several processes.

use std::fmt;

use anyhow::{Context, Result};
use lockkeeper::Client;
use lockkeeper_engine::Durability;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::counters;
use crate::locks::bare::SecondLook;
use crate::locks::redis;
use crate::measure::{Measured, Plan};
use crate::peers::Worker;
use crate::system::{Fsync, System};

/// Tasks of one process.
const TASKS: [usize; 2] = [1, 64];

/// Processes with one task each.
const PROCESSES: usize = 8;

/// Bare requests and Curator on the same ZooKeeper, and Redis, each beside what is held against it.
const SYSTEMS: [System; 6] = [
    System::OnZooKeeper,
    System::BareRequests(SecondLook::Never),
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
    /// The same, with bare requests in place of the library.
    BareProcesses(usize),
}

impl fmt::Display for Adders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tasks(count) => write!(f, "{count} tasks"),
            Self::Processes(count) => write!(f, "{count} processes"),
            Self::BareProcesses(count) => write!(f, "{count} processes, bare"),
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
    let turns = [
        (System::OnZooKeeper, Adders::Processes(PROCESSES)),
        (System::OnZooKeeper, Adders::BareProcesses(PROCESSES)),
        (System::Curator, Adders::Processes(PROCESSES)),
    ];
    bench
        .interleave_systems(&turns, true, async |bench, &(system, adders), plan| {
            let workers = if system == System::Curator { &mut theirs } else { &mut ours };
            while workers.len() < PROCESSES {
                workers.push(bench.peers.adder(system).await?);
            }
            let is_bare = matches!(adders, Adders::BareProcesses(_));
            let (added, least) = in_processes(workers, is_bare, plan).await?;
            let (name, config) = side(system, adders);
            bench.note_as((name, &config), PROCESSES, "least_share_percent", least * 100.0);
            note(bench, system, adders, added);
            Ok(())
        })
        .await;
    Ok(())
}

/// How the rows of one side are called.
fn side(system: System, adders: Adders) -> (&'static str, String) {
    let each = format!("{}, a process each", system.config());
    match adders {
        Adders::Tasks(_) => (system.name(), system.config().to_owned()),
        Adders::Processes(_) => (system.name(), each),
        Adders::BareProcesses(_) => ("bare requests", each),
    }
}

fn note(bench: &mut Bench, system: System, adders: Adders, added: Measured) {
    let (Adders::Tasks(count) | Adders::Processes(count) | Adders::BareProcesses(count)) = adders;
    let (name, config) = side(system, adders);
    let side = (name, config.as_str());
    bench.note_as(side, count, "adds_per_s", added.per_second);
    bench.note_latency(side, count, "add", added.latency);
}

async fn in_one_process(
    bench: &mut Bench,
    system: System,
    tasks: usize,
    plan: Plan,
) -> Result<Measured> {
    if system == System::Curator {
        return bench.peers.curator().await?.measure("counter", tasks, plan).await;
    }
    let address = bench.peers.server_of(system).await?;
    if let System::Redis(_) = system {
        let (connection, _) = redis::connect(&address).await?;
        return counters::increment(&connection, tasks, plan).await;
    }
    let client = Client::connect(&address).await?;
    let added = match system {
        System::BareRequests(_) => counters::write_together(&client, tasks, plan).await?,
        _ => counters::add(&client, tasks, plan).await?,
    };
    client.close().await;
    Ok(added)
}

/// All at once; their adds a second together, the percentiles of the one that did the fewest, and what
/// share it had of what each would have if all had the same.
async fn in_processes(
    workers: &mut Vec<Worker>,
    is_bare: bool,
    plan: Plan,
) -> Result<(Measured, f64)> {
    let mut adding = JoinSet::new();
    for mut worker in workers.drain(..) {
        adding.spawn(async move {
            let added = worker.measure(if is_bare { "bare" } else { "counter" }, 1, plan).await;
            (worker, added)
        });
    }

    let (mut all, mut least) = (Vec::new(), None);
    for (worker, added) in adding.join_all().await {
        workers.push(worker);
        let added = added?;
        all.push(added.per_second);
        if least.as_ref().is_none_or(|than: &Measured| than.per_second > added.per_second) {
            least = Some(added);
        }
    }
    let Measured { per_second: fewest, latency, .. } = least.context("there are processes")?;
    let (per_second, processes) = (all.iter().sum::<f64>(), all.len() as f64);
    let share = if per_second > 0.0 { fewest * processes / per_second } else { 0.0 };
    Ok((Measured { per_second, latency, ..Measured::default() }, share))
}
