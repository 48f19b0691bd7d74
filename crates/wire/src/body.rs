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
        /// The number of a [`CreateMode`](crate::CreateMode). It is not decoded to the enum, because a server
        /// answers an invalid number with an error.
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
        /// How long the node may stay without children and changes before it is deleted, in milliseconds.
        pub ttl_ms: i64,
    }

    /// Deletes a node.
    pub struct DeleteRequest {
        /// The node; it must not have children.
        pub path: String,
        /// The expected data version, or -1 for any.
        pub version: i32,
    }

    /// Reads a node, and optionally sets a watch.
    pub struct PathWatchRequest {
        /// The node.
        pub path: String,
        /// Whether to set a one-shot watch.
        pub watch: bool,
    }

    /// Names a node.
    pub struct PathRequest {
        /// The node, or a path prefix.
        pub path: String,
    }

    /// Changes a node's data.
    pub struct SetDataRequest {
        /// The node.
        pub path: String,
        /// The new data.
        pub data: NodeData,
        /// The expected data version, or -1 for any.
        pub version: i32,
    }

    /// Changes a node's access control list.
    pub struct SetAclRequest {
        /// The node.
        pub path: String,
        /// The new list.
        pub acl: AclList,
        /// The expected version of the list, or -1 for any.
        pub version: i32,
    }

    /// Fails unless the node exists with this data version.
    pub struct CheckRequest {
        /// The node.
        pub path: String,
        /// The expected data version, or -1 for any.
        pub version: i32,
    }

    /// Sends credentials to the server.
    pub struct AuthRequest {
        /// Always 0.
        pub kind: i32,
        /// The scheme, such as `digest`.
        pub scheme: String,
        /// The credentials, such as `user:password`.
        pub auth: Bytes,
    }

    /// One step of a SASL exchange.
    pub struct SaslRequest {
        /// What the mechanism produced.
        pub token: Bytes,
    }

    /// Changes the members of an ensemble.
    pub struct ReconfigRequest {
        /// Servers to add, comma-separated.
        pub joining: String,
        /// Servers to remove, comma-separated.
        pub leaving: String,
        /// The whole new membership, comma-separated.
        pub new_members: String,
        /// The expected version of the configuration, or -1 for any.
        pub config_id: i64,
    }
}

impl CreateRequest {
    /// The same request with a time to live.
    pub fn with_ttl(self, ttl_ms: i64) -> CreateTtlRequest {
        let Self { path, data, acl, flags } = self;
        CreateTtlRequest { path, data, acl, flags, ttl_ms }
    }
}
