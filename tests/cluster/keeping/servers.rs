//! The two servers of a round, and how fast they answer while it runs.

use std::any::Any;
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
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::KeepingForm;

/// How often a server is asked how fast it answers.
const PULSE: Duration = Duration::from_millis(50);

/// Writes before the first case: a JVM that has just started answers slowly.
const WARM_UP: u32 = 500;

/// One of the servers of a round.
pub(super) struct KeepingServer {
    pub(super) name: &'static str,
    pub(super) form: KeepingForm,
    pub(super) connect: String,
    /// Of the programs that cases start.
    pub(super) folder: TempDir,
    next_path: AtomicUsize,
    /// When an answer came late, and how long it took.
    late: Arc<Mutex<Vec<(Instant, Duration)>>>,
    // Before the server, which it talks to.
    pulse: JoinSet<()>,
    _running: Box<dyn Any + Send + Sync>,
}

/// Starts the engine, and a ZooKeeper if this machine has one.
pub(super) async fn start(form: KeepingForm) -> Result<Vec<Arc<KeepingServer>>> {
    let engine = Engine::builder().tick(form.tick).start().await?;
    let connect = engine.connect_string();
    let mut servers = vec![KeepingServer::of("engine", form, connect, engine).await?];
    if peers::ready("keeping on ZooKeeper", &[Peer::ZooKeeper]) {
        // A stalled disk would be a fault of neither the server nor the library.
        let config = Config::new().tick(form.tick).jvm_argument("-Dzookeeper.forceSync=no");
        let server = config.standalone().await?;
        let connect = server.connect_string();
        servers.push(KeepingServer::of("ZooKeeper", form, connect, server).await?);
    }
    Ok(servers)
}

impl KeepingServer {
    async fn of(
        name: &'static str,
        form: KeepingForm,
        connect: String,
        running: impl Any + Send + Sync,
    ) -> Result<Arc<Self>> {
        let mut server = Self {
            name,
            form,
            connect,
            folder: scratch::folder()?,
            next_path: AtomicUsize::new(0),
            late: Arc::default(),
            pulse: JoinSet::new(),
            _running: Box::new(running),
        };
        server.begin_pulse().await?;
        Ok(Arc::new(server))
    }

    /// A path that no other case uses.
    pub(super) fn new_path(&self) -> String {
        format!("/keeping/{}", self.next_path.fetch_add(1, Ordering::Relaxed))
    }

    /// How a client of this round connects.
    pub(super) fn client(&self, mode: LeaseMode) -> ClientBuilder {
        let KeepingForm { timeout, tick } = self.form;
        Client::builder().session_timeout(timeout).server_tick(tick).lease(mode)
    }

    /// The longest time that an answer has taken since `start`; what is not late is not told apart.
    pub(super) fn slowest_since(&self, start: Instant) -> Duration {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let since = late.iter().rev().take_while(|(at, _)| *at >= start);
        since.map(|(_, took)| *took).max().unwrap_or(PULSE)
    }

    /// Writes repeatedly, and records late replies: a case that fails while the machine
    /// or the server is stalled shows nothing about locks.
    async fn begin_pulse(&mut self) -> Result<()> {
        let client = self.client(LeaseMode::Quorum).connect(&self.connect).await?;
        let (form, granted) = (self.form, client.session_timeout());
        ensure!(granted == form.timeout, "the server grants sessions of {granted:?}: {form}");
        let node = ZnodePath::new("/pulse")?;
        client.create(&node, "", CreateMode::Ephemeral).await?;
        for _ in 0..WARM_UP {
            client.set_data(&node, "", None).await?;
        }

        let late = Arc::clone(&self.late);
        self.pulse.spawn(async move {
            let mut pulse = interval(PULSE);
            pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                // When it should have been sent: a thread that was not run in time counts too.
                let due = pulse.tick().await;
                // An answer is an answer, also if it is that the session is over.
                let _ = client.set_data(&node, "", None).await;
                let took = due.elapsed();
                if took > PULSE {
                    let mut late = late.lock().unwrap_or_else(PoisonError::into_inner);
                    late.push((Instant::now(), took));
                }
            }
        });
        Ok(())
    }
}
