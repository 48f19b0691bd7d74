//! The queue of connections that wait for a turn: see `frames`, which takes the turns.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use lockkeeper_tree::ConnectionId;

use crate::connection::Connection;
use crate::connection::budget::CHECK_INTERVAL;

/// Frames that wait for their turn.
#[derive(Default)]
pub(crate) struct Turns {
    frames: HashMap<ConnectionId, VecDeque<Bytes>>,
    /// The next connections, in order. Closed ones are skipped.
    ready: VecDeque<ConnectionId>,
    /// Connections whose clients must read replies first.
    held: HashSet<ConnectionId>,
    /// When all of these were last checked.
    looked_at: Option<Instant>,
}

impl Turns {
    /// Whether a turn can be taken now.
    pub(super) fn is_anyone_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn is_anyone_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether its client must read replies before it gets a turn.
    pub(super) fn is_held(&self, id: ConnectionId) -> bool {
        self.held.contains(&id)
    }

    /// The connections whose frames wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = ConnectionId> {
        self.frames.keys().copied()
    }

    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.frames.remove(&id);
        self.held.remove(&id);
    }

    pub(super) fn waits(&self, id: ConnectionId) -> bool {
        self.frames.contains_key(&id)
    }

    /// Adds frames, behind those of the same connection that already wait.
    pub(super) fn add(&mut self, connection: &Connection, frames: VecDeque<Bytes>) {
        let id = connection.id;
        if let Some(waiting) = self.frames.get_mut(&id) {
            waiting.extend(frames);
            return;
        }
        let hold = connection.is_full();
        connection.hold_back(hold);
        self.frames.insert(id, frames);
        match hold {
            true => _ = self.held.insert(id),
            false => self.ready.push_back(id),
        }
    }

    /// Takes all frames of the next turn.
    pub(super) fn next(&mut self) -> Option<(ConnectionId, VecDeque<Bytes>)> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(frames) = self.frames.remove(&id) {
                return Some((id, frames));
            }
        }
        None
    }

    /// Makes a connection ready that is no longer held back.
    pub(super) fn release(&mut self, id: ConnectionId) {
        if self.held.remove(&id) {
            self.ready.push_back(id);
        }
    }

    /// Makes all connections ready that are no longer held back. Most of them report this themselves when their clients
    /// have read replies; so an occasional check is enough for those that waited for memory of others.
    pub(super) fn release_all(&mut self, now: Instant, may_go_on: impl Fn(ConnectionId) -> bool) {
        let is_due = |at: Instant| now.saturating_duration_since(at) >= CHECK_INTERVAL;
        if !self.looked_at.is_none_or(is_due) {
            return;
        }
        self.looked_at = Some(now);
        let free = self.held.extract_if(|id| may_go_on(*id));
        self.ready.extend(free);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    /// Symptom: a round checked all connections that were held back, however little it had to do. Seen to fail that
    /// way.
    #[test]
    fn those_that_are_held_cost_a_round_nothing() {
        let mut turns = Turns::default();
        for n in 0..1_000 {
            turns.frames.insert(ConnectionId(n), VecDeque::new());
            turns.held.insert(ConnectionId(n));
        }
        let (looks, begin) = (Cell::new(0), Instant::now());
        let look = |id: ConnectionId| {
            looks.set(looks.get() + 1);
            id.0 == 7
        };
        for round in 0..1_000 {
            turns.release_all(begin + Duration::from_micros(round), look);
        }
        assert_eq!((looks.get(), turns.held.len()), (1_000, 999));
        turns.release_all(begin + CHECK_INTERVAL, look);
        assert_eq!(looks.get(), 1_999, "again, after a while");

        turns.release(ConnectionId(3));
        turns.release(ConnectionId(3));
        turns.forget(ConnectionId(4));
        assert_eq!(turns.held.len(), 997);
        let ready: Vec<u64> = std::iter::from_fn(|| turns.next()).map(|(id, _)| id.0).collect();
        assert_eq!(ready, [7, 3]);
    }
}
