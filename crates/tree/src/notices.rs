//! Notices: requests that exceeded a limit, for the log. They do not close the connection.

use std::cell::RefCell;

use lockkeeper_wire::ErrorCode;

use crate::output::ConnectionId;

/// The maximum number of notices kept between two calls of `take`; more would not add information.
const MAX_NOTICES: usize = 64;

/// A request that exceeded a limit. The text is for the log.
///
/// A caller that logs notices should limit repetitions: a client may exceed a limit with every request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Notice {
    /// A reply above [`Config::max_frame`](crate::Config::max_frame). The client got an error instead; it
    /// would have closed the connection because of the reply.
    #[error(
        "a reply of {len} bytes is over the limit of {max}, and its client got an error: raise the \
         frame limit of server and client, or use nodes with fewer children and multis with fewer \
         results"
    )]
    ReplyTooLong {
        /// The connection.
        connection: ConnectionId,
        /// The length of the reply in bytes, as far as it was computed: at least one more than the limit.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A `multi` or `multiRead` with too many operations was refused.
    #[error("a multi of {count} operations is over the limit of {max}, and was refused")]
    TooManyOps {
        /// The connection.
        connection: ConnectionId,
        /// The number of operations.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A request to count more nodes than may be counted at once was refused.
    #[error("a request to count more than {max} nodes was refused")]
    TooMuchToCount {
        /// The connection.
        connection: ConnectionId,
        /// The limit.
        max: usize,
    },
    /// A request for another watch was refused, because the connection has too many.
    #[error("a client has watches on {max} paths, which is the limit: another one was refused")]
    TooManyWatches {
        /// The connection.
        connection: ConnectionId,
        /// The limit.
        max: usize,
    },
    /// A request for another watch was refused, because the connection's watches use too much memory compared
    /// to the others.
    #[error(
        "a client has watches that weigh {bytes} bytes, more than its share of {max} bytes for all: \
         another watch was refused"
    )]
    WatchesTooHeavy {
        /// The connection.
        connection: ConnectionId,
        /// The memory use with the refused watch.
        bytes: usize,
        /// The limit for all connections together.
        max: usize,
    },
    /// A request for another ephemeral node was refused, because the session has too many.
    #[error("a session has {max} ephemeral nodes, which is the limit: another one was refused")]
    TooManyEphemerals {
        /// The connection.
        connection: ConnectionId,
        /// The limit.
        max: usize,
    },
    /// A write was refused, because it would exceed the memory limit of the nodes.
    #[error(
        "the nodes would take {weight} bytes of memory, which is over the limit of {max} for this kind \
         of node: delete nodes, or raise the limit"
    )]
    NoRoom {
        /// The connection.
        connection: ConnectionId,
        /// The memory use with the refused write.
        weight: usize,
        /// The limit.
        max: usize,
    },
    /// A write was refused, because it would need disk space and too little is free.
    #[error("a write that makes the data grow was refused: too little disk space is left")]
    DiskShort {
        /// The connection.
        connection: ConnectionId,
    },
    /// A write was refused, because it would need memory and too little is free.
    #[error("a write that makes the data grow was refused: too little memory is left")]
    MemoryShort {
        /// The connection.
        connection: ConnectionId,
    },
    /// A request was refused, because the access control lists in it have too many entries after `auth` is
    /// replaced by the client's identities.
    #[error(
        "access control lists of {count} entries are over the limit of {max}, and were refused (`auth` \
         counts once for each identity of the client)"
    )]
    AclTooLong {
        /// The connection.
        connection: ConnectionId,
        /// The number of entries, as far as they were counted.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A request was refused, because the texts of the access control lists in it are too long after `auth`
    /// is replaced by the client's identities.
    #[error(
        "access control lists of {bytes} bytes are over the limit of {max}, and were refused (`auth` \
         counts once for each identity of the client)"
    )]
    AclTooLarge {
        /// The connection.
        connection: ConnectionId,
        /// The length of the texts in bytes, as far as they were counted.
        bytes: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A request would have exceeded a quota, or did exceed it if the limit is a soft one.
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
        /// The usage with the request.
        present: i64,
        /// The limit.
        limit: i64,
        /// Whether the request was refused.
        refused: bool,
    },
}

impl Notice {
    /// The kind of limit, in a word or two: for limiting repetitions.
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

    /// The connection of the request, if it is known.
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

/// Collects notices. In a cell, because read-only functions record them too.
#[derive(Default)]
pub(crate) struct Notices(RefCell<Vec<Notice>>);

impl Notices {
    pub(crate) fn add(&self, notice: Notice) {
        let mut all = self.0.borrow_mut();
        if all.len() < MAX_NOTICES {
            all.push(notice);
        }
    }

    /// Records why a request is refused, and returns its error.
    pub(crate) fn refuse<T>(&self, notice: Notice, code: ErrorCode) -> Result<T, ErrorCode> {
        self.add(notice);
        Err(code)
    }

    pub(crate) fn take(&self) -> Vec<Notice> {
        self.0.take()
    }
}
