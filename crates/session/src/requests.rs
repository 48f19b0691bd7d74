//! Requests that wait for a connection or for their reply.

use lockkeeper_wire::{AddWatchMode, OpCode, OpResult, Request, Response};

use crate::cleanup::PendingCleanup;
use crate::error::{Outcome, RequestError};
use crate::heartbeat::{Binding, Checked, HoldId};
use crate::time::Instant;
use crate::watches::{Removal, WatchId};

/// The origin of a request, which decides where the reply goes.
#[derive(Clone, Debug)]
pub(crate) enum Origin<T> {
    /// The caller, which gets the reply.
    Caller(T),
    /// A heartbeat, which proves these holds.
    Heartbeat(Checked),
    /// A read of the node of a hold, behind a heartbeat that was sent at that time.
    NodeRead(HoldId, Instant),
    /// The last request of a cleanup, whose reply decides what remains to be done.
    Cleanup(PendingCleanup<T>),
    /// The deletion of a node and the creation of the one that replaces it, in one transaction.
    Replace(Box<Replacement<T>>),
    /// The removal of a watch.
    Unwatch(Removal),
    /// The end of the session.
    Close,
    /// The reply is ignored.
    Nobody,
}

/// A delete that is written next, unless a create replaces the node.
#[derive(Clone, Debug)]
pub(crate) struct StagedDelete<T> {
    pub(crate) xid: i32,
    pub(crate) at: Instant,
    /// A cleanup of a node whose full name is known.
    pub(crate) entry: PendingCleanup<T>,
}

/// A node that replaces another one.
#[derive(Clone, Debug)]
pub(crate) struct Replacement<T> {
    /// The delete of the replaced node.
    pub(crate) entry: PendingCleanup<T>,
    /// The token of the create.
    pub(crate) token: T,
    /// Whether the new node is ephemeral.
    pub(crate) ephemeral: bool,
    /// The length of its data.
    pub(crate) data_length: usize,
}

/// A request that has not been sent.
#[derive(Clone, Debug)]
pub(crate) struct Queued<T> {
    pub(crate) request: Request,
    pub(crate) token: T,
    pub(crate) watch: Option<WatchId>,
    /// The holds that the request is bound to.
    pub(crate) bound: Vec<Binding>,
    /// When it was submitted.
    pub(crate) since: Instant,
}

/// A request that has been sent and not answered.
#[derive(Clone, Debug)]
pub(crate) struct Sent<T> {
    pub(crate) xid: i32,
    pub(crate) op: OpCode,
    /// The number of bytes written for it.
    pub(crate) len: usize,
    pub(crate) at: Instant,
    pub(crate) origin: Origin<T>,
    pub(crate) watch: Option<WatchId>,
}

impl<T> Sent<T> {
    /// Whether the request may have had an effect, although its reply will never arrive.
    pub(crate) fn outcome(&self) -> Outcome {
        if self.op.is_write() { Outcome::Unknown } else { Outcome::NotApplied }
    }

    /// Whether this reply shows that a quorum has committed a transaction.
    pub(crate) fn proves_commit(&self, result: &Result<Response, RequestError>) -> bool {
        match result {
            Ok(Response::Multi(results)) => {
                !results.is_empty() && !results.iter().any(|r| matches!(r, OpResult::Error(_)))
            }
            Ok(_) => self.op.is_write(),
            Err(_) => false,
        }
    }
}

/// Sets the request's watch flag, where it has one.
pub(crate) fn set_watch_flag(request: &mut Request, wanted: bool) {
    if let Request::Exists(r)
    | Request::GetData(r)
    | Request::GetChildren(r)
    | Request::GetChildren2(r) = request
    {
        r.watch = wanted;
    }
}

/// Makes a request for a persistent watch keep an existing recursive watch of the path.
pub(crate) fn keep_recursive(request: &mut Request) {
    if let Request::AddWatch(r) = request {
        r.mode = AddWatchMode::PersistentRecursive.code();
    }
}

/// The path of a request that sets a watch.
pub(crate) fn watched_path(request: &Request) -> Option<&str> {
    match request {
        Request::Exists(r)
        | Request::GetData(r)
        | Request::GetChildren(r)
        | Request::GetChildren2(r) => Some(&r.path),
        Request::AddWatch(r) => Some(&r.path),
        _ => None,
    }
}
