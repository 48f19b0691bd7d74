//! The ZooKeeper protocol as typed messages.
//!
//! ```text
//!   frame      length-prefixed frames in and out of a byte buffer
//!   codec      jute: the primitive types, and the `Record` trait
//!   ids        Zxid, SessionId, Sequence: integers that must not be confused
//!   path       ZnodePath: a path that a server will accept
//!   op         op codes and reserved xids
//!   error      error codes of the protocol, and decoding errors
//!   handshake  the first message of each side
//!   stat, acl  records that many messages share
//!   data       NodeData: bytes, or null
//!   watch      watch events and the requests that manage watches
//!   body       the bodies of requests
//!   request    the requests that a client sends after the handshake
//!   borrowed   requests that are encoded from borrowed parts
//!   response   the replies that a server sends after the handshake
//!   multi      the operations and results of `multi` and `multiRead`
//!   macros     setters and `Debug`, for the crates that depend on this one
//! ```
//!
//! Invariants: no I/O and no clock. Bytes from a peer never cause a panic, and never an allocation beyond a
//! small multiple of the bytes received, whatever counts they announce.

mod acl;
mod body;
mod borrowed;
mod codec;
mod data;
mod error;
mod frame;
mod handshake;
mod ids;
mod macros;
mod multi;
mod op;
mod path;
mod request;
mod response;
mod stat;
mod watch;

pub use acl::{Acl, AclList, Permissions};
pub use body::{
    AuthRequest, CheckRequest, CreateRequest, CreateTtlRequest, DeleteRequest, PathRequest,
    PathWatchRequest, ReconfigRequest, SaslRequest, SetAclRequest, SetDataRequest,
};
pub use borrowed::{Create, List, Outgoing};
pub use codec::{Decoder, Record};
pub use data::NodeData;
pub use error::{DecodeError, ErrorCode};
pub use frame::{FrameError, MAX_FRAME, split_frame, write_frame};
pub use handshake::{ConnectRequest, ConnectResponse, PASSWORD_LEN};
pub use ids::{Sequence, SessionId, Zxid};
pub use multi::{MultiHeader, Op, OpResult, ReadOp, ReadResult};
pub use op::{CreateMode, OpCode, xid};
pub use path::{PathError, ZnodePath};
pub use request::{Request, RequestHeader};
pub use response::{ClientInfo, ReplyHeader, Response};
pub use stat::Stat;
pub use watch::{
    AddWatchMode, AddWatchRequest, EventKind, KeeperState, RemoveWatchesRequest, SetWatchesRequest,
    WatchEvent, WatcherKind,
};

#[cfg(test)]
mod property_tests;
