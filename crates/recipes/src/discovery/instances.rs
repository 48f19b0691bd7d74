//! The instances of a service at one moment, and the changes from one state to the next.

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

use lockkeeper_client::Zxid;

use crate::discovery::instance::Instance;
use crate::discovery::pick::Candidate;
use crate::watch::CachedNode;

/// The maximum length of a reason, in characters.
const MAX_REASON_CHARS: usize = 200;

/// An instance in a [`ServiceDirectory`](crate::ServiceDirectory).
#[derive(Clone, Debug, PartialEq)]
pub struct ListedInstance {
    node: Box<str>,
    czxid: Zxid,
    instance: Instance,
}

impl ListedInstance {
    /// The name of its node, which is unique in the service. It is the instance's id, possibly with a number
    /// appended, as in Curator's `DYNAMIC_SEQUENTIAL`.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The transaction that created its node. It grows each time the instance is registered again.
    pub fn czxid(&self) -> Zxid {
        self.czxid
    }

    /// Its data.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }
}

impl Deref for ListedInstance {
    type Target = Instance;

    fn deref(&self) -> &Instance {
        &self.instance
    }
}

impl Candidate for ListedInstance {
    fn id(&self) -> &str {
        &self.node
    }

    fn weight(&self) -> u32 {
        if self.is_enabled { self.weight } else { 0 }
    }

    fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// A restarted program may work although the previous one failed.
    fn is_same_endpoint(&self, earlier: &Self) -> bool {
        let at = |listed: &Self| (listed.czxid, listed.port, listed.ssl_port);
        at(self) == at(earlier) && self.address == earlier.address
    }
}

/// A node whose data is not an instance, that may not be read, or that is longer than the client accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The node's name.
    pub node: String,
    /// When it was written; 0 if it could not be read.
    pub mzxid: Zxid,
    /// Why it cannot be read.
    pub reason: String,
}

/// The instances of a [`ServiceDirectory`](crate::ServiceDirectory) at one moment, sorted by the names of their nodes.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    listed: Vec<Arc<ListedInstance>>,
    /// When each of them was written, in the same order.
    written: Vec<Zxid>,
    unreadable: Vec<Unreadable>,
    zxid: Zxid,
}

/// All instances as a slice, including those that do not take calls.
impl Deref for Instances {
    type Target = [Arc<ListedInstance>];

    fn deref(&self) -> &[Arc<ListedInstance>] {
        &self.listed
    }
}

impl Instances {
    /// The instance whose node has this name.
    pub fn by_node(&self, node: &str) -> Option<&Arc<ListedInstance>> {
        let found = self.listed.binary_search_by(|listed| (*listed.node).cmp(node));
        found.ok().map(|index| &self.listed[index])
    }

    /// The nodes that cannot be read now. If the data of the same node could be read before, its instance stays
    /// listed with the last state. A node that may not be read any more is not listed, because it may be another
    /// node. It is read again at intervals.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// The transaction after which the instances were these.
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Whether both are the same.
    pub(super) fn are(&self, others: &Self) -> bool {
        let mut both = self.listed.iter().zip(&others.listed);
        self.len() == others.len() && both.all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// The instances in these nodes, sorted by name, at a transaction. Unchanged nodes are not decoded again.
    pub(super) fn read<'a>(
        &self,
        nodes: impl Iterator<Item = (&'a str, &'a CachedNode)>,
        zxid: Zxid,
    ) -> Self {
        let mut now = Self { zxid, ..Self::default() };
        for (name, node) in nodes {
            let before = self.index_of(name, node.stat().czxid);
            let is_as_before = before.is_some_and(|index| self.written[index] == node.stat().mzxid);
            let known = before.map(|index| &self.listed[index]);
            match is_as_before {
                true => now.extend(known.cloned(), node),
                false => now.decode(name, node, known),
            }
        }
        now
    }

    /// The same instances, where these nodes may not be read.
    pub(super) fn without<'a>(mut self, nodes: impl Iterator<Item = &'a str>) -> Self {
        self.unreadable.extend(nodes.map(|node| Unreadable {
            node: node.to_owned(),
            mzxid: Zxid(0),
            reason: "its access control list does not let this client read it, or it is longer than \
                     this client takes (`max_frame`)"
                .to_owned(),
        }));
        self.unreadable.sort_by(|one, other| one.node.cmp(&other.node));
        self
    }

    /// The index of this node's instance.
    fn index_of(&self, node: &str, czxid: Zxid) -> Option<usize> {
        let index = self.listed.binary_search_by(|listed| (*listed.node).cmp(node)).ok()?;
        (self.listed[index].czxid == czxid).then_some(index)
    }

    fn decode(&mut self, name: &str, node: &CachedNode, known: Option<&Arc<ListedInstance>>) {
        let (czxid, mzxid) = (node.stat().czxid, node.stat().mzxid);
        match Instance::from_json(node.data()) {
            Ok(instance) => {
                let same = known.filter(|known| known.instance == instance).cloned();
                let listed = || Arc::new(ListedInstance { node: name.into(), czxid, instance });
                let listed = same.unwrap_or_else(listed);
                self.extend(Some(listed), node);
            }
            Err(error) => {
                // The error repeats the data that it does not understand, however long that is.
                let why = format!("its data is not the JSON of an instance: {error}");
                let reason = why.chars().take(MAX_REASON_CHARS).collect();
                self.unreadable.push(Unreadable { node: name.to_owned(), mzxid, reason });

                // The last readable state stays listed.
                if let Some(known) = known {
                    self.listed.push(Arc::clone(known));
                    // Never the time of a write, so that it is read again each time.
                    self.written.push(Zxid(0));
                }
            }
        }
    }

    fn extend(&mut self, listed: Option<Arc<ListedInstance>>, node: &CachedNode) {
        if let Some(listed) = listed {
            self.listed.push(listed);
            self.written.push(node.stat().mzxid);
        }
    }

    /// The differences from earlier ones.
    pub(super) fn changes_since(&self, earlier: &Self) -> Vec<InstanceChange> {
        let mut changes = Vec::new();
        let (mut old, mut new) = (earlier.listed.iter().peekable(), self.listed.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.node.cmp(&new.node),
            };
            let before = if order.is_le() { old.next().cloned() } else { None };
            let now = if order.is_ge() { new.next().cloned() } else { None };
            changes.extend(InstanceChange::between(before, now));
        }

        let known = |node: &str| {
            let found = earlier.unreadable.binary_search_by(|known| (*known.node).cmp(node));
            found.ok().map(|index| &earlier.unreadable[index])
        };
        let is_new = |unreadable: &&Unreadable| known(&unreadable.node) != Some(*unreadable);
        let unreadable = self.unreadable.iter().filter(is_new).cloned();
        changes.extend(unreadable.map(InstanceChange::Unreadable));
        changes
    }
}

/// A difference between two states of a directory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InstanceChange {
    /// A new instance.
    Added {
        /// The instance.
        now: Arc<ListedInstance>,
    },
    /// The data of an instance changed.
    Updated {
        /// Its earlier state.
        before: Arc<ListedInstance>,
        /// Its current state.
        now: Arc<ListedInstance>,
    },
    /// An instance was registered again: its node is another one.
    Replaced {
        /// Its earlier state.
        before: Arc<ListedInstance>,
        /// Its current state.
        now: Arc<ListedInstance>,
    },
    /// An instance is gone.
    Removed {
        /// Its last state.
        before: Arc<ListedInstance>,
    },
    /// A node has unreadable data, or may not be read. If it was an instance, that stays listed with its last
    /// state.
    Unreadable(Unreadable),
}

impl InstanceChange {
    fn between(
        before: Option<Arc<ListedInstance>>,
        now: Option<Arc<ListedInstance>>,
    ) -> Option<Self> {
        match (before, now) {
            (None, None) => None,
            (None, Some(now)) => Some(Self::Added { now }),
            (Some(before), None) => Some(Self::Removed { before }),
            (Some(before), Some(now)) if before.czxid != now.czxid => {
                Some(Self::Replaced { before, now })
            }
            (Some(before), Some(now)) if before != now => Some(Self::Updated { before, now }),
            _ => None,
        }
    }

    /// The name of the node.
    pub fn node(&self) -> &str {
        match self {
            Self::Added { now } | Self::Updated { now, .. } | Self::Replaced { now, .. } => {
                &now.node
            }
            Self::Removed { before } => &before.node,
            Self::Unreadable(unreadable) => &unreadable.node,
        }
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::Stat;

    use super::*;

    type Node = (&'static str, CachedNode);

    fn node(name: &'static str, data: &str, czxid: i64, mzxid: i64) -> Node {
        let stat = Stat { czxid: Zxid(czxid), mzxid: Zxid(mzxid), ..Stat::default() };
        (name, CachedNode::new(data.as_bytes(), stat))
    }

    fn instance(id: &str, weight: u32) -> String {
        String::from_utf8(Instance::new("web", id).weight(weight).to_json()).unwrap()
    }

    fn read(before: &Instances, nodes: &[Node]) -> Instances {
        before.read(nodes.iter().map(|(name, node)| (*name, node)), Zxid(9))
    }

    fn told(now: &Instances, before: &Instances) -> Vec<String> {
        let name = |change: &InstanceChange| match change {
            InstanceChange::Added { now } => format!("added {}", now.weight),
            InstanceChange::Updated { before, now } => {
                format!("updated {} {}", before.weight, now.weight)
            }
            InstanceChange::Replaced { .. } => "replaced".to_owned(),
            InstanceChange::Removed { .. } => "removed".to_owned(),
            InstanceChange::Unreadable(_) => "unreadable".to_owned(),
        };
        let changes = now.changes_since(before);
        changes.iter().map(|change| format!("{} {}", change.node(), name(change))).collect()
    }

    #[test]
    fn only_differences_are_told() {
        let none = Instances::default();
        let nodes = ["a", "b", "c", "d"].map(|name| node(name, &instance(name, 1), 1, 1)).to_vec();
        let first = read(&none, &nodes);
        assert_eq!(told(&first, &none), ["a added 1", "b added 1", "c added 1", "d added 1"]);
        let next = [
            node("a", &instance("a", 1), 1, 2),
            node("b", &instance("b", 5), 1, 3),
            node("bb", &instance("b", 7), 4, 4),
            node("d", &instance("d", 1), 5, 5),
        ];
        let next = read(&first, &next);
        let changes = ["b updated 1 5", "bb added 7", "c removed", "d replaced"];
        assert_eq!(told(&next, &first), changes, "the same data written again is none");
        assert!(Arc::ptr_eq(&next[0], &first[0]), "nor is it another instance");
        assert_eq!(told(&next, &next), Vec::<String>::new());
        assert_eq!(next.by_node("bb").map(|listed| &*listed.id), Some("b"));
    }

    #[test]
    fn an_instance_that_may_not_be_read_is_named_once() {
        let first = read(&Instances::default(), &[node("a", &instance("a", 1), 1, 1)]);
        let nodes = || [node("a", "{", 1, 2)];
        let hidden = read(&first, &nodes()).without(["b", "0"].into_iter());
        assert_eq!(told(&hidden, &first), ["0 unreadable", "a unreadable", "b unreadable"]);
        let still = read(&hidden, &nodes()).without(["b", "0"].into_iter());
        assert_eq!(told(&still, &hidden), Vec::<String>::new());
    }

    #[test]
    fn an_unreadable_instance_is_named_and_the_others_stay() {
        let none = Instances::default();
        let first = read(&none, &[node("a", &instance("a", 1), 1, 1), node("b", "", 1, 1)]);
        assert_eq!(told(&first, &none), ["a added 1", "b unreadable"]);

        let bad = read(&first, &[node("a", "{", 1, 2), node("b", "", 1, 1)]);
        assert_eq!(told(&bad, &first), ["a unreadable"]);
        assert_eq!((bad.len(), bad[0].weight), (1, 1), "it stays as it was");
        let still = read(&bad, &[node("a", "{", 1, 2)]);
        assert_eq!(told(&still, &bad), Vec::<String>::new());
        let good = read(&still, &[node("a", &instance("a", 2), 1, 3)]);
        assert_eq!(told(&good, &still), ["a updated 1 2"]);
        assert!(good.unreadable().is_empty());
        let another = read(&bad, &[node("a", "{", 4, 4)]);
        assert_eq!(told(&another, &bad), ["a removed", "a unreadable"], "not in its next life");
    }

    /// Any program with write access may write any data.
    #[test]
    fn hostile_data_is_unreadable_and_its_reason_is_short() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let long = format!("{{\"port\":\"{}\"}}", "9".repeat(100_000));
        let number = format!("{{\"port\":{}}}", "9".repeat(100_000));
        for data in
            [&*deep, &long, &number, "{\"port\":-1}", "{\"port\":65536}", "null", "\u{feff}{}"]
        {
            let read = read(&Instances::default(), &[node("a", data, 1, 1)]);
            assert!(read.is_empty(), "{}", &data[..20.min(data.len())]);
            assert!(read.unreadable()[0].reason.len() < 1_000);
        }
        let ignored = format!("{{\"other\":{deep},\"id\":\"7\",\"payload\":{deep}}}");
        let read = read(&Instances::default(), &[node("a", &ignored, 1, 1)]);
        assert_eq!((read.len(), &*read[0].id), (1, "7"));
        assert!(read[0].payload.as_ref().unwrap().read::<serde_json::Value>().is_err());
    }
}
