//! What is remembered across sessions: the newest transaction seen, and how long servers have refused a
//! session.

use std::time::Duration;

use lockkeeper_wire::Zxid;

use crate::time::Instant;

/// After a longer gap between two refusals, the servers may have been unreachable in between.
const LONGEST_GAP: Duration = Duration::from_secs(10);

/// After this many refusals, one handshake asks for a new session. The share is small, because a server that
/// has regained a quorum accepts either, whichever comes first.
const REFUSALS_PER_NEW_SESSION: u32 = 8;

/// For how long servers have refused the session without interruption.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) lasts: Duration,
    /// Whether the next handshake may ask for a new session.
    pub(crate) asks_anew: bool,
}

/// Consecutive refusals without a gap.
#[derive(Clone, Copy, Debug)]
struct RefusalSeries {
    since: Instant,
    last: Instant,
    /// How many of them came after the session had certainly expired on servers that are behind it.
    beyond: u32,
}

/// State that outlives a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The newest transaction that an earlier session has seen, since servers were last behind one.
    seen: Zxid,
    /// Whether this session has not been compared with that transaction yet.
    is_open: bool,
    /// Whether the next message is the first one of a new session, on the connection on which the session
    /// began. It is compared: the server has created the session, which is newer than everything before it. A
    /// different server may not have applied that yet, and may lag behind until it has answered a `sync`.
    is_first: bool,
    /// The current series of refusals.
    refused: Option<RefusalSeries>,
}

impl History {
    /// A server accepted a session.
    pub(crate) fn accepted(&mut self, is_new: bool) {
        self.refused = None;
        self.is_first = is_new;
        self.is_open |= is_new;
    }

    pub(crate) fn disconnected(&mut self) {
        self.is_first = false;
    }

    /// A session that had seen this transaction has ended.
    pub(crate) fn ended(&mut self, seen: Zxid) {
        self.seen = self.seen.max(seen);
        self.refused = None;
    }

    /// A server refused the session. Servers that are behind the session expire it after `limit`. They count
    /// as reachable the whole time if no two refusals are further apart than that or than [`LONGEST_GAP`].
    pub(crate) fn refused(&mut self, now: Instant, limit: Duration) -> Refused {
        let is_one_series =
            |series: &RefusalSeries| now.since(series.last) <= limit.max(LONGEST_GAP);
        let series = self.refused.filter(is_one_series);
        let mut series = series.unwrap_or(RefusalSeries { since: now, last: now, beyond: 0 });
        series.last = now;

        let lasts = now.since(series.since);
        let asks_anew = lasts >= limit && series.beyond.is_multiple_of(REFUSALS_PER_NEW_SESSION);
        if lasts >= limit {
            series.beyond = series.beyond.wrapping_add(1);
        }
        self.refused = Some(series);
        Refused { lasts, asks_anew }
    }

    /// The newest transaction that an earlier session has seen, since servers were last behind one.
    pub(crate) fn seen(&self) -> Zxid {
        self.seen
    }

    /// Processes the zxid of a message. Returns what was seen before, if that was newer.
    pub(crate) fn rewound_by(&mut self, zxid: Zxid) -> Option<Zxid> {
        // Events of old servers, and some errors, carry no zxid.
        if !self.is_first || zxid <= Zxid(0) {
            return None;
        }
        self.is_first = false;
        self.compare(zxid)
    }

    /// Like [`rewound_by`](Self::rewound_by), for the reply to a `sync`: before it, the server has caught up
    /// with a leader that knows the session.
    pub(crate) fn rewound_at_sync(&mut self, zxid: Zxid) -> Option<Zxid> {
        if self.is_open { self.compare(zxid) } else { None }
    }

    fn compare(&mut self, zxid: Zxid) -> Option<Zxid> {
        self.is_open = false;
        (zxid < self.seen).then(|| std::mem::take(&mut self.seen))
    }
}
