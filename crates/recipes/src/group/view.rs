//! The members of a group at one moment, and the changes since. No I/O.

use std::fmt;
use std::sync::Arc;

use lockkeeper_client::{ZnodePath, Zxid};
use serde::{Deserialize, Serialize};

use crate::group::layout::GroupLayout;
use crate::group::member::Member;
use crate::watch::{CachedNode, Change, Snapshot};

/// The id of a view: equal ids mean the same members with the same [tokens](Member::token), on every machine. Of
/// two ids of one group, the later one is larger.
///
/// It is the last transaction that created or deleted a node in the group. A member that changes its data does
/// not change it. If one machine may [read more nodes](GroupView::unreadable) than another, they may see
/// different members under one id. [`Members`](crate::Members) explains when an id may decrease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ViewId(Zxid);

impl ViewId {
    /// The transaction.
    pub fn zxid(self) -> Zxid {
        self.0
    }
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.0)
    }
}

/// The members of a group after one transaction. Cheap to clone.
#[derive(Clone)]
pub struct GroupView {
    snapshot: Arc<Snapshot>,
    group: ZnodePath,
    layout: GroupLayout,
    id: ViewId,
}

impl GroupView {
    pub(super) fn new(snapshot: Arc<Snapshot>, group: &ZnodePath, layout: GroupLayout) -> Self {
        let id = view_id(&snapshot, group);
        Self { snapshot, group: group.clone(), layout, id }
    }

    /// The view's id.
    pub fn id(&self) -> ViewId {
        self.id
    }

    /// The members, sorted by the names of their nodes.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.nodes().filter_map(|(name, node)| self.read(name, node))
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.nodes().filter(|(name, node)| self.is_member(name, node)).count()
    }

    /// Whether the group has no members.
    pub fn is_empty(&self) -> bool {
        !self.nodes().any(|(name, node)| self.is_member(name, node))
    }

    /// The member with this id; of several, the one that joined first.
    pub fn member(&self, id: &str) -> Option<Member> {
        self.members().filter(|member| member.id == id).min_by_key(|member| member.token)
    }

    /// The nodes in the group that are not members: they have another layout, or are not ephemeral. They are not
    /// counted, and not changed.
    pub fn foreign(&self) -> Vec<ZnodePath> {
        let foreign = self.nodes().filter(|(name, node)| !self.is_member(name, node));
        foreign.filter_map(|(name, _)| self.group.child(name).ok()).collect()
    }

    /// The nodes in the group that this client may not read, or that are longer than its
    /// [limit](lockkeeper_client::ClientBuilder::max_frame), so that it is unknown whether they are members. They
    /// are not counted. They are read again after a second, and then at growing intervals of up to 30 seconds.
    pub fn unreadable(&self) -> Vec<ZnodePath> {
        self.snapshot.unreadable().filter_map(|path| ZnodePath::new(path).ok()).collect()
    }

    /// The nodes that have become unreadable since `before`.
    pub(super) fn hidden_since(&self, before: &Self) -> Vec<MemberChange> {
        let is_new = |node: &ZnodePath| !before.snapshot.is_unreadable(node.as_str());
        self.unreadable().into_iter().filter(is_new).map(MemberChange::Unreadable).collect()
    }

    fn nodes(&self) -> impl Iterator<Item = (&str, &CachedNode)> {
        self.snapshot.children(self.group.as_str())
    }

    fn is_member(&self, name: &str, node: &CachedNode) -> bool {
        self.layout.is_member(name, node.stat())
    }

    fn read(&self, name: &str, node: &CachedNode) -> Option<Member> {
        self.layout.read(&self.group, name, node.data(), node.stat())
    }

    /// The changes of members that these changes of nodes mean.
    pub(super) fn changes(&self, changes: &[Change]) -> Vec<MemberChange> {
        let of_nodes = changes.iter().filter_map(|change| {
            let node = ZnodePath::new(change.path()).ok().filter(|node| *node != self.group)?;
            let (before, after) = match change {
                Change::Created { node, .. } => (None, Some(node)),
                Change::Changed { before, node, .. } | Change::Replaced { before, node, .. } => {
                    (Some(before), Some(node))
                }
                Change::Deleted { before, .. } => (Some(before), None),
            };
            Some(self.change(node, before, after))
        });
        of_nodes.flatten().collect()
    }

    fn change(
        &self,
        node: ZnodePath,
        before: Option<&CachedNode>,
        after: Option<&CachedNode>,
    ) -> Vec<MemberChange> {
        let read = |found: Option<&CachedNode>| {
            found.map(|found| self.read(node.name(), found).ok_or_else(|| node.clone()))
        };

        match (read(before), read(after)) {
            (Some(Ok(before)), Some(Ok(member))) if before.token == member.token => {
                vec![MemberChange::Updated { before, member }]
            }
            (Some(Ok(before)), Some(Ok(member))) => vec![MemberChange::Rejoined { before, member }],
            (Some(Err(_)), Some(Err(_))) => Vec::new(),
            (before, after) => {
                let gone = before.map(|before| match before {
                    Ok(member) => MemberChange::Left(member),
                    Err(node) => MemberChange::ForeignGone(node),
                });
                let come = after.map(|after| match after {
                    Ok(member) => MemberChange::Joined(member),
                    Err(node) => MemberChange::Foreign(node),
                });
                gone.into_iter().chain(come).collect()
            }
        }
    }
}

lockkeeper_client::impl_debug!(GroupView, self => id: self.id, members: self.len());

/// The last transaction that created or deleted a child of the group's node.
///
/// The stat of the group is as new as the last deletion; a child that was created after it has its own `czxid`.
/// If the group's node is missing, the id is the transaction of the snapshot: the group has no members after it,
/// so equal ids still mean equal members, and it is larger than all earlier ids of the group.
fn view_id(snapshot: &Snapshot, group: &ZnodePath) -> ViewId {
    let Some(node) = snapshot.get(group.as_str()) else { return ViewId(snapshot.zxid()) };
    let made = snapshot.children(group.as_str()).map(|(_, child)| child.stat().czxid);
    ViewId(made.fold(node.stat().pzxid, Zxid::max))
}

/// A change in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberChange {
    /// A member joined.
    Joined(Member),
    /// A member left, or its session ended.
    Left(Member),
    /// A member left and came back: it has another token.
    Rejoined {
        /// Its earlier state.
        before: Member,
        /// Its current state.
        member: Member,
    },
    /// The data of a member changed.
    Updated {
        /// Its earlier state.
        before: Member,
        /// Its current state.
        member: Member,
    },
    /// A new node in the group is not a member: it has another layout, or is not ephemeral.
    Foreign(ZnodePath),
    /// Such a node was deleted.
    ForeignGone(ZnodePath),
    /// A node in the group may not be read, or exceeds the client's limit.
    Unreadable(ZnodePath),
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::{SessionId, Stat};

    use super::*;
    use crate::watch::Tree;

    fn node(czxid: i64, mzxid: i64, session: i64) -> CachedNode {
        let (czxid, mzxid) = (Zxid(czxid), Zxid(mzxid));
        let stat = Stat { czxid, mzxid, ephemeral_owner: SessionId(session), ..Stat::default() };
        CachedNode::new(b"told", stat)
    }

    fn view(pzxid: Option<i64>, children: &[(&str, CachedNode)], zxid: i64) -> GroupView {
        let mut tree = Tree::new("/g");
        if let Some(pzxid) = pzxid {
            let stat = Stat { czxid: Zxid(1), pzxid: Zxid(pzxid), ..Stat::default() };
            tree.insert("/g", CachedNode::new(b"", stat));
        }
        for (name, child) in children {
            tree.insert(&format!("/g/{name}"), child.clone());
        }
        let snapshot = Arc::new(Snapshot::new(tree, Zxid(zxid), true));
        GroupView::new(snapshot, &ZnodePath::new("/g").unwrap(), GroupLayout::default())
    }

    #[test]
    fn a_view_is_named_by_the_last_change_of_its_nodes() {
        let (a, b) = (("a", node(5, 90, 1)), ("b", node(8, 8, 1)));
        for (pzxid, children, id) in [
            (5, vec![a.clone()], 5),
            (5, vec![a.clone(), b.clone()], 8),
            (9, vec![a.clone()], 9),
            (9, vec![], 9),
        ] {
            assert_eq!(view(Some(pzxid), &children, 100).id(), ViewId(Zxid(id)));
        }
        assert_eq!(view(None, &[], 100).id(), ViewId(Zxid(100)), "there is no group");
    }

    #[test]
    fn a_node_without_a_session_is_not_a_member() {
        let view = view(Some(5), &[("a", node(5, 5, 1)), ("b", node(4, 4, 0))], 9);
        let ids: Vec<_> = view.members().map(|member| member.id).collect();
        assert_eq!((ids, view.len()), (vec!["a".to_owned()], 1));
        assert_eq!(view.foreign(), [ZnodePath::new("/g/b").unwrap()]);
    }

    #[test]
    fn each_change_of_a_node_has_a_meaning() {
        let view = view(Some(5), &[], 9);
        let node_at = |path: &str| ZnodePath::new(path).unwrap();
        let told = |before: Option<CachedNode>, after: Option<CachedNode>| {
            let changes = view.change(node_at("/g/a"), before.as_ref(), after.as_ref());
            let name = |change: &MemberChange| {
                let shown = format!("{change:?}");
                shown.split([' ', '(']).next().unwrap_or_default().to_owned()
            };
            changes.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        let (member, later, lasting) = (node(5, 5, 1), node(7, 7, 1), node(6, 6, 0));
        for (before, after, meaning) in [
            (None, Some(&member), "Joined"),
            (Some(&member), None, "Left"),
            (Some(&member), Some(&node(5, 9, 1)), "Updated"),
            (Some(&member), Some(&later), "Rejoined"),
            (None, Some(&lasting), "Foreign"),
            (Some(&lasting), None, "ForeignGone"),
            (Some(&lasting), Some(&later), "ForeignGone Joined"),
            (Some(&member), Some(&lasting), "Left Foreign"),
            (Some(&lasting), Some(&lasting), ""),
        ] {
            assert_eq!(told(before.cloned(), after.cloned()), meaning);
        }
    }
}
