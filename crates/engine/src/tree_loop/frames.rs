//! The order in which the frames of connections are handled: a fair schedule.
//!
//! A connection that sends little and uses little of this thread's time is served in the round in which it is read. A
//! connection that sends much waits for a turn after those, one after the other. So does one whose client must first
//! read replies. A round ends soon after a long turn, so no connection waits for everything that another one has sent.
//! The frames of a connection stay in order.
//!
//! Many connections together cannot make a round long either: when its time is used up, it only serves
//! requests that are known to be short, and the others wait for turns. No turns are taken while the disk
//! is behind, so long requests queue here and not in front of the disk, where short ones would have to
//! wait for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockkeeper_tree::{ConnectionId, Now};
use lockkeeper_wire::OpCode;
use tokio::task::yield_now;

use super::{BATCH_BYTES, BATCH_REQUESTS, Event, TreeLoop};
use crate::connection::Connection;
use crate::connection::budget::SMALL_SHARE_BYTES;
use crate::metrics::ops::Op;

/// The number of frames up to which short requests are served without a turn.
const MAX_IMMEDIATE: usize = 16;
/// The most frames of a turn: as many as are handed over together.
const TURN_REQUESTS: usize = BATCH_REQUESTS;
/// How long a turn lasts; a request that has begun is completed.
const TURN_TIME: Duration = Duration::from_micros(500);
/// How long a round lasts before the remaining turns wait for the next one.
const ROUND_TIME: Duration = Duration::from_millis(2);

impl TreeLoop {
    /// Handles what a connection has read: at once if it is a few frames, and otherwise in turns.
    pub(super) fn take_frames(
        &mut self,
        now: Now,
        since: Instant,
        id: ConnectionId,
        frames: Vec<Bytes>,
    ) {
        self.arrivals.asks(id, frames.len());
        self.count(id, &frames);
        let Some(connection) = self.connections.get(&id).cloned() else { return };

        let mut frames = VecDeque::from(frames);
        let bytes: usize = frames.iter().map(Bytes::len).sum();
        let is_little = frames.len() <= MAX_IMMEDIATE
            && bytes <= SMALL_SHARE_BYTES
            && connection.is_light(since);
        let is_short = |frame: &Bytes| self.server.is_short(id, frame);
        let has_time = || since.elapsed() <= ROUND_TIME || frames.iter().all(is_short);
        if is_little && !self.turns.waits(id) && has_time() {
            self.serve(now, since, &connection, &mut frames);
        }

        if !frames.is_empty() {
            // Its session counts as heard from, whenever its turn comes.
            self.server.heard_of(now, id);
            self.turns.add(&connection, frames);
        }
    }

    /// A client that was held back has read some replies.
    pub(super) fn taken(&mut self, now: Now, id: ConnectionId) {
        self.server.heard_of(now, id);
        if self.connections.get(&id).is_some_and(|connection| connection.has_room_again()) {
            self.turns.release(id);
        }
    }

    /// Handles frames that wait for a turn, until the round has used its time; at least one turn, unless the disk is
    /// behind.
    pub(super) fn take_turns(&mut self, now: Now, since: Instant) {
        if self.pipeline.is_behind() {
            return;
        }

        let connections = &self.connections;
        let may_go_on = |id| connections.get(&id).is_some_and(|c| c.has_room_again());
        self.turns.release_all(since, may_go_on);

        while let Some((id, mut frames)) = self.turns.next() {
            let Some(connection) = self.connections.get(&id).cloned() else { continue };
            self.serve(now, since, &connection, &mut frames);
            connection.hold_back(false);
            if !frames.is_empty() {
                self.turns.add(&connection, frames);
            }

            if since.elapsed() > ROUND_TIME || self.pipeline.is_behind() {
                break;
            }
        }
    }

    /// Handles frames of one connection for the length of a turn, or until its client must first read replies.
    fn serve(
        &mut self,
        now: Now,
        since: Instant,
        connection: &Arc<Connection>,
        frames: &mut VecDeque<Bytes>,
    ) {
        let began = Instant::now();
        let mut handing_over = Duration::ZERO;
        for _ in 0..TURN_REQUESTS {
            if connection.is_full() {
                break;
            }

            let Some(frame) = frames.pop_front() else { break };
            connection.handled(&frame);
            self.batch_bytes += frame.len();
            let op = Op::of_frame(&frame).0;
            match self.server.handle_part(now, connection.id, frame) {
                None => self.ops.add(op),
                Some(rest) => {
                    connection.deliver(std::slice::from_ref(&rest));
                    frames.push_front(rest);
                    // Other large sessions have ended in this round, so this one waits for a later round.
                    if op == Op::of_code(Some(OpCode::CloseSession)) {
                        break;
                    }
                }
            }

            self.batch_requests += 1;
            if self.batch_requests == BATCH_REQUESTS
                || self.batch_bytes + self.server.bytes_to_send() >= BATCH_BYTES
            {
                // The measured time includes handing over the effects of others.
                let before = Instant::now();
                self.hand_over(since, false);
                handing_over += before.elapsed();
            }

            if !frames.is_empty() && began.elapsed() > TURN_TIME {
                break;
            }
        }
        connection.spend(began, began.elapsed().saturating_sub(handing_over));
    }

    /// Lets the connections read and write, without sleeping.
    pub(super) async fn poll_sockets(&mut self, round: &mut Vec<Event>) {
        // The runtime polls the sockets once it has no other task, and queues this task behind those of the ready
        // sockets.
        yield_now().await;
        self.receive(round);
    }
}
