//! The servers of a place, what is done to them, and when they commit writes again.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use clap::ValueEnum;
use lockkeeper_testkit::network::{Host, Network};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::{Config, ZooKeeperEnsemble};
use lockkeeper_testkit::{clock, command, frames, scratch};
use lockkeeper_wire::{
    AclList, ConnectRequest, ConnectResponse, CreateMode, CreateRequest, Decoder, Record,
    ReplyHeader, Request,
};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

use crate::programs::plain;

/// Longer than anything takes that works, also on a machine that has other things to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// ZooKeeper's own defaults, written out because figures depend on them.
pub(crate) const TICK: Duration = Duration::from_secs(2);
pub(crate) const SYNC_LIMIT: u32 = 5;

const PORT: u16 = 2181;

/// Where a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Place {
    /// `lockkeeper serve` on another host, with a quorum lease.
    Engine,
    /// The machine-local engine behind its Unix socket, with a direct lease.
    Local,
    /// Three Apache ZooKeeper servers on other hosts, with a quorum lease.
    Ensemble,
}

impl Place {
    /// How many hosts its servers need; the first ones of the network.
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Engine => 1,
            Self::Local => 0,
            Self::Ensemble => 3,
        }
    }
}

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
                let config = Config::new().tick(TICK).setting("initLimit", "10");
                // A stalled disk would be an outage that the test has not caused. The writes of a killed server
                // survive without the sync.
                let config = config.jvm_argument("-Dzookeeper.forceSync=no");
                let config = config.setting("syncLimit", &SYNC_LIMIT.to_string());
                let hosts = (0..place.servers()).map(|host| network.host(host).clone());
                Self::Ensemble(config.ensemble_on(&hosts.collect::<Vec<_>>()).await?)
            }
        };
        servers.commit(network.host(0)).await?;
        Ok(servers)
    }

    pub(crate) fn connect_string(&self) -> String {
        match self {
            Self::Engine(engine) => engine.connect.clone(),
            Self::Ensemble(servers) => servers.connect_string(),
        }
    }

    /// Waits until any of them has committed a write that was sent after the call, as is seen from this
    /// host; returns the time (of `clock::now`) of the answer.
    pub(crate) async fn commit(&self, host: &Host) -> Result<Duration> {
        let connect = self.connect_string();
        let mut observers = JoinSet::new();
        for address in connect.split(',') {
            observers.spawn(commits(host.clone(), address.to_owned()));
        }
        let mut failure = None;
        while let Some(observed) = observers.join_next().await {
            match observed? {
                Ok(time) => return Ok(time),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.context("there is no server to observe")?)
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
            Self::Ensemble(servers) => servers.kill_all(),
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

    pub(crate) fn ensemble(&self) -> Result<&ZooKeeperEnsemble> {
        match self {
            Self::Engine(_) => bail!("an engine does not have a leader"),
            Self::Ensemble(servers) => Ok(servers),
        }
    }

    pub(crate) fn ensemble_mut(&mut self) -> Result<&mut ZooKeeperEnsemble> {
        match self {
            Self::Engine(_) => bail!("an engine does not have a leader"),
            Self::Ensemble(servers) => Ok(servers),
        }
    }
}

/// The paths of the ephemeral nodes that begin with this: those of all that hold or wait.
pub(crate) async fn contenders(servers: &ZooKeeperEnsemble, prefix: &str) -> Result<Vec<String>> {
    let dump = servers.server(servers.leader().await?).four_letter("dump").await?;
    let paths = dump.lines().map(str::trim).filter(|line| line.starts_with(prefix));
    Ok(paths.map(str::to_owned).collect())
}

/// Waits until there are so many of them.
pub(crate) async fn queued(servers: &ZooKeeperEnsemble, prefix: &str, wanted: usize) -> Result<()> {
    let start = clock::now();
    loop {
        let found = contenders(servers, prefix).await.unwrap_or_default();
        if found.len() == wanted {
            return Ok(());
        }
        ensure!(clock::now() < start + LIMIT, "not {wanted} contenders but {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The servers of an ensemble of three but for this one.
pub(crate) fn others(one: usize) -> Vec<usize> {
    (0..Place::Ensemble.servers()).filter(|other| *other != one).collect()
}

/// An engine in a process of its own.
pub(crate) struct Engine {
    // Before the folder, which has its data.
    process: Option<Process>,
    command: Command,
    connect: String,
    starts: u32,
    folder: TempDir,
}

impl Engine {
    /// `lockkeeper serve`, for other hosts.
    fn on(host: &Host) -> Result<Self> {
        let folder = scratch::folder()?;
        let address = SocketAddrV4::new(host.address(), PORT).to_string();
        let mut command = plain(&command::lockkeeper()?);
        command.args(["serve", "--allow-plaintext", "--listen", &address, "--data-dir"]);
        command.arg(folder.path().join("data"));
        Self::new(host.command(&command), address, folder)
    }

    /// The machine-local engine, as the command starts it, but with this process as its parent: it
    /// must not outlive it.
    fn local() -> Result<Self> {
        let folder = scratch::folder()?;
        let mut command = plain(&command::lockkeeper()?);
        command.args(["__local-engine", "--durability", "sync", "--home"]).arg(folder.path());
        let connect = format!("unix:{}", folder.path().join("engine.sock").display());
        Self::new(command, connect, folder)
    }

    fn new(command: Command, connect: String, folder: TempDir) -> Result<Self> {
        let mut engine = Self { process: None, command, connect, starts: 0, folder };
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

// ----- an observer ----------------------------------------------------------------------------
//
// It shares no code with our sessions: it speaks the protocol by hand, with a new connection and a new
// session for each attempt, and knows nothing of what went before.

/// Longer than a write takes that will be answered at all.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(2);

/// How much later than the service itself the observer may be.
const PAUSE: Duration = Duration::from_millis(20);

/// The session of an attempt that failed must not stay for long.
const SESSION_MS: i32 = 4_000;

async fn commits(host: Host, address: String) -> Result<Duration> {
    let start = clock::now();
    loop {
        let attempt = tokio::time::timeout(ATTEMPT_LIMIT, attempt(&host, &address)).await;
        match attempt.context("silence").flatten() {
            Err(error) if clock::now() > start + LIMIT => {
                return Err(error.context(format!("{address} commits nothing after {LIMIT:?}")));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
            committed => return committed,
        }
    }
}

async fn attempt(host: &Host, address: &str) -> Result<Duration> {
    if let Some(path) = address.strip_prefix("unix:") {
        return write(UnixStream::connect(PathBuf::from(path)).await?).await;
    }
    let (host, address) = (host.clone(), address.parse()?);
    let stream = tokio::task::spawn_blocking(move || host.connect(address)).await??;
    stream.set_nonblocking(true)?;
    write(TcpStream::from_std(stream)?).await
}

/// Makes a session and a node, and returns when the node was committed. Ends the session, which
/// removes the node, without waiting for the answer.
async fn write(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<Duration> {
    let create = Request::Create(CreateRequest {
        path: "/observed-".to_owned(),
        data: Bytes::new().into(),
        acl: AclList::OPEN,
        flags: CreateMode::EphemeralSequential.flags(),
    });
    frames::send(&mut stream, |out| ConnectRequest::new_session(SESSION_MS).encode(out)).await?;
    frames::send(&mut stream, |out| create.encode(1, out)).await?;
    frames::send(&mut stream, |out| Request::CloseSession.encode(2, out)).await?;

    let mut input = BytesMut::new();
    let welcome = frames::next(&mut stream, &mut input).await?;
    ensure!(ConnectResponse::decode(&mut Decoder::new(welcome))?.timeout_ms > 0, "no session");
    let reply = frames::next(&mut stream, &mut input).await?;
    let error = ReplyHeader::decode(&mut Decoder::new(reply))?.error;
    ensure!(error == 0, "the server refuses a node: error {error}");
    Ok(clock::now())
}
