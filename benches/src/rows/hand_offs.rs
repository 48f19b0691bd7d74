//! One lock that several clients want, each with a connection of its own; who has released it
//! wants it again at once.

use std::fmt;
use std::time::Duration;

use crate::measure::{HandOffs, Lock, Plan, Release, hand_offs};
use anyhow::Result;
use lockkeeper::{Client, Mutex};
use lockkeeper_engine::Durability;

use crate::bench::Bench;
use crate::locks::bare::{BareLock, SecondLook};
use crate::locks::etcd::{self, EtcdLock};
use crate::locks::postgres::{self, PostgresLock};
use crate::locks::redis::{self, RedisLock};
use crate::locks::zookeeper_client::{self, ZookeeperClientLock};
use crate::peers::Peers;
use crate::rows::cycles::config;
use crate::rows::sessions;
use crate::system::{Fsync, System};

/// How long a waiter of Redis pauses: far less than what is usual (100 ms), so that it is not the
/// pause that is measured.
pub(super) const REDIS_PAUSE: Duration = Duration::from_millis(1);

const SYSTEMS: [System; 12] = [
    System::Engine(Durability::Sync),
    System::Engine(Durability::Os),
    System::Engine(Durability::Memory),
    System::OnZooKeeper,
    System::BareRequests(SecondLook::Never),
    System::BareRequests(SecondLook::IfMoreWereAhead),
    System::Curator,
    System::ZookeeperClient,
    System::Kazoo,
    System::Redis(Fsync::Everysec),
    System::Etcd,
    System::Postgres,
];

/// A guard that is dropped, and the next acquire right behind it. Curator and kazoo have only the
/// release that waits.
const NOT_AWAITED: [System; 6] = [
    System::Engine(Durability::Sync),
    System::Engine(Durability::Os),
    System::OnZooKeeper,
    System::BareRequests(SecondLook::Never),
    System::BareRequests(SecondLook::IfMoreWereAhead),
    System::ZookeeperClient,
];

/// The clients of P7.
const OF_TARGETS: [usize; 2] = [8, 64];

/// One turn: so many clients, and how each lets go.
#[derive(Clone, Copy)]
struct Load {
    clients: usize,
    release: Release,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} clients{}", self.clients, self.release.note(", "))
    }
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for clients in bench.settings.clients.clone() {
        let load = |release| Load { clients, release };
        let awaited = SYSTEMS.map(|system| (system, load(Release::Awaited)));
        let not_awaited = NOT_AWAITED.map(|system| (system, load(Release::NotAwaited)));
        let turns = [&awaited[..], &not_awaited].concat();
        let is_of_target = OF_TARGETS.contains(&clients);
        bench
            .interleave_systems(&turns, is_of_target, async |bench, &(system, load), plan| {
                let measured = measure(&mut bench.peers, system, load, plan).await?;
                let config = config(system, load.release);
                let who = (system.name(), config.as_str());
                bench.note_as(who, clients, "hand_offs_per_s", measured.per_second);
                bench.note_as(who, clients, "grants_per_s", measured.grants_per_second);
                bench.note_latency(who, clients, "hand_off", measured.latency);
                Ok(())
            })
            .await;
    }
    Ok(())
}

async fn measure(peers: &mut Peers, system: System, load: Load, plan: Plan) -> Result<HandOffs> {
    let Load { clients, release } = load;
    match system {
        System::Engine(durability) => {
            lockkeeper(&peers.engine(durability).await?, load, plan).await
        }
        System::OnZooKeeper => lockkeeper(&peers.zookeeper().await?, load, plan).await,
        System::BareRequests(look) => bare(&peers.zookeeper().await?, look, load, plan).await,
        System::Curator => peers.curator().await?.hand_offs(clients, plan).await,
        System::Kazoo => peers.kazoo().await?.hand_offs(clients, plan).await,
        System::ZookeeperClient => {
            let (servers, mut locks) = (peers.zookeeper().await?, Vec::new());
            for _ in 0..clients {
                let client = zookeeper_client::connect(&servers).await?;
                locks.push(ZookeeperClientLock::new(&client, "/zkc/hand-offs".into()));
            }
            hand_offs(locks, plan, release).await
        }
        System::Redis(fsync) => {
            let (address, mut locks) = (peers.redis(fsync).await?, Vec::new());
            for _ in 0..clients {
                let connection = redis::connect(&address).await?;
                locks.push(RedisLock::new(&connection, "hand-offs".into(), REDIS_PAUSE));
            }
            hand_offs(locks, plan, release).await
        }
        System::Etcd => {
            let (address, mut locks) = (peers.etcd().await?, Vec::new());
            for _ in 0..clients {
                let session = etcd::Session::connect(&address, 600).await?;
                locks.push(EtcdLock::new(&session, "hand-offs".into()));
            }
            hand_offs(locks, plan, release).await
        }
        System::Postgres => {
            let (address, mut locks) = (peers.postgres().await?, Vec::new());
            for _ in 0..clients {
                locks.push(PostgresLock::new(&postgres::Session::connect(&address).await?, -1));
            }
            hand_offs(locks, plan, release).await
        }
    }
}

async fn lockkeeper(servers: &str, load: Load, plan: Plan) -> Result<HandOffs> {
    let (sessions, mut locks) = (sessions(servers, load.clients).await?, Vec::new());
    for client in &sessions {
        locks.push(Mutex::new(client, "/locks/hand-offs")?);
    }
    one_lock(sessions, locks, load, plan).await
}

async fn bare(servers: &str, look: SecondLook, load: Load, plan: Plan) -> Result<HandOffs> {
    let (sessions, mut locks) = (sessions(servers, load.clients).await?, Vec::new());
    for client in &sessions {
        locks.push(BareLock::new(client, "/bare-hand-offs", look).await?);
    }
    one_lock(sessions, locks, load, plan).await
}

/// Each of these sessions has a handle of the same lock.
async fn one_lock(
    sessions: Vec<Client>,
    locks: Vec<impl Lock<Error = anyhow::Error>>,
    load: Load,
    plan: Plan,
) -> Result<HandOffs> {
    let measured = hand_offs(locks, plan, load.release).await?;
    for client in sessions {
        client.close().await;
    }
    Ok(measured)
}
