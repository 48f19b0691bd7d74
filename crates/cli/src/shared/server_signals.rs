//! The signals that an engine process handles.

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::shared::exit::{Failure, no_signals};

/// Must be registered early: from then on, these signals no longer terminate the process by default.
pub(crate) struct ServerSignals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    /// Only registered, never awaited: reaching the file size limit then is a disk error, like a full disk.
    _file_size: unix::Signal,
}

impl ServerSignals {
    /// Registers the signal handlers.
    pub(crate) fn register() -> Result<Self, Failure> {
        let register = |kind| signal(kind).map_err(no_signals);
        Ok(Self {
            interrupt: register(SignalKind::interrupt())?,
            terminate: register(SignalKind::terminate())?,
            hangup: register(SignalKind::hangup())?,
            _file_size: register(SignalKind::from_raw(Signal::XFSZ.as_raw()))?,
        })
    }

    /// Waits for the next request by a signal.
    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::Stop("INT"),
            _ = self.terminate.recv() => SignalRequest::Stop("TERM"),
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }

    /// Waits for a request to stop, and returns the signal's name. Other requests are left for [`Self::next`].
    pub(crate) async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "INT",
            _ = self.terminate.recv() => "TERM",
        }
    }
}

/// What a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalRequest {
    /// Stop, because of the signal with this name.
    Stop(&'static str),
    /// Reload files.
    Reload,
}
