//! The servers and programs, started when a scenario first asks for them.

mod postgres;
mod program;
mod server;
mod servers;
mod worker;

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tempfile::TempDir;

pub(crate) use self::program::{Configuration, Program};
pub(crate) use self::server::{
    Server, child, free_port, lockkeeper, ready_line, said, serve, serving,
};
pub(crate) use self::servers::redis;
pub(crate) use self::worker::Worker;
use crate::system::System;

/// A peer that has been asked for, or not: it is started once, and a failure is remembered.
type Slot<T> = Option<Result<T, String>>;

/// Everything that runs beside this process.
pub(crate) struct Peers {
    data: PathBuf,
    folder: Option<TempDir>,
    servers: Vec<(Program, Slot<Server>)>,
    zookeeper: Slot<ZooKeeper>,
    curator: Slot<Worker>,
    kazoo: Slot<Worker>,
}

impl Peers {
    /// Nothing runs yet. Data will be below `data`.
    pub(crate) fn new(data: &Path) -> Self {
        let data = data.to_owned();
        let (servers, zookeeper, curator, kazoo) = (Vec::new(), None, None, None);
        Self { data, folder: None, servers, zookeeper, curator, kazoo }
    }

    /// How each peer that was asked for is configured.
    pub(crate) fn configurations(&self) -> Vec<Configuration> {
        let servers = self.servers.iter().filter_map(|(program, _)| servers::describe(*program));
        let others = [
            self.zookeeper.as_ref().map(|_| servers::describe_zookeeper()),
            self.curator.as_ref().map(|_| worker::describe_curator()),
            self.kazoo.as_ref().map(|_| worker::describe_kazoo()),
        ];
        servers.chain(others.into_iter().flatten()).collect()
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

    /// A server, which runs.
    pub(crate) async fn server(&mut self, program: Program) -> Result<&Server> {
        let folder = self.folder()?;
        let known = self.servers.iter().position(|(known, _)| *known == program);
        let index = known.unwrap_or_else(|| {
            self.servers.push((program, None));
            self.servers.len() - 1
        });
        filled(&mut self.servers[index].1, servers::start(program, &folder)).await.map(|it| &*it)
    }

    /// The address of a server.
    pub(crate) async fn address(&mut self, program: Program) -> Result<&str> {
        Ok(self.server(program).await?.address())
    }

    /// The address of the server that this system's locks are on.
    pub(crate) async fn server_of(&mut self, system: System) -> Result<String> {
        let program = match system {
            System::Engine(durability) => Program::Engine(durability),
            System::Redis(fsync) => Program::Redis(fsync),
            System::Etcd => Program::Etcd,
            System::Postgres => Program::Postgres,
            System::OnZooKeeper
            | System::BareRequests(_)
            | System::Curator
            | System::Kazoo
            | System::ZookeeperClient => return Ok(self.zookeeper().await?.connect_string()),
        };
        Ok(self.address(program).await?.to_owned())
    }

    /// A ZooKeeper.
    pub(crate) async fn zookeeper(&mut self) -> Result<&ZooKeeper> {
        filled(&mut self.zookeeper, servers::zookeeper()).await.map(|server| &*server)
    }

    /// A ZooKeeper that has done nothing yet, beside the other.
    pub(crate) async fn fresh_zookeeper(&self) -> Result<ZooKeeper> {
        servers::zookeeper().await
    }

    /// The program that uses Curator.
    pub(crate) async fn curator(&mut self) -> Result<&mut Worker> {
        let address = self.server_of(System::Curator).await?;
        filled(&mut self.curator, Worker::curator(&address)).await
    }

    /// A program of its own that adds to a counter of this system.
    pub(crate) async fn adder(&mut self, system: System) -> Result<Worker> {
        let address = self.server_of(system).await?;
        match system {
            System::Curator => Worker::curator(&address).await,
            _ => Worker::ours(&address),
        }
    }

    /// The program that uses kazoo.
    pub(crate) async fn kazoo(&mut self) -> Result<&mut Worker> {
        let address = self.server_of(System::Kazoo).await?;
        filled(&mut self.kazoo, Worker::kazoo(&address)).await
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
