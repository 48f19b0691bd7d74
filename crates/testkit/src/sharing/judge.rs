//! Invariants for the programs that share data. A write whose answer was lost, or whose program was killed, may have
//! been made or not; what other programs saw decides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::data_event::{DataEvent, Listing};
use crate::history::{Entry, What};

pub(super) fn told(entries: &[Entry]) -> impl Iterator<Item = (&Entry, &DataEvent)> {
    entries.iter().filter_map(|entry| match &entry.what {
        What::Data(told) => Some((entry, told)),
        _ => None,
    })
}

/// Each snapshot is the tree after the last transaction that it names, and none is older than the previous one. The
/// writers record which transaction wrote which version of the tree; a write whose answer was lost is known from the
/// snapshots that show it.
pub(crate) fn snapshots_fit(entries: &[Entry]) -> Result<(), String> {
    let mut written: BTreeMap<i32, i64> = BTreeMap::new();
    for (entry, told) in told(entries) {
        let (version, zxid) = match told {
            DataEvent::Wrote { zxid, version } => (*version, *zxid),
            DataEvent::Saw { version, mzxid, .. } => (*version, *mzxid),
            _ => continue,
        };
        let known = *written.entry(version).or_insert(zxid);
        if known != zxid {
            let who = &entry.who;
            return Err(format!("{who}: version {version} of the tree is of {zxid} and {known}"));
        }
    }
    let mut versions = written.iter().zip(written.iter().skip(1));
    if let Some((one, other)) = versions.find(|(one, other)| one.1 >= other.1) {
        return Err(format!(
            "a later version of the tree is of no later transaction: {one:?}, {other:?}"
        ));
    }

    let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
    for (Entry { at, who, .. }, told) in told(entries) {
        let DataEvent::Saw { zxid, version, mzxid } = told else { continue };
        let at = at.as_secs_f64();
        if mzxid > zxid {
            return Err(format!("{who} at {at:.3} s: a tree at {zxid} with what {mzxid} wrote"));
        }
        let next = written.range(version + 1..).next();
        if let Some((later, by)) = next.filter(|(_, by)| *by <= zxid) {
            return Err(format!(
                "{who} at {at:.3} s: the tree at {zxid} is version {version}, and {by} had written \
                 version {later}"
            ));
        }
        let before = newest.insert(who, *zxid).unwrap_or(i64::MIN);
        if before > *zxid {
            return Err(format!("{who} at {at:.3} s: the tree at {zxid}, after one at {before}"));
        }
    }
    Ok(())
}

/// A list of instances, and the program that recorded it.
struct List<'a> {
    who: &'a str,
    zxid: i64,
    listings: &'a [Listing],
}

/// A node that a directory lists exists from the transaction that created it to the one that the directory names. So
/// each directory lists it at every transaction in between; and an instance only moves forward, from one life to the
/// next, and within a life from one weight to the next.
pub(crate) fn directories_fit(entries: &[Entry]) -> Result<(), String> {
    let mut lists = Vec::new();
    let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
    for (entry, told) in told(entries) {
        let (who, DataEvent::Lists { zxid, listings }) = (&*entry.who, told) else { continue };
        let before = newest.insert(who, *zxid).unwrap_or(i64::MIN);
        if before > *zxid {
            return Err(format!("{who}: the instances at {zxid}, after those at {before}"));
        }
        lists.push(List { who, zxid: *zxid, listings });
    }

    lists.sort_by_key(|list| list.zxid);
    each_goes_forward(&lists)?;
    let present = lists.iter().map(|List { who, zxid, listings }| {
        let nodes = listings.iter().map(|listing| (&*listing.id, listing.czxid)).collect();
        Present { who, zxid: *zxid, nodes }
    });
    none_is_away(&present.collect::<Vec<_>>())
}

fn each_goes_forward(lists: &[List<'_>]) -> Result<(), String> {
    let mut newest: BTreeMap<&str, (i64, u32)> = BTreeMap::new();
    for List { who, zxid, listings } in lists {
        for Listing { id, czxid, weight } in *listings {
            let now = (*czxid, *weight);
            let before = newest.insert(id, now).unwrap_or(now);
            if before > now {
                return Err(format!("{who} at {zxid}: {id} is {now:?}, and was {before:?}"));
            }
        }
    }
    Ok(())
}

/// What existed after a transaction, as one program saw it: names of nodes, each with the transaction that created it.
pub(super) struct Present<'a> {
    pub(super) who: &'a str,
    pub(super) zxid: i64,
    pub(super) nodes: BTreeSet<(&'a str, i64)>,
}

/// A node exists from the transaction that created it to the last one at which any program saw it. So every listing as
/// of a transaction in between contains it. `all` is in the order of transactions.
pub(super) fn none_is_away(all: &[Present<'_>]) -> Result<(), String> {
    let mut last_seen: BTreeMap<(&str, i64), i64> = BTreeMap::new();
    for Present { who, zxid, nodes } in all {
        for (id, czxid) in nodes {
            if czxid > zxid {
                return Err(format!("{who} at {zxid}: {id} is listed, which {czxid} made"));
            }
            last_seen.insert((id, *czxid), *zxid);
        }
    }

    for ((id, czxid), last) in last_seen {
        let from = all.partition_point(|present| present.zxid < czxid);
        let to = all.partition_point(|present| present.zxid <= last);
        let has_it = |present: &&Present<'_>| present.nodes.contains(&(id, czxid));
        if let Some(Present { who, zxid, .. }) = all[from..to].iter().find(|one| !has_it(one)) {
            return Err(format!(
                "{who} at {zxid}: {id} is not listed, although it existed from {czxid} to {last}"
            ));
        }
    }
    Ok(())
}

/// A confirmed add of 1.
#[derive(Clone, Copy, Debug)]
struct Add {
    asked: Duration,
    answered: Duration,
    after: i64,
}

/// The counter is the sum of the confirmed adds, each of which has a place of its own in an order that is compatible
/// with time; the list contains each confirmed item once, and every follower saw prefixes of it.
pub(crate) fn values_fit(entries: &[Entry]) -> Result<(), String> {
    let (mut asked, mut adds, mut refused_adds) = (BTreeMap::new(), Vec::new(), 0);
    let (mut begun, mut appended, mut refused) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut followed, mut remains) = (Vec::new(), None);
    for (entry, told) in told(entries) {
        match told {
            DataEvent::Adds { id } => drop(asked.insert(*id, entry.at)),
            DataEvent::Added { id, after } => {
                let asked = *asked.get(id).ok_or_else(|| format!("add {id} never began"))?;
                adds.push(Add { asked, answered: entry.at, after: *after });
            }
            DataEvent::NotAdded { .. } => refused_adds += 1,
            DataEvent::Appends { item } => drop(begun.insert(*item)),
            DataEvent::Appended { item } => drop(appended.insert(*item)),
            DataEvent::NotAppended { item } => drop(refused.insert(*item)),
            DataEvent::Followed { items } => followed.push((&entry.who, items)),
            DataEvent::Remains { sum, items } => remains = Some((*sum, items)),
            _ => {}
        }
    }

    adds_fit(&mut adds)?;
    let Some((sum, items)) = remains else { return Ok(()) };
    let unknown = asked.len() - adds.len() - refused_adds;
    sums_up(sum, &adds, unknown)?;
    all_appended_once(items, &appended)?;
    let known = |item| begun.contains(item) && !refused.contains(item);
    if let Some(item) = items.iter().find(|item| !known(item)) {
        return Err(format!("{item} was refused and exists: {items:?}"));
    }
    let behind = followed.iter().find(|(_, seen)| !items.starts_with(seen));
    behind.map_or(Ok(()), |(who, seen)| Err(format!("{who}: {seen:?} was no state of {items:?}")))
}

fn adds_fit(adds: &mut [Add]) -> Result<(), String> {
    adds.sort_by_key(|add| add.after);
    if let Some(twice) = adds.windows(2).find(|pair| pair[0].after == pair[1].after) {
        return Err(format!("two adds returned the same sum: {twice:?}"));
    }
    let mut latest = Duration::ZERO;
    for add in adds {
        if add.answered < latest {
            return Err(format!(
                "asked after an add that was smaller, and answered before: {add:?}"
            ));
        }
        latest = latest.max(add.asked);
    }
    Ok(())
}

fn sums_up(sum: i64, adds: &[Add], unknown: usize) -> Result<(), String> {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    if !(count(adds.len())..=count(adds.len() + unknown)).contains(&sum) {
        let confirmed = adds.len();
        return Err(format!("{confirmed} adds confirmed, {unknown} unknown: the sum is {sum}"));
    }
    match adds.last() {
        Some(last) if last.after > sum => Err(format!("{last:?}, but the sum is {sum}")),
        _ => Ok(()),
    }
}

fn all_appended_once(items: &[u64], appended: &BTreeSet<u64>) -> Result<(), String> {
    let there: BTreeSet<_> = items.iter().copied().collect();
    if there.len() < items.len() {
        return Err(format!("an item was appended twice: {items:?}"));
    }
    let lost = appended.difference(&there).next();
    lost.map_or(Ok(()), |lost| Err(format!("the confirmed item {lost} is lost: {items:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::lines::{found as refused, history};

    #[test]
    fn a_snapshot_is_the_tree_at_its_transaction() {
        let wrote = |zxid, version| (1, "w", DataEvent::Wrote { zxid, version });
        let saw = |zxid, version, mzxid| (2, "c", DataEvent::Saw { zxid, version, mzxid });
        let of = |all: &[_]| snapshots_fit(history(all.to_vec()).entries());
        // Version 2 was written by a transaction whose answer was lost; another program has seen it.
        let lost = (3, "d", DataEvent::Saw { zxid: 25, version: 2, mzxid: 20 });
        let all = [wrote(10, 1), saw(12, 1, 10), lost.clone(), wrote(30, 3), saw(30, 3, 30)];
        assert_eq!(of(&all), Ok(()));

        refused(of(&[wrote(10, 1), saw(22, 1, 10), lost.clone()]), "20 had written version 2");
        refused(of(&[wrote(10, 1), wrote(20, 2), saw(25, 1, 10)]), "20 had written version 2");
        refused(of(&[saw(9, 1, 10)]), "a tree at 9 with what 10 wrote");
        refused(of(&[saw(12, 1, 10), saw(11, 1, 10)]), "after one at 12");
        refused(of(&[wrote(10, 1), saw(12, 1, 11)]), "is of 11 and 10");
        refused(of(&[wrote(10, 2), wrote(20, 1)]), "no later transaction");
    }

    #[test]
    fn directories_list_whoever_is_there() {
        let lists = |who, zxid, all: &[(&str, i64, u32)]| {
            let listing = |(id, czxid, weight): &(&str, i64, u32)| Listing {
                id: (*id).to_owned(),
                czxid: *czxid,
                weight: *weight,
            };
            (1, who, DataEvent::Lists { zxid, listings: all.iter().map(listing).collect() })
        };
        let of = |all: &[_]| directories_fit(history(all.to_vec()).entries());
        let first = lists("a", 12, &[("x", 10, 1), ("y", 11, 1)]);
        let second = lists("a", 20, &[("x", 10, 2), ("y", 18, 1)]);
        assert_eq!(of(&[first.clone(), second.clone()]), Ok(()));
        // Recorded later by a program that lags, for a time before either of them existed.
        let behind = lists("b", 13, &[("x", 10, 1)]);
        assert_eq!(of(&[first.clone(), second.clone(), lists("b", 9, &[]), behind]), Ok(()));

        let with = |list| of(&[first.clone(), second.clone(), list]);
        refused(with(lists("b", 15, &[("y", 11, 1)])), "b at 15: x is not listed");
        refused(with(lists("b", 20, &[("x", 10, 2)])), "b at 20: y is not listed");
        refused(with(lists("b", 21, &[("x", 10, 1), ("y", 18, 1)])), "x is (10, 1), and was");
        refused(with(lists("b", 21, &[("x", 10, 2), ("y", 11, 1)])), "y is (11, 1), and was");
        refused(with(lists("a", 19, &[("x", 10, 2), ("y", 18, 1)])), "after those at 20");
    }

    #[test]
    fn the_sum_is_that_of_the_confirmed_adds() {
        let adds = |at, id| (at, "a", DataEvent::Adds { id });
        let added = |at, id, after| (at, "a", DataEvent::Added { id, after });
        let remains = |sum| (9, "world", DataEvent::Remains { sum, items: vec![] });
        let of = |all: &[_]| values_fit(history(all.to_vec()).entries());
        let two = [adds(1, 1), added(2, 1, 1), adds(3, 2), added(4, 2, 2)];
        let with = |more: &[(u64, &'static str, DataEvent)]| [&two[..], more].concat();
        assert_eq!(of(&with(&[remains(2)])), Ok(()));
        // The outcome of a killed program's add is unknown: it counts or not.
        assert_eq!(of(&with(&[adds(5, 3), remains(2)])), Ok(()));
        assert_eq!(of(&with(&[adds(5, 3), remains(3)])), Ok(()));

        refused(of(&with(&[remains(3)])), "0 unknown: the sum is 3");
        refused(of(&with(&[remains(1)])), "the sum is 1");
        let not = (6, "a", DataEvent::NotAdded { id: 3 });
        refused(of(&with(&[adds(5, 3), not, remains(3)])), "0 unknown: the sum is 3");
        refused(of(&with(&[adds(5, 3), added(6, 3, 2)])), "the same sum");
        let late = [adds(1, 1), added(2, 1, 2), adds(3, 2), added(4, 2, 1)];
        refused(of(&late), "answered before");
    }

    #[test]
    fn the_list_has_each_confirmed_item_once() {
        let appends = |item| (1, "a", DataEvent::Appends { item });
        let appended = |item| (2, "a", DataEvent::Appended { item });
        let followed = |items: &[u64]| (3, "f", DataEvent::Followed { items: items.to_vec() });
        let remains =
            |items: &[u64]| (9, "w", DataEvent::Remains { sum: 0, items: items.to_vec() });
        let of = |all: &[_]| values_fit(history(all.to_vec()).entries());
        let begun = [appends(5), appended(5), appends(6)];
        let with = |more: &[(u64, &'static str, DataEvent)]| [&begun[..], more].concat();
        assert_eq!(of(&with(&[followed(&[5]), remains(&[5, 6])])), Ok(()));
        assert_eq!(of(&with(&[remains(&[5])])), Ok(()));

        refused(of(&with(&[remains(&[6])])), "confirmed item 5 is lost");
        refused(of(&with(&[remains(&[5, 5])])), "twice");
        refused(of(&with(&[followed(&[6]), remains(&[5, 6])])), "was no state");
        let not = (2, "a", DataEvent::NotAppended { item: 6 });
        refused(of(&with(&[not, remains(&[5, 6])])), "6 was refused");
    }
}
