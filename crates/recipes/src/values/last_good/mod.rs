//! The last known good value in a file, so that a program starts without servers.
//!
//! ```text
//!   error  why a value was not used, or not kept
//!   form   what the file holds: where the value was, which state it was, its bytes, a checksum
//!   file   reading and replacing it
//! ```
//!
//! Guarantees  the file is replaced in one step, and so is what a program finds after a power cut: the
//!             old value or the new one, never a mixture, also when several programs share it. It is
//!             readable and writable by its user only. A file that is damaged, is another user's or can
//!             be written by others, is a link, or belongs to another node is told and not used.
//! Not         the last value that there was: it is written in the background after it was told, and a
//!             program that ends at once may leave the one before. With several programs it may be
//!             that of the one that is behind. Nor a secret from whoever can read the disk.

mod error;
mod file;
mod form;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::values::revision::Revision;

pub use error::LastGoodError;
use form::Kept;

/// Keeps the values of one node in a file.
#[derive(Clone, Debug)]
pub(crate) struct LastGood {
    file: Arc<PathBuf>,
    path: String,
    pending: Arc<PendingWrite>,
}

/// What is to be written.
#[derive(Debug, Default)]
struct PendingWrite {
    next: Mutex<Next>,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct Next {
    kept: Option<Kept>,
    /// Whether somebody writes, who will look here again.
    is_busy: bool,
}

/// How it stands.
#[derive(Clone, Debug, Default)]
struct State {
    /// How many values were to be kept.
    asked: u64,
    /// How many of them are done with: kept, or passed over for a newer one, or failed.
    done: u64,
    /// Why the last one could not be kept.
    failed: Option<LastGoodError>,
}

impl LastGood {
    /// Reads what is in the file for this node, and keeps its values there from now on, unless the file
    /// must be left as it is.
    pub(crate) async fn open<T>(
        file: &Path,
        path: String,
        decode: impl FnOnce(&Bytes) -> Result<T, String>,
    ) -> (Option<Self>, Result<Option<(Revision, T)>, LastGoodError>) {
        let file = Arc::new(file.to_owned());
        let read = in_background({
            let file = Arc::clone(&file);
            move || {
                file::tidy(&file);
                file::read(&file)
            }
        });
        let found = read.await.and_then(|kept| match kept {
            Some(kept) if kept.path != path => {
                let (file, found, path) = (file.to_path_buf(), kept.path, path.clone());
                Err(LastGoodError::OtherPath { file, found, path })
            }
            Some(kept) => match decode(&kept.data) {
                Ok(value) => Ok(Some((kept.revision, value))),
                Err(reason) => Err(LastGoodError::Undecodable { file: file.to_path_buf(), reason }),
            },
            None => Ok(None),
        });

        let is_ours = found.as_ref().err().is_none_or(LastGoodError::may_be_replaced);
        let keeper = is_ours.then(|| Self { file, path, pending: Arc::default() });
        (keeper, found)
    }

    /// Keeps a value, in the background; the newest one if there are several.
    pub(crate) fn keep(&self, revision: Revision, data: Bytes) {
        let mut next = self.pending.next();
        self.pending.state.send_modify(|state| state.asked += 1);
        next.kept = Some(Kept { path: self.path.clone(), revision, data });
        if std::mem::replace(&mut next.is_busy, true) {
            return;
        }
        drop(next);

        let (file, writer) = (Arc::clone(&self.file), Writer::new(&self.pending));
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || writer.write_all(&file))),
            Err(_) => writer.write_all(&file),
        }
    }

    /// Waits until everything is kept that there was to keep so far.
    pub(crate) async fn kept(&self) -> Result<(), LastGoodError> {
        let mut states = self.pending.state.subscribe();
        let asked = states.borrow().asked;
        let done = states.wait_for(|state| state.done >= asked).await;
        let state = done.expect("the sender is here").clone();
        state.failed.map_or(Ok(()), Err)
    }
}

impl PendingWrite {
    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever writes. There is one at a time.
struct Writer {
    pending: Arc<PendingWrite>,
    /// Whether it has told that it writes no more: what is pending then is another one's.
    is_over: bool,
}

impl Writer {
    fn new(pending: &Arc<PendingWrite>) -> Self {
        Self { pending: Arc::clone(pending), is_over: false }
    }

    fn write_all(mut self, file: &Path) {
        while let Some((kept, asked)) = self.next() {
            let failed = file::replace(file, &kept).err();
            if let Some(error) = &failed {
                tracing::warn!(%error, "the last known good value is not kept");
            }
            self.pending.state.send_modify(|state| (state.done, state.failed) = (asked, failed));
        }
    }

    /// The newest value, and how many there were to keep with it. `None`: another one writes the next.
    fn next(&mut self) -> Option<(Kept, u64)> {
        let mut next = self.pending.next();
        let Some(kept) = next.kept.take() else {
            (next.is_busy, self.is_over) = (false, true);
            return None;
        };
        Some((kept, self.pending.state.borrow().asked))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // It never ran, as its runtime has ended, or has panicked: nobody keeps what was to be kept, and
        // the next value is for another one.
        let mut next = self.pending.next();
        *next = Next::default();
        self.pending.state.send_modify(|state| {
            (state.done, state.failed) = (state.asked, Some(LastGoodError::Abandoned));
        });
    }
}

/// Does something on a thread that may wait for a disk.
async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.expect("it does not panic"),
        Err(_) => work(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn last_good(folder: &Path) -> LastGood {
        let file = Arc::new(folder.join("limits"));
        LastGood { file, path: "/limits".into(), pending: Arc::default() }
    }

    /// Another writer may have begun before the one that has ended is dropped.
    #[test]
    fn a_writer_that_has_ended_takes_nothing_from_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = last_good(folder.path());
        let mut ended = Writer::new(&keeper.pending);
        keeper.pending.next().is_busy = true;
        assert_eq!(ended.next(), None);

        // As `keep` does, before the next writer runs.
        let mut next = keeper.pending.next();
        keeper.pending.state.send_modify(|state| state.asked += 1);
        let data = Bytes::from_static(b"1");
        next.kept = Some(Kept { path: "/limits".into(), revision: Revision::NONE, data });
        next.is_busy = true;
        drop(next);
        drop(ended);
        Writer::new(&keeper.pending).write_all(&keeper.file);
        let kept = file::read(&keeper.file).unwrap().expect("it was written");
        assert_eq!(&kept.data[..], b"1");
    }

    /// As after a panic while it writes, or with a runtime that ends before it runs.
    #[tokio::test]
    async fn a_writer_that_does_not_end_in_order_leaves_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = last_good(folder.path());
        for begins in [false, true] {
            let mut writer = Writer::new(&keeper.pending);
            keeper.pending.state.send_modify(|state| state.asked += 1);
            let data = Bytes::from_static(b"1");
            let kept = Kept { path: "/limits".into(), revision: Revision::NONE, data };
            *keeper.pending.next() = Next { kept: Some(kept), is_busy: true };
            if begins {
                assert!(writer.next().is_some());
            }
            drop(writer);
            assert!(!keeper.pending.next().is_busy, "the next value is for another one");
            let state = keeper.pending.state.borrow().clone();
            assert_eq!((state.done, state.failed), (state.asked, Some(LastGoodError::Abandoned)));
            assert_eq!(keeper.kept().await, Err(LastGoodError::Abandoned));
        }

        keeper.keep(Revision::NONE, Bytes::from_static(b"2"));
        assert_eq!(keeper.kept().await, Ok(()));
        let kept = file::read(&keeper.file).unwrap().expect("it was written");
        assert_eq!(&kept.data[..], b"2");
    }
}
