//! A command that stands still in an outage.
//!
//! ```text
//!                                 |<- reserve ->|<-------- grace -------->|
//!   ---- lease is renewed --------+-------------+---- jeopardy -----------+--> time
//!                                 STOP          deadline                  KILL
//! ```
//!
//! In jeopardy nobody knows whether the lock is still held, so nothing of the command may run. If the
//! servers prove that it was held all the time, the command goes on; if it is lost, or the grace is
//! over, it is killed where it stands: TERM would have it run, after the loss.
//!
//! Whoever may signal the command may also continue it, and no process can refuse to be continued. So
//! it is stopped again and again, and at once when the first process of its group goes on.

use std::time::Duration;

use lockkeeper::Timing;
use rustix::process::{Pid, Signal, kill_process_group};

use super::group;

/// How long a command may stand still, unless another time is asked for.
pub(super) const GRACE: Duration = Duration::from_secs(300);

/// How much later than lockkeeper the watchdog ends a command that stands still, so that lockkeeper can
/// say why. Nothing of the command runs meanwhile.
pub(super) const WATCHDOG_LATER: Duration = Duration::from_secs(1);

/// How often a command that stands still is stopped again.
pub(super) const STOP_AGAIN: Duration = Duration::from_millis(20);

/// Stops a group, and looks until all of it stands still; `false` if that takes too long.
pub(super) fn stop(group: Pid, timing: Timing) -> bool {
    // Fails if all of it has ended.
    let _ = kill_process_group(group, Signal::STOP);
    group::stops_within(group, reserve(timing) / 4)
}

/// The longest time between STOP or KILL and the deadline, in which the kernel does it.
const LONGEST_RESERVE: Duration = Duration::from_millis(250);

/// How long before the deadline nothing of the command may run any more.
pub(super) fn reserve(timing: Timing) -> Duration {
    (timing.lease() / 20).min(LONGEST_RESERVE)
}
