//! The memory of TLS connections in the budget, and the share of one origin.
//!
//! Before its handshake is complete, a connection is charged for the data that it has really sent: a client that sends
//! five bytes is charged no more than these hold. Afterwards, it is charged for all that it may hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::budget::Budget;

/// The memory that a TLS connection may hold beyond that of a plain one, in bytes: its state, an incomplete record (18
/// KiB), a decrypted record (16 KiB), and encrypted data that is not sent yet (32 KiB).
pub(crate) const TLS_BYTES: usize = 72 * 1024;

/// The memory of a handshake besides the client's data, in bytes: its state, the smallest read buffer (4 KiB), and the
/// engine's certificate.
pub(crate) const HANDSHAKE_BYTES: u32 = 8 * 1024;

/// The longest handshake message, in bytes.
const LONGEST_MESSAGE: usize = 64 * 1024;

/// The memory that the TLS connections of one origin use and may use.
#[derive(Debug)]
pub(crate) struct TlsShare {
    held: AtomicUsize,
    /// Three quarters of the memory of TLS.
    max: usize,
    /// The bytes that unfinished handshakes may still use: a quarter of the memory of TLS.
    unfinished: Arc<Semaphore>,
    /// Held by the handshake that proceeds. Origins take turns, however many handshakes each has.
    turn: Arc<Semaphore>,
}

impl TlsShare {
    /// A share of the memory that all TLS connections may hold, in bytes.
    pub(crate) fn of(all: usize) -> Self {
        let least = HANDSHAKE_BYTES as usize + LONGEST_MESSAGE;
        let unfinished = (all / 4).clamp(least, Semaphore::MAX_PERMITS);
        Self {
            held: AtomicUsize::new(0),
            max: all - all / 4,
            unfinished: Arc::new(Semaphore::new(unfinished)),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    pub(crate) fn turn(&self) -> Arc<Semaphore> {
        self.turn.clone()
    }
}

/// Why a TLS connection gets no memory.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    #[error("TLS connections use half of the memory budget")]
    All,
    #[error("TLS connections from one address use three quarters of the memory of TLS")]
    Origin,
    #[error("handshakes from one address use a quarter of the memory of TLS")]
    Handshakes,
}

/// Charges a TLS connection to the budget and to the share of its origin; released on drop.
#[derive(Debug)]
pub(crate) struct TlsCharge {
    budget: Arc<Budget>,
    share: Arc<TlsShare>,
    bytes: AtomicUsize,
    /// Present until the handshake is complete.
    unfinished: Mutex<Option<OwnedSemaphorePermit>>,
}

impl TlsCharge {
    /// Begins a handshake. Waits while other handshakes of its origin use all that they may use together; the client's
    /// data stays in the operating system until then. Cancel-safe.
    pub(crate) async fn begin(
        budget: &Arc<Budget>,
        share: &Arc<TlsShare>,
    ) -> Result<Arc<Self>, NoRoom> {
        let permit = share.unfinished.clone().acquire_many_owned(HANDSHAKE_BYTES).await;
        let charge = Self {
            budget: budget.clone(),
            share: share.clone(),
            bytes: AtomicUsize::new(0),
            unfinished: Mutex::new(Some(permit.map_err(|_| NoRoom::Handshakes)?)),
        };
        charge.add(HANDSHAKE_BYTES as usize)?;
        Ok(Arc::new(charge))
    }

    /// Charges further bytes that the handshake has read.
    pub(crate) fn grow(&self, bytes: usize) -> Result<(), NoRoom> {
        let count = u32::try_from(bytes).map_err(|_| NoRoom::Handshakes)?;
        let more = self.share.unfinished.clone().try_acquire_many_owned(count);
        let more = more.map_err(|_| NoRoom::Handshakes)?;
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permit) = &mut *unfinished {
            permit.merge(more);
        }
        self.add(bytes)
    }

    /// Records that the handshake is complete.
    pub(crate) fn finish(&self) -> Result<(), NoRoom> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).take();
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.subtract(bytes.saturating_sub(TLS_BYTES));
        self.add(TLS_BYTES.saturating_sub(bytes))
    }

    /// A refused amount is charged as well, until the connection ends.
    fn add(&self, bytes: usize) -> Result<(), NoRoom> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let held = self.share.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.budget.add_tls(bytes);
        match () {
            () if all > self.budget.max_tls() => Err(NoRoom::All),
            () if held > self.share.max => Err(NoRoom::Origin),
            () => Ok(()),
        }
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.share.held.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.subtract_tls(bytes);
    }
}

impl Drop for TlsCharge {
    fn drop(&mut self) {
        self.subtract(self.bytes.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::connection::budget::Pressure;

    const ALL: usize = 32 * TLS_BYTES;

    fn budget() -> Arc<Budget> {
        Budget::new(2 * ALL)
    }

    fn share() -> Arc<TlsShare> {
        Arc::new(TlsShare::of(ALL))
    }

    /// Begins without waiting.
    fn begin(budget: &Arc<Budget>, share: &Arc<TlsShare>) -> Result<Arc<TlsCharge>, NoRoom> {
        let begin = pin!(TlsCharge::begin(budget, share));
        match begin.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(charge) => charge,
            Poll::Pending => Err(NoRoom::Handshakes),
        }
    }

    fn done(budget: &Arc<Budget>, share: &Arc<TlsShare>) -> Result<Arc<TlsCharge>, NoRoom> {
        let charge = begin(budget, share)?;
        charge.finish().map(|()| charge)
    }

    /// Symptom: each connection was charged for all that it might hold when its first byte arrived, and one address
    /// could use everything. Seen to fail with either.
    #[test]
    fn n42_handshakes_take_what_they_hold_and_leave_others_theirs() {
        let (budget, one, other) = (budget(), share(), share());
        let charges: Vec<_> = std::iter::from_fn(|| begin(&budget, &one).ok()).collect();
        assert_eq!(charges.len(), ALL / 4 / HANDSHAKE_BYTES as usize);
        assert_eq!(budget.tls(), ALL / 4);
        assert_eq!(charges[0].grow(1), Err(NoRoom::Handshakes));
        let fair = begin(&budget, &other).unwrap();
        assert_eq!(fair.grow(LONGEST_MESSAGE), Ok(()));

        drop(charges);
        assert!(begin(&budget, &one).is_ok(), "the waiting ones continue");
        drop(fair);
        assert_eq!(budget.tls(), 0);
    }

    #[test]
    fn n42_connections_of_one_origin_leave_others_a_quarter() {
        let (budget, one, other) = (budget(), share(), share());
        let mut charges: Vec<_> = std::iter::from_fn(|| done(&budget, &one).ok()).collect();
        assert_eq!(charges.len(), 24);
        assert_eq!(done(&budget, &one).err(), Some(NoRoom::Origin));
        charges.extend(std::iter::from_fn(|| done(&budget, &other).ok()));
        assert_eq!(charges.len(), 32);
        assert!(done(&budget, &share()).is_err());
        assert_eq!((budget.tls(), budget.pressure()), (ALL, Pressure::None));
        drop(charges);
        assert_eq!(budget.tls(), 0);
    }

    #[test]
    fn a_handshake_that_read_more_than_a_connection_holds_gives_it_back() {
        let (budget, share) = (budget(), share());
        let charge = begin(&budget, &share).unwrap();
        charge.grow(LONGEST_MESSAGE).unwrap();
        charge.grow(LONGEST_MESSAGE).unwrap();
        charge.finish().unwrap();
        assert_eq!(budget.tls(), TLS_BYTES);
        assert_eq!(share.unfinished.available_permits(), ALL / 4);
    }
}
