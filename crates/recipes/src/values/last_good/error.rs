//! Errors of files with a last known good value.

use lockkeeper_client::{Outcome, impl_failure};
use std::path::PathBuf;

/// Why a last known good value was not used, or not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LastGoodError {
    /// Other users could have written the file.
    #[error(
        "{} is not private: {reason}. It was not used, and nothing is kept there; make it a file of \
         this user that other users cannot write, or use another file",
        file.display()
    )]
    NotPrivate {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file has other data.
    #[error(
        "{} is not a last known good value. It was not changed, and nothing is \
         kept there; use another file",
        file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// A later version of this library wrote the file, in a format that this version does not know.
    #[error(
        "{} was written by a later version of this library. It was not changed, and nothing is \
         kept there; use that version, use another file, or delete this one",
        file.display()
    )]
    Later {
        /// The file.
        file: PathBuf,
    },
    /// The file belongs to another node.
    #[error(
        "{} is the last known good value of {found}, not of {path}. It was not changed, and \
         nothing is kept there; use a separate file for each value",
        file.display()
    )]
    OtherPath {
        /// The file.
        file: PathBuf,
        /// The node to which it belongs.
        found: String,
        /// The node to which it should belong.
        path: String,
    },
    /// The file is damaged.
    #[error("{} is damaged: {reason}. It was not used; the next good value replaces it", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The value in the file cannot be decoded.
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
    /// The operating system refused an operation.
    #[error("cannot keep the last known good value in {}: {reason}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The task that writes the file has ended: with its runtime, or by a panic.
    #[error(
        "the last known good value was not kept, because the task that writes it has ended early: its \
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
