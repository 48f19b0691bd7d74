//! The table of watches.
//!
//! Only a table: `notify` decides which event goes to which connection, and whether the client may see it.

use std::collections::{BTreeSet, VecDeque, btree_set};
use std::sync::Arc;

use crate::ancestors::AncestorMap;
use crate::gradual::GradualMap;
use crate::hash::{self, HashMap, HashSet};
use crate::output::ConnectionId;
use crate::share::SMALL_SHARE_BYTES;
use crate::watchers::{Kinds, Watchers};

/// The watches of one connection.
#[derive(Default)]
struct Watched {
    paths: BTreeSet<Arc<str>>,
    /// Their memory use. Sharing a path with other connections does not reduce it.
    bytes: usize,
}

/// The memory use of a watched path's entries in the tables.
const WATCH_WEIGHT: usize = 184;

/// The memory use of a path for a connection that watches it: the path, and its entries in the tables.
pub(crate) fn weight(path: &str) -> usize {
    path.len() + WATCH_WEIGHT
}

/// Up to this many paths of a closed connection are removed immediately: many connections may end at the same
/// time.
const FORGOTTEN_AT_ONCE: usize = 64;

/// The maximum number of paths (and bytes of them) of closed connections that are removed in one step.
/// Removing a million paths at once would block all clients.
const SWEPT_AT_ONCE: usize = 4096;
const BYTES_AT_ONCE: usize = 1024 * 1024;

/// The table of all watches.
#[derive(Default)]
pub(crate) struct WatchTable {
    by_path: GradualMap<Arc<str>, Watchers>,
    by_connection: HashMap<ConnectionId, Watched>,
    count: usize,
    /// The memory use of the watches of all connections.
    bytes: usize,
    /// The number of connections whose watches use more than [`SMALL_SHARE_BYTES`].
    large: usize,
    /// The watches of closed connections that have not been removed yet.
    leftovers: VecDeque<(ConnectionId, btree_set::IntoIter<Arc<str>>)>,
    /// These connections.
    gone: HashSet<ConnectionId>,
    /// The number of recursive watches on each path, looked up for all its descendants.
    recursive: AncestorMap<usize>,
}

impl WatchTable {
    /// Each kind of watch on each path counts once per connection.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Frees memory that is reserved for more watches.
    pub(crate) fn shrink(&mut self) {
        self.by_path.shrink();
        hash::shrink(&mut self.by_connection);
        hash::shrink_set(&mut self.gone);
        self.leftovers.shrink_to_fit();
        self.recursive.shrink();
    }

    /// The capacity for paths and connections.
    #[cfg(test)]
    pub(crate) fn room(&self) -> [usize; 2] {
        [self.by_path.capacity(), self.by_connection.capacity()]
    }

    /// The number of paths that a connection watches.
    pub(crate) fn paths_of(&self, connection: ConnectionId) -> usize {
        self.by_connection.get(&connection).map_or(0, |watched| watched.paths.len())
    }

    /// The memory use of the watches of a connection, in bytes.
    pub(crate) fn bytes_of(&self, connection: ConnectionId) -> usize {
        self.by_connection.get(&connection).map_or(0, |watched| watched.bytes)
    }

    /// The memory use of the watches of all connections, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of connections whose watches use more than [`SMALL_SHARE_BYTES`].
    pub(crate) fn large(&self) -> usize {
        self.large
    }

    /// All watched paths, each with its watching connections.
    pub(crate) fn by_path(&self) -> impl Iterator<Item = (&str, Vec<ConnectionId>)> {
        self.by_path.iter().map(|(path, watchers)| {
            let mut all = Vec::new();
            watchers.add_to(Kinds::ALL, &mut all);
            all.sort_unstable();
            all.dedup();
            (&**path, all)
        })
    }

    /// The number of connections with watches, and the number of watched paths.
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

    /// Removes these kinds. Returns `false` if the connection had none of them.
    pub(crate) fn remove(&mut self, path: &str, connection: ConnectionId, kinds: Kinds) -> bool {
        let old = self.kinds(path, connection);
        self.replace(path, connection, old, old.without(kinds));
        old.meets(kinds)
    }

    /// Removes the watches of a connection. Many paths are removed in portions: call [`Self::sweep`] while
    /// [`Self::has_leftovers`]. The connection receives no more events.
    pub(crate) fn remove_connection(&mut self, connection: ConnectionId) {
        let paths = self.by_connection.get(&connection).map_or(0, |watched| watched.paths.len());
        if paths > FORGOTTEN_AT_ONCE {
            return self.abandon(connection);
        }
        let watched = self.by_connection.get_mut(&connection);
        let paths = watched.map(|watched| std::mem::take(&mut watched.paths)).unwrap_or_default();
        for path in paths {
            self.remove(&path, connection, Kinds::ALL);
        }
    }

    /// Like [`Self::remove_connection`], with all paths in later portions. For a transaction that ends many
    /// connections.
    pub(crate) fn abandon(&mut self, connection: ConnectionId) {
        let Some(watched) = self.by_connection.get_mut(&connection) else { return };
        self.gone.insert(connection);
        let paths = std::mem::take(&mut watched.paths);
        self.leftovers.push_back((connection, paths.into_iter()));
    }

    /// Whether watches of closed connections remain.
    pub(crate) fn has_leftovers(&self) -> bool {
        !self.leftovers.is_empty()
    }

    /// Removes the next portion of the watches of closed connections.
    pub(crate) fn sweep(&mut self) {
        let least = self.bytes.saturating_sub(BYTES_AT_ONCE);
        for _ in 0..SWEPT_AT_ONCE {
            if self.bytes < least {
                return;
            }

            let Some((connection, paths)) = self.leftovers.front_mut() else { return };
            let connection = *connection;
            match paths.next() {
                Some(path) => {
                    self.remove(&path, connection, Kinds::ALL);
                    self.relieve(&path, connection);
                }
                None => {
                    self.leftovers.pop_front();
                    self.gone.remove(&connection);
                }
            }
        }
    }

    /// The connections to notify of a change of the existence or data of `path`, once for every watch.
    /// One-shot watches are removed.
    pub(crate) fn take_data(&mut self, path: &str) -> Vec<ConnectionId> {
        let mut recipients = self.take(path, Kinds::DATA);
        self.add_lasting(path, Kinds::PERSISTENT | Kinds::RECURSIVE, &mut recipients);
        // Few ancestors have recursive watches, but there may be many ancestors.
        let above = self.recursive.above(path).map(|(above, _)| above.len());
        for above in above.filter(|above| *above != path.len()).collect::<Vec<_>>() {
            self.add_lasting(&path[..above], Kinds::RECURSIVE, &mut recipients);
        }
        recipients
    }

    /// The connections to notify of a change of the children of `path`, once for every watch. One-shot
    /// watches are removed.
    pub(crate) fn take_child(&mut self, path: &str) -> Vec<ConnectionId> {
        let mut recipients = self.take(path, Kinds::CHILD);
        self.add_lasting(path, Kinds::PERSISTENT, &mut recipients);
        recipients
    }

    /// The connections with a watch of this one-shot kind, which is removed.
    fn take(&mut self, path: &str, one_shot: Kinds) -> Vec<ConnectionId> {
        // Fast path for servers with few watches and many changes.
        if self.count == 0 {
            return Vec::new();
        }
        let Some(watchers) = self.by_path.get_mut(path) else {
            return Vec::new();
        };
        let mut recipients = watchers.take(one_shot);
        self.count -= recipients.len();
        let was_last = watchers.is_empty();
        if was_last {
            self.by_path.remove(path);
        }

        if !self.gone.is_empty() {
            recipients.retain(|connection| !self.gone.contains(connection));
        }
        for connection in &recipients {
            if was_last || !self.has(path, *connection, Kinds::ALL) {
                self.relieve(path, *connection);
            }
        }
        recipients
    }

    /// Adds the connections with a persistent watch of these kinds. The first event for watches of closed
    /// connections removes them: a transaction may have thousands more events.
    fn add_lasting(&mut self, path: &str, kinds: Kinds, recipients: &mut Vec<ConnectionId>) {
        if self.count == 0 {
            return;
        }
        let Some(watchers) = self.by_path.get_mut(path) else { return };
        let before = recipients.len();
        watchers.add_to(kinds, recipients);
        let is_gone = |one| self.gone.contains(&one);
        if self.gone.is_empty() || !recipients[before..].iter().copied().any(is_gone) {
            return;
        }

        let kept = recipients.split_off(before);
        recipients.extend(kept.into_iter().filter(|one| !is_gone(*one)));
        let mut recursive = 0;
        for kind in Kinds::EACH.into_iter().filter(|kind| kind.meets(kinds)) {
            let purged = watchers.purge(kind, is_gone);
            self.count -= purged;
            recursive += if kind == Kinds::RECURSIVE { purged } else { 0 };
        }
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        self.lose_recursive(path, recursive);
    }

    fn replace(&mut self, path: &str, connection: ConnectionId, old: Kinds, new: Kinds) {
        if old == new {
            return;
        }

        self.count = self.count - old.count() + new.count();
        match (old.meets(Kinds::RECURSIVE), new.meets(Kinds::RECURSIVE)) {
            (false, true) => *self.recursive.or_insert_with(path.into(), || 0) += 1,
            (true, false) => self.lose_recursive(path, 1),
            _ => {}
        }

        if old == Kinds::NONE {
            self.insert(path, connection, new);
        } else if new == Kinds::NONE {
            self.forget(path, connection);
        } else if let Some(watchers) = self.by_path.get_mut(path) {
            watchers.set(connection, new);
        }
    }

    /// This many recursive watches on this path were removed.
    fn lose_recursive(&mut self, path: &str, count: usize) {
        if count == 0 {
            return;
        }
        let Some(left) = self.recursive.get_mut(path) else { return };
        *left -= count;
        if *left == 0 {
            self.recursive.remove(path);
        }
    }

    fn insert(&mut self, path: &str, connection: ConnectionId, kinds: Kinds) {
        let key = match self.by_path.get_key_value(path) {
            Some((key, _)) => Arc::clone(key),
            None => path.into(),
        };

        let one = || Watchers::One(connection, kinds);
        self.by_path.or_insert_with(Arc::clone(&key), one).set(connection, kinds);

        let more = weight(path);
        let watched = self.by_connection.entry(connection).or_default();
        watched.paths.insert(key);
        let before = watched.bytes;
        watched.bytes += more;
        self.bytes += more;
        self.large += usize::from(before <= SMALL_SHARE_BYTES && before + more > SMALL_SHARE_BYTES);
    }

    fn forget(&mut self, path: &str, connection: ConnectionId) {
        if let Some(watchers) = self.by_path.get_mut(path) {
            watchers.set(connection, Kinds::NONE);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
        }

        // The memory use of closed connections is reduced only by the sweep, in portions.
        if !self.gone.contains(&connection) {
            self.relieve(path, connection);
        }
    }

    /// Removes a path from the watches of a connection.
    fn relieve(&mut self, path: &str, connection: ConnectionId) {
        let Some(watched) = self.by_connection.get_mut(&connection) else { return };
        watched.paths.remove(path);
        let (before, less) = (watched.bytes, weight(path));
        watched.bytes -= less;
        self.bytes -= less;
        self.large -= usize::from(before > SMALL_SHARE_BYTES && before - less <= SMALL_SHARE_BYTES);
        if watched.bytes == 0 {
            self.by_connection.remove(&connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    /// Sorted, without duplicates.
    fn each(mut recipients: Vec<ConnectionId>) -> Vec<ConnectionId> {
        recipients.sort_unstable();
        recipients.dedup();
        recipients
    }

    #[test]
    fn one_shot_watches_are_used_up_and_others_stay() {
        let mut table = WatchTable::default();
        table.add("/x", A, Kinds::DATA | Kinds::CHILD);
        table.add("/x", B, Kinds::PERSISTENT);
        assert_eq!(each(table.take_data("/x")), [A, B]);
        assert_eq!(each(table.take_data("/x")), [B]);
        assert_eq!(each(table.take_child("/x")), [A, B]);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn recursive_watches_hear_of_descendants_once() {
        let mut table = WatchTable::default();
        table.add("/", A, Kinds::RECURSIVE);
        table.add("/x", A, Kinds::RECURSIVE | Kinds::DATA);
        assert_eq!(each(table.take_data("/x/y/z")), [A]);
        assert_eq!(each(table.take_data("/x")), [A]);
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
        assert!(table.len() == 3 && table.recursive.is_empty());
        table.remove_connection(B);
        assert!(table.by_path.len() == 0 && table.by_connection.is_empty());
        assert_eq!((table.len(), table.bytes(), table.large()), (0, 0, 0));
    }

    /// The end of a connection with a million watches blocked all clients for half a second. Fails when all
    /// of them are removed in one portion.
    #[test]
    fn many_watches_are_forgotten_in_portions() {
        let mut table = WatchTable::default();
        for n in 0..3 * SWEPT_AT_ONCE {
            table.add(&format!("/{n}"), A, Kinds::DATA);
        }
        table.add("/0", B, Kinds::DATA);
        table.remove_connection(A);
        let mut portions = 0;
        while table.has_leftovers() {
            assert!(
                table.len() >= 3 * SWEPT_AT_ONCE + 1 - portions * SWEPT_AT_ONCE,
                "{}",
                table.len()
            );
            table.sweep();
            portions += 1;
        }
        assert_eq!((table.len(), table.bytes()), (1, weight("/0")));
        assert_eq!(each(table.take_data("/0")), [B]);
    }

    #[test]
    fn watches_weigh_what_their_paths_do_once_for_each_connection() {
        let mut table = WatchTable::default();
        let long = format!("/{}", "x".repeat(SMALL_SHARE_BYTES));
        table.add("/a", A, Kinds::DATA);
        table.add("/a", A, Kinds::CHILD);
        table.add(&long, A, Kinds::DATA);
        table.add(&long, B, Kinds::DATA);
        assert_eq!(table.bytes_of(B), SMALL_SHARE_BYTES + 1 + WATCH_WEIGHT);
        assert_eq!(table.bytes(), 2 * weight(&long) + weight("/a"));
        assert_eq!(table.large(), 2);
        table.take_data(&long);
        assert_eq!((table.bytes(), table.large()), (weight("/a"), 0));
    }
}
