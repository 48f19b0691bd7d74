//! Invariants for the publishers and followers of editions.

use std::collections::BTreeMap;

use super::judge::told;
use crate::data_event::DataEvent;
use crate::history::Entry;

/// How many editions are kept: few, so that editions are dropped while followers read them.
pub(super) const KEPT: u16 = 2;

/// What the history says about all editions.
#[derive(Debug, Default)]
struct Known {
    /// Attempts without an answer, and the editions that they publish.
    open: BTreeMap<u64, u64>,
    /// The confirmed editions, by number.
    confirmed: BTreeMap<u64, u64>,
    /// The editions that were seen, by number.
    seen: BTreeMap<u64, u64>,
}

/// Each confirmed edition has a number of its own. Every program that saw a number saw the edition that was confirmed
/// under it, or one that may have been published, and all saw the same one. The final number of editions is that of the
/// confirmed ones plus some of the unknown ones, and the last ones are kept.
pub(crate) fn editions_fit(entries: &[Entry]) -> Result<(), String> {
    let (mut known, mut kept) = (Known::default(), None);
    for (entry, told) in told(entries) {
        match told {
            DataEvent::Publishes { attempt, id } => drop(known.open.insert(*attempt, *id)),
            DataEvent::NotPublished { attempt } => drop(known.open.remove(attempt)),
            DataEvent::Published { attempt, number } => known.confirm(*attempt, *number)?,
            DataEvent::Edition { number, id } => known.see(&entry.who, *number, *id)?,
            DataEvent::Kept { last, numbers } => kept = Some((&entry.who, *last, numbers)),
            _ => {}
        }
    }

    if let Some((who, last, numbers)) = kept {
        let newest = numbers.last().copied().unwrap_or(0);
        if let Some(last) = last {
            known.see(who, newest, last)?;
        }
        known.add_up(newest)?;

        let in_a_row = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        if !in_a_row || numbers.len() > KEPT.into() {
            return Err(format!("{numbers:?} are kept"));
        }
    }

    known.compare()
}

impl Known {
    fn confirm(&mut self, attempt: u64, number: u64) -> Result<(), String> {
        let id = self.open.remove(&attempt).ok_or_else(|| format!("{attempt} never began"))?;
        match self.confirmed.insert(number, id) {
            None => Ok(()),
            Some(other) => Err(format!("edition {number} is {other}, and also {id}")),
        }
    }

    fn see(&mut self, who: &str, number: u64, id: u64) -> Result<(), String> {
        let other = *self.seen.entry(number).or_insert(id);
        match other == id {
            true => Ok(()),
            false => Err(format!("{who} saw {id} as edition {number}, others {other}")),
        }
    }

    /// Checks the final number of editions.
    fn add_up(&self, newest: u64) -> Result<(), String> {
        let least = self.confirmed.len() as u64;
        let most = least + self.open.len() as u64;
        if !(least..=most).contains(&newest) {
            return Err(format!("{newest} editions, expected {least} to {most}"));
        }
        let highest = self.confirmed.keys().chain(self.seen.keys()).max();
        match highest.filter(|highest| **highest > newest) {
            None => Ok(()),
            Some(highest) => Err(format!("edition {highest} was seen, and the last is {newest}")),
        }
    }

    /// Compares what was seen with what was confirmed.
    fn compare(&self) -> Result<(), String> {
        let may_be = |number, id| match self.confirmed.get(number) {
            Some(confirmed) => confirmed == id,
            None => self.open.values().any(|open| open == id),
        };
        match self.seen.iter().find(|(number, id)| !may_be(*number, *id)) {
            None => Ok(()),
            Some((number, id)) => {
                let confirmed = self.confirmed.get(number);
                Err(format!("edition {number} was {id}, and {confirmed:?} was confirmed"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::lines::{found as refused, history};

    fn of(all: &[DataEvent]) -> Result<(), String> {
        let lines = all.iter().map(|told| (0, "a", told.clone()));
        editions_fit(history(lines.collect()).entries())
    }

    const FIRST: [DataEvent; 2] = [
        DataEvent::Publishes { attempt: 1, id: 70 },
        DataEvent::Published { attempt: 1, number: 1 },
    ];

    fn with(more: &[DataEvent]) -> Result<(), String> {
        of(&[&FIRST, more].concat())
    }

    fn kept(last: u64, numbers: &[u64]) -> DataEvent {
        DataEvent::Kept { last: Some(last), numbers: numbers.to_vec() }
    }

    #[test]
    fn what_was_confirmed_is_there() {
        assert_eq!(of(&[DataEvent::Kept { last: None, numbers: vec![] }]), Ok(()));
        assert_eq!(with(&[DataEvent::Edition { number: 1, id: 70 }, kept(70, &[1])]), Ok(()));
        refused(
            with(&[DataEvent::Kept { last: None, numbers: vec![] }]),
            "0 editions, expected 1 to 1",
        );
        refused(with(&[kept(71, &[1])]), "edition 1 was 71");
        refused(with(&[kept(70, &[1, 2])]), "2 editions, expected 1 to 1");
        refused(with(&[DataEvent::Edition { number: 1, id: 71 }]), "edition 1 was 71");
        refused(with(&[DataEvent::Edition { number: 2, id: 70 }]), "edition 2 was 70");
    }

    #[test]
    fn an_unknown_outcome_may_be_either() {
        let second = DataEvent::Publishes { attempt: 2, id: 80 };
        let saw = |number, id| DataEvent::Edition { number, id };
        let with = |more: &[DataEvent]| with(&[std::slice::from_ref(&second), more].concat());
        assert_eq!(with(&[kept(70, &[1])]), Ok(()));
        assert_eq!(with(&[saw(2, 80), kept(80, &[1, 2])]), Ok(()));
        refused(with(&[saw(2, 80), kept(70, &[1])]), "edition 2 was seen, and the last is 1");
        refused(with(&[DataEvent::NotPublished { attempt: 2 }, saw(2, 80)]), "edition 2 was 80");
        refused(with(&[saw(2, 80), saw(2, 81)]), "saw 81 as edition 2, others 80");
    }

    #[test]
    fn each_number_is_of_one_edition() {
        let twice = [
            DataEvent::Publishes { attempt: 2, id: 80 },
            DataEvent::Published { attempt: 2, number: 1 },
        ];
        refused(with(&twice), "edition 1 is 70, and also 80");
        refused(of(&[DataEvent::Published { attempt: 3, number: 1 }]), "never began");
        let more = [
            DataEvent::Publishes { attempt: 2, id: 80 },
            DataEvent::Published { attempt: 2, number: 2 },
            DataEvent::Publishes { attempt: 3, id: 70 },
            DataEvent::Published { attempt: 3, number: 3 },
        ];
        let with = |last| with(&[&more[..], &[last]].concat());
        assert_eq!(with(kept(70, &[2, 3])), Ok(()));
        refused(with(kept(70, &[1, 3])), "[1, 3] are kept");
        refused(with(kept(70, &[1, 2, 3])), "[1, 2, 3] are kept");
    }
}
