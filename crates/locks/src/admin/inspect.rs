//! Inspection of a lock's holders and waiters, for display and for tools.
//!
//! A lock is a queue of contenders below its path, or one ephemeral node at the path itself: an
//! [`ExclusiveNode`](crate::ExclusiveNode), one of the [`Names`](crate::Names), or the node of another program that
//! works in this way. The session that owns such a node holds the lock. A node that a program keeps for another
//! purpose, such as the instance of a service, looks the same.
//!
//! The result is a snapshot, and may be outdated when it arrives. Do not use it in place of a lock.

#![expect(clippy::disallowed_types, reason = "the server's wall time, for people to read")]

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lockkeeper_client::retry::retry_anywhere;
use lockkeeper_client::{
    AddWatchMode, Client, Error, ErrorCode, Instant, Reply, SessionId, Stat, WatchLost,
    WatchStream, WatchedReply, ZnodePath, Zxid, present,
};

use crate::acquire::lock_delay::{lock_marked_by, mark_of, obeys};
use crate::admin::due_delay::PendingListing;
use crate::contender::order::{Place, WaitQueue};
use crate::guard::revocation::asked;
use crate::owner_info::{OwnerInfo, RevokeRequest};
use crate::permit_format::PermitFormat;
use crate::profile::{Kind, LEASES, Profile, has_curators_leases, is_kazoo_lease};
use crate::siblings::is_sibling_of_lock;
use crate::token::FencingToken;

pub use crate::admin::due_delay::DueDelay;

/// The queue of one lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockQueue {
    /// The lock.
    pub path: ZnodePath,
    /// How its contenders are named; `None` if it does not have any, or its node is the lock.
    pub profile: Option<Profile>,
    /// The contenders, first to last. If the node at the path is itself ephemeral, it is the only one.
    pub entries: Vec<Entry>,
    /// Children that are not contenders.
    pub foreign: Vec<String>,
    /// The number of permits, if the node contains it.
    pub permits: Option<u32>,
    /// A lock delay that is due. Until it is over, a contender that waits out lock delays does not hold the lock.
    pub delay: Option<DueDelay>,
}

/// One contender.
///
/// If the session may not read the contender's node, only its name and its place in the queue are known. Then
/// [`Entry::is_readable`] is false, the token is 0, and the session and the data are empty.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The contender's node.
    pub node: ZnodePath,
    /// What the contender asks for.
    pub kind: Kind,
    /// Whether the contender holds the lock: neither a contender ahead nor a lock delay blocks it. After
    /// [`Semaphore::set_permits`](crate::Semaphore::set_permits) with a smaller number, this is `false` also for
    /// holders of permits beyond that number, because the servers cannot distinguish them from waiters.
    pub holds: bool,
    /// The transaction that created its node, which usually is its fencing token. Where contenders overtake each
    /// other or a node is handed on, the holder's token may be larger. A writer that has become a reader keeps
    /// its token.
    pub token: FencingToken,
    /// The session that owns the node.
    pub session: SessionId,
    /// When it entered the queue, by the server's clock. If its node could not be read: when it was seen.
    pub since: SystemTime,
    /// The program and host, if a Lockkeeper program wrote them.
    pub owner: Option<OwnerInfo>,
    /// The node's data.
    pub data: Bytes,
    /// Whether its node could be read. It cannot be read without permission, or if all contenders leave
    /// faster than their nodes can be read.
    pub is_readable: bool,
    /// The version of the data.
    pub(super) version: i32,
}

/// The queues of the locks below a path.
#[derive(Clone, Debug, Default)]
pub struct LockQueues {
    /// The queues with contenders or with a lock delay that is due, sorted by path.
    pub queues: Vec<LockQueue>,
    /// The nodes whose children the session may not list.
    pub unreadable: Vec<ZnodePath>,
}

/// A tree of nodes with their data, by path.
pub trait KnownTree {
    /// The data and stat of a node, if it exists.
    fn node(&self, path: &str) -> Option<(Bytes, Stat)>;

    /// The names of a node's children; empty if the node does not exist.
    fn children(&self, path: &str) -> Vec<String>;
}

/// The largest number of requests in flight.
const MAX_REQUESTS_IN_FLIGHT: usize = 256;

/// The largest number of digits in a number of permits.
const MAX_PERMIT_DIGITS: usize = 10;

/// How often a queue is listed at most, if contenders leave before their nodes are read.
const MAX_LISTINGS: u32 = 4;

impl LockQueue {
    /// Reads the queue of a lock. Returns `None` if the node does not exist and no lock delay is due. For a
    /// [`Semaphore`](crate::Semaphore) in Curator's layout, it returns the leases. Costs two round trips, one
    /// more for such a semaphore, and one more if there is the mark of a lock delay. If contenders leave during the
    /// read, it reads again, up to three times.
    ///
    /// # Errors
    /// If a request fails. A missing permission to read a contender's node is not an error: see [`Entry::is_readable`].
    ///
    /// # Session loss
    /// Fails like any [`Reply`].
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn inspect(client: &Client, path: &ZnodePath) -> Result<Option<Self>, Error> {
        let mut listings = 1;
        loop {
            let listed = PendingListing::send(client, path, true).answer(client, path).await?;
            let delay = listed.delay;
            let Some((mut names, stat)) = listed.node else {
                return Ok(delay.map(|delay| Self { delay: Some(delay), ..Self::empty(path) }));
            };
            if stat.ephemeral_owner != SessionId::NONE {
                match node_itself(path, stat, client.data(path)).await? {
                    // The node is gone, or was replaced by another one.
                    None if listings < MAX_LISTINGS => {
                        listings += 1;
                        continue;
                    }
                    entry => return Ok(entry.map(|entry| Self::of_node(path, entry))),
                }
            }

            let mut place = path.clone();
            if has_curators_leases(&names)
                && let Ok(leases) = path.child(LEASES)
                && let Some((found, _)) = present(client.children(&leases).await)?
            {
                (place, names) = (leases, found);
            }

            let (profile, queue, foreign) = read(&names);
            let length = usize::try_from(stat.data_length).unwrap_or_default();
            let is_number = says_how_many(&queue, &names, length);
            let seen = ReadContenders::of(ask(client, &place, &queue, is_number)).await?;
            // Contenders that came after one that left are not in the listing yet, and may hold the lock.
            if seen.gone.is_empty() || listings == MAX_LISTINGS {
                let (entries, permits) = seen.entries(&queue, delay.as_ref());
                let path = path.clone();
                return Ok(Some(Self { path, profile, entries, foreign, permits, delay }));
            }
            listings += 1;
        }
    }

    pub(super) fn empty(path: &ZnodePath) -> Self {
        let (entries, foreign) = (Vec::new(), Vec::new());
        let (profile, permits, delay) = (None, None, None);
        Self { path: path.clone(), profile, entries, foreign, permits, delay }
    }

    /// Whether it has contenders, or a lock delay is due.
    pub(super) fn is_in_use(&self) -> bool {
        !self.entries.is_empty() || self.delay.is_some()
    }

    pub(super) fn of_node(path: &ZnodePath, entry: Entry) -> Self {
        Self { entries: vec![entry], ..Self::empty(path) }
    }

    /// Whether the node at the path is itself the lock: it is ephemeral, and its session holds the lock.
    pub fn is_node(&self) -> bool {
        self.entries.first().is_some_and(|entry| entry.node == self.path)
    }

    /// The holders, first to last.
    pub fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.holds)
    }

    /// The contenders ahead that block a contender, first to last, by index in
    /// [`LockQueue::entries`]. Empty if it is the first, holds the lock, or waits only for a lock delay. Permits
    /// are counted, so a contender for permits waits for all contenders ahead of it together. The kinds of other
    /// libraries follow the same rules.
    pub fn blockers(&self, index: usize) -> impl Iterator<Item = usize> {
        let waits = self.entries.get(index).filter(|entry| !entry.holds);
        let kind = waits.map(|entry| entry.kind);
        let is_ahead = move |entry: &Entry| {
            kind.is_some_and(|kind| match (kind.permits(), entry.kind.permits()) {
                (Some(_), Some(_)) => true,
                _ => kind.is_blocked_by(entry.kind),
            })
        };
        let ahead = self.entries.iter().take(index).enumerate();
        ahead.filter(move |(_, entry)| is_ahead(entry)).map(|(index, _)| index)
    }

    /// Whether a contender waits only for the lock delay that is due.
    pub fn waits_for_delay(&self, index: usize) -> bool {
        let waits = self.entries.get(index).is_some_and(|entry| !entry.holds);
        waits && self.delay.is_some() && self.blockers(index).next().is_none()
    }

    /// The number of free permits, if the number of permits is known.
    pub fn free_permits(&self) -> Option<u32> {
        let held = self.holders().filter_map(|entry| entry.kind.permits());
        self.permits.map(|all| held.fold(all, u32::saturating_sub))
    }

    /// The waiters, first to last.
    pub fn waiters(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.holds)
    }
}

/// Waits until no program holds the lock or waits for it, and no lock delay is due. Another program may take the lock
/// immediately afterwards. Costs the same as [`LockQueue::inspect`], and the same again, with one watch and one event,
/// each time the last contender leaves.
///
/// It waits out a lock delay as a contender does, and deletes the mark of a delay that is over.
///
/// # Errors
/// If a request fails with a permanent error.
///
/// # Session loss
/// Continues in the next session.
///
/// # Cancel safety
/// Safe: call it again. A lock delay is then measured from the start.
pub async fn wait_until_free(client: &Client, path: &ZnodePath) -> Result<(), Error> {
    // The delay that was seen, and when it was seen first.
    let mut due: Option<(DueDelay, u64, Instant)> = None;
    loop {
        let queue = match LockQueue::inspect(client, path).await {
            Ok(Some(queue)) => queue,
            Ok(None) => return Ok(()),
            Err(error) => {
                retry_anywhere(error).await?;
                continue;
            }
        };

        // The lock is not free while the last contender exists, whatever happens ahead of it. So the servers
        // send a single event to each program that waits here.
        if let Some(last) = queue.entries.last() {
            changed(client.data_watched(&last.node)).await?;
            continue;
        }
        let Some(delay) = queue.delay else { return Ok(()) };

        let rewinds = client.status().borrow().rewinds;
        let since = match due {
            Some((seen, at, since)) if seen.written == delay.written && at == rewinds => since,
            _ => client.now(),
        };
        let left = delay.length.map(|length| (since + length).since(client.now()));
        if left == Some(Duration::ZERO) {
            match client.delete(&delay.mark, Some(delay.version)).await {
                // The mark cannot be deleted without permission. The next holder waits out the delay again.
                Err(error) if error.code() == Some(ErrorCode::NoAuth) => return Ok(()),
                Err(error) if error.code().is_none() => retry_anywhere(error).await?,
                // The mark was deleted by another client, or belongs to another holder.
                _ => {}
            }
        } else {
            tokio::select! {
                biased;
                changed = changed(client.data_watched(&delay.mark)) => changed?,
                () = over(left) => {}
            }
        }
        due = Some((delay, rewinds, since));
    }
}

/// Notifies of possible changes of a lock's queue, or of the locks below a path.
///
/// To follow a queue, create a watch, read the queue with [`LockQueue::inspect`] or [`queues`], and read it again after
/// each [`QueueWatch::changed`]. Dropping the value ends the watches.
#[derive(Debug)]
#[must_use = "the watches are gone when this is dropped"]
pub struct QueueWatch {
    below: WatchStream,
    /// The mark of a lock delay; `None` where there cannot be one, as for `/`.
    mark: Option<WatchStream>,
}

impl QueueWatch {
    /// Watches the path, all nodes below it, and the mark of a lock delay, whether they exist or
    /// not. Costs one round trip, and one event for each change of a node, which can be many on a
    /// busy path. Requires servers 3.6 or newer.
    ///
    /// # Errors
    /// If a request fails.
    ///
    /// # Session loss
    /// Fails like any [`Reply`]. A loss after this call ends the watches; see [`QueueWatch::changed`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn new(client: &Client, path: &ZnodePath) -> Result<Self, Error> {
        let below = client.watch(path, AddWatchMode::PersistentRecursive);
        if path.is_root() {
            return Ok(Self { below: below.await?, mark: None });
        }
        let mark = mark_of(path);
        let (below, mark) = tokio::join!(below, client.watch(&mark, AddWatchMode::Persistent));
        Ok(Self { below: below?, mark: Some(mark?) })
    }

    /// Waits until something may have changed since the last call: a node has changed, or the connection was lost
    /// and restored. Several changes before a call count as one. Makes no request.
    ///
    /// # Errors
    /// The reason why the watches have ended. Create another `QueueWatch` then.
    ///
    /// # Session loss
    /// Fails with [`WatchLost::SessionEnded`].
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    pub async fn changed(&mut self) -> Result<(), WatchLost> {
        let Self { below, mark } = self;
        let mark_event = async {
            match mark {
                Some(mark) => mark.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = below.next() => event?,
            event = mark_event => event?,
        };
        while self.below.try_next()?.is_some() {}
        if let Some(mark) = &mut self.mark {
            while mark.try_next()?.is_some() {}
        }
        Ok(())
    }
}

/// Waits for a change of a node, or for the loss of the watch on it. Returns at once if the node is gone.
async fn changed(asked: WatchedReply<(Bytes, Stat)>) -> Result<(), Error> {
    match asked.await {
        Ok((_, mut watcher)) => {
            let _ = watcher.changed().await;
            Ok(())
        }
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(()),
        Err(error) => retry_anywhere(error).await,
    }
}

/// Returns after this time; never if it is unknown.
async fn over(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}

/// Finds the queues of all locks at a path and below it: nodes with contenders, nodes that are themselves
/// ephemeral, and locks with a delay that is due. ZooKeeper's own nodes are left out, and a lock
/// without contenders is not found. Costs two round trips for each level of the tree, and more where a level has
/// hundreds of nodes, or contenders leave during the read.
///
/// # Errors
/// If a request fails for a reason other than a missing permission.
///
/// # Session loss
/// Fails like any [`Reply`].
///
/// # Cancel safety
/// Safe: it only reads.
pub async fn queues(client: &Client, below: &ZnodePath) -> Result<LockQueues, Error> {
    let mut found = LockQueues::default();
    let mut level = vec![SearchPath { path: below.clone(), is_marked: true }];
    while !level.is_empty() {
        let mut next = Vec::new();
        for paths in level.chunks(MAX_REQUESTS_IN_FLIGHT) {
            next.extend(found.look(client, paths).await?);
        }
        level = next;
    }
    found.sort();
    Ok(found)
}

/// A path to read.
pub(super) struct SearchPath {
    pub(super) path: ZnodePath,
    /// Whether it may have the mark of a lock delay.
    pub(super) is_marked: bool,
}

impl LockQueues {
    /// Reads some paths, and returns the paths to read next.
    async fn look(
        &mut self,
        client: &Client,
        paths: &[SearchPath],
    ) -> Result<Vec<SearchPath>, Error> {
        let list = |searched: &SearchPath| {
            PendingListing::send(client, &searched.path, searched.is_marked)
        };
        let asked: Vec<_> = paths.iter().map(|searched| (&searched.path, list(searched))).collect();
        let (mut queues, mut nodes, mut next) = (Vec::new(), Vec::new(), Vec::new());
        for (path, asked) in asked {
            let listed = match asked.answer(client, path).await {
                Ok(listed) => listed,
                Err(error) if error.code() == Some(ErrorCode::NoAuth) => {
                    self.unreadable.push(path.clone());
                    continue;
                }
                Err(error) => return Err(error),
            };
            let delay = listed.delay;
            let Some((names, stat)) = listed.node else {
                self.add(LockQueue { delay, ..LockQueue::empty(path) });
                continue;
            };

            if stat.ephemeral_owner != SessionId::NONE {
                nodes.push((path, stat, client.data(path)));
            } else if has_curators_leases(&names) {
                let queue = LockQueue::inspect(client, path).await?;
                queue.into_iter().for_each(|queue| self.add(queue));
            } else {
                let (profile, queue, foreign) = read(&names);
                next.extend(below(path, names, &foreign));
                queues.push((path, profile, queue, foreign, delay));
            }
        }

        for (path, stat, asked) in nodes {
            let queue = match node_itself(path, stat, asked).await? {
                Some(entry) => Some(LockQueue::of_node(path, entry)),
                None => LockQueue::inspect(client, path).await?,
            };
            queue.into_iter().for_each(|queue| self.add(queue));
        }

        let read = |path, queue| ask(client, path, queue, is_counted(queue));
        let asked: Vec<_> = queues.iter().map(|(path, _, queue, ..)| read(path, queue)).collect();
        let mut looks = Vec::with_capacity(asked.len());
        for asked in asked {
            looks.push(ReadContenders::of(asked).await?);
        }

        for (seen, (path, profile, queue, foreign, delay)) in looks.into_iter().zip(&queues) {
            if seen.gone.is_empty() {
                let (entries, permits) = seen.entries(queue, delay.as_ref());
                let (path, profile) = ((*path).clone(), *profile);
                let (foreign, delay) = (foreign.clone(), delay.clone());
                // A lease is not a lock of its own.
                let leases = entries.iter().filter(|entry| entry.kind == Kind::Lease);
                let leases: HashSet<&ZnodePath> = leases.map(|entry| &entry.node).collect();
                next.retain(|searched| !leases.contains(&searched.path));
                self.add(LockQueue { path, profile, entries, foreign, permits, delay });
            } else if let Some(queue) = LockQueue::inspect(client, path).await? {
                self.add(queue);
            }
        }
        Ok(next)
    }

    pub(super) fn sort(&mut self) {
        self.queues.sort_by(|a, b| a.path.cmp(&b.path));
    }

    pub(super) fn add(&mut self, queue: LockQueue) {
        if queue.is_in_use() {
            self.queues.push(queue);
        }
    }
}

impl Entry {
    /// Whether it has been asked to release the lock, as far as its node shows.
    pub fn is_revoked(&self) -> bool {
        asked(&self.data).is_some() || self.owner.as_ref().is_some_and(|owner| owner.revoked)
    }

    /// The requester and the reason of a request to release the lock. `None` if there was no request, or it contained
    /// neither.
    pub fn revoke_request(&self) -> Option<RevokeRequest> {
        let seen = || self.owner.as_ref().and_then(|owner| owner.request.clone());
        asked(&self.data).filter(|request| *request != RevokeRequest::default()).or_else(seen)
    }

    /// How long it has been in the queue, provided that the clocks of the server and this machine agree.
    pub fn age(&self) -> Duration {
        self.since.elapsed().unwrap_or_default()
    }
}

/// The program and host if known, and otherwise the node and session.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => owner.fmt(f),
            None => write!(f, "{} of session {}", self.node, self.session),
        }
    }
}

/// The paths to read below a path with these children.
pub(super) fn below(
    path: &ZnodePath,
    mut names: Vec<String>,
    foreign: &[String],
) -> Vec<SearchPath> {
    // A name that looks like that of a lease may also be a key with locks below it.
    names.retain(|name| foreign.contains(name) || is_kazoo_lease(name));
    let marked: HashSet<String> =
        names.iter().filter_map(|name| lock_marked_by(name)).map(str::to_owned).collect();
    // When the last contender vanished, the lock's node may have been deleted too.
    let unlisted: Vec<_> = marked.iter().filter(|lock| !names.contains(lock)).cloned().collect();
    names.extend(unlisted);

    let names = names.into_iter().filter(|name| !is_sibling_of_lock(name));
    let searched = |name: String| {
        let child = path.child(&name).ok().filter(|child| child.as_str() != "/zookeeper")?;
        Some(SearchPath { path: child, is_marked: marked.contains(&name) })
    };
    names.filter_map(searched).collect()
}

/// The holder of a lock that is a single node, which was listed with this stat; `None` if the node is gone.
async fn node_itself(
    path: &ZnodePath,
    listed: Stat,
    asked: PendingRead,
) -> Result<Option<Entry>, Error> {
    let holder = |found| entry(Kind::Exclusive, true, path.clone(), found);
    match asked.await {
        Ok((_, stat)) if stat.czxid != listed.czxid => Ok(None),
        Ok(found) => Ok(Some(holder(Some(found)))),
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(None),
        Err(error) if error.code() == Some(ErrorCode::NoAuth) => Ok(Some(holder(None))),
        Err(error) => Err(error),
    }
}

/// Reads the names by the profile that most of them follow.
pub(super) fn read(names: &[String]) -> (Option<Profile>, WaitQueue, Vec<String>) {
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

/// Requests in flight.
struct PendingReads<'a> {
    /// One read for each contender.
    entries: Vec<(&'a Place, PendingRead, ZnodePath)>,
    /// The read of the node that contains the number of permits.
    permits: Option<PendingRead>,
}

type PendingRead = Reply<NodeRead>;
pub(super) type NodeRead = (Bytes, Stat);

/// Whether contenders of a queue ask for permits.
fn is_counted(queue: &WaitQueue) -> bool {
    queue.places().iter().any(|place| place.kind.permits().is_some())
}

/// Whether a lock's node may contain the number of permits: it has contenders for permits, or it has no children and
/// a short text. A semaphore keeps its number for a while after its last use.
pub(super) fn says_how_many(queue: &WaitQueue, names: &[String], length: usize) -> bool {
    is_counted(queue) || names.is_empty() && (1..=MAX_PERMIT_DIGITS).contains(&length)
}

/// `is_number`: whether the node may contain the number of permits.
fn ask<'a>(
    client: &Client,
    path: &ZnodePath,
    queue: &'a WaitQueue,
    is_number: bool,
) -> PendingReads<'a> {
    let nodes =
        queue.places().iter().filter_map(|place| Some((place, path.child(&place.name).ok()?)));
    PendingReads {
        entries: nodes.map(|(place, node)| (place, client.data(&node), node)).collect(),
        permits: is_number.then(|| client.data(path)),
    }
}

/// The result of reading the nodes of the listed contenders.
pub(super) struct ReadContenders<'a> {
    /// The contenders whose nodes exist, with the contents of those that may be read.
    pub(super) there: Vec<(&'a Place, ZnodePath, Option<NodeRead>)>,
    /// The contenders that left between the listing and the read.
    pub(super) gone: Vec<(&'a Place, ZnodePath)>,
    pub(super) permits: Option<u32>,
}

impl<'a> ReadContenders<'a> {
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

    /// The contenders and the number of permits of a queue with this listing.
    pub(super) fn entries(
        self,
        listed: &WaitQueue,
        delay: Option<&DueDelay>,
    ) -> (Vec<Entry>, Option<u32>) {
        let Self { mut there, gone, permits } = self;
        let mut queue = listed.clone();
        if there.is_empty() {
            // All contenders have left, so only the listing is known. It shows that they were in the queue, and it is
            // unknown whether the lock is free now.
            there = gone.into_iter().map(|(place, node)| (place, node, None)).collect();
        } else {
            let gone: HashSet<&str> = gone.iter().map(|(gone, _)| gone.name.as_str()).collect();
            queue.keep(|place| !gone.contains(place.name.as_str()));
        }
        // If the number is only a convention among the programs, every lease holds.
        queue.set_permits(permits.unwrap_or(u32::MAX));

        let places = queue.places().iter().map(|place| place.name.as_str());
        let holders: HashMap<&str, bool> = places.zip(queue.holders()).collect();
        let entries = there.into_iter().map(|(place, node, found)| {
            let holds = holders.get(place.name.as_str()).is_some_and(|holds| *holds);
            let mut entry = entry(place.kind, holds, node, found);
            // A contender without the field ignores lock delays, and holds the lock during one.
            entry.holds &= delay.is_none() || !obeys(&entry.data);
            entry
        });
        // Without a number of permits this is not a kazoo semaphore: any node may have such a name.
        let is_one = |entry: &Entry| permits.is_some() || !is_kazoo_lease(entry.node.name());
        (entries.filter(is_one).collect(), permits)
    }
}

pub(super) fn entry(kind: Kind, holds: bool, node: ZnodePath, found: Option<NodeRead>) -> Entry {
    let Some((data, stat)) = found else {
        let (token, session, since) =
            (FencingToken::new(Zxid(0)), SessionId::NONE, SystemTime::now());
        let (owner, data, is_readable, version) = (None, Bytes::new(), false, 0);
        return Entry {
            node,
            kind,
            holds,
            token,
            session,
            since,
            owner,
            data,
            is_readable,
            version,
        };
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
        version: stat.version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the holders in a queue of three, of which some left before they were read.
    fn holders(gone: &[usize]) -> Vec<String> {
        let name = |number: usize| format!("_c_x-lock-000000000{number}");
        let (_, queue, _) = read(&(0..3).map(name).collect::<Vec<_>>());
        let lock = ZnodePath::new("/lock").unwrap();
        let mut seen = ReadContenders { there: Vec::new(), gone: Vec::new(), permits: None };
        for (number, place) in queue.places().iter().enumerate() {
            let node = lock.child(&place.name).unwrap();
            match gone.contains(&number) {
                true => seen.gone.push((place, node)),
                false => seen.there.push((place, node, None)),
            }
        }
        let (entries, _) = seen.entries(&queue, None);
        let holders = entries.iter().filter(|entry| entry.holds);
        holders.map(|entry| entry.node.name().to_owned()).collect()
    }

    /// A queue with these contenders and whether each holds.
    fn queue(contenders: &[(Kind, bool)]) -> LockQueue {
        let path = ZnodePath::new("/lock").unwrap();
        let node = |index: usize| path.child(&format!("n{index}")).unwrap();
        let entries = contenders.iter().enumerate();
        let entries = entries.map(|(index, (kind, holds))| entry(*kind, *holds, node(index), None));
        LockQueue { entries: entries.collect(), ..LockQueue::empty(&path) }
    }

    fn blockers(queue: &LockQueue) -> Vec<Vec<usize>> {
        (0..queue.entries.len()).map(|index| queue.blockers(index).collect()).collect()
    }

    #[test]
    fn who_waits_is_blocked_by_those_ahead_that_do_not_go_together_with_it() {
        use Kind::{Exclusive, Read, Write};
        let (nothing, holds, waits) = (Vec::new, true, false);
        let mutex = queue(&[(Exclusive, holds), (Exclusive, waits), (Exclusive, waits)]);
        assert_eq!(blockers(&mutex), [nothing(), vec![0], vec![0, 1]]);
        let rw = queue(&[(Read, holds), (Read, holds), (Write, waits), (Read, waits)]);
        assert_eq!(blockers(&rw), [nothing(), nothing(), vec![0, 1], vec![2]]);
    }

    #[test]
    fn permits_are_counted() {
        let permits = Kind::Permits;
        let mut semaphore = queue(&[(permits(2), true), (permits(2), false), (permits(1), false)]);
        assert_eq!(semaphore.free_permits(), None, "their number is unknown");
        semaphore.permits = Some(3);
        assert_eq!(semaphore.free_permits(), Some(1));
        assert_eq!(blockers(&semaphore), [vec![], vec![0], vec![0, 1]]);
    }

    /// Contenders that have left do not block others. If all have left, only the listing is known.
    #[test]
    fn who_left_is_in_nobodys_way() {
        for (gone, holder) in [(&[][..], 0), (&[0], 1), (&[1], 0), (&[0, 1], 2), (&[0, 1, 2], 0)] {
            assert_eq!(holders(gone), [format!("_c_x-lock-000000000{holder}")], "{gone:?}");
        }
    }
}
