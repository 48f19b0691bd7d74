//! Deletes that must happen, whatever becomes of the connection.
//!
//! A delete stays in this queue until a server has confirmed it or the session is over (and then
//! its ephemeral nodes are gone anyway). Local state is never cleared on the hope that a delete
//! will succeed.

use std::collections::VecDeque;

use bytes::Bytes;
use lockkeeper_wire::{
    DeleteRequest, Op, PathRequest, PathWatchRequest, Request, Stat, ZnodePath, Zxid,
};

/// Something that must be deleted before the session ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cleanup {
    /// A node whose full name is known. The name must be one that is never used twice, so that
    /// a late delete cannot hit somebody else's node.
    Node(ZnodePath),
    /// A node that was, or may have been, created, and of whose name only the beginning is known
    /// because no reply told the rest.
    Child {
        /// The node's parent.
        parent: ZnodePath,
        /// What the child's name begins with; unique to the attempt that created it.
        prefix: String,
    },
    /// A node of this session whose name is used again and again: it is looked at first, and
    /// deleted only if it is the one that is meant.
    Reused {
        /// The node.
        node: ZnodePath,
        /// How it is told from those before and after it.
        which: Which,
    },
    /// Two nodes in one transaction. When the first is gone, both are done.
    Pair {
        /// A node of which the rules of [`Cleanup::Node`] hold.
        node: ZnodePath,
        /// A node that is nobody else's while the first exists.
        with: ZnodePath,
    },
}

/// What tells a node from others that had its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// This transaction made it.
    MadeBy(Zxid),
    /// It has this data, which is unique to the attempt that created it.
    With(Bytes),
}

impl Which {
    pub(crate) fn is(&self, data: &[u8], stat: &Stat) -> bool {
        match self {
            Self::MadeBy(zxid) => stat.czxid == *zxid,
            Self::With(expected) => data == expected,
        }
    }
}

impl Cleanup {
    /// The node, or the parent of the nodes.
    pub fn path(&self) -> &ZnodePath {
        match self {
            Self::Node(path) => path,
            Self::Child { parent, .. } => parent,
            Self::Reused { node, .. } | Self::Pair { node, .. } => node,
        }
    }

    /// The same, seen from a server on which everything is below `chroot`.
    pub fn below(&self, chroot: &ZnodePath) -> Self {
        let below = |path: &ZnodePath| path.below(chroot);
        match self {
            Self::Node(node) => Self::Node(below(node)),
            Self::Child { parent, prefix } => {
                Self::Child { parent: below(parent), prefix: prefix.clone() }
            }
            Self::Reused { node, which } => {
                Self::Reused { node: below(node), which: which.clone() }
            }
            Self::Pair { node, with } => Self::Pair { node: below(node), with: below(with) },
        }
    }

    /// What to send first, if anything, and the request whose answer decides. A look is taken at a
    /// server that may lag behind the one that took the create, so a `sync` goes before it.
    pub(crate) fn requests(&self) -> (Option<Request>, Request) {
        let sync = |path: &ZnodePath| Some(Request::Sync(PathRequest { path: path.to_string() }));
        let look = |path: &ZnodePath| PathWatchRequest { path: path.to_string(), watch: false };
        match self {
            Self::Node(node) => (None, Request::Delete(delete(node))),
            Self::Child { parent, .. } => (sync(parent), Request::GetChildren(look(parent))),
            Self::Reused { node, .. } => (sync(node), Request::GetData(look(node))),
            Self::Pair { node, with } => {
                let deletes = [node, with].map(|node| Op::Delete(delete(node)));
                (None, Request::Multi(deletes.to_vec()))
            }
        }
    }
}

pub(crate) fn delete(node: &ZnodePath) -> DeleteRequest {
    DeleteRequest { path: node.as_str().to_owned(), version: -1 }
}

/// A cleanup, and who wants to know that it is done.
#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
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
    waiting: VecDeque<Entry<T>>,
    /// How many are on their way.
    in_flight: usize,
}

impl<T> Default for CleanupQueue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), in_flight: 0 }
    }
}

impl<T> CleanupQueue<T> {
    pub(crate) fn push(&mut self, entry: Entry<T>) {
        self.waiting.push_back(entry);
    }

    /// The next one to send, when so many of the requests that ever waited wait no more.
    pub(crate) fn start(&mut self, gone: u64) -> Option<Entry<T>> {
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

    /// Takes all that wait, because the session is over.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Entry<T>> + '_ {
        self.in_flight = 0;
        self.waiting.drain(..)
    }
}
