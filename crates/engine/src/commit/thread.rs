//! The commit thread and its successors.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::{End, Pipeline};
use crate::error::{EngineError, StartError};
use crate::storage::{Batch, StorageError};
use crate::thread;

/// Called with the result when the thread has ended.
pub(crate) type OnEnd = Arc<dyn Fn(Result<(), EngineError>) + Send + Sync>;

/// Starts the commit thread, which reports its result after it has released the data directory. When it is recycled, it
/// starts its successor instead.
pub(crate) fn start(pipeline: Arc<Pipeline>, tell: OnEnd) -> Result<(), StartError> {
    let thread = thread::spawn("lockkeeper-commit", move || {
        let result = loop {
            match catch_unwind(AssertUnwindSafe(|| run(&pipeline))) {
                Ok(Ok(Returned::Recycled)) => match start(pipeline.clone(), tell.clone()) {
                    Ok(()) => return,
                    Err(e) => tracing::debug!("the commit thread continues: {e}"),
                },
                Ok(Ok(Returned::AtTheEnd)) => break Ok(()),
                Ok(Err(e)) => break Err(EngineError::from(e)),
                Err(_) => {
                    pipeline.abort();
                    break Err(EngineError::Panicked);
                }
            }
        };
        tell(result);
    });
    thread.map(drop).map_err(StartError::no_thread)
}

/// Why the commit thread has returned.
pub(super) enum Returned {
    /// Everything is committed, and the data directory is released.
    AtTheEnd,
    /// Another thread is to continue.
    Recycled,
}

/// The commit thread: returns after the orderly end, with the first error, or when it is recycled. Unless it is
/// recycled, it releases the data directory.
pub(super) fn run(pipeline: &Pipeline) -> Result<Returned, StorageError> {
    // Also after a panic.
    struct GiveUp<'a>(&'a Pipeline);
    impl Drop for GiveUp<'_> {
        fn drop(&mut self) {
            let storage = self.0.lock_disk().storage.take();
            drop(storage);
        }
    }

    let give_up = GiveUp(pipeline);
    while let Some(mut group) = pipeline.next_group() {
        pipeline.series.begin(Instant::now());
        if let Err(e) = pipeline.commit(&mut group.batches, group.fail) {
            // Before the result is reported: no further reply may be sent.
            pipeline.abort();
            return Err(e);
        }
        pipeline.release(group);
    }

    let mut state = pipeline.lock();
    // An orderly end that was requested since then is left to the successor: the queue may contain batches again.
    if mem::take(&mut state.recycled) && state.end != End::Now {
        drop(state);
        pipeline.lock_disk().writes = Batch::default();
        mem::forget(give_up);
        return Ok(Returned::Recycled);
    }
    state.error.take().map_or(Ok(Returned::AtTheEnd), Err)
}
