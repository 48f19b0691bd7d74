//! The limits for clients: `lockkeeper_engine`'s limits as options.

use std::time::Duration;

use clap::Args;
use lockkeeper_engine::Builder;

use super::with::With;
use crate::shared::names;

/// Protection from overload. A client that exceeds a limit gets an error or is disconnected.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct Limits {
    /// All connections; the last tenth is reserved for clients that resume a session [default: 10000]
    #[arg(long, value_name = "COUNT", value_parser = names::nonzero)]
    max_connections: Option<usize>,

    /// Connections from one address [default: three quarters of all]
    #[arg(long, value_name = "COUNT", value_parser = names::nonzero)]
    max_connections_per_address: Option<usize>,

    /// New connections per second; further ones wait [default: 5000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    connection_rate: Option<u32>,

    /// How long a new connection may take for its handshake [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = names::nonzero_duration)]
    handshake_time: Option<Duration>,

    /// Sessions, connected or not [default: 1000000]
    #[arg(long, value_name = "COUNT", value_parser = names::nonzero)]
    max_sessions: Option<usize>,

    /// Paths that one connection may watch [default: 1000000]
    #[arg(long, value_name = "COUNT", value_parser = names::nonzero)]
    max_watches: Option<usize>,

    /// Operations in one multi [default: 100000]
    #[arg(long, value_name = "COUNT", value_parser = names::nonzero)]
    max_multi: Option<usize>,

    /// Bytes of a request, and of a reply [default: 1048575, as jute.maxbuffer]
    #[arg(long, value_name = "BYTES", value_parser = names::byte_limit)]
    max_frame: Option<usize>,

    /// Bytes of replies and events queued for one client; at a quarter of this the client is slowed
    /// down [default: 67108864]
    #[arg(long, value_name = "BYTES", value_parser = names::byte_limit)]
    max_outgoing: Option<usize>,

    /// How long a client may read no replies before it is disconnected [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = names::nonzero_duration)]
    send_timeout: Option<Duration>,

    /// Bytes for all queues: replies, partial requests, watches [default: a quarter of the memory of
    /// the machine or the control group]
    #[arg(long, value_name = "BYTES", value_parser = names::byte_limit)]
    memory_budget: Option<usize>,

    /// Bytes of memory for the data; growth beyond it is rejected [default: half of the memory]
    #[arg(long, value_name = "BYTES", value_parser = names::byte_limit)]
    data_budget: Option<usize>,

    /// Bytes to keep free on the disk; with less, growth is rejected; 0 for no limit [default: 268435456,
    /// or a quarter of a small file system]
    #[arg(long, value_name = "BYTES")]
    disk_reserve: Option<u64>,

    /// Ephemeral znodes of one session [default: 20000]
    #[arg(long, value_name = "COUNT", value_parser = names::nonzero)]
    max_ephemerals: Option<usize>,
}

impl Limits {
    /// Sets the limits that were given.
    pub(super) fn apply(&self, builder: Builder) -> Builder {
        builder
            .with(self.max_connections, Builder::max_connections)
            .with(self.max_connections_per_address, Builder::max_connections_per_address)
            .with(self.max_sessions, Builder::max_sessions)
            .with(self.max_watches, Builder::max_watches)
            .with(self.max_multi, Builder::max_multi)
            .with(self.max_frame, Builder::max_frame)
            .with(self.max_outgoing, Builder::max_outgoing)
            .with(self.memory_budget, Builder::memory_budget)
            .with(self.data_budget, Builder::data_budget)
            .with(self.max_ephemerals, Builder::max_ephemerals)
            .with(self.disk_reserve, Builder::disk_reserve)
            .with(self.send_timeout, Builder::send_timeout)
            .with(self.connection_rate, Builder::connection_rate)
            .with(self.handshake_time, Builder::handshake_time)
    }
}
