//! The test kit's programs that use a queue, on the machines of a run. Consumers die, and others come in their
//! place.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{Client, Instant};
use lockkeeper_client::Host;
use lockkeeper_client::runtime::{Boxed, Runtime, Transport};
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::Scene;
use lockkeeper_testkit::sharing::queues::{self, Consumer, Orders, QueueProgram, Terms};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::machine::{Gate, Machine};
use crate::run::{PATIENCE, Run, builder};
use crate::severity::Severity;
use crate::sharing::{PAUSE, Until};

/// After which another consumer comes in the place of one that has died.
const VACANCY: Duration = Duration::from_millis(1_500);

/// Longer than it takes until all is taken: what comes later is due, and everybody has looked at the server's clock again.
const SETTLING: Duration = Duration::from_secs(400);

/// Whether a run has a queue too: some of each severity.
pub(crate) fn has_queue(seed: u64) -> bool {
    matches!(seed % 16, 5 | 14)
}

/// The programs of a run that use a queue.
pub(crate) struct Queues {
    /// Of those who put, and those who want values at most once.
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
            let mut program = |kind: &str| {
                let name = format!("client {index}.{kind}");
                let random = Mutex::new(random.fork());
                let scene = scene(run, machine, end);
                let (terms, orders) = (self.terms, Arc::clone(&self.orders));
                QueueProgram { scene, client: client.clone(), name, random, terms, orders }
            };
            tasks.push(machine.run(program("put").put()));
            if self.terms.at_most_once && index == 0 {
                tasks.push(machine.run(program("once").remove()));
            }
            if self.terms.winds && index == 1 {
                tasks.push(machine.run(program("wind").wind()));
            }
            if self.terms.has_clerk && index == 2 {
                tasks.push(machine.run(program("clerk").see_to_letters()));
            }
            if self.terms.has_cancels() {
                tasks.push(machine.run(program("cancel").cancel()));
            }
            if self.terms.loses_markers {
                tasks.push(machine.run(program("markers").delete_markers()));
            }

            let job = ConsumerJob {
                run: Arc::clone(run),
                machine: Arc::clone(machine),
                name: format!("client {index}.take"),
                orders: Arc::clone(&self.orders),
                terms: self.terms,
                end,
            };
            if index == 0 || !self.terms.alone {
                let filled = tokio::task::spawn_local(job.fill(random.fork()));
                self.consumers.lock().expect("nobody panics with it").push(filled);
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
        let consumers = self.consumers.into_inner().expect("nobody panics with it");
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
        run.close(self.clients, "a client of a queue").await;
    }
}

/// A run until `end`, on one of its machines.
fn scene(run: &Arc<Run>, machine: &Arc<Machine>, end: Duration) -> Arc<dyn Scene + Send + Sync> {
    let pace = match run.severity {
        Severity::Unbounded => PAUSE,
        Severity::Bounded => run.pace.register,
    };
    Arc::new(Until::new(run, end, pace).on(machine))
}

/// Cuts a machine off, for a little longer than a session lives.
fn cutting_off(run: &Arc<Run>, machine: &Arc<Machine>) -> impl Fn() + use<> {
    let (run, machine) = (Arc::clone(run), Arc::clone(machine));
    move || {
        run.note("world", What::Fault("a consumer is cut off".into()));
        machine.route.set(false, false);
        let (machine, lasts) = (Arc::clone(&machine), run.timing.timeout().mul_f64(1.1));
        tokio::spawn(async move {
            sleep(lasts).await;
            machine.route.set(true, true);
        });
    }
}

/// The job of a consumer, which one program after the other has.
struct ConsumerJob {
    run: Arc<Run>,
    machine: Arc<Machine>,
    name: String,
    orders: Arc<Orders>,
    terms: Terms,
    end: Duration,
}

impl ConsumerJob {
    async fn fill(self, mut random: fastrand::Rng) {
        for life in 0.. {
            let mortal = Arc::new(Mortal {
                machine: Arc::clone(&self.machine),
                gate: Arc::default(),
                has_died: Arc::default(),
            });
            let client = self.connected(&mortal).await;
            let (gate, has_died) = (Arc::clone(&mortal.gate), Arc::clone(&mortal.has_died));
            let program = QueueProgram {
                scene: scene(&self.run, &self.machine, self.end),
                client: client.clone(),
                name: format!("{} {life}", self.name),
                random: Mutex::new(random.fork()),
                terms: self.terms,
                orders: Arc::clone(&self.orders),
            };
            let is_replaced = Arc::new(AtomicBool::new(false));
            let replaced = Arc::clone(&is_replaced);
            let die = Box::new(move |by_another| {
                gate.close();
                replaced.store(by_another, Ordering::Relaxed);
                has_died.notify_one();
            });
            let cut_off = Box::new(cutting_off(&self.run, &self.machine));
            let consumer = Consumer { program, die, cut_off };
            let work = self.machine.run(mortal.gate.through(consumer.consume()));
            tokio::select! {
                biased;
                () = mortal.has_died.notified() => {
                    if !is_replaced.load(Ordering::Relaxed) {
                        return;
                    }
                    sleep(VACANCY.mul_f64(random.f64())).await;
                }
                ended = work => {
                    if let Err(error) = ended {
                        self.run.note("world", What::Stuck(format!("a task ended: {error}")));
                    }
                    return self.run.close([client], "a consumer").await;
                }
            }
        }
    }

    /// A client, as soon as a server can be reached.
    async fn connected(&self, mortal: &Arc<Mortal>) -> Client {
        let builder = builder(&self.run, &self.machine).runtime(Arc::clone(mortal) as _);
        loop {
            match builder.clone().connect(&self.run.servers()).await {
                Ok(client) => return client,
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

/// A program on a machine, which can die without the others there.
#[derive(Debug)]
struct Mortal {
    machine: Arc<Machine>,
    /// Closed for good when it has died.
    gate: Arc<Gate>,
    has_died: Arc<Notify>,
}

impl Runtime for Mortal {
    fn now(&self) -> Instant {
        self.machine.now()
    }

    fn connect<'a>(
        &'a self,
        host: &'a Host,
        address: Option<IpAddr>,
    ) -> Boxed<'a, io::Result<Transport>> {
        self.machine.connect(host, address)
    }

    fn unique_id(&self) -> Uuid {
        self.machine.unique_id()
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        self.machine.spawn(Box::pin(self.gate.through(task)));
    }
}
