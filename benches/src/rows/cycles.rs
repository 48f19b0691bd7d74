//! Acquire and release of a lock that nobody else wants; each task has a lock of its own, and all
//! tasks of a system share one connection where it has such a thing.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::measure::{Cycles, Latency, Plan, Release, cycles};
use anyhow::Result;
use lockkeeper::{Client, Mutex};
use lockkeeper_engine::Durability;

use crate::bench::{Bench, micros};
use crate::floors::{self, Floors};
use crate::locks::bare::{BareLock, SecondLook};
use crate::locks::etcd::{self, EtcdLock};
use crate::locks::postgres::{self, PostgresLock};
use crate::locks::redis::{self, RedisLock};
use crate::locks::zookeeper_client::{self, ZookeeperClientLock};
use crate::machine::ProcessorTime;
use crate::peers::Peers;
use crate::system::{Fsync, System};

/// More connections than this make PostgreSQL slower: each is a process.
const POSTGRES_CONNECTIONS: usize = 16;

/// One turn: so many tasks, and how the cycle ends.
#[derive(Clone, Copy)]
struct Load {
    tasks: usize,
    release: Release,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasks{}", self.tasks, self.release.note(", "))
    }
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for tasks in bench.settings.tasks.clone() {
        let turns = turns(tasks);
        let is_of_target = BOUND_AT.contains(&tasks);
        bench
            .interleave_systems(&turns, is_of_target, async |bench, &(system, load), plan| {
                let before = ProcessorTime::now()?;
                let measured = measure(&mut bench.peers, system, load, plan).await?;
                let after = ProcessorTime::now()?;
                note(bench, system, load, &measured);
                let cycles = measured.per_second * (plan.warm_up + plan.measure).as_secs_f64();
                let config = config(system, load.release);
                let who = (system.name(), config.as_str());
                let ours = (after.ours - before.ours) / cycles;
                let others = (after.others - before.others) / cycles;
                bench.note_as(who, load.tasks, "harness_cpu_us", ours);
                bench.note_as(who, load.tasks, "other_cpu_us", others);
                if tasks == 1 && matches!(system, System::Engine(_) | System::Redis(_)) {
                    floors(bench).await;
                }
                Ok(())
            })
            .await;
    }
    Ok(())
}

/// What the machine itself takes right now: disks and sleeping processors sway from one minute to
/// the next, so that one measurement for the whole run would be compared with another machine's.
async fn floors(bench: &mut Bench) {
    const RECORDS: usize = 100;
    const ROUND_TRIPS: usize = 1_000;
    match Floors::measure(&mut bench.peers, RECORDS, ROUND_TRIPS).await {
        Ok(Floors { disk, loopback }) => {
            let mut note = |who, metric, latency: Latency| {
                bench.note_as(who, 1, metric, micros(latency.p50));
            };
            note(floors::IN_PLACE, "record_p50_us", disk.in_place);
            note(floors::APPENDED, "record_p50_us", disk.appended);
            if let Some(two) = loopback.two {
                note(floors::TWO_PROCESSORS, "round_trip_p50_us", two);
            }
            note(floors::ONE_PROCESSOR, "round_trip_p50_us", loopback.one);
        }
        Err(error) => bench.skip("disk and loopback", &error),
    }
}

/// Threads of Python and one connection for each make kazoo's figures at many tasks those of the
/// operating system.
const KAZOO_TASKS: usize = 64;

fn turns(tasks: usize) -> Vec<(System, Load)> {
    let awaited = Load { tasks, release: Release::Awaited };
    let not_awaited = Load { tasks, release: Release::NotAwaited };
    let mut turns: Vec<(System, Load)> = System::ALL
        .into_iter()
        .filter(|&system| system != System::Kazoo || tasks <= KAZOO_TASKS)
        .map(|system| (system, awaited))
        .collect();
    turns.extend(COMPARED_NOT_AWAITED.map(|system| (system, not_awaited)));
    if BOUND_AT.contains(&tasks) {
        // Nobody is ahead of anybody, so there is nothing to look at twice.
        let bare = System::BareRequests(SecondLook::Never);
        turns.extend([awaited, not_awaited].map(|load| (bare, load)));
    }
    turns
}

/// The tasks of P5 and P6.
const BOUND_AT: [usize; 2] = [1, 64];

/// The pairs of P1 to P4, and ZooKeeper.
const COMPARED_NOT_AWAITED: [System; 5] = [
    System::Engine(Durability::Sync),
    System::Engine(Durability::Os),
    System::OnZooKeeper,
    System::Redis(Fsync::Always),
    System::Redis(Fsync::Everysec),
];

/// The configuration's name in the report.
pub(crate) fn config(system: System, release: Release) -> String {
    format!("{}{}", system.config(), release.note("; "))
}

fn note(bench: &mut Bench, system: System, load: Load, measured: &Cycles) {
    let config = config(system, load.release);
    let who = (system.name(), config.as_str());
    bench.note_as(who, load.tasks, "cycles_per_s", measured.per_second);
    bench.note_latency(who, load.tasks, "cycle", measured.cycle);
    bench.note_latency(who, load.tasks, "acquire", measured.acquire);
}

async fn measure(peers: &mut Peers, system: System, load: Load, plan: Plan) -> Result<Cycles> {
    let Load { tasks, release } = load;
    match system {
        System::Engine(durability) => {
            lockkeeper(&peers.engine(durability).await?, load, plan).await
        }
        System::OnZooKeeper => lockkeeper(&peers.zookeeper().await?, load, plan).await,
        System::BareRequests(look) => bare(&peers.zookeeper().await?, look, load, plan).await,
        System::Curator => peers.curator().await?.cycles(tasks, plan).await,
        System::Kazoo => peers.kazoo().await?.cycles(tasks, plan).await,
        System::ZookeeperClient => {
            let client = zookeeper_client::connect(&peers.zookeeper().await?).await?;
            let lock = |task| ZookeeperClientLock::new(&client, format!("/zkc/cycles-{task}"));
            cycles((0..tasks).map(lock).collect(), plan, release).await
        }
        System::Redis(fsync) => {
            let connection = redis::connect(&peers.redis(fsync).await?).await?;
            let pause = super::hand_offs::REDIS_PAUSE;
            // A release that nobody waited for may be lost with the turn's connection, and its key
            // then lives on for a while: the next turn has other keys.
            static TURNS: AtomicU32 = AtomicU32::new(0);
            let turn = TURNS.fetch_add(1, Ordering::Relaxed);
            let lock = |task| RedisLock::new(&connection, format!("cycles-{turn}-{task}"), pause);
            cycles((0..tasks).map(lock).collect(), plan, release).await
        }
        System::Etcd => {
            let session = etcd::Session::connect(&peers.etcd().await?, 600).await?;
            let lock = |task| EtcdLock::new(&session, format!("cycles-{task}"));
            cycles((0..tasks).map(lock).collect(), plan, release).await
        }
        System::Postgres => postgres(&peers.postgres().await?, load, plan).await,
    }
}

async fn lockkeeper(servers: &str, load: Load, plan: Plan) -> Result<Cycles> {
    let client = Client::connect(servers).await?;
    let lock = |task| Mutex::new(&client, &format!("/locks/cycles-{task}"));
    let locks = (0..load.tasks).map(lock).collect::<Result<Vec<_>, _>>()?;
    let measured = cycles(locks, plan, load.release).await?;
    client.close().await;
    Ok(measured)
}

async fn bare(servers: &str, look: SecondLook, load: Load, plan: Plan) -> Result<Cycles> {
    let (client, mut locks) = (Client::connect(servers).await?, Vec::new());
    for task in 0..load.tasks {
        locks.push(BareLock::new(&client, &format!("/bare-cycles-{task}"), look).await?);
    }
    let measured = cycles(locks, plan, load.release).await?;
    client.close().await;
    Ok(measured)
}

async fn postgres(address: &str, load: Load, plan: Plan) -> Result<Cycles> {
    let mut sessions = Vec::new();
    for _ in 0..load.tasks.min(POSTGRES_CONNECTIONS) {
        sessions.push(postgres::Session::connect(address).await?);
    }
    let keys = (0..load.tasks).zip(0_i64..);
    let locks = keys.map(|(task, key)| PostgresLock::new(&sessions[task % sessions.len()], key));
    cycles(locks.collect(), plan, load.release).await
}
