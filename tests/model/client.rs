//! One client: the real session and the real order, and the steps of a contender between them.
//!
//! The steps are those of `lockkeeper`'s contender and guard, which are futures and cannot be
//! cloned; each decision here names the one that it follows.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use lockkeeper::order::{Line, Standing, Upgrade};
use lockkeeper::{ErrorCode, EventKind, Kind, Profile};
use lockkeeper_session::{
    Cleanup, Config, Contact, Event, HoldId, Instant, Outcome, RequestError, Session, WatchId,
    WatchKind,
};
use lockkeeper_testkit::history::Share;
use lockkeeper_wire::{
    Acl, CheckRequest, CreateMode, CreateRequest, MAX_FRAME, Op, OpResult, PathRequest,
    PathWatchRequest, Request, Response, SessionId, SetDataRequest, Stat, ZnodePath, Zxid,
    split_frame,
};

use crate::trade::{Parent, Trade};
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
pub(crate) enum Ask {
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
    /// How many permits there are.
    Count,
    /// The same, and a watch on it.
    Recount,
    /// The lock's own node, which an upgrade writes to.
    Parent,
    /// One node for another, and whether it is there.
    Trade,
    Made,
    /// A token at the grant, and the node if somebody has written there.
    Mint,
    Reread,
}

#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) path: String,
    pub(crate) session: SessionId,
    pub(crate) token: i64,
}

impl Own {
    pub(crate) fn name(&self) -> &str {
        &self.path[LOCK.len() + 1..]
    }
}

/// What a grant goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Whatever has proven the session last.
    Old,
    /// A write that was made for this grant.
    Fresh,
}

/// What a program believes in (`Guard`).
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) own: Own,
    pub(crate) hold: HoldId,
    generation: u64,
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
        listed: Stat,
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
        vouched: bool,
    },
    /// Its creation is no good as a token (`Entrance::mint`).
    Minting {
        holding: Holding,
        version: i32,
    },
    Held(Holding),
    /// One node for another at the same number.
    Trading(Trade),
    /// It stands in line, and does not know how many permits there are.
    Counting {
        own: Own,
        line: Line,
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
    /// What it asks for or holds.
    pub(crate) kind: Kind,
    /// Whether the number of permits is in the lock's own node, or a convention.
    counted: bool,
    /// How many permits there are, as far as it knows.
    permits: Option<u32>,
    /// The watch on their number.
    recount: Option<WatchId>,
    /// The most permits that there were since it began.
    pub(crate) most: u32,
    /// What it holds while it gets another node in its place.
    pub(crate) former: Option<Holding>,
    pub(crate) parent: Parent,
    pub(crate) session: Session<Token>,
    pub(crate) connected: bool,
    pub(crate) to_server: VecDeque<Bytes>,
    pub(crate) to_client: VecDeque<Bytes>,
    pub(crate) step: Step,
    pub(crate) attempt: u8,
    /// The last attempt that it makes to get into the queue.
    last: u8,
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
            counted: bounds.changes > 0,
            permits: (bounds.changes == 0).then_some(bounds.permits),
            recount: None,
            most: bounds.permits,
            former: None,
            parent: Parent::Unknown,
            session: Session::new(config, Instant::default()),
            connected: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            step: Step::Idle,
            attempt: 0,
            last: ATTEMPTS,
            watches: 0,
            granted: None,
        }
    }

    /// What a program believes in, be it that it is about to get another node for it.
    fn belief(&self) -> Option<&Holding> {
        match &self.step {
            Step::Held(holding) => Some(holding),
            _ => self.former.as_ref(),
        }
    }

    /// Whether a program would go on under the lock at this moment (`Guard::find_loss`).
    pub(crate) fn believes(&self, now: Instant) -> bool {
        self.belief().is_some_and(|holding| self.is_valid(holding, now))
    }

    pub(crate) fn is_valid(&self, holding: &Holding, now: Instant) -> bool {
        let lease = self.session.lease();
        lease.session == holding.own.session
            && lease.generation == holding.generation
            && lease.deadline.is_some_and(|deadline| deadline > now)
    }

    /// The name of its node, while it holds.
    pub(crate) fn held_node(&self) -> Option<&str> {
        match &self.step {
            Step::Held(holding) => Some(holding.own.name()),
            _ => None,
        }
    }

    /// The nodes of which one is there for as long as it may believe to hold.
    pub(crate) fn believed_nodes(&self) -> impl Iterator<Item = &str> {
        let traded = match &self.step {
            Step::Trading(trade) => Some(trade.name()),
            _ => None,
        };
        self.belief().map(|holding| holding.own.name()).into_iter().chain(traded)
    }

    pub(crate) fn share(&self) -> Share {
        share(self.kind, self.most)
    }

    /// Whether it waits although, as the queue is, nothing is in its way.
    pub(crate) fn waits_for_nothing(&self, names: Vec<String>, permits: Option<u32>) -> bool {
        let Step::Waiting { own, .. } = &self.step else { return false };
        let mut line = line(names);
        if let Some(reader) = &self.former {
            return !matches!(line.upgrade(reader.own.name()), Upgrade::WaitOn(_));
        }
        line.set_permits(permits.or(self.permits).unwrap_or(1));
        line.standing(own.name()) == Standing::Held
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
                Event::Watch { id, event } => self.watched(now, id, event.kind),
                Event::Expired { .. } => {
                    // Watchers end with the session, and with them the wait.
                    if matches!(self.step, Step::Waiting { .. }) {
                        self.give_up(now, "expired");
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
        // `Guard::run` around the wait of an upgrade.
        let waits = matches!(self.step, Step::Waiting { .. });
        if waits && self.former.as_ref().is_some_and(|reader| !self.is_valid(reader, now)) {
            self.abandon(now, "lost");
        }
        if let Some(mut output) = self.session.poll_transmit() {
            while let Ok(Some(frame)) = split_frame(&mut output, MAX_FRAME) {
                self.to_server.push_back(frame);
            }
        }
    }

    // ----- what a program does ----------------------------------------------------------------

    pub(crate) fn start(&mut self, now: Instant) {
        if self.counted {
            self.ask(now, Ask::Count, read(LOCK));
        }
        self.enter(now);
        self.settle(now);
    }

    /// `RwLockUpgradeableGuard::upgrade`
    pub(crate) fn upgrade(&mut self, now: Instant) {
        let Step::Held(holding) = std::mem::replace(&mut self.step, Step::Idle) else { return };
        let valid = self.is_valid(&holding, now);
        self.former = Some(holding);
        if valid {
            self.attempt += 1;
            self.last = self.attempt + ATTEMPTS - 1;
            self.ask(now, Ask::Parent, read(LOCK));
            self.attempt -= 1;
            self.enter(now);
        } else {
            self.give_up(now, "lost");
        }
        self.settle(now);
    }

    /// `RwLockWriteGuard::downgrade`
    pub(crate) fn downgrade(&mut self, now: Instant) {
        let Step::Held(holding) = std::mem::replace(&mut self.step, Step::Idle) else { return };
        let valid = self.is_valid(&holding, now);
        self.former = Some(holding);
        self.kind = Kind::Read;
        match valid {
            true => self.trade(now, None),
            false => self.give_up(now, "lost"),
        }
        self.settle(now);
    }

    pub(crate) fn release(&mut self, now: Instant) {
        let Step::Held(holding) = std::mem::replace(&mut self.step, Step::Done) else { return };
        self.let_go(now, holding);
        self.settle(now);
    }

    fn let_go(&mut self, now: Instant, Holding { own, hold, .. }: Holding) {
        self.session.unhold(hold);
        if own.session == self.session.id() {
            self.session.clean_up(now, Cleanup::Node(znode(&own.path)), None);
        }
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
            data: Bytes::new().into(),
            acl: Acl::open(),
            flags: CreateMode::EphemeralSequential.flags(),
        };
        self.ask(now, Ask::Create, Request::Create2(create));
        self.ask(now, Ask::List, list());
    }

    fn prefix(&self) -> String {
        match self.former {
            // The barrier of an upgrade.
            Some(_) => self.prefix_of(Kind::Write),
            None => self.prefix_of(self.kind),
        }
    }

    pub(crate) fn prefix_of(&self, kind: Kind) -> String {
        let (number, attempt) = (self.number, self.attempt);
        match kind {
            Kind::Exclusive => format!("_c_{number}{attempt}-lock-"),
            Kind::Read => format!("_c_{number}{attempt}-__READ__"),
            Kind::Upgradeable => format!("_c_{number}{attempt}-upgr-__READ__"),
            Kind::Write => format!("_c_{number}{attempt}-__WRIT__"),
            Kind::Permits(wanted) => format!("_c_{number}{attempt}-{wanted}-permits-"),
            other => unreachable!("no client of the model asks for {other:?}"),
        }
    }

    fn answered(&mut self, now: Instant, ask: Ask, result: Result<Response, RequestError>) {
        match (self.step.clone(), ask, result) {
            (step, Ask::Parent, result) => {
                self.parent = Parent::from(result);
                if let Step::Listing { .. } = step {
                    self.ask(now, Ask::Again, list());
                }
            }
            (step, Ask::Count, result) => self.counted(now, step, result),
            (Step::Entering { .. }, Ask::Create, Ok(Response::Created { path, stat })) => {
                let (session, token) = (stat.ephemeral_owner, stat.czxid.0);
                self.step = Step::Entering { own: Some(Own { path, session, token }) };
            }
            (Step::Entering { .. }, Ask::Create, Err(error)) => {
                let expired = matches!(error, RequestError::SessionExpired(_));
                if error.outcome() == Outcome::NotApplied || expired {
                    return self.again(now, &error);
                }
                self.step = Step::Recovering { names: Vec::new(), listed: Stat::default() };
                self.ask(now, Ask::Sync, Request::Sync(PathRequest { path: LOCK.to_owned() }));
                self.ask(now, Ask::Relist, list());
            }
            (
                Step::Entering { own: Some(own) },
                Ask::List,
                Ok(Response::Children { names, stat }),
            ) => {
                self.advance(now, own, self.line(names, &stat));
            }
            (Step::Recovering { .. }, Ask::Relist, Ok(Response::Children { names, stat })) => {
                let prefix = self.prefix();
                let Some(own) = names.iter().find(|name| name.starts_with(&prefix)).cloned() else {
                    return self.leave_and_again(now);
                };
                self.step = Step::Recovering { names, listed: stat };
                let path = format!("{LOCK}/{own}");
                let read = PathWatchRequest { path, watch: false };
                self.ask(now, Ask::Exists, Request::Exists(read));
            }
            (Step::Recovering { names, listed }, Ask::Exists, Ok(Response::Stat(stat))) => {
                let prefix = self.prefix();
                let own = names.iter().find(|name| name.starts_with(&prefix));
                // A node of another session is about to vanish: it is never adopted.
                match own {
                    Some(name) if stat.ephemeral_owner == self.session.id() => {
                        let path = format!("{LOCK}/{name}");
                        let (session, token) = (stat.ephemeral_owner, stat.czxid.0);
                        let line = self.line(names, &listed);
                        self.advance(now, Own { path, session, token }, line);
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
                    Err(error) if tries_again(&error) => {
                        *one = self.ahead(now, one.name.clone());
                    }
                    Err(_) => return self.abandon(now, "no answer"),
                }
                self.step = Step::Waiting { own, line, ahead };
                self.go_on(now);
            }
            (Step::Listing { own }, Ask::Again, result) => match result {
                Ok(Response::Children { names, stat }) => {
                    self.advance(now, own, self.line(names, &stat));
                }
                Err(error) if tries_again(&error) => {
                    self.ask(now, Ask::Again, list());
                }
                _ => self.abandon(now, "no answer"),
            },
            (Step::Proving { own, vouched }, Ask::Prove, result) => match result {
                Ok(Response::Multi(results))
                    if results.iter().any(|r| matches!(r, OpResult::Error(_))) =>
                {
                    self.step = Step::GaveUp(Reason("deleted"));
                }
                Err(error) if !error.is_retryable() => self.abandon(now, "no proof"),
                _ => self.grant(now, own, Proof::Fresh, vouched),
            },
            (Step::Minting { .. }, Ask::Mint | Ask::Reread, result) => self.minted(now, result),
            (Step::Trading(trade), Ask::Trade | Ask::Made, result) => {
                self.traded(now, trade, ask, result);
            }
            (Step::Waiting { own, line, .. }, Ask::Recount, result) => {
                self.recounted(now, own, line, result);
            }
            _ => {}
        }
    }

    pub(crate) fn advance(&mut self, now: Instant, own: Own, mut line: Line) {
        if self.former.is_some() {
            return self.advance_upgrade(now, own, line);
        }
        if let Kind::Permits(wanted) = self.kind {
            let Some(permits) = self.permits else {
                self.step = Step::Counting { own, line };
                return self.ask(now, Ask::Count, read(LOCK));
            };
            if wanted > permits {
                self.step = Step::Listing { own };
                return self.abandon(now, "more than there are");
            }
            line.set_permits(permits);
        }
        match line.standing(own.name()) {
            Standing::Held => {
                self.unwatch(now);
                let shared = matches!(self.kind, Kind::Read | Kind::Write | Kind::Upgradeable);
                let vouched = !shared || line.vouches_for(Zxid(own.token));
                self.grant(now, own, Proof::Old, vouched);
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
    pub(crate) fn outwait(&mut self, now: Instant, own: Own, line: Line, names: Vec<String>) {
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
        if self.counted && self.recount.is_none() {
            self.watch_count(now);
        }
    }

    /// `Permits::changed`
    fn watch_count(&mut self, now: Instant) {
        let read = PathWatchRequest { path: LOCK.to_owned(), watch: true };
        let token = Token { attempt: self.attempt, ask: Ask::Recount };
        let kind = WatchKind::Data;
        let watch = self.session.submit_watching(now, Request::GetData(read), kind, token);
        self.recount = Some(watch);
    }

    /// `Places::enter`: the number was asked for before the place in line.
    fn counted(&mut self, now: Instant, step: Step, result: Result<Response, RequestError>) {
        self.permits = result.as_ref().ok().and_then(number);
        match (step, result) {
            (Step::Counting { own, line }, Ok(_)) => self.advance(now, own, line),
            (Step::Counting { .. }, Err(error)) if !tries_again(&error) => {
                self.abandon(now, "no number");
            }
            (Step::Counting { .. }, Err(_)) => self.ask(now, Ask::Count, read(LOCK)),
            _ => {}
        }
    }

    fn recounted(
        &mut self,
        now: Instant,
        own: Own,
        line: Line,
        result: Result<Response, RequestError>,
    ) {
        match result {
            Ok(response) if number(&response) != self.permits => {
                self.permits = number(&response);
                // The watches go with the wait, and the next one has its own.
                self.unwatch(now);
                self.step = Step::Listing { own: own.clone() };
                self.advance(now, own, line);
            }
            Ok(_) => {}
            Err(error) if tries_again(&error) => self.watch_count(now),
            Err(_) => self.abandon(now, "no number"),
        }
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

    fn watched(&mut self, now: Instant, id: WatchId, kind: EventKind) {
        if self.recount == Some(id) && matches!(self.step, Step::Waiting { .. }) {
            return self.watch_count(now);
        }
        let Step::Waiting { own, line, mut ahead } = self.step.clone() else { return };
        let Some(one) = ahead.iter_mut().find(|one| one.watch == id) else { return };
        match kind {
            EventKind::NodeDeleted => one.gone = true,
            _ => *one = self.ahead(now, one.name.clone()),
        }
        self.step = Step::Waiting { own, line, ahead };
        self.go_on(now);
    }

    /// Looks again when all watches are set and one that was ahead has gone.
    fn go_on(&mut self, now: Instant) {
        let Step::Waiting { own, line, ahead } = &self.step else { return };
        if ahead.iter().all(|one| one.answered) && ahead.iter().any(|one| one.gone) {
            let (own, mut line) = (own.clone(), line.clone());
            if self.former.is_some() {
                return self.list_again(now, own);
            }
            ahead.iter().filter(|one| one.gone).for_each(|one| line.remove(&one.name));
            self.advance(now, own, line);
        }
    }

    pub(crate) fn list_again(&mut self, now: Instant, own: Own) {
        self.unwatch(now);
        self.step = Step::Listing { own };
        self.ask(now, Ask::Again, list());
    }

    /// `Guard::grant`
    pub(crate) fn grant(&mut self, now: Instant, own: Own, proof: Proof, vouched: bool) {
        let lease = self.session.lease();
        if lease.session != own.session {
            self.step = Step::GaveUp(Reason("expired"));
            return;
        }
        let timing = self.session.timing();
        let enough = match proof {
            Proof::Old => timing.left_at_grant(),
            Proof::Fresh => timing.always_left(),
        };
        if lease.remaining(now) < enough {
            let check = CheckRequest { path: own.path.clone(), version: -1 };
            self.step = Step::Proving { own, vouched };
            return self.ask(now, Ask::Prove, Request::Multi(vec![Op::Check(check)]));
        }
        let hold = self.session.hold(now, znode(&own.path));
        let holding = Holding { own, hold, generation: lease.generation };
        match vouched {
            true => self.hold(holding),
            false => self.mint(now, holding, 0),
        }
    }

    fn hold(&mut self, holding: Holding) {
        self.granted = Some(holding.own.token);
        self.step = Step::Held(holding);
    }

    /// `Entrance::mint`
    fn mint(&mut self, now: Instant, holding: Holding, version: i32) {
        let path = holding.own.path.clone();
        self.step = Step::Minting { holding, version };
        let set = SetDataRequest { path, data: Bytes::new().into(), version };
        self.ask(now, Ask::Mint, Request::SetData(set));
    }

    fn minted(&mut self, now: Instant, result: Result<Response, RequestError>) {
        let Step::Minting { mut holding, version } =
            std::mem::replace(&mut self.step, Step::GaveUp(Reason("no token")))
        else {
            return;
        };
        match result {
            Ok(Response::Stat(stat)) if self.is_valid(&holding, now) => {
                holding.own.token = stat.mzxid.0;
                self.hold(holding);
            }
            Ok(Response::Data { stat, .. }) => self.mint(now, holding, stat.version),
            Err(RequestError::Server(ErrorCode::BadVersion)) => {
                let path = holding.own.path.clone();
                self.step = Step::Minting { holding, version };
                self.ask(now, Ask::Reread, read(&path));
            }
            Err(error) if tries_again(&error) => self.mint(now, holding, version),
            _ => self.let_go(now, holding),
        }
    }

    fn leave_and_again(&mut self, now: Instant) {
        self.drop_contender(now);
        self.retry(now);
    }

    fn again(&mut self, now: Instant, error: &RequestError) {
        let expired = matches!(error, RequestError::SessionExpired(_));
        if expired || tries_again(error) {
            return self.retry(now);
        }
        self.give_up(now, "no server");
    }

    fn retry(&mut self, now: Instant) {
        if self.attempt < self.last {
            self.enter(now);
        } else {
            self.give_up(now, "attempts");
        }
    }

    pub(crate) fn abandon(&mut self, now: Instant, why: &'static str) {
        self.drop_contender(now);
        self.give_up(now, why);
    }

    /// Also what it held while it went for more.
    pub(crate) fn give_up(&mut self, now: Instant, why: &'static str) {
        if let Some(holding) = self.former.take() {
            self.let_go(now, holding);
        }
        self.step = Step::GaveUp(Reason(why));
    }

    /// `Contender::drop`
    fn drop_contender(&mut self, now: Instant) {
        let own = match &self.step {
            Step::Entering { own } => own.clone(),
            Step::Waiting { own, .. }
            | Step::Listing { own }
            | Step::Counting { own, .. }
            | Step::Proving { own, .. } => Some(own.clone()),
            Step::Recovering { .. } => None,
            Step::Trading(trade) => {
                let (name, barrier) = (trade.name().to_owned(), trade.barrier().cloned());
                self.clean_up_child(now, name);
                let Some(barrier) = barrier else { return };
                Some(barrier)
            }
            _ => return,
        };
        self.unwatch(now);
        match own {
            Some(own) if own.session != self.session.id() => {}
            Some(own) => self.session.clean_up(now, Cleanup::Node(znode(&own.path)), None),
            None => self.clean_up_child(now, self.prefix()),
        }
    }

    pub(crate) fn clean_up_child(&mut self, now: Instant, prefix: String) {
        self.session.clean_up(now, Cleanup::Child { parent: znode(LOCK), prefix }, None);
    }

    fn unwatch(&mut self, now: Instant) {
        if let Some(watch) = self.recount.take() {
            self.session.unwatch(now, watch);
        }
        if let Step::Waiting { ahead, .. } = &mut self.step {
            for one in std::mem::take(ahead) {
                self.session.unwatch(now, one.watch);
            }
        }
    }

    fn line(&self, names: Vec<String>, listed: &Stat) -> Line {
        let mut line = line(names);
        // What nobody looks at would only multiply the states.
        if matches!(self.kind, Kind::Read | Kind::Write | Kind::Upgradeable) {
            line.set_listed(listed);
        }
        line
    }

    pub(crate) fn ask(&mut self, now: Instant, ask: Ask, request: Request) {
        self.session.submit(now, request, Token { attempt: self.attempt, ask });
    }
}

fn list() -> Request {
    Request::GetChildren2(PathWatchRequest { path: LOCK.to_owned(), watch: false })
}

pub(crate) fn read(path: &str) -> Request {
    Request::GetData(PathWatchRequest { path: path.to_owned(), watch: false })
}

fn number(response: &Response) -> Option<u32> {
    let Response::Data { data, .. } = response else { return None };
    std::str::from_utf8(data).ok()?.parse().ok()
}

/// Whether the same request is sent again, on the next connection.
pub(crate) fn tries_again(error: &RequestError) -> bool {
    error.is_retryable() && *error != RequestError::Unreachable
}

/// The children of the lock's node in order.
pub(crate) fn line(names: Vec<String>) -> Line {
    let kinds = [Kind::Exclusive, Kind::Upgradeable, Kind::Read, Kind::Write, Kind::Permits(1)];
    Line::read(names, Profile::Curator, &kinds).expect("only contenders")
}

pub(crate) fn share(kind: Kind, of: u32) -> Share {
    match kind {
        Kind::Read => Share::Reader,
        Kind::Upgradeable => Share::Upgradeable,
        Kind::Permits(taken) => Share::Permits { taken, of },
        _ => Share::Alone,
    }
}

pub(crate) fn znode(path: &str) -> ZnodePath {
    ZnodePath::new(path).expect("a path")
}
