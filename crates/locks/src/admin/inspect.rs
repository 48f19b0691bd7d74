//! Who holds a lock, and who waits: for people and for tools.
//!
//! A lock is a queue of contenders below its path, or one ephemeral node at the path itself: an
//! [`ExclusiveNode`](crate::ExclusiveNode), one of the [`Names`](crate::Names), or what other programs use
//! in this way. The session that owns such a node holds the lock. A node that a program keeps for another
//! purpose, such as the instance of a service, looks the same.
//!
//! The result is a snapshot that may be outdated when it arrives. Do not use it for a decision that a
//! lock should make.

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
use crate::beside::is_beside_a_lock;
use crate::contender::order::{Place, WaitQueue};
use crate::guard::revocation::asked;
use crate::owner_info::{OwnerInfo, RevokeRequest};
use crate::permit_format::PermitFormat;
use crate::profile::{Kind, LEASES, Profile, has_curators_leases, is_kazoo_lease};
use crate::token::FencingToken;

pub use crate::admin::due_delay::DueDelay;

/// The queue of one lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockQueue {
    /// The lock.
    pub path: ZnodePath,
    /// How its contenders are named; `None` if there are none, or its node is the lock.
    pub profile: Option<Profile>,
    /// The contenders, first to last. If the node at the path is itself ephemeral, that is the only one.
    pub entries: Vec<Entry>,
    /// Children that are no contenders.
    pub foreign: Vec<String>,
    /// How many permits there are, if the node says so.
    pub permits: Option<u32>,
    /// A lock delay that is due: no contender that waits it out holds the lock.
    pub delay: Option<DueDelay>,
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
    /// Whether nothing is in its way: no contender ahead of it, nor a lock delay that it waits out. After
    /// [`Semaphore::set_permits`](crate::Semaphore::set_permits) with a smaller number, `false` also for
    /// holders of permits beyond that number, as nothing on the servers tells them from waiters.
    pub holds: bool,
    /// The transaction that created its node. As a rule that is its fencing token. Where contenders overtake each
    /// other or a node is handed on, the holder's may be larger; a writer that has become a reader keeps that of before.
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
    /// The version of the data.
    pub(super) version: i32,
}

/// The queues of the locks below a path.
#[derive(Clone, Debug, Default)]
pub struct LockQueues {
    /// The queues that have contenders, or whose lock delay is due, by path.
    pub queues: Vec<LockQueue>,
    /// The nodes whose children the session may not list.
    pub unreadable: Vec<ZnodePath>,
}

/// Nodes with their data, by path.
pub trait KnownTree {
    /// The data and stat of a node, if it exists.
    fn node(&self, path: &str) -> Option<(Bytes, Stat)>;

    /// The names of a node's children; none if it does not exist.
    fn children(&self, path: &str) -> Vec<String>;
}

/// How many requests are on their way at once.
const MAX_REQUESTS_IN_FLIGHT: usize = 256;

/// How many digits a number of permits has at most.
const MAX_PERMIT_DIGITS: usize = 10;

/// How often a queue is listed, if contenders leave before their nodes are read.
const MAX_LISTINGS: u32 = 4;

impl LockQueue {
    /// Looks at the queue of a lock; `None` if there is no such node, and no lock delay is due. Costs two
    /// round trips, one more for a [`Semaphore`](crate::Semaphore) in Curator's layout, of which it shows
    /// the leases, and one more if there is the mark of a lock delay. If contenders leave meanwhile, it looks
    /// again, up to three times.
    ///
    /// # Errors
    /// If a request fails. That a contender's node may not be read is none: see [`Entry::is_readable`].
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
                    // Gone since, or another one by now.
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
            // Who came after one that left is in no listing yet, and may hold.
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

    /// Whether it has contenders, or its lock delay is due.
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

    /// Those who hold.
    pub fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.holds)
    }

    /// Why a contender waits: those ahead of it that it must wait for, first to last, by index in
    /// [`LockQueue::entries`]. None if it is the first, holds, or waits for a lock delay only. Permits are counted,
    /// so one that wants some waits for all together that are ahead of it. Kinds that another library has
    /// are compared as ours are.
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

    /// Whether a contender waits for the lock delay that is due: it would hold without one.
    pub fn waits_for_delay(&self, index: usize) -> bool {
        let waits = self.entries.get(index).is_some_and(|entry| !entry.holds);
        waits && self.delay.is_some() && self.blockers(index).next().is_none()
    }

    /// How many permits no holder has, of a semaphore whose number is known.
    pub fn free_permits(&self) -> Option<u32> {
        let held = self.holders().filter_map(|entry| entry.kind.permits());
        self.permits.map(|all| held.fold(all, u32::saturating_sub))
    }

    /// Those who wait, first to last.
    pub fn waiters(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.holds)
    }
}

/// Waits until no program holds a lock or waits for it, and no lock delay is due. Another program may
/// take it at once. Costs the same as [`LockQueue::inspect`], and again, with one watch and one event, each time
/// that the last contender leaves.
///
/// It measures a due lock delay as a contender does, and deletes the mark of one that is over.
///
/// # Errors
/// If a request fails for good.
///
/// # Session loss
/// Goes on in the next session.
///
/// # Cancel safety
/// Safe: call it again. A lock delay is then measured from the start.
pub async fn wait_until_free(client: &Client, path: &ZnodePath) -> Result<(), Error> {
    // The delay that was seen first, and when.
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

        // As long as the last contender is there, the lock is not free, whatever happens before it. Of
        // those who wait so, one event for each is all that the servers send.
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
                // The next holder measures it again; nothing more can be done about that.
                Err(error) if error.code() == Some(ErrorCode::NoAuth) => return Ok(()),
                Err(error) if error.code().is_none() => retry_anywhere(error).await?,
                // Deleted, by whomever; or another holder's.
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

/// Tells when the queue of a lock may have changed, or the locks below a path.
///
/// To follow a queue, make one, look with [`LockQueue::inspect`] or [`queues`], and look again after each
/// [`QueueWatch::changed`]. Dropping it ends the watches.
#[derive(Debug)]
#[must_use = "the watches are gone when this is dropped"]
pub struct QueueWatch {
    below: WatchStream,
    /// The mark of a lock delay; none where there can be none, as beside `/`.
    mark: Option<WatchStream>,
}

impl QueueWatch {
    /// Watches the path, what is below it, and the mark of a lock delay beside it, whether they exist or
    /// not. Costs one round trip, and then one event for each change of a node: on a path with much traffic
    /// below it, that is much. Needs servers 3.6 or newer.
    ///
    /// # Errors
    /// If a request fails.
    ///
    /// # Session loss
    /// Fails like any [`Reply`]. Later it ends the watches; see [`QueueWatch::changed`].
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

    /// Waits until something may have changed since the last call: a node has, or the connection was lost
    /// and is back. Changes that have been told already count as one. Makes no request.
    ///
    /// # Errors
    /// Why the watches have ended; make another one then.
    ///
    /// # Session loss
    /// Ends it with [`WatchLost::SessionEnded`].
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    pub async fn changed(&mut self) -> Result<(), WatchLost> {
        let Self { below, mark } = self;
        let beside = async {
            match mark {
                Some(mark) => mark.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            told = below.next() => told?,
            told = beside => told?,
        };
        while self.below.try_next()?.is_some() {}
        if let Some(mark) = &mut self.mark {
            while mark.try_next()?.is_some() {}
        }
        Ok(())
    }
}

/// Waits for a change of a node, or the loss of the watch on it; returns at once if it is gone.
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

/// Ends when so much time has passed; never, if that is not known.
async fn over(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}

/// Looks for the queues of all locks at a path and below it: nodes that have contenders, nodes that are
/// ephemeral themselves, and locks whose delay is due. ZooKeeper's own nodes are left out, and a lock
/// without contenders is not found. Costs two round trips for each level, and more where one has hundreds
/// of nodes, or contenders leave meanwhile.
///
/// # Errors
/// If a request fails for another reason than a missing permission.
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

/// A path to look at.
pub(super) struct SearchPath {
    pub(super) path: ZnodePath,
    /// Whether there may be the mark of a lock delay beside it.
    pub(super) is_marked: bool,
}

impl LockQueues {
    /// Looks at some paths; gives what is to be looked at next.
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
                // A lease is no lock of its own.
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
    /// Whether it has been asked to give way, as far as the node tells.
    pub fn is_revoked(&self) -> bool {
        asked(&self.data).is_some() || self.owner.as_ref().is_some_and(|owner| owner.revoked)
    }

    /// What it was asked: who asks it to give way, and why. `None` if it was not asked, or the request said
    /// no more than that.
    pub fn revoke_request(&self) -> Option<RevokeRequest> {
        let seen = || self.owner.as_ref().and_then(|owner| owner.request.clone());
        asked(&self.data).filter(|request| *request != RevokeRequest::default()).or_else(seen)
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

/// What is to be looked at below a path with these children.
pub(super) fn below(
    path: &ZnodePath,
    mut names: Vec<String>,
    foreign: &[String],
) -> Vec<SearchPath> {
    // A name that looks like a lease may also be a key, with locks below it.
    names.retain(|name| foreign.contains(name) || is_kazoo_lease(name));
    let marked: HashSet<String> =
        names.iter().filter_map(|name| lock_marked_by(name)).map(str::to_owned).collect();
    // What vanished last may have taken the lock's node with it.
    let unlisted: Vec<_> = marked.iter().filter(|lock| !names.contains(lock)).cloned().collect();
    names.extend(unlisted);

    let names = names.into_iter().filter(|name| !is_beside_a_lock(name));
    let searched = |name: String| {
        let child = path.child(&name).ok().filter(|child| child.as_str() != "/zookeeper")?;
        Some(SearchPath { path: child, is_marked: marked.contains(&name) })
    };
    names.filter_map(searched).collect()
}

/// The holder of a lock that is a node of its own, which was listed with this stat; `None` if that is gone.
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

/// Requests that are on their way.
struct PendingReads<'a> {
    /// One for each contender.
    entries: Vec<(&'a Place, PendingRead, ZnodePath)>,
    /// The node that says how many permits there are.
    permits: Option<PendingRead>,
}

type PendingRead = Reply<NodeRead>;
pub(super) type NodeRead = (Bytes, Stat);

/// Whether contenders of a queue ask for permits.
fn is_counted(queue: &WaitQueue) -> bool {
    queue.places().iter().any(|place| place.kind.permits().is_some())
}

/// Whether a lock's node may say how many permits there are: it has contenders that ask for some, or nothing
/// but a short text. A semaphore keeps its number for a while after its last use.
pub(super) fn says_how_many(queue: &WaitQueue, names: &[String], length: usize) -> bool {
    is_counted(queue) || names.is_empty() && (1..=MAX_PERMIT_DIGITS).contains(&length)
}

/// `is_number`: whether the node may say how many permits there are.
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

/// What the reads have shown of the contenders that were listed.
pub(super) struct ReadContenders<'a> {
    /// Those whose nodes were there, with what is in them if that may be read.
    pub(super) there: Vec<(&'a Place, ZnodePath, Option<NodeRead>)>,
    /// Those who left between the listing and the look.
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

    /// The contenders and the number of permits, in a queue that was listed like this.
    pub(super) fn entries(
        self,
        listed: &WaitQueue,
        delay: Option<&DueDelay>,
    ) -> (Vec<Entry>, Option<u32>) {
        let Self { mut there, gone, permits } = self;
        let mut queue = listed.clone();
        if there.is_empty() {
            // Only the listing is left to go by: it tells that they were there, and nothing tells that the
            // lock is free now.
            there = gone.into_iter().map(|(place, node)| (place, node, None)).collect();
        } else {
            let gone: HashSet<&str> = gone.iter().map(|(gone, _)| gone.name.as_str()).collect();
            queue.keep(|place| !gone.contains(place.name.as_str()));
        }
        // Where the number is a convention of the programs, every lease holds.
        queue.set_permits(permits.unwrap_or(u32::MAX));

        let places = queue.places().iter().map(|place| place.name.as_str());
        let holders: HashMap<&str, bool> = places.zip(queue.holders()).collect();
        let entries = there.into_iter().map(|(place, node, found)| {
            let holds = holders.get(place.name.as_str()).is_some_and(|holds| *holds);
            let mut entry = entry(place.kind, holds, node, found);
            // One that does not say so knows no lock delays, and holds during one.
            entry.holds &= delay.is_none() || !obeys(&entry.data);
            entry
        });
        // Without a number of permits it is no semaphore of kazoo's: anything may have such a name.
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

    /// The names of those who hold, of a queue of three in which some left before they were read.
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

    /// A queue with these contenders, of which some hold.
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

    /// Those who have left are in nobody's way; if all have, the listing is all that is known.
    #[test]
    fn who_left_is_in_nobodys_way() {
        for (gone, holder) in [(&[][..], 0), (&[0], 1), (&[1], 0), (&[0, 1], 2), (&[0, 1, 2], 0)] {
            assert_eq!(holders(gone), [format!("_c_x-lock-000000000{holder}")], "{gone:?}");
        }
    }
}
