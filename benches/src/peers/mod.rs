//! The servers and programs, started when a row first asks for them.

mod memory;
mod postgres;
mod servers;
mod worker;

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use lockkeeper_engine::Durability;
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tempfile::TempDir;

pub(crate) use self::memory::Memory;
use self::postgres::Postgres;
pub(crate) use self::servers::{
    Server, child, free_port, lockkeeper, ready_line, redis, serve, serving,
};
use self::worker::Worker;
use crate::system::Fsync;

/// A peer that has been asked for, or not: it is started once, and a failure is remembered.
type Slot<T> = Option<Result<T, String>>;

/// Everything that runs beside this process.
pub(crate) struct Peers {
    data: PathBuf,
    folder: Option<TempDir>,
    echo: Slot<Server>,
    engines: [Slot<Server>; 3],
    redis: [Slot<Server>; 3],
    zookeeper: Slot<ZooKeeper>,
    curator: Slot<Worker>,
    kazoo: Slot<Worker>,
    etcd: Slot<Server>,
    postgres: Slot<Postgres>,
    configurations: Vec<(String, String)>,
}

impl Peers {
    /// Nothing runs yet. Data will be below `data`.
    pub(crate) fn new(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            folder: None,
            echo: None,
            engines: [const { None }; 3],
            redis: [const { None }; 3],
            zookeeper: None,
            curator: None,
            kazoo: None,
            etcd: None,
            postgres: None,
            configurations: Vec::new(),
        }
    }

    /// How each peer that was asked for is configured.
    pub(crate) fn configurations(&self) -> Vec<(String, String)> {
        self.configurations.clone()
    }

    /// A folder for data and logs, on the disk that is measured; gone when this is dropped.
    pub(crate) fn folder(&mut self) -> Result<PathBuf> {
        if self.folder.is_none() {
            fs::create_dir_all(&self.data)
                .with_context(|| format!("cannot create {}", self.data.display()))?;
            self.folder = Some(tempfile::tempdir_in(&self.data)?);
        }
        Ok(self.folder.as_ref().map(|folder| folder.path().to_owned()).unwrap_or_default())
    }

    /// The address of a child that sends back whatever comes, on the floors' processor.
    pub(crate) async fn echo(&mut self) -> Result<String> {
        let folder = self.folder()?;
        let server = filled(&mut self.echo, servers::echo(&folder)).await?;
        Ok(server.address().to_owned())
    }

    /// The address of an engine.
    pub(crate) async fn engine(&mut self, durability: Durability) -> Result<String> {
        Ok(self.engine_server(durability).await?.address().to_owned())
    }

    /// An engine.
    pub(crate) async fn engine_server(&mut self, durability: Durability) -> Result<&Server> {
        let folder = self.folder()?;
        let index = match durability {
            Durability::Sync => 0,
            Durability::Os => 1,
            Durability::Memory => 2,
        };
        if self.engines[index].is_none() {
            let how = "`lockkeeper serve`, TCP on loopback; data on the measured disk";
            self.configure(&format!("engine, {durability}"), how);
        }
        let start = servers::engine(&folder, durability);
        filled(&mut self.engines[index], start).await.map(|server| &*server)
    }

    /// The address of a Redis.
    pub(crate) async fn redis(&mut self, fsync: Fsync) -> Result<String> {
        let folder = self.folder()?;
        let (index, how) = match fsync {
            Fsync::Always => (0, "appendonly yes, appendfsync always"),
            Fsync::Everysec => (1, "appendonly yes, appendfsync everysec"),
            Fsync::Never => (2, "appendonly no"),
        };
        if self.redis[index].is_none() {
            let version = servers::version("redis-server", "--version");
            let how = format!(
                "{version}; {how}; no snapshots; one multiplexed connection (crate redis 1.8); a \
                 waiter asks again after 1 ms on average"
            );
            self.configure(&format!("redis, {fsync:?}"), &how);
        }
        let server = filled(&mut self.redis[index], servers::redis(&folder, fsync)).await?;
        Ok(server.address().to_owned())
    }

    /// The address of a ZooKeeper.
    pub(crate) async fn zookeeper(&mut self) -> Result<String> {
        Ok(self.zookeeper_server().await?.connect_string())
    }

    /// A ZooKeeper.
    pub(crate) async fn zookeeper_server(&mut self) -> Result<&ZooKeeper> {
        if self.zookeeper.is_none() {
            let how = format!(
                "{}; one server, forceSync on, 64 MiB logs, tick 2 s; full JIT, -Xmx1g, serial \
                 collector",
                servers::zookeeper_version()
            );
            self.configure("zookeeper", &how);
        }
        filled(&mut self.zookeeper, servers::zookeeper()).await.map(|server| &*server)
    }

    /// A ZooKeeper that has done nothing yet, beside the other.
    pub(crate) async fn fresh_zookeeper(&self) -> Result<ZooKeeper> {
        servers::zookeeper().await
    }

    /// The program that uses Curator.
    pub(crate) async fn curator(&mut self) -> Result<&mut Worker> {
        let address = self.zookeeper().await?;
        if self.curator.is_none() {
            let how = format!(
                "{}; a thread for each task, one CuratorFramework (for hand-offs one each); full \
                 JIT, -Xmx1g, serial collector; 3 s of warm-up once, then as everyone",
                servers::curator_version()
            );
            self.configure("curator", &how);
        }
        filled(&mut self.curator, Worker::curator(&address)).await
    }

    /// The program that uses kazoo.
    pub(crate) async fn kazoo(&mut self) -> Result<&mut Worker> {
        let address = self.zookeeper().await?;
        if self.kazoo.is_none() {
            let how = "Debian's python3-kazoo; a thread for each task, one KazooClient (for \
                       hand-offs one each)";
            self.configure("kazoo", how);
        }
        filled(&mut self.kazoo, Worker::kazoo(&address)).await
    }

    /// The address of an etcd.
    pub(crate) async fn etcd(&mut self) -> Result<String> {
        let folder = self.folder()?;
        if self.etcd.is_none() {
            let version = servers::version("etcd", "--version");
            let how = format!(
                "{version}; one server, defaults (fsync); gRPC with one HTTP/2 connection (for \
                 hand-offs one each)"
            );
            self.configure("etcd", &how);
        }
        let server = filled(&mut self.etcd, servers::etcd(&folder)).await?;
        Ok(server.address().to_owned())
    }

    /// The address of a PostgreSQL.
    pub(crate) async fn postgres(&mut self) -> Result<String> {
        if self.postgres.is_none() {
            let how = format!(
                "{}; defaults; prepared statements, 16 connections at most (for hand-offs one \
                 each); an advisory lock is never written to the disk",
                postgres::version()
            );
            self.configure("postgresql", &how);
        }
        let server = filled(&mut self.postgres, Postgres::start()).await?;
        Ok(server.address().to_owned())
    }

    fn configure(&mut self, peer: &str, how: &str) {
        self.configurations.push((peer.to_owned(), how.to_owned()));
    }
}

async fn filled<T>(slot: &mut Slot<T>, start: impl Future<Output = Result<T>>) -> Result<&mut T> {
    if slot.is_none() {
        *slot = Some(start.await.map_err(|error| format!("{error:#}")));
    }
    match slot {
        Some(Ok(peer)) => Ok(peer),
        Some(Err(why)) => Err(anyhow!(why.clone())),
        None => bail!("it was not started"),
    }
}
