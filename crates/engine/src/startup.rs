//! From settings to a running engine, and its end.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_tree::Server;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::admin::http;
use crate::admin::status::Status;
use crate::clock;
use crate::commit::{self, Pipeline};
use crate::connection::admission::Admission;
use crate::connection::budget::Budget;
use crate::connection::log_limiter::LogLimiter;
use crate::data_dir::check::restore;
use crate::data_dir::claim::Claim;
use crate::data_dir::control;
use crate::data_dir::disk_room::Gauge;
use crate::data_dir::succession::Succession;
use crate::engine::{Ending, Engine};
use crate::error::{EngineError, StartError};
use crate::metrics::Metrics;
use crate::metrics::ops::OpCounts;
use crate::net::hub::Hub;
use crate::net::listener::{BoundSockets, Gate, accept};
use crate::settings::builder::Builder;
use crate::settings::plan::Plan;
use crate::sockets::open_files;
#[cfg(feature = "tls")]
use crate::sockets::tls::CurrentTls;
use crate::sockets::unix::SocketFile;
use crate::spin::{Arrivals, SpinPolicy};
use crate::storage::{Snapshots, Storage};
use crate::thread;
use crate::tree_loop::idle::IdleDetector;
use crate::tree_loop::{Event, TreeLoop, Turns};

impl Builder {
    /// Starts the engine: returns when it listens, with all that its data directory holds.
    ///
    /// It runs on threads of its own, so it neither needs a runtime here nor suffers when the
    /// caller's is blocked. Its log goes to the caller's `tracing` subscriber.
    ///
    /// # Errors
    /// Each names the address or path concerned and the way out; nothing is left behind.
    ///
    /// # Cancel safety
    /// If the future is dropped, the engine stops as soon as it has started.
    pub async fn start(self) -> Result<Engine, StartError> {
        start(self.check()?).await
    }
}

/// Starts the tree thread, which does the rest: opening a large data directory takes its time, and
/// the caller's runtime is not to wait for it.
async fn start(plan: Plan) -> Result<Engine, StartError> {
    let (started, engine) = oneshot::channel();
    let (ended, ending) = watch::channel(None);
    thread::spawn("lockkeeper-tree", move || {
        run(plan, started, &ended, ending);
    })?;
    engine.await.unwrap_or(Err(EngineError::Panicked.into()))
}

/// The tree thread from its start to its end.
fn run(
    plan: Plan,
    started: oneshot::Sender<Result<Engine, StartError>>,
    ended: &watch::Sender<Ending>,
    ending: watch::Receiver<Ending>,
) {
    let (runtime, mut running) = match prepare(plan) {
        Ok(prepared) => prepared,
        Err(e) => {
            // Whoever asked may be gone, here and below.
            let _ = started.send(Err(e));
            return;
        }
    };

    // If nobody takes the engine, dropping it stops it.
    let _ = started.send(Ok(running.handle(ending)));
    let result = runtime.block_on(running.run());

    drop(running);
    runtime.shutdown_timeout(Duration::ZERO);

    match &result {
        Ok(()) => tracing::info!("engine stopped"),
        Err(e) => tracing::error!("{e}"),
    }
    let _ = ended.send(Some(result));
}

/// All that can fail, in an order that leaves nothing behind if it does: the listeners come last,
/// as clients would take them for an engine.
#[tracing::instrument(name = "start", level = "debug", skip_all)]
fn prepare(mut plan: Plan) -> Result<(Runtime, Running), StartError> {
    let storage = Storage::open(plan.data_dir.as_deref(), plan.durability)?;
    let mut server = restore(plan.config.clone(), plan.data_dir.as_deref(), &storage)?;
    let succession = Succession::begin(&plan, &mut server)?;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::refused("an event loop"))?;
    let within = runtime.enter();
    open_files::make_room_for(plan.limits.max_connections);
    let sockets = BoundSockets::open(&mut plan)?;
    let running = Running::new(plan, (server, succession), storage, sockets)?;
    running.banner();
    drop(within);
    Ok((runtime, running))
}

/// Everything that runs.
struct Running {
    tree: TreeLoop,
    status: Arc<Status>,
    metrics_address: Option<SocketAddr>,
    #[cfg(feature = "tls")]
    tls: Option<CurrentTls>,
    snapshots: Option<Snapshots>,
    /// Where other processes ask for backups.
    control: Option<SocketFile>,
    tasks: JoinSet<()>,
    socket: Option<SocketFile>,
}

impl Running {
    /// Starts the commit thread and the listeners.
    fn new(
        plan: Plan,
        (server, mut succession): (Server, Succession),
        storage: Storage,
        sockets: BoundSockets,
    ) -> Result<Self, StartError> {
        let (events, deliveries) = unbounded_channel();
        let spin = Arc::new(SpinPolicy::new(plan.spin));
        let snapshots = storage.snapshots();
        let memory_budget = plan.limits.memory_budget();
        let metrics = Arc::new(Metrics::new());
        let pipeline = Pipeline::new(plan.durability, storage, metrics.clone(), spin.clone())
            .within(memory_budget);
        let status = Arc::new(Status {
            started: Instant::now(),
            addresses: sockets.addresses,
            secure: sockets.secure,
            quiet_until: succession.quiet_until(),
            pipeline: Arc::new(pipeline),
            metrics,
            events,
            budget: Budget::new(memory_budget),
            admission: Admission::new(
                plan.limits.max_connections,
                plan.limits.max_connections_per_address(),
            ),
            disk: Arc::default(),
            plan,
        });
        start_commits(&status)?;

        let log_limiter = Arc::<LogLimiter>::default();
        let mut tasks = JoinSet::new();
        let hub = Arc::new(Hub::new(status.clone(), log_limiter.clone()));
        let gate = Arc::new(Gate::new(status.admission.clone(), &status.plan.limits));
        for listener in sockets.listeners {
            tasks.spawn(accept(listener, gate.clone(), hub.clone()));
        }
        let control = watch_directory(&status, snapshots.as_ref(), &mut tasks);
        tasks.spawn(succession.end_of_quiet());
        let (metrics_listener, metrics_address) = sockets.metrics.unzip();
        if let Some(listener) = metrics_listener {
            tasks.spawn(http::serve(listener, status.clone()));
        }

        Ok(Self {
            tree: tree_loop(&status, (server, succession), (deliveries, spin), log_limiter),
            status,
            metrics_address,
            #[cfg(feature = "tls")]
            tls: sockets.tls,
            snapshots,
            control,
            tasks,
            socket: sockets.socket,
        })
    }

    fn handle(&self, ended: watch::Receiver<Ending>) -> Engine {
        Engine {
            status: self.status.clone(),
            metrics_address: self.metrics_address,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
            snapshots: self.snapshots.clone(),
            socket_path: self.socket_path(),
            ended,
        }
    }

    fn socket_path(&self) -> Option<PathBuf> {
        self.socket.as_ref().map(|file| file.path().to_path_buf())
    }

    /// Until the end, and through it: no new connections, then the commits, then the connections.
    async fn run(&mut self) -> Result<(), EngineError> {
        let mut result = self.tree.run().await;
        self.tasks.shutdown().await;
        // While the directory is locked: after that, sockets at these paths may be a successor's.
        self.control = None;
        self.socket = None;
        if result.is_ok() {
            result = self.tree.finish().await;
        }
        if result.is_ok() {
            result = self.tree.leave();
        }
        self.tree.close_connections();
        result
    }

    fn banner(&self) {
        let stats = self.tree.server.stats();
        let status = &self.status;
        let mut listening: Vec<String> = status.addresses.iter().map(|a| a.to_string()).collect();
        listening.extend(status.secure.iter().map(|address| format!("tls://{address}")));
        listening.extend(self.socket_path().map(|path| format!("unix:{}", path.display())));

        let data = status.plan.data_dir.as_ref().map(|path| path.display());
        tracing::info!(
            listening = listening.join(", "),
            durability = %status.plan.durability,
            data_dir = data.map(tracing::field::display),
            metrics = self.metrics_address.map(tracing::field::display),
            znodes = stats.nodes,
            sessions = stats.sessions,
            zxid = %stats.last_zxid,
            "lockkeeper engine {} started",
            env!("CARGO_PKG_VERSION")
        );
    }
}

/// Starts the commit thread, which tells the tree thread how it ended.
fn start_commits(status: &Status) -> Result<(), StartError> {
    let events = status.events.clone();
    let tell = move |result| {
        // Without a tree thread nobody waits for it.
        let _ = events.send(Event::CommitEnded(result));
    };
    commit::thread::start(status.pipeline.clone(), Arc::new(tell))
}

/// Looks after a data directory that has a disk: backups, its room, and whether it is still there.
fn watch_directory(
    status: &Status,
    snapshots: Option<&Snapshots>,
    tasks: &mut JoinSet<()>,
) -> Option<SocketFile> {
    let (dir, snapshots) = (status.plan.data_dir.as_ref()?, snapshots?);
    // Without a tree thread nothing grows, and there is nothing left to stop.
    let tell = |events: &UnboundedSender<Event>, event| drop(events.send(event));
    if let Some(gauge) = Gauge::of(dir, status.plan.limits.disk_reserve, status.disk.clone()) {
        let (events, metrics) = (status.events.clone(), status.metrics.clone());
        let tell = move |growth| tell(&events, Event::Growth(growth));
        tasks.spawn(gauge.watch(move || metrics.stats(), tell));
    }
    if let Some(claim) = Claim::on(dir) {
        let events = status.events.clone();
        tasks.spawn(async move { tell(&events, Event::Deprived(claim.watch().await)) });
    }

    let (listener, file) = control::listen(dir)?;
    tasks.spawn(control::serve(listener, snapshots.clone()));
    Some(file)
}

fn tree_loop(
    status: &Status,
    (server, succession): (Server, Succession),
    (events, spin): (UnboundedReceiver<Event>, Arc<SpinPolicy>),
    log_limiter: Arc<LogLimiter>,
) -> TreeLoop {
    status.metrics.observe(server.stats());
    TreeLoop {
        server,
        succession,
        connections: HashMap::new(),
        events,
        pipeline: status.pipeline.clone(),
        metrics: status.metrics.clone(),
        ops: OpCounts::default(),
        log_limiter,
        skipped: Duration::ZERO,
        no_expiry_before: Duration::ZERO,
        spins_next: false,
        arrivals: Arrivals::default(),
        spin,
        turns: Turns::default(),
        budget: status.budget.clone(),
        shed_at: Instant::now(),
        in_part: 0,
        part_waits: false,
        idle: IdleDetector::new(clock::now().monotonic),
        idle_hook: status.plan.idle_hook.clone(),
        ending: None,
    }
}
