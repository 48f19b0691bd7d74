//! One client: the real session and the real order, and the steps of a contender between them.
//!
//! The steps are those of `lockkeeper`'s contender and guard, which are futures and cannot be
//! cloned; each decision here names the one that it follows.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use lockkeeper::order::{Line, Standing};
use lockkeeper::{Kind, Profile};
use lockkeeper_session::{
    Cleanup, Config, Contact, Event, HoldId, Instant, LeaseMode, Outcome, RequestError, Session,
    WatchId, WatchKind,
};
use lockkeeper_wire::{
    Acl, CheckRequest, CreateMode, CreateRequest, MAX_FRAME, Op, OpResult, PathRequest,
    PathWatchRequest, Request, Response, SessionId, ZnodePath, split_frame,
};

use crate::{LOCK, TIMEOUT};

/// How often a client tries to get into the queue.
const ATTEMPTS: u8 = 2;

/// Which request an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    attempt: u8,
    ask: Ask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Create,
    List,
    /// After a create whose reply was lost.
    Sync,
    Relist,
    Exists,
    Ahead,
    /// To wait or to hold, with a fresh listing.
    Again,
    Prove,
}

#[derive(Clone, Debug)]
pub(crate) struct Own {
    path: String,
    session: SessionId,
    token: i64,
}

/// Why a client gave up, for whoever reads a counterexample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reason(#[allow(dead_code)] &'static str);

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Idle,
    /// The create and the listing are on their way.
    Entering {
        own: Option<Own>,
    },
    /// The reply to the create was lost.
    Recovering {
        names: Vec<String>,
    },
    Waiting {
        own: Own,
        line: Line,
        ahead: String,
        watch: WatchId,
    },
    /// One ahead has gone, and others may have (`Contender::list`).
    Listing {
        own: Own,
    },
    Proving {
        own: Own,
        hold: HoldId,
    },
    Held {
        own: Own,
        hold: HoldId,
        generation: u64,
    },
    /// It had the lock, and has given it back.
    Done,
    /// It gave up, for a reason that allows it.
    #[allow(dead_code)] // read by those who read a counterexample
    GaveUp(Reason),
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    number: usize,
    pub(crate) session: Session<Token>,
    pub(crate) connected: bool,
    pub(crate) to_server: VecDeque<Bytes>,
    pub(crate) to_client: VecDeque<Bytes>,
    pub(crate) step: Step,
    attempt: u8,
    /// The token of a grant that has just been made.
    pub(crate) granted: Option<i64>,
}

impl Client {
    pub(crate) fn new(number: usize, mode: LeaseMode) -> Self {
        let mut config = Config::default();
        config.session_timeout = TIMEOUT;
        config.lease = mode;
        Self {
            number,
            session: Session::new(config, Instant::default()),
            connected: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            step: Step::Idle,
            attempt: 0,
            granted: None,
        }
    }

    /// Whether a program would go on under the lock at this moment (`Guard::find_loss`).
    pub(crate) fn believes(&self, now: Instant) -> bool {
        let Step::Held { own, generation, .. } = &self.step else { return false };
        let lease = self.session.lease();
        lease.session == own.session
            && lease.generation == *generation
            && lease.deadline.is_some_and(|deadline| deadline > now)
    }

    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.step, Step::Done | Step::GaveUp(_))
    }

    pub(crate) fn can_connect(&self) -> bool {
        !self.connected && self.session.contact() != Contact::Closed
    }

    pub(crate) fn connect(&mut self, now: Instant) {
        self.connected = true;
        self.session.handle_connected(now);
        self.settle(now);
    }

    pub(crate) fn lose(&mut self, now: Instant) {
        self.connected = false;
        self.to_server.clear();
        self.to_client.clear();
        self.session.handle_disconnected(now);
        self.settle(now);
    }

    /// Returns whether the connection is still there.
    pub(crate) fn receive(&mut self, now: Instant) {
        let Some(frame) = self.to_client.pop_front() else { return };
        let mut input = BytesMut::from(&frame[..]);
        if self.session.handle_input(now, &mut input).is_err() {
            return self.lose(now);
        }
        self.settle(now);
    }

    pub(crate) fn tick(&mut self, now: Instant) {
        if self.session.handle_timeout(now).is_err() {
            return self.lose(now);
        }
        self.settle(now);
    }

    /// Everything that follows at once.
    fn settle(&mut self, now: Instant) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Reply { token, result, .. } if token.attempt == self.attempt => {
                    self.answered(now, token.ask, result);
                }
                Event::Watch { id, .. } => self.watched(now, id),
                Event::Expired { .. } => {
                    // Watchers end with the session, and with them the wait.
                    if matches!(self.step, Step::Waiting { .. }) {
                        self.step = Step::GaveUp(Reason("expired"));
                    }
                }
                Event::Unreachable => {
                    if matches!(self.step, Step::Waiting { .. }) {
                        self.abandon(now, "unreachable");
                    }
                }
                _ => {}
            }
        }
        if let Some(mut output) = self.session.poll_transmit() {
            while let Ok(Some(frame)) = split_frame(&mut output, MAX_FRAME) {
                self.to_server.push_back(frame);
            }
        }
    }

    // ----- what a program does ----------------------------------------------------------------

    pub(crate) fn start(&mut self, now: Instant) {
        self.enter(now);
        self.settle(now);
    }

    pub(crate) fn release(&mut self, now: Instant) {
        let Step::Held { own, hold, .. } = std::mem::replace(&mut self.step, Step::Done) else {
            return;
        };
        self.session.unhold(hold);
        if own.session == self.session.id() {
            self.session.clean_up(now, Cleanup::Node(znode(&own.path)), None);
        }
        self.settle(now);
    }

    /// The program drops the future.
    pub(crate) fn cancel(&mut self, now: Instant) {
        self.abandon(now, "cancelled");
        self.settle(now);
    }

    // ----- the contender ----------------------------------------------------------------------

    fn enter(&mut self, now: Instant) {
        self.attempt += 1;
        self.step = Step::Entering { own: None };
        let create = CreateRequest {
            path: format!("{LOCK}/{}", self.prefix()),
            data: Bytes::new(),
            acl: Acl::open(),
            flags: CreateMode::EphemeralSequential.flags(),
        };
        self.ask(now, Ask::Create, Request::Create2(create));
        self.ask(now, Ask::List, list());
    }

    fn prefix(&self) -> String {
        format!("_c_{}{}-lock-", self.number, self.attempt)
    }

    fn answered(&mut self, now: Instant, ask: Ask, result: Result<Response, RequestError>) {
        match (self.step.clone(), ask, result) {
            (Step::Entering { .. }, Ask::Create, Ok(Response::Created { path, stat })) => {
                let (session, token) = (stat.ephemeral_owner, stat.czxid.0);
                self.step = Step::Entering { own: Some(Own { path, session, token }) };
            }
            (Step::Entering { .. }, Ask::Create, Err(error)) => {
                let expired = matches!(error, RequestError::SessionExpired(_));
                if error.outcome() == Outcome::NotApplied || expired {
                    return self.again(now, &error);
                }
                self.step = Step::Recovering { names: Vec::new() };
                self.ask(now, Ask::Sync, Request::Sync(PathRequest { path: LOCK.to_owned() }));
                self.ask(now, Ask::Relist, list());
            }
            (Step::Entering { own: Some(own) }, Ask::List, Ok(Response::Names(names))) => {
                self.advance(now, own, line(names));
            }
            (Step::Recovering { .. }, Ask::Relist, Ok(Response::Names(names))) => {
                let prefix = self.prefix();
                let Some(own) = names.iter().find(|name| name.starts_with(&prefix)).cloned() else {
                    return self.leave_and_again(now);
                };
                self.step = Step::Recovering { names };
                let path = format!("{LOCK}/{own}");
                let read = PathWatchRequest { path, watch: false };
                self.ask(now, Ask::Exists, Request::Exists(read));
            }
            (Step::Recovering { names }, Ask::Exists, Ok(Response::Stat(stat))) => {
                let prefix = self.prefix();
                let own = names.iter().find(|name| name.starts_with(&prefix));
                // A node of another session is about to vanish: it is never adopted.
                match own {
                    Some(name) if stat.ephemeral_owner == self.session.id() => {
                        let path = format!("{LOCK}/{name}");
                        let (session, token) = (stat.ephemeral_owner, stat.czxid.0);
                        self.advance(now, Own { path, session, token }, line(names));
                    }
                    _ => self.leave_and_again(now),
                }
            }
            (Step::Entering { .. } | Step::Recovering { .. }, Ask::Sync, Ok(_)) => {}
            (Step::Entering { own: Some(_) } | Step::Recovering { .. }, _, Err(error)) => {
                self.drop_contender(now);
                self.again(now, &error);
            }
            (Step::Waiting { own, mut line, ahead, .. }, Ask::Ahead, Err(error)) => match error {
                RequestError::Server(_) => {
                    line.remove(&ahead);
                    self.advance(now, own, line);
                }
                error if error.is_retryable() && error != RequestError::Unreachable => {
                    self.watch(now, own, line, ahead);
                }
                _ => self.abandon(now, "no answer"),
            },
            (Step::Listing { own }, Ask::Again, result) => match result {
                Ok(Response::Names(names)) => self.advance(now, own, line(names)),
                Err(error) if error.is_retryable() && error != RequestError::Unreachable => {
                    self.ask(now, Ask::Again, list());
                }
                _ => self.abandon(now, "no answer"),
            },
            (Step::Proving { own, hold }, Ask::Prove, result) => match result {
                Ok(Response::Multi(results))
                    if results.iter().any(|r| matches!(r, OpResult::Error(_))) =>
                {
                    self.session.unhold(hold);
                    self.step = Step::GaveUp(Reason("deleted"));
                }
                Err(error) if !error.is_retryable() => {
                    self.session.unhold(hold);
                    self.abandon(now, "no proof");
                }
                _ => self.grant(now, own, hold),
            },
            _ => {}
        }
    }

    fn advance(&mut self, now: Instant, own: Own, line: Line) {
        match line.standing(znode(&own.path).name()) {
            Standing::Held => {
                let hold = self.session.hold(now, znode(&own.path));
                self.grant(now, own, hold);
            }
            Standing::WaitOn(mut ahead) => {
                let ahead = ahead.pop().expect("a mutex waits for one");
                self.watch(now, own, line, ahead);
            }
            Standing::ListAgain => {
                self.step = Step::Listing { own };
                self.ask(now, Ask::Again, list());
            }
            Standing::Gone => self.step = Step::GaveUp(Reason("deleted")),
        }
    }

    fn watch(&mut self, now: Instant, own: Own, line: Line, ahead: String) {
        let read = PathWatchRequest { path: format!("{LOCK}/{ahead}"), watch: true };
        let token = Token { attempt: self.attempt, ask: Ask::Ahead };
        let watch =
            self.session.submit_watching(now, Request::GetData(read), WatchKind::Data, token);
        self.step = Step::Waiting { own, line, ahead, watch };
    }

    fn watched(&mut self, now: Instant, id: WatchId) {
        if let Step::Waiting { own, mut line, ahead, watch } = self.step.clone()
            && watch == id
        {
            line.remove(&ahead);
            self.advance(now, own, line);
        }
    }

    /// `Guard::grant`
    fn grant(&mut self, now: Instant, own: Own, hold: HoldId) {
        let lease = self.session.lease();
        if lease.session != own.session {
            self.step = Step::GaveUp(Reason("expired"));
            return;
        }
        let length = self.session.config().lease_length(self.session.timeout());
        if lease.remaining(now) >= length / 2 {
            self.granted = Some(own.token);
            self.step = Step::Held { own, hold, generation: lease.generation };
            return;
        }
        let check = CheckRequest { path: own.path.clone(), version: -1 };
        self.step = Step::Proving { own, hold };
        self.ask(now, Ask::Prove, Request::Multi(vec![Op::Check(check)]));
    }

    fn leave_and_again(&mut self, now: Instant) {
        self.drop_contender(now);
        self.retry(now);
    }

    fn again(&mut self, now: Instant, error: &RequestError) {
        let expired = matches!(error, RequestError::SessionExpired(_));
        if expired || error.is_retryable() && *error != RequestError::Unreachable {
            return self.retry(now);
        }
        self.step = Step::GaveUp(Reason("no server"));
    }

    fn retry(&mut self, now: Instant) {
        if self.attempt < ATTEMPTS {
            self.enter(now);
        } else {
            self.step = Step::GaveUp(Reason("attempts"));
        }
    }

    fn abandon(&mut self, now: Instant, why: &'static str) {
        self.drop_contender(now);
        self.step = Step::GaveUp(Reason(why));
    }

    /// `Contender::drop`
    fn drop_contender(&mut self, now: Instant) {
        let own = match &self.step {
            Step::Entering { own } => own.clone(),
            Step::Waiting { own, .. } | Step::Listing { own } | Step::Proving { own, .. } => {
                Some(own.clone())
            }
            Step::Recovering { .. } => None,
            _ => return,
        };
        if let Step::Waiting { watch, .. } = self.step {
            self.session.unwatch(now, watch);
        }
        let target = match own {
            Some(own) if own.session != self.session.id() => return,
            Some(own) => Cleanup::Node(znode(&own.path)),
            None => Cleanup::Child { parent: znode(LOCK), prefix: self.prefix() },
        };
        self.session.clean_up(now, target, None);
    }

    fn ask(&mut self, now: Instant, ask: Ask, request: Request) {
        self.session.submit(now, request, Token { attempt: self.attempt, ask });
    }
}

fn list() -> Request {
    Request::GetChildren(PathWatchRequest { path: LOCK.to_owned(), watch: false })
}

fn line(names: Vec<String>) -> Line {
    Line::read(names, Profile::Curator, &[Kind::Exclusive]).expect("only contenders")
}

fn znode(path: &str) -> ZnodePath {
    ZnodePath::new(path).expect("a path")
}
