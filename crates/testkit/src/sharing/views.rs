//! Invariants for the watchers of a group.

use std::collections::BTreeMap;

use super::judge::{Present, none_is_away, told};
use crate::data_event::DataEvent;
use crate::history::Entry;

/// Views of one name have the same members with the same tokens for all watchers, and the names that one watcher sees
/// never decrease. A name is that of a transaction, and a token that of the member's joining. So a member is in every
/// view from the one that its token names to the last one in which any watcher saw it.
pub(crate) fn views_fit(entries: &[Entry]) -> Result<(), String> {
    let mut newest: BTreeMap<u64, i64> = BTreeMap::new();
    let mut views: BTreeMap<i64, (&str, &DataEvent)> = BTreeMap::new();
    for (entry, told) in told(entries) {
        let DataEvent::View { watcher, id, members } = told else { continue };
        let who = &*entry.who;
        let before = newest.insert(*watcher, *id).unwrap_or(i64::MIN);
        if before > *id {
            return Err(format!("{who}: view {id}, after view {before}"));
        }
        let (first, known) = *views.entry(*id).or_insert((who, told));
        if !matches!(known, DataEvent::View { members: known, .. } if known == members) {
            return Err(format!("{who} saw {told}, and {first} saw {known}"));
        }
    }

    let present = views.iter().filter_map(|(id, (who, told))| {
        let DataEvent::View { members, .. } = told else { return None };
        let nodes = members.iter().map(|(node, token)| (&**node, token.zxid().0)).collect();
        Some(Present { who, zxid: *id, nodes })
    });
    none_is_away(&present.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use lockkeeper::FencingToken;

    use super::*;
    use crate::history::lines::{found, history};

    /// A watcher, the name of a view that it received, and the members with the transactions of their joining.
    type Seen<'a> = (u64, i64, &'a [(&'a str, u128)]);

    /// Judges what these watchers record, one after the other.
    fn judged(all: &[Seen<'_>]) -> Result<(), String> {
        let token = |zxid: u128| FencingToken::from_u128(zxid << 32).expect("a token");
        let mut lines = Vec::new();
        let who: Vec<_> = all.iter().map(|(watcher, ..)| format!("w{watcher}")).collect();
        for ((watcher, id, members), who) in all.iter().zip(&who) {
            let members = members.iter().map(|(node, zxid)| ((*node).to_owned(), token(*zxid)));
            let told = DataEvent::View { watcher: *watcher, id: *id, members: members.collect() };
            lines.push((0, &**who, told));
        }
        views_fit(history(lines).entries())
    }

    fn refused(all: &[Seen<'_>], part: &str) {
        found(judged(all), part);
    }

    #[test]
    fn views_of_one_name_have_the_same_members() {
        let (one, two): (&[_], &[_]) = (&[("a", 10)], &[("a", 10), ("b", 12)]);
        // The second one begins on a server that lags.
        let all = [(1, 10, one), (1, 12, two), (2, 10, one), (2, 12, two), (1, 14, &[("b", 12)])];
        assert_eq!(judged(&all), Ok(()));

        refused(&[(1, 12, two), (2, 12, one)], "w2 saw");
        refused(&[(1, 12, two), (2, 12, &[])], "w2 saw");
        refused(&[(1, 12, one), (2, 12, &[("a", 11)])], "w2 saw");
        // One watcher must not see both either.
        refused(&[(1, 12, one), (1, 12, two)], "w1 saw");
    }

    #[test]
    fn names_of_views_do_not_go_back() {
        let there: &[_] = &[("a", 10)];
        assert_eq!(judged(&[(1, 12, there), (2, 11, there), (1, 12, there)]), Ok(()));
        refused(&[(1, 12, there), (2, 11, there), (1, 11, there)], "w1: view 11, after view 12");
    }

    #[test]
    fn a_live_member_is_in_every_view() {
        let there: &[_] = &[("a", 10)];
        assert_eq!(judged(&[(1, 10, there), (2, 9, &[]), (1, 14, &[])]), Ok(()));
        // It left and came back.
        let again: &[_] = &[("a", 13)];
        assert_eq!(judged(&[(1, 10, there), (1, 12, &[]), (2, 13, again)]), Ok(()));

        refused(&[(1, 10, there), (2, 12, &[]), (1, 14, there)], "w2 at 12: a is not listed");
        refused(&[(1, 10, there), (2, 13, again), (1, 14, there)], "w2 at 13: a is not listed");
        refused(&[(1, 9, there)], "w1 at 9: a is listed, which 10 made");
    }
}
