//! Takes each step on both servers and compares what was seen.
//!
//! Nothing has to be waited for: a server sends an event before every reply that shows the change,
//! on each connection, so what a connection got up to a reply is the same on both, whenever it is
//! looked at.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, OpCode, Request, Response, SessionId, Zxid,
    write_frame, xid,
};

use crate::certificates::Credentials;
use crate::connection::{Connection, Incoming};
use crate::known::{self, Version};
use crate::servers::Servers;
use crate::step::{Ask, Hello, Resume, Step, Who, read};
use crate::view::{Base, Body, Names, Seen, sort_events};

/// How long a server may take to close a connection.
const CLOSING: Duration = Duration::from_secs(3);
/// How long a session may take to expire after its timeout.
const EXPIRY: Duration = Duration::from_secs(15);

/// Two of something: ZooKeeper's first, the engine's second.
pub(crate) type Both<T> = [T; 2];
const ZOOKEEPER: usize = 0;
const ENGINE: usize = 1;

#[derive(Debug)]
struct Side {
    address: SocketAddr,
    base: Base,
    names: Names,
}

#[derive(Debug)]
struct Session {
    last_zxid: Zxid,
    next_xid: i32,
    ends: Both<End>,
}

/// A session as one server knows it.
#[derive(Debug)]
struct End {
    id: SessionId,
    password: Bytes,
    connection: Option<Connection>,
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Vacant,
    Connected,
    Dropped,
}

/// Whether events belong to one transaction whose parts are not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    Ordered,
    Unordered,
}

/// Two servers, and the sessions that are open on both.
#[derive(Debug)]
pub(crate) struct Lockstep {
    pub(crate) version: Version,
    sides: Both<Side>,
    /// Those of each session in turn, where both servers speak TLS.
    credentials: Vec<Credentials>,
    sessions: Vec<Option<Session>>,
    opened: i64,
    /// How many requests have been compared.
    pub(crate) operations: u64,
    /// Paths of nodes that were created since the last look.
    pub(crate) created: Vec<String>,
    pub(crate) last_zxid: Zxid,
    /// How often each error was the answer of both.
    pub(crate) errors: BTreeMap<i32, u64>,
}

impl Lockstep {
    pub(crate) fn new(servers: &Servers, sessions: usize) -> Self {
        let side = |address, base| Side { address, base, names: Names::new(base) };
        Self {
            version: servers.version(),
            sides: [
                side(servers.zookeeper(), Base(Zxid(0))),
                side(servers.engine(), servers.engine_base()),
            ],
            credentials: servers.credentials().to_vec(),
            sessions: (0..sessions).map(|_| None).collect(),
            opened: 0,
            operations: 0,
            created: Vec::new(),
            last_zxid: Zxid(0),
            errors: BTreeMap::new(),
        }
    }

    pub(crate) fn state(&self, who: Who) -> State {
        match &self.sessions[who] {
            None => State::Vacant,
            Some(session) if session.ends[ENGINE].connection.is_none() => State::Dropped,
            Some(_) => State::Connected,
        }
    }

    /// What the session has seen: where `setWatches` has to begin.
    pub(crate) fn last_seen(&self, who: Who) -> Zxid {
        self.sessions[who].as_ref().map_or(Zxid(0), |session| session.last_zxid)
    }

    /// Takes a step on both servers.
    pub(crate) fn take(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Ask(who, asks) => self.ask(*who, asks),
            Step::Open(who, hello) => {
                let session = self.open(*who, *hello)?;
                self.sessions[*who] = session;
                Ok(())
            }
            Step::Resume(who, how) => self.resume(*who, *how),
            Step::Drop(who) => {
                let [theirs, ours] = self.ends(*who)?.each_mut().map(|end| end.connection.take());
                known::drop_for_zookeeper(theirs.context("a dropped session")?)?;
                // Last: the engine may hear of the end and of the session's return in either order.
                drop(ours);
                Ok(())
            }
            Step::Expire(onlooker, asks) => self.expire(*onlooker, asks),
        }
    }

    fn ends(&mut self, who: Who) -> Result<&mut Both<End>> {
        let session = self.sessions[who].as_mut().context("a vacant session")?;
        Ok(&mut session.ends)
    }

    fn ask(&mut self, who: Who, asks: &[Ask]) -> Result<()> {
        if asks.iter().any(|ask| matches!(ask, Ask::Good(Request::Auth(_)))) {
            // ZooKeeper answers it where the connection is served, with TLS also before an event that
            // is on its way from where requests are processed.
            self.exchange(who, &[Ask::Good(Request::Ping)], Events::Ordered)?;
        }
        if asks.iter().any(Ask::ends_session) {
            // The events of its end are compared by themselves: ephemerals go in no order.
            self.collect_events(Events::Ordered)?;
            self.exchange(who, asks, Events::Unordered)?;
            self.sessions[who] = None;
            return self.collect_events(Events::Unordered);
        }
        if let [Ask::Good(Request::Exists(request))] = asks
            && request.watch
            && self.version == Version::V38
            && self.is_refused(who, &request.path)?
        {
            // It would set a watch that the engine does not set.
            let unwatched = Ask::Good(Request::Exists(read(&request.path)));
            return self.exchange(who, &[unwatched], Events::Ordered);
        }
        self.exchange(who, asks, Events::Ordered)
    }

    /// Asks for nothing on every connection, to see what else has arrived there.
    fn collect_events(&mut self, events: Events) -> Result<()> {
        for who in 0..self.sessions.len() {
            if self.state(who) == State::Connected {
                self.exchange(who, &[Ask::Good(Request::Ping)], events)?;
            }
        }
        Ok(())
    }

    fn is_refused(&mut self, who: Who, path: &str) -> Result<bool> {
        let seen = self.both_see(who, &[Ask::Good(Request::GetData(read(path)))])?;
        let refused = |seen: &[Seen]| {
            seen.iter()
                .any(|seen| matches!(seen, Seen::Reply { error: Some(ErrorCode::NoAuth), .. }))
        };
        let answer = refused(&seen[ENGINE]);
        self.compare(who, &[], seen, Events::Ordered)?;
        Ok(answer)
    }

    fn exchange(&mut self, who: Who, asks: &[Ask], events: Events) -> Result<()> {
        let seen = self.both_see(who, asks)?;
        self.compare(who, asks, seen, events)
    }

    /// Sends requests and collects everything up to the last reply, or the end.
    pub(crate) fn both_see(&mut self, who: Who, asks: &[Ask]) -> Result<Both<Vec<Seen>>> {
        let session = self.sessions[who].as_mut().context("a vacant session")?;
        let mut out = [BytesMut::new(), BytesMut::new()];
        for ask in asks {
            let xid = match ask {
                Ask::Good(request) => request.reserved_xid(),
                Ask::Odd { .. } => None,
            };
            let xid = xid.unwrap_or(session.next_xid);
            session.next_xid += 1;
            for (side, out) in self.sides.iter().zip(&mut out) {
                write_frame(out, |out| side.base.of(ask).encode(xid, out));
            }
        }
        self.operations += asks.len() as u64;
        // Both work at the same time.
        for (end, out) in session.ends.iter_mut().zip(&out) {
            end.connection.as_mut().context("a dropped session")?.send(out)?;
        }
        let mut seen = [Vec::new(), Vec::new()];
        for (side, (end, seen)) in self.sides.iter_mut().zip(session.ends.iter_mut().zip(&mut seen))
        {
            let connection = end.connection.as_mut().context("a dropped session")?;
            *seen = collect(connection, &mut side.names, asks)?;
        }
        Ok(seen)
    }

    fn compare(
        &mut self,
        who: Who,
        asks: &[Ask],
        [mut theirs, mut ours]: Both<Vec<Seen>>,
        events: Events,
    ) -> Result<()> {
        if events == Events::Unordered {
            sort_events(&mut theirs);
            sort_events(&mut ours);
        }
        if theirs != ours {
            let version = self.version;
            let mut is_refused = |path: &str| self.is_refused(who, path);
            known::settle(version, asks, &mut theirs, &mut ours, &mut is_refused)?;
        }
        ensure!(
            theirs == ours,
            "session {who}\nasked:{}\nZooKeeper:{}\nthe engine:{}",
            lines(asks),
            lines(&theirs),
            lines(&ours)
        );
        self.learn(who, &ours);
        Ok(())
    }

    fn learn(&mut self, who: Who, seen: &[Seen]) {
        for seen in seen {
            match seen {
                Seen::Reply { zxid, body, error, .. } => {
                    if let Some(error) = error {
                        *self.errors.entry(error.code()).or_default() += 1;
                    }
                    self.last_zxid = self.last_zxid.max(Zxid(*zxid));
                    if let Some(session) = &mut self.sessions[who] {
                        session.last_zxid = session.last_zxid.max(Zxid(*zxid));
                    }
                    if let Body::Read(Response::Path(path) | Response::Created { path, .. }) = body
                    {
                        self.created.push(path.clone());
                    }
                }
                Seen::Closed => self.forget_connection(who),
                Seen::Event { .. } | Seen::StillOpen => {}
            }
        }
    }

    fn forget_connection(&mut self, who: Who) {
        for end in self.sessions[who].iter_mut().flat_map(|session| &mut session.ends) {
            end.connection = None;
        }
    }

    /// Shakes hands with both and compares the answers.
    fn shake(
        &mut self,
        who: Who,
        requests: Both<ConnectRequest>,
    ) -> Result<Option<Both<(Connection, ConnectResponse)>>> {
        let credentials = self.credentials.get(who % self.credentials.len().max(1));
        let [theirs, ours] = &self.sides;
        let open = |side: &Side| Connection::open(side.address, credentials);
        let mut connections = [open(theirs)?, open(ours)?];
        let [one, other] = &mut connections;
        let answers = [one.shake(&requests[ZOOKEEPER])?, other.shake(&requests[ENGINE])?];
        match answers {
            [None, None] => Ok(None),
            [Some(theirs), Some(ours)] => {
                let facts = |answer: &ConnectResponse| {
                    let none = answer.session_id == SessionId::NONE;
                    let ConnectResponse { timeout_ms, read_only, password, .. } = answer;
                    let no_password = password.iter().all(|byte| *byte == 0);
                    (*timeout_ms, *read_only, none, password.len(), no_password)
                };
                ensure!(
                    facts(&theirs) == facts(&ours),
                    "asked {requests:#?}\nZooKeeper: {theirs:#?}\nthe engine: {ours:#?}"
                );
                let [one, other] = connections;
                Ok(Some([(one, theirs), (other, ours)]))
            }
            answers => bail!("asked {requests:#?}\nZooKeeper, the engine: {answers:#?}"),
        }
    }

    fn open(&mut self, who: Who, hello: Hello) -> Result<Option<Session>> {
        self.operations += 1;
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: Zxid(0),
            timeout_ms: hello.timeout_ms,
            session_id: SessionId::NONE,
            password: Bytes::from_static(&[0; 16]),
            read_only: hello.read_only,
        };
        let answers = self.shake(who, [request.clone(), request])?;
        let answers = answers.context("both refused to open a session")?;
        self.opened += 1;
        for (side, (_, answer)) in self.sides.iter_mut().zip(&answers) {
            side.names.call(answer.session_id, self.opened);
        }
        let ends = answers.map(|(connection, answer)| End {
            id: answer.session_id,
            password: answer.password,
            connection: Some(connection),
        });
        Ok(Some(Session { last_zxid: Zxid(0), next_xid: 1, ends }))
    }

    fn resume(&mut self, who: Who, how: Resume) -> Result<()> {
        self.operations += 1;
        let last_zxid = self.last_zxid;
        let session = self.sessions[who].as_ref().context("a vacant session")?;
        let last_zxid_seen = match how {
            Resume::Forgetful => Zxid(0),
            Resume::Ahead => Zxid(last_zxid.0 + 1_000_000),
            _ => session.last_zxid,
        };
        let [theirs, ours] = &session.ends;
        let [zookeeper, engine] = &self.sides;
        let requests = [(theirs, zookeeper), (ours, engine)].map(|(end, side)| ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: side.base.number(last_zxid_seen),
            timeout_ms: 45_000,
            session_id: match how {
                Resume::Unknown => SessionId(0x7777_7777_7777),
                _ => end.id,
            },
            password: match how {
                Resume::WrongPassword => Bytes::from_static(&[7; 16]),
                _ => end.password.clone(),
            },
            read_only: Some(false),
        });
        let mut answers = self.shake(who, requests)?;
        match how {
            Resume::Rightly | Resume::Forgetful => {}
            Resume::Ahead => {
                ensure!(answers.is_none(), "a client that is ahead got {answers:?}");
                return Ok(());
            }
            Resume::WrongPassword | Resume::Unknown => {
                for (connection, answer) in answers.iter_mut().flatten() {
                    ensure!(answer.session_id == SessionId::NONE, "{how:?} was accepted");
                    connection.expect_end(CLOSING)?;
                }
                ensure!(answers.is_some(), "{how:?}: both closed without a word");
                return self.check_older(who, how);
            }
        }
        let answers = answers.context("both refused to resume")?;
        let session = self.sessions[who].as_mut().context("a vacant session")?;
        let ends = session.ends.iter_mut().zip(["ZooKeeper", "the engine"]);
        for ((end, server), (connection, answer)) in ends.zip(answers) {
            ensure!(answer.session_id == end.id, "another session than before");
            if let Some(mut older) = end.connection.replace(connection) {
                older
                    .expect_end(CLOSING)
                    .with_context(|| format!("{server}: the session's older connection"))?;
            }
        }
        Ok(())
    }

    /// After a refusal: the session's older connection, if it has one, is as it was, but for the
    /// known difference.
    fn check_older(&mut self, who: Who, how: Resume) -> Result<()> {
        if self.state(who) != State::Connected {
            return Ok(());
        }
        if !matches!(how, Resume::WrongPassword) {
            return self.exchange(who, &[Ask::Good(Request::Ping)], Events::Ordered);
        }
        let mut ping = BytesMut::new();
        write_frame(&mut ping, |out| Request::Ping.encode(xid::PING, out));
        for (end, cut) in self.ends(who)?.iter_mut().zip(known::CUT_BY_A_WRONG_PASSWORD) {
            let mut older = end.connection.take().context("a dropped session")?;
            if cut {
                older.expect_end(CLOSING).context("after a wrong password")?;
            } else {
                older.send(&ping)?;
                ensure!(matches!(older.next()?, Incoming::Frame(_)), "cut by a wrong password");
            }
        }
        Ok(())
    }

    fn expire(&mut self, onlooker: Who, asks: &[Ask]) -> Result<()> {
        self.collect_events(Events::Ordered)?;
        let who = self.sessions.len();
        let session = self.open(who, Hello { timeout_ms: 1, read_only: Some(false) })?;
        self.sessions.push(session);
        for ask in asks {
            self.exchange(who, std::slice::from_ref(ask), Events::Ordered)?;
        }
        let session = self.sessions.pop().flatten().context("it is over already")?;
        for mut end in session.ends {
            let connection = end.connection.as_mut().context("it is cut already")?;
            while !matches!(connection.next_within(EXPIRY)?, Incoming::Closed) {}
        }
        self.wait_for_expiry(onlooker)?;
        self.collect_events(Events::Unordered)
    }

    /// ZooKeeper may close the connection before it ends the session.
    fn wait_for_expiry(&mut self, onlooker: Who) -> Result<()> {
        let ping = [Ask::Good(Request::Ping)];
        let end = Zxid(self.last_zxid.0 + 1);
        let mut events = [Vec::new(), Vec::new()];
        let since = Instant::now();
        loop {
            let seen = self.both_see(onlooker, &ping)?;
            let over = seen.each_ref().map(
                |seen| matches!(seen.last(), Some(Seen::Reply { zxid, .. }) if *zxid == end.0),
            );
            if over == [true; 2] {
                for (events, seen) in events.iter_mut().zip(seen) {
                    events.extend(seen);
                }
                return self.compare(onlooker, &ping, events, Events::Unordered);
            }
            for (events, seen) in events.iter_mut().zip(seen) {
                events.extend(seen.into_iter().filter(|seen| matches!(seen, Seen::Event { .. })));
            }
            ensure!(since.elapsed() < EXPIRY, "a session has not expired: {over:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn lines(items: &[impl std::fmt::Debug]) -> String {
    items.iter().map(|item| format!("\n  {item:?}")).collect()
}

/// Reads until all is answered; and on until the end, where the end is due.
fn collect(connection: &mut Connection, names: &mut Names, asks: &[Ask]) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    for ask in asks {
        loop {
            let frame = match connection.next()? {
                Incoming::Frame(frame) => frame,
                Incoming::Closed => {
                    seen.push(Seen::Closed);
                    return Ok(seen);
                }
                Incoming::Silence => bail!("no answer to {ask:?} after {seen:#?}"),
            };
            seen.push(names.read(frame, |_| ask.op())?);
            if matches!(seen.last(), Some(Seen::Reply { .. })) {
                break;
            }
        }
        if ends_connection(ask, &seen) {
            let end = connection.next_within(CLOSING)?;
            seen.push(if matches!(end, Incoming::Closed) { Seen::Closed } else { Seen::StillOpen });
            return Ok(seen);
        }
    }
    Ok(seen)
}

fn ends_connection(ask: &Ask, seen: &[Seen]) -> bool {
    let error = match seen.last() {
        Some(Seen::Reply { error, .. }) => *error,
        _ => None,
    };
    match (ask.op(), error) {
        (Some(OpCode::CloseSession), _) | (_, Some(ErrorCode::AuthFailed)) => true,
        (op, Some(ErrorCode::Unimplemented)) => op != Some(OpCode::CreateTtl),
        _ => false,
    }
}
