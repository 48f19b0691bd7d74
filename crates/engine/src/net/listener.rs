//! Listening sockets: opened as the plan says, and accepted from within the limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, UnixListener};

use super::conversation::converse;
use super::hub::Hub;
use crate::connection::admission::Admission;
use crate::error::StartError;
use crate::metrics::Counters;
use crate::settings::limits::Limits;
use crate::settings::plan::Plan;
use crate::sockets::listen::bind_tcp;
use crate::sockets::pace::Pace;
use crate::sockets::stream::{Accepted, Peer, split_tcp, split_unix};
#[cfg(feature = "tls")]
use crate::sockets::tls::CurrentTls;
use crate::sockets::unix::{PRIVATE, SocketFile, listen_at};

/// How long accepting rests when the operating system has run out of something.
const OUT_OF_RESOURCES: Duration = Duration::from_millis(100);

/// Where connections come in.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    #[cfg(feature = "tls")]
    Tls(TcpListener, CurrentTls),
}

/// The sockets that clients come in by.
pub(crate) struct BoundSockets {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) addresses: Vec<SocketAddr>,
    /// Where TLS is spoken.
    pub(crate) secure: Vec<SocketAddr>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<CurrentTls>,
    pub(crate) socket: Option<SocketFile>,
    /// Where monitors fetch the metrics.
    pub(crate) metrics: Option<(TcpListener, SocketAddr)>,
}

impl BoundSockets {
    pub(crate) fn open(plan: &mut Plan) -> Result<Self, StartError> {
        let mut sockets = Self {
            listeners: Vec::new(),
            addresses: Vec::new(),
            secure: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
            socket: None,
            metrics: None,
        };

        for &address in &plan.listen {
            let (listener, bound) = sockets.listen(address, plan.limits.backlog)?;
            sockets.addresses.push(bound);
            sockets.listeners.push(Listener::Tcp(listener));
        }
        #[cfg(feature = "tls")]
        // Taken out: a key that is replaced later does not stay in the plan.
        if let Some((addresses, tls)) = plan.tls.take() {
            let tls = CurrentTls::new(tls);
            for address in addresses {
                let (listener, bound) = sockets.listen(address, plan.limits.backlog)?;
                sockets.secure.push(bound);
                sockets.listeners.push(Listener::Tls(listener, tls.clone()));
            }
            sockets.tls = Some(tls);
        }

        if let Some(address) = plan.metrics_address {
            sockets.metrics = Some(sockets.listen(address, plan.limits.backlog)?);
        }
        if let Some(path) = &plan.unix_socket {
            let (listener, file) = listen_at(path, plan.unix_socket_mode.unwrap_or(PRIVATE))?;
            let listener =
                UnixListener::from_std(listener).map_err(StartError::refused("a socket"))?;
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

    /// Whether it is this engine that listens there. Every address of the machine stands for each.
    fn has(&self, wanted: SocketAddr) -> bool {
        let overlaps = |own: &SocketAddr| {
            let is_any = own.ip().is_unspecified() || wanted.ip().is_unspecified();
            own.port() == wanted.port() && (is_any || own.ip() == wanted.ip())
        };
        self.addresses.iter().chain(&self.secure).any(overlaps)
    }
}

/// Who decides about new connections.
pub(crate) struct Gate {
    admission: Arc<Admission>,
    pace: Pace,
}

impl Gate {
    pub(crate) fn new(admission: Arc<Admission>, limits: &Limits) -> Self {
        Self { admission, pace: Pace::per_second(limits.connection_rate) }
    }
}

/// Accepts connections for as long as the runtime lives.
pub(crate) async fn accept(listener: Listener, gate: Arc<Gate>, hub: Arc<Hub>) {
    loop {
        let (peer, accepted) = match listener.next().await {
            Ok(accepted) => accepted,
            Err(e) if is_of_one_connection(&e) => continue,
            Err(e) => {
                let what = format!("cannot accept connections ({e}): trying until it works");
                hub.log_limiter.warn("accept", None, &what);
                tokio::time::sleep(OUT_OF_RESOURCES).await;
                continue;
            }
        };

        match gate.admission.admit(peer) {
            Ok(slot) => {
                tokio::spawn(converse(hub.clone(), peer, accepted, slot));
            }
            Err(refusal) => {
                Counters::count(&hub.metrics.events.rejected);
                let what = format!("connection refused: {refusal}");
                hub.log_limiter.warn("refused", Some(peer), &what);
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
