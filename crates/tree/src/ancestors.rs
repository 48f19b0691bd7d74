//! A hash table that looks up a path and all its ancestors in one pass.
//!
//! Quotas and recursive watches apply to everything below their nodes, so each change looks them up at every
//! level of its path. Hashing each of these paths from its beginning takes time proportional to the length of
//! the path times its levels. Here, the hash of a path is computed from the hash of its parent and its last
//! segment.

use std::hash::{BuildHasher as _, Hash, Hasher};
use std::sync::Arc;

use hashbrown::Equivalent;

use crate::gradual::GradualMap;
use crate::hash::QuickHash;

/// Values for paths that also apply to their descendants.
pub(crate) struct AncestorMap<V> {
    entries: GradualMap<PathKey, V>,
    hasher: QuickHash,
}

/// A path with its hash, so that the table does not hash it again.
#[derive(PartialEq, Eq)]
struct PathKey {
    hash: u64,
    path: Arc<str>,
}

impl Hash for PathKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// A path to look up.
#[derive(Clone, Copy)]
struct Level<'a> {
    hash: u64,
    path: &'a str,
}

impl Hash for Level<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

impl Equivalent<PathKey> for Level<'_> {
    fn equivalent(&self, key: &PathKey) -> bool {
        self.hash == key.hash && *self.path == *key.path
    }
}

impl<V> Default for AncestorMap<V> {
    fn default() -> Self {
        Self { entries: GradualMap::default(), hasher: QuickHash::default() }
    }
}

impl<V> AncestorMap<V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// The value of exactly this path, which is added if it is missing.
    pub(crate) fn or_insert_with(&mut self, path: Arc<str>, value: impl FnOnce() -> V) -> &mut V {
        let Level { hash, .. } = self.level(&path);
        self.entries.or_insert_with(PathKey { hash, path }, value)
    }

    /// The value of exactly this path.
    pub(crate) fn get_mut(&mut self, path: &str) -> Option<&mut V> {
        let level = self.level(path);
        self.entries.get_mut(&level)
    }

    pub(crate) fn remove(&mut self, path: &str) -> Option<V> {
        let level = self.level(path);
        self.entries.remove(&level)
    }

    /// The values that apply to `path`, from `/` down to the path itself, each with its path.
    pub(crate) fn above<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a V)> {
        // An empty table does not need the hashes.
        let levels = (!self.is_empty()).then(|| self.levels(path)).into_iter().flatten();
        levels.filter_map(|level| Some((level.path, self.entries.get(&level)?)))
    }

    fn level<'a>(&self, path: &'a str) -> Level<'a> {
        let whole = Level { hash: 0, path };
        self.levels(path).last().map_or(whole, |level| Level { path, ..level })
    }

    /// `/`, then one more segment each time.
    fn levels<'a>(&'a self, path: &'a str) -> impl Iterator<Item = Level<'a>> {
        let slashes = path.match_indices('/').map(|(at, _)| at);
        let (mut hash, mut begin) = (0, 0);
        let below = slashes.chain([path.len()]).filter(|end| *end > 1).map(move |end| {
            hash = self.hasher.hash_one((hash, &path[begin..end]));
            begin = end;
            Level { hash, path: &path[..end] }
        });
        std::iter::once(Level { hash: 0, path: "/" }).chain(below)
    }

    /// Frees memory that is reserved for many more paths than the table contains.
    pub(crate) fn shrink(&mut self) {
        self.entries.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(map: &'a AncestorMap<i32>, path: &'a str) -> Vec<(&'a str, i32)> {
        map.above(path).map(|(path, value)| (path, *value)).collect()
    }

    #[test]
    fn what_is_above_is_found_from_the_root_down() {
        let mut map = AncestorMap::default();
        assert!(found(&map, "/a/b").is_empty());
        for (value, path) in ["/", "/a", "/a/b", "/a/b/c", "/ab", "/b"].into_iter().enumerate() {
            *map.or_insert_with(path.into(), || 0) += value as i32;
        }
        assert_eq!(found(&map, "/a/b"), [("/", 0), ("/a", 1), ("/a/b", 2)]);
        assert_eq!(found(&map, "/ab/c"), [("/", 0), ("/ab", 4)]);
        assert_eq!(found(&map, "/"), [("/", 0)]);
        assert_eq!(map.remove("/a"), Some(1));
        assert_eq!(map.get_mut("/a"), None);
        assert_eq!(found(&map, "/a/b/c/d"), [("/", 0), ("/a/b", 2), ("/a/b/c", 3)]);
    }

    /// E25: each level was hashed from the beginning of the path, which took a hundred times as long. Fails
    /// with that implementation.
    #[test]
    fn the_levels_of_a_path_are_hashed_in_one_pass() {
        const LEVELS: usize = 250;
        const LEN: usize = 1 << 20;
        let deep = format!("/{}", "n".repeat(LEN / LEVELS - 1)).repeat(LEVELS);
        let flat = format!("/{}", "n".repeat(deep.len() - 1));
        let mut map = AncestorMap::default();
        map.or_insert_with("/".into(), || 0);

        // The fastest of several runs, to reduce the effect of other processes.
        let quickest = |path: &str| {
            let time = || {
                let began = std::time::Instant::now();
                assert_eq!(map.above(path).count(), 1);
                began.elapsed()
            };
            (0..10).map(|_| time()).min().unwrap()
        };
        let (deep, flat) = (quickest(&deep), quickest(&flat));
        assert!(deep < 20 * flat, "{deep:?} for {LEVELS} levels, {flat:?} for one as long");
    }

    /// A client may watch a path that no node can have. It is not an ancestor of other paths.
    #[test]
    fn what_is_no_path_is_only_itself() {
        let mut map = AncestorMap::default();
        const STRANGE: [&str; 9] = ["", "a", "/a/", "//", "//a", "/a//b", "a/b", "aé/ü", "//é"];
        for (value, path) in STRANGE.into_iter().enumerate() {
            *map.or_insert_with(path.into(), || 0) += value as i32;
        }
        assert!(found(&map, "/a/b").is_empty());
        for (value, path) in STRANGE.into_iter().enumerate() {
            assert_eq!(map.remove(path), Some(value as i32), "{path}");
        }
        assert!(map.is_empty());
    }
}
