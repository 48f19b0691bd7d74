//! What can go wrong with a last known good value.

use lockkeeper_client::{Outcome, impl_failure};
use std::path::PathBuf;

/// Why a last known good value was not used, or not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LastGoodError {
    /// Others could have written it.
    #[error(
        "{} is not private: {reason}. It was not used, and nothing is kept there; make it a file of \
         this user that nobody else may write, or name another one",
        file.display()
    )]
    NotPrivate {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It is no file with a last known good value.
    #[error(
        "{} is something else than a last known good value. It was left as it is, and nothing is \
         kept there; name another file",
        file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// It was written by a later version of this library, in a form that this one does not know.
    #[error(
        "{} was written by a later version of this library. It was left as it is, and nothing is \
         kept there; use that version, name another file, or delete this one",
        file.display()
    )]
    Later {
        /// The file.
        file: PathBuf,
    },
    /// It is that of another node.
    #[error(
        "{} is the last known good value of {found}, not of {path}. It was left as it is, and \
         nothing is kept there; name a file for each value",
        file.display()
    )]
    OtherPath {
        /// The file.
        file: PathBuf,
        /// The node that it is of.
        found: String,
        /// The node that it should be of.
        path: String,
    },
    /// It is not as it was written.
    #[error("{} is damaged: {reason}. It was not used; the next good value replaces it", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The value in it is none for this program.
    #[error(
        "the value in {} cannot be read: {reason}. It was not used; the next good value replaces it",
        file.display()
    )]
    Undecodable {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The operating system refused something.
    #[error("cannot keep the last known good value in {}: {reason}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// Whoever was to write it has ended before: with the runtime, or by a panic.
    #[error(
        "the last known good value was not kept, as the task that writes it has ended early: its \
         runtime was shut down, or it panicked. The next good value is tried again"
    )]
    Abandoned,
}

impl_failure!(
    /// The next good value is tried again.
    LastGoodError {
        Self::Io { .. } | Self::Abandoned => (true, Outcome::Unknown),
        Self::Damaged { .. } | Self::Undecodable { .. } => (true, Outcome::NotApplied),
        Self::NotPrivate { .. }
        | Self::Foreign { .. }
        | Self::Later { .. }
        | Self::OtherPath { .. } => (false, Outcome::NotApplied),
    }
);

impl LastGoodError {
    /// Whether the file may be replaced with the next good value.
    pub(crate) fn may_be_replaced(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Undecodable { .. } | Self::Io { .. })
    }
}
