//! Seeing who is in a group.

use std::time::Duration;

use lockkeeper_client::{Client, Instant, ZnodePath};

use crate::group::error::GroupError;
use crate::group::layout::GroupLayout;
use crate::group::view::{GroupView, MemberChange, ViewId};
use crate::watch::{CacheChanges, CacheError, TreeCache};

/// Who is in a group, kept up to date by a watch.
///
/// Each view is the group after one transaction, and has a [name](ViewId): equal names mean equal members,
/// whoever looks. Names only grow, unless the servers themselves go back to an older state, because they
/// were restored or replaced: then the views follow them.
///
/// A name is known from what is read anyway, on every server from 3.6 on: with a member that joined comes the
/// transaction of its joining, and for one that left the group's node is read, which has the transaction of
/// the leaving. Servers from 3.9 name the transaction in the event too. That saves nothing, as only an
/// answer tells that a transaction has no more events.
///
/// While the client is cut off, and between two sessions, the last view stays readable
/// ([`Members::is_current`] says so); what is different afterwards comes as changes. A member that dies
/// leaves when its session ends, which is a session timeout and a tick of the server later.
///
/// Cheap to clone. The watch goes with the last clone and the last [`MemberChanges`].
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

    /// The newest view. Asks no server.
    pub fn view(&self) -> GroupView {
        GroupView::new(self.cache.snapshot(), &self.group, self.layout)
    }

    /// The name of the newest view. Asks no server.
    pub fn view_id(&self) -> ViewId {
        self.view().id()
    }

    /// Whether nothing is known that the view does not show; see
    /// [`TreeCache::is_current`](crate::TreeCache::is_current).
    pub fn is_current(&self) -> bool {
        self.cache.is_current()
    }

    /// A time at or after which the view was the group; see
    /// [`TreeCache::as_of`](crate::TreeCache::as_of).
    pub fn as_of(&self) -> Instant {
        self.cache.as_of()
    }

    /// Why there are no newer views any more; `None` while there are.
    pub fn ended(&self) -> Option<GroupError> {
        self.cache.ended().map(|source| view_error(&self.group, source))
    }

    /// Waits until there are at least `n` members, and gives the view with them. Some of them may have left
    /// when it is looked at. Makes no request of its own.
    ///
    /// # Errors
    /// If there are no views any more: the client was closed, or the group's node may not be read.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Session loss
    /// It goes on with the next session.
    pub async fn wait_for(&self, n: usize) -> Result<GroupView, GroupError> {
        let mut changes = self.changes();
        let mut view = changes.view();
        while view.len() < n {
            view = changes.next().await?.view;
        }
        Ok(view)
    }

    /// [`Members::wait_for`], but not for longer than `timeout`; `None` if there were not so many in time.
    /// Makes no request of its own.
    ///
    /// # Errors
    /// As [`Members::wait_for`].
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Session loss
    /// It goes on with the next session.
    pub async fn wait_for_timeout(
        &self,
        n: usize,
        timeout: Duration,
    ) -> Result<Option<GroupView>, GroupError> {
        tokio::time::timeout(timeout, self.wait_for(n)).await.ok().transpose()
    }

    /// What changes from now on. Each caller has changes of its own.
    pub fn changes(&self) -> MemberChanges {
        let changes = self.cache.changes();
        MemberChanges { changes, group: self.group.clone(), layout: self.layout }
    }
}

fn view_error(group: &ZnodePath, source: CacheError) -> GroupError {
    GroupError::View { group: group.clone(), source }
}

/// A view, and how it differs from the one before.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupUpdate {
    /// The newest view.
    pub view: GroupView,
    /// What differs from the view of the last update, by the names of the nodes, and then which may not be
    /// read any more; never empty.
    pub changes: Vec<MemberChange>,
}

/// What changes in a group. A slow reader misses no difference: what happened meanwhile comes as one
/// update. Who left and came back in between comes as [`MemberChange::Rejoined`].
#[derive(Debug)]
pub struct MemberChanges {
    changes: CacheChanges,
    group: ZnodePath,
    layout: GroupLayout,
}

impl MemberChanges {
    /// The view from which [`MemberChanges::next`] tells the next difference.
    pub fn view(&self) -> GroupView {
        GroupView::new(self.changes.last(), &self.group, self.layout)
    }

    /// Waits for a change. Makes no request of its own: what has changed is [read](crate::Group#cost) once
    /// for all who wait.
    ///
    /// # Errors
    /// If there are no views any more.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    ///
    /// # Session loss
    /// None is seen: what differs in the next session comes as an update.
    pub async fn next(&mut self) -> Result<GroupUpdate, GroupError> {
        loop {
            let before = self.view();
            let update = self.changes.next().await;
            let update = update.map_err(|source| view_error(&self.group, source))?;
            let view = GroupView::new(update.snapshot, &self.group, self.layout);
            let mut changes = view.changes(&update.changes);
            changes.extend(view.hidden_since(&before));
            // The group's own node is no member.
            if !changes.is_empty() {
                return Ok(GroupUpdate { view, changes });
            }
        }
    }
}
