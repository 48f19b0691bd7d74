//! Config: the limits of a server. Now and Entropy: time and randomness, provided by the caller.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lockkeeper_wire::MAX_FRAME;

use crate::digest::DigestAlgorithm;

/// The limits and options of a [`Server`](crate::Server).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The unit of session expiry: deadlines are rounded up to the next multiple. At least 1 ms.
    pub tick: Duration,
    /// The shortest session timeout that a client can get.
    pub min_session_timeout: Duration,
    /// The longest session timeout that a client can get.
    pub max_session_timeout: Duration,
    /// The maximum content of a frame, in bytes, without its length prefix. Checked here too, for callers
    /// that do not check it.
    pub max_frame: usize,
    /// The maximum number of sessions. Above it, the connection of a client that requests a new session is
    /// closed.
    pub max_sessions: usize,
    /// The maximum number of paths that one connection may watch.
    pub max_watches: usize,
    /// The maximum memory use of the watches of all connections, in bytes. Above half of it, each connection
    /// is limited to a fair share; see [`allowance`](crate::allowance).
    pub max_watch_bytes: usize,
    /// The maximum total size of the watch events of one transaction: their bytes, plus 256 for each watch
    /// that fires. Above half of it, each connection is limited to a fair share, and a connection above its
    /// share is closed; see [`allowance`](crate::allowance).
    pub max_fan_out: usize,
    /// The maximum number of operations in a `multi`.
    pub max_ops: usize,
    /// The maximum number of ephemeral nodes of a session: they are deleted in one transaction.
    pub max_ephemerals: usize,
    /// The maximum memory use of the nodes; see [`Stats::weight`](crate::Stats::weight). Requests that would
    /// exceed it are refused; the last eighth is reserved for small ephemeral nodes.
    pub max_weight: usize,
    /// The super user, which has all permissions everywhere. `None`: there is no super user.
    pub super_digest: Option<SuperDigest>,
    /// The hash algorithm for passwords of the scheme `digest`, including the super user's.
    pub digest_algorithm: DigestAlgorithm,
    /// Whether quotas are enforced; they are always accounted for.
    pub enforce_quotas: bool,
    /// Whether clients may create nodes with a time to live.
    pub ttl_nodes: bool,
    /// How often to search for empty containers and overdue TTL nodes.
    pub reap_interval: Duration,
    /// After how long a container that never had a child is deleted too. `None`: never.
    pub unused_container: Option<Duration>,
}

impl Config {
    /// The default minimum session timeout.
    pub fn min_timeout(tick: Duration) -> Duration {
        tick.saturating_mul(2)
    }

    /// The default maximum session timeout.
    pub fn max_timeout(tick: Duration) -> Duration {
        tick.saturating_mul(20)
    }

    /// ZooKeeper's defaults for a tick of this length: timeouts between 2 and 20 ticks, no TTL nodes, a
    /// search for reapable nodes every minute, and unused containers are kept.
    pub fn with_tick(tick: Duration) -> Self {
        Self {
            tick,
            min_session_timeout: Self::min_timeout(tick),
            max_session_timeout: Self::max_timeout(tick),
            max_frame: MAX_FRAME,
            max_sessions: 1_000_000,
            max_watches: 1_000_000,
            max_watch_bytes: usize::MAX,
            max_fan_out: 128 * 1024 * 1024,
            max_ops: 100_000,
            max_ephemerals: 20_000,
            max_weight: usize::MAX,
            super_digest: None,
            digest_algorithm: DigestAlgorithm::default(),
            enforce_quotas: false,
            ttl_nodes: false,
            reap_interval: Duration::from_secs(60),
            unused_container: None,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::with_tick(Duration::from_secs(2))
    }
}

/// The super user's name and password digest, `user:base64(hash(user:password))`: the same form as in
/// ZooKeeper's configuration and in ACLs of the scheme `digest`.
#[derive(Clone, PartialEq, Eq)]
pub struct SuperDigest(String);

/// Why a string is not a valid [`SuperDigest`]. The string is not shown, because it may be a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the super user's digest must have the form user:base64({algorithm}(user:password)), where the second part \
     is {} characters long",
    .algorithm.len().div_ceil(3) * 4
)]
pub struct InvalidSuperDigest {
    algorithm: DigestAlgorithm,
}

impl SuperDigest {
    /// Parses a digest that was created with this algorithm.
    ///
    /// # Errors
    /// If its form is different, or its length is that of another algorithm.
    pub fn new(text: &str, algorithm: DigestAlgorithm) -> Result<Self, InvalidSuperDigest> {
        let invalid = InvalidSuperDigest { algorithm };
        let (user, hash) = text.split_once(':').ok_or(invalid)?;
        let hash = STANDARD.decode(hash).map_err(|_| invalid)?;
        match hash.len() == algorithm.len() && !user.is_empty() {
            true => Ok(Self(text.to_owned())),
            false => Err(invalid),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The digest is left out: a weak password could be derived from it.
impl fmt::Debug for SuperDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.0.split(':').next().unwrap_or_default();
        write!(f, "SuperDigest({user}:...)")
    }
}

/// The time as measured by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time since an arbitrary start. Never goes back, and includes the time during which the machine was
    /// suspended. Determines the expiry of sessions.
    pub monotonic: Duration,
    /// Wall-clock time in milliseconds since 1970. Used only for the stats of nodes and to determine when a
    /// TTL node is overdue.
    pub unix_ms: i64,
}

/// A source of randomness for session passwords. It must be cryptographically secure: whoever guesses a
/// password can take over the session.
pub trait Entropy: Send {
    /// Fills `bytes` with random bytes.
    fn fill(&mut self, bytes: &mut [u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_super_digest_is_refused_and_no_digest_is_shown() {
        let digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
        let parsed = SuperDigest::new(digest, DigestAlgorithm::Sha1).unwrap();
        assert_eq!(parsed.as_str(), digest);
        assert_eq!(format!("{parsed:?}"), "SuperDigest(super:...)");
        for wrong in ["", "super", "super:test", ":D/InIHSb7yEEbrWz8b9l71RjZJU=", "super:AAAA"] {
            let error = SuperDigest::new(wrong, DigestAlgorithm::Sha1).unwrap_err().to_string();
            assert!(error.contains("base64(SHA1(") && error.contains("28 characters"), "{wrong}");
        }
        let error = SuperDigest::new(digest, DigestAlgorithm::Sha3_256).unwrap_err().to_string();
        assert!(error.contains("base64(SHA3-256(") && error.contains("44 characters"), "{error}");
    }
}
