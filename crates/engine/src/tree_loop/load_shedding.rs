//! Chooses the connections that are dropped when too much of the shared memory is in use; see `budget`.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::TreeLoop;
use crate::connection::Connection;
use crate::connection::budget::{CHECK_INTERVAL, Pressure, SMALL_SHARE_BYTES};

/// How long a client may neither read nor send while memory is short.
const STALL_LIMIT: Duration = Duration::from_secs(2);

impl TreeLoop {
    /// While more than half of the budget is in use, drops connections that make no progress; while all of it is, also
    /// others. The largest come first, and no more than necessary are dropped.
    pub(super) fn shed_load(&mut self) {
        if self.budget.pressure() == Pressure::None || self.shed_at.elapsed() < CHECK_INTERVAL {
            return;
        }
        self.shed_at = Instant::now();

        let burdens = self.connections.values().map(|connection| (connection.burden(), connection));
        let mut large: Vec<(usize, &Arc<Connection>)> =
            burdens.filter(|(bytes, _)| *bytes > SMALL_SHARE_BYTES).collect();
        large.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));

        // The budget shows the freed memory when the tasks of the connections have ended.
        let waiting = self.budget.waiting();
        let (mut bytes, mut dropped) = (0, 0);
        for (burden, connection) in large {
            let goes = match self.budget.pressure_of(waiting.saturating_sub(bytes)) {
                Pressure::None => break,
                Pressure::Half => connection.stuck_for() > STALL_LIMIT,
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
            "dropped {dropped} connections with {bytes} bytes, which used most of the memory for \
             waiting data ({} bytes): their clients sent incomplete requests or did not read their replies",
            self.budget.max()
        );
        self.log_limiter.warn("memory", None, &what);
    }
}
