//! TCP and Unix sockets, and TLS over TCP, behind one pair of types.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::BytesMut;
use rustix::net::{Shutdown, shutdown};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream, tcp, unix};

#[cfg(feature = "tls")]
use crate::sockets::tls::{Tls, TlsIncoming, TlsOutlet};

/// The origin of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    Unix {
        /// The user, as reported by the operating system.
        uid: u32,
    },
}

impl Peer {
    /// The address, without the port.
    pub(crate) fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip().to_canonical()),
            Self::Unix { .. } => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix { uid } => write!(f, "unix socket of the user {uid}"),
        }
    }
}

/// The half that the connection's task reads.
pub(crate) enum Incoming {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    #[cfg(feature = "tls")]
    Tls(TlsIncoming),
}

impl Incoming {
    /// Waits for bytes and appends them; 0 means that the peer will send no more. Cancel-safe.
    pub(crate) async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.read_buf(buffer).await,
            Self::Unix(half) => half.read_buf(buffer).await,
            #[cfg(feature = "tls")]
            Self::Tls(half) => half.read(buffer).await,
        }
    }
}

/// The half to which any thread may write.
pub(crate) enum Outlet {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    #[cfg(feature = "tls")]
    Tls(TlsOutlet),
}

impl Outlet {
    /// Waits until a write may succeed.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(half) => half.writable().await,
            Self::Unix(half) => half.writable().await,
            #[cfg(feature = "tls")]
            Self::Tls(half) => half.writable().await,
        }
    }

    /// Writes as much as the socket accepts at once.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_write(bytes),
            Self::Unix(half) => half.try_write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(half) => half.try_write(bytes),
        }
    }

    /// Whether bytes that count as written still wait for the socket.
    pub(crate) fn has_backlog(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            #[cfg(feature = "tls")]
            Self::Tls(half) => half.has_backlog(),
        }
    }

    /// Sends such bytes without waiting.
    pub(crate) fn try_flush(&self) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(half) => half.try_flush(),
        }
    }

    /// Ends one or both directions, without waiting; the peer and our reader notice it.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        // The only error is that the peer was faster.
        let _ = match self {
            Self::Tcp(half) => shutdown(half.as_ref(), how),
            Self::Unix(half) => shutdown(half.as_ref(), how),
            #[cfg(feature = "tls")]
            Self::Tls(half) => return half.shutdown(how),
        };
    }
}

/// A newly accepted connection.
pub(crate) enum Accepted {
    Open(Opened),
    /// Before its handshake.
    #[cfg(feature = "tls")]
    Tls(TcpStream, Tls),
}

/// A connection that is ready for the protocol.
pub(crate) struct Opened {
    pub(crate) incoming: Incoming,
    pub(crate) outlet: Outlet,
    /// The subject of the client's certificate, if it has presented one.
    pub(crate) subject: Option<String>,
}

impl Accepted {
    /// Replies are sent at once: waiting to fill a packet would delay a client that waits for a lock by 40 ms.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (incoming, outlet) = stream.into_split();
        Ok(Self::plain(Incoming::Tcp(incoming), Outlet::Tcp(outlet)))
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls(stream: TcpStream, tls: Tls) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tls(stream, tls))
    }

    pub(crate) fn unix(stream: UnixStream) -> Self {
        let (incoming, outlet) = stream.into_split();
        Self::plain(Incoming::Unix(incoming), Outlet::Unix(outlet))
    }

    fn plain(incoming: Incoming, outlet: Outlet) -> Self {
        Self::Open(Opened { incoming, outlet, subject: None })
    }

    pub(crate) fn is_tls(&self) -> bool {
        !matches!(self, Self::Open(_))
    }

    /// Waits until the client has sent something, if the connection begins with a handshake.
    pub(crate) async fn begins(&self) -> io::Result<()> {
        match self {
            Self::Open(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(stream, _) => stream.peek(&mut [0]).await.map(drop),
        }
    }

    /// Prepares the connection for the first byte of the protocol. A handshake reports each number of bytes that it has
    /// read, and ends with the error if more is not allowed.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables))]
    pub(crate) async fn open(
        self,
        on_read: impl Fn(usize) -> io::Result<()> + Send + Unpin,
    ) -> io::Result<Opened> {
        match self {
            Self::Open(opened) => Ok(opened),
            #[cfg(feature = "tls")]
            Self::Tls(stream, tls) => {
                let (incoming, outlet, subject) = tls.accept(stream, on_read).await?;
                let (incoming, outlet) = (Incoming::Tls(incoming), Outlet::Tls(outlet));
                Ok(Opened { incoming, outlet, subject })
            }
        }
    }
}
