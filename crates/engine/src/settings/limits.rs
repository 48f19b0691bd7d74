//! The limits for one client and for all clients together: the defaults, and the limits that follow from others.

use std::time::Duration;

use lockkeeper_tree::Config;

use super::memory;
use crate::sockets::listen::BACKLOG;

/// The limits that the engine itself enforces; those of the tree are in its [`Config`]. The setters of
/// [`Builder`](crate::Builder) describe each.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) max_connections: usize,
    pub(super) max_connections_per_address: Option<usize>,
    pub(crate) backlog: u32,
    pub(crate) connection_rate: u32,
    pub(crate) max_outgoing: usize,
    pub(crate) handshake_time: Duration,
    pub(crate) send_timeout: Duration,
    pub(super) memory_budget: Option<usize>,
    pub(super) data_budget: Option<usize>,
    pub(crate) disk_reserve: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_per_address: None,
            backlog: BACKLOG,
            connection_rate: 5_000,
            max_outgoing: 64 * 1024 * 1024,
            handshake_time: Duration::from_secs(10),
            send_timeout: Duration::from_secs(30),
            memory_budget: None,
            data_budget: None,
            disk_reserve: None,
        }
    }
}

impl Limits {
    pub(crate) fn max_connections_per_address(&self) -> usize {
        let most = self.max_connections - self.max_connections / 4;
        self.max_connections_per_address.unwrap_or(most)
    }

    /// The budget for all waiting data, in bytes.
    pub(crate) fn memory_budget(&self) -> usize {
        self.memory_budget.unwrap_or_else(memory::default_budget)
    }

    /// Queries the system for the limits that were not set, once, and passes them to the tree.
    pub(super) fn apply_to(&mut self, config: &mut Config) {
        let memory = self.memory_budget.get_or_insert_with(memory::default_budget);
        config.max_watch_bytes = *memory / 2;
        config.max_fan_out = config.max_fan_out.min(*memory / 2);
        config.max_weight = self.data_budget.unwrap_or_else(memory::default_data_budget);
    }
}
