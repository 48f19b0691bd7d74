//! Watchers and the watches that they share on the server.
//!
//! A server keeps one watch per connection, path and kind, however many watchers a client has. So the
//! watchers of one path share it: the server is asked to remove the watch only when its last watcher is gone.
//!
//! Servers before 3.9 keep one watch per connection and path, regardless of its kind: a one-shot watch
//! replaces a persistent one, which is lost after the next event (ZOOKEEPER-4466). So where a persistent
//! watch exists, it also serves the one-shot watchers, whose requests are sent without the flag. The
//! persistent watch stays on the server while the path has any watcher, because these servers also remove
//! half of it together with a one-shot watch (ZOOKEEPER-4471).

use std::collections::BTreeMap;

use lockkeeper_wire::{EventKind, SetWatchesRequest, WatcherKind, Zxid};

use crate::watch_event::WatchEvent;

/// One watcher of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub(crate) u64);

/// The changes that a watcher waits for.
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

/// The kinds under which a server stores watches.
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

    fn is_persistent(self) -> bool {
        !self.is_one_shot()
    }

    fn removal(self) -> WatcherKind {
        match self {
            Self::Data => WatcherKind::Data,
            Self::Children => WatcherKind::Children,
            Self::Persistent => WatcherKind::Persistent,
            Self::PersistentRecursive => WatcherKind::PersistentRecursive,
        }
    }

    /// Whether watches of this kind, set on the path of the event, receive the event.
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

/// The progress of a watcher's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The request has not been sent.
    Waiting,
    /// The request has been sent and not answered.
    Sent,
    /// The server is known to have the watch.
    Armed,
}

#[derive(Clone, Debug)]
struct Watcher {
    id: WatchId,
    stage: Stage,
    /// Whether the node did not exist when the watch was set: the watch then waits for the creation.
    missing: bool,
    /// Whether a persistent watch of the path serves this watcher, whose own watch was never requested.
    served: bool,
    /// The last transaction that the server had applied when it set the watch.
    since: Zxid,
}

impl Watcher {
    fn is_armed(&self) -> bool {
        self.stage == Stage::Armed
    }
}

/// How the request of a watcher is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Without a watch, because the watcher is gone.
    Nothing,
    /// With the watch of its own kind.
    Own,
    /// In a form that keeps the persistent watch of the path, which serves this watcher.
    Served,
}

/// A watch that the server must remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) path: String,
    pub(crate) kind: WatcherKind,
}

/// The watchers that share a watch.
#[derive(Clone, Debug, Default)]
struct Group {
    watchers: Vec<Watcher>,
    /// Whether the server may still have the watch of a watcher that is gone.
    left_behind: bool,
}

impl Group {
    /// Whether the server has the watch, or will have it before it processes anything sent now.
    fn is_on_server(&self) -> bool {
        self.left_behind || self.watchers.iter().any(|w| w.stage != Stage::Waiting)
    }

    fn is_armed(&self) -> bool {
        self.left_behind || self.watchers.iter().any(Watcher::is_armed)
    }
}

/// The watches of one path, in the order of [`Slot::ALL`].
#[derive(Clone, Debug, Default)]
struct PathWatches([Option<Group>; Slot::ALL.len()]);

impl PathWatches {
    fn get(&self, slot: Slot) -> Option<&Group> {
        self.0[slot as usize].as_ref()
    }

    fn get_mut(&mut self, slot: Slot) -> Option<&mut Group> {
        self.0[slot as usize].as_mut()
    }

    fn get_or_default(&mut self, slot: Slot) -> &mut Group {
        self.0[slot as usize].get_or_insert_default()
    }

    fn is_on_server(&self, slot: Slot) -> bool {
        self.get(slot).is_some_and(Group::is_on_server)
    }

    fn iter(&self) -> impl Iterator<Item = (Slot, &Group)> {
        Slot::ALL.into_iter().zip(&self.0).filter_map(|(slot, group)| Some((slot, group.as_ref()?)))
    }

    /// Keeps the groups for which `is_kept` returns true. Returns whether any is left.
    fn retain(&mut self, mut is_kept: impl FnMut(Slot, &mut Group) -> bool) -> bool {
        for (slot, place) in Slot::ALL.into_iter().zip(&mut self.0) {
            if place.as_mut().is_some_and(|group| !is_kept(slot, group)) {
                *place = None;
            }
        }
        self.iter().next().is_some()
    }
}

/// All watchers of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches {
    paths: BTreeMap<String, PathWatches>,
    places: BTreeMap<WatchId, (String, Slot)>,
    next_id: u64,
}

impl Watches {
    /// Adds a watcher. Its request is sent next.
    pub(crate) fn add(&mut self, path: String, kind: WatchKind) -> WatchId {
        let id = WatchId(self.next_id);
        self.next_id += 1;
        let slot = kind.slot();
        self.places.insert(id, (path.clone(), slot));
        let stage = Stage::Waiting;
        let watcher = Watcher { id, stage, missing: false, served: false, since: Zxid(0) };
        self.paths.entry(path).or_default().get_or_default(slot).watchers.push(watcher);
        id
    }

    /// Records that the request of a watcher is sent now. Returns how to send it.
    pub(crate) fn sending(&mut self, id: WatchId) -> Ask {
        let Some((path, slot)) = self.places.get(&id) else { return Ask::Nothing };
        let recursive = self.is_on_server(path, Slot::PersistentRecursive);
        let served = match slot {
            Slot::Data | Slot::Children => recursive || self.is_on_server(path, Slot::Persistent),
            Slot::Persistent => recursive,
            Slot::PersistentRecursive => false,
        };

        if let Some(watcher) = self.watcher(id) {
            (watcher.stage, watcher.served) = (Stage::Sent, served);
        }
        if served { Ask::Served } else { Ask::Own }
    }

    fn watcher(&mut self, id: WatchId) -> Option<&mut Watcher> {
        let (path, slot) = self.places.get(&id)?;
        let group = self.paths.get_mut(path)?.get_mut(*slot)?;
        group.watchers.iter_mut().find(|watcher| watcher.id == id)
    }

    fn is_on_server(&self, path: &str, slot: Slot) -> bool {
        self.paths.get(path).is_some_and(|watches| watches.is_on_server(slot))
    }

    /// The path of a watcher.
    pub(crate) fn path(&self, id: WatchId) -> Option<&str> {
        self.places.get(&id).map(|(path, _)| path.as_str())
    }

    /// The server has the watch now. `missing`: the node does not exist yet. `since`: the last transaction
    /// that the server had applied.
    pub(crate) fn arm(&mut self, id: WatchId, missing: bool, since: Zxid) {
        if let Some(watcher) = self.watcher(id) {
            (watcher.stage, watcher.missing, watcher.since) = (Stage::Armed, missing, since);
        }
    }

    /// The request that sets the watches of a path themselves, because the persistent watch that was to serve
    /// them was refused. Watches that have missed a change fire at once.
    pub(crate) fn arm_unserved(&mut self, path: &str) -> Option<SetWatchesRequest> {
        let watches = self.paths.get_mut(path)?;
        let mut persistent = [Slot::Persistent, Slot::PersistentRecursive].into_iter();
        if persistent.any(|slot| watches.is_on_server(slot)) {
            return None;
        }

        let mut request = SetWatchesRequest { relative_zxid: Zxid(i64::MAX), ..Default::default() };
        for slot in [Slot::Data, Slot::Children] {
            let Some(group) = watches.get_mut(slot) else { continue };
            let unserved = group.watchers.iter_mut().filter(|w| w.served && w.is_armed());
            let unserved: Vec<_> = unserved
                .map(|watcher| {
                    watcher.served = false;
                    watcher.clone()
                })
                .collect();
            let Some(since) = unserved.iter().map(|watcher| watcher.since).min() else { continue };

            request.relative_zxid = request.relative_zxid.min(since);
            for list in lists(&mut request, slot, &unserved) {
                list.push(path.to_owned());
            }
        }
        // At least one watcher has lowered it.
        (request.relative_zxid != Zxid(i64::MAX)).then_some(request)
    }

    /// Removes a watcher. Returns what the server must remove, if it was the last of its kind.
    pub(crate) fn remove(&mut self, id: WatchId) -> Vec<Removal> {
        self.take_out(id, |watcher| watcher.stage != Stage::Waiting)
    }

    /// Removes a watcher whose request has failed, so that the server does not have its watch.
    pub(crate) fn give_up(&mut self, id: WatchId) -> Vec<Removal> {
        self.take_out(id, |_| false)
    }

    fn take_out(&mut self, id: WatchId, leaves: impl Fn(&Watcher) -> bool) -> Vec<Removal> {
        let Some((path, slot)) = self.places.remove(&id) else { return Vec::new() };
        if let Some(group) = self.paths.get_mut(&path).and_then(|watches| watches.get_mut(slot))
            && let Some(index) = group.watchers.iter().position(|watcher| watcher.id == id)
        {
            let watcher = group.watchers.remove(index);
            group.left_behind |= !watcher.served && leaves(&watcher);
        }
        self.sweep(&path)
    }

    /// Removes the unused watches of a path. Returns what the server must remove.
    pub(crate) fn sweep(&mut self, path: &str) -> Vec<Removal> {
        let Some(watches) = self.paths.get_mut(path) else { return Vec::new() };
        let anybody = watches.iter().any(|(_, group)| !group.watchers.is_empty());
        let persistent = watches.iter().any(|(slot, _)| slot.is_persistent());

        let mut removals = Vec::new();
        let any_left = watches.retain(|slot, group| {
            let is_kept = group.left_behind && persistent && anybody;
            if !group.watchers.is_empty() || is_kept {
                return true;
            }
            if group.left_behind {
                removals.push(Removal { path: path.to_owned(), kind: slot.removal() });
            }
            false
        });
        if !any_left {
            self.paths.remove(path);
        }
        removals
    }

    /// Whether the path itself has a watcher.
    pub(crate) fn any_at(&self, path: &str) -> bool {
        self.paths.contains_key(path)
    }

    /// The server did not remove a persistent watch, and cannot while the path has other watchers.
    pub(crate) fn leave_behind(&mut self, removal: Removal) {
        let slot = match removal.kind {
            WatcherKind::PersistentRecursive => Slot::PersistentRecursive,
            _ => Slot::Persistent,
        };
        self.paths.entry(removal.path).or_default().get_or_default(slot).left_behind = true;
    }

    /// Removes and returns all persistent watchers.
    pub(crate) fn take_persistent(&mut self) -> Vec<WatchId> {
        let ids = self.persistent();
        self.paths.retain(|_, watches| watches.retain(|slot, _| slot.is_one_shot()));
        for id in &ids {
            self.places.remove(id);
        }
        ids
    }

    /// The persistent watchers whose watches the server is known to have had.
    pub(crate) fn persistent(&self) -> Vec<WatchId> {
        let groups = self.paths.values().flat_map(PathWatches::iter);
        let groups = groups.filter(|(slot, _)| slot.is_persistent());
        let watchers = groups.flat_map(|(_, group)| &group.watchers);
        watchers.filter(|watcher| watcher.is_armed()).map(|watcher| watcher.id).collect()
    }

    /// The connection is lost, and with it the server's watches.
    pub(crate) fn disconnected(&mut self) {
        let forget = |_, group: &mut Group| {
            group.left_behind = false;
            for watcher in &mut group.watchers {
                // Rearming requests each watch by itself.
                watcher.served = false;
            }
            !group.watchers.is_empty()
        };
        self.paths.retain(|_, watches| watches.retain(forget));
    }

    /// The watchers of an event, and the event that each receives. One-shot watchers are removed.
    pub(crate) fn fire(&mut self, event: &WatchEvent) -> Vec<(WatchId, WatchEvent)> {
        let mut ids = Vec::new();
        for slot in Slot::ALL.into_iter().filter(|slot| slot.wants(event.kind)) {
            self.fire_at(&event.path, slot, &mut ids);
        }
        if Slot::PersistentRecursive.wants(event.kind) {
            for ancestor in ancestors(&event.path) {
                self.fire_at(ancestor, Slot::PersistentRecursive, &mut ids);
            }
        }
        let mut fired: Vec<_> = ids.into_iter().map(|id| (id, event.clone())).collect();

        // A recursive watch does not fire for changes of child lists, because it fires for the children
        // themselves.
        if matches!(event.kind, EventKind::NodeCreated | EventKind::NodeDeleted)
            && let Some(parent) = parent(&event.path)
            && let Some(watches) = self.paths.get(parent)
            && watches.get(Slot::PersistentRecursive).is_some_and(Group::is_armed)
        {
            let mut ids = Vec::new();
            self.fire_at(parent, Slot::Children, &mut ids);
            self.fire_at(parent, Slot::Persistent, &mut ids);
            let (kind, path) = (EventKind::NodeChildrenChanged, parent.to_owned());
            let derived = WatchEvent { kind, path, zxid: event.zxid };
            fired.extend(ids.into_iter().map(|id| (id, derived.clone())));
        }
        fired
    }

    fn fire_at(&mut self, path: &str, slot: Slot, fired: &mut Vec<WatchId>) {
        let Some(watches) = self.paths.get_mut(path) else { return };
        let Some(group) = watches.get_mut(slot) else { return };

        let watchers = &mut group.watchers;
        // A watcher whose request is still in flight stays: the server sets its watch after this event.
        let armed = watchers.iter().filter(|watcher| watcher.is_armed()).map(|watcher| watcher.id);
        let ids: Vec<_> = armed.collect();

        if slot.is_one_shot() {
            group.left_behind = false;
            watchers.retain(|watcher| !watcher.is_armed());
            let is_empty = watchers.is_empty();
            if !watches.retain(|each, _| !is_empty || each != slot) {
                self.paths.remove(path);
            }
            for id in &ids {
                self.places.remove(id);
            }
        }
        fired.extend(ids);
    }

    /// Removes all watchers, because the session has ended.
    pub(crate) fn clear(&mut self) {
        self.paths.clear();
        self.places.clear();
    }

    /// The requests that rearm all watches on a new connection, each of at most about `max_bytes`.
    pub(crate) fn rearm(&self, relative_zxid: Zxid, max_bytes: usize) -> Vec<SetWatchesRequest> {
        let mut requests = Vec::new();
        let mut current = SetWatchesRequest { relative_zxid, ..Default::default() };
        let mut bytes = 0;

        let places = self.paths.iter();
        let places = places.flat_map(|(path, watches)| watches.iter().map(move |at| (path, at)));
        for (path, (slot, Group { watchers, .. })) in places {
            if !watchers.iter().any(Watcher::is_armed) {
                continue;
            }

            if bytes + path.len() > max_bytes && bytes > 0 {
                requests.push(std::mem::take(&mut current));
                current.relative_zxid = relative_zxid;
                bytes = 0;
            }
            bytes += path.len() + 4;
            for list in lists(&mut current, slot, watchers) {
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

/// The list in which a path is sent when it is rearmed.
fn lists<'a>(
    request: &'a mut SetWatchesRequest,
    slot: Slot,
    watchers: &[Watcher],
) -> Vec<&'a mut Vec<String>> {
    let armed = || watchers.iter().filter(|watcher| watcher.is_armed());
    match slot {
        Slot::Data => {
            // Both kinds are possible, if the node was created between two registrations.
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

/// The proper ancestors of a path, nearest first.
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
    use super::*;

    fn event(kind: EventKind, path: &str) -> WatchEvent {
        WatchEvent { kind, path: path.to_owned(), zxid: None }
    }

    fn fire(watches: &mut Watches, kind: EventKind, path: &str) -> Vec<WatchId> {
        watches.fire(&event(kind, path)).into_iter().map(|(id, _)| id).collect()
    }

    fn removal(path: &str, kind: WatcherKind) -> Removal {
        Removal { path: path.to_owned(), kind }
    }

    fn armed(watches: &mut Watches, path: &str, kind: WatchKind) -> WatchId {
        let id = watches.add(path.to_owned(), kind);
        watches.sending(id);
        watches.arm(id, false, Zxid(3));
        id
    }

    #[test]
    fn a_one_shot_watch_fires_once() {
        let mut watches = Watches::default();
        let id = armed(&mut watches, "/a", WatchKind::Data);
        assert_eq!(fire(&mut watches, EventKind::NodeChildrenChanged, "/a"), []);
        assert_eq!(fire(&mut watches, EventKind::NodeDeleted, "/a"), [id]);
        assert_eq!(fire(&mut watches, EventKind::NodeDeleted, "/a"), []);
        assert_eq!(watches.len(), 0, "no watcher leaks");
    }

    #[test]
    fn a_deletion_reaches_data_and_child_watches() {
        let mut watches = Watches::default();
        let data = armed(&mut watches, "/a", WatchKind::Data);
        let child = armed(&mut watches, "/a", WatchKind::Children);
        assert_eq!(fire(&mut watches, EventKind::NodeDeleted, "/a"), [data, child]);
    }

    #[test]
    fn a_recursive_watch_sees_everything_below_but_no_child_lists() {
        let mut watches = Watches::default();
        let root = armed(&mut watches, "/", WatchKind::PersistentRecursive);
        let a = armed(&mut watches, "/a", WatchKind::PersistentRecursive);
        assert_eq!(fire(&mut watches, EventKind::NodeCreated, "/a/b/c"), [a, root]);
        assert_eq!(fire(&mut watches, EventKind::NodeDeleted, "/a"), [a, root]);
        assert_eq!(fire(&mut watches, EventKind::NodeCreated, "/ab"), [root]);
        assert_eq!(fire(&mut watches, EventKind::NodeChildrenChanged, "/a"), []);
    }

    /// L25: the release of one watcher removed the watches of all others of the process.
    #[test]
    fn l25_only_the_last_watcher_of_a_path_removes_the_watch() {
        let mut watches = Watches::default();
        let first = armed(&mut watches, "/a", WatchKind::Data);
        let second = watches.add("/a".to_owned(), WatchKind::Exists);
        assert_eq!(watches.remove(first), [], "the second one still waits for its answer");
        assert_eq!(watches.remove(second), [removal("/a", WatcherKind::Data)]);
        assert_eq!(watches.remove(second), []);
    }

    #[test]
    fn an_event_does_not_consume_a_watch_that_is_still_being_set() {
        let mut watches = Watches::default();
        let id = watches.add("/a".to_owned(), WatchKind::Data);
        assert_eq!(fire(&mut watches, EventKind::NodeDataChanged, "/a"), []);
        watches.arm(id, false, Zxid(3));
        assert_eq!(fire(&mut watches, EventKind::NodeDataChanged, "/a"), [id]);
    }

    #[test]
    fn rearming_sorts_watches_and_keeps_requests_small() {
        let mut watches = Watches::default();
        armed(&mut watches, "/data", WatchKind::Data);
        let missing = watches.add("/missing".to_owned(), WatchKind::Exists);
        watches.arm(missing, true, Zxid(3));
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

    /// ZOOKEEPER-4466: a one-shot watch replaced a persistent one, which was lost after its event.
    #[test]
    fn a_persistent_watch_serves_the_one_shot_watchers_of_its_path() {
        let mut watches = Watches::default();
        let stream = watches.add("/a".to_owned(), WatchKind::Persistent);
        assert_eq!(watches.sending(stream), Ask::Own);
        let data = watches.add("/a".to_owned(), WatchKind::Data);
        assert_eq!(watches.sending(data), Ask::Served, "the persistent watch serves it");
        watches.arm(stream, false, Zxid(3));
        watches.arm(data, false, Zxid(3));
        assert_eq!(fire(&mut watches, EventKind::NodeDataChanged, "/a"), [data, stream]);
        assert_eq!(fire(&mut watches, EventKind::NodeDataChanged, "/a"), [stream]);
        assert_eq!(watches.remove(stream), [removal("/a", WatcherKind::Persistent)]);
    }

    #[test]
    fn a_one_shot_watch_is_asked_for_if_the_persistent_one_is_sent_behind_it() {
        let mut watches = Watches::default();
        let data = watches.add("/a".to_owned(), WatchKind::Data);
        let stream = watches.add("/a".to_owned(), WatchKind::Persistent);
        assert_eq!((watches.sending(data), watches.sending(stream)), (Ask::Own, Ask::Own));
    }

    #[test]
    fn a_recursive_watch_serves_child_watchers_by_the_events_of_the_children() {
        let mut watches = Watches::default();
        let recursive = armed(&mut watches, "/a", WatchKind::PersistentRecursive);
        let children = armed(&mut watches, "/a", WatchKind::Children);
        let stream = watches.add("/a".to_owned(), WatchKind::Persistent);
        assert_eq!(watches.sending(stream), Ask::Served, "the mode stays recursive");
        watches.arm(stream, false, Zxid(3));
        assert_eq!(fire(&mut watches, EventKind::NodeDeleted, "/a/b/c"), [recursive]);

        let fired = watches.fire(&event(EventKind::NodeCreated, "/a/b"));
        let changed = event(EventKind::NodeChildrenChanged, "/a");
        assert_eq!(
            fired,
            [
                (recursive, event(EventKind::NodeCreated, "/a/b")),
                (children, changed.clone()),
                (stream, changed)
            ]
        );
    }

    /// ZOOKEEPER-4471: removing a one-shot watch also removed half of the persistent one.
    #[test]
    fn a_persistent_watch_is_removed_when_nobody_watches_its_path() {
        let mut watches = Watches::default();
        let early = armed(&mut watches, "/a", WatchKind::Data);
        let stream = armed(&mut watches, "/a", WatchKind::Persistent);
        let late = armed(&mut watches, "/a", WatchKind::Children);
        assert_eq!(
            watches.remove(early),
            [],
            "the server could remove half of the persistent watch"
        );
        assert_eq!(watches.remove(stream), [], "it serves another watcher");
        assert_eq!(fire(&mut watches, EventKind::NodeChildrenChanged, "/a"), [late]);
        let (data, persistent) = (WatcherKind::Data, WatcherKind::Persistent);
        assert_eq!(watches.sweep("/a"), [removal("/a", data), removal("/a", persistent)]);
        assert!(!watches.any_at("/a"));
    }

    #[test]
    fn a_refused_persistent_watch_has_those_it_served_set_after_all() {
        let mut watches = Watches::default();
        let stream = watches.add("/a".to_owned(), WatchKind::Persistent);
        watches.sending(stream);
        let data = armed(&mut watches, "/a", WatchKind::Data);
        assert_eq!(watches.arm_unserved("/a"), None, "it may still be granted");
        assert_eq!(watches.give_up(stream), []);
        let request = watches.arm_unserved("/a").unwrap();
        assert_eq!((request.relative_zxid, &request.data[..]), (Zxid(3), &["/a".to_owned()][..]));
        assert_eq!(watches.arm_unserved("/a"), None, "once");
        assert_eq!(watches.remove(data), [removal("/a", WatcherKind::Data)]);
    }
}
