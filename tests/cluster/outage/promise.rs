//! The longest outage that is promised to end nothing.

use std::time::Duration;

use lockkeeper::{LeaseMode, Timing};

use super::holders::HolderKind;
use crate::servers::{Place, TICK};

/// How much sooner `lockkeeper run` acts, so that it can end its command in time, by its session
/// timeout, in milliseconds: `--kill-after` and the reserve, for a tick of 2 s.
const LEAD_OF_RUN: [(u64, u64); 5] =
    [(4_000, 662), (6_000, 1_018), (10_000, 1_584), (15_000, 2_250), (20_000, 2_250)];

/// How soon after an outage a session is heard of again. Who rides it out has all of the rest of the
/// session timeout.
const COMING_BACK: Duration = Duration::from_millis(500);

/// What `lockkeeper run` must survive with the default session timeout, whatever that is.
pub(super) const RUN_AT_DEFAULTS: Duration = Duration::from_secs(5);

/// The longest outage that a holder with this session timeout is promised to survive, as the code
/// that computes leases says it.
pub(super) fn promised(place: Place, timeout: Duration, kind: HolderKind) -> Duration {
    let mode = match place {
        Place::Local => LeaseMode::Direct,
        Place::Engine | Place::Ensemble => LeaseMode::Quorum,
    };
    let timing = Timing::new(mode, timeout, TICK);
    let guard = timing.outage();
    match kind {
        HolderKind::Jeopardy | HolderKind::Pause => {
            let unheard = timing.renewal_interval() + timing.relay() + COMING_BACK;
            timeout.saturating_sub(unheard)
        }
        HolderKind::Guard => guard,
        HolderKind::Run => guard.saturating_sub(lead_of_run(timeout)),
    }
}

/// The lead of the next longer timeout in the table: rather too long than too short.
fn lead_of_run(timeout: Duration) -> Duration {
    let longest = LEAD_OF_RUN[LEAD_OF_RUN.len() - 1];
    let next = LEAD_OF_RUN.into_iter().find(|(known, _)| Duration::from_millis(*known) >= timeout);
    Duration::from_millis(next.unwrap_or(longest).1)
}
