//! `cycles`: acquire and release of a lock that nobody else wants; each task has a lock of its own,
//! and all tasks of a system share one connection where it has such a thing.
//!
//! `hand-offs`: one lock that several clients want, each with a connection of its own; a client
//! that has released it wants it again at once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{Client, Mutex};
use lockkeeper_engine::Durability;

use crate::baselines::{self, Baselines};
use crate::bench::Bench;
use crate::lines::close;
use crate::locks::bare::{BareLock, SecondLook};
use crate::locks::etcd::{self, EtcdLock};
use crate::locks::postgres::{self, PostgresLock};
use crate::locks::redis::{self, RedisLock};
use crate::locks::zookeeper_client::ZookeeperClientLock;
use crate::machine::ProcessorTime;
use crate::measure::{self, Latency, Lock, Measured, Plan, Release, micros};
use crate::peers::Peers;
use crate::system::{Fsync, System};

/// How long a waiter of Redis pauses: far less than what is usual (100 ms), so that it is not the
/// pause that is measured.
const REDIS_PAUSE: Duration = Duration::from_millis(1);

/// More connections than this make PostgreSQL slower: each is a process.
const POSTGRES_CONNECTIONS: usize = 16;

/// How long etcd keeps a lease that nobody renews: longer than a turn.
const ETCD_SECONDS: i64 = 600;

/// Threads of Python and one connection for each make kazoo's figures at many tasks those of the
/// operating system.
const KAZOO_TASKS: usize = 64;

/// The tasks of P5 and P6, and the clients of P7.
const CYCLES_OF_TARGETS: [usize; 2] = [1, 64];
const HAND_OFFS_OF_TARGETS: [usize; 2] = [8, 64];

/// The pairs of P1 to P4, and ZooKeeper.
const CYCLES_NOT_AWAITED: [System; 5] = [
    System::Engine(Durability::Sync),
    System::Engine(Durability::Os),
    System::OnZooKeeper,
    System::Redis(Fsync::Always),
    System::Redis(Fsync::Everysec),
];

/// A guard that is dropped, and the next acquire right behind it. Curator and kazoo have only the
/// release that waits.
const HAND_OFFS_NOT_AWAITED: [System; 6] = [
    System::Engine(Durability::Sync),
    System::Engine(Durability::Os),
    System::OnZooKeeper,
    System::BareRequests(SecondLook::Never),
    System::BareRequests(SecondLook::IfMoreWereAhead),
    System::ZookeeperClient,
];

/// One turn: so many tasks, with a lock for each or all with the same, and how each lets go.
#[derive(Clone, Copy)]
struct Load {
    tasks: usize,
    one_lock: bool,
    release: Release,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = if self.one_lock { "clients" } else { "tasks" };
        write!(f, "{} {counted}{}", self.tasks, self.release.note(", "))
    }
}

pub(super) async fn cycles(bench: &mut Bench) -> Result<()> {
    for tasks in bench.settings.tasks.clone() {
        let load = |release| Load { tasks, one_lock: false, release };
        let fits = |system: &System| *system != System::Kazoo || tasks <= KAZOO_TASKS;
        let awaited = System::ALL.into_iter().filter(fits);
        let mut turns: Vec<_> = awaited.map(|system| (system, load(Release::Awaited))).collect();
        turns.extend(CYCLES_NOT_AWAITED.map(|system| (system, load(Release::NotAwaited))));

        let is_of_target = CYCLES_OF_TARGETS.contains(&tasks);
        if is_of_target {
            // Nobody is ahead of anybody, so there is nothing to look at twice.
            let bare = System::BareRequests(SecondLook::Never);
            turns.extend([Release::Awaited, Release::NotAwaited].map(|how| (bare, load(how))));
        }
        bench.interleave_systems(&turns, is_of_target, take_turn).await;
    }
    Ok(())
}

pub(super) async fn hand_offs(bench: &mut Bench) -> Result<()> {
    for tasks in bench.settings.clients.clone() {
        let load = |release| Load { tasks, one_lock: true, release };
        let bare = [SecondLook::Never, SecondLook::IfMoreWereAhead].map(System::BareRequests);
        // A waiter of Redis asks again and again: when it writes to the disk is not what counts.
        let is_wanted =
            |system: &System| !matches!(system, System::Redis(fsync) if *fsync != Fsync::Everysec);
        let awaited = System::ALL.into_iter().filter(is_wanted).chain(bare);
        let mut turns: Vec<_> = awaited.map(|system| (system, load(Release::Awaited))).collect();
        turns.extend(HAND_OFFS_NOT_AWAITED.map(|system| (system, load(Release::NotAwaited))));

        let is_of_target = HAND_OFFS_OF_TARGETS.contains(&tasks);
        bench.interleave_systems(&turns, is_of_target, take_turn).await;
    }
    Ok(())
}

async fn take_turn(bench: &mut Bench, &(system, load): &(System, Load), plan: Plan) -> Result<()> {
    let config = format!("{}{}", system.config(), load.release.note("; "));
    let (side, tasks) = ((system.name(), config.as_str()), load.tasks);

    let before = ProcessorTime::now()?;
    let measured = measure(&mut bench.peers, system, load, plan).await?;
    if load.one_lock {
        bench.note_as(side, tasks, "hand_offs_per_s", measured.per_second);
        bench.note_as(side, tasks, "grants_per_s", measured.grants_per_second);
        bench.note_latency(side, tasks, "hand_off", measured.latency);
        return Ok(());
    }

    let after = ProcessorTime::now()?;
    // The warm-up costs as well, at the same rate.
    let cycles = measured.per_second * (plan.warm_up + plan.measure).as_secs_f64();
    let each = |before: f64, after: f64| (after - before) / cycles;
    bench.note_as(side, tasks, "cycles_per_s", measured.per_second);
    bench.note_latency(side, tasks, "cycle", measured.latency);
    bench.note_latency(side, tasks, "acquire", measured.acquire);
    bench.note_as(side, tasks, "harness_cpu_us", each(before.ours, after.ours));
    bench.note_as(side, tasks, "other_cpu_us", each(before.others, after.others));
    if tasks == 1 && matches!(system, System::Engine(_) | System::Redis(_)) {
        baselines(bench).await;
    }
    Ok(())
}

/// What the machine itself takes right now: disks and sleeping processors sway from one minute to
/// the next, so that one measurement for the whole run would be compared with another machine's.
async fn baselines(bench: &mut Bench) {
    const RECORDS: usize = 100;
    const ROUND_TRIPS: usize = 1_000;
    match Baselines::measure(&mut bench.peers, RECORDS, ROUND_TRIPS).await {
        Ok(Baselines { disk, loopback }) => {
            let mut note = |side, metric, latency: Latency| {
                bench.note_as(side, 1, metric, micros(latency.p50));
            };
            note(baselines::IN_PLACE, "record_p50_us", disk.in_place);
            note(baselines::APPENDED, "record_p50_us", disk.appended);
            if let Some(two) = loopback.two {
                note(baselines::TWO_PROCESSORS, "round_trip_p50_us", two);
            }
            note(baselines::ONE_PROCESSOR, "round_trip_p50_us", loopback.one);
        }
        Err(error) => bench.skip("disk and loopback", &error),
    }
}

impl Load {
    /// The name of a task's lock.
    fn name(&self, task: usize) -> String {
        if self.one_lock { "hand-offs".to_owned() } else { format!("cycles-{task}") }
    }

    /// A connection for each client of one lock, and otherwise at most `most` for all tasks, in
    /// turns.
    async fn connections<C>(
        &self,
        most: usize,
        connect: impl AsyncFn() -> Result<C>,
    ) -> Result<Vec<C>> {
        let count = if self.one_lock { self.tasks } else { self.tasks.min(most) };
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(connect().await?);
        }
        Ok(connections)
    }

    /// A lock for each task.
    fn locks<C, L>(&self, connections: &[C], lock: impl Fn(&C, usize) -> L) -> Vec<L> {
        (0..self.tasks).map(|task| lock(&connections[task % connections.len()], task)).collect()
    }

    async fn measure<L: Lock>(&self, locks: Vec<L>, plan: Plan) -> Result<Measured> {
        match self.one_lock {
            true => measure::hand_offs(locks, plan, self.release).await,
            false => measure::cycles(locks, plan, self.release).await,
        }
    }
}

async fn measure(peers: &mut Peers, system: System, load: Load, plan: Plan) -> Result<Measured> {
    let address = peers.server_of(system).await?;
    let address = address.as_str();
    match system {
        System::Engine(_) | System::OnZooKeeper => measure_mutex(address, load, plan).await,
        System::BareRequests(look) => measure_bare_lock(address, look, load, plan).await,
        System::Curator | System::Kazoo => measure_worker(peers, system, load, plan).await,
        System::ZookeeperClient => measure_zookeeper_client(address, load, plan).await,
        System::Redis(_) => measure_redis(address, load, plan).await,
        System::Etcd => measure_etcd(address, load, plan).await,
        System::Postgres => measure_postgres(address, load, plan).await,
    }
}

async fn measure_mutex(address: &str, load: Load, plan: Plan) -> Result<Measured> {
    let clients = load.connections(1, async || Ok(Client::connect(address).await?)).await?;
    let lock = |client: &Client, task| Mutex::new(client, &format!("/locks/{}", load.name(task)));
    let locks = load.locks(&clients, lock).into_iter().collect::<Result<Vec<_>, _>>()?;
    let measured = load.measure(locks, plan).await?;
    close(clients).await;
    Ok(measured)
}

async fn measure_bare_lock(
    address: &str,
    look: SecondLook,
    load: Load,
    plan: Plan,
) -> Result<Measured> {
    let clients = load.connections(1, async || Ok(Client::connect(address).await?)).await?;
    let mut locks = Vec::new();
    for task in 0..load.tasks {
        let (client, line) = (&clients[task % clients.len()], load.name(task));
        locks.push(BareLock::new(client, &format!("/bare-{line}"), look).await?);
    }

    let measured = load.measure(locks, plan).await?;
    close(clients).await;
    Ok(measured)
}

/// Curator and kazoo run in a process of their own, which measures there.
async fn measure_worker(
    peers: &mut Peers,
    system: System,
    load: Load,
    plan: Plan,
) -> Result<Measured> {
    let worker = match system {
        System::Kazoo => peers.kazoo().await?,
        _ => peers.curator().await?,
    };
    let what = if load.one_lock { "handoffs" } else { "cycles" };
    worker.measure(what, load.tasks, plan).await
}

async fn measure_zookeeper_client(address: &str, load: Load, plan: Plan) -> Result<Measured> {
    let connect = async || Ok(zookeeper_client::Client::connect(address).await?);
    let clients = load.connections(1, connect).await?;
    let lock = |client: &zookeeper_client::Client, task| {
        let path = format!("/zkc/{}", load.name(task));
        ZookeeperClientLock { client: client.clone(), path }
    };
    load.measure(load.locks(&clients, lock), plan).await
}

async fn measure_redis(address: &str, load: Load, plan: Plan) -> Result<Measured> {
    // A release that nobody waited for may be lost with the turn's connection, and its key then lives
    // on for a while: the next turn has other keys.
    static TURNS: AtomicU32 = AtomicU32::new(0);
    let turn = TURNS.fetch_add(1, Ordering::Relaxed);

    let clients = load.connections(1, async || redis::connect(address).await).await?;
    let lock = |client: &_, task| {
        RedisLock::new(client, format!("{turn}-{}", load.name(task)), REDIS_PAUSE)
    };
    load.measure(load.locks(&clients, lock), plan).await
}

async fn measure_etcd(address: &str, load: Load, plan: Plan) -> Result<Measured> {
    let connect = async || etcd::EtcdSession::connect(address, ETCD_SECONDS).await;
    let clients = load.connections(1, connect).await?;
    let lock = |session: &etcd::EtcdSession, task| EtcdLock {
        session: session.clone(),
        name: load.name(task),
    };
    load.measure(load.locks(&clients, lock), plan).await
}

async fn measure_postgres(address: &str, load: Load, plan: Plan) -> Result<Measured> {
    let connect = async || postgres::PostgresSession::connect(address).await;
    let clients = load.connections(POSTGRES_CONNECTIONS, connect).await?;
    let key = |task: usize| if load.one_lock { -1 } else { task as i64 };
    let lock =
        |session: &Arc<_>, task| PostgresLock { session: Arc::clone(session), key: key(task) };
    load.measure(load.locks(&clients, lock), plan).await
}
