//! Notices: requests that ran into a limit, for the log. No connection is closed for them.

use std::cell::RefCell;

use lockkeeper_wire::ErrorCode;

use crate::output::ConnectionId;

/// How many notices are kept between two calls of `take`: a flood of them says no more than a few.
const MOST: usize = 64;

/// A request that ran into a limit; its text is for the log.
///
/// A caller that logs them should limit repetitions: a client may run into a limit with every
/// request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Notice {
    /// A reply above [`Config::max_frame`](crate::Config::max_frame): the client, which would have
    /// closed the connection over it, got an error in its place.
    #[error(
        "a reply of {len} bytes is over the limit of {max}, and its client got an error: a node \
         with so many children, or a multi with so many results, needs a larger frame limit on \
         both sides"
    )]
    ReplyTooLong {
        /// Whose reply.
        connection: ConnectionId,
        /// Its length, in bytes, as far as it was computed: at least one more than the limit.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A `multi` or `multiRead` with too many operations, which was refused.
    #[error("a multi of {count} operations is over the limit of {max}, and was refused")]
    TooManyOps {
        /// Who asked.
        connection: ConnectionId,
        /// How many operations.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A request to count more nodes than may be counted at once, which was refused.
    #[error("a client asked to count more than {max} nodes, which was refused")]
    TooMuchToCount {
        /// Who asked.
        connection: ConnectionId,
        /// The limit.
        max: usize,
    },
    /// A connection with too many watches, whose request for another one was refused.
    #[error("a client has watches on {max} paths, which is the limit: one more was refused")]
    TooManyWatches {
        /// Whose watches.
        connection: ConnectionId,
        /// The limit.
        max: usize,
    },
    /// A connection whose watches take too much memory, beside those of all others. Its request for
    /// another one was refused.
    #[error(
        "a client has watches that weigh {bytes} bytes, more than its share of {max} bytes for all: one \
         more was refused"
    )]
    WatchesTooHeavy {
        /// Whose watches.
        connection: ConnectionId,
        /// What they would weigh.
        bytes: usize,
        /// The limit for all connections together.
        max: usize,
    },
    /// A session with too many ephemeral nodes, whose request for another one was refused.
    #[error("a session has {max} ephemeral nodes, which is the limit: one more was refused")]
    TooManyEphemerals {
        /// Who asked.
        connection: ConnectionId,
        /// The limit.
        max: usize,
    },
    /// A write that would make the nodes weigh more than they may. It was refused.
    #[error(
        "the nodes would take {weight} bytes of memory, which is over the limit of {max} for this kind \
         of node: nothing may grow before some are deleted, or the limit is raised"
    )]
    NoRoom {
        /// Who asked.
        connection: ConnectionId,
        /// What the nodes would weigh.
        weight: usize,
        /// The limit.
        max: usize,
    },
    /// A write that would need room on the disk, of which there is too little. It was refused.
    #[error("the disk has too little room for a write that makes the data grow, which was refused")]
    DiskShort {
        /// Who asked.
        connection: ConnectionId,
    },
    /// A write that would need memory, of which the process has taken nearly all. It was refused.
    #[error(
        "the process has too little memory left for a write that makes the data grow, which was refused"
    )]
    MemoryShort {
        /// Who asked.
        connection: ConnectionId,
    },
    /// An access control list that is too long, or lists of one request that are too long together, once
    /// `auth` stands for what the client has proven. The request was refused.
    #[error(
        "access control lists of {count} entries, in which `auth` counts for each identity of the \
         client, are over the limit of {max}, and were refused"
    )]
    AclTooLong {
        /// Who asked.
        connection: ConnectionId,
        /// How many entries, as far as they were counted.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// An access control list whose texts are too long, or lists of one request that are too long together,
    /// once `auth` stands for what the client has proven. The request was refused.
    #[error(
        "access control lists of {bytes} bytes, in which `auth` counts for each identity of the \
         client, are over the limit of {max}, and were refused"
    )]
    AclTooLarge {
        /// Who asked.
        connection: ConnectionId,
        /// The length of the texts, in bytes, as far as they were counted.
        bytes: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A quota that a request would have broken, or did break if the limit is a soft one.
    #[error(
        "the quota of {path} is exceeded: {present} {what}, {kind} limit {limit}{}",
        if *.refused { " (refused)" } else { "" }
    )]
    QuotaExceeded {
        /// The node with the quota.
        path: String,
        /// `nodes` or `bytes`.
        what: &'static str,
        /// `soft` or `hard`.
        kind: &'static str,
        /// What there would be after the request.
        present: i64,
        /// The limit.
        limit: i64,
        /// Whether the request was refused.
        refused: bool,
    },
}

impl Notice {
    /// The kind of limit, in a word or two: repetitions of one kind say no more than the first.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReplyTooLong { .. } => "reply",
            Self::TooManyOps { .. } => "ops",
            Self::TooMuchToCount { .. } => "count",
            Self::TooManyWatches { .. } => "watches",
            Self::WatchesTooHeavy { .. } => "watch bytes",
            Self::TooManyEphemerals { .. } => "ephemerals",
            Self::NoRoom { .. } => "room",
            Self::DiskShort { .. } => "disk",
            Self::MemoryShort { .. } => "memory",
            Self::AclTooLong { .. } => "acl",
            Self::AclTooLarge { .. } => "acl bytes",
            Self::QuotaExceeded { refused: true, .. } => "hard quota",
            Self::QuotaExceeded { .. } => "soft quota",
        }
    }

    /// Whose request it was, as far as that is noted.
    pub fn connection(&self) -> Option<ConnectionId> {
        match self {
            Self::ReplyTooLong { connection, .. }
            | Self::TooManyOps { connection, .. }
            | Self::TooMuchToCount { connection, .. }
            | Self::TooManyWatches { connection, .. }
            | Self::WatchesTooHeavy { connection, .. }
            | Self::TooManyEphemerals { connection, .. }
            | Self::NoRoom { connection, .. }
            | Self::DiskShort { connection }
            | Self::MemoryShort { connection }
            | Self::AclTooLong { connection, .. }
            | Self::AclTooLarge { connection, .. } => Some(*connection),
            Self::QuotaExceeded { .. } => None,
        }
    }
}

/// Collects notices; behind a cell, because they also arise where the server is only read.
#[derive(Default)]
pub(crate) struct Notices(RefCell<Vec<Notice>>);

impl Notices {
    pub(crate) fn add(&self, notice: Notice) {
        let mut all = self.0.borrow_mut();
        if all.len() < MOST {
            all.push(notice);
        }
    }

    /// Refuses a request with this error, and says why.
    pub(crate) fn refuse<T>(&self, notice: Notice, code: ErrorCode) -> Result<T, ErrorCode> {
        self.add(notice);
        Err(code)
    }

    pub(crate) fn take(&self) -> Vec<Notice> {
        self.0.take()
    }
}
