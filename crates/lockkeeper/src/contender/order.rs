//! Who is ahead of whom: a pure function of a listing.
//!
//! This is the very function that the locks decide by, in production, in the simulation and in the
//! model.

mod permits;
#[cfg(test)]
mod tests;
pub mod upgrade;

use lockkeeper_client::{Sequence, Stat, ZnodePath, Zxid};

use crate::profile::{Kind, Profile};

/// A contender, as its name tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The order of arrival.
    pub sequence: Sequence,
    /// What it asks for.
    pub kind: Kind,
    /// The node's name.
    pub name: String,
}

/// How one contender stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nothing that is ahead is in its way.
    Held,
    /// It must wait, and these are the nodes to watch: the closest ones ahead of which one must
    /// go before anything can change for it. One node, except where permits are counted; none if
    /// it asks for more permits than there are.
    WaitOn(Vec<String>),
    /// One that was ahead has gone. Those further ahead may have gone long since, or what has gone
    /// may have left another in its place: only a new listing can tell.
    ListAgain,
    /// It is not in the queue.
    Gone,
}

/// The contenders of one lock, first to last.
///
/// New ones come in at the end, so who is not in the way when the queue is listed will not be
/// later, and whoever was behind the only one holds when that one has gone. The exception is a
/// contender that is replaced by one of another kind at the same number ([`Kind::may_become`]).
/// Where more is to be known, [`Standing::ListAgain`] asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitQueue {
    places: Vec<Place>,
    /// What those that were taken out were.
    gone: Vec<Kind>,
    permits: u32,
    /// How the lock's node was when it was listed.
    listed: Listed,
}

/// The last transactions that had created the lock's node, changed its data, and changed the queue;
/// and how many nodes had been created in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Listed {
    created: Zxid,
    changed: Zxid,
    queue: Zxid,
    /// Twice the number of the next node: a server counts in `cversion` what was created and what was
    /// deleted, so with the children that are there, it has all that were created twice.
    twice_next: i32,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self { places: Vec::new(), gone: Vec::new(), permits: 1, listed: Listed::default() }
    }
}

/// Names that are no contenders of the lock's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign(pub Vec<String>);

impl WaitQueue {
    /// Puts the children of a lock's node in order.
    ///
    /// # Errors
    /// If there are names that are no contenders of these kinds. Whoever they belong to orders
    /// the queue in another way, so nothing can be said about it.
    pub fn read(names: Vec<String>, profile: Profile, kinds: &[Kind]) -> Result<Self, Foreign> {
        let mut places = Vec::with_capacity(names.len());
        let mut foreign = Vec::new();
        for name in names {
            match profile.parse(&name, kinds) {
                Some((kind, sequence)) => places.push(Place { sequence, kind, name }),
                None => foreign.push(name),
            }
        }

        if !foreign.is_empty() {
            foreign.sort();
            return Err(Foreign(foreign));
        }
        places.sort_by(|a, b| (a.sequence, &a.name).cmp(&(b.sequence, &b.name)));
        Ok(Self { places, ..Self::default() })
    }

    /// How the contender with this name stands.
    pub fn standing(&self, own: &str) -> Standing {
        let Some(index) = self.places.iter().position(|place| place.name == own) else {
            return Standing::Gone;
        };
        let (me, ahead) = (self.places[index].kind, &self.places[..index]);

        let in_the_way = match me.permits() {
            Some(wanted) => self.beyond_the_permits(wanted, ahead),
            None => {
                let closest = ahead.iter().rev().find(|place| me.is_blocked_by(place.kind));
                closest.map(|place| vec![place.name.clone()])
            }
        };

        match in_the_way {
            // In a queue that moves, whoever was before the one that has gone has gone earlier.
            // One listing tells; to look for each of them would cost a round trip each.
            Some(_) if !self.gone.is_empty() => Standing::ListAgain,
            Some(closest) => Standing::WaitOn(closest),
            None if self.may_be_outdated(me, ahead) => Standing::ListAgain,
            None => Standing::Held,
        }
    }

    /// Whether something that was ahead, or is, may have been replaced since the listing by
    /// something that is in the way.
    fn may_be_outdated(&self, me: Kind, ahead: &[Place]) -> bool {
        let present = ahead.iter().map(|place| place.kind);
        let mut kinds = self.gone.iter().copied().chain(present);
        !self.gone.is_empty()
            && kinds.any(|kind| kind.may_become().iter().any(|kind| me.is_blocked_by(*kind)))
    }

    /// Takes out a contender that has gone.
    pub fn remove(&mut self, name: &str) {
        let Some(index) = self.places.iter().position(|place| place.name == name) else { return };
        self.gone.push(self.places.remove(index).kind);
    }

    /// What the holder with this node knows of the end of the queue.
    ///
    /// `None` if a contender was taken out since the listing: in a queue that moves, others have
    /// probably come in the meantime. And `None` unless the last contender is the last that was
    /// created, by its number and by the server's count: that excludes names that no server has
    /// numbered, and servers that count in another way.
    pub fn tail(&self, node: &ZnodePath) -> Option<QueueTail> {
        let last = self.places.last().filter(|_| !self.has_changed())?.sequence;
        let next = last.0.checked_add(1)?;
        if next.wrapping_mul(2) != self.listed.twice_next {
            return None;
        }

        let own = node.name();
        let others = self.places.iter().rev().filter(|place| place.name != own).take(2);
        let mut others: Vec<_> = others.cloned().collect();
        others.reverse();
        Some(QueueTail { node: node.clone(), next: Sequence(next), others })
    }

    /// Whether a contender was taken out since the listing.
    pub fn has_changed(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Whether nothing may be in the way of the contender with this name when one of those has gone
    /// that [`Standing::WaitOn`] named. If not, it needs a new listing before it holds.
    pub fn is_next(&self, own: &str, closest: &[String]) -> bool {
        let Some(index) = self.places.iter().position(|place| place.name == own) else {
            return false;
        };
        let (me, ahead) = (self.places[index].kind, &self.places[..index]);
        let Some(wanted) = me.permits() else {
            return ahead.iter().filter(|place| me.is_blocked_by(place.kind)).count() <= 1;
        };
        closest.iter().any(|gone| self.are_permits_left(wanted, ahead, Some(gone)))
    }

    /// The contenders, first to last.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Says how the lock's node was when it was listed.
    pub fn set_listed(&mut self, lock: &Stat) {
        let (created, changed, queue) = (lock.czxid, lock.mzxid, lock.pzxid);
        let twice_next = lock.cversion.wrapping_add(lock.num_children);
        self.listed = Listed { created, changed, queue, twice_next };
    }

    /// Whether a contender that holds now has a token in the transaction that created it, because
    /// nobody who held before it has a larger one.
    ///
    /// Whoever takes the place of others, or overtakes them, writes to the lock's own node in the
    /// same transaction. As long as nobody has, tokens are in the order of the queue. From then
    /// on, those who waited for it make theirs when they hold; and those who come later may find
    /// one of these ahead of them, unless they come when nobody is in their way.
    pub fn vouches_for(&self, own: Zxid) -> bool {
        let Listed { created, changed, queue, .. } = self.listed;
        let at_once = self.gone.is_empty() && queue == own;
        changed == created || changed < own && at_once
    }
}

/// What a holder that gives its node back knows of the end of the queue: enough for the next
/// contender of the same handle, if its node is created in the very transaction that deletes the
/// holder's.
///
/// A server numbers the nodes that are created in a parent one after the other, and up to that
/// transaction the parent was the one that was listed, because the holder's node was in it. So if the
/// new node has the number that was the next one then, nobody has come since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueTail {
    /// The holder's node.
    node: ZnodePath,
    /// The number of the next node.
    next: Sequence,
    /// The last two contenders but for the holder. One that has two ahead lists again when its turn
    /// comes, and so does one that has more.
    others: Vec<Place>,
}

impl QueueTail {
    /// The node that the next contender's has to replace.
    pub fn node(&self) -> &ZnodePath {
        &self.node
    }

    /// The queue with this contender at its end; `None` if others may have come before it.
    pub fn with(&self, new: Place) -> Option<WaitQueue> {
        if new.sequence != self.next {
            return None;
        }
        // The lock's node may have been written to since: it vouches for no token.
        let changed = Zxid(i64::MAX);
        let twice_next = new.sequence.0.wrapping_add(1).wrapping_mul(2);
        let listed = Listed { changed, twice_next, ..Listed::default() };
        let mut places = self.others.clone();
        places.push(new);
        Some(WaitQueue { places, listed, ..WaitQueue::default() })
    }

    /// Whether nobody else was in the queue.
    pub fn is_whole_queue(&self) -> bool {
        self.others.is_empty()
    }
}
