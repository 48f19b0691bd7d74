//! The invariants that apply while the servers are healthy: locks are kept, and contenders get them.
//!
//! The event [`What::Well`] marks the beginning of such a time. Without it, these invariants do not apply.

use std::time::Duration;

use crate::history::{Entry, What};

/// A held lock is not lost.
pub(crate) fn no_lock_is_lost(entries: &[Entry]) -> Result<(), String> {
    let lost = while_well(entries).find(|entry| matches!(entry.what, What::Lost { .. }));
    lost.map_or(Ok(()), |entry| Err(told(entry)))
}

/// Only other holders keep a contender from its lock.
pub(crate) fn nobody_is_denied(entries: &[Entry]) -> Result<(), String> {
    let denied = while_well(entries).find(|entry| matches!(entry.what, What::Denied { .. }));
    denied.map_or(Ok(()), |entry| Err(told(entry)))
}

/// Every grant comes with a deadline that leaves enough time.
pub(crate) fn grants_leave_time(entries: &[Entry]) -> Result<(), String> {
    let Some(promised) = entries.iter().find_map(promise) else { return Ok(()) };
    let granted = while_well(entries).filter(|entry| matches!(entry.what, What::Granted { .. }));
    for entry in granted {
        let left = left_at(entry, entries).unwrap_or_default();
        if left < promised {
            let (left, promised) = (left.as_secs_f64(), promised.as_secs_f64());
            return Err(format!(
                "{}; {left:.3} s remain, promised are {promised:.3} s",
                told(entry)
            ));
        }
    }
    Ok(())
}

fn promise(entry: &Entry) -> Option<Duration> {
    match entry.what {
        What::Well { always_left } => Some(always_left),
        _ => None,
    }
}

fn while_well(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().skip_while(|entry| promise(entry).is_none())
}

/// The time that remains at the moment of a grant, as the holder learned it.
fn left_at(grant: &Entry, entries: &[Entry]) -> Option<Duration> {
    let What::Granted { lock: granted, token: by, .. } = &grant.what else { return None };
    let claim = |entry: &Entry| match &entry.what {
        What::Claimed { lock, token, until } if lock == granted && token == by => {
            Some(until.saturating_sub(grant.at))
        }
        _ => None,
    };
    let told = entries.iter().filter(|entry| entry.at == grant.at && entry.who == grant.who);
    told.filter_map(claim).next()
}

fn told(entry: &Entry) -> String {
    format!("{} at {:.3} s: {}", entry.who, entry.at.as_secs_f64(), entry.what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::check;
    use crate::history::lines::{self, LOCK, at, claimed, granted};

    fn well() -> What {
        What::Well { always_left: at(3) }
    }

    fn lost() -> What {
        What::Lost { lock: LOCK.into(), token: 1, reason: "DeadlinePassed".into() }
    }

    fn denied() -> What {
        What::Denied { lock: LOCK.into(), reason: "the session expired".into() }
    }

    fn by_one(lines: Vec<(u64, What)>) -> Vec<(u64, &'static str, What)> {
        lines.into_iter().map(|(time, what)| (time, "a", what)).collect()
    }

    fn judged(lines: Vec<(u64, What)>) -> Result<(), String> {
        check(&lines::history(by_one(lines)))
    }

    fn refused(lines: Vec<(u64, What)>, invariant: &str) {
        lines::refused(by_one(lines), invariant);
    }

    #[test]
    fn a_lock_that_is_lost_while_all_is_well_is_found() {
        let grant = [(1, granted(1)), (1, claimed(1, 9))];
        let lines = |before: &[What]| {
            let before = before.iter().map(|what| (0, what.clone()));
            before.chain(grant.clone()).chain([(9, lost())]).collect()
        };
        assert_eq!(judged(lines(&[])), Ok(()), "nothing was promised");
        refused(lines(&[well()]), "no lock is lost");
    }

    #[test]
    fn a_contender_that_is_denied_while_all_is_well_is_found() {
        assert_eq!(
            judged(vec![(0, denied()), (1, well())]),
            Ok(()),
            "the servers were not healthy yet"
        );
        refused(vec![(0, well()), (1, denied())], "no lock is denied");
    }

    #[test]
    fn a_grant_with_too_little_time_is_found() {
        let lines = |claims: &[(u64, What)]| {
            let grant = [(0, well()), (2, granted(1))];
            grant.into_iter().chain(claims.iter().cloned()).collect()
        };
        assert_eq!(judged(lines(&[(2, claimed(1, 5))])), Ok(()));
        refused(lines(&[(2, claimed(1, 4))]), "leaves time");
        refused(lines(&[(3, claimed(1, 9))]), "leaves time");
        refused(lines(&[(2, claimed(2, 9))]), "leaves time");
        refused(lines(&[]), "leaves time");
    }
}
