//! The instances that may be picked at the moment.

use crate::discovery::pick::rendezvous;

/// An instance that may be picked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolMember {
    /// Its slot in the balancer.
    pub(crate) slot: usize,
    /// At least 1.
    pub(crate) weight: u32,
    /// The digest of its id.
    pub(crate) digest: u64,
}

/// The instances that may be picked, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct PickPool {
    members: Vec<PoolMember>,
    /// The cumulative weights.
    ends: Vec<u64>,
    /// Whether all weights are equal.
    is_even: bool,
    /// The next one in turn.
    next: usize,
}

impl PickPool {
    /// Reserves space, so that replacing the members does not allocate.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.members.reserve(count.saturating_sub(self.members.len()));
        self.ends.reserve(count.saturating_sub(self.ends.len()));
    }

    /// Replaces the members. `next` is the number of members before the next one in turn.
    pub(crate) fn replace(&mut self, members: impl Iterator<Item = PoolMember>, next: usize) {
        self.members.clear();
        self.members.extend(members);

        self.ends.clear();
        let mut total = 0;
        for member in &self.members {
            total += u64::from(member.weight);
            self.ends.push(total);
        }

        self.is_even = self.members.windows(2).all(|pair| pair[0].weight == pair[1].weight);
        self.next = if next < self.members.len() { next } else { 0 };
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The next one in turn, without taking the turn.
    pub(crate) fn peek(&self) -> Option<PoolMember> {
        self.members.get(self.next).copied()
    }

    /// Takes the next one in turn. The pool is not empty.
    pub(crate) fn take_turn(&mut self) -> PoolMember {
        let member = self.members[self.next];
        self.next += 1;
        if self.next == self.members.len() {
            self.next = 0;
        }
        member
    }

    /// The member at this point of the cumulative weights, scaled to 2^64.
    pub(crate) fn at(&self, point: u64) -> PoolMember {
        let point = scale(point, self.total());
        self.members[self.holder_of(point)]
    }

    /// Two different members by weight, from two random numbers; the same one twice if it is the only one.
    pub(crate) fn two(&self, random: u64, other_random: u64) -> (PoolMember, PoolMember) {
        let first = self.holder_of(scale(random, self.total()));
        let width = u64::from(self.members[first].weight);
        let rest = self.total() - width;
        if rest == 0 {
            return (self.members[first], self.members[first]);
        }

        // The second is drawn from the weights without that of the first.
        let point = scale(other_random, rest);
        let start = self.ends[first] - width;
        let second = self.holder_of(if point < start { point } else { point + width });
        (self.members[first], self.members[second])
    }

    /// The owner of a key, by its digest. The pool is not empty.
    pub(crate) fn owner(&self, key: u64) -> PoolMember {
        let of = |member: &PoolMember| (rendezvous::draw(key, member.digest), member.weight);
        let (mut best, others) = self.members.split_first().expect("a member");
        let mut best_draw = of(best);
        for member in others {
            let draw = of(member);
            if rendezvous::beats(draw, best_draw) {
                (best, best_draw) = (member, draw);
            }
        }
        *best
    }

    fn total(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// The index of the member whose weight covers this point, which is below the total.
    fn holder_of(&self, point: u64) -> usize {
        if self.is_even {
            return (point / u64::from(self.members[0].weight)) as usize;
        }
        self.ends.partition_point(|end| *end <= point)
    }
}

/// Scales a point from 2^64 to `total`.
fn scale(point: u64, total: u64) -> u64 {
    ((u128::from(point) * u128::from(total)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second is drawn from the others, by weight, for every first one.
    #[test]
    fn two_are_different_and_both_by_weight() {
        let weights = [1, 2, 3, 4];
        let mut pool = PickPool::default();
        let members = weights.iter().enumerate();
        let members = members.map(|(slot, weight)| PoolMember { slot, weight: *weight, digest: 0 });
        pool.replace(members, 0);

        let mut random = fastrand::Rng::with_seed(7);
        let mut counts = [[0_u32; 4]; 4];
        for _ in 0..100_000 {
            let (first, second) = pool.two(random.u64(..), random.u64(..));
            counts[first.slot][second.slot] += 1;
        }
        for (first, seconds) in counts.iter().enumerate() {
            let (of_first, of_others) = (weights[first], 10 - weights[first]);
            for (second, count) in seconds.iter().enumerate().filter(|(second, _)| *second != first)
            {
                let expected =
                    f64::from(10_000 * of_first * weights[second]) / f64::from(of_others);
                let bound = 5.0 * expected.sqrt();
                assert!((f64::from(*count) - expected).abs() < bound, "{count}, not {expected}");
            }
            assert_eq!(seconds[first], 0);
        }
    }

    #[test]
    fn one_alone_is_drawn_twice() {
        let mut pool = PickPool::default();
        pool.replace([PoolMember { slot: 3, weight: u32::MAX, digest: 0 }].into_iter(), 0);
        let (first, second) = pool.two(u64::MAX, u64::MAX);
        assert_eq!((first.slot, second.slot), (3, 3));
    }
}
