//! Hash tables for paths and ids.
//!
//! A request looks a few paths up, and the standard library's hash is a good part of that. This one
//! is seeded at random in each process too, so that clients cannot choose names that collide, unless
//! they learn the seed; it does not claim to withstand those who go to such lengths, who could as
//! well fill the tree.

/// A hash table with a quick hash.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::quality::RandomState>;
