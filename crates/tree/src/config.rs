//! Config: the limits of a server. Now and Entropy: the time and the randomness that the caller gives.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lockkeeper_wire::MAX_FRAME;

use crate::digest::DigestAlgorithm;

/// The limits and switches of a [`Server`](crate::Server).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The unit of session expiry: deadlines are rounded up to the next multiple. At least 1 ms.
    pub tick: Duration,
    /// The shortest session timeout that a client can get.
    pub min_session_timeout: Duration,
    /// The longest session timeout that a client can get.
    pub max_session_timeout: Duration,
    /// The largest content of a frame, in bytes, without its length prefix. A longer frame is
    /// refused here too, for callers that did not check.
    pub max_frame: usize,
    /// How many sessions there may be; a client that wants another one is closed.
    pub max_sessions: usize,
    /// How many paths one connection may watch.
    pub max_watches: usize,
    /// How many bytes the watches of all connections may weigh. From half of it on, a connection may
    /// have no more of it than others; see [`allowance`](crate::allowance).
    pub max_watch_bytes: usize,
    /// How much the watch events of one transaction may weigh, to all connections together: their bytes,
    /// and 256 for each watch that an event meets. From half of it on, a connection may have no more of it
    /// than others, and one that is over its share is closed; see [`allowance`](crate::allowance).
    pub max_fan_out: usize,
    /// How many operations a `multi` may have.
    pub max_ops: usize,
    /// How many ephemeral nodes a session may have: they end in one transaction.
    pub max_ephemerals: usize,
    /// How much the nodes may weigh; see [`Stats::weight`](crate::Stats::weight). What makes them
    /// weigh more is refused; the last eighth is for small ephemeral nodes.
    pub max_weight: usize,
    /// Who may do everything. `None`: nobody.
    pub super_digest: Option<SuperDigest>,
    /// How the passwords of the scheme `digest` are hashed, the super user's too.
    pub digest_algorithm: DigestAlgorithm,
    /// Whether quotas are enforced, and not only accounted for.
    pub enforce_quotas: bool,
    /// Whether clients may create nodes with a time to live.
    pub ttl_nodes: bool,
    /// How often empty containers and overdue TTL nodes are looked for.
    pub reap_interval: Duration,
    /// After what time a container that never had a child is reaped too. `None`: never.
    pub unused_container: Option<Duration>,
}

impl Config {
    /// The shortest session timeout, where none is set.
    pub fn min_timeout(tick: Duration) -> Duration {
        tick.saturating_mul(2)
    }

    /// The longest session timeout, where none is set.
    pub fn max_timeout(tick: Duration) -> Duration {
        tick.saturating_mul(20)
    }

    /// ZooKeeper's defaults for a tick of this length: timeouts between 2 and 20 ticks, no TTL
    /// nodes, a look for reapable nodes every minute, unused containers kept.
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

/// The super user's name and the digest of the password: `user:base64(hash(user:password))`, the
/// form in which ZooKeeper takes it and in which ACLs of the scheme `digest` have it.
#[derive(Clone, PartialEq, Eq)]
pub struct SuperDigest(String);

/// A text that is no [`SuperDigest`]. It does not show the text, which may be a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the super user's digest has the form user:base64({algorithm}(user:password)), where the second part \
     is {} characters long",
    .algorithm.len().div_ceil(3) * 4
)]
pub struct InvalidSuperDigest {
    algorithm: DigestAlgorithm,
}

impl SuperDigest {
    /// Takes a digest that was made with this algorithm.
    ///
    /// # Errors
    /// If it has another form, or the length of another algorithm.
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

/// Without the digest, from which a weak password could be found.
impl fmt::Debug for SuperDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.0.split(':').next().unwrap_or_default();
        write!(f, "SuperDigest({user}:...)")
    }
}

/// The time, as the caller measured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Since an arbitrary start; never goes back, and counts the time for which the machine slept.
    /// Decides about expiry.
    pub monotonic: Duration,
    /// Wall time in milliseconds since 1970. Only goes into the stats of nodes, and decides when a
    /// TTL node is overdue.
    pub unix_ms: i64,
}

/// A source of randomness for session passwords. It must be fit for cryptography: whoever guesses
/// a password can take over the session.
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
