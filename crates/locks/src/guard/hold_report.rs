//! Reports the loss or the release of a guard, and how long it held the lock.

use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper_client::{HoldProbe, Instant, SessionId, ZnodePath};
use tracing::{Level, debug, warn};

use crate::error::LossReason;
use crate::guard::state::{Unheld, judge};
#[cfg(feature = "metrics")]
use crate::telemetry::lock_metrics::Slot;
use crate::token::FencingToken;

/// The report on a guard, from its grant to its end. Empty if neither events nor metrics are recorded.
pub(crate) struct HoldReport(Option<Box<Report>>);

struct Report {
    path: ZnodePath,
    token: FencingToken,
    session: SessionId,
    probe: HoldProbe,
    since: Instant,
    has_ended: AtomicBool,
    #[cfg(feature = "metrics")]
    slot: std::sync::Mutex<Option<Slot>>,
}

impl HoldReport {
    /// Starts the report of a granted lock. `probe` is called only if something is recorded.
    pub(crate) fn new(
        path: &ZnodePath,
        token: FencingToken,
        session: SessionId,
        probe: impl FnOnce() -> HoldProbe,
    ) -> Self {
        if !cfg!(feature = "metrics") && !tracing::enabled!(Level::WARN) {
            return Self(None);
        }
        let probe = probe();
        let since = probe.now();
        Self(Some(Box::new(Report {
            path: path.clone(),
            token,
            session,
            since,
            has_ended: AtomicBool::new(false),
            #[cfg(feature = "metrics")]
            slot: std::sync::Mutex::new(Some(Slot::held(since, probe.clone()))),
            probe,
        })))
    }

    /// Notes that a larger token was minted at the grant.
    pub(crate) fn has_token(&mut self, token: FencingToken) {
        if let Some(report) = &mut self.0 {
            report.token = token;
        }
    }

    /// Reports that the lock is lost, or that its holder has released it by other means than its guard.
    pub(crate) fn lost(&self, reason: LossReason) {
        if let Some(report) = &self.0 {
            report.end((reason != LossReason::Released).then_some(reason));
        }
    }

    /// Reports that the holder releases the lock. `lease`: whether it was still held.
    pub(super) fn ends<T>(&self, lease: &Result<T, Unheld>) {
        match lease {
            Ok(_) => self.lost(LossReason::Released),
            Err(Unheld::Lost(reason)) => self.lost(*reason),
            // Whether it was still held will never be known.
            Err(Unheld::Jeopardy) => self.lost(LossReason::DeadlinePassed),
        }
    }
}

impl Report {
    fn end(&self, lost: Option<LossReason>) {
        if self.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let Self { path, token, .. } = self;
        let held = self.probe.now().since(self.since).as_secs_f64();
        match lost {
            Some(reason) => {
                warn!(lock = %path, %token, %reason, held_seconds = held, "a lock is lost");
            }
            None => debug!(lock = %path, %token, held_seconds = held, "released"),
        }

        #[cfg(feature = "metrics")]
        if let Ok(Some(slot)) = self.slot.lock().map(|mut slot| slot.take()) {
            slot.ended(path, held, lost);
        }
    }
}

impl Drop for HoldReport {
    /// Also reports a loss that was not noticed during the life of the guard.
    fn drop(&mut self) {
        if let Some(report) = self.0.as_ref()
            && !report.has_ended.load(Ordering::Acquire)
        {
            let seen = report.probe.state();
            let deletion = seen.is_gone.then_some(LossReason::NodeDeleted);
            self.ends(&judge(&seen, report.session, deletion));
        }
    }
}
