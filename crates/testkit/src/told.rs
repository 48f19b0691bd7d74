//! What programs that share data say, in a form that is read again when it comes from another process.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use lockkeeper::FencingToken;
use serde::{Deserialize, Serialize};

/// An instance of a service, as a directory lists it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Listing {
    /// The name of its node.
    pub id: String,
    /// The transaction that made its node.
    pub czxid: i64,
    /// Its weight, which grows with each change.
    pub weight: u32,
}

/// Something that a program did to shared data, or was told of it. `id` is the program's own number for
/// an add, `item` one that nobody else has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "fields of one name mean the same in all variants")]
pub enum Told {
    /// It wrote a version of the tree, which is that of the node at the top, by this transaction.
    Wrote { zxid: i64, version: i32 },
    /// A cache showed it the tree of the transaction `zxid`, as the cache says; `mzxid` is the one that
    /// wrote that version.
    Saw { zxid: i64, version: i32, mzxid: i64 },
    /// It begins to add 1 to the counter.
    Adds { id: u64 },
    /// The add was confirmed, with the sum after it.
    Added { id: u64, after: i64 },
    /// The add was refused. Without this and the one above, nobody knows.
    NotAdded { id: u64 },
    /// It begins to append an item to the list.
    Appends { item: u64 },
    /// That was confirmed.
    Appended { item: u64 },
    /// That was refused.
    NotAppended { item: u64 },
    /// The list, as a follower was told of it last.
    Followed { items: Vec<u64> },
    /// A directory showed it the instances of a service, which were just these after this transaction, as
    /// the directory says.
    Lists { zxid: i64, listings: Vec<Listing> },
    /// A watcher of a group was told a view: its name, and the nodes of the members with their tokens.
    /// `watcher` is its own number for this watch: a later one may begin with an older view.
    View { watcher: u64, id: i64, members: BTreeMap<String, FencingToken> },
    /// It begins to publish an edition, `id`, or one again that was there; `attempt` is its own number for it.
    Publishes { attempt: u64, id: u64 },
    /// That was confirmed, with the number of the edition.
    Published { attempt: u64, number: u64 },
    /// It was refused. Without this and the one above, nobody knows.
    NotPublished { attempt: u64 },
    /// A follower was told of an edition.
    Edition { number: u64, id: u64 },
    /// The editions that there were in the end: what is in the last one, and the numbers of those that are
    /// kept.
    Kept { last: Option<u64>, numbers: Vec<u64> },
    /// What there was in the end: the sum, and the list.
    Remains { sum: i64, items: Vec<u64> },
}

/// As JSON, without spaces of its own.
impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// Reads what [`Told`] prints.
impl FromStr for Told {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again_and_has_no_spaces() {
        let listing = Listing { id: "a:b".into(), czxid: 7, weight: u32::MAX };
        let token = FencingToken::from_u128(7 << 32 | 2).unwrap();
        for told in [
            Told::Saw { zxid: 9, version: -2, mzxid: 7 },
            Told::Adds { id: u64::MAX },
            Told::Lists { zxid: 9, listings: vec![listing] },
            Told::View { watcher: u64::MAX, id: 9, members: [("a".into(), token)].into() },
            Told::Remains { sum: -3, items: vec![1, 2] },
        ] {
            let text = told.to_string();
            assert_eq!(text.parse::<Told>().ok(), Some(told), "{text}");
            assert!(!text.contains(' '), "{text}");
        }
        assert!("saw 1 2".parse::<Told>().is_err());
    }
}
