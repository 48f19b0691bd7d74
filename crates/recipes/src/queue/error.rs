//! Errors of queues.

use lockkeeper_client::retry::TooLong;
use lockkeeper_client::{Error, Failure, Outcome, TransactionError, ZnodePath, impl_failure};
use lockkeeper_locks::{AcquireError, LossReason};

use crate::exact::WriteError;
use crate::queue::peer_layouts::QueueLayout;
use crate::values::error::ValuePathError;

/// Why a put or a take has failed, or a queue cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The path is not valid for a queue.
    #[error("{0}")]
    Path(#[from] ValuePathError),
    /// The queue does not exist: it was never used, or it was deleted, or is being deleted. The next put or take
    /// creates it.
    #[error(
        "{path} has no queue: it was never used, or was deleted; the next put or take creates one"
    )]
    Deleted {
        /// The queue.
        path: ZnodePath,
    },
    /// The path has other data, or a queue with a layout that this version does not know.
    #[error(
        "{path} is not a queue: it has {found}; use another path, or a version of this library that \
         knows the layout. Nothing was changed"
    )]
    Foreign {
        /// The queue.
        path: ZnodePath,
        /// What is there.
        found: String,
    },
    /// The queue is in use, so it was not deleted.
    #[error(
        "{path} was not deleted: it has {workers} consumers, which work on {claims} items; end them first"
    )]
    InUse {
        /// The queue.
        path: ZnodePath,
        /// The number of consumers' sessions.
        workers: usize,
        /// The number of items that are being worked on.
        claims: usize,
    },
    /// The layout does not support the operation.
    #[error("{path} has the layout of {layout}, which does not support {what}{instead}")]
    NotInLayout {
        /// The queue.
        path: ZnodePath,
        /// The layout.
        layout: QueueLayout,
        /// The unsupported feature.
        what: &'static str,
        /// What to do instead, if known.
        instead: &'static str,
    },
    /// The options of a put are invalid.
    #[error("invalid options for an item of {path}: {reason}")]
    Options {
        /// The queue.
        path: ZnodePath,
        /// What is wrong.
        reason: String,
    },
    /// The item cannot be encoded.
    #[error("an item for {path} cannot be encoded: {reason}")]
    Unencodable {
        /// The queue.
        path: ZnodePath,
        /// What is wrong.
        reason: String,
    },
    /// An item cannot be decoded as a `T`. It stays for programs that can decode it, and this consumer skips it
    /// from now on. In Lockkeeper's layout it goes to the end of the queue, and the try does not count.
    #[error(
        "item {id} of {path} cannot be decoded: {reason}. It stays for programs that can decode it"
    )]
    Undecodable {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
        /// What is wrong.
        reason: String,
    },
    /// A value is too long for a queue. Nothing was put.
    #[error(
        "a value of {bytes} bytes was not put into {path}: the limit is {limit} bytes; store it elsewhere, \
         and put its name into the queue"
    )]
    ValueTooLong {
        /// The queue.
        path: ZnodePath,
        /// Its size, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The write does not fit into one request.
    #[error(
        "{path} was not changed: the write has {bytes} bytes, and {limit} are the most that servers take \
         at once (jute.maxbuffer); put fewer items at once, or store long values elsewhere and put their names"
    )]
    TooLarge {
        /// The queue.
        path: ZnodePath,
        /// The size of the request, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The connection was lost at each attempt to send a write of 256 KiB or more, so the write was given up.
    #[error(
        "{path} was not changed: the connection was lost {tries} times in a row at a write of {bytes} bytes; \
         servers close it if that is more than they take at once (jute.maxbuffer): set \
         `ClientBuilder::max_frame` to that, and put less at once"
    )]
    TooLong {
        /// The queue.
        path: ZnodePath,
        /// The size of the write's data, in bytes.
        bytes: usize,
        /// The number of attempts.
        tries: u32,
    },
    /// The item is not this consumer's any more: its claim is lost. Another consumer may have the item, or has
    /// finished it.
    #[error("item {id} of {path} is lost: {reason}")]
    Lost {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
        /// Why.
        reason: LossReason,
    },
    /// The queue has an item or a dead letter with this id. Nothing was put.
    #[error("{path} already has an item {id}")]
    Exists {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
    },
    /// The item was [cancelled](crate::Queue::cancel): it is gone.
    #[error("item {id} of {path} was cancelled")]
    Cancelled {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
    },
    /// The queue has as many items as its [bound](crate::QueueBuilder::bound) allows. Nothing was put.
    #[error("{path} is full: it has {limit} items, which is its limit")]
    Full {
        /// The queue.
        path: ZnodePath,
        /// The limit.
        limit: usize,
    },
    /// The item of a request is a dead letter.
    #[error("item {id} of {path} is a dead letter: {reason}")]
    Buried {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
        /// Why.
        reason: String,
    },
    /// The answer to a request is no longer kept: the session of the requester has ended, or its time is over. It
    /// is unknown whether the item was worked on.
    #[error("the answer to item {id} of {path} is no longer kept")]
    NoAnswer {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
    },
    /// The item was already ended.
    #[error("item {id} of {path} was already ended")]
    Ended {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
    },
    /// The consumer cannot wait in line, or claim an item.
    #[error("cannot take from {path}: {source}")]
    Take {
        /// The queue.
        path: ZnodePath,
        /// The cause.
        source: AcquireError,
    },
    /// A write was refused. Nothing of it was applied.
    #[error("cannot change {path}: {source}")]
    Refused {
        /// The queue.
        path: ZnodePath,
        /// The refusal. Its index is that in the caller's transaction.
        source: TransactionError,
    },
    /// A write may have been applied: the session ended, no server could be reached for a session timeout, or the
    /// outcome marker was deleted, before the outcome was known.
    #[error(
        "it is unknown whether {path} was changed, as the session ended, no server could be reached, or the \
         write's outcome marker was deleted, before an answer came"
    )]
    Unknown {
        /// The queue.
        path: ZnodePath,
        /// The error that ended the write.
        source: TransactionError,
    },
    /// A write may have been applied: the task that makes the writes of this handle has ended early, with the
    /// runtime in which the client was connected, or by a panic.
    #[error(
        "it is unknown whether {path} was changed, because the task that wrote to it has ended"
    )]
    Panicked {
        /// The queue.
        path: ZnodePath,
    },
    /// A read failed.
    #[error("cannot read {path}: {source}")]
    Client {
        /// The queue.
        path: ZnodePath,
        /// The cause.
        source: Error,
    },
}

impl_failure!(QueueError {
    Self::Unknown { .. } | Self::Panicked { .. } => (true, Outcome::Unknown),
    Self::Lost { .. } => (false, Outcome::Unknown),
    Self::Take { source, .. } => (source.is_retryable(), Outcome::NotApplied),
    Self::Client { source, .. } | Self::Refused { source: TransactionError::Request(source), .. } => {
        (source.is_retryable() || source.is_session_expired(), Outcome::NotApplied)
    },
    Self::Undecodable { .. } | Self::Deleted { .. } | Self::Full { .. } => {
        (true, Outcome::NotApplied)
    },
    Self::NoAnswer { .. } => (false, Outcome::Unknown),
    _ => (false, Outcome::NotApplied),
});

impl QueueError {
    /// Whether waiting resolves the error, and nothing was done.
    pub(super) fn passes(&self) -> bool {
        matches!(self, Self::Take { .. } | Self::Client { .. } | Self::Refused { .. })
            && self.is_retryable()
    }

    pub(super) fn read(path: &ZnodePath, source: Error) -> Self {
        Self::Client { path: path.clone(), source }
    }

    pub(super) fn take(path: &ZnodePath, source: AcquireError) -> Self {
        Self::Take { path: path.clone(), source }
    }
}

/// Why a write of a handle was not applied, or may not have been.
#[derive(Clone, Debug)]
pub(super) enum CommitError {
    Write(WriteError),
    /// It was not applied, because a condition was not met.
    NotMet(TransactionError),
    /// The task that makes the writes has ended.
    Panicked,
}

impl CommitError {
    /// The index of the refused step, and its error code.
    pub(super) fn refused(&self) -> Option<(usize, lockkeeper_client::ErrorCode)> {
        match self {
            Self::Write(WriteError::NotApplied(TransactionError::Failed {
                index, code, ..
            })) => Some((*index, *code)),
            _ => None,
        }
    }

    /// Whether the refused step is about a node below this one.
    pub(super) fn is_about(&self, directory: &ZnodePath) -> bool {
        match self {
            Self::Write(WriteError::NotApplied(TransactionError::Failed { path, .. })) => {
                let below = path.strip_prefix(directory.as_str());
                below.is_some_and(|below| below.starts_with('/'))
            }
            _ => false,
        }
    }

    /// The error code of its condition.
    pub(super) fn not_met(&self) -> Option<lockkeeper_client::ErrorCode> {
        match self {
            Self::NotMet(TransactionError::Failed { code, .. }) => Some(*code),
            _ => None,
        }
    }

    /// Whether it was not applied because a guard is not held any more.
    pub(super) fn is_not_held(&self) -> bool {
        matches!(
            self,
            Self::Write(WriteError::NotApplied(TransactionError::Request(error)))
                if error.is_not_held()
        )
    }

    /// Whether servers may answer it if it is repeated.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Write(WriteError::Unknown(_)) => true,
            Self::Write(WriteError::NotApplied(TransactionError::Request(error))) => {
                error.is_retryable()
            }
            _ => false,
        }
    }

    /// Whether it had no effect, and only because the session ended before it was sent.
    pub(super) fn is_session_expired(&self) -> bool {
        matches!(
            self,
            Self::Write(WriteError::NotApplied(TransactionError::Request(error)))
                if error.is_session_expired()
        )
    }

    /// Converts it for the caller. The first `own` steps are not the caller's.
    pub(super) fn for_user(self, path: &ZnodePath, own: usize) -> QueueError {
        let path = path.clone();
        let source = match self {
            Self::Panicked => return QueueError::Panicked { path },
            Self::Write(WriteError::TooLong(TooLong { bytes, tries })) => {
                return QueueError::TooLong { path, bytes, tries };
            }
            Self::Write(WriteError::Unknown(source)) => {
                return QueueError::Unknown { path, source };
            }
            Self::NotMet(source) | Self::Write(WriteError::NotApplied(source)) => source,
        };
        match source {
            TransactionError::Request(ref error)
                if let Some((bytes, limit)) = error.too_large() =>
            {
                QueueError::TooLarge { path, bytes, limit }
            }
            TransactionError::Failed { index, op, path: at, code } => {
                let index = index.saturating_sub(own);
                let source = TransactionError::Failed { index, op, path: at, code };
                QueueError::Refused { path, source }
            }
            source => QueueError::Refused { path, source },
        }
    }
}
