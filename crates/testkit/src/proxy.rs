//! A proxy between one client and its server that understands the protocol: it counts frames and injects network
//! faults.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Decoder, ErrorCode, EventKind, MAX_FRAME, OpCode,
    PathWatchRequest, Record, ReplyHeader, Request, RequestHeader, SessionId, WatchEvent,
    split_frame, write_frame, xid,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::frames;

/// A frame that passed the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// A request, to the server.
    Request(OpCode),
    /// A reply, to the client.
    Reply(OpCode),
    /// A watch event, to the client.
    Event(EventKind, String),
}

/// When a connection is lost, relative to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Before the server receives the request.
    BeforeRequest,
    /// After the server has answered and before the client receives the answer.
    BeforeReply,
}

/// How the proxy handles frames and connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rules {
    /// Nothing passes, and neither side is notified.
    frozen: bool,
    /// Replies and events are held back.
    hold_replies: bool,
    /// The number of replies since the start that pass even then.
    answers: usize,
    /// New connections are closed at once.
    refuse: bool,
    /// Incremented to close all connections.
    cuts: u64,
}

#[derive(Debug, Default)]
struct Log {
    passed: Vec<Passed>,
    /// How many of the requests set a watch.
    watches: usize,
    /// The number of requests since the start.
    requests: usize,
    replies: usize,
    losses: Vec<(OpCode, Loss)>,
    /// Errors with which requests are to be answered, and how often.
    refusals: HashMap<OpCode, (ErrorCode, usize)>,
    /// The version shown for all data.
    version: Option<i32>,
    session: Option<(SessionId, Bytes)>,
}

#[derive(Debug)]
struct Shared {
    target: String,
    rules: watch::Sender<Rules>,
    log: Mutex<Log>,
    /// The number of frames that passed, for tasks that wait for frames.
    passed: watch::Sender<usize>,
}

/// A proxy to one server. It ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.cut();
    }
}

impl Proxy {
    /// Starts a proxy to the server at `target`, as `host:port`.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(target: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: target.to_owned(),
            rules: watch::Sender::default(),
            log: Mutex::default(),
            passed: watch::Sender::default(),
        });
        let listener = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, listener })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    // ----- faults -----------------------------------------------------------------------------

    /// Closes every connection; new ones are accepted.
    pub fn cut(&self) {
        self.shared.rules.send_modify(|rules| rules.cuts += 1);
    }

    /// Closes every connection, and each new one, until [`Proxy::restore`].
    pub fn refuse(&self) {
        self.shared.rules.send_modify(|rules| {
            rules.refuse = true;
            rules.cuts += 1;
        });
    }

    /// Lets nothing pass, without notifying either side, until [`Proxy::restore`].
    pub fn freeze(&self) {
        self.shared.rules.send_modify(|rules| rules.frozen = true);
    }

    /// Holds back replies and events until [`Proxy::restore`]; requests pass.
    pub fn hold_replies(&self) {
        self.shared.rules.send_modify(|rules| rules.hold_replies = true);
    }

    /// Lets the replies pass to all requests that have passed so far.
    pub fn answer(&self) {
        let answers = self.log().requests;
        self.shared.rules.send_modify(|rules| rules.answers = answers);
    }

    /// Lets everything pass again.
    pub fn restore(&self) {
        self.shared.rules.send_modify(|rules| {
            *rules = Rules { cuts: rules.cuts, ..Rules::default() };
        });
    }

    /// Cuts the connection at the next request of this kind.
    pub fn lose_next(&self, op: OpCode, loss: Loss) {
        self.log().losses.push((op, loss));
    }

    /// Cancels all remaining losses.
    pub fn lose_no_more(&self) {
        self.log().losses.clear();
    }

    /// The number of losses that remain.
    pub fn losses_to_come(&self) -> usize {
        self.log().losses.len()
    }

    /// Replaces the answers to the next `times` requests of this kind with an error. The server has executed these
    /// requests.
    pub fn refuse_next(&self, op: OpCode, code: ErrorCode, times: usize) {
        self.log().refusals.insert(op, (code, times));
    }

    /// Shows this version for all data that is read, as if there had been billions of writes; `None`: the real version.
    pub fn show_version(&self, version: Option<i32>) {
        self.log().version = version;
    }

    /// Ends the client's session on the server, as if it had expired. Returns when it has ended.
    ///
    /// # Errors
    /// There is no session, or the server cannot be reached.
    pub async fn expire_session(&self) -> Result<()> {
        let session = self.log().session.clone();
        let (id, password) = session.context("no session has passed")?;
        while !end_session(&self.shared.target, id, password.clone()).await? {}
        Ok(())
    }

    // ----- observation ------------------------------------------------------------------------

    /// The frames that passed since the start or since [`Proxy::clear`].
    pub fn passed(&self) -> Vec<Passed> {
        self.log().passed.clone()
    }

    /// The requests among them, without pings.
    pub fn requests(&self) -> Vec<OpCode> {
        let passed = self.passed().into_iter();
        let requests = passed.filter_map(|passed| match passed {
            Passed::Request(op) if op != OpCode::Ping => Some(op),
            _ => None,
        });
        requests.collect()
    }

    /// The events among them.
    pub fn events(&self) -> Vec<(EventKind, String)> {
        let passed = self.passed().into_iter().filter_map(|passed| match passed {
            Passed::Event(kind, path) => Some((kind, path)),
            _ => None,
        });
        passed.collect()
    }

    /// How many of the requests set a watch.
    pub fn watches(&self) -> usize {
        self.log().watches
    }

    /// Forgets the frames that have passed.
    pub fn clear(&self) {
        let mut log = self.log();
        log.passed.clear();
        log.watches = 0;
    }

    /// Waits until the frames that passed satisfy a condition.
    pub async fn passes(&self, wanted: impl Fn(&[Passed]) -> bool) {
        let mut changes = self.shared.passed.subscribe();
        while !wanted(&self.log().passed) {
            // The sender lives as long as this proxy.
            let _ = changes.changed().await;
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.shared.log()
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, passed: Passed) {
        let mut log = self.log();
        log.requests += usize::from(matches!(passed, Passed::Request(_)));
        log.replies += usize::from(matches!(passed, Passed::Reply(_)));
        log.passed.push(passed);
        drop(log);
        self.passed.send_modify(|count| *count += 1);
    }

    /// Whether a reply or an event may pass. Events pass with the replies before them.
    fn answers(&self, rules: &Rules, is_event: bool) -> bool {
        let replies = self.log().replies;
        let event = is_event && rules.answers > 0 && replies == rules.answers;
        !rules.hold_replies || replies < rules.answers || event
    }

    fn take_refusal(&self, op: OpCode) -> Option<ErrorCode> {
        let mut log = self.log();
        let (code, times) = log.refusals.get_mut(&op)?;
        *times = times.checked_sub(1)?;
        Some(*code)
    }

    /// Whether the connection is to be lost at this request.
    fn take_loss(&self, op: OpCode) -> Option<Loss> {
        let losses = &mut self.log().losses;
        let index = losses.iter().position(|(lost, _)| *lost == op)?;
        Some(losses.remove(index).1)
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        if !shared.rules.borrow().refuse {
            tokio::spawn(relay(client, Arc::clone(&shared)));
        }
    }
}

/// Relays a connection until it ends on either side or is cut.
async fn relay(client: TcpStream, shared: Arc<Shared>) {
    let mut rules = shared.rules.subscribe();
    let cuts = rules.borrow().cuts;
    let relaying = async {
        let server = TcpStream::connect(&shared.target).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let pending = Pending::default();
        tokio::select! {
            result = requests(&shared, &pending, from_client, to_server) => result,
            result = replies(&shared, &pending, from_server, to_client) => result,
        }
    };

    tokio::select! {
        // When one side of a connection ends, both sides are closed.
        _ = relaying => {}
        _ = rules.wait_for(|rules| rules.cuts != cuts) => {}
    }
}

/// The unanswered requests of a connection: their kinds, and whether the connection is lost at the reply.
type Pending = Mutex<HashMap<i32, (OpCode, bool)>>;

async fn requests(
    shared: &Shared,
    pending: &Pending,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> Result<()> {
    let mut input = BytesMut::new();
    let hello = frames::next(&mut from, &mut input).await?;
    passable(shared, |rules| !rules.frozen).await;
    forward(&mut to, &hello).await?;

    loop {
        let frame = frames::next(&mut from, &mut input).await?;
        let mut body = Decoder::new(frame.clone());
        let header = RequestHeader::decode(&mut body)?;
        let op = OpCode::from_code(header.op).context("an unknown op")?;

        let loss = shared.take_loss(op);
        ensure!(loss != Some(Loss::BeforeRequest), "lost before {op:?}");
        let lost = loss == Some(Loss::BeforeReply);
        pending.lock().unwrap_or_else(PoisonError::into_inner).insert(header.xid, (op, lost));
        passable(shared, |rules| !rules.frozen).await;
        if sets_a_watch(op, &mut body)? {
            shared.log().watches += 1;
        }
        shared.note(Passed::Request(op));
        forward(&mut to, &frame).await?;
    }
}

async fn replies(
    shared: &Shared,
    pending: &Pending,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> Result<()> {
    let mut input = BytesMut::new();
    let hello = frames::next(&mut from, &mut input).await?;
    let response = ConnectResponse::decode(&mut Decoder::new(hello.clone()))?;
    if response.session_id != SessionId::NONE {
        shared.log().session = Some((response.session_id, response.password));
    }
    passable(shared, |rules| !rules.frozen && !rules.hold_replies).await;
    forward(&mut to, &hello).await?;

    loop {
        let frame = frames::next(&mut from, &mut input).await?;
        let mut body = Decoder::new(frame.clone());
        let header = ReplyHeader::decode(&mut body)?;
        let is_event = header.xid == xid::NOTIFICATION;
        passable(shared, |rules| !rules.frozen && shared.answers(rules, is_event)).await;

        if is_event {
            let event = WatchEvent::decode(&mut body)?;
            shared.note(Passed::Event(event.kind, event.path));
        } else {
            let request =
                pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&header.xid);
            let (op, lost) = request.context("a reply without a request")?;
            ensure!(!lost, "lost before the reply to {op:?}");
            shared.note(Passed::Reply(op));
            if let Some(error) = shared.take_refusal(op) {
                let refusal = ReplyHeader { error: error.code(), ..header };
                frames::send(&mut to, |out| refusal.encode(out)).await?;
                continue;
            }
            let version = shared.log().version.filter(|_| op == OpCode::GetData);
            if let (Some(version), 0) = (version, header.error) {
                forward(&mut to, &with_version(&frame, version)).await?;
                continue;
            }
        }
        forward(&mut to, &frame).await?;
    }
}

/// Replaces the version in a reply that ends with a stat.
fn with_version(reply: &Bytes, version: i32) -> Bytes {
    // Six fields follow the version: four of four bytes and two of eight bytes.
    let start = reply.len() - (4 * 4 + 2 * 8) - 4;
    let mut changed = BytesMut::from(&reply[..]);
    changed[start..start + 4].copy_from_slice(&version.to_be_bytes());
    changed.freeze()
}

/// Whether a request of a kind that may set a watch sets one.
fn sets_a_watch(op: OpCode, body: &mut Decoder) -> Result<bool> {
    use OpCode::{Exists, GetChildren, GetChildren2, GetData};
    match op {
        Exists | GetChildren | GetChildren2 | GetData => Ok(PathWatchRequest::decode(body)?.watch),
        _ => Ok(false),
    }
}

async fn passable(shared: &Shared, may_pass: impl Fn(&Rules) -> bool) {
    // The sender lives as long as the connection.
    let _ = shared.rules.subscribe().wait_for(|rules| may_pass(rules)).await;
}

async fn forward(to: &mut OwnedWriteHalf, frame: &Bytes) -> Result<()> {
    frames::send(to, |out| out.extend_from_slice(frame)).await
}

/// Resumes a session and closes it; returns whether the server confirms its end.
async fn end_session(target: &str, session_id: SessionId, password: Bytes) -> Result<bool> {
    let mut stream = TcpStream::connect(target).await?;
    let request = ConnectRequest { session_id, password, ..ConnectRequest::new_session(10_000) };
    let mut out = BytesMut::new();
    write_frame(&mut out, |out| request.encode(out));
    write_frame(&mut out, |out| Request::CloseSession.encode(1, out));
    stream.write_all(&out).await?;
    let mut received = Vec::new();
    // The session's own client may resume it in between; then this connection is closed early.
    let _ = stream.read_to_end(&mut received).await;
    let mut received = BytesMut::from(&received[..]);
    let Some(hello) = split_frame(&mut received, MAX_FRAME)? else {
        return Ok(false);
    };
    Ok(ConnectResponse::decode(&mut Decoder::new(hello))?.timeout_ms == 0)
}
