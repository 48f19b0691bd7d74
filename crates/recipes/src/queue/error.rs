//! What can go wrong with a queue.

use lockkeeper_client::retry::TooLong;
use lockkeeper_client::{Error, Failure, Outcome, TransactionError, ZnodePath, impl_failure};
use lockkeeper_locks::{AcquireError, LossReason};

use crate::exact::WriteError;
use crate::queue::peer_layouts::QueueLayout;
use crate::values::error::ValuePathError;

/// Why something was not put into a queue, or not taken out of it, or a queue cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// A queue cannot be there.
    #[error("{0}")]
    Path(#[from] ValuePathError),
    /// There is no queue: nobody has used it yet, or somebody has deleted it, or is about to. The next put or take
    /// makes another one.
    #[error(
        "there is no queue at {path}: nobody has used it yet, or it was deleted; the next put or take makes one"
    )]
    Deleted {
        /// The queue.
        path: ZnodePath,
    },
    /// The node is no queue, or one in a layout that this version does not know.
    #[error(
        "{path} has {found} where a queue has its layout; use another path, or a version of this library that \
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
        /// How many sessions of consumers there are.
        workers: usize,
        /// How many items are being worked on.
        claims: usize,
    },
    /// The layout has no such thing.
    #[error("{path} has the layout of {layout}, in which there are no {what}{instead}")]
    NotInLayout {
        /// The queue.
        path: ZnodePath,
        /// The layout.
        layout: QueueLayout,
        /// What there is not.
        what: &'static str,
        /// What to do instead, if there is anything.
        instead: &'static str,
    },
    /// An item cannot be put with these options.
    #[error("an item cannot be put into {path} like this: {reason}")]
    Options {
        /// The queue.
        path: ZnodePath,
        /// What is wrong.
        reason: String,
    },
    /// The item has no form as bytes.
    #[error("an item for {path} cannot be written: {reason}")]
    Unencodable {
        /// The queue.
        path: ZnodePath,
        /// What is wrong.
        reason: String,
    },
    /// An item cannot be read as a `T`. It stays for programs that can read it, and a consumer passes over it from
    /// now on. In our own layout it goes to the end of the queue, and the try does not count.
    #[error(
        "item {id} of {path} cannot be read here: {reason}. It stays for programs that can read it"
    )]
    Undecodable {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
        /// What is wrong.
        reason: String,
    },
    /// A value has too many bytes for a queue. Nothing was put.
    #[error(
        "a value of {bytes} bytes was not put into {path}: a queue takes {limit} bytes at most; put it elsewhere, \
         and its name into the queue"
    )]
    ValueTooLong {
        /// The queue.
        path: ZnodePath,
        /// How long it is, in bytes.
        bytes: usize,
        /// How long it may be, in bytes.
        limit: usize,
    },
    /// The write does not fit into one request.
    #[error(
        "{path} was not changed: the write would take {bytes} bytes, and {limit} are the most that servers take \
         at once (jute.maxbuffer); put less at once, or what is long elsewhere and its name into the queue"
    )]
    TooLarge {
        /// The queue.
        path: ZnodePath,
        /// How long the request would be, in bytes.
        bytes: usize,
        /// How long it may be, in bytes.
        limit: usize,
    },
    /// Servers seem to close the connection whenever a write of 256 KiB or more comes. It was given up.
    #[error(
        "{path} was not changed: the connection was lost {tries} times in a row at a write of {bytes} bytes; \
         servers close it if that is more than they take at once (jute.maxbuffer): set \
         `ClientBuilder::max_frame` to that, and put less at once"
    )]
    TooLong {
        /// The queue.
        path: ZnodePath,
        /// How long the data of the write was, in bytes.
        bytes: usize,
        /// How often it was tried.
        tries: u32,
    },
    /// The item is not this consumer's any more: its claim is lost. Another one may have it, or has done it.
    #[error("item {id} of {path} is lost: {reason}")]
    Lost {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
        /// Why.
        reason: LossReason,
    },
    /// An item of this id is in the queue, or a dead letter. Nothing was put.
    #[error("{path} has an item {id} already")]
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
    /// The queue has as many items as it [may](crate::QueueBuilder::bound). Nothing was put.
    #[error("{path} is full: it has {limit} items, which is as many as it may")]
    Full {
        /// The queue.
        path: ZnodePath,
        /// As many as it may have.
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
    /// The answer to a request is not kept any more: the session of the requester has ended, or the time is over.
    /// Whether the item was worked on is unknown.
    #[error("the answer to item {id} of {path} is not kept any more")]
    NoAnswer {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
    },
    /// The item was ended before.
    #[error("item {id} of {path} was ended before")]
    Ended {
        /// The queue.
        path: ZnodePath,
        /// The item.
        id: String,
    },
    /// The line of waiting consumers, or the claim of an item, cannot be had.
    #[error("cannot take from {path}: {source}")]
    Take {
        /// The queue.
        path: ZnodePath,
        /// Why not.
        source: AcquireError,
    },
    /// A write was refused. Nothing of it was applied.
    #[error("cannot change {path}: {source}")]
    Refused {
        /// The queue.
        path: ZnodePath,
        /// What was refused. An index is that in the transaction that the caller has given.
        source: TransactionError,
    },
    /// A write may have been applied: the session ended, no server could be reached for as long as it lasts,
    /// or somebody deleted the outcome marker, before that was known.
    #[error(
        "it is unknown whether {path} was changed, as the session ended, no server could be reached, or the \
         write's outcome marker was deleted, before an answer came"
    )]
    Unknown {
        /// The queue.
        path: ZnodePath,
        /// The end.
        source: TransactionError,
    },
    /// A write may have been applied: the task that makes the writes of this handle has ended early, with the
    /// runtime in which the client was connected, or by a panic.
    #[error("it is unknown whether {path} was changed, as the task ended that wrote to it")]
    Panicked {
        /// The queue.
        path: ZnodePath,
    },
    /// A read failed.
    #[error("cannot read {path}: {source}")]
    Client {
        /// The queue.
        path: ZnodePath,
        /// What failed.
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
    /// Whether it passes by waiting, and nothing was done.
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

/// Why a write of a handle was not made, or may not have been.
#[derive(Clone, Debug)]
pub(super) enum CommitError {
    Write(WriteError),
    /// It was not made, because what it was to be made on is not so.
    NotMet(TransactionError),
    /// The task that makes the writes has ended.
    Panicked,
}

impl CommitError {
    /// Which of the steps was refused, and how.
    pub(super) fn refused(&self) -> Option<(usize, lockkeeper_client::ErrorCode)> {
        match self {
            Self::Write(WriteError::NotApplied(TransactionError::Failed {
                index, code, ..
            })) => Some((*index, *code)),
            _ => None,
        }
    }

    /// Whether the step that was refused is about a node below this one.
    pub(super) fn is_about(&self, directory: &ZnodePath) -> bool {
        match self {
            Self::Write(WriteError::NotApplied(TransactionError::Failed { path, .. })) => {
                let below = path.strip_prefix(directory.as_str());
                below.is_some_and(|below| below.starts_with('/'))
            }
            _ => false,
        }
    }

    /// How its condition was refused.
    pub(super) fn not_met(&self) -> Option<lockkeeper_client::ErrorCode> {
        match self {
            Self::NotMet(TransactionError::Failed { code, .. }) => Some(*code),
            _ => None,
        }
    }

    /// Whether it was not made because a guard is not held any more.
    pub(super) fn is_not_held(&self) -> bool {
        matches!(
            self,
            Self::Write(WriteError::NotApplied(TransactionError::Request(error)))
                if error.is_not_held()
        )
    }

    /// Whether servers may answer it if it is made again.
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

    /// The same for the user. The first `own` steps were not given by the caller.
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
