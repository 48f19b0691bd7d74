//! The children of one node.

use std::sync::Arc;

use crate::lengths::LEN;

/// The maximum number of paths in a run. Adding a path moves half a run on average.
const MAX_RUN: usize = 256;

/// Complete paths, shared with the keys of the tree, and the encoded size of the list of names.
///
/// Binary search finds the run and then the position in it. This compares half as many paths as a lookup in
/// the standard library's ordered set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children {
    /// Sorted runs in sorted order. Empty runs are removed, except the last one of a node: its next child
    /// usually follows soon.
    runs: Vec<Vec<Arc<str>>>,
    count: u32,
    /// The total length of all names. More than 4 GiB does not fit into any frame.
    name_bytes: u32,
}

impl Children {
    /// Adds a child of the node at `parent`.
    pub(crate) fn insert(&mut self, parent: &str, path: Arc<str>) {
        let (run, place) = self.place(&path);
        let Err(place) = place else { return };
        self.count += 1;
        self.name_bytes = self.name_bytes.saturating_add(name_len(parent, &path));

        let Some(paths) = self.runs.get_mut(run) else { return self.runs.push(vec![path]) };
        match paths.len() < MAX_RUN {
            true => paths.insert(place, path),
            // After all others, as with increasing numbers: no space is left between them.
            false if place == MAX_RUN => self.runs.insert(run + 1, vec![path]),
            false => {
                let mut upper = paths.split_off(MAX_RUN / 2);
                match place <= MAX_RUN / 2 {
                    true => paths.insert(place, path),
                    false => upper.insert(place - MAX_RUN / 2, path),
                }
                self.runs.insert(run + 1, upper);
            }
        }
    }

    /// Removes a child of the node at `parent`.
    pub(crate) fn remove(&mut self, parent: &str, path: &str) {
        let (run, Ok(place)) = self.place(path) else { return };
        self.count -= 1;
        self.name_bytes = self.name_bytes.saturating_sub(name_len(parent, path));

        self.runs[run].remove(place);
        let left = self.runs[run].len();
        let next = self.runs.get(run + 1).map_or(MAX_RUN, Vec::len);
        if left + next <= MAX_RUN / 2 {
            let next = self.runs.remove(run + 1);
            self.runs[run].extend(next);
        } else if left == 0 && self.runs.len() > 1 {
            self.runs.remove(run);
        } else if self.runs[run].capacity() > 4 * left.max(4) {
            self.runs[run].shrink_to(2 * left);
        }
    }

    /// The run that contains a path or would contain it, and its position there.
    fn place(&self, path: &str) -> (usize, Result<usize, usize>) {
        let is_before = |run: &Vec<Arc<str>>| run.last().is_some_and(|last| **last < *path);
        let Some((last, others)) = self.runs.split_last() else { return (0, Err(0)) };
        // Fast path for increasing numbers.
        if is_before(last) {
            return (others.len(), Err(last.len()));
        }
        let run = others.partition_point(is_before);
        (run, self.runs[run].binary_search_by(|other| (**other).cmp(path)))
    }

    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The paths, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.runs.iter().flatten()
    }

    /// The encoded size of the list of names, in bytes. It is maintained incrementally, so checking a list
    /// that is too long costs nothing.
    pub(crate) fn list_len(&self) -> usize {
        LEN + self.len() * LEN + self.name_bytes as usize
    }
}

impl PartialEq for Children {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Children {}

/// The length of the last segment of a child's path.
fn name_len(parent: &str, path: &str) -> u32 {
    let begin = if parent == "/" { 1 } else { parent.len() + 1 };
    (path.len() - begin) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bytes::BytesMut;
    use lockkeeper_wire::Record as _;
    use proptest::prelude::*;

    use super::*;

    /// The total capacity of all runs.
    fn room(children: &Children) -> usize {
        children.runs.iter().map(Vec::capacity).sum()
    }

    #[test]
    fn numbers_that_grow_fill_the_runs() {
        let mut children = Children::default();
        for n in 0..20 * MAX_RUN {
            children.insert("/", format!("/lock-{n:010}").into());
        }
        assert_eq!((children.runs.len(), room(&children)), (20, 20 * MAX_RUN));
    }

    #[test]
    fn who_comes_next_to_an_empty_place_needs_no_memory() {
        let mut children = Children::default();
        children.insert("/", "/a".into());
        let before = room(&children);
        children.remove("/", "/a");
        assert_eq!((children.iter().count(), room(&children)), (0, before));
        children.insert("/", "/b".into());
        assert_eq!(room(&children), before);
    }

    proptest! {
        /// Equivalent to the standard library's set, with names that are added and removed in bulk.
        #[test]
        fn they_are_in_order(
            parts in prop::collection::vec((0u32..3_000, 0u32..2_000, 1u32..9, any::<bool>()), 1..10),
        ) {
            let (mut children, mut model) = (Children::default(), BTreeSet::new());
            for (first, count, step, adds) in parts {
                for n in (first..first + count).step_by(step as usize) {
                    let path = format!("/d/{n}");
                    match adds {
                        true => children.insert("/d", path.as_str().into()),
                        false => children.remove("/d", &path),
                    }
                    _ = if adds { model.insert(path) } else { model.remove(&path) };
                }
                prop_assert_eq!(children.len(), model.len());
                prop_assert!(children.iter().map(|path| &**path).eq(&model));
                let largest = children.runs.iter().map(Vec::len).max();
                prop_assert!(largest <= Some(MAX_RUN), "{largest:?}");
                prop_assert!(room(&children) <= 8 * model.len() + 16, "{}", room(&children));
            }
        }
    }

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
