//! The origins of connections: the limits of one origin do not affect others.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::files;
use crate::sockets::stream::Peer;

/// The origin to which a connection is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A host: an IPv4 address, or a /64 network of IPv6.
    Address(IpAddr),
    /// A user of this machine, by id.
    User(u32),
}

impl Origin {
    pub(crate) fn of(peer: Peer) -> Self {
        match peer {
            Peer::Tcp(address) => Self::Address(one_host(address.ip().to_canonical())),
            Peer::Unix { uid } => Self::User(uid),
        }
    }

    /// Whether it is root or the user of this process, which can end the engine anyway.
    pub(crate) fn is_owner(self) -> bool {
        match self {
            Self::Address(_) => false,
            Self::User(uid) => files::is_owner(uid),
        }
    }

    /// The name of its kind in messages about limits.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Address(_) => "address",
            Self::User(_) => "user",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "from {address}"),
            Self::User(uid) => write!(f, "of the user {uid}"),
        }
    }
}

/// The addresses that count as one: a host with one IPv6 address can use all 2⁶⁴ of its network.
fn one_host(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}
