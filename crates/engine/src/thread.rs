//! The threads of an engine.

use std::io;
use std::thread::{self, JoinHandle};

use tracing::Dispatch;

/// Starts a thread that logs to the caller's subscriber.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let dispatch = tracing::dispatcher::get_default(Dispatch::clone);
    let body = move || tracing::dispatcher::with_default(&dispatch, body);
    thread::Builder::new().name(name.to_owned()).spawn(body)
}
