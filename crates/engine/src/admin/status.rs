//! What an engine was started with, for those who ask it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::admin::four_letter::Words;
use crate::clock;
use crate::settings::builder::Plan;

/// Settings that do not change while the engine runs.
pub(crate) struct Facts {
    pub(crate) started: Instant,
    /// Plain TCP addresses with the ports that they really got.
    pub(crate) addresses: Vec<SocketAddr>,
    /// TCP addresses with TLS.
    pub(crate) secure: Vec<SocketAddr>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) tick: Duration,
    pub(crate) min_session_timeout: Duration,
    pub(crate) max_session_timeout: Duration,
    pub(crate) max_connections_per_address: usize,
    pub(crate) max_sessions: usize,
    pub(crate) backlog: u32,
    pub(crate) data_budget: usize,
    pub(crate) words: Words,
    /// Until when no session begins, on the engine's clock.
    pub(crate) quiet_until: Option<Duration>,
}

impl Facts {
    pub(crate) fn new(
        plan: &Plan,
        addresses: &[SocketAddr],
        secure: &[SocketAddr],
        quiet_until: Option<Duration>,
    ) -> Self {
        Self {
            started: Instant::now(),
            addresses: addresses.to_vec(),
            secure: secure.to_vec(),
            data_dir: plan.data_dir.clone(),
            tick: plan.config.tick,
            min_session_timeout: plan.config.min_session_timeout,
            max_session_timeout: plan.config.max_session_timeout,
            max_connections_per_address: plan.max_connections_per_address,
            max_sessions: plan.config.max_sessions,
            backlog: plan.backlog,
            data_budget: plan.config.max_weight,
            words: plan.words.clone(),
            quiet_until,
        }
    }

    /// For how long no session begins yet.
    pub(crate) fn quiet_time_left(&self) -> Option<Duration> {
        self.quiet_until.and_then(clock::left_until)
    }
}
