//! The entries of an access control list, and the identities in them.

use std::net::Ipv6Addr;

use lockkeeper_wire::{Acl, Permissions};

/// An identity that a connection has proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `ip`, `digest`, `x509` or `super`.
    pub(crate) scheme: &'static str,
    /// An IP address, `user:base64(hash(user:password))`, the subject of a certificate, or empty.
    pub(crate) id: String,
}

/// The memory use of an identity without its text, including the allocator's overhead.
const IDENTITY_WEIGHT: usize = 64;

impl Identity {
    /// The memory use, in bytes.
    pub(crate) fn weight(&self) -> usize {
        IDENTITY_WEIGHT + self.id.len()
    }

    /// The part that other clients may see: never the digest of a password.
    pub(crate) fn user(&self) -> &str {
        match self.scheme {
            "digest" => self.id.split(':').next().unwrap_or_default(),
            _ => &self.id,
        }
    }
}

pub(crate) fn is_anyone(entry: &Acl) -> bool {
    entry.scheme == "world" && entry.id == "anyone"
}

/// Whether the list gives everyone all permissions.
pub(crate) fn is_open(acl: &[Acl]) -> bool {
    matches!(acl, [entry] if entry.permissions == Permissions::ALL && is_anyone(entry))
}

/// An IP address as a number. IPv4 addresses sort before IPv6 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    /// The number of bits: 32 or 128.
    bits: u32,
    number: u128,
}

impl Address {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.contains(':') {
            let address: Ipv6Addr = text.parse().ok()?;
            return Some(Self { bits: 128, number: address.to_bits() });
        }
        // Not `Ipv4Addr`: ZooKeeper accepts leading zeros.
        let (mut number, mut parts) = (0, 0);
        for part in text.split('.') {
            number = number << 8 | u128::from(part.parse::<u8>().ok()?);
            parts += 1;
            if parts > 4 {
                return None;
            }
        }
        (parts == 4).then_some(Self { bits: 32, number })
    }

    /// The next address. After the last IPv4 address, the result is only a bound.
    pub(crate) fn next(self) -> Option<Self> {
        Some(Self { number: self.number.checked_add(1)?, ..self })
    }
}

/// A range of addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: Address,
    pub(crate) last: Address,
}

impl Range {
    /// Parses `address` or `address/bits`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, fixed) = match text.split_once('/') {
            Some((address, bits)) => (Address::parse(address)?, Some(bits)),
            None => (Address::parse(text)?, None),
        };
        let fixed = match fixed {
            Some(fixed) => fixed.parse().ok().filter(|fixed| *fixed <= address.bits)?,
            None => address.bits,
        };
        let rest = 1_u128.checked_shl(address.bits - fixed).map_or(u128::MAX, |past| past - 1);
        Some(Self {
            first: Address { number: address.number & !rest, ..address },
            last: Address { number: address.number | rest, ..address },
        })
    }

    pub(crate) fn contains(&self, address: Address) -> bool {
        (self.first..=self.last).contains(&address)
    }
}
