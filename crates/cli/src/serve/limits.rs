//! What clients may take: `lockkeeper_engine`'s limits as options.

use std::time::Duration;

use clap::Args;
use lockkeeper_engine::Builder;

use crate::names;

/// Protection from too much. Who runs into a limit gets an error or loses its connection.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct Limits {
    /// Connections in all [default: 10000]
    #[arg(long, value_name = "COUNT")]
    max_connections: Option<usize>,

    /// Connections from one address [default: 10000]
    #[arg(long, value_name = "COUNT")]
    max_connections_per_address: Option<usize>,

    /// New connections a second; more have to wait [default: 5000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    connection_rate: Option<u32>,

    /// How long a new connection may take until its handshake is there [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = names::some_time)]
    handshake_time: Option<Duration>,

    /// Sessions, connected or not [default: 1000000]
    #[arg(long, value_name = "COUNT")]
    max_sessions: Option<usize>,

    /// Paths that one connection may watch [default: 1000000]
    #[arg(long, value_name = "COUNT")]
    max_watches: Option<usize>,

    /// Operations in one multi [default: 100000]
    #[arg(long, value_name = "COUNT")]
    max_multi: Option<usize>,

    /// Bytes of a request, and of a reply [default: 1048575, as jute.maxbuffer]
    #[arg(long, value_name = "BYTES")]
    max_frame: Option<usize>,

    /// Bytes that may wait for a client that does not read [default: 67108864]
    #[arg(long, value_name = "BYTES")]
    max_outgoing: Option<usize>,
}

impl Limits {
    /// Sets those that were given.
    pub(super) fn apply(&self, builder: Builder) -> Builder {
        let with = |builder, value: Option<usize>, set: fn(Builder, usize) -> Builder| match value {
            Some(value) => set(builder, value),
            None => builder,
        };
        let builder = with(builder, self.max_connections, Builder::max_connections);
        let per_address = self.max_connections_per_address;
        let builder = with(builder, per_address, Builder::max_connections_per_address);
        let builder = with(builder, self.max_sessions, Builder::max_sessions);
        let builder = with(builder, self.max_watches, Builder::max_watches);
        let builder = with(builder, self.max_multi, Builder::max_multi);
        let builder = with(builder, self.max_frame, Builder::max_frame);
        let mut builder = with(builder, self.max_outgoing, Builder::max_outgoing);
        if let Some(rate) = self.connection_rate {
            builder = builder.connection_rate(rate);
        }
        if let Some(time) = self.handshake_time {
            builder = builder.handshake_time(time);
        }
        builder
    }
}
