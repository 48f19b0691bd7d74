//! Programs that share data, as in the simulation, on real servers, behind proxies that lose requests and
//! replies, cut connections, hold replies back and have sessions end; judged by the same checker. A few
//! seconds as a test, or `LOCKKEEPER_SECONDS`; the seed is printed, and `LOCKKEEPER_SEED` gives it.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use lockkeeper::{Client, Counter, Registration, Shared};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::checker;
use lockkeeper_testkit::history::{History, What};
use lockkeeper_testkit::proxy::{Loss, Proxy};
use lockkeeper_testkit::sharing::{Done, Scene, publications, services, trees, values};
use lockkeeper_wire::OpCode;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

crate::contract!("histories": trees_and_values_are_exact);

/// How many clients there are.
const CLIENTS: usize = 3;

/// For how long things go wrong, in seconds.
const SECONDS: u64 = 5;

/// Long enough that a busy machine ends no session, and short enough that faults do.
const SESSION: Duration = Duration::from_secs(6);

/// One run.
struct Stage {
    begun: Instant,
    is_over: AtomicBool,
    history: Mutex<History>,
}

impl Scene for Stage {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn note(&self, who: &str, what: What) {
        // The time under the lock, so that the lines are in its order.
        let mut history = self.history.lock().expect("nobody panics with it");
        history.push(self.now(), who, what);
    }

    fn pace(&self) -> Duration {
        Duration::from_millis(50)
    }
}

fn given(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Whatever is lost: every snapshot of a cache is the tree at its transaction, confirmed adds count once,
/// nothing is unknown unless a session ended, nobody sees half of an edition, and whoever is registered is
/// in every directory.
async fn trees_and_values_are_exact(backend: Backend) -> Result<()> {
    let seed = given("LOCKKEEPER_SEED").unwrap_or_else(|| fastrand::u64(..));
    let lasts = Duration::from_secs(given("LOCKKEEPER_SECONDS").unwrap_or(SECONDS));
    println!("histories: LOCKKEEPER_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (is_over, history) = (AtomicBool::new(false), Mutex::default());
    let stage = Arc::new(Stage { begun: Instant::now(), is_over, history });

    let mut participants = Vec::new();
    for _ in 0..CLIENTS {
        let builder = Client::builder().session_timeout(SESSION);
        participants.push(backend.participant_with(builder).await?);
    }
    trees::make(&participants[0].client).await;
    let mut tasks = Tasks::default();
    for (index, participant) in participants.iter().enumerate() {
        start(&stage, index, participant, &mut random, &mut tasks);
    }
    let proxies: Vec<_> = participants.iter().map(|participant| &participant.proxy).collect();
    go_wrong(&stage, &proxies, &mut random, lasts).await?;

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
    let history = stage.history.lock().expect("nobody panics with it").clone();
    let done = Done::of(&history);
    println!("histories: {done}");
    ensure!(done.is_enough() && done.editions > 0, "too little was done");
    checker::check(&history)
        .map_err(|why| anyhow!("{why}"))
        .with_context(|| format!("LOCKKEEPER_SEED={seed}\n{history}"))
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

/// Has something go wrong between a client and its server, again and again; in the end, nothing.
async fn go_wrong(
    stage: &Stage,
    proxies: &[&Proxy],
    random: &mut fastrand::Rng,
    lasts: Duration,
) -> Result<()> {
    let losses = [Loss::BeforeReply, Loss::BeforeRequest];
    let ops = [OpCode::Multi, OpCode::GetData, OpCode::SetData, OpCode::GetChildren2];
    while stage.now() < lasts {
        let proxy = proxies[random.usize(..proxies.len())];
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
            _ => {
                proxy.expire_session().await?;
                "the session ends".to_owned()
            }
        };
        stage.note("world", What::Fault(what));
        sleep(pause).await;
    }
    proxies.iter().for_each(|proxy| proxy.restore());
    Ok(())
}
