//! Config: the options of a session.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_wire::MAX_FRAME;

/// The longest reply that is skipped instead of closing the connection, in bytes. Replies behind it, such as
/// that of a heartbeat, are delayed by 1.3 s at 100 Mbit/s; a longer delay would cost the lease.
pub const MAX_SKIPPED_REPLY: usize = 16 << 20;

/// What a client accepts as proof that its session was alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeaseMode {
    /// Only a write that a quorum has committed. For ensembles. A follower that is cut off from its leader,
    /// and a deposed leader, still answer pings, reads and `sync` while the session expires elsewhere.
    #[default]
    Quorum,
    /// Any reply. For a standalone server, which is itself the server that would expire the session.
    Direct,
}

/// Proves an identity to a server.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The scheme, such as `digest`.
    pub scheme: String,
    /// The secret, such as `user:password`.
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
    /// The session timeout to request. The server limits it, usually to between 2 and 20 of its ticks.
    /// Default: 15 s.
    pub session_timeout: Duration,
    /// What proves that the session is alive. Default: [`LeaseMode::Quorum`].
    pub lease: LeaseMode,
    /// The tick of the servers (`tickTime`). It bounds how late a follower reports to its leader that a
    /// session is alive. Default: 2 s, ZooKeeper's default.
    pub server_tick: Duration,
    /// How much slower than the servers' clocks this machine's clock may run, as a divisor: 100 means one
    /// percent. Default: 100.
    pub clock_drift_divisor: u32,
    /// The largest frame to send or accept, in bytes (`jute.maxbuffer`). Default: 1,048,575.
    pub max_frame: usize,
    /// Whether a server may accept a new session only if it has applied everything that earlier sessions of
    /// this client have seen, so that reads never go back from one session to the next. A server that lags
    /// behind refuses. When all servers have refused for longer than a session can last, they were wiped or
    /// restored, and the requirement is dropped. Default: `false`.
    pub reads_go_forward: bool,
    /// Credentials to send to each server right after the handshake.
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
