//! The handle of a running engine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_tree::Stats;
use lockkeeper_wire::SessionId;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};

use crate::clock;
use crate::commit::Pipeline;
use crate::error::EngineError;
use crate::metrics::Metrics;
use crate::settings::builder::Builder;
#[cfg(feature = "tls")]
use crate::sockets::tls::{CurrentTls, Tls};
use crate::storage::Snapshots;
use crate::tree_loop::{Event, TreeLoop};

/// How an engine ended, once it has.
pub(crate) type Ending = Option<Result<(), EngineError>>;

/// A running engine.
///
/// Dropping it stops it as [`Engine::stop`] does, without waiting: the data directory and the
/// addresses are free some milliseconds later. Whoever wants to use them again at once awaits
/// `stop`. A process that ends right after the drop loses nothing that was acknowledged.
#[derive(Debug)]
pub struct Engine {
    pub(crate) shared: Shared,
}

/// What the handle has of the engine.
pub(crate) struct Shared {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) secure: Vec<SocketAddr>,
    pub(crate) metrics_address: Option<SocketAddr>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<CurrentTls>,
    pub(crate) socket_path: Option<PathBuf>,
    pub(crate) snapshots: Option<Snapshots>,
    pub(crate) events: UnboundedSender<Event>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) quiet_until: Option<Duration>,
    pub(crate) ended: watch::Receiver<Ending>,
}

impl Engine {
    /// An engine with the default settings, to be changed and [started](Builder::start).
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared }
    }

    /// The first TCP address that it listens on, with the port that it really got.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.shared.addresses.first().copied()
    }

    /// All TCP addresses that it listens on, in the order in which they were given.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// The TCP addresses where it speaks TLS, in the order in which they were given.
    pub fn tls_addrs(&self) -> &[SocketAddr] {
        &self.shared.secure
    }

    /// Where a monitor fetches the metrics: `http://<this>/metrics`.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.shared.metrics_address
    }

    /// The Unix socket that it listens on, as an absolute path.
    pub fn socket_path(&self) -> Option<&Path> {
        self.shared.socket_path.as_deref()
    }

    /// What a client on this machine connects to: `127.0.0.1:2181`, or `unix:/path` if the engine
    /// listens on no plain TCP address, or `tls://127.0.0.1:2281` if it listens with TLS only.
    pub fn connect_string(&self) -> String {
        match (self.addr(), self.socket_path(), self.tls_addrs().first()) {
            (Some(address), _, _) => reachable(address).to_string(),
            (None, Some(path), _) => format!("unix:{}", path.display()),
            (None, None, Some(address)) => format!("tls://{}", reachable(*address)),
            (None, None, None) => unreachable!("an engine listens somewhere"),
        }
    }

    pub(crate) fn snapshots(&self) -> Option<Snapshots> {
        self.shared.snapshots.clone()
    }

    /// What the tree holds, as of the last requests that were handled.
    pub fn stats(&self) -> Stats {
        self.shared.metrics.stats()
    }

    /// How many sessions are alive, connected or not.
    pub fn sessions(&self) -> usize {
        self.stats().sessions
    }

    /// Since when there has been no session; `None` while there are any. For callers that end an
    /// engine which nobody uses.
    pub fn idle_since(&self) -> Option<Instant> {
        self.shared.metrics.idle_since()
    }

    /// For how long no session begins yet, because clients of an engine before may still hold locks;
    /// `None` if sessions may begin. See [`Builder::quiet_time`].
    pub fn quiet_time_left(&self) -> Option<Duration> {
        self.shared.quiet_until.and_then(clock::left_until)
    }

    /// Replaces the certificate, its key and the roots of clients' certificates at all addresses where
    /// the engine speaks TLS, for the connections that are accepted from now on. Those that are open
    /// go on with what they began with, also where the new roots would not let them in.
    ///
    /// Without an address of [`Builder::listen_tls`] this has no effect.
    #[cfg(feature = "tls")]
    pub fn set_tls(&self, tls: Tls) {
        if let Some(current) = &self.shared.tls {
            current.set(tls);
        }
    }

    /// Stops the engine: what it has received is committed and answered, then all connections are
    /// closed, and the data directory and the addresses are free. Sessions live on in the data
    /// directory, with their full timeout from the next start.
    ///
    /// # Errors
    /// If the engine had ended before, or the last commit failed.
    pub async fn stop(self) -> Result<(), EngineError> {
        self.ask_to_stop();
        self.stopped().await
    }

    /// Waits until the engine has ended.
    ///
    /// # Errors
    /// If it ended by itself: the reason. After a storage error it answers nothing any more, and
    /// every acknowledged write is found at the next start.
    ///
    /// # Cancel safety
    /// Safe, and may be called as often as wanted.
    pub async fn stopped(&self) -> Result<(), EngineError> {
        let mut ended = self.shared.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(ending) => ending.clone().unwrap_or(Ok(())),
            // Its thread has gone without a word.
            Err(_) => Err(EngineError::Panicked),
        }
    }

    fn ask_to_stop(&self) {
        // An engine that has ended already needs no asking.
        let _ = self.shared.events.send(Event::Stop);
    }
}

/// Controls for tests: they make happen on command what otherwise takes time or luck.
impl Engine {
    /// Expires a session now, as if its client had been silent for the session timeout; `false` if
    /// there is no such session. The end of its ephemerals is visible to every request sent after
    /// this returns.
    pub async fn expire_session(&self, session: SessionId) -> bool {
        self.ask(|done| Event::Expire(session, done)).await.unwrap_or(false)
    }

    /// Lets time pass at once for everything that the engine counts in it: sessions whose clients
    /// have been silent for their timeouts expire, TTL nodes become overdue, containers are looked
    /// for. In the background, as if the time had really passed; what clients have sent before is
    /// heard first.
    pub async fn skip_time(&self, time: Duration) {
        self.ask(|done| Event::Skip(time, done)).await;
    }

    /// Cuts a session's connection now, with what was on its way; `false` if it has none. The
    /// session lives on, and its client may come back at once.
    pub async fn drop_connection(&self, session: SessionId) -> bool {
        let cut = move |tree: &TreeLoop| {
            let connection = tree.server.session(session)?.connection?;
            tree.connections.get(&connection).map(|connection| connection.cut())
        };
        let look = |done: oneshot::Sender<bool>| {
            Event::Look(Box::new(move |tree| {
                // Whoever asked may be gone.
                let _ = done.send(cut(tree).is_some());
            }))
        };
        self.ask(look).await.unwrap_or(false)
    }

    /// Cuts every connection now, with what was on its way. Sessions live on, and clients may come
    /// back at once.
    pub async fn drop_connections(&self) {
        self.ask(Event::DropConnections).await;
    }

    /// Holds back all commits, as a disk that hangs would: no request sent after this returns is
    /// answered before [`Engine::resume_commits`]. Stopping overrides it.
    pub fn pause_commits(&self) {
        self.shared.pipeline.pause(true);
    }

    /// Ends what [`Engine::pause_commits`] began.
    pub fn resume_commits(&self) {
        self.shared.pipeline.pause(false);
    }

    /// Makes the next commit fail before anything is written, as a broken disk would: the engine
    /// ends with [`EngineError::Storage`].
    pub fn fail_next_commit(&self) {
        self.shared.pipeline.fail_next();
    }

    /// Asks the tree thread; `None` if it is gone.
    async fn ask<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.shared.events.send(event(sender)).ok()?;
        answer.await.ok()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.ask_to_stop();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("addresses", &self.addresses)
            .field("socket_path", &self.socket_path)
            .finish_non_exhaustive()
    }
}

/// The address under which this machine reaches a listener on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
