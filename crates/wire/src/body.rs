//! The bodies of requests, after their headers.

use bytes::Bytes;

use crate::acl::AclList;
use crate::codec::record;
use crate::data::NodeData;

/// Creates a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    /// The node; for a sequential one, its name without the number.
    pub path: String,
    /// Its data.
    pub data: NodeData,
    /// Its access control list.
    pub acl: AclList,
    /// The number of a [`CreateMode`](crate::CreateMode); as a number, because a server answers a
    /// wrong one with an error.
    pub flags: i32,
}

record!(CreateRequest { path, data, acl, flags });

impl CreateRequest {
    /// The same, with a time to live.
    pub fn with_ttl(self, ttl_ms: i64) -> CreateTtlRequest {
        let Self { path, data, acl, flags } = self;
        CreateTtlRequest { path, data, acl, flags, ttl_ms }
    }
}

/// Creates a node with a time to live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTtlRequest {
    /// The node; for a sequential one, its name without the number.
    pub path: String,
    /// Its data.
    pub data: NodeData,
    /// Its access control list.
    pub acl: AclList,
    /// The number of a [`CreateMode`](crate::CreateMode).
    pub flags: i32,
    /// For how long it may stay empty and untouched, in milliseconds.
    pub ttl_ms: i64,
}

record!(CreateTtlRequest { path, data, acl, flags, ttl_ms });

/// Deletes a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRequest {
    /// The node, which must have no children.
    pub path: String,
    /// The data version that it must have; -1: any.
    pub version: i32,
}

record!(DeleteRequest { path, version });

/// Reads something of a node, and perhaps watches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathWatchRequest {
    /// The node.
    pub path: String,
    /// Whether to set a one-shot watch on what was read.
    pub watch: bool,
}

record!(PathWatchRequest { path, watch });

/// Names a node and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRequest {
    /// The node, or the prefix of many.
    pub path: String,
}

record!(PathRequest { path });

/// Changes a node's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetDataRequest {
    /// The node.
    pub path: String,
    /// The new data.
    pub data: NodeData,
    /// The data version that it must have; -1: any.
    pub version: i32,
}

record!(SetDataRequest { path, data, version });

/// Changes a node's access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAclRequest {
    /// The node.
    pub path: String,
    /// The new list.
    pub acl: AclList,
    /// The list's version that it must have; -1: any.
    pub version: i32,
}

record!(SetAclRequest { path, acl, version });

/// Fails unless the node exists with this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRequest {
    /// The node.
    pub path: String,
    /// The data version that it must have; -1: any.
    pub version: i32,
}

record!(CheckRequest { path, version });

/// Shows credentials to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthRequest {
    /// Always 0.
    pub kind: i32,
    /// Such as `digest`.
    pub scheme: String,
    /// Such as `user:password`.
    pub auth: Bytes,
}

record!(AuthRequest { kind, scheme, auth });

/// One step of a SASL exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslRequest {
    /// What the mechanism produced.
    pub token: Bytes,
}

record!(SaslRequest { token });

/// Changes the members of an ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconfigRequest {
    /// Servers that join, comma-separated.
    pub joining: String,
    /// Servers that leave, comma-separated.
    pub leaving: String,
    /// The whole new membership, comma-separated.
    pub new_members: String,
    /// The configuration that this changes; -1: any.
    pub config_id: i64,
}

record!(ReconfigRequest { joining, leaving, new_members, config_id });
