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

use clap::ValueEnum;
use lockkeeper::Timing;
use rustix::process::{Pid, Signal, kill_process_group};

use super::group;
use super::loss::OnLost;
use crate::exit::{Exit, Failure};

/// How long a command may stand still, unless another time is asked for.
pub(super) const GRACE: Duration = Duration::from_secs(300);

/// How often a command that stands still is stopped again.
pub(super) const STOP_AGAIN: Duration = Duration::from_millis(20);

/// What happens to the command when no server renews the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnOutage {
    /// It is ended, as --on-lost says
    End,
    /// It is stopped, and goes on if the lock was held all the time
    Pause,
}

/// For how long an outage may stop the command; `None` if it ends the command.
pub(super) fn grace(
    on_outage: OnOutage,
    on_lost: OnLost,
    grace: Option<Duration>,
) -> Result<Option<Duration>, Failure> {
    let refused = |message: &str| Err(Failure::new(Exit::Usage, message));
    match (on_outage, on_lost) {
        (OnOutage::End, _) if grace.is_some() => {
            refused("--grace is for --on-outage pause: without it, an outage ends the command")
        }
        (OnOutage::End, _) => Ok(None),
        (OnOutage::Pause, OnLost::Warn) => refused(
            "--on-outage pause does not go with --on-lost warn: a command that has stood still would \
             go on after the loss of the lock",
        ),
        (OnOutage::Pause, _) => Ok(Some(grace.unwrap_or(GRACE))),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_pair_means() {
        let of = |on_outage, on_lost, time| grace(on_outage, on_lost, time).ok();
        let minute = Some(Duration::from_secs(60));
        for on_lost in [OnLost::Term, OnLost::Kill, OnLost::Warn] {
            assert_eq!(of(OnOutage::End, on_lost, None), Some(None));
            assert_eq!(of(OnOutage::End, on_lost, minute), None, "nothing stands still");
        }
        for on_lost in [OnLost::Term, OnLost::Kill] {
            assert_eq!(of(OnOutage::Pause, on_lost, None), Some(Some(GRACE)));
            assert_eq!(of(OnOutage::Pause, on_lost, minute), Some(minute));
        }
        assert_eq!(of(OnOutage::Pause, OnLost::Warn, None), None);
    }
}
