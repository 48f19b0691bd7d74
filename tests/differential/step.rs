//! What is done to both servers.

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    AclList, CreateMode, CreateRequest, DeleteRequest, NodeData, OpCode, PathWatchRequest,
    Record as _, Request, RequestHeader,
};

/// Which of the concurrent sessions.
pub(crate) type Who = usize;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends these requests in one go and waits for all replies.
    Ask(Who, Vec<Ask>),
    /// Opens a session.
    Open(Who, Hello),
    /// Comes back with a session, dropped or not.
    Resume(Who, Resume),
    /// Cuts the connection, and lets the session be.
    Drop(Who),
    /// Opens a session, makes it own something, and lets it expire, while another one looks on.
    Expire(Who, Vec<Ask>),
}

impl Step {
    /// One request, which is waited for.
    pub(crate) fn one(who: Who, request: Request) -> Self {
        Self::Ask(who, vec![Ask::Good(request)])
    }
}

/// A node with null data and an open access control list.
pub(crate) fn node(path: &str, mode: CreateMode) -> CreateRequest {
    let (path, flags) = (path.to_owned(), mode.flags());
    CreateRequest { path, data: NodeData::NULL, acl: AclList::OPEN, flags }
}

pub(crate) fn read(path: &str) -> PathWatchRequest {
    PathWatchRequest { path: path.to_owned(), watch: false }
}

pub(crate) fn delete(path: &str) -> DeleteRequest {
    DeleteRequest { path: path.to_owned(), version: -1 }
}

/// A request, or bytes that are not a request.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Good(Request),
    Odd { op: i32, body: Bytes },
}

impl Ask {
    pub(crate) fn encode(&self, xid: i32, out: &mut BytesMut) {
        match self {
            Self::Good(request) => request.encode(xid, out),
            Self::Odd { op, body } => {
                RequestHeader { xid, op: *op }.encode(out);
                out.extend_from_slice(body);
            }
        }
    }

    pub(crate) fn op(&self) -> Option<OpCode> {
        match self {
            Self::Good(request) => Some(request.op()),
            Self::Odd { op, .. } => OpCode::from_code(*op),
        }
    }

    pub(crate) fn ends_session(&self) -> bool {
        matches!(self, Self::Good(Request::CloseSession))
    }
}

/// How a session is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hello {
    pub(crate) timeout_ms: i32,
    pub(crate) read_only: Option<bool>,
}

/// How a client comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resume {
    /// As it should be.
    Rightly,
    /// Having seen nothing.
    Forgetful,
    /// Having seen what the server has not done yet.
    Ahead,
    WrongPassword,
    /// With a session that never was.
    Unknown,
}
