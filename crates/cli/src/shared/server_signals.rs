//! The signals that a process with an engine hears.

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::shared::exit::{Failure, no_signals};

/// Registered early: from then on none of these ends the process unheard.
pub(crate) struct ServerSignals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    /// Nobody waits for it. A file that reaches its limit is an error of the disk, as a full one is.
    _file_size: unix::Signal,
}

impl ServerSignals {
    /// Hears them from now on.
    pub(crate) fn register() -> Result<Self, Failure> {
        let register = |kind| signal(kind).map_err(no_signals);
        Ok(Self {
            interrupt: register(SignalKind::interrupt())?,
            terminate: register(SignalKind::terminate())?,
            hangup: register(SignalKind::hangup())?,
            _file_size: register(SignalKind::from_raw(Signal::XFSZ.as_raw()))?,
        })
    }

    /// Waits for the next one that asks for something.
    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::Stop("INT"),
            _ = self.terminate.recv() => SignalRequest::Stop("TERM"),
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }

    /// Waits for one that asks for the end; the name of it. Others are left for [`Self::next`].
    pub(crate) async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "INT",
            _ = self.terminate.recv() => "TERM",
        }
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalRequest {
    /// The end, by the signal of this name.
    Stop(&'static str),
    /// To read files again.
    Reload,
}
