//! Who holds a lock, and who waits: for people and for tools.
//!
//! The result is a snapshot that may be outdated when it arrives. Do not use it for a decision that a
//! lock should make.

#![expect(clippy::disallowed_types, reason = "the server's wall time, for people to read")]

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lockkeeper_client::{Client, Error, ErrorCode, Reply, SessionId, Stat, ZnodePath, present};

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
    /// When it came into the queue, by the server's clock.
    pub since: SystemTime,
    /// Who it is, if one of our programs wrote that.
    pub owner: Option<OwnerInfo>,
    /// The node's data.
    pub data: Bytes,
}

/// The queues of the locks below a path.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// The queues that have contenders, by path.
    pub queues: Vec<Queue>,
    /// The nodes that the session may not look into.
    pub unreadable: Vec<ZnodePath>,
}

/// How many requests are on their way at once.
const AT_ONCE: usize = 256;

impl Queue {
    /// Looks at the queue of a lock; `None` if there is no such node. Costs two round trips, and one more
    /// for a [`Semaphore`](crate::Semaphore) in Curator's layout, of which it shows the leases.
    ///
    /// # Errors
    /// If a request fails.
    ///
    /// # Session loss
    /// Fails, as a [`Reply`] does.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn inspect(client: &Client, path: &ZnodePath) -> Result<Option<Self>, Error> {
        let Some((mut names, _)) = present(client.children(path).await)? else { return Ok(None) };
        let mut place = path.clone();
        if has_curators_leases(&names)
            && let Ok(leases) = path.child(LEASES)
            && let Some((found, _)) = present(client.children(&leases).await)?
        {
            (place, names) = (leases, found);
        }

        let (profile, queue, foreign) = read(&names);
        let (entries, permits) = answers(ask(client, &place, &queue), &queue).await?;
        Ok(Some(Self { path: path.clone(), profile, entries, foreign, permits }))
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
/// level, and more where one has hundreds of nodes.
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
        let mut entered = Vec::with_capacity(asked.len());
        for (asked, (_, _, queue, _)) in asked.into_iter().zip(&queues) {
            entered.push(answers(asked, queue).await?);
        }

        for ((node, profile, _, foreign), (entries, permits)) in queues.into_iter().zip(entered) {
            // Without entries: all left in the meantime.
            if !entries.is_empty() {
                let path = node.clone();
                self.queues.push(Queue { path, profile, entries, foreign, permits });
            }
        }
        Ok(next)
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

type PendingRead = Reply<(Bytes, Stat)>;

fn ask<'a>(client: &Client, path: &ZnodePath, queue: &'a WaitQueue) -> PendingReads<'a> {
    let nodes =
        queue.places().iter().filter_map(|place| Some((place, path.child(&place.name).ok()?)));
    let counted = queue.places().iter().any(|place| place.kind.permits().is_some());
    PendingReads {
        entries: nodes.map(|(place, node)| (place, client.data(&node), node)).collect(),
        permits: counted.then(|| client.data(path)),
    }
}

async fn answers(
    asked: PendingReads<'_>,
    queue: &WaitQueue,
) -> Result<(Vec<Entry>, Option<u32>), Error> {
    let permits = match asked.permits {
        Some(reply) => present(reply.await)?.and_then(|(data, _)| PermitFormat::Text.read(&data)),
        None => None,
    };
    let mut queue = queue.clone();
    // Where the number is a convention of the programs, every lease holds.
    queue.set_permits(permits.unwrap_or(u32::MAX));

    let mut entries = Vec::with_capacity(asked.entries.len());
    for (place, reply, node) in asked.entries {
        // Without: it left between the listing and the look.
        if let Some((data, stat)) = present(reply.await)? {
            entries.push(entry(place, &queue, node, data, &stat));
        }
    }
    // Without a number of permits it is no semaphore of kazoo's: anything may have such a name.
    entries.retain(|entry| permits.is_some() || !is_kazoo_lease(entry.node.name()));
    Ok((entries, permits))
}

fn entry(place: &Place, queue: &WaitQueue, node: ZnodePath, data: Bytes, stat: &Stat) -> Entry {
    let since = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default());
    Entry {
        kind: place.kind,
        holds: queue.standing(&place.name) == Standing::Held,
        token: FencingToken::new(stat.czxid),
        session: stat.ephemeral_owner,
        since: SystemTime::UNIX_EPOCH + since,
        owner: OwnerInfo::from_data(&data),
        data,
        node,
    }
}
