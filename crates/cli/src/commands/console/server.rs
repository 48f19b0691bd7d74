//! The connections: how many there are, how long they take, and where they come from.

use std::fmt;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How many connections there are at once.
const MOST_CONNECTIONS: usize = 128;

/// How long the head of a request may take, and how long a connection stays without one.
const HEAD_LIMIT: Duration = Duration::from_secs(15);

/// How many bytes the head of a request has, and how much of an answer waits for its reader.
const MOST_HEAD: usize = 16 * 1024;

/// The pause after a connection that could not be accepted, as when the process has too many files open.
const PAUSE: Duration = Duration::from_millis(100);

/// Where connections come in.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The address at which it arrived; `None` at a Unix socket.
    pub(super) arrived_at: Option<IpAddr>,
    /// Where it is from.
    pub(super) from: Origin,
}

/// Where a connection comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Address(IpAddr),
    User(u32),
    Unknown,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::User(uid) => write!(f, "user {uid} of this machine"),
            Self::Unknown => write!(f, "unknown"),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Answers requests until it is dropped, and with it all connections.
pub(super) async fn serve(listener: &Listener, pages: Router) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return pending().await };
        while connections.try_join_next().is_some() {}
        let accepted = match listener {
            Listener::Tcp(listener) => accept_tcp(listener, &pages, &mut connections, place).await,
            Listener::Unix(listener, _) => {
                accept_unix(listener, &pages, &mut connections, place).await
            }
        };
        if accepted.is_err() {
            sleep(PAUSE).await;
        }
    }
}

type Place = tokio::sync::OwnedSemaphorePermit;

async fn accept_tcp(
    listener: &TcpListener,
    pages: &Router,
    connections: &mut JoinSet<()>,
    place: Place,
) -> io::Result<()> {
    let (stream, address) = listener.accept().await?;
    let _ = stream.set_nodelay(true);
    let arrived_at = Some(stream.local_addr()?.ip());
    let peer = Peer { arrived_at, from: Origin::Address(address.ip()) };
    connections.spawn(answer(stream, peer, pages.clone(), place));
    Ok(())
}

async fn accept_unix(
    listener: &UnixListener,
    pages: &Router,
    connections: &mut JoinSet<()>,
    place: Place,
) -> io::Result<()> {
    let (stream, _) = listener.accept().await?;
    let from = stream.peer_cred().map_or(Origin::Unknown, |peer| Origin::User(peer.uid()));
    connections.spawn(answer(stream, Peer { arrived_at: None, from }, pages.clone(), place));
    Ok(())
}

/// Answers the requests of one connection.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    pages: Router,
    _place: Place,
) {
    let pages = pages.layer(axum::Extension(peer));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages));
    // What a client does wrong ends its connection alone.
    let _ = served.await;
}
