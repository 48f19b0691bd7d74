//! Starts an engine from its settings, and ends it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Duration, Instant};

use lockkeeper_tree::{Resource, Server};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::admin::four_letter::DEFAULT_TRACE_MASK;
use crate::admin::http;
use crate::clock;
use crate::commit::{self, Pipeline};
use crate::connection::admission::{Admission, Places};
use crate::connection::budget::Budget;
use crate::data_dir::check::restore;
use crate::data_dir::claim::Claim;
use crate::data_dir::control;
use crate::data_dir::disk_room;
use crate::data_dir::succession::Succession;
use crate::engine::{Ending, Engine};
use crate::error::{EngineError, StartError};
use crate::memory_room::{self, MemoryAction, resident};
use crate::metrics::Metrics;
use crate::metrics::ops::OpCounts;
use crate::net::listener::{BoundSockets, accept};
use crate::settings::builder::Builder;
use crate::settings::memory::available;
use crate::settings::plan::Plan;
use crate::shared::Shared;
use crate::sockets::handshakes::Handshakes;
use crate::sockets::open_files;
use crate::sockets::pace::Pace;
use crate::sockets::unix::SocketFile;
use crate::spin::{Arrivals, SpinPolicy};
use crate::storage::Storage;
use crate::thread;
use crate::tree_loop::idle::IdleDetector;
use crate::tree_loop::{Event, TreeLoop, Turns};

impl Builder {
    /// Starts the engine: returns when it listens, with the state of its data directory.
    ///
    /// The engine runs on threads of its own, so it neither needs a runtime here nor is affected when the caller's
    /// runtime is blocked. It logs to the caller's `tracing` subscriber.
    ///
    /// # Errors
    /// Each error names the address or path concerned and a remedy; no thread, lock or socket remains.
    ///
    /// # Cancel safety
    /// If the future is dropped, the engine stops as soon as it has started.
    pub async fn start(self) -> Result<Engine, StartError> {
        start(self.check()?).await
    }
}

/// Starts the tree thread, which does the rest: opening a large data directory takes time, which must not block the
/// caller's runtime.
async fn start(plan: Plan) -> Result<Engine, StartError> {
    let (started, engine) = oneshot::channel();
    let (ended, ending) = watch::channel(None);
    thread::spawn("lockkeeper-tree", move || {
        run(plan, started, &ended, ending);
    })
    .map_err(StartError::no_thread)?;
    engine.await.unwrap_or(Err(EngineError::Panicked.into()))
}

/// The tree thread from its start to its end.
fn run(
    plan: Plan,
    started: oneshot::Sender<Result<Engine, StartError>>,
    ended: &watch::Sender<Ending>,
    ending: watch::Receiver<Ending>,
) {
    let (runtime, running) = match prepare(plan) {
        Ok(prepared) => prepared,
        Err(e) => {
            // The caller may be gone, here and below.
            let _ = started.send(Err(e));
            return;
        }
    };

    // If the caller does not receive the engine, dropping it stops it.
    let _ = started.send(Ok(Engine { shared: running.shared.clone(), ended: ending }));
    let result = runtime.block_on(as_task(running));

    runtime.shutdown_timeout(Duration::ZERO);

    match &result {
        Ok(()) => tracing::info!("engine stopped"),
        Err(e) => tracing::error!("{e}"),
    }
    let _ = ended.send(Some(result));
}

/// Runs as a task like those of the connections, not as the future on which the runtime blocks: the runtime polls that
/// one first after each check of the sockets, before the tasks that read them, and it would have to call the kernel
/// again for the frames that they deliver.
async fn as_task(mut running: Running) -> Result<(), EngineError> {
    let task = tokio::spawn(async move { running.run().await });
    task.await.unwrap_or(Err(EngineError::Panicked))
}

/// Does everything that can fail, in an order in which a failure leaves nothing behind: the listeners come last,
/// because clients would take them for an engine.
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
    plan.limits.max_connections = open_files::make_room_for(plan.limits.max_connections);
    let sockets = BoundSockets::open(&mut plan)?;
    let running = Running::new(plan, (server, succession), storage, sockets)?;
    running.banner();
    drop(within);
    Ok((runtime, running))
}

/// All running parts of an engine.
struct Running {
    tree: TreeLoop,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    /// The socket on which other processes request backups.
    control: Option<SocketFile>,
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
        let metrics = Arc::new(Metrics::new());
        let limits = &plan.limits;
        let pipeline = Pipeline::new(plan.durability, storage, metrics.clone(), spin.clone())
            .within(limits.memory_budget());
        let budget = Budget::new(limits.memory_budget());
        let with_tls = !sockets.addresses.tls.is_empty();
        let shared = Arc::new(Shared {
            started: Instant::now(),
            addresses: sockets.addresses,
            handshakes: with_tls.then(Handshakes::start).transpose()?,
            #[cfg(feature = "tls")]
            tls: sockets.tls,
            snapshots,
            quiet_until: succession.quiet_until(),
            events,
            pipeline: Arc::new(pipeline),
            metrics,
            admission: Admission::new(Places::of(&plan), budget.max_tls()),
            budget,
            disk: Arc::default(),
            memory: Arc::default(),
            log_limiter: Arc::default(),
            connections: AtomicU64::new(0),
            trace_mask: AtomicI64::new(DEFAULT_TRACE_MASK),
            next_listing: Arc::new(tokio::sync::Mutex::new(tokio::time::Instant::now())),
            plan,
        });
        start_commits(&shared)?;

        let mut tasks = JoinSet::new();
        let pace = Arc::new(Pace::per_second(shared.plan.limits.connection_rate));
        for listener in sockets.listeners {
            tasks.spawn(accept(listener, pace.clone(), shared.clone()));
        }
        let control = watch_directory(&shared, &mut tasks);
        tasks.spawn(watch_memory(shared.clone(), available(), resident));
        tasks.spawn(succession.end_of_quiet());
        if let Some(listener) = sockets.metrics {
            tasks.spawn(http::serve(listener, shared.clone()));
        }

        let tree = tree_loop(&shared, (server, succession), (deliveries, spin));
        Ok(Self { tree, shared, tasks, control, socket: sockets.socket })
    }

    /// Runs until the end, and then ends the parts in order: new connections, commits, open connections.
    async fn run(&mut self) -> Result<(), EngineError> {
        let mut result = self.tree.run().await;
        self.tasks.shutdown().await;
        // While the directory is locked: afterwards, sockets at these paths may belong to the next engine.
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
        let Shared { addresses, plan, .. } = &*self.shared;
        let mut listening: Vec<String> = addresses.plain.iter().map(|a| a.to_string()).collect();
        listening.extend(addresses.tls.iter().map(|address| format!("tls://{address}")));
        listening.extend(addresses.unix.iter().map(|path| format!("unix:{}", path.display())));

        let data = plan.data_dir.as_ref().map(|path| path.display());
        tracing::info!(
            listening = listening.join(", "),
            durability = %plan.durability,
            data_dir = data.map(tracing::field::display),
            metrics = addresses.metrics.map(tracing::field::display),
            znodes = stats.nodes,
            sessions = stats.sessions,
            zxid = %stats.last_zxid,
            "lockkeeper engine {} started",
            env!("CARGO_PKG_VERSION")
        );
    }
}

/// Starts the commit thread, which reports its result to the tree thread.
fn start_commits(shared: &Shared) -> Result<(), StartError> {
    let events = shared.events.clone();
    let tell = move |result| {
        // If the tree thread has ended, it does not need the result.
        let _ = events.send(Event::CommitEnded(result));
    };
    commit::thread::start(shared.pipeline.clone(), Arc::new(tell))
}

/// Monitors the memory of the process; `used` returns the bytes in use.
pub(crate) async fn watch_memory(shared: Arc<Shared>, limit: u64, used: impl Fn() -> Option<u64>) {
    let gauge = memory_room::MemoryGauge::new(limit, shared.memory.clone());
    let tell = |measure| {
        let event = match measure {
            MemoryAction::Grow(growth) => Event::Growth(Resource::Memory, growth),
            MemoryAction::Recycle => Event::Recycle,
        };
        // If the tree thread has ended, nothing grows.
        let _ = shared.events.send(event);
    };
    gauge.watch(used, tell).await;
}

/// Monitors a data directory on a disk: backups, free space, and whether it still exists.
fn watch_directory(shared: &Shared, tasks: &mut JoinSet<()>) -> Option<SocketFile> {
    let (dir, snapshots) = (shared.plan.data_dir.as_ref()?, shared.snapshots.as_ref()?);
    // If the tree thread has ended, nothing grows and there is nothing to stop.
    let tell = |events: &UnboundedSender<Event>, event| drop(events.send(event));
    let reserve = shared.plan.limits.disk_reserve;
    if let Some(gauge) = disk_room::DiskGauge::of(dir, reserve, shared.disk.clone()) {
        let (events, metrics) = (shared.events.clone(), shared.metrics.clone());
        let tell = move |growth| tell(&events, Event::Growth(Resource::Disk, growth));
        tasks.spawn(gauge.watch(move || metrics.stats(), tell));
    }
    if let Some(claim) = Claim::on(dir) {
        let events = shared.events.clone();
        tasks.spawn(async move { tell(&events, Event::Deprived(claim.watch().await)) });
    }

    let (listener, file) = control::listen(dir)?;
    tasks.spawn(control::serve(listener, snapshots.clone()));
    Some(file)
}

fn tree_loop(
    shared: &Shared,
    (server, succession): (Server, Succession),
    (events, spin): (UnboundedReceiver<Event>, Arc<SpinPolicy>),
) -> TreeLoop {
    // The metrics show the restored state before the first frame is handled.
    shared.metrics.observe(server.stats());

    TreeLoop {
        server,
        succession,
        connections: HashMap::new(),
        events,
        pipeline: shared.pipeline.clone(),
        metrics: shared.metrics.clone(),
        ops: OpCounts::default(),
        log_limiter: shared.log_limiter.clone(),
        skipped: Duration::ZERO,
        no_expiry_before: Duration::ZERO,
        spins_next: false,
        arrivals: Arrivals::default(),
        spin,
        turns: Turns::default(),
        budget: shared.budget.clone(),
        shed_at: Instant::now(),
        batch_requests: 0,
        batch_bytes: 0,
        batch_waits: false,
        idle: IdleDetector::new(clock::now().monotonic),
        idle_hook: shared.plan.idle_hook.clone(),
        ending: None,
    }
}
