//! The recipe that uses a path, as far as its znode, its children and their data show (pure).

use bytes::Bytes;
use lockkeeper_client::{SessionId, Stat, ZnodePath};
use lockkeeper_locks::inspect::KnownTree;
use lockkeeper_locks::{OwnerInfo, Usage};

use crate::discovery::Instance;

/// A recipe that uses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathUse {
    /// A lock or an election.
    Lock,
    /// A [`Queue`](crate::Queue).
    Queue,
    /// A [`Pool`](crate::Pool).
    Pool,
    /// A [`Publication`](crate::Publication).
    Value,
    /// A [`Counter`](crate::Counter).
    Counter,
    /// [`WorkerIds`](crate::WorkerIds).
    Ids,
    /// A [`Group`](crate::Group). A single-znode lock of another library looks the same.
    Group,
    /// A service of a [`ServiceDirectory`](crate::ServiceDirectory).
    Service,
    /// A [`DoubleBarrier`](crate::DoubleBarrier) or a [`CountDownLatch`](crate::CountDownLatch).
    Barrier,
}

/// The beginning of a znode's data, for recipes that mark it.
const MARKS: [(&[u8], PathUse); 5] = [
    (b"{\"lockkeeper-queue\"", PathUse::Queue),
    (b"{\"lockkeeper-pool\"", PathUse::Pool),
    (b"{\"lockkeeper_publication\"", PathUse::Value),
    (b"{\"lockkeeper-double-barrier\"", PathUse::Barrier),
    (b"{\"lockkeeper-latch\"", PathUse::Barrier),
];

/// Pairs of children that only one recipe has.
const CHILDREN: [([&str; 2], PathUse); 3] = [
    (["entries", "claims"], PathUse::Queue),
    (["held", "reserved"], PathUse::Ids),
    (["held", "line"], PathUse::Pool),
];

/// The children of recipes that have locks of their own, or ephemeral znodes, in them.
const PARTS: [(PathUse, &[&str]); 3] = [
    (
        PathUse::Queue,
        &[
            "answers", "bodies", "busy", "claims", "dead", "entries", "ids", "line", "parts",
            "putters", "slots", "workers",
        ],
    ),
    (PathUse::Ids, &["held", "reserved"]),
    (PathUse::Barrier, &["closed", "count", "left", "rounds"]),
];

impl PathUse {
    /// Whether this recipe made a child of its path, in which nothing is a lock of a program.
    pub fn is_part(self, child: &str) -> bool {
        PARTS.iter().any(|(recipe, names)| *recipe == self && names.contains(&child))
    }

    /// Recognizes a recipe by the data of the znode and the names of its children.
    pub fn of(data: &[u8], names: &[String]) -> Option<Self> {
        Self::by_data(data)
            .or_else(|| Self::by_children(names))
            .or_else(|| is_number(data).then_some(Self::Counter))
    }

    /// Recognizes a recipe only by the data of the znode.
    pub fn by_data(data: &[u8]) -> Option<Self> {
        MARKS.iter().find(|(mark, _)| data.starts_with(mark)).map(|(_, found)| *found)
    }

    /// Recognizes a recipe only by the names of the children.
    pub fn by_children(names: &[String]) -> Option<Self> {
        let is_contender = |name: &String| Usage::of(std::slice::from_ref(name)).is_some();
        if Usage::of(names).is_some() || names.iter().any(is_contender) {
            return Some(Self::Lock);
        }
        let has = |name: &&str| names.iter().any(|own| own == *name);
        let found = CHILDREN.iter().find(|(children, _)| children.iter().all(has));
        found.map(|(_, found)| *found)
    }

    /// Recognizes a recipe by one child, its data and its stat. A group and a service show only in their
    /// ephemeral children.
    pub fn by_child(path: &ZnodePath, data: &[u8], stat: &Stat) -> Option<Self> {
        // A single-znode lock or barrier does not show how its parent is used. The root is no group.
        if stat.ephemeral_owner == SessionId::NONE
            || OwnerInfo::from_data(data).is_some()
            || path.is_root()
        {
            return None;
        }
        let instance = Instance::from_json(data).ok();
        let is_instance = instance.is_some_and(|it| it.service == path.name() && !it.id.is_empty());
        Some(if is_instance { Self::Service } else { Self::Group })
    }

    /// Recognizes a recipe by everything in a tree in memory. No I/O.
    pub fn in_tree(tree: &impl KnownTree, path: &ZnodePath) -> Option<Self> {
        let (data, _) = tree.node(path.as_str())?;
        let names = tree.children(path.as_str());
        Self::of(&data, &names).or_else(|| {
            let child = |name: &String| tree.node(path.child(name).ok()?.as_str());
            let by_child = |(data, stat): (Bytes, Stat)| Self::by_child(path, &data, &stat);
            names.iter().filter_map(child).find_map(by_child)
        })
    }
}

/// Whether data is a number in Curator's binary format, and so not text.
fn is_number(data: &[u8]) -> bool {
    data.len() == 8 && matches!(data[0], 0 | 0xff)
}

#[cfg(test)]
mod tests {
    use lockkeeper_locks::for_recipes::owner_data;

    use super::*;
    use crate::overview::tests::{TestTree, ephemeral};

    fn found(tree: &TestTree, path: &str) -> Option<PathUse> {
        PathUse::in_tree(tree, &ZnodePath::new(path).unwrap())
    }

    #[test]
    fn each_recipe_is_known_by_its_layout() {
        let tree = TestTree::new()
            .with("/jobs", "{\"lockkeeper-queue\":1}")
            .with("/old/entries", "")
            .with("/old/claims", "")
            .with("/gpu", "{\"lockkeeper-pool\":1}")
            .with("/ids/held", "")
            .with("/ids/reserved", "")
            .with("/hits", "\0\0\0\0\0\0\0\u{7}")
            .with("/lock/_c_5e1d0b5c-7a5e-4d2c-9f0e-0123456789ab-lock-0000000007", ephemeral(1, ""))
            .with("/workers/a", ephemeral(1, ""))
            .with("/services/web/7", ephemeral(1, "{\"name\":\"web\",\"id\":\"7\"}"))
            .with("/controller", ephemeral(1, "broker 3"))
            .with("/plain/below", "text");
        let expected = [
            ("/jobs", Some(PathUse::Queue)),
            ("/old", Some(PathUse::Queue)),
            ("/gpu", Some(PathUse::Pool)),
            ("/ids", Some(PathUse::Ids)),
            ("/hits", Some(PathUse::Counter)),
            ("/lock", Some(PathUse::Lock)),
            ("/workers", Some(PathUse::Group)),
            ("/services/web", Some(PathUse::Service)),
            ("/services", None),
            ("/plain", None),
            ("/nothing", None),
            ("/", None),
        ];
        for (path, usage) in expected {
            assert_eq!(found(&tree, path), usage, "{path}");
        }
    }

    #[test]
    fn a_lock_that_is_one_znode_makes_no_group_of_its_parent() {
        let owner = owner_data(&OwnerInfo::current(None));
        let owner = String::from_utf8(owner.to_vec()).unwrap();
        let tree = TestTree::new().with("/locks/a", ephemeral(1, &owner));
        assert_eq!(found(&tree, "/locks"), None);
    }
}
