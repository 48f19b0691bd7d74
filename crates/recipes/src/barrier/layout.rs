//! Names and data of parties and rounds, and which parties enter a round. No I/O.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use lockkeeper_client::ZnodePath;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::barrier::error::{BarrierError, Missing};

/// The version of the layout.
const FORMAT: u32 = 1;

/// The number of digits that servers append to the name of a sequential node, and of a round's number.
const DIGITS: usize = 10;

/// The number of digits that identify a set of parties, and of digits that identify one entry of a party.
const TAG_DIGITS: usize = 8;
const ID_DIGITS: usize = 16;

/// The nodes of a double barrier.
#[derive(Clone, Debug)]
pub(super) struct BarrierNodes {
    pub(super) path: ZnodePath,
    pub(super) rounds: ZnodePath,
    pub(super) left: ZnodePath,
}

impl BarrierNodes {
    pub(super) fn new(path: ZnodePath) -> Self {
        let child = |name| path.child(name).expect("a plain name");
        let (rounds, left) = (child("rounds"), child("left"));
        Self { path, rounds, left }
    }

    /// The directory of a round's parties.
    pub(super) fn round(&self, number: u32) -> ZnodePath {
        self.rounds.child(&round_name(number)).expect("digits")
    }

    /// The directory of the marks of parties that have left the round.
    pub(super) fn left(&self, number: u32) -> ZnodePath {
        self.left.child(&round_name(number)).expect("digits")
    }

    /// The node of a party.
    pub(super) fn party(&self, number: u32, node: &PartyName) -> ZnodePath {
        self.round(number).child(&node.node).expect("it was a name before")
    }

    /// The mark of a party that has left.
    pub(super) fn left_mark(&self, number: u32, node: &PartyName) -> ZnodePath {
        self.left(number).child(&node.node).expect("it was a name before")
    }
}

fn round_name(number: u32) -> String {
    format!("{number:0DIGITS$}")
}

/// The number of the newest of these rounds, which parties enter.
pub(super) fn newest_round(names: &[String]) -> Option<u32> {
    rounds_before(names, u32::MAX).max()
}

/// The numbers of those of these rounds that are below `end`.
pub(super) fn rounds_before(names: &[String], end: u32) -> impl Iterator<Item = u32> {
    let numbers = names.iter().filter(|name| name.len() == DIGITS);
    numbers.filter_map(|name| name.parse().ok()).filter(move |number| *number < end)
}

/// The name of a party's node: `<name>.<8 hexadecimal digits for the parties><16 of an identifier><number>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct PartyName {
    node: String,
    /// The length of the party's own name in it.
    len: usize,
    number: u32,
}

impl PartyName {
    /// Parses the name of a node in a round's directory; `None` if it is not a party.
    pub(super) fn read(node: &str) -> Option<Self> {
        let (name, rest) = node.rsplit_once('.')?;
        if name.is_empty() || rest.len() != TAG_DIGITS + ID_DIGITS + DIGITS || !rest.is_ascii() {
            return None;
        }
        let (id, number) = rest.split_at(TAG_DIGITS + ID_DIGITS);
        let is_id = id.bytes().all(|it| it.is_ascii_hexdigit());
        let number = number.parse().ok().filter(|_| is_id)?;
        Some(Self { node: node.to_owned(), len: name.len(), number })
    }

    /// The party's own name.
    pub(super) fn name(&self) -> &str {
        &self.node[..self.len]
    }

    /// Identifies the set of parties for which it waits.
    fn tag(&self) -> &str {
        &self.node[self.len + 1..][..TAG_DIGITS]
    }

    /// Its number in the order of arrival in the round.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn as_str(&self) -> &str {
        &self.node
    }

    /// Whether its node was created with this prefix.
    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        self.node.starts_with(prefix)
    }
}

impl TryFrom<String> for PartyName {
    type Error = String;

    fn try_from(node: String) -> Result<Self, String> {
        Self::read(&node).ok_or_else(|| format!("{node:?} is not a party"))
    }
}

impl From<PartyName> for String {
    fn from(name: PartyName) -> Self {
        name.node
    }
}

/// The prefix of the name of a party's node, for one entry of the party.
pub(super) fn prefix(name: &str, parties: &Parties, id: Uuid) -> Result<String, BarrierError> {
    let bad =
        |reason: &str| BarrierError::Name { name: name.to_owned(), reason: reason.to_owned() };
    if name.is_empty() {
        return Err(bad("it is empty"));
    }
    if name.contains('/') {
        return Err(bad("it has a slash"));
    }
    let id = id.simple().to_string();
    ZnodePath::new(&format!("/{name}.")).map_err(|error| bad(&error.to_string()))?;
    Ok(format!("{name}.{}{}", parties.tag(), &id[..ID_DIGITS]))
}

/// The data of a round's node. It is empty before the round has opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RoundData {
    /// The parties in the round, in the order in which they came.
    pub(super) parties: Vec<PartyName>,
    /// The parties that have died inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) died: Vec<PartyName>,
    /// Whether all others have left. If no party has died, the node is deleted instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_over: bool,
}

/// The state of a round, from the data of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RoundState {
    /// Parties enter.
    Waits,
    /// The round has opened.
    Opened(RoundData),
}

impl RoundState {
    pub(super) fn read(data: &[u8]) -> Result<Self, String> {
        if data.is_empty() {
            return Ok(Self::Waits);
        }
        let opened = serde_json::from_slice(data);
        opened.map(Self::Opened).map_err(|error| format!("not a round ({error})"))
    }
}

impl RoundData {
    pub(super) fn opening(parties: Vec<PartyName>) -> Self {
        Self { parties, died: Vec::new(), is_over: false }
    }

    pub(super) fn to_data(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("strings and lists"))
    }

    pub(super) fn has(&self, prefix: &str) -> bool {
        self.parties.iter().any(|party| party.has_prefix(prefix))
    }

    /// The next party in the ring of those that may be inside.
    pub(super) fn next_inside<'a>(
        &'a self,
        own: &PartyName,
        is_inside: impl Fn(&PartyName) -> bool,
    ) -> Option<&'a PartyName> {
        let place = self.parties.iter().position(|party| party == own)?;
        let (before, after) = self.parties.split_at(place);
        after[1..].iter().chain(before).find(|party| is_inside(party))
    }

    /// The updated round if its state has changed: which parties have died, and whether the round is over.
    /// `present`, `left`: the nodes of parties, and the marks of parties that have left.
    pub(super) fn judged(&self, present: &[String], left: &[String]) -> Option<Self> {
        let [present, left]: [HashSet<&str>; 2] =
            [present, left].map(|names| names.iter().map(String::as_str).collect());
        let is_gone = |party: &&PartyName| !present.contains(party.as_str());
        let gone = || self.parties.iter().filter(is_gone);
        let died: Vec<_> = gone().filter(|it| !left.contains(it.as_str())).cloned().collect();
        let is_over = gone().count() == self.parties.len();
        let judged = Self { parties: self.parties.clone(), died, is_over };
        (judged != *self).then_some(judged)
    }

    /// The names of the dead parties, except this one.
    pub(super) fn names_of_died(&self, own: &PartyName) -> Vec<String> {
        let others = self.died.iter().filter(|party| *party != own);
        others.map(|party| party.name().to_owned()).collect()
    }
}

/// The parties that a round needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parties {
    /// This number of any parties.
    Count(usize),
    /// Exactly these parties.
    Names(Vec<String>),
}

impl Parties {
    /// Sorted, so that all programs have the same list.
    pub(super) fn named(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        Self::Names(names)
    }

    /// The parties that enter the next round, from these nodes in the order of arrival; or those that are
    /// missing. Of equal names, the oldest counts.
    pub(super) fn standing(&self, nodes: &[String]) -> Result<Vec<PartyName>, Missing> {
        let mut waiting: Vec<_> = nodes.iter().filter_map(|node| PartyName::read(node)).collect();
        let own = self.tag();
        waiting.retain(|party| party.tag() == own);
        waiting.sort_unstable_by_key(|party| party.number);
        let mut seen = HashSet::new();
        waiting.retain(|party| seen.insert(party.name().to_owned()));
        match self {
            Self::Count(count) => match count.checked_sub(waiting.len()) {
                None | Some(0) => {
                    waiting.truncate(*count);
                    Ok(waiting)
                }
                Some(missing) => Err(Missing::Count(missing)),
            },
            Self::Names(names) => {
                let missing: Vec<_> =
                    names.iter().filter(|name| !seen.contains(*name)).cloned().collect();
                if !missing.is_empty() {
                    return Err(Missing::Names(missing));
                }
                waiting.retain(|party| names.iter().any(|name| name == party.name()));
                Ok(waiting)
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Count(count) => *count == 0,
            Self::Names(names) => names.is_empty(),
        }
    }

    /// Identifies the parties. Only programs with the same parties enter the same round.
    fn tag(&self) -> String {
        let text = match self {
            Self::Count(count) => count.to_string(),
            // Names have no slashes.
            Self::Names(names) => names.iter().fold(String::new(), |text, name| text + name + "/"),
        };
        format!("{:08x}", crc32c::crc32c(text.as_bytes()))
    }

    /// The parties that are missing, other than this one, given the nodes in the round.
    pub(super) fn missing(&self, nodes: &[String], own: &str) -> Missing {
        match self.standing(nodes) {
            Ok(_) => self.none_missing(),
            Err(Missing::Count(count)) => {
                let tag = self.tag();
                let waits = |party: PartyName| party.name() == own && party.tag() == tag;
                let is_there = nodes.iter().filter_map(|node| PartyName::read(node)).any(waits);
                Missing::Count(if is_there { count } else { count - 1 })
            }
            Err(Missing::Names(names)) => {
                Missing::Names(names.into_iter().filter(|name| name != own).collect())
            }
            Err(missing) => missing,
        }
    }

    /// The parties in the round that wait for other parties than these.
    pub(super) fn others(&self, nodes: &[String]) -> Vec<String> {
        let own = self.tag();
        let parties = nodes.iter().filter_map(|node| PartyName::read(node));
        let mut others: Vec<_> = parties.filter(|it| it.tag() != own).collect();
        others.sort_unstable_by_key(PartyName::number);
        others.into_iter().map(|party| party.name().to_owned()).collect()
    }

    /// No party is missing.
    pub(super) fn none_missing(&self) -> Missing {
        match self {
            Self::Count(_) => Missing::Count(0),
            Self::Names(_) => Missing::Names(Vec::new()),
        }
    }
}

/// The largest number of parties that is recognised from a node's name.
const MAX_WANTED: usize = 10_000;

/// The number of parties that each of these needs for a round; `None` if they are declared by name.
pub(super) fn wanted(parties: &[PartyName]) -> Vec<Option<usize>> {
    let mut known: BTreeMap<&str, Option<usize>> = BTreeMap::new();
    let count = |tag: &str| (1..=MAX_WANTED).find(|it| Parties::Count(*it).tag() == tag);
    parties
        .iter()
        .map(|party| *known.entry(party.tag()).or_insert_with(|| count(party.tag())))
        .collect()
}

/// The kind of a Lockkeeper node, stored in its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rounds,
    Latch,
}

impl Kind {
    const fn key(self) -> &'static str {
        match self {
            Self::Rounds => "lockkeeper-double-barrier",
            Self::Latch => "lockkeeper-latch",
        }
    }

    pub(super) const fn shown(self) -> &'static str {
        match self {
            Self::Rounds => "double barrier",
            Self::Latch => "latch",
        }
    }

    pub(super) fn mark(self) -> Bytes {
        Bytes::from(format!("{{\"{}\":{FORMAT}}}", self.key()))
    }

    /// Parses the kind from a node's data; `None` for any other data.
    pub(super) fn of(data: &[u8]) -> Option<Self> {
        let mark: BTreeMap<String, serde::de::IgnoredAny> = serde_json::from_slice(data).ok()?;
        [Self::Rounds, Self::Latch].into_iter().find(|kind| mark.contains_key(kind.key()))
    }

    /// Whether the data of a node is this mark.
    ///
    /// # Errors
    /// [`BarrierError::Foreign`] if not.
    pub(super) fn ensure(self, path: &ZnodePath, data: &[u8]) -> Result<(), BarrierError> {
        let read: Result<BTreeMap<String, u32>, _> = serde_json::from_slice(data);
        let found = match read {
            Ok(mark) => match mark.get(self.key()) {
                Some(&FORMAT) => return Ok(()),
                Some(format) => format!("layout {format} instead of {FORMAT}"),
                None => match Self::of(data) {
                    Some(kind) => format!("a {}", kind.shown()),
                    None => "other data".to_owned(),
                },
            },
            Err(_) if data.is_empty() => "no data".to_owned(),
            Err(_) => {
                let shown = String::from_utf8_lossy(&data[..data.len().min(64)]);
                format!("{shown:?}")
            }
        };
        Err(BarrierError::Foreign { path: path.clone(), kind: self.shown(), found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_of(parties: &Parties, name: &str, number: u32) -> String {
        format!("{}{number:010}", prefix(name, parties, Uuid::from_u128(7)).unwrap())
    }

    fn node(name: &str, number: u32) -> String {
        node_of(&Parties::Count(3), name, number)
    }

    fn party(name: &str, number: u32) -> PartyName {
        PartyName::read(&node(name, number)).unwrap()
    }

    fn shown(parties: &[PartyName]) -> Vec<&str> {
        parties.iter().map(PartyName::name).collect()
    }

    #[test]
    fn a_party_is_called_what_it_is_called() {
        let three = Parties::Count(3);
        let name = prefix("a.b", &three, Uuid::from_u128(7)).unwrap();
        let read = PartyName::read(&format!("{name}0000000003")).unwrap();
        assert_eq!((read.name(), read.number), ("a.b", 3));
        assert!(read.has_prefix(&name));
        for foreign in ["ready", "a", ".0123456789abcdef0000000001", "a.0123456789abcdef-000000001"]
        {
            assert_eq!(PartyName::read(foreign), None, "{foreign}");
        }
        for bad in ["", "a/b", "a\u{0}b"] {
            assert!(prefix(bad, &three, Uuid::nil()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_oldest_come_into_a_round_and_each_name_once() {
        let three = Parties::Count(3);
        let nodes = [node("c", 4), node("a", 1), node("a", 2)];
        assert_eq!(three.standing(&nodes), Err(Missing::Count(1)));
        let nodes = [node("d", 9), node("c", 4), node("a", 2), node("b", 3), node("a", 1)];
        let into = three.standing(&nodes).unwrap();
        assert_eq!(into, [party("a", 1), party("b", 3), party("c", 4)]);
    }

    #[test]
    fn declared_parties_enter_a_round() {
        let names = Parties::Names(["a", "b"].map(str::to_owned).to_vec());
        let missing = Missing::Names(vec!["b".to_owned()]);
        let of = |name, number| node_of(&names, name, number);
        let nodes = [node("x", 0), of("a", 1)];
        assert_eq!(names.standing(&nodes), Err(missing.clone()));
        assert_eq!(names.missing(&nodes, "a"), missing);
        assert_eq!(missing.to_string(), "b missing");
        let nodes = [of("b", 2), node("x", 0), of("a", 1)];
        assert_eq!(shown(&names.standing(&nodes).unwrap()), ["a", "b"]);
    }

    #[test]
    fn a_node_says_how_many_parties_it_waits_for() {
        let tags: HashSet<_> = (1..=MAX_WANTED).map(|it| Parties::Count(it).tag()).collect();
        assert_eq!(tags.len(), MAX_WANTED, "two numbers look the same");
        let of = |parties: &Parties| PartyName::read(&node_of(parties, "a", 0)).unwrap();
        let (most, names) = (Parties::Count(MAX_WANTED), Parties::named(["3"]));
        let nodes = [Parties::Count(1), most, names].map(|parties| of(&parties));
        assert_eq!(wanted(&nodes), [Some(1), Some(MAX_WANTED), None]);
    }

    #[test]
    fn parties_that_wait_for_others_are_not_counted() {
        let (two, three) = (Parties::Count(2), Parties::Count(3));
        let nodes = [node_of(&two, "a", 0), node("b", 1)];
        assert_eq!(two.standing(&nodes), Err(Missing::Count(1)));
        assert_eq!(three.standing(&nodes), Err(Missing::Count(2)));
        assert_eq!(two.others(&nodes), ["b"]);
        assert_eq!(three.missing(&[], "c"), Missing::Count(2), "it has just gone");
        assert_eq!(three.missing(&nodes, "b"), Missing::Count(2));
    }

    #[test]
    fn a_party_gone_without_a_mark_has_died() {
        let parties = vec![party("a", 0), party("b", 1), party("c", 2)];
        let round = RoundData::opening(parties.clone());
        let names = |of: &[usize]| of.iter().map(|it| parties[*it].as_str().to_owned()).collect();
        let judged = |present: &[usize], left: &[usize]| {
            let (present, left): (Vec<_>, Vec<_>) = (names(present), names(left));
            round.judged(&present, &left)
        };
        assert_eq!(judged(&[0, 1, 2], &[]), None);
        assert_eq!(judged(&[0, 2], &[1]), None, "it has left");
        let died = judged(&[0], &[1]).unwrap();
        assert_eq!((died.names_of_died(&parties[0]), died.is_over), (vec!["c".to_owned()], false));
        let over = judged(&[], &[1, 0]).unwrap();
        assert_eq!((over.names_of_died(&parties[0]), over.is_over), (vec!["c".to_owned()], true));
        let over = judged(&[], &[1, 0, 2]).unwrap();
        assert!(over.died.is_empty() && over.is_over);
    }

    #[test]
    fn a_ring_goes_around() {
        let parties = vec![party("a", 0), party("b", 1), party("c", 2)];
        let round = RoundData::opening(parties.clone());
        let next = |own: usize, inside: &[usize]| {
            let inside: Vec<_> = inside.iter().map(|it| parties[*it].clone()).collect();
            let found = round.next_inside(&parties[own], |party| inside.contains(party));
            found.map(PartyName::name).map(str::to_owned)
        };
        assert_eq!(next(0, &[0, 1, 2]).as_deref(), Some("b"));
        assert_eq!(next(2, &[0, 1, 2]).as_deref(), Some("a"));
        assert_eq!(next(2, &[1, 2]).as_deref(), Some("b"));
        assert_eq!(next(1, &[1]), None);
    }

    #[test]
    fn what_is_written_can_be_read() {
        assert_eq!(RoundState::read(b""), Ok(RoundState::Waits));
        let mut round = RoundData::opening(vec![party("a", 0)]);
        for _ in 0..2 {
            let read = RoundState::read(&round.to_data()).unwrap();
            assert_eq!(read, RoundState::Opened(round.clone()));
            round = RoundData { died: round.parties.clone(), is_over: true, ..round };
        }
        assert!(RoundState::read(b"10.0.0.1").is_err());
        let path = ZnodePath::new("/b").unwrap();
        assert_eq!(Kind::Latch.ensure(&path, &Kind::Latch.mark()), Ok(()));
        assert!(Kind::Latch.ensure(&path, &Kind::Rounds.mark()).is_err());
        assert!(Kind::Latch.ensure(&path, b"{\"lockkeeper-latch\":2}").is_err());
        assert_eq!(newest_round(&["0000000003", "x", "0000000012"].map(str::to_owned)), Some(12));
    }
}
