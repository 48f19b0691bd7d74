//! The invariants for locks that are kept through outages.

use std::collections::BTreeMap;

use crate::history::{Entry, What};

/// The state of a hold as last reported to its holder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastTold {
    Held,
    RidesOut,
    Jeopardy,
    Lost,
}

/// A lost lock stays lost, and in jeopardy no claim is made and no work is done.
pub(crate) fn jeopardy_is_kept(entries: &[Entry]) -> Result<(), String> {
    walk(entries, |told, entry| match (told, &entry.what) {
        (LastTold::Lost, What::Claimed { .. } | What::HeldAgain { .. } | What::Doubted { .. }) => {
            Err("it was lost before")
        }
        (LastTold::Jeopardy, What::Claimed { .. }) => Err("it was in jeopardy"),
        (LastTold::Held | LastTold::RidesOut, What::HeldAgain { .. }) => {
            Err("it was not in jeopardy")
        }
        (LastTold::Held, What::Doubted { .. }) => Err("it had not chosen to ride out outages"),
        (_, What::Unheld { .. }) => Err("no work may be done without the lock"),
        _ => Ok(()),
    })
}

/// A lock that is kept through outages is lost with its session or its node, and not at a deadline.
pub(crate) fn an_outage_is_no_loss(entries: &[Entry]) -> Result<(), String> {
    walk(entries, |told, entry| match (told, &entry.what) {
        (LastTold::RidesOut | LastTold::Jeopardy, What::Lost { reason, .. })
            if reason == "DeadlinePassed" =>
        {
            Err("the session may have survived")
        }
        _ => Ok(()),
    })
}

/// Visits each event about a hold, with the hold's previous state.
fn walk(
    entries: &[Entry],
    judge: impl Fn(LastTold, &Entry) -> Result<(), &'static str>,
) -> Result<(), String> {
    let mut holds: BTreeMap<(&str, &str, u128), LastTold> = BTreeMap::new();
    for entry in entries {
        let (lock, token, told) = match &entry.what {
            What::Granted { lock, token, .. } => (lock, token, Some(LastTold::Held)),
            What::RidesOut { lock, token } => (lock, token, Some(LastTold::RidesOut)),
            What::Doubted { lock, token } => (lock, token, Some(LastTold::Jeopardy)),
            What::HeldAgain { lock, token } => (lock, token, Some(LastTold::RidesOut)),
            What::Lost { lock, token, .. } => (lock, token, Some(LastTold::Lost)),
            What::Claimed { lock, token, .. } | What::Unheld { lock, token } => (lock, token, None),
            _ => continue,
        };

        let hold = holds.entry((&entry.who, lock, *token)).or_insert(LastTold::Held);
        // A lock that is converted to another share may keep its token.
        if !matches!(entry.what, What::Granted { .. }) {
            judge(*hold, entry).map_err(|why| {
                format!("{} at {:.3} s: {}; {why}", entry.who, entry.at.as_secs_f64(), entry.what)
            })?;
        }
        *hold = told.unwrap_or(*hold);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::history::lines::{LOCK, claimed as claimed_by, granted, history};

    const TOKEN: u128 = 1;

    fn lines(lines: &[What]) -> History {
        let all = std::iter::once(granted(TOKEN)).chain(lines.iter().cloned());
        history(all.map(|what| (1, "a", what)).collect())
    }

    fn rides_out() -> What {
        What::RidesOut { lock: LOCK.into(), token: TOKEN }
    }

    fn doubted() -> What {
        What::Doubted { lock: LOCK.into(), token: TOKEN }
    }

    fn again() -> What {
        What::HeldAgain { lock: LOCK.into(), token: TOKEN }
    }

    fn claimed() -> What {
        claimed_by(TOKEN, 9)
    }

    fn lost(reason: &str) -> What {
        What::Lost { lock: LOCK.into(), token: TOKEN, reason: reason.into() }
    }

    #[test]
    fn what_must_not_happen_in_jeopardy_or_after_a_loss_is_found() {
        let judged = |what: &[What]| jeopardy_is_kept(lines(what).entries()).is_ok();
        assert!(judged(&[rides_out(), claimed(), doubted(), again(), claimed()]));
        assert!(judged(&[rides_out(), doubted(), lost("SessionExpired")]));
        assert!(!judged(&[rides_out(), doubted(), claimed()]));
        assert!(!judged(&[rides_out(), lost("NodeDeleted"), claimed()]));
        assert!(!judged(&[rides_out(), doubted(), lost("SessionExpired"), again()]));
        assert!(!judged(&[doubted()]), "it was not requested");
        assert!(!judged(&[rides_out(), What::Unheld { lock: LOCK.into(), token: TOKEN }]));
    }

    #[test]
    fn a_loss_at_the_deadline_is_found_where_it_must_not_be() {
        let judged = |what: &[What]| an_outage_is_no_loss(lines(what).entries()).is_ok();
        assert!(judged(&[lost("DeadlinePassed")]));
        assert!(judged(&[rides_out(), doubted(), lost("SessionExpired")]));
        assert!(!judged(&[rides_out(), doubted(), lost("DeadlinePassed")]));
    }
}
