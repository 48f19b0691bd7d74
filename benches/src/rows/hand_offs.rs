//! One lock that several clients want, each with a connection of its own; who has released it
//! wants it again at once.

use std::time::Duration;

use crate::measure::{HandOffs, Plan, hand_offs};
use anyhow::Result;
use lockkeeper::{Client, Mutex};
use lockkeeper_engine::Durability;

use crate::bench::Bench;
use crate::locks::etcd::{self, EtcdLock};
use crate::locks::postgres::{self, PostgresLock};
use crate::locks::redis::{self, RedisLock};
use crate::locks::zookeeper_client::{self, ZookeeperClientLock};
use crate::peers::Peers;
use crate::system::{Fsync, System};

/// How long a waiter of Redis pauses: far less than what is usual (100 ms), so that it is not the
/// pause that is measured.
pub(super) const REDIS_PAUSE: Duration = Duration::from_millis(1);

const SYSTEMS: [System; 10] = [
    System::Engine(Durability::Sync),
    System::Engine(Durability::Os),
    System::Engine(Durability::Memory),
    System::OnZooKeeper,
    System::Curator,
    System::ZookeeperClient,
    System::Kazoo,
    System::Redis(Fsync::Everysec),
    System::Etcd,
    System::Postgres,
];

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.settings.rounds;
    for clients in bench.settings.clients.clone() {
        let turns = SYSTEMS.map(|system| (system, format!("{clients} clients")));
        bench
            .interleave(rounds, &turns, async |bench, &(system, _)| {
                let plan = bench.settings.plan;
                let measured = measure(&mut bench.peers, system, clients, plan).await?;
                bench.note(system, clients, "hand_offs_per_s", measured.per_second);
                bench.note(system, clients, "grants_per_s", measured.grants_per_second);
                let who = (system.name(), system.config());
                bench.note_latency(who, clients, "hand_off", measured.latency);
                Ok(())
            })
            .await;
    }
    Ok(())
}

async fn measure(
    peers: &mut Peers,
    system: System,
    clients: usize,
    plan: Plan,
) -> Result<HandOffs> {
    match system {
        System::Engine(durability) => {
            lockkeeper(&peers.engine(durability).await?, clients, plan).await
        }
        System::OnZooKeeper => lockkeeper(&peers.zookeeper().await?, clients, plan).await,
        System::Curator => peers.curator().await?.hand_offs(clients, plan).await,
        System::Kazoo => peers.kazoo().await?.hand_offs(clients, plan).await,
        System::ZookeeperClient => {
            let (servers, mut locks) = (peers.zookeeper().await?, Vec::new());
            for _ in 0..clients {
                let client = zookeeper_client::connect(&servers).await?;
                locks.push(ZookeeperClientLock::new(&client, "/zkc/hand-offs".into()));
            }
            hand_offs(locks, plan).await
        }
        System::Redis(fsync) => {
            let (address, mut locks) = (peers.redis(fsync).await?, Vec::new());
            for _ in 0..clients {
                let connection = redis::connect(&address).await?;
                locks.push(RedisLock::new(&connection, "hand-offs".into(), REDIS_PAUSE));
            }
            hand_offs(locks, plan).await
        }
        System::Etcd => {
            let (address, mut locks) = (peers.etcd().await?, Vec::new());
            for _ in 0..clients {
                let session = etcd::Session::connect(&address, 600).await?;
                locks.push(EtcdLock::new(&session, "hand-offs".into()));
            }
            hand_offs(locks, plan).await
        }
        System::Postgres => {
            let (address, mut locks) = (peers.postgres().await?, Vec::new());
            for _ in 0..clients {
                locks.push(PostgresLock::new(&postgres::Session::connect(&address).await?, -1));
            }
            hand_offs(locks, plan).await
        }
    }
}

async fn lockkeeper(servers: &str, clients: usize, plan: Plan) -> Result<HandOffs> {
    let (mut sessions, mut locks) = (Vec::new(), Vec::new());
    for _ in 0..clients {
        let client = Client::connect(servers).await?;
        locks.push(Mutex::new(&client, "/locks/hand-offs")?);
        sessions.push(client);
    }
    let measured = hand_offs(locks, plan).await?;
    for client in sessions {
        client.close().await;
    }
    Ok(measured)
}
