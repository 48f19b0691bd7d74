//! What every error of this library answers as a [`Failure`]. The methods of that name which an error has of
//! its own are what it answers here.

use lockkeeper_client::{Failure, Outcome, fails_for_good};

use crate::discovery::pick::PickError;
use crate::discovery::{RegisterError, UriSpecError};
use crate::error::{
    AcquireError, BuildError, EnsureError, LossReason, ObserveError, ProclaimError, ReleaseError,
    SetPermitsError, VerifyError,
};
use crate::group::GroupError;
use crate::locks::UpgradeError;
use crate::names::ClaimError;
use crate::once::OnceError;
use crate::token::{ParseTokenError, Stale};
use crate::values::{LastGoodError, ValueError, ValuePathError};
use crate::watch::{CacheError, PresenceError};

fails_for_good!(BuildError, ValuePathError, UriSpecError, ParseTokenError, Stale);

impl Failure for AcquireError {
    fn is_retryable(&self) -> bool {
        self.is_retryable()
    }

    fn outcome(&self) -> Outcome {
        self.outcome()
    }
}

impl Failure for ValueError {
    fn is_retryable(&self) -> bool {
        self.is_retryable()
    }

    fn outcome(&self) -> Outcome {
        self.outcome()
    }
}

impl Failure for UpgradeError {
    /// Whether another upgrade may succeed, if the reader still reads; or else another acquire.
    fn is_retryable(&self) -> bool {
        self.error().is_retryable()
    }

    fn outcome(&self) -> Outcome {
        self.error().outcome()
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

impl Failure for OnceError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Read(error) => error.is_retryable(),
            Self::Write(error) => error.is_retryable(),
            Self::Lost { .. }
            | Self::OtherLock { .. }
            | Self::Key(_)
            | Self::Ahead { .. }
            | Self::Foreign { .. }
            | Self::Replaced { .. } => false,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Lost { .. } => Outcome::Unknown,
            Self::Write(error) => error.outcome(),
            Self::Read(_)
            | Self::OtherLock { .. }
            | Self::Key(_)
            | Self::Ahead { .. }
            | Self::Foreign { .. }
            | Self::Replaced { .. } => Outcome::NotApplied,
        }
    }
}

impl Failure for ClaimError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Taken { .. } => true,
            Self::Unseen { source, .. } => source.is_retryable(),
            Self::Acquire(error) => error.is_retryable(),
            Self::Name(_) | Self::Foreign { .. } => false,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Acquire(error) => error.outcome(),
            Self::Taken { .. } | Self::Unseen { .. } | Self::Name(_) | Self::Foreign { .. } => {
                Outcome::NotApplied
            }
        }
    }
}

impl Failure for PresenceError {
    fn is_retryable(&self) -> bool {
        match self {
            // The other program, or the other presence of this one, may end.
            Self::Taken { .. } | Self::InUse { .. } => true,
            Self::Refused(error) => error.is_retryable(),
            Self::Request(error) => error.is_retryable(),
            Self::Path(_)
            | Self::Reserved(_)
            | Self::TooLong { .. }
            | Self::NoTtlNodes { .. }
            | Self::Stopped { .. } => false,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Refused(error) => error.outcome(),
            Self::Request(error) => error.outcome(),
            Self::TooLong { .. } | Self::Stopped { .. } => Outcome::Unknown,
            Self::Path(_)
            | Self::Reserved(_)
            | Self::Taken { .. }
            | Self::InUse { .. }
            | Self::NoTtlNodes { .. } => Outcome::NotApplied,
        }
    }
}

impl Failure for CacheError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Request(error) => error.is_retryable(),
            Self::Path(_)
            | Self::TooManyNodes { .. }
            | Self::TooManyBytes { .. }
            | Self::TooManyChildren { .. }
            | Self::Reserved(_)
            | Self::Unreadable { .. }
            | Self::NoWatch { .. }
            | Self::Stopped { .. } => false,
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome::NotApplied
    }
}

impl Failure for GroupError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Join(error) => error.is_retryable(),
            Self::View { source, .. } => source.is_retryable(),
            Self::Path(_) | Self::Reserved(_) | Self::Id { .. } | Self::NoRoom => false,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Join(error) => error.outcome(),
            Self::View { .. }
            | Self::Path(_)
            | Self::Reserved(_)
            | Self::Id { .. }
            | Self::NoRoom => Outcome::NotApplied,
        }
    }
}

impl Failure for RegisterError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Presence(error) => error.is_retryable(),
            Self::Path(_) | Self::Reserved(_) | Self::NotDynamic { .. } | Self::Renamed { .. } => {
                false
            }
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Timeout { .. } => Outcome::Unknown,
            Self::Presence(error) => error.outcome(),
            Self::Path(_) | Self::Reserved(_) | Self::NotDynamic { .. } | Self::Renamed { .. } => {
                Outcome::NotApplied
            }
        }
    }
}

impl Failure for PickError {
    /// Instances come and go.
    fn is_retryable(&self) -> bool {
        true
    }

    fn outcome(&self) -> Outcome {
        Outcome::NotApplied
    }
}

impl Failure for LastGoodError {
    /// The next good value is tried again.
    fn is_retryable(&self) -> bool {
        self.may_be_replaced() || matches!(self, Self::Abandoned)
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Io { .. } | Self::Abandoned => Outcome::Unknown,
            Self::NotPrivate { .. }
            | Self::Foreign { .. }
            | Self::Later { .. }
            | Self::OtherPath { .. }
            | Self::Damaged { .. }
            | Self::Undecodable { .. } => Outcome::NotApplied,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// The public errors in a folder of sources, and everything that is implemented there for [`Failure`].
    ///
    /// [`Failure`]: lockkeeper_client::Failure
    fn errors_in(folder: &Path, errors: &mut Vec<String>, failures: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                errors_in(&path, errors, failures);
                continue;
            }

            let text = std::fs::read_to_string(&path).unwrap();
            let own =
                text.lines().filter_map(|line| line.strip_prefix("impl std::error::Error for "));
            errors.extend(own.map(|line| line.trim_end_matches(" {").to_owned()));
            for derived in text.split("thiserror::Error)]").skip(1) {
                let item =
                    derived.lines().find(|line| line.contains("enum ") || line.contains("struct "));
                let name = item.and_then(|item| item.strip_prefix("pub ")?.split(' ').nth(1));
                errors.extend(name.map(|name| {
                    name.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
                }));
            }
            if path.file_name().is_some_and(|name| name == "failure.rs") {
                failures.push_str(text.split("mod tests").next().unwrap());
            }
        }
    }

    #[test]
    fn every_public_error_is_a_failure() {
        let (mut errors, mut failures) = (Vec::new(), String::new());
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        errors_in(&here.join("src"), &mut errors, &mut failures);
        errors_in(&here.join("../client/src"), &mut errors, &mut failures);
        assert!(errors.len() > 30, "{errors:?}");

        let implemented = |error: &String| {
            let by_hand = failures.contains(&format!(" Failure for {error} {{"));
            let for_good = failures.split("fails_for_good!(").skip(1).any(|list| {
                let list = list.split(')').next().unwrap_or_default();
                list.split([',', ':', ' ']).any(|name| name == error)
            });
            by_hand || for_good
        };
        errors.retain(|error| !implemented(error));
        assert!(errors.is_empty(), "these public errors are no `Failure`: {errors:?}");
    }
}
