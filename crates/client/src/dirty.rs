//! A watch that keeps the changed paths instead of a queue of events.

use std::sync::Arc;

use lockkeeper_session::WatchId;
use lockkeeper_wire::ZnodePath;

use crate::path_sink::{DirtyPath, DirtySet, PathsProbe, PathsSender, Sink};
use crate::shared::Shared;
use crate::watch_item::WatchLost;
use crate::watcher::{Registration, strip_chroot};

/// The nodes that a persistent watch reported as changed. Unlike a [`WatchStream`](crate::WatchStream), it
/// never takes more memory than the list of watched nodes, however slow the reader is and however many
/// changes there are.
///
/// Dropping it ends the watch.
#[must_use = "the watch ends when this is dropped"]
#[derive(Debug)]
pub struct DirtyPaths {
    registration: Registration,
    sink: Arc<Sink>,
}

impl DirtyPaths {
    pub(crate) fn channel()
    -> (PathsSender, impl FnOnce(Arc<Shared>, WatchId, Option<ZnodePath>) -> Self) {
        let sink = Arc::<Sink>::default();
        let sender = PathsSender(Arc::clone(&sink));
        let receiver = move |shared, id, chroot| {
            let registration = Registration::new(shared, id, chroot);
            Self { registration, sink }
        };
        (sender, receiver)
    }

    /// Takes all changed paths so far.
    ///
    /// # Errors
    /// The reason for which the watch has ended, once everything before the end has been taken.
    pub fn take(&mut self) -> Result<DirtySet, WatchLost> {
        let mut state = self.sink.state();
        let (paths, rearmed) = (std::mem::take(&mut state.paths), state.rearmed.take());
        let end = state.end;
        drop(state);

        match end {
            Some(end) if paths.is_empty() && rearmed.is_none() => Err(end),
            _ => {
                let chroot = self.registration.chroot();
                let paths = paths.into_iter().map(|(path, (first, last, kind))| DirtyPath {
                    path: strip_chroot(path, chroot),
                    first,
                    last,
                    kind,
                });
                Ok(DirtySet { paths: paths.collect(), rearmed })
            }
        }
    }

    /// Whether there are no changed paths and the watch has not ended.
    pub fn is_clean(&self) -> bool {
        self.sink.is_clean()
    }

    /// A handle that can check [`is_clean`](Self::is_clean).
    pub fn probe(&self) -> PathsProbe {
        PathsProbe(Arc::clone(&self.sink))
    }

    /// Waits until a path has changed or the watch has ended. Makes no request.
    ///
    /// # Session loss
    /// Ends the wait. [`DirtyPaths::take`] returns the earlier paths first, and then the reason.
    ///
    /// # Cancel safety
    /// Safe: nothing is removed.
    pub async fn changed(&mut self) {
        while self.is_clean() {
            self.sink.wake.notified().await;
        }
    }
}
