//! Which member an item belongs to. No I/O.
//!
//! Uses rendezvous hashing (`docs/rendezvous.md`), so that all programs that see the same members agree. An item
//! belongs to a member that has the same set of items: others would not know what to do with it.

use crate::discovery::rendezvous::{beats, digest, draw};
use crate::group::Member;
use crate::partitions::layout::MemberRecord;

/// The members that have the same items as this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    /// Sorted by the ids.
    sharers: Vec<Sharer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sharer {
    id: String,
    weight: u32,
    digest: u64,
}

impl Shares {
    /// The members of a view that have these items, and those that do not.
    pub(super) fn of(members: impl Iterator<Item = Member>, items: u64) -> (Self, Vec<Member>) {
        let (mut sharers, mut others) = (Vec::new(), Vec::new());
        for member in members {
            match MemberRecord::read(&member.data).filter(|record| record.items == items) {
                Some(record) => sharers.push((member.id, record.weight)),
                None => others.push(member),
            }
        }
        (Self::new(sharers), others)
    }

    fn new(sharers: Vec<(String, u32)>) -> Self {
        let with_digest = |(id, weight): (String, u32)| {
            let digest = digest(id.as_bytes());
            Sharer { id, weight, digest }
        };
        let mut sharers: Vec<_> = sharers.into_iter().map(with_digest).collect();
        sharers.sort_by(|one, other| one.id.cmp(&other.id));
        Self { sharers }
    }

    /// The member that an item of this [digest] belongs to.
    pub(super) fn owner(&self, item: u64) -> Option<&str> {
        let draws = self.sharers.iter().map(|sharer| {
            let drawn = (draw(item, sharer.digest), sharer.weight);
            (sharer.id.as_str(), drawn)
        });
        // Of equal draws, the smaller id wins.
        let best = draws.reduce(|best, next| if beats(next.1, best.1) { next } else { best });
        best.map(|(id, _)| id)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in crate::partitions) fn shares(members: &[(&str, u32)]) -> Shares {
        Shares::new(members.iter().map(|(id, weight)| ((*id).to_owned(), *weight)).collect())
    }

    fn owners(shares: &Shares, items: u32) -> Vec<Option<String>> {
        let keys = (0..items).map(|item| digest(format!("item-{item}").as_bytes()));
        keys.map(|key| shares.owner(key).map(str::to_owned)).collect()
    }

    fn members(weights: &[u32]) -> Vec<(String, u32)> {
        weights.iter().enumerate().map(|(n, weight)| (format!("member-{n}"), *weight)).collect()
    }

    #[test]
    fn without_members_an_item_has_no_owner() {
        assert_eq!(Shares::default().owner(7), None);
    }

    #[test]
    fn shares_go_by_the_weights() {
        let owners = owners(&shares(&[("a", 1), ("b", 3)]), 4000);
        let of_a = owners.iter().filter(|owner| owner.as_deref() == Some("a")).count();
        assert!((850..1150).contains(&of_a), "{of_a}");
    }

    proptest! {
        #[test]
        fn when_a_member_leaves_exactly_its_items_move(
            weights in prop::collection::vec(1_u32..=100, 2..9), leaves: prop::sample::Index,
        ) {
            let all = members(&weights);
            let mut left = all.clone();
            let (gone, _) = left.remove(leaves.index(all.len()));
            let (before, after) = (owners(&Shares::new(all), 200), owners(&Shares::new(left), 200));
            for (before, after) in before.iter().zip(&after) {
                match before.as_deref() == Some(&gone) {
                    true => prop_assert_ne!(before, after),
                    false => prop_assert_eq!(before, after),
                }
            }
        }

        /// More weight takes items from others, and moves none between these.
        #[test]
        fn a_weight_that_grows_moves_items_to_its_member_only(
            weights in prop::collection::vec(1_u32..=99, 2..9), grows: prop::sample::Index,
        ) {
            let all = members(&weights);
            let mut heavier = all.clone();
            let grown = grows.index(all.len());
            heavier[grown].1 += 1;
            let (before, after) = (owners(&Shares::new(all), 200), owners(&Shares::new(heavier.clone()), 200));
            for (before, after) in before.iter().zip(&after) {
                prop_assert!(before == after || after.as_deref() == Some(&heavier[grown].0));
            }
        }

        #[test]
        fn the_order_of_the_members_does_not_matter(weights in prop::collection::vec(1_u32..=100, 1..9)) {
            let all = members(&weights);
            let turned = all.iter().rev().cloned().collect();
            prop_assert_eq!(Shares::new(all), Shares::new(turned));
        }
    }
}
