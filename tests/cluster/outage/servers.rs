//! The servers of a place, and what is done to them.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper_testkit::network::{Host, Network};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::{Config, ZooKeeperEnsemble};
use lockkeeper_testkit::{command, scratch};
use tempfile::TempDir;

use crate::outage::forms::Place;
use crate::outage::observer::{self, Listener};
use crate::outage::programs::plain;

/// Longer than anything takes that works, also on a machine that has other things to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// ZooKeeper's own default.
pub(crate) const TICK: Duration = Duration::from_secs(2);

const PORT: u16 = 2181;

/// What keeps the locks of one place.
pub(crate) enum Servers {
    Engine(Box<Engine>),
    Ensemble(ZooKeeperEnsemble),
}

impl Servers {
    /// Starts them on the first hosts of the network, and waits until they commit writes.
    pub(crate) async fn start(place: Place, network: &Network) -> Result<Self> {
        let servers = match place {
            Place::Engine => Self::Engine(Box::new(Engine::on(network.host(0))?)),
            Place::Local => Self::Engine(Box::new(Engine::local()?)),
            Place::Ensemble => {
                let hosts: Vec<_> =
                    (0..place.servers()).map(|host| network.host(host).clone()).collect();
                let config = Config::new().tick(TICK);
                let config = config.setting("syncLimit", "5").setting("initLimit", "10");
                Self::Ensemble(config.ensemble_on(&hosts).await?)
            }
        };
        observer::commits(servers.listeners(network)?, LIMIT).await?;
        Ok(servers)
    }

    pub(crate) fn connect_string(&self) -> String {
        match self {
            Self::Engine(engine) => engine.connect.clone(),
            Self::Ensemble(servers) => servers.connect_string(),
        }
    }

    /// Where observers come in that are beside the servers.
    pub(crate) fn listeners(&self, network: &Network) -> Result<Vec<Listener>> {
        match self {
            Self::Engine(engine) => Ok(vec![engine.listener.clone()]),
            Self::Ensemble(_) => self.listeners_from(network.host(0)),
        }
    }

    /// Where observers come in that are on this host.
    pub(crate) fn listeners_from(&self, host: &Host) -> Result<Vec<Listener>> {
        let addresses = self.connect_string();
        let listener = |address: &str| {
            let address: SocketAddrV4 = address.parse()?;
            Ok(Listener::Tcp(host.clone(), address))
        };
        addresses.split(',').map(listener).collect()
    }

    /// Stops all of them in the middle of whatever they do.
    pub(crate) fn pause(&self) -> Result<()> {
        match self {
            Self::Engine(engine) => engine.running()?.pause(),
            Self::Ensemble(servers) => (0..servers.size()).try_for_each(|one| servers.pause(one)),
        }
    }

    pub(crate) fn resume(&self) -> Result<()> {
        match self {
            Self::Engine(engine) => engine.running()?.resume(),
            Self::Ensemble(servers) => (0..servers.size()).try_for_each(|one| servers.resume(one)),
        }
    }

    pub(crate) fn kill(&mut self) {
        match self {
            Self::Engine(engine) => engine.process = None,
            Self::Ensemble(servers) => (0..servers.size()).for_each(|one| servers.kill(one)),
        }
    }

    /// Starts all of them again, and does not wait for them.
    pub(crate) fn begin_restart(&mut self) -> Result<()> {
        match self {
            Self::Engine(engine) => engine.launch(),
            Self::Ensemble(servers) => {
                (0..servers.size()).try_for_each(|one| servers.server_mut(one).begin_restart())
            }
        }
    }

    /// Waits until all of them serve, and one leads if they are several.
    pub(crate) async fn settle(&self) -> Result<()> {
        match self {
            Self::Engine(_) => Ok(()),
            Self::Ensemble(servers) => servers.settles(LIMIT).await,
        }
    }

    /// How many ephemeral nodes there are whose paths begin with this.
    pub(crate) async fn ephemerals(&self, prefix: &str) -> Result<usize> {
        let Self::Ensemble(servers) = self else { bail!("an engine is asked in another way") };
        let dump = servers.server(servers.leader().await?).four_letter("dump").await?;
        Ok(dump.lines().filter(|line| line.trim().starts_with(prefix)).count())
    }

    pub(crate) fn ensemble(&mut self) -> Result<&mut ZooKeeperEnsemble> {
        match self {
            Self::Engine(_) => bail!("an engine has no leader"),
            Self::Ensemble(servers) => Ok(servers),
        }
    }
}

/// An engine in a process of its own.
pub(crate) struct Engine {
    // Before the folder, which has its data.
    process: Option<Process>,
    command: Command,
    connect: String,
    listener: Listener,
    starts: u32,
    folder: TempDir,
}

impl Engine {
    /// `lockkeeper serve`, for other hosts.
    fn on(host: &Host) -> Result<Self> {
        let folder = scratch::folder()?;
        let address = SocketAddrV4::new(host.address(), PORT);
        let mut command = plain(&command::lockkeeper()?);
        command.args(["serve", "--allow-plaintext", "--listen"]).arg(address.to_string());
        command.arg("--data-dir").arg(folder.path().join("data"));
        let command = host.command(&command);
        Self::new(command, address.to_string(), Listener::Tcp(host.clone(), address), folder)
    }

    /// The machine-local engine, as the command starts it, but with this process as its parent: it
    /// must not outlive it.
    fn local() -> Result<Self> {
        let folder = scratch::folder()?;
        let mut command = plain(&command::lockkeeper()?);
        command.args(["__local-engine", "--durability", "sync", "--home"]).arg(folder.path());
        let socket: PathBuf = folder.path().join("engine.sock");
        let connect = format!("unix:{}", socket.display());
        Self::new(command, connect, Listener::Unix(socket), folder)
    }

    fn new(command: Command, connect: String, listener: Listener, folder: TempDir) -> Result<Self> {
        let mut engine = Self { process: None, command, connect, listener, starts: 0, folder };
        engine.launch()?;
        Ok(engine)
    }

    fn launch(&mut self) -> Result<()> {
        self.starts += 1;
        let name = format!("engine-{}", self.starts);
        self.process = Some(Process::spawn(&name, &self.command, self.folder.path())?);
        Ok(())
    }

    fn running(&self) -> Result<&Process> {
        self.process.as_ref().context("the engine was killed")
    }
}
