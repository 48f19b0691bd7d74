//! The watchers of one path, by kind.

use std::ops::BitOr;

use crate::output::ConnectionId;

/// A set of kinds of watches that one connection has on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const NONE: Self = Self(0);
    /// One-shot: existence and data.
    pub(crate) const DATA: Self = Self(1);
    /// One-shot: the list of children.
    pub(crate) const CHILD: Self = Self(2);
    /// Persistent: data and children.
    pub(crate) const PERSISTENT: Self = Self(4);
    /// Persistent and recursive: existence and data of the node and everything below it.
    pub(crate) const RECURSIVE: Self = Self(8);
    pub(crate) const ALL: Self = Self(15);

    /// Each kind by itself.
    pub(crate) const EACH: [Self; 4] = [Self::DATA, Self::CHILD, Self::PERSISTENT, Self::RECURSIVE];

    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl BitOr for Kinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The watchers of one path. A node of a lock has one watcher, which does not need an allocation.
pub(crate) enum Watchers {
    One(ConnectionId, Kinds),
    Many(Box<Crowd>),
}

/// The connections of each kind, in the order of [`Kinds::EACH`]. An event visits only those that it
/// concerns: a path may have ten thousand watchers of other kinds, and a transaction thousands of events.
#[derive(Default)]
pub(crate) struct Crowd([SortedConnections; 4]);

/// Sorted connections. Not in a tree: iterating over all is much more frequent than looking up one, and
/// iterating over the connections of thousands of paths must be fast.
#[derive(Default)]
struct SortedConnections(Vec<ConnectionId>);

impl SortedConnections {
    fn has(&self, connection: ConnectionId) -> bool {
        self.0.binary_search(&connection).is_ok()
    }

    fn add(&mut self, connection: ConnectionId) {
        if let Err(place) = self.0.binary_search(&connection) {
            self.0.insert(place, connection);
        }
    }

    fn remove(&mut self, connection: ConnectionId) {
        if let Ok(place) = self.0.binary_search(&connection) {
            self.0.remove(place);
            self.shrink();
        }
    }

    fn retain(&mut self, keep: impl Fn(ConnectionId) -> bool) {
        self.0.retain(|connection| keep(*connection));
        self.shrink();
    }

    /// Frees memory that is reserved for many more connections.
    fn shrink(&mut self) {
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(2 * self.0.len());
        }
    }
}

impl Watchers {
    pub(crate) fn of(&self, connection: ConnectionId) -> Kinds {
        match self {
            Self::One(one, kinds) if *one == connection => *kinds,
            Self::One(..) => Kinds::NONE,
            Self::Many(crowd) => crowd.of(connection),
        }
    }

    pub(crate) fn set(&mut self, connection: ConnectionId, kinds: Kinds) {
        match self {
            Self::One(one, old) if *one == connection => *old = kinds,
            Self::One(one, old) => {
                let mut crowd = Box::<Crowd>::default();
                crowd.set(*one, *old);
                crowd.set(connection, kinds);
                *self = Self::Many(crowd);
            }
            Self::Many(crowd) => crowd.set(connection, kinds),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::One(_, kinds) => *kinds == Kinds::NONE,
            Self::Many(crowd) => crowd.0.iter().all(|all| all.0.is_empty()),
        }
    }

    /// Adds the connections with any of these kinds, sorted for each kind.
    pub(crate) fn add_to(&self, kinds: Kinds, found: &mut Vec<ConnectionId>) {
        match self {
            Self::One(one, theirs) if theirs.meets(kinds) => found.push(*one),
            Self::One(..) => {}
            Self::Many(crowd) => {
                let of_kinds =
                    Kinds::EACH.iter().zip(&crowd.0).filter(|(kind, _)| kind.meets(kinds));
                of_kinds.for_each(|(_, all)| found.extend_from_slice(&all.0));
            }
        }
    }

    /// Removes one kind from all connections. Returns those that had it, sorted.
    pub(crate) fn take(&mut self, kind: Kinds) -> Vec<ConnectionId> {
        match self {
            Self::One(one, theirs) if theirs.meets(kind) => {
                *theirs = theirs.without(kind);
                vec![*one]
            }
            Self::One(..) => Vec::new(),
            Self::Many(crowd) => std::mem::take(&mut crowd.with(kind).0),
        }
    }

    /// Removes one kind from the connections for which `is_gone` returns true. Returns how many had it.
    pub(crate) fn purge(&mut self, kind: Kinds, is_gone: impl Fn(ConnectionId) -> bool) -> usize {
        match self {
            Self::One(one, theirs) if theirs.meets(kind) && is_gone(*one) => {
                *theirs = theirs.without(kind);
                1
            }
            Self::One(..) => 0,
            Self::Many(crowd) => {
                let all = crowd.with(kind);
                let before = all.0.len();
                all.retain(|one| !is_gone(one));
                before - all.0.len()
            }
        }
    }
}

impl Crowd {
    fn of(&self, connection: ConnectionId) -> Kinds {
        let theirs = Kinds::EACH.iter().zip(&self.0).filter(|(_, all)| all.has(connection));
        theirs.fold(Kinds::NONE, |kinds, (kind, _)| kinds | *kind)
    }

    fn set(&mut self, connection: ConnectionId, kinds: Kinds) {
        for (kind, all) in Kinds::EACH.iter().zip(&mut self.0) {
            match kind.meets(kinds) {
                true => all.add(connection),
                false => all.remove(connection),
            }
        }
    }

    fn with(&mut self, kind: Kinds) -> &mut SortedConnections {
        &mut self.0[kind.0.trailing_zeros() as usize]
    }
}
