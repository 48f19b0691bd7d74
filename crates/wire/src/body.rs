//! The bodies of requests, after their headers.

use bytes::Bytes;

use crate::acl::AclList;
use crate::codec::record;
use crate::data::NodeData;

/// Makes bodies of requests, whose fields are sent in the order given.
macro_rules! bodies {
    ($( $(#[$doc:meta])* pub struct $name:ident {
        $( $(#[$field_doc:meta])* pub $field:ident: $kind:ty, )*
    } )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $( $(#[$field_doc])* pub $field: $kind, )* }

        record!($name { $($field),* });
    )* };
}

bodies! {
    /// Creates a node.
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

    /// Creates a node with a time to live.
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

    /// Deletes a node.
    pub struct DeleteRequest {
        /// The node, which must have no children.
        pub path: String,
        /// The data version that it must have; -1: any.
        pub version: i32,
    }

    /// Reads something of a node, and perhaps watches it.
    pub struct PathWatchRequest {
        /// The node.
        pub path: String,
        /// Whether to set a one-shot watch on what was read.
        pub watch: bool,
    }

    /// Names a node and nothing else.
    pub struct PathRequest {
        /// The node, or the prefix of many.
        pub path: String,
    }

    /// Changes a node's data.
    pub struct SetDataRequest {
        /// The node.
        pub path: String,
        /// The new data.
        pub data: NodeData,
        /// The data version that it must have; -1: any.
        pub version: i32,
    }

    /// Changes a node's access control list.
    pub struct SetAclRequest {
        /// The node.
        pub path: String,
        /// The new list.
        pub acl: AclList,
        /// The list's version that it must have; -1: any.
        pub version: i32,
    }

    /// Fails unless the node exists with this version.
    pub struct CheckRequest {
        /// The node.
        pub path: String,
        /// The data version that it must have; -1: any.
        pub version: i32,
    }

    /// Shows credentials to the server.
    pub struct AuthRequest {
        /// Always 0.
        pub kind: i32,
        /// Such as `digest`.
        pub scheme: String,
        /// Such as `user:password`.
        pub auth: Bytes,
    }

    /// One step of a SASL exchange.
    pub struct SaslRequest {
        /// What the mechanism produced.
        pub token: Bytes,
    }

    /// Changes the members of an ensemble.
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
}

impl CreateRequest {
    /// The same, with a time to live.
    pub fn with_ttl(self, ttl_ms: i64) -> CreateTtlRequest {
        let Self { path, data, acl, flags } = self;
        CreateTtlRequest { path, data, acl, flags, ttl_ms }
    }
}
