//! The time until which no server can have expired the session.
//!
//! A leader that touches a session at time `r` does not expire it before `r + T`, where `T` is the session
//! timeout. The client does not know `r`, but `r` is not earlier than the moment at which the client sent the
//! message that made the leader touch the session. So the latest such moment that is certain, plus `T`, minus
//! the clock drift, is a deadline that is never too late. What makes a moment certain depends on the
//! [`LeaseMode`]: with a standalone server, any reply; in an ensemble, a committed write, which makes certain
//! what was sent before it.

use std::collections::VecDeque;
use std::time::Duration;

use lockkeeper_wire::SessionId;

use crate::config::LeaseMode;
use crate::heartbeat::HoldProof;
use crate::time::Instant;
use crate::timing::Timing;

/// The current state of the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseState {
    /// The session, or [`SessionId::NONE`] if there is none.
    pub session: SessionId,
    /// Increases whenever the lease was interrupted: by a new session, or by a renewal after the deadline. A
    /// holder that has seen a different value has not held without interruption.
    pub generation: u64,
    /// The time until which no server can have expired the session; `None` before the first proof.
    pub deadline: Option<Instant>,
    /// A write that is sent before this time proves nothing. In the past, unless a reply was late.
    pub sure_from: Instant,
}

impl LeaseState {
    /// The time that remains at `now`; zero after the deadline.
    pub fn remaining(&self, now: Instant) -> Duration {
        self.deadline.map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Whether the deadline has not passed at `now`.
    pub fn is_running(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline > now)
    }

    /// Whether the lease covers a hold with this proof: the node was proven in this generation of the lease,
    /// and its deadline has not passed at `now`.
    pub fn covers(&self, proof: HoldProof, now: Instant) -> bool {
        self.is_running(now) && proof.generation == self.generation
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Lease {
    mode: LeaseMode,
    timing: Timing,
    lengths: LeaseLengths,
    state: LeaseState,
    /// When the handshake of this connection was sent, which made the leader touch the session.
    touched: Option<Instant>,
    /// The messages answered on this connection, in order.
    heard: VecDeque<Heard>,
}

/// The durations that each reply needs from the timing, computed once.
#[derive(Clone, Copy, Debug)]
struct LeaseLengths {
    life_after_touch: Duration,
    relay: Duration,
    silence_limit: Duration,
    /// Messages that were sent within this time count as one.
    grain: Duration,
}

impl LeaseLengths {
    fn of(timing: Timing) -> Self {
        Self {
            life_after_touch: timing.life_after_touch(),
            relay: timing.relay(),
            silence_limit: timing.silence_limit(),
            grain: timing.timeout() / 128,
        }
    }
}

/// A message that the server has certainly processed by the time of its reply.
#[derive(Clone, Copy, Debug)]
struct Heard {
    sent: Instant,
    answered: Instant,
}

impl Lease {
    pub(crate) fn new(mode: LeaseMode, timing: Timing) -> Self {
        let (state, touched, heard) = (LeaseState::default(), None, VecDeque::new());
        Self { mode, timing, lengths: LeaseLengths::of(timing), state, touched, heard }
    }

    pub(crate) fn state(&self) -> LeaseState {
        self.state
    }

    /// The division of the current session timeout.
    pub(crate) fn timing(&self) -> Timing {
        self.timing
    }

    pub(crate) fn set_timing(&mut self, timing: Timing) {
        (self.timing, self.lengths) = (timing, LeaseLengths::of(timing));
    }

    /// Starts again for another session, which is not proven yet.
    pub(crate) fn restart(&mut self, session: SessionId) {
        let generation = self.state.generation + 1;
        self.state = LeaseState { session, generation, ..LeaseState::default() };
    }

    /// The servers will not keep the session beyond this time, whatever they granted before.
    pub(crate) fn shorten(&mut self, limit: Instant) {
        self.state.deadline = self.state.deadline.map(|deadline| deadline.min(limit));
    }

    /// A server accepted the session in a handshake that was sent at `sent`. A follower has asked its leader,
    /// which touched the session; a leader has touched it itself. Only a write on this connection shows that
    /// the leader still led: see [`Lease::committed`].
    pub(crate) fn accepted(&mut self, sent: Instant) {
        self.touched = Some(sent);
    }

    /// What was sent over this connection proves nothing about the next connection.
    pub(crate) fn disconnected(&mut self) {
        self.touched = None;
        self.heard.clear();
    }

    /// A request other than a committed write was answered.
    pub(crate) fn answered(&mut self, sent: Instant, now: Instant) {
        if self.mode == LeaseMode::Direct {
            return self.extend(sent + self.lengths.life_after_touch, now);
        }
        self.hear(sent, now);
    }

    /// A write was answered: the server that led a quorum after `sent` has committed it.
    ///
    /// Before that leader committed the write, it had touched the session for the latest message that it
    /// certainly knew of: the handshake of this connection, or what the follower had answered at least one
    /// relay delay earlier and had reported since. The leader is the same one, because a follower that
    /// changes its leader closes its connections. A later leader started after the write, and gives every
    /// session a whole timeout.
    pub(crate) fn committed(&mut self, sent: Instant, now: Instant) {
        if self.mode == LeaseMode::Direct {
            return self.extend(sent + self.lengths.life_after_touch, now);
        }
        self.hear(sent, now);
        // Messages sent within the relay delay do not count, so the deadline may not move.
        let best = sent.saturating_sub(self.lengths.relay) + self.lengths.life_after_touch;
        if self.state.deadline.is_some_and(|deadline| deadline + self.lengths.grain > best) {
            return;
        }

        if let Some(touched) = self.touched_before(sent) {
            self.extend(touched + self.lengths.life_after_touch, now);
        }
    }

    /// Whether a committed write that was sent at `sent` proves by itself that the session is alive at `now`,
    /// without earlier replies.
    pub(crate) fn is_proven_by(&self, sent: Instant, now: Instant) -> bool {
        let touched = match self.mode {
            LeaseMode::Direct => Some(sent),
            LeaseMode::Quorum => self.touched_before(sent),
        };
        self.state.is_running(now)
            && touched.is_some_and(|touched| touched + self.lengths.life_after_touch > now)
    }

    /// Whether no write over this connection can move the deadline before it passes, although the handshake
    /// of another connection could. This happens after a late reply, which makes writes count only after a
    /// relay delay.
    pub(crate) fn is_out_of_reach(&self, now: Instant) -> bool {
        let LeaseState { deadline, sure_from, .. } = self.state;
        if sure_from <= now {
            return false;
        }
        let handshake = self.touched.map(|touched| touched + self.lengths.life_after_touch);
        deadline.is_some_and(|deadline| {
            let proven = sure_from + self.timing.slowest_answer();
            deadline > now && deadline <= proven && handshake <= Some(deadline)
        })
    }

    /// The time from which a write proves more than an earlier one, if waiting for the next regular heartbeat
    /// would cost more than [`Timing`] allows for: after a late reply, and after a handshake that took so
    /// long that nothing was sent for longer than [`Timing::newest_answer`].
    pub(crate) fn counts_from(&self) -> Instant {
        let sure_from = self.state.sure_from;
        let Some(handshake) = self.touched else { return sure_from };

        let newest_answer = self.timing.newest_answer();
        match self.heard.iter().find(|heard| heard.sent > handshake) {
            Some(first) if first.sent.since(handshake) > newest_answer => {
                sure_from.max(first.answered + self.lengths.relay)
            }
            _ => sure_from,
        }
    }

    /// The time from which a committed write shows that the session lives for `left` more, counted from when
    /// the write is sent: now, or when a follower has certainly reported to its leader. `None` if no reply is
    /// recent enough, for example after the program was paused: another request must be answered first.
    pub(crate) fn proves_from(&self, left: Duration, now: Instant) -> Option<Instant> {
        let lasts = |touched: Instant, from: Instant| {
            touched + self.lengths.life_after_touch >= from + left
        };
        let by_handshake = self.touched.is_some_and(|touched| lasts(touched, now));
        if self.mode == LeaseMode::Direct || by_handshake {
            return Some(now);
        }

        let mut told = self.heard.iter().map(|heard| {
            let from = (heard.answered + self.lengths.relay).max(self.state.sure_from).max(now);
            (heard.sent, from)
        });
        told.find(|(sent, from)| lasts(*sent, *from)).map(|(_, from)| from)
    }

    /// When the latest message was sent for which the leader had touched the session, as far as a committed
    /// write sent at `write` proves it.
    fn touched_before(&self, write: Instant) -> Option<Instant> {
        let relayed = match write >= self.state.sure_from {
            true => self.relayed_by(write),
            false => None,
        };
        relayed.max(self.touched)
    }

    /// When the latest message was sent that a follower had reported to its leader by `time`.
    fn relayed_by(&self, time: Instant) -> Option<Instant> {
        let heard = |heard: &&Heard| heard.answered + self.lengths.relay <= time;
        self.heard.iter().rev().find(heard).map(|heard| heard.sent)
    }

    /// Records that a server has processed a message of the session. A slow reply leaves doubt: the server
    /// may have been paused, and may have answered before it reported anything to its leader. So a write
    /// counts again only if it is sent a relay delay later.
    fn hear(&mut self, sent: Instant, now: Instant) {
        if now.since(sent) > self.lengths.silence_limit {
            self.state.sure_from = self.state.sure_from.max(now + self.lengths.relay);
        }
        // A busy session would record more messages than are useful.
        if self.heard.back().is_some_and(|last| sent.since(last.sent) < self.lengths.grain) {
            return;
        }
        self.heard.push_back(Heard { sent, answered: now });
        // Every write that may still count was sent after this.
        let oldest = now.saturating_sub(self.lengths.silence_limit + self.lengths.relay);
        while self.heard.get(1).is_some_and(|next| next.answered <= oldest) {
            self.heard.pop_front();
        }
    }

    fn extend(&mut self, deadline: Instant, now: Instant) {
        if self.state.deadline.is_some_and(|current| current >= deadline) {
            return;
        }
        if self.state.deadline.is_some_and(|current| current <= now) {
            self.state.generation += 1;
        }
        self.state.deadline = Some(deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay delay of one second, and a silence limit of two and a half.
    fn timing(mode: LeaseMode) -> Timing {
        Timing::new(mode, Duration::from_secs(10), Duration::from_secs(2))
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_start(Duration::from_secs(seconds))
    }

    /// The deadline of a session that a leader touched at the latest at this time.
    fn from(seconds: u64) -> Option<Instant> {
        Some(at(seconds) + timing(LeaseMode::Quorum).life_after_touch())
    }

    /// A lease that was accepted at time 0.
    fn lease(mode: LeaseMode) -> Lease {
        let mut lease = Lease::new(mode, timing(mode));
        lease.restart(SessionId(7));
        lease.accepted(at(0));
        lease
    }

    #[test]
    fn the_deadline_counts_from_sending_and_not_from_the_answer() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(8), at(9));
        lease.committed(at(10), at(12));
        assert_eq!(lease.state().deadline, from(8));
    }

    #[test]
    fn only_writes_move_a_quorum_lease() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(10), at(10));
        assert_eq!(lease.state().deadline, None);
        lease.committed(at(12), at(12));
        lease.answered(at(13), at(13));
        assert_eq!(lease.state().deadline, from(10));
    }

    #[test]
    fn any_answer_moves_a_direct_lease() {
        let mut lease = lease(LeaseMode::Direct);
        lease.answered(at(10), at(10));
        assert_eq!(lease.state().deadline, from(10));
    }

    /// A write shows that its leader leads, but not when the follower reported the session.
    #[test]
    fn a_write_proves_what_was_answered_a_relay_before_it() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(3), at(3));
        lease.answered(at(10), at(10));
        lease.committed(at(10), at(10));
        assert_eq!(lease.state().deadline, from(3), "the follower may not have reported the rest");
        lease.committed(at(11), at(11));
        assert_eq!(lease.state().deadline, from(10));
    }

    /// The client was silent or paused, and wrote when it resumed. The leader had last heard of the session
    /// before that.
    #[test]
    fn a_write_after_a_silence_of_ours_proves_little() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(10), at(10));
        lease.committed(at(15), at(15));
        assert_eq!(lease.state().deadline, from(10));
        lease.committed(at(16), at(16));
        assert_eq!(lease.state().deadline, from(15));
    }

    /// The first message after a silence was delayed, and the write after it was faster: by the time of the
    /// write, the follower had not yet had an opportunity to report to its leader.
    #[test]
    fn a_message_counts_from_its_answer_on_and_not_from_when_it_was_sent() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(10), at(10));
        lease.answered(at(15), at(17));
        lease.committed(at(17), at(17));
        assert_eq!(lease.state().deadline, from(10));
        lease.committed(at(18), at(18));
        assert_eq!(lease.state().deadline, from(17));
    }

    #[test]
    fn a_late_answer_casts_doubt_on_what_is_sent_before_the_news_could_travel() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(9), at(9));
        lease.committed(at(10), at(13));
        assert_eq!(lease.state().deadline, from(0), "it took too long");
        lease.committed(at(12), at(13));
        assert_eq!(lease.state().deadline, from(0), "it was delayed together with the first one");
        lease.committed(at(13), at(13));
        assert_eq!(lease.state().deadline, from(0), "the follower may not have reported yet");
        lease.committed(at(14), at(14));
        assert_eq!(lease.state().deadline, from(13));
    }

    /// After a pause of the program, earlier replies are too old, and later ones reach the leader a relay
    /// delay later. During that time a lock was refused with "servers that are too slow".
    #[test]
    fn after_a_standstill_a_write_proves_something_a_relay_after_the_first_answer() {
        let left = timing(LeaseMode::Quorum).always_left();
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(10), at(10));
        assert_eq!(lease.proves_from(left, at(12)), Some(at(12)), "at once, as usual");
        assert_eq!(lease.proves_from(left, at(19)), None, "no reply for too long");
        lease.committed(at(19), at(19));
        assert_eq!(lease.proves_from(left, at(19)), Some(at(20)));
        lease.committed(at(20), at(20));
        assert_eq!(lease.state().deadline, from(19), "the write moves the deadline");

        // A reply that waited while the program was paused leaves doubt for a relay delay.
        lease.answered(at(22), at(29));
        assert_eq!(lease.proves_from(left, at(29)), None, "the reply proves nothing about now");
        lease.answered(at(29), at(29));
        assert_eq!(lease.proves_from(left, at(29)), Some(at(30)));
        lease.disconnected();
        lease.accepted(at(30));
        assert_eq!(lease.proves_from(left, at(30)), Some(at(30)), "a handshake counts at once");

        let mut direct = Lease::new(LeaseMode::Direct, timing(LeaseMode::Direct));
        direct.restart(SessionId(7));
        assert_eq!(direct.proves_from(left, at(50)), Some(at(50)), "any answer proves it");
    }

    #[test]
    fn a_slow_ping_casts_doubt_too() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(10), at(13));
        lease.committed(at(13), at(13));
        assert_eq!(lease.state().deadline, from(0));
    }

    /// The leader touches a session whose client reconnects, and a write over the same connection shows that
    /// the leader led. So nothing delays the proof after an outage.
    #[test]
    fn a_write_after_a_handshake_proves_a_timeout_from_the_handshake_on() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.committed(at(1), at(1));
        lease.disconnected();
        lease.accepted(at(3));
        lease.answered(at(3), at(6));
        assert_eq!(lease.state().deadline, from(0), "a handshake alone proves nothing");
        lease.committed(at(6), at(6));
        assert_eq!(lease.state().deadline, from(3), "however late replies were");
    }

    #[test]
    fn a_handshake_and_answers_count_for_their_own_connection_only() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(10), at(10));
        lease.disconnected();
        lease.committed(at(12), at(12));
        assert_eq!(lease.state().deadline, None);
    }

    #[test]
    fn a_shorter_timeout_brings_the_deadline_forward() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.committed(at(5), at(5));
        lease.shorten(at(8));
        assert_eq!(lease.state().deadline, Some(at(8)));
        lease.shorten(at(9));
        assert_eq!(lease.state().deadline, Some(at(8)));
    }

    #[test]
    fn the_deadline_never_moves_back() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(10), at(10));
        lease.committed(at(12), at(12));
        lease.accepted(at(4));
        lease.committed(at(9), at(12));
        assert_eq!(lease.state().deadline, from(10));
    }

    #[test]
    fn a_renewal_after_the_deadline_is_another_generation() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.committed(at(1), at(1));
        let first = lease.state().generation;
        lease.committed(at(5), at(5));
        assert_eq!(lease.state().generation, first, "in time");
        let late = lease.state().deadline.expect("proven") + Duration::from_millis(1);
        lease.committed(late, late);
        assert_eq!(lease.state().generation, first + 1);
    }

    /// The amount remembered depends on time, not on the number of requests.
    #[test]
    fn a_busy_session_remembers_little() {
        let mut lease = lease(LeaseMode::Quorum);
        for ms in 0..20_000 {
            let now = Instant::from_start(Duration::from_millis(ms));
            lease.committed(now, now);
        }
        assert!(lease.heard.len() < 64, "{}", lease.heard.len());
        assert!(lease.state().remaining(at(20)) > timing(LeaseMode::Quorum).lease());
    }
}
