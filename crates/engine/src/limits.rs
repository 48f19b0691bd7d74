//! The limits of an engine: what one client, or all of them, may take.
//!
//! Whoever runs into one gets an error or loses its connection, the log gets one line, and nobody
//! else notices.

use std::time::Duration;

use crate::builder::Builder;

impl Builder {
    /// The largest request and the largest reply, in bytes. Default:
    /// [`MAX_FRAME`](lockkeeper_wire::MAX_FRAME), 1 MiB less one, as in ZooKeeper. A client that
    /// sends a larger one loses its connection; one whose reply would be larger gets the error -5.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.limits.max_frame = bytes;
        self
    }

    /// How many connections there may be. Default: 10,000. The process's limit of open files is
    /// raised as far as the system allows and this needs it.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.max_connections = count;
        self
    }

    /// How many connections may come from one IP address; those over a Unix socket count for none.
    /// Default: 10,000.
    pub fn max_connections_per_address(mut self, count: usize) -> Self {
        self.max_connections_per_address = count;
        self
    }

    /// How many connections are accepted per second, on all addresses together, at least 1; bursts
    /// of a fifth of it are not slowed down. More have to wait, and none is refused for it.
    /// Default: 5,000.
    pub fn connection_rate(mut self, per_second: u32) -> Self {
        self.connection_rate = per_second;
        self
    }

    /// How many sessions there may be, connected or not; a client that wants another one is
    /// closed. Default: 1,000,000.
    pub fn max_sessions(mut self, count: usize) -> Self {
        self.config.max_sessions = count;
        self
    }

    /// How many paths one connection may watch; a request for one more gets the error -127.
    /// Default: 1,000,000.
    pub fn max_watches(mut self, paths: usize) -> Self {
        self.config.max_watches = paths;
        self
    }

    /// How many operations a `multi` may have; a longer one gets the error -8. Default: 100,000,
    /// which no frame of the default length reaches. (There are none within another one.)
    pub fn max_multi(mut self, operations: usize) -> Self {
        self.config.max_ops = operations;
        self
    }

    /// How many bytes may wait for a client that does not read; one for which there is more is
    /// dropped (its session lives on). Default: 64 MiB. At a quarter of it, the engine stops
    /// reading that client's requests. Those that it has read already are answered: a client that
    /// sends requests for far more than this in one go is dropped as well, even if it reads.
    pub fn max_outgoing(mut self, bytes: usize) -> Self {
        self.limits.max_outgoing = bytes;
        self
    }

    /// How long a new connection may take to send its handshake, that of TLS included. Default:
    /// 10 s.
    pub fn handshake_time(mut self, limit: Duration) -> Self {
        self.limits.handshake_time = limit;
        self
    }
}
