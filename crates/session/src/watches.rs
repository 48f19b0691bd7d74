//! Which watchers wait for which node.
//!
//! A server keeps one watch for each connection, path and kind, however many watchers a client
//! has. So the watchers of one path share it: the server is asked to remove a watch only when the
//! last watcher has gone.

use std::collections::BTreeMap;

use lockkeeper_wire::{EventKind, SetWatchesRequest, WatchEvent, WatcherKind, Zxid};

/// One watcher of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub(crate) u64);

/// What a watcher waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WatchKind {
    /// Once: the node's data changes, or the node is deleted.
    Data,
    /// Once: the node is created, changed or deleted.
    Exists,
    /// Once: a child comes or goes, or the node is deleted.
    Children,
    /// Until removed: everything about the node and its list of children.
    Persistent,
    /// Until removed: creations, deletions and changes of the node and everything below it.
    PersistentRecursive,
}

/// How a server files watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Slot {
    Data,
    Children,
    Persistent,
    PersistentRecursive,
}

impl WatchKind {
    fn slot(self) -> Slot {
        match self {
            Self::Data | Self::Exists => Slot::Data,
            Self::Children => Slot::Children,
            Self::Persistent => Slot::Persistent,
            Self::PersistentRecursive => Slot::PersistentRecursive,
        }
    }
}

impl Slot {
    const ALL: [Self; 4] =
        [Self::Data, Self::Children, Self::Persistent, Self::PersistentRecursive];

    fn is_one_shot(self) -> bool {
        matches!(self, Self::Data | Self::Children)
    }

    fn removal(self) -> WatcherKind {
        match self {
            Self::Data => WatcherKind::Data,
            Self::Children => WatcherKind::Children,
            Self::Persistent => WatcherKind::Persistent,
            Self::PersistentRecursive => WatcherKind::PersistentRecursive,
        }
    }

    /// Whether watches of this kind, set on the event's own path, get the event.
    fn wants(self, kind: EventKind) -> bool {
        use EventKind::{NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted};
        match self {
            Self::Data => matches!(kind, NodeCreated | NodeDataChanged | NodeDeleted),
            Self::Children => matches!(kind, NodeChildrenChanged | NodeDeleted),
            Self::Persistent => {
                matches!(kind, NodeCreated | NodeDataChanged | NodeDeleted | NodeChildrenChanged)
            }
            Self::PersistentRecursive => {
                matches!(kind, NodeCreated | NodeDataChanged | NodeDeleted)
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Watcher {
    id: WatchId,
    /// Whether the server is known to have the watch.
    armed: bool,
    /// Whether the node did not exist when the watch was set: then it waits for the creation.
    missing: bool,
}

/// What a server must be told after a watcher has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) path: String,
    pub(crate) kind: WatcherKind,
}

/// The watchers that share a watch.
#[derive(Clone, Debug, Default)]
struct Group {
    watchers: Vec<Watcher>,
    /// Whether the server has the watch of one that has gone, as others still waited for the
    /// answers to their requests.
    left_behind: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Watches {
    groups: BTreeMap<(String, Slot), Group>,
    places: BTreeMap<WatchId, (String, Slot)>,
    next_id: u64,
}

impl Watches {
    /// Adds a watcher whose request is about to be sent.
    pub(crate) fn add(&mut self, path: String, kind: WatchKind) -> WatchId {
        let id = WatchId(self.next_id);
        self.next_id += 1;
        let place = (path, kind.slot());
        self.places.insert(id, place.clone());
        let watcher = Watcher { id, armed: false, missing: false };
        self.groups.entry(place).or_default().watchers.push(watcher);
        id
    }

    /// Whether the watcher is still wanted.
    pub(crate) fn contains(&self, id: WatchId) -> bool {
        self.places.contains_key(&id)
    }

    /// The server has the watch now; `missing`: on a node that does not exist yet.
    pub(crate) fn arm(&mut self, id: WatchId, missing: bool) {
        let group = self.places.get(&id).and_then(|place| self.groups.get_mut(place));
        let mut watchers = group.into_iter().flat_map(|group| &mut group.watchers);
        if let Some(watcher) = watchers.find(|w| w.id == id) {
            (watcher.armed, watcher.missing) = (true, missing);
        }
    }

    /// Forgets a watcher; says what the server should be told if it was the last of its kind.
    pub(crate) fn remove(&mut self, id: WatchId) -> Option<Removal> {
        self.take_out(id).map(|(removal, _)| removal)
    }

    /// The same for a watcher whose request has failed, so that the server has no watch of it.
    pub(crate) fn give_up(&mut self, id: WatchId) -> Option<Removal> {
        self.take_out(id).filter(|(_, left_behind)| *left_behind).map(|(removal, _)| removal)
    }

    /// The removal, if it was the last of its kind, and whether one before it has left its watch
    /// behind.
    fn take_out(&mut self, id: WatchId) -> Option<(Removal, bool)> {
        let place = self.places.remove(&id)?;
        let group = self.groups.get_mut(&place)?;
        let gone = |watcher: &Watcher| watcher.id == id;
        group.left_behind |= group.watchers.iter().any(|watcher| gone(watcher) && watcher.armed);
        group.watchers.retain(|watcher| !gone(watcher));
        if !group.watchers.is_empty() {
            return None;
        }
        let left_behind = group.left_behind;
        self.groups.remove(&place);
        Some((Removal { path: place.0, kind: place.1.removal() }, left_behind))
    }

    /// The connection is lost, and with it what the server knew.
    pub(crate) fn disconnected(&mut self) {
        for group in self.groups.values_mut() {
            group.left_behind = false;
        }
    }

    /// The watchers that an event is for. One-shot ones are gone with it.
    pub(crate) fn fire(&mut self, event: &WatchEvent) -> Vec<WatchId> {
        let mut fired = Vec::new();
        for slot in Slot::ALL.into_iter().filter(|slot| slot.wants(event.kind)) {
            self.fire_at(&event.path, slot, &mut fired);
        }
        if Slot::PersistentRecursive.wants(event.kind) {
            for ancestor in ancestors(&event.path) {
                self.fire_at(ancestor, Slot::PersistentRecursive, &mut fired);
            }
        }
        fired
    }

    fn fire_at(&mut self, path: &str, slot: Slot, fired: &mut Vec<WatchId>) {
        let place = (path.to_owned(), slot);
        let Some(group) = self.groups.get_mut(&place) else {
            return;
        };

        let watchers = &mut group.watchers;
        // A watcher whose request is still on its way will be armed by the server after this
        // event, so it stays.
        let armed = watchers.iter().filter(|watcher| watcher.armed).map(|watcher| watcher.id);
        let ids: Vec<_> = armed.collect();

        if slot.is_one_shot() {
            group.left_behind = false;
            watchers.retain(|watcher| !watcher.armed);
            if watchers.is_empty() {
                self.groups.remove(&place);
            }
            for id in &ids {
                self.places.remove(id);
            }
        }
        fired.extend(ids);
    }

    /// Forgets everything, because the session is over.
    pub(crate) fn clear(&mut self) {
        self.groups.clear();
        self.places.clear();
    }

    /// The requests that arm all watches again on a new connection, each of at most about
    /// `max_bytes`.
    pub(crate) fn rearm(&self, relative_zxid: Zxid, max_bytes: usize) -> Vec<SetWatchesRequest> {
        let mut requests = Vec::new();
        let mut current = SetWatchesRequest { relative_zxid, ..Default::default() };
        let mut bytes = 0;

        for ((path, slot), Group { watchers, .. }) in &self.groups {
            if !watchers.iter().any(|watcher| watcher.armed) {
                continue;
            }

            if bytes + path.len() > max_bytes && bytes > 0 {
                requests.push(std::mem::take(&mut current));
                current.relative_zxid = relative_zxid;
                bytes = 0;
            }
            bytes += path.len() + 4;
            for list in lists(&mut current, *slot, watchers) {
                list.push(path.clone());
            }
        }

        if bytes > 0 {
            requests.push(current);
        }
        requests
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }
}

/// Where a path belongs in the request that arms it again.
fn lists<'a>(
    request: &'a mut SetWatchesRequest,
    slot: Slot,
    watchers: &[Watcher],
) -> Vec<&'a mut Vec<String>> {
    let armed = || watchers.iter().filter(|watcher| watcher.armed);
    match slot {
        Slot::Data => {
            // Both kinds can be there when the node came into being between two registrations.
            let mut lists = Vec::new();
            if armed().any(|watcher| !watcher.missing) {
                lists.push(&mut request.data);
            }
            if armed().any(|watcher| watcher.missing) {
                lists.push(&mut request.exist);
            }
            lists
        }
        Slot::Children => vec![&mut request.child],
        Slot::Persistent => vec![&mut request.persistent],
        Slot::PersistentRecursive => vec![&mut request.persistent_recursive],
    }
}

/// The proper ancestors of a path, the nearest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent(path), |path| parent(path))
}

fn parent(path: &str) -> Option<&str> {
    match path.rfind('/')? {
        0 if path.len() == 1 => None,
        0 => Some("/"),
        end => Some(&path[..end]),
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_wire::KeeperState;

    use super::*;

    fn event(kind: EventKind, path: &str) -> WatchEvent {
        WatchEvent { kind, state: KeeperState::SyncConnected, path: path.to_owned() }
    }

    fn armed(watches: &mut Watches, path: &str, kind: WatchKind) -> WatchId {
        let id = watches.add(path.to_owned(), kind);
        watches.arm(id, false);
        id
    }

    #[test]
    fn a_one_shot_watch_fires_once() {
        let mut watches = Watches::default();
        let id = armed(&mut watches, "/a", WatchKind::Data);
        assert_eq!(watches.fire(&event(EventKind::NodeChildrenChanged, "/a")), []);
        assert_eq!(watches.fire(&event(EventKind::NodeDeleted, "/a")), [id]);
        assert_eq!(watches.fire(&event(EventKind::NodeDeleted, "/a")), []);
        assert_eq!(watches.len(), 0, "nothing leaks");
    }

    #[test]
    fn a_deletion_reaches_data_and_child_watches() {
        let mut watches = Watches::default();
        let data = armed(&mut watches, "/a", WatchKind::Data);
        let child = armed(&mut watches, "/a", WatchKind::Children);
        assert_eq!(watches.fire(&event(EventKind::NodeDeleted, "/a")), [data, child]);
    }

    #[test]
    fn a_recursive_watch_sees_everything_below_but_no_child_lists() {
        let mut watches = Watches::default();
        let root = armed(&mut watches, "/", WatchKind::PersistentRecursive);
        let a = armed(&mut watches, "/a", WatchKind::PersistentRecursive);
        assert_eq!(watches.fire(&event(EventKind::NodeCreated, "/a/b/c")), [a, root]);
        assert_eq!(watches.fire(&event(EventKind::NodeDeleted, "/a")), [a, root]);
        assert_eq!(watches.fire(&event(EventKind::NodeCreated, "/ab")), [root]);
        assert_eq!(watches.fire(&event(EventKind::NodeChildrenChanged, "/a")), []);
    }

    /// L25: the release of one watcher removed the watches of all others of the process.
    #[test]
    fn l25_only_the_last_watcher_of_a_path_removes_the_watch() {
        let mut watches = Watches::default();
        let first = armed(&mut watches, "/a", WatchKind::Data);
        let second = watches.add("/a".to_owned(), WatchKind::Exists);
        assert_eq!(watches.remove(first), None, "the second one still waits for its answer");
        let removal = Removal { path: "/a".to_owned(), kind: WatcherKind::Data };
        assert_eq!(watches.remove(second), Some(removal));
        assert_eq!(watches.remove(second), None);
    }

    #[test]
    fn an_event_does_not_consume_a_watch_that_is_still_being_set() {
        let mut watches = Watches::default();
        let id = watches.add("/a".to_owned(), WatchKind::Data);
        assert_eq!(watches.fire(&event(EventKind::NodeDataChanged, "/a")), []);
        watches.arm(id, false);
        assert_eq!(watches.fire(&event(EventKind::NodeDataChanged, "/a")), [id]);
    }

    #[test]
    fn rearming_sorts_watches_and_keeps_requests_small() {
        let mut watches = Watches::default();
        armed(&mut watches, "/data", WatchKind::Data);
        let missing = watches.add("/missing".to_owned(), WatchKind::Exists);
        watches.arm(missing, true);
        armed(&mut watches, "/list", WatchKind::Children);
        armed(&mut watches, "/p", WatchKind::Persistent);
        armed(&mut watches, "/r", WatchKind::PersistentRecursive);
        watches.add("/pending".to_owned(), WatchKind::Data);
        let requests = watches.rearm(Zxid(5), 1_000);
        assert_eq!(
            requests,
            [SetWatchesRequest {
                relative_zxid: Zxid(5),
                data: vec!["/data".into()],
                exist: vec!["/missing".into()],
                child: vec!["/list".into()],
                persistent: vec!["/p".into()],
                persistent_recursive: vec!["/r".into()],
            }]
        );
        let small = watches.rearm(Zxid(5), 8);
        assert!(small.len() > 1 && small.iter().all(|r| r.relative_zxid == Zxid(5)));
    }
}
