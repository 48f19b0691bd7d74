//! Listening sockets: opened according to the plan, and accepting connections within the limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, UnixListener};

use super::conversation::serve_connection;
use crate::error::StartError;
use crate::settings::plan::Plan;
use crate::shared::{Addresses, Shared};
use crate::sockets::listen::bind_tcp;
use crate::sockets::pace::Pace;
use crate::sockets::stream::{Accepted, Peer};
#[cfg(feature = "tls")]
use crate::sockets::tls::CurrentTls;
use crate::sockets::unix::{PRIVATE, SocketFile, listen_at};

/// How long accepting pauses when the operating system has run out of a resource.
const OUT_OF_RESOURCES: Duration = Duration::from_millis(100);

/// A listening socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    #[cfg(feature = "tls")]
    Tls(TcpListener, CurrentTls),
}

/// The listening sockets for clients and monitors.
#[derive(Default)]
pub(crate) struct BoundSockets {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) metrics: Option<TcpListener>,
    pub(crate) addresses: Addresses,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<CurrentTls>,
    /// The file of the Unix socket.
    pub(crate) socket: Option<SocketFile>,
}

impl BoundSockets {
    pub(crate) fn open(plan: &mut Plan) -> Result<Self, StartError> {
        let mut sockets = Self::default();
        let backlog = plan.limits.backlog;
        for &address in &plan.listen {
            let (listener, bound) = sockets.listen(address, backlog)?;
            sockets.addresses.plain.push(bound);
            sockets.listeners.push(Listener::Tcp(listener));
        }

        #[cfg(feature = "tls")]
        // Taken out of the plan, so that a key that is replaced later does not remain there.
        if let Some((addresses, tls)) = plan.tls.take() {
            let tls = CurrentTls::new(tls);
            for address in addresses {
                let (listener, bound) = sockets.listen(address, backlog)?;
                sockets.addresses.tls.push(bound);
                sockets.listeners.push(Listener::Tls(listener, tls.clone()));
            }
            sockets.tls = Some(tls);
        }

        if let Some(address) = plan.metrics_address {
            let (listener, bound) = sockets.listen(address, backlog)?;
            sockets.addresses.metrics = Some(bound);
            sockets.metrics = Some(listener);
        }
        if let Some(path) = &plan.unix_socket {
            let mode = plan.unix_socket_mode.unwrap_or(PRIVATE);
            let (listener, file) = listen_at(path, mode, backlog)?;
            sockets.addresses.unix = Some(file.path().to_path_buf());
            sockets.listeners.push(Listener::Unix(listener));
            sockets.socket = Some(file);
        }
        Ok(sockets)
    }

    fn listen(
        &self,
        address: SocketAddr,
        backlog: u32,
    ) -> Result<(TcpListener, SocketAddr), StartError> {
        let listener = bind_tcp(address, backlog).map_err(|error| match error {
            StartError::PortTaken { address } if self.has(address) => {
                StartError::ListenTwice { address }
            }
            error => error,
        })?;
        let bound = listener.local_addr();
        let bound = bound.map_err(|source| StartError::Listen { address, source })?;
        Ok((listener, bound))
    }

    /// Whether this engine already listens there. The wildcard address includes every address of the machine.
    fn has(&self, wanted: SocketAddr) -> bool {
        let overlaps = |own: &SocketAddr| {
            let is_any = own.ip().is_unspecified() || wanted.ip().is_unspecified();
            own.port() == wanted.port() && (is_any || own.ip() == wanted.ip())
        };
        self.addresses.plain.iter().chain(&self.addresses.tls).any(overlaps)
    }
}

/// Accepts connections while the runtime runs.
pub(crate) async fn accept(listener: Listener, pace: Arc<Pace>, shared: Arc<Shared>) {
    loop {
        let (peer, accepted) = match listener.next().await {
            Ok(accepted) => accepted,
            Err(e) if is_of_one_connection(&e) => continue,
            Err(e) => {
                let what = format!("cannot accept connections ({e}): trying again");
                shared.log_limiter.warn("accept", None, &what);
                tokio::time::sleep(OUT_OF_RESOURCES).await;
                continue;
            }
        };

        match shared.admission.admit(peer) {
            Ok(slot) => {
                tokio::spawn(serve_connection(shared.clone(), peer, accepted, slot));
            }
            Err(refusal) => {
                shared.metrics.counters.rejected.add(1);
                let what = format!("connection refused: {refusal}");
                shared.log_limiter.warn("refused", Some(peer), &what);
            }
        }

        // Refused connections count too, because a refusal takes time.
        let pause = pace.admit(Instant::now());
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
                Ok((Peer::Tcp(address), Accepted::tcp(stream)?))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                Ok((Peer::Unix { uid }, Accepted::unix(stream)))
            }
            #[cfg(feature = "tls")]
            Self::Tls(listener, tls) => {
                let (stream, address) = listener.accept().await?;
                Ok((Peer::Tcp(address), Accepted::tls(stream, tls.get())?))
            }
        }
    }
}

/// Errors that concern only one connection.
fn is_of_one_connection(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Interrupted
    )
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::io::Errno;
    use rustix::net::{SocketAddrUnix, connect};
    use tempfile::TempDir;
    use tokio::net::UnixSocket;

    use super::*;

    /// Symptom: the backlog of a Unix socket did not have the configured length. Seen to fail that way.
    #[tokio::test]
    async fn e45_as_many_wait_at_a_unix_socket_as_its_backlog_says() {
        let dir = TempDir::new().unwrap();
        for backlog in [1, 7] {
            let path = dir.path().join(format!("{backlog}.sock"));
            let mut plan = Plan { unix_socket: Some(path.clone()), ..Plan::default() };
            plan.limits.backlog = backlog;
            let _nobody_accepts = BoundSockets::open(&mut plan).unwrap();

            let address = SocketAddrUnix::new(&path).unwrap();
            let mut waiting = Vec::new();
            let refusal = loop {
                let socket = UnixSocket::new_stream().unwrap();
                match connect(&socket, &address) {
                    Ok(()) => waiting.push(socket),
                    Err(e) => break e,
                }
                assert!(waiting.len() < 100, "the backlog has room");
            };
            // The system allows one more.
            assert_eq!((refusal, waiting.len()), (Errno::AGAIN, backlog as usize + 1));
        }
    }
}
