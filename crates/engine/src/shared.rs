//! What the parts of a running engine share: its settings, addresses and counters, and the way to the
//! tree thread.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockkeeper_tree::ConnectionId;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::clock;
use crate::commit::Pipeline;
use crate::connection::admission::Admission;
use crate::connection::budget::Budget;
use crate::connection::log_limiter::LogLimiter;
use crate::data_dir::disk_room::DiskRoom;
use crate::memory_room::MemoryRoom;
use crate::metrics::Metrics;
use crate::settings::plan::Plan;
use crate::sockets::handshakes::Handshakes;
#[cfg(feature = "tls")]
use crate::sockets::tls::CurrentTls;
use crate::storage::Snapshots;
use crate::tree_loop::{Event, TreeLoop};

/// Where an engine listens, with the ports that it really got.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// For clients without TLS.
    pub(crate) plain: Vec<SocketAddr>,
    pub(crate) tls: Vec<SocketAddr>,
    /// The path of the Unix socket, absolute.
    pub(crate) unix: Option<PathBuf>,
    /// For monitors.
    pub(crate) metrics: Option<SocketAddr>,
}

/// What every task, and the handle of the engine, can reach.
pub(crate) struct Shared {
    pub(crate) started: Instant,
    pub(crate) plan: Plan,
    pub(crate) addresses: Addresses,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<CurrentTls>,
    /// With TLS only.
    pub(crate) handshakes: Option<Handshakes>,
    /// `None` if nothing is kept on a disk.
    pub(crate) snapshots: Option<Snapshots>,
    /// Until when no session begins, on the engine's clock.
    pub(crate) quiet_until: Option<Duration>,
    /// What the tree thread is told.
    pub(crate) events: UnboundedSender<Event>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) disk: Arc<DiskRoom>,
    pub(crate) memory: Arc<MemoryRoom>,
    pub(crate) log_limiter: Arc<LogLimiter>,
    /// How many connections there have been.
    pub(crate) connections: AtomicU64,
    /// What `stmk` has set.
    pub(crate) trace_mask: AtomicI64,
    /// When a four-letter word may list something next.
    pub(crate) next_listing: Arc<tokio::sync::Mutex<tokio::time::Instant>>,
}

impl Shared {
    /// For how long no session begins yet.
    pub(crate) fn quiet_time_left(&self) -> Option<Duration> {
        self.quiet_until.and_then(clock::left_until)
    }

    /// The number of a new connection.
    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Asks the tree thread; `None` if it has ended.
    pub(crate) async fn ask<T>(
        &self,
        event: impl FnOnce(oneshot::Sender<T>) -> Event,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.events.send(event(sender)).ok()?;
        answer.await.ok()
    }

    /// Runs `look` on the tree thread; `None` if that has ended.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&TreeLoop) -> T + Send + 'static,
    ) -> Option<T> {
        let event = |done: oneshot::Sender<T>| {
            Event::Inspect(Box::new(move |tree| {
                // Whoever asked may be gone.
                let _ = done.send(look(tree));
            }))
        };
        self.ask(event).await
    }
}
