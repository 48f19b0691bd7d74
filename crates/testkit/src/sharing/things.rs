//! Invariants for the users of a pool. That a thing has one holder at a time and that its tokens grow is checked as for
//! a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::judge::told;
use crate::data_event::DataEvent;
use crate::history::Entry;
use crate::leases::leases;

/// An attempt to take a thing.
#[derive(Debug)]
struct Attempt<'a> {
    who: &'a str,
    at: Duration,
    only: &'a BTreeSet<String>,
    holder: Option<&'a (String, u32)>,
    /// Whether its session ended during the call, so that it may have entered several times.
    again: bool,
    /// The thing that it took, and when.
    took: Option<(Duration, &'a str, u128)>,
    tries: bool,
    /// When it was first seen waiting, and the transaction by which it entered.
    stood: Option<(Duration, u128)>,
    /// When it was last seen waiting.
    seen: Duration,
}

fn attempts(entries: &[Entry]) -> BTreeMap<u64, Attempt<'_>> {
    let mut attempts = BTreeMap::new();
    for (Entry { at, who, .. }, told) in told(entries) {
        match told {
            DataEvent::Wants { attempt, only, holder, tries } => {
                let (again, took, stood, at) = (false, None, None, *at);
                let (holder, tries) = (holder.as_ref(), *tries);
                let seen = Duration::ZERO;
                let wants = Attempt { who, at, only, holder, again, took, tries, stood, seen };
                attempts.insert(*attempt, wants);
            }
            DataEvent::WantsAgain { attempt } => {
                attempts.get_mut(attempt).into_iter().for_each(|it| it.again = true);
            }
            DataEvent::Took { attempt, thing, token } => {
                let took = Some((*at, thing.as_str(), *token));
                attempts.get_mut(attempt).into_iter().for_each(|it| it.took = took);
            }
            DataEvent::Stand { attempts: standing } => {
                for (attempt, came) in standing {
                    if let Some(it) = attempts.get_mut(attempt) {
                        let stood = it.stood.get_or_insert((*at, *came));
                        it.again |= stood.1 != *came;
                        it.seen = *at;
                    }
                }
            }
            _ => {}
        }
    }
    attempts
}

/// A program only gets a thing that it wants and that is in the set at that moment.
pub(crate) fn things_are_wanted(entries: &[Entry]) -> Result<(), String> {
    let offers = told(entries).filter_map(|(_, told)| match told {
        DataEvent::Offers { version, since, things } => Some((version, (*since, things))),
        _ => None,
    });
    let offers: BTreeMap<_, _> = offers.collect();
    for Attempt { who, only, took, .. } in attempts(entries).values() {
        let Some((_, thing, token)) = took else { continue };
        if !only.contains(*thing) {
            return Err(format!("{who} has {thing} and wants {only:?}"));
        }
        for (version, (since, things)) in &offers {
            let until = offers.get(&(*version + 1)).map(|(since, _)| *since);
            let is_then = since < token && until.is_some_and(|until| *token < until);
            if is_then && !things.iter().any(|it| it == thing) {
                return Err(format!("{who} has {thing}, and the set was {things:?}"));
            }
        }
    }
    Ok(())
}

/// A holder never has more things than its limit.
pub(crate) fn holders_keep_their_limits(entries: &[Entry]) -> Result<(), String> {
    let attempts = attempts(entries);
    let leases = leases(entries);
    let leases: BTreeMap<_, _> = leases.values().flatten().map(|it| (it.token, it)).collect();
    let mut held: BTreeMap<&str, (u32, Vec<_>)> = BTreeMap::new();
    for Attempt { holder, took, .. } in attempts.values() {
        if let (Some((holder, limit)), Some((_, _, token))) = (holder, took)
            && let Some(lease) = leases.get(token)
        {
            held.entry(holder).or_insert((*limit, Vec::new())).1.push(lease);
        }
    }
    for (holder, (limit, leases)) in held {
        for lease in &leases {
            let granted = lease.granted;
            let at_once = leases.iter().filter(|it| it.granted <= granted && it.end() > granted);
            if at_once.count() > limit as usize {
                let at = granted.as_secs_f64();
                return Err(format!("{holder} has more than {limit} at {at:.3} s"));
            }
        }
    }
    Ok(())
}

/// An attempt does not get a thing that an earlier waiter wants and that waiter gets another thing afterwards. This
/// concerns attempts made after the waiter was seen, and attempts without waiting.
pub(crate) fn nobody_is_overtaken_for_a_thing(entries: &[Entry]) -> Result<(), String> {
    let attempts = attempts(entries);
    let waits = attempts.values().filter(|it| !it.again && it.holder.is_none());
    for (first, (stood, came)) in waits.filter_map(|it| Some((it, it.stood?))) {
        let Some((_, _, token)) = first.took else { continue };
        for later in attempts.values().filter(|it| it.tries || it.at > stood) {
            // A waiter may have taken a thing and lost it before it knew; then it no longer waits.
            if let Some((at, thing, earlier)) = later.took
                && at <= first.seen
                && (came..token).contains(&earlier)
                && first.only.contains(thing)
            {
                let (first, later) = (first.who, later.who);
                return Err(format!("{later} has {thing} before {first}, which was in line"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{History, Share, What};

    fn history(lines: &[(&str, DataEvent)]) -> History {
        let mut history = History::default();
        for (second, (who, told)) in (1..).zip(lines) {
            history.push(Duration::from_secs(second), *who, What::Data(told.clone()));
        }
        history
    }

    fn wants(attempt: u64, only: &[&str]) -> DataEvent {
        let only = only.iter().copied().map(str::to_owned).collect();
        DataEvent::Wants { attempt, only, holder: None, tries: false }
    }

    fn took(attempt: u64, thing: &str, token: u128) -> DataEvent {
        DataEvent::Took { attempt, thing: thing.to_owned(), token }
    }

    #[test]
    fn an_unwanted_or_missing_thing_is_found() {
        let good = [("a", wants(1, &["x"])), ("a", took(1, "x", 1))];
        assert_eq!(things_are_wanted(history(&good).entries()), Ok(()));
        let bad = [("a", wants(1, &["x"])), ("a", took(1, "y", 1))];
        assert!(things_are_wanted(history(&bad).entries()).is_err());

        let offers = |version, since, things: &[&str]| {
            let things = things.iter().copied().map(str::to_owned).collect();
            ("k", DataEvent::Offers { version, since, things })
        };
        let among = |first: &[&str]| {
            let offers = [offers(0, 0, first), offers(1, 9, &["x"])];
            things_are_wanted(history(&[&good[..], &offers].concat()).entries())
        };
        assert!(among(&["y"]).is_err());
        assert_eq!(among(&["x", "y"]), Ok(()));
    }

    #[test]
    fn an_overtaking_attempt_is_found() {
        let stand = ("k", DataEvent::Stand { attempts: vec![(1, 2)] });
        let first = ("a", wants(1, &["x", "y"]));
        let later = ("b", wants(2, &["x"]));
        let takes = [("b", took(2, "x", 5)), stand.clone(), ("a", took(1, "y", 6))];
        let bad = [&[first.clone(), stand.clone(), later.clone()], &takes[..]].concat();
        assert!(nobody_is_overtaken_for_a_thing(history(&bad).entries()).is_err());
        // It was not seen before.
        let good = [&[first, later, stand], &takes[..]].concat();
        assert_eq!(nobody_is_overtaken_for_a_thing(history(&good).entries()), Ok(()));
    }

    #[test]
    fn a_holder_above_its_limit_is_found() {
        let limited = |limit| {
            let mut history = History::default();
            for (attempt, thing) in [(1, "x"), (2, "y")] {
                let only = BTreeSet::from([thing.to_owned()]);
                let holder = Some(("ann".to_owned(), limit));
                let (lock, token, share) = (thing.to_owned(), u128::from(attempt), Share::Alone);
                let until = Duration::from_secs(9);
                for what in [
                    What::Data(DataEvent::Wants { attempt, only, holder, tries: false }),
                    What::Data(took(attempt, thing, token)),
                    What::Granted { lock: lock.clone(), token, share },
                    What::Claimed { lock, token, until },
                ] {
                    history.push(Duration::from_secs(attempt), "a", what);
                }
            }
            holders_keep_their_limits(history.entries())
        };
        assert!(limited(1).is_err());
        assert_eq!(limited(2), Ok(()));
    }
}
