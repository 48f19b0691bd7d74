//! Programs that wait for each other. The parties of a double barrier enter and leave, give up, drop their entries and
//! crash inside. Other programs count down a latch, and close and open a barrier (the gate).
//!
//! A party records what it learns: the parties inside with it, the deaths, and when it may leave. [`crate::checker`]
//! compares these records.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{
    Barrier, BarrierError, Client, CountDownLatch, Deaths, DoubleBarrier, ExclusiveGuard, Missing,
    Outcome, Round, TransactionError, ZnodePath,
};
use lockkeeper::{Failure as _, Guard};
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::crew::{Die, Workplace, one_after_the_other, standing};
use super::{Scene, retried};
use crate::data_event::DataEvent;
use crate::history::{Share, What};

const ROUNDS: &str = "/barriers/rounds";
const LATCH: &str = "/barriers/latch";
const GATE: &str = "/barriers/gate";

/// The interval between two looks.
const GLANCE: Duration = Duration::from_millis(200);

/// Longer than all waiters need to set a watch when all is well.
const WHILE: Duration = Duration::from_secs(30);

/// How many rounds each party completes after the faults.
const ROUNDS_AT_THE_END: u32 = 2;

/// How the parties of a barrier are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// Each program has its own name.
    Own,
    /// Each entry has a new name.
    OfEachEntry,
    /// Surplus programs share the names of others.
    Shared,
    /// Like [`Names::Shared`], and all names are declared to the barrier.
    Declared,
}

/// The settings of the barriers in a run.
#[derive(Clone, Copy, Debug)]
pub struct BarrierTerms {
    /// How many parties a round needs.
    parties: usize,
    /// How many programs enter the rounds.
    pub programs: usize,
    names: Names,
    deaths: Deaths,
    /// The initial count of the latch.
    from: u64,
    /// Whether the latch is reset.
    resets: bool,
    /// Whether the run contains no fault that would justify an error.
    is_well: bool,
}

impl BarrierTerms {
    /// Chooses settings at random. `is_well`: no session is lost, and every outage is shorter than a session's
    /// lifetime.
    pub fn any(random: &mut fastrand::Rng, is_well: bool) -> Self {
        let parties = random.usize(2..6);
        let names = [Names::Own, Names::OfEachEntry, Names::Shared, Names::Declared];
        Self {
            parties,
            programs: parties + random.usize(0..4).saturating_sub(1),
            names: names[random.usize(0..names.len())],
            deaths: [Deaths::FailRound, Deaths::Report][random.usize(0..2)],
            from: random.u64(5..40),
            resets: random.u8(0..3) == 0,
            is_well,
        }
    }

    /// The party's name for an entry of this program.
    fn name(&self, program: usize, entry: u64) -> String {
        match self.names {
            Names::Own => format!("p{program}"),
            Names::OfEachEntry => format!("p{program}-{entry:x}"),
            Names::Shared | Names::Declared => format!("p{}", program % self.parties),
        }
    }

    fn rounds(&self, client: &Client) -> DoubleBarrier {
        let builder =
            DoubleBarrier::builder(client, ROUNDS).count(self.parties).deaths(self.deaths);
        let builder = match self.names {
            Names::Declared => builder.names((0..self.parties).map(|party| self.name(party, 0))),
            _ => builder,
        };
        builder.build().expect("a valid path")
    }

    fn latch(&self, client: &Client) -> CountDownLatch {
        CountDownLatch::new(client, LATCH, self.from).expect("a valid path")
    }
}

/// State that the programs of a run share.
#[derive(Debug)]
pub struct BarrierOrders {
    /// How many rounds each program has completed after the faults; `None` before that.
    completed: Mutex<Option<BTreeMap<usize, u32>>>,
    has_completed: Notify,
    /// How many parties are still to crash inside after the faults.
    doomed: AtomicU32,
    /// Whether the parties are to end.
    is_over: watch::Sender<bool>,
    /// Whether the waiters at the gate are to end.
    has_opened: watch::Sender<bool>,
}

impl Default for BarrierOrders {
    fn default() -> Self {
        Self {
            completed: Mutex::default(),
            has_completed: Notify::new(),
            doomed: AtomicU32::new(2),
            is_over: watch::Sender::new(false),
            has_opened: watch::Sender::new(false),
        }
    }
}

impl BarrierOrders {
    fn complete(&self, program: usize) {
        let mut completed = self.completed.lock().expect("not poisoned");
        let Some(completed) = &mut *completed else { return };
        *completed.entry(program).or_default() += 1;
        self.has_completed.notify_one();
    }

    /// The programs that have not completed enough rounds.
    fn late(&self, programs: usize) -> Vec<usize> {
        let completed = self.completed.lock().expect("not poisoned");
        let of = |program: &usize| completed.as_ref().and_then(|it| it.get(program)).copied();
        (0..programs).filter(|it| of(it).is_none_or(|times| times < ROUNDS_AT_THE_END)).collect()
    }

    /// Whether the next party inside is to crash there, after the faults.
    fn dooms(&self) -> bool {
        let one_less = |doomed: u32| doomed.checked_sub(1);
        self.doomed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// A program that uses barriers.
pub struct BarrierProgram {
    /// The environment in which it runs.
    pub scene: Arc<dyn Scene + Send + Sync>,
    /// Its client.
    pub client: Client,
    /// Its name in the history.
    pub name: String,
    /// The source of its decisions, which follow from the seed.
    pub random: fastrand::Rng,
    /// The settings of the barriers.
    pub terms: BarrierTerms,
    /// The state that all programs share.
    pub orders: Arc<BarrierOrders>,
}

impl std::fmt::Debug for BarrierProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BarrierProgram").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What may happen to one party.
struct PartyFate {
    /// The number of its program.
    program: usize,
    die: Die,
    cut_off: Box<dyn Fn() + Send + Sync>,
}

/// When a program gives up waiting.
enum Limit {
    Never,
    /// It passes a timeout when it enters.
    After(Duration),
    /// It drops the call.
    Dropped(Duration),
}

/// The role of a party, which successive programs fill.
#[derive(Debug)]
pub struct PartyJob<S> {
    /// Its machine.
    pub place: S,
    /// Its name in the history.
    pub name: String,
    /// Its number.
    pub program: usize,
    /// The settings of the barriers.
    pub terms: BarrierTerms,
    /// The state that all programs share.
    pub orders: Arc<BarrierOrders>,
}

impl<S: Workplace> PartyJob<S> {
    /// Returns at the end of the run.
    pub async fn fill(self, random: fastrand::Rng) {
        let life = |life, client, random, die: Die| {
            let program = BarrierProgram {
                scene: self.place.scene(),
                client,
                name: format!("{} {life}", self.name),
                random,
                terms: self.terms,
                orders: Arc::clone(&self.orders),
            };
            let cut_off = self.place.cutting_off();
            program.take_part(PartyFate { program: self.program, die, cut_off })
        };
        one_after_the_other(&self.place, random, life).await;
    }
}

impl BarrierProgram {
    /// Enters and leaves round after round until the end of the run.
    async fn take_part(mut self, fate: PartyFate) {
        let barrier = self.terms.rounds(&self.client);
        let mut over = self.orders.is_over.subscribe();
        while !*over.borrow() {
            self.pause(0.3).await;
            if let Some((entry, round)) = self.enter(&barrier, fate.program, &mut over).await {
                self.be_inside(entry, round, &fate).await;
            }
        }
    }

    async fn enter(
        &mut self,
        barrier: &DoubleBarrier,
        program: usize,
        over: &mut watch::Receiver<bool>,
    ) -> Option<(u64, Round)> {
        let entry = self.unique();
        let party = self.terms.name(program, entry);
        let limit = self.upto(1.0);
        let limit = match self.random.u8(0..10) {
            0..6 => Limit::Never,
            6..9 => Limit::After(limit),
            _ => Limit::Dropped(limit),
        };
        let session = self.client.session_id();
        self.tell(DataEvent::Enters { entry, party: party.clone() });
        let entering = async {
            match limit {
                Limit::After(limit) => barrier.enter_timeout(&party, limit).await,
                _ => barrier.enter(&party).await,
            }
        };
        let gives_up = async {
            let ends = over.wait_for(|over| *over);
            match limit {
                Limit::Dropped(limit) => drop(timeout(limit, ends).await),
                _ => drop(ends.await),
            }
        };
        let entered = tokio::select! {
            biased;
            entered = entering => Some(entered),
            () = gives_up => None,
        };

        if self.client.session_id() != session {
            self.tell(DataEvent::EntersAgain { entry });
        }
        match entered? {
            Ok(round) => return Some((entry, round)),
            Err(BarrierError::TimedOut { missing, .. }) => {
                self.tell(DataEvent::TimedOut { entry });
                let is_possible = match &missing {
                    // All parties had arrived, and one left before the round opened.
                    Missing::Names(names) => names.len() < self.terms.parties,
                    Missing::Count(count) => *count < self.terms.parties,
                    _ => true,
                };
                if !is_possible {
                    self.wrong(format!("timed out with {missing}"));
                }
            }
            Err(error) => self.refused("enter", &error),
        }
        None
    }

    async fn be_inside(&mut self, entry: u64, round: Round, fate: &PartyFate) {
        let (number, token) = (round.number(), round.token().to_u128());
        let parties = round.parties().into_iter().map(str::to_owned).collect();
        let node = round.node().name().to_owned();
        let lock = format!("{ROUNDS}/{}", self.name);
        self.tell(DataEvent::Inside { entry, round: number, token, node, parties });
        self.scene
            .note(&self.name, What::Granted { lock: lock.clone(), token, share: Share::Alone });
        self.claim(&lock, &round);
        self.look_who_is_inside(number).await;

        for _ in 0..self.random.usize(0..4) {
            let died = tokio::select! {
                biased;
                died = round.failed() => died,
                () = sleep(self.upto(0.1)) => Vec::new(),
            };
            self.claim(&lock, &round);
            if !died.is_empty() {
                self.tell(DataEvent::Dead { round: number, parties: died });
                break;
            }
        }

        let goes_on = self.scene.goes_on();
        let gives_back = What::GaveBack { lock: lock.clone(), token };
        match self.random.u8(0..20) {
            0 if goes_on => {
                self.scene.note(&self.name, gives_back);
                self.tell(DataEvent::Drops { entry });
                drop(round);
            }
            1 | 2 if goes_on => self.die(entry, fate).await,
            3.. if !goes_on && self.orders.dooms() => self.die(entry, fate).await,
            3 if goes_on && !self.terms.is_well => {
                (fate.cut_off)();
                sleep(self.upto(1.0)).await;
                self.claim(&lock, &round);
                self.leave(entry, round, &lock, fate).await;
            }
            _ => self.leave(entry, round, &lock, fate).await,
        }
    }

    /// Crashes: none of its code runs afterwards.
    async fn die(&self, entry: u64, fate: &PartyFate) {
        self.tell(DataEvent::Drops { entry });
        (fate.die)(true);
        std::future::pending().await
    }

    async fn leave(&mut self, entry: u64, round: Round, lock: &str, fate: &PartyFate) {
        let (number, token) = (round.number(), round.token().to_u128());
        self.scene.note(&self.name, What::GaveBack { lock: lock.to_owned(), token });
        self.tell(DataEvent::Leaves { entry });

        let longest = match self.random.u8(0..10) {
            0 if self.scene.goes_on() => self.upto(0.2),
            _ => Duration::MAX,
        };
        let left = match timeout(longest, round.leave()).await {
            Ok(left) => left,
            // It leaves in any case.
            Err(_) => return,
        };

        let fails = self.terms.deaths == Deaths::FailRound;
        match left {
            Ok(died) => {
                if fails && !died.is_empty() {
                    self.wrong(format!("leaves a round that has failed: {died:?}"));
                }
                self.tell(DataEvent::Left { entry, together: true });
                self.tell(DataEvent::Dead { round: number, parties: died });
                self.orders.complete(fate.program);
            }
            Err(BarrierError::PartyDied { died, .. }) => {
                if !fails || died.is_empty() {
                    self.wrong(format!("leaves a round that has failed, by {died:?}"));
                }
                self.tell(DataEvent::Left { entry, together: false });
                self.tell(DataEvent::Dead { round: number, parties: died });
            }
            Err(error) => self.refused("leave", &error),
        }
    }

    /// Records which nodes represent the parties of a round, if the round can be read.
    async fn look_who_is_inside(&self, round: u32) {
        if let Ok(Ok((data, _))) = timeout(GLANCE, self.client.data(&round_node(round))).await
            && let Some(RoundData { parties, .. }) = RoundData::read(&data)
        {
            self.tell(DataEvent::Named { round, nodes: parties });
        }
    }

    /// Records until when its death cannot be reported.
    fn claim(&self, lock: &str, guard: &Guard) {
        if let Some(what) = standing(&*self.scene, lock.to_owned(), guard) {
            self.scene.note(&self.name, what);
        }
    }

    /// Counts down until the end, several times in a row.
    pub async fn count_down(mut self) {
        let latch = self.terms.latch(&self.client);
        while self.scene.goes_on() {
            self.pause(0.4).await;
            for _ in 0..self.random.usize(1..4) {
                self.count_once(&latch).await;
            }
        }
    }

    async fn count_once(&mut self, latch: &CountDownLatch) -> Option<u64> {
        let attempt = self.unique();
        self.tell(DataEvent::CountsDown { attempt });
        match latch.count_down().await {
            Ok(left) => {
                self.tell(DataEvent::CountedDown { attempt, left });
                return Some(left);
            }
            Err(error) => {
                self.refused("count down", &error);
                if error.outcome() == Outcome::NotApplied {
                    self.tell(DataEvent::NotCountedDown { attempt });
                }
            }
        }
        None
    }

    /// Resets the latch now and then.
    pub async fn reset(mut self) {
        let latch = self.terms.latch(&self.client);
        while self.terms.resets && self.scene.goes_on() {
            self.pause(4.0).await;
            self.tell(DataEvent::Resets);
            if let Err(error) = latch.reset().await {
                self.refused("reset", &error);
            }
        }
    }

    /// Waits repeatedly until the latch is open, until the end of the run, and then once more.
    pub async fn wait_for_latch(mut self) {
        let latch = self.terms.latch(&self.client);
        loop {
            let goes_on = self.scene.goes_on();
            let attempt = self.unique();
            let limit = self.upto(4.0);
            self.tell(DataEvent::AwaitsLatch { attempt });
            let waited = match self.random.bool() && goes_on {
                true => latch.wait_timeout(limit).await,
                false => latch.wait().await.map(|()| true),
            };
            match waited {
                Ok(true) => self.tell(DataEvent::PassesLatch { attempt }),
                Ok(false) => {}
                Err(ref error) => self.refused("wait for the latch", error),
            }
            if !goes_on && waited == Ok(true) {
                return;
            }
            self.pause(1.0).await;
        }
    }

    /// Closes and opens the gate until the end of the run, and leaves it closed.
    pub async fn keep_gate(mut self) {
        let gate = Barrier::new(&self.client, GATE).expect("a valid path");
        while self.scene.goes_on() {
            self.pause(0.5).await;
            if self.random.bool() {
                self.hold_gate(&gate).await;
                continue;
            }
            match gate.close().await {
                Ok(()) => self.tell(DataEvent::GateIsShut { until: None }),
                Err(error) => self.refused("close", &error),
            }
            self.pause(1.5).await;
            self.tell(DataEvent::GateOpens);
            retried(GLANCE, || gate.open()).await;
        }
        retried(GLANCE, || gate.close()).await;
        self.tell(DataEvent::GateIsShut { until: None });
    }

    async fn hold_gate(&mut self, gate: &Barrier) {
        match gate.close_while_held().await {
            Ok(guard) => self.keep_shut(guard).await,
            Err(error) => self.refused("close for a while", &error),
        }
        // Otherwise a node that is about to be deleted would keep it closed.
        retried(GLANCE, || gate.wait()).await;
    }

    async fn keep_shut(&mut self, guard: ExclusiveGuard) {
        for _ in 0..self.random.usize(1..4) {
            let until = guard.deadline().and_then(|it| self.scene.true_time(it));
            if until.is_some() {
                self.tell(DataEvent::GateIsShut { until });
            }
            self.pause(0.5).await;
        }
        self.tell(DataEvent::GateOpens);
        match self.random.bool() {
            // An error is one of the session or the server, with which the node disappears too.
            true => drop(guard.release().await),
            false => drop(guard),
        }
    }

    /// Waits at the gate repeatedly, until it was opened for the last time.
    pub async fn wait_at_gate(mut self) {
        let gate = Barrier::new(&self.client, GATE).expect("a valid path");
        let has_opened = self.orders.has_opened.subscribe();
        while !*has_opened.borrow() {
            let attempt = self.unique();
            let limit = self.upto(2.0);
            self.tell(DataEvent::AwaitsGate { attempt });
            let waited = match self.random.bool() && self.scene.goes_on() {
                true => gate.wait_timeout(limit).await,
                false => gate.wait().await.map(|()| true),
            };
            match waited {
                Ok(true) => self.tell(DataEvent::PassesGate { attempt }),
                Ok(false) => {}
                Err(error) => self.refused("wait at the gate", &error),
            }
            self.pause(0.3).await;
        }
    }

    /// Handles an error: reports it if nothing can justify it.
    fn refused(&self, what: &str, error: &BarrierError) {
        let is_of_step =
            matches!(error, BarrierError::Refused { source: TransactionError::Failed { .. }, .. });
        let is_of_caller = matches!(
            error,
            BarrierError::Name { .. }
                | BarrierError::NotDeclared { .. }
                | BarrierError::Foreign { .. }
                | BarrierError::TooLong { .. }
        );
        // A closed gate is never opened for its holder.
        let is_closed = matches!(error, BarrierError::AlreadyClosed { .. });
        if is_of_step || is_of_caller || self.terms.is_well && !is_closed {
            self.wrong(format!("does not {what}: {error}"));
        } else {
            self.scene.note(&self.name, What::Note(format!("does not {what}: {error}")));
        }
    }

    fn wrong(&self, what: String) {
        self.scene.note(&self.name, What::WrongRound(what));
    }

    fn tell(&self, told: DataEvent) {
        self.scene.note(&self.name, What::Data(told));
    }

    /// A random time, up to this share of the pace.
    fn upto(&mut self, share: f64) -> Duration {
        self.scene.pace().mul_f64(share * self.random.f64())
    }

    async fn pause(&mut self, share: f64) {
        sleep(self.upto(share)).await;
    }

    fn unique(&self) -> u64 {
        self.client.unique_id().as_u64_pair().0
    }
}

/// The data in the node of a round that has opened.
#[derive(Debug, Deserialize)]
struct RoundData {
    parties: Vec<String>,
    #[serde(default)]
    died: Vec<String>,
    #[serde(default)]
    is_over: bool,
}

impl RoundData {
    fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

fn round_node(round: u32) -> ZnodePath {
    ZnodePath::new(&format!("{ROUNDS}/rounds/{round:010}")).expect("a valid path")
}

/// After the faults: every party completes rounds, and every waiter returns. `jobs`: the parties; `waiting`: the
/// waiters for the latch and at the gate. `patience`: longer than any successful operation takes.
pub async fn settle(
    program: &mut BarrierProgram,
    jobs: Vec<JoinHandle<()>>,
    (of_latch, of_gate): (Vec<JoinHandle<()>>, Vec<JoinHandle<()>>),
    patience: Duration,
) {
    let latch = program.terms.latch(&program.client);
    if !program.terms.resets {
        let remains = retried(GLANCE, || latch.count()).await;
        program.tell(DataEvent::LatchRemains { from: program.terms.from, left: remains });
    }
    while program.count_once(&latch).await != Some(0) {}
    ended(program, of_latch, patience, "does not pass the latch").await;

    // All programs wait by now. The gate is closed again at once.
    sleep(WHILE).await;
    program.orders.has_opened.send_replace(true);
    let gate = Barrier::new(&program.client, GATE).expect("a valid path");
    program.tell(DataEvent::GateOpens);
    retried(GLANCE, || gate.open()).await;
    retried(GLANCE, || gate.close()).await;
    ended(program, of_gate, patience, "does not pass the gate").await;

    *program.orders.completed.lock().expect("not poisoned") = Some(BTreeMap::new());
    let all_complete = async {
        while !program.orders.late(program.terms.programs).is_empty() {
            program.orders.has_completed.notified().await;
        }
    };
    if timeout(patience, all_complete).await.is_err() {
        let late = program.orders.late(program.terms.programs);
        let what = format!("parties do not enter and leave: {late:?}; {}", look(program).await);
        program.scene.note("world", What::Stuck(what));
        return;
    }
    program.orders.is_over.send_replace(true);
    ended(program, jobs, patience, "does not leave").await;
    look_what_is_left(program, patience).await;
}

async fn ended(
    program: &BarrierProgram,
    tasks: Vec<JoinHandle<()>>,
    patience: Duration,
    what: &str,
) {
    for task in tasks {
        let stuck = match timeout(patience, task).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => format!("a task ended: {error}"),
            Err(_) => format!("a program {what}"),
        };
        program.scene.note("world", What::Stuck(stuck));
    }
}

/// The current state as readable text.
async fn look(program: &BarrierProgram) -> String {
    match timeout(WHILE, left(program)).await {
        Ok(left) => format!("{left:?}"),
        Err(_) => "the rounds cannot be read".to_owned(),
    }
}

/// A round: the data in its node, if it has opened; the nodes in it; and the marks of the parties that have left.
type Remains = (u32, Option<RoundData>, Vec<String>, Vec<String>);

async fn left(program: &BarrierProgram) -> Vec<Remains> {
    let client = &program.client;
    let children = async |node: &ZnodePath| {
        let names = async || match client.children(node).await {
            Ok((names, _)) => Ok(names),
            Err(error) if error.code().is_some() => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        retried(GLANCE, names).await
    };
    let rounds = ZnodePath::new(&format!("{ROUNDS}/rounds")).expect("a valid path");
    let marks = ZnodePath::new(&format!("{ROUNDS}/left")).expect("a valid path");
    let _ = retried(GLANCE, || client.sync(&rounds)).await;
    let mut names = children(&rounds).await;
    names.extend(children(&marks).await);
    names.sort_unstable();
    names.dedup();

    let mut left = Vec::new();
    for name in names {
        let Ok(number) = name.parse() else { continue };
        let node = round_node(number);
        let data = client.data(&node).await.ok().and_then(|(data, _)| RoundData::read(&data));
        let marks = marks.child(&name).expect("digits");
        left.push((number, data, children(&node).await, children(&marks).await));
    }
    left
}

/// Records which rounds exist when no party is inside any more.
async fn look_what_is_left(program: &BarrierProgram, patience: Duration) {
    let begin = program.scene.now();
    let mut left = left(program).await;
    while left.iter().any(|(_, _, present, _)| !present.is_empty()) {
        if program.scene.now() - begin > patience {
            return program.scene.note("world", What::Left(format!("parties: {left:?}")));
        }
        sleep(GLANCE).await;
        left = self::left(program).await;
    }
    for (round, data, _, marks) in left {
        match data {
            Some(RoundData { parties, died, is_over }) => {
                program.tell(DataEvent::RoundRemains {
                    round,
                    parties,
                    died,
                    is_over,
                    left: marks,
                });
            }
            None if marks.is_empty() => {}
            None => program.scene.note("world", What::Left(format!("marks of round {round}"))),
        }
    }
}
