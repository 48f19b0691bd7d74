//! What the programs have, and whether that is as promised.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lockkeeper::{Assignment, HolderState};
use tokio::time::Instant;

use crate::machine::{Machine, true_time};

/// Which program has each item, and the token.
pub(super) type Owners = BTreeMap<String, (usize, u128)>;

/// What the programs have. The guards are here, so that the last holder's can be asked at the moment at which the next one has
/// its own.
pub(super) struct Judge {
    start: Instant,
    machines: Vec<Arc<Machine>>,
    state: RefCell<JudgeState>,
}

#[derive(Default)]
struct JudgeState {
    held: Vec<BTreeMap<String, Assignment>>,
    /// Which programs may lose what they have.
    may_lose: Vec<bool>,
    leases: BTreeMap<String, LastLease>,
    /// What was not as promised first.
    wrong: Option<String>,
}

/// The last lease of an item.
struct LastLease {
    who: usize,
    token: u128,
    /// The latest true time until which its holder may rely on the item.
    until: Duration,
    is_given_back: bool,
}

impl Judge {
    pub(super) fn new(start: Instant, machines: &[Arc<Machine>]) -> Self {
        let held = machines.iter().map(|_| BTreeMap::new()).collect();
        let may_lose = vec![false; machines.len()];
        let state = JudgeState { held, may_lose, ..JudgeState::default() };
        Self { start, machines: machines.to_vec(), state: RefCell::new(state) }
    }

    /// Something is not as promised.
    pub(super) fn wrong(&self, what: String) {
        self.state.borrow_mut().wrong(self.now(), what);
    }

    pub(super) fn verdict(&self) -> Result<(), String> {
        self.state.borrow().wrong.clone().map_or(Ok(()), Err)
    }

    pub(super) fn set_may_lose(&self, who: usize, may_lose: bool) {
        self.state.borrow_mut().may_lose[who] = may_lose;
    }

    /// A program got an error.
    pub(super) fn refused(&self, who: usize, error: String) {
        let state = &mut *self.state.borrow_mut();
        if !state.may_lose[who] {
            state.wrong(self.now(), format!("program {who}: {error}"));
        }
    }

    /// A program is given an item.
    pub(super) fn granted(&self, who: usize, assignment: Assignment) {
        let (item, token) = (assignment.item().to_owned(), assignment.token().to_u128());
        let now = self.now();
        let state = &mut *self.state.borrow_mut();
        (0..state.held.len()).for_each(|holder| self.ask(state, holder, Some(&item)));

        if let Some(last) = state.leases.get(&item) {
            let LastLease { who: other, token: before, until, is_given_back } = *last;
            if !is_given_back && until > now {
                let until = until.as_secs_f64();
                state.wrong(
                    now,
                    format!("program {who} is given {item}, which {other} has until {until:.3} s"),
                );
            }
            if before >= token {
                state.wrong(
                    now,
                    format!(
                        "{item} has the token {token} at {who}, and {before} at {other} before"
                    ),
                );
            }
        }
        state
            .leases
            .insert(item.clone(), LastLease { who, token, until: now, is_given_back: false });
        state.held[who].insert(item, assignment);
    }

    /// What a program has lost, or is to give back, which is taken out of what it has.
    pub(super) fn given_back(&self, who: usize) -> Vec<Assignment> {
        let now = self.now();
        let state = &mut *self.state.borrow_mut();
        self.ask(state, who, None);
        let mut given_back = Vec::new();
        for (item, assignment) in std::mem::take(&mut state.held[who]) {
            match assignment.state() {
                HolderState::Lost(reason) => {
                    if !state.may_lose[who] {
                        state.wrong(now, format!("program {who} has lost {item}: {reason:?}"));
                    }
                    given_back.push(assignment);
                }
                _ if is_moving(&assignment) => {
                    let token = assignment.token().to_u128();
                    let leases = state.leases.get_mut(&item).filter(|lease| lease.token == token);
                    leases.into_iter().for_each(|lease| lease.is_given_back = true);
                    given_back.push(assignment);
                }
                _ => drop(state.held[who].insert(item, assignment)),
            }
        }
        given_back
    }

    pub(super) fn has_nothing(&self, who: usize) -> bool {
        self.state.borrow().held[who].is_empty()
    }

    /// A program has died, and others have what it had.
    pub(super) fn forget(&self, who: usize) {
        let held = std::mem::take(&mut self.state.borrow_mut().held[who]);
        drop(held);
    }

    /// Which program has each item, and is not about to give it back.
    pub(super) fn owners(&self) -> Owners {
        let now = self.now();
        let state = &mut *self.state.borrow_mut();
        let (mut owners, mut twice) = (Owners::new(), None);
        for (who, held) in state.held.iter().enumerate() {
            for (item, assignment) in held.iter().filter(|(_, it)| it.is_held()) {
                let owner = (who, assignment.token().to_u128());
                if let Some((other, _)) = owners.insert(item.clone(), owner) {
                    twice = Some(format!("{item} is held by {other} and by {who}"));
                }
            }
        }
        twice.into_iter().for_each(|twice| state.wrong(now, twice));
        owners.retain(|item, (who, _)| !is_moving(&state.held[*who][item]));
        owners
    }

    /// Records until when a program may rely on its items, or on this item.
    fn ask(&self, state: &mut JudgeState, who: usize, item: Option<&str>) {
        let clock = self.machines[who].clock;
        let asked =
            state.held[who].iter().filter(|(name, _)| item.is_none_or(|item| item == *name));
        for (item, assignment) in asked {
            // Asked for first: what it says must be true although time has passed since.
            let deadline = assignment.deadline();
            let is_lost = matches!(assignment.state(), HolderState::Lost(_));
            let token = assignment.token().to_u128();
            let lease = state.leases.get_mut(item).filter(|lease| lease.token == token);
            if let (Some(deadline), Some(lease), false) = (deadline, lease, is_lost) {
                lease.until = lease.until.max(clock.true_time(deadline));
            }
        }
    }

    fn now(&self) -> Duration {
        true_time(self.start)
    }
}

impl JudgeState {
    fn wrong(&mut self, now: Duration, what: String) {
        self.wrong.get_or_insert_with(|| format!("at {:.3} s: {what}", now.as_secs_f64()));
    }
}

fn is_moving(assignment: &Assignment) -> bool {
    let moving = std::pin::pin!(assignment.moving());
    matches!(moving.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

/// The member that each item belongs to, as `docs/rendezvous.md` defines for members of equal weight. `members`: the
/// member of each name.
pub(super) fn owners_by_hash(
    members: &BTreeMap<String, usize>,
    items: impl Iterator<Item = String>,
) -> BTreeMap<String, usize> {
    let owner = |item: String| {
        let key = digest(&item);
        let draw = |name: &str| mix((key ^ digest(name)).wrapping_add(0x9e37_79b9_7f4a_7c15));
        let best = members.iter().max_by_key(|(name, _)| (draw(name), Reverse(*name)));
        best.map(|(_, who)| (item, *who))
    };
    items.filter_map(owner).collect()
}

fn digest(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    mix(hash)
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
