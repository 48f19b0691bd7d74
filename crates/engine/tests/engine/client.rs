//! A minimal client that works on the bytes of the protocol. It blocks, which must not disturb the engine, even if both
//! share a process.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lockkeeper_engine::{Engine, SessionId, Zxid};
use lockkeeper_wire::{
    Acl, AddWatchMode, AddWatchRequest, AuthRequest, CheckRequest, ConnectRequest, ConnectResponse,
    CreateMode, CreateRequest, Decoder, DeleteRequest, EventKind, Op, PASSWORD_LEN,
    PathWatchRequest, Permissions, Record, ReplyHeader, Request, Response, WatchEvent, split_frame,
    write_frame, xid,
};

/// A session timeout that is longer than most tests.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// Longer than any successful step; a test that reaches it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const MAX_REPLY: usize = 64 * 1024 * 1024;

/// Waits for a state that is not notified.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The answer to a four-letter word.
pub(crate) fn word(engine: &Engine, word: &str) -> String {
    word_of(&engine.connect_string(), word)
}

fn word_of(connect: &str, word: &str) -> String {
    let mut client = Client::raw_to(connect);
    client.send_bytes(word.as_bytes());
    String::from_utf8(client.rest()).unwrap()
}

/// A value of `mntr`, which the engine must answer.
pub(crate) fn number(engine: &Engine, name: &str) -> usize {
    number_of(&engine.connect_string(), name)
}

pub(crate) fn number_of(connect: &str, name: &str) -> usize {
    let text = word_of(connect, "mntr");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

pub(crate) trait Stream: Read + Write + Send {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;
    fn half_close(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_nodelay(true)?;
        self.set_read_timeout(Some(timeout))
    }

    fn half_close(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))
    }

    fn half_close(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// A connection, before or after its handshake.
pub(crate) struct Client {
    stream: Box<dyn Stream>,
    buffer: BytesMut,
    next_xid: i32,
    pub(crate) session: SessionId,
    password: Bytes,
}

/// A message from the server after the handshake.
#[derive(Debug)]
pub(crate) enum Incoming {
    Reply(ReplyHeader, Decoder),
    Event(WatchEvent),
}

/// A session to resume.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub(crate) session: SessionId,
    pub(crate) password: Bytes,
}

impl Client {
    /// A connection without a handshake.
    pub(crate) fn raw(engine: &Engine) -> Self {
        Self::raw_to(&engine.connect_string())
    }

    pub(crate) fn raw_to(connect: &str) -> Self {
        let stream: Box<dyn Stream> = match connect.strip_prefix("unix:") {
            Some(path) => Box::new(UnixStream::connect(path).unwrap()),
            None => Box::new(TcpStream::connect(connect).unwrap()),
        };
        Self::over(stream)
    }

    /// A connection that was made in another way.
    pub(crate) fn over(stream: Box<dyn Stream>) -> Self {
        stream.set_timeout(PATIENCE).unwrap();
        Self {
            stream,
            buffer: BytesMut::new(),
            next_xid: 1,
            session: SessionId::NONE,
            password: Bytes::from_static(&[0; PASSWORD_LEN]),
        }
    }

    /// A new session with this timeout.
    pub(crate) fn connect(engine: &Engine, timeout: Duration) -> Self {
        Self::connect_to(&engine.connect_string(), timeout)
    }

    pub(crate) fn connect_to(connect: &str, timeout: Duration) -> Self {
        let mut client = Self::raw_to(connect);
        let response = client.handshake(timeout).unwrap();
        assert_ne!(response.timeout_ms, 0, "refused");
        client
    }

    /// Resumes the session of `ticket`; the server's answer shows whether it still exists.
    pub(crate) fn resume(
        engine: &Engine,
        ticket: &Ticket,
        timeout: Duration,
    ) -> (Self, ConnectResponse) {
        let mut client = Self::raw(engine);
        client.take_up(ticket);
        let response = client.handshake(timeout).unwrap();
        (client, response)
    }

    /// Makes the next handshake resume this session.
    pub(crate) fn take_up(&mut self, ticket: &Ticket) {
        self.session = ticket.session;
        self.password = ticket.password.clone();
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket { session: self.session, password: self.password.clone() }
    }

    pub(crate) fn handshake(&mut self, timeout: Duration) -> io::Result<ConnectResponse> {
        self.send_handshake(timeout);
        let response = ConnectResponse::decode(&mut Decoder::new(self.frame()?)).unwrap();
        self.session = response.session_id;
        self.password = response.password.clone();
        Ok(response)
    }

    /// Whether the handshake fails.
    pub(crate) fn handshake_fails(&mut self, timeout: Duration) -> bool {
        let request = self.connect_request(timeout);
        self.stream.write_all(&request).is_err() || self.frame().is_err()
    }

    pub(crate) fn send_handshake(&mut self, timeout: Duration) {
        let request = self.connect_request(timeout);
        self.send_bytes(&request);
    }

    fn connect_request(&self, timeout: Duration) -> BytesMut {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: Zxid(0),
            timeout_ms: timeout.as_millis().try_into().unwrap(),
            session_id: self.session,
            password: self.password.clone(),
            read_only: Some(false),
        };
        let mut out = BytesMut::new();
        write_frame(&mut out, |out| request.encode(out));
        out
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends bytes; an error if the connection ends or blocks.
    pub(crate) fn try_send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Ends the client's side only.
    pub(crate) fn half_close(&self) {
        self.stream.half_close().unwrap();
    }

    /// Sends requests in one write, and returns their xids.
    pub(crate) fn send(&mut self, requests: &[Request]) -> Vec<i32> {
        let mut out = BytesMut::new();
        let xids = requests.iter().map(|request| self.put(request, &mut out)).collect();
        self.send_bytes(&out);
        xids
    }

    /// Sends requests; `false` if the connection has ended.
    pub(crate) fn try_send(&mut self, requests: &[Request]) -> bool {
        let mut out = BytesMut::new();
        for request in requests {
            self.put(request, &mut out);
        }
        self.stream.write_all(&out).is_ok()
    }

    fn put(&mut self, request: &Request, out: &mut BytesMut) -> i32 {
        let xid = request.reserved_xid().unwrap_or(self.next_xid);
        self.next_xid += 1;
        write_frame(out, |out| request.encode(xid, out));
        xid
    }

    /// The next frame; an error if the connection ends instead.
    pub(crate) fn frame(&mut self) -> io::Result<Bytes> {
        loop {
            if let Some(frame) = split_frame(&mut self.buffer, MAX_REPLY).unwrap() {
                return Ok(frame);
            }
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// Reads and discards up to this many bytes; returns how many there were.
    pub(crate) fn take(&mut self, bytes: usize) -> usize {
        self.stream.read(&mut vec![0; bytes]).unwrap()
    }

    /// Reads everything until the server closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => rest,
            Err(e) => panic!("the connection did not end: {e}"),
        }
    }

    /// Whether no data arrives for a moment.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.stream.set_timeout(Duration::from_millis(50)).unwrap();
        let result = self.frame();
        self.stream.set_timeout(PATIENCE).unwrap();
        matches!(result, Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }

    pub(crate) fn incoming(&mut self) -> io::Result<Incoming> {
        let mut input = Decoder::new(self.frame()?);
        let header = ReplyHeader::decode(&mut input).unwrap();
        Ok(match header.xid {
            xid::NOTIFICATION => Incoming::Event(WatchEvent::decode(&mut input).unwrap()),
            _ => Incoming::Reply(header, input),
        })
    }

    /// The next reply, which must not be an event.
    pub(crate) fn reply(&mut self) -> io::Result<(ReplyHeader, Decoder)> {
        match self.incoming()? {
            Incoming::Reply(header, body) => Ok((header, body)),
            Incoming::Event(event) => panic!("an event came first: {event:?}"),
        }
    }

    /// The next event, which must not be a reply.
    pub(crate) fn event(&mut self) -> (EventKind, String) {
        match self.incoming().unwrap() {
            Incoming::Event(event) => (event.kind, event.path),
            Incoming::Reply(header, _) => panic!("a reply came first: {header:?}"),
        }
    }

    /// One request and its reply: the body, or the error code.
    pub(crate) fn call(&mut self, request: Request) -> Result<Response, i32> {
        let xid = self.send(std::slice::from_ref(&request))[0];
        let (header, mut body) = self.reply().unwrap();
        assert_eq!(header.xid, xid);
        match header.error {
            0 => Ok(Response::decode(request.op(), &mut body).unwrap()),
            error => Err(error),
        }
    }

    /// Many requests at once, and their replies, all without an error and in order.
    pub(crate) fn call_all(&mut self, requests: &[Request]) {
        for xid in self.send(requests) {
            let (header, _) = self.reply().unwrap();
            assert_eq!((header.xid, header.error), (xid, 0));
        }
    }

    /// Creates a persistent node with this many bytes of data.
    pub(crate) fn create_large(&mut self, path: &str, bytes: usize) {
        let data = Bytes::from(vec![7; bytes]);
        self.call(create_with(path, CreateMode::Persistent, data)).unwrap();
    }

    /// Creates a node, and returns its path.
    pub(crate) fn create(&mut self, path: &str, mode: CreateMode) -> Result<String, i32> {
        match self.call(create(path, mode))? {
            Response::Path(path) => Ok(path),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn exists(&mut self, path: &str) -> bool {
        match self.call(exists(path, false)) {
            Ok(_) => true,
            Err(-101) => false,
            Err(error) => panic!("error {error}"),
        }
    }

    /// The names of a node's children.
    pub(crate) fn children(&mut self, path: &str) -> Vec<String> {
        match self.call(children(path)).unwrap() {
            Response::Names(names) => names,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn ping(&mut self) {
        self.call(Request::Ping).unwrap();
    }
}

pub(crate) fn create(path: &str, mode: CreateMode) -> Request {
    create_with(path, mode, Bytes::from_static(b"data"))
}

pub(crate) fn create_with(path: &str, mode: CreateMode, data: Bytes) -> Request {
    Request::Create(CreateRequest { data: data.into(), flags: mode.flags(), ..persistent(path) })
}

/// The operation that creates a persistent node, for transactions.
pub(crate) fn create_op(path: &str) -> Op {
    Op::Create(persistent(path))
}

/// The request that creates a persistent node with open access.
pub(crate) fn persistent(path: &str) -> CreateRequest {
    CreateRequest {
        path: path.to_owned(),
        data: Bytes::from_static(b"data").into(),
        acl: Acl::world(Permissions::ALL).into(),
        flags: CreateMode::Persistent.flags(),
    }
}

/// An access control list for one user.
pub(crate) fn only(permissions: Permissions, scheme: &str, id: &str) -> Acl {
    Acl { permissions, scheme: scheme.to_owned(), id: id.to_owned() }
}

pub(crate) fn delete(path: &str) -> Request {
    Request::Delete(DeleteRequest { path: path.to_owned(), version: -1 })
}

pub(crate) fn delete_op(path: &str) -> Op {
    Op::Delete(DeleteRequest { path: path.to_owned(), version: -1 })
}

/// A transaction of this many checks.
pub(crate) fn checks(count: usize) -> Request {
    checks_of("/", count)
}

/// A transaction of this many checks of this node.
pub(crate) fn checks_of(path: &str, count: usize) -> Request {
    Request::Multi(vec![Op::Check(CheckRequest { path: path.to_owned(), version: -1 }); count])
}

pub(crate) fn children(path: &str) -> Request {
    Request::GetChildren(PathWatchRequest { path: path.to_owned(), watch: false })
}

/// Sets a persistent recursive watch.
pub(crate) fn watch_below(path: &str) -> Request {
    let mode = AddWatchMode::PersistentRecursive.code();
    Request::AddWatch(AddWatchRequest { path: path.to_owned(), mode })
}

/// Presents credentials, such as `user:password` for the scheme `digest`.
pub(crate) fn auth(scheme: &str, credentials: &str) -> Request {
    let auth = Bytes::from(credentials.to_owned());
    Request::Auth(AuthRequest { kind: 0, scheme: scheme.to_owned(), auth })
}

pub(crate) fn exists(path: &str, watch: bool) -> Request {
    Request::Exists(PathWatchRequest { path: path.to_owned(), watch })
}

pub(crate) fn get_data(path: &str) -> Request {
    Request::GetData(PathWatchRequest { path: path.to_owned(), watch: false })
}
