//! The thread that commits, and its successors.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::{End, Pipeline};
use crate::error::{EngineError, StartError};
use crate::storage::{Batch, StorageError};
use crate::thread;

/// Is told how the thread ended.
pub(crate) type OnEnd = Arc<dyn Fn(Result<(), EngineError>) + Send + Sync>;

/// Starts the commit thread, which tells how it ended after it has given up the data directory. When
/// it is recycled, it starts its successor instead.
pub(crate) fn start(pipeline: Arc<Pipeline>, tell: OnEnd) -> Result<(), StartError> {
    let thread = thread::spawn("lockkeeper-commit", move || {
        let result = loop {
            match catch_unwind(AssertUnwindSafe(|| run(&pipeline))) {
                Ok(Ok(Returned::Recycled)) => match start(pipeline.clone(), tell.clone()) {
                    Ok(()) => return,
                    Err(e) => tracing::debug!("the commit thread goes on: {e}"),
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
    /// All is committed, and the data directory is given up.
    AtTheEnd,
    /// Another thread is to go on.
    Recycled,
}

/// The commit thread: returns after the orderly end, with the first error, or when it is recycled.
/// Unless it is recycled, the data directory is given up then.
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
            // Before anyone is told: nothing may slip out any more.
            pipeline.abort();
            return Err(e);
        }
        pipeline.release(group);
    }

    let mut state = pipeline.lock();
    // An orderly end that has come since is the successor's: something may be in the queue again.
    if mem::take(&mut state.recycled) && state.end != End::Now {
        drop(state);
        pipeline.lock_disk().writes = Batch::default();
        mem::forget(give_up);
        return Ok(Returned::Recycled);
    }
    state.error.take().map_or(Ok(Returned::AtTheEnd), Err)
}
