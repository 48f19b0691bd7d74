//! The operations and results of `multi` and `multiRead`.
//!
//! On the wire both are lists. Each item is a `{type, done, error}` header followed by one record; the header
//! `{-1, true, -1}` ends the list.

use bytes::BytesMut;

use crate::body::{
    CheckRequest, CreateRequest, CreateTtlRequest, DeleteRequest, PathRequest, SetDataRequest,
};
use crate::codec::{Decoder, Record, record};
use crate::data::NodeData;
use crate::error::{DecodeError, ErrorCode};
use crate::op::OpCode;
use crate::stat::Stat;

/// One operation of a `multi`. Either all operations are applied or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Create a node; the result has its path.
    Create(CreateRequest),
    /// Create a node; the result has its path and stat.
    Create2(CreateRequest),
    /// Create a container node; the result has its path and stat.
    CreateContainer(CreateRequest),
    /// Create a node with a time to live; the result has its path and stat.
    CreateTtl(CreateTtlRequest),
    /// Delete a node.
    Delete(DeleteRequest),
    /// Change a node's data.
    SetData(SetDataRequest),
    /// Fail unless the node exists with this version.
    Check(CheckRequest),
}

/// The result of one [`Op`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// The path of the created node.
    Create {
        /// With the sequence number, if there is one.
        path: String,
    },
    /// The path and stat of the created node.
    Create2 {
        /// With the sequence number, if there is one.
        path: String,
        /// The new node's stat.
        stat: Stat,
    },
    /// Deleted.
    Delete,
    /// The stat after the change.
    SetData(Stat),
    /// The version matched.
    Check,
    /// The operation failed, or was rolled back because another one failed (`None`).
    Error(Option<ErrorCode>),
}

/// One operation of a `multiRead`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOp {
    /// Read a node's data and stat.
    GetData(PathRequest),
    /// List a node's children.
    GetChildren(PathRequest),
}

/// The result of one [`ReadOp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// Data and stat.
    Data {
        /// The node's data.
        data: NodeData,
        /// The node's stat.
        stat: Stat,
    },
    /// The names of the children.
    Children(Vec<String>),
    /// This operation failed; the others are not affected.
    Error(ErrorCode),
}

/// The header before every item, and after the last one.
pub struct MultiHeader {
    kind: i32,
    done: bool,
    error: i32,
}

record!(MultiHeader { kind, done, error });

impl MultiHeader {
    /// The encoded length, in bytes.
    pub const LENGTH: usize = 2 * size_of::<i32>() + size_of::<bool>();

    const END: Self = Self { kind: -1, done: true, error: -1 };

    fn of(op: OpCode) -> Self {
        Self { kind: op.code(), done: false, error: -1 }
    }

    fn of_result(op: OpCode) -> Self {
        Self { kind: op.code(), done: false, error: 0 }
    }

    fn of_error(code: i32) -> Self {
        Self { kind: OpCode::Error.code(), done: false, error: code }
    }

    fn op(&self) -> Result<OpCode, DecodeError> {
        OpCode::from_code(self.kind).ok_or(DecodeError::UnknownOp(self.kind))
    }
}

/// An item of a `multi` or `multiRead` list.
pub(crate) trait MultiItem: Sized {
    fn encode_item(&self, out: &mut BytesMut);
    fn decode_item(op: OpCode, input: &mut Decoder) -> Result<Self, DecodeError>;
}

pub(crate) fn encode_list<T: MultiItem>(items: &[T], out: &mut BytesMut) {
    for item in items {
        item.encode_item(out);
    }
    MultiHeader::END.encode(out);
}

pub(crate) fn decode_list<T: MultiItem>(input: &mut Decoder) -> Result<Vec<T>, DecodeError> {
    let mut items = Vec::new();
    loop {
        let header = MultiHeader::decode(input)?;
        if header.done {
            return Ok(items);
        }
        items.push(T::decode_item(header.op()?, input)?);
    }
}

fn put(op: OpCode, record: &impl Record, out: &mut BytesMut) {
    MultiHeader::of(op).encode(out);
    record.encode(out);
}

fn put_result(op: OpCode, record: &impl Record, out: &mut BytesMut) {
    MultiHeader::of_result(op).encode(out);
    record.encode(out);
}

impl Op {
    /// The op code of the operation.
    pub fn code(&self) -> OpCode {
        match self {
            Self::Create(_) => OpCode::Create,
            Self::Create2(_) => OpCode::Create2,
            Self::CreateContainer(_) => OpCode::CreateContainer,
            Self::CreateTtl(_) => OpCode::CreateTtl,
            Self::Delete(_) => OpCode::Delete,
            Self::SetData(_) => OpCode::SetData,
            Self::Check(_) => OpCode::Check,
        }
    }

    /// The node of the operation.
    pub fn path(&self) -> &str {
        match self {
            Self::Create(r) | Self::Create2(r) | Self::CreateContainer(r) => &r.path,
            Self::CreateTtl(r) => &r.path,
            Self::Delete(r) => &r.path,
            Self::SetData(r) => &r.path,
            Self::Check(r) => &r.path,
        }
    }
}

impl MultiItem for Op {
    fn encode_item(&self, out: &mut BytesMut) {
        let code = self.code();
        match self {
            Self::Create(r) | Self::Create2(r) | Self::CreateContainer(r) => put(code, r, out),
            Self::CreateTtl(r) => put(code, r, out),
            Self::Delete(r) => put(code, r, out),
            Self::SetData(r) => put(code, r, out),
            Self::Check(r) => put(code, r, out),
        }
    }

    fn decode_item(op: OpCode, input: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(match op {
            OpCode::Create => Self::Create(Record::decode(input)?),
            OpCode::Create2 => Self::Create2(Record::decode(input)?),
            OpCode::CreateContainer => Self::CreateContainer(Record::decode(input)?),
            OpCode::CreateTtl => Self::CreateTtl(Record::decode(input)?),
            OpCode::Delete => Self::Delete(Record::decode(input)?),
            OpCode::SetData => Self::SetData(Record::decode(input)?),
            OpCode::Check => Self::Check(Record::decode(input)?),
            other => return Err(DecodeError::MisplacedOp(other.code())),
        })
    }
}

impl ReadOp {
    /// The op code of the operation.
    pub fn code(&self) -> OpCode {
        match self {
            Self::GetData(_) => OpCode::GetData,
            Self::GetChildren(_) => OpCode::GetChildren,
        }
    }
}

/// `multiRead` sends its reads in the ordinary form, with a watch flag that servers ignore.
impl MultiItem for ReadOp {
    fn encode_item(&self, out: &mut BytesMut) {
        let (Self::GetData(request) | Self::GetChildren(request)) = self;
        put(self.code(), request, out);
        false.encode(out);
    }

    fn decode_item(op: OpCode, input: &mut Decoder) -> Result<Self, DecodeError> {
        let request = PathRequest::decode(input)?;
        bool::decode(input)?;
        match op {
            OpCode::GetData => Ok(Self::GetData(request)),
            OpCode::GetChildren => Ok(Self::GetChildren(request)),
            other => Err(DecodeError::MisplacedOp(other.code())),
        }
    }
}

fn put_error(code: i32, out: &mut BytesMut) {
    MultiHeader::of_error(code).encode(out);
    code.encode(out);
}

impl MultiItem for OpResult {
    fn encode_item(&self, out: &mut BytesMut) {
        match self {
            Self::Create { path } => put_result(OpCode::Create, path, out),
            Self::Create2 { path, stat } => {
                put_result(OpCode::Create2, path, out);
                stat.encode(out);
            }
            Self::Delete => MultiHeader::of_result(OpCode::Delete).encode(out),
            Self::SetData(stat) => put_result(OpCode::SetData, stat, out),
            Self::Check => MultiHeader::of_result(OpCode::Check).encode(out),
            Self::Error(code) => put_error(code.map_or(0, ErrorCode::code), out),
        }
    }

    fn decode_item(op: OpCode, input: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(match op {
            OpCode::Create => Self::Create { path: Record::decode(input)? },
            OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
                Self::Create2 { path: Record::decode(input)?, stat: Record::decode(input)? }
            }
            OpCode::Delete => Self::Delete,
            OpCode::SetData => Self::SetData(Record::decode(input)?),
            OpCode::Check => Self::Check,
            OpCode::Error => Self::Error(ErrorCode::from_code(Record::decode(input)?)),
            other => return Err(DecodeError::MisplacedOp(other.code())),
        })
    }
}

impl MultiItem for ReadResult {
    fn encode_item(&self, out: &mut BytesMut) {
        match self {
            Self::Data { data, stat } => {
                put_result(OpCode::GetData, data, out);
                stat.encode(out);
            }
            Self::Children(names) => put_result(OpCode::GetChildren, names, out),
            Self::Error(code) => put_error(code.code(), out),
        }
    }

    fn decode_item(op: OpCode, input: &mut Decoder) -> Result<Self, DecodeError> {
        match op {
            OpCode::GetData => {
                Ok(Self::Data { data: Record::decode(input)?, stat: Record::decode(input)? })
            }
            OpCode::GetChildren => Record::decode(input).map(Self::Children),
            OpCode::Error => {
                let code = ErrorCode::from_code(Record::decode(input)?);
                Ok(Self::Error(code.unwrap_or(ErrorCode::SystemError)))
            }
            other => Err(DecodeError::MisplacedOp(other.code())),
        }
    }
}
