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

/// Nodes that exist from the start and that nobody can delete.
pub(crate) const SYSTEM_NODES: [&str; 4] =
    ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

/// What a node weighs besides its path, its data and its list: itself, and its places in the tables
/// and in its parent's list, as measured with the allocator of the command.
pub(crate) const NODE_WEIGHT: usize = 400;

/// What a node's life depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Lives until it is deleted.
    Nobody,
    /// Ephemeral.
    Session(SessionId),
    /// Deleted some time after its last child has gone.
    Container,
    /// Deleted when it is empty and its data was not changed for so many milliseconds.
    Ttl(i64),
}

impl Owner {
    /// Whether the node is ephemeral.
    pub(crate) fn is_session(self) -> bool {
        matches!(self, Self::Session(_))
    }

    /// Whether it is a node of the kinds that locks are made of: their own, and the containers that these
    /// are in.
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
    /// How many children were ever created, deletes not counted: the source of sequence numbers.
    pub(crate) child_creates: i32,
    /// Whether [`Tree::take_touched`] will come to it.
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
            // Creates plus deletes: every create was followed by a delete, except for those of the
            // children that are there.
            cversion: self.child_creates.wrapping_mul(2).wrapping_sub(num_children),
            aversion: self.aversion,
            // ZooKeeper shows containers and TTL nodes as owned by nobody.
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

/// All nodes, and what has to be found quickly among them.
///
/// Remembers which paths were touched since the last [`Tree::take_touched`].
#[derive(Default)]
pub(crate) struct Tree {
    /// Boxed: a hash table keeps up to half of its places free.
    nodes: GradualMap<Arc<str>, Box<Node>>,
    /// In no order: finding the place of each among thousands would cost more
    /// than sorting them when they are asked for.
    ephemerals: GradualMap<SessionId, HashSet<Arc<str>>>,
    ephemeral_count: usize,
    /// Containers without children, and nodes with a time to live.
    reapable: BTreeSet<Arc<str>>,
    pub(crate) acls: AclTable,
    /// Nodes with a quota.
    pub(crate) quotas: AncestorMap<()>,
    touched: Vec<Touched>,
    bytes: usize,
}

/// A path whose record is to be written. If it is there more than once, its node was taken out and
/// put back in between, and the first counts.
struct Touched {
    path: Arc<str>,
    /// Whether there was no such node before.
    is_new: bool,
}

/// How many touched paths there is room for at any time.
const TOUCHED: usize = 4096;

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
            let mut node = Node::new(Bytes::new().into(), acl, Owner::Nobody, Zxid(0), 0);
            if path == "/zookeeper/config" {
                node.aversion = -1; // as ZooKeeper has it
            }
            tree.insert_new(path.into(), node);
        }
        for path in &SYSTEM_NODES[1..] {
            tree.link((*path).into());
        }
        tree
    }

    /// The empty path is another name of `/`, as in ZooKeeper. No write gets here with it.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(if path.is_empty() { "/" } else { path }).map(|node| &**node)
    }

    /// The node, to be changed: its record will be written.
    pub(crate) fn touch(&mut self, path: &str) -> Option<&mut Node> {
        let (key, node) = self.nodes.get_key_value_mut(path)?;
        if !node.touched {
            self.touched.push(Touched { path: Arc::clone(key), is_new: false });
            node.touched = true;
        }
        Some(node)
    }

    /// Adds a node below a parent that exists, and counts the create; the parent's access list.
    pub(crate) fn insert(&mut self, path: &Arc<str>, node: Node) -> AclRef {
        let zxid = node.czxid;
        self.insert_new(Arc::clone(path), node);

        let parent_path = parent_of(path);
        let parent = self.touch(parent_path).expect("prepare found it");
        parent.children.insert(parent_path, Arc::clone(path));
        // As in ZooKeeper, the count stays at its end: wrapped around, the numbers of newcomers
        // would sort before everybody's.
        parent.child_creates = parent.child_creates.saturating_add(1);
        parent.pzxid = zxid;

        let parent_acl = parent.acl.clone();
        if parent.owner == Owner::Container {
            self.reapable.remove(parent_path);
        }
        parent_acl
    }

    /// Takes a node out that exists and has no children; with its path and the parent's access
    /// list.
    pub(crate) fn remove(&mut self, path: &str, zxid: Zxid) -> (Arc<str>, Node, AclRef) {
        let (key, node) = self.nodes.remove_entry(path).expect("prepare found it");
        if !node.touched {
            self.touched.push(Touched { path: Arc::clone(&key), is_new: false });
        }
        self.bytes -= path.len() + node.data.len();
        self.acls.release(&node.acl);
        self.forget_owner(&key, node.owner);

        let parent_path = parent_of(path);
        let parent = self.touch(parent_path).expect("every node has its parent");
        parent.children.remove(parent_path, path);
        parent.pzxid = zxid;

        let parent_acl = parent.acl.clone();
        if parent.owner == Owner::Container && parent.children.is_empty() {
            let (parent_key, _) = self.nodes.get_key_value(parent_path).expect("just seen");
            self.reapable.insert(Arc::clone(parent_key));
        }
        (key, *node, parent_acl)
    }

    /// Replaces the data of a node that exists.
    pub(crate) fn set_data(&mut self, path: &str, data: NodeData) -> &mut Node {
        let old = self.get(path).expect("prepare found it").data.len();
        self.bytes = self.bytes - old + data.len();
        let node = self.touch(path).expect("just seen");
        node.data = data;
        node
    }

    /// Adds a node that was not there, to be written.
    fn insert_new(&mut self, key: Arc<str>, mut node: Node) {
        node.touched = true;
        self.touched.push(Touched { path: Arc::clone(&key), is_new: true });
        self.insert_unlinked(key, node);
    }

    /// Adds a node without telling its parent.
    fn insert_unlinked(&mut self, key: Arc<str>, node: Node) {
        self.bytes += key.len() + node.data.len();
        match node.owner {
            Owner::Nobody => {}
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

    /// Tells a node's parent of it; `false` if there is no parent.
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
            Owner::Nobody => {}
            Owner::Session(session) => {
                self.ephemeral_count -= 1;
                let paths = self.ephemerals.get_mut(&session).expect("it has this node");
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

    /// The ephemeral nodes of a session, in no order.
    pub(crate) fn ephemerals_unsorted(
        &self,
        session: SessionId,
    ) -> impl Iterator<Item = &Arc<str>> {
        self.ephemerals.get(&session).into_iter().flatten()
    }

    /// The ephemeral nodes of a session, in order.
    pub(crate) fn ephemerals(&self, session: SessionId) -> Vec<&Arc<str>> {
        let mut paths: Vec<_> = self.ephemerals_unsorted(session).collect();
        paths.sort_unstable();
        paths
    }

    /// How many ephemeral nodes a session has.
    pub(crate) fn ephemerals_of(&self, session: SessionId) -> usize {
        self.ephemerals.get(&session).map_or(0, HashSet::len)
    }

    /// The sessions that own ephemeral nodes.
    pub(crate) fn owners(&self) -> impl Iterator<Item = SessionId> {
        self.ephemerals.keys().copied()
    }

    /// Containers without children, those that never had any included, and nodes with a time to live,
    /// in order: those behind `after`, or all.
    pub(crate) fn reapable(&self, after: Option<&str>) -> impl Iterator<Item = &Arc<str>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.reapable.range::<str, _>((from, Bound::Unbounded))
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// What all nodes weigh, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.bytes + self.nodes.len() * NODE_WEIGHT + self.acls.bytes()
    }

    pub(crate) fn ephemeral_count(&self) -> usize {
        self.ephemeral_count
    }

    /// Lengths of all paths and data.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many nodes are below `path`, not counting itself; `None` if there are more than `most`,
    /// which then are not counted further. All nodes together are known without counting.
    pub(crate) fn descendants(&self, path: &str, most: usize) -> Option<usize> {
        match path {
            "/" => return Some(self.len() - 1),
            // Below its other name is `/` itself.
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

    /// How many nodes a subtree has, its root included, and the length of their data. A root that is
    /// missing counts for nothing.
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

    /// How many paths [`Tree::take_touched`] looks at.
    pub(crate) fn touched(&self) -> usize {
        self.touched.len()
    }

    /// Hands out what was touched since the last call and differs from what was there then: each
    /// path once, whether it is new, and its node unless that is gone. A node that came and went is
    /// left out.
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
        // A mass of nodes that came at once may have left it long.
        self.touched.shrink_to(TOUCHED);
    }

    /// Gives the memory back that large tables have for more than the tree holds now.
    pub(crate) fn shrink(&mut self) {
        self.nodes.shrink();
        self.ephemerals.shrink();
        self.ephemerals.values_mut().for_each(hash::shrink_set);
        self.touched.shrink_to_fit();
    }

    /// For how many nodes, sessions with ephemerals and touched paths there is memory.
    #[cfg(test)]
    pub(crate) fn room(&self) -> [usize; 3] {
        let (nodes, ephemerals) = (self.nodes.capacity(), self.ephemerals.capacity());
        [nodes, ephemerals, self.touched.capacity()]
    }

    /// Adds a node from storage, whose parent may come later; `false` if it is there already.
    pub(crate) fn restore(&mut self, path: &str, mut node: Node) -> bool {
        if self.get(path).is_some() {
            return false;
        }
        node.acl = self.acls.intern(node.acl);
        self.insert_unlinked(path.into(), node);
        true
    }

    /// Ties restored nodes to their parents; the path of a node that has none is the error.
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

    /// All nodes, in order of their paths.
    pub(crate) fn sorted(&self) -> Vec<(&Arc<str>, &Node)> {
        let nodes = self.nodes.iter().map(|(path, node)| (path, &**node));
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort_unstable_by_key(|(path, _)| *path);
        nodes
    }
}

/// The path without its last segment; `/` for everything directly below it, and for itself.
pub(crate) fn parent_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}
