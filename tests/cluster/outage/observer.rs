//! A plain client that finds out when a service commits writes again.
//!
//! It shares no code with our sessions: it speaks the protocol by hand, with a new connection and a
//! new session for each attempt, and knows nothing of what went before.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use lockkeeper_testkit::clock;
use lockkeeper_testkit::network::Host;
use lockkeeper_wire::{
    AclList, ConnectRequest, ConnectResponse, CreateMode, CreateRequest, Decoder, MAX_FRAME,
    Record, ReplyHeader, Request, split_frame, write_frame,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

/// Longer than a write takes that will be answered at all.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(2);

/// How much later than the service itself the observer may be.
const PAUSE: Duration = Duration::from_millis(20);

/// The session of an attempt that failed must not stay for long.
const SESSION_MS: i32 = 4_000;

/// Where a server listens.
#[derive(Clone, Debug)]
pub(crate) enum Listener {
    /// It is reached from this host.
    Tcp(Host, SocketAddrV4),
    Unix(PathBuf),
}

/// Waits until any of the servers has committed a write that was sent after the call; returns the
/// time (of `clock::now`) of the answer.
pub(crate) async fn commits(listeners: Vec<Listener>, limit: Duration) -> Result<Duration> {
    let mut observers = JoinSet::new();
    for listener in listeners {
        observers.spawn(async move { commits_through(&listener, limit).await });
    }
    let mut failure = None;
    while let Some(observed) = observers.join_next().await {
        match observed? {
            Ok(time) => return Ok(time),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.context("there is no server to observe")?)
}

async fn commits_through(listener: &Listener, limit: Duration) -> Result<Duration> {
    let start = Instant::now();
    loop {
        match tokio::time::timeout(ATTEMPT_LIMIT, attempt(listener)).await {
            Ok(Ok(time)) => return Ok(time),
            Ok(Err(error)) if start.elapsed() > limit => {
                return Err(error.context(format!("{listener:?} commits nothing after {limit:?}")));
            }
            Err(_) if start.elapsed() > limit => bail!("{listener:?} is silent after {limit:?}"),
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn attempt(listener: &Listener) -> Result<Duration> {
    match listener {
        Listener::Tcp(host, address) => {
            let (host, address) = (host.clone(), *address);
            let dial = tokio::task::spawn_blocking(move || host.connect(address));
            let stream = dial.await??;
            stream.set_nonblocking(true)?;
            write(TcpStream::from_std(stream)?).await
        }
        Listener::Unix(path) => write(UnixStream::connect(path).await?).await,
    }
}

/// Makes a session and a node, and returns when the node was committed. Ends the session, which
/// removes the node, without waiting for the answer.
async fn write(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<Duration> {
    let mut out = BytesMut::new();
    let create = Request::Create(CreateRequest {
        path: "/observed-".to_owned(),
        data: Bytes::new().into(),
        acl: AclList::OPEN,
        flags: CreateMode::EphemeralSequential.flags(),
    });
    write_frame(&mut out, |out| ConnectRequest::new_session(SESSION_MS).encode(out));
    write_frame(&mut out, |out| create.encode(1, out));
    write_frame(&mut out, |out| Request::CloseSession.encode(2, out));
    stream.write_all(&out).await?;

    let mut input = BytesMut::new();
    let welcome = frame(&mut stream, &mut input).await?;
    let welcome = ConnectResponse::decode(&mut Decoder::new(welcome))?;
    ensure!(welcome.timeout_ms > 0, "no session");
    let reply = ReplyHeader::decode(&mut Decoder::new(frame(&mut stream, &mut input).await?))?;
    ensure!(reply.error == 0, "the server refuses a node: error {}", reply.error);
    Ok(clock::now())
}

async fn frame(stream: &mut (impl AsyncRead + Unpin), input: &mut BytesMut) -> Result<Bytes> {
    loop {
        if let Some(frame) = split_frame(input, MAX_FRAME)? {
            return Ok(frame);
        }
        ensure!(stream.read_buf(input).await? > 0, "the server has closed the connection");
    }
}
