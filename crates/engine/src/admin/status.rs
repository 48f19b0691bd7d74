//! What the answers to operators are made of: the settings, addresses and counters of an engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::clock;
use crate::commit::Pipeline;
use crate::connection::admission::Admission;
use crate::connection::budget::Budget;
use crate::data_dir::disk_room::DiskRoom;
use crate::metrics::Metrics;
use crate::settings::plan::Plan;
use crate::tree_loop::{Event, TreeLoop};

/// What the answers to operators are made of.
pub(crate) struct Status {
    pub(crate) started: Instant,
    pub(crate) plan: Plan,
    /// Plain TCP addresses with the ports that they really got.
    pub(crate) addresses: Vec<SocketAddr>,
    /// TCP addresses with TLS.
    pub(crate) secure: Vec<SocketAddr>,
    /// Until when no session begins, on the engine's clock.
    pub(crate) quiet_until: Option<Duration>,
    pub(crate) events: UnboundedSender<Event>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) disk: Arc<DiskRoom>,
}

impl Status {
    /// For how long no session begins yet.
    pub(crate) fn quiet_time_left(&self) -> Option<Duration> {
        self.quiet_until.and_then(clock::left_until)
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
