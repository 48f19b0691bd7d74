//! The threads of an engine.

use std::thread;

use tracing::Dispatch;

use crate::error::StartError;

/// Starts a thread that logs to where the caller logs.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    let dispatch = tracing::dispatcher::get_default(Dispatch::clone);
    let body = move || tracing::dispatcher::with_default(&dispatch, body);
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map(drop).map_err(StartError::refused("a thread"))
}
