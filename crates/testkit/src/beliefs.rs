//! Programs of other libraries in a history. Their library reports that they hold a lock, but not until when. So such a
//! claim can outlast the session, and the tokens decide which side is at fault when there are two holders.
//!
//! Of two holders that exclude each other, the one with the lower token came first. If the later one was granted the
//! lock rightly, the first one's node was gone and its claim was outdated. So an overlap is counted against the lowest
//! tokens. Two invariants show that this is right: no contender is granted a lock within a lease of ours, and no
//! contender whose own node still exists, as a transaction can check, ever writes after a later one of ours has
//! written.
//!
//! Tokens are compared as positions in the queue. So this applies to locks whose token is the transaction that created
//! the holder's node: there are no upgrades, and no lock is handed on without a new node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::history::{Entry, History, Share, What};
use crate::leases::{Lease, leases};

/// The time for which a program held a lock or claimed to.
#[derive(Clone, Copy)]
struct Holder<'a> {
    who: &'a str,
    lock: &'a str,
    token: u128,
    share: Share,
    from: Duration,
    /// For a program of another library: until it released the lock, was first warned, or was killed.
    to: Duration,
    /// Whether the program uses another library.
    foreign: bool,
}

/// A program claimed to hold a lock although another one held it.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlap {
    /// The program with the outdated claim.
    pub who: String,
    /// The lock.
    pub lock: String,
    /// The token of its claim.
    pub token: u128,
    /// The first program that was granted the lock during the claim.
    pub beside: String,
    /// The start of the overlap.
    pub from: Duration,
    /// The time from the start until it released the lock, or the last of the others did.
    pub lasted: Duration,
}

fn beliefs(entries: &[Entry]) -> Vec<Holder<'_>> {
    let end = entries.last().map_or(Duration::ZERO, |entry| entry.at);
    let (mut open, mut closed): (Vec<Holder<'_>>, Vec<Holder<'_>>) = Default::default();
    for Entry { at, who, what } in entries {
        let ends: Box<dyn Fn(&Holder<'_>) -> bool> = match what {
            What::Believes { lock, token, share } => {
                let (token, share) = (*token, *share);
                open.push(Holder { who, lock, token, share, from: *at, to: end, foreign: true });
                continue;
            }
            What::Stops { lock, token } => {
                Box::new(move |belief| belief.lock == lock && belief.token == *token)
            }
            What::Warned | What::Died => Box::new(|_| true),
            _ => continue,
        };

        let over = open.extract_if(.., |belief| belief.who == who && ends(belief));
        closed.extend(over.map(|belief| Holder { to: *at, ..belief }));
    }

    // No event ended these.
    closed.extend(open);
    closed
}

/// The programs of other libraries, with their tokens.
pub(crate) fn who_and_token(entries: &[Entry]) -> BTreeSet<(&str, u128)> {
    let believes = |entry: &'_ Entry| match entry.what {
        What::Believes { token, .. } => Some(token),
        _ => None,
    };
    entries.iter().filter_map(|entry| Some((entry.who.as_str(), believes(entry)?))).collect()
}

/// A program that holds the lock with a higher token than ours was granted it after our lease. Permits are left out: it
/// is unknown which holder took one too many.
pub(crate) fn leases_keep_others_out(entries: &[Entry]) -> Result<(), String> {
    let leases = leases(entries);
    for belief in beliefs(entries) {
        let ours = leases.get(belief.lock).map_or(&[][..], Vec::as_slice);
        let within = |lease: &&Lease<'_>| {
            lease.granted <= belief.from && belief.from < lease.end() && lease.token < belief.token
        };
        let excludes = |lease: &&Lease<'_>| {
            let counted = matches!(lease.share, Share::Permits { .. });
            !counted && !Share::fit(&[lease.share, belief.share])
        };

        if let Some(lease) = ours.iter().filter(within).find(excludes) {
            let Holder { who, lock, token, from, .. } = belief;
            let from = from.as_secs_f64();
            return Err(format!(
                "{lock}: {who} (token {token:x}) held it at {from:.3} s, within the lease of {lease}"
            ));
        }
    }
    Ok(())
}

/// A write that was committed together with a check of the writer's node proves that the node still existed. So none of
/// our holders with a higher token may have written before it.
pub(crate) fn checked_writes_in_order(entries: &[Entry]) -> Result<(), String> {
    let leases = leases(entries);
    let mut writes: BTreeMap<&str, Vec<(u64, u128, &str)>> = BTreeMap::new();
    for Entry { who, what, .. } in entries {
        if let What::Committed { lock, token, zxid } = what {
            writes.entry(lock).or_default().push((*zxid, *token, who));
        }
    }

    for (lock, mut writes) in writes {
        writes.sort_unstable();
        let ours = |token, who| {
            let leases = leases.get(lock).map_or(&[][..], Vec::as_slice);
            leases.iter().any(|lease| lease.token == token && lease.who == who)
        };

        let mut highest: Option<(u64, u128, &str)> = None;
        for write in writes {
            let (zxid, token, who) = write;
            if let Some((before, higher, other)) = highest.filter(|(_, higher, _)| *higher > token)
            {
                return Err(format!(
                    "{lock}: {other} (token {higher:x}) wrote in {before:x}, although the node of \
                     {who} (token {token:x}) still existed in {zxid:x}"
                ));
            }
            // Only the writes of our programs are judged.
            if ours(token, who) {
                highest = Some(write);
            }
        }
    }
    Ok(())
}

/// The outdated claims of programs of other libraries, each once, with their durations. A paused program continues its
/// claim until it is notified.
pub fn overlaps(history: &History) -> Vec<Overlap> {
    let entries = history.entries();
    let (beliefs, leases) = (beliefs(entries), leases(entries));
    let mut overlaps = Vec::new();

    let locks: BTreeSet<&str> = beliefs.iter().map(|belief| belief.lock).collect();
    for lock in locks {
        let ours = leases.get(lock).map_or(&[][..], Vec::as_slice).iter();
        let ours = ours.map(|lease| of_lease(lock, lease));
        let theirs = beliefs.iter().filter(|belief| belief.lock == lock).copied();
        let mut holders: Vec<Holder<'_>> = ours.chain(theirs).collect();
        holders.sort_by_key(|holder| holder.from);

        for (index, newcomer) in holders.iter().enumerate() {
            let still = holders[..index].iter().filter(|holder| holder.to > newcomer.from);
            let present: Vec<&Holder<'_>> = still.chain([newcomer]).collect();
            for holder in outdated(&present) {
                let beside = present.iter().rfind(|other| other.who != holder.who);
                if let Some(beside) = beside {
                    add(&mut overlaps, holder, beside, newcomer.from);
                }
            }
        }
    }
    overlaps
}

/// The surplus claims of programs of other libraries, among all that hold or claim the lock.
fn outdated<'a>(present: &[&'a Holder<'a>]) -> Vec<&'a Holder<'a>> {
    let shares: Vec<Share> = present.iter().map(|holder| holder.share).collect();
    if Share::fit(&shares) {
        return Vec::new();
    }
    let latest = present.iter().map(|holder| holder.token).max();
    let (last, earlier): (Vec<_>, Vec<_>) = present
        .iter()
        .filter(|holder| holder.foreign)
        .partition(|holder| Some(holder.token) == latest);
    // With permits, the last one may be the surplus.
    if earlier.is_empty() { last } else { earlier }
}

/// A claim that is already recorded only gets longer.
fn add(overlaps: &mut Vec<Overlap>, holder: &Holder<'_>, beside: &Holder<'_>, from: Duration) {
    let to = holder.to.min(beside.to);
    let same = |known: &&mut Overlap| {
        known.who == holder.who && known.lock == holder.lock && known.token == holder.token
    };
    match overlaps.iter_mut().rfind(same) {
        Some(known) => known.lasted = known.lasted.max(to.saturating_sub(known.from)),
        None => overlaps.push(Overlap {
            who: holder.who.to_owned(),
            lock: holder.lock.to_owned(),
            token: holder.token,
            beside: beside.who.to_owned(),
            from,
            lasted: to.saturating_sub(from),
        }),
    }
}

/// A holder of ours.
fn of_lease<'a>(lock: &'a str, lease: &Lease<'a>) -> Holder<'a> {
    let Lease { who, token, share, granted: from, .. } = *lease;
    Holder { who, lock, token, share, from, to: lease.end(), foreign: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::check;
    use crate::history::lines::{LOCK, claimed, granted, history, refused};

    fn believes(token: u128) -> What {
        What::Believes { lock: LOCK.into(), token, share: Share::Alone }
    }

    fn stops(token: u128) -> What {
        What::Stops { lock: LOCK.into(), token }
    }

    fn lease(from: u64, token: u128, until: u64) -> [(u64, &'static str, What); 2] {
        [(from, "ours", granted(token)), (from, "ours", claimed(token, until))]
    }

    #[test]
    fn a_belief_that_outlasts_its_turn_is_counted_and_is_no_fault_of_ours() {
        let [granted, claimed] = lease(4, 2, 9);
        let history =
            history(vec![(1, "java", believes(1)), granted, claimed, (7, "java", stops(1))]);
        assert_eq!(check(&history), Ok(()));
        let overlaps = overlaps(&history);
        let [overlap] = &overlaps[..] else { panic!("{overlaps:?}") };
        assert_eq!((&overlap.who[..], &overlap.beside[..]), ("java", "ours"));
        assert_eq!(overlap.lasted, Duration::from_secs(3));
    }

    #[test]
    fn a_belief_that_outlasts_several_turns_counts_once() {
        let [granted, claimed] = lease(4, 2, 6);
        let back = (6, "ours", What::GaveBack { lock: LOCK.into(), token: 2 });
        let [granted_again, claimed_again] = lease(7, 3, 9);
        let history = history(vec![
            (1, "java", believes(1)),
            granted,
            claimed,
            back,
            granted_again,
            claimed_again,
            (8, "java", stops(1)),
        ]);
        let overlaps = overlaps(&history);
        let [overlap] = &overlaps[..] else { panic!("{overlaps:?}") };
        assert_eq!(overlap.lasted, Duration::from_secs(4));
    }

    #[test]
    fn a_warning_or_death_ends_all_beliefs_of_a_program() {
        for end in [What::Warned, What::Died] {
            let [granted, claimed] = lease(4, 2, 9);
            let lines = vec![(1, "java", believes(1)), (3, "java", end), granted, claimed];
            assert_eq!(overlaps(&history(lines)), []);
        }
    }

    #[test]
    fn who_is_let_in_within_a_lease_of_ours_is_our_fault() {
        let [granted, claimed] = lease(1, 1, 9);
        refused(vec![granted, claimed, (5, "java", believes(2))], "a lease excludes all others");
    }

    #[test]
    fn ours_that_writes_while_an_earlier_one_is_still_there_is_found() {
        let write = |token, zxid| What::Committed { lock: LOCK.into(), token, zxid };
        let lines = |first: (u128, u64), second: (u128, u64)| {
            let [granted, claimed] = lease(4, 2, 9);
            let earlier = (1, "java", believes(1));
            let first = (5, "ours", write(first.0, first.1));
            let second = (5, "java", write(second.0, second.1));
            history(vec![earlier, granted, claimed, first, second])
        };
        assert_eq!(check(&lines((2, 8), (1, 7))), Ok(()));
        let why = check(&lines((2, 7), (1, 8))).unwrap_err();
        assert!(why.contains("no waiter writes"), "{why}");
    }
}
