//! Hash tables for paths and ids.
//!
//! A request looks up several paths, and the standard library's hash takes a considerable part of that time.
//! This hash is faster. It is seeded from the standard library's own random state, so that clients cannot
//! choose colliding names unless they learn the seed. It does not withstand an attacker who recovers the
//! seed; such an attacker could as well fill the tree.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::OnceLock;

use foldhash::quality::{FixedState, FoldHasher};

/// A hash map with a fast hash.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, QuickHash>;

/// A hash set with a fast hash.
pub(crate) type HashSet<T> = std::collections::HashSet<T, QuickHash>;

/// Frees memory that is reserved for more than four times the content. By itself a table keeps the capacity
/// of its largest size.
pub(crate) fn shrink<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    // The sizes are powers of two, so a fuller table does not change.
    table.shrink_to(2 * table.len());
}

/// The same for a set.
pub(crate) fn shrink_set<T: Eq + Hash>(set: &mut HashSet<T>) {
    set.shrink_to(2 * set.len());
}

/// A hash that is seeded once per process.
///
/// Not the `RandomState` of the crate, which takes its seed from a clock.
#[derive(Clone)]
pub(crate) struct QuickHash(FixedState);

impl Default for QuickHash {
    fn default() -> Self {
        static SEED: OnceLock<u64> = OnceLock::new();
        Self(FixedState::with_seed(*SEED.get_or_init(|| RandomState::new().hash_one(()))))
    }
}

impl BuildHasher for QuickHash {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shrinks_if_little_is_left_and_keeps_that() {
        let mut table: HashMap<u32, u32> = (0..10_000).map(|i| (i, i)).collect();
        table.retain(|key, _| key % 2 == 0);
        let before = table.capacity();
        shrink(&mut table);
        assert_eq!(table.capacity(), before, "half full is not shrunk");
        table.retain(|key, _| key % 30 == 0);
        shrink(&mut table);
        assert!((700..2_000).contains(&table.capacity()), "{}", table.capacity());
        assert!((0..10_000).step_by(30).all(|key| table.get(&key) == Some(&key)));
        assert_eq!(table.len(), 334);
    }
}
