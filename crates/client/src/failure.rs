//! [`Failure`]: the questions that every error of these libraries answers.

use lockkeeper_session::Outcome;
use lockkeeper_wire::PathError;

use crate::connect_string::ConnectStringError;
use crate::default_acl::AclError;
use crate::error::{ConnectError, Error, StillHeld, TransactionError};
use crate::service::ServiceError;
use crate::watch_item::WatchLost;

/// An error that reports whether the call may be repeated, and whether it may have had an effect.
///
/// Every error of `lockkeeper` and `lockkeeper_client` implements it, so one retry loop works for all calls.
/// A program can implement it for its own errors.
///
/// # Examples
///
/// A call that may be applied twice is repeated after any transient failure; other calls only if they had no
/// effect:
///
/// ```
/// use std::time::Duration;
///
/// use lockkeeper_client::{Failure, Outcome};
///
/// async fn repeated<T, E: Failure, F: Future<Output = Result<T, E>>>(
///     mut call: impl FnMut() -> F,
///     may_be_applied_twice: bool,
/// ) -> Result<T, E> {
///     for pause in [50, 200, 1000].map(Duration::from_millis) {
///         match call().await {
///             Err(error)
///                 if error.is_retryable()
///                     && (may_be_applied_twice || error.outcome() == Outcome::NotApplied) =>
///             {
///                 tokio::time::sleep(pause).await;
///             }
///             settled => return settled,
///         }
///     }
///     call().await
/// }
/// ```
pub trait Failure: std::error::Error {
    /// Whether the same call may succeed when it is repeated without further changes. The loss of a lock is
    /// not retryable for its guard, only by another acquire.
    fn is_retryable(&self) -> bool;

    /// Whether the call may have had an effect.
    fn outcome(&self) -> Outcome;
}

/// Implements [`Failure`] for an error with a table: for each variant, whether the call may be repeated, and
/// whether it may have had an effect.
#[doc(hidden)]
#[macro_export]
macro_rules! impl_failure {
    ($(#[$documentation:meta])* $error:ty { $($variant:pat => $answers:expr),+ $(,)? }) => {
        $(#[$documentation])*
        impl $crate::Failure for $error {
            fn is_retryable(&self) -> bool {
                let (is_retryable, _): (bool, $crate::Outcome) = match self { $($variant => $answers),+ };
                is_retryable
            }

            fn outcome(&self) -> $crate::Outcome {
                let (_, outcome): (bool, $crate::Outcome) = match self { $($variant => $answers),+ };
                outcome
            }
        }
    };
}

/// Implements [`Failure`] for errors in the arguments of a call: the call always fails and sends nothing.
#[doc(hidden)]
#[macro_export]
macro_rules! fails_for_good {
    ($($error:ty),* $(,)?) => {$(
        $crate::impl_failure!($error { _ => (false, $crate::Outcome::NotApplied) });
    )*};
}

/// Implements `Debug` as the type and its path. The content of a lock or recipe is not useful in a log.
#[doc(hidden)]
#[macro_export]
macro_rules! shown_by_path {
    ($type:ident) => {
        /// Returns its path.
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($type), self.path())
            }
        }
    };
}

fails_for_good!(PathError, ConnectStringError, AclError);

#[cfg(feature = "tls")]
fails_for_good!(crate::tls::TlsError);

impl_failure!(Error { error => (error.is_retryable(), error.outcome()) });

impl_failure!(TransactionError {
    Self::Failed { .. } => (false, Outcome::NotApplied),
    Self::Request(error) => (error.is_retryable(), error.outcome()),
});

impl_failure!(
    /// The holders may release in the meantime.
    StillHeld { _ => (true, Outcome::NotApplied) }
);

impl_failure!(ConnectError {
    Self::Unreachable(_) | Self::Io(_) => (true, Outcome::NotApplied),
    Self::ConnectString(_)
    | Self::OutOfRange { .. }
    | Self::NotZooKeeper(_)
    | Self::Untrusted(_)
    | Self::NoTls
    | Self::AuthFailed
    | Self::TimeoutTooShort { .. } => (false, Outcome::NotApplied),
});

impl_failure!(ServiceError {
    Self::Unproven { .. } | Self::NodeGone { .. } => (true, Outcome::NotApplied),
    Self::NotOne { .. } => (false, Outcome::NotApplied),
});

impl_failure!(
    /// A watch that has ended stays ended; only the call that created it can be repeated.
    WatchLost { _ => (false, Outcome::NotApplied) }
);
