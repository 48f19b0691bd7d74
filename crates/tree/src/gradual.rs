//! A hash table that grows and shrinks a little at a time.
//!
//! An ordinary table moves all that it holds when it grows: with a million paths that takes a tenth
//! of a second, in which nobody is served. This one is made of small tables. With every few hundred
//! entries that are added, one of them is divided, and with as many that are removed, two become one
//! (linear hashing). So no call hashes more than some thousand keys, however many there are.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, Hash};

use crate::hash::{HashMap, QuickHash, shrink};

/// How many entries a part has on average when the next one is divided. At that time the largest
/// have about twice as many.
const PART: usize = 384;

/// A hash table of which no call takes long, however much it holds.
pub(crate) struct GradualMap<K, V> {
    /// Never empty. A key is in the part whose number is its hash modulo the least power of two that
    /// is no less than the number of parts; or, if there is no such part yet, modulo half of that.
    parts: Vec<HashMap<K, V>>,
    len: usize,
    hasher: QuickHash,
    /// The part that [`Self::retain_some`] comes to next.
    swept: usize,
}

impl<K, V> Default for GradualMap<K, V> {
    fn default() -> Self {
        let hasher = QuickHash::default();
        Self { parts: vec![HashMap::with_hasher(hasher.clone())], len: 0, hasher, swept: 0 }
    }
}

impl<K: Eq + Hash, V> GradualMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.parts[self.part_of(key)].get(key)
    }

    pub(crate) fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.parts[self.part_of(key)].get_key_value(key)
    }

    pub(crate) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let part = self.part_of(key);
        self.parts[part].get_mut(key)
    }

    pub(crate) fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.parts[self.part_of(key)].contains_key(key)
    }

    /// Adds an entry, or replaces the value of one with the same key, which is returned.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let part = self.part_of(&key);
        let old = self.parts[part].insert(key, value);
        if old.is_none() {
            self.len += 1;
            if self.len > self.parts.len() * PART {
                self.divide();
            }
        }
        old
    }

    /// The value of this key, which is added if there is none.
    pub(crate) fn or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        if self.len >= self.parts.len() * PART {
            self.divide();
        }
        let part = self.part_of(&key);
        match self.parts[part].entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.len += 1;
                entry.insert(value())
            }
        }
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    pub(crate) fn remove_entry<Q>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let part = self.part_of(key);
        let removed = self.parts[part].remove_entry(key)?;
        self.len -= 1;
        if self.len < self.parts.len() * PART / 4 && self.parts.len() > 1 {
            self.unite();
        }
        Some(removed)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flatten()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.parts.iter().flat_map(HashMap::keys)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.parts.iter_mut().flat_map(HashMap::values_mut)
    }

    /// Removes the entries of one part for which `keep` says no; the next call looks at the next part.
    pub(crate) fn retain_some(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.swept = (self.swept + 1) % self.parts.len();
        let part = &mut self.parts[self.swept];
        let before = part.len();
        part.retain(|key, value| keep(key, value));
        self.len -= before - part.len();
    }

    /// For how many entries there is memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.parts.iter().map(HashMap::capacity).sum()
    }

    /// Gives memory back that is there for many more entries than there are now.
    pub(crate) fn shrink(&mut self) {
        self.parts.iter_mut().for_each(shrink);
        self.parts.shrink_to(2 * self.parts.len());
    }

    fn part_of<Q: Hash + ?Sized>(&self, key: &Q) -> usize {
        match self.parts.len() {
            1 => 0,
            parts => part_of(&self.hasher, key, parts),
        }
    }

    /// Adds a part, and moves there what belongs to it: about half of one other part.
    fn divide(&mut self) {
        let (new, hasher) = (self.parts.len(), &self.hasher);
        let from = &mut self.parts[buddy(new)];
        let moved = from.extract_if(|key, _| part_of(hasher, key, new + 1) == new);
        let mut part = HashMap::with_hasher(hasher.clone());
        part.extend(moved);
        from.shrink_to_fit();
        self.parts.push(part);
    }

    /// Takes the last part away, and moves what it holds to where that came from.
    fn unite(&mut self) {
        let Some(last) = self.parts.pop() else { return };
        let into = buddy(self.parts.len());
        self.parts[into].extend(last);
    }
}

/// The part from which the part of this number, which is not 0, was divided.
fn buddy(part: usize) -> usize {
    part - (1 << part.ilog2())
}

fn part_of<Q: Hash + ?Sized>(hasher: &QuickHash, key: &Q, parts: usize) -> usize {
    // Within its part, the place of a key depends on the lowest and the highest bits of the same hash.
    let hash = (hasher.hash_one(key) >> 24) as usize;
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
    use std::hash::Hasher;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        static HASHED: Cell<usize> = const { Cell::new(0) };
    }

    /// A number that counts how often it is hashed: whoever moves an entry hashes it.
    #[derive(PartialEq, Eq)]
    struct Counted(u64);

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            HASHED.set(HASHED.get() + 1);
            self.0.hash(state);
        }
    }

    /// The most that one call hashes.
    fn most(calls: impl Iterator<Item = u64>, mut call: impl FnMut(u64)) -> usize {
        let cost = |n| {
            HASHED.set(0);
            call(n);
            HASHED.get()
        };
        calls.map(cost).max().unwrap()
    }

    /// A table that grew as a whole kept everyone waiting. Seen to fail with the standard library's.
    #[test]
    fn no_call_hashes_more_than_some_thousands() {
        const MANY: u64 = 300_000;
        let mut table = GradualMap::default();
        let added = most(0..MANY, |n| match n % 2 {
            0 => _ = table.insert(Counted(n), n),
            _ => _ = table.or_insert_with(Counted(n), || n),
        });
        assert_eq!(table.len() as u64, MANY);
        let found = most(0..MANY, |n| assert_eq!(table.get(&Counted(n)), Some(&n)));
        let removed = most(0..MANY, |n| assert_eq!(table.remove(&Counted(n)), Some(n)));
        assert_eq!((table.len(), table.parts.len()), (0, 1));
        assert!(
            added <= 10 * PART && removed <= 10 * PART && found <= 2,
            "{added} {removed} {found}"
        );
    }

    #[test]
    fn the_largest_part_has_about_twice_the_average() {
        let mut table = GradualMap::default();
        for n in 0..200_000 {
            table.insert(n, ());
            if n % 1_000 == 0 {
                let largest = table.parts.iter().map(HashMap::len).max().unwrap();
                assert!(largest <= 3 * PART, "{largest} of {n}");
            }
        }
        assert!(table.capacity() < 3 * table.len(), "{}", table.capacity());
    }

    #[test]
    fn a_sweep_comes_to_all() {
        let mut table: GradualMap<u32, u32> = GradualMap::default();
        for n in 0..10_000 {
            table.insert(n, n);
        }
        for _ in 0..table.parts.len() {
            table.retain_some(|key, _| key % 2 == 0);
        }
        assert_eq!((table.len(), table.iter().count()), (5_000, 5_000));
    }

    proptest! {
        /// As the standard library's does, with numbers that come and go in masses.
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
                for n in 0..8_000 {
                    prop_assert_eq!(table.get(&n), model.get(&n));
                }
            }
        }
    }
}
