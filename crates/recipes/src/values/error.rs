//! Errors of shared values.

use lockkeeper_client::retry::TooLong;
use lockkeeper_client::{
    Error, Outcome, PathError, TransactionError, ZnodePath, fails_for_good, impl_failure,
};

use crate::exact::WriteError;
use crate::values::counter_layout::CounterLayout;
use crate::values::revision::Revision;

/// Why a path is not valid for a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValuePathError {
    /// The text is not a path.
    #[error("{0}; the path of a value looks like /app/orders")]
    Path(#[from] PathError),
    /// The path is `/`.
    #[error("'/' cannot be used for a value; use another path, such as /app/orders")]
    Root,
    /// The path is `/zookeeper` or below it, where the server keeps its quotas and its configuration.
    #[error("{0} belongs to the server; use a path outside of /zookeeper, such as /app/orders")]
    Reserved(ZnodePath),
}

fails_for_good!(ValuePathError);

/// Why a shared value was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The data of a counter's node is not a number in the counter's layout. It was not changed.
    #[error(
        "{path} has {found}, which is not a number in the layout {layout:?}; use the layout of the \
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
    /// The sum is out of the range of the counter's layout.
    #[error(
        "{path} is {value}, and adding {delta} exceeds the range of the layout {layout:?}. \
         Nothing was changed"
    )]
    Overflow {
        /// The counter.
        path: ZnodePath,
        /// The layout of this handle.
        layout: CounterLayout,
        /// The value.
        value: i64,
        /// The number to add.
        delta: i64,
    },
    /// The node's version is -1, which servers take for "any version": a write could overwrite another one.
    #[error(
        "the version of {path} has come around to -1, which servers take for any version, so no \
         write can be safe. Stop the programs that use it, set its data once by hand, and its \
         version is 0. Nothing was changed"
    )]
    VersionWrapped {
        /// The node.
        path: ZnodePath,
    },
    /// The node has unexpected data.
    #[error(
        "{path} has {found}, which another program wrote; use another path. Nothing was changed"
    )]
    Foreign {
        /// The node.
        path: ZnodePath,
        /// What is there.
        found: String,
    },
    /// The data of the node is not a value of the expected kind. It was not changed.
    #[error(
        "{path} cannot be read: {reason}; use another path if other programs wrote it, overwrite it \
         if yours did, or continue with the last good value"
    )]
    Undecodable {
        /// The node.
        path: ZnodePath,
        /// The state of the node.
        revision: Revision,
        /// What is wrong.
        reason: String,
    },
    /// The value cannot be encoded.
    #[error("the value for {path} cannot be encoded: {reason}")]
    Unencodable {
        /// The node.
        path: ZnodePath,
        /// What is wrong.
        reason: String,
    },
    /// The value does not fit into one request.
    #[error(
        "{path} was not changed: the write has {bytes} bytes, and {limit} are the most that \
         servers take at once (jute.maxbuffer). Use a `Publication`, which writes long values in \
         parts, or raise the limit of the servers and `ClientBuilder::max_frame`"
    )]
    TooLarge {
        /// The node.
        path: ZnodePath,
        /// The size of the request, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The connection was lost at each attempt to send a write of 256 KiB or more, so the write was given up.
    ///
    /// Servers close the connection if their limit is below that of the client. (A write above the client's own limit
    /// is [`TooLarge`](ValueError::TooLarge), and is not sent.) The connection may also have been lost for
    /// other reasons each time.
    #[error(
        "{path} was not changed: the connection was lost {tries} times in a row at a write of {bytes} bytes; \
         servers close it if that is more than they take at once (jute.maxbuffer): set \
         `ClientBuilder::max_frame` to that, use a `Publication`, which then writes in shorter parts, or \
         raise it on all of them"
    )]
    TooLong {
        /// The node.
        path: ZnodePath,
        /// The size of the write's data, in bytes: for a [`Publication`](crate::Publication), that of one part
        /// of the edition.
        bytes: usize,
        /// The number of attempts.
        tries: u32,
    },
    /// Several sessions ended while a long value was written, or its nodes were deleted.
    #[error(
        "{path} was not changed, because several sessions ended, or its nodes were deleted, while the \
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
    /// A write may have been applied: the session ended, no server could be reached for a session timeout, or the
    /// outcome marker was deleted, before the outcome was known.
    #[error(
        "it is unknown whether {path} was changed, as the session ended, no server could be reached, or \
         the write's outcome marker was deleted, before an answer came; read it before you try again"
    )]
    Unknown {
        /// The node.
        path: ZnodePath,
        /// The error that ended the write.
        source: TransactionError,
    },
    /// A write may have been applied: its task, which answers several calls of one handle, panicked.
    #[error(
        "it is unknown whether {path} was changed, because the write that this call shared with others \
         panicked; read it before you try again"
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
        /// The cause.
        source: Error,
    },
}

impl_failure!(ValueError { error => (error.is_retryable(), error.outcome()) });

impl ValueError {
    /// Whether the operation may have had an effect. It is unknown only for [`ValueError::Unknown`] and
    /// [`ValueError::Panicked`].
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Unknown { .. } | Self::Panicked { .. } => Outcome::Unknown,
            _ => Outcome::NotApplied,
        }
    }

    /// Whether the same operation may succeed when it is tried again. If its
    /// [outcome](ValueError::outcome) is unknown, it may then take effect twice.
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
