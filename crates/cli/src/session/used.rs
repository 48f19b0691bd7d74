//! What a path is used as, as far as its znode, its children and their data say.

use lockkeeper::{Client, Error, ErrorCode, OwnerInfo, SessionId, Stat, Usage, ZnodePath};
use serde_json::Value;
use tokio::time::timeout;

use crate::session::waiting::PATIENCE;
use crate::shared::exit::{Exit, Failure};

/// A recipe that uses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    Lock,
    Queue,
    Pool,
    Value,
    Counter,
    Ids,
    Group,
    Service,
    Barrier,
}

/// What the data of a znode begins with, if a recipe marks it.
const MARKS: [(&[u8], Used); 5] = [
    (b"{\"lockkeeper-queue\"", Used::Queue),
    (b"{\"lockkeeper-pool\"", Used::Pool),
    (b"{\"lockkeeper_publication\"", Used::Value),
    (b"{\"lockkeeper-double-barrier\"", Used::Barrier),
    (b"{\"lockkeeper-latch\"", Used::Barrier),
];

/// The children that only one recipe has together.
const CHILDREN: [([&str; 2], Used); 3] = [
    (["entries", "claims"], Used::Queue),
    (["held", "reserved"], Used::Ids),
    (["held", "line"], Used::Pool),
];

impl Used {
    /// What a path is, and the command that shows it.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Lock => ("a lock", "show"),
            Self::Queue => ("a queue", "queue ls"),
            Self::Pool => ("a pool", "pool ls"),
            Self::Value => ("a value", "value get"),
            Self::Counter => ("a counter", "counter get"),
            Self::Ids => ("a source of ids", "id"),
            Self::Group => ("a group", "members ls"),
            Self::Service => ("a service", "service ls"),
            Self::Barrier => ("a barrier", "barrier show"),
        }
    }

    /// By the data of the znode, and the names of its children.
    fn of(data: &[u8], names: &[String]) -> Option<Self> {
        Self::marked(data)
            .or_else(|| Self::of_children(names))
            .or_else(|| is_number(data).then_some(Self::Counter))
    }

    /// By the mark in the data alone.
    pub(crate) fn marked(data: &[u8]) -> Option<Self> {
        MARKS.iter().find(|(mark, _)| data.starts_with(mark)).map(|(_, used)| *used)
    }

    /// By the names of the children alone.
    pub(crate) fn of_children(names: &[String]) -> Option<Self> {
        let is_contender = |name: &String| Usage::of(std::slice::from_ref(name)).is_some();
        if Usage::of(names).is_some() || names.iter().any(is_contender) {
            return Some(Self::Lock);
        }
        let has = |name: &&str| names.iter().any(|own| own == *name);
        let found = CHILDREN.iter().find(|(children, _)| children.iter().all(has));
        found.map(|(_, used)| *used)
    }
}

/// Whether data is a number as Curator writes it, and so no text.
fn is_number(data: &[u8]) -> bool {
    data.len() == 8 && matches!(data[0], 0 | 0xff)
}

/// Looks at a path; `None` if no recipe is known to use it. Costs one round trip, or two if only the data of a child
/// can tell.
pub(crate) async fn look(client: &Client, path: &ZnodePath) -> Result<Option<Used>, Error> {
    let (data, names) = tokio::join!(biased; client.data(path), client.children(path));
    let (Some((data, _)), Some((names, _))) = (there(data)?, there(names)?) else {
        return Ok(None);
    };
    if let Some(used) = Used::of(&data, &names) {
        return Ok(Some(used));
    }
    let Some(child) = names.first().and_then(|name| path.child(name).ok()) else { return Ok(None) };
    Ok(there(client.data(&child).await)?.and_then(|(data, stat)| listed(path, &data, &stat)))
}

fn there<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What lists a child that goes with its session.
fn listed(path: &ZnodePath, data: &[u8], stat: &Stat) -> Option<Used> {
    // A lock or a barrier that is one znode is no concern of what is above it.
    if stat.ephemeral_owner == SessionId::NONE || OwnerInfo::from_data(data).is_some() {
        return None;
    }
    let instance: Option<Value> = serde_json::from_slice(data).ok();
    let is_instance = instance.is_some_and(|it| it["name"] == path.name() && it["id"].is_string());
    Some(if is_instance { Used::Service } else { Used::Group })
}

/// Refuses a path that another recipe uses.
pub(crate) async fn check(client: &Client, path: &ZnodePath, wanted: Used) -> Result<(), Failure> {
    match timeout(PATIENCE, look(client, path)).await {
        Ok(Ok(Some(found))) if found != wanted => {
            let ((what, see), (not, _)) = (found.names(), wanted.names());
            let not = not.trim_start_matches("a ");
            let message = format!("{path} is {what}, and no {not}");
            Err(Failure::new(Exit::Data, message).advise(&format!("see lockkeeper {see} {path}")))
        }
        // What cannot be seen now fails in so many words later.
        _ => Ok(()),
    }
}
