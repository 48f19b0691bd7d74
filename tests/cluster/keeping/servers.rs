//! The two servers of a round, and how fast they answer while it runs.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use lockkeeper::{Client, ClientBuilder, CreateMode, LeaseMode, ZnodePath};
use lockkeeper_engine::Engine;
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::scratch;
use lockkeeper_testkit::zookeeper::Config;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::KeepingForm;

/// How often a server is asked how fast it answers.
const PULSE: Duration = Duration::from_millis(50);

/// Writes before the first case: a JVM that has just started answers slowly.
const WARM_UP: u32 = 500;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Engine,
    ZooKeeper,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Engine => "engine",
            Self::ZooKeeper => "ZooKeeper",
        })
    }
}

/// The servers of a round.
pub(super) struct KeepingServers {
    form: KeepingForm,
    running: Vec<Server>,
    /// Of the programs that cases start.
    folder: TempDir,
    next_path: AtomicUsize,
}

struct Server {
    name: Name,
    connect: String,
    // Before the server, which it talks to.
    pulse: Pulse,
    _server: Box<dyn Any + Send + Sync>,
}

impl KeepingServers {
    /// Starts the engine, and a ZooKeeper if this machine has one.
    pub(super) async fn start(form: KeepingForm) -> Result<Arc<Self>> {
        let mut running = vec![Server::engine(form).await?];
        if peers::ready("keeping on ZooKeeper", &[Peer::ZooKeeper]) {
            running.push(Server::zookeeper(form).await?);
        }
        let (folder, next_path) = (scratch::folder()?, AtomicUsize::new(0));
        Ok(Arc::new(Self { form, running, folder, next_path }))
    }

    pub(super) fn names(&self) -> Vec<Name> {
        self.running.iter().map(|server| server.name).collect()
    }

    pub(super) fn form(&self) -> KeepingForm {
        self.form
    }

    pub(super) fn folder(&self) -> &TempDir {
        &self.folder
    }

    /// A path that no other case uses.
    pub(super) fn new_path(&self) -> String {
        format!("/keeping/{}", self.next_path.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn connect_string(&self, name: Name) -> &str {
        &self.server(name).connect
    }

    /// How a client of this round connects.
    pub(super) fn client(&self, mode: LeaseMode) -> ClientBuilder {
        self.form.client().lease(mode)
    }

    /// The longest time that an answer has taken since `start`; what is not late is not told apart.
    pub(super) fn slowest_since(&self, name: Name, start: Instant) -> Duration {
        self.server(name).pulse.slowest_since(start)
    }

    fn server(&self, name: Name) -> &Server {
        let found = self.running.iter().find(|server| server.name == name);
        found.expect("cases are made of the servers that run")
    }
}

impl Server {
    async fn engine(form: KeepingForm) -> Result<Self> {
        let engine = Engine::builder().tick(form.tick).start().await?;
        Self::of(form, Name::Engine, engine.connect_string(), engine).await
    }

    async fn zookeeper(form: KeepingForm) -> Result<Self> {
        // A disk that stands still would be no fault of the server's nor of ours.
        let config = Config::new().tick(form.tick).jvm_argument("-Dzookeeper.forceSync=no");
        let server = config.standalone().await?;
        Self::of(form, Name::ZooKeeper, server.connect_string(), server).await
    }

    async fn of(
        form: KeepingForm,
        name: Name,
        connect: String,
        server: impl Any + Send + Sync,
    ) -> Result<Self> {
        let pulse = Pulse::start(form, &connect).await?;
        Ok(Self { name, connect, pulse, _server: Box::new(server) })
    }
}

impl KeepingForm {
    fn client(self) -> ClientBuilder {
        Client::builder().session_timeout(self.timeout).server_tick(self.tick)
    }
}

/// Writes again and again, and notes when an answer came late: a case that fails while the machine
/// or the server stands still says nothing about locks.
struct Pulse {
    late: Arc<Mutex<Vec<(Instant, Duration)>>>,
    beating: JoinHandle<()>,
}

impl Pulse {
    async fn start(form: KeepingForm, connect: &str) -> Result<Self> {
        let client = form.client().connect(connect).await?;
        let granted = client.session_timeout();
        ensure!(granted == form.timeout, "the server grants sessions of {granted:?}: {form}");
        let node = ZnodePath::new("/pulse")?;
        client.create(&node, "", CreateMode::Ephemeral).await?;
        for _ in 0..WARM_UP {
            client.set_data(&node, "", None).await?;
        }

        let late = Arc::new(Mutex::new(Vec::new()));
        let beating = tokio::spawn(beat(client, node, Arc::clone(&late)));
        Ok(Self { late, beating })
    }

    fn slowest_since(&self, start: Instant) -> Duration {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let since = late.iter().rev().take_while(|(at, _)| *at >= start);
        since.map(|(_, took)| *took).max().unwrap_or(PULSE)
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

async fn beat(client: Client, node: ZnodePath, late: Arc<Mutex<Vec<(Instant, Duration)>>>) {
    let mut pulse = interval(PULSE);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // When it should have been sent: a thread that was not run in time counts too.
        let due = pulse.tick().await;
        // An answer is an answer, also if it is that the session is over.
        let _ = client.set_data(&node, "", None).await;
        let took = due.elapsed();
        if took > PULSE {
            late.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), took));
        }
    }
}
