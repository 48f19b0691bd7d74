//! Proving an identity.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lockkeeper_wire::AuthRequest;
use sha1::{Digest as _, Sha1};

use crate::acl::Identity;

/// The identity that every client from an IP address has.
pub(crate) fn by_address(peer: IpAddr) -> Identity {
    Identity { scheme: "ip", id: peer.to_canonical().to_string() }
}

/// The identity that the credentials prove; `None` if they prove none.
///
/// A digest proves itself: whoever shows another password becomes another identity.
pub(crate) fn authenticate(request: &AuthRequest, peer: Option<IpAddr>) -> Option<Identity> {
    match request.scheme.as_str() {
        "digest" => Some(digest(&String::from_utf8_lossy(&request.auth))),
        "ip" => peer.map(by_address),
        _ => None,
    }
}

fn digest(credentials: &str) -> Identity {
    let user = credentials.split(':').next().unwrap_or_default();
    let hash = STANDARD.encode(Sha1::digest(credentials.as_bytes()));
    Identity { scheme: "digest", id: format!("{user}:{hash}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_have_zookeepers_format() {
        // From ZooKeeper's own documentation of the super user.
        let identity = digest("super:test");
        assert_eq!(identity.id, "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(identity.user(), "super");
    }
}
