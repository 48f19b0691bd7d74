//! What must be true of every history. A new invariant is one more function in [`INVARIANTS`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::{Entry, History, What};

/// Something that must be true.
pub struct Invariant {
    /// What is promised.
    pub name: &'static str,
    check: fn(&[Entry]) -> Result<(), String>,
}

/// Everything that is checked.
pub const INVARIANTS: &[Invariant] = &[
    Invariant { name: "no two leases of a lock overlap", check: leases_do_not_overlap },
    Invariant { name: "tokens grow in the order of the grants", check: tokens_grow },
    Invariant { name: "no stale write is admitted", check: no_stale_write },
    Invariant { name: "plain reads and writes are linearizable", check: register_is_linearizable },
    Invariant { name: "nothing is left behind", check: nothing_left },
    Invariant { name: "nobody waits for ever", check: nobody_stuck },
];

/// What is not true of a history that should be, with the lines that show it.
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

/// A grant, with all that its holder was told.
struct Lease<'a> {
    who: &'a str,
    token: u128,
    granted: Duration,
    /// Until when nobody else could be granted the lock, as it was told.
    claimed: Duration,
    /// When it gave the lock back by itself.
    gave_back: Option<Duration>,
}

impl Lease<'_> {
    fn end(&self) -> Duration {
        self.gave_back.map_or(self.claimed, |gave_back| gave_back.min(self.claimed))
    }
}

/// The leases of each lock, in the order of the grants.
fn leases(entries: &[Entry]) -> BTreeMap<&str, Vec<Lease<'_>>> {
    let mut leases: BTreeMap<&str, Vec<Lease<'_>>> = BTreeMap::new();
    for Entry { at, who, what } in entries {
        let find = |leases: &mut BTreeMap<_, Vec<_>>, lock: &str, token: u128| -> Option<usize> {
            leases.get(lock)?.iter().rposition(|l: &Lease<'_>| l.token == token && l.who == who)
        };
        match what {
            What::Granted { lock, token } => leases.entry(lock).or_default().push(Lease {
                who,
                token: *token,
                granted: *at,
                claimed: *at,
                gave_back: None,
            }),
            What::Claimed { lock, token, until } => {
                if let Some(index) = find(&mut leases, lock, *token) {
                    let lease = &mut leases.get_mut(lock.as_str()).expect("just found")[index];
                    lease.claimed = lease.claimed.max(*until);
                }
            }
            What::GaveBack { lock, token } => {
                if let Some(index) = find(&mut leases, lock, *token) {
                    leases.get_mut(lock.as_str()).expect("just found")[index].gave_back = Some(*at);
                }
            }
            _ => {}
        }
    }
    leases
}

fn leases_do_not_overlap(entries: &[Entry]) -> Result<(), String> {
    for (lock, leases) in leases(entries) {
        for (index, later) in leases.iter().enumerate() {
            if let Some(earlier) = leases[..index].iter().find(|l| l.end() > later.granted) {
                return Err(format!(
                    "{lock}: {} (token {:x}) was granted it at {:.3} s, while {} (token {:x}) was \
                     told that it has it until {:.3} s",
                    later.who,
                    later.token,
                    later.granted.as_secs_f64(),
                    earlier.who,
                    earlier.token,
                    earlier.end().as_secs_f64()
                ));
            }
        }
    }
    Ok(())
}

/// Tokens come from the creation of the contenders, so this is also first come, first served.
fn tokens_grow(entries: &[Entry]) -> Result<(), String> {
    for (lock, leases) in leases(entries) {
        if let Some(pair) = leases.windows(2).find(|pair| pair[0].token >= pair[1].token) {
            return Err(format!(
                "{lock}: {} was granted it at {:.3} s with token {:x}, after {} with token {:x}",
                pair[1].who,
                pair[1].granted.as_secs_f64(),
                pair[1].token,
                pair[0].who,
                pair[0].token
            ));
        }
    }
    Ok(())
}

fn no_stale_write(entries: &[Entry]) -> Result<(), String> {
    // The holders by their grants, and not by their tokens: these are what is checked.
    let order = leases(entries);
    let mut newest: BTreeMap<&str, usize> = BTreeMap::new();
    for Entry { at, who, what } in entries {
        let What::Admitted { lock, token } = what else { continue };
        let granted = order.get(lock.as_str()).and_then(|leases| {
            leases.iter().position(|lease| lease.token == *token && lease.who == who)
        });
        let Some(granted) = granted else {
            return Err(format!("{lock}: a write by {who}, who never held it"));
        };
        let newest = newest.entry(lock).or_default();
        if granted < *newest {
            return Err(format!(
                "{lock}: a write by {who} with token {token:x} was admitted at {:.3} s, after one \
                 of a later holder",
                at.as_secs_f64()
            ));
        }
        *newest = granted;
    }
    Ok(())
}

/// The server numbers the versions of the register, so there is one order that can be right: each
/// version has one value, and no operation that began after the end of another has an older one.
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
    // By the end: a later begin is then compared with the newest version that was known before.
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

fn nothing_left(entries: &[Entry]) -> Result<(), String> {
    let left = entries.iter().find(|entry| matches!(entry.what, What::Left(_)));
    left.map_or(Ok(()), |entry| Err(entry.what.to_string()))
}

fn nobody_stuck(entries: &[Entry]) -> Result<(), String> {
    let stuck = entries.iter().find(|entry| matches!(entry.what, What::Stuck(_)));
    stuck.map_or(Ok(()), |entry| Err(format!("{}: {}", entry.who, entry.what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "/l";

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn history(lines: Vec<(u64, &str, What)>) -> History {
        let mut history = History::default();
        for (time, who, what) in lines {
            history.push(at(time), who, what);
        }
        history
    }

    fn granted(token: u128) -> What {
        What::Granted { lock: LOCK.into(), token }
    }

    fn claimed(token: u128, until: u64) -> What {
        What::Claimed { lock: LOCK.into(), token, until: at(until) }
    }

    fn refused(lines: Vec<(u64, &str, What)>, invariant: &str) {
        let why = check(&history(lines)).unwrap_err();
        assert!(why.contains(invariant) && why.lines().count() == 2, "{why}");
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
        refused(vec![(1, "a", granted(2)), (2, "b", granted(2))], "tokens grow");
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
