//! What must be true of what those say who put items into a queue and take them.

use std::collections::{BTreeMap, BTreeSet};

use super::judge::told;
use crate::history::Entry;
use crate::told::{End, Fate, Told};

/// A put of several items.
#[derive(Debug)]
struct Put<'a> {
    items: &'a [u64],
    /// `None`: nobody knows.
    confirmed: Option<bool>,
}

/// A take of an item.
#[derive(Clone, Copy, Debug)]
struct Take {
    token: u128,
    tries: u32,
    put: Option<i64>,
    end: Option<End>,
    /// `None`: nobody knows, or there was no end.
    confirmed: Option<bool>,
}

impl Take {
    /// Whether it ended the item for good.
    fn has_ended(&self) -> bool {
        matches!(self.end, Some(End::Done | End::Bury)) && self.confirmed == Some(true)
    }

    fn may_be_done(&self) -> bool {
        self.end == Some(End::Done) && self.confirmed != Some(false)
    }
}

/// Something that was done to a dead letter.
#[derive(Clone, Copy, Debug)]
struct Sending {
    item: u64,
    fate: Fate,
    /// `None`: nobody knows.
    confirmed: Option<bool>,
}

/// What is known of all items.
#[derive(Debug, Default)]
struct Known<'a> {
    puts: Vec<Put<'a>>,
    /// The put of each item, and its place in it.
    places: BTreeMap<u64, (usize, usize)>,
    takes: BTreeMap<u64, Vec<Take>>,
    removed: Vec<u64>,
    /// Attempts to take something out of which nobody knows what came.
    removes: BTreeSet<u64>,
    /// By attempt.
    sendings: BTreeMap<u64, Sending>,
    dead: BTreeSet<u64>,
    written: BTreeSet<u64>,
    is_emptied: bool,
}

impl<'a> Known<'a> {
    fn of(entries: &'a [Entry]) -> Self {
        let mut known = Self::default();
        for (_, told) in told(entries) {
            known.hear(told);
        }
        known
    }

    fn hear(&mut self, told: &'a Told) {
        match told {
            Told::Puts { items } => {
                let put = self.puts.len();
                let places = items.iter().enumerate().map(|(place, item)| (*item, (put, place)));
                self.places.extend(places);
                self.puts.push(Put { items, confirmed: None });
            }
            Told::Put { items } => self.answer_put(items, true),
            Told::NotPut { items } => self.answer_put(items, false),

            Told::Takes { item, token, tries, put } => {
                let (token, tries, put) = (*token, *tries, *put);
                let take = Take { token, tries, put, end: None, confirmed: None };
                self.takes.entry(*item).or_default().push(take);
            }
            Told::Ends { item, token, how } => {
                self.take(*item, *token).into_iter().for_each(|take| take.end = Some(*how));
            }
            Told::Ended { item, token } => {
                self.take(*item, *token).into_iter().for_each(|take| take.confirmed = Some(true));
            }
            Told::NotEnded { item, token } => {
                self.take(*item, *token).into_iter().for_each(|take| take.confirmed = Some(false));
            }

            Told::Removes { attempt } => drop(self.removes.insert(*attempt)),
            Told::Removed { attempt, item } => {
                self.removes.remove(attempt);
                self.removed.push(*item);
            }
            Told::NotRemoved { attempt } => drop(self.removes.remove(attempt)),

            Told::Sends { attempt, item, fate } => {
                let sending = Sending { item: *item, fate: *fate, confirmed: None };
                self.sendings.insert(*attempt, sending);
            }
            Told::Sent { attempt } => self.answer_sending(*attempt, true),
            Told::NotSent { attempt } => self.answer_sending(*attempt, false),

            Told::Emptied { dead, written } => {
                self.is_emptied = true;
                self.dead.extend(dead);
                self.written.extend(written);
            }
            _ => {}
        }
    }

    fn answer_put(&mut self, items: &[u64], confirmed: bool) {
        let put = items.first().and_then(|first| self.places.get(first));
        if let Some((put, _)) = put {
            self.puts[*put].confirmed = Some(confirmed);
        }
    }

    fn answer_sending(&mut self, attempt: u64, confirmed: bool) {
        let sending = self.sendings.get_mut(&attempt);
        sending.into_iter().for_each(|sending| sending.confirmed = Some(confirmed));
    }

    fn take(&mut self, item: u64, token: u128) -> Option<&mut Take> {
        self.takes.get_mut(&item)?.iter_mut().find(|take| take.token == token)
    }

    fn takes(&self, item: u64) -> &[Take] {
        self.takes.get(&item).map_or(&[], Vec::as_slice)
    }

    /// How often this may have been done to an item, as a dead letter.
    fn sent(&self, item: u64, fate: Fate) -> usize {
        let sent = self.sendings.values().filter(|it| (it.item, it.fate) == (item, fate));
        sent.filter(|it| it.confirmed != Some(false)).count()
    }

    /// Whether anybody has seen an item.
    fn is_seen(&self, item: u64) -> bool {
        !self.takes(item).is_empty()
            || self.removed.contains(&item)
            || self.dead.contains(&item)
            || self.written.contains(&item)
            || self.sendings.values().any(|sending| sending.item == item)
    }

    /// How often it came to an end for certain: it was done, it is a dead letter or was one and was discarded, or it
    /// was removed.
    fn ends(&self, item: u64) -> usize {
        let done = |take: &&Take| take.has_ended() && take.end == Some(End::Done);
        let done = self.takes(item).iter().filter(done).count();
        // Of one that may have been done, what it wrote tells.
        let done = done.max(usize::from(self.written.contains(&item)));
        let removed = self.removed.iter().filter(|removed| **removed == item).count();
        let is_discarded = |it: &&Sending| {
            it.item == item && it.fate == Fate::Discard && it.confirmed == Some(true)
        };
        let discarded = self.sendings.values().filter(is_discarded).count();
        done + removed + discarded + usize::from(self.dead.contains(&item))
    }

    /// # Errors
    /// The item came to more than one end, or to one that it cannot have come to.
    fn judge(&self, item: u64) -> Result<(), String> {
        let takes = self.takes(item);
        if self.ends(item) > 1 {
            return Err(format!("item {item} came to more than one end: {takes:?}"));
        }
        // Each end by burial that another take follows, or that is no dead letter in the end, has been undone.
        let undone = self.sent(item, Fate::PutBack);
        let ended = |how| takes.iter().filter(move |it| it.has_ended() && it.end == Some(how));
        let has_later = |end: &&Take| takes.iter().any(|take| take.token > end.token);
        let later = ended(End::Bury).filter(has_later).count();
        if later > undone || ended(End::Done).any(|end| has_later(&end)) {
            return Err(format!("item {item} was taken after its end: {takes:?}"));
        }
        if self.written.contains(&item) && !takes.iter().any(Take::may_be_done) {
            return Err(format!("item {item} was not done, and its end was written: {takes:?}"));
        }
        let left = undone + self.sent(item, Fate::Discard) + usize::from(self.dead.contains(&item));
        if self.is_emptied && ended(End::Bury).count() > left {
            return Err(format!("item {item} was buried, and is no dead letter: {takes:?}"));
        }
        Ok(())
    }
}

/// Each item that was confirmed comes to one end: it is done, a dead letter, or removed by a consumer that
/// wants it at most once. One that nobody has seen again was lost by such a consumer, or done by one that does
/// not know. A put whose outcome nobody knows was made as a whole, or not at all.
pub(crate) fn items_are_once(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    let seen = known.takes.keys().chain(&known.removed).chain(&known.dead).chain(&known.written);
    let seen = seen.chain(known.sendings.values().map(|sending| &sending.item));
    for item in seen {
        match known.places.get(item).map(|(put, _)| known.puts[*put].confirmed) {
            None => return Err(format!("item {item} was never put")),
            Some(Some(false)) => return Err(format!("item {item} was refused, and is there")),
            Some(_) => known.judge(*item)?,
        }
    }
    if !known.is_emptied {
        return Ok(());
    }

    let is_there = |put: &&Put<'_>| {
        put.confirmed == Some(true) || put.items.iter().any(|item| known.is_seen(*item))
    };
    let there = known.puts.iter().filter(is_there).flat_map(|put| put.items);
    let may_be_over = |item: &u64| {
        known.takes(*item).iter().any(Take::may_be_done) || known.sent(*item, Fate::Discard) > 0
    };
    let missing: Vec<_> =
        there.filter(|item| known.ends(**item) == 0 && !may_be_over(item)).collect();
    match missing.len() <= known.removes.len() {
        true => Ok(()),
        false => {
            Err(format!("items {missing:?} are lost, and {} values may be", known.removes.len()))
        }
    }
}

/// Of two takes of an item, the later one has the higher token, and was tried more often, unless the item was put
/// back as a dead letter in between.
pub(crate) fn takes_grow(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    for (item, takes) in &known.takes {
        let mut takes = takes.clone();
        takes.sort_by_key(|take| (take.token, take.tries));
        let pairs = || takes.windows(2);
        let begins_anew = pairs().filter(|pair| pair[0].tries >= pair[1].tries).count();
        let is_twice = pairs().any(|pair| pair[0].token == pair[1].token);
        if is_twice || begins_anew > known.sent(*item, Fate::PutBack) {
            return Err(format!("item {item}: {takes:?}"));
        }
    }
    Ok(())
}

/// No two consumers that want a value at most once have the same.
pub(crate) fn removed_at_most_once(entries: &[Entry]) -> Result<(), String> {
    let removed = Known::of(entries).removed;
    let mut seen = BTreeSet::new();
    match removed.iter().find(|item| !seen.insert(**item)) {
        None => Ok(()),
        Some(item) => Err(format!("item {item} was removed twice")),
    }
}

/// Where takes tell when their items were put, items are taken for the first time in that order. One that was put
/// back as a dead letter may be taken for the first time again.
pub(crate) fn taken_in_order(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    let mut first: Vec<_> = known
        .takes
        .iter()
        .flat_map(|(item, takes)| takes.iter().map(move |take| (*item, take)))
        .filter(|(item, take)| take.tries == 1 && known.sent(*item, Fate::PutBack) == 0)
        .filter_map(|(item, take)| {
            Some((take.token, take.put?, known.places.get(&item).copied()?, item))
        })
        .collect();
    first.sort_by_key(|(token, ..)| *token);

    // The last one of all before.
    let mut last: Option<(u128, i64, (usize, usize), u64)> = None;
    for now in first {
        if let Some(before) = last {
            // Several puts may have gone in one transaction.
            let same_put = before.1 == now.1 && before.2.0 == now.2.0;
            let is_later = before.1 > now.1 || same_put && before.2.1 > now.2.1;
            if is_later && before.0 < now.0 {
                return Err(format!(
                    "item {} was put by {}, and taken before item {}, which {} had put",
                    before.3, before.1, now.3, now.1
                ));
            }
        }
        last = Some(now);
    }
    Ok(())
}

/// An item wakes two consumers at most: the first of those that wait, and the next one when that has left. Two more
/// events may have been on their way.
pub(crate) fn woken_for_items(entries: &[Entry]) -> Result<(), String> {
    for (_, told) in told(entries) {
        if let Told::Woke { items, events } = told
            && *events > 2 * items + 2
        {
            return Err(format!("{events} events told of {items} items"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::lines::{found as refused, history};

    type Judge = fn(&[Entry]) -> Result<(), String>;

    fn of(judge: Judge, all: &[Told]) -> Result<(), String> {
        let lines = all.iter().map(|told| (0, "a", told.clone()));
        judge(history(lines.collect()).entries())
    }

    fn puts(items: &[u64]) -> Told {
        Told::Puts { items: items.to_vec() }
    }

    fn put(items: &[u64]) -> Told {
        Told::Put { items: items.to_vec() }
    }

    fn takes(item: u64, token: u128, tries: u32) -> Told {
        Told::Takes { item, token, tries, put: None }
    }

    fn ends(item: u64, token: u128, how: End) -> Told {
        Told::Ends { item, token, how }
    }

    fn ended(item: u64, token: u128) -> Told {
        Told::Ended { item, token }
    }

    fn emptied(dead: &[u64], written: &[u64]) -> Told {
        Told::Emptied { dead: dead.to_vec(), written: written.to_vec() }
    }

    /// An item that was put, and done with token 10.
    fn with(more: &[Told]) -> Result<(), String> {
        let done = [puts(&[7]), put(&[7]), takes(7, 10, 1), ends(7, 10, End::Done), ended(7, 10)];
        of(items_are_once, &[&done[..], more].concat())
    }

    #[test]
    fn what_was_confirmed_comes_to_one_end() {
        assert_eq!(with(&[emptied(&[], &[])]), Ok(()));
        assert_eq!(with(&[emptied(&[], &[7])]), Ok(()));
        refused(with(&[emptied(&[7], &[])]), "more than one end");
        refused(with(&[Told::Removed { attempt: 1, item: 7 }]), "more than one end");
        refused(with(&[takes(7, 12, 2)]), "taken after its end");
        let again = [takes(7, 9, 2), ends(7, 9, End::Done), ended(7, 9)];
        refused(with(&again), "more than one end");
        refused(with(&[takes(8, 11, 1)]), "item 8 was never put");
        refused(with(&[puts(&[8]), put(&[8]), emptied(&[], &[])]), "items [8] are lost");
    }

    #[test]
    fn what_nobody_knows_is_there_or_not() {
        // All of a put, or nothing.
        assert_eq!(with(&[puts(&[8, 9]), emptied(&[], &[])]), Ok(()));
        assert_eq!(with(&[puts(&[8, 9]), emptied(&[8, 9], &[])]), Ok(()));
        refused(with(&[puts(&[8, 9]), emptied(&[8], &[])]), "items [9] are lost");
        let not = Told::NotPut { items: vec![8, 9] };
        refused(with(&[puts(&[8, 9]), not, emptied(&[9], &[])]), "9 was refused");

        // An end.
        let begun = [puts(&[8]), put(&[8]), takes(8, 11, 1), ends(8, 11, End::Done)];
        let with = |more: &[Told]| with(&[&begun[..], more].concat());
        let not = Told::NotEnded { item: 8, token: 11 };
        assert_eq!(with(&[emptied(&[], &[])]), Ok(()));
        assert_eq!(with(&[emptied(&[], &[8])]), Ok(()));
        assert_eq!(with(&[emptied(&[8], &[])]), Ok(()));
        assert_eq!(with(&[not.clone(), emptied(&[8], &[])]), Ok(()));
        refused(with(&[not.clone(), emptied(&[], &[])]), "items [8] are lost");
        refused(with(&[not, emptied(&[], &[8])]), "its end was written");
    }

    #[test]
    fn what_was_buried_is_a_dead_letter() {
        let buried = [puts(&[8]), put(&[8]), takes(8, 11, 1), ends(8, 11, End::Bury), ended(8, 11)];
        let with = |more: &[Told]| with(&[&buried[..], more].concat());
        assert_eq!(with(&[emptied(&[8], &[])]), Ok(()));
        refused(with(&[emptied(&[], &[])]), "no dead letter");
        refused(with(&[takes(8, 12, 2)]), "taken after its end");
    }

    #[test]
    fn a_dead_letter_is_put_back_or_discarded() {
        let sends = |attempt, fate| Told::Sends { attempt, item: 8, fate };
        let sent = |attempt| Told::Sent { attempt };
        let buried = [puts(&[8]), put(&[8]), takes(8, 11, 3), ends(8, 11, End::Bury), ended(8, 11)];
        let all = |judge, more: &[Told]| of(judge, &[&buried[..], more].concat());

        let put_back = [sends(1, Fate::PutBack), sent(1)];
        let done = [takes(8, 12, 1), ends(8, 12, End::Done), ended(8, 12), emptied(&[], &[])];
        let again = [&put_back[..], &done].concat();
        assert_eq!(all(items_are_once, &again), Ok(()));
        assert_eq!(all(takes_grow, &again), Ok(()));
        // Without an answer too, but not if it was no dead letter any more.
        assert_eq!(all(items_are_once, &[&put_back[..1], &done].concat()), Ok(()));
        let not = [sends(1, Fate::PutBack), Told::NotSent { attempt: 1 }];
        refused(all(items_are_once, &[&not[..], &done].concat()), "taken after its end");
        refused(all(takes_grow, &[&not[..], &done].concat()), "item 8");
        refused(
            all(items_are_once, &[&put_back[..], &[emptied(&[], &[])]].concat()),
            "[8] are lost",
        );
        let twice = [takes(8, 13, 2), ends(8, 13, End::Bury), ended(8, 13), emptied(&[], &[])];
        refused(all(items_are_once, &[&put_back[..], &twice].concat()), "no dead letter");

        let discarded = [sends(1, Fate::Discard), sent(1)];
        let after = |more: &[Told]| all(items_are_once, &[&discarded[..], more].concat());
        assert_eq!(after(&[emptied(&[], &[])]), Ok(()));
        refused(after(&[emptied(&[8], &[])]), "more than one end");
        refused(after(&[sends(2, Fate::Discard), sent(2)]), "more than one end");
        let unknown = [sends(1, Fate::Discard), emptied(&[8], &[])];
        assert_eq!(all(items_are_once, &unknown), Ok(()));
    }

    #[test]
    fn an_item_wakes_two_consumers() {
        let woke = |events| of(woken_for_items, &[Told::Woke { items: 6, events }]);
        assert_eq!(woke(14), Ok(()));
        refused(woke(15), "15 events");
    }

    #[test]
    fn a_value_is_removed_at_most_once() {
        let removes = |attempt| Told::Removes { attempt };
        let removed = |attempt, item| Told::Removed { attempt, item };
        let two = [puts(&[8, 9]), put(&[8, 9]), removes(1), removed(1, 8), removes(2)];
        let all = |judge, more: &[Told]| of(judge, &[&two[..], more].concat());
        assert_eq!(all(items_are_once, &[emptied(&[9], &[])]), Ok(()));
        // The one that nobody knows of has lost it.
        assert_eq!(all(items_are_once, &[emptied(&[], &[])]), Ok(()));
        let nothing = Told::NotRemoved { attempt: 2 };
        refused(all(items_are_once, &[nothing, emptied(&[], &[])]), "items [9] are lost");
        assert_eq!(all(removed_at_most_once, &[removed(2, 9)]), Ok(()));
        refused(all(removed_at_most_once, &[removed(2, 8)]), "8 was removed twice");
    }

    #[test]
    fn tokens_grow_with_the_takes() {
        assert_eq!(of(takes_grow, &[takes(7, 12, 2), takes(7, 10, 1), takes(8, 9, 4)]), Ok(()));
        refused(of(takes_grow, &[takes(7, 10, 1), takes(7, 12, 1)]), "item 7");
        refused(of(takes_grow, &[takes(7, 12, 1), takes(7, 10, 2)]), "item 7");
    }

    #[test]
    fn first_takes_are_in_the_order_of_puts() {
        let takes = |item, token, tries, put| Told::Takes { item, token, tries, put: Some(put) };
        let begun = [puts(&[1, 2]), puts(&[3]), puts(&[4])];
        let of = |all: &[Told]| of(taken_in_order, &[&begun[..], all].concat());
        let good = [takes(1, 10, 1, 5), takes(2, 11, 1, 5), takes(3, 12, 1, 6), takes(1, 13, 2, 5)];
        assert_eq!(of(&good), Ok(()));
        // Both puts were one transaction, or both takes.
        assert_eq!(of(&[takes(4, 10, 1, 6), takes(3, 11, 1, 6)]), Ok(()));
        assert_eq!(of(&[takes(3, 10, 1, 6), takes(1, 10, 1, 5)]), Ok(()));
        let back = Told::Sends { attempt: 1, item: 1, fate: Fate::PutBack };
        assert_eq!(of(&[takes(3, 10, 1, 6), back, takes(1, 11, 1, 5)]), Ok(()));

        refused(of(&[takes(3, 10, 1, 6), takes(1, 11, 1, 5)]), "item 3 was put by 6");
        refused(of(&[takes(2, 10, 1, 5), takes(1, 11, 1, 5)]), "item 2 was put by 5");
    }
}
