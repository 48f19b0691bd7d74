//! Names and data of a pool's nodes. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use lockkeeper_client::ZnodePath;
use lockkeeper_locks::for_recipes::{key_of, node_of};
use lockkeeper_locks::{BuildError, OwnerInfo};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::pool::decide::{HeldNow, Quota, Waiter, Wants};

/// The version of the layout, and its key in the data of the pool's node.
const FORMAT: u32 = 1;
const MARK: &str = "lockkeeper-pool";

/// The digits that servers append to the name of a sequential node.
const DIGITS: usize = 10;

/// Separates a holder's name from the number of one of its places. In a thing's name it is escaped.
const PLACE_SEPARATOR: char = '!';

/// The nodes of a pool.
#[derive(Clone, Debug)]
pub(super) struct PoolNodes {
    pub(super) path: ZnodePath,
    /// One ephemeral node for each thing that is held, and one for each place of a holder with a limit.
    pub(super) held: ZnodePath,
    /// The line. The version of its data counts the waiters that have come.
    pub(super) line: ZnodePath,
    /// The stored set, if the pool has one.
    pub(super) things: ZnodePath,
}

impl PoolNodes {
    pub(super) fn new(path: ZnodePath) -> Self {
        let child = |name| path.child(name).expect("a plain name");
        let (held, line, things) = (child("held"), child("line"), child("things"));
        Self { path, held, line, things }
    }

    /// The claim of a thing.
    pub(super) fn thing(&self, name: &str) -> Result<ZnodePath, BuildError> {
        node_of(&self.held, name)
    }

    /// A place of a holder.
    pub(super) fn place(&self, holder: &str, number: u32) -> Result<ZnodePath, BuildError> {
        let holder = node_of(&self.held, holder)?;
        Ok(self.held.child(&format!("{}{PLACE_SEPARATOR}{number}", holder.name()))?)
    }

    /// A waiter.
    pub(super) fn waiter(&self, node: &str) -> ZnodePath {
        self.line.child(node).expect("it was listed by this name")
    }

    pub(super) fn mark() -> Bytes {
        Bytes::from(format!("{{\"{MARK}\":{FORMAT}}}"))
    }

    /// Fails unless this is the data of a pool. The error describes what it is instead.
    pub(super) fn ensure_mark(data: &[u8]) -> Result<(), String> {
        let read: Option<BTreeMap<String, u32>> = serde_json::from_slice(data).ok();
        match read.as_ref().and_then(|mark| mark.get(MARK)) {
            Some(&FORMAT) => Ok(()),
            Some(format) => Err(format!("the pool layout {format} instead of {FORMAT}")),
            None if data.is_empty() => Err("no data".to_owned()),
            None => {
                let shown = String::from_utf8_lossy(&data[..data.len().min(64)]);
                Err(format!("the data {shown:?}"))
            }
        }
    }
}

/// The held things and places, parsed from the nodes' names. The error is the name of a foreign node.
pub(super) fn read_held(nodes: &[String]) -> Result<HeldNow, String> {
    let mut held = HeldNow::default();
    for node in nodes {
        let is_ours = match node.rsplit_once(PLACE_SEPARATOR) {
            None => key_of(node).map(|thing| held.things.insert(thing)),
            Some((holder, number)) => key_of(holder)
                .zip(number.parse().ok())
                .map(|(holder, number)| held.places.entry(holder).or_default().insert(number)),
        };
        is_ours.ok_or_else(|| node.clone())?;
    }
    Ok(held)
}

/// The prefix of the name of a waiter's node.
pub(super) fn waiter_prefix(id: Uuid) -> String {
    format!("{}-", id.simple())
}

/// Sorts the waiters in the order of their arrival. The error is the name of a foreign node.
pub(super) fn sort_line(nodes: &mut [String]) -> Result<(), String> {
    let number = |node: &str| -> Option<u64> {
        let (id, number) = node.rsplit_once('-')?;
        let is_number = number.len() >= DIGITS && number.bytes().all(|it| it.is_ascii_digit());
        number.parse().ok().filter(|_| is_number && Uuid::try_parse(id).is_ok())
    };
    if let Some(foreign) = nodes.iter().find(|node| number(node).is_none()) {
        return Err(foreign.clone());
    }
    nodes.sort_by_key(|node| number(node));
    Ok(())
}

/// The stored set: the names in their order.
pub(super) fn read_things(data: &[u8]) -> Result<Vec<String>, String> {
    serde_json::from_slice(data).map_err(|error| error.to_string())
}

/// The data of the node of a held thing, and of a place.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HeldData {
    #[serde(flatten)]
    pub(super) info: OwnerInfo,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<String>,
    /// Distinguishes the nodes of one attempt from those of others.
    attempt: String,
}

impl HeldData {
    pub(super) fn written(info: &OwnerInfo, quota: Option<&Quota>, attempt: Uuid) -> Bytes {
        let holder = quota.map(|quota| quota.holder.clone());
        to_json(&Self { info: info.clone(), holder, attempt: attempt.simple().to_string() })
    }

    pub(super) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

/// The data of a waiter's node. It does not change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WaiterData {
    #[serde(flatten)]
    pub(super) info: OwnerInfo,
    /// Whether it takes only things in the stored set.
    stored: bool,
    /// The only things that it takes, if limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) only: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most: Option<u32>,
}

impl WaiterData {
    pub(super) fn written(info: &OwnerInfo, wants: &Wants, quota: Option<&Quota>) -> Bytes {
        to_json(&Self {
            info: info.clone(),
            stored: wants.stored,
            only: wants.only.clone(),
            holder: quota.map(|quota| quota.holder.clone()),
            at_most: quota.map(|quota| quota.at_most),
        })
    }

    /// Parses the data of a node.
    pub(super) fn read(data: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(data).map_err(|error| error.to_string())
    }

    pub(super) fn waiter(self) -> Waiter {
        let wants = Wants { stored: self.stored, only: self.only };
        let quota = self.holder.zip(self.at_most);
        let quota = quota.map(|(holder, at_most)| Quota { holder, at_most });
        Waiter { wants, quota }
    }
}

fn to_json(value: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("strings, numbers and lists"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> PoolNodes {
        PoolNodes::new(ZnodePath::new("/gpu").unwrap())
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        let nodes = nodes();
        for name in ["0", "10.0.0.1:80", "a/b", "x!1", "", "..", "device-0000000001"] {
            let node = nodes.thing(name).unwrap().name().to_owned();
            let held = read_held(&[node]).unwrap();
            assert_eq!(held.things.into_iter().collect::<Vec<_>>(), [name]);
            assert!(held.places.is_empty());

            let place = nodes.place(name, 7).unwrap().name().to_owned();
            let held = read_held(&[place]).unwrap();
            assert!(held.things.is_empty());
            assert_eq!(held.places[name], BTreeSet::from([7]));
        }
        assert_eq!(read_held(&["%zz".to_owned()]).unwrap_err(), "%zz");
        assert_eq!(read_held(&["ann!x".to_owned()]).unwrap_err(), "ann!x");
    }

    #[test]
    fn a_line_is_in_the_order_of_its_numbers() {
        let node =
            |id: u128, number: u64| format!("{}{number:010}", waiter_prefix(Uuid::from_u128(id)));
        let mut line = vec![node(1, 12), node(3, 2_147_483_647), node(2, 3)];
        sort_line(&mut line).unwrap();
        assert_eq!(line, [node(2, 3), node(1, 12), node(3, 2_147_483_647)]);
        for foreign in ["x", "x-0000000001", "_c_-lock-0000000001"] {
            assert_eq!(sort_line(&mut [foreign.to_owned()]).unwrap_err(), foreign);
        }
    }

    #[test]
    fn data_is_read_as_it_was_written() {
        let info = OwnerInfo::current(Some("nightly".to_owned()));
        let wants = Wants { stored: true, only: Some(BTreeSet::from(["a".to_owned()])) };
        let quota = Quota { holder: "ann".to_owned(), at_most: 2 };
        let data = WaiterData::written(&info, &wants, Some(&quota));
        let read = WaiterData::read(&data).unwrap();
        assert_eq!(read.info, info);
        assert_eq!(read.waiter(), Waiter { wants, quota: Some(quota) });
        assert!(WaiterData::read(b"").is_err());

        let held = HeldData::written(&info, None, Uuid::from_u128(1));
        assert_eq!(
            OwnerInfo::from_data(&held),
            Some(info),
            "the holder is shown as that of a lock"
        );

        assert_eq!(PoolNodes::ensure_mark(&PoolNodes::mark()), Ok(()));
        assert!(PoolNodes::ensure_mark(b"{\"lockkeeper-pool\":2}").unwrap_err().contains('2'));
        assert!(PoolNodes::ensure_mark(b"").unwrap_err().starts_with("no data"));
        assert!(PoolNodes::ensure_mark(b"[1]").unwrap_err().contains("\"[1]\""));
    }
}
