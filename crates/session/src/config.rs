//! Config: the options of a session.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_wire::MAX_FRAME;

/// The longest answer that is skipped, in bytes. What is behind it, such as the answer to a heartbeat,
/// waits for 1.3 s at 100 Mbit/s: more would cost the lease.
pub const MOST_SKIPPED: usize = 16 << 20;

/// What proves to a client that its session was alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeaseMode {
    /// Only a write that a quorum has committed. For ensembles: a follower that is cut off from
    /// its leader, or a leader that was deposed and does not know, still answers pings, reads and
    /// `sync`, while the session expires elsewhere.
    #[default]
    Quorum,
    /// Any answer. For a server that stands alone: the server that answers is the one that would
    /// expire the session.
    Direct,
}

/// What proves an identity to a server.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// Such as `digest`.
    pub scheme: String,
    /// Such as `user:password`.
    pub secret: Bytes,
}

lockkeeper_wire::impl_debug! {
    /// Never prints the secret.
    Credentials, self => scheme: self.scheme
}

/// The options of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The session timeout to ask for. The server clamps it, usually to 2 to 20 of its ticks.
    /// Default: 15 s.
    pub session_timeout: Duration,
    /// What counts as a proof of life. Default: [`LeaseMode::Quorum`].
    pub lease: LeaseMode,
    /// The tick of the servers (`tickTime`), which bounds how late a follower tells its leader
    /// that a session is alive. Default: 2 s, ZooKeeper's own.
    pub server_tick: Duration,
    /// By how much this machine's clock may run slower than the servers', as a divisor: 100 means
    /// one hundredth. Default: 100.
    pub clock_drift_divisor: u32,
    /// The largest frame to send or take, in bytes (`jute.maxbuffer`). Default: 1,048,575.
    pub max_frame: usize,
    /// Whether the servers that take up a new session must have applied all that an earlier session
    /// of this client has seen, so that reads never go back from one session to the next. Servers
    /// that lag refuse it; when all have done so for longer than a session can last, the wish is
    /// dropped, as they were wiped or restored. Default: `false`.
    pub reads_go_forward: bool,
    /// Shown to each server right after the handshake.
    pub credentials: Vec<Credentials>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(15),
            lease: LeaseMode::default(),
            server_tick: Duration::from_secs(2),
            clock_drift_divisor: 100,
            max_frame: MAX_FRAME,
            reads_go_forward: false,
            credentials: Vec::new(),
        }
    }
}
