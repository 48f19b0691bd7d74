//! TCP and Unix sockets behind one pair of types.
//!
//! A transport with a state of its own between the bytes and the socket, such as TLS, becomes a
//! third variant: both halves are only ever used through the functions here.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::BytesMut;
use rustix::net::{Shutdown, shutdown};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream, tcp, unix};

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    Unix,
}

impl Peer {
    /// The address, without the port.
    pub(crate) fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip().to_canonical()),
            Self::Unix => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix socket"),
        }
    }
}

/// The half that its connection's task reads.
pub(crate) enum Incoming {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

impl Incoming {
    /// Waits for bytes and appends them; 0 means that the peer will send no more. Cancel-safe.
    pub(crate) async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.read_buf(buffer).await,
            Self::Unix(half) => half.read_buf(buffer).await,
        }
    }
}

/// The half that any thread may write.
pub(crate) enum Outlet {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

impl Outlet {
    /// Waits until a write may get on.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(half) => half.writable().await,
            Self::Unix(half) => half.writable().await,
        }
    }

    /// Writes what the socket takes at once.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_write(bytes),
            Self::Unix(half) => half.try_write(bytes),
        }
    }

    /// Ends one direction or both, without waiting; the peer sees it, and so does our reader.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        // The only error is that the peer was faster.
        let _ = match self {
            Self::Tcp(half) => shutdown(half.as_ref(), how),
            Self::Unix(half) => shutdown(half.as_ref(), how),
        };
    }
}

/// Splits a TCP connection. Replies leave at once: waiting to fill a packet would cost a client
/// that is waiting for a lock 40 ms.
pub(crate) fn split_tcp(stream: TcpStream) -> io::Result<(Incoming, Outlet)> {
    stream.set_nodelay(true)?;
    let (incoming, outlet) = stream.into_split();
    Ok((Incoming::Tcp(incoming), Outlet::Tcp(outlet)))
}

/// Splits a Unix connection.
pub(crate) fn split_unix(stream: UnixStream) -> (Incoming, Outlet) {
    let (incoming, outlet) = stream.into_split();
    (Incoming::Unix(incoming), Outlet::Unix(outlet))
}
