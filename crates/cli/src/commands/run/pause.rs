//! Pauses a command during an outage.
//!
//! ```text
//!                                 |<- reserve ->|<-------- grace -------->|
//!   ---- lease is renewed --------+-------------+---- jeopardy -----------+--> time
//!                                 STOP          deadline                  KILL
//! ```
//!
//! In jeopardy it is unknown whether the lock is still held, so no process of the command may run. If the servers prove
//! that it was held all the time, the command resumes. If it is lost, or if the grace period has passed, the command is
//! killed while it is stopped: to handle TERM, it would have to run after the loss.
//!
//! Any process that may signal the command may also continue it, and a process cannot prevent that. So the command is
//! stopped again periodically, and immediately when the first process of its group is continued.

use std::time::Duration;

use lockkeeper::Timing;
use rustix::process::{Pid, Signal, kill_process_group};

use super::group;

/// How long a command may be paused by default.
pub(super) const GRACE: Duration = Duration::from_secs(300);

/// How much later than lockkeeper the watchdog kills a paused command, so that lockkeeper can report the reason. The
/// command does not run in between.
pub(super) const WATCHDOG_LATER: Duration = Duration::from_secs(1);

/// How often a paused command is stopped again.
pub(super) const STOP_AGAIN: Duration = Duration::from_millis(20);

/// Stops a group, and waits until all of its processes are stopped; `false` if that takes too long.
pub(super) fn stop(group: Pid, timing: Timing) -> bool {
    // Fails if all of its processes have ended.
    let _ = kill_process_group(group, Signal::STOP);
    group::stops_within(group, reserve(timing) / 4)
}

/// The maximum time between STOP or KILL and the deadline, in which the kernel must execute it.
const MAX_RESERVE: Duration = Duration::from_millis(250);

/// How long before the deadline the command must not run any more.
pub(super) fn reserve(timing: Timing) -> Duration {
    (timing.lease() / 20).min(MAX_RESERVE)
}
