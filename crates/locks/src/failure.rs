//! Implements [`Failure`](lockkeeper_client::Failure) for the errors of [`error`](crate::error). Inherent
//! methods of the same names return the same values.

use lockkeeper_client::{Outcome, fails_for_good, impl_failure};

use crate::error::{
    AcquireError, BuildError, EnsureError, LossReason, ObserveError, ProclaimError, ReleaseError,
    SetPermitsError, VerifyError,
};

fails_for_good!(BuildError);

impl_failure!(AcquireError { error => (error.is_retryable(), error.outcome()) });

impl_failure!(
    /// `is_retryable`: whether another acquire may succeed. Work under the lock may have been done.
    LossReason {
        Self::SessionExpired
        | Self::DeadlinePassed
        | Self::NodeDeleted
        | Self::CheckRefused
        | Self::Revoked
        | Self::Released
        | Self::HeldTooLong => (true, Outcome::Unknown),
        Self::ClientClosed => (false, Outcome::Unknown),
    }
);

impl_failure!(EnsureError {
    Self::Jeopardy | Self::TooShort { .. } => (true, Outcome::NotApplied),
    Self::Lost(_) => (false, Outcome::NotApplied),
});

impl_failure!(VerifyError {
    Self::Jeopardy => (true, Outcome::NotApplied),
    Self::Unknown(error) => (error.is_retryable(), Outcome::NotApplied),
    Self::Lost(_) | Self::Refused(_) => (false, Outcome::NotApplied),
});

impl_failure!(
    /// The guard is gone, and a release that is not confirmed continues in the background.
    ReleaseError {
        Self::Lost(_) | Self::Unconfirmed(_) => (false, Outcome::Unknown),
        Self::NotHeld { .. } => (false, Outcome::NotApplied),
    }
);

impl_failure!(SetPermitsError {
    Self::Client(error) => (error.is_retryable(), error.outcome()),
    Self::Fixed { .. } | Self::Zero { .. } | Self::TooMany { .. } => (false, Outcome::NotApplied),
});

impl_failure!(ObserveError {
    Self::Client { source, .. } => (source.is_retryable(), Outcome::NotApplied),
    Self::Foreign { .. } | Self::NotEphemeral { .. } => (false, Outcome::NotApplied),
});

impl_failure!(ProclaimError {
    // The value of another call whose reply was lost may have been written.
    Self::Lost(_) | Self::TooLong { .. } => (false, Outcome::Unknown),
    Self::Refused(error) => (error.is_retryable(), error.outcome()),
    Self::Foreign { .. } => (false, Outcome::NotApplied),
});
