//! Watch events, and the requests that manage watches.

use bytes::BytesMut;

use crate::codec::{Decoder, Record, record};
use crate::error::DecodeError;
use crate::ids::Zxid;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident, $what:literal { $( $(#[$variant_doc:meta])* $variant:ident = $code:literal, )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[$variant_doc])* $variant, )* }

        impl $name {
            /// The number on the wire.
            pub fn code(self) -> i32 {
                match self { $( Self::$variant => $code, )* }
            }

            /// The value with this number.
            ///
            /// # Errors
            /// [`DecodeError::UnknownValue`] if the number is unknown.
            pub fn from_code(code: i32) -> Result<Self, DecodeError> {
                match code {
                    $( $code => Ok(Self::$variant), )*
                    other => Err(DecodeError::UnknownValue(other, $what)),
                }
            }
        }

        impl Record for $name {
            fn encode(&self, out: &mut BytesMut) {
                self.code().encode(out);
            }

            fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
                Self::from_code(i32::decode(input)?)
            }
        }
    };
}

numbered! {
    /// What happened to a watched node.
    EventKind, "kind of event" {
        /// The event is about the session, not about a node.
        Session = -1,
        /// The node was created.
        NodeCreated = 1,
        /// The node was deleted.
        NodeDeleted = 2,
        /// The node's data changed.
        NodeDataChanged = 3,
        /// A child was created or deleted.
        NodeChildrenChanged = 4,
        /// A data watch was removed by request.
        DataWatchRemoved = 5,
        /// A child watch was removed by request.
        ChildWatchRemoved = 6,
        /// A persistent watch was removed by request.
        PersistentWatchRemoved = 7,
    }
}

numbered! {
    /// The state of the session that an event reports.
    KeeperState, "session state" {
        /// Not connected.
        Disconnected = 0,
        /// Connected.
        SyncConnected = 3,
        /// The credentials were refused.
        AuthFailed = 4,
        /// Connected to a read-only server.
        ConnectedReadOnly = 5,
        /// Authenticated.
        SaslAuthenticated = 6,
        /// The session has expired.
        Expired = -112,
        /// The session was closed.
        Closed = 7,
    }
}

numbered! {
    /// The kind of a watch that stays until it is removed.
    AddWatchMode, "watch mode" {
        /// Data and child events of one node.
        Persistent = 0,
        /// Creation, deletion and data events of a node and everything below it.
        PersistentRecursive = 1,
    }
}

numbered! {
    /// Which watches to remove or check.
    WatcherKind, "kind of watch" {
        /// Watches on the list of children.
        Children = 1,
        /// Watches on the data or the existence.
        Data = 2,
        /// All watches.
        Any = 3,
        /// Persistent watches.
        Persistent = 4,
        /// Persistent recursive watches.
        PersistentRecursive = 5,
    }
}

/// Reports a change of a watched node to a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// The state of the session.
    pub state: KeeperState,
    /// The node; empty for an event of the session itself.
    pub path: String,
}

record!(WatchEvent { kind, state, path });

/// Rearms a client's watches after a reconnect.
///
/// Watches fire at once for changes after `relative_zxid`. Persistent watches are only set again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetWatchesRequest {
    /// The newest transaction that the client has seen.
    pub relative_zxid: Zxid,
    /// Watches on the data of nodes that exist.
    pub data: Vec<String>,
    /// Watches on the creation of nodes that do not exist.
    pub exist: Vec<String>,
    /// Watches on lists of children.
    pub child: Vec<String>,
    /// Persistent watches; sent only by `setWatches2`.
    pub persistent: Vec<String>,
    /// Persistent recursive watches; sent only by `setWatches2`.
    pub persistent_recursive: Vec<String>,
}

impl SetWatchesRequest {
    /// The number of lists in the form that all servers know, which omits persistent watches.
    pub const LISTS_V1: usize = 3;
    /// The number of lists.
    pub const LISTS: usize = 5;

    /// The lists in the order in which they are encoded.
    pub fn lists(&self) -> [&Vec<String>; Self::LISTS] {
        [&self.data, &self.exist, &self.child, &self.persistent, &self.persistent_recursive]
    }

    /// The lists, to be filled in the same order.
    pub fn lists_mut(&mut self) -> [&mut Vec<String>; Self::LISTS] {
        let Self { data, exist, child, persistent, persistent_recursive, .. } = self;
        [data, exist, child, persistent, persistent_recursive]
    }

    pub(crate) fn encode_v1(&self, out: &mut BytesMut) {
        self.relative_zxid.encode(out);
        self.lists().iter().take(Self::LISTS_V1).for_each(|list| list.encode(out));
    }

    pub(crate) fn decode_v1(input: &mut Decoder) -> Result<Self, DecodeError> {
        let mut request = Self { relative_zxid: Zxid::decode(input)?, ..Self::default() };
        for list in request.lists_mut().into_iter().take(Self::LISTS_V1) {
            *list = Vec::decode(input)?;
        }
        Ok(request)
    }
}

record!(SetWatchesRequest { relative_zxid, data, exist, child, persistent, persistent_recursive });

/// Sets a persistent watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddWatchRequest {
    /// The node; it need not exist.
    pub path: String,
    /// The number of an [`AddWatchMode`]. It is not decoded to the enum, because a server answers an invalid
    /// number with an error.
    pub mode: i32,
}

record!(AddWatchRequest { path, mode });

/// Removes watches, or checks whether they exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveWatchesRequest {
    /// The node.
    pub path: String,
    /// The number of a [`WatcherKind`]. It is not decoded to the enum, because a server answers an invalid
    /// number with an error.
    pub kind: i32,
}

record!(RemoveWatchesRequest { path, kind });
