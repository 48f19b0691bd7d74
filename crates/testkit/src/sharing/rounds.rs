//! Invariants for the users of barriers and latches.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::judge::told;
use crate::data_event::DataEvent;
use crate::history::Entry;
use crate::leases::leases;

/// A party's entry into a round.
#[derive(Clone, Debug)]
struct Inside<'a> {
    who: &'a str,
    at: Duration,
    round: u32,
    token: u128,
    node: &'a str,
    parties: &'a [String],
}

/// A call to enter and its outcome.
#[derive(Clone, Debug)]
struct Entering<'a> {
    party: &'a str,
    at: Duration,
    /// Whether it may have entered several times.
    again: bool,
    timed_out: bool,
    inside: Option<Inside<'a>>,
    drops_at: Option<Duration>,
    leaves_at: Option<Duration>,
    /// When its leave was confirmed, and whether all others had left too.
    left: Option<(Duration, bool)>,
}

impl Entering<'_> {
    /// Whether it may have been inside without learning of it.
    fn may_be_unheard(&self) -> bool {
        self.again || self.inside.is_none() && !self.timed_out
    }
}

/// A report of the parties that died in a round.
#[derive(Clone, Copy, Debug)]
struct Deaths<'a> {
    who: &'a str,
    at: Duration,
    round: u32,
    parties: &'a [String],
}

/// What the history says about the rounds of a barrier.
#[derive(Debug, Default)]
struct Known<'a> {
    entries: BTreeMap<u64, Entering<'a>>,
    named: Vec<(u32, &'a [String])>,
    deaths: Vec<Deaths<'a>>,
}

impl<'a> Known<'a> {
    fn of(entries: &'a [Entry]) -> Self {
        let mut known = Self::default();
        for (entry, told) in told(entries) {
            known.hear(entry, told);
        }
        known
    }

    fn hear(&mut self, Entry { at, who, .. }: &'a Entry, told: &'a DataEvent) {
        let at = *at;
        let mut of = |entry: &u64, note: &dyn Fn(&mut Entering<'a>)| {
            self.entries.get_mut(entry).into_iter().for_each(note);
        };
        match told {
            DataEvent::Enters { entry, party } => {
                let entering = Entering {
                    party,
                    at,
                    again: false,
                    timed_out: false,
                    inside: None,
                    drops_at: None,
                    leaves_at: None,
                    left: None,
                };
                self.entries.insert(*entry, entering);
            }
            DataEvent::EntersAgain { entry } => of(entry, &|it| it.again = true),
            DataEvent::TimedOut { entry } => of(entry, &|it| it.timed_out = true),
            DataEvent::Inside { entry, round, token, node, parties } => {
                let (round, token) = (*round, *token);
                let inside = Inside { who, at, round, token, node, parties };
                of(entry, &|it| it.inside = Some(inside.clone()));
            }
            DataEvent::Drops { entry } => of(entry, &|it| it.drops_at = Some(at)),
            DataEvent::Leaves { entry } => of(entry, &|it| it.leaves_at = Some(at)),
            DataEvent::Left { entry, together } => of(entry, &|it| it.left = Some((at, *together))),
            DataEvent::Named { round, nodes } => self.named.push((*round, nodes)),
            DataEvent::Dead { round, parties } => {
                self.deaths.push(Deaths { who, at, round: *round, parties });
            }
            _ => {}
        }
    }

    /// The entries that were confirmed, with the round that was reported to each.
    fn inside(&self) -> impl Iterator<Item = (&Entering<'a>, &Inside<'a>)> {
        self.entries.values().filter_map(|it| Some((it, it.inside.as_ref()?)))
    }

    /// The entry of this party that was confirmed for this round.
    fn of_party(&self, round: u32, party: &str) -> Option<(&Entering<'a>, &Inside<'a>)> {
        self.inside().find(|(it, inside)| inside.round == round && it.party == party)
    }

    /// The parties of each round, and when they were first reported.
    fn rounds(&self) -> BTreeMap<u32, (Duration, &'a [String])> {
        let mut rounds = BTreeMap::new();
        for (_, inside) in self.inside() {
            let round = rounds.entry(inside.round).or_insert((inside.at, inside.parties));
            round.0 = round.0.min(inside.at);
        }
        rounds
    }
}

/// All entries into a round report the same parties, and each party is one entry; an entry that gave up is not among
/// them.
pub(crate) fn rounds_fit(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    let rounds = known.rounds();
    let mut taken = BTreeMap::new();
    for (entering, inside) in known.inside() {
        let Inside { who, round, node, parties, .. } = inside;
        let (_, others) = rounds[round];
        if *parties != others {
            return Err(format!("{who}: round {round} has {parties:?}, and {others:?}"));
        }

        let distinct: BTreeSet<_> = parties.iter().collect();
        if distinct.len() != parties.len() || !distinct.contains(&entering.party.to_owned()) {
            return Err(format!(
                "{who}: {} is inside round {round} of {parties:?}",
                entering.party
            ));
        }
        if let Some(other) = taken.insert((round, entering.party), who) {
            return Err(format!("{who} and {other} are {} in round {round}", entering.party));
        }

        let of_round = known.named.iter().filter(|(named, _)| named == round);
        for (_, nodes) in of_round {
            let fits = nodes.len() == parties.len()
                && nodes.iter().zip(*parties).all(|(node, party)| called(node) == party);
            if !fits || !nodes.iter().any(|named| named == node) {
                return Err(format!("{who}: round {round} of {parties:?} names {nodes:?}"));
            }
        }
    }

    let sizes: BTreeSet<_> = rounds.values().map(|(_, parties)| parties.len()).collect();
    if sizes.len() > 1 {
        return Err(format!("rounds have {sizes:?} parties"));
    }
    all_are_accounted_for(&known, &rounds)
}

/// The party that a node's name contains.
fn called(node: &str) -> &str {
    node.rsplit_once('.').map_or(node, |(party, _)| party)
}

/// Each party of a round is an entry that was confirmed, or one that may be unconfirmed and has not given up.
fn all_are_accounted_for(
    known: &Known<'_>,
    rounds: &BTreeMap<u32, (Duration, &[String])>,
) -> Result<(), String> {
    let mut unheard: BTreeMap<&str, Vec<&Entering<'_>>> = BTreeMap::new();
    for entering in known.entries.values().filter(|it| it.may_be_unheard()) {
        unheard.entry(entering.party).or_default().push(entering);
    }
    unheard.values_mut().for_each(|all| all.sort_by_key(|it| it.at));
    let mut by_time: Vec<_> = rounds.iter().collect();
    by_time.sort_by_key(|(_, (at, _))| *at);
    for (round, (at, parties)) in by_time {
        for party in *parties {
            if known.of_party(*round, party).is_some() {
                continue;
            }
            let unheard = unheard.entry(party).or_default();
            let Some(place) = unheard.iter().position(|it| it.at <= *at) else {
                return Err(format!("round {round} names {party}, which has not entered it"));
            };
            if !unheard[place].again {
                unheard.remove(place);
            }
        }
    }
    Ok(())
}

/// A party that is reported dead has not left, and is not reported before its lease has ended or it has dropped its
/// entry. All parties that leave together get the same report of deaths, and all others have left or died by then.
pub(crate) fn deaths_are_true(entries: &[Entry]) -> Result<(), String> {
    let (known, leases) = (Known::of(entries), leases(entries));
    let rounds = known.rounds();
    let lease_end = |inside: &Inside<'_>| {
        let mut of_party = leases.values().flatten();
        let lease = of_party.rfind(|it| it.who == inside.who && it.token == inside.token);
        lease.map_or(inside.at, |lease| lease.end())
    };

    for Deaths { who, at, round, parties } in &known.deaths {
        for party in *parties {
            if rounds.get(round).is_some_and(|(_, all)| !all.contains(party)) {
                return Err(format!("{who}: {party} died in round {round}, and was not in it"));
            }
            let Some((entering, inside)) = known.of_party(*round, party) else { continue };
            let at_s = at.as_secs_f64();
            if let Some((left, _)) = entering.left {
                let left = left.as_secs_f64();
                return Err(format!(
                    "{who} at {at_s:.3} s: {party} died in round {round}; {} has left at {left:.3} s",
                    inside.who
                ));
            }

            let dropped = entering.drops_at.is_some_and(|dropped| dropped <= *at);
            if !dropped && lease_end(inside) > *at {
                let end = lease_end(inside).as_secs_f64();
                return Err(format!(
                    "{who} at {at_s:.3} s: {party} died in round {round}; {} is inside until {end:.3} s",
                    inside.who
                ));
            }
        }
    }
    all_leave_together(&known)
}

fn all_leave_together(known: &Known<'_>) -> Result<(), String> {
    let mut died_in: BTreeMap<u32, (&str, BTreeSet<&String>)> = BTreeMap::new();
    for (entering, inside) in known.inside() {
        let Some((left, true)) = entering.left else { continue };
        let (who, round) = (inside.who, inside.round);
        // The report of deaths follows immediately.
        let told = known.deaths.iter().rfind(|it| (it.who, it.round) == (who, round));
        let died: BTreeSet<_> = told.into_iter().flat_map(|it| it.parties).collect();
        let (other, of_other) = died_in.entry(round).or_insert((who, died.clone()));
        if died != *of_other {
            return Err(format!(
                "round {round}: {who} reports the deaths {died:?}, and {other} reports {of_other:?}"
            ));
        }
        for party in inside.parties.iter().filter(|party| !died.contains(party)) {
            let leaves_at = known.of_party(round, party).and_then(|(it, _)| it.leaves_at);
            if leaves_at.is_none_or(|leaves_at| leaves_at > left) {
                let left = left.as_secs_f64();
                return Err(format!(
                    "{who} has left round {round} at {left:.3} s, and {party} is inside"
                ));
            }
        }
    }
    Ok(())
}

/// A round that all parties have left is deleted.
pub(crate) fn rounds_end(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    for (_, told) in told(entries) {
        let DataEvent::RoundRemains { round, parties, died, is_over, left } = told else {
            continue;
        };
        let together = known.inside().find(|(entering, inside)| {
            inside.round == *round && entering.left.is_some_and(|(_, together)| together)
        });
        let Some((_, Inside { who, .. })) = together else { continue };
        let all_left = parties.iter().all(|party| left.contains(party));
        if all_left || died.is_empty() || !is_over {
            return Err(format!("round {round}, which {who} has left, still exists: {told}"));
        }
    }
    Ok(())
}

/// Each count-down counts once, and waiters return when all are counted and not before.
pub(crate) fn latches_are_exact(entries: &[Entry]) -> Result<(), String> {
    let (mut begun, mut refused, mut resets) = (0_u64, 0_u64, 0_u64);
    let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut from, mut passed) = (None, Vec::new());
    for (entry, told) in told(entries) {
        match told {
            DataEvent::CountsDown { .. } => begun += 1,
            DataEvent::NotCountedDown { .. } => refused += 1,
            DataEvent::Resets => resets += 1,
            DataEvent::CountedDown { left, .. } => {
                let times = counted.entry(*left).or_default();
                *times += 1;
                // There are no negative counts.
                if *left > 0 && *times > 1 + resets {
                    return Err(format!("{}: {left} remained {times} times", entry.who));
                }
            }
            DataEvent::PassesLatch { .. } => passed.push((&entry.who, begun)),
            DataEvent::LatchRemains { from: all, left } => {
                from = Some(*all);
                let counted: u64 =
                    counted.iter().filter(|(left, _)| **left > 0).map(|it| it.1).sum();
                let most = all.saturating_sub(counted);
                let least = all.saturating_sub(begun - refused);
                if !(least..=most).contains(left) {
                    return Err(format!("{left} of {all} remain, expected {least} to {most}"));
                }
            }
            _ => {}
        }
    }

    let Some(from) = from else { return Ok(()) };
    match passed.iter().find(|(_, begun)| *begun < from) {
        Some((who, begun)) => Err(format!("{who} passes after {begun} of {from}")),
        None => Ok(()),
    }
}

/// No waiter passes while the gate is closed.
pub(crate) fn gates_keep(entries: &[Entry]) -> Result<(), String> {
    let mut waits: BTreeMap<u64, Duration> = BTreeMap::new();
    // The times during which it was certainly closed.
    let mut shut: Vec<(Duration, Duration)> = Vec::new();
    let mut passes = Vec::new();
    let mut is_shut = false;
    for (entry, told) in told(entries) {
        match told {
            DataEvent::GateIsShut { until } => {
                let until = until.unwrap_or(Duration::MAX);
                match shut.last_mut().filter(|_| is_shut) {
                    Some(last) => last.1 = last.1.max(until),
                    None => shut.push((entry.at, until)),
                }
                is_shut = true;
            }
            DataEvent::GateOpens => {
                shut.last_mut().into_iter().for_each(|last| last.1 = last.1.min(entry.at));
                is_shut = false;
            }
            DataEvent::AwaitsGate { attempt } => drop(waits.insert(*attempt, entry.at)),
            DataEvent::PassesGate { attempt } => {
                let Some(from) = waits.get(attempt) else { continue };
                passes.push((&entry.who, *from, entry.at));
            }
            _ => {}
        }
    }

    let kept = |(_, from, to): &&(&String, Duration, Duration)| {
        shut.iter().any(|(begin, end)| begin <= from && to < end)
    };
    match passes.iter().find(kept) {
        Some((who, from, to)) => {
            let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
            Err(format!("{who} waits from {from:.3} s, and passes a closed gate at {to:.3} s"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::lines::{found, history};
    use crate::history::{Share, What};

    const LOCK: &str = "/r";

    fn enters(entry: u64, party: &str) -> DataEvent {
        DataEvent::Enters { entry, party: party.to_owned() }
    }

    fn inside(entry: u64, round: u32, party: &str, parties: &[&str]) -> DataEvent {
        let node = format!("{party}.0123456789abcdef0000000000");
        let parties = parties.iter().map(|it| (*it).to_owned()).collect();
        DataEvent::Inside { entry, round, token: u128::from(entry), node, parties }
    }

    fn dead(round: u32, parties: &[&str]) -> DataEvent {
        DataEvent::Dead { round, parties: parties.iter().map(|it| (*it).to_owned()).collect() }
    }

    /// One line a second.
    fn lines(all: Vec<(&'static str, DataEvent)>) -> crate::history::History {
        history((0..).zip(all).map(|(at, (who, told))| (at, who, told)).collect())
    }

    fn two_inside() -> Vec<(&'static str, DataEvent)> {
        vec![
            ("a", enters(1, "p")),
            ("b", enters(2, "q")),
            ("a", inside(1, 0, "p", &["p", "q"])),
            ("b", inside(2, 0, "q", &["p", "q"])),
        ]
    }

    fn with(more: Vec<(&'static str, DataEvent)>) -> crate::history::History {
        lines(two_inside().into_iter().chain(more).collect())
    }

    #[test]
    fn all_who_are_inside_name_the_same() {
        assert_eq!(rounds_fit(with(vec![]).entries()), Ok(()));
        let nodes = vec!["p.0123456789abcdef0000000000".to_owned(), "q.x".to_owned()];
        let named = DataEvent::Named { round: 0, nodes };
        found(rounds_fit(with(vec![("a", named)]).entries()), "names");
        let another = vec![("c", enters(3, "r")), ("c", inside(3, 0, "r", &["p", "r"]))];
        found(rounds_fit(with(another).entries()), "has");
        let same = vec![("c", enters(3, "q")), ("c", inside(3, 0, "q", &["p", "q"]))];
        found(rounds_fit(with(same).entries()), "are q in round 0");
        let twice = vec![("c", enters(3, "r")), ("c", inside(3, 1, "r", &["r", "r"]))];
        found(rounds_fit(with(twice).entries()), "is inside");
        let more = vec![("c", enters(3, "r")), ("c", inside(3, 1, "r", &["r"]))];
        found(rounds_fit(with(more).entries()), "parties");
    }

    #[test]
    fn who_has_given_up_is_named_nowhere() {
        let told = |outcome: Option<DataEvent>| {
            let mut all = vec![("a", enters(1, "p")), ("b", enters(2, "q"))];
            all.extend(outcome.map(|it| ("b", it)));
            all.push(("a", inside(1, 0, "p", &["p", "q"])));
            rounds_fit(lines(all).entries())
        };
        assert_eq!(told(None), Ok(()));
        found(told(Some(DataEvent::TimedOut { entry: 2 })), "has not entered");
        let both = vec![
            ("b", enters(2, "q")),
            ("b", DataEvent::EntersAgain { entry: 2 }),
            ("b", DataEvent::TimedOut { entry: 2 }),
            ("a", enters(1, "p")),
            ("a", inside(1, 0, "p", &["p", "q"])),
        ];
        assert_eq!(rounds_fit(lines(both).entries()), Ok(()));
    }

    #[test]
    fn only_the_dead_are_told_to_have_died() {
        let left = |entry, together| DataEvent::Left { entry, together };
        let told = |told: Vec<(&'static str, DataEvent)>| deaths_are_true(with(told).entries());
        assert_eq!(
            told(vec![("b", DataEvent::Drops { entry: 2 }), ("a", dead(0, &["q"]))]),
            Ok(())
        );
        found(told(vec![("a", dead(0, &["x"]))]), "was not in it");
        let leaves = DataEvent::Leaves { entry: 2 };
        let gone = vec![("b", leaves), ("b", left(2, false)), ("a", dead(0, &["q"]))];
        found(told(gone), "has left");

        let claimed = |until: u64| {
            let mut lines: Vec<_> = (0..)
                .zip(two_inside())
                .map(|(at, (who, told))| (at, who, What::Data(told)))
                .collect();
            let (lock, share) = (LOCK.to_owned(), Share::Alone);
            lines.push((3, "b", What::Granted { lock: lock.clone(), token: 2, share }));
            let until = Duration::from_secs(until);
            lines.push((3, "b", What::Claimed { lock, token: 2, until }));
            lines.push((8, "a", What::Data(dead(0, &["q"]))));
            history(lines)
        };
        assert_eq!(deaths_are_true(claimed(8).entries()), Ok(()));
        found(deaths_are_true(claimed(9).entries()), "is inside until");
    }

    #[test]
    fn all_leave_together_or_have_died() {
        let leaves = |entry| DataEvent::Leaves { entry };
        let left = |entry| DataEvent::Left { entry, together: true };
        let told = |told: Vec<(&'static str, DataEvent)>| deaths_are_true(with(told).entries());
        let good = vec![("a", leaves(1)), ("b", leaves(2)), ("a", left(1)), ("b", left(2))];
        assert_eq!(told(good), Ok(()));
        let early = vec![("a", leaves(1)), ("a", left(1)), ("b", leaves(2)), ("b", left(2))];
        found(told(early), "q is inside");
        let without = vec![("b", DataEvent::Drops { entry: 2 }), ("a", leaves(1)), ("a", left(1))];
        found(told(without.clone()), "q is inside");
        assert_eq!(told([without, vec![("a", dead(0, &["q"]))]].concat()), Ok(()));
    }

    #[test]
    fn a_round_that_all_have_left_is_gone() {
        let remains = |died: &[&str], left: &[&str]| {
            let of = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
            let (parties, is_over) = (of(&["p", "q"]), !died.is_empty());
            DataEvent::RoundRemains { round: 0, parties, died: of(died), is_over, left: of(left) }
        };
        let told = |remains| {
            let left = DataEvent::Left { entry: 1, together: true };
            rounds_end(with(vec![("a", left), ("world", remains)]).entries())
        };
        assert_eq!(told(remains(&["q"], &["p"])), Ok(()));
        found(told(remains(&[], &["p", "q"])), "still exists");
        found(told(remains(&["q"], &["p", "q"])), "still exists");
    }

    #[test]
    fn counts_are_exact() {
        let counts = |attempt| ("a", DataEvent::CountsDown { attempt });
        let counted = |attempt, left| ("a", DataEvent::CountedDown { attempt, left });
        let remains = |left| ("world", DataEvent::LatchRemains { from: 3, left });
        let passes = ("b", DataEvent::PassesLatch { attempt: 9 });
        let told = |told: Vec<(&'static str, DataEvent)>| latches_are_exact(lines(told).entries());
        let two = vec![counts(1), counted(1, 2), counts(2)];
        assert_eq!(told([two.clone(), vec![remains(1)]].concat()), Ok(()));
        assert_eq!(told([two.clone(), vec![remains(2)]].concat()), Ok(()));
        found(told([two.clone(), vec![remains(0)]].concat()), "remain, expected");
        found(told([two.clone(), vec![remains(3)]].concat()), "remain, expected");
        found(told([two.clone(), vec![counted(2, 2)]].concat()), "2 times");
        found(told([two.clone(), vec![passes.clone(), remains(1)]].concat()), "passes after");
        let again = vec![("a", DataEvent::Resets), counted(2, 2)];
        assert_eq!(told([two, again].concat()), Ok(()));
    }

    #[test]
    fn a_closed_gate_keeps_all() {
        let shut = |until: Option<u64>| {
            ("a", DataEvent::GateIsShut { until: until.map(Duration::from_secs) })
        };
        let waits = ("b", DataEvent::AwaitsGate { attempt: 1 });
        let passes = ("b", DataEvent::PassesGate { attempt: 1 });
        let opens = ("a", DataEvent::GateOpens);
        let told = |told: Vec<(&'static str, DataEvent)>| gates_keep(lines(told).entries());
        assert_eq!(told(vec![waits.clone(), shut(None), passes.clone()]), Ok(()));
        assert_eq!(told(vec![shut(None), waits.clone(), opens, passes.clone()]), Ok(()));
        assert_eq!(told(vec![shut(Some(2)), waits.clone(), passes.clone()]), Ok(()));
        found(told(vec![shut(None), waits.clone(), passes.clone()]), "a closed gate");
        found(told(vec![shut(Some(3)), waits, passes]), "a closed gate");
    }
}
