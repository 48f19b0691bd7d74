//! The znodes of a queue, and the meaning of their names. No I/O.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use lockkeeper_client::{Client, ZnodePath};
use lockkeeper_locks::OwnerInfo;
use lockkeeper_locks::for_recipes::sibling;
use serde::{Deserialize, Serialize};

use crate::queue::lanes::{DIGITS, Segment};
use crate::queue::marks::{Marks, Parts, encoded};
use crate::queue::peer_layouts::QueueLayout;

/// The version of this layout, in the data of the queue's node.
const FORMAT: u32 = 1;

/// The suffix of the line of our consumers, after the name of another library's queue.
const LINE_SUFFIX: &str = "-__lockkeeper__";

/// How many entries a segment gets. A transaction of many may exceed it.
pub(super) const SEGMENT_ENTRIES: u32 = 256;

/// The suffix of the node of an unfinished upload, after the upload's name.
const UPLOADING_SUFFIX: &str = ".uploading";

/// The maximum length of an id, in bytes.
const MAX_ID_BYTES: usize = 64;

/// The nodes of a queue.
#[derive(Clone, Debug)]
pub(super) struct QueueNodes {
    /// The queue itself; its data is a [`QueueMark`].
    pub(super) path: ZnodePath,
    /// The segments, which have the entries. Written to when there may be something new to take.
    pub(super) entries: ZnodePath,
    /// The values of the items, by id.
    pub(super) bodies: ZnodePath,
    /// An ephemeral node for each item that is being worked on, and a node for each that is paused. Its version
    /// counts the retries.
    pub(super) claims: ZnodePath,
    /// An ephemeral node for each key, and for each place of a limited kind, that is being worked on.
    pub(super) busy: ZnodePath,
    /// An ephemeral node for each session of a consumer.
    pub(super) workers: ZnodePath,
    /// Dead letters, by id. Its version counts them.
    pub(super) dead: ZnodePath,
    /// The line of the consumers that wait.
    pub(super) line: ZnodePath,
    /// The answers to requests.
    pub(super) answers: ZnodePath,
    /// The ids that putters have set.
    pub(super) ids: ZnodePath,
    /// One node for each item of a queue with an exact bound.
    pub(super) slots: ZnodePath,
    /// The line of the puts that wait for room.
    pub(super) putters: ZnodePath,
    /// Values that are too long for a body.
    pub(super) parts: ZnodePath,
    pub(super) layout: QueueLayout,
    has_claims: bool,
}

impl QueueNodes {
    pub(super) fn new(path: ZnodePath) -> Self {
        let below = |name| path.child(name).expect("letters");
        Self {
            entries: below("entries"),
            bodies: below("bodies"),
            claims: below("claims"),
            busy: below("busy"),
            workers: below("workers"),
            dead: below("dead"),
            line: below("line"),
            answers: below("answers"),
            ids: below("ids"),
            slots: below("slots"),
            putters: below("putters"),
            parts: below("parts"),
            layout: QueueLayout::Lockkeeper,
            has_claims: true,
            path,
        }
    }

    /// The nodes of another library's queue, with its claims if it has any. Nodes that such a queue lacks are not
    /// used. The line is outside of the queue, because other programs take all nodes in it for items.
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
            busy: unused(),
            workers: unused(),
            dead: unused(),
            line: sibling(&path, LINE_SUFFIX),
            answers: unused(),
            ids: unused(),
            slots: unused(),
            putters: unused(),
            parts: unused(),
            layout,
            path,
        }
    }

    /// The claims of other libraries' queues, if they have any.
    pub(super) fn peer_claims(&self) -> Option<&ZnodePath> {
        (!self.layout.is_own() && self.has_claims).then_some(&self.claims)
    }

    /// The directories of nodes that have no children.
    pub(super) fn beside_entries(&self) -> [&ZnodePath; 9] {
        let Self { dead, claims, busy, line, putters, answers, ids, slots, bodies, .. } = self;
        [dead, claims, busy, line, putters, answers, ids, slots, bodies]
    }

    pub(super) fn segment(&self, segment: Segment) -> ZnodePath {
        self.entries.child(&segment.to_string()).expect("a plain name")
    }

    /// The node of a key while one of its items is worked on.
    pub(super) fn busy_key(&self, key: &str) -> ZnodePath {
        self.busy.child(&format!("k{}", encoded(key))).expect("an encoded name")
    }

    /// The node of a place among those that work on a kind.
    pub(super) fn busy_place(&self, kind: &str, place: u32) -> ZnodePath {
        self.busy.child(&place_of_kind(kind, place)).expect("an encoded name")
    }

    pub(super) fn body(&self, id: &str) -> ZnodePath {
        self.bodies.child(id).expect("an id")
    }

    /// The answer for an item, if requested.
    pub(super) fn answer(&self, id: &str) -> ZnodePath {
        self.answers.child(id).expect("an id")
    }

    /// The node of an id that a putter has set. Its data is the internal id.
    pub(super) fn id_node(&self, name: &str) -> ZnodePath {
        self.ids.child(name).expect("an id")
    }

    pub(super) fn slot(&self, slot: u32) -> ZnodePath {
        self.slots.child(&slot.to_string()).expect("digits")
    }

    /// The directory of a long value.
    pub(super) fn parts_of(&self, upload: &str) -> ZnodePath {
        self.parts.child(upload).expect("an id")
    }

    /// The ephemeral node of an unfinished upload. It is outside of the directory, so that putters need no
    /// permission to delete there.
    pub(super) fn uploading(&self, upload: &str) -> ZnodePath {
        self.parts.child(&format!("{upload}{UPLOADING_SUFFIX}")).expect("an id and letters")
    }

    /// The uploads that have ended, given all names.
    pub(super) fn ended_uploads(names: &[String]) -> impl Iterator<Item = &String> {
        let running: HashSet<_> =
            names.iter().filter_map(|it| it.strip_suffix(UPLOADING_SUFFIX)).collect();
        let is_over =
            move |it: &&String| !it.ends_with(UPLOADING_SUFFIX) && !running.contains(it.as_str());
        names.iter().filter(is_over)
    }

    /// A part of a long value.
    pub(super) fn part(&self, upload: &str, number: u32) -> ZnodePath {
        self.parts_of(upload).child(&format!("{number:04}")).expect("digits")
    }

    /// The nodes that are deleted with an item's body: the parts of its value, and its slot.
    pub(super) fn beside_body(&self, marks: &Marks) -> Vec<ZnodePath> {
        let mut nodes = self.value_nodes(marks);
        nodes.extend(marks.slot.map(|slot| self.slot(slot)));
        nodes
    }

    /// The parts of a long value, and their directory.
    pub(super) fn value_nodes(&self, marks: &Marks) -> Vec<ZnodePath> {
        let Some(Parts { count, upload }) = &marks.parts else { return Vec::new() };
        let parts = (0..*count).map(|number| self.part(upload, number));
        parts.chain([self.parts_of(upload)]).collect()
    }

    pub(super) fn dead_letter(&self, id: &str) -> ZnodePath {
        self.dead.child(id).expect("an id")
    }

    /// The path of a new entry, to which servers append a number.
    pub(super) fn new_entry(&self, segment: Segment, new: &NewEntry<'_>) -> ZnodePath {
        self.segment(segment).child(&format!("{new}-")).expect("an id and marks")
    }
}

/// The name of a place among those that work on a kind.
pub(super) fn place_of_kind(kind: &str, place: u32) -> String {
    format!("n{}.{place}", encoded(kind))
}

/// A new id.
pub(super) fn new_id(client: &Client) -> String {
    client.unique_id().simple().to_string()
}

/// Whether it is valid as the id of an item: it becomes a part of paths.
pub(super) fn is_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(fits)
}

/// Why an id is invalid.
pub(super) fn bad_id(id: &str) -> String {
    format!("the id {id:?} is not 1 to {MAX_ID_BYTES} letters, digits, `_` and `-`")
}

/// The name of a new entry, without the number.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry<'a> {
    pub(super) id: &'a str,
    pub(super) tries: u32,
    pub(super) marks: &'a Marks,
}

impl fmt::Display for NewEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}{}", self.id, self.tries, self.marks)
    }
}

/// An entry: an item's place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) segment: Segment,
    pub(super) number: u32,
    pub(super) id: String,
    /// How often the item had been taken when it got this place.
    pub(super) tries: u32,
    /// Its options, if any.
    marks: Option<Box<Marks>>,
}

impl Entry {
    /// An entry that was put without options.
    pub(super) fn plain(segment: Segment, number: u32, id: String) -> Self {
        Self { segment, number, id, tries: 0, marks: None }
    }

    /// Parses the name of an entry in a segment; `None` for other names.
    pub(super) fn read(segment: Segment, name: &str) -> Option<Self> {
        let (taken, number) = name.rsplit_once('-')?;
        let (id, taken) = taken.split_once('.')?;
        let (tries, marks) = match taken.find('.') {
            None => (taken, None),
            Some(point) => {
                let (tries, marks) = taken.split_at(point);
                (tries, Some(Box::new(Marks::read(marks)?)))
            }
        };
        let number = (number.len() == DIGITS).then(|| number.parse().ok()).flatten()?;
        let entry = Self { segment, number, id: id.to_owned(), tries: tries.parse().ok()?, marks };
        (is_id(id) && entry.to_string() == name).then_some(entry)
    }

    pub(super) fn marks(&self) -> &Marks {
        self.marks.as_deref().unwrap_or(&Marks::NONE)
    }

    /// The public id of the item.
    pub(super) fn known_as(&self) -> &str {
        self.marks().name.as_deref().unwrap_or(&self.id)
    }

    /// The key that it has to wait for.
    pub(super) fn key(&self) -> Option<&str> {
        self.marks.as_ref()?.key.as_deref()
    }

    pub(super) fn kind(&self) -> Option<&str> {
        self.marks.as_ref()?.kind.as_deref()
    }

    pub(super) fn node(&self, places: &QueueNodes) -> ZnodePath {
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

    /// The claim of a take at this version. In Lockkeeper's layout, its name is never used again.
    pub(super) fn claim(&self, places: &QueueNodes, version: i32) -> ZnodePath {
        if !places.layout.is_own() {
            return places.claims.child(&self.id).expect("it was a name");
        }
        let Self { segment, number, .. } = *self;
        let version = version.wrapping_add(1);
        let name = ClaimName { segment, number, version, free_from: None }.to_string();
        places.claims.child(&name).expect("a plain name")
    }

    /// The node that prevents takes at this version, until then.
    pub(super) fn pause(&self, places: &QueueNodes, version: i32, until_unix_ms: u64) -> ZnodePath {
        let Self { segment, number, .. } = *self;
        let free_from = Some(until_unix_ms);
        let name = ClaimName { segment, number, version, free_from }.to_string();
        places.claims.child(&name).expect("a plain name")
    }
}

/// Its name.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let new = NewEntry { id: &self.id, tries: self.tries, marks: self.marks() };
        write!(f, "{new}-{:010}", self.number)
    }
}

/// The name of a node among the claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClaimName {
    pub(super) segment: Segment,
    pub(super) number: u32,
    /// The version of the entry during the claim.
    pub(super) version: i32,
    /// When the item can be taken again, in milliseconds since 1970, if it is paused; `None` if a consumer has it.
    pub(super) free_from: Option<u64>,
}

impl ClaimName {
    /// `None` for other names.
    pub(super) fn read(name: &str) -> Option<Self> {
        let (entry, version) = name.rsplit_once('.')?;
        let (segment, number) = entry.rsplit_once('-')?;
        let (version, free_from) = match version.split_once('~') {
            None => (version, None),
            Some((version, until)) => (version, Some(until.parse().ok()?)),
        };
        let (segment, version) = (Segment::read(segment)?, version.parse().ok()?);
        Some(Self { segment, number: number.parse().ok()?, version, free_from })
    }
}

/// Its name.
impl fmt::Display for ClaimName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:010}.{}", self.segment, self.number, self.version)?;
        match self.free_from {
            Some(until) => write!(f, "~{until}"),
            None => Ok(()),
        }
    }
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
    /// The mark of a queue in this layout.
    pub(super) fn new(is_going: bool) -> Self {
        Self { format: FORMAT, is_going }
    }

    pub(super) fn to_data(&self) -> Bytes {
        to_data(self)
    }

    /// Parses the mark. The error describes the data.
    pub(super) fn read(data: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice::<Self>(data) {
            Ok(mark) if mark.format == FORMAT => Ok(mark),
            Ok(mark) => Err(format!("the queue layout {} instead of {FORMAT}", mark.format)),
            Err(_) if data.is_empty() => Err("no data".to_owned()),
            Err(_) => {
                let shown = String::from_utf8_lossy(&data[..data.len().min(64)]);
                Err(format!("{shown:?}"))
            }
        }
    }
}

/// The data of an entry: the program that took the item last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<OwnerInfo>,
    /// Why it was put back, if it was.
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
pub(super) struct DeadLetterData {
    pub(super) reason: String,
    pub(super) attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<OwnerInfo>,
    /// The marks in the name of its entry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) marks: String,
}

impl DeadLetterData {
    /// The reason of a dead letter that was tried too often.
    pub(super) fn too_many_tries(tries: u32, reason: &str) -> String {
        match tries {
            1 => format!("tried once: {reason}"),
            _ => format!("tried {tries} times: {reason}"),
        }
    }

    /// The marks of its item.
    pub(super) fn marks(&self) -> Marks {
        Marks::read(&self.marks).unwrap_or_default()
    }

    pub(super) fn to_data(&self) -> Bytes {
        to_data(self)
    }

    pub(super) fn read(data: &[u8]) -> Self {
        serde_json::from_slice(data).unwrap_or_else(|_| Self {
            reason: String::from_utf8_lossy(data).into_owned(),
            attempts: 0,
            holder: None,
            marks: String::new(),
        })
    }
}

fn to_data(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).map_or_else(|_| Bytes::new(), Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::lanes::{Lane, PLAIN};

    const ID: &str = "00112233445566778899aabbccddeeff";

    const FIRST: Segment = Segment { lane: PLAIN, number: 0 };

    #[test]
    fn only_what_a_queue_has_named_is_an_entry() {
        let name = format!("{ID}.2-0000000007");
        let entry = Entry::read(FIRST, &name).unwrap();
        assert_eq!((entry.number, entry.tries, entry.to_string()), (7, 2, name));
        let marked = Entry::read(FIRST, "order-7.0.p-5.kKay-0000000007").unwrap();
        let named = (marked.id.as_str(), marked.key(), marked.marks().priority);
        assert_eq!(named, ("order-7", Some("Kay"), -5));
        for foreign in [
            "qn-0000000007".to_owned(),
            format!("{ID}.2-7"),
            format!("{ID}.02-0000000007"),
            format!("{ID}-0000000007"),
            format!("{ID}%.2-0000000007"),
            format!("{ID}.2--000000007"),
            format!("{ID}.2.x7-0000000007"),
            format!("{ID}.2.ka.p3-0000000007"),
            ".2-0000000007".to_owned(),
        ] {
            assert_eq!(Entry::read(FIRST, &foreign), None, "{foreign}");
        }
    }

    #[test]
    fn each_take_of_an_item_has_a_claim_of_its_own() {
        let places = QueueNodes::new(ZnodePath::new("/jobs").unwrap());
        let entry = Entry::read(FIRST, &format!("{ID}.2-0000000007")).unwrap();
        let claim = entry.claim(&places, 1);
        assert_eq!(claim.as_str(), "/jobs/claims/0000000000-0000000007.2");
        let read =
            ClaimName { segment: entry.segment, number: entry.number, version: 2, free_from: None };
        assert_eq!(ClaimName::read(claim.name()), Some(read));
        assert_eq!((entry.taken(1), ClaimName::read("notes")), (3, None));
        assert_ne!(entry.claim(&places, 2), claim);
        // It came back to the end of the queue.
        let later = Segment { number: 9, ..FIRST };
        let later = Entry::read(later, &format!("{ID}.4-0000000007")).unwrap();
        assert_ne!(later.claim(&places, 1), claim);
        // In another lane.
        let sooner = Segment { lane: Lane::Ready(-2), number: 0 };
        let sooner = Entry::read(sooner, &format!("{ID}.2-0000000007")).unwrap();
        let claim = sooner.claim(&places, 1);
        assert_eq!(
            ClaimName::read(claim.name()),
            Some(ClaimName { segment: sooner.segment, ..read })
        );

        let pause = entry.pause(&places, 2, 1_700_000_000_123);
        assert_eq!(pause.name(), "0000000000-0000000007.2~1700000000123");
        let free_from = Some(1_700_000_000_123);
        assert_eq!(ClaimName::read(pause.name()), Some(ClaimName { free_from, ..read }));
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
