//! The line of those who wait for a turn: see `frames`, which takes the turns.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use lockkeeper_tree::ConnectionId;

use crate::connection::Connection;

/// Frames that wait for their turn.
#[derive(Default)]
pub(crate) struct Turns {
    frames: HashMap<ConnectionId, VecDeque<Bytes>>,
    /// Who is next. Those that are gone are passed over.
    ready: VecDeque<ConnectionId>,
    /// Whose clients have to take something first.
    held: Vec<ConnectionId>,
}

impl Turns {
    /// Whether a turn can be taken now.
    pub(super) fn is_anyone_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn is_anyone_held(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.frames.remove(&id);
    }

    pub(super) fn waits(&self, id: ConnectionId) -> bool {
        self.frames.contains_key(&id)
    }

    /// Has frames wait, behind those of the same connection that wait already.
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
            true => self.held.push(id),
            false => self.ready.push_back(id),
        }
    }

    /// Takes out all that waits for the next turn.
    pub(super) fn next(&mut self) -> Option<(ConnectionId, VecDeque<Bytes>)> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(frames) = self.frames.remove(&id) {
                return Some((id, frames));
            }
        }
        None
    }

    /// Makes those ready that are held no longer.
    pub(super) fn release(&mut self, may_go_on: impl Fn(ConnectionId) -> bool) {
        let (frames, ready) = (&self.frames, &mut self.ready);
        self.held.retain(|id| {
            if !frames.contains_key(id) {
                return false;
            }
            let goes_on = may_go_on(*id);
            if goes_on {
                ready.push_back(*id);
            }
            !goes_on
        });
    }
}
