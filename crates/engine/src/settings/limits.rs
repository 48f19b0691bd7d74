//! The limits of an engine: what one client, or all of them, may take.
//!
//! Whoever runs into one gets an error or loses its connection, the log gets one line, and nobody
//! else notices.

use std::time::Duration;

use crate::settings::builder::Builder;

impl Builder {
    /// The largest request and the largest reply, in bytes. Default:
    /// [`MAX_FRAME`](lockkeeper_wire::MAX_FRAME), 1 MiB less one, as in ZooKeeper. A client that
    /// sends a larger one loses its connection; one whose reply would be larger gets the error -5.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.limits.max_frame = bytes;
        self
    }

    /// How many connections there may be. Default: 10,000. The last tenth is kept for clients that come
    /// back with a session; others are closed. The process's limit of open files is raised as far as the
    /// system allows and this needs it.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.max_connections = count;
        self
    }

    /// How many connections may come from one IP address; those over a Unix socket count for none.
    /// Clients that come back with a session get a quarter of the places that are kept for such beyond
    /// that. Default: three quarters of all, 7,500.
    pub fn max_connections_per_address(mut self, count: usize) -> Self {
        self.max_connections_per_address = Some(count);
        self
    }

    /// How many connections may wait in the operating system to be accepted, on each address; the
    /// system may allow fewer. Default: 1,024.
    pub fn listen_backlog(mut self, count: u32) -> Self {
        self.backlog = count;
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

    /// How many bytes of replies and events may wait for one client. Default: 64 MiB. From a quarter of
    /// it on the client is held back: what it asks for is neither read nor handled until it has taken
    /// half of that. So nobody is dropped who asks for more in one go, and takes it. A client for which
    /// more than all of it waits, as it watches much and reads nothing, is dropped (its session lives on).
    pub fn max_outgoing(mut self, bytes: usize) -> Self {
        self.limits.max_outgoing = bytes;
        self
    }

    /// How long a client may take nothing of what waits for it before it is dropped (its session lives
    /// on). Default: 30 s.
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.limits.send_timeout = limit;
        self
    }

    /// How many bytes may wait for all connections together: replies and events that clients have not
    /// taken, and requests that are not whole or not handled; watches, by what they weigh, leave less of
    /// it and get half of it at most. Default: a quarter of the machine's memory, or of what the control
    /// group of the process allows if that is less.
    ///
    /// From half of it on, a client that has more of it than others with much is held back, and those of
    /// them that take nothing for 2 s are dropped, the largest first (their sessions live on). When all
    /// of it is taken, the largest are dropped in any case. Clients with less than 16 KiB notice nothing.
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = Some(bytes);
        self
    }

    /// How many bytes of memory the data may take: nodes with their paths, data, access control lists and
    /// what the engine keeps with each node, as counted (`data_weight` in `mntr`). Default: half of the
    /// machine's memory, or of what the control group of the process allows if that is less.
    ///
    /// A write for which there is no room gets the error -125 (quota exceeded). The last eighth is for
    /// ephemeral nodes with up to 1 KiB of data, so that locks can be taken when the rest is full. Deletes,
    /// and data that gets no longer, are never refused; nor is anything that was there before.
    pub fn data_budget(mut self, bytes: usize) -> Self {
        self.data_budget = Some(bytes);
        self
    }

    /// How many bytes the engine leaves free on the disk of its data directory. Default: 256 MiB, or a
    /// quarter of a smaller file system. Zero: none.
    ///
    /// With less room, creates and data that gets longer are refused with the error -125 (quota exceeded),
    /// except for ephemeral nodes with up to 1 KiB of data, and with less than half of it those as well.
    /// Everything else goes on. The room is looked at every 0.1 to 1 s.
    pub fn disk_reserve(mut self, bytes: u64) -> Self {
        self.disk_reserve = Some(bytes);
        self
    }

    /// How many ephemeral nodes one session may have; one more gets the error -125. They all end in one
    /// transaction, during which everyone waits. Default: 20,000.
    pub fn max_ephemerals(mut self, count: usize) -> Self {
        self.config.max_ephemerals = count;
        self
    }

    /// How long a new connection may take to send its handshake, that of TLS included. Default:
    /// 10 s.
    pub fn handshake_time(mut self, limit: Duration) -> Self {
        self.limits.handshake_time = limit;
        self
    }
}
