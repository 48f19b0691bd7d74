//! What the errors of [`error`](crate::error) answer as a [`Failure`]. The methods of that name which an error has of
//! its own are what it answers here.

use lockkeeper_client::{Failure, Outcome, fails_for_good};

use crate::error::{
    AcquireError, BuildError, EnsureError, LossReason, ObserveError, ProclaimError, ReleaseError,
    SetPermitsError, VerifyError,
};

fails_for_good!(BuildError);

impl Failure for AcquireError {
    fn is_retryable(&self) -> bool {
        self.is_retryable()
    }

    fn outcome(&self) -> Outcome {
        self.outcome()
    }
}

impl Failure for LossReason {
    /// Whether another acquire may succeed.
    fn is_retryable(&self) -> bool {
        match self {
            Self::SessionExpired
            | Self::DeadlinePassed
            | Self::NodeDeleted
            | Self::CheckRefused
            | Self::Revoked
            | Self::Released => true,
            Self::ClientClosed => false,
        }
    }

    /// Work under the lock may have been done.
    fn outcome(&self) -> Outcome {
        Outcome::Unknown
    }
}

impl Failure for EnsureError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Jeopardy | Self::TooShort { .. } => true,
            Self::Lost(_) => false,
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome::NotApplied
    }
}

impl Failure for VerifyError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Jeopardy => true,
            Self::Unknown(error) => error.is_retryable(),
            Self::Lost(_) | Self::Refused(_) => false,
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome::NotApplied
    }
}

impl Failure for ReleaseError {
    /// The guard is gone, and a release that is not confirmed goes on by itself.
    fn is_retryable(&self) -> bool {
        false
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Lost(_) | Self::Unconfirmed(_) => Outcome::Unknown,
            Self::NotHeld { .. } => Outcome::NotApplied,
        }
    }
}

impl Failure for SetPermitsError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Client(error) => error.is_retryable(),
            Self::Fixed { .. } | Self::Zero { .. } | Self::TooMany { .. } => false,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Client(error) => error.outcome(),
            Self::Fixed { .. } | Self::Zero { .. } | Self::TooMany { .. } => Outcome::NotApplied,
        }
    }
}

impl Failure for ObserveError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Client { source, .. } => source.is_retryable(),
            Self::Foreign { .. } | Self::NotEphemeral { .. } => false,
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome::NotApplied
    }
}

impl Failure for ProclaimError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Refused(error) => error.is_retryable(),
            Self::Lost(_) | Self::Foreign { .. } | Self::TooLong { .. } => false,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            // The value of another call that was lost on the way may be written.
            Self::Lost(_) | Self::TooLong { .. } => Outcome::Unknown,
            Self::Refused(error) => error.outcome(),
            Self::Foreign { .. } => Outcome::NotApplied,
        }
    }
}
