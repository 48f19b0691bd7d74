//! How much of the events of one transaction goes to whom.
//!
//! A transaction has up to some ten thousand events, and ten thousand clients may watch all of them. So what
//! it may send to all together is limited. Whoever gets little of it is never affected.

use crate::share::{LITTLE, allowance};

/// What an event weighs besides its bytes, for each watch that it meets: the work.
pub(crate) const EVENT_WEIGHT: usize = 256;

/// What the events of the present transaction weigh, and how many recipients have much of that.
#[derive(Default)]
pub(crate) struct FanOut {
    /// Which transaction it is, so that what was counted for an earlier one counts no more.
    transaction: u64,
    max: usize,
    taken: usize,
    large: usize,
}

/// What one recipient has of it.
#[derive(Default)]
pub(crate) struct Share {
    transaction: u64,
    weight: usize,
    /// Where the transaction's events begin in what is to be sent.
    begin: usize,
}

impl FanOut {
    /// Goes on to the next transaction, whose events may weigh `max`.
    pub(crate) fn next(&mut self, max: usize) {
        *self = Self { transaction: self.transaction + 1, max, taken: 0, large: 0 };
    }

    /// What all events of it weigh so far.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Counts an event for a recipient to whom `sent` bytes were sent before. If it is over its share
    /// now, the error says where the events of this transaction begin.
    pub(crate) fn count(
        &mut self,
        share: &mut Share,
        sent: usize,
        more: usize,
    ) -> Result<(), usize> {
        if share.transaction != self.transaction {
            *share = Share { transaction: self.transaction, weight: 0, begin: sent };
        }
        let before = share.weight;
        share.weight += more;
        self.taken += more;
        self.large += usize::from(before <= LITTLE && share.weight > LITTLE);
        match share.weight <= allowance(self.taken, self.max, self.large) {
            true => Ok(()),
            false => Err(share.begin),
        }
    }
}
