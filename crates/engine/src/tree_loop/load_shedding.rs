//! Which connections are dropped when too much of the shared memory is taken; see `budget`.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::TreeLoop;
use crate::connection::Connection;
use crate::connection::budget::{CHECK_INTERVAL, LITTLE, Pressure};

/// For how long a client may move nothing while memory is short.
const PATIENCE: Duration = Duration::from_secs(2);

impl TreeLoop {
    /// While more than half of the budget is taken, drops those that move nothing; while all of it
    /// is, also others. The largest first, and no more than needed.
    pub(super) fn shed_load(&mut self) {
        if self.budget.pressure() == Pressure::None || self.shed_at.elapsed() < CHECK_INTERVAL {
            return;
        }
        self.shed_at = Instant::now();

        let burdens = self.connections.values().map(|connection| (connection.burden(), connection));
        let mut large: Vec<(usize, &Arc<Connection>)> =
            burdens.filter(|(bytes, _)| *bytes > LITTLE).collect();
        large.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));

        // What is freed shows on the budget when the tasks of the connections have ended.
        let waiting = self.budget.waiting();
        let (mut bytes, mut dropped) = (0, 0);
        for (burden, connection) in large {
            let goes = match self.budget.pressure_of(waiting.saturating_sub(bytes)) {
                Pressure::None => break,
                Pressure::Half => connection.stuck_for() > PATIENCE,
                Pressure::Full => true,
            };
            if goes {
                tracing::debug!(peer = %connection.peer, burden, "connection dropped for its memory");
                connection.cut();
                (bytes, dropped) = (bytes + burden, dropped + 1);
            }
        }
        if dropped == 0 {
            return;
        }

        self.metrics.counters.dropped_for_memory.add(dropped);
        let what = format_args!(
            "dropped {dropped} connections with {bytes} bytes, which took most of the memory for what \
             waits ({} bytes): their clients sent requests in part, or did not take their replies",
            self.budget.max()
        );
        self.log_limiter.warn("memory", None, &what);
    }
}
