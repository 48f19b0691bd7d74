//! Copies of an open database, which end with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::database::OpenDisk;

/// Provides consistent views of a storage while it is written, until it is closed.
#[derive(Clone)]
pub(crate) struct Snapshots(Arc<Source>);

struct Source {
    /// `None` once the storage is closed. A running copy holds a read lock.
    open: RwLock<Option<Arc<OpenDisk>>>,
    /// Whether copies must stop.
    is_over: AtomicBool,
}

impl Snapshots {
    pub(super) fn of(open: Arc<OpenDisk>) -> Self {
        Self(Arc::new(Source { open: RwLock::new(Some(open)), is_over: AtomicBool::new(false) }))
    }

    /// Runs a copy, which keeps the database open. Its argument shows when it must stop; `None` if that is already so.
    pub(super) fn while_open<T>(
        &self,
        copy: impl FnOnce(&OpenDisk, &AtomicBool) -> T,
    ) -> Option<T> {
        let open = self.0.open.read().unwrap_or_else(PoisonError::into_inner);
        Some(copy(open.as_ref()?, &self.0.is_over))
    }

    /// Stops running copies, and waits until they have released the directory: at most as long as they need to write
    /// their present portion and to close.
    pub(super) fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        self.0.open.write().unwrap_or_else(PoisonError::into_inner).take();
    }
}
