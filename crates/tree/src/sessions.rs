//! Sessions, and when they expire.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockkeeper_wire::{PASSWORD_LEN, SessionId};
use subtle::ConstantTimeEq as _;

use crate::output::ConnectionId;

/// Does not implement `Debug`: a password must not get into a log.
pub(crate) struct Session {
    pub(crate) timeout: Duration,
    pub(crate) password: [u8; PASSWORD_LEN],
    pub(crate) deadline: Duration,
    pub(crate) connection: Option<ConnectionId>,
}

impl Session {
    pub(crate) fn new(timeout: Duration, password: [u8; PASSWORD_LEN]) -> Self {
        Self { timeout, password, deadline: Duration::ZERO, connection: None }
    }

    pub(crate) fn has_password(&self, shown: &[u8]) -> bool {
        self.password.ct_eq(shown).into()
    }
}

/// All live sessions, also ordered by deadline.
pub(crate) struct Sessions {
    tick: Duration,
    by_id: BTreeMap<SessionId, Session>,
    queue: BTreeSet<(Duration, SessionId)>,
    touched: BTreeSet<SessionId>,
}

impl Sessions {
    pub(crate) fn new(tick: Duration) -> Self {
        Self {
            tick: tick.max(Duration::from_millis(1)),
            by_id: BTreeMap::new(),
            queue: BTreeSet::new(),
            touched: BTreeSet::new(),
        }
    }

    /// Adds a session with its full timeout from `now`.
    pub(crate) fn insert(&mut self, now: Duration, id: SessionId, session: Session) {
        self.touched.insert(id);
        self.restore(id, session);
        self.hear_from(now, id);
    }

    /// Adds a session from storage. Returns `false` if it exists already.
    pub(crate) fn restore(&mut self, id: SessionId, session: Session) -> bool {
        self.queue.insert((session.deadline, id));
        self.by_id.insert(id, session).is_none()
    }

    /// Gives every session its full timeout.
    pub(crate) fn hear_from_all(&mut self, now: Duration) {
        let ids: Vec<SessionId> = self.by_id.keys().copied().collect();
        for id in ids {
            self.hear_from(now, id);
        }
    }

    /// Extends the deadline: the session's client has sent something.
    pub(crate) fn hear_from(&mut self, now: Duration, id: SessionId) {
        let tick = self.tick;
        let Some(session) = self.by_id.get_mut(&id) else {
            return;
        };
        let deadline = next_tick(now.saturating_add(session.timeout), tick);
        if deadline != session.deadline {
            self.queue.remove(&(session.deadline, id));
            self.queue.insert((deadline, id));
            session.deadline = deadline;
        }
    }

    pub(crate) fn set_timeout(&mut self, id: SessionId, timeout: Duration) {
        if let Some(session) = self.by_id.get_mut(&id)
            && session.timeout != timeout
        {
            session.timeout = timeout;
            self.touched.insert(id);
        }
    }

    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.by_id.remove(&id)?;
        self.queue.remove(&(session.deadline, id));
        self.touched.insert(id);
        Some(session)
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.by_id.iter().map(|(id, session)| (*id, session))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Up to `limit` sessions whose deadline has passed.
    pub(crate) fn due(&self, now: Duration, limit: usize) -> Vec<SessionId> {
        let due = self.queue.iter().take_while(|(deadline, _)| *deadline <= now);
        due.map(|(_, id)| *id).take(limit).collect()
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.queue.first().map(|(deadline, _)| *deadline)
    }

    /// The sessions that were created, changed or removed since the last call.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.touched)
    }
}

/// The first tick *after* `time`, rounded as in ZooKeeper: never early, and sessions expire in groups.
fn next_tick(time: Duration, tick: Duration) -> Duration {
    let ticks = time.as_nanos() / tick.as_nanos() + 1;
    let nanos = ticks.saturating_mul(tick.as_nanos());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_round_up_to_the_next_tick() {
        let ms = Duration::from_millis;
        for (time, expected) in [(0, 2000), (1, 2000), (1999, 2000), (2000, 4000), (2001, 4000)] {
            assert_eq!(next_tick(ms(time), ms(2000)), ms(expected), "{time}");
        }
        next_tick(Duration::MAX, Duration::from_nanos(1));
    }

    #[test]
    fn passwords_of_the_wrong_length_are_wrong() {
        let session = Session::new(Duration::ZERO, [7; 16]);
        assert!(session.has_password(&[7; 16]));
        assert!(!session.has_password(&[7; 15]) && !session.has_password(&[]));
        assert!(!session.has_password(&[7; 17]) && !session.has_password(&[8; 16]));
    }
}
