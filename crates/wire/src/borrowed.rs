//! Requests that are encoded from borrowed parts, without copying them first.

use bytes::{Bytes, BytesMut};

use crate::acl::{Acl, AclList};
use crate::body::{CreateRequest, PathWatchRequest};
use crate::codec::{Record, put_list, put_text};
use crate::op::{CreateMode, OpCode};
use crate::request::{Request, RequestHeader};

/// A message that a client can send: a [`Request`] or a borrowed form of one.
pub trait Outgoing {
    /// The op code of the request.
    fn op(&self) -> OpCode;

    /// Appends the header and the body, without the length of the frame.
    fn encode(&self, xid: i32, out: &mut BytesMut);

    /// Copies the borrowed parts, so that the request can be sent later.
    fn into_request(self) -> Request;
}

impl Outgoing for Request {
    fn op(&self) -> OpCode {
        self.op()
    }

    fn encode(&self, xid: i32, out: &mut BytesMut) {
        self.encode(xid, out);
    }

    fn into_request(self) -> Request {
        self
    }
}

/// Creates a node: a [`Request::Create2`], or a [`Request::CreateContainer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// The node; for a sequential one, its name without the number.
    pub path: &'a str,
    /// Its data.
    pub data: &'a Bytes,
    /// The kind of node.
    pub mode: CreateMode,
    /// The access control list; `None` gives everyone all permissions.
    pub acl: Option<&'a [Acl]>,
}

impl Outgoing for Create<'_> {
    fn op(&self) -> OpCode {
        match self.mode {
            CreateMode::Container => OpCode::CreateContainer,
            _ => OpCode::Create2,
        }
    }

    fn encode(&self, xid: i32, out: &mut BytesMut) {
        RequestHeader { xid, op: self.op().code() }.encode(out);
        put_text(out, self.path);
        self.data.encode(out);
        match self.acl {
            Some(acl) => put_list(out, acl),
            None => AclList::OPEN.encode(out),
        }
        self.mode.flags().encode(out);
    }

    fn into_request(self) -> Request {
        let (path, data) = (self.path.to_owned(), self.data.clone().into());
        let acl = self.acl.map_or(AclList::OPEN, |acl| acl.to_vec().into());
        let request = CreateRequest { path, data, acl, flags: self.mode.flags() };
        match self.mode {
            CreateMode::Container => Request::CreateContainer(request),
            _ => Request::Create2(request),
        }
    }
}

/// Lists a node's children: a [`Request::GetChildren2`] without a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<'a> {
    /// The node.
    pub path: &'a str,
}

impl Outgoing for List<'_> {
    fn op(&self) -> OpCode {
        OpCode::GetChildren2
    }

    fn encode(&self, xid: i32, out: &mut BytesMut) {
        RequestHeader { xid, op: self.op().code() }.encode(out);
        put_text(out, self.path);
        false.encode(out);
    }

    fn into_request(self) -> Request {
        Request::GetChildren2(PathWatchRequest { path: self.path.to_owned(), watch: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(request: &impl Outgoing) -> BytesMut {
        let mut out = BytesMut::new();
        request.encode(7, &mut out);
        out
    }

    #[test]
    fn borrowed_requests_are_written_as_the_whole_ones() {
        let (path, data) = ("/locks/ä", &Bytes::from_static(b"data"));
        for mode in [CreateMode::Persistent, CreateMode::EphemeralSequential, CreateMode::Container]
        {
            for acl in [None, Some(&Acl::creator_all()[..])] {
                let create = Create { path, data, mode, acl };
                assert_eq!(create.op(), create.into_request().op(), "{mode:?}");
                assert_eq!(encoded(&create), encoded(&create.into_request()), "{create:?}");
            }
        }
        let list = List { path };
        assert_eq!(list.op(), list.into_request().op());
        assert_eq!(encoded(&list), encoded(&list.into_request()));
    }
}
