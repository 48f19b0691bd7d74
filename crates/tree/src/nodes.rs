//! The tree of nodes.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_wire::{Acl, NodeData, Permissions, SessionId, Stat, Zxid};

use crate::acl::{AclRef, AclTable};
use crate::ancestors::AncestorMap;
use crate::children::Children;
use crate::gradual::GradualMap;
use crate::hash::{self, HashSet};

/// Nodes that always exist and cannot be deleted.
pub(crate) const SYSTEM_NODES: [&str; 4] =
    ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

/// The memory use of a node without its path, data and list: the node, and its entries in the tables and in
/// its parent's list, as measured with the allocator of the command.
pub(crate) const NODE_WEIGHT: usize = 400;

/// The condition under which a node is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Exists until it is deleted.
    None,
    /// Ephemeral.
    Session(SessionId),
    /// Deleted some time after its last child is deleted.
    Container,
    /// Deleted when it has no children and its data has not changed for this many milliseconds.
    Ttl(i64),
}

impl Owner {
    /// Whether the node is ephemeral.
    pub(crate) fn is_session(self) -> bool {
        matches!(self, Self::Session(_))
    }

    /// Whether locks use nodes of this kind: ephemeral nodes and containers.
    pub(crate) fn is_of_lock(self) -> bool {
        matches!(self, Self::Session(_) | Self::Container)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) data: NodeData,
    pub(crate) acl: AclRef,
    pub(crate) owner: Owner,
    pub(crate) czxid: Zxid,
    pub(crate) mzxid: Zxid,
    pub(crate) pzxid: Zxid,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    /// The number of children ever created. Deletes do not decrement it: it is the source of sequence
    /// numbers.
    pub(crate) child_creates: i32,
    /// Whether [`Tree::take_touched`] will visit it.
    pub(crate) touched: bool,
    pub(crate) children: Children,
}

impl Node {
    pub(crate) fn new(data: NodeData, acl: AclRef, owner: Owner, zxid: Zxid, unix_ms: i64) -> Self {
        Self {
            data,
            acl,
            owner,
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: unix_ms,
            mtime: unix_ms,
            version: 0,
            aversion: 0,
            child_creates: 0,
            touched: false,
            children: Children::default(),
        }
    }

    pub(crate) fn stat(&self) -> Stat {
        let num_children = self.children.len() as i32;
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            // Creates plus deletes: every created child has been deleted, except for the existing ones.
            cversion: self.child_creates.wrapping_mul(2).wrapping_sub(num_children),
            aversion: self.aversion,
            // ZooKeeper shows containers and TTL nodes without an owner.
            ephemeral_owner: match self.owner {
                Owner::Session(session) => session,
                _ => SessionId::NONE,
            },
            data_length: self.data.len() as i32,
            num_children,
            pzxid: self.pzxid,
        }
    }
}

/// All nodes, with indexes for fast lookups.
///
/// Records which paths were changed since the last [`Tree::take_touched`].
#[derive(Default)]
pub(crate) struct Tree {
    /// Boxed: up to half of the slots of a hash table are free.
    nodes: GradualMap<Arc<str>, Box<Node>>,
    /// Unordered: keeping thousands of nodes sorted would cost more than sorting them on request.
    ephemerals: GradualMap<SessionId, HashSet<Arc<str>>>,
    ephemeral_count: usize,
    /// Empty containers, and nodes with a time to live.
    reapable: BTreeSet<Arc<str>>,
    pub(crate) acls: AclTable,
    /// Nodes with a quota.
    pub(crate) quotas: AncestorMap<()>,
    touched: Vec<Touched>,
    bytes: usize,
}

/// A path whose record must be written. If a path occurs more than once, its node was removed and added again
/// in between, and the first entry counts.
struct Touched {
    path: Arc<str>,
    /// Whether the node did not exist before.
    is_new: bool,
}

/// The capacity for changed paths that is always kept.
const KEPT_TOUCHED: usize = 4096;

impl Tree {
    /// The tree of a new server.
    pub(crate) fn new() -> Self {
        let mut tree = Self::default();
        for path in SYSTEM_NODES {
            let permissions = match path {
                "/zookeeper/config" => Permissions::READ,
                _ => Permissions::ALL,
            };
            let acl = tree.acls.intern(Acl::world(permissions).into());
            let mut node = Node::new(Bytes::new().into(), acl, Owner::None, Zxid(0), 0);
            if path == "/zookeeper/config" {
                node.aversion = -1; // like ZooKeeper
            }
            tree.insert_new(path.into(), node);
        }
        for path in &SYSTEM_NODES[1..] {
            tree.link((*path).into());
        }
        tree
    }

    /// The empty path is an alias of `/`, as in ZooKeeper. Writes never use it.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(if path.is_empty() { "/" } else { path }).map(|node| &**node)
    }

    /// The node for modification. Its record will be written.
    pub(crate) fn touch(&mut self, path: &str) -> Option<&mut Node> {
        let (key, node) = self.nodes.get_key_value_mut(path)?;
        if !node.touched {
            self.touched.push(Touched { path: Arc::clone(key), is_new: false });
            node.touched = true;
        }
        Some(node)
    }

    /// Adds a node below an existing parent and counts the create. Returns the parent's access control list.
    pub(crate) fn insert(&mut self, path: &Arc<str>, node: Node) -> AclRef {
        let zxid = node.czxid;
        self.insert_new(Arc::clone(path), node);

        let parent_path = parent_of(path);
        let parent = self.touch(parent_path).expect("prepare checked that the parent exists");
        parent.children.insert(parent_path, Arc::clone(path));
        // As in ZooKeeper, the count stops at its maximum. If it wrapped around, new contenders would sort
        // before all others.
        parent.child_creates = parent.child_creates.saturating_add(1);
        parent.pzxid = zxid;

        let parent_acl = parent.acl.clone();
        if parent.owner == Owner::Container {
            self.reapable.remove(parent_path);
        }
        parent_acl
    }

    /// Removes an existing node without children. Returns its path, the node, and the parent's access control
    /// list.
    pub(crate) fn remove(&mut self, path: &str, zxid: Zxid) -> (Arc<str>, Node, AclRef) {
        let (key, node) =
            self.nodes.remove_entry(path).expect("prepare checked that the node exists");
        if !node.touched {
            self.touched.push(Touched { path: Arc::clone(&key), is_new: false });
        }
        self.bytes -= path.len() + node.data.len();
        self.acls.release(&node.acl);
        self.forget_owner(&key, node.owner);

        let parent_path = parent_of(path);
        let parent = self.touch(parent_path).expect("every node has a parent");
        parent.children.remove(parent_path, path);
        parent.pzxid = zxid;

        let parent_acl = parent.acl.clone();
        if parent.owner == Owner::Container && parent.children.is_empty() {
            let (parent_key, _) = self.nodes.get_key_value(parent_path).expect("just seen");
            self.reapable.insert(Arc::clone(parent_key));
        }
        (key, *node, parent_acl)
    }

    /// Replaces the data of an existing node.
    pub(crate) fn set_data(&mut self, path: &str, data: NodeData) -> &mut Node {
        let old = self.get(path).expect("prepare checked that the node exists").data.len();
        self.bytes = self.bytes - old + data.len();
        let node = self.touch(path).expect("just seen");
        node.data = data;
        node
    }

    /// Adds a new node. Its record will be written.
    fn insert_new(&mut self, key: Arc<str>, mut node: Node) {
        node.touched = true;
        self.touched.push(Touched { path: Arc::clone(&key), is_new: true });
        self.insert_unlinked(key, node);
    }

    /// Adds a node without adding it to its parent's children.
    fn insert_unlinked(&mut self, key: Arc<str>, node: Node) {
        self.bytes += key.len() + node.data.len();
        match node.owner {
            Owner::None => {}
            Owner::Session(session) => {
                let paths = self.ephemerals.or_insert_with(session, HashSet::default);
                paths.insert(Arc::clone(&key));
                self.ephemeral_count += 1;
            }
            Owner::Container | Owner::Ttl(_) => {
                self.reapable.insert(Arc::clone(&key));
            }
        }
        self.nodes.insert(key, Box::new(node));
    }

    /// Adds a node to its parent's children. Returns `false` if the parent does not exist.
    fn link(&mut self, key: Arc<str>) -> bool {
        let parent_path = parent_of(&key);
        let Some(parent) = self.nodes.get_mut(parent_path) else {
            return false;
        };
        if parent.owner == Owner::Container {
            self.reapable.remove(parent_path);
        }
        parent.children.insert(parent_path, Arc::clone(&key));
        true
    }

    fn forget_owner(&mut self, key: &str, owner: Owner) {
        match owner {
            Owner::None => {}
            Owner::Session(session) => {
                self.ephemeral_count -= 1;
                let paths = self.ephemerals.get_mut(&session).expect("the session owns this node");
                paths.remove(key);
                if paths.is_empty() {
                    self.ephemerals.remove(&session);
                }
            }
            Owner::Container | Owner::Ttl(_) => {
                self.reapable.remove(key);
            }
        }
    }

    /// The ephemeral nodes of a session, in arbitrary order.
    pub(crate) fn ephemerals_unsorted(
        &self,
        session: SessionId,
    ) -> impl Iterator<Item = &Arc<str>> {
        self.ephemerals.get(&session).into_iter().flatten()
    }

    /// The ephemeral nodes of a session, sorted.
    pub(crate) fn ephemerals(&self, session: SessionId) -> Vec<&Arc<str>> {
        let mut paths: Vec<_> = self.ephemerals_unsorted(session).collect();
        paths.sort_unstable();
        paths
    }

    /// The number of ephemeral nodes of a session.
    pub(crate) fn ephemerals_of(&self, session: SessionId) -> usize {
        self.ephemerals.get(&session).map_or(0, HashSet::len)
    }

    /// The sessions that own ephemeral nodes.
    pub(crate) fn owners(&self) -> impl Iterator<Item = SessionId> {
        self.ephemerals.keys().copied()
    }

    /// Empty containers, including those that never had a child, and nodes with a time to live, sorted: those
    /// after `after`, or all.
    pub(crate) fn reapable(&self, after: Option<&str>) -> impl Iterator<Item = &Arc<str>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.reapable.range::<str, _>((from, Bound::Unbounded))
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The memory use of all nodes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.bytes + self.nodes.len() * NODE_WEIGHT + self.acls.bytes()
    }

    pub(crate) fn ephemeral_count(&self) -> usize {
        self.ephemeral_count
    }

    /// The total length of all paths and data.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of nodes below `path`, without the node itself; `None` if there are more than `most`.
    /// Counting stops there. The total of the whole tree is known without counting.
    pub(crate) fn descendants(&self, path: &str, most: usize) -> Option<usize> {
        match path {
            "/" => return Some(self.len() - 1),
            // The empty path is an alias of `/`.
            "" => return Some(self.len()),
            _ => {}
        }

        let mut count = 0;
        let mut open: Vec<&str> = vec![path];
        while let Some(path) = open.pop() {
            let Some(node) = self.get(path) else { continue };
            count += node.children.len();
            if count > most {
                return None;
            }
            open.extend(node.children.iter().map(|child| &**child));
        }
        Some(count)
    }

    /// The number of nodes of a subtree, including its root, and the length of their data. A missing root
    /// counts as 0.
    pub(crate) fn weigh(&self, root: &str) -> (i64, i64) {
        let (mut count, mut bytes) = (0, 0);
        let mut open: Vec<&str> = vec![root];
        while let Some(path) = open.pop() {
            let Some(node) = self.get(path) else { continue };
            count += 1;
            bytes += node.data.len() as i64;
            open.extend(node.children.iter().map(|child| &**child));
        }
        (count, bytes)
    }

    /// The number of paths that [`Tree::take_touched`] visits.
    pub(crate) fn touched(&self) -> usize {
        self.touched.len()
    }

    /// Passes each changed path once to `each`: whether the node is new, and the node unless it was deleted.
    /// Nodes that were created and deleted in between are skipped.
    pub(crate) fn take_touched(&mut self, mut each: impl FnMut(&str, bool, Option<&Node>)) {
        for Touched { path, is_new } in self.touched.drain(..) {
            match self.nodes.get_mut(&path) {
                Some(node) if node.touched => {
                    node.touched = false;
                    each(&path, is_new, Some(node));
                }
                None if !is_new => each(&path, false, None),
                Some(_) | None => {}
            }
        }
        // Creating many nodes at once may have left a large capacity.
        self.touched.shrink_to(KEPT_TOUCHED);
    }

    /// Frees memory that large tables no longer need.
    pub(crate) fn shrink(&mut self) {
        self.nodes.shrink();
        self.ephemerals.shrink();
        self.ephemerals.values_mut().for_each(hash::shrink_set);
        self.touched.shrink_to_fit();
    }

    /// The capacity for nodes, sessions with ephemerals and changed paths.
    #[cfg(test)]
    pub(crate) fn room(&self) -> [usize; 3] {
        let (nodes, ephemerals) = (self.nodes.capacity(), self.ephemerals.capacity());
        [nodes, ephemerals, self.touched.capacity()]
    }

    /// Adds a node from storage, whose parent may follow later. Returns `false` if it exists already.
    pub(crate) fn restore(&mut self, path: &str, mut node: Node) -> bool {
        if self.get(path).is_some() {
            return false;
        }
        node.acl = self.acls.intern(node.acl);
        self.insert_unlinked(path.into(), node);
        true
    }

    /// Links restored nodes to their parents. The error is the path of a node without a parent.
    pub(crate) fn link_restored(&mut self) -> Result<(), Arc<str>> {
        let mut keys: Vec<Arc<str>> = self.nodes.keys().cloned().collect();
        keys.sort_unstable();
        for key in keys {
            if &*key != "/" && !self.link(Arc::clone(&key)) {
                return Err(key);
            }
        }
        Ok(())
    }

    /// All nodes, sorted by path.
    pub(crate) fn sorted(&self) -> Vec<(&Arc<str>, &Node)> {
        let nodes = self.nodes.iter().map(|(path, node)| (path, &**node));
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort_unstable_by_key(|(path, _)| *path);
        nodes
    }
}

/// The path without its last segment; `/` for direct children of `/`, and for `/` itself.
pub(crate) fn parent_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}
