//! Access control lists.

use std::ops::BitOr;

use bytes::BytesMut;

use crate::codec::record;
use crate::codec::{Decoder, Record};
use crate::error::DecodeError;

/// What an [`Acl`] entry allows, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions(pub i32);

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

impl Record for Permissions {
    fn encode(&self, out: &mut BytesMut) {
        self.0.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        i32::decode(input).map(Self)
    }
}

/// One entry of an access control list: who may do what.
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
    /// The scheme of those who prove nothing, and their only identity.
    pub(crate) const WORLD: &'static str = "world";
    pub(crate) const ANYONE: &'static str = "anyone";

    /// Everyone may do everything.
    pub fn open() -> Vec<Self> {
        Self::world(Permissions::ALL)
    }

    /// Everyone may do what `permissions` says.
    pub fn world(permissions: Permissions) -> Vec<Self> {
        let (scheme, id) = (Self::WORLD.to_owned(), Self::ANYONE.to_owned());
        vec![Self { permissions, scheme, id }]
    }

    /// Whoever has authenticated as the creator of the node may do everything.
    pub fn creator_all() -> Vec<Self> {
        vec![Self { permissions: Permissions::ALL, scheme: "auth".to_owned(), id: String::new() }]
    }
}
