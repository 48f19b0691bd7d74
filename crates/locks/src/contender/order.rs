//! Who is ahead of whom: a pure function of a listing.
//!
//! Production, the simulation and the model all use it. [`Kind::is_blocked_by`] says which kinds
//! exclude each other.

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
    /// No contender ahead blocks it.
    Held,
    /// It must wait until one of these nodes has gone: the closest ones ahead that block it. One
    /// node, except where permits are counted; none if it asks for more permits than there are.
    WaitOn(Vec<String>),
    /// A contender ahead has gone, and only a new listing can tell the rest: others further ahead may
    /// have gone too, or another node may have taken its place.
    ListAgain,
    /// It is not in the queue.
    Gone,
}

/// The contenders of one lock, first to last.
///
/// New contenders enter at the end. So a contender that does not block another one when the queue is
/// listed does not block it later, and a contender with one other ahead holds when that one has gone.
/// The exception is a contender that is replaced by one of another kind at the same number
/// ([`Kind::may_become`]). [`Standing::ListAgain`] says where the listing is not enough.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitQueue {
    places: Vec<Place>,
    /// The kinds of the contenders that were removed since the listing.
    gone: Vec<Kind>,
    permits: u32,
    /// How the lock's node was when it was listed.
    listed: ListingState,
}

/// The last transactions that had created the lock's node, changed its data, and changed the queue;
/// and how many nodes had been created in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ListingState {
    created: Zxid,
    changed: Zxid,
    queue: Zxid,
    /// Twice the number of the next node: a server counts in `cversion` what was created and what was
    /// deleted, so with the children that are there, it has all that were created twice.
    twice_next: i32,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self { places: Vec::new(), gone: Vec::new(), permits: 1, listed: ListingState::default() }
    }
}

/// Names that are no contenders of the lock's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign(pub Vec<String>);

impl WaitQueue {
    /// Puts the children of a lock's node in order.
    ///
    /// # Errors
    /// If there are names that are no contenders of these kinds. Their programs may order the queue
    /// in another way, so its order is unknown.
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
            // Those ahead of the one that has gone have probably gone before it. One listing tells; a
            // watch on each of them in turn would cost a round trip each.
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

    /// Removes a contender that has gone.
    pub fn remove(&mut self, name: &str) {
        let Some(index) = self.places.iter().position(|place| place.name == name) else { return };
        self.gone.push(self.places.remove(index).kind);
    }

    /// The same as if only these had been listed.
    pub(crate) fn keep(&mut self, is_there: impl Fn(&Place) -> bool) {
        self.places.retain(is_there);
    }

    /// What the holder with this node knows of the end of the queue.
    ///
    /// `None` if a contender was removed since the listing: others have probably entered by now. Also
    /// `None` unless the last contender is the last that was created, by its number and by the server's
    /// count: that excludes names without a server's number, and servers that count otherwise.
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
    /// [`Standing::WaitOn`] has gone. If not, it needs a new listing first.
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

    /// Notes the stat of the lock's node at the listing.
    pub fn set_listed(&mut self, lock: &Stat) {
        let (created, changed, queue) = (lock.czxid, lock.mzxid, lock.pzxid);
        let twice_next = lock.cversion.wrapping_add(lock.num_children);
        self.listed = ListingState { created, changed, queue, twice_next };
    }

    /// Whether the transaction that created a contender's node is a valid token now that it holds: no
    /// earlier holder has a larger one.
    ///
    /// A contender that overtakes others, as in an upgrade, writes to the lock's own node in the
    /// same transaction. Before the first such write, tokens are in the order of the queue. After
    /// it, contenders that had to wait mint a token when they hold, and a later contender may be
    /// behind one of those. So its creation counts only if nothing blocked it then.
    pub fn vouches_for(&self, own: Zxid) -> bool {
        let ListingState { created, changed, queue, .. } = self.listed;
        let at_once = self.gone.is_empty() && queue == own;
        changed == created || changed < own && at_once
    }
}

/// What a holder that releases knows of the end of the queue. It is enough for the next contender of
/// the same handle if one transaction deletes the holder's node and creates the contender's.
///
/// A server numbers the nodes of a parent one after the other. The parent is still the one that was
/// listed, because the holder's node was in it until that transaction. So if the new node has the
/// number that was the next one at the listing, no other contender has entered since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueTail {
    /// The holder's node.
    node: ZnodePath,
    /// The number of the next node.
    next: Sequence,
    /// The last two contenders besides the holder. Two are enough: a contender with two or more
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
        // The lock's node may have been written to since: it vouches for no token.
        let changed = Zxid(i64::MAX);
        let twice_next = new.sequence.0.wrapping_add(1).wrapping_mul(2);
        let listed = ListingState { changed, twice_next, ..ListingState::default() };
        let mut places = self.others.clone();
        places.push(new);
        Some(WaitQueue { places, listed, ..WaitQueue::default() })
    }

    /// Whether the holder was alone in the queue.
    pub fn is_whole_queue(&self) -> bool {
        self.others.is_empty()
    }
}
