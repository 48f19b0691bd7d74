//! The test kit's programs that use a queue, on the machines of a run. Consumers die, and others come in their
//! place.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_client::runtime::Runtime;
use lockkeeper_testkit::gate::{Gate, GatedRuntime};
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::Scene;
use lockkeeper_testkit::sharing::crew::{ConsumerJob, Role, Workplace};
use lockkeeper_testkit::sharing::queues::{self, Orders, QueueProgram, Terms};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::followers::Link;
use crate::machine::Machine;
use crate::network::Lag;
use crate::run::{PATIENCE, Run, Usual, builder};
use crate::severity::Severity;
use crate::sharing::{PAUSE, Until};

/// Longer than it takes until all items are taken: later items are due, and all programs have read the server's
/// clock again.
const SETTLING: Duration = Duration::from_secs(400);

/// A server and a way to it that take no time worth speaking of, beside a session.
const FAST: Usual = Usual {
    sync: Duration::ZERO,
    lag: Lag { usual: Duration::from_millis(1), longest: Duration::from_millis(2) },
    link: Link { up: Duration::ZERO, down: Duration::ZERO },
};

/// Whether a run has a queue too: some of each severity.
pub(crate) fn has_queue(seed: u64) -> bool {
    matches!(seed % 16, 5 | 14)
}

/// The programs of a run that use a queue.
pub(crate) struct Queues {
    /// The clients that put, and the clients that take values at most once.
    clients: Vec<Client>,
    orders: Arc<Orders>,
    terms: Terms,
    consumers: Mutex<Vec<JoinHandle<()>>>,
}

impl Queues {
    pub(crate) fn new(clients: Vec<Client>, run: &Run, random: &mut fastrand::Rng) -> Self {
        let is_well = run.severity == Severity::Bounded;
        let terms = Terms::any(random, is_well, run.host.followers.is_empty());
        run.note("world", What::Note(format!("{terms:?}")));
        if terms.has_steady_clock {
            run.host.keep_wall();
        }
        Self { clients, orders: Arc::default(), terms, consumers: Mutex::default() }
    }

    /// What those do until `end` that put and that want values at most once. Consumers go on until nothing is left.
    pub(crate) async fn tasks(
        &self,
        run: &Arc<Run>,
        random: &mut fastrand::Rng,
        end: Duration,
    ) -> Vec<JoinHandle<()>> {
        queues::prepare(&self.clients[0]).await;
        run.tell_server_clock();
        let mut tasks = Vec::new();
        for (index, (machine, client)) in run.machines.iter().zip(&self.clients).enumerate() {
            for role in Role::of(&self.terms, index) {
                let program = QueueProgram {
                    scene: scene(run, machine, end),
                    client: client.clone(),
                    name: format!("client {index}.{}", role.name()),
                    random: Mutex::new(random.fork()),
                    terms: self.terms,
                    orders: Arc::clone(&self.orders),
                };
                tasks.push(machine.run(program.play(role)));
            }

            let place = Station::new(run, machine, end);
            let name = format!("client {index}.take");
            let orders = Arc::clone(&self.orders);
            let job = ConsumerJob { place, name, orders, terms: self.terms };
            if index == 0 || !self.terms.alone {
                let filled = tokio::task::spawn_local(job.fill(random.fork()));
                self.consumers.lock().expect("the lock is not poisoned").push(filled);
            }
        }
        tasks
    }

    /// After the faults: all is taken.
    pub(crate) async fn all_is_well(self, run: &Arc<Run>) {
        let program = QueueProgram {
            scene: scene(run, &run.machines[0], Duration::ZERO),
            client: self.clients[0].clone(),
            name: "world".to_owned(),
            random: Mutex::default(),
            terms: self.terms,
            orders: Arc::clone(&self.orders),
        };
        // What was put while the clock showed more is due then.
        run.host.set_wall_to_latest();
        run.tell_server_clock();
        let consumers = self.consumers.into_inner().expect("the lock is not poisoned");
        let settled = queues::settle(&program, consumers.len());
        if timeout(SETTLING, settled).await.is_err() {
            let left = queues::look(&program).await;
            return run.note("world", What::Stuck(format!("items are not taken: {left}")));
        }
        for consumer in consumers {
            match timeout(PATIENCE, consumer).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => run.note("world", What::Stuck(format!("a task ended: {error}"))),
                Err(_) => run.note("world", What::Stuck("a consumer does not end".into())),
            }
        }
        if run.severity == Severity::Bounded {
            outlive_an_idle_consumer(run, &program).await;
        }
        run.close(self.clients, "a client of a queue").await;
    }
}

/// A consumer dies while it waits. Another one takes all items that are put then, also those that are the share of the
/// dead one, before its session has expired.
async fn outlive_an_idle_consumer(run: &Arc<Run>, world: &QueueProgram) {
    run.set_speed(FAST);
    let station = Station::new(run, &run.machines[0], Duration::ZERO);
    let (mortal, alive) = (Arc::<Gate>::default(), Arc::<Gate>::default());
    let program = async |gate| QueueProgram {
        scene: Arc::clone(&world.scene),
        client: station.client(gate).await,
        name: "world".to_owned(),
        random: Mutex::default(),
        terms: world.terms,
        orders: Arc::clone(&world.orders),
    };
    let (dying, other) = (program(&mortal).await, program(&alive).await);
    let waiting = station.run(mortal.through(queues::wait_in_vain(dying)));
    queues::until_one_waits(world).await;
    mortal.close();

    let in_time = run.timing.timeout() / 2;
    if timeout(in_time, queues::put_and_take(&other, 2)).await.is_err() {
        let left = queues::look(world).await;
        run.note("world", What::WaitsForDead(format!("items are not taken: {left}")));
    }
    waiting.abort();
    run.close([other.client], "a consumer").await;
    run.set_speed(run.usual);
}

/// A run until `end`, on one of its machines.
fn scene(run: &Arc<Run>, machine: &Arc<Machine>, end: Duration) -> Arc<dyn Scene + Send + Sync> {
    Arc::new(Until::new(run, end, pace(run)).on(machine))
}

fn pace(run: &Run) -> Duration {
    match run.severity {
        Severity::Unbounded => PAUSE,
        Severity::Bounded => run.pace.register,
    }
}

/// A machine whose programs die.
pub(crate) struct Station {
    run: Arc<Run>,
    machine: Arc<Machine>,
    end: Duration,
    pace: Duration,
    /// What a program there is called.
    what: &'static str,
}

impl Station {
    /// One for consumers.
    pub(crate) fn new(run: &Arc<Run>, machine: &Arc<Machine>, end: Duration) -> Self {
        let (pace, what) = (pace(run), "a consumer");
        Self { run: Arc::clone(run), machine: Arc::clone(machine), end, pace, what }
    }

    pub(crate) fn at_pace(self, pace: Duration) -> Self {
        Self { pace, ..self }
    }

    pub(crate) fn of(self, what: &'static str) -> Self {
        Self { what, ..self }
    }
}

impl Workplace for Station {
    fn scene(&self) -> Arc<dyn Scene + Send + Sync> {
        Arc::new(Until::new(&self.run, self.end, self.pace).on(&self.machine))
    }

    fn run(&self, program: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
        self.machine.run(program)
    }

    async fn client(&self, gate: &Arc<Gate>) -> Client {
        let host = Arc::clone(&self.machine) as Arc<dyn Runtime>;
        let mortal = Arc::new(GatedRuntime { host, gate: Arc::clone(gate) });
        let builder = builder(&self.run, &self.machine).runtime(mortal);
        loop {
            match builder.clone().connect(&self.run.servers()).await {
                Ok(client) => return client,
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        }
    }

    fn cutting_off(&self) -> Box<dyn Fn() + Send + Sync> {
        let (run, machine) = (Arc::clone(&self.run), Arc::clone(&self.machine));
        let what = self.what;
        Box::new(move || {
            run.note("world", What::Fault(format!("{what} is cut off")));
            machine.route.set(false, false);
            let (machine, lasts) = (Arc::clone(&machine), run.timing.timeout().mul_f64(1.1));
            tokio::spawn(async move {
                sleep(lasts).await;
                machine.route.set(true, true);
            });
        })
    }

    async fn close(&self, client: Client) {
        self.run.close([client], self.what).await;
    }
}
