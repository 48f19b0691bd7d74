//! Until when no server can have expired the session.
//!
//! A server that receives a request at time `r` does not expire the session before `r + T`, where
//! `T` is the session timeout. The client does not know `r`, but it is not before the moment of
//! sending. So the send time of the newest request *that was answered*, plus `T`, less a margin,
//! is a deadline that is never late. Which answers count depends on the [`LeaseMode`].

use std::time::Duration;

use lockkeeper_wire::SessionId;

use crate::mutants::Mutant;
use crate::{Instant, LeaseMode};

/// The lease as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseState {
    /// The session, or [`SessionId::NONE`] if there is none.
    pub session: SessionId,
    /// Grows whenever the lease was interrupted: by a new session, or by a renewal that came after
    /// the deadline. Who saw another number before has not held through.
    pub generation: u64,
    /// Until when no server can have expired the session; `None` before the first proof of life.
    pub deadline: Option<Instant>,
    /// Writes that are sent before this prove nothing; in the past, unless something was late.
    pub sure_from: Instant,
}

impl LeaseState {
    /// What is left at `now`; zero if nothing is.
    pub fn remaining(&self, now: Instant) -> Duration {
        self.deadline.map_or(Duration::ZERO, |deadline| deadline.since(now))
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Lease {
    mode: LeaseMode,
    length: Duration,
    margin: Duration,
    /// How long a follower may take to tell its leader that it has heard of the session.
    relay: Duration,
    state: LeaseState,
}

impl Lease {
    pub(crate) fn state(&self) -> LeaseState {
        self.state
    }

    /// How long it lasts after a fresh proof of life.
    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Begins anew for another session, of which nothing is proven yet.
    pub(crate) fn restart(&mut self, session: SessionId) {
        let generation = self.state.generation + 1;
        self.state = LeaseState { session, generation, ..LeaseState::default() };
    }

    pub(crate) fn set_terms(
        &mut self,
        mode: LeaseMode,
        length: Duration,
        margin: Duration,
        relay: Duration,
    ) {
        (self.mode, self.length, self.margin, self.relay) = (mode, length, margin, relay);
    }

    /// The servers will not keep the session beyond this, whatever they promised before.
    pub(crate) fn shorten(&mut self, limit: Instant) {
        self.state.deadline = self.state.deadline.map(|deadline| deadline.min(limit));
    }

    /// Something was late, on our side or on the way, so the leader may have heard of the session
    /// for the last time longer ago than the margin allows for. A write shows only that its leader
    /// lives, and not when the follower last spoke of the session; so it counts again only when
    /// what was sent by now has had the time to reach the leader.
    pub(crate) fn doubt(&mut self, now: Instant) {
        if self.mode == LeaseMode::Quorum && !Mutant::SlowWriteCounts.is_awake() {
            self.state.sure_from = self.state.sure_from.max(now + self.relay);
        }
    }

    /// A request that is no committed write was answered.
    pub(crate) fn answered(&mut self, sent: Instant, now: Instant) {
        if self.mode == LeaseMode::Direct || Mutant::DeadlineMovedByPing.is_awake() {
            self.renew(sent, now);
        } else if now.since(sent) > self.margin {
            self.doubt(now);
        }
    }

    /// A write was answered: whoever led a quorum after `sent` has committed it.
    pub(crate) fn committed(&mut self, sent: Instant, now: Instant) {
        if self.mode == LeaseMode::Direct {
            return self.renew(sent, now);
        }
        if now.since(sent) > self.margin {
            self.doubt(now);
        }
        if sent >= self.state.sure_from {
            self.renew(sent, now);
        }
    }

    fn renew(&mut self, proof: Instant, now: Instant) {
        let proof = if Mutant::DeadlineFromAnswer.is_awake() { now } else { proof };
        let deadline = proof + self.length;
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

    const LENGTH: Duration = Duration::from_secs(6);
    const MARGIN: Duration = Duration::from_secs(3);
    const RELAY: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::from_start(Duration::from_secs(seconds))
    }

    fn lease(mode: LeaseMode) -> Lease {
        let mut lease = Lease::default();
        lease.set_terms(mode, LENGTH, MARGIN, RELAY);
        lease.restart(SessionId(7));
        lease
    }

    #[test]
    fn the_deadline_counts_from_sending_and_not_from_the_answer() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.committed(at(10), at(12));
        assert_eq!(lease.state().deadline, Some(at(16)));
    }

    #[test]
    fn only_writes_move_a_quorum_lease() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(10), at(10));
        assert_eq!(lease.state().deadline, None);
        lease.committed(at(11), at(11));
        lease.answered(at(13), at(13));
        assert_eq!(lease.state().deadline, Some(at(17)));
    }

    #[test]
    fn any_answer_moves_a_direct_lease() {
        let mut lease = lease(LeaseMode::Direct);
        lease.answered(at(10), at(10));
        assert_eq!(lease.state().deadline, Some(at(16)));
    }

    #[test]
    fn a_slow_write_proves_nothing_nor_do_those_sent_before_the_news_could_travel() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.committed(at(10), at(10));
        lease.committed(at(12), at(16));
        assert_eq!(lease.state().deadline, Some(at(16)), "took longer than the margin");
        lease.committed(at(13), at(16));
        assert_eq!(lease.state().deadline, Some(at(16)), "was on its way at the same time");
        lease.committed(at(16), at(16));
        assert_eq!(lease.state().deadline, Some(at(16)), "the follower may not have told yet");
        lease.committed(at(17), at(17));
        assert_eq!(lease.state().deadline, Some(at(23)));
    }

    /// The client stalled for longer than the margin allows for, and wrote when it went on. The
    /// leader had last heard of the session before the stall.
    #[test]
    fn a_write_after_a_silence_of_ours_does_not_count_at_once() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.committed(at(10), at(10));
        lease.doubt(at(14));
        lease.committed(at(14), at(14));
        assert_eq!(lease.state().deadline, Some(at(16)));
        lease.committed(at(15), at(15));
        assert_eq!(lease.state().deadline, Some(at(21)));
    }

    #[test]
    fn a_slow_ping_casts_doubt_too() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.answered(at(10), at(14));
        lease.committed(at(14), at(14));
        assert_eq!(lease.state().deadline, None);
    }

    #[test]
    fn a_shorter_timeout_brings_the_deadline_forward() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.committed(at(10), at(10));
        lease.shorten(at(13));
        assert_eq!(lease.state().deadline, Some(at(13)));
        lease.shorten(at(14));
        assert_eq!(lease.state().deadline, Some(at(13)));
    }

    /// A follower was paused while two heartbeats were on their way. The second one had waited for
    /// less than the margin and moved the deadline, although nothing had shown that the follower
    /// had told its leader of the session since the pause.
    #[test]
    fn a_fast_write_does_not_count_if_it_waited_together_with_a_slow_one() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.committed(at(10), at(10));
        lease.committed(at(11), at(15));
        lease.committed(at(14), at(15));
        assert_eq!(lease.state().deadline, Some(at(16)), "both waited for the same server");
        lease.committed(at(16), at(16));
        assert_eq!(lease.state().deadline, Some(at(22)), "sent to a server that had caught up");
    }

    #[test]
    fn the_deadline_never_moves_back() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.committed(at(12), at(12));
        lease.committed(at(10), at(13));
        assert_eq!(lease.state().deadline, Some(at(18)));
    }

    #[test]
    fn a_renewal_after_the_deadline_is_another_generation() {
        let mut lease = lease(LeaseMode::Quorum);
        lease.committed(at(10), at(10));
        let first = lease.state().generation;
        lease.committed(at(15), at(15));
        assert_eq!(lease.state().generation, first, "in time");
        lease.committed(at(21), at(21));
        assert_eq!(lease.state().generation, first + 1, "at the deadline is too late");
    }
}
