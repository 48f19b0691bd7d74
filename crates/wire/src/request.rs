//! Everything that a client sends after the handshake.

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

/// What stands before every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Chosen by the client, repeated in the reply; see [`xid`].
    pub xid: i32,
    /// The number of an [`OpCode`]; as a number, because a server answers an unknown one with an
    /// error.
    pub op: i32,
}

record!(RequestHeader { xid, op });

/// Makes [`Request`] of one table. Each variant has the name of its op code. Its body, if there is
/// one, is read and written by the functions behind `by`, or as the [`Record`] that it is.
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

            /// Appends header and body, without the frame's length.
            pub fn encode(&self, xid: i32, out: &mut BytesMut) {
                RequestHeader { xid, op: self.op().code() }.encode(out);
                match self {
                    $( Self::$op $((requests!(@bind body: $body)))? => {
                        $( requests!(@encode body: $body, out $(, $encode)?); )?
                    } )*
                }
            }

            /// Reads the body that follows a header with this op code.
            ///
            /// # Errors
            /// If no request has this op code, or the body is not such a request.
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
    /// Ask whether a node exists, and for its stat.
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
    /// Let this server catch up with its leader.
    Sync(PathRequest),
    /// Keep the session alive.
    Ping,
    /// Check a version, outside a `multi` (answered with an error by most servers).
    Check(CheckRequest),
    /// Do all of these operations, or none.
    Multi(Vec<Op>) by encode_list, decode_list,
    /// Do these reads.
    MultiRead(Vec<ReadOp>) by encode_list, decode_list,
    /// Show credentials.
    Auth(AuthRequest),
    /// A step of a SASL exchange.
    Sasl(SaslRequest),
    /// Arm watches again, the persistent ones left out.
    SetWatches(SetWatchesRequest) by SetWatchesRequest::encode_v1, SetWatchesRequest::decode_v1,
    /// Arm watches again.
    SetWatches2(SetWatchesRequest),
    /// Set a persistent watch.
    AddWatch(AddWatchRequest),
    /// Remove watches.
    RemoveWatches(RemoveWatchesRequest),
    /// Ask whether there are such watches.
    CheckWatches(RemoveWatchesRequest),
    /// List this session's ephemeral nodes below a prefix.
    GetEphemerals(PathRequest),
    /// Count a node's descendants.
    GetAllChildrenNumber(PathRequest),
    /// Ask as whom the session has authenticated.
    WhoAmI,
    /// Change the members of an ensemble.
    Reconfig(ReconfigRequest),
    /// End the session.
    CloseSession,
}

impl Request {
    /// The xid that the protocol prescribes for this request, if it does.
    pub fn reserved_xid(&self) -> Option<i32> {
        match self {
            Self::Ping => Some(xid::PING),
            Self::Auth(_) => Some(xid::AUTH),
            Self::SetWatches(_) | Self::SetWatches2(_) => Some(xid::SET_WATCHES),
            _ => None,
        }
    }
}
