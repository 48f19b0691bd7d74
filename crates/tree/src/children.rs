//! The children of one node.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::lengths::LEN;

/// Whole paths, shared with the keys of the tree, and what a list of their names would weigh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Children {
    paths: BTreeSet<Arc<str>>,
    /// Lengths of all names. Names of more than 4 GiB are more than any frame could list.
    name_bytes: u32,
}

impl Children {
    /// Adds a child of the node at `parent`.
    pub(crate) fn insert(&mut self, parent: &str, path: Arc<str>) {
        let len = name_len(parent, &path);
        if self.paths.insert(path) {
            self.name_bytes = self.name_bytes.saturating_add(len);
        }
    }

    /// Takes a child of the node at `parent` out.
    pub(crate) fn remove(&mut self, parent: &str, path: &str) {
        if self.paths.remove(path) {
            self.name_bytes = self.name_bytes.saturating_sub(name_len(parent, path));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Their paths, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.paths.iter()
    }

    /// How many bytes the list of their names takes on the wire. Known without a look at them: so
    /// one that is too long costs nothing.
    pub(crate) fn list_len(&self) -> usize {
        LEN + self.paths.len() * LEN + self.name_bytes as usize
    }
}

/// The last segment of the path of a child.
fn name_len(parent: &str, path: &str) -> u32 {
    let begin = if parent == "/" { 1 } else { parent.len() + 1 };
    (path.len() - begin) as u32
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use lockkeeper_wire::Record as _;

    use super::*;

    #[test]
    fn the_length_of_the_list_is_what_is_sent() {
        for (parent, prefix) in [("/", "/"), ("/a/b", "/a/b/")] {
            let mut children = Children::default();
            let check = |children: &Children| {
                let names = children.iter().map(|path| path[prefix.len()..].to_owned());
                let mut out = BytesMut::new();
                names.collect::<Vec<String>>().encode(&mut out);
                assert_eq!(children.list_len(), out.len());
            };
            for name in ["x", "longer", "lock-0000000001", "x"] {
                children.insert(parent, format!("{prefix}{name}").into());
                check(&children);
            }
            assert_eq!(children.len(), 3);
            for name in ["longer", "missing", "x"] {
                children.remove(parent, &format!("{prefix}{name}"));
                check(&children);
            }
        }
    }
}
