//! What the tasks of all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockkeeper_tree::ConnectionId;
use tokio::sync::mpsc::UnboundedSender;

use crate::admin::status::Status;
use crate::commit::Pipeline;
use crate::connection::budget::Budget;
use crate::connection::log_limiter::LogLimiter;
use crate::metrics::Metrics;
use crate::settings::limits::Limits;
use crate::tree_loop::Event;

/// The way from a connection's task to the rest of the engine.
pub(crate) struct Hub {
    pub(super) events: UnboundedSender<Event>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) budget: Arc<Budget>,
    pub(super) log_limiter: Arc<LogLimiter>,
    pub(super) limits: Limits,
    /// For those who ask with a four-letter word.
    pub(super) status: Arc<Status>,
    /// How many connections there have been.
    connections: AtomicU64,
}

impl Hub {
    pub(crate) fn new(status: Arc<Status>, log_limiter: Arc<LogLimiter>) -> Self {
        Self {
            events: status.events.clone(),
            pipeline: status.pipeline.clone(),
            metrics: status.metrics.clone(),
            budget: status.budget.clone(),
            log_limiter,
            limits: status.plan.limits.clone(),
            status,
            connections: AtomicU64::new(1),
        }
    }

    pub(super) fn next_id(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed))
    }
}
