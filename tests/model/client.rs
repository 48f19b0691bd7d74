//! One client: the real session and the real order, and the steps of a contender between them.
//!
//! The steps are those of `lockkeeper`'s contender and guard, which are futures and cannot be
//! cloned; each decision here names the one that it follows.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use lockkeeper::order::{Line, Standing};
use lockkeeper::{Kind, Profile};
use lockkeeper_session::{
    Cleanup, Config, Contact, Event, HoldId, Instant, Outcome, RequestError, Session, WatchId,
    WatchKind,
};
use lockkeeper_testkit::history::Share;
use lockkeeper_wire::{
    Acl, CheckRequest, CreateMode, CreateRequest, MAX_FRAME, Op, OpResult, PathRequest,
    PathWatchRequest, Request, Response, SessionId, ZnodePath, split_frame,
};

use crate::{Bounds, LOCK, TIMEOUT};

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
    /// A watch on one of those ahead, by number.
    Ahead(u16),
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

/// One that is waited for.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    number: u16,
    name: String,
    watch: WatchId,
    answered: bool,
    gone: bool,
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
        ahead: Vec<Ahead>,
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
    kind: Kind,
    pub(crate) permits: u32,
    pub(crate) session: Session<Token>,
    pub(crate) connected: bool,
    pub(crate) to_server: VecDeque<Bytes>,
    pub(crate) to_client: VecDeque<Bytes>,
    pub(crate) step: Step,
    attempt: u8,
    /// How many have been waited for.
    watches: u16,
    /// The token of a grant that has just been made.
    pub(crate) granted: Option<i64>,
}

impl Client {
    pub(crate) fn new(number: usize, kind: Kind, bounds: &Bounds) -> Self {
        let mut config = Config::default();
        config.session_timeout = TIMEOUT;
        config.lease = bounds.mode;
        Self {
            number,
            kind,
            permits: bounds.permits,
            session: Session::new(config, Instant::default()),
            connected: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            step: Step::Idle,
            attempt: 0,
            watches: 0,
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

    /// The name of its node, while it holds.
    pub(crate) fn held_node(&self) -> Option<&str> {
        match &self.step {
            Step::Held { own, .. } => Some(&own.path[LOCK.len() + 1..]),
            _ => None,
        }
    }

    pub(crate) fn share(&self) -> Share {
        share(self.kind, self.permits)
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
        let (number, attempt) = (self.number, self.attempt);
        match self.kind {
            Kind::Exclusive => format!("_c_{number}{attempt}-lock-"),
            Kind::Read => format!("_c_{number}{attempt}-__READ__"),
            Kind::Write => format!("_c_{number}{attempt}-__WRIT__"),
            Kind::Permits(wanted) => format!("_c_{number}{attempt}-{wanted}-permits-"),
            other => unreachable!("no client of the model asks for {other:?}"),
        }
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
                self.advance(now, own, self.line(names));
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
                        self.advance(now, Own { path, session, token }, self.line(names));
                    }
                    _ => self.leave_and_again(now),
                }
            }
            (Step::Entering { .. } | Step::Recovering { .. }, Ask::Sync, Ok(_)) => {}
            (Step::Entering { own: Some(_) } | Step::Recovering { .. }, _, Err(error)) => {
                self.drop_contender(now);
                self.again(now, &error);
            }
            (Step::Waiting { own, line, mut ahead }, Ask::Ahead(number), result) => {
                let Some(one) = ahead.iter_mut().find(|one| one.number == number) else { return };
                match result {
                    Ok(_) => one.answered = true,
                    Err(RequestError::Server(_)) => (one.answered, one.gone) = (true, true),
                    Err(error) if error.is_retryable() && error != RequestError::Unreachable => {
                        *one = self.ahead(now, one.name.clone());
                    }
                    Err(_) => return self.abandon(now, "no answer"),
                }
                self.step = Step::Waiting { own, line, ahead };
                self.go_on(now);
            }
            (Step::Listing { own }, Ask::Again, result) => match result {
                Ok(Response::Names(names)) => self.advance(now, own, self.line(names)),
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
                self.unwatch(now);
                let hold = self.session.hold(now, znode(&own.path));
                self.grant(now, own, hold);
            }
            Standing::WaitOn(names) => self.outwait(now, own, line, names),
            Standing::ListAgain => {
                self.unwatch(now);
                self.step = Step::Listing { own };
                self.ask(now, Ask::Again, list());
            }
            Standing::Gone => self.step = Step::GaveUp(Reason("deleted")),
        }
    }

    /// `Contender::outwait`: watches for these, those that are there already among them.
    fn outwait(&mut self, now: Instant, own: Own, line: Line, names: Vec<String>) {
        let before = match &mut self.step {
            Step::Waiting { ahead, .. } => std::mem::take(ahead),
            _ => Vec::new(),
        };
        let (mut ahead, others): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|one| names.contains(&one.name) && !one.gone);
        for other in others {
            self.session.unwatch(now, other.watch);
        }
        for name in names {
            if ahead.iter().all(|one| one.name != name) {
                ahead.push(self.ahead(now, name));
            }
        }
        self.step = Step::Waiting { own, line, ahead };
    }

    fn ahead(&mut self, now: Instant, name: String) -> Ahead {
        self.watches += 1;
        let number = self.watches;
        let read = PathWatchRequest { path: format!("{LOCK}/{name}"), watch: true };
        let token = Token { attempt: self.attempt, ask: Ask::Ahead(number) };
        let watch =
            self.session.submit_watching(now, Request::GetData(read), WatchKind::Data, token);
        Ahead { number, name, watch, answered: false, gone: false }
    }

    fn watched(&mut self, now: Instant, id: WatchId) {
        if let Step::Waiting { ahead, .. } = &mut self.step
            && let Some(one) = ahead.iter_mut().find(|one| one.watch == id)
        {
            one.gone = true;
            self.go_on(now);
        }
    }

    /// Looks again when all watches are set and one that was ahead has gone.
    fn go_on(&mut self, now: Instant) {
        let Step::Waiting { own, line, ahead } = &self.step else { return };
        if ahead.iter().all(|one| one.answered) && ahead.iter().any(|one| one.gone) {
            let (own, mut line) = (own.clone(), line.clone());
            ahead.iter().filter(|one| one.gone).for_each(|one| line.remove(&one.name));
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
        self.unwatch(now);
        let target = match own {
            Some(own) if own.session != self.session.id() => return,
            Some(own) => Cleanup::Node(znode(&own.path)),
            None => Cleanup::Child { parent: znode(LOCK), prefix: self.prefix() },
        };
        self.session.clean_up(now, target, None);
    }

    fn unwatch(&mut self, now: Instant) {
        if let Step::Waiting { ahead, .. } = &mut self.step {
            for one in std::mem::take(ahead) {
                self.session.unwatch(now, one.watch);
            }
        }
    }

    fn line(&self, names: Vec<String>) -> Line {
        let mut line = line(names);
        line.set_permits(self.permits);
        line
    }

    fn ask(&mut self, now: Instant, ask: Ask, request: Request) {
        self.session.submit(now, request, Token { attempt: self.attempt, ask });
    }
}

fn list() -> Request {
    Request::GetChildren(PathWatchRequest { path: LOCK.to_owned(), watch: false })
}

/// The children of the lock's node in order.
pub(crate) fn line(names: Vec<String>) -> Line {
    let kinds = [Kind::Exclusive, Kind::Upgradeable, Kind::Read, Kind::Write, Kind::Permits(1)];
    Line::read(names, Profile::Curator, &kinds).expect("only contenders")
}

pub(crate) fn share(kind: Kind, of: u32) -> Share {
    match kind {
        Kind::Read => Share::Reader,
        Kind::Permits(taken) => Share::Permits { taken, of },
        _ => Share::Alone,
    }
}

fn znode(path: &str) -> ZnodePath {
    ZnodePath::new(path).expect("a path")
}
