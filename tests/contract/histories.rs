//! Programs that share data, as in the simulation, on real servers, behind proxies that lose requests and
//! replies, cut connections, hold replies back and have sessions end; judged by the same checker. A few
//! seconds as a test, or `LOCKKEEPER_SECONDS`; the seed is printed, and `LOCKKEEPER_SEED` gives it.

use std::env;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use lockkeeper::{Client, Counter, Registration, Shared};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::checker;
use lockkeeper_testkit::clock::{self, LeaseClock};
use lockkeeper_testkit::history::{History, What};
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_testkit::sharing::{Done, Scene, publications, services, trees, values};
use lockkeeper_wire::OpCode;
use tokio::task::JoinSet;
use tokio::time::sleep;

crate::contract!("histories": trees_and_values_are_exact);

/// How many clients there are.
pub(crate) const CLIENTS: usize = 3;

/// For how long things go wrong, in seconds.
const SECONDS: u64 = 5;

/// Long enough that a busy machine ends no session, and short enough that faults do.
const SESSION: Duration = Duration::from_secs(6);

/// One run.
pub(crate) struct Stage {
    begun: Duration,
    pub(crate) is_over: AtomicBool,
    pub(crate) history: Mutex<History>,
    pace: Duration,
    /// The clock of leases.
    clock: LeaseClock,
    /// What the server's clock showed at the beginning, in milliseconds since 1970, as the latest answer that tells
    /// has it; zero if none has.
    pub(crate) server_zero_ms: AtomicI64,
}

impl Stage {
    pub(crate) fn new(pace: Duration) -> Self {
        Self {
            begun: clock::now(),
            is_over: AtomicBool::new(false),
            history: Mutex::default(),
            pace,
            clock: LeaseClock::compare(),
            server_zero_ms: AtomicI64::new(0),
        }
    }

    /// The history of a run that is over, judged; with how much was done.
    pub(crate) fn judged(&self, seed: u64, is_enough: impl Fn(&Done) -> bool) -> Result<()> {
        let history = self.history.lock().expect("the lock is not poisoned").clone();
        let done = Done::of(&history);
        println!("histories: {done}");
        ensure!(is_enough(&done), "too little was done");
        checker::check(&history)
            .map_err(|why| anyhow!("{why}"))
            .with_context(|| format!("LOCKKEEPER_SEED={seed}\n{history}"))
    }
}

impl Scene for Stage {
    fn now(&self) -> Duration {
        clock::now().saturating_sub(self.begun)
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn note(&self, who: &str, what: What) {
        // The time under the lock, so that the lines are in its order.
        let mut history = self.history.lock().expect("the lock is not poisoned");
        history.push(self.now(), who, what);
    }

    fn pace(&self) -> Duration {
        self.pace
    }

    fn true_time(&self, reading: lockkeeper::Instant) -> Option<Duration> {
        Some(self.clock.shared(reading).saturating_sub(self.begun))
    }

    fn server_unix_ms(&self) -> Option<u64> {
        let zero = u64::try_from(self.server_zero_ms.load(Ordering::Relaxed)).ok()?;
        let passed = u64::try_from(self.now().as_millis()).ok()?;
        (zero > 0).then_some(zero + passed)
    }
}

fn given(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The seed, which is printed, and for how long things go wrong.
pub(crate) fn seed_and_time() -> (u64, Duration) {
    let seed = given("LOCKKEEPER_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("histories: LOCKKEEPER_SEED={seed}");
    (seed, Duration::from_secs(given("LOCKKEEPER_SECONDS").unwrap_or(SECONDS)))
}

/// Whatever messages are lost: every snapshot of a cache is the tree at its transaction, confirmed adds count once,
/// no outcome is unknown unless a session ended, no reader sees half of an edition, and every registered instance is
/// in every directory.
async fn trees_and_values_are_exact(backend: Backend) -> Result<()> {
    let (seed, lasts) = seed_and_time();
    let mut random = fastrand::Rng::with_seed(seed);
    let stage = Arc::new(Stage::new(Duration::from_millis(50)));

    let mut participants = Vec::new();
    for _ in 0..CLIENTS {
        let builder = Client::builder().session_timeout(SESSION);
        participants.push(Arc::new(backend.participant_with(builder).await?));
    }
    trees::make(&participants[0].client).await;
    let mut tasks = Tasks::default();
    for (index, participant) in participants.iter().enumerate() {
        start(&stage, index, participant, &mut random, &mut tasks);
    }
    go_wrong(&stage, || participants.clone(), Ending::AtOnce, &mut random, lasts).await?;

    stage.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.programs.join_next().await {
        ended?;
    }
    drop(tasks.servers);
    values::look_at_the_end(&*stage, &participants[0].client).await;
    publications::look_at_the_end(&*stage, &participants[0].client).await;
    services::look_at_the_end(&*stage, &participants[0].client).await;
    for participant in participants {
        participant.client.close().await;
    }
    stage.judged(seed, |done| done.is_enough() && done.editions > 0)
}

/// All programs that run.
#[derive(Default)]
struct Tasks {
    programs: JoinSet<()>,
    /// Each gives its registration, which so is there until all are dropped.
    servers: JoinSet<Option<Registration>>,
}

/// Starts all programs of a client.
fn start(
    stage: &Arc<Stage>,
    index: usize,
    participant: &Participant,
    random: &mut fastrand::Rng,
    Tasks { programs, servers }: &mut Tasks,
) {
    let client = &participant.client;
    let scene = || Arc::clone(stage) as Arc<dyn Scene + Send + Sync>;
    let name = |what: &str| format!("client {index}.{what}");
    let counter = Counter::new(client, values::COUNTER).expect("a path");
    let list: Shared<Vec<u64>> = Shared::new(client, values::LIST).expect("a path");
    let mut program = |what| values::ValueProgram {
        scene: scene(),
        client: client.clone(),
        name: name(what),
        random: random.fork(),
    };
    programs.spawn(program("add 0").add(counter.clone()));
    programs.spawn(program("add 1").add(counter));
    programs.spawn(program("append").append(list.clone()));
    programs.spawn(program("follow").follow(list));
    programs.spawn(trees::write(scene(), name("write"), client.clone(), random.fork()));
    programs.spawn(trees::watch(scene(), name("tree"), client.clone(), random.fork()));
    programs.spawn(publications::publish(scene(), name("publish"), client.clone(), random.fork()));
    programs.spawn(publications::follow(scene(), name("editions"), client.clone(), random.fork()));

    let id = |index| format!("client-{index}");
    let ids = (0..CLIENTS).map(id).collect();
    let (directory, to) = (name("directory"), client.clone());
    programs.spawn(services::watch(scene(), directory, to, random.fork(), ids));
    servers.spawn(services::serve(scene(), id(index), client.clone(), random.fork()));
}

/// How sessions end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// Somebody ends them, whatever their clients believe until then.
    AtOnce,
    /// By their timeout, while their clients cannot reach the server for so long.
    ByTimeout(Duration),
}

/// Has something go wrong between a client and its server, again and again; in the end, nothing.
pub(crate) async fn go_wrong(
    stage: &Stage,
    participants: impl Fn() -> Vec<Arc<Participant>>,
    ending: Ending,
    random: &mut fastrand::Rng,
    lasts: Duration,
) -> Result<()> {
    let losses = [Loss::BeforeReply, Loss::BeforeRequest];
    let ops = [OpCode::Multi, OpCode::GetData, OpCode::SetData, OpCode::GetChildren2];
    while stage.now() < lasts {
        let there = participants();
        let participant = &there[random.usize(..there.len())];
        let proxy = &participant.proxy;
        let pause = Duration::from_millis(random.u64(0..300));
        let what = match random.u8(0..10) {
            // What the exact writes are about.
            0..=4 => {
                proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
                "the next reply to a transaction is lost".to_owned()
            }
            5 | 6 => {
                let (op, loss) = (ops[random.usize(..ops.len())], losses[random.usize(..2)]);
                proxy.lose_next(op, loss);
                format!("the next {op:?} is lost, {loss:?}")
            }
            7 => {
                proxy.cut();
                "the connection is cut".to_owned()
            }
            8 => {
                proxy.hold_replies();
                sleep(pause).await;
                proxy.cut();
                proxy.restore();
                format!("replies were held back for {pause:?}, and lost")
            }
            _ => match ending {
                Ending::AtOnce => {
                    proxy.expire_session().await?;
                    "the session ends".to_owned()
                }
                Ending::ByTimeout(time) => {
                    proxy.refuse();
                    let participant = Arc::clone(participant);
                    tokio::spawn(async move {
                        sleep(time).await;
                        participant.proxy.restore();
                    });
                    format!("the server cannot be reached for {time:?}")
                }
            },
        };
        stage.note("world", What::Fault(what));
        sleep(pause).await;
    }
    for participant in participants() {
        participant.proxy.restore();
        participant.proxy.lose_no_more();
    }
    Ok(())
}
