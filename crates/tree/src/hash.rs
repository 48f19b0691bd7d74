//! Hash tables for paths and ids.
//!
//! A request looks a few paths up, and the standard library's hash is a good part of that. This one
//! is seeded from the standard library's own random state, so that clients cannot choose names that
//! collide unless they learn the seed. It does not claim to withstand those who go to such lengths,
//! who could as well fill the tree.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use foldhash::quality::{FixedState, FoldHasher};

/// A hash table with a quick hash.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, QuickHash>;

/// A set with a quick hash.
pub(crate) type HashSet<T> = std::collections::HashSet<T, QuickHash>;

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
