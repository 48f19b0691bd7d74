//! Holds the lock after the end of the command until `--at-least` has passed.

use std::convert::Infallible;

use lockkeeper::{Clock, Instant};
use rustix::process::{Signal, getpid, kill_process};

use super::events::{Event, Events};
use super::lock::Held;
use super::loss::{Loss, sleep_until};
use super::supervise::{OnRevoke, asks_for_the_end};
use crate::session::waiting;
use crate::shared::output::tell;
use crate::shared::signals::Signals;
use crate::shared::view;

/// What can end this time early, and where events are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtLeast<'a> {
    pub(super) until: Instant,
    pub(super) on_revoke: OnRevoke,
    pub(super) quiet: bool,
    pub(super) events: &'a Events,
}

impl AtLeast<'_> {
    /// Holds the lock until then. A terminating signal, a request for the lock or its loss end this early, without an
    /// error: the command has done its work. `engine`: keeps this machine's engine alive.
    pub(super) async fn hold(
        self,
        engine: impl Future<Output = Infallible>,
        held: &Held,
        loss: &mut Loss<'_>,
        signals: &mut Signals,
    ) {
        if self.until <= Clock.now() {
            return;
        }
        let asked = async {
            match held.revoke_requested().await {
                Ok(path) if self.on_revoke == OnRevoke::Term => path,
                // The loss is handled below.
                _ => std::future::pending().await,
            }
        };
        let what = async {
            let left = view::duration(self.until.since(Clock.now()));
            format!(
                "the command has ended; holding {} for another {left} (--at-least)",
                held.name()
            )
        };

        tokio::select! {
            biased;
            () = ended(loss, signals) => {}
            path = asked => {
                let by = self.events.revoked(held, path);
                let asked = held.request_of(path);
                tell(&format!("{asked}{by}; releasing it before --at-least has passed"));
            }
            reason = held.lost() => {
                let what = format!("{} is lost: {reason}", held.lost_name());
                self.events.write(Event::Lost { reason: &what });
                tell(&format!("{what}; the command had ended, but --at-least has not passed"));
            }
            () = sleep_until(self.until) => {}
            never = engine => match never {},
            never = waiting::notice(self.quiet, what) => match never {},
        }
    }
}

/// Returns when a signal requests termination.
async fn ended(loss: &mut Loss<'_>, signals: &mut Signals) {
    loop {
        match signals.next().await {
            // Without a command, a lock is released even without a watchdog.
            Signal::CHILD => drop(loss.keep_watchdog()),
            // The default effect of the signal.
            Signal::TSTP => drop(kill_process(getpid(), Signal::STOP)),
            signal if asks_for_the_end(signal) => return,
            _ => {}
        }
    }
}
