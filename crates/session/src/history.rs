//! What is remembered over sessions: the newest transaction seen, and for how long servers have
//! refused a session.

use std::time::Duration;

use lockkeeper_wire::Zxid;

use crate::time::Instant;

/// Refusals that are further apart say nothing of the time between them: servers may have been away.
const LONGEST_GAP: Duration = Duration::from_secs(10);

/// Of so many refusals, one is followed by a handshake for a new session. Few, as a server that has a
/// quorum again takes whichever is asked for first.
const REFUSALS_EACH: u32 = 8;

/// For how long servers have refused the session, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) lasts: Duration,
    /// Whether the next server is to be asked for a new session, if it has lasted long enough.
    pub(crate) asks_anew: bool,
}

/// Refusals without a gap.
#[derive(Clone, Copy, Debug)]
struct Row {
    since: Instant,
    last: Instant,
    /// How many of them came when the session was over for servers that are behind it.
    beyond: u32,
}

/// What outlives a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The newest transaction that an earlier session has seen, since servers were behind one.
    seen: Zxid,
    /// Whether nothing of this session has been compared with that.
    is_open: bool,
    /// Whether the next message is the first one of a new session, on the connection on which it
    /// began. It compares: the server has made the session, which is newer than all that there was.
    /// Another one may not have heard of it, and be behind for a moment, until it has answered a sync.
    is_first: bool,
    /// How servers have refused the session.
    refused: Option<Row>,
}

impl History {
    /// A server took a session.
    pub(crate) fn accepted(&mut self, is_new: bool) {
        self.refused = None;
        self.is_first = is_new;
        self.is_open |= is_new;
    }

    pub(crate) fn disconnected(&mut self) {
        self.is_first = false;
    }

    /// A session is over that had seen this.
    pub(crate) fn ended(&mut self, seen: Zxid) {
        self.seen = self.seen.max(seen);
        self.refused = None;
    }

    /// A server refused the session, which servers that are behind it do not have for longer than
    /// `limit`. They were there all the time, if no two refusals are further apart than that, or some
    /// seconds.
    pub(crate) fn refused(&mut self, now: Instant, limit: Duration) -> Refused {
        let is_one_row = |row: &Row| now.since(row.last) <= limit.max(LONGEST_GAP);
        let row = self.refused.filter(is_one_row);
        let mut row = row.unwrap_or(Row { since: now, last: now, beyond: 0 });
        row.last = now;

        let lasts = now.since(row.since);
        let asks_anew = lasts >= limit && row.beyond.is_multiple_of(REFUSALS_EACH);
        if lasts >= limit {
            row.beyond = row.beyond.wrapping_add(1);
        }
        self.refused = Some(row);
        Refused { lasts, asks_anew }
    }

    /// The newest transaction that an earlier session has seen, since servers were behind one.
    pub(crate) fn seen(&self) -> Zxid {
        self.seen
    }

    /// Takes the number that came with a message; what was seen before, if that was more.
    pub(crate) fn rewound_by(&mut self, zxid: Zxid) -> Option<Zxid> {
        // Events of old servers, and some errors, have no number.
        if !self.is_first || zxid <= Zxid(0) {
            return None;
        }
        self.is_first = false;
        self.compare(zxid)
    }

    /// The same for the answer to a sync, before which the server has caught up with a leader that
    /// knows the session.
    pub(crate) fn rewound_at_sync(&mut self, zxid: Zxid) -> Option<Zxid> {
        if self.is_open { self.compare(zxid) } else { None }
    }

    fn compare(&mut self, zxid: Zxid) -> Option<Zxid> {
        self.is_open = false;
        (zxid < self.seen).then(|| std::mem::take(&mut self.seen))
    }
}
