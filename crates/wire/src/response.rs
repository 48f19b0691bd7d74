//! The replies that a server sends after the handshake.

use bytes::{Bytes, BytesMut};

use crate::acl::Acl;
use crate::codec::{Decoder, Record, record};
use crate::data::NodeData;
use crate::error::DecodeError;
use crate::ids::Zxid;
use crate::multi::{OpResult, ReadResult, decode_list, encode_list};
use crate::op::OpCode;
use crate::stat::Stat;

/// The header of every reply and every watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The xid of the request, or [`xid::NOTIFICATION`](crate::xid::NOTIFICATION).
    pub xid: i32,
    /// The newest transaction that the server has applied.
    pub zxid: Zxid,
    /// 0, or the number of an [`ErrorCode`](crate::ErrorCode). After an error there is no body.
    pub error: i32,
}

record!(ReplyHeader { xid, zxid, error });

impl ReplyHeader {
    /// The encoded length, in bytes.
    pub const LENGTH: usize = 16;
}

/// An identity that a session has proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The scheme, such as `digest` or `ip`.
    pub scheme: String,
    /// The identity, such as a user name.
    pub user: String,
}

record!(ClientInfo { scheme, user });

/// The body of a successful reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response {
    /// A reply with only a header.
    Empty,
    /// The reply to `create` and `sync`: a path.
    Path(String),
    /// The reply to `create2` and the other creates: the path and stat of the new node.
    Created {
        /// The path, with the sequence number if the node is sequential.
        path: String,
        /// The new node's stat.
        stat: Stat,
    },
    /// The reply to `exists`, `setData` and `setACL`.
    Stat(Stat),
    /// The reply to `getData` and `reconfig`.
    Data {
        /// The node's data.
        data: NodeData,
        /// The node's stat.
        stat: Stat,
    },
    /// The reply to `getACL`.
    Acl {
        /// The node's access control list.
        acl: Vec<Acl>,
        /// The node's stat.
        stat: Stat,
    },
    /// The reply to `getChildren` (names) and `getEphemerals` (paths).
    Names(Vec<String>),
    /// The reply to `getChildren2`.
    Children {
        /// The names of the children, in arbitrary order.
        names: Vec<String>,
        /// The stat of their parent.
        stat: Stat,
    },
    /// The reply to `multi`.
    Multi(Vec<OpResult>),
    /// The reply to `multiRead`.
    MultiRead(Vec<ReadResult>),
    /// The reply to `getAllChildrenNumber`, and to `addWatch` (always 0).
    Count(i32),
    /// The reply to `whoAmI`.
    Identities(Vec<ClientInfo>),
    /// The reply to `sasl`. A server without SASL support sends no token.
    Sasl(Option<Bytes>),
}

impl Response {
    /// Appends the encoded body.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Empty => {}
            Self::Path(path) => path.encode(out),
            Self::Stat(stat) => stat.encode(out),
            Self::Names(names) => names.encode(out),
            Self::Multi(results) => encode_list(results, out),
            Self::MultiRead(results) => encode_list(results, out),
            Self::Count(count) => count.encode(out),
            Self::Identities(identities) => identities.encode(out),
            Self::Sasl(token) => token.encode(out),

            Self::Created { path, stat } => put_with_stat(path, stat, out),
            Self::Data { data, stat } => put_with_stat(data, stat, out),
            Self::Acl { acl, stat } => put_with_stat(acl, stat, out),
            Self::Children { names, stat } => put_with_stat(names, stat, out),
        }
    }

    /// Decodes the body of a successful reply to a request with this op code.
    ///
    /// # Errors
    /// If the body is invalid.
    pub fn decode(op: OpCode, input: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(match op {
            OpCode::Create | OpCode::Sync => Self::Path(Record::decode(input)?),
            OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
                Self::Created { path: Record::decode(input)?, stat: Record::decode(input)? }
            }
            OpCode::Exists | OpCode::SetData | OpCode::SetAcl => Self::Stat(Record::decode(input)?),
            OpCode::GetData | OpCode::Reconfig => {
                Self::Data { data: Record::decode(input)?, stat: Record::decode(input)? }
            }
            OpCode::GetAcl => {
                Self::Acl { acl: Record::decode(input)?, stat: Record::decode(input)? }
            }
            OpCode::GetChildren | OpCode::GetEphemerals => Self::Names(Record::decode(input)?),
            OpCode::GetChildren2 => {
                Self::Children { names: Record::decode(input)?, stat: Record::decode(input)? }
            }
            OpCode::Multi => Self::Multi(decode_list(input)?),
            OpCode::MultiRead => Self::MultiRead(decode_list(input)?),
            OpCode::GetAllChildrenNumber => Self::Count(Record::decode(input)?),
            OpCode::WhoAmI => Self::Identities(Record::decode(input)?),
            OpCode::Sasl => Self::Sasl(Record::decode(input)?),

            // These replies have only a header.
            OpCode::Delete
            | OpCode::Ping
            | OpCode::Check
            | OpCode::CheckWatches
            | OpCode::RemoveWatches
            | OpCode::Auth
            | OpCode::SetWatches
            | OpCode::SetWatches2
            | OpCode::AddWatch
            | OpCode::CloseSession => Self::Empty,

            // Clients never send these requests.
            OpCode::DeleteContainer | OpCode::CreateSession | OpCode::Error => {
                return Err(DecodeError::MisplacedOp(op.code()));
            }
        })
    }
}

fn put_with_stat(value: &impl Record, stat: &Stat, out: &mut BytesMut) {
    value.encode(out);
    stat.encode(out);
}
