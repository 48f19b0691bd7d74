//! The requests that a client sends after the handshake.

use bytes::BytesMut;

use crate::body::{
    AuthRequest, CheckRequest, CreateRequest, CreateTtlRequest, DeleteRequest, PathRequest,
    PathWatchRequest, ReconfigRequest, SaslRequest, SetAclRequest, SetDataRequest,
};
use crate::codec::{Decoder, Record, record};
use crate::error::DecodeError;
use crate::multi::{Op, ReadOp, decode_list, encode_list};
use crate::op::{OpCode, xid};
use crate::watch::{AddWatchRequest, RemoveWatchesRequest, SetWatchesRequest};

/// The header of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Chosen by the client and repeated in the reply; see [`xid`].
    pub xid: i32,
    /// The number of an [`OpCode`]. It is not decoded to the enum, because a server answers an unknown number
    /// with an error.
    pub op: i32,
}

record!(RequestHeader { xid, op });

/// Defines [`Request`] from one table. Each variant is named like its op code. The functions after `by`, or
/// the [`Record`] implementation, encode and decode its body.
macro_rules! requests {
    ($( $(#[$doc:meta])* $op:ident $(($body:ty) $(by $encode:path, $decode:path)?)?, )*) => {
        /// A request of a client.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Request {
            $( $(#[$doc])* $op $(($body))?, )*
        }

        impl Request {
            /// The op code of the request.
            pub fn op(&self) -> OpCode {
                match self {
                    $( Self::$op { .. } => OpCode::$op, )*
                }
            }

            /// Appends the header and the body, without the length of the frame.
            pub fn encode(&self, xid: i32, out: &mut BytesMut) {
                RequestHeader { xid, op: self.op().code() }.encode(out);
                match self {
                    $( Self::$op $((requests!(@bind body: $body)))? => {
                        $( requests!(@encode body: $body, out $(, $encode)?); )?
                    } )*
                }
            }

            /// Decodes the body that follows a header with this op code.
            ///
            /// # Errors
            /// If the op code is unknown, or the body is invalid.
            pub fn decode(op: i32, input: &mut Decoder) -> Result<Self, DecodeError> {
                match OpCode::from_code(op) {
                    $( Some(OpCode::$op) => {
                        Ok(Self::$op $((requests!(@decode $body, input $(, $decode)?)))?)
                    } )*
                    Some(OpCode::DeleteContainer | OpCode::CreateSession | OpCode::Error) | None => {
                        Err(DecodeError::UnknownOp(op))
                    }
                }
            }
        }
    };
    (@bind $name:ident: $body:ty) => { $name };
    (@encode $name:ident: $body:ty, $out:ident) => { Record::encode($name, $out) };
    (@encode $name:ident: $body:ty, $out:ident, $encode:path) => { $encode($name, $out) };
    (@decode $body:ty, $input:ident) => { <$body as Record>::decode($input)? };
    (@decode $body:ty, $input:ident, $decode:path) => { $decode($input)? };
}

requests! {
    /// Create a node; the reply has its path.
    Create(CreateRequest),
    /// Create a node; the reply has its path and stat.
    Create2(CreateRequest),
    /// Create a container node.
    CreateContainer(CreateRequest),
    /// Create a node with a time to live.
    CreateTtl(CreateTtlRequest),
    /// Delete a node.
    Delete(DeleteRequest),
    /// Check whether a node exists, and read its stat.
    Exists(PathWatchRequest),
    /// Read data and stat.
    GetData(PathWatchRequest),
    /// Change data.
    SetData(SetDataRequest),
    /// Read the access control list.
    GetAcl(PathRequest),
    /// Change the access control list.
    SetAcl(SetAclRequest),
    /// List the children.
    GetChildren(PathWatchRequest),
    /// List the children, and read the stat.
    GetChildren2(PathWatchRequest),
    /// Wait until this server has applied everything that its leader had committed.
    Sync(PathRequest),
    /// Keep the session alive.
    Ping,
    /// Check a version, outside a `multi` (answered with an error by most servers).
    Check(CheckRequest),
    /// Apply all of these operations, or none.
    Multi(Vec<Op>) by encode_list, decode_list,
    /// Run these reads.
    MultiRead(Vec<ReadOp>) by encode_list, decode_list,
    /// Send credentials.
    Auth(AuthRequest),
    /// A step of a SASL exchange.
    Sasl(SaslRequest),
    /// Rearm watches, except for persistent ones.
    SetWatches(SetWatchesRequest) by SetWatchesRequest::encode_v1, SetWatchesRequest::decode_v1,
    /// Rearm watches.
    SetWatches2(SetWatchesRequest),
    /// Set a persistent watch.
    AddWatch(AddWatchRequest),
    /// Remove watches.
    RemoveWatches(RemoveWatchesRequest),
    /// Check whether such watches exist.
    CheckWatches(RemoveWatchesRequest),
    /// List this session's ephemeral nodes below a prefix.
    GetEphemerals(PathRequest),
    /// Count a node's descendants.
    GetAllChildrenNumber(PathRequest),
    /// List the identities of the session.
    WhoAmI,
    /// Change the members of an ensemble.
    Reconfig(ReconfigRequest),
    /// End the session.
    CloseSession,
}

impl Request {
    /// The reserved xid of this request, if it has one.
    pub fn reserved_xid(&self) -> Option<i32> {
        match self {
            Self::Ping => Some(xid::PING),
            Self::Auth(_) => Some(xid::AUTH),
            Self::SetWatches(_) | Self::SetWatches2(_) => Some(xid::SET_WATCHES),
            _ => None,
        }
    }
}
