//! Runtime: the environment of a client: time, connections, unique identifiers and the spawning of its task.
//!
//! Programs use `TokioRuntime`. Simulations use their own, in which time is virtual, connections are lost on
//! purpose, identifiers follow from a seed and tasks are paused; see `tests/simulation` and `tests/model`.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;

use lockkeeper_session::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use uuid::Uuid;

use crate::addresses::Addresses;
use crate::clock::Clock;
use crate::connect_string::Host;

/// A boxed future.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A connection of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug> Stream for T {}

/// The environment of a client.
pub trait Runtime: Send + Sync + fmt::Debug {
    /// The current time; see [`Clock`].
    fn now(&self) -> Instant;

    /// Connects to a server, at this address or at any address of its name.
    fn connect<'a>(
        &'a self,
        host: &'a Host,
        address: Option<IpAddr>,
    ) -> Boxed<'a, io::Result<Transport>>;

    /// The addresses of a host's name; empty for a host without a name.
    fn addresses<'a>(&'a self, host: &'a Host) -> Boxed<'a, Vec<IpAddr>> {
        let _ = host;
        Box::pin(async { Vec::new() })
    }

    /// A unique identifier.
    fn unique_id(&self) -> Uuid;

    /// Runs the client's task until it completes.
    fn spawn(&self, task: Boxed<'static, ()>);
}

/// A connection to a server.
#[derive(Debug)]
pub enum Transport {
    /// Over the network.
    Tcp(TcpStream),
    /// On this machine.
    Unix(UnixStream),
    /// Created by another runtime, or encrypted; with the peer's address if there is one.
    Other(Box<dyn Stream>, Option<IpAddr>),
}

impl Transport {
    /// The connection as a trait object.
    pub(crate) fn into_stream(self) -> Box<dyn Stream> {
        match self {
            Self::Tcp(stream) => Box::new(stream),
            Self::Unix(stream) => Box::new(stream),
            Self::Other(stream, _) => stream,
        }
    }

    /// The address of the peer, if it has one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok().map(|peer| peer.ip()),
            Self::Unix(_) => None,
            Self::Other(_, address) => *address,
        }
    }
}

/// The real clock, sockets, random identifiers and tokio tasks.
#[derive(Debug, Default)]
pub(crate) struct TokioRuntime {
    pub(crate) addresses: Addresses,
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Instant {
        Clock.now()
    }

    fn connect<'a>(
        &'a self,
        host: &'a Host,
        address: Option<IpAddr>,
    ) -> Boxed<'a, io::Result<Transport>> {
        Box::pin(async move {
            match host {
                Host::Tcp { name, port } => {
                    self.addresses.connect(name, *port, address).await.map(Transport::Tcp)
                }
                Host::Unix(path) => UnixStream::connect(path).await.map(Transport::Unix),
            }
        })
    }

    fn addresses<'a>(&'a self, host: &'a Host) -> Boxed<'a, Vec<IpAddr>> {
        Box::pin(async move {
            match host {
                Host::Tcp { name, .. } => self.addresses.of(name).await.unwrap_or_default(),
                Host::Unix(_) => Vec::new(),
            }
        })
    }

    fn unique_id(&self) -> Uuid {
        Uuid::new_v4()
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        tokio::spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_identifiers_are_random_and_never_the_same() {
        let runtime = TokioRuntime::default();
        let (one, other) = (runtime.unique_id(), runtime.unique_id());
        assert_ne!(one, other);
        assert_eq!(one.get_version(), Some(uuid::Version::Random));
    }
}
