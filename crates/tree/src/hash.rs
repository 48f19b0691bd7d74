//! Hash tables for paths and ids.
//!
//! A request looks a few paths up, and the standard library's hash is a good part of that. This one
//! is seeded from the standard library's own random state, so that clients cannot choose names that
//! collide unless they learn the seed. It does not claim to withstand those who go to such lengths,
//! who could as well fill the tree.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::OnceLock;

use foldhash::quality::{FixedState, FoldHasher};

/// A hash table with a quick hash.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, QuickHash>;

/// A set with a quick hash.
pub(crate) type HashSet<T> = std::collections::HashSet<T, QuickHash>;

/// Gives the memory of a table back that is there for more than four times what it holds. By itself
/// a table keeps what it had when it held most.
pub(crate) fn shrink<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    // As its sizes are powers of two, a table that is fuller stays as it is.
    table.shrink_to(2 * table.len());
}

/// The same for a set.
pub(crate) fn shrink_set<T: Eq + Hash>(set: &mut HashSet<T>) {
    set.shrink_to(2 * set.len());
}

/// A hash that is seeded once in a process.
///
/// Not the `RandomState` of its library, which takes its seed from a clock.
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
        assert_eq!(table.capacity(), before, "half is not little");
        table.retain(|key, _| key % 30 == 0);
        shrink(&mut table);
        assert!((700..2_000).contains(&table.capacity()), "{}", table.capacity());
        assert!((0..10_000).step_by(30).all(|key| table.get(&key) == Some(&key)));
        assert_eq!(table.len(), 334);
    }
}
