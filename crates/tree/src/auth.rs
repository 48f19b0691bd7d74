//! Authentication: how a client proves an identity.

use std::net::IpAddr;

use lockkeeper_wire::AuthRequest;
use subtle::ConstantTimeEq as _;

use crate::acl::Identity;
use crate::config::{Config, SuperDigest};

/// The identity of every client with this IP address.
pub(crate) fn by_address(peer: IpAddr) -> Identity {
    Identity { scheme: "ip", id: peer.to_canonical().to_string() }
}

/// The identity of a client whose certificate has this subject.
pub(crate) fn by_certificate(subject: String) -> Identity {
    Identity { scheme: "x509", id: subject }
}

/// The identities that the credentials of a client prove, given its address and its identities so far. Empty
/// if the credentials do not prove anything.
///
/// Digest credentials are always accepted: a different password results in a different identity. One of these
/// identities may be the super user's.
pub(crate) fn authenticate(
    request: &AuthRequest,
    peer: Option<IpAddr>,
    identities: &[Identity],
    config: &Config,
) -> Vec<Identity> {
    match request.scheme.as_str() {
        "digest" => {
            let id = config.digest_algorithm.id(&String::from_utf8_lossy(&request.auth));
            with_super(Identity { scheme: "digest", id }, config.super_digest.as_ref())
        }
        "ip" => peer.map(by_address).into_iter().collect(),
        // The identity of the certificate was added when the connection was opened.
        "x509" => identities.iter().filter(|i| i.scheme == "x509").cloned().collect(),
        _ => Vec::new(),
    }
}

fn with_super(identity: Identity, super_digest: Option<&SuperDigest>) -> Vec<Identity> {
    let shown = identity.id.as_bytes();
    let is_super =
        super_digest.is_some_and(|digest| digest.as_str().as_bytes().ct_eq(shown).into());
    let powers = is_super.then(|| Identity { scheme: "super", id: String::new() });
    powers.into_iter().chain([identity]).collect()
}
