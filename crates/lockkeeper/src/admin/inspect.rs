//! Who holds a lock, and who waits: for people and for tools.
//!
//! The result is a snapshot that may be outdated when it arrives. Do not use it for a decision that a
//! lock should make.

#![expect(clippy::disallowed_types, reason = "the server's wall time, for people to read")]

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lockkeeper_client::{
    Client, Error, ErrorCode, Reply, SessionId, Stat, ZnodePath, Zxid, present,
};

use crate::contender::order::{Place, Standing, WaitQueue};
use crate::guard::revocation::REQUEST;
use crate::owner_info::OwnerInfo;
use crate::permit_format::PermitFormat;
use crate::profile::{Kind, LEASES, Profile, has_curators_leases, is_kazoo_lease};
use crate::token::FencingToken;

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
    /// How many permits there are, if it is a semaphore that says so.
    pub permits: Option<u32>,
}

/// One contender.
///
/// Of a node that may not be read only the name is known, and so its place in the queue. Then
/// [`Entry::is_readable`] is false, the token is 0, and there is no session and no data.
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
    /// When it came into the queue, by the server's clock; when it was seen, if the node may not be read.
    pub since: SystemTime,
    /// Who it is, if one of our programs wrote that.
    pub owner: Option<OwnerInfo>,
    /// The node's data.
    pub data: Bytes,
    /// Whether its node could be read. It could not without the permission, nor if all contenders come and
    /// go faster than they can be looked at.
    pub is_readable: bool,
}

/// The queues of the locks below a path.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// The queues that have contenders, by path.
    pub queues: Vec<Queue>,
    /// The nodes whose children the session may not list.
    pub unreadable: Vec<ZnodePath>,
}

/// How many requests are on their way at once.
const AT_ONCE: usize = 256;

/// How often a queue is listed, if contenders leave before their nodes are read.
const LOOKS: u32 = 4;

impl Queue {
    /// Looks at the queue of a lock; `None` if there is no such node. Costs two round trips, and one more
    /// for a [`Semaphore`](crate::Semaphore) in Curator's layout, of which it shows the leases. If contenders
    /// leave meanwhile, it looks again, up to three times.
    ///
    /// # Errors
    /// If a request fails. That a contender's node may not be read is none: see [`Entry::is_readable`].
    ///
    /// # Session loss
    /// Fails, as a [`Reply`] does.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn inspect(client: &Client, path: &ZnodePath) -> Result<Option<Self>, Error> {
        let mut looks = 1;
        loop {
            let Some((mut names, _)) = present(client.children(path).await)? else {
                return Ok(None);
            };
            let mut place = path.clone();
            if has_curators_leases(&names)
                && let Ok(leases) = path.child(LEASES)
                && let Some((found, _)) = present(client.children(&leases).await)?
            {
                (place, names) = (leases, found);
            }

            let (profile, queue, foreign) = read(&names);
            let seen = Seen::of(ask(client, &place, &queue)).await?;
            // Who came after one that left is in no listing yet, and may hold.
            if seen.gone.is_empty() || looks == LOOKS {
                let (entries, permits) = seen.entries(&queue);
                return Ok(Some(Self { path: path.clone(), profile, entries, foreign, permits }));
            }
            looks += 1;
        }
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

/// Looks for the queues of all locks at a path and below it: nodes that have contenders. ZooKeeper's
/// own nodes are left out, and a lock without contenders is not found. Costs two round trips for each
/// level, and more where one has hundreds of nodes, or contenders leave meanwhile.
///
/// # Errors
/// If a request fails for another reason than a missing permission.
///
/// # Session loss
/// Fails, as a [`Reply`] does.
///
/// # Cancel safety
/// Safe: it only reads.
pub async fn queues(client: &Client, below: &ZnodePath) -> Result<Queues, Error> {
    let mut found = Queues::default();
    let mut level = vec![below.clone()];
    while !level.is_empty() {
        let mut next = Vec::new();
        for nodes in level.chunks(AT_ONCE) {
            next.extend(found.look(client, nodes).await?);
        }
        level = next;
    }
    found.queues.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

impl Queues {
    /// Looks into some nodes; gives what is to be looked into next.
    async fn look(
        &mut self,
        client: &Client,
        nodes: &[ZnodePath],
    ) -> Result<Vec<ZnodePath>, Error> {
        let asked: Vec<_> = nodes.iter().map(|node| (node, client.children(node))).collect();
        let (mut queues, mut next) = (Vec::new(), Vec::new());
        for (node, reply) in asked {
            let names = match reply.await {
                Ok((names, _)) => names,
                Err(error) if error.code() == Some(ErrorCode::NoNode) => continue,
                Err(error) if error.code() == Some(ErrorCode::NoAuth) => {
                    self.unreadable.push(node.clone());
                    continue;
                }
                Err(error) => return Err(error),
            };

            let (profile, queue, foreign) = read(&names);
            // A name that looks like a lease may also be a key, with locks below it.
            let leases = names.iter().filter(|name| is_kazoo_lease(name));
            let others = foreign.iter().chain(leases.filter(|name| !foreign.contains(name)));
            let others = others.filter_map(|name| node.child(name).ok());
            next.extend(others.filter(|child| child.as_str() != "/zookeeper"));
            if profile.is_some() {
                queues.push((node, profile, queue, foreign));
            }
        }

        let asked: Vec<_> =
            queues.iter().map(|(node, _, queue, _)| ask(client, node, queue)).collect();
        let mut looks = Vec::with_capacity(asked.len());
        for asked in asked {
            looks.push(Seen::of(asked).await?);
        }

        for (seen, (node, profile, queue, foreign)) in looks.into_iter().zip(&queues) {
            if seen.gone.is_empty() {
                let (entries, permits) = seen.entries(queue);
                let (path, profile, foreign) = ((*node).clone(), *profile, foreign.clone());
                self.add(Queue { path, profile, entries, foreign, permits });
            } else if let Some(queue) = Queue::inspect(client, node).await? {
                self.add(queue);
            }
        }
        Ok(next)
    }

    fn add(&mut self, queue: Queue) {
        if !queue.entries.is_empty() {
            self.queues.push(queue);
        }
    }
}

impl Entry {
    /// Whether it has been asked to give way, as far as the node tells.
    pub fn is_revoked(&self) -> bool {
        self.data == REQUEST || self.owner.as_ref().is_some_and(|owner| owner.revoked)
    }

    /// For how long it has been in the queue, if the server's clock and ours agree.
    pub fn age(&self) -> Duration {
        self.since.elapsed().unwrap_or_default()
    }
}

/// Who it is, as far as that is known.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => owner.fmt(f),
            None => write!(f, "{} of session {}", self.node, self.session),
        }
    }
}

/// Reads the names by the profile that most of them follow.
fn read(names: &[String]) -> (Option<Profile>, WaitQueue, Vec<String>) {
    let follow = |profile: Profile| {
        let (ours, foreign): (Vec<_>, Vec<_>) =
            names.iter().cloned().partition(|name| profile.parse(name, Kind::ALL).is_some());
        (profile, ours, foreign)
    };
    let (curator, kazoo) = (follow(Profile::Curator), follow(Profile::Kazoo));
    let (profile, ours, foreign) = if kazoo.1.len() > curator.1.len() { kazoo } else { curator };
    let found = (!ours.is_empty()).then_some(profile);
    (found, WaitQueue::read(ours, profile, Kind::ALL).unwrap_or_default(), foreign)
}

/// Requests that are on their way.
struct PendingReads<'a> {
    /// One for each contender.
    entries: Vec<(&'a Place, PendingRead, ZnodePath)>,
    /// The node that says how many permits there are.
    permits: Option<PendingRead>,
}

type PendingRead = Reply<NodeRead>;
type NodeRead = (Bytes, Stat);

fn ask<'a>(client: &Client, path: &ZnodePath, queue: &'a WaitQueue) -> PendingReads<'a> {
    let nodes =
        queue.places().iter().filter_map(|place| Some((place, path.child(&place.name).ok()?)));
    let counted = queue.places().iter().any(|place| place.kind.permits().is_some());
    PendingReads {
        entries: nodes.map(|(place, node)| (place, client.data(&node), node)).collect(),
        permits: counted.then(|| client.data(path)),
    }
}

/// What the reads have shown of the contenders that were listed.
struct Seen<'a> {
    /// Those whose nodes were there, with what is in them if that may be read.
    there: Vec<(&'a Place, ZnodePath, Option<NodeRead>)>,
    /// Those who left between the listing and the look.
    gone: Vec<(&'a Place, ZnodePath)>,
    permits: Option<u32>,
}

impl<'a> Seen<'a> {
    async fn of(asked: PendingReads<'a>) -> Result<Self, Error> {
        let permits = match asked.permits {
            Some(reply) => {
                present(reply.await)?.and_then(|(data, _)| PermitFormat::Text.read(&data))
            }
            None => None,
        };

        let (mut there, mut gone) = (Vec::with_capacity(asked.entries.len()), Vec::new());
        for (place, reply, node) in asked.entries {
            match reply.await {
                Ok(found) => there.push((place, node, Some(found))),
                Err(error) if error.code() == Some(ErrorCode::NoNode) => gone.push((place, node)),
                Err(error) if error.code() == Some(ErrorCode::NoAuth) => {
                    there.push((place, node, None));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self { there, gone, permits })
    }

    /// The contenders and the number of permits, in a queue that was listed like this.
    fn entries(self, listed: &WaitQueue) -> (Vec<Entry>, Option<u32>) {
        let Self { mut there, gone, permits } = self;
        let mut queue = listed.clone();
        if there.is_empty() {
            // Only the listing is left to go by: it tells that they were there, and nothing tells that the
            // lock is free now.
            there = gone.into_iter().map(|(place, node)| (place, node, None)).collect();
        } else {
            queue.keep(|place| gone.iter().all(|(gone, _)| *gone != place));
        }
        // Where the number is a convention of the programs, every lease holds.
        queue.set_permits(permits.unwrap_or(u32::MAX));

        let entries = there.into_iter().map(|(place, node, found)| {
            let holds = queue.standing(&place.name) == Standing::Held;
            entry(place.kind, holds, node, found)
        });
        // Without a number of permits it is no semaphore of kazoo's: anything may have such a name.
        let is_one = |entry: &Entry| permits.is_some() || !is_kazoo_lease(entry.node.name());
        (entries.filter(is_one).collect(), permits)
    }
}

fn entry(kind: Kind, holds: bool, node: ZnodePath, found: Option<NodeRead>) -> Entry {
    let Some((data, stat)) = found else {
        let (token, session, since) =
            (FencingToken::new(Zxid(0)), SessionId::NONE, SystemTime::now());
        let (owner, data, is_readable) = (None, Bytes::new(), false);
        return Entry { node, kind, holds, token, session, since, owner, data, is_readable };
    };

    let since = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default());
    Entry {
        node,
        kind,
        holds,
        token: FencingToken::new(stat.czxid),
        session: stat.ephemeral_owner,
        since: SystemTime::UNIX_EPOCH + since,
        owner: OwnerInfo::from_data(&data),
        data,
        is_readable: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of those who hold, of a queue of three in which some left before they were read.
    fn holders(gone: &[usize]) -> Vec<String> {
        let name = |number: usize| format!("_c_x-lock-000000000{number}");
        let (_, queue, _) = read(&(0..3).map(name).collect::<Vec<_>>());
        let lock = ZnodePath::new("/lock").unwrap();
        let mut seen = Seen { there: Vec::new(), gone: Vec::new(), permits: None };
        for (number, place) in queue.places().iter().enumerate() {
            let node = lock.child(&place.name).unwrap();
            match gone.contains(&number) {
                true => seen.gone.push((place, node)),
                false => seen.there.push((place, node, None)),
            }
        }
        let (entries, _) = seen.entries(&queue);
        let holders = entries.iter().filter(|entry| entry.holds);
        holders.map(|entry| entry.node.name().to_owned()).collect()
    }

    /// Those who have left are in nobody's way; if all have, the listing is all that is known.
    #[test]
    fn who_left_is_in_nobodys_way() {
        for (gone, holder) in [(&[][..], 0), (&[0], 1), (&[1], 0), (&[0, 1], 2), (&[0, 1, 2], 0)] {
            assert_eq!(holders(gone), [format!("_c_x-lock-000000000{holder}")], "{gone:?}");
        }
    }
}
