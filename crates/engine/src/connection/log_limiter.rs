//! Limits the log to one line for each kind of problem in a period.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::sockets::stream::Peer;

/// How long further reports of a kind of problem are suppressed.
const QUIET: Duration = Duration::from_secs(5);

/// Suppresses repetitions. A client that reaches a limit does so with every request, and a thousand clients that
/// connect at once are refused for the same reason: neither may fill the disk with log lines.
///
/// Every warning that a client can cause, on any thread, goes through this limiter.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    said: Mutex<HashMap<&'static str, LastWarning>>,
}

#[derive(Debug)]
struct LastWarning {
    at: Instant,
    held_back: u64,
}

impl LogLimiter {
    /// Logs a warning, unless one of its kind was logged recently. The next one includes the number of suppressed ones.
    pub(crate) fn warn(&self, kind: &'static str, peer: Option<Peer>, what: &dyn fmt::Display) {
        if let Some(held_back) = self.may_say(kind, Instant::now()) {
            let held_back = (held_back > 0).then_some(held_back);
            tracing::warn!(peer = peer.map(tracing::field::display), held_back, "{what}");
        }
    }

    /// Whether a warning of this kind may be logged now, and how many were suppressed since the last one.
    fn may_say(&self, kind: &'static str, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(said) = said.get_mut(kind) else {
            said.insert(kind, LastWarning { at: now, held_back: 0 });
            return Some(0);
        };
        if now.saturating_duration_since(said.at) < QUIET {
            said.held_back += 1;
            return None;
        }
        said.at = now;
        Some(std::mem::take(&mut said.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_counted_and_not_logged() {
        let log_limiter = LogLimiter::default();
        let start = Instant::now();
        assert_eq!(log_limiter.may_say("a", start), Some(0));
        assert_eq!(log_limiter.may_say("a", start), None);
        assert_eq!(log_limiter.may_say("b", start), Some(0));
        assert_eq!(log_limiter.may_say("a", start + QUIET / 2), None);
        assert_eq!(log_limiter.may_say("a", start + QUIET), Some(2));
        assert_eq!(log_limiter.may_say("a", start + QUIET * 2), Some(0));
    }
}
