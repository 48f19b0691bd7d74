//! The znodes of partitions, and their data. No I/O.

use bytes::Bytes;
use lockkeeper_client::ZnodePath;
use lockkeeper_locks::OwnerInfo;
use serde::{Deserialize, Serialize};

use crate::discovery::rendezvous::digest;

/// The version of the layout that this library writes, and the only one that it reads.
const FORMAT: u32 = 1;

/// The nodes of partitions at a path.
#[derive(Clone, Debug)]
pub(super) struct PartitionNodes {
    pub(super) path: ZnodePath,
    /// The parent of the members' nodes.
    pub(super) members: ZnodePath,
    /// The parent of the nodes of items that have an owner.
    pub(super) owners: ZnodePath,
}

impl PartitionNodes {
    pub(super) fn new(path: ZnodePath) -> Self {
        let child = |name| path.child(name).expect("a word");
        let (members, owners) = (child("members"), child("owners"));
        Self { path, members, owners }
    }
}

/// The data of a member's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberRecord {
    format: u32,
    /// The member's share of the items relative to the others.
    pub(super) weight: u32,
    /// The digest of its items.
    #[serde(with = "hex")]
    pub(super) items: u64,
}

impl MemberRecord {
    pub(super) fn new(weight: u32, items: u64) -> Self {
        Self { format: FORMAT, weight, items }
    }

    /// The data of a node: this record, and the program of the member.
    pub(super) fn to_data(self, program: &OwnerInfo) -> Bytes {
        let data = MemberData { record: self, program };
        serde_json::to_vec(&data).expect("numbers and text").into()
    }

    /// Parses a node's data; `None` if this version does not know it.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(data).ok()?;
        (record.format == FORMAT && record.weight > 0).then_some(record)
    }
}

/// The data of a member's node.
#[derive(Serialize)]
struct MemberData<'a> {
    #[serde(flatten)]
    record: MemberRecord,
    #[serde(flatten)]
    program: &'a OwnerInfo,
}

/// The data of an item's node.
#[derive(Serialize)]
pub(super) struct OwnerRecord<'a> {
    /// The member that has the item.
    pub(super) member: &'a str,
    /// Distinguishes the node from all others that had its name.
    pub(super) mark: String,
}

impl OwnerRecord<'_> {
    pub(super) fn to_data(&self) -> Bytes {
        serde_json::to_vec(self).expect("text").into()
    }
}

/// The digest of a set of sorted, distinct items: each is hashed after its length.
pub(super) fn digest_of_items<'a>(items: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut bytes = Vec::new();
    for item in items {
        bytes.extend_from_slice(&(item.len() as u64).to_be_bytes());
        bytes.extend_from_slice(item.as_bytes());
    }
    digest(&bytes)
}

/// Sixteen hexadecimal digits, because not every JSON parser has 64-bit integers.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{number:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of `docs/rendezvous.md`.
    #[test]
    fn sets_have_the_digests_of_the_description() {
        assert_eq!(digest_of_items([]), 0xf52a_15e9_a9b5_e89b);
        let sets: [&[&str]; 4] = [&["a"], &["", "a"], &["a", "b"], &["ab"]];
        let mut digests = sets.map(|set| digest_of_items(set.iter().copied())).to_vec();
        assert_eq!(digests, VECTORS);
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), sets.len());
    }

    const VECTORS: [u64; 4] = [
        0x5ed9_ab3b_de66_89a2,
        0x216d_4e05_d918_593b,
        0x9ea2_2037_6033_7cca,
        0x2c6f_f935_4faa_578c,
    ];

    #[test]
    fn a_member_is_read_as_it_was_written() {
        let record = MemberRecord::new(3, 0xab);
        let program = OwnerInfo::current(None);
        let data = record.to_data(&program);
        assert!(data.starts_with(br#"{"format":1,"weight":3,"items":"00000000000000ab","host":"#));
        assert_eq!(MemberRecord::read(&data), Some(record));
        assert_eq!(OwnerInfo::from_data(&data), Some(program));
        let alone = br#"{"format":1,"weight":3,"items":"00000000000000ab"}"#;
        assert_eq!(MemberRecord::read(alone), Some(record));
        for other in [
            &b""[..],
            b"{}",
            br#"{"format":2,"weight":3,"items":"00"}"#,
            br#"{"format":1,"weight":0,"items":"00"}"#,
            br#"{"format":1,"weight":1,"items":"x"}"#,
        ] {
            assert_eq!(MemberRecord::read(other), None);
        }
    }
}
