//! A pause between a holder that vanished and the next one.
//!
//! A holder writes a mark when it is granted the lock and deletes it as it gives the lock back, in
//! one transaction with its node. A contender that finds a mark when it reaches the front knows that
//! the last holder has vanished, and waits for as long as the mark says: the holder's operations in
//! flight can end. The idea is the *lock-delay* of M. Burrows, "The Chubby lock service" (OSDI
//! 2006). It is for resources that cannot check fencing tokens, and no proof: the time is a guess.
//!
//! The mark is `<path>-__delay__`, beside the lock and not in it: a child of the lock would be a
//! contender for every library. See `docs/decisions/0005-lock-delay.md` for the places that were considered.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{
    Cleanup, CreateMode, ErrorCode, EventKind, Instant, TransactionError, Watcher, ZnodePath, Zxid,
};
use serde::{Deserialize, Serialize};

use crate::attempt::{out_of_reach, retry_acquire};
use crate::beside::{DELAY, beside, lock_beside};
use crate::contender::node::{Contender, Front};
use crate::contender::watches::own_event;
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::guard::owned_node::OwnedNode;
use crate::owner_info::OwnerInfo;

/// The field by which the data of a contender's node says that it waits out lock delays.
const OBEYS_FIELD: &str = "obeys_lock_delay";

/// Says in a contender's data that it waits out lock delays. Data that is no JSON stays as it is.
pub(crate) fn obeying(data: &Bytes) -> Bytes {
    let Ok(serde_json::Value::Object(mut fields)) = serde_json::from_slice(data) else {
        return data.clone();
    };
    fields.insert(OBEYS_FIELD.to_owned(), true.into());
    serde_json::to_vec(&fields).map_or_else(|_| data.clone(), Bytes::from)
}

/// Whether a contender's data says so.
pub(crate) fn obeys(data: &[u8]) -> bool {
    let fields = serde_json::from_slice::<serde_json::Value>(data);
    fields.is_ok_and(|fields| fields[OBEYS_FIELD] == true)
}

/// What a contender has to do with lock delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockDelay {
    /// It waits out the delay of another holder, and leaves none.
    Obeyed,
    /// It also makes the next holder wait for so long if it vanishes itself.
    Kept(Duration),
}

/// The version of the format of marks.
const FORMAT_VERSION: u32 = 1;

/// What is in a mark. Fields that a later version adds are read over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DelayMark {
    /// The version of this format; marks without one are like those of version 1.
    #[serde(default)]
    v: u32,
    /// The name of the holder's node.
    pub(crate) node: String,
    /// For how long the next one is to wait, in milliseconds.
    delay_ms: u64,
    /// Which program the holder is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<OwnerInfo>,
}

impl DelayMark {
    /// Reads a mark; `None` if it is in no form of any version.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    /// How long the next one is to wait; `None` if a later version may mean more than can be read.
    pub(crate) fn delay(&self) -> Option<Duration> {
        (self.v <= FORMAT_VERSION).then_some(Duration::from_millis(self.delay_ms))
    }
}

/// A mark that a holder left when it vanished.
#[derive(Clone, Copy, Debug)]
struct LeftMark {
    delay: Duration,
    version: i32,
    /// The transaction that wrote it, by which it is told from others.
    written: Zxid,
}

/// When this process first saw the present mark. Nothing tells when its holder vanished, and an
/// attempt that does not wait, or waits for less than the delay, must not start the delay again.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenMarks(Arc<Mutex<Option<SeenMark>>>);

/// A mark that this process waits for.
#[derive(Clone, Copy, Debug)]
struct SeenMark {
    mark: MarkId,
    first: Instant,
    delay: Duration,
}

/// A mark, by the transaction that wrote it, and after how many rewinds of the servers: they may give
/// the same number to another one then.
type MarkId = (Zxid, u64);

impl SeenMarks {
    /// When the delay that the mark asks for is over.
    fn end(&self, found: LeftMark, owned: &OwnedNode, now: Instant) -> Instant {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = (found.written, owned.client.status().borrow().rewinds);
        let first = match *seen {
            Some(seen_mark) if seen_mark.mark == mark => seen_mark.first,
            _ => now,
        };
        *seen = Some(SeenMark { mark, first, delay: found.delay });
        first + found.delay
    }

    /// How much is left of the delay that was last seen; `None` if it is over.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = seen.map(|seen_mark| (seen_mark.first + seen_mark.delay).since(now));
        left.filter(|left| !left.is_zero())
    }
}

impl LockDelay {
    /// Grants the lock to a contender at the front: sets the mark, or looks for one, after the delay that an
    /// earlier one asks for. Costs one round trip; if a mark was left, one to read it where one is set, and
    /// one to replace or delete it.
    pub(crate) async fn grant(
        self,
        seen_marks: &SeenMarks,
        contender: Contender,
        mut front: Front,
    ) -> Result<Guard, AcquireError> {
        let mut owned = OwnedNode::of(contender)?;
        let mut left = None;
        while let Some(found) = self.take_over(&mut owned, left).await? {
            let now = owned.client.now();
            let delay = seen_marks.end(found, &owned, now).since(now);
            // If the node is gone, the check in front of the mark says why.
            left = outwait_delay(&owned, &mut front.own, delay).await?.then_some(found);
        }
        Guard::confirm(owned, front.own).await
    }

    /// The same, unless there is something to wait for.
    pub(crate) async fn try_grant(
        self,
        seen_marks: &SeenMarks,
        contender: Contender,
        front: Front,
    ) -> Result<Option<Guard>, AcquireError> {
        let mut owned = OwnedNode::of(contender)?;
        let mut left = None;
        while let Some(found) = self.take_over(&mut owned, left).await? {
            let now = owned.client.now();
            if seen_marks.end(found, &owned, now) > now {
                return Ok(None);
            }
            left = Some(found);
        }
        Guard::confirm(owned, front.own).await.map(Some)
    }

    /// Replaces or deletes the mark `left` that was waited for; `None` if that is done, or there is none.
    /// Else there is one that is to be waited for.
    async fn take_over(
        self,
        owned: &mut OwnedNode,
        left: Option<LeftMark>,
    ) -> Result<Option<LeftMark>, AcquireError> {
        match self {
            Self::Obeyed => self.clear_mark(owned, left).await,
            Self::Kept(_) => self.set_mark(owned, left).await,
        }
    }

    /// Deletes the mark `left` if there is one that was waited for, and looks for another one.
    async fn clear_mark(
        self,
        owned: &OwnedNode,
        mut left: Option<LeftMark>,
    ) -> Result<Option<LeftMark>, AcquireError> {
        let mark = mark_of(&owned.path);
        let node = &owned.node.path;
        loop {
            let Some(waited_for) = left.take() else {
                return Ok(match self.look(owned, &mark).await? {
                    MarkOwner::Own | MarkOwner::Gone => None,
                    MarkOwner::Other(found) => Some(found),
                });
            };

            // Only while the node is there: another one may hold by now, and have a mark.
            let transaction = owned.client.transaction().in_session(owned.session());
            let transaction = transaction.check(node, None).delete(&mark, Some(waited_for.version));
            match transaction.commit().await {
                Ok(_) => return Ok(None),
                Err(TransactionError::Failed { index: 0, code: ErrorCode::NoNode, .. }) => {
                    return Err(AcquireError::NodeDeleted { node: node.clone() });
                }
                Err(TransactionError::Failed {
                    code: ErrorCode::BadVersion | ErrorCode::NoNode,
                    ..
                }) => {}
                Err(TransactionError::Request(error)) => {
                    retry_acquire(&owned.path, error).await?;
                    left = Some(waited_for);
                }
                Err(source) => {
                    return Err(AcquireError::Refused { path: owned.path.clone(), source });
                }
            }
        }
    }

    /// Sets the mark, in the place of `left` if that was waited for; `None` if it is set. Else
    /// there is one that is to be waited for.
    async fn set_mark(
        self,
        owned: &mut OwnedNode,
        left: Option<LeftMark>,
    ) -> Result<Option<LeftMark>, AcquireError> {
        let mark = mark_of(&owned.path);
        let (node, data) = (owned.node.path.clone(), self.data(owned));

        loop {
            // Only while the node is there: another one may hold by now.
            let transaction = owned.client.transaction().in_session(owned.session());
            let transaction = transaction.check(&node, None);
            let transaction = match left {
                None => transaction.create(&mark, data.clone(), CreateMode::Persistent),
                Some(left) => transaction.set_data(&mark, data.clone(), Some(left.version)),
            };

            match transaction.commit().await {
                Ok(_) => {}
                Err(TransactionError::Failed { index: 0, code: ErrorCode::NoNode, .. }) => {
                    return Err(AcquireError::NodeDeleted { node });
                }
                Err(TransactionError::Failed {
                    code: ErrorCode::NodeExists | ErrorCode::BadVersion | ErrorCode::NoNode,
                    ..
                }) => match self.look(owned, &mark).await? {
                    MarkOwner::Own => {}
                    MarkOwner::Gone if left.is_none() => continue,
                    MarkOwner::Gone => return Box::pin(self.set_mark(owned, None)).await,
                    MarkOwner::Other(found) => return Ok(Some(found)),
                },
                Err(TransactionError::Request(error)) => {
                    retry_acquire(&owned.path, error).await?;
                    continue;
                }
                Err(source) => {
                    return Err(AcquireError::Refused { path: owned.path.clone(), source });
                }
            }

            // Only from here on is the mark this holder's, and goes with its node.
            owned.cleanup = Some(Cleanup::Transaction { first: node, others: vec![mark] });
            return Ok(None);
        }
    }

    /// Whose the mark is.
    async fn look(self, owned: &OwnedNode, mark: &ZnodePath) -> Result<MarkOwner, AcquireError> {
        loop {
            match owned.client.data(mark).await {
                Ok((data, stat)) => {
                    let found = DelayMark::from_data(&data);
                    // An earlier try of this holder, whose answer was lost.
                    if found.as_ref().is_some_and(|mark| mark.node == owned.node.path.name()) {
                        return Ok(MarkOwner::Own);
                    }

                    if found.is_none() && self == Self::Obeyed {
                        // It is not a mark of any version, so nobody asks for a delay.
                        return Ok(MarkOwner::Gone);
                    }
                    let (delay, version) = (self.asked_for(found), stat.version);
                    return Ok(MarkOwner::Other(LeftMark { delay, version, written: stat.mzxid }));
                }
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                    return Ok(MarkOwner::Gone);
                }
                Err(error) => retry_acquire(&owned.path, error).await?,
            }
        }
    }

    /// How long a mark is waited for. One that this version does not know may mean more than can be read
    /// from it.
    fn asked_for(self, found: Option<DelayMark>) -> Duration {
        let read = |mark: &DelayMark| Duration::from_millis(mark.delay_ms);
        match found {
            Some(mark) if mark.v <= FORMAT_VERSION => read(&mark),
            later => later.as_ref().map_or(self.own(), |mark| read(mark).max(self.own())),
        }
    }

    /// For how long the next one is to wait.
    fn own(self) -> Duration {
        match self {
            Self::Obeyed => Duration::ZERO,
            Self::Kept(delay) => delay,
        }
    }

    fn data(self, owned: &OwnedNode) -> Bytes {
        let delay_ms = u64::try_from(self.own().as_millis()).unwrap_or(u64::MAX);
        let (node, owner) = (owned.node.path.name().to_owned(), OwnerInfo::from_data(&owned.data));
        let mark = DelayMark { v: FORMAT_VERSION, node, delay_ms, owner };
        serde_json::to_vec(&mark).map_or_else(|_| Bytes::new(), Bytes::from)
    }
}

/// Waits out a delay. Returns whether it has passed: not if the node is told to have been deleted.
async fn outwait_delay(
    owned: &OwnedNode,
    own: &mut Option<Watcher>,
    delay: Duration,
) -> Result<bool, AcquireError> {
    let mut status = owned.client.status();
    let mut delay = pin!(tokio::time::sleep(delay));

    loop {
        tokio::select! {
            biased;
            event = own_event(own) => {
                *own = None;
                match event {
                    Ok(event) if event.kind == EventKind::NodeDeleted => return Ok(false),
                    Ok(_) => {}
                    Err(_) => return Err(AcquireError::session_ended(&owned.client, &owned.path)),
                }
            }
            error = out_of_reach(&owned.client, &owned.path) => return Err(error),
            _ = status.wait_for(|status| status.session != owned.session()) => {
                return Err(AcquireError::session_ended(&owned.client, &owned.path));
            }
            () = &mut delay => return Ok(true),
        }
    }
}

enum MarkOwner {
    Own,
    Other(LeftMark),
    Gone,
}

/// The lock whose mark has this name, if it is one of a mark.
pub(crate) fn lock_marked_by(name: &str) -> Option<&str> {
    lock_beside(name, DELAY)
}

/// The mark of a lock.
pub(crate) fn mark_of(lock: &ZnodePath) -> ZnodePath {
    beside(lock, DELAY)
}
