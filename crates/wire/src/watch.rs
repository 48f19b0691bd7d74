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
            /// [`DecodeError::UnknownValue`] if there is none.
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
        /// Nothing happened to a node; the session's state changed.
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
        /// The session is over.
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
    /// Which watches a removal means.
    WatcherKind, "kind of watch" {
        /// Watches on the list of children.
        Children = 1,
        /// Watches on the data or the existence.
        Data = 2,
        /// All of them.
        Any = 3,
        /// Persistent watches.
        Persistent = 4,
        /// Persistent recursive watches.
        PersistentRecursive = 5,
    }
}

/// Tells a client what happened to a node that it watches.
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

/// Arms a client's watches again after it reconnected.
///
/// Whatever changed after `relative_zxid` fires at once, except for persistent watches, which are
/// only armed.
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
    /// How many lists the form has that every server knows: the first ones, those of persistent watches
    /// left out.
    pub const LISTS_V1: usize = 3;
    /// How many lists there are.
    pub const LISTS: usize = 5;

    /// The lists, in the order in which they are sent.
    pub fn lists(&self) -> [&Vec<String>; Self::LISTS] {
        [&self.data, &self.exist, &self.child, &self.persistent, &self.persistent_recursive]
    }

    /// The same, to be filled.
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
    /// The node, which need not exist.
    pub path: String,
    /// The number of an [`AddWatchMode`]; as a number, because a server answers a wrong one with
    /// an error.
    pub mode: i32,
}

record!(AddWatchRequest { path, mode });

/// Removes watches, or asks whether there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveWatchesRequest {
    /// The node.
    pub path: String,
    /// The number of a [`WatcherKind`]; as a number, because a server answers a wrong one with an
    /// error.
    pub kind: i32,
}

record!(RemoveWatchesRequest { path, kind });
