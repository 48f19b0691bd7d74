//! A list that nodes share, and the permissions that it grants.

use std::cmp::Reverse;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::Sum;
use std::ops::Add;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use lockkeeper_wire::{Acl, Permissions};

use crate::acl::entry::{Address, Identity, Range, is_anyone, is_open};

/// Lists with at least this many entries have an [`Index`]. Shorter lists are searched linearly.
const MIN_INDEXED_ENTRIES: usize = 8;

/// The memory use of an entry without its texts: the entry, the allocator's overhead for two texts, and its
/// place in the index.
const ENTRY_WEIGHT: usize = 120;

/// The approximate size of an entry in a node's record without its texts: permissions and two lengths.
const ENTRY_RECORD: usize = 5;

/// The length of one list, or the total of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) entries: usize,
    /// The total length of all texts.
    pub(crate) bytes: usize,
}

impl Extent {
    pub(crate) fn of(acl: &[Acl]) -> Self {
        acl.iter().map(Self::of_entry).sum()
    }

    pub(crate) fn of_entry(entry: &Acl) -> Self {
        Self { entries: 1, bytes: entry.scheme.len() + entry.id.len() }
    }

    pub(crate) fn fits(self, max: Self) -> bool {
        self.entries <= max.entries && self.bytes <= max.bytes
    }
}

impl Add for Extent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { entries: self.entries + other.entries, bytes: self.bytes + other.bytes }
    }
}

impl Sum for Extent {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

/// A shared access control list; equal lists of different nodes are one allocation.
#[derive(Clone)]
pub(crate) struct AclRef(Arc<List>);

struct List {
    entries: Box<[Acl]>,
    extent: Extent,
    /// The number of nodes with this list, if it is the table's copy; otherwise 0.
    nodes: AtomicUsize,
    /// Built on the first lookup.
    index: OnceLock<Index>,
}

/// An index of a long list, to find an identity without a linear search.
struct Index {
    /// The permissions of everyone.
    anyone: i32,
    /// For each scheme and id, sorted: the position of one entry, and the union of the permissions of all its
    /// entries.
    named: Vec<(usize, i32)>,
    /// Sorted addresses; each has the permissions of the addresses from it up to the next one.
    addresses: Vec<(Address, i32)>,
}

/// The list that gives everyone all permissions. Nearly all nodes share it.
static OPEN: LazyLock<AclRef> = LazyLock::new(|| Acl::open().into());

impl AclRef {
    /// The shared copy of the open list.
    pub(crate) fn open() -> Self {
        OPEN.clone()
    }

    /// Whether this is the single entry that gives everyone all permissions.
    pub(crate) fn is_open(&self) -> bool {
        Arc::ptr_eq(&self.0, &OPEN.0) || is_open(self)
    }

    /// The length of the list.
    pub(crate) fn extent(&self) -> Extent {
        self.0.extent
    }

    /// The memory use of the list and its index, in bytes. The open list counts as 0, because all nodes share
    /// it.
    pub(crate) fn weight(&self) -> usize {
        match self.is_open() {
            true => 0,
            false => self.0.extent.bytes + self.len() * ENTRY_WEIGHT,
        }
    }

    /// The approximate size of the list in the record of each node, in bytes.
    pub(crate) fn record_len(&self) -> usize {
        match self.is_open() {
            true => 0,
            false => self.0.extent.bytes + self.len() * ENTRY_RECORD,
        }
    }

    /// The number of nodes with this copy, which is then the shared one.
    pub(crate) fn nodes(&self) -> usize {
        self.0.nodes.load(Ordering::Relaxed)
    }

    /// Increments the number of nodes.
    pub(super) fn gain_node(&self) {
        self.0.nodes.fetch_add(1, Ordering::Relaxed);
    }

    /// Decrements the number of nodes. Returns whether it is now 0.
    pub(super) fn lose_node(&self) -> bool {
        self.0.nodes.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Whether an entry for one of the identities, or for everyone, grants one of the permissions.
    pub(super) fn grants(&self, wanted: Permissions, identities: &[Identity]) -> bool {
        if self.is_open() {
            return Permissions::ALL.0 & wanted.0 != 0;
        }
        if self.len() >= MIN_INDEXED_ENTRIES {
            let index = self.0.index.get_or_init(|| Index::of(self));
            return index.grants(self, wanted, identities);
        }
        let mut fitting = self.iter().filter(|entry| entry.permissions.0 & wanted.0 != 0);
        fitting.any(|entry| is_anyone(entry) || identities.iter().any(|who| names(entry, who)))
    }
}

fn names(entry: &Acl, identity: &Identity) -> bool {
    identity.scheme == entry.scheme
        && match identity.scheme {
            "ip" => Address::parse(&identity.id)
                .zip(Range::parse(&entry.id))
                .is_some_and(|(address, range)| range.contains(address)),
            _ => identity.id == entry.id,
        }
}

impl Index {
    fn of(acl: &[Acl]) -> Self {
        let mut index = Self { anyone: 0, named: Vec::new(), addresses: Vec::new() };
        let mut ranges = Vec::new();
        for (place, entry) in acl.iter().enumerate() {
            let allowed = entry.permissions.0;
            match entry.scheme.as_str() {
                _ if is_anyone(entry) => index.anyone |= allowed,
                "ip" => ranges.extend(Range::parse(&entry.id).map(|range| (range, allowed))),
                _ => index.named.push((place, allowed)),
            }
        }

        let key = |place: usize| (&acl[place].scheme, &acl[place].id);
        index.named.sort_unstable_by_key(|(place, _)| key(*place));
        index.named.dedup_by(|later, first| {
            let same = key(later.0) == key(first.0);
            if same {
                first.1 |= later.1;
            }
            same
        });
        index.addresses = divided(ranges);
        index
    }

    fn grants(&self, acl: &[Acl], wanted: Permissions, identities: &[Identity]) -> bool {
        self.anyone & wanted.0 != 0
            || identities.iter().any(|identity| match identity.scheme {
                "ip" => self.grants_address(wanted, &identity.id),
                _ => self.allowed(acl, identity) & wanted.0 != 0,
            })
    }

    fn allowed(&self, acl: &[Acl], identity: &Identity) -> i32 {
        let wanted = (identity.scheme, identity.id.as_str());
        let key = |place: usize| (acl[place].scheme.as_str(), acl[place].id.as_str());
        let found = self.named.binary_search_by(|(place, _)| key(*place).cmp(&wanted));
        found.map_or(0, |at| self.named[at].1)
    }

    fn grants_address(&self, wanted: Permissions, address: &str) -> bool {
        let Some(address) = Address::parse(address) else { return false };
        let behind = self.addresses.partition_point(|(first, _)| *first <= address);
        let before = behind.checked_sub(1).map(|at| self.addresses[at].1);
        before.is_some_and(|allowed| allowed & wanted.0 != 0)
    }
}

/// The addresses at which the permissions change, sorted. Of two overlapping ranges, one contains the other.
fn divided(mut ranges: Vec<(Range, i32)>) -> Vec<(Address, i32)> {
    ranges.sort_unstable_by_key(|(range, _)| (range.first, Reverse(range.last)));
    let mut changes: Vec<(Address, i32)> = Vec::new();
    // The ranges that contain the current address, with the combined permissions of each and those around it.
    let mut around: Vec<(Range, i32)> = Vec::new();
    for (range, allowed) in ranges {
        leave(&mut around, |inner| inner.last < range.first, &mut changes);
        let allowed = allowed | around.last().map_or(0, |(_, outer)| *outer);
        around.push((range, allowed));
        changes.push((range.first, allowed));
    }
    leave(&mut around, |_| true, &mut changes);

    // Where several ranges begin or end, the last change counts.
    changes.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 = later.1;
        }
        same
    });
    changes
}

/// Removes the innermost ranges that have ended.
fn leave(
    around: &mut Vec<(Range, i32)>,
    is_over: impl Fn(&Range) -> bool,
    changes: &mut Vec<(Address, i32)>,
) {
    while let Some((range, _)) = around.pop_if(|(range, _)| is_over(range)) {
        let allowed = around.last().map_or(0, |(_, outer)| *outer);
        // The last address of all has no successor.
        changes.extend(range.last.next().map(|next| (next, allowed)));
    }
}

impl From<Vec<Acl>> for AclRef {
    fn from(entries: Vec<Acl>) -> Self {
        let extent = Extent::of(&entries);
        let (nodes, index) = (AtomicUsize::new(0), OnceLock::new());
        Self(Arc::new(List { entries: entries.into(), extent, nodes, index }))
    }
}

impl Deref for AclRef {
    type Target = [Acl];

    fn deref(&self) -> &[Acl] {
        &self.0.entries
    }
}

impl PartialEq for AclRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for AclRef {}

impl Hash for AclRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for AclRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_match_by_prefix() {
        for (address, range, expected) in [
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("10.1.2.3", "10.0.0.0/8", true),
            ("10.1.2.3", "10.1.2.2/31", true),
            ("10.1.2.3", "10.1.2.0/31", false),
            ("10.1.2.3", "0.0.0.0/0", true),
            ("10.1.2.3", "::/0", false),
            ("fe80::1", "fe80::/10", true),
            ("fec0::1", "fe80::/10", false),
        ] {
            let range = Range::parse(range).unwrap();
            let address = Address::parse(address).unwrap();
            assert_eq!(range.contains(address), expected, "{address:?}");
        }
    }

    fn entry() -> impl Strategy<Value = Acl> {
        let who = prop_oneof![
            Just(("world", "anyone")),
            Just(("world", "someone")),
            Just(("digest", "a:1")),
            Just(("digest", "b:2")),
            Just(("x509", "CN=a")),
            Just(("x509", "a:1")),
            Just(("ip", "10.0.0.1")),
            Just(("ip", "10.0.0.0/8")),
            Just(("ip", "10.0.0.0/31")),
            Just(("ip", "10.9.0.0/16")),
            Just(("ip", "0.0.0.0/0")),
            Just(("ip", "255.255.255.254/31")),
            Just(("ip", "::1")),
            Just(("ip", "ffff::/16")),
            Just(("ip", "no address")),
            Just(("super", "")),
        ];
        (who, prop_oneof![3 => Just(0), 1 => 0..32])
            .prop_map(|((scheme, id), bits)| Acl::new(Permissions(bits), scheme, id))
    }

    fn identity() -> impl Strategy<Value = Identity> {
        let who = prop_oneof![
            Just(("digest", "a:1")),
            Just(("digest", "c:3")),
            Just(("x509", "CN=a")),
            Just(("ip", "10.0.0.1")),
            Just(("ip", "10.9.9.9")),
            Just(("ip", "9.255.255.255")),
            Just(("ip", "11.0.0.0")),
            Just(("ip", "255.255.255.255")),
            Just(("ip", "::1")),
            Just(("ip", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
        ];
        who.prop_map(|(scheme, id)| Identity { scheme, id: id.to_owned() })
    }

    proptest! {
        /// A long list grants the union of what its entries grant in short lists.
        #[test]
        fn the_index_answers_as_the_entries_do(
            entries in proptest::collection::vec(entry(), MIN_INDEXED_ENTRIES..20),
            identities in proptest::collection::vec(identity(), 0..4),
            wanted in 0..32,
        ) {
            let wanted = Permissions(wanted);
            let one = |entry: &Acl| {
                AclRef::from(vec![entry.clone()]).grants(wanted, &identities)
            };
            let expected = entries.iter().any(one);
            let list = AclRef::from(entries);
            prop_assert_eq!(list.grants(wanted, &identities), expected);
            prop_assert_eq!(list.grants(wanted, &identities), expected, "asked again");
        }
    }
}
