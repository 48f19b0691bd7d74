//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::error::StartError;
use crate::metrics::Counters;
use crate::net::admission::Admission;
use crate::net::conversation::{Hub, converse};
use crate::sockets::pace::Pace;
use crate::sockets::stream::{Accepted, Peer, split_tcp, split_unix};

/// How many connections may wait to be accepted, unless another number is set.
pub(crate) const BACKLOG: u32 = 1024;
/// How long accepting rests when the operating system has run out of something.
const OUT_OF_RESOURCES: Duration = Duration::from_millis(100);

/// Where connections come in.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    #[cfg(feature = "tls")]
    Tls(TcpListener, crate::sockets::tls::CurrentTls),
}

/// Who decides about new connections.
pub(crate) struct Gate {
    pub(crate) admission: Arc<Admission>,
    pub(crate) pace: Pace,
}

/// Listens on a TCP address. To be called within a runtime.
pub(crate) fn bind_tcp(address: SocketAddr, backlog: u32) -> Result<TcpListener, StartError> {
    let bind = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // Else the connections of an earlier engine, still in their last minutes, would block us.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(backlog)
    };
    bind().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken { address },
        _ => StartError::Listen { address, source },
    })
}

/// Accepts connections for as long as the runtime lives.
pub(crate) async fn accept(listener: Listener, gate: Arc<Gate>, hub: Arc<Hub>) {
    loop {
        let (peer, accepted) = match listener.next().await {
            Ok(accepted) => accepted,
            Err(e) if is_of_one_connection(&e) => continue,
            Err(e) => {
                let what = format!("cannot accept connections ({e}): trying until it works");
                hub.complaints.warn("accept", None, &what);
                tokio::time::sleep(OUT_OF_RESOURCES).await;
                continue;
            }
        };
        match gate.admission.admit(peer) {
            Ok(seat) => {
                tokio::spawn(converse(hub.clone(), peer, accepted, seat));
            }
            Err(refusal) => {
                Counters::count(&hub.metrics.events.rejected);
                let what = format!("connection refused: {refusal}");
                hub.complaints.warn("refused", Some(peer), &what);
            }
        }
        // Those that were refused count as well: refusing is work, too.
        let pause = gate.pace.admit(Instant::now());
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

impl Listener {
    async fn next(&self) -> io::Result<(Peer, Accepted)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((Peer::Tcp(address), split_tcp(stream)?))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Peer::Unix, split_unix(stream)))
            }
            #[cfg(feature = "tls")]
            Self::Tls(listener, tls) => {
                let (stream, address) = listener.accept().await?;
                Ok((Peer::Tcp(address), crate::sockets::stream::encrypted(stream, tls.get())?))
            }
        }
    }
}

/// Errors that say nothing about the next connection.
fn is_of_one_connection(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Interrupted
    )
}
