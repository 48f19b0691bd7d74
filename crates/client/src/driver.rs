//! The task that owns the connection.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::BytesMut;
use lockkeeper_session::{Contact, Disconnect, Instant, Session};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::clock::sleep_towards;
use crate::dial::{Dialer, Tried};
use crate::fault::{Fault, FaultKind};
use crate::runtime::Transport;
use crate::shared::Shared;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum CloseCause {
    #[error(transparent)]
    Session(#[from] Disconnect),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the server closed the connection")]
    Eof,
    #[error(
        "the server closed the connection during the handshake; a server does so when it is full, \
         starting, or quiet after a restore; when its data is older than what this session has seen \
         (the client then starts a new session when the old one has certainly expired); or when it \
         requires TLS"
    )]
    EofInHandshake,
    #[error("{0}")]
    NotZooKeeper(String),
}

impl From<CloseCause> for Fault {
    fn from(ended: CloseCause) -> Self {
        match ended {
            CloseCause::Io(error) => error.into(),
            CloseCause::NotZooKeeper(why) => Self { why, kind: FaultKind::NotZooKeeper },
            _ => Self::transient(ended),
        }
    }
}

/// The errors of servers so far, for a caller that waits for the first connection.
pub(crate) type Failures = watch::Sender<Tried>;

/// A session with a running driver. Without a driver no request is ever answered, so when the driver's
/// runtime has ended, all waiting requests fail.
pub(crate) struct DrivenSession(pub(crate) Arc<Shared>);

impl Drop for DrivenSession {
    fn drop(&mut self) {
        self.0.abandoned();
    }
}

/// Keeps the session connected until it is closed.
pub(crate) async fn drive(driven: DrivenSession, mut dialer: Dialer, failures: Failures) {
    let shared = &*driven.0;
    while shared.read(|session| session.contact()) != Contact::Closed {
        let timing = shared.read(Session::timing);
        let dialed = tokio::select! {
            biased;
            dialed = dialer.dial(timing) => dialed,
            () = keep_time(shared) => break,
        };

        let (host, fault) = match dialed {
            Ok((host, transport)) => {
                tracing::debug!(%host, "connected");
                shared.linked(&host, transport.address());
                let ended = talk(shared, transport, &mut dialer).await;
                match ended {
                    CloseCause::EofInHandshake => shared.refused(),
                    _ => shared.disconnected(),
                }
                match ended {
                    CloseCause::Session(Disconnect::AuthFailed) => {
                        tracing::error!(%host, "a server refused the credentials; the client is closed");
                    }
                    _ => tracing::debug!(%host, %ended, "connection ended"),
                }
                (host, ended.into())
            }
            Err(failure) => failure,
        };

        let (server, why) = (host.to_string(), fault.why.clone());
        let is_news = dialer.failed(host, fault);
        // Each error is logged once, however often the server is tried.
        if is_news && shared.read(|session| session.contact()) != Contact::Closed {
            tracing::warn!(server, why, "no connection to a server");
        }
        failures.send_replace(dialer.tried());
    }
}

/// Handles the session's timeouts while there is no connection. Ends when the session is closed.
async fn keep_time(shared: &Shared) {
    loop {
        let deadline = shared.poll(&mut BytesMut::new());
        if shared.read(|session| session.contact()) == Contact::Closed {
            return;
        }
        tokio::select! {
            biased;
            () = shared.woken() => {}
            () = until(shared, deadline) => {
                // There is no transport to close.
                let _ = shared.timeout();
            }
        }
    }
}

async fn talk(shared: &Shared, transport: Transport, dialer: &mut Dialer) -> CloseCause {
    shared.connected();
    let result = match transport {
        Transport::Tcp(stream) => {
            let (reader, writer) = stream.into_split();
            exchange(shared, reader, writer, dialer).await
        }
        Transport::Unix(stream) => {
            let (reader, writer) = stream.into_split();
            exchange(shared, reader, writer, dialer).await
        }
        Transport::Other(stream, _) => {
            let (reader, writer) = tokio::io::split(stream);
            exchange(shared, reader, writer, dialer).await
        }
    };

    match result {
        Ok(never) => match never {},
        Err(ended) => ended,
    }
}

/// Transfers bytes until the connection ends.
async fn exchange(
    shared: &Shared,
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    dialer: &mut Dialer,
) -> Result<std::convert::Infallible, CloseCause> {
    let (mut input, mut output) = (BytesMut::new(), Output::default());
    let (mut accepted, mut proven) = (false, false);
    loop {
        let deadline = shared.poll(&mut output.bytes);
        input.reserve(READ_SIZE);

        let ready_io = {
            let read = pin!(reader.read_buf(&mut input));
            let write = pin!(output.write(&mut writer));
            let (woken, due) = (pin!(shared.woken()), pin!(until(shared, deadline)));
            Ready::next(read, write, woken, due).await
        };

        if let Some(written) = ready_io.written {
            written?;
        }
        if let Some(read) = ready_io.read {
            if read? == 0 {
                return Err(if accepted { CloseCause::Eof } else { CloseCause::EofInHandshake });
            }
            if let Err(fault) = shared.input(&mut input) {
                return Err(if accepted { fault.into() } else { no_handshake(fault, &input) });
            }
            // A server that accepts the handshake may refuse the watches right after it. Without a pause, it
            // would be asked again as fast as it can answer.
            if !accepted {
                accepted = shared.read(|session| session.contact()) == Contact::Connected;
            } else if !proven {
                proven = true;
                dialer.succeeded();
            }
        }

        if ready_io.due && deadline.is_some_and(|deadline| deadline <= shared.now()) {
            shared.timeout()?;
        }
    }
}

/// What can continue now.
///
/// All ready directions are served in turn: a flood in one direction does not starve the others, and the
/// order is not random, so that a simulation can be repeated.
struct Ready {
    read: Option<io::Result<usize>>,
    written: Option<io::Result<usize>>,
    due: bool,
}

impl Ready {
    async fn next(
        mut read: Pin<&mut impl Future<Output = io::Result<usize>>>,
        mut write: Pin<&mut impl Future<Output = io::Result<usize>>>,
        mut woken: Pin<&mut impl Future<Output = ()>>,
        mut due: Pin<&mut impl Future<Output = ()>>,
    ) -> Self {
        poll_fn(|context| {
            let written = ready(write.as_mut().poll(context));
            let read = ready(read.as_mut().poll(context));
            let woken = woken.as_mut().poll(context).is_ready();
            let due = due.as_mut().poll(context).is_ready();
            match written.is_some() || read.is_some() || woken || due {
                true => Poll::Ready(Self { read, written, due }),
                false => Poll::Pending,
            }
        })
        .await
    }
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// The bytes to write.
#[derive(Debug, Default)]
struct Output {
    bytes: BytesMut,
    /// Whether the writer may hold back bytes: with TLS, written bytes are encrypted and then wait until the
    /// socket accepts them.
    unflushed: bool,
}

impl Output {
    /// Writes some of the bytes, if there are any, and flushes the last ones. Otherwise it is pending
    /// forever. Cancel safe.
    async fn write(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<usize> {
        let mut count = 0;
        if !self.bytes.is_empty() {
            count = writer.write_buf(&mut self.bytes).await?;
            self.unflushed = true;
        }
        if !self.unflushed {
            return pending().await;
        }
        if self.bytes.is_empty() {
            writer.flush().await?;
            self.unflushed = false;
        }
        Ok(count)
    }
}

/// Why the handshake failed. A peer that is not a ZooKeeper server is described by what it sent.
fn no_handshake(fault: Disconnect, input: &[u8]) -> CloseCause {
    match fault {
        Disconnect::Frame(_) => CloseCause::NotZooKeeper(foreign(input)),
        Disconnect::Message(_) => CloseCause::NotZooKeeper(fault.to_string()),
        other => other.into(),
    }
}

fn foreign(answer: &[u8]) -> String {
    let text = answer.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let text: Vec<_> = text.iter().copied().take(MAX_QUOTE).collect();
    match std::str::from_utf8(&text) {
        _ if answer.starts_with(TLS_ALERT) => "it speaks TLS".to_owned(),
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => {
            format!("it sent {text:?}, which is not the ZooKeeper protocol")
        }
        _ => "its reply does not follow the ZooKeeper protocol".to_owned(),
    }
}

/// The first bytes of a TLS alert, which a TLS server sends when it cannot parse the input.
const TLS_ALERT: &[u8] = &[0x15, 0x03];

/// The maximum length of a quoted reply, in bytes.
const MAX_QUOTE: usize = 40;

/// The size of one read, in bytes.
const READ_SIZE: usize = 16 * 1024;

async fn until(shared: &Shared, deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_towards(deadline.since(shared.now())).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use lockkeeper_wire::{
        ConnectResponse, ErrorCode, MAX_FRAME, Record, ReplyHeader, SessionId, Zxid, split_frame,
        write_frame, xid,
    };
    use tokio::io::{BufWriter, duplex};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::client::Client;

    /// A server that accepts every session, finds no node, and refuses to set watches. It closes each
    /// connection after the first reply.
    async fn refuse_watches(listener: TcpListener, connections: Arc<AtomicUsize>) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            connections.fetch_add(1, Ordering::Relaxed);
            // The client may disconnect first.
            let _ = answer_once(stream).await;
        }
    }

    async fn answer_once(mut stream: TcpStream) -> io::Result<()> {
        let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
        next_frame(&mut stream, &mut input).await?;
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 30_000,
            session_id: SessionId(7),
            password: Bytes::from_static(&[0; 16]),
            read_only: Some(false),
        };
        write_frame(&mut output, |out| response.encode(out));
        stream.write_all(&output.split()).await?;
        let request = next_frame(&mut stream, &mut input).await?;
        let xid = i32::from_be_bytes(request[..4].try_into().unwrap());
        let code = match xid {
            xid::SET_WATCHES => ErrorCode::ThrottledOp,
            _ => ErrorCode::NoNode,
        };
        let header = ReplyHeader { xid, zxid: Zxid(1), error: code.code() };
        write_frame(&mut output, |out| header.encode(out));
        stream.write_all(&output).await
    }

    async fn next_frame(stream: &mut TcpStream, input: &mut BytesMut) -> io::Result<Bytes> {
        loop {
            if let Some(frame) = split_frame(input, MAX_FRAME).unwrap() {
                return Ok(frame);
            }
            if stream.read_buf(input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Servers that refused to set the watches were asked again as fast as they could answer, because the
    /// handshake before counted as a success.
    #[tokio::test]
    async fn servers_that_refuse_the_watches_are_asked_with_pauses() {
        let connections = Arc::new(AtomicUsize::new(0));
        let mut servers = Vec::new();
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            servers.push(listener.local_addr().unwrap().to_string());
            tokio::spawn(refuse_watches(listener, connections.clone()));
        }
        let client = Client::connect(&servers.join(",")).await.unwrap();
        let path = lockkeeper_wire::ZnodePath::new("/a").unwrap();
        let (_, _watcher) = client.exists_watched(&path).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let count = connections.load(Ordering::Relaxed);
        assert!((2..60).contains(&count), "{count} connections");
    }

    /// A TLS writer holds back what the socket does not accept. It was not flushed until there was more to
    /// write.
    #[tokio::test]
    async fn what_a_writer_keeps_back_leaves_without_more_to_write() {
        let (end, mut other_end) = duplex(4);
        let mut writer = BufWriter::new(end);
        let mut output = Output { bytes: BytesMut::from(&b"a request"[..]), unflushed: false };
        let mut received = [0; 9];
        let mut read = pin!(other_end.read_exact(&mut received));
        for _ in 0..1_000 {
            // Each turn of the driver polls anew, because other events happen in between.
            tokio::select! {
                biased;
                _ = output.write(&mut writer) => {}
                read = &mut read => return assert_eq!(read.unwrap(), 9),
                () = tokio::task::yield_now() => {}
            }
        }
        panic!("the bytes stay in the writer");
    }

    #[test]
    fn strangers_are_named_by_what_they_say() {
        for (answer, part) in [
            (&b"HTTP/1.1 400 Bad Request\r\nServer: x"[..], "\"HTTP/1.1 400 Bad Request\""),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "\"SSH-2.0-OpenSSH_9.2\""),
            (&[0x15, 3, 3, 0, 2, 2, 70], "speaks TLS"),
            (&[0xff, 1, 2, 3], "does not follow the ZooKeeper protocol"),
            (b"\x1b[2J-stranger", "its reply does not"),
        ] {
            let why = foreign(answer);
            assert!(why.contains(part), "{answer:?}: {why}");
        }
    }
}
