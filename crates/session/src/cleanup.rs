//! Deletes that must happen, whatever becomes of the connection.
//!
//! A delete stays in this queue until a server has confirmed it or the session is over (and then
//! its ephemeral nodes are gone anyway). Local state is never cleared on the hope that a delete
//! will succeed.

use std::collections::VecDeque;

use lockkeeper_wire::{DeleteRequest, PathRequest, PathWatchRequest, Request, ZnodePath};

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
}

impl Cleanup {
    /// The node, or the parent of the nodes.
    pub fn path(&self) -> &ZnodePath {
        match self {
            Self::Node(path) => path,
            Self::Child { parent, .. } => parent,
        }
    }

    /// What to send. A listing is made by a server that may lag behind the one that took the
    /// create, so a `sync` goes before it.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let path = self.path().to_string();
        match self {
            Self::Node(_) => vec![Request::Delete(DeleteRequest { path, version: -1 })],
            Self::Child { .. } => vec![
                Request::Sync(PathRequest { path: path.clone() }),
                Request::GetChildren(PathWatchRequest { path, watch: false }),
            ],
        }
    }
}

/// A cleanup, and who wants to know that it is done.
#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
    pub(crate) target: Cleanup,
    pub(crate) notify: Option<T>,
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

    /// The next one to send.
    pub(crate) fn start(&mut self) -> Option<Entry<T>> {
        let entry = self.waiting.pop_front()?;
        self.in_flight += 1;
        Some(entry)
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
