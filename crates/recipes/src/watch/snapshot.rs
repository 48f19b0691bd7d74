//! A part of the tree at one moment, and the changes from one snapshot to the next.
//!
//! Snapshots share their unchanged parts, so that the cost of the next one depends on the number of changes and not
//! on the number of nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{Stat, Zxid};
use lockkeeper_locks::inspect::KnownTree;
use rpds::RedBlackTreeMapSync;

/// A node in a [`Snapshot`]. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedNode {
    /// `None` if it is empty.
    data: Option<Arc<[u8]>>,
    stat: Stat,
}

impl CachedNode {
    pub(crate) fn new(data: &[u8], stat: Stat) -> Self {
        Self { data: (!data.is_empty()).then(|| data.into()), stat }
    }

    /// The node's data.
    pub fn data(&self) -> &[u8] {
        self.data.as_deref().unwrap_or_default()
    }

    /// The node's stat. Its fields about children and access control lists (`cversion`, `pzxid`,
    /// `num_children`, `aversion`) are as old as the last read of the node, and may be older than the snapshot:
    /// servers send no events for changes of them.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }
}

#[derive(Clone, Debug)]
struct Branch {
    node: CachedNode,
    children: RedBlackTreeMapSync<Box<str>, Arc<Branch>>,
}

impl Branch {
    fn get(&self, mut names: impl Iterator<Item = impl AsRef<str>>) -> Option<&Self> {
        let mut branch = self;
        names.try_for_each(|name| {
            branch = branch.children.get(name.as_ref())?;
            Some(())
        })?;
        Some(branch)
    }

    /// Visits this node and all below it, with their paths.
    fn walk<'a>(&'a self, path: &str, visit: &mut impl FnMut(&str, &'a CachedNode)) {
        visit(path, &self.node);
        for (name, child) in &self.children {
            child.walk(&join(path, name), visit);
        }
    }
}

/// The nodes at and below one path.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Without a trailing slash, so that it is empty for `/`.
    prefix: Arc<str>,
    root: Option<Arc<Branch>>,
    nodes: usize,
    /// The size of names and data, in bytes.
    bytes: usize,
}

impl Tree {
    pub(crate) fn new(root: &str) -> Self {
        let prefix = root.trim_end_matches('/').into();
        Self { prefix, root: None, nodes: 0, bytes: 0 }
    }

    /// The names on the path from the root of this tree; `None` if the path is outside of it.
    pub(crate) fn names<'a>(
        &self,
        path: &'a str,
    ) -> Option<impl Iterator<Item = &'a str> + use<'a>> {
        let rest = path.strip_prefix(&*self.prefix)?;
        let is_below = rest.is_empty() || rest.starts_with('/');
        is_below.then(|| rest.split('/').filter(|name| !name.is_empty()))
    }

    fn branch(&self, path: &str) -> Option<&Branch> {
        self.root.as_ref()?.get(self.names(path)?)
    }

    pub(crate) fn get(&self, path: &str) -> Option<&CachedNode> {
        self.branch(path).map(|branch| &branch.node)
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn walk<'a>(&'a self, mut visit: impl FnMut(&str, &'a CachedNode)) {
        if let Some(root) = &self.root {
            let path = if self.prefix.is_empty() { "/" } else { &self.prefix };
            root.walk(path, &mut visit);
        }
    }

    /// Inserts a node, and returns whether its parent exists.
    pub(crate) fn insert(&mut self, path: &str, node: CachedNode) -> bool {
        let Some(names) = self.names(path) else { return false };
        let names: Vec<_> = names.collect();
        let Some((name, above)) = names.split_last() else {
            self.bytes += node.data().len();
            match &mut self.root {
                Some(root) => {
                    self.bytes -= root.node.data().len();
                    Arc::make_mut(root).node = node;
                }
                None => {
                    self.nodes += 1;
                    self.root = Some(Arc::new(Branch { node, children: Default::default() }));
                }
            }
            return true;
        };

        let Some(parent) = branch_mut(self.root.as_mut(), above) else { return false };
        self.bytes += node.data().len();
        match parent.children.get_mut(*name) {
            Some(child) => {
                self.bytes -= child.node.data().len();
                Arc::make_mut(child).node = node;
            }
            None => {
                (self.nodes, self.bytes) = (self.nodes + 1, self.bytes + name.len());
                let child = Branch { node, children: Default::default() };
                parent.children.insert_mut((*name).into(), Arc::new(child));
            }
        }
        true
    }

    /// Removes a node and everything below it, and returns their paths.
    pub(crate) fn remove(&mut self, path: &str) -> Vec<String> {
        let Some(gone) = self.branch(path) else { return Vec::new() };
        let (mut paths, mut bytes) = (Vec::new(), 0);
        gone.walk(path, &mut |path, node| {
            bytes += node.data().len() + path.len() - path.rfind('/').map_or(0, |slash| slash + 1);
            paths.push(path.to_owned());
        });

        let names: Vec<_> = self.names(path).into_iter().flatten().collect();
        match names.split_last() {
            Some((name, above)) => {
                if let Some(parent) = branch_mut(self.root.as_mut(), above) {
                    parent.children.remove_mut(*name);
                }
            }
            // The name of the root is not counted, because it belongs to the prefix.
            None => (self.root, bytes) = (None, self.bytes),
        }
        (self.nodes, self.bytes) = (self.nodes - paths.len(), self.bytes - bytes);
        paths
    }
}

fn branch_mut<'a>(root: Option<&'a mut Arc<Branch>>, names: &[&str]) -> Option<&'a mut Branch> {
    let mut branch = Arc::make_mut(root?);
    for name in names {
        branch = Arc::make_mut(branch.children.get_mut(*name)?);
    }
    Some(branch)
}

fn join(path: &str, name: &str) -> String {
    let path = path.trim_end_matches('/');
    format!("{path}/{name}")
}

/// A part of the tree in memory: the nodes at and below the path of a
/// [`TreeCache`](crate::TreeCache), limited by its filter and depth.
pub struct Snapshot {
    tree: Tree,
    unreadable: Arc<BTreeSet<Arc<str>>>,
    zxid: Zxid,
    is_exact: bool,
}

impl Snapshot {
    pub(crate) fn new(tree: Tree, zxid: Zxid, is_exact: bool) -> Self {
        Self { tree, unreadable: Arc::default(), zxid, is_exact }
    }

    /// The same snapshot, with the nodes that are left out because they may not be read.
    pub(crate) fn without(self, unreadable: Arc<BTreeSet<Arc<str>>>) -> Self {
        Self { unreadable, ..self }
    }

    /// Whether both snapshots leave out the same nodes.
    pub(crate) fn lacks_the_same(&self, other: &Self) -> bool {
        self.unreadable == other.unreadable
    }

    /// Whether a node is left out because it may not be read.
    pub(crate) fn is_unreadable(&self, path: &str) -> bool {
        self.unreadable.contains(path)
    }

    /// The paths of the nodes that are left out, with all below them, because they may not be read or are
    /// longer than the client's [limit](lockkeeper_client::ClientBuilder::max_frame), sorted. Empty without
    /// [`TreeCacheBuilder::skip_unreadable`](crate::TreeCacheBuilder::skip_unreadable).
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.iter().map(|path| &**path)
    }

    /// The transaction after which the server's tree was this one, if it [is exact](Self::is_exact).
    /// No event reports transactions elsewhere, so the snapshot may be valid for later transactions as well.
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Whether the snapshot is the server's tree at one moment. Always true without
    /// [`TreeCacheBuilder::each_node`](crate::TreeCacheBuilder::each_node).
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// A node, by its full path.
    pub fn get(&self, path: &str) -> Option<&CachedNode> {
        self.tree.get(path)
    }

    /// The names and nodes of a node's children, sorted by name; empty if the node does not exist.
    pub fn children(&self, path: &str) -> impl Iterator<Item = (&str, &CachedNode)> {
        let children = self.tree.branch(path).map(|branch| branch.children.iter());
        children.into_iter().flatten().map(|(name, child)| (&**name, &child.node))
    }

    /// All nodes with their paths, parents before children.
    pub fn nodes(&self) -> Vec<(String, &CachedNode)> {
        let mut nodes = Vec::with_capacity(self.len());
        self.tree.walk(|path, node| nodes.push((path.to_owned(), node)));
        nodes
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.tree.nodes()
    }

    /// Whether even the node at its path is missing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The changes at these paths since an earlier snapshot.
    pub(crate) fn changes_since(&self, earlier: &Self, paths: &BTreeSet<&str>) -> Vec<Change> {
        let changes = paths.iter().filter_map(|path| {
            let (before, after) = (earlier.get(path), self.get(path));
            Change::between(path, before, after)
        });
        changes.collect()
    }

    /// All changes since an earlier snapshot.
    pub(crate) fn all_changes_since(&self, earlier: &Self) -> Vec<Change> {
        let (old, new) = (earlier.nodes(), self.nodes());
        let paths = old.iter().chain(&new).map(|(path, _)| &**path).collect();
        self.changes_since(earlier, &paths)
    }
}

/// [`LockQueues::in_tree`](lockkeeper_locks::inspect::LockQueues::in_tree) finds the locks in it.
impl KnownTree for Snapshot {
    fn node(&self, path: &str) -> Option<(Bytes, Stat)> {
        let node = self.get(path)?;
        Some((Bytes::copy_from_slice(node.data()), *node.stat()))
    }

    fn children(&self, path: &str) -> Vec<String> {
        self.children(path).map(|(name, _)| name.to_owned()).collect()
    }
}

lockkeeper_client::impl_debug! {
    /// Only a summary, because the nodes may be many and secret.
    Snapshot, self => zxid: self.zxid, nodes: self.len()
}

/// A difference of a node between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The node is new.
    Created {
        /// Its path.
        path: String,
        /// The node.
        node: CachedNode,
    },
    /// Its data was written.
    Changed {
        /// Its path.
        path: String,
        /// Its earlier state.
        before: CachedNode,
        /// Its current state.
        node: CachedNode,
    },
    /// The node was deleted, and another one created at its path.
    Replaced {
        /// Its path.
        path: String,
        /// The deleted node.
        before: CachedNode,
        /// The new node.
        node: CachedNode,
    },
    /// The node was deleted.
    Deleted {
        /// Its path.
        path: String,
        /// The deleted node.
        before: CachedNode,
    },
}

impl Change {
    fn between(
        path: &str,
        before: Option<&CachedNode>,
        after: Option<&CachedNode>,
    ) -> Option<Self> {
        let path = path.to_owned();
        match (before.cloned(), after.cloned()) {
            (None, None) => None,
            (None, Some(node)) => Some(Self::Created { path, node }),
            (Some(before), None) => Some(Self::Deleted { path, before }),
            // Versions start over with a new node, so they may be equal for different data.
            (Some(before), Some(node)) if before.stat.czxid != node.stat.czxid => {
                Some(Self::Replaced { path, before, node })
            }
            (Some(before), Some(node)) if before.stat.mzxid != node.stat.mzxid => {
                Some(Self::Changed { path, before, node })
            }
            _ => None,
        }
    }

    /// The node's path.
    pub fn path(&self) -> &str {
        match self {
            Self::Created { path, .. }
            | Self::Changed { path, .. }
            | Self::Replaced { path, .. }
            | Self::Deleted { path, .. } => path,
        }
    }

    /// The current state of the node; `None` if it was deleted.
    pub fn node(&self) -> Option<&CachedNode> {
        match self {
            Self::Created { node, .. }
            | Self::Changed { node, .. }
            | Self::Replaced { node, .. } => Some(node),
            Self::Deleted { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(data: &str, czxid: i64, mzxid: i64) -> CachedNode {
        let stat = Stat { czxid: Zxid(czxid), mzxid: Zxid(mzxid), ..Stat::default() };
        CachedNode::new(data.as_bytes(), stat)
    }

    #[test]
    fn nodes_are_counted_with_their_names_and_data() {
        for root in ["/", "/a", "/a/b"] {
            let mut tree = Tree::new(root);
            let below = |name: &str| join(root, name);
            assert!(!tree.insert(&below("x"), node("", 1, 1)), "its parent is missing");
            assert!(tree.insert(root, node("1", 1, 1)));
            assert!(tree.insert(&below("x"), node("22", 1, 1)));
            assert!(tree.insert(&below("x/yy"), node("333", 1, 1)));
            assert!(tree.insert(&below("x/yy"), node("4444", 1, 1)));
            assert!(!tree.insert("/elsewhere", node("", 1, 1)) || root == "/");
            if root == "/" {
                tree.remove("/elsewhere");
            }
            assert_eq!((tree.nodes(), tree.bytes()), (3, 1 + 3 + 6), "{root}");
            assert_eq!(tree.remove(&below("x")), [below("x"), below("x/yy")]);
            assert_eq!((tree.nodes(), tree.bytes()), (1, 1));
            assert_eq!(tree.remove(&below("x")), Vec::<String>::new());
            assert_eq!(tree.remove(root), [root]);
            assert_eq!((tree.nodes(), tree.bytes()), (0, 0));
        }
    }

    #[test]
    fn an_older_snapshot_stays_as_it_is() {
        let mut tree = Tree::new("/a");
        tree.insert("/a", node("", 1, 1));
        tree.insert("/a/b", node("old", 2, 2));
        let old = Snapshot::new(tree.clone(), Zxid(2), true);
        tree.insert("/a/b", node("new", 2, 3));
        tree.insert("/a/c", node("", 4, 4));
        let new = Snapshot::new(tree, Zxid(4), true);
        assert_eq!((old.get("/a/b").unwrap().data(), old.len()), (&b"old"[..], 2));
        assert_eq!((new.get("/a/b").unwrap().data(), new.len()), (&b"new"[..], 3));
        let names: Vec<_> = new.children("/a").map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "c"]);
    }

    /// CURATOR-391: a node that was deleted and created again has version 0 both times.
    #[test]
    fn changes_go_by_transactions_and_not_by_versions() {
        let before = node("a", 1, 1);
        let kinds = [
            (Some(&before), Some(node("a", 1, 1)), "nothing"),
            (Some(&before), Some(node("b", 2, 2)), "Replaced"),
            (Some(&before), Some(node("b", 1, 2)), "Changed"),
            (Some(&before), None, "Deleted"),
            (None, Some(node("b", 2, 2)), "Created"),
        ];
        for (before, after, kind) in kinds {
            let change = Change::between("/a", before, after.as_ref());
            let shown = change.map_or("nothing".to_owned(), |change| format!("{change:?}"));
            assert!(shown.starts_with(kind), "{shown} is not {kind}");
        }
    }
}
