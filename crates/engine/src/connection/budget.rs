//! The memory budget of all waiting data: replies and events that clients have not read yet, and requests that are
//! incomplete or not handled yet. The memory of watches and identities, which the tree keeps, and the memory that TLS
//! may hold reduce it.
//!
//! Up to half of the budget, each connection may use as much as its own limits allow. Above that, a connection that
//! uses more than its share is not read until it uses less, and a client that does not read its replies is
//! disconnected, the largest first (see `tree_loop::load_shedding`). Connections that use little, as most do at most
//! times, are not affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) use lockkeeper_tree::SMALL_SHARE_BYTES;
use lockkeeper_tree::allowance;

/// How often connections are checked while memory is short, and how long a connection that uses too much waits before
/// it checks again.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Counts the waiting data of all connections.
#[derive(Debug)]
pub(crate) struct Budget {
    max: usize,
    /// The bytes of all accounts.
    waiting: AtomicUsize,
    /// The number of accounts with more than [`SMALL_SHARE_BYTES`].
    large: AtomicUsize,
    /// The memory of all watches.
    watches: AtomicUsize,
    /// The memory of all identities.
    identities: AtomicUsize,
    /// The memory charged for TLS connections.
    tls: AtomicUsize,
    /// Whether the process uses most of the available memory, whatever is counted here.
    is_short: AtomicBool,
}

/// One in this many parts of the remaining budget may be used while the process is short of memory.
const SHORT_FRACTION: usize = 4;

/// How much of the budget is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Less than half.
    None,
    /// More than half: shares apply.
    Half,
    /// All of it, or more: large accounts must shrink, whoever owns them.
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

    /// The bytes of waiting data, without watches.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The bytes of all watches.
    pub(crate) fn watches(&self) -> usize {
        self.watches.load(Ordering::Relaxed)
    }

    pub(crate) fn set_watches(&self, bytes: usize) {
        self.watches.store(bytes, Ordering::Relaxed);
    }

    /// The bytes of all identities.
    pub(crate) fn identities(&self) -> usize {
        self.identities.load(Ordering::Relaxed)
    }

    pub(crate) fn set_identities(&self, bytes: usize) {
        self.identities.store(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that TLS connections hold, and returns their total. They are not charged to accounts: a connection
    /// that uses only these counts as small.
    pub(super) fn add_tls(&self, bytes: usize) -> usize {
        self.tls.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    pub(super) fn subtract_tls(&self, bytes: usize) {
        self.tls.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The bytes that all TLS connections may hold.
    pub(crate) fn max_tls(&self) -> usize {
        self.max / 2
    }

    /// The bytes that TLS connections hold.
    pub(crate) fn tls(&self) -> usize {
        self.tls.load(Ordering::Relaxed)
    }

    /// Records whether the process uses most of the available memory.
    pub(crate) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    /// The budget that watches, identities and TLS leave, as far as the process has that much memory.
    fn left(&self) -> usize {
        let left = self.max.saturating_sub(self.watches() + self.identities() + self.tls());
        match self.is_short.load(Ordering::Relaxed) {
            true => left / SHORT_FRACTION,
            false => left,
        }
    }

    pub(crate) fn pressure(&self) -> Pressure {
        self.pressure_of(self.waiting())
    }

    /// The pressure if this many bytes were waiting.
    pub(crate) fn pressure_of(&self, waiting: usize) -> Pressure {
        let left = self.left();
        match () {
            () if waiting <= left / 2 => Pressure::None,
            () if waiting <= left => Pressure::Half,
            () => Pressure::Full,
        }
    }

    /// How many more bytes may wait before the budget is used up.
    pub(crate) fn room(&self) -> usize {
        self.left().saturating_sub(self.waiting())
    }

    /// The bytes that a connection may use at present.
    fn allowance(&self) -> usize {
        allowance(self.waiting(), self.left(), self.large.load(Ordering::Relaxed))
    }
}

/// The waiting data of one connection, in both directions. The remainder is returned when it is dropped.
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
        if before <= SMALL_SHARE_BYTES && before + bytes > SMALL_SHARE_BYTES {
            self.budget.large.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Subtracts bytes that were added before.
    pub(crate) fn subtract(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.waiting.fetch_sub(bytes, Ordering::Relaxed);
        if before > SMALL_SHARE_BYTES && before - bytes <= SMALL_SHARE_BYTES {
            self.budget.large.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether this connection may use more now.
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

    const MAX: usize = 100 * SMALL_SHARE_BYTES;

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
        assert!(with(&budget, MAX / 10).may_grow(), "it uses less than its share");
    }

    #[test]
    fn shares_get_smaller_with_the_number_of_those_who_take_much() {
        let budget = Budget::new(MAX);
        let many: Vec<Account> = (0..10).map(|_| with(&budget, 8 * SMALL_SHARE_BYTES)).collect();
        assert_eq!(budget.pressure(), Pressure::Half);
        assert!(many.iter().all(|account| !account.may_grow()), "the share of each is 5");
        let small = with(&budget, 5 * SMALL_SHARE_BYTES - 1);
        assert!(!small.may_grow(), "an eleventh");
        small.subtract(SMALL_SHARE_BYTES);
        assert!(small.may_grow());
    }

    #[test]
    fn when_all_is_taken_a_little_is_left_for_everyone() {
        let budget = Budget::new(MAX);
        let greedy = with(&budget, MAX + 1);
        assert_eq!(budget.pressure(), Pressure::Full);
        let modest = with(&budget, SMALL_SHARE_BYTES);
        assert!(modest.may_grow());
        assert!(!with(&budget, SMALL_SHARE_BYTES + 1).may_grow());
        drop(greedy);
        assert_eq!((budget.waiting(), budget.pressure()), (SMALL_SHARE_BYTES, Pressure::None));
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
        assert!(with(&budget, SMALL_SHARE_BYTES).may_grow());
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
        let accounts: Vec<Account> =
            (1..9).map(|n| with(&budget, n * SMALL_SHARE_BYTES / 2)).collect();
        accounts[7].subtract(3 * SMALL_SHARE_BYTES);
        drop(accounts);
        assert_eq!((budget.waiting(), budget.large.load(Ordering::Relaxed)), (0, 0));
    }
}
