//! Limits the watch events of one transaction.
//!
//! A transaction can have up to some ten thousand events, and ten thousand clients may watch all of them. So
//! the total size of the events of one transaction is limited. Clients that receive few events are never
//! affected.

use crate::share::{SMALL_SHARE_BYTES, allowance};

/// The weight of an event for each watch that fires, in addition to its bytes. It accounts for the processing
/// time.
pub(crate) const EVENT_WEIGHT: usize = 256;

/// The total size of the events of the current transaction, and how many recipients receive many of them.
#[derive(Default)]
pub(crate) struct FanOut {
    /// The current transaction. Counts of earlier transactions are ignored.
    transaction: u64,
    max: usize,
    taken: usize,
    large: usize,
}

/// The share of one recipient.
#[derive(Default)]
pub(crate) struct Share {
    transaction: u64,
    weight: usize,
    /// The position of the transaction's first event in the output.
    begin: usize,
}

impl FanOut {
    /// Starts the next transaction, whose events may have the total size `max`.
    pub(crate) fn next(&mut self, max: usize) {
        *self = Self { transaction: self.transaction + 1, max, taken: 0, large: 0 };
    }

    /// The total size of all events so far.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Counts an event for a recipient that has been sent `sent` bytes before. If the recipient is above its
    /// share, the error is the position of the first event of this transaction.
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
        self.large += usize::from(before <= SMALL_SHARE_BYTES && share.weight > SMALL_SHARE_BYTES);
        match share.weight <= allowance(self.taken, self.max, self.large) {
            true => Ok(()),
            false => Err(share.begin),
        }
    }
}
