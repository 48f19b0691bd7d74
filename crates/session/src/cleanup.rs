//! Deletes that must happen, even if connections are lost.
//!
//! A delete stays in this queue until a server confirms it or the session has ended. (When the session ends,
//! its ephemeral nodes are deleted anyway.) A delete is never removed from the queue on the assumption that
//! it will succeed.

use std::collections::VecDeque;

use bytes::Bytes;
use lockkeeper_wire::{
    CreateRequest, DeleteRequest, ErrorCode, Op, OpResult, PathRequest, PathWatchRequest, Request,
    Response, SessionId, Stat, ZnodePath, Zxid,
};

use crate::error::RequestError;

/// A delete that must happen before the session ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cleanup {
    /// Deletes this node. The name must never be used again, so that a late delete cannot remove another
    /// client's node.
    Node(ZnodePath),
    /// Lists the parent and deletes the children whose names begin with the prefix. For a node whose full
    /// name is unknown, because the reply to its create was lost.
    ByPrefix {
        /// The parent.
        parent: ZnodePath,
        /// The beginning of the child's name; unique to the attempt that created the child.
        prefix: String,
    },
    /// Reads this node and deletes it if it belongs to this session and is the expected one. For names that
    /// are used repeatedly.
    IfExpected {
        /// The node.
        node: ZnodePath,
        /// What distinguishes the node from earlier and later ones of the same name.
        expected: ExpectedNode,
    },
    /// Deletes nodes in one transaction. The cleanup is complete when the first node is deleted. If another
    /// one is missing, or they do not fit into one request, the first one is deleted by itself.
    Transaction {
        /// A node whose name is never used again, as for [`Cleanup::Node`].
        first: ZnodePath,
        /// Nodes that belong to the same owner while the first one exists.
        others: Vec<ZnodePath>,
    },
}

/// Distinguishes a node from others of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExpectedNode {
    /// This transaction created it.
    CreatedBy(Zxid),
    /// It has this data, which is unique to the attempt that created it.
    WithData(Bytes),
}

impl ExpectedNode {
    fn is(&self, data: &[u8], stat: &Stat) -> bool {
        match self {
            Self::CreatedBy(zxid) => stat.czxid == *zxid,
            Self::WithData(expected) => data == expected,
        }
    }
}

/// What remains to be done for a cleanup after a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Remainder {
    Nothing,
    /// The node, at the version that was read.
    Delete {
        version: i32,
    },
    /// Delete these nodes instead.
    Nodes(Vec<ZnodePath>),
    /// Repeat the cleanup: immediately, or on the next connection.
    Retry,
    Later,
    /// The server refuses the delete permanently.
    Refused(RequestError),
}

impl Cleanup {
    /// The path of the node, or of the parent.
    pub fn path(&self) -> &ZnodePath {
        match self {
            Self::Node(node) | Self::IfExpected { node, .. } => node,
            Self::ByPrefix { parent, .. } => parent,
            Self::Transaction { first, .. } => first,
        }
    }

    /// The same cleanup, with its paths below `chroot`.
    #[must_use]
    pub fn below(mut self, chroot: &ZnodePath) -> Self {
        match &mut self {
            Self::Node(path)
            | Self::IfExpected { node: path, .. }
            | Self::ByPrefix { parent: path, .. } => *path = path.below(chroot),
            Self::Transaction { first, others } => {
                for path in others.iter_mut().chain([first]) {
                    *path = path.below(chroot);
                }
            }
        }
        self
    }

    /// Whether it searches exactly for the node that this request creates.
    fn searches_for(&self, create: &CreateRequest) -> bool {
        match self {
            Self::ByPrefix { parent, prefix } => {
                let name = create.path.strip_suffix(prefix.as_str());
                name.and_then(|above| above.strip_suffix('/')) == Some(parent.as_str())
            }
            Self::IfExpected { node, expected: ExpectedNode::WithData(data) } => {
                create.path == node.as_str() && create.data[..] == data[..]
            }
            _ => false,
        }
    }

    /// The requests of the cleanup: an optional `sync`, and the request whose reply decides. A read may reach
    /// a server that has not applied the create yet, so a `sync` precedes it.
    pub(crate) fn requests(&self) -> (Option<Request>, Request) {
        let sync = |path: &ZnodePath| Some(Request::Sync(PathRequest { path: path.to_string() }));
        let look = |path: &ZnodePath| PathWatchRequest { path: path.to_string(), watch: false };
        match self {
            Self::Node(node) => (None, Request::Delete(delete(node))),
            Self::ByPrefix { parent, .. } => (sync(parent), Request::GetChildren(look(parent))),
            Self::IfExpected { node, .. } => (sync(node), Request::GetData(look(node))),
            Self::Transaction { first, others } => {
                let nodes = [first].into_iter().chain(others);
                (None, Request::Multi(nodes.map(|node| Op::Delete(delete(node))).collect()))
            }
        }
    }

    /// What remains after this reply to the deciding request. `own` is the current session.
    pub(crate) fn remainder(
        &self,
        result: &Result<Response, RequestError>,
        own: SessionId,
    ) -> Remainder {
        match (self, result) {
            (_, Ok(Response::Empty) | Err(RequestError::Server(ErrorCode::NoNode))) => {
                Remainder::Nothing
            }
            (Self::ByPrefix { parent, prefix }, Ok(Response::Names(names))) => {
                let found = names.iter().filter(|name| name.starts_with(prefix));
                Remainder::Nodes(found.filter_map(|name| parent.child(name).ok()).collect())
            }
            (Self::IfExpected { expected, .. }, Ok(Response::Data { data, stat })) => {
                match stat.ephemeral_owner == own && expected.is(data, stat) {
                    true => Remainder::Delete { version: stat.version },
                    false => Remainder::Nothing,
                }
            }
            (Self::Transaction { first, .. }, Ok(Response::Multi(results))) => {
                let gone = Some(&OpResult::Error(Some(ErrorCode::NoNode)));
                let applied = !results.iter().any(|result| matches!(result, OpResult::Error(_)));
                match applied || results.first() == gone {
                    true => Remainder::Nothing,
                    false => Remainder::Nodes(vec![first.clone()]),
                }
            }
            (Self::Transaction { first, .. }, Err(RequestError::TooLarge { .. })) => {
                Remainder::Nodes(vec![first.clone()])
            }

            // The node has changed since it was read, so it may be a different one.
            (Self::IfExpected { .. }, Err(RequestError::Server(ErrorCode::BadVersion))) => {
                Remainder::Retry
            }
            // Only a handshake proves that the session has ended, and an undecodable reply ends the
            // connection. A reply that is too long now may be shorter after a retry.
            (
                _,
                Err(
                    RequestError::SessionExpired(_)
                    | RequestError::BadAnswer(_)
                    | RequestError::AnswerTooLong { .. },
                ),
            ) => Remainder::Later,
            (_, Err(error)) if error.is_retryable() => Remainder::Later,
            (_, Err(error)) => Remainder::Refused(error.clone()),
            (_, Ok(_)) => Remainder::Refused(RequestError::Closed),
        }
    }
}

pub(crate) fn delete(node: &ZnodePath) -> DeleteRequest {
    DeleteRequest { path: node.as_str().to_owned(), version: -1 }
}

/// A cleanup, and the token to notify when it is complete.
#[derive(Clone, Debug)]
pub(crate) struct PendingCleanup<T> {
    pub(crate) target: Cleanup,
    pub(crate) notify: Option<T>,
    /// How many requests had ever been queued before this cleanup. It is sent after them: they may be writes
    /// that belong to the node, or may create the node that it searches for.
    pub(crate) after: u64,
}

/// The cleanups of a session. A cleanup that has been sent lives in the queue of requests in flight, and
/// returns here when the connection is lost.
#[derive(Clone, Debug)]
pub(crate) struct CleanupQueue<T> {
    waiting: VecDeque<PendingCleanup<T>>,
    /// The number of cleanups in flight.
    in_flight: usize,
}

impl<T> Default for CleanupQueue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), in_flight: 0 }
    }
}

impl<T> CleanupQueue<T> {
    pub(crate) fn push(&mut self, entry: PendingCleanup<T>) {
        self.waiting.push_back(entry);
    }

    /// Drops the search for the node of a create that was never sent, unless a caller waits for it.
    pub(crate) fn forget_search(&mut self, create: &CreateRequest) {
        self.waiting.retain(|entry| entry.notify.is_some() || !entry.target.searches_for(create));
    }

    /// Takes the next cleanup to send. `gone`: how many of the requests ever queued have left the queue.
    pub(crate) fn start(&mut self, gone: u64) -> Option<PendingCleanup<T>> {
        let index = self.waiting.iter().position(|entry| entry.after <= gone)?;
        self.in_flight += 1;
        self.waiting.remove(index)
    }

    /// A finished cleanup continues with another request.
    pub(crate) fn resume(&mut self) {
        self.in_flight += 1;
    }

    /// A cleanup in flight succeeded or failed.
    pub(crate) fn finish(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Whether all cleanups are complete.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }

    /// Takes the notify tokens of all queued cleanups. The cleanups stay queued.
    pub(crate) fn take_notifies(&mut self) -> Vec<T> {
        self.waiting.iter_mut().filter_map(|entry| entry.notify.take()).collect()
    }

    /// Takes all queued cleanups, because the session has ended.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = PendingCleanup<T>> + '_ {
        self.in_flight = 0;
        self.waiting.drain(..)
    }
}
