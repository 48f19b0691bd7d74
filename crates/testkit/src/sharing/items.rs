//! Invariants for the producers and consumers of a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::judge::told;
use crate::data_event::{Asked, DataEvent, End, Fate};
use crate::history::Entry;
use crate::leases::leases;

/// The queue.
pub const QUEUE: &str = "/queue";

/// Longer than the time from a check whether an item is cancelled until its take is reported, as its session lives on.
const LONGEST_TAKE: Duration = Duration::from_secs(30);

/// A listing older than this is not used.
const OLDEST_LISTING: Duration = Duration::from_millis(2_100);

/// A put of several items.
#[derive(Debug)]
struct Put<'a> {
    items: &'a [u64],
    /// `None`: the outcome is unknown.
    confirmed: Option<bool>,
}

/// A take of an item.
#[derive(Clone, Copy, Debug)]
struct Take {
    at: Duration,
    token: u128,
    tries: u32,
    put: Option<i64>,
    end: Option<End>,
    /// When its end was requested.
    ends_at: Option<Duration>,
    /// `None`: the outcome is unknown, or there was no end.
    confirmed: Option<bool>,
    /// When the outcome was known.
    ended_at: Duration,
    /// Whether the end was refused because the item had been cancelled.
    is_cancelled: bool,
    /// The delay after which the item is to come back, in milliseconds, and when it was requested.
    delay: Option<(Duration, u64)>,
}

impl Take {
    /// Whether it certainly ended the item for good.
    fn has_ended(&self) -> bool {
        matches!(self.end, Some(End::Done | End::Bury)) && self.confirmed == Some(true)
    }

    /// Whether it certainly put the item back.
    fn is_retried(&self) -> bool {
        self.end == Some(End::Retry) && self.confirmed == Some(true)
    }

    fn may_be_done(&self) -> bool {
        self.end == Some(End::Done) && self.confirmed != Some(false)
    }
}

/// An operation on a dead letter.
#[derive(Clone, Copy, Debug)]
struct Sending {
    item: u64,
    fate: Fate,
    /// `None`: the outcome is unknown.
    confirmed: Option<bool>,
}

/// A cancellation of an item.
#[derive(Clone, Copy, Debug)]
struct Cancelling {
    item: u64,
    /// `None`: the outcome is unknown.
    confirmed: Option<bool>,
    asked_at: Duration,
    answered_at: Duration,
}

/// What the history says about all items.
#[derive(Debug, Default)]
struct Known<'a> {
    puts: Vec<Put<'a>>,
    /// The put of each item, and the item's place in it.
    places: BTreeMap<u64, (usize, usize)>,
    /// When a put was confirmed.
    put_at: BTreeMap<u64, Duration>,
    /// The options that puts requested, and when.
    asked: BTreeMap<u64, (Duration, Asked)>,
    /// How often an item may have been put again because the outcome of its put was unknown.
    again: BTreeMap<u64, usize>,
    cancellings: BTreeMap<u64, Cancelling>,
    /// Answers that report an item as done.
    answered: Vec<(Duration, u64, Option<u64>)>,
    takes: BTreeMap<u64, Vec<Take>>,
    removed: Vec<u64>,
    /// Removals with an unknown outcome.
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
        for (entry, told) in told(entries) {
            known.hear(entry.at, told);
        }
        known
    }

    fn hear(&mut self, at: Duration, told: &'a DataEvent) {
        match told {
            DataEvent::Asks { item, asked } => drop(self.asked.insert(*item, (at, asked.clone()))),
            DataEvent::PutsAgain { item } => *self.again.entry(*item).or_default() += 1,
            DataEvent::NotPutAgain { item } => *self.again.entry(*item).or_default() -= 1,
            DataEvent::Puts { items } => {
                let put = self.puts.len();
                let places = items.iter().enumerate().map(|(place, item)| (*item, (put, place)));
                self.places.extend(places);
                self.puts.push(Put { items, confirmed: None });
            }
            DataEvent::Put { items } => {
                self.put_at.extend(items.iter().map(|item| (*item, at)));
                self.answer_put(items, true);
            }
            DataEvent::NotPut { items } => self.answer_put(items, false),

            DataEvent::Takes { item, token, tries, put } => {
                let (token, tries, put) = (*token, *tries, *put);
                let take = Take {
                    at,
                    token,
                    tries,
                    put,
                    end: None,
                    ends_at: None,
                    confirmed: None,
                    ended_at: Duration::ZERO,
                    is_cancelled: false,
                    delay: None,
                };
                self.takes.entry(*item).or_default().push(take);
            }
            DataEvent::Ends { item, token, how } => {
                self.take(*item, *token).into_iter().for_each(|take| {
                    (take.end, take.ends_at) = (Some(*how), Some(at));
                });
            }
            DataEvent::Ended { item, token } => {
                self.take(*item, *token).into_iter().for_each(|take| {
                    (take.confirmed, take.ended_at) = (Some(true), at);
                });
            }
            DataEvent::NotEnded { item, token } => {
                self.take(*item, *token).into_iter().for_each(|take| take.confirmed = Some(false));
            }
            DataEvent::EndCancelled { item, token } => {
                self.take(*item, *token).into_iter().for_each(|take| {
                    (take.confirmed, take.is_cancelled) = (Some(false), true);
                });
            }
            DataEvent::Delays { item, token, delay_ms } => {
                self.take(*item, *token).into_iter().for_each(|take| {
                    take.delay = Some((at, *delay_ms));
                });
            }

            DataEvent::Cancels { attempt, item } => {
                let item = *item;
                let (asked_at, answered_at) = (at, at);
                let cancelling = Cancelling { item, confirmed: None, asked_at, answered_at };
                self.cancellings.insert(*attempt, cancelling);
            }
            DataEvent::Answered { item, answer } => self.answered.push((at, *item, *answer)),
            DataEvent::Cancelled { attempt } => self.answer_cancelling(*attempt, true, at),
            DataEvent::NotCancelled { attempt } => self.answer_cancelling(*attempt, false, at),

            DataEvent::Removes { attempt } => drop(self.removes.insert(*attempt)),
            DataEvent::Removed { attempt, item } => {
                self.removes.remove(attempt);
                self.removed.push(*item);
            }
            DataEvent::NotRemoved { attempt } => drop(self.removes.remove(attempt)),

            DataEvent::Sends { attempt, item, fate } => {
                let sending = Sending { item: *item, fate: *fate, confirmed: None };
                self.sendings.insert(*attempt, sending);
            }
            DataEvent::Sent { attempt } => self.answer_sending(*attempt, true),
            DataEvent::NotSent { attempt } => self.answer_sending(*attempt, false),

            DataEvent::Emptied { dead, written } => {
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

    fn answer_cancelling(&mut self, attempt: u64, confirmed: bool, at: Duration) {
        self.cancellings.get_mut(&attempt).into_iter().for_each(|cancelling| {
            (cancelling.confirmed, cancelling.answered_at) = (Some(confirmed), at);
        });
    }

    fn take(&mut self, item: u64, token: u128) -> Option<&mut Take> {
        self.takes.get_mut(&item)?.iter_mut().find(|take| take.token == token)
    }

    fn takes(&self, item: u64) -> &[Take] {
        self.takes.get(&item).map_or(&[], Vec::as_slice)
    }

    /// How often this may have been done to an item as a dead letter.
    fn sent(&self, item: u64, fate: Fate) -> usize {
        let sent = self.sendings.values().filter(|it| (it.item, it.fate) == (item, fate));
        sent.filter(|it| it.confirmed != Some(false)).count()
    }

    /// The cancellations of an item that were confirmed.
    fn cancelled(&self, item: u64) -> impl Iterator<Item = &Cancelling> {
        let of_item = self.cancellings.values().filter(move |it| it.item == item);
        of_item.filter(|it| it.confirmed == Some(true))
    }

    fn may_be_cancelled(&self, item: u64) -> bool {
        self.cancellings.values().any(|it| it.item == item && it.confirmed != Some(false))
    }

    /// How often it may have been put after the first time.
    fn copies(&self, item: u64) -> usize {
        self.again.get(&item).copied().unwrap_or_default()
    }

    /// The options that it was put with.
    fn asked(&self, item: u64) -> Option<&Asked> {
        self.asked.get(&item).map(|(_, asked)| asked)
    }

    /// The takes of an item, in order.
    fn takes_in_order(&self, item: u64) -> Vec<Take> {
        let mut takes = self.takes(item).to_vec();
        takes.sort_by_key(|take| (take.token, take.tries));
        takes
    }

    /// Whether any program has seen an item.
    fn is_seen(&self, item: u64) -> bool {
        !self.takes(item).is_empty()
            || self.removed.contains(&item)
            || self.dead.contains(&item)
            || self.written.contains(&item)
            || self.cancelled(item).next().is_some()
            || self.sendings.values().any(|sending| sending.item == item)
    }

    /// How many ends of the item are certain: it was done, it is a dead letter or was one and was discarded, it was
    /// removed, or it was cancelled.
    fn ends(&self, item: u64) -> usize {
        let done = |take: &&Take| take.has_ended() && take.end == Some(End::Done);
        let done = self.takes(item).iter().filter(done).count();
        // If its end has an unknown outcome, the node that it writes decides.
        let done = done.max(usize::from(self.written.contains(&item)));
        let removed = self.removed.iter().filter(|removed| **removed == item).count();
        let is_discarded = |it: &&Sending| {
            it.item == item && it.fate == Fate::Discard && it.confirmed == Some(true)
        };
        let discarded = self.sendings.values().filter(is_discarded).count();
        let dead = usize::from(self.dead.contains(&item));
        done + removed + discarded + dead + self.cancelled(item).count()
    }

    /// # Errors
    /// The item came to more than one end, or to an impossible one.
    fn judge(&self, item: u64) -> Result<(), String> {
        let takes = self.takes(item);
        let copies = self.copies(item);
        if self.ends(item) > 1 + copies {
            return Err(format!("item {item} came to more than one end: {takes:?}"));
        }
        // A burial is undone if another take follows it, or if the item is not a dead letter in the final state.
        let undone = self.sent(item, Fate::PutBack);
        let ended = |how| takes.iter().filter(move |it| it.has_ended() && it.end == Some(how));
        let has_later = |end: &&Take| takes.iter().any(|take| take.token > end.token);
        let later = ended(End::Bury).filter(has_later).count();
        let cancelled = takes.iter().filter(|take| take.is_cancelled);
        let over = ended(End::Done).chain(cancelled).filter(has_later).count();
        if later > undone + copies || over > copies {
            return Err(format!("item {item} was taken after its end: {takes:?}"));
        }
        if takes.iter().any(|take| take.is_cancelled) && !self.may_be_cancelled(item) {
            return Err(format!(
                "item {item} was not cancelled, and its end was refused: {takes:?}"
            ));
        }
        let too_late =
            |take: &Take| self.cancelled(item).any(|it| it.answered_at + LONGEST_TAKE < take.at);
        if copies == 0 && takes.iter().any(too_late) {
            return Err(format!("item {item} was taken after it was cancelled: {takes:?}"));
        }
        if self.written.contains(&item) && !takes.iter().any(Take::may_be_done) {
            return Err(format!("item {item} was not done, and its end was written: {takes:?}"));
        }
        let left = undone + self.sent(item, Fate::Discard) + usize::from(self.dead.contains(&item));
        let is_gone = self.may_be_cancelled(item);
        if self.is_emptied && !is_gone && ended(End::Bury).count() > left {
            return Err(format!("item {item} was buried and is not a dead letter: {takes:?}"));
        }
        Ok(())
    }
}

/// Each confirmed item comes to one end: it is done, a dead letter, or removed by a consumer with delivery at most
/// once. An item that was never seen again was lost by such a consumer, or done by one that does not know it. A put
/// with an unknown outcome was made as a whole or not at all.
pub(crate) fn items_are_once(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    let seen = known.takes.keys().chain(&known.removed).chain(&known.dead).chain(&known.written);
    let seen = seen.chain(known.sendings.values().map(|sending| &sending.item));
    let cancelled = known.cancellings.values().filter(|it| it.confirmed == Some(true));
    let seen = seen.chain(cancelled.map(|it| &it.item));
    for item in seen {
        match known.places.get(item).map(|(put, _)| known.puts[*put].confirmed) {
            None => return Err(format!("item {item} was never put")),
            Some(Some(false)) => return Err(format!("item {item} was refused and exists")),
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
        known.takes(*item).iter().any(Take::may_be_done)
            || known.sent(*item, Fate::Discard) > 0
            || known.may_be_cancelled(*item)
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

/// Of two takes of an item, the later one has the higher token and the higher count of tries, unless the item was put
/// back as a dead letter in between.
pub(crate) fn takes_grow(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    for item in known.takes.keys() {
        let takes = known.takes_in_order(*item);
        let pairs = || takes.windows(2);
        let begins_anew = pairs().filter(|pair| pair[0].tries >= pair[1].tries).count();
        let is_twice = pairs().any(|pair| pair[0].token == pair[1].token);
        if is_twice || begins_anew > known.sent(*item, Fate::PutBack) + known.copies(*item) {
            return Err(format!("item {item}: {takes:?}"));
        }
    }
    Ok(())
}

/// No value is removed twice, and none is removed while another consumer works on it.
pub(crate) fn removed_at_most_once(entries: &[Entry]) -> Result<(), String> {
    let (known, leases) = (Known::of(entries), leases(entries));
    let mut seen = BTreeSet::new();
    for (Entry { at, who, .. }, told) in told(entries) {
        let DataEvent::Removed { item, .. } = told else { continue };
        if known.copies(*item) > 0 {
            continue;
        }
        if !seen.insert(*item) {
            return Err(format!("item {item} was removed twice"));
        }
        let of_item = leases.get(&*format!("{QUEUE}/{item}")).map_or(&[][..], Vec::as_slice);
        if let Some(lease) = of_item.iter().find(|lease| lease.end() > *at) {
            let at = at.as_secs_f64();
            return Err(format!(
                "item {item} was removed by {who} at {at:.3} s while held: {lease}"
            ));
        }
    }
    Ok(())
}

/// An answer that reports an item as done is about an item that was done by then, and carries its holder's answer.
/// There is no answer for a value that was removed or that a handler's verdict ended.
pub(crate) fn answers_are_true(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    for (at, item, answer) in &known.answered {
        let may_be_done =
            |take: &Take| take.may_be_done() && take.ends_at.is_some_and(|it| it <= *at);
        let is_done = known.takes(*item).iter().any(may_be_done);
        let may_be_removed = known.removed.contains(item) || !known.removes.is_empty();
        let is_true = match answer {
            Some(answer) => is_done && answer == item,
            None => is_done || may_be_removed,
        };
        if !is_true {
            return Err(format!("item {item} was answered by {answer:?}, and is not done by that"));
        }
    }
    Ok(())
}

/// The number of items never exceeds the bound. An item certainly exists from its put until its last take, and until
/// its end if that was confirmed, unless another program may have ended it before.
pub(crate) fn no_more_than_bound(entries: &[Entry]) -> Result<(), String> {
    let bound = told(entries).find_map(|(_, told)| match told {
        DataEvent::Bounds { items } => Some(*items),
        _ => None,
    });
    let known = Known::of(entries);
    // A removed value may be gone at any time.
    let (Some(bound), true) = (bound, known.removes.is_empty() && known.removed.is_empty()) else {
        return Ok(());
    };

    let mut changes = Vec::new();
    for (item, from) in &known.put_at {
        let was_letter = known.sendings.values().any(|sending| sending.item == *item);
        if was_letter || known.copies(*item) > 0 {
            continue;
        }
        let takes = known.takes(*item).iter();
        let confirmed = |take: &Take| take.ends_at.filter(|_| take.confirmed == Some(true));
        let seen = takes.clone().flat_map(|take| [Some(take.at), confirmed(take)]).flatten().max();
        let may_be_over = |take: &&Take| {
            matches!(take.end, Some(End::Done | End::Bury)) && take.confirmed != Some(false)
        };
        let over = takes.filter(may_be_over).filter_map(|take| take.ends_at);
        let cancels = known.cancellings.values().filter(|it| it.item == *item);
        let over = over.chain(cancels.map(|it| it.asked_at)).min();
        let until = seen.map(|seen| over.map_or(seen, |over| over.min(seen)));
        if let Some(until) = until.filter(|until| until > from) {
            changes.extend([(*from, 1), (until, -1)]);
        }
    }
    // Ends sort before puts.
    changes.sort_unstable();
    let mut count = 0;
    for (at, change) in changes {
        count += change;
        if count > i64::from(bound) {
            let at = at.as_secs_f64();
            return Err(format!("{count} items at {at:.3} s, and {bound} may be there"));
        }
    }
    Ok(())
}

/// The items of a key are taken in the order of their puts if none is delayed, has a priority or may overtake others:
/// an item is taken after those before it have ended. After a dead letter was put back, its order is unknown.
pub(crate) fn keys_in_order(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    let mut takes: BTreeMap<&str, Vec<(u128, i64, u64)>> = BTreeMap::new();
    for (item, (_, asked)) in &known.asked {
        let Asked { key: Some(key), in_order: true, .. } = asked else { continue };
        if known.sent(*item, Fate::PutBack) > 0 {
            continue;
        }
        let of_item = known.takes(*item).iter();
        let of_item = of_item.filter_map(|take| Some((take.token, take.put?, *item)));
        takes.entry(key).or_default().extend(of_item);
    }
    for (key, mut takes) in takes {
        takes.sort_unstable();
        if let Some(pair) = takes.windows(2).find(|pair| pair[0].1 > pair[1].1) {
            let [(_, before, one), (_, now, other)] = pair else { continue };
            return Err(format!(
                "key {key}: item {one}, put by {before}, was taken before item {other}, put by {now}"
            ));
        }
    }
    Ok(())
}

/// No item is taken before it is due, by the server's clock, or by what the clock showed before it was set.
pub(crate) fn taken_when_due(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    // What the clock showed at the beginning, and when that was known.
    let clocks: Vec<(Duration, i64)> = told(entries)
        .filter_map(|(entry, told)| match told {
            DataEvent::ServerClock { unix_ms } => Some((entry.at, *unix_ms)),
            _ => None,
        })
        .collect();
    let until = |at: Duration| clocks.iter().filter(move |it| it.0 <= at).map(|it| it.1);
    let millis = |at: Duration| i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let earliest = |asked: Duration, answered| Some(millis(asked) + until(answered).min()?);
    let is_early = |take: &Take, due: i64| {
        // The reported values are rounded.
        let latest = until(take.at).max().map(|zero| zero + millis(take.at) + 2);
        latest.is_some_and(|latest| latest < due)
    };

    for item in known.takes.keys() {
        let takes = known.takes_in_order(*item);
        if let Some((at, asked)) = known.asked.get(item) {
            let answered = known.put_at.get(item).copied().unwrap_or(Duration::MAX);
            let after = |delay| Some(earliest(*at, answered)? + signed(delay));
            let due = asked.due_unix_ms.map(signed).or_else(|| asked.delay_ms.and_then(after));
            if let Some(due) = due
                && let Some(take) = takes.iter().find(|take| is_early(take, due))
            {
                return Err(format!("item {item} is due at {due}: {take:?}, {asked:?}"));
            }
        }
        if known.sent(*item, Fate::PutBack) + known.copies(*item) > 0 {
            continue;
        }
        for pair in takes.windows(2) {
            let Some((at, delay)) = pair[0].delay.filter(|_| pair[0].is_retried()) else {
                continue;
            };
            let due = earliest(at, pair[0].ended_at).map(|now| now + signed(delay));
            if due.is_some_and(|due| is_early(&pair[1], due)) {
                return Err(format!("item {item} was to come back at {due:?}: {pair:?}"));
            }
        }
    }
    Ok(())
}

/// A single consumer takes no item before one that has a lower priority number and was free before it listed.
pub(crate) fn lower_priorities_first(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    // Items that only wait for their turn: since when, and the token by which they were then taken.
    let mut free: Vec<(Duration, i32, u128, u64)> = Vec::new();
    for (item, put_at) in &known.put_at {
        let default = Asked::default();
        let asked = known.asked(*item).unwrap_or(&default);
        let is_kept = asked.key.is_some() || asked.kind.is_some();
        let comes_later = asked.delay_ms.is_some() || asked.due_unix_ms.is_some();
        if is_kept || known.sent(*item, Fate::PutBack) + known.copies(*item) > 0 {
            continue;
        }
        let takes = known.takes_in_order(*item);
        if let Some(first) = takes.first().filter(|take| take.tries == 1 && !comes_later) {
            free.push((*put_at, asked.priority, first.token, *item));
        }
        for pair in takes.windows(2) {
            let is_next = pair[0].is_retried() && pair[1].tries == pair[0].tries + 1;
            if is_next && pair[0].delay.is_none() {
                free.push((pair[0].ended_at, asked.priority, pair[1].token, *item));
            }
        }
    }

    let mut looks = None;
    for (entry, told) in told(entries) {
        match told {
            DataEvent::LooksForItem => looks = Some(entry.at),
            DataEvent::Takes { item, token, .. } => {
                let Some(listed) = looks.and_then(|at| at.checked_sub(OLDEST_LISTING)) else {
                    continue;
                };
                let priority = known.asked(*item).map_or(0, |asked| asked.priority);
                let before = |it: &&(Duration, i32, u128, u64)| {
                    it.0 < listed && it.1 < priority && it.2 > *token
                };
                if let Some((since, lower, _, other)) = free.iter().find(before) {
                    let since = since.as_secs_f64();
                    return Err(format!(
                        "item {item} of priority {priority} was taken before item {other} of priority \
                         {lower}, which was free since {since:.3} s"
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// If takes report when their items were put, items without options are taken for the first time in that order. A dead
/// letter that was put back may be taken for the first time again.
pub(crate) fn taken_in_order(entries: &[Entry]) -> Result<(), String> {
    let known = Known::of(entries);
    let mut first: Vec<_> = known
        .takes
        .iter()
        .flat_map(|(item, takes)| takes.iter().map(move |take| (*item, take)))
        .filter(|(item, take)| take.tries == 1 && known.sent(*item, Fate::PutBack) == 0)
        .filter(|(item, _)| known.asked(*item).is_none())
        .filter_map(|(item, take)| {
            Some((take.token, take.put?, known.places.get(&item).copied()?, item))
        })
        .collect();
    first.sort_by_key(|(token, ..)| *token);

    // The last one of all before.
    let mut last: Option<(u128, i64, (usize, usize), u64)> = None;
    for now in first {
        if let Some(before) = last {
            // One transaction may carry several puts.
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

/// An item wakes at most two consumers: the first waiter, and the next one when that has left. Two more events may have
/// been in flight.
pub(crate) fn woken_for_items(entries: &[Entry]) -> Result<(), String> {
    for (_, told) in told(entries) {
        if let DataEvent::Woke { items, events } = told
            && *events > 2 * items + 2
        {
            return Err(format!("{events} events for {items} items"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::lines::{found as refused, history};
    use crate::history::{Share, What};

    type Judge = fn(&[Entry]) -> Result<(), String>;

    fn of(judge: Judge, all: &[DataEvent]) -> Result<(), String> {
        let lines = all.iter().map(|told| (0, "a", told.clone()));
        judge(history(lines.collect()).entries())
    }

    fn puts(items: &[u64]) -> DataEvent {
        DataEvent::Puts { items: items.to_vec() }
    }

    fn put(items: &[u64]) -> DataEvent {
        DataEvent::Put { items: items.to_vec() }
    }

    fn takes(item: u64, token: u128, tries: u32) -> DataEvent {
        DataEvent::Takes { item, token, tries, put: None }
    }

    fn ends(item: u64, token: u128, how: End) -> DataEvent {
        DataEvent::Ends { item, token, how }
    }

    fn ended(item: u64, token: u128) -> DataEvent {
        DataEvent::Ended { item, token }
    }

    fn emptied(dead: &[u64], written: &[u64]) -> DataEvent {
        DataEvent::Emptied { dead: dead.to_vec(), written: written.to_vec() }
    }

    /// An item that was put and was done with token 10.
    fn with(more: &[DataEvent]) -> Result<(), String> {
        let done = [puts(&[7]), put(&[7]), takes(7, 10, 1), ends(7, 10, End::Done), ended(7, 10)];
        of(items_are_once, &[&done[..], more].concat())
    }

    #[test]
    fn what_was_confirmed_comes_to_one_end() {
        assert_eq!(with(&[emptied(&[], &[])]), Ok(()));
        assert_eq!(with(&[emptied(&[], &[7])]), Ok(()));
        refused(with(&[emptied(&[7], &[])]), "more than one end");
        refused(with(&[DataEvent::Removed { attempt: 1, item: 7 }]), "more than one end");
        refused(with(&[takes(7, 12, 2)]), "taken after its end");
        let again = [takes(7, 9, 2), ends(7, 9, End::Done), ended(7, 9)];
        refused(with(&again), "more than one end");
        refused(with(&[takes(8, 11, 1)]), "item 8 was never put");
        refused(with(&[puts(&[8]), put(&[8]), emptied(&[], &[])]), "items [8] are lost");
    }

    #[test]
    fn an_unknown_outcome_may_be_either() {
        // All of a put, or none of it.
        assert_eq!(with(&[puts(&[8, 9]), emptied(&[], &[])]), Ok(()));
        assert_eq!(with(&[puts(&[8, 9]), emptied(&[8, 9], &[])]), Ok(()));
        refused(with(&[puts(&[8, 9]), emptied(&[8], &[])]), "items [9] are lost");
        let not = DataEvent::NotPut { items: vec![8, 9] };
        refused(with(&[puts(&[8, 9]), not, emptied(&[9], &[])]), "9 was refused");

        // An end.
        let begun = [puts(&[8]), put(&[8]), takes(8, 11, 1), ends(8, 11, End::Done)];
        let with = |more: &[DataEvent]| with(&[&begun[..], more].concat());
        let not = DataEvent::NotEnded { item: 8, token: 11 };
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
        let with = |more: &[DataEvent]| with(&[&buried[..], more].concat());
        assert_eq!(with(&[emptied(&[8], &[])]), Ok(()));
        refused(with(&[emptied(&[], &[])]), "not a dead letter");
        refused(with(&[takes(8, 12, 2)]), "taken after its end");
    }

    #[test]
    fn a_dead_letter_is_put_back_or_discarded() {
        let sends = |attempt, fate| DataEvent::Sends { attempt, item: 8, fate };
        let sent = |attempt| DataEvent::Sent { attempt };
        let buried = [puts(&[8]), put(&[8]), takes(8, 11, 3), ends(8, 11, End::Bury), ended(8, 11)];
        let all = |judge, more: &[DataEvent]| of(judge, &[&buried[..], more].concat());

        let put_back = [sends(1, Fate::PutBack), sent(1)];
        let done = [takes(8, 12, 1), ends(8, 12, End::Done), ended(8, 12), emptied(&[], &[])];
        let again = [&put_back[..], &done].concat();
        assert_eq!(all(items_are_once, &again), Ok(()));
        assert_eq!(all(takes_grow, &again), Ok(()));
        // Also without an answer, but not if it was no longer a dead letter.
        assert_eq!(all(items_are_once, &[&put_back[..1], &done].concat()), Ok(()));
        let not = [sends(1, Fate::PutBack), DataEvent::NotSent { attempt: 1 }];
        refused(all(items_are_once, &[&not[..], &done].concat()), "taken after its end");
        refused(all(takes_grow, &[&not[..], &done].concat()), "item 8");
        refused(
            all(items_are_once, &[&put_back[..], &[emptied(&[], &[])]].concat()),
            "[8] are lost",
        );
        let twice = [takes(8, 13, 2), ends(8, 13, End::Bury), ended(8, 13), emptied(&[], &[])];
        refused(all(items_are_once, &[&put_back[..], &twice].concat()), "not a dead letter");

        let discarded = [sends(1, Fate::Discard), sent(1)];
        let after = |more: &[DataEvent]| all(items_are_once, &[&discarded[..], more].concat());
        assert_eq!(after(&[emptied(&[], &[])]), Ok(()));
        refused(after(&[emptied(&[8], &[])]), "more than one end");
        refused(after(&[sends(2, Fate::Discard), sent(2)]), "more than one end");
        let unknown = [sends(1, Fate::Discard), emptied(&[8], &[])];
        assert_eq!(all(items_are_once, &unknown), Ok(()));
    }

    #[test]
    fn an_item_wakes_two_consumers() {
        let woke = |events| of(woken_for_items, &[DataEvent::Woke { items: 6, events }]);
        assert_eq!(woke(14), Ok(()));
        refused(woke(15), "15 events");
    }

    #[test]
    fn a_value_is_removed_at_most_once() {
        let removes = |attempt| DataEvent::Removes { attempt };
        let removed = |attempt, item| DataEvent::Removed { attempt, item };
        let two = [puts(&[8, 9]), put(&[8, 9]), removes(1), removed(1, 8), removes(2)];
        let all = |judge, more: &[DataEvent]| of(judge, &[&two[..], more].concat());
        assert_eq!(all(items_are_once, &[emptied(&[9], &[])]), Ok(()));
        // The removal with the unknown outcome has lost it.
        assert_eq!(all(items_are_once, &[emptied(&[], &[])]), Ok(()));
        let nothing = DataEvent::NotRemoved { attempt: 2 };
        refused(all(items_are_once, &[nothing, emptied(&[], &[])]), "items [9] are lost");
        assert_eq!(all(removed_at_most_once, &[removed(2, 9)]), Ok(()));
        refused(all(removed_at_most_once, &[removed(2, 8)]), "8 was removed twice");
    }

    #[test]
    fn an_answer_is_that_of_an_item_that_is_done() {
        let answered = |item, answer| DataEvent::Answered { item, answer };
        let ends = |how| DataEvent::Ends { item: 7, token: 10, how };
        let all = |more: &[DataEvent]| of(answers_are_true, &[&[takes(7, 10, 1)], more].concat());
        let done = ends(End::Done);
        assert_eq!(all(&[done.clone(), answered(7, Some(7)), answered(7, None)]), Ok(()));
        assert_eq!(all(&[DataEvent::Removes { attempt: 1 }, answered(8, None)]), Ok(()));
        let late = history(vec![
            (1, "a", takes(7, 10, 1)),
            (2, "b", answered(7, None)),
            (3, "a", done.clone()),
        ]);
        refused(answers_are_true(late.entries()), "item 7");
        refused(all(&[done, answered(7, Some(8))]), "item 7 was answered by Some(8)");
        refused(all(&[ends(End::Retry), answered(7, None)]), "item 7");
        refused(all(&[answered(8, None)]), "item 8");
    }

    #[test]
    fn no_more_items_are_there_than_the_bound_says() {
        let at = |seconds, told| (seconds, "a", told);
        let of = |more: Vec<_>| {
            let begun =
                vec![at(0, DataEvent::Bounds { items: 1 }), at(1, put(&[7])), at(3, put(&[8]))];
            no_more_than_bound(history([begun, more].concat()).entries())
        };
        let begun = [at(2, takes(7, 10, 1)), at(9, takes(8, 11, 1))];
        let end = |ends_at, how| vec![at(ends_at, ends(7, 10, how)), at(ends_at, ended(7, 10))];
        let first = |ends_at| [&begun[..], &end(ends_at, End::Done)].concat();
        assert_eq!(of(first(3)), Ok(()));
        refused(of(first(4)), "2 items at 3.000 s");
        // The outcome is unknown.
        assert_eq!(of([&begun[..], &end(4, End::Done)[..1]].concat()), Ok(()));
        let again = [at(4, takes(7, 12, 2))];
        assert_eq!(of([&begun[..], &end(2, End::Done), &again].concat()), Ok(()));
        refused(of([&begun[..], &end(2, End::Retry), &again].concat()), "2 items");
        let cancels = DataEvent::Cancels { attempt: 1, item: 7 };
        assert_eq!(of([first(4), vec![at(3, cancels)]].concat()), Ok(()));
        let sends = DataEvent::Sends { attempt: 1, item: 7, fate: Fate::PutBack };
        assert_eq!(of([first(4), vec![at(5, sends)]].concat()), Ok(()));
        assert_eq!(of([first(4), vec![at(5, DataEvent::Removes { attempt: 1 })]].concat()), Ok(()));
    }

    #[test]
    fn tokens_grow_with_the_takes() {
        assert_eq!(of(takes_grow, &[takes(7, 12, 2), takes(7, 10, 1), takes(8, 9, 4)]), Ok(()));
        refused(of(takes_grow, &[takes(7, 10, 1), takes(7, 12, 1)]), "item 7");
        refused(of(takes_grow, &[takes(7, 12, 1), takes(7, 10, 2)]), "item 7");
    }

    #[test]
    fn first_takes_are_in_the_order_of_puts() {
        let takes =
            |item, token, tries, put| DataEvent::Takes { item, token, tries, put: Some(put) };
        let begun = [puts(&[1, 2]), puts(&[3]), puts(&[4])];
        let of = |all: &[DataEvent]| of(taken_in_order, &[&begun[..], all].concat());
        let good = [takes(1, 10, 1, 5), takes(2, 11, 1, 5), takes(3, 12, 1, 6), takes(1, 13, 2, 5)];
        assert_eq!(of(&good), Ok(()));
        // Both puts, or both takes, were one transaction.
        assert_eq!(of(&[takes(4, 10, 1, 6), takes(3, 11, 1, 6)]), Ok(()));
        assert_eq!(of(&[takes(3, 10, 1, 6), takes(1, 10, 1, 5)]), Ok(()));
        let back = DataEvent::Sends { attempt: 1, item: 1, fate: Fate::PutBack };
        assert_eq!(of(&[takes(3, 10, 1, 6), back, takes(1, 11, 1, 5)]), Ok(()));

        refused(of(&[takes(3, 10, 1, 6), takes(1, 11, 1, 5)]), "item 3 was put by 6");
        refused(of(&[takes(2, 10, 1, 5), takes(1, 11, 1, 5)]), "item 2 was put by 5");
    }

    /// Puts one event in each second, from second 1 on.
    fn in_turn(judge: Judge, all: &[DataEvent]) -> Result<(), String> {
        let lines = (1..).zip(all).map(|(at, told)| (at, "a", told.clone()));
        judge(history(lines.collect()).entries())
    }

    fn asks(item: u64, asked: Asked) -> DataEvent {
        DataEvent::Asks { item, asked }
    }

    #[test]
    fn what_is_cancelled_comes_to_no_other_end() {
        let cancels = |attempt| DataEvent::Cancels { attempt, item: 8 };
        let cancelled = |attempt| DataEvent::Cancelled { attempt };
        let begun = [puts(&[8]), put(&[8]), takes(8, 11, 1), ends(8, 11, End::Done)];
        let with = |more: &[DataEvent]| of(items_are_once, &[&begun[..], more].concat());
        let refusal = DataEvent::EndCancelled { item: 8, token: 11 };
        assert_eq!(with(&[cancels(1), cancelled(1), refusal.clone(), emptied(&[], &[])]), Ok(()));
        // The outcome of the cancellation is unknown.
        assert_eq!(with(&[cancels(1), refusal.clone(), emptied(&[], &[])]), Ok(()));
        refused(with(&[cancels(1), cancelled(1), ended(8, 11)]), "more than one end");
        refused(with(&[cancels(1), cancelled(1), cancels(2), cancelled(2)]), "more than one end");
        refused(with(&[cancels(1), cancelled(1), emptied(&[8], &[])]), "more than one end");
        refused(
            with(&[cancels(1), cancelled(1), refusal.clone(), takes(8, 12, 2)]),
            "after its end",
        );
        let not = DataEvent::NotCancelled { attempt: 1 };
        refused(with(&[cancels(1), not, refusal]), "item 8 was not cancelled");

        let late = [(1, puts(&[8])), (2, put(&[8])), (3, cancels(1)), (4, cancelled(1))];
        let late = late.into_iter().chain([(40, takes(8, 11, 1))]);
        let late = history(late.map(|(at, told)| (at, "a", told)).collect());
        refused(items_are_once(late.entries()), "taken after it was cancelled");
    }

    #[test]
    fn what_is_put_again_by_its_id_is_there_once_at_a_time() {
        let again = DataEvent::PutsAgain { item: 8 };
        let done = |token| [takes(8, token, 1), ends(8, token, End::Done), ended(8, token)];
        let begun = [&[puts(&[8]), again][..], &done(11)].concat();
        let with = |judge, more: &[DataEvent]| of(judge, &[&begun[..], more].concat());
        let twice = [&[put(&[8])][..], &done(12)].concat();
        assert_eq!(with(items_are_once, &twice), Ok(()));
        assert_eq!(with(takes_grow, &twice), Ok(()));
        let thrice = [&twice[..], &done(13)].concat();
        refused(with(items_are_once, &thrice), "more than one end");
        refused(with(takes_grow, &thrice), "item 8");
        // It existed, so it was put once.
        let once = [&[DataEvent::NotPutAgain { item: 8 }][..], &twice].concat();
        refused(with(items_are_once, &once), "more than one end");
        refused(with(takes_grow, &once), "item 8");
    }

    #[test]
    fn a_value_is_not_removed_that_somebody_works_on() {
        let lock = format!("{QUEUE}/8");
        let granted = What::Granted { lock: lock.clone(), token: 10, share: Share::Alone };
        let claimed = |until| {
            let until = Duration::from_secs(until);
            What::Claimed { lock: lock.clone(), token: 10, until }
        };
        let removed = What::Data(DataEvent::Removed { attempt: 1, item: 8 });
        let of = |lines: Vec<(u64, &str, What)>| removed_at_most_once(history(lines).entries());
        let begun = |until| vec![(1, "a", granted.clone()), (1, "a", claimed(until))];
        assert_eq!(of([begun(3), vec![(4, "b", removed.clone())]].concat()), Ok(()));
        let back = What::GaveBack { lock: lock.clone(), token: 10 };
        let after = vec![(3, "a", back), (4, "b", removed.clone())];
        assert_eq!(of([begun(9), after].concat()), Ok(()));
        refused(of([begun(5), vec![(4, "b", removed.clone())]].concat()), "while held: a");
        refused(of([vec![(1, "b", removed)], begun(5)].concat()), "while held: a");
    }

    #[test]
    fn items_of_a_key_are_in_order() {
        let of_key =
            |key: &str| Asked { key: Some(key.into()), in_order: true, ..Asked::default() };
        let takes =
            |item, token, tries, put| DataEvent::Takes { item, token, tries, put: Some(put) };
        let begun = [asks(1, of_key("k")), asks(2, of_key("k")), asks(3, of_key("l"))];
        let with = |all: &[DataEvent]| of(keys_in_order, &[&begun[..], all].concat());
        let good = [takes(1, 10, 1, 5), takes(3, 11, 1, 7), takes(1, 12, 2, 5), takes(2, 13, 1, 6)];
        assert_eq!(with(&good), Ok(()));
        refused(with(&[takes(2, 10, 1, 6), takes(1, 11, 1, 5)]), "key k: item 2, put by 6");
        // Before the first one has ended.
        let between = [takes(1, 10, 1, 5), takes(2, 11, 1, 6), takes(1, 12, 2, 5)];
        refused(with(&between), "key k");
        let back = DataEvent::Sends { attempt: 1, item: 1, fate: Fate::PutBack };
        assert_eq!(with(&[&between[..], &[back]].concat()), Ok(()));
    }

    #[test]
    fn nothing_is_taken_before_it_is_due() {
        let clock = |unix_ms| DataEvent::ServerClock { unix_ms };
        let with = |delay_ms, more: &[DataEvent]| {
            let later = Asked { delay_ms: Some(delay_ms), ..Asked::default() };
            let put = [clock(70_000), asks(8, later), puts(&[8]), put(&[8])];
            in_turn(taken_when_due, &[&put[..], more].concat())
        };
        // Requested in second 2 and taken in second 5.
        assert_eq!(with(3_000, &[takes(8, 10, 1)]), Ok(()));
        refused(with(4_000, &[takes(8, 10, 1)]), "item 8 is due at 76000");
        let set = [clock(71_000), takes(8, 10, 1)];
        assert_eq!(with(5_000, &set), Ok(()));
        refused(with(6_000, &set), "item 8 is due at 78000");

        let retried = |delay_ms| {
            let back = DataEvent::Delays { item: 8, token: 10, delay_ms };
            [takes(8, 10, 1), back, ends(8, 10, End::Retry), ended(8, 10), takes(8, 11, 2)]
        };
        assert_eq!(with(0, &retried(3_000)), Ok(()));
        refused(with(0, &retried(4_000)), "was to come back");
        let unknown = [&retried(4_000)[..3], &[takes(8, 11, 2)]].concat();
        assert_eq!(with(0, &unknown), Ok(()));
    }

    #[test]
    fn what_has_a_lower_priority_is_taken_first() {
        let first = || asks(8, Asked { priority: -5, ..Asked::default() });
        let begun = || vec![(1, "a", first()), (2, "a", puts(&[8, 9])), (3, "a", put(&[8, 9]))];
        let with = |more: Vec<(u64, &'static str, DataEvent)>| {
            lower_priorities_first(history([begun(), more].concat()).entries())
        };
        let looks = |at| (at, "b", DataEvent::LooksForItem);
        let wrong = |at| vec![looks(at), (7, "b", takes(9, 10, 1)), (8, "b", takes(8, 11, 1))];
        assert_eq!(with(wrong(5)), Ok(()));
        refused(with(wrong(6)), "item 9 of priority 0 was taken before item 8 of priority -5");
        assert_eq!(
            with(vec![looks(6), (7, "b", takes(8, 10, 1)), (8, "b", takes(9, 11, 1))]),
            Ok(())
        );

        // Also after it has come back.
        let back = |at| {
            let ends = [(4, "b", ends(8, 10, End::Retry)), (5, "b", ended(8, 10)), looks(at)];
            let takes = [(9, "b", takes(9, 11, 1)), (9, "b", takes(8, 12, 2))];
            [&[(4, "b", super::tests::takes(8, 10, 1))][..], &ends, &takes].concat()
        };
        assert_eq!(with(back(7)), Ok(()));
        refused(with(back(8)), "before item 8");
    }
}
