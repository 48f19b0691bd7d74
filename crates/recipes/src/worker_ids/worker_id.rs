//! [`WorkerId`]: a number that no other program has, and its ids.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_locks::{EnsureError, Guard, NameClaim, ReleaseError};

use crate::worker_ids::error::MintError;
use crate::worker_ids::keeper::ReservationKeeper;
use crate::worker_ids::minting::Minting;

/// A number of [`WorkerIds`](crate::WorkerIds) that no other program has, and the ids that are minted with it. The
/// rules of [`Guard`] apply: no other program has the number before [`Guard::deadline`].
///
/// Dropping it gives the number back.
#[must_use = "the number is given back when it is dropped"]
pub struct WorkerId {
    number: u32,
    minting: Arc<Minting>,
    // Dropped before the claim is given back.
    keeper: ReservationKeeper,
    claim: Arc<NameClaim>,
}

impl WorkerId {
    pub(super) fn new(
        number: u32,
        minting: Arc<Minting>,
        keeper: ReservationKeeper,
        claim: Arc<NameClaim>,
    ) -> Self {
        Self { number, minting, keeper, claim }
    }

    /// The number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Mints an id, which is larger than all earlier ones of this number. Makes no request and does not wait.
    ///
    /// Its time is the servers' time, or later: if the ids of a millisecond are used up, if the servers' clock was
    /// set back, or if the previous holder of the number may have minted ids of that time.
    ///
    /// # Errors
    /// [`MintError::NotHeld`] once the deadline has passed or the number is lost; [`MintError::UsedUp`] if the
    /// reservation is used up for now, and [`MintError::Ended`] if it will not be extended.
    pub fn mint(&self) -> Result<i64, MintError> {
        match self.claim.ensure(Duration::ZERO) {
            Ok(()) => self.minting.mint(),
            Err(error) => Err(MintError::NotHeld(error)),
        }
    }

    /// [`WorkerId::mint`], but waits until an id is reserved. Makes no request of its own.
    ///
    /// # Errors
    /// As [`WorkerId::mint`], except [`MintError::UsedUp`].
    ///
    /// # Session loss
    /// Fails with [`MintError::NotHeld`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn next(&self) -> Result<i64, MintError> {
        let mut changes = self.minting.changes();
        loop {
            match self.mint() {
                Err(MintError::UsedUp) => {}
                minted => return minted,
            }
            tokio::select! {
                // A fixed order makes simulations reproducible.
                biased;
                reason = self.claim.lost() => {
                    return Err(MintError::NotHeld(EnsureError::Lost(reason)));
                }
                _ = changes.changed() => {}
            }
        }
    }

    /// Mints from the reservation although the number may be lost, to test that no id is minted twice even then.
    #[doc(hidden)]
    pub fn mint_unchecked(&self) -> Result<i64, MintError> {
        self.minting.mint()
    }

    /// Gives the number back, and waits until a server has confirmed it. Costs two round trips.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Session loss
    /// The release fails; the number was lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.keeper.stop().await;
        let claim = Arc::into_inner(self.claim);
        claim.expect("only its keeper shared it, and has ended").release().await
    }
}

impl Deref for WorkerId {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.claim
    }
}

/// Displays the number, its token and its state.
impl fmt::Debug for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerId({}, {:?})", self.number, self.claim)
    }
}
