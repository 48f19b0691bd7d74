//! What can go wrong with a shared value.

use lockkeeper_client::retry::TooLong;
use lockkeeper_client::{
    Error, Outcome, PathError, TransactionError, ZnodePath, fails_for_good, impl_failure,
};

use crate::exact::WriteError;
use crate::values::counter_layout::CounterLayout;
use crate::values::revision::Revision;

/// Why a value cannot be where it was said to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValuePathError {
    /// It is no path.
    #[error("{0}; a value is named like /app/orders")]
    Path(#[from] PathError),
    /// It is `/`.
    #[error("'/' cannot be a value; name one below it, like /app/orders")]
    Root,
    /// It is `/zookeeper` or below it, where the server keeps its quotas and its configuration.
    #[error("{0} is the server's own; name a value outside of /zookeeper, like /app/orders")]
    Reserved(ZnodePath),
}

fails_for_good!(ValuePathError);

/// Why a shared value was not read or written as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The data of a counter's node is no number in the counter's layout. It was left as it is.
    #[error(
        "{path} holds {found}, which is no number in the layout {layout:?}; use the layout of the \
         programs that wrote it, or another path. Nothing was changed"
    )]
    NoNumber {
        /// The counter.
        path: ZnodePath,
        /// The layout of this handle.
        layout: CounterLayout,
        /// What is there.
        found: String,
    },
    /// The sum has no place in the counter's layout.
    #[error(
        "{path} is {value}, and the layout {layout:?} has no number that is greater by {delta}. \
         Nothing was changed"
    )]
    Overflow {
        /// The counter.
        path: ZnodePath,
        /// The layout of this handle.
        layout: CounterLayout,
        /// The value.
        value: i64,
        /// What was to be added.
        delta: i64,
    },
    /// The node's version is -1, at which a server compares nothing: a write could overwrite another
    /// one.
    #[error(
        "the version of {path} has come around to -1, which servers take for any version, so no \
         write can be safe. Stop the programs that use it, set its data once by hand, and its \
         version is 0. Nothing was changed"
    )]
    VersionWrapped {
        /// The node.
        path: ZnodePath,
    },
    /// The node holds data where none is expected.
    #[error(
        "{path} holds {found}, which is somebody else's; use another path. Nothing was changed"
    )]
    Foreign {
        /// The node.
        path: ZnodePath,
        /// What is there.
        found: String,
    },
    /// The data of the node is no value of the expected kind. It was left as it is.
    #[error(
        "{path} cannot be read: {reason}; use another path if other programs wrote it, write a good \
         value over it if yours did, or go on with the last one"
    )]
    Undecodable {
        /// The node.
        path: ZnodePath,
        /// Which state of it.
        revision: Revision,
        /// What is wrong.
        reason: String,
    },
    /// The value has no form as bytes.
    #[error("the value for {path} cannot be written: {reason}")]
    Unencodable {
        /// The node.
        path: ZnodePath,
        /// What is wrong.
        reason: String,
    },
    /// The value does not fit into one request.
    #[error(
        "{path} was not changed: the write would take {bytes} bytes, and {limit} are the most that \
         servers take at once (jute.maxbuffer). Use a `Publication`, which writes long values in \
         parts, or raise the limit of the servers and `ClientBuilder::max_frame`"
    )]
    TooLarge {
        /// The node.
        path: ZnodePath,
        /// How long the request would be, in bytes.
        bytes: usize,
        /// How long it may be, in bytes.
        limit: usize,
    },
    /// Servers seem to close the connection whenever a write of 256 KiB or more comes. It was given up.
    ///
    /// They do so if their limit is below that of the client; if it is not, this is
    /// [`TooLarge`](ValueError::TooLarge), and nothing is sent. The connection may also have been lost for
    /// another reason each time.
    #[error(
        "{path} was not changed: the connection was lost {tries} times in a row at a write of {bytes} bytes; \
         servers close it if that is more than they take at once (jute.maxbuffer): set \
         `ClientBuilder::max_frame` to that, use a `Publication`, which then writes in shorter parts, or \
         raise it on all of them"
    )]
    TooLong {
        /// The node.
        path: ZnodePath,
        /// How long the data of the write was, in bytes: of a [`Publication`](crate::Publication), one part
        /// of the edition.
        bytes: usize,
        /// How often it was tried.
        tries: u32,
    },
    /// Session after session ended while a long value was being written, or somebody deleted its nodes.
    #[error(
        "{path} was not changed, as several sessions ended, or somebody deleted its nodes, while the \
         parts of the value were written; use a longer session timeout"
    )]
    SessionsTooShort {
        /// The node.
        path: ZnodePath,
    },
    /// A write was refused.
    #[error("cannot change {path}: {source}")]
    Refused {
        /// The node.
        path: ZnodePath,
        /// What was refused.
        source: TransactionError,
    },
    /// A write may have been applied: the session ended, no server could be reached for as long as it
    /// lasts, or somebody deleted the outcome marker, before that was known.
    #[error(
        "it is unknown whether {path} was changed, as the session ended, no server could be reached, or \
         the write's outcome marker was deleted, before an answer came; look before trying again"
    )]
    Unknown {
        /// The node.
        path: ZnodePath,
        /// The end.
        source: TransactionError,
    },
    /// A write may have been applied: its task, which answers several calls of one handle, panicked.
    #[error(
        "it is unknown whether {path} was changed, as the write panicked that this call shared with \
         others; look before trying again"
    )]
    Panicked {
        /// The node.
        path: ZnodePath,
    },
    /// A read failed.
    #[error("cannot read {path}: {source}")]
    Client {
        /// The node.
        path: ZnodePath,
        /// What failed.
        source: Error,
    },
}

impl_failure!(ValueError { error => (error.is_retryable(), error.outcome()) });

impl ValueError {
    /// Whether the operation may have had an effect. Only [`ValueError::Unknown`] and
    /// [`ValueError::Panicked`] leave that open.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Unknown { .. } | Self::Panicked { .. } => Outcome::Unknown,
            _ => Outcome::NotApplied,
        }
    }

    /// Whether the same operation may succeed when it is tried again. If its
    /// [outcome](ValueError::outcome) is unknown, that may be its second effect.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::Panicked { .. } => true,
            Self::Client { source, .. }
            | Self::Refused { source: TransactionError::Request(source), .. } => {
                source.is_retryable() || source.is_session_expired()
            }
            _ => false,
        }
    }

    pub(crate) fn read(path: &ZnodePath, source: Error) -> Self {
        Self::Client { path: path.clone(), source }
    }

    pub(crate) fn too_long(path: &ZnodePath, TooLong { bytes, tries }: TooLong) -> Self {
        Self::TooLong { path: path.clone(), bytes, tries }
    }

    pub(crate) fn write(path: &ZnodePath, error: WriteError) -> Self {
        let path = path.clone();
        let source = match error {
            WriteError::TooLong(why) => return Self::too_long(&path, why),
            WriteError::Unknown(source) => return Self::Unknown { path, source },
            WriteError::NotApplied(source) => source,
        };
        match &source {
            TransactionError::Request(error) if let Some((bytes, limit)) = error.too_large() => {
                Self::TooLarge { path, bytes, limit }
            }
            _ => Self::Refused { path, source },
        }
    }
}
