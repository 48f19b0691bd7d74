//! Programs that share items, come and go, die, give items back, and keep some for too long. Each item is a lock to
//! [`crate::checker`]: what its owners are told of leases and tokens is judged as that of any lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use lockkeeper::{
    Assignment, Client, Instant, LossReason, PartitionMember, Partitions, PartitionsError, State,
    ZnodePath,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::crew::{Die, Workplace, one_after_the_other};
use super::{Scene, retried};
use crate::history::{Share, What};

const PATH: &str = "/partitions/shards";

/// Between two looks at what has become of something.
const GLANCE: Duration = Duration::from_millis(200);

/// What the partitions of a run are like.
#[derive(Clone, Copy, Debug)]
pub struct PartitionTerms {
    /// How many programs there are.
    pub programs: usize,
    items: usize,
    /// Whether the weights of the programs differ.
    weighs: bool,
    grace: Duration,
    settle: Duration,
    /// Whether items are kept for too long.
    overstays: bool,
    /// Whether nothing that happens is a reason for an error.
    is_well: bool,
}

impl PartitionTerms {
    /// Any; `is_well`: no session is lost, and no server is away for as long as one lives.
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
        builder.grace(self.grace).settle(self.settle).build().expect("a path")
    }
}

/// What the programs of a run are to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Anything,
    /// They keep what they have, and give back what moves. This one leaves.
    Calm { leaves: Option<usize> },
    /// All leave.
    Over,
}

/// What the programs of a run know of each other.
#[derive(Debug, Default)]
pub struct PartitionOrders {
    phase: watch::Sender<Phase>,
    /// What each program has, with the tokens.
    owned: Mutex<BTreeMap<usize, BTreeMap<String, u128>>>,
}

impl PartitionOrders {
    fn note(&self, program: usize, owned: BTreeMap<String, u128>) {
        self.owned.lock().expect("nobody panics with it").insert(program, owned);
    }

    fn owned(&self) -> BTreeMap<usize, BTreeMap<String, u128>> {
        self.owned.lock().expect("nobody panics with it").clone()
    }
}

/// The job of a member, which one program after the other has.
#[derive(Debug)]
pub struct SharerJob<S> {
    /// Its machine.
    pub place: S,
    /// What it is called.
    pub name: String,
    /// Its number.
    pub program: usize,
    /// What the partitions are like.
    pub terms: PartitionTerms,
    /// What all programs know.
    pub orders: Arc<PartitionOrders>,
}

impl<S: Workplace> SharerJob<S> {
    /// Returns when all is over.
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

/// Something that a program has.
struct Possession {
    assignment: Assignment,
    /// Until when it was told to finish.
    moves: Option<Instant>,
    /// Whether it was told that it has lost it.
    is_lost: bool,
    /// How often it looks at it before it gives it back.
    patience: u32,
}

impl Sharer {
    /// Joins, works and leaves, until all is over.
    async fn share(mut self) {
        let mut phase = self.orders.phase.subscribe();
        while *phase.borrow() != Phase::Over {
            let leaves = Phase::Calm { leaves: Some(self.program) };
            if *phase.borrow() == leaves {
                // It has left, and stays away.
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

    /// It has what it was given and did not give back.
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

    /// Says until when nobody else has it.
    fn claim(&self, possession: &mut Possession) {
        let assignment = &possession.assignment;
        let (lock, token) = (lock_of(assignment), assignment.token().to_u128());
        // Asked for first: what it says must be true although time has passed since.
        let deadline = assignment.deadline();
        match (assignment.state(), deadline) {
            // What it was told before still holds.
            (State::Lost(LossReason::HeldTooLong), _) => {
                let is_over = possession.moves.is_some_and(|until| until <= self.client.now());
                if !is_over {
                    let item = assignment.item();
                    let until = possession.moves;
                    self.wrong(format!("{item} has ended, and moves at {until:?}"));
                }
                possession.is_lost = true;
            }
            (State::Lost(reason), _) if !possession.is_lost => {
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

    /// Looks what has become of what it has, and gives some of it back.
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
            // Its error is that of a session or a server, with which the node goes too.
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
            self.wrong(format!("has left, and still has {item}"));
        }
        for possession in owned {
            self.give_back(possession).await;
        }
    }

    /// An error that has no reason where all is well.
    fn refused(&self, what: &str, error: &PartitionsError) {
        let what = format!("does not {what}: {error}");
        // The session of an earlier life may outlast a restart of the server, which gives it all its time again.
        let is_taken = matches!(error, PartitionsError::Taken { .. });
        match self.terms.is_well && !is_taken {
            true => self.wrong(what),
            false => self.scene.note(&self.name, What::Note(what)),
        }
    }

    fn wrong(&self, what: String) {
        self.scene.note(&self.name, What::WrongPartition(what));
    }

    /// Some time, up to so much of the pace.
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

/// Until when an item is to be given back, as far as its holder was told.
fn moves(assignment: &Assignment) -> Option<Instant> {
    let moving = std::pin::pin!(assignment.moving());
    match moving.poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(until) => Some(until),
        std::task::Poll::Pending => None,
    }
}

/// After the faults: every item has one owner; when one member leaves, its items move and no others; and in the end
/// nothing is left. `patience`: longer than anything takes.
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
    let owners = ZnodePath::new(&format!("{PATH}/owners")).expect("a path");
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

/// Waits until each item has one owner, for long enough that nothing more is about to move.
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
