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

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
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
    Multi(Vec<Op>),
    /// Do these reads.
    MultiRead(Vec<ReadOp>),
    /// Show credentials.
    Auth(AuthRequest),
    /// A step of a SASL exchange.
    Sasl(SaslRequest),
    /// Arm watches again, the persistent ones left out.
    SetWatches(SetWatchesRequest),
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
    /// The op code of the request.
    pub fn op(&self) -> OpCode {
        match self {
            Self::Create(_) => OpCode::Create,
            Self::Create2(_) => OpCode::Create2,
            Self::CreateContainer(_) => OpCode::CreateContainer,
            Self::CreateTtl(_) => OpCode::CreateTtl,
            Self::Delete(_) => OpCode::Delete,
            Self::Exists(_) => OpCode::Exists,
            Self::GetData(_) => OpCode::GetData,
            Self::SetData(_) => OpCode::SetData,
            Self::GetAcl(_) => OpCode::GetAcl,
            Self::SetAcl(_) => OpCode::SetAcl,
            Self::GetChildren(_) => OpCode::GetChildren,
            Self::GetChildren2(_) => OpCode::GetChildren2,
            Self::Sync(_) => OpCode::Sync,
            Self::Ping => OpCode::Ping,
            Self::Check(_) => OpCode::Check,
            Self::Multi(_) => OpCode::Multi,
            Self::MultiRead(_) => OpCode::MultiRead,
            Self::Auth(_) => OpCode::Auth,
            Self::Sasl(_) => OpCode::Sasl,
            Self::SetWatches(_) => OpCode::SetWatches,
            Self::SetWatches2(_) => OpCode::SetWatches2,
            Self::AddWatch(_) => OpCode::AddWatch,
            Self::RemoveWatches(_) => OpCode::RemoveWatches,
            Self::CheckWatches(_) => OpCode::CheckWatches,
            Self::GetEphemerals(_) => OpCode::GetEphemerals,
            Self::GetAllChildrenNumber(_) => OpCode::GetAllChildrenNumber,
            Self::WhoAmI => OpCode::WhoAmI,
            Self::Reconfig(_) => OpCode::Reconfig,
            Self::CloseSession => OpCode::CloseSession,
        }
    }

    /// The xid that the protocol prescribes for this request, if it does.
    pub fn reserved_xid(&self) -> Option<i32> {
        match self {
            Self::Ping => Some(xid::PING),
            Self::Auth(_) => Some(xid::AUTH),
            Self::SetWatches(_) | Self::SetWatches2(_) => Some(xid::SET_WATCHES),
            _ => None,
        }
    }

    /// Appends header and body, without the frame's length.
    pub fn encode(&self, xid: i32, out: &mut BytesMut) {
        RequestHeader { xid, op: self.op().code() }.encode(out);
        match self {
            Self::Create(r) | Self::Create2(r) | Self::CreateContainer(r) => r.encode(out),
            Self::CreateTtl(r) => r.encode(out),
            Self::Delete(r) => r.encode(out),
            Self::Exists(r) | Self::GetData(r) | Self::GetChildren(r) | Self::GetChildren2(r) => {
                r.encode(out);
            }
            Self::SetData(r) => r.encode(out),
            Self::GetAcl(r)
            | Self::Sync(r)
            | Self::GetEphemerals(r)
            | Self::GetAllChildrenNumber(r) => r.encode(out),
            Self::SetAcl(r) => r.encode(out),
            Self::Check(r) => r.encode(out),
            Self::Multi(ops) => encode_list(ops, out),
            Self::MultiRead(ops) => encode_list(ops, out),
            Self::Auth(r) => r.encode(out),
            Self::Sasl(r) => r.encode(out),
            Self::SetWatches(r) => r.encode_v1(out),
            Self::SetWatches2(r) => r.encode(out),
            Self::AddWatch(r) => r.encode(out),
            Self::RemoveWatches(r) | Self::CheckWatches(r) => r.encode(out),
            Self::Reconfig(r) => r.encode(out),
            Self::Ping | Self::WhoAmI | Self::CloseSession => {}
        }
    }

    /// Reads the body that follows a header with this op code.
    ///
    /// # Errors
    /// If no request has this op code, or the body is not such a request.
    pub fn decode(op: i32, input: &mut Decoder) -> Result<Self, DecodeError> {
        let code = OpCode::from_code(op).ok_or(DecodeError::UnknownOp(op))?;
        Ok(match code {
            OpCode::Create => Self::Create(Record::decode(input)?),
            OpCode::Create2 => Self::Create2(Record::decode(input)?),
            OpCode::CreateContainer => Self::CreateContainer(Record::decode(input)?),
            OpCode::CreateTtl => Self::CreateTtl(Record::decode(input)?),
            OpCode::Delete => Self::Delete(Record::decode(input)?),
            OpCode::Exists => Self::Exists(Record::decode(input)?),
            OpCode::GetData => Self::GetData(Record::decode(input)?),
            OpCode::SetData => Self::SetData(Record::decode(input)?),
            OpCode::GetAcl => Self::GetAcl(Record::decode(input)?),
            OpCode::SetAcl => Self::SetAcl(Record::decode(input)?),
            OpCode::GetChildren => Self::GetChildren(Record::decode(input)?),
            OpCode::GetChildren2 => Self::GetChildren2(Record::decode(input)?),
            OpCode::Sync => Self::Sync(Record::decode(input)?),
            OpCode::Ping => Self::Ping,
            OpCode::Check => Self::Check(Record::decode(input)?),
            OpCode::Multi => Self::Multi(decode_list(input)?),
            OpCode::MultiRead => Self::MultiRead(decode_list(input)?),
            OpCode::Auth => Self::Auth(Record::decode(input)?),
            OpCode::Sasl => Self::Sasl(Record::decode(input)?),
            OpCode::SetWatches => Self::SetWatches(SetWatchesRequest::decode_v1(input)?),
            OpCode::SetWatches2 => Self::SetWatches2(Record::decode(input)?),
            OpCode::AddWatch => Self::AddWatch(Record::decode(input)?),
            OpCode::RemoveWatches => Self::RemoveWatches(Record::decode(input)?),
            OpCode::CheckWatches => Self::CheckWatches(Record::decode(input)?),
            OpCode::GetEphemerals => Self::GetEphemerals(Record::decode(input)?),
            OpCode::GetAllChildrenNumber => Self::GetAllChildrenNumber(Record::decode(input)?),
            OpCode::WhoAmI => Self::WhoAmI,
            OpCode::Reconfig => Self::Reconfig(Record::decode(input)?),
            OpCode::CloseSession => Self::CloseSession,
            OpCode::DeleteContainer | OpCode::CreateSession | OpCode::Error => {
                return Err(DecodeError::UnknownOp(op));
            }
        })
    }
}
