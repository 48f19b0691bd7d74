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

/// The result of an engine that has ended.
pub(crate) type Ending = Option<Result<(), EngineError>>;

/// A running engine.
///
/// Dropping it stops the engine as [`Engine::stop`] does, without waiting: the data directory and the addresses become
/// free a moment later, when the log has been applied. To reuse them at once, await `stop`. A process that ends right
/// after the drop loses nothing that was acknowledged.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ended: watch::Receiver<Ending>,
}

impl Engine {
    /// An engine with the default settings, to be changed and [started](Builder::start).
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The first TCP address on which it listens, with the actual port.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.addrs().first().copied()
    }

    /// All TCP addresses on which it listens, in the order in which they were given.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.shared.addresses.plain
    }

    /// The TCP addresses on which it speaks TLS, in the order in which they were given.
    pub fn tls_addrs(&self) -> &[SocketAddr] {
        &self.shared.addresses.tls
    }

    /// Where a monitor fetches the metrics: `http://<this>/metrics`.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.shared.addresses.metrics
    }

    /// The Unix socket on which it listens, as an absolute path.
    pub fn socket_path(&self) -> Option<&Path> {
        self.shared.addresses.unix.as_deref()
    }

    /// The connection string for a client on this machine: `127.0.0.1:2181`, or `unix:/path` if the engine listens on
    /// no plain TCP address, or `tls://127.0.0.1:2281` if it listens with TLS only.
    pub fn connect_string(&self) -> String {
        let Addresses { plain, tls, unix, .. } = &self.shared.addresses;
        match (plain.first(), unix, tls.first()) {
            (Some(address), _, _) => reachable(*address).to_string(),
            (None, Some(path), _) => format!("unix:{}", path.display()),
            (None, None, Some(address)) => format!("tls://{}", reachable(*address)),
            (None, None, None) => unreachable!("an engine has at least one address"),
        }
    }

    /// Statistics of the tree, as of the last requests that were handled.
    pub fn stats(&self) -> Stats {
        self.shared.metrics.stats()
    }

    /// The number of live sessions, connected or not.
    pub fn sessions(&self) -> usize {
        self.stats().sessions
    }

    /// The free bytes on the disk of the data directory, and the reserve: when less than the reserve is free, changes
    /// are refused ([`Builder::disk_reserve`]). `None` if the engine keeps no data on a disk.
    pub fn disk_room(&self) -> Option<(u64, u64)> {
        let room = (self.shared.disk.free(), self.shared.disk.reserve());
        Some(room).filter(|(_, reserve)| *reserve > 0)
    }

    /// The time since which there has been no session; `None` while there are any. For callers that stop an unused
    /// engine.
    pub fn idle_since(&self) -> Option<Instant> {
        self.shared.metrics.idle_since()
    }

    /// How long new sessions are still refused because clients of a previous engine may hold locks; `None` if sessions
    /// may begin. See [`Builder::quiet_time`].
    pub fn quiet_time_left(&self) -> Option<Duration> {
        self.shared.quiet_time_left()
    }

    /// Replaces the certificate, its key and the root certificates for client certificates at all TLS addresses. This
    /// applies to connections accepted from now on; open connections keep the old ones, even if the new roots would
    /// reject their certificates.
    ///
    /// Without an address of [`Builder::listen_tls`] this has no effect.
    #[cfg(feature = "tls")]
    pub fn set_tls(&self, tls: Tls) {
        if let Some(current) = &self.shared.tls {
            current.set(tls);
        }
    }

    /// Copies the state as of the last commit into a new data directory while the engine runs: the copy contains every
    /// write that was acknowledged before the call, and each transaction completely or not at all. To use it,
    /// [restore](crate::restore) it: an engine that is started on the copy itself issues fencing tokens again that were
    /// issued since, and resumes sessions that have long expired.
    ///
    /// The directory must not exist; its parent must. The copy is created completely or not at all.
    ///
    /// # Errors
    /// The engine keeps no data on a disk or has ended, `dir` exists, or the disk is full or fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the copy continues in the background.
    pub async fn backup(&self, dir: impl AsRef<Path>) -> Result<Backup, BackupError> {
        let path = dir.as_ref().to_path_buf();
        let snapshots = self.shared.snapshots.as_ref().ok_or(BackupError::NothingKept)?;
        let records = control::copy(snapshots, path.clone()).await?;
        Ok(Backup { path, records })
    }

    /// Stops the engine: the requests that it has handled are committed and answered; then all connections are closed,
    /// and the data directory and the addresses become free. Requests that still wait are not handled, and a running
    /// backup fails with [`BackupError::Ended`]. Sessions live on in the data directory, with their full timeout from
    /// the next start.
    ///
    /// # Errors
    /// The engine had already ended, or the last commit failed.
    pub async fn stop(self) -> Result<(), EngineError> {
        self.ask_to_stop();
        self.stopped().await
    }

    /// Waits until the engine has ended.
    ///
    /// # Errors
    /// The reason, if the engine ended by itself. After a storage error it sends no more replies, and the next start
    /// finds every acknowledged write.
    ///
    /// # Cancel safety
    /// Cancel-safe; may be called any number of times.
    pub async fn stopped(&self) -> Result<(), EngineError> {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(ending) => ending.clone().unwrap_or(Ok(())),
            // The thread ended without reporting a result.
            Err(_) => Err(EngineError::Panicked),
        }
    }

    fn ask_to_stop(&self) {
        // If the engine has already ended, there is no receiver.
        let _ = self.shared.events.send(Event::Stop);
    }
}

/// Controls for tests: they trigger events that otherwise depend on time or chance.
impl Engine {
    /// Expires a session now, as if its client had been silent for the session timeout; returns `false` if the session
    /// does not exist. Every request that is sent after this returns sees its ephemeral nodes deleted.
    pub async fn expire_session(&self, session: SessionId) -> bool {
        self.shared.ask(|done| Event::Expire(session, done)).await.unwrap_or(false)
    }

    /// Advances the engine's time at once: sessions whose clients have been silent for their timeouts expire, TTL nodes
    /// become overdue, and the engine searches for empty containers. This happens in the background, as if the time had
    /// really passed; requests that clients have already sent are handled first.
    pub async fn skip_time(&self, time: Duration) {
        self.shared.ask(|done| Event::Skip(time, done)).await;
    }

    /// Closes a session's connection now, and drops its data in flight; returns `false` if the session has no
    /// connection. The session lives on, and its client may reconnect at once.
    pub async fn drop_connection(&self, session: SessionId) -> bool {
        let cut = move |tree: &TreeLoop| {
            let connection = tree.server.session(session)?.connection?;
            tree.connections.get(&connection).map(|connection| connection.cut())
        };
        self.shared.look(cut).await.flatten().is_some()
    }

    /// Closes all connections now, and drops their data in flight. Sessions live on, and clients may reconnect at once.
    pub async fn drop_connections(&self) {
        self.shared.ask(Event::DropConnections).await;
    }

    /// Holds back all commits, as a stalled disk would: no request that is sent after this returns is answered before
    /// [`Engine::resume_commits`]. Stopping the engine overrides it.
    pub fn pause_commits(&self) {
        self.shared.pipeline.pause(true);
    }

    /// Ends the effect of [`Engine::pause_commits`].
    pub fn resume_commits(&self) {
        self.shared.pipeline.pause(false);
    }

    /// Makes the next commit fail before any data is written, as a broken disk would: the engine ends with
    /// [`EngineError::Storage`].
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

/// The address by which this machine reaches a listener on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
