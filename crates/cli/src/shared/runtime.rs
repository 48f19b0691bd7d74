//! The event loop of a command.

use std::future::Future;

use crate::shared::exit::{Exit, Failure};

/// Runs on the main thread only. The parent-death signal of a child is bound to the *thread* that started it, and the
/// main thread lives as long as the process.
pub(crate) fn block_on<F: Future<Output = Result<u8, Failure>>>(work: F) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::System, format!("cannot start an event loop: {error}"))
    })?;
    let result = runtime.block_on(work);
    // A pending name lookup must not delay the exit.
    runtime.shutdown_background();
    result
}
