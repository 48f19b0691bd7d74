//! Copies of an open database, which end with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::database::OpenDisk;

/// Gives consistent views of a storage while it is being written, until that is closed.
#[derive(Clone)]
pub(crate) struct Snapshots(Arc<Source>);

struct Source {
    /// `None` once the storage is closed. A copy reads it for as long as it goes on.
    open: RwLock<Option<Arc<OpenDisk>>>,
    /// Whether copies are to give up.
    is_over: AtomicBool,
}

impl Snapshots {
    pub(super) fn of(open: Arc<OpenDisk>) -> Self {
        Self(Arc::new(Source { open: RwLock::new(Some(open)), is_over: AtomicBool::new(false) }))
    }

    /// Copies, which keeps the database open. It is told when to give up; `None` if that has come before.
    pub(super) fn while_open<T>(
        &self,
        copy: impl FnOnce(&OpenDisk, &AtomicBool) -> T,
    ) -> Option<T> {
        let open = self.0.open.read().unwrap_or_else(PoisonError::into_inner);
        Some(copy(open.as_ref()?, &self.0.is_over))
    }

    /// Ends copies that are under way, and waits until they have let go of the directory: for no longer than
    /// they need to write what they have in hand, and to close it.
    pub(super) fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        self.0.open.write().unwrap_or_else(PoisonError::into_inner).take();
    }
}
