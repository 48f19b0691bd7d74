//! The instances that may be picked at the moment.

use crate::discovery::pick::rendezvous;

/// One that may be picked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Where the balancer keeps what it knows of it.
    pub(crate) slot: usize,
    /// At least 1.
    pub(crate) weight: u32,
    /// The digest of its id.
    pub(crate) digest: u64,
}

/// Those that may be picked, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Group {
    members: Vec<Member>,
    /// The sums of the weights up to and with each of them.
    ends: Vec<u64>,
    /// Whether all weights are the same.
    is_even: bool,
    /// The next one in turn.
    next: usize,
}

impl Group {
    /// Makes room for so many, so that replacing the members allocates nothing.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.members.reserve(count.saturating_sub(self.members.len()));
        self.ends.reserve(count.saturating_sub(self.ends.len()));
    }

    /// Replaces the members. `next` is how many of them come before the next one in turn.
    pub(crate) fn replace(&mut self, members: impl Iterator<Item = Member>, next: usize) {
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

    /// The next one in turn, which stays that.
    pub(crate) fn peek(&self) -> Option<Member> {
        self.members.get(self.next).copied()
    }

    /// The next one in turn. The group is not empty.
    pub(crate) fn take_turn(&mut self) -> Member {
        let member = self.members[self.next];
        self.next += 1;
        if self.next == self.members.len() {
            self.next = 0;
        }
        member
    }

    /// The one at this point of the weights laid end to end, where 2^64 is their sum.
    pub(crate) fn at(&self, point: u64) -> Member {
        let point = scale(point, self.total());
        self.members[self.holder_of(point)]
    }

    /// Two different ones by weight, from two random numbers; twice the same if there is only one.
    pub(crate) fn two(&self, random: u64, other_random: u64) -> (Member, Member) {
        let first = self.holder_of(scale(random, self.total()));
        let width = u64::from(self.members[first].weight);
        let rest = self.total() - width;
        if rest == 0 {
            return (self.members[first], self.members[first]);
        }

        // The second is drawn from the weights without those of the first.
        let point = scale(other_random, rest);
        let start = self.ends[first] - width;
        let second = self.holder_of(if point < start { point } else { point + width });
        (self.members[first], self.members[second])
    }

    /// The one that a key belongs to, by its digest. The group is not empty.
    pub(crate) fn owner(&self, key: u64) -> Member {
        let of = |member: &Member| (rendezvous::draw(key, member.digest), member.weight);
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

    /// The index of the member whose weight lies at this point, which is below the total.
    fn holder_of(&self, point: u64) -> usize {
        if self.is_even {
            return (point / u64::from(self.members[0].weight)) as usize;
        }
        self.ends.partition_point(|end| *end <= point)
    }
}

/// A number below `total`, as far along as `point` is below 2^64.
fn scale(point: u64, total: u64) -> u64 {
    ((u128::from(point) * u128::from(total)) >> 64) as u64
}
