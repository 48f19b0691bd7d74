//! The table of watches: who waits for what.
//!
//! A table and nothing else: which event goes to whom, and who may see it, is decided in `notify`.

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_set};
use std::ops::BitOr;
use std::sync::Arc;

use crate::ancestors::AncestorMap;
use crate::gradual::GradualMap;
use crate::hash::{self, HashMap};
use crate::output::ConnectionId;
use crate::share::LITTLE;

/// A set of kinds of watches that one connection has on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const NONE: Self = Self(0);
    /// One-shot, on existence and data.
    pub(crate) const DATA: Self = Self(1);
    /// One-shot, on the list of children.
    pub(crate) const CHILD: Self = Self(2);
    /// On both, until removed.
    pub(crate) const PERSISTENT: Self = Self(4);
    /// On existence and data of the node and all below it, until removed.
    pub(crate) const RECURSIVE: Self = Self(8);
    pub(crate) const ALL: Self = Self(15);

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn count(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl BitOr for Kinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The watchers of one path. A lock has one watcher per node, so one needs no allocation.
enum Watchers {
    One(ConnectionId, Kinds),
    Many(BTreeMap<ConnectionId, Kinds>),
}

impl Watchers {
    fn of(&self, connection: ConnectionId) -> Kinds {
        match self {
            Self::One(one, kinds) if *one == connection => *kinds,
            Self::One(..) => Kinds::NONE,
            Self::Many(all) => all.get(&connection).copied().unwrap_or(Kinds::NONE),
        }
    }

    fn set(&mut self, connection: ConnectionId, kinds: Kinds) {
        match self {
            Self::One(one, old) if *one == connection => *old = kinds,
            Self::One(one, old) => {
                *self = Self::Many(BTreeMap::from([(*one, *old), (connection, kinds)]));
            }
            Self::Many(all) if kinds == Kinds::NONE => {
                all.remove(&connection);
            }
            Self::Many(all) => {
                all.insert(connection, kinds);
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::One(_, kinds) => *kinds == Kinds::NONE,
            Self::Many(all) => all.is_empty(),
        }
    }

    fn with(&self, kinds: Kinds) -> Vec<ConnectionId> {
        match self {
            Self::One(one, theirs) if theirs.meets(kinds) => vec![*one],
            Self::One(..) => Vec::new(),
            Self::Many(all) => {
                let hit = all.iter().filter(|(_, theirs)| theirs.meets(kinds));
                hit.map(|(connection, _)| *connection).collect()
            }
        }
    }
}

/// What one connection watches.
#[derive(Default)]
struct Watched {
    paths: BTreeSet<Arc<str>>,
    /// What that weighs. Who else watches the same paths does not make it less.
    bytes: usize,
}

/// What the places of a watched path in the tables weigh.
const WATCH_WEIGHT: usize = 160;

/// What the place of a recursive watch in one more table weighs.
const RECURSIVE_WEIGHT: usize = 64;

/// What a path weighs for a connection that watches it: itself, and its places in the tables.
pub(crate) fn weight(path: &str) -> usize {
    path.len() + WATCH_WEIGHT
}

/// How much the watches of a connection may weigh for all of them to be forgotten when it ends, in bytes:
/// many may end at the same time.
const FORGOTTEN_AT_ONCE: usize = LITTLE;

/// How much is forgotten at once of connections that had more, in bytes. A connection with a million
/// watches would keep everyone waiting.
const SWEPT_AT_ONCE: usize = 512 * 1024;

/// The table of all watches.
#[derive(Default)]
pub(crate) struct WatchTable {
    by_path: GradualMap<Arc<str>, Watchers>,
    by_connection: HashMap<ConnectionId, Watched>,
    count: usize,
    /// What the watches of all connections weigh.
    bytes: usize,
    /// How many connections have watches that weigh more than a little.
    large: usize,
    /// What connections that are gone still watch.
    leftovers: VecDeque<(ConnectionId, btree_set::IntoIter<Arc<str>>)>,
    /// The recursive ones once more, found for all that is below them.
    recursive: AncestorMap<Watchers>,
}

impl WatchTable {
    /// Each kind of watch on each path counts once per connection.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Gives memory back that is there for more watches than there are now.
    pub(crate) fn shrink(&mut self) {
        self.by_path.shrink();
        hash::shrink(&mut self.by_connection);
        self.recursive.shrink();
    }

    /// For how many paths and connections there is memory.
    #[cfg(test)]
    pub(crate) fn room(&self) -> [usize; 2] {
        [self.by_path.capacity(), self.by_connection.capacity()]
    }

    /// How many paths a connection watches.
    pub(crate) fn paths_of(&self, connection: ConnectionId) -> usize {
        self.by_connection.get(&connection).map_or(0, |watched| watched.paths.len())
    }

    /// What the watches of a connection weigh, in bytes.
    pub(crate) fn bytes_of(&self, connection: ConnectionId) -> usize {
        self.by_connection.get(&connection).map_or(0, |watched| watched.bytes)
    }

    /// What the watches of all connections weigh, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many connections have watches that weigh more than [`LITTLE`].
    pub(crate) fn large(&self) -> usize {
        self.large
    }

    /// All watched paths, each with who watches it.
    pub(crate) fn by_path(&self) -> impl Iterator<Item = (&str, Vec<ConnectionId>)> {
        self.by_path.iter().map(|(path, watchers)| (&**path, watchers.with(Kinds::ALL)))
    }

    /// How many connections watch, and how many paths are watched.
    pub(crate) fn extent(&self) -> (usize, usize) {
        (self.by_connection.len(), self.by_path.len())
    }

    pub(crate) fn kinds(&self, path: &str, connection: ConnectionId) -> Kinds {
        self.by_path.get(path).map_or(Kinds::NONE, |all| all.of(connection))
    }

    pub(crate) fn has(&self, path: &str, connection: ConnectionId, kinds: Kinds) -> bool {
        self.kinds(path, connection).meets(kinds)
    }

    pub(crate) fn add(&mut self, path: &str, connection: ConnectionId, kinds: Kinds) {
        let old = self.kinds(path, connection);
        self.replace(path, connection, old, old | kinds);
    }

    /// Removes these kinds; `false` if there was none of them.
    pub(crate) fn remove(&mut self, path: &str, connection: ConnectionId, kinds: Kinds) -> bool {
        let old = self.kinds(path, connection);
        self.replace(path, connection, old, old.without(kinds));
        old.meets(kinds)
    }

    /// Forgets what a connection watches: many paths in portions, for which [`Self::sweep`] is to be
    /// called while [`Self::has_leftovers`]. Who is gone hears of nothing meanwhile.
    pub(crate) fn remove_connection(&mut self, connection: ConnectionId) {
        let Some(watched) = self.by_connection.get_mut(&connection) else { return };
        let paths = std::mem::take(&mut watched.paths);
        if watched.bytes > FORGOTTEN_AT_ONCE {
            return self.leftovers.push_back((connection, paths.into_iter()));
        }
        for path in paths {
            self.remove(&path, connection, Kinds::ALL);
        }
    }

    /// Whether there is more to forget.
    pub(crate) fn has_leftovers(&self) -> bool {
        !self.leftovers.is_empty()
    }

    /// Forgets the next portion of what connections watched that are gone.
    pub(crate) fn sweep(&mut self) {
        let mut swept = 0;
        while swept < SWEPT_AT_ONCE {
            let Some((connection, paths)) = self.leftovers.front_mut() else { return };
            let connection = *connection;
            match paths.next() {
                Some(path) => {
                    swept += weight(&path);
                    self.remove(&path, connection, Kinds::ALL);
                }
                None => {
                    swept += WATCH_WEIGHT;
                    self.leftovers.pop_front();
                }
            }
        }
    }

    /// Who hears that the existence or data of `path` changed, each once and in order; one-shot
    /// watches are used up.
    pub(crate) fn take_data(&mut self, path: &str) -> Vec<ConnectionId> {
        let kinds = Kinds::DATA | Kinds::PERSISTENT | Kinds::RECURSIVE;
        let mut recipients = self.take(path, kinds, Kinds::DATA);
        if !self.recursive.is_empty() {
            let above = self.recursive.above(path);
            recipients.extend(above.flat_map(|(_, watchers)| watchers.with(Kinds::RECURSIVE)));
            recipients.sort_unstable();
            recipients.dedup();
        }
        recipients
    }

    /// Who hears that the children of `path` changed, each once and in order; one-shot watches are
    /// used up.
    pub(crate) fn take_child(&mut self, path: &str) -> Vec<ConnectionId> {
        self.take(path, Kinds::CHILD | Kinds::PERSISTENT, Kinds::CHILD)
    }

    fn take(&mut self, path: &str, kinds: Kinds, used_up: Kinds) -> Vec<ConnectionId> {
        let Some(watchers) = self.by_path.get(path) else {
            return Vec::new();
        };
        let recipients = watchers.with(kinds);
        for connection in &recipients {
            self.remove(path, *connection, used_up);
        }
        recipients
    }

    fn replace(&mut self, path: &str, connection: ConnectionId, old: Kinds, new: Kinds) {
        if old == new {
            return;
        }
        self.count = self.count - old.count() + new.count();
        if old.meets(Kinds::RECURSIVE) && !new.meets(Kinds::RECURSIVE) {
            self.forget_recursive(path, connection);
        }
        if old == Kinds::NONE {
            self.insert(path, connection, new);
        } else if new == Kinds::NONE {
            self.forget(path, connection);
        } else if let Some(watchers) = self.by_path.get_mut(path) {
            watchers.set(connection, new);
        }
        if new.meets(Kinds::RECURSIVE) && !old.meets(Kinds::RECURSIVE) {
            self.insert_recursive(path, connection);
        }
    }

    fn insert_recursive(&mut self, path: &str, connection: ConnectionId) {
        let Some((path, _)) = self.by_path.get_key_value(path) else { return };
        let one = || Watchers::One(connection, Kinds::RECURSIVE);
        let watchers = self.recursive.or_insert_with(Arc::clone(path), one);
        watchers.set(connection, Kinds::RECURSIVE);
        self.gain(connection, RECURSIVE_WEIGHT);
    }

    fn forget_recursive(&mut self, path: &str, connection: ConnectionId) {
        let Some(watchers) = self.recursive.get_mut(path) else { return };
        watchers.set(connection, Kinds::NONE);
        if watchers.is_empty() {
            self.recursive.remove(path);
        }
        self.lose(connection, RECURSIVE_WEIGHT);
    }

    /// Lets the watches of a connection weigh so much more.
    fn gain(&mut self, connection: ConnectionId, more: usize) {
        let watched = self.by_connection.entry(connection).or_default();
        let before = watched.bytes;
        watched.bytes += more;
        self.bytes += more;
        self.large += usize::from(before <= LITTLE && before + more > LITTLE);
    }

    /// Lets the watches of a connection weigh so much less.
    fn lose(&mut self, connection: ConnectionId, less: usize) {
        let Some(watched) = self.by_connection.get_mut(&connection) else { return };
        let before = watched.bytes;
        watched.bytes -= less;
        self.bytes -= less;
        self.large -= usize::from(before > LITTLE && before - less <= LITTLE);
        if watched.bytes == 0 {
            self.by_connection.remove(&connection);
        }
    }

    fn insert(&mut self, path: &str, connection: ConnectionId, kinds: Kinds) {
        let key = match self.by_path.get_key_value(path) {
            Some((key, _)) => Arc::clone(key),
            None => path.into(),
        };

        let one = || Watchers::One(connection, kinds);
        self.by_path.or_insert_with(Arc::clone(&key), one).set(connection, kinds);

        self.by_connection.entry(connection).or_default().paths.insert(key);
        self.gain(connection, weight(path));
    }

    fn forget(&mut self, path: &str, connection: ConnectionId) {
        if let Some(watchers) = self.by_path.get_mut(path) {
            watchers.set(connection, Kinds::NONE);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
        }

        if let Some(watched) = self.by_connection.get_mut(&connection) {
            watched.paths.remove(path);
            self.lose(connection, weight(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    #[test]
    fn one_shot_watches_are_used_up_and_others_stay() {
        let mut table = WatchTable::default();
        table.add("/x", A, Kinds::DATA | Kinds::CHILD);
        table.add("/x", B, Kinds::PERSISTENT);
        assert_eq!(table.take_data("/x"), [A, B]);
        assert_eq!(table.take_data("/x"), [B]);
        assert_eq!(table.take_child("/x"), [A, B]);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn recursive_watches_hear_of_descendants_once() {
        let mut table = WatchTable::default();
        table.add("/", A, Kinds::RECURSIVE);
        table.add("/x", A, Kinds::RECURSIVE | Kinds::DATA);
        assert_eq!(table.take_data("/x/y/z"), [A]);
        assert_eq!(table.take_data("/x"), [A]);
        assert!(table.take_child("/x").is_empty());
        assert!(table.remove("/", A, Kinds::RECURSIVE));
        assert!(!table.remove("/", A, Kinds::RECURSIVE));
        assert!(table.take_data("/").is_empty());
    }

    #[test]
    fn nothing_is_left_of_a_connection() {
        let mut table = WatchTable::default();
        for path in ["/", "/x", "/y"] {
            table.add(path, A, Kinds::ALL);
            table.add(path, B, Kinds::DATA);
        }
        table.remove_connection(A);
        assert!((table.len(), table.recursive.is_empty()) == (3, true));
        table.remove_connection(B);
        assert!(table.by_path.len() == 0 && table.by_connection.is_empty());
        assert_eq!((table.len(), table.bytes(), table.large()), (0, 0, 0));
    }

    /// The end of a connection with a million watches kept everyone waiting for half a second. Seen to
    /// fail with all of them in one portion.
    #[test]
    fn many_watches_are_forgotten_in_portions() {
        for name in [1, 30_000] {
            let mut table = WatchTable::default();
            let mut count = 0;
            while table.bytes() < 3 * SWEPT_AT_ONCE {
                table.add(&format!("/{count:0name$}"), A, Kinds::DATA);
                count += 1;
            }
            table.add("/b", B, Kinds::DATA);
            table.remove_connection(A);
            let mut portions = 0;
            while table.has_leftovers() {
                let before = table.bytes();
                table.sweep();
                let forgotten = before - table.bytes();
                assert!(forgotten < SWEPT_AT_ONCE + weight("") + name.max(10), "{forgotten}");
                portions += 1;
            }
            assert!(portions >= 3, "{portions}");
            assert_eq!((table.len(), table.bytes()), (1, weight("/b")));
            assert_eq!(table.take_data("/b"), [B]);
        }
    }

    #[test]
    fn watches_weigh_what_their_paths_do_once_for_each_connection() {
        let mut table = WatchTable::default();
        let long = format!("/{}", "x".repeat(LITTLE));
        table.add("/a", A, Kinds::DATA);
        table.add("/a", A, Kinds::CHILD);
        table.add(&long, A, Kinds::DATA);
        table.add(&long, B, Kinds::DATA);
        assert_eq!(table.bytes_of(B), LITTLE + 1 + WATCH_WEIGHT);
        assert_eq!(table.bytes(), 2 * weight(&long) + weight("/a"));
        assert_eq!(table.large(), 2);
        table.take_data(&long);
        assert_eq!((table.bytes(), table.large()), (weight("/a"), 0));
    }
}
