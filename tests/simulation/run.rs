//! One run: everything in it follows from its seed.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{Client, ConnectError, LeaseMode, ZnodePath};
use lockkeeper_testkit::history::{History, What};
use lockkeeper_tree::Config;
use tokio::time::{Instant, sleep, timeout};

use crate::faults;
use crate::locks::{Design, Patience};
use crate::network::Route;
use crate::participants::{LOCKS, REGISTER, Resources, Worker, make_register, use_register};
use crate::server::Host;
use crate::world::{Drifting, Gate, Machine, true_time};

/// How long things go wrong.
const CHAOS: Duration = Duration::from_secs(25);

/// Whether a seed goes the same way to the last event.
pub(crate) const REPEATABLE: bool = cfg!(tokio_unstable);

/// Longer than anything takes when all is well, many sessions' timeouts included.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the parts of a run share.
pub(crate) struct Run {
    start: Instant,
    history: Mutex<History>,
    pub(crate) host: Host,
    pub(crate) machines: Vec<Arc<Machine>>,
    pub(crate) resources: Resources,
    pub(crate) timeout: Duration,
    pub(crate) usual_sync: Duration,
}

impl Run {
    /// The true time.
    pub(crate) fn now(&self) -> Duration {
        true_time(self.start)
    }

    pub(crate) fn note(&self, who: &str, what: What) {
        self.history.lock().expect("nobody panics with it").push(self.now(), who, what);
    }
}

/// What has come of a run.
pub(crate) struct Ran {
    pub(crate) history: History,
    /// A sum over every byte that arrived anywhere, and when.
    pub(crate) traffic: u64,
}

/// Runs one seed and returns what happened.
pub(crate) fn simulate(seed: u64) -> Ran {
    // Whatever draws without a source of its own.
    fastrand::seed(seed);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    #[cfg(tokio_unstable)]
    runtime.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_be_bytes()));
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O");
    let local = tokio::task::LocalSet::new();
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| {
        local.block_on(&runtime, async {
            let run = prepare(seed);
            whole(Arc::clone(&run), seed).await;
            let history = run.history.lock().expect("nobody panics with it").clone();
            Ran { history, traffic: run.host.listener.traffic() }
        })
    }));
    ran.unwrap_or_else(|_| {
        let mut history = History::default();
        history.push(Duration::ZERO, "world", What::Stuck("something panicked".into()));
        Ran { history, traffic: 0 }
    })
}

fn prepare(seed: u64) -> Arc<Run> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut ids = fastrand::Rng::with_seed(seed ^ 0x1d5);
    let start = Instant::now();
    let tick = Duration::from_millis([100, 500, 1_000][random.usize(0..3)]);
    let mut config = Config::with_tick(tick);
    config.max_session_timeout = Duration::from_secs(60);
    let timeout = tick * 2 + Duration::from_millis(random.u64(2_000..8_000));
    let host = Host::new(start, config, random.fork());
    let usual_sync = Duration::from_millis(random.u64(0..20));
    host.set_sync(usual_sync);
    let machines = (0..3).map(|_| {
        let ahead = Duration::from_millis(random.u64(1_000_000..2_000_000));
        // Within what the default of the drift allows.
        let clock = Drifting { ahead, rate: 0.991 + 0.018 * random.f64() };
        let delay = Duration::from_millis(random.u64(1..60));
        let route = Route::new(start, Arc::clone(&host.listener), random.fork(), delay);
        let (gate, program) = (Arc::<Gate>::default(), Arc::<Gate>::default());
        let ids = Mutex::new(ids.fork());
        Arc::new(Machine { ids, clock, route: Arc::new(route), gate, program })
    });
    let machines = machines.collect();
    let (history, resources) = (Mutex::default(), Resources::default());
    Arc::new(Run { start, history, host, machines, resources, timeout, usual_sync })
}

/// A client with a session. No fault has begun, but a message now and then takes longer than a
/// short session's first attempt.
async fn connected(run: &Run, machine: &Arc<Machine>, mode: LeaseMode) -> Client {
    loop {
        let builder = Client::builder()
            .session_timeout(run.timeout)
            .server_tick(Duration::from_millis(500))
            .lease(mode)
            .world(Arc::clone(machine) as _);
        match builder.connect("simulated:1").await {
            Ok(client) => return client,
            Err(ConnectError::Unreachable(_)) => {}
            Err(error) => panic!("nothing is wrong yet: {error}"),
        }
    }
}

async fn whole(run: Arc<Run>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    run.host.start();
    // Both modes are right for a server that stands alone.
    let mode = if random.bool() { LeaseMode::Quorum } else { LeaseMode::Direct };
    let designs = LOCKS.map(|path| Design::any(path, &mut random));
    let about = format!("timeout {:?}, {mode:?}, {designs:?}", run.timeout);
    run.note("world", What::Note(about));
    let mut clients = Vec::new();
    for machine in &run.machines {
        clients.push(connected(&run, machine, mode).await);
    }
    make_register(&clients[0]).await;
    let end = run.now() + CHAOS;
    let mut tasks = Vec::new();
    for (index, client) in clients.iter().enumerate() {
        let machine = &run.machines[index];
        let linger = random.bool().then(|| Duration::from_millis(random.u64(10..1_000)));
        let locks: Vec<_> = designs.iter().map(|design| design.open(client, linger)).collect();
        for task in 0..2 {
            let worker = Worker {
                run: Arc::clone(&run),
                machine: Arc::clone(machine),
                name: format!("client {index}.{task}"),
                locks: locks.clone(),
                random: random.fork(),
            };
            tasks.push(machine.run(worker.work(end)));
        }
        let name = format!("client {index}.r");
        let register = use_register(Arc::clone(&run), name, client.clone(), random.fork(), end);
        tasks.push(machine.run(register));
    }
    faults::chaos(Arc::clone(&run), random.fork(), end).await;
    for task in tasks {
        match timeout(PATIENCE, task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => run.note("world", What::Stuck(format!("a task ended: {error}"))),
            Err(_) => {
                run.note("world", What::Stuck(format!("a task does not end within {PATIENCE:?}")));
                return;
            }
        }
    }
    all_is_well(&run, &clients, &designs).await;
}

/// After the faults: everyone gets every lock, and then nothing of it is left.
async fn all_is_well(run: &Run, clients: &[Client], designs: &[Design]) {
    for (index, client) in clients.iter().enumerate() {
        for design in designs {
            let lock = design.open(client, None);
            for share in design.shares() {
                let cycle = async {
                    // A session or a connection that was lost in the last moments shows itself
                    // first.
                    loop {
                        if let Ok(Some(held)) = lock.acquire(share, Patience::Endless).await
                            && held.release().await
                        {
                            return;
                        }
                        sleep(Duration::from_millis(200)).await;
                    }
                };
                if timeout(PATIENCE, cycle).await.is_err() {
                    let what = format!("cannot get and give back {} ({share})", design.path);
                    run.note(&format!("client {index}"), What::Stuck(what));
                    return;
                }
            }
        }
    }
    let begin = run.now();
    loop {
        let mut left = Vec::new();
        for queue in designs.iter().flat_map(Design::queues) {
            let (names, _) = clients[0].children(&queue).await.unwrap_or_default();
            left.extend(names.into_iter().map(|name| format!("{queue}/{name}")));
        }
        if left.is_empty() {
            break;
        }
        if run.now() - begin > PATIENCE {
            run.note("world", What::Left(left.join(", ")));
            return;
        }
        sleep(Duration::from_millis(500)).await;
    }
    let register = ZnodePath::new(REGISTER).expect("a path");
    let asked = run.now();
    if let Ok((data, stat)) = clients[1].data(&register).await {
        let value = u64::from_be_bytes(data[..].try_into().unwrap_or_default());
        run.note("client 1", What::Read { asked, version: stat.version, value });
    }
    for client in clients {
        if timeout(PATIENCE, client.close()).await.is_err() {
            run.note("world", What::Stuck("a client does not close".into()));
        }
    }
}
