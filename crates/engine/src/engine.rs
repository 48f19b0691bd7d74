//! The handle of a running engine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_tree::Stats;
use lockkeeper_wire::SessionId;
use tokio::sync::watch;

use crate::data_dir::backup::{Backup, BackupError};
use crate::data_dir::control;
use crate::error::EngineError;
use crate::settings::builder::Builder;
use crate::shared::{Addresses, Shared};
#[cfg(feature = "tls")]
use crate::sockets::tls::Tls;
use crate::tree_loop::{Event, TreeLoop};

/// How an engine ended, once it has.
pub(crate) type Ending = Option<Result<(), EngineError>>;

/// A running engine.
///
/// Dropping it stops it as [`Engine::stop`] does, without waiting: the data directory and the
/// addresses are free a moment later, when the log has been applied. Whoever wants to use them again at once awaits
/// `stop`. A process that ends right after the drop loses nothing that was acknowledged.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ended: watch::Receiver<Ending>,
}

impl Engine {
    /// An engine with the default settings, to be changed and [started](Builder::start).
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The first TCP address that it listens on, with the port that it really got.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.addrs().first().copied()
    }

    /// All TCP addresses that it listens on, in the order in which they were given.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.shared.addresses.plain
    }

    /// The TCP addresses where it speaks TLS, in the order in which they were given.
    pub fn tls_addrs(&self) -> &[SocketAddr] {
        &self.shared.addresses.tls
    }

    /// Where a monitor fetches the metrics: `http://<this>/metrics`.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.shared.addresses.metrics
    }

    /// The Unix socket that it listens on, as an absolute path.
    pub fn socket_path(&self) -> Option<&Path> {
        self.shared.addresses.unix.as_deref()
    }

    /// What a client on this machine connects to: `127.0.0.1:2181`, or `unix:/path` if the engine
    /// listens on no plain TCP address, or `tls://127.0.0.1:2281` if it listens with TLS only.
    pub fn connect_string(&self) -> String {
        let Addresses { plain, tls, unix, .. } = &self.shared.addresses;
        match (plain.first(), unix, tls.first()) {
            (Some(address), _, _) => reachable(*address).to_string(),
            (None, Some(path), _) => format!("unix:{}", path.display()),
            (None, None, Some(address)) => format!("tls://{}", reachable(*address)),
            (None, None, None) => unreachable!("an engine listens somewhere"),
        }
    }

    /// What the tree holds, as of the last requests that were handled.
    pub fn stats(&self) -> Stats {
        self.shared.metrics.stats()
    }

    /// How many sessions are alive, connected or not.
    pub fn sessions(&self) -> usize {
        self.stats().sessions
    }

    /// How many bytes are free on the disk of the data directory, and how many of these stay free: with less,
    /// changes are refused ([`Builder::disk_reserve`]). `None` if nothing is kept on a disk.
    pub fn disk_room(&self) -> Option<(u64, u64)> {
        let room = (self.shared.disk.free(), self.shared.disk.reserve());
        Some(room).filter(|(_, reserve)| *reserve > 0)
    }

    /// Since when there has been no session; `None` while there are any. For callers that end an
    /// engine which nobody uses.
    pub fn idle_since(&self) -> Option<Instant> {
        self.shared.metrics.idle_since()
    }

    /// For how long no session begins yet, because clients of an engine before may still hold locks;
    /// `None` if sessions may begin. See [`Builder::quiet_time`].
    pub fn quiet_time_left(&self) -> Option<Duration> {
        self.shared.quiet_time_left()
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

    /// Copies the state as of the last commit into a new data directory while the engine goes on:
    /// every write acknowledged before the call is in it, and of each transaction all or nothing.
    /// To use it, [restore](crate::restore) it: an engine that is started on the copy itself gives
    /// fencing tokens again that were given since, and takes up sessions that are long over.
    ///
    /// The directory must not exist yet; its parent must. It is there as a whole or not at all.
    ///
    /// # Errors
    /// If the engine keeps nothing on a disk or has ended, if there is something at `dir`, or if
    /// the disk is full or fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the copy goes on.
    pub async fn backup(&self, dir: impl AsRef<Path>) -> Result<Backup, BackupError> {
        let path = dir.as_ref().to_path_buf();
        let snapshots = self.shared.snapshots.as_ref().ok_or(BackupError::NothingKept)?;
        let records = control::copy(snapshots, path.clone()).await?;
        Ok(Backup { path, records })
    }

    /// Stops the engine: what it has handled is committed and answered, then all connections are
    /// closed, and the data directory and the addresses are free. Requests that still wait for their turn
    /// are not handled, and a backup that is under way fails with [`BackupError::Ended`]. Sessions live on
    /// in the data directory, with their full timeout from the next start.
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
        let mut ended = self.ended.clone();
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
        self.shared.ask(|done| Event::Expire(session, done)).await.unwrap_or(false)
    }

    /// Lets time pass at once for everything that the engine counts in it: sessions whose clients
    /// have been silent for their timeouts expire, TTL nodes become overdue, containers are looked
    /// for. In the background, as if the time had really passed; what clients have sent before is
    /// heard first.
    pub async fn skip_time(&self, time: Duration) {
        self.shared.ask(|done| Event::Skip(time, done)).await;
    }

    /// Cuts a session's connection now, with what was on its way; `false` if it has none. The
    /// session lives on, and its client may come back at once.
    pub async fn drop_connection(&self, session: SessionId) -> bool {
        let cut = move |tree: &TreeLoop| {
            let connection = tree.server.session(session)?.connection?;
            tree.connections.get(&connection).map(|connection| connection.cut())
        };
        self.shared.look(cut).await.flatten().is_some()
    }

    /// Cuts every connection now, with what was on its way. Sessions live on, and clients may come
    /// back at once.
    pub async fn drop_connections(&self) {
        self.shared.ask(Event::DropConnections).await;
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
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.ask_to_stop();
    }
}

lockkeeper_wire::impl_debug! {
    Engine, self => addresses: self.addrs(), socket_path: self.socket_path()
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
