//! What must be true of the rounds of a double barrier, of which all clients are parties.

use crate::histories::Seen;
use crate::program::{GaveUp, Phase};
use crate::scenarios::LockKind;
use crate::state::{Broken, Parts, State};

/// Whether a client's program waits for a round.
fn waits(seen: &Seen) -> bool {
    matches!(seen.phase, Phase::Asking(_))
}

/// Whether some have waited long enough: all parties are here.
pub(crate) fn is_forgotten(parts: &Parts, state: &State) -> bool {
    let waiting =
        (0..state.clients.len()).filter_map(|n| parts.seen(state, n)).filter(|it| waits(it));
    waiting.count() >= parts.bounds.clients
}

/// A client's program learns a result.
///
/// # Errors
///
/// It is inside without the others, or has left while another one is inside.
pub(crate) fn told(
    parts: &Parts,
    state: &State,
    n: usize,
    before: &Seen,
    seen: &Seen,
) -> Result<(), Broken> {
    if parts.bounds.lock != LockKind::Rounds {
        return Ok(());
    }
    let mut others =
        (0..state.clients.len()).filter(|other| *other != n).filter_map(|it| parts.seen(state, it));
    match (&before.phase, &seen.phase) {
        (Phase::Asking(_), Phase::Holding(_)) => {
            let has_come = |seen: &Seen| {
                use Phase::{Connecting, Idle};
                !matches!(seen.phase, Connecting | Idle | Phase::GaveUp(GaveUp::TimedOut))
            };
            if others.all(has_come) { Ok(()) } else { Err("all parties are inside, or none") }
        }
        (Phase::GivingBack, Phase::Done) => {
            let is_inside = |seen: &Seen| {
                let belief = seen.belief.as_ref();
                matches!(seen.phase, Phase::Holding(_))
                    && belief.is_some_and(|it| it.until > seen.now)
            };
            if others.any(is_inside) { Err("all leave together") } else { Ok(()) }
        }
        _ => Ok(()),
    }
}
