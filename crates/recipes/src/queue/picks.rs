//! Which entry a consumer tries next. No I/O.
//!
//! One listing serves many takes. Of the items with the same key it has only the oldest, and of a kind no more than
//! may be worked on at the same time.
//!
//! Consumers with the same listing, and the same list of consumers, try different entries: each starts with the
//! entries whose number matches its rank. So two seldom try the same item. If a consumer is paused, the others take
//! its share when they have finished their own: they list no more than a window. Because this is rare, they try one
//! of its entries at first, twice as many each time, and list again when one was not free.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use lockkeeper_client::{Instant, ZnodePath};

use crate::queue::lanes::Segment;
use crate::queue::layout::{ClaimName, Entry, QueueNodes, place_of_kind};
use crate::queue::peer_names::NamedItem;

/// The maximum age of a listing.
const MAX_LISTING_AGE: Duration = Duration::from_secs(2);

/// How many undecodable items a consumer remembers. If there are more, it finds them again.
const MAX_UNREADABLE: usize = 10_000;

/// The result of one request, all from one state of the servers.
pub(super) struct ListingWindow<'a> {
    /// Segments, and the names in them.
    pub(super) segments: Vec<(Segment, &'a [String])>,
    pub(super) claims: &'a [String],
    pub(super) workers: &'a [String],
    /// The versions of the requested entries.
    pub(super) versions: HashMap<String, i32>,
    /// The places of kinds that are in use.
    pub(super) busy: &'a [String],
    /// The time, in milliseconds since 1970 by the servers' clock; 0 if no listed entry depends on it.
    pub(super) now_unix_ms: u64,
}

/// The rules by which a consumer chooses.
#[derive(Clone, Copy, Debug)]
pub(super) struct PickRule<'a> {
    /// The name of this consumer.
    pub(super) own: &'a str,
    /// Whether the oldest comes first, even if other consumers try it.
    pub(super) strictly: bool,
    /// How many items of a kind are worked on at the same time.
    pub(super) limits: &'a BTreeMap<String, u32>,
}

/// An entry that seems to be free at this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FreeEntry {
    pub(super) entry: Entry,
    pub(super) version: i32,
    /// Until when it was paused, if it was.
    pub(super) paused_until: Option<u64>,
    /// The place of its kind that a take will use.
    pub(super) place_of_kind: Option<u32>,
}

impl FreeEntry {
    fn at(entry: Entry, version: i32) -> Self {
        Self { entry, version, paused_until: None, place_of_kind: None }
    }

    /// The node that has paused it, if any.
    pub(super) fn pause(&self, places: &QueueNodes) -> Option<ZnodePath> {
        let until = self.paused_until?;
        Some(self.entry.pause(places, self.version, until))
    }
}

/// What a consumer remembers of the last listing.
#[derive(Debug, Default)]
pub(super) struct PickList {
    picks: VecDeque<FreeEntry>,
    /// When they were listed.
    listed_at: Option<Instant>,
    /// Whether they are the share of other consumers.
    are_of_others: bool,
    /// Whether some of them were left to those consumers.
    left_some: bool,
    /// How many of these are tried at once: starts over when one was not free.
    few: usize,
    /// Entries that were taken before: their versions are read with the next listing. Sorted by id, so that
    /// simulations are reproducible.
    raised: BTreeMap<String, Entry>,
    /// Items that this consumer cannot decode, and leaves to others.
    unreadable: HashSet<String>,
    /// The keys that occur in this listing: only the first item of a key is tried.
    keys: HashSet<String>,
    /// When the next delayed item is due.
    next_due_unix_ms: Option<u64>,
}

impl PickList {
    /// The next entries to try, up to `most`, all at the same time.
    pub(super) fn next_some(&mut self, most: usize) -> Vec<FreeEntry> {
        let mut some = most.min(self.picks.len());
        if self.are_of_others {
            some = some.min(self.few);
            self.few = self.few.saturating_mul(2);
        }
        self.picks.drain(..some).collect()
    }

    /// Whether the last listing has only the share of other consumers.
    pub(super) fn are_of_others(&self) -> bool {
        self.are_of_others
    }

    /// Forgets the share of others: this consumer must not try it yet, or one of the entries was not free, so that
    /// they are active.
    pub(super) fn leave_others(&mut self) {
        if self.are_of_others {
            self.left_some |= !self.picks.is_empty();
            self.forget();
        }
    }

    /// Whether entries of the last listing were left to other consumers.
    pub(super) fn has_left_some(&self) -> bool {
        self.left_some
    }

    /// Forgets a listing that is too old: it lacks items that were given back since.
    pub(super) fn forget_old(&mut self, now: Instant) {
        if self.listed_at.is_some_and(|then| now.saturating_sub(MAX_LISTING_AGE) > then) {
            self.forget();
        }
    }

    /// Records the time of the last listing.
    pub(super) fn listed(&mut self, now: Instant) {
        self.listed_at = Some(now);
    }

    /// Forgets the listing.
    pub(super) fn forget(&mut self) {
        self.picks.clear();
    }

    /// Records that the entry has another version than expected.
    pub(super) fn raise(&mut self, entry: Entry) {
        self.raised.insert(entry.id.clone(), entry);
    }

    /// Records that the item cannot be decoded. Returns whether that is new.
    pub(super) fn skip(&mut self, id: &str) -> bool {
        if self.unreadable.len() >= MAX_UNREADABLE {
            self.unreadable.clear();
        }
        self.unreadable.insert(id.to_owned())
    }

    /// Continues at a random place, because another consumer tries the same entries.
    pub(super) fn scatter(&mut self) {
        let first = fastrand::usize(..=self.picks.len());
        self.picks.rotate_left(first);
    }

    pub(super) fn next_due_unix_ms(&self) -> Option<u64> {
        self.next_due_unix_ms
    }

    /// The entries whose versions must be read with the next listing.
    pub(super) fn raised(&self) -> impl Iterator<Item = &Entry> {
        self.raised.values()
    }

    /// Adds a listing of another library's queue, in its order: items without a claim that are due, up to `most`.
    pub(super) fn take_in_named(
        &mut self,
        items: Vec<NamedItem>,
        claims: &[String],
        now_unix_ms: u64,
        most: usize,
    ) {
        let claims: HashSet<_> = claims.iter().map(String::as_str).collect();
        let free = items.into_iter().filter(|item| {
            let id = item.entry.id.as_str();
            !claims.contains(id) && !self.unreadable.contains(id)
        });
        let (due, later): (Vec<_>, Vec<_>) = free.partition(|it| it.due_unix_ms <= now_unix_ms);
        self.next_due_unix_ms = later.iter().map(|item| item.due_unix_ms).min();
        let picks = due.into_iter().take(most).map(|item| FreeEntry::at(item.entry, 0));
        self.picks = picks.collect();
    }

    /// Begins a listing, of one window or several.
    pub(super) fn begin(&mut self) {
        self.keys.clear();
        self.next_due_unix_ms = None;
    }

    /// Records that an item is due, or free, at this time.
    pub(super) fn due(&mut self, unix_ms: u64) {
        self.next_due_unix_ms = Some(self.next_due_unix_ms.map_or(unix_ms, |it| it.min(unix_ms)));
    }

    /// Adds a window of a listing. Returns whether it has entries to try.
    pub(super) fn take_in(&mut self, listed: &ListingWindow<'_>, rule: PickRule<'_>) -> bool {
        let claims: HashMap<_, _> = listed
            .claims
            .iter()
            .filter_map(|name| ClaimName::read(name))
            .map(|claim| ((claim.segment, claim.number), claim))
            .collect();
        let mut entries: Vec<_> = listed
            .segments
            .iter()
            .flat_map(|(segment, names)| names.iter().filter_map(|it| Entry::read(*segment, it)))
            .collect();
        entries.sort_unstable_by_key(|entry| (entry.segment, entry.number));
        // Entries that are no longer listed are gone. Other windows are listed before and after this one.
        let is_listed = |entry: &Entry| listed.segments.iter().any(|(it, _)| *it == entry.segment);
        self.raised.retain(|_, raised| !is_listed(raised) || entries.contains(raised));

        let mut places = PlacesOfKinds {
            busy: listed.busy.iter().map(String::as_str).collect(),
            rule,
            given: HashMap::new(),
        };
        let mut free = Vec::with_capacity(entries.len());
        for entry in entries {
            // Including entries that are claimed, paused or undecodable: those behind them have to wait.
            if entry.key().is_some_and(|key| !self.keys.insert(key.to_owned())) {
                continue;
            }
            if self.unreadable.contains(&entry.id) {
                continue;
            }
            let mut pick = match claims.get(&(entry.segment, entry.number)) {
                None => {
                    let version = listed.versions.get(&entry.id).copied().unwrap_or(0);
                    FreeEntry::at(entry, version)
                }
                Some(ClaimName { free_from: Some(until), version, .. }) => {
                    if *until > listed.now_unix_ms {
                        self.due(*until);
                        continue;
                    }
                    FreeEntry { paused_until: Some(*until), ..FreeEntry::at(entry, *version) }
                }
                Some(_) => continue,
            };
            match places.of_kind(pick.entry.kind()) {
                Ok(place) => pick.place_of_kind = place,
                Err(NoFreePlace) => continue,
            }
            free.push(pick);
        }

        let (rank, workers) = place_among(listed.workers, rule.own);
        let (own, mut others): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|pick| rule.strictly || pick.entry.number % workers == rank);
        if own.is_empty() && !others.is_empty() {
            // From different ones, because all others do the same now.
            let first = usize::try_from(rank).unwrap_or_default() % others.len();
            others.rotate_left(first);
        }
        (self.are_of_others, self.few, self.left_some) = (own.is_empty(), 1, false);
        self.picks = if own.is_empty() { others.into() } else { own.into() };
        !self.picks.is_empty()
    }
}

/// The places of limited kinds.
struct PlacesOfKinds<'a> {
    busy: HashSet<&'a str>,
    rule: PickRule<'a>,
    given: HashMap<&'a str, u32>,
}

/// All places of a kind are in use.
struct NoFreePlace;

impl<'a> PlacesOfKinds<'a> {
    /// A free place of a kind; `None` if it has no limit.
    fn of_kind(&mut self, kind: Option<&str>) -> Result<Option<u32>, NoFreePlace> {
        let limit = kind.and_then(|kind| self.rule.limits.get_key_value(kind));
        let Some((kind, limit)) = limit else { return Ok(None) };
        let next = self.given.entry(kind).or_default();
        while *next < *limit {
            let place = *next;
            *next += 1;
            if !self.busy.contains(place_of_kind(kind, place).as_str()) {
                return Ok(Some(place));
            }
        }
        Err(NoFreePlace)
    }
}

/// The number of consumers before this one, and of all, at least 1. Nodes of one consumer, for its current and an
/// earlier session, have the same name up to the dot.
fn place_among(workers: &[String], own: &str) -> (u32, u32) {
    let own = consumer_of(own);
    let others = workers.iter().map(|name| consumer_of(name)).filter(|name| *name != own);
    let others: HashSet<_> = others.collect();
    let before = others.iter().filter(|name| **name < own).count();
    let all = others.len() + 1;
    let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
    (number(before), number(all))
}

fn consumer_of(worker: &str) -> &str {
    worker.split_once('.').map_or(worker, |(consumer, _)| consumer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::lanes::PLAIN;

    const FIRST: Segment = Segment { lane: PLAIN, number: 0 };

    static UNLIMITED: BTreeMap<String, u32> = BTreeMap::new();

    fn rule(own: &str) -> PickRule<'_> {
        PickRule { own, strictly: false, limits: &UNLIMITED }
    }

    fn window<'a>(segments: Vec<(Segment, &'a [String])>) -> ListingWindow<'a> {
        let versions = HashMap::new();
        ListingWindow { segments, claims: &[], workers: &[], versions, busy: &[], now_unix_ms: 0 }
    }

    fn id(number: u32) -> String {
        format!("{number:032x}")
    }

    fn names(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
        numbers.into_iter().map(|number| format!("{}.0-{number:010}", id(number))).collect()
    }

    /// The numbers that a consumer tries, for a listing with these claims and consumers.
    fn tried(entries: &[String], claims: &[String], workers: &[&str], own: &str) -> Vec<u32> {
        let workers: Vec<_> = workers.iter().map(|&worker| worker.to_owned()).collect();
        let segments = vec![(FIRST, entries)];
        let mut picks = PickList::default();
        picks.take_in(&ListingWindow { claims, workers: &workers, ..window(segments) }, rule(own));
        std::iter::from_fn(|| picks.next_some(1).pop()).map(|pick| pick.entry.number).collect()
    }

    #[test]
    fn one_consumer_takes_in_order_and_several_try_different_items() {
        let mut entries = names(0..9);
        entries.reverse();
        assert_eq!(tried(&entries, &[], &["a"], "a"), (0..9).collect::<Vec<_>>());
        let three = ["a", "b", "c"];
        let [a, b, c] = three.map(|own| tried(&entries, &[], &three, own));
        assert_eq!((a, b), (vec![0, 3, 6], vec![1, 4, 7]));
        assert_eq!(c, [2, 5, 8]);
        // The other node is of its last session.
        assert_eq!(tried(&entries, &[], &["a.0", "a.1"], "a.1"), (0..9).collect::<Vec<_>>());
        // A consumer that is not listed yet counts as well.
        assert_eq!(tried(&entries, &[], &["a", "c"], "b"), [1, 4, 7]);
    }

    #[test]
    fn what_falls_to_others_is_taken_when_nothing_else_is_left() {
        let entries = names([1, 4]);
        assert_eq!(tried(&entries, &[], &["a", "b", "c"], "a"), [1, 4]);
        assert_eq!(tried(&entries, &[], &["a", "b", "c"], "c"), [1, 4]);
        let claims = ["0000000000-0000000001.1".to_owned()];
        assert_eq!(tried(&entries, &claims, &["a", "b", "c"], "c"), [4]);
    }

    #[test]
    fn few_at_once_are_tried_of_what_falls_to_others() {
        let workers = ["a", "b"].map(str::to_owned);
        let mut picks = PickList::default();
        let list = |picks: &mut PickList, numbers: &[u32]| {
            let entries = names(numbers.iter().copied());
            let segments = vec![(FIRST, entries.as_slice())];
            picks.take_in(&ListingWindow { workers: &workers, ..window(segments) }, rule("a"));
        };
        let tried = |picks: &mut PickList, most: usize| picks.next_some(most).len();

        list(&mut picks, &[0, 2, 4, 6, 8, 10]);
        assert_eq!([5, 5].map(|most| tried(&mut picks, most)), [5, 1]);
        let of_b: Vec<_> = (0..40).map(|it| 2 * it + 1).collect();
        list(&mut picks, &of_b);
        assert_eq!([9; 5].map(|most| tried(&mut picks, most)), [1, 2, 4, 8, 9]);
        assert!(!picks.has_left_some());
        picks.leave_others();
        assert!(picks.has_left_some());
        assert_eq!(tried(&mut picks, 9), 0, "it lists again");
        list(&mut picks, &[0, 2, 4]);
        picks.leave_others();
        assert!(!picks.has_left_some());
        assert_eq!(tried(&mut picks, 9), 3, "its own");
        list(&mut picks, &[]);
        picks.leave_others();
        assert!(!picks.has_left_some(), "there was nothing");
    }

    #[test]
    fn many_that_fall_to_others_are_taken_one_at_a_time() {
        let workers = ["a", "b"].map(str::to_owned);
        let entries = names((0..100).map(|it| 2 * it + 1));
        let segments = vec![(FIRST, entries.as_slice())];
        let mut picks = PickList::default();
        picks.take_in(&ListingWindow { workers: &workers, ..window(segments) }, rule("a"));
        let taken = (0..100).filter(|_| picks.next_some(1).len() == 1);
        assert_eq!(taken.count(), 100);
    }

    #[test]
    fn an_entry_that_was_taken_before_is_tried_at_the_version_that_was_read() {
        let entries = names([1]);
        let entry = Entry::read(FIRST, &entries[0]).unwrap();
        let mut picks = PickList::default();
        picks.raise(entry.clone());
        let listed =
            |versions| ListingWindow { versions, ..window(vec![(FIRST, entries.as_slice())]) };
        assert!(picks.take_in(&listed([(entry.id.clone(), 3)].into()), rule("a")));
        assert_eq!(picks.next_some(1)[0].version, 3);
        assert_eq!(picks.raised().count(), 1, "it stays so");

        picks.take_in(&window(vec![(FIRST.next(), &[])]), rule("a"));
        assert_eq!(picks.raised().count(), 1, "its segment was not listed");

        assert!(picks.skip(&entry.id) && !picks.skip(&entry.id));
        assert!(!picks.take_in(&listed(HashMap::new()), rule("a")), "others may read it");
    }

    #[test]
    fn strictly_in_order_is_across_segments() {
        let (first, second) = (names([9, 5]), names([2]));
        let segments = vec![(FIRST.next(), second.as_slice()), (FIRST, first.as_slice())];
        let workers = ["a".to_owned(), "b".to_owned()];
        let mut picks = PickList::default();
        let strictly = PickRule { strictly: true, ..rule("b") };
        picks.take_in(&ListingWindow { workers: &workers, ..window(segments) }, strictly);
        let order = std::iter::from_fn(|| picks.next_some(1).pop()).map(|pick| pick.entry.number);
        assert_eq!(order.collect::<Vec<_>>(), [5, 9, 2]);
    }

    /// The ids that are tried, of entries with these marks, among these claims and places.
    fn ids(
        entries: &[&str],
        claims: &[&str],
        busy: &[&str],
        limits: &[(&str, u32)],
    ) -> Vec<String> {
        let [entries, claims, busy] =
            [entries, claims, busy].map(|all| all.iter().map(|it| (*it).to_owned()).collect());
        let (entries, claims, busy): (Vec<_>, Vec<_>, Vec<_>) = (entries, claims, busy);
        let limits = limits.iter().map(|(kind, most)| ((*kind).to_owned(), *most)).collect();
        let seen = ListingWindow {
            claims: &claims,
            busy: &busy,
            now_unix_ms: 1_000,
            ..window(vec![(FIRST, entries.as_slice())])
        };
        let mut picks = PickList::default();
        picks.take_in(&seen, PickRule { limits: &limits, ..rule("a") });
        picks.next_some(99).into_iter().map(|pick| pick.entry.id).collect()
    }

    #[test]
    fn of_a_key_only_the_oldest_item_is_tried_and_only_if_it_is_free() {
        let entries =
            ["a.0.kx-0000000001", "b.0.kx-0000000002", "c.0-0000000003", "d.0.ky-0000000004"];
        assert_eq!(ids(&entries, &[], &[], &[]), ["a", "c", "d"]);
        assert_eq!(ids(&entries, &["0000000000-0000000001.1"], &[], &[]), ["c", "d"]);
        // A paused one blocks its key until then.
        assert_eq!(ids(&entries, &["0000000000-0000000001.1~1001"], &[], &[]), ["c", "d"]);
        assert_eq!(ids(&entries, &["0000000000-0000000001.1~1000"], &[], &[]), ["a", "c", "d"]);
    }

    #[test]
    fn of_a_kind_no_more_are_tried_than_there_are_places() {
        let entries = ["a.0.ngpu-0000000001", "b.0.ngpu-0000000002", "c.0.ngpu-0000000003"];
        assert_eq!(ids(&entries, &[], &[], &[]), ["a", "b", "c"], "no limit");
        assert_eq!(ids(&entries, &[], &[], &[("gpu", 2)]), ["a", "b"]);
        assert_eq!(ids(&entries, &[], &["ngpu.0"], &[("gpu", 2)]), ["a"]);
        assert_eq!(ids(&entries, &[], &["ngpu.0", "ngpu.1"], &[("gpu", 2)]), [""; 0]);
    }
}
