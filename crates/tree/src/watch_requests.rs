//! Requests that manage watches.

use lockkeeper_wire::{
    AddWatchMode, AddWatchRequest, ErrorCode, EventKind, Permissions, RemoveWatchesRequest,
    Response, SetWatchesRequest, WatcherKind,
};

use crate::acl;
use crate::nodes::Node;
use crate::notices::Notice;
use crate::notify::encode_event;
use crate::output::{CloseReason, ConnectionId};
use crate::prepare::MAX_PATH;
use crate::rearming::Left;
use crate::requests::{NO_ZXID, Reply};
use crate::server::Server;
use crate::share::{SMALL_SHARE_BYTES, allowance};
use crate::watchers::Kinds;
use crate::watches;

impl Server {
    /// Sets a watch, unless the connection has reached the maximum number of paths, or the path is too long.
    pub(crate) fn watch(
        &mut self,
        connection: ConnectionId,
        path: &str,
        kinds: Kinds,
    ) -> Result<(), ErrorCode> {
        if path.len() > MAX_PATH {
            return Err(ErrorCode::BadArguments);
        }

        let max = self.config.max_watches;
        let is_new = !self.watches.has(path, connection, Kinds::ALL);
        if is_new && self.watches.paths_of(connection) >= max {
            let notice = Notice::TooManyWatches { connection, max };
            return self.notices.refuse(notice, ErrorCode::ThrottledOp);
        }

        if is_new && let Some(bytes) = self.too_heavy(connection, watches::weight(path)) {
            let max = self.config.max_watch_bytes;
            let notice = Notice::WatchesTooHeavy { connection, bytes, max };
            return self.notices.refuse(notice, ErrorCode::ThrottledOp);
        }

        self.watches.add(path, connection, kinds);
        Ok(())
    }

    /// The memory use of a connection's watches with `more` bytes added, if that exceeds its share.
    fn too_heavy(&self, connection: ConnectionId, more: usize) -> Option<usize> {
        let (taken, max) = (self.watches.bytes(), self.config.max_watch_bytes);
        let bytes = self.watches.bytes_of(connection).saturating_add(more);
        let is_new = bytes > SMALL_SHARE_BYTES && bytes - more <= SMALL_SHARE_BYTES;
        let large = self.watches.large() + usize::from(is_new);
        (bytes > allowance(taken.saturating_add(more), max, large)).then_some(bytes)
    }

    /// Whether a `multi` with this many operations and a reply of this length is acceptable.
    pub(crate) fn check_ops(
        &self,
        connection: ConnectionId,
        count: usize,
        reply_len: usize,
    ) -> Result<(), ErrorCode> {
        let (max_ops, max) = (self.config.max_ops, self.config.max_frame);
        if count > max_ops {
            let notice = Notice::TooManyOps { connection, count, max: max_ops };
            return self.notices.refuse(notice, ErrorCode::BadArguments);
        }
        if reply_len > max {
            let notice = Notice::ReplyTooLong { connection, len: reply_len, max };
            return self.notices.refuse(notice, ErrorCode::MarshallingError);
        }
        Ok(())
    }

    pub(crate) fn add_watch(
        &mut self,
        connection: ConnectionId,
        request: &AddWatchRequest,
    ) -> Reply {
        let mode = AddWatchMode::from_code(request.mode);
        let kinds = match mode.map_err(|_| ErrorCode::MarshallingError)? {
            AddWatchMode::Persistent => Kinds::PERSISTENT,
            AddWatchMode::PersistentRecursive => Kinds::RECURSIVE,
        };
        self.watch(connection, &request.path, kinds)?;
        // Unlike other replies without content, this one has a body: the number 0.
        Ok(Response::Count(0))
    }

    pub(crate) fn check_watches(
        &mut self,
        connection: ConnectionId,
        request: &RemoveWatchesRequest,
    ) -> Reply {
        let kinds = kinds_of(request)?;
        found(self.watches.has(&request.path, connection, kinds))
    }

    pub(crate) fn remove_watches(
        &mut self,
        connection: ConnectionId,
        request: &RemoveWatchesRequest,
    ) -> Reply {
        let kinds = kinds_of(request)?;
        found(self.watches.remove(&request.path, connection, kinds))
    }

    /// Rearms a client's watches after a reconnect. Watches that missed a change fire now; persistent watches
    /// are set without that check. The paths of later portions are already counted.
    pub(crate) fn set_watches(
        &mut self,
        connection: ConnectionId,
        request: &SetWatchesRequest,
        rest: Left,
    ) -> Reply {
        let since = request.relative_zxid;
        let lists = request.lists();
        let count = lists.iter().map(|list| list.len()).sum::<usize>() + rest.count;
        let (count, max) =
            (self.watches.paths_of(connection).saturating_add(count), self.config.max_watches);
        if count > max {
            self.close(connection, CloseReason::TooManyWatches { count, max });
            return Err(ErrorCode::ThrottledOp);
        }

        if lists.iter().copied().flatten().any(|path| path.len() > MAX_PATH) {
            return Err(ErrorCode::BadArguments);
        }

        let all = lists.into_iter().flatten();
        let more = all.map(|path| watches::weight(path)).sum::<usize>() + rest.weight;
        if let Some(bytes) = self.too_heavy(connection, more) {
            let max = self.config.max_watch_bytes;
            self.close(connection, CloseReason::WatchesTooHeavy { bytes, max });
            return Err(ErrorCode::ThrottledOp);
        }

        for path in &request.data {
            let changed = EventKind::NodeDataChanged;
            let missed = self.missed(path, changed, |node| node.mzxid > since);
            self.fire_or_arm(connection, path, missed, Kinds::DATA);
        }
        for path in &request.exist {
            let missed = self.tree.get(path).map(|_| EventKind::NodeCreated);
            self.fire_or_arm(connection, path, missed, Kinds::DATA);
        }
        for path in &request.child {
            let changed = EventKind::NodeChildrenChanged;
            let missed = self.missed(path, changed, |node| node.pzxid > since);
            self.fire_or_arm(connection, path, missed, Kinds::CHILD);
        }

        for path in &request.persistent {
            self.watches.add(path, connection, Kinds::PERSISTENT);
        }
        for path in &request.persistent_recursive {
            self.watches.add(path, connection, Kinds::RECURSIVE);
        }
        Ok(Response::Empty)
    }

    /// The change that a watch on an existing node has missed: its deletion, or this change if there was one.
    fn missed(
        &self,
        path: &str,
        change: EventKind,
        has_changed: impl FnOnce(&Node) -> bool,
    ) -> Option<EventKind> {
        match self.tree.get(path) {
            None => Some(EventKind::NodeDeleted),
            Some(node) => has_changed(node).then_some(change),
        }
    }

    fn fire_or_arm(
        &mut self,
        connection: ConnectionId,
        path: &str,
        missed: Option<EventKind>,
        kinds: Kinds,
    ) {
        let Some(kind) = missed else {
            return self.watches.add(path, connection, kinds);
        };
        // Without this check, a client could learn of changes to nodes that it may not read, by claiming to
        // have watched them.
        let acl = self.tree.get(path).map(|node| node.acl.clone());
        // A deleted node does not need protection.
        let acl = acl.unwrap_or_else(|| Vec::new().into());
        if acl::check(&acl, Permissions::READ, self.identities(connection)).is_ok() {
            self.outbox.frame(connection, |out| encode_event(NO_ZXID, kind, path, out));
        }
    }
}

fn kinds_of(request: &RemoveWatchesRequest) -> Result<Kinds, ErrorCode> {
    let kind = WatcherKind::from_code(request.kind).map_err(|_| ErrorCode::MarshallingError)?;
    Ok(match kind {
        WatcherKind::Children => Kinds::CHILD,
        WatcherKind::Data => Kinds::DATA,
        WatcherKind::Any => Kinds::ALL,
        WatcherKind::Persistent => Kinds::PERSISTENT,
        WatcherKind::PersistentRecursive => Kinds::RECURSIVE,
    })
}

fn found(any: bool) -> Reply {
    if any { Ok(Response::Empty) } else { Err(ErrorCode::NoWatcher) }
}
