//! From settings to a running engine, and its end.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_tree::Server;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tracing::Dispatch;

use crate::admin::http;
use crate::admin::status::Facts;
use crate::clock;
use crate::commit::{self, Pipeline, Returned};
use crate::connection::budget::Budget;
use crate::data_dir::check::restore;
use crate::data_dir::claim::Claim;
use crate::data_dir::control;
use crate::data_dir::disk_room::Gauge;
use crate::data_dir::succession::Succession;
use crate::engine::{Ending, Engine, Shared};
use crate::error::{EngineError, StartError};
use crate::metrics::Metrics;
use crate::metrics::ops::OpCounts;
use crate::net::admission::Admission;
use crate::net::conversation::Hub;
use crate::net::listener::{Gate, Listener, accept, bind_tcp};
use crate::settings::builder::Plan;
use crate::sockets::open_files;
use crate::sockets::pace::Pace;
#[cfg(feature = "tls")]
use crate::sockets::tls::CurrentTls;
use crate::sockets::unix::{SocketFile, listen_at};
use crate::spin::{Askers, SpinPolicy};
use crate::storage::{Snapshots, Storage};
use crate::tree_loop::idle::Rest;
use crate::tree_loop::{Event, TreeLoop, Turns};

/// Starts the tree thread, which does the rest: opening a large data directory takes its time, and
/// the caller's runtime is not to wait for it.
pub(crate) async fn start(plan: Plan) -> Result<Engine, StartError> {
    let (started, engine) = oneshot::channel();
    let (ended, ending) = watch::channel(None);
    spawn("lockkeeper-tree", move || {
        run(plan, started, &ended, ending);
    })?;
    engine.await.unwrap_or(Err(EngineError::Panicked.into()))
}

/// Starts a thread that logs to where the caller logs.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    let dispatch = tracing::dispatcher::get_default(Dispatch::clone);
    let body = move || tracing::dispatcher::with_default(&dispatch, body);
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map(drop).map_err(refused("a thread"))
}

fn refused(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
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
    let _ = started.send(Ok(Engine::new(running.handle(ending))));
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
fn prepare(plan: Plan) -> Result<(Runtime, Running), StartError> {
    let storage = Storage::open(plan.data_dir.as_deref(), plan.durability)?;
    let mut server = restore(plan.config.clone(), plan.data_dir.as_deref(), &storage)?;
    let succession = Succession::begin(&plan, &mut server)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(refused("an event loop"))?;
    let within = runtime.enter();
    open_files::make_room_for(plan.max_connections);
    let doors = Doors::open(&plan)?;
    let running = Running::new(&plan, (server, succession), storage, doors)?;
    running.banner(&plan);
    drop(within);
    Ok((runtime, running))
}

/// The sockets that clients come in by.
struct Doors {
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    /// Those of `addresses` where TLS is spoken.
    secure: Vec<SocketAddr>,
    #[cfg(feature = "tls")]
    tls: Option<CurrentTls>,
    socket: Option<SocketFile>,
    /// Where monitors fetch the metrics.
    metrics: Option<(TcpListener, SocketAddr)>,
}

impl Doors {
    fn open(plan: &Plan) -> Result<Self, StartError> {
        let mut doors = Self {
            listeners: Vec::new(),
            addresses: Vec::new(),
            secure: Vec::new(),
            #[cfg(feature = "tls")]
            tls: plan.tls.as_ref().map(|(_, tls)| CurrentTls::new(tls.clone())),
            socket: None,
            metrics: None,
        };
        for &address in &plan.listen {
            let (listener, bound) = listen(address, plan.backlog)?;
            doors.addresses.push(bound);
            doors.listeners.push(Listener::Tcp(listener));
        }
        #[cfg(feature = "tls")]
        if let (Some((addresses, _)), Some(tls)) = (&plan.tls, doors.tls.clone()) {
            for &address in addresses {
                let (listener, bound) = listen(address, plan.backlog)?;
                doors.secure.push(bound);
                doors.listeners.push(Listener::Tls(listener, tls.clone()));
            }
        }
        if let Some(address) = plan.metrics_address {
            doors.metrics = Some(listen(address, plan.backlog)?);
        }
        if let Some(path) = &plan.unix_socket {
            let (listener, file) = listen_at(path, plan.unix_socket_mode)?;
            let listener = UnixListener::from_std(listener).map_err(refused("a socket"))?;
            doors.listeners.push(Listener::Unix(listener));
            doors.socket = Some(file);
        }
        Ok(doors)
    }
}

fn listen(address: SocketAddr, backlog: u32) -> Result<(TcpListener, SocketAddr), StartError> {
    let listener = bind_tcp(address, backlog)?;
    let bound = listener.local_addr();
    let bound = bound.map_err(|source| StartError::Listen { address, source })?;
    Ok((listener, bound))
}

/// Everything that runs.
struct Running {
    tree: TreeLoop,
    hub: Arc<Hub>,
    metrics_address: Option<SocketAddr>,
    #[cfg(feature = "tls")]
    tls: Option<CurrentTls>,
    snapshots: Option<Snapshots>,
    /// Where other processes ask for backups.
    control: Option<SocketFile>,
    accepting: JoinSet<()>,
    socket: Option<SocketFile>,
}

impl Running {
    /// Starts the commit thread and the listeners.
    fn new(
        plan: &Plan,
        (server, mut succession): (Server, Succession),
        storage: Storage,
        doors: Doors,
    ) -> Result<Self, StartError> {
        let (events, deliveries) = unbounded_channel();
        let metrics = Arc::new(Metrics::new());
        let snapshots = storage.snapshots();
        let spin = Arc::new(SpinPolicy::new(plan.spin));
        let pipeline = Pipeline::new(plan.durability, storage, metrics.clone(), spin.clone());
        let pipeline = Arc::new(pipeline.within(plan.memory_budget));
        spawn_commit(pipeline.clone(), events.clone())?;
        let hub = Arc::new(Hub {
            events,
            pipeline,
            metrics,
            complaints: Arc::default(),
            limits: plan.limits.clone(),
            budget: Budget::new(plan.memory_budget),
            disk: Arc::default(),
            facts: Facts::new(plan, &doors.addresses, &doors.secure, succession.quiet_until()),
            connections: AtomicU64::new(1),
        });
        let gate = Arc::new(Gate {
            admission: Admission::new(plan.max_connections, plan.max_connections_per_address),
            pace: Pace::per_second(plan.connection_rate),
        });
        let mut accepting = JoinSet::new();
        for listener in doors.listeners {
            accepting.spawn(accept(listener, gate.clone(), hub.clone()));
        }
        let mut control = None;
        if let (Some(dir), Some(snapshots)) = (&plan.data_dir, &snapshots) {
            if let Some((listener, file)) = control::listen(dir) {
                accepting.spawn(control::serve(listener, snapshots.clone()));
                control = Some(file);
            }
            if let Some(gauge) = Gauge::of(dir, plan.disk_reserve, hub.disk.clone()) {
                accepting.spawn(gauge.watch(hub.events.clone()));
            }
            if let Some(claim) = Claim::on(dir) {
                accepting.spawn(claim.watch(hub.events.clone()));
            }
        }
        accepting.spawn(succession.end_of_quiet());
        let metrics_address = doors.metrics.as_ref().map(|(_, address)| *address);
        if let Some((listener, _)) = doors.metrics {
            accepting.spawn(http::serve(listener, hub.clone()));
        }
        Ok(Self {
            tree: tree_loop(plan, (server, succession), (deliveries, spin), &hub),
            hub,
            metrics_address,
            #[cfg(feature = "tls")]
            tls: doors.tls,
            snapshots,
            control,
            accepting,
            socket: doors.socket,
        })
    }

    fn handle(&self, ended: watch::Receiver<Ending>) -> Shared {
        Shared {
            addresses: self.hub.facts.addresses.clone(),
            secure: self.hub.facts.secure.clone(),
            metrics_address: self.metrics_address,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
            snapshots: self.snapshots.clone(),
            socket_path: self.socket_path(),
            events: self.hub.events.clone(),
            pipeline: self.hub.pipeline.clone(),
            metrics: self.hub.metrics.clone(),
            quiet_until: self.hub.facts.quiet_until,
            ended,
        }
    }

    fn socket_path(&self) -> Option<PathBuf> {
        self.socket.as_ref().map(|file| file.path().to_path_buf())
    }

    /// Until the end, and through it: no new connections, then the commits, then the connections.
    async fn run(&mut self) -> Result<(), EngineError> {
        let mut result = self.tree.run().await;
        self.accepting.shutdown().await;
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

    fn banner(&self, plan: &Plan) {
        let stats = self.tree.server.stats();
        let facts = &self.hub.facts;
        let mut listening: Vec<String> = facts.addresses.iter().map(|a| a.to_string()).collect();
        listening.extend(facts.secure.iter().map(|address| format!("tls://{address}")));
        listening.extend(self.socket_path().map(|path| format!("unix:{}", path.display())));
        let data = plan.data_dir.as_ref().map(|path| path.display());
        tracing::info!(
            listening = listening.join(", "),
            durability = %plan.durability,
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

fn tree_loop(
    plan: &Plan,
    (server, succession): (Server, Succession),
    (events, spin): (UnboundedReceiver<Event>, Arc<SpinPolicy>),
    hub: &Hub,
) -> TreeLoop {
    hub.metrics.observe(server.stats());
    TreeLoop {
        server,
        succession,
        connections: HashMap::new(),
        events,
        pipeline: hub.pipeline.clone(),
        metrics: hub.metrics.clone(),
        ops: OpCounts::default(),
        complaints: hub.complaints.clone(),
        skipped: Duration::ZERO,
        rest_until: Duration::ZERO,
        lookout: false,
        askers: Askers::default(),
        spin,
        turns: Turns::default(),
        budget: hub.budget.clone(),
        relieved_at: Instant::now(),
        in_part: 0,
        part_waits: false,
        rest: Rest::new(clock::now().monotonic),
        at_rest: plan.at_rest.clone(),
        ending: None,
    }
}

/// Starts the commit thread, which says how it ended after it has given up the data directory. When
/// it is relieved, it starts its successor instead.
pub(crate) fn spawn_commit(
    pipeline: Arc<Pipeline>,
    events: UnboundedSender<Event>,
) -> Result<(), StartError> {
    spawn("lockkeeper-commit", move || {
        let run = || commit::run(&pipeline);
        let result = loop {
            match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(Returned::Relieved)) => {
                    match spawn_commit(pipeline.clone(), events.clone()) {
                        Ok(()) => return,
                        Err(e) => tracing::debug!("the commit thread goes on: {e}"),
                    }
                }
                Ok(Ok(Returned::AtTheEnd)) => break Ok(()),
                Ok(Err(e)) => break Err(EngineError::from(e)),
                Err(_) => {
                    pipeline.abort();
                    break Err(EngineError::Panicked);
                }
            }
        };
        let _ = events.send(Event::CommitEnded(result));
    })
}
