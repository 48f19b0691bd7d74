//! The order of contenders: a pure function of a listing.
//!
//! Production code, the simulation and the model all use it. [`Kind::is_blocked_by`] defines which kinds
//! exclude each other.

mod permits;
#[cfg(test)]
mod tests;
pub mod upgrade;

use lockkeeper_client::{Sequence, Stat, ZnodePath, Zxid};

use crate::profile::{Kind, Profile};

/// A contender, as its name describes it.
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
    /// No contender ahead blocks it.
    Held,
    /// It must wait until one of these nodes is gone: the closest ones ahead that block it. One
    /// node, except where permits are counted; empty if it asks for more permits than there are.
    WaitOn(Vec<String>),
    /// A contender ahead is gone, and a new listing is needed: contenders further ahead may
    /// be gone too, or another node may have taken its place.
    ListAgain,
    /// It is not in the queue.
    Gone,
}

/// The contenders of one lock, first to last.
///
/// New contenders enter at the end. So a contender that does not block another one when the queue is
/// listed does not block it later, and a contender with one other ahead holds when that one is gone.
/// The exception is a contender that is replaced by one of another kind with the same number
/// ([`Kind::may_become`]). [`Standing::ListAgain`] is returned where the listing is not enough.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitQueue {
    places: Vec<Place>,
    /// The kinds of the contenders that were removed since the listing.
    gone: Vec<Kind>,
    permits: u32,
    /// The state of the lock's node at the listing.
    listed: ListingState,
}

/// The last transactions that created the lock's node, changed its data, and changed the queue,
/// and the number of nodes created in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ListingState {
    created: Zxid,
    changed: Zxid,
    queue: Zxid,
    /// Twice the number of the next node. The server's `cversion` counts creations and
    /// deletions. Added to the number of present children, it counts each creation twice.
    twice_next: i32,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self { places: Vec::new(), gone: Vec::new(), permits: 1, listed: ListingState::default() }
    }
}

/// Names that are not contenders of the lock's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign(pub Vec<String>);

impl WaitQueue {
    /// Sorts the children of a lock's node into a queue.
    ///
    /// # Errors
    /// If there are names that are not contenders of these kinds. The programs that created them may order the queue
    /// differently, so its order is unknown.
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

    /// The standing of the contender with this name.
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
            // The contenders ahead of the one that is gone have probably left before it. One listing shows
            // this; watching each of them in turn would cost a round trip each.
            Some(_) if !self.gone.is_empty() => Standing::ListAgain,
            Some(closest) => Standing::WaitOn(closest),
            None if self.may_be_outdated(me, ahead) => Standing::ListAgain,
            None => Standing::Held,
        }
    }

    /// Which contenders hold, first to last: those whose [`standing`](Self::standing) is [`Standing::Held`] in a
    /// queue that has not changed since it was listed. Takes time in proportion to their number.
    pub fn holders(&self) -> Vec<bool> {
        let (mut kinds, mut taken): (Vec<Kind>, u64) = (Vec::new(), 0);
        let hold = self.places.iter().map(|place| {
            let permits = place.kind.permits();
            taken = taken.saturating_add(permits.map_or(u64::from(u32::MAX), u64::from));
            let holds = match permits {
                Some(_) => taken <= u64::from(self.permits),
                None => !kinds.iter().any(|ahead| place.kind.is_blocked_by(*ahead)),
            };
            let kind = permits.map_or(place.kind, |_| Kind::Permits(1));
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
            holds
        });
        hold.collect()
    }

    /// Whether a contender ahead, present or gone, may have been replaced since the listing by one
    /// that blocks `me`.
    fn may_be_outdated(&self, me: Kind, ahead: &[Place]) -> bool {
        let present = ahead.iter().map(|place| place.kind);
        let mut kinds = self.gone.iter().copied().chain(present);
        !self.gone.is_empty()
            && kinds.any(|kind| kind.may_become().iter().any(|kind| me.is_blocked_by(*kind)))
    }

    /// Removes a contender that is gone.
    pub fn remove(&mut self, name: &str) {
        let Some(index) = self.places.iter().position(|place| place.name == name) else { return };
        self.gone.push(self.places.remove(index).kind);
    }

    /// Keeps only these contenders, as if the others had not been listed.
    pub(crate) fn keep(&mut self, is_there: impl Fn(&Place) -> bool) {
        self.places.retain(is_there);
    }

    /// What the holder with this node knows about the end of the queue.
    ///
    /// `None` if a contender was removed since the listing: others have probably entered by now. Also
    /// `None` unless the last contender is the last node created, both by its number and by the server's
    /// count. This excludes names whose number is not from a server, and servers that count differently.
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

    /// Whether a contender was removed since the listing.
    pub fn has_changed(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Whether the contender with this name may hold as soon as one of the nodes of
    /// [`Standing::WaitOn`] is gone. If not, it needs a new listing first.
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

    /// Records the stat of the lock's node at the listing.
    pub fn set_listed(&mut self, lock: &Stat) {
        let (created, changed, queue) = (lock.czxid, lock.mzxid, lock.pzxid);
        let twice_next = lock.cversion.wrapping_add(lock.num_children);
        self.listed = ListingState { created, changed, queue, twice_next };
    }

    /// Whether the transaction that created a contender's node is a valid token now that it holds, that is, no
    /// earlier holder has a larger one.
    ///
    /// A contender that overtakes others, as in an upgrade, writes to the lock's own node in the
    /// same transaction. Before the first such write, tokens are in the order of the queue. After
    /// it, contenders that had to wait mint a token when they hold, and a later contender may be
    /// behind one of those. So its creation is a valid token only if nothing blocked it then.
    pub fn vouches_for(&self, own: Zxid) -> bool {
        let ListingState { created, changed, queue, .. } = self.listed;
        let at_once = self.gone.is_empty() && queue == own;
        changed == created || changed < own && at_once
    }
}

/// What a releasing holder knows about the end of the queue. It is enough for the next contender of
/// the same handle if one transaction deletes the holder's node and creates the contender's node.
///
/// A server numbers the children of a node consecutively. The parent is still the one that was
/// listed, because the holder's node was in it until that transaction. So if the new node has the
/// number that was next at the listing, no other contender has entered since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueTail {
    /// The holder's node.
    node: ZnodePath,
    /// The number of the next node.
    next: Sequence,
    /// The last two contenders other than the holder. Two are enough: a contender with two or more
    /// ahead lists the queue again anyway when its turn comes.
    others: Vec<Place>,
}

impl QueueTail {
    /// The node that the next contender's node must replace.
    pub fn node(&self) -> &ZnodePath {
        &self.node
    }

    /// The queue with this contender at its end; `None` if others may have entered before it.
    pub fn with(&self, new: Place) -> Option<WaitQueue> {
        if new.sequence != self.next {
            return None;
        }
        // The lock's node may have been written to since, so no creation counts as a token.
        let changed = Zxid(i64::MAX);
        let twice_next = new.sequence.0.wrapping_add(1).wrapping_mul(2);
        let listed = ListingState { changed, twice_next, ..ListingState::default() };
        let mut places = self.others.clone();
        places.push(new);
        Some(WaitQueue { places, listed, ..WaitQueue::default() })
    }

    /// Whether the holder was the only contender in the queue.
    pub fn is_whole_queue(&self) -> bool {
        self.others.is_empty()
    }
}
