//! Programs that share partitions: they come and go, crash, give items back, and keep some for too long. To
//! [`crate::checker`] each item is a lock: the leases and tokens of its owners are judged as those of any lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use lockkeeper::{
    Assignment, Client, HolderState, Instant, LossReason, PartitionMember, Partitions,
    PartitionsError, ZnodePath,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::crew::{Die, Workplace, one_after_the_other};
use super::{Scene, retried};
use crate::history::{Share, What};

const PATH: &str = "/partitions/shards";

/// The interval between two looks.
const GLANCE: Duration = Duration::from_millis(200);

/// The settings of the partitions in a run.
#[derive(Clone, Copy, Debug)]
pub struct PartitionTerms {
    /// How many programs there are.
    pub programs: usize,
    items: usize,
    /// Whether the weights of the programs differ.
    weighs: bool,
    grace: Duration,
    settle: Duration,
    /// Whether items are kept beyond their deadline.
    overstays: bool,
    /// Whether the run contains no fault that would justify an error.
    is_well: bool,
}

impl PartitionTerms {
    /// Chooses settings at random. `is_well`: no session is lost, and every outage is shorter than a session's
    /// lifetime.
    pub fn any(random: &mut fastrand::Rng, is_well: bool) -> Self {
        Self {
            programs: random.usize(2..6),
            items: random.usize(3..20),
            weighs: random.bool(),
            grace: Duration::from_millis(random.u64(100..10_000)),
            settle: Duration::from_millis(
                random.u64(0..3).saturating_sub(1) * random.u64(0..3_000),
            ),
            overstays: random.bool(),
            is_well,
        }
    }

    fn partitions(&self, client: &Client, program: usize) -> Partitions {
        let weight = if self.weighs { u32::try_from(program).unwrap_or(0) + 1 } else { 1 };
        let items = (0..self.items).map(|item| format!("item {item}"));
        let builder = Partitions::builder(client, PATH).items(items).weight(weight);
        builder.grace(self.grace).settle(self.settle).build().expect("a valid path")
    }
}

/// What the programs of a run are to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Anything,
    /// They keep their items and give back those that move. The program in `leaves` leaves.
    Calm { leaves: Option<usize> },
    /// All programs leave.
    Over,
}

/// State that the programs of a run share.
#[derive(Debug, Default)]
pub struct PartitionOrders {
    phase: watch::Sender<Phase>,
    /// The items of each program, with their tokens.
    owned: Mutex<BTreeMap<usize, BTreeMap<String, u128>>>,
}

impl PartitionOrders {
    fn note(&self, program: usize, owned: BTreeMap<String, u128>) {
        self.owned.lock().expect("not poisoned").insert(program, owned);
    }

    fn owned(&self) -> BTreeMap<usize, BTreeMap<String, u128>> {
        self.owned.lock().expect("not poisoned").clone()
    }
}

/// The role of a member, which successive programs fill.
#[derive(Debug)]
pub struct SharerJob<S> {
    /// Its machine.
    pub place: S,
    /// Its name in the history.
    pub name: String,
    /// Its number.
    pub program: usize,
    /// The settings of the partitions.
    pub terms: PartitionTerms,
    /// The state that all programs share.
    pub orders: Arc<PartitionOrders>,
}

impl<S: Workplace> SharerJob<S> {
    /// Returns at the end of the run.
    pub async fn fill(self, random: fastrand::Rng) {
        let life = |life, client, random, die: Die| {
            let sharer = Sharer {
                scene: self.place.scene(),
                client,
                name: format!("{} {life}", self.name),
                program: self.program,
                random,
                terms: self.terms,
                orders: Arc::clone(&self.orders),
                die,
                cut_off: self.place.cutting_off(),
            };
            sharer.share()
        };
        one_after_the_other(&self.place, random, life).await;
    }
}

/// A program that is a member.
struct Sharer {
    scene: Arc<dyn Scene + Send + Sync>,
    client: Client,
    name: String,
    program: usize,
    random: fastrand::Rng,
    terms: PartitionTerms,
    orders: Arc<PartitionOrders>,
    die: Die,
    cut_off: Box<dyn Fn() + Send + Sync>,
}

/// An item that a program owns.
struct Possession {
    assignment: Assignment,
    /// By when it has to give the item back.
    moves: Option<Instant>,
    /// Whether it knows that the item is lost.
    is_lost: bool,
    /// How often it looks at the item before it gives it back.
    patience: u32,
}

impl Sharer {
    /// Joins, works and leaves, until the end of the run.
    async fn share(mut self) {
        let mut phase = self.orders.phase.subscribe();
        while *phase.borrow() != Phase::Over {
            let leaves = Phase::Calm { leaves: Some(self.program) };
            if *phase.borrow() == leaves {
                // It has left and does not join again.
                self.orders.note(self.program, BTreeMap::new());
                let _ = phase.wait_for(|phase| *phase != leaves).await;
                continue;
            }
            let name = format!("member {}", self.program);
            let partitions = self.terms.partitions(&self.client, self.program);
            match partitions.join(name).await {
                Ok(member) => self.be_member(member).await,
                Err(error) => {
                    self.refused("join", &error);
                    self.pause(0.5).await;
                }
            }
        }
    }

    async fn be_member(&mut self, member: PartitionMember) {
        let mut owned = Vec::new();
        loop {
            let longest = self.upto(0.2);
            tokio::select! {
                biased;
                next = member.next() => match next {
                    Ok(assignment) => self.got(assignment, &mut owned),
                    Err(error) => {
                        self.refused("get an item", &error);
                        if !matches!(error, PartitionsError::Taken { .. } | PartitionsError::Take { .. }) {
                            break;
                        }
                    }
                },
                () = sleep(longest) => {}
            }
            self.look_after(&mut owned).await;

            let phase = *self.orders.phase.borrow();
            let is_calm = phase != Phase::Anything;
            match self.random.u8(0..200) {
                _ if phase == Phase::Over => break,
                _ if phase == (Phase::Calm { leaves: Some(self.program) }) => break,
                _ if is_calm => {}
                0 => {
                    (self.die)(true);
                    return std::future::pending().await;
                }
                1 if !self.terms.is_well => (self.cut_off)(),
                2 | 3 => break,
                _ => {}
            }
            if is_calm {
                self.is_consistent(&member, &owned);
            }
        }
        self.leave(member, owned).await;
    }

    /// Checks that the member owns what it was assigned and has not given back.
    fn is_consistent(&self, member: &PartitionMember, owned: &[Possession]) {
        let owns = member.owned();
        let held = owned.iter().filter(|it| it.assignment.is_held());
        let tokens: BTreeMap<_, _> = held
            .filter(|it| owns.iter().any(|item| item == it.assignment.item()))
            .map(|it| (it.assignment.item().to_owned(), it.assignment.token().to_u128()))
            .collect();
        self.orders.note(self.program, tokens);
    }

    fn got(&mut self, assignment: Assignment, owned: &mut Vec<Possession>) {
        let patience = match self.terms.overstays && self.random.u8(0..4) == 0 {
            true => self.random.u32(0..400),
            false => self.random.u32(0..4),
        };
        let (lock, token) = (lock_of(&assignment), assignment.token().to_u128());
        self.scene.note(&self.name, What::Granted { lock, token, share: Share::Alone });
        let mut possession = Possession { assignment, moves: None, is_lost: false, patience };
        self.claim(&mut possession);
        owned.push(possession);
    }

    /// Records until when no other program owns the item.
    fn claim(&self, possession: &mut Possession) {
        let assignment = &possession.assignment;
        let (lock, token) = (lock_of(assignment), assignment.token().to_u128());
        // Read first: its answer must be true although time has passed since.
        let deadline = assignment.deadline();
        match (assignment.state(), deadline) {
            // Its last claim still holds.
            (HolderState::Lost(LossReason::HeldTooLong), _) => {
                let is_over = possession.moves.is_some_and(|until| until <= self.client.now());
                if !is_over {
                    let item = assignment.item();
                    let until = possession.moves;
                    self.wrong(format!("{item} has ended, and moves at {until:?}"));
                }
                possession.is_lost = true;
            }
            (HolderState::Lost(reason), _) if !possession.is_lost => {
                possession.is_lost = true;
                let reason = format!("{reason:?}");
                self.scene.note(&self.name, What::Lost { lock, token, reason });
            }
            (_, Some(deadline)) => {
                if let Some(until) = self.scene.true_time(deadline) {
                    self.scene.note(&self.name, What::Claimed { lock, token, until });
                }
            }
            _ => {}
        }
    }

    /// Checks the state of its items and gives some of them back.
    async fn look_after(&mut self, owned: &mut Vec<Possession>) {
        let is_calm = *self.orders.phase.borrow() != Phase::Anything;
        let mut kept = Vec::new();
        for mut possession in owned.drain(..) {
            if let Some(until) = moves(&possession.assignment) {
                possession.moves = Some(until);
            }
            self.claim(&mut possession);
            let is_to_go = possession.moves.is_some() || possession.is_lost;
            if is_to_go {
                possession.patience = possession.patience.saturating_sub(1);
            }
            let has_tired = !is_calm && self.random.u8(0..100) == 0;
            match is_to_go && (possession.patience == 0 || is_calm) || has_tired {
                true => self.give_back(possession).await,
                false => kept.push(possession),
            }
        }
        *owned = kept;
    }

    async fn give_back(&mut self, possession: Possession) {
        let assignment = possession.assignment;
        let (lock, token) = (lock_of(&assignment), assignment.token().to_u128());
        self.scene.note(&self.name, What::GaveBack { lock, token });
        match self.random.u8(0..3) {
            0 => drop(assignment),
            1 => drop(timeout(self.upto(0.05), assignment.release()).await),
            // An error is one of the session or the server, with which the node disappears too.
            _ => drop(assignment.release().await),
        }
    }

    async fn leave(&mut self, member: PartitionMember, mut owned: Vec<Possession>) {
        if self.random.u8(0..4) == 0 {
            drop(member);
            while let Some(possession) = owned.pop() {
                self.pause(0.1).await;
                self.give_back(possession).await;
            }
            return;
        }

        let mut leaving = tokio::task::spawn_local(member.leave());
        loop {
            let longest = self.upto(0.2);
            tokio::select! {
                biased;
                left = &mut leaving => {
                    if let Ok(Err(error)) = left {
                        self.refused("leave", &error);
                    }
                    break;
                }
                () = sleep(longest) => self.look_after(&mut owned).await,
            }
        }

        let still_held = owned.iter().find(|it| it.assignment.is_held());
        if let Some(possession) = still_held {
            let item = possession.assignment.item();
            self.wrong(format!("has left and still owns {item}"));
        }
        for possession in owned {
            self.give_back(possession).await;
        }
    }

    /// Handles an error: reports it if nothing can justify it.
    fn refused(&self, what: &str, error: &PartitionsError) {
        let what = format!("does not {what}: {error}");
        // The session of a crashed program may outlast a restart of the server, which renews its full timeout.
        let is_taken = matches!(error, PartitionsError::Taken { .. });
        match self.terms.is_well && !is_taken {
            true => self.wrong(what),
            false => self.scene.note(&self.name, What::Note(what)),
        }
    }

    fn wrong(&self, what: String) {
        self.scene.note(&self.name, What::WrongPartition(what));
    }

    /// A random time, up to this share of the pace.
    fn upto(&mut self, share: f64) -> Duration {
        self.scene.pace().mul_f64(share * self.random.f64())
    }

    async fn pause(&mut self, share: f64) {
        sleep(self.upto(share)).await;
    }
}

fn lock_of(assignment: &Assignment) -> String {
    format!("{PATH}/{}", assignment.item())
}

/// By when an item is to be given back, as far as its holder knows.
fn moves(assignment: &Assignment) -> Option<Instant> {
    let moving = std::pin::pin!(assignment.moving());
    match moving.poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(until) => Some(until),
        std::task::Poll::Pending => None,
    }
}

/// After the faults: every item has one owner; when one member leaves, only its items move; and no node remains at the
/// end. `patience`: longer than any successful operation takes.
pub async fn settle(
    scene: &Arc<dyn Scene + Send + Sync>,
    client: &Client,
    terms: PartitionTerms,
    orders: &PartitionOrders,
    jobs: Vec<JoinHandle<()>>,
    patience: Duration,
) {
    let phases = [Phase::Calm { leaves: None }, Phase::Calm { leaves: Some(0) }];
    let mut before: Option<BTreeMap<usize, BTreeMap<String, u128>>> = None;
    for phase in phases {
        orders.phase.send_replace(phase);
        let Some(after) = all_are_owned(scene, terms, orders, phase, patience).await else {
            return;
        };
        // On a slow network, a lease may end at any time.
        if let Some(before) = before.as_ref().filter(|_| terms.is_well) {
            for (program, items) in before.iter().filter(|(program, _)| **program != 0) {
                let kept =
                    |(item, token): (&String, &u128)| after[program].get(item) == Some(token);
                if !items.iter().all(kept) {
                    let what =
                        format!("items of {program} move without need: {before:?}, {after:?}");
                    scene.note("world", What::WrongPartition(what));
                }
            }
        }
        before = Some(after);
    }

    orders.phase.send_replace(Phase::Over);
    for job in jobs {
        if timeout(patience, job).await.is_err() {
            scene.note("world", What::Stuck("a member does not leave".into()));
        }
    }
    let owners = ZnodePath::new(&format!("{PATH}/owners")).expect("a valid path");
    let begin = scene.now();
    loop {
        let _ = retried(GLANCE, || client.sync(&owners)).await;
        let left = match client.children(&owners).await {
            Ok((names, _)) => names,
            Err(error) if error.code().is_some() => Vec::new(),
            Err(error) => vec![error.to_string()],
        };
        if left.is_empty() {
            return;
        }
        if scene.now() - begin > patience {
            return scene.note("world", What::Left(format!("items: {left:?}")));
        }
        sleep(GLANCE).await;
    }
}

/// Waits until each item has had one owner for so long that no further move is pending.
async fn all_are_owned(
    scene: &Arc<dyn Scene + Send + Sync>,
    terms: PartitionTerms,
    orders: &PartitionOrders,
    phase: Phase,
    patience: Duration,
) -> Option<BTreeMap<usize, BTreeMap<String, u128>>> {
    let begin = scene.now();
    let mut last = BTreeMap::new();
    let mut since = begin;
    loop {
        let owned = orders.owned();
        let count: usize = owned.values().map(BTreeMap::len).sum();
        let has_left = match phase {
            Phase::Calm { leaves: Some(program) } => {
                owned.get(&program).is_some_and(BTreeMap::is_empty)
            }
            _ => owned.len() == terms.programs,
        };
        let is_complete = has_left && count == terms.items;
        if !is_complete || owned != last {
            since = scene.now();
        }
        if scene.now() - since > Duration::from_secs(20) {
            return Some(owned);
        }
        if scene.now() - begin > patience * 2 {
            let what =
                format!("{count} of {} items are owned in {phase:?}: {owned:?}", terms.items);
            scene.note("world", What::Stuck(what));
            return None;
        }
        last = owned;
        sleep(GLANCE).await;
    }
}
