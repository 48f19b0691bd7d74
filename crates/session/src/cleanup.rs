//! Deletes that must happen, whatever becomes of the connection.
//!
//! A delete stays in this queue until a server has confirmed it or the session is over (and then
//! its ephemeral nodes are gone anyway). Local state is never cleared on the hope that a delete
//! will succeed.

use std::collections::VecDeque;

use bytes::Bytes;
use lockkeeper_wire::{
    CreateRequest, DeleteRequest, ErrorCode, Op, OpResult, PathRequest, PathWatchRequest, Request,
    Response, SessionId, Stat, ZnodePath, Zxid,
};

use crate::error::RequestError;

/// Something that must be deleted before the session ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cleanup {
    /// Deletes this node. Its name must be one that is never used twice, so that a late delete
    /// cannot hit another client's node.
    Node(ZnodePath),
    /// Deletes the children whose names begin with the prefix, which a listing finds: for a node of
    /// whose name only the beginning is known, because no reply told the rest.
    ByPrefix {
        /// The parent.
        parent: ZnodePath,
        /// What the child's name begins with; unique to the attempt that created it.
        prefix: String,
    },
    /// Deletes this node of the session if it is the expected one, which a read finds out: for a
    /// name that is used again and again.
    IfExpected {
        /// The node.
        node: ZnodePath,
        /// How it is told from those before and after it.
        expected: ExpectedNode,
    },
    /// Deletes nodes in one transaction. It is done when the first one is gone; when another one is
    /// missing, or all of them are more than fit into a request, the first one is deleted alone.
    Transaction {
        /// A node of which the rule of [`Cleanup::Node`] holds.
        first: ZnodePath,
        /// Nodes that are nobody else's while the first one exists.
        others: Vec<ZnodePath>,
    },
}

/// What tells a node from others that had its name.
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

/// What an answer leaves to be done for a cleanup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Remainder {
    Nothing,
    /// The node, at the version that was read.
    Delete {
        version: i32,
    },
    /// These nodes instead.
    Nodes(Vec<ZnodePath>),
    /// All of it: at once, or when the connection or the server is another.
    Again,
    Later,
    /// A server refuses it for good.
    Refused(RequestError),
}

impl Cleanup {
    /// The node, or the parent of the nodes.
    pub fn path(&self) -> &ZnodePath {
        match self {
            Self::Node(node) | Self::IfExpected { node, .. } => node,
            Self::ByPrefix { parent, .. } => parent,
            Self::Transaction { first, .. } => first,
        }
    }

    /// The same, seen from a server on which everything is below `chroot`.
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

    /// Whether it looks for the node that this request creates, and for no other.
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

    /// What to send first, if anything, and the request whose answer decides. A look is taken at a
    /// server that may lag behind the one that took the create, so a `sync` goes before it.
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

    /// What is left to be done after this answer to the deciding request, in the session `own`.
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

            // Changed since it was read: it may be another one by now.
            (Self::IfExpected { .. }, Err(RequestError::Server(ErrorCode::BadVersion))) => {
                Remainder::Again
            }
            // The session's end is certain only when a handshake says so, and an answer that
            // nobody understands says nothing: the connection ends with it.
            // What is too long may be shorter then.
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

/// A cleanup, and who wants to know that it is done.
#[derive(Clone, Debug)]
pub(crate) struct PendingCleanup<T> {
    pub(crate) target: Cleanup,
    pub(crate) notify: Option<T>,
    /// How many requests had waited before it, of all that ever did. It comes after these: they may
    /// be writes that belong to the node, or make what it looks for.
    pub(crate) after: u64,
}

/// The cleanups of a session. One that is on its way lives in the queue of requests in flight and
/// comes back here when the connection is lost.
#[derive(Clone, Debug)]
pub(crate) struct CleanupQueue<T> {
    waiting: VecDeque<PendingCleanup<T>>,
    /// How many are on their way.
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

    /// Drops the search for the node of a create that was never sent, unless its end is waited for.
    pub(crate) fn forget_search(&mut self, create: &CreateRequest) {
        self.waiting.retain(|entry| entry.notify.is_some() || !entry.target.searches_for(create));
    }

    /// The next one to send, when so many of the requests that ever waited wait no more.
    pub(crate) fn start(&mut self, gone: u64) -> Option<PendingCleanup<T>> {
        let index = self.waiting.iter().position(|entry| entry.after <= gone)?;
        self.in_flight += 1;
        self.waiting.remove(index)
    }

    /// One that had come to an end goes on with another request.
    pub(crate) fn go_on(&mut self) {
        self.in_flight += 1;
    }

    /// One that was on its way came to an end, of either kind.
    pub(crate) fn finish(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Whether nothing remains to be done.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }

    /// Takes who wants to know, of all that wait. These go on waiting.
    pub(crate) fn take_notifies(&mut self) -> Vec<T> {
        self.waiting.iter_mut().filter_map(|entry| entry.notify.take()).collect()
    }

    /// Takes all that wait, because the session is over.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = PendingCleanup<T>> + '_ {
        self.in_flight = 0;
        self.waiting.drain(..)
    }
}
