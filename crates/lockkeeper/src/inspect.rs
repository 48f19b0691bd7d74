//! Who holds a lock, and who waits: for people and for tools.
//!
//! What is told is a snapshot that may be outdated when it arrives. Decide nothing by it that a
//! lock should decide.

use std::time::{Duration, SystemTime};

use lockkeeper_client::{Client, Error, ErrorCode, SessionId, ZnodePath};

use crate::order::{Line, Place, Standing};
use crate::{FencingToken, Kind, OwnerInfo, Profile};

/// The queue of one lock.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The lock.
    pub path: ZnodePath,
    /// How its contenders are named; `None` if there are none.
    pub profile: Option<Profile>,
    /// The contenders, first to last.
    pub entries: Vec<Entry>,
    /// Children that are no contenders.
    pub foreign: Vec<String>,
}

/// One contender.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its node.
    pub node: ZnodePath,
    /// What it asks for.
    pub kind: Kind,
    /// Whether nothing ahead of it is in its way.
    pub holds: bool,
    /// Its fencing token.
    pub token: FencingToken,
    /// Its session.
    pub session: SessionId,
    /// When it came into the line, by the server's clock.
    pub since: SystemTime,
    /// Who it is, if one of our programs wrote that.
    pub owner: Option<OwnerInfo>,
    /// The node's data.
    pub data: bytes::Bytes,
}

const ALL_KINDS: &[Kind] = &[Kind::Exclusive, Kind::Read, Kind::Write];

impl Queue {
    /// Looks at the queue of a lock; `None` if there is no such node. Costs two round trips.
    ///
    /// # Errors
    /// If a request fails.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn inspect(client: &Client, path: &ZnodePath) -> Result<Option<Self>, Error> {
        let names = match client.children(path).await {
            Ok((names, _)) => names,
            Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (profile, line, foreign) = read(&names);
        let entries = entries(client, path, &line).await?;
        Ok(Some(Self { path: path.clone(), profile, entries, foreign }))
    }

    /// Those who hold.
    pub fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.holds)
    }

    /// Those who wait, first to last.
    pub fn waiters(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.holds)
    }
}

impl Entry {
    /// For how long it has been in the line, if the server's clock and ours agree.
    pub fn age(&self) -> Duration {
        self.since.elapsed().unwrap_or_default()
    }
}

/// Reads the names by the profile that most of them follow.
fn read(names: &[String]) -> (Option<Profile>, Line, Vec<String>) {
    let follow = |profile: Profile| {
        let (ours, foreign): (Vec<_>, Vec<_>) =
            names.iter().cloned().partition(|name| profile.parse(name, ALL_KINDS).is_some());
        (profile, ours, foreign)
    };
    let (curator, kazoo) = (follow(Profile::Curator), follow(Profile::Kazoo));
    let (profile, ours, foreign) = if kazoo.1.len() > curator.1.len() { kazoo } else { curator };
    let found = (!ours.is_empty()).then_some(profile);
    (found, Line::read(ours, profile, ALL_KINDS).unwrap_or_default(), foreign)
}

async fn entries(client: &Client, path: &ZnodePath, line: &Line) -> Result<Vec<Entry>, Error> {
    let nodes =
        line.places().iter().filter_map(|place| Some((place, path.child(&place.name).ok()?)));
    let asked: Vec<_> = nodes.map(|(place, node)| (place, client.data(&node), node)).collect();
    let mut entries = Vec::with_capacity(asked.len());
    for (place, reply, node) in asked {
        match reply.await {
            Ok((data, stat)) => entries.push(entry(place, line, node, data, &stat)),
            // It left between the listing and the look.
            Err(error) if error.code() == Some(ErrorCode::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(entries)
}

fn entry(
    place: &Place,
    line: &Line,
    node: ZnodePath,
    data: bytes::Bytes,
    stat: &lockkeeper_client::Stat,
) -> Entry {
    let since = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default());
    Entry {
        kind: place.kind,
        holds: line.standing(&place.name) == Standing::Held,
        token: FencingToken::new(stat.czxid),
        session: stat.ephemeral_owner,
        since: SystemTime::UNIX_EPOCH + since,
        owner: OwnerInfo::from_data(&data),
        data,
        node,
    }
}
