//! The invariants that every history must satisfy. A new invariant is one more function in [`INVARIANTS`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::availability::{grants_leave_time, no_lock_is_lost, nobody_is_denied};
use crate::beliefs::{self, checked_writes_in_order, leases_keep_others_out};
use crate::history::{Entry, History, Share, What};
use crate::jeopardy::{an_outage_is_no_loss, jeopardy_is_kept};
use crate::leases::{Lease, leases};
use crate::sharing;

/// A property of every history.
pub struct Invariant {
    /// What is promised.
    pub name: &'static str,
    about: About,
    check: Check,
}

/// The subject of an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// Who holds a lock.
    Locks,
    /// What is read from the servers' tree. Servers with different trees may show different data.
    Data,
    /// Progress, which faulty servers can prevent.
    Progress,
}

type Check = fn(&[Entry]) -> Result<(), String>;

/// A check that a history contains no line of this kind: the program that records such a line has already judged what
/// only it can know. A check that needs the whole history may follow.
macro_rules! no {
    ($kind:ident $(, $judge:expr)?) => {
        |entries| {
            none_is(entries, |what| matches!(what, What::$kind(_)))?;
            $($judge(entries)?;)?
            Ok(())
        }
    };
}

/// All invariants.
pub const INVARIANTS: &[Invariant] = &[
    safety("leases that exclude each other do not overlap", leases_fit),
    safety("tokens grow, and no contender is overtaken", in_order),
    safety("a lease excludes all others, in every layout", leases_keep_others_out),
    safety("no waiter writes", checked_writes_in_order),
    safety("no stale write is admitted", no_stale_write),
    data("plain reads and writes are linearizable", register_is_linearizable),
    data(
        "snapshots are states of the tree, and go forward",
        no!(InexactSnapshot, sharing::snapshots_fit),
    ),
    data("counters and shared values are exact", no!(InexactValue, sharing::values_fit)),
    data("editions have one number each, and none is lost", sharing::editions_fit),
    data("an item is done once, or is there", no!(WrongItem, sharing::items_are_once)),
    data("tokens and tries of an item grow", sharing::takes_grow),
    data("a value is removed at most once", sharing::removed_at_most_once),
    data("a queue has no more items than its bound", sharing::no_more_than_bound),
    data("items are taken in the order of puts", sharing::taken_in_order),
    data("items of a key are taken in the order of puts", sharing::keys_in_order),
    data("an answer is that of an item that is done", sharing::answers_are_true),
    data("nothing is taken before it is due", sharing::taken_when_due),
    data("lower priorities are taken first", sharing::lower_priorities_first),
    data("consumers are not woken for nothing", sharing::woken_for_items),
    data("only its own parties enter a round", no!(WrongRound, sharing::rounds_fit)),
    data("items move when they must, and not otherwise", no!(WrongPartition)),
    data("deaths in a round are distinguished from leaves", sharing::deaths_are_true),
    data("a round that all have left is gone", sharing::rounds_end),
    data("a latch opens after exactly its count", sharing::latches_are_exact),
    data("no waiter passes a closed barrier", sharing::gates_keep),
    data("a pool gives only wanted things", no!(WrongThing, sharing::things_are_wanted)),
    data("a holder has no more of a pool than its limit", sharing::holders_keep_their_limits),
    data("no waiter for a thing is overtaken", sharing::nobody_is_overtaken_for_a_thing),
    data(
        "no id comes twice, and those of the next holder are larger",
        no!(WrongId, sharing::ids_are_once),
    ),
    data("a presence is there by its own node, and touches no other", no!(WrongPresence)),
    data(
        "registered instances are in every directory",
        no!(MissingInstance, sharing::directories_fit),
    ),
    data(
        "views of one name have the same members, and names grow",
        no!(WrongView, sharing::views_fit),
    ),
    data("what is done once begins once, and no tick after a later one", no!(WrongOnce)),
    safety(
        "nothing is believed or done in jeopardy, and what is lost stays lost",
        jeopardy_is_kept,
    ),
    progress("an outage that is ridden out loses no lock", an_outage_is_no_loss),
    progress("nothing is left behind", no!(Left)),
    progress("every wait ends", no!(Stuck)),
    progress("a free item does not wait for a dead consumer", no!(WaitsForDead)),
    progress("no lock is lost on servers that are well", no_lock_is_lost),
    progress("no presence is lost on servers that are well", no!(LostPresence)),
    progress("no lock is denied by servers that are well", nobody_is_denied),
    progress("no free lock is denied after a standstill of the program", no!(DeniedFree)),
    progress("a grant leaves time to work", grants_leave_time),
];

const fn safety(name: &'static str, check: Check) -> Invariant {
    Invariant { name, about: About::Locks, check }
}

const fn data(name: &'static str, check: Check) -> Invariant {
    Invariant { name, about: About::Data, check }
}

const fn progress(name: &'static str, check: Check) -> Invariant {
    Invariant { name, about: About::Progress, check }
}

/// Returns the violated invariants of a history, with the lines that show each violation.
///
/// # Errors
///
/// The first violation of each invariant.
pub fn check(history: &History) -> Result<(), String> {
    let failures: Vec<String> = INVARIANTS
        .iter()
        .filter_map(|invariant| {
            let why = (invariant.check)(history.entries()).err()?;
            Some(format!("violated: {}\n  {why}", invariant.name))
        })
        .collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Whether a history satisfies all invariants about the holders of locks.
pub fn are_locks_safe(history: &History) -> bool {
    let mut locks = INVARIANTS.iter().filter(|invariant| invariant.about == About::Locks);
    locks.all(|invariant| (invariant.check)(history.entries()).is_ok())
}

/// A new grant is compatible with all leases that their holders still claim.
fn leases_fit(entries: &[Entry]) -> Result<(), String> {
    for (lock, leases) in leases(entries) {
        for (index, later) in leases.iter().enumerate() {
            let still = leases[..index].iter().filter(|lease| lease.end() > later.granted);
            let still: Vec<_> = still.collect();
            let shares = still.iter().map(|lease| lease.share).chain([later.share]);
            if !Share::fit(&shares.collect::<Vec<_>>()) {
                return Err(beside(lock, later, &still));
            }
        }
    }
    Ok(())
}

/// Tokens are ordered by the creation of the contenders. So a new grant is compatible with all leases with lower tokens
/// that do not end before it: if such a lease is reported only later, its contender was already waiting. Two leases
/// that exclude each other never have the same token.
fn in_order(entries: &[Entry]) -> Result<(), String> {
    for (lock, leases) in leases(entries) {
        for lease in &leases {
            let before = leases.iter().filter(|other| {
                // A holder that continues with a smaller or a larger share may keep its token.
                let same = other.token == lease.token && other.who != lease.who;
                (other.token < lease.token || same) && other.end() > lease.granted
            });
            let before: Vec<_> = before.collect();

            let shares: Vec<_> = before.iter().map(|other| other.share).collect();
            // Leases that were granted earlier are checked for overlap.
            if before.iter().any(|other| other.granted > lease.granted)
                && !lease.share.fits_behind(&shares)
            {
                return Err(beside(lock, lease, &before));
            }
        }
    }
    Ok(())
}

fn beside(lock: &str, lease: &Lease<'_>, others: &[&Lease<'_>]) -> String {
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    format!("{lock}: {lease} was granted it while held by {}", others.join(" and "))
}

/// Of two holders that exclude each other, the writes of the earlier one come before those of the later one.
fn no_stale_write(entries: &[Entry]) -> Result<(), String> {
    // In the order of their grants, not of their tokens: the tokens are what is checked.
    let order = leases(entries);
    // A resource refuses the writes of holders without a lease as far as it can; there is no order to check.
    let without_lease = beliefs::who_and_token(entries);

    let mut admitted: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for Entry { at, who, what } in entries {
        let What::Admitted { lock, token } = what else { continue };
        let leases = order.get(lock.as_str()).map_or(&[][..], Vec::as_slice);
        let by = leases.iter().position(|lease| lease.token == *token && lease.who == who);
        if by.is_none() && without_lease.contains(&(who.as_str(), *token)) {
            continue;
        }
        let Some(by) = by else {
            return Err(format!("{lock}: a write by {who}, which never held it"));
        };

        let admitted = admitted.entry(lock).or_default();
        let later = |other: &&usize| **other > by && leases[by].excludes(&leases[**other]);
        if let Some(later) = admitted.iter().find(later) {
            return Err(format!(
                "{lock}: a write by {} was admitted at {:.3} s, after one by {}",
                leases[by],
                at.as_secs_f64(),
                leases[*later]
            ));
        }
        admitted.push(by);
    }
    Ok(())
}

/// The server numbers the versions of the register, so only one order can be right: each version has one value, and no
/// operation that began after the end of another sees an older one.
fn register_is_linearizable(entries: &[Entry]) -> Result<(), String> {
    struct Op<'a> {
        who: &'a str,
        asked: Duration,
        answered: Duration,
        version: i32,
        value: u64,
        writes: bool,
    }

    let ops: Vec<Op<'_>> = entries
        .iter()
        .filter_map(|Entry { at, who, what }| {
            let (asked, version, value, writes) = match what {
                What::Read { asked, version, value } => (*asked, *version, *value, false),
                What::Wrote { asked, version: Some(version), value } => {
                    (*asked, *version, *value, true)
                }
                _ => return None,
            };
            Some(Op { who, asked, answered: *at, version, value, writes })
        })
        .collect();

    let mut values: BTreeMap<i32, u64> = BTreeMap::new();
    for op in &ops {
        let known = *values.entry(op.version).or_insert(op.value);
        if known != op.value {
            return Err(format!("version {} is {known} and {}", op.version, op.value));
        }
    }

    // Sorted by their ends: a later start is then compared with the newest version known before.
    let mut by_end: Vec<&Op<'_>> = ops.iter().collect();
    by_end.sort_by_key(|op| op.answered);
    for op in &ops {
        let before = by_end.iter().take_while(|other| other.answered < op.asked);
        let Some(newest) = before.max_by_key(|other| other.version) else { continue };
        let stale =
            if op.writes { op.version <= newest.version } else { op.version < newest.version };
        if stale {
            return Err(format!(
                "{} asked at {:.3} s and got version {}, after {} had version {} at {:.3} s",
                op.who,
                op.asked.as_secs_f64(),
                op.version,
                newest.who,
                newest.version,
                newest.answered.as_secs_f64()
            ));
        }
    }
    Ok(())
}

/// Returns the first line that must not exist as the violation.
fn none_is(entries: &[Entry], is_wrong: impl Fn(&What) -> bool) -> Result<(), String> {
    let wrong = entries.iter().find(|entry| is_wrong(&entry.what));
    wrong.map_or(Ok(()), |entry| Err(format!("{}: {}", entry.who, entry.what)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::lines::{LOCK, at, claimed, granted, history, refused};

    fn shared(token: u128, share: Share) -> What {
        What::Granted { lock: LOCK.into(), token, share }
    }

    fn permits(token: u128, taken: u32) -> What {
        shared(token, Share::Permits { taken, of: 3 })
    }

    #[test]
    fn a_lease_ends_at_its_deadline_or_when_it_is_given_back() {
        let back = What::GaveBack { lock: LOCK.into(), token: 1 };
        let good = vec![
            (1, "a", granted(1)),
            (1, "a", claimed(1, 9)),
            (3, "a", back),
            (4, "b", granted(2)),
            (4, "b", claimed(2, 6)),
            (7, "c", granted(3)),
        ];
        assert_eq!(check(&history(good)), Ok(()));
        let bad = vec![(1, "a", granted(1)), (2, "a", claimed(1, 9)), (8, "b", granted(2))];
        refused(bad, "overlap");
    }

    #[test]
    fn a_token_that_does_not_grow_is_found() {
        let refused = |first, second, until| {
            let lines = vec![
                (1, "a", granted(first)),
                (2, "b", granted(second)),
                (2, "b", claimed(second, until)),
            ];
            refused(lines, "tokens grow");
        };
        refused(2, 2, 2);
        refused(2, 1, 9);
    }

    #[test]
    fn readers_share_and_writers_exclude() {
        let readers = vec![
            (1, "a", shared(1, Share::Reader)),
            (1, "a", claimed(1, 9)),
            (2, "b", shared(3, Share::Upgradeable)),
            (2, "b", claimed(3, 9)),
            // Waiting before the other, and reported later.
            (3, "c", shared(2, Share::Reader)),
            (3, "c", claimed(2, 9)),
        ];
        let beside = |token, share| {
            let mut lines = readers.clone();
            lines.push((4, "d", shared(token, share)));
            lines
        };
        assert_eq!(check(&history(beside(4, Share::Reader))), Ok(()));
        refused(beside(4, Share::Upgradeable), "do not overlap");
        refused(beside(4, Share::Alone), "do not overlap");
    }

    #[test]
    fn permits_are_counted() {
        let lines = |wanted| {
            vec![
                (1, "a", permits(1, 1)),
                (1, "a", claimed(1, 9)),
                (2, "b", permits(2, 1)),
                (2, "b", claimed(2, 9)),
                (3, "c", permits(3, wanted)),
            ]
        };
        assert_eq!(check(&history(lines(1))), Ok(()));
        refused(lines(2), "do not overlap");
    }

    /// A reader holds the lock while one upgradeable holder follows another: these exclude each other but not the
    /// reader.
    #[test]
    fn those_ahead_may_exclude_each_other() {
        let lines = vec![
            (1, "a", shared(1, Share::Upgradeable)),
            (1, "a", claimed(1, 4)),
            (2, "c", shared(3, Share::Reader)),
            (2, "c", claimed(3, 9)),
            (5, "b", shared(2, Share::Upgradeable)),
            (5, "b", claimed(2, 9)),
        ];
        assert_eq!(check(&history(lines)), Ok(()));
    }

    /// One permit is free, which would suffice for the third; but the second needs two and is ahead of it.
    #[test]
    fn one_that_overtakes_is_found() {
        let lines = |last: u128, second: u128| {
            vec![
                (1, "a", permits(1, 2)),
                (1, "a", claimed(1, 4)),
                (2, "c", permits(last, 1)),
                (2, "c", claimed(last, 6)),
                (5, "b", permits(second, 2)),
                (5, "b", claimed(second, 8)),
            ]
        };
        assert_eq!(check(&history(lines(2, 3))), Ok(()));
        refused(lines(3, 2), "no contender is overtaken");
    }

    #[test]
    fn a_free_lock_that_is_denied_after_a_standstill_is_found() {
        refused(vec![(9, "a", What::DeniedFree(LOCK.into()))], "after a standstill");
    }

    #[test]
    fn a_stale_write_is_found() {
        let write = |token| What::Admitted { lock: LOCK.into(), token };
        let lines = vec![
            (1, "a", granted(1)),
            (2, "b", granted(2)),
            (3, "b", write(2)),
            (4, "a", write(1)),
        ];
        refused(lines, "stale write");
    }

    #[test]
    fn a_read_of_the_past_is_found() {
        let read = |asked, version, value| What::Read { asked: at(asked), version, value };
        let wrote = What::Wrote { asked: at(1), version: Some(1), value: 7 };
        let good = vec![(3, "a", wrote.clone()), (4, "b", read(2, 0, 0)), (9, "b", read(5, 1, 7))];
        assert_eq!(check(&history(good)), Ok(()));
        refused(vec![(3, "a", wrote), (9, "b", read(5, 0, 0))], "linearizable");
    }
}
