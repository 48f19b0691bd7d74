//! One entry of an access control list, and whom it may name.

use std::net::Ipv6Addr;

use lockkeeper_wire::{Acl, Permissions};

/// An identity that a connection has proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `ip`, `digest`, `x509` or `super`.
    pub(crate) scheme: &'static str,
    /// An address, `user:base64(sha1(user:password))`, the subject of a certificate, or nothing.
    pub(crate) id: String,
}

impl Identity {
    /// What others may be told of it: never the digest of a password.
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

/// Whether the list allows everyone everything.
pub(crate) fn is_open(acl: &[Acl]) -> bool {
    matches!(acl, [entry] if entry.permissions == Permissions::ALL && is_anyone(entry))
}

/// Reads `address` or `address/bits`.
pub(crate) fn parse_range(text: &str) -> Option<(Vec<u8>, usize)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address = parse_address(address)?;
    let all = address.len() * 8;
    let bits = match bits {
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= all)?,
        None => all,
    };
    Some((address, bits))
}

pub(crate) fn parse_address(text: &str) -> Option<Vec<u8>> {
    if text.contains(':') {
        let address: Ipv6Addr = text.parse().ok()?;
        return Some(address.octets().to_vec());
    }
    // Not Ipv4Addr: ZooKeeper takes leading zeros.
    let parts: Option<Vec<u8>> = text.split('.').map(|part| part.parse().ok()).collect();
    parts.filter(|parts| parts.len() == 4)
}
