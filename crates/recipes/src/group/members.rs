//! Watching the members of a group.

use std::time::Duration;

use lockkeeper_client::{Client, Instant, ZnodePath};

use crate::group::error::GroupError;
use crate::group::layout::GroupLayout;
use crate::group::view::{GroupView, MemberChange, ViewId};
use crate::watch::{CacheChanges, CacheError, TreeCache};

/// The members of a group, kept up to date by a watch.
///
/// Each view is the group after one transaction, and has an [id](ViewId): equal ids mean equal members, on every
/// machine. Ids only grow, unless the servers return to an older state, because they were restored or replaced:
/// then the views follow them.
///
/// The id needs no extra reads, on every server from 3.6 on: the stat of a member that joined has the transaction
/// of its joining, and after a member has left, the group's node is read, whose stat has the transaction of the
/// leaving. Servers from 3.9 send the transaction with the event too. That saves nothing, because only an answer
/// shows that a transaction has no more events.
///
/// While the client is disconnected, and between two sessions, the last view stays readable
/// ([`Members::is_current`] is false then). Differences that are found afterwards are reported as changes. A
/// member that dies leaves when its session ends, after the session timeout and up to a tick of the server more.
///
/// Cheap to clone. The watch ends with the last clone and the last [`MemberChanges`].
#[derive(Clone, Debug)]
pub struct Members {
    cache: TreeCache,
    group: ZnodePath,
    layout: GroupLayout,
}

impl Members {
    pub(super) async fn open(
        client: &Client,
        group: &ZnodePath,
        layout: GroupLayout,
    ) -> Result<Self, GroupError> {
        let options = TreeCache::builder(client, group.as_str()).max_depth(1).knows_pzxid();
        let options = options.skip_unreadable();
        let cache = options.open().await.map_err(|source| view_error(group, source))?;
        Ok(Self { cache, group: group.clone(), layout })
    }

    /// The newest view. Makes no request.
    pub fn view(&self) -> GroupView {
        GroupView::new(self.cache.snapshot(), &self.group, self.layout)
    }

    /// The id of the newest view. Makes no request.
    pub fn view_id(&self) -> ViewId {
        self.view().id()
    }

    /// Whether the view includes all known changes; see [`TreeCache::is_current`](crate::TreeCache::is_current).
    pub fn is_current(&self) -> bool {
        self.cache.is_current()
    }

    /// A time at which the view was still up to date, or a later one; see
    /// [`TreeCache::as_of`](crate::TreeCache::as_of).
    pub fn as_of(&self) -> Instant {
        self.cache.as_of()
    }

    /// Why the watch has ended; `None` while it runs.
    pub fn ended(&self) -> Option<GroupError> {
        self.cache.ended().map(|source| view_error(&self.group, source))
    }

    /// Waits until the group has at least `n` members, and returns that view. Some of them may have left since.
    /// Makes no request of its own.
    ///
    /// # Errors
    /// If the watch has ended: the client was closed, or the group's node may not be read.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Session loss
    /// Continues with the next session.
    pub async fn wait_for(&self, n: usize) -> Result<GroupView, GroupError> {
        let mut changes = self.changes();
        let mut view = changes.view();
        while view.len() < n {
            view = changes.next().await?.view;
        }
        Ok(view)
    }

    /// [`Members::wait_for`], with a time limit; `None` if the time is over. Makes no request of its own.
    ///
    /// # Errors
    /// As [`Members::wait_for`].
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Session loss
    /// Continues with the next session.
    pub async fn wait_for_timeout(
        &self,
        n: usize,
        timeout: Duration,
    ) -> Result<Option<GroupView>, GroupError> {
        tokio::time::timeout(timeout, self.wait_for(n)).await.ok().transpose()
    }

    /// The changes from now on. Each caller has its own reader.
    pub fn changes(&self) -> MemberChanges {
        let changes = self.cache.changes();
        MemberChanges { changes, group: self.group.clone(), layout: self.layout }
    }
}

fn view_error(group: &ZnodePath, source: CacheError) -> GroupError {
    GroupError::View { group: group.clone(), source }
}

/// A view, and its differences from the previous one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupUpdate {
    /// The newest view.
    pub view: GroupView,
    /// The differences from the view of the last update, by the names of the nodes, and then the nodes that have
    /// become unreadable. Never empty.
    pub changes: Vec<MemberChange>,
}

/// The changes of a group. A slow reader misses no difference: all changes since its last update come as one
/// update. A member that left and came back in between is reported as [`MemberChange::Rejoined`].
#[derive(Debug)]
pub struct MemberChanges {
    changes: CacheChanges,
    group: ZnodePath,
    layout: GroupLayout,
}

impl MemberChanges {
    /// The view that the next update is compared with.
    pub fn view(&self) -> GroupView {
        GroupView::new(self.changes.last(), &self.group, self.layout)
    }

    /// Waits for a change. Makes no request of its own: a change is [read](crate::Group#cost) once for all readers.
    ///
    /// # Errors
    /// If the watch has ended.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    ///
    /// # Session loss
    /// Not reported by itself: differences in the next session come as an update.
    pub async fn next(&mut self) -> Result<GroupUpdate, GroupError> {
        loop {
            let before = self.view();
            let update = self.changes.next().await;
            let update = update.map_err(|source| view_error(&self.group, source))?;
            let view = GroupView::new(update.snapshot, &self.group, self.layout);
            let mut changes = view.changes(&update.changes);
            changes.extend(view.hidden_since(&before));
            // The group's own node is not a member.
            if !changes.is_empty() {
                return Ok(GroupUpdate { view, changes });
            }
        }
    }
}
