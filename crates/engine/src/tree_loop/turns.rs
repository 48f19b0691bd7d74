//! Whose frames are handled when.
//!
//! Who sends a little, and takes little of this thread's time, is handled in the round in which it
//! is read. Who sends much waits for a turn after those, one after the other, and so does who is
//! to take replies first. A round ends soon after a turn that is long; so nobody waits for all that
//! another has sent in one go. The frames of a connection stay in their order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockkeeper_tree::{ConnectionId, Now};
use tokio::task::yield_now;

use super::{Event, MAX_ROUND, PART, PART_BYTES, TreeLoop};
use crate::connection::Connection;
use crate::connection::budget::LITTLE;
use crate::metrics::ops::Op;

/// Up to how many frames at once are a few, which need not wait for a turn if they are short.
const FEW: usize = 16;
/// How many frames a turn has at most: as many as leave together.
const TURN: usize = PART;
/// How long a turn takes, with the request that is under way then.
const TURN_TIME: Duration = Duration::from_micros(500);
/// How long a round takes before the turns that are left wait for the next.
const ROUND_TIME: Duration = Duration::from_millis(2);

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

    fn waits(&self, id: ConnectionId) -> bool {
        self.frames.contains_key(&id)
    }

    /// Has frames wait, behind those of the same connection that wait already.
    fn add(&mut self, connection: &Connection, frames: VecDeque<Bytes>) {
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
    fn next(&mut self) -> Option<(ConnectionId, VecDeque<Bytes>)> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(frames) = self.frames.remove(&id) {
                return Some((id, frames));
            }
        }
        None
    }

    /// Makes those ready that are held no longer.
    fn release(&mut self, may_go_on: impl Fn(ConnectionId) -> bool) {
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

impl TreeLoop {
    /// What a connection has read: handled now if it is a few frames, and else in turns.
    pub(super) fn take_frames(
        &mut self,
        now: Now,
        since: Instant,
        id: ConnectionId,
        frames: Vec<Bytes>,
    ) {
        self.askers.asks(id, frames.len());
        self.count(id, &frames);
        let Some(connection) = self.connections.get(&id).cloned() else { return };
        let mut frames = VecDeque::from(frames);
        let bytes: usize = frames.iter().map(Bytes::len).sum();
        let is_little = frames.len() <= FEW && bytes <= LITTLE && connection.is_light(since);
        if is_little && !self.turns.waits(id) {
            self.serve(now, since, &connection, &mut frames);
        }
        if !frames.is_empty() {
            // It has been heard of, whenever its turn comes.
            self.server.heard_of(now, id);
            self.turns.add(&connection, frames);
        }
    }

    /// Handles what waits for a turn, until the round has taken its time; one turn in any case.
    pub(super) fn take_turns(&mut self, now: Now, since: Instant) {
        let connections = &self.connections;
        self.turns.release(|id| connections.get(&id).is_some_and(|c| c.has_room_again()));
        while let Some((id, mut frames)) = self.turns.next() {
            let Some(connection) = self.connections.get(&id).cloned() else { continue };
            self.serve(now, since, &connection, &mut frames);
            connection.hold_back(false);
            if !frames.is_empty() {
                self.turns.add(&connection, frames);
            }
            if since.elapsed() > ROUND_TIME {
                break;
            }
        }
    }

    /// Handles frames of one connection for as long as a turn lasts, or until its client is to take
    /// something first.
    fn serve(
        &mut self,
        now: Now,
        since: Instant,
        connection: &Arc<Connection>,
        frames: &mut VecDeque<Bytes>,
    ) {
        let began = Instant::now();
        for _ in 0..TURN {
            if connection.is_full() {
                break;
            }
            let Some(frame) = frames.pop_front() else { break };
            connection.handled(&frame);
            self.ops.add(Op::of_frame(&frame).0);
            self.server.handle_frame(now, connection.id, frame);
            self.in_part += 1;
            if self.in_part == PART || self.server.bytes_to_send() >= PART_BYTES {
                self.hand_over(since, false);
            }
            if !frames.is_empty() && began.elapsed() > TURN_TIME {
                break;
            }
        }
        connection.spend(began, began.elapsed());
    }

    /// Lets the connections read and write, without sleeping.
    pub(super) async fn poll_sockets(&mut self, round: &mut Vec<Event>) {
        // One yield polls the sockets, the next runs the tasks of those that are ready.
        yield_now().await;
        yield_now().await;
        while round.len() < MAX_ROUND
            && let Ok(event) = self.events.try_recv()
        {
            round.push(event);
        }
    }
}
