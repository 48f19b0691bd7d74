//! The end of a connection, of the session and of the client.

use lockkeeper_wire::{Request, Response, SessionId, Zxid};

use super::{Identity, Phase, Session};
use crate::cleanup::PendingCleanup;
use crate::error::{Outcome, RequestError};
use crate::event::Event;
use crate::requests::{Origin, Queued, Sent};
use crate::time::Instant;

impl<T> Session<T> {
    /// When the next request fails because no server is reachable.
    pub(super) fn next_failure(&self) -> Option<Instant> {
        let since = match self.unreachable {
            true => self.queued.front().map(|queued| queued.since),
            false => Some(self.contact_lost),
        };
        since.map(|since| since + self.identity.timeout)
    }

    pub(super) fn check_contact(&mut self, now: Instant) {
        if self.next_failure().is_none_or(|due| due > now) {
            return;
        }
        if self.unreachable {
            return self.fail_overdue(now);
        }

        self.unreachable = true;
        self.events.push_back(Event::Unreachable);
        for queued in std::mem::take(&mut self.queued) {
            self.fail_unreached(queued);
        }
        for token in self.cleanup.take_notifies() {
            self.answer(Some(token), Err(RequestError::Unreachable));
        }
        self.advance_close(now);
    }

    /// Fails requests that have waited for a whole session timeout, in the order of submission.
    fn fail_overdue(&mut self, now: Instant) {
        let timeout = self.identity.timeout;
        while let Some(queued) =
            self.queued.pop_front_if(|queued| now.since(queued.since) >= timeout)
        {
            self.fail_unreached(queued);
        }
    }

    /// Fails a request that was never sent, and drops the search for the node that it would have created.
    /// Otherwise, in a long outage, programs that repeatedly give up and retry would leave one search each
    /// time.
    fn fail_unreached(&mut self, queued: Queued<T>) {
        if let Request::Create(create) | Request::Create2(create) = &queued.request {
            self.cleanup.forget_search(create);
        }
        self.refuse(queued, RequestError::Unreachable);
    }

    pub(super) fn expire(&mut self, now: Instant) {
        let session = self.identity.id;
        self.events.push_back(Event::Expired { session });
        self.fail_in_flight(RequestError::SessionExpired);
        let error = RequestError::SessionExpired(Outcome::NotApplied);
        self.fail_queued(&error);
        self.forget_session(&error);

        self.identity = Identity::none(self.config.session_timeout);
        self.set_timing();
        self.lease.restart(SessionId::NONE);
        // Cleared with the session: a server that is behind it may serve the next one.
        self.history.ended(self.last_zxid);
        if self.config.reads_go_forward {
            self.floor = self.floor.max(self.last_zxid);
        }
        self.last_zxid = Zxid(0);

        // A server was reachable: it reported the end, or refused the session for longer than it can last. So
        // requests that are submitted now wait for the next session.
        self.contact_lost = now;
        self.unreachable = false;
    }

    /// Drops everything that only this session could do or observe.
    pub(super) fn forget_session(&mut self, error: &RequestError) {
        let entries: Vec<_> = self.cleanup.drain().collect();
        for entry in entries {
            self.answer(entry.notify, Err(error.clone()));
        }
        self.watches.clear();
        self.heartbeat.expired();
    }

    pub(super) fn finish(&mut self, error: &RequestError) {
        self.phase = Phase::Closed;
        self.fail_in_flight(|_| error.clone());
        self.fail_queued(error);
        self.forget_session(error);
        self.lease.restart(SessionId::NONE);
        self.events.push_back(Event::Closed);
    }

    /// Takes the next step of closing the session.
    pub(super) fn advance_close(&mut self, now: Instant) {
        if !self.closing {
            return;
        }

        match self.phase {
            Phase::Connected if self.cleanup.is_done() && self.queued.is_empty() => {
                let sent = |s: &Sent<T>| matches!(s.origin, Origin::Close);
                if !self.in_flight.iter().any(sent) {
                    self.send(now, Request::CloseSession, Origin::Close, None);
                }
            }
            // No session to end, or no server to end it: the session will expire.
            Phase::Idle if self.identity.id == SessionId::NONE || self.unreachable => {
                self.finish(&RequestError::Closed);
            }
            _ => {}
        }
    }

    pub(super) fn fail_in_flight(&mut self, error: impl Fn(Outcome) -> RequestError) {
        self.unanswered_bytes = 0;
        for sent in std::mem::take(&mut self.in_flight) {
            if let Some(id) = sent.watch {
                self.watches.give_up(id);
            }

            let outcome = sent.outcome();
            match sent.origin {
                Origin::Caller(token) => self.answer(Some(token), Err(error(outcome))),
                Origin::Replace(replaced) => {
                    self.answer(Some(replaced.token), Err(error(outcome)));
                    self.lose_cleanup(replaced.entry);
                }
                Origin::Cleanup(entry) => self.lose_cleanup(entry),
                Origin::Heartbeat(_)
                | Origin::NodeRead(..)
                | Origin::Unwatch(_)
                | Origin::Close
                | Origin::Nobody => {}
            }
        }
        if let Some(staged) = self.staged.take() {
            self.lose_cleanup(staged.entry);
        }
    }

    /// The cleanup has to be sent again.
    fn lose_cleanup(&mut self, entry: PendingCleanup<T>) {
        self.cleanup.finish();
        self.cleanup.push(entry);
    }

    pub(super) fn fail_queued(&mut self, error: &RequestError) {
        for queued in std::mem::take(&mut self.queued) {
            self.refuse(queued, error.clone());
        }
    }

    pub(super) fn answer(&mut self, token: Option<T>, result: Result<Response, RequestError>) {
        if let Some(token) = token {
            self.events.push_back(Event::Reply { token, result, zxid: Zxid(0) });
        }
    }
}
