//! One run: everything in it follows from its seed.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper::{
    Client, ClientBuilder, ConnectError, Error, IfUnfinished, LeaseMode, Stat, Timing, ZnodePath,
};
use lockkeeper_testkit::data_event::DataEvent;
use lockkeeper_testkit::gate::Gate;
use lockkeeper_testkit::history::{History, What};
use lockkeeper_tree::Config;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::barriers::{Barriers, has_barriers};
use crate::candidates::{self, Candidate, election, observe};
use crate::faults;
use crate::followers::{FOLLOWERS, Link};
use crate::ids::{Ids, has_ids};
use crate::machine::{Drifting, Machine, true_time};
use crate::members::Members;
use crate::network::{Lag, Route};
use crate::participants::{LOCKS, Pace, REGISTER, Resources, Worker, make_register, use_register};
use crate::partitions::{Sharers, has_partitions};
use crate::pools::{Pools, has_pool};
use crate::presences::{Member, disturb};
use crate::queues::{Queues, has_queue};
use crate::server::Host;
use crate::services::{Services, has_services};
use crate::severity::{self, Severity};
use crate::sharing::{self, Values};
use crate::standstill;
use crate::strays::{STRAY, Straying, has_stray};
use crate::ticks::{self, Book, Job, has_ticks};
use lockkeeper_testkit::locks::{Design, Sharing, Wait};
use lockkeeper_testkit::sharing::trees as tree;

/// The server's tick in the configuration of the clients.
const TOLD_TICK: Duration = Duration::from_millis(500);

/// Whether a seed goes the same way to the last event.
pub(crate) const REPEATABLE: bool = cfg!(tokio_unstable);

/// Clocks run as fast and as slow as the default of the drift allows.
pub(crate) const FASTEST_CLOCK: f64 = 1.009;
pub(crate) const SLOWEST_CLOCK: f64 = 0.991;

/// Longer than anything takes when all is well, many sessions' timeouts included.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What the parts of a run share.
pub(crate) struct Run {
    start: Instant,
    history: Mutex<History>,
    pub(crate) host: Host,
    /// A server of another service, that some connect strings name too.
    pub(crate) stray: Option<Host>,
    pub(crate) machines: Vec<Arc<Machine>>,
    pub(crate) resources: Resources,
    /// As the clients compute it.
    pub(crate) timing: Timing,
    pub(crate) pace: Pace,
    pub(crate) severity: Severity,
    /// Both are valid for a standalone server, and one for an ensemble.
    mode: LeaseMode,
    pub(crate) usual: Usual,
    /// The clients of observers.
    lookers: Mutex<Vec<Client>>,
}

/// How slow a server and the way to it are while nothing is wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usual {
    /// What a sync takes at most.
    pub(crate) sync: Duration,
    pub(crate) lag: Lag,
    /// Between a follower and its leader.
    pub(crate) link: Link,
}

impl Run {
    /// The true time.
    pub(crate) fn now(&self) -> Duration {
        true_time(self.start)
    }

    pub(crate) fn routes(&self) -> impl Iterator<Item = &Route> {
        self.machines.iter().map(|machine| &*machine.route)
    }

    /// Says what the server's clock shows from now on.
    pub(crate) fn tell_server_clock(&self) {
        let unix_ms = self.host.wall_at_start_ms();
        self.note("world", What::Data(DataEvent::ServerClock { unix_ms }));
    }

    /// Makes the server and the way to it as slow as that.
    pub(crate) fn set_speed(&self, speed: Usual) {
        self.host.set_sync(speed.sync);
        self.host.followers.iter().for_each(|follower| follower.set_link(speed.link));
        self.routes().for_each(|route| route.set_lag(speed.lag));
    }

    /// The same speed, of which followers take their share.
    pub(crate) fn over_followers(&self, speed: Usual, random: &mut fastrand::Rng) -> Usual {
        match self.host.followers.is_empty() {
            true => speed,
            false => severity::over_followers(speed, self.severity, random),
        }
    }

    /// What is in a node, not as a follower may show it that is behind. The answers must be of one session:
    /// the next one may begin at a server that does not have what was seen in the one before.
    pub(crate) async fn read(
        &self,
        client: &Client,
        path: &ZnodePath,
    ) -> Result<(Bytes, Stat), Error> {
        if self.host.followers.is_empty() {
            return client.data(path).await;
        }
        loop {
            let session = client.session_id();
            client.sync(path).await?;
            let found = client.data(path).await;
            if client.session_id() == session {
                return found;
            }
        }
    }

    /// The servers of the service, and the one that is not of it.
    fn servers_and_stray(&self) -> String {
        format!("{},simulated:{STRAY}", self.servers())
    }

    pub(crate) fn servers(&self) -> String {
        let servers = 1..=self.host.followers.len() + 1;
        servers.map(|server| format!("simulated:{server}")).collect::<Vec<_>>().join(",")
    }

    /// The least true time that this is by the clock of any machine.
    pub(crate) fn in_true_time(&self, duration: Duration) -> Duration {
        duration.div_f64(FASTEST_CLOCK)
    }

    /// Closes clients, one after the other.
    pub(crate) async fn close(&self, clients: impl IntoIterator<Item = Client>, what: &str) {
        for client in clients {
            if timeout(PATIENCE, client.close()).await.is_err() {
                self.note("world", What::Stuck(format!("{what} does not close")));
            }
        }
    }

    pub(crate) fn note(&self, who: &str, what: What) {
        self.history.lock().expect("the lock is not poisoned").push(self.now(), who, what);
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
            let history = run.history.lock().expect("the lock is not poisoned").clone();
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
    let alone = if random.bool() { LeaseMode::Quorum } else { LeaseMode::Direct };
    let mode = if has_followers(seed) { LeaseMode::Quorum } else { alone };
    let timing = Timing::new(mode, timeout, TOLD_TICK);
    let severity = Severity::of(seed);

    let stray = has_stray(seed).then(|| {
        let random = fastrand::Rng::with_seed(seed ^ 0x57a);
        Host::new(start, config.clone(), random).apart()
    });
    let mut host = Host::new(start, config, random.fork());
    let mut usual = severity.usual(timing, &mut random);
    if has_followers(seed) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0xf0110);
        usual = severity::over_followers(usual, severity, &mut random);
        host = host.with_followers(FOLLOWERS, random);
    }
    let machines = (0..3).map(|_| {
        let ahead = Duration::from_millis(random.u64(1_000_000..2_000_000));
        let rate = SLOWEST_CLOCK + (FASTEST_CLOCK - SLOWEST_CLOCK) * random.f64();
        let clock = Drifting { ahead, rate };
        let route = Route::new(start, Arc::clone(&host.listener), random.fork(), usual.lag);
        let (gate, program) = (Arc::<Gate>::default(), Arc::<Gate>::default());
        let to_stray = stray.as_ref().map(|stray| {
            let random = fastrand::Rng::with_seed(seed ^ 0x57b);
            Arc::new(Route::new(start, Arc::clone(&stray.listener), random, usual.lag))
        });
        let ids = Mutex::new(ids.fork());
        Arc::new(Machine { ids, clock, route: Arc::new(route), to_stray, gate, program })
    });
    let machines = machines.collect();
    let (history, resources) = (Mutex::default(), Resources::default());
    let pace = severity.pace(timing);
    let lookers = Mutex::default();
    let run = Run {
        start,
        history,
        host,
        stray,
        machines,
        resources,
        timing,
        pace,
        severity,
        mode,
        usual,
        lookers,
    };
    run.set_speed(usual);
    Arc::new(run)
}

/// A client with a session. No fault has begun, but a message now and then takes longer than a
/// short session's first attempt.
async fn connected(run: &Run, machine: &Arc<Machine>) -> Client {
    connected_to(&run.servers(), builder(run, machine)).await
}

/// One on each machine.
async fn one_each(run: &Run) -> Vec<Client> {
    let mut clients = Vec::new();
    for machine in &run.machines {
        clients.push(connected(run, machine).await);
    }
    clients
}

/// One client on each machine, and one for an observer there.
async fn with_lookers(run: &Run) -> (Vec<Client>, Vec<Client>) {
    let (mut clients, mut lookers) = (Vec::new(), Vec::new());
    for machine in &run.machines {
        let client = connected(run, machine).await;
        lookers.push(looker(run, machine, &client).await);
        clients.push(client);
    }
    (clients, lookers)
}

pub(crate) fn builder(run: &Run, machine: &Arc<Machine>) -> ClientBuilder {
    Client::builder()
        .session_timeout(run.timing.timeout())
        .server_tick(TOLD_TICK)
        .lease(run.mode)
        .runtime(Arc::clone(machine) as _)
}

async fn connected_to(servers: &str, builder: ClientBuilder) -> Client {
    loop {
        match builder.clone().connect(servers).await {
            Ok(client) => return client,
            Err(ConnectError::Unreachable(_)) => {}
            Err(error) => panic!("nothing is wrong yet: {error}"),
        }
    }
}

/// The client of an observer on the same machine: the same client, or a separate one where servers lag.
/// The writes of a client keep its reads up to date.
async fn looker(run: &Run, machine: &Arc<Machine>, client: &Client) -> Client {
    if run.host.followers.is_empty() {
        return client.clone();
    }
    let own = connected(run, machine).await;
    run.lookers.lock().expect("the lock is not poisoned").push(own.clone());
    own
}

async fn whole(run: Arc<Run>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    run.host.start();
    run.stray.iter().for_each(Host::start);
    let designs = LOCKS.map(|path| Design::any(path, &mut random));
    let followers = run.host.followers.len();
    let about = format!("{:?}, {:?}, {followers} followers, {designs:?}", run.timing, run.severity);
    run.note("world", What::Note(about));
    let clients = one_each(&run).await;
    make_register(&clients[0]).await;
    if run.severity == Severity::Bounded {
        run.note("world", What::Well { always_left: run.in_true_time(run.timing.always_left()) });
    }
    let end = run.now() + run.severity.lasts(run.timing);
    let values = Values::of(run.severity, seed);
    let mut tasks = Vec::new();
    for (index, client) in clients.iter().enumerate() {
        let machine = &run.machines[index];
        let sharing = Sharing::any(&mut random);
        let locks: Vec<_> = designs.iter().map(|design| design.open(client, sharing)).collect();
        for task in 0..run.severity.tasks(&mut random) {
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
        tasks.extend(values.iter().flat_map(|values| values.tasks(&run, index, client, end)));
    }
    // Of their own, so that the sessions which hold locks are as idle as they were.
    let mut trees = Vec::new();
    if has_trees(seed) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x7ee);
        for (index, machine) in run.machines.iter().enumerate() {
            let client = connected(&run, machine).await;
            tree::make(&client).await;
            let name = |kind| format!("client {index}.{kind}");
            let (writing, watching) = (random.fork(), random.fork());
            let scene = || sharing::at_pace_of_register(&run, end);
            let writer = tree::write(scene(), name("w"), client.clone(), writing);
            let own = looker(&run, machine, &client).await;
            let watcher = tree::watch(scene(), name("t"), own, watching);
            tasks.push(machine.run(writer));
            tasks.push(machine.run(watcher));
            trees.push(client);
        }
    }
    let mut voters = Vec::new();
    if has_elections(seed) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0xe1ec);
        for (index, machine) in run.machines.iter().enumerate() {
            let client = connected(&run, machine).await;
            let candidate = Candidate {
                run: Arc::clone(&run),
                machine: Arc::clone(machine),
                name: format!("client {index}.c"),
                election: election(&client, "candidate"),
                random: random.fork(),
            };
            tasks.push(machine.run(candidate.work(end)));
            let own = looker(&run, machine, &client).await;
            let (name, election) = (format!("client {index}.o"), election(&own, "observer"));
            tasks.push(machine.run(observe(Arc::clone(&run), name, election, end)));
            voters.push(client);
        }
    }
    let mut joining = Joining { run: &run, seed, end, tasks };
    let members = match has_presences(seed) {
        true => joining.be_present().await,
        false => Vec::new(),
    };
    let publishers = match has_publications(seed) {
        true => joining.publish().await,
        false => Vec::new(),
    };
    let group = match has_groups(seed) {
        true => Some(joining.belong().await),
        false => None,
    };
    let strays = match has_stray(seed) {
        true => joining.stray().await,
        false => Vec::new(),
    };
    let jobs = match has_ticks(seed) {
        true => Some(joining.do_jobs().await),
        false => None,
    };
    let services = match has_services(seed) {
        true => Some(joining.offer_services().await),
        false => None,
    };
    let queues = match has_queue(seed) {
        true => Some(joining.use_queue().await),
        false => None,
    };
    let barriers = match has_barriers(seed) {
        true => Some(joining.wait_for_each_other().await),
        false => None,
    };
    let pools = match has_pool(seed) {
        true => Some(joining.take_things().await),
        false => None,
    };
    let ids = match has_ids(seed) {
        true => Some(joining.mint_ids().await),
        false => None,
    };
    let sharers = match has_partitions(seed) {
        true => Some(joining.share_items().await),
        false => None,
    };
    let random = random.fork();
    match run.severity {
        Severity::Unbounded => faults::chaos(Arc::clone(&run), random, end).await,
        Severity::Bounded => faults::bounded(Arc::clone(&run), random, end).await,
    }
    for task in joining.tasks {
        match timeout(PATIENCE, task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => run.note("world", What::Stuck(format!("a task ended: {error}"))),
            Err(_) => {
                run.note("world", What::Stuck(format!("a task does not end within {PATIENCE:?}")));
                return;
            }
        }
    }
    candidates::all_is_well(&run, &voters).await;
    if let Some(publisher) = publishers.first() {
        sharing::look_at_editions(&run, publisher).await;
    }
    if let Some(services) = services {
        services.all_is_well(&run).await;
    }
    if let Some(group) = group {
        group.all_is_well(&run).await;
    }
    if let Some(queues) = queues {
        queues.all_is_well(&run).await;
    }
    if let Some(barriers) = barriers {
        barriers.all_is_well(&run).await;
    }
    if let Some(pools) = pools {
        pools.all_is_well(&run).await;
    }
    if let Some(ids) = ids {
        ids.all_is_well(&run).await;
    }
    if let Some(sharers) = sharers {
        sharers.all_is_well(&run).await;
    }
    let mut of_jobs = Vec::new();
    if let Some((clients, if_unfinished)) = jobs {
        ticks::all_is_well(&run, &clients, if_unfinished).await;
        of_jobs = clients;
    }
    let lookers = std::mem::take(&mut *run.lookers.lock().expect("the lock is not poisoned"));
    let all = trees
        .into_iter()
        .chain(voters)
        .chain(members)
        .chain(publishers)
        .chain(strays)
        .chain(of_jobs)
        .chain(lookers);
    run.close(all, "a client of its own").await;
    if let Some(values) = values {
        values.look(&run, &clients[0]).await;
    }
    if run.severity == Severity::Bounded {
        standstill::want_a_free_lock(&run, &clients, seed).await;
    }
    all_is_well(&run, &clients, &designs).await;
}

/// The participants that join a run in addition to the locks.
struct Joining<'a> {
    run: &'a Arc<Run>,
    seed: u64,
    end: Duration,
    tasks: Vec<JoinHandle<()>>,
}

impl Joining<'_> {
    /// Has programs be members of a group.
    async fn belong(&mut self) -> Members {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x9a0);
        let members = Members::new(one_each(run).await);
        self.tasks.extend(members.tasks(run, &mut random, self.end));
        members
    }

    /// Has programs offer services, and others look for them.
    async fn offer_services(&mut self) -> Services {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x5e12);
        let (clients, lookers) = with_lookers(run).await;
        let services = Services::new(clients, lookers);
        self.tasks.extend(services.tasks(run, &mut random, self.end));
        services
    }

    /// Has programs be present, each at a node of its own and at one that all want, and strangers in their way
    /// where anything may go wrong. Returns the clients.
    async fn be_present(&mut self) -> Vec<Client> {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x9e5e);
        let mut clients = Vec::new();
        for (index, machine) in run.machines.iter().enumerate() {
            let client = connected(run, machine).await;
            for shared in [false, true] {
                let member = Member {
                    run: Arc::clone(run),
                    client: client.clone(),
                    severity: run.severity,
                    index,
                    shared,
                    random: random.fork(),
                    sessions: std::sync::Mutex::default(),
                };
                self.tasks.push(machine.run(member.work(self.end)));
            }
            clients.push(client);
        }
        if run.severity == Severity::Unbounded {
            let client = connected(run, &run.machines[0]).await;
            let stranger = disturb(Arc::clone(run), client.clone(), random.fork(), self.end);
            self.tasks.push(run.machines[0].run(stranger));
            clients.push(client);
        }
        clients
    }

    /// Has programs take a lock by servers of which one is not of the service. Returns the clients.
    async fn stray(&mut self) -> Vec<Client> {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x57c);
        let mut clients = Vec::new();
        for (index, machine) in run.machines.iter().enumerate() {
            let builder = builder(run, machine).strict_servers(true);
            let client = connected_to(&run.servers_and_stray(), builder).await;
            let straying = Straying {
                run: Arc::clone(run),
                machine: Arc::clone(machine),
                name: format!("client {index}.s"),
                client: client.clone(),
                random: random.fork(),
            };
            self.tasks.push(machine.run(straying.work(self.end)));
            clients.push(client);
        }
        clients
    }

    /// Runs programs that do the due work. Returns the clients, and their policy for work without an end.
    async fn do_jobs(&mut self) -> (Vec<Client>, IfUnfinished) {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x71c);
        let (book, if_unfinished) = (Arc::<Book>::default(), ticks::any_policy(&mut random));
        let mut clients = Vec::new();
        for (index, machine) in run.machines.iter().enumerate() {
            let client = connected(run, machine).await;
            let job = Job {
                run: Arc::clone(run),
                book: Arc::clone(&book),
                name: format!("client {index}.j"),
                client: client.clone(),
                random: random.fork(),
                if_unfinished,
            };
            self.tasks.push(machine.run(job.work(self.end)));
            clients.push(client);
        }
        (clients, if_unfinished)
    }

    /// Has programs put items into a queue, and others take them.
    async fn use_queue(&mut self) -> Queues {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x0e0e);
        let queues = Queues::new(one_each(run).await, run, &mut random);
        self.tasks.extend(queues.tasks(run, &mut random, self.end).await);
        queues
    }

    /// Has programs wait for each other.
    async fn wait_for_each_other(&mut self) -> Barriers {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0xba44);
        let mut barriers = Barriers::new(one_each(run).await, run, &mut random);
        self.tasks.extend(barriers.tasks(run, &mut random, self.end));
        barriers
    }

    /// Has programs take things of a pool.
    async fn take_things(&mut self) -> Pools {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0xb001);
        let mut pools = Pools::new(one_each(run).await, run, &mut random);
        self.tasks.extend(pools.tasks(run, &mut random, self.end));
        pools
    }

    /// Has programs mint ids.
    async fn mint_ids(&mut self) -> Ids {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x1d64);
        let ids = Ids::new(connected(run, &run.machines[0]).await, run, &mut random);
        self.tasks.extend(ids.tasks(run, &mut random, self.end));
        ids
    }

    /// Has programs share items.
    async fn share_items(&mut self) -> Sharers {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x5a4e);
        let client = connected(run, &run.machines[0]).await;
        Sharers::new(client, run, &mut random, self.end)
    }

    /// Has programs publish and follow. Returns the clients.
    async fn publish(&mut self) -> Vec<Client> {
        let run = self.run;
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x9ab);
        let (clients, lookers) = with_lookers(run).await;
        self.tasks.extend(sharing::publish(run, (&clients, &lookers), &mut random, self.end));
        clients
    }
}

/// Whether a run has an ensemble instead of one server: a quarter of them, with and without everything else.
fn has_followers(seed: u64) -> bool {
    seed / 8 % 4 == 3
}

/// Whether a run has presences too: every fourth one of each severity, with trees or with elections.
fn has_presences(seed: u64) -> bool {
    seed % 8 >= 2 && seed % 8 < 6
}

/// Whether a run has a publication too: some of those in which anything may go wrong.
fn has_publications(seed: u64) -> bool {
    seed % 8 == 7
}

/// Whether a run has elections too: every other run of each severity, if it does not have tree caches.
fn has_elections(seed: u64) -> bool {
    !has_trees(seed)
}

/// Whether a run has a group too: every other one of each severity, half of them beside elections.
fn has_groups(seed: u64) -> bool {
    seed % 8 < 4
}

/// Whether a run has tree caches too: every other one of each severity.
fn has_trees(seed: u64) -> bool {
    seed % 4 < 2
}

/// After the faults: everyone gets every lock, and then nothing of it is left.
async fn all_is_well(run: &Run, clients: &[Client], designs: &[Design]) {
    for (index, client) in clients.iter().enumerate() {
        for design in designs {
            let lock = design.open(client, Sharing::Never);
            for share in design.shares() {
                let cycle = async {
                    // A session or a connection that was lost in the last moments shows itself
                    // first.
                    loop {
                        if let Ok(Some(held)) = lock.acquire(share, Wait::Forever).await
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
    if let Ok((data, stat)) = run.read(&clients[1], &register).await {
        let value = u64::from_be_bytes(data[..].try_into().unwrap_or_default());
        run.note("client 1", What::Read { asked, version: stat.version, value });
    }
    run.close(clients.to_vec(), "a client").await;
}
