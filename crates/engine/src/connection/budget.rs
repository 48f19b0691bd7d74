//! One budget of memory for all that waits: replies and events that clients have not taken yet, and
//! requests that are not whole or not handled yet. Watches and identities, which the tree keeps, and what
//! TLS may hold leave less of it.
//!
//! Up to half of the budget everyone may take as much as its own limits allow. Beyond that, who has
//! more than its share takes no more until it has less, and who takes nothing of what waits for it
//! loses its connection, the largest first (see `tree_loop::load_shedding`). Who has little, as nearly everyone has
//! at nearly any time, notices nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) use lockkeeper_tree::LITTLE;
use lockkeeper_tree::allowance;

/// How often connections are looked at while memory is short, and how long one that has too much of it
/// waits before it looks again.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Counts what waits for all connections.
#[derive(Debug)]
pub(crate) struct Budget {
    max: usize,
    /// Bytes of all accounts.
    waiting: AtomicUsize,
    /// How many accounts have more than [`LITTLE`].
    large: AtomicUsize,
    /// What the watches of all connections weigh.
    watches: AtomicUsize,
    /// What the identities of all connections weigh.
    identities: AtomicUsize,
    /// What connections with TLS are counted with.
    tls: AtomicUsize,
    /// Whether the process has most of the memory that there is, whatever is counted here.
    is_short: AtomicBool,
}

/// One part in so many of what is left may be taken while the process is short of memory.
const SHORT: usize = 4;

/// How much of the budget is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Less than half.
    None,
    /// More than half: shares count.
    Half,
    /// All of it, or more: what is large has to go, whoever takes it.
    Full,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            waiting: AtomicUsize::new(0),
            large: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            identities: AtomicUsize::new(0),
            tls: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
        })
    }

    /// The whole budget, in bytes.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// How many bytes of it are taken by what waits, watches not counted.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many bytes the watches of all connections take.
    pub(crate) fn watches(&self) -> usize {
        self.watches.load(Ordering::Relaxed)
    }

    pub(crate) fn set_watches(&self, bytes: usize) {
        self.watches.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes the identities of all connections take.
    pub(crate) fn identities(&self) -> usize {
        self.identities.load(Ordering::Relaxed)
    }

    pub(crate) fn set_identities(&self, bytes: usize) {
        self.identities.store(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that connections with TLS hold, and returns how many there are. Not on their accounts:
    /// a connection that has no more than these has little.
    pub(super) fn add_tls(&self, bytes: usize) -> usize {
        self.tls.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    pub(super) fn subtract_tls(&self, bytes: usize) {
        self.tls.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How many bytes connections with TLS may hold together.
    pub(crate) fn max_tls(&self) -> usize {
        self.max / 2
    }

    /// How many bytes connections with TLS hold.
    pub(crate) fn tls(&self) -> usize {
        self.tls.load(Ordering::Relaxed)
    }

    /// Says whether the process has most of the memory that there is.
    pub(crate) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    /// What watches, identities and TLS leave, as far as the process has so much memory.
    fn left(&self) -> usize {
        let left = self.max.saturating_sub(self.watches() + self.identities() + self.tls());
        match self.is_short.load(Ordering::Relaxed) {
            true => left / SHORT,
            false => left,
        }
    }

    pub(crate) fn pressure(&self) -> Pressure {
        self.pressure_of(self.waiting())
    }

    /// The pressure if so many bytes were waiting.
    pub(crate) fn pressure_of(&self, waiting: usize) -> Pressure {
        let left = self.left();
        match () {
            () if waiting <= left / 2 => Pressure::None,
            () if waiting <= left => Pressure::Half,
            () => Pressure::Full,
        }
    }

    /// How many bytes more may wait before all of it is taken.
    pub(crate) fn room(&self) -> usize {
        self.left().saturating_sub(self.waiting())
    }

    /// How many bytes a connection may have at present.
    fn allowance(&self) -> usize {
        allowance(self.waiting(), self.left(), self.large.load(Ordering::Relaxed))
    }
}

/// What waits for one connection, or from it. What is left at its end is given back.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
}

impl Account {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, bytes: AtomicUsize::new(0) }
    }

    pub(crate) fn add(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.waiting.fetch_add(bytes, Ordering::Relaxed);
        if before <= LITTLE && before + bytes > LITTLE {
            self.budget.large.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes away what was added before.
    pub(crate) fn subtract(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.waiting.fetch_sub(bytes, Ordering::Relaxed);
        if before > LITTLE && before - bytes <= LITTLE {
            self.budget.large.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether more may be taken for this connection now.
    pub(crate) fn may_grow(&self) -> bool {
        self.bytes() <= self.budget.allowance()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.subtract(self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 100 * LITTLE;

    fn with(budget: &Arc<Budget>, bytes: usize) -> Account {
        let account = Account::new(budget.clone());
        account.add(bytes);
        account
    }

    #[test]
    fn half_of_it_is_free_for_all() {
        let budget = Budget::new(MAX);
        let one = with(&budget, MAX / 2);
        assert_eq!(budget.pressure(), Pressure::None);
        assert!(one.may_grow());
        one.add(1);
        assert_eq!(budget.pressure(), Pressure::Half);
        assert!(!one.may_grow());
        assert!(with(&budget, MAX / 10).may_grow(), "it has less than its share");
    }

    #[test]
    fn shares_get_smaller_with_the_number_of_those_who_take_much() {
        let budget = Budget::new(MAX);
        let many: Vec<Account> = (0..10).map(|_| with(&budget, 8 * LITTLE)).collect();
        assert_eq!(budget.pressure(), Pressure::Half);
        assert!(many.iter().all(|account| !account.may_grow()), "5 would be the share of each");
        let small = with(&budget, 5 * LITTLE - 1);
        assert!(!small.may_grow(), "an eleventh");
        small.subtract(LITTLE);
        assert!(small.may_grow());
    }

    #[test]
    fn when_all_is_taken_a_little_is_left_for_everyone() {
        let budget = Budget::new(MAX);
        let greedy = with(&budget, MAX + 1);
        assert_eq!(budget.pressure(), Pressure::Full);
        let modest = with(&budget, LITTLE);
        assert!(modest.may_grow());
        assert!(!with(&budget, LITTLE + 1).may_grow());
        drop(greedy);
        assert_eq!((budget.waiting(), budget.pressure()), (LITTLE, Pressure::None));
    }

    #[test]
    fn watches_leave_less() {
        let budget = Budget::new(MAX);
        let one = with(&budget, MAX / 2);
        budget.set_watches(MAX / 4);
        assert_eq!(budget.pressure(), Pressure::Half);
        budget.set_watches(MAX);
        assert_eq!(budget.pressure(), Pressure::Full);
        drop(one);
        assert_eq!(budget.pressure(), Pressure::None);
    }

    #[test]
    fn a_process_that_is_short_of_memory_has_less() {
        let budget = Budget::new(MAX);
        let one = with(&budget, MAX / 4);
        assert_eq!(budget.pressure(), Pressure::None);
        budget.set_short(true);
        assert_eq!(budget.pressure(), Pressure::Half);
        one.add(1);
        assert_eq!(budget.pressure(), Pressure::Full);
        assert!(with(&budget, LITTLE).may_grow());
        budget.set_short(false);
        assert_eq!(budget.pressure(), Pressure::None);
    }

    #[test]
    fn tls_leaves_less_and_makes_nobody_large() {
        let budget = Budget::new(MAX);
        let one = with(&budget, MAX / 2);
        assert_eq!(budget.pressure(), Pressure::None);
        assert_eq!(budget.add_tls(MAX / 2), budget.max_tls());
        assert_eq!((budget.tls(), budget.pressure()), (MAX / 2, Pressure::Half));
        assert_eq!(budget.large.load(Ordering::Relaxed), 1);
        budget.subtract_tls(MAX / 2);
        assert_eq!((budget.tls(), budget.pressure()), (0, Pressure::None));
        drop(one);
    }

    #[test]
    fn nothing_is_left_of_an_account() {
        let budget = Budget::new(MAX);
        let accounts: Vec<Account> = (1..9).map(|n| with(&budget, n * LITTLE / 2)).collect();
        accounts[7].subtract(3 * LITTLE);
        drop(accounts);
        assert_eq!((budget.waiting(), budget.large.load(Ordering::Relaxed)), (0, 0));
    }
}
