//! Access control lists.

use std::fmt;
use std::ops::{BitOr, Deref};
use std::sync::LazyLock;

use bytes::BytesMut;

use crate::codec::{Decoder, Record, record};
use crate::error::DecodeError;

/// What an [`Acl`] entry allows, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions(pub i32);

record!(Permissions { 0 });

impl Permissions {
    /// Read the data and list the children.
    pub const READ: Self = Self(1);
    /// Change the data.
    pub const WRITE: Self = Self(2);
    /// Create children.
    pub const CREATE: Self = Self(4);
    /// Delete children.
    pub const DELETE: Self = Self(8);
    /// Change the access control list.
    pub const ADMIN: Self = Self(16);
    /// Everything.
    pub const ALL: Self = Self(31);

    /// Whether every bit of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Permissions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One entry of an access control list: an identity and its permissions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    /// What is allowed.
    pub permissions: Permissions,
    /// How the identity is proven: `world`, `auth`, `digest`, `ip`, `x509`.
    pub scheme: String,
    /// The identity, in the form that the scheme prescribes.
    pub id: String,
}

record!(Acl { permissions, scheme, id });

impl Acl {
    /// An entry for this identity.
    pub fn new(permissions: Permissions, scheme: &str, id: impl Into<String>) -> Self {
        Self { permissions, scheme: scheme.to_owned(), id: id.into() }
    }

    /// Gives everyone all permissions.
    pub fn open() -> Vec<Self> {
        Self::world(Permissions::ALL)
    }

    /// Gives everyone these `permissions`.
    pub fn world(permissions: Permissions) -> Vec<Self> {
        vec![Self::new(permissions, "world", "anyone")]
    }

    /// Gives every identity that the creator of the node has proven all permissions.
    pub fn creator_all() -> Vec<Self> {
        vec![Self::new(Permissions::ALL, "auth", "")]
    }
}

/// The access control list of a request. The list that gives everyone all permissions, as nearly all requests
/// do, is stored without an allocation.
#[derive(Clone, PartialEq, Eq)]
pub struct AclList(Option<Vec<Acl>>);

impl AclList {
    /// Everyone has all permissions.
    pub const OPEN: Self = Self(None);

    /// The encoding of [`OPEN`](Self::OPEN): one entry.
    pub(crate) const OPEN_ENCODED: [u8; 27] =
        *b"\0\0\0\x01\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone";

    /// Whether this is the single entry that gives everyone all permissions.
    pub fn is_open(&self) -> bool {
        self.0.is_none()
    }
}

impl From<Vec<Acl>> for AclList {
    fn from(entries: Vec<Acl>) -> Self {
        Self((*entries != **OPEN).then_some(entries))
    }
}

static OPEN: LazyLock<Vec<Acl>> = LazyLock::new(Acl::open);

impl Deref for AclList {
    type Target = [Acl];

    fn deref(&self) -> &[Acl] {
        self.0.as_ref().unwrap_or_else(|| &OPEN)
    }
}

impl fmt::Debug for AclList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Record for AclList {
    fn encode(&self, out: &mut BytesMut) {
        match &self.0 {
            None => out.extend_from_slice(&Self::OPEN_ENCODED),
            Some(entries) => entries.encode(out),
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        if input.skip(&Self::OPEN_ENCODED) {
            return Ok(Self::OPEN);
        }
        Vec::decode(input).map(|entries| Self(Some(entries)))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::codec::encoded;

    #[test]
    fn the_open_list_is_what_it_stands_for() {
        assert_eq!(*AclList::OPEN, *Acl::open());
        assert_eq!(AclList::from(Acl::open()), AclList::OPEN);
        assert_eq!(encoded(&AclList::OPEN), encoded(&Acl::open()));
        for list in [Acl::open(), Acl::creator_all(), Acl::world(Permissions::READ), Vec::new()] {
            let mut input = Decoder::new(encoded(&list));
            let decoded = AclList::decode(&mut input).expect("readable");
            assert_eq!((&*decoded, input.remaining()), (&*list, 0));
            assert_eq!(decoded, AclList::from(list));
        }
    }

    /// Changing any byte of the open list gives another list, or an invalid one.
    #[test]
    fn what_is_nearly_the_open_list_is_not() {
        let open = AclList::OPEN_ENCODED;
        for at in 0..open.len() {
            let mut other = open;
            other[at] ^= 1;
            let decoded = AclList::decode(&mut Decoder::new(Bytes::copy_from_slice(&other)));
            assert!(!decoded.is_ok_and(|list| list.is_open()), "byte {at}");
            let cut = Bytes::copy_from_slice(&open[..at]);
            assert!(AclList::decode(&mut Decoder::new(cut)).is_err(), "{at} bytes");
        }
    }
}
