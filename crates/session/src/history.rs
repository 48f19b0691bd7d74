//! What is remembered over sessions: the newest transaction seen, and for how long servers have
//! refused a session.

use std::time::Duration;

use lockkeeper_wire::Zxid;

use crate::time::Instant;

/// Refusals that are further apart say nothing of the time between them: servers may have been away.
const LONGEST_GAP: Duration = Duration::from_secs(10);

/// What outlives a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The newest transaction that an earlier session has seen.
    seen: Zxid,
    /// Whether the next message is the first one of a new session, on the connection on which it
    /// began. Only that compares: the server has made the session, which is newer than all that there
    /// was. Another one may not have heard of it, and be behind for a moment.
    is_first: bool,
    /// Since when servers have refused the session, and when one did so last.
    refused: Option<(Instant, Instant)>,
}

impl History {
    /// A server took a session.
    pub(crate) fn accepted(&mut self, is_new: bool) {
        self.refused = None;
        self.is_first = is_new;
    }

    pub(crate) fn disconnected(&mut self) {
        self.is_first = false;
    }

    /// A session is over that had seen this.
    pub(crate) fn ended(&mut self, seen: Zxid) {
        self.seen = self.seen.max(seen);
        self.refused = None;
    }

    /// A server refused the session: for how long servers have done so. They were there all the time,
    /// if no two refusals are further apart than `limit`, or some seconds.
    pub(crate) fn refused_for(&mut self, now: Instant, limit: Duration) -> Duration {
        let is_one_row = |last| now.since(last) <= limit.max(LONGEST_GAP);
        let since = match self.refused {
            Some((since, last)) if is_one_row(last) => since,
            _ => now,
        };
        self.refused = Some((since, now));
        now.since(since)
    }

    /// Takes the number that came with a message; what was seen before, if that was more.
    pub(crate) fn rewound_by(&mut self, zxid: Zxid) -> Option<Zxid> {
        // Events of old servers, and some errors, have no number.
        if !self.is_first || zxid <= Zxid(0) {
            return None;
        }
        self.is_first = false;
        let seen = std::mem::take(&mut self.seen);
        (zxid < seen).then_some(seen)
    }
}
