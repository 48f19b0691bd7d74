//! A hash table that grows and shrinks incrementally.
//!
//! An ordinary table moves all its entries when it grows: with a million paths that takes a tenth of a
//! second, during which no client is served. This table consists of small parts. After every few hundred
//! insertions one part is split, and after as many removals two parts are merged (linear hashing). So no call
//! moves more than a few thousand entries, regardless of the size of the table.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::hash_table::Entry;
use hashbrown::{Equivalent, HashTable};

use crate::hash::QuickHash;

/// The average number of entries per part at which the next part is split. The largest parts then have about
/// twice as many.
const PART_ENTRIES: usize = 384;

/// A hash table in which every call is fast, regardless of its size.
///
/// Uses `HashTable` because the standard library's maps would hash the key a second time within the part.
pub(crate) struct GradualMap<K, V> {
    /// Never empty. A key is in the part whose index is its hash modulo the smallest power of two that is not
    /// less than the number of parts or, if that part does not exist yet, modulo half of that.
    parts: Vec<HashTable<Slot<K, V>>>,
    len: usize,
    hasher: QuickHash,
}

/// An entry with the hash of its key. Moving it does not need the key, which is elsewhere in memory.
struct Slot<K, V> {
    hash: u64,
    key: K,
    value: V,
}

/// A type by which an entry with a key of type `K` can be found.
pub(crate) trait Key<K>: Equivalent<K> + Hash {}

impl<K, Q: Equivalent<K> + Hash + ?Sized> Key<K> for Q {}

impl<K, V> Default for GradualMap<K, V> {
    fn default() -> Self {
        Self { parts: vec![HashTable::new()], len: 0, hasher: QuickHash::default() }
    }
}

impl<K: Eq + Hash, V> GradualMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: &(impl Key<K> + ?Sized)) -> Option<&V> {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub(crate) fn get_key_value(&self, key: &(impl Key<K> + ?Sized)) -> Option<(&K, &V)> {
        // Fast path for servers without watches.
        if self.len == 0 {
            return None;
        }
        let (part, hash) = self.place(key);
        let found = self.parts[part].find(hash, |slot| slot.has(hash, key));
        found.map(|slot| (&slot.key, &slot.value))
    }

    pub(crate) fn get_mut(&mut self, key: &(impl Key<K> + ?Sized)) -> Option<&mut V> {
        self.get_key_value_mut(key).map(|(_, value)| value)
    }

    pub(crate) fn get_key_value_mut(
        &mut self,
        key: &(impl Key<K> + ?Sized),
    ) -> Option<(&K, &mut V)> {
        let (part, hash) = self.place(key);
        let found = self.parts[part].find_mut(hash, |slot| slot.has(hash, key));
        found.map(|slot| (&slot.key, &mut slot.value))
    }

    /// Adds an entry. Returns the previous value of the key, if there was one.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (entry, hash, len) = self.entry(&key);
        match entry {
            Entry::Occupied(mut slot) => Some(std::mem::replace(&mut slot.get_mut().value, value)),
            Entry::Vacant(entry) => {
                entry.insert(Slot { hash, key, value });
                *len += 1;
                None
            }
        }
    }

    /// The value of this key, which is added if it is missing.
    pub(crate) fn or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let (entry, hash, len) = self.entry(&key);
        *len += usize::from(matches!(entry, Entry::Vacant(_)));
        &mut entry.or_insert_with(|| Slot { hash, key, value: value() }).into_mut().value
    }

    /// The entry of a key, its hash, and the number of all entries.
    fn entry(&mut self, key: &K) -> (Entry<'_, Slot<K, V>>, u64, &mut usize) {
        if self.len >= self.parts.len() * PART_ENTRIES {
            self.divide();
        }
        let (part, hash) = self.place(key);
        let entry = self.parts[part].entry(hash, |slot| slot.has(hash, key), Slot::hash);
        (entry, hash, &mut self.len)
    }

    pub(crate) fn remove(&mut self, key: &(impl Key<K> + ?Sized)) -> Option<V> {
        self.remove_entry(key).map(|(_, value)| value)
    }

    pub(crate) fn remove_entry(&mut self, key: &(impl Key<K> + ?Sized)) -> Option<(K, V)> {
        let (part, hash) = self.place(key);
        let found = self.parts[part].find_entry(hash, |slot| slot.has(hash, key));
        let (removed, _) = found.ok()?.remove();
        self.len -= 1;
        if self.len < self.parts.len() * PART_ENTRIES / 4 && self.parts.len() > 1 {
            self.unite();
        }
        Some((removed.key, removed.value))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flatten().map(|slot| (&slot.key, &slot.value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.parts.iter_mut().flatten().map(|slot| &mut slot.value)
    }

    /// The number of entries for which memory is reserved.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.parts.iter().map(HashTable::capacity).sum()
    }

    /// Frees memory that is reserved for many more entries than the table contains.
    pub(crate) fn shrink(&mut self) {
        for part in &mut self.parts {
            // The sizes are powers of two, so a fuller table does not change.
            part.shrink_to(2 * part.len(), Slot::hash);
        }
        self.parts.shrink_to(2 * self.parts.len());
    }

    /// The part that contains a key or would contain it, and the hash.
    fn place<Q: Hash + ?Sized>(&self, key: &Q) -> (usize, u64) {
        let hash = self.hasher.hash_one(key);
        (part_of(hash, self.parts.len()), hash)
    }

    /// Adds a part and moves its entries there: about half of one other part.
    fn divide(&mut self) {
        let new = self.parts.len();
        let from = &mut self.parts[buddy(new)];
        let mut part = HashTable::with_capacity(from.len() / 2);
        for moved in from.extract_if(|slot| part_of(slot.hash(), new + 1) == new) {
            part.insert_unique(moved.hash(), moved, Slot::hash);
        }
        from.shrink_to_fit(Slot::hash);
        self.parts.push(part);
    }

    /// Removes the last part and moves its entries back to the part that it was split from.
    fn unite(&mut self) {
        let Some(last) = self.parts.pop() else { return };
        let into = buddy(self.parts.len());
        let into = &mut self.parts[into];
        into.reserve(last.len(), Slot::hash);
        for moved in last {
            into.insert_unique(moved.hash(), moved, Slot::hash);
        }
    }
}

impl<K, V> Slot<K, V> {
    /// The table asks for the hash when it moves an entry.
    fn hash(&self) -> u64 {
        #[cfg(test)]
        tests::MOVED.set(tests::MOVED.get() + 1);
        self.hash
    }

    /// Whether it has this key with this hash.
    fn has(&self, hash: u64, key: &(impl Key<K> + ?Sized)) -> bool {
        self.hash == hash && key.equivalent(&self.key)
    }
}

/// The part from which the given part (not 0) was split.
fn buddy(part: usize) -> usize {
    part - (1 << part.ilog2())
}

/// The part of a hash, given the number of parts.
fn part_of(hash: u64, parts: usize) -> usize {
    // Within its part, the position of a key depends on the lowest and the highest bits of the same hash.
    let hash = (hash >> 24) as usize;
    let mask = parts.next_power_of_two() - 1;
    match hash & mask {
        part if part < parts => part,
        part => part & (mask >> 1),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// The number of entries that were moved, or examined for a move.
        pub(super) static MOVED: Cell<usize> = const { Cell::new(0) };
    }

    /// The maximum number that one call moves.
    fn most(calls: impl Iterator<Item = u64>, mut call: impl FnMut(u64)) -> usize {
        let cost = |n| {
            MOVED.set(0);
            call(n);
            MOVED.get()
        };
        calls.map(cost).max().unwrap()
    }

    /// A table that grew as a whole blocked all clients. Fails with one part for all entries.
    #[test]
    fn no_call_moves_more_than_some_thousands() {
        const MANY: u64 = 300_000;
        let mut table = GradualMap::default();
        let added = most(0..MANY, |n| match n % 2 {
            0 => _ = table.insert(n, n),
            _ => _ = table.or_insert_with(n, || n),
        });
        assert_eq!(table.len() as u64, MANY);
        let found = most(0..MANY, |n| assert_eq!(table.get(&n), Some(&n)));
        let removed = most(0..MANY, |n| assert_eq!(table.remove(&n), Some(n)));
        assert_eq!((table.len(), table.parts.len()), (0, 1));
        assert!(added > PART_ENTRIES && removed > 0, "{added} {removed}: nothing is counted");
        assert!(
            added <= 10 * PART_ENTRIES && removed <= 10 * PART_ENTRIES && found == 0,
            "{added} {removed} {found}"
        );
    }

    #[test]
    fn the_largest_part_has_about_twice_the_average() {
        let mut table = GradualMap::default();
        for n in 0..200_000 {
            table.insert(n, ());
            if n % 1_000 == 0 {
                let largest = table.parts.iter().map(HashTable::len).max().unwrap();
                assert!(largest <= 3 * PART_ENTRIES, "{largest} of {n}");
            }
        }
        assert!(table.capacity() < 3 * table.len(), "{}", table.capacity());
    }

    proptest! {
        /// Equivalent to the standard library's map, with numbers that are added and removed in bulk.
        #[test]
        fn it_holds_what_was_put_in(runs in prop::collection::vec((0u32..5_000, 0u32..3_000, any::<bool>()), 1..12)) {
            let mut table = GradualMap::default();
            let mut model = BTreeMap::new();
            for (first, count, adds) in runs {
                for n in first..first + count {
                    match adds {
                        true if n % 2 == 0 => {
                            prop_assert_eq!(table.insert(n, count), model.insert(n, count));
                        }
                        true => {
                            let value = *model.entry(n).or_insert(count);
                            prop_assert_eq!(*table.or_insert_with(n, || count), value);
                        }
                        false => prop_assert_eq!(table.remove(&n), model.remove(&n)),
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                table.shrink();
                let mut all: Vec<_> = table.iter().map(|(k, v)| (*k, *v)).collect();
                all.sort_unstable();
                prop_assert!(all.into_iter().eq(model.iter().map(|(k, v)| (*k, *v))));
            }
            for n in 0..8_000 {
                prop_assert_eq!(table.get(&n), model.get(&n));
            }
        }
    }
}
