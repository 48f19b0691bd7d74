//! What must be true of the item of a queue.

use lockkeeper::SessionId;

use crate::histories::Seen;
use crate::program::{GaveUp, Phase};
use crate::scenarios::LockKind;
use crate::service::{Input, StateId};
use crate::state::{Broken, Parts, State};

/// What became of the item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fate {
    /// Whether its put was confirmed.
    pub(crate) is_put: bool,
    /// Who has ended it.
    pub(crate) ended_by: Option<usize>,
}

/// From its put to its end it is there, and never twice.
pub(crate) fn item_is_there(parts: &Parts, state: &State, _: bool) -> bool {
    let view = parts.service.view(state.server);
    let count = match (state.fate.ended_by, state.fate.is_put) {
        (Some(_), _) => 0..=0,
        (None, true) => 1..=1,
        (None, false) => 0..=1,
    };
    count.contains(&view.entries.len()) && view.bodies.len() == view.entries.len()
}

/// Whether a client waits for a free item when no message is in flight.
pub(crate) fn is_forgotten(parts: &Parts, state: &State) -> bool {
    let view = parts.service.view(state.server);
    let seen = || (0..state.clients.len()).filter_map(|n| parts.seen(state, n));
    let is_present = |session: SessionId| view.sessions.iter().any(|(_, it)| *it == session);
    // The claim of a session without a client ends with the session.
    let is_held = |(node, owner): &(String, SessionId)| {
        let has_it = |node: &String| {
            seen().any(|seen| {
                matches!(seen.phase, Phase::Holding(_))
                    && seen.belief.as_ref().is_some_and(|belief| belief.nodes.contains(node))
            })
        };
        is_claim(node) && (!is_present(*owner) || has_it(node))
    };
    let waits = seen().any(|seen| matches!(seen.phase, Phase::Asking(_)));
    waits && !view.entries.is_empty() && !view.nodes.iter().any(is_held)
}

/// The server has handled something.
///
/// # Errors
///
/// The item was ended by a client that did not hold it.
pub(crate) fn step(
    parts: &Parts,
    before: StateId,
    input: Input,
    state: &mut State,
) -> Result<(), Broken> {
    let (before, view) = (parts.service.view(before), parts.service.view(state.server));
    if before.entries.iter().all(|entry| view.entries.contains(entry)) {
        return Ok(());
    }
    let Input::Frame(from, _) = input else { return Err("an item is ended by its holder") };
    let session = before.sessions.iter().find(|(of, _)| *of == from).map(|(_, session)| *session);
    let is_own = |(node, owner): &(String, SessionId)| is_claim(node) && Some(*owner) == session;
    let was_held = before.nodes.iter().any(is_own);
    if !was_held || state.fate.ended_by.replace(usize::from(from.client)).is_some() {
        return Err("an item is ended by its holder");
    }
    Ok(())
}

/// A client's program learns a result.
///
/// # Errors
///
/// It does not fit to what became of the item.
pub(crate) fn told(
    parts: &Parts,
    state: &mut State,
    n: usize,
    before: &Seen,
    seen: &Seen,
) -> Result<(), Broken> {
    if parts.bounds.lock != LockKind::Queue {
        return Ok(());
    }
    let has_ended_it = state.fate.ended_by == Some(n);
    match (&before.phase, &seen.phase) {
        (Phase::Putting, Phase::Idle) => state.fate.is_put = true,
        (Phase::GivingBack, Phase::Done) if !has_ended_it => {
            return Err("an item that was reported done is gone");
        }
        (Phase::GivingBack, Phase::GaveUp(GaveUp::Lost)) if has_ended_it => {
            return Err("what is told to be lost was not done");
        }
        (Phase::Asking(_), Phase::Holding(_)) if state.fate.ended_by.is_some() => {
            return Err("what is done is not handed out");
        }
        _ => {}
    }
    Ok(())
}

pub(crate) fn is_claim(path: &str) -> bool {
    path.starts_with(crate::QUEUE) && path.contains("/claims/")
}
