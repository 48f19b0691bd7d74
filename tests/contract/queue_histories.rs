//! The programs that use a queue, as in the simulation, on real servers, behind proxies as in `histories.rs`; judged by
//! the same checker. What the queue is like follows from the seed.
//!
//! Each consumer is a client of its own, which dies now and then: nothing of it runs any more, its connection is closed,
//! and its session ends by its timeout.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{Client, CreateMode, Instant, ZnodePath};
use lockkeeper_client::runtime::{Boxed, Runtime, Transport};
use lockkeeper_client::{Clock, Host};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::data_event::DataEvent;
use lockkeeper_testkit::gate::{Gate, GatedRuntime};
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::crew::{ConsumerJob, Role, Workplace};
use lockkeeper_testkit::sharing::queues::{self, Orders, QUEUE, QueueProgram, Terms};
use lockkeeper_testkit::sharing::{Done, Scene};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::histories::{CLIENTS, Ending, Stage, go_wrong, seed_and_time};

crate::contract!("histories": items_are_done_once);

/// Short enough that what died, and what is cut off, is missed soon.
const SESSION: Duration = Duration::from_secs(3);

/// Longer than a session lives.
const AWAY: Duration = Duration::from_millis(4_000);

/// Between two things that a program does, at most.
const PACE: Duration = Duration::from_millis(200);

/// Longer than it takes until all is taken: sessions have ended, and what comes later is due.
const SETTLING: Duration = Duration::from_secs(90);

/// Longer than an idle program takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the server's clock is looked at.
const LOOKS: Duration = Duration::from_millis(500);

/// An answer that took longer says too little about the clock.
const QUICK: Duration = Duration::from_millis(20);

/// Whatever messages are lost and whichever programs die: each confirmed item ends once, in order, not before it
/// is due, and is never held twice at a time.
async fn items_are_done_once(backend: Backend) -> Result<()> {
    // Programs of a queue stay on one thread.
    LocalSet::new().run_until(run(backend)).await
}

async fn run(backend: Backend) -> Result<()> {
    let (seed, lasts) = seed_and_time();
    let mut random = fastrand::Rng::with_seed(seed);
    // No program gets a success by mistake, and no server lags behind another one.
    let mut terms = Terms::any(&mut random, false, true);
    // Nobody sets it here.
    terms.has_steady_clock = true;
    println!("histories: {terms:?}");

    let proxied = Proxied::default();
    let stage = Arc::new(Stage::new(PACE));
    let scene = Arc::new(OfQueue { stage: Arc::clone(&stage), proxied: proxied.clone() });
    let as_scene = || Arc::clone(&scene) as Arc<dyn Scene + Send + Sync>;
    let observer = backend.observer().await?;
    let clock = ServerClock::of(observer.clone(), Arc::clone(&stage)).await?;
    let clock = spawn_local(clock.follow());

    let (orders, mut programs, mut consumers) = (Arc::<Orders>::default(), vec![], vec![]);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let builder = Client::builder().session_timeout(SESSION);
        let participant = Arc::new(backend.participant_with(builder).await?);
        clients.push(participant.client.clone());
        proxied.put(&participant);
    }
    queues::prepare(&clients[0]).await;
    let program = |name, client: &Client, random| QueueProgram {
        scene: as_scene(),
        client: client.clone(),
        name,
        random: Mutex::new(random),
        terms,
        orders: Arc::clone(&orders),
    };
    for (index, client) in clients.iter().enumerate() {
        for role in Role::of(&terms, index) {
            let name = format!("client {index}.{}", role.name());
            programs.push(spawn_local(program(name, client, random.fork()).play(role)));
        }
        if index == 0 || !terms.alone {
            let (scene, latest) = (Arc::clone(&scene), Arc::default());
            let place = Station { backend: backend.clone(), scene, latest };
            let (name, orders) = (format!("client {index}.take"), Arc::clone(&orders));
            let job = ConsumerJob { place, name, orders, terms };
            consumers.push(spawn_local(job.fill(random.fork())));
        }
    }

    // A session that another client ends has a lease that is not kept.
    let ending = Ending::ByTimeout(AWAY);
    go_wrong(&stage, || proxied.living(), ending, &mut random, lasts).await?;
    stage.is_over.store(true, Ordering::Relaxed);
    for program in programs {
        ends(&stage, "a program", program).await;
    }
    let world = program("world".to_owned(), &clients[0], random.fork());
    match timeout(SETTLING, queues::settle(&world, consumers.len())).await {
        Ok(()) => {
            for consumer in consumers {
                ends(&stage, "a consumer", consumer).await;
            }
        }
        Err(_) => {
            let left = queues::look(&world).await;
            stage.note("world", What::Stuck(format!("items are not taken: {left}")));
        }
    }
    clock.abort();
    for client in clients {
        client.close().await;
    }
    stage.judged(seed, Done::is_enough_of_a_queue)
}

async fn ends(stage: &Stage, what: &str, task: JoinHandle<()>) {
    match timeout(PATIENCE, task).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => stage.note("world", What::Stuck(format!("{what} ended: {error}"))),
        Err(_) => stage.note("world", What::Stuck(format!("{what} does not end"))),
    }
}

/// All participants that have or had a proxy.
#[derive(Clone, Default)]
struct Proxied {
    living: Arc<Mutex<Vec<Arc<Participant>>>>,
    dead: Arc<Mutex<Vec<Arc<Participant>>>>,
}

impl Proxied {
    fn put(&self, participant: &Arc<Participant>) {
        self.living.lock().expect("the lock is not poisoned").push(Arc::clone(participant));
    }

    fn has_died(&self, participant: &Arc<Participant>) {
        let mut living = self.living.lock().expect("the lock is not poisoned");
        living.retain(|other| !Arc::ptr_eq(other, participant));
        self.dead.lock().expect("the lock is not poisoned").push(Arc::clone(participant));
    }

    fn living(&self) -> Vec<Arc<Participant>> {
        self.living.lock().expect("the lock is not poisoned").clone()
    }

    /// How many events of the queue's nodes have passed all proxies.
    fn queue_events(&self) -> usize {
        let dead = self.dead.lock().expect("the lock is not poisoned").clone();
        // A chroot may come before it.
        let of_queue = format!("{QUEUE}/");
        let all = self.living().into_iter().chain(dead);
        let events = all.flat_map(|participant| participant.proxy.events());
        events.filter(|(_, path)| path.contains(&of_queue)).count()
    }
}

/// A run with proxies, at which events are counted.
struct OfQueue {
    stage: Arc<Stage>,
    proxied: Proxied,
}

impl Scene for OfQueue {
    fn now(&self) -> Duration {
        self.stage.now()
    }

    fn goes_on(&self) -> bool {
        self.stage.goes_on()
    }

    fn note(&self, who: &str, what: What) {
        self.stage.note(who, what);
    }

    fn pace(&self) -> Duration {
        self.stage.pace()
    }

    fn true_time(&self, reading: Instant) -> Option<Duration> {
        self.stage.true_time(reading)
    }

    fn server_unix_ms(&self) -> Option<u64> {
        self.stage.server_unix_ms()
    }

    fn queue_events(&self) -> Option<usize> {
        Some(self.proxied.queue_events())
    }
}

/// Where one consumer after the other works.
struct Station {
    backend: Backend,
    scene: Arc<OfQueue>,
    latest: Arc<Mutex<Option<Arc<Participant>>>>,
}

impl Station {
    fn latest(&self) -> Option<Arc<Participant>> {
        self.latest.lock().expect("the lock is not poisoned").clone()
    }
}

impl Workplace for Station {
    fn scene(&self) -> Arc<dyn Scene + Send + Sync> {
        Arc::clone(&self.scene) as _
    }

    fn run(&self, program: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
        spawn_local(program)
    }

    async fn client(&self, gate: &Arc<Gate>) -> Client {
        let mortal = Arc::new(GatedRuntime { host: Arc::new(Sockets), gate: Arc::clone(gate) });
        let builder = Client::builder().session_timeout(SESSION).runtime(mortal);
        loop {
            if let Ok(participant) = self.backend.participant_with(builder.clone()).await {
                let participant = Arc::new(participant);
                self.scene.proxied.put(&participant);
                *self.latest.lock().expect("the lock is not poisoned") =
                    Some(Arc::clone(&participant));
                return participant.client.clone();
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    fn cutting_off(&self) -> Box<dyn Fn() + Send + Sync> {
        let (scene, latest) = (Arc::clone(&self.scene), self.latest());
        Box::new(move || {
            let Some(latest) = latest.clone() else { return };
            scene.note("world", What::Fault("a consumer is cut off".into()));
            latest.proxy.freeze();
            tokio::spawn(async move {
                sleep(AWAY).await;
                latest.proxy.restore();
            });
        })
    }

    fn has_died(&self) {
        if let Some(latest) = self.latest() {
            self.scene.proxied.has_died(&latest);
            latest.proxy.refuse();
        }
    }

    async fn close(&self, client: Client) {
        if timeout(PATIENCE, client.close()).await.is_err() {
            self.scene.note("world", What::Stuck("a consumer does not close".into()));
        }
    }
}

/// What the server's clock shows, as answers to writes tell.
struct ServerClock {
    client: Client,
    stage: Arc<Stage>,
    node: ZnodePath,
}

/// What one answer says that the clock showed at the beginning, in milliseconds since 1970: no less and no more.
struct Reading {
    took: Duration,
    least: i64,
    most: i64,
}

impl ServerClock {
    /// Knows at once what it shows.
    async fn of(client: Client, stage: Arc<Stage>) -> Result<Self> {
        let node = ZnodePath::new("/clock")?;
        client.create(&node, "", CreateMode::Persistent).await?;
        let clock = Self { client, stage, node };
        let mut quickest = clock.read().await?;
        for _ in 0..10 {
            let reading = clock.read().await?;
            if reading.took < quickest.took {
                quickest = reading;
            }
        }
        clock.tell(&quickest);
        Ok(clock)
    }

    /// Looks at it again and again: machines correct their clocks.
    async fn follow(self) {
        loop {
            sleep(LOOKS).await;
            if let Ok(reading) = self.read().await
                && reading.took < QUICK
            {
                self.tell(&reading);
            }
        }
    }

    async fn read(&self) -> Result<Reading> {
        let asked = self.stage.now();
        let stat = self.client.set_data(&self.node, "", None).await?;
        let answered = self.stage.now();
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        // What is shown is rounded, and so is the time.
        let (least, most) = (stat.mtime - millis(answered) - 1, stat.mtime + 1 - millis(asked));
        Ok(Reading { took: answered.saturating_sub(asked), least, most })
    }

    fn tell(&self, reading: &Reading) {
        self.stage.server_zero_ms.store(reading.most, Ordering::Relaxed);
        for unix_ms in [reading.least, reading.most] {
            self.stage.note("world", What::Data(DataEvent::ServerClock { unix_ms }));
        }
    }
}

/// The real clock and sockets.
#[derive(Debug)]
struct Sockets;

impl Runtime for Sockets {
    fn now(&self) -> Instant {
        Clock.now()
    }

    fn connect<'a>(
        &'a self,
        host: &'a Host,
        _: Option<IpAddr>,
    ) -> Boxed<'a, io::Result<Transport>> {
        Box::pin(async move {
            let Host::Tcp { name, port } = host else {
                return Err(io::Error::from(io::ErrorKind::Unsupported));
            };
            let stream = TcpStream::connect((&**name, *port)).await?;
            stream.set_nodelay(true)?;
            Ok(Transport::Tcp(stream))
        })
    }

    fn unique_id(&self) -> Uuid {
        Uuid::new_v4()
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        tokio::spawn(task);
    }
}
