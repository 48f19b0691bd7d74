//! Ten programs that share items by `Partitions`, and join and leave one at a time, on a server and a network that are well.
//!
//! In every settled state each item has one owner, which is the one that rendezvous hashing says. Between two settled states
//! an item moves if its owner by the hash differs, and else it keeps its token. At no moment do two programs believe
//! that they hold one item, and the tokens of an item grow.
//!
//! A program leaves in one of four ways: it leaves, it drops its member, it dies, or it is cut off until its
//! session is over, and then joins again by itself.

mod judge;
mod program;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{Client, LeaseMode, Partitions, ZnodePath};
use lockkeeper_client::runtime::Runtime;
use lockkeeper_testkit::gate::{Gate, GatedRuntime};
use lockkeeper_tree::Config;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::judge::{Judge, Owners, owners_by_hash};
use self::program::{Leaving, Program};
use crate::machine::{Drifting, Machine, true_time};
use crate::network::{Lag, Route};
use crate::run::{FASTEST_CLOCK, PATIENCE, SLOWEST_CLOCK};
use crate::server::Host;

const PATH: &str = "/partitions/churn";
const PROGRAMS: usize = 10;
const ITEMS: usize = 150;

const TICK: Duration = Duration::from_millis(500);
const SESSION: Duration = Duration::from_secs(4);
const LAG: Lag = Lag { usual: Duration::from_millis(5), longest: Duration::from_millis(20) };

/// The time between two checks of the owners.
const GLANCE: Duration = Duration::from_millis(50);

/// What a run has seen.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    joins: u64,
    /// How often each way of leaving was taken.
    leaves: BTreeMap<Leaving, u64>,
    /// How often an item had another token in the next settled state.
    moved: u64,
    /// How often an item had another owner by the hash in the next settled state.
    moved_by_hash: u64,
    /// How much virtual time has passed.
    lasted: Duration,
}

/// Has programs join and leave so many times.
///
/// # Errors
///
/// What was not as promised.
pub(crate) fn churn(seed: u64, changes: u64) -> Result<Figures, String> {
    // Whatever draws without a source of its own.
    fastrand::seed(seed);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    #[cfg(tokio_unstable)]
    runtime.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_be_bytes()));
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut churn = Churn::start(seed);
        for change in 0..changes {
            churn.change().await.map_err(|why| format!("change {change}: {why}"))?;
        }
        churn.end().await
    })
}

struct Churn {
    host: Host,
    machines: Vec<Arc<Machine>>,
    random: fastrand::Rng,
    judge: Rc<Judge>,
    places: Vec<Place>,
    /// Of the last settled state.
    owners: Owners,
    figures: Figures,
}

/// What is in the place of a program.
#[derive(Default)]
enum Place {
    #[default]
    Empty,
    /// It has left, and its client can be used again.
    Left(Life),
    Member(Life, Running),
    /// A member that cannot reach the server.
    CutOff(Life, Running),
    /// It has died, and its session may live.
    Dead(Life, Running),
}

/// A client, whose own tasks go through the gate.
struct Life {
    client: Client,
    gate: Arc<Gate>,
}

struct Running {
    leave: oneshot::Sender<Leaving>,
    program: JoinHandle<()>,
}

impl Churn {
    fn start(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0xc4u64);
        let start = Instant::now();
        let host = Host::new(start, Config::with_tick(TICK), random.fork());
        host.start();
        let machines = (0..PROGRAMS).map(|_| {
            let ahead = Duration::from_millis(random.u64(1_000_000..2_000_000));
            let rate = SLOWEST_CLOCK + (FASTEST_CLOCK - SLOWEST_CLOCK) * random.f64();
            let route = Route::new(start, Arc::clone(&host.listener), random.fork(), LAG);
            Arc::new(Machine {
                ids: Mutex::new(random.fork()),
                clock: Drifting { ahead, rate },
                route: Arc::new(route),
                to_stray: None,
                gate: Arc::default(),
                program: Arc::default(),
            })
        });
        let machines: Vec<_> = machines.collect();
        Self {
            judge: Rc::new(Judge::new(start, &machines)),
            host,
            machines,
            random,
            places: (0..PROGRAMS).map(|_| Place::default()).collect(),
            owners: Owners::new(),
            figures: Figures::default(),
        }
    }

    /// One program joins or leaves, and what must move has moved.
    async fn change(&mut self) -> Result<(), String> {
        let before = owners_by_hash(&self.members(), items());
        let who = self.next_to_change();
        let what = match std::mem::take(&mut self.places[who]) {
            Place::Empty => {
                let life = self.connect(who).await;
                self.join(who, life).await?
            }
            Place::Left(life) => self.join(who, life).await?,
            Place::CutOff(life, running) => {
                self.machines[who].route.set(true, true);
                self.places[who] = Place::Member(life, running);
                self.figures.joins += 1;
                "can reach the server again".to_owned()
            }
            Place::Member(life, running) => self.leave(who, life, running).await,
            Place::Dead(..) => unreachable!("it was buried"),
        };

        let expected = owners_by_hash(&self.members(), items());
        let settled = self.settled(&expected).await;
        let owners = settled.map_err(|why| format!("program {who} {what}: {why}"))?;
        for (item, (_, token)) in &owners {
            let (was, old) = (before.get(item), self.owners.get(item).map(|(_, token)| token));
            let is_to_move = was != expected.get(item);
            let has_moved = old != Some(token);
            self.figures.moved += u64::from(has_moved);
            self.figures.moved_by_hash += u64::from(is_to_move);
            if is_to_move != has_moved {
                let owner = expected.get(item);
                return Err(format!(
                    "program {who} {what}: {item} belonged to {was:?} and belongs to {owner:?}, \
                     its token was {old:?} and is {token}"
                ));
            }
        }
        self.owners = owners;
        match std::mem::take(&mut self.places[who]) {
            Place::Dead(life, running) => self.bury(who, life, running).await,
            place => {
                self.judge.set_may_lose(who, matches!(place, Place::CutOff(..)));
                self.places[who] = place;
            }
        }
        Ok(())
    }

    /// One that is away joins, and one of two that are there leaves, so that most are there. The last one stays.
    fn next_to_change(&mut self) -> usize {
        loop {
            let who = self.random.usize(..PROGRAMS);
            let is_there = matches!(self.places[who], Place::Member(..));
            if !is_there || self.members().len() > 1 && self.random.bool() {
                return who;
            }
        }
    }

    /// Who takes part, by the names.
    fn members(&self) -> BTreeMap<String, usize> {
        let places = self.places.iter().enumerate();
        let there = places.filter(|(_, place)| matches!(place, Place::Member(..)));
        there.map(|(who, _)| (name(who), who)).collect()
    }

    async fn connect(&self, who: usize) -> Life {
        let gate = Arc::<Gate>::default();
        let host = Arc::clone(&self.machines[who]) as Arc<dyn Runtime>;
        let mortal = Arc::new(GatedRuntime { host, gate: Arc::clone(&gate) });
        let builder = Client::builder().session_timeout(SESSION).server_tick(TICK);
        let builder = builder.lease(LeaseMode::Quorum).runtime(mortal);
        let client = builder.connect("simulated:1").await.expect("nothing is wrong");
        Life { client, gate }
    }

    async fn join(&mut self, who: usize, life: Life) -> Result<String, String> {
        let partitions = Partitions::builder(&life.client, PATH).items(items()).build();
        let joined = partitions.expect("a path").join(name(who)).await;
        let member = joined.map_err(|error| format!("program {who} does not join: {error}"))?;
        let (leave, told) = oneshot::channel();
        let (judge, random) = (Rc::clone(&self.judge), self.random.fork());
        let program = Program { who, judge, random }.work(member, told);
        let program = tokio::task::spawn_local(life.gate.through(program));
        self.places[who] = Place::Member(life, Running { leave, program });
        self.figures.joins += 1;
        Ok("joins".to_owned())
    }

    async fn leave(&mut self, who: usize, life: Life, running: Running) -> String {
        let leaving = Leaving::any(&mut self.random);
        *self.figures.leaves.entry(leaving).or_default() += 1;
        match leaving {
            Leaving::Leaves | Leaving::Drops => {
                let Running { leave, program } = running;
                let _ = leave.send(leaving);
                if let Err(error) = program.await {
                    self.judge.wrong(format!("program {who} ended: {error}"));
                }
                self.places[who] = Place::Left(life);
            }
            Leaving::Dies => {
                life.gate.close();
                self.places[who] = Place::Dead(life, running);
            }
            Leaving::IsCutOff => {
                self.machines[who].route.set(false, false);
                self.judge.set_may_lose(who, true);
                self.places[who] = Place::CutOff(life, running);
            }
        }
        format!("{leaving:?}")
    }

    /// Ends what is left of a program that has died, and whose session is over.
    async fn bury(&self, who: usize, life: Life, running: Running) {
        running.program.abort();
        let _ = running.program.await;
        self.judge.forget(who);
        // It is a program that stood still for so long: what its client still does must not matter.
        life.gate.open();
        life.client.close().await;
    }

    /// Waits until each item is owned as expected.
    async fn settled(&self, expected: &BTreeMap<String, usize>) -> Result<Owners, String> {
        let begin = Instant::now();
        loop {
            self.judge.verdict()?;
            let owners = self.judge.owners();
            let is_expected = |(item, who): (&String, &usize)| {
                owners.get(item).is_some_and(|(owner, _)| owner == who)
            };
            if owners.len() == expected.len() && expected.iter().all(is_expected) {
                return Ok(owners);
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("owned are {owners:?}, and not {expected:?}"));
            }
            sleep(GLANCE).await;
        }
    }

    /// Has all leave, after which nothing may be left.
    async fn end(mut self) -> Result<Figures, String> {
        for who in 0..PROGRAMS {
            self.machines[who].route.set(true, true);
            let life = match std::mem::take(&mut self.places[who]) {
                Place::Empty => continue,
                Place::Left(life) => life,
                Place::Member(life, running)
                | Place::CutOff(life, running)
                | Place::Dead(life, running) => {
                    let _ = running.leave.send(Leaving::Leaves);
                    running.program.await.map_err(|error| error.to_string())?;
                    life
                }
            };
            life.client.close().await;
        }
        self.judge.verdict()?;

        let looker = self.connect(0).await.client;
        let owners = ZnodePath::new(&format!("{PATH}/owners")).expect("a path");
        let (left, _) = looker.children(&owners).await.unwrap_or_default();
        looker.close().await;
        if !left.is_empty() {
            return Err(format!("left are {left:?}"));
        }
        self.figures.lasted = true_time(self.machines[0].route.start);
        // It has run until now.
        drop(self.host);
        Ok(self.figures)
    }
}

fn name(who: usize) -> String {
    format!("member-{who}")
}

fn items() -> impl Iterator<Item = String> {
    (0..ITEMS).map(|item| format!("item-{item}"))
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let leaves: u64 = self.leaves.values().sum();
        write!(
            f,
            "{} joins and leaves of {PROGRAMS} members ({} joins, {leaves} leaves: {:?}), {ITEMS} items, {} moves, \
             {} by the hash, {:.0} s of virtual time",
            self.joins + leaves,
            self.joins,
            self.leaves,
            self.moved,
            self.moved_by_hash,
            self.lasted.as_secs_f64(),
        )
    }
}
