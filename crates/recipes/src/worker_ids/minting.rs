//! State shared by a number and the task that extends its reservation.

use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_client::{Client, Instant};
use tokio::sync::{Notify, watch};

use crate::exact::shared_write::lock;
use crate::worker_ids::error::{MintError, WorkerIdError};
use crate::worker_ids::minter::Minter;
use crate::worker_ids::reservation::{Horizon, is_low, lasts};
use crate::worker_ids::time_estimate::TimeEstimate;
use crate::worker_ids::write::Confirmed;

/// The ids of a number, within its reservation.
#[derive(Debug)]
pub(super) struct Minting {
    client: Client,
    horizon: Horizon,
    state: Mutex<MintingState>,
    /// Requests the next reservation before its time.
    low: Notify,
    changes: watch::Sender<()>,
}

#[derive(Debug)]
struct MintingState {
    minter: Minter,
    time: TimeEstimate,
    /// Whether the keeper was woken because the reservation is low.
    is_told: bool,
    /// Why no more ids are reserved.
    ended: Option<WorkerIdError>,
}

impl Minting {
    pub(super) fn new(
        client: &Client,
        horizon: Horizon,
        minter: Minter,
        time: TimeEstimate,
    ) -> Self {
        let state = MintingState { minter, time, is_told: false, ended: None };
        Self {
            client: client.clone(),
            horizon,
            state: Mutex::new(state),
            low: Notify::new(),
            changes: watch::Sender::new(()),
        }
    }

    /// The next id, whichever program has the number.
    pub(super) fn mint(&self) -> Result<i64, MintError> {
        let now = self.client.now();
        let mut state = lock(&self.state);
        let now = state.time.at(now);
        let id = state.minter.mint(now);

        let is_low = is_low(state.minter.next_unix_ms(), state.minter.until_unix_ms());
        if (is_low || id.is_none()) && !state.is_told {
            state.is_told = true;
            self.low.notify_one();
        }
        id.ok_or_else(|| match &state.ended {
            Some(error) => MintError::Ended(error.clone()),
            None => MintError::UsedUp,
        })
    }

    /// Notifies when the reservation is extended, or will not be any more.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns when the next reservation must be written, with its end.
    pub(super) async fn due(&self) -> u64 {
        let left = self.read(|state, now| lasts(now, state.minter.until_unix_ms()));
        tokio::select! {
            // A fixed order makes simulations reproducible.
            biased;
            () = self.low.notified() => {}
            () = tokio::time::sleep(left) => {}
        }
        self.read(|state, now| {
            let minter = &state.minter;
            self.horizon.reach(now, minter.next_unix_ms(), minter.until_unix_ms())
        })
    }

    /// A reservation that was first sent at `asked` was confirmed.
    pub(super) fn extend(&self, written: Confirmed, asked: Instant) {
        let now = self.client.now();
        let mut state = lock(&self.state);
        if let Some(at) = written.at_unix_ms {
            state.time.learn(at, asked, now);
        }
        state.minter.extend(written.until_unix_ms);
        state.is_told = false;
        drop(state);
        self.changes.send_replace(());
    }

    /// No more ids are reserved.
    pub(super) fn end(&self, why: WorkerIdError) {
        lock(&self.state).ended = Some(why);
        self.changes.send_replace(());
    }

    fn read<T>(&self, look: impl FnOnce(&MintingState, u64) -> T) -> T {
        let now = self.client.now();
        let state = lock(&self.state);
        look(&state, state.time.at(now))
    }
}

/// The minimum time between two reservations.
pub(super) const MIN_RESERVE_INTERVAL: Duration = Duration::from_millis(250);
