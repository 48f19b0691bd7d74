//! The state that the parts of a running engine share: settings, addresses, counters, and the channel to the tree
//! thread.

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

/// The addresses on which an engine listens, with the actual ports.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// The addresses for clients without TLS.
    pub(crate) plain: Vec<SocketAddr>,
    pub(crate) tls: Vec<SocketAddr>,
    /// The absolute path of the Unix socket.
    pub(crate) unix: Option<PathBuf>,
    /// The address for monitors.
    pub(crate) metrics: Option<SocketAddr>,
}

/// The state that every task and the handle of the engine can access.
pub(crate) struct Shared {
    pub(crate) started: Instant,
    pub(crate) plan: Plan,
    pub(crate) addresses: Addresses,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<CurrentTls>,
    /// Present only with TLS.
    pub(crate) handshakes: Option<Handshakes>,
    /// `None` if the engine keeps no data on a disk.
    pub(crate) snapshots: Option<Snapshots>,
    /// The end of the quiet time, on the engine's clock: earlier, no session begins.
    pub(crate) quiet_until: Option<Duration>,
    /// The channel to the tree thread.
    pub(crate) events: UnboundedSender<Event>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) disk: Arc<DiskRoom>,
    pub(crate) memory: Arc<MemoryRoom>,
    pub(crate) log_limiter: Arc<LogLimiter>,
    /// The number of connections so far.
    pub(crate) connections: AtomicU64,
    /// The trace mask that `stmk` has set.
    pub(crate) trace_mask: AtomicI64,
    /// When a four-letter word may next list something.
    pub(crate) next_listing: Arc<tokio::sync::Mutex<tokio::time::Instant>>,
}

impl Shared {
    /// How long new sessions are still refused.
    pub(crate) fn quiet_time_left(&self) -> Option<Duration> {
        self.quiet_until.and_then(clock::left_until)
    }

    /// The number of a new connection.
    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Sends a question to the tree thread; `None` if it has ended.
    pub(crate) async fn ask<T>(
        &self,
        event: impl FnOnce(oneshot::Sender<T>) -> Event,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.events.send(event(sender)).ok()?;
        answer.await.ok()
    }

    /// Runs `look` on the tree thread; `None` if it has ended.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&TreeLoop) -> T + Send + 'static,
    ) -> Option<T> {
        let event = |done: oneshot::Sender<T>| {
            Event::Inspect(Box::new(move |tree| {
                // The caller may be gone.
                let _ = done.send(look(tree));
            }))
        };
        self.ask(event).await
    }
}
