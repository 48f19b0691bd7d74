//! The znodes of a queue, and what their names mean: pure.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use lockkeeper_client::{Client, ZnodePath};
use lockkeeper_locks::OwnerInfo;
use lockkeeper_locks::for_recipes::beside;
use serde::{Deserialize, Serialize};

use crate::queue::peer_layouts::QueueLayout;

/// The number of this layout, in the data of the queue's node.
const FORMAT: u32 = 1;

/// After the name of another library's queue, in that of the line of our consumers.
const LINE: &str = "-__lockkeeper__";

/// How many entries a segment is given. A transaction of many may bring it beyond that.
pub(super) const SEGMENT: u32 = 256;

/// The digits that servers append to the name of a sequential node.
pub(super) const DIGITS: usize = 10;

/// Where everything of a queue is.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The queue itself; its data is a [`QueueMark`].
    pub(super) path: ZnodePath,
    /// Segments, of which each has entries. It is written to whenever there may be something new to take.
    pub(super) entries: ZnodePath,
    /// What the items contain, by id.
    pub(super) bodies: ZnodePath,
    /// One ephemeral node for each item that somebody works on. Its version counts the retries.
    pub(super) claims: ZnodePath,
    /// One ephemeral node for each session of a consumer.
    pub(super) workers: ZnodePath,
    /// Dead letters, by id. Its version counts them.
    pub(super) dead: ZnodePath,
    /// The line of the consumers that found nothing.
    pub(super) line: ZnodePath,
    pub(super) layout: QueueLayout,
    has_claims: bool,
}

impl Places {
    pub(super) fn new(path: ZnodePath) -> Self {
        let below = |name| path.child(name).expect("letters");
        Self {
            entries: below("entries"),
            bodies: below("bodies"),
            claims: below("claims"),
            workers: below("workers"),
            dead: below("dead"),
            line: below("line"),
            layout: QueueLayout::Lockkeeper,
            has_claims: true,
            path,
        }
    }

    /// Those of a queue in another library, with its claims if it has any. What such a queue does not have is not
    /// used. The line is beside it, as all nodes in it are items to other programs.
    pub(super) fn of_peers(
        layout: QueueLayout,
        path: ZnodePath,
        claims: Option<ZnodePath>,
    ) -> Self {
        let unused = || path.clone();
        Self {
            entries: layout.entries(&path),
            bodies: unused(),
            has_claims: claims.is_some(),
            claims: claims.unwrap_or_else(unused),
            workers: unused(),
            dead: unused(),
            line: beside(&path, LINE),
            layout,
            path,
        }
    }

    /// The claims of other libraries' queues, if they have any.
    pub(super) fn peer_claims(&self) -> Option<&ZnodePath> {
        (!self.layout.is_own() && self.has_claims).then_some(&self.claims)
    }

    pub(super) fn segment(&self, segment: u32) -> ZnodePath {
        self.entries.child(&format!("{segment:010}")).expect("digits")
    }

    pub(super) fn body(&self, id: &str) -> ZnodePath {
        self.bodies.child(id).expect("an id")
    }

    pub(super) fn dead_letter(&self, id: &str) -> ZnodePath {
        self.dead.child(id).expect("an id")
    }

    /// The path of a new entry, to which servers append a number.
    pub(super) fn new_entry(&self, segment: u32, id: &str, tries: u32) -> ZnodePath {
        self.segment(segment).child(&format!("{id}.{tries}-")).expect("an id and digits")
    }
}

/// The segments among these names, oldest first.
pub(super) fn read_segments(names: &[String]) -> Vec<u32> {
    let mut segments: Vec<_> = names.iter().filter_map(|name| read_segment(name)).collect();
    segments.sort_unstable();
    segments
}

/// The segment of this name.
fn read_segment(name: &str) -> Option<u32> {
    (name.len() == DIGITS).then(|| name.parse().ok()).flatten()
}

/// A new id.
pub(super) fn new_id(client: &Client) -> String {
    client.unique_id().simple().to_string()
}

/// Whether it can be the id of an item: it becomes a part of paths.
pub(super) fn is_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// An entry: an item's place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) segment: u32,
    pub(super) number: u32,
    pub(super) id: String,
    /// How often it had been taken when it came to this place.
    pub(super) tries: u32,
}

impl Entry {
    /// The entry of this name in a segment; `None` if it is none.
    pub(super) fn read(segment: u32, name: &str) -> Option<Self> {
        let (taken, number) = name.rsplit_once('-')?;
        let (id, tries) = taken.split_once('.')?;
        let number = (number.len() == DIGITS).then(|| number.parse().ok()).flatten()?;
        let entry = Self { segment, number, id: id.to_owned(), tries: tries.parse().ok()? };
        (is_id(id) && entry.to_string() == name).then_some(entry)
    }

    pub(super) fn node(&self, places: &Places) -> ZnodePath {
        let (directory, name) = match places.layout.is_own() {
            true => (places.segment(self.segment), self.to_string()),
            false => (places.entries.clone(), self.id.clone()),
        };
        directory.child(&name).expect("it was a name")
    }

    /// How often it has been taken when its node has this version, which each take raises.
    pub(super) fn taken(&self, version: i32) -> u32 {
        self.tries.saturating_add(u32::try_from(version).unwrap_or(u32::MAX))
    }

    /// The claim of whoever takes it at this version. No other ever has its name, in our own layout.
    pub(super) fn claim(&self, places: &Places, version: i32) -> ZnodePath {
        if !places.layout.is_own() {
            return places.claims.child(&self.id).expect("it was a name");
        }
        let Self { segment, number, .. } = self;
        let version = version.wrapping_add(1);
        let name = format!("{segment:010}-{number:010}.{version}");
        places.claims.child(&name).expect("digits")
    }

    /// Whether it is claimed, by one of these names of claims.
    pub(super) fn is_claimed(&self, claims: &HashSet<(u32, u32)>) -> bool {
        claims.contains(&(self.segment, self.number))
    }
}

/// Its name.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}-{:010}", self.id, self.tries, self.number)
    }
}

/// The segment and the number of the entry that is claimed by a node of this name.
pub(super) fn read_claim(name: &str) -> Option<(u32, u32)> {
    let (entry, _) = name.split_once('.')?;
    let (segment, number) = entry.split_once('-')?;
    Some((segment.parse().ok()?, number.parse().ok()?))
}

/// The data of the queue's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueueMark {
    /// The number of the layout.
    #[serde(rename = "lockkeeper-queue")]
    format: u32,
    /// Whether it is being deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_going: bool,
}

impl QueueMark {
    /// That of a queue in this layout.
    pub(super) fn new(is_going: bool) -> Self {
        Self { format: FORMAT, is_going }
    }

    pub(super) fn to_data(&self) -> Bytes {
        to_data(self)
    }

    /// The mark in some data, or what is there instead.
    pub(super) fn read(data: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice::<Self>(data) {
            Ok(mark) if mark.format == FORMAT => Ok(mark),
            Ok(mark) => Err(format!("a queue in the layout {}, and not {FORMAT}", mark.format)),
            Err(_) if data.is_empty() => Err("no data".to_owned()),
            Err(_) => {
                let shown = String::from_utf8_lossy(&data[..data.len().min(64)]);
                Err(format!("{shown:?}"))
            }
        }
    }
}

/// The data of an entry: who took the item last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<OwnerInfo>,
    /// Why it came back, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

impl Header {
    pub(super) fn to_data(&self) -> Bytes {
        to_data(self)
    }

    pub(super) fn read(data: &[u8]) -> Self {
        serde_json::from_slice(data).unwrap_or_default()
    }
}

/// The data of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Obituary {
    pub(super) reason: String,
    pub(super) attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<OwnerInfo>,
}

impl Obituary {
    /// Why an item is a dead letter that was tried too often.
    pub(super) fn worn_out(tries: u32, reason: &str) -> String {
        match tries {
            1 => format!("tried once: {reason}"),
            _ => format!("tried {tries} times: {reason}"),
        }
    }

    pub(super) fn to_data(&self) -> Bytes {
        to_data(self)
    }

    pub(super) fn read(data: &[u8]) -> Self {
        serde_json::from_slice(data).unwrap_or_else(|_| Self {
            reason: String::from_utf8_lossy(data).into_owned(),
            attempts: 0,
            holder: None,
        })
    }
}

fn to_data(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).map_or_else(|_| Bytes::new(), Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn only_what_a_queue_has_named_is_an_entry() {
        let name = format!("{ID}.2-0000000007");
        let entry = Entry::read(3, &name).unwrap();
        assert_eq!((entry.number, entry.tries, entry.to_string()), (7, 2, name));
        for foreign in [
            "qn-0000000007".to_owned(),
            format!("{ID}.2-7"),
            format!("{ID}.02-0000000007"),
            format!("{ID}-0000000007"),
            format!("{}.2-0000000007", &ID[1..]),
            format!("{ID}.2--000000007"),
        ] {
            assert_eq!(Entry::read(3, &foreign), None, "{foreign}");
        }
        assert_eq!(read_segment("0000000012"), Some(12));
        assert_eq!(read_segment("12"), None);
    }

    #[test]
    fn each_take_of_an_item_has_a_claim_of_its_own() {
        let places = Places::new(ZnodePath::new("/jobs").unwrap());
        let entry = Entry::read(0, &format!("{ID}.2-0000000007")).unwrap();
        let claim = entry.claim(&places, 1);
        assert_eq!(claim.as_str(), "/jobs/claims/0000000000-0000000007.2");
        assert_eq!(read_claim(claim.name()), Some((0, 7)));
        assert_eq!((entry.taken(1), read_claim("notes")), (3, None));
        assert_ne!(entry.claim(&places, 2), claim);
        // It came back to the end of the queue.
        let later = Entry::read(9, &format!("{ID}.4-0000000007")).unwrap();
        assert_ne!(later.claim(&places, 1), claim);
    }

    #[test]
    fn another_layout_is_told_from_data_of_others() {
        assert_eq!(QueueMark::read(&QueueMark::new(false).to_data()), Ok(QueueMark::new(false)));
        let newer = QueueMark::read(br#"{"lockkeeper-queue":2}"#).unwrap_err();
        assert!(newer.contains("layout 2"), "{newer}");
        assert!(QueueMark::read(b"hello").unwrap_err().contains("hello"));
        assert!(QueueMark::read(b"").is_err());
    }
}
