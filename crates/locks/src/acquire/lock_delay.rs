//! A pause between a holder that vanished and the next one.
//!
//! A holder writes a mark when it is granted the lock. When it releases the lock, one transaction deletes the mark and
//! its node. A contender that finds a mark when it reaches the front knows that the last holder has vanished. It waits
//! for the time given in the mark, so that operations of that holder that are still in flight can end. The idea is the
//! *lock-delay* of M. Burrows, "The Chubby lock service" (OSDI 2006). It is for resources that cannot check fencing
//! tokens. It proves nothing, because the time is a guess.
//!
//! The mark is `<path>-__delay__`, a sibling of the lock's node. A child of that node would be a contender for every
//! library. `docs/decisions/0005-lock-delay.md` discusses the alternatives.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{
    Cleanup, CreateMode, ErrorCode, EventKind, Instant, TransactionError, Watcher, ZnodePath, Zxid,
};
use serde::{Deserialize, Serialize};

use crate::attempt::{out_of_reach, retry_acquire};
use crate::contender::node::{Contender, Front};
use crate::contender::watches::own_event;
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::guard::owned_node::OwnedNode;
use crate::owner_info::OwnerInfo;
use crate::siblings::{DELAY, lock_of_sibling, sibling};

/// The field in a contender's data that states that it waits out lock delays.
const OBEYS_FIELD: &str = "obeys_lock_delay";

/// Adds the field to a contender's data. Data that is not JSON stays unchanged.
pub(crate) fn obeying(data: &Bytes) -> Bytes {
    let Ok(serde_json::Value::Object(mut fields)) = serde_json::from_slice(data) else {
        return data.clone();
    };
    fields.insert(OBEYS_FIELD.to_owned(), true.into());
    serde_json::to_vec(&fields).map_or_else(|_| data.clone(), Bytes::from)
}

/// Whether a contender's data has the field.
pub(crate) fn obeys(data: &[u8]) -> bool {
    let fields = serde_json::from_slice::<serde_json::Value>(data);
    fields.is_ok_and(|fields| fields[OBEYS_FIELD] == true)
}

/// How a contender handles lock delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockDelay {
    /// It waits out the delay of another holder, and sets none.
    Obeyed,
    /// It also makes the next holder wait for this long if it vanishes itself.
    Kept(Duration),
}

/// The version of the mark format.
const FORMAT_VERSION: u32 = 1;

/// The contents of a mark. Unknown fields of later versions are ignored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DelayMark {
    /// The version of this format; marks without one are like those of version 1.
    #[serde(default)]
    v: u32,
    /// The name of the holder's node.
    pub(crate) node: String,
    /// How long the next holder waits, in milliseconds.
    delay_ms: u64,
    /// The program of the holder, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<OwnerInfo>,
}

impl DelayMark {
    /// Reads a mark; `None` if the data is not a mark of any version.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    /// How long the next holder waits; `None` if the mark has a later format, which may mean more than this
    /// version reads.
    pub(crate) fn delay(&self) -> Option<Duration> {
        (self.v <= FORMAT_VERSION).then_some(Duration::from_millis(self.delay_ms))
    }
}

/// A mark that a holder left when it vanished.
#[derive(Clone, Copy, Debug)]
struct LeftMark {
    delay: Duration,
    version: i32,
    /// The transaction that wrote it, which identifies it.
    written: Zxid,
}

/// When this process first saw the current mark. The time at which its holder vanished is unknown. An
/// attempt that does not wait, or waits for less than the delay, must not restart the delay.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenMarks(Arc<Mutex<Option<SeenMark>>>);

/// A mark that this process waits for.
#[derive(Clone, Copy, Debug)]
struct SeenMark {
    mark: MarkId,
    first: Instant,
    delay: Duration,
}

/// Identifies a mark: the transaction that wrote it, and the number of rewinds of the servers until then. After a
/// rewind, another transaction may have the same number.
type MarkId = (Zxid, u64);

impl SeenMarks {
    /// When the delay of the mark is over.
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

    /// The remaining time of the last delay seen; `None` if it is over.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = seen.map(|seen_mark| (seen_mark.first + seen_mark.delay).since(now));
        left.filter(|left| !left.is_zero())
    }
}

impl LockDelay {
    /// Grants the lock to the contender at the front: waits out the delay of a mark that was left, then sets its
    /// own mark or checks that there is none. Costs one round trip. A mark that was left costs one more to replace
    /// or delete it, and another one to read it if the contender sets a mark.
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
            // If the node is gone, the check before the next write of the mark reports why.
            left = outwait_delay(&owned, &mut front.own, delay).await?.then_some(found);
        }
        Guard::confirm(owned, front.own).await
    }

    /// Like [`grant`], but returns `None` if there is a delay to wait for.
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

    /// Replaces or deletes the mark `left`, whose delay is over. Returns `None` if no mark is left, and
    /// otherwise the mark to wait for.
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

    /// Deletes the mark `left`, if any, whose delay is over, and checks for another one.
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

            // Only while the node exists: another contender may hold the lock by now, and have a mark.
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

    /// Sets the mark, and replaces `left` if its delay is over. Returns `None` if the mark is set, and otherwise the
    /// mark to wait for.
    async fn set_mark(
        self,
        owned: &mut OwnedNode,
        left: Option<LeftMark>,
    ) -> Result<Option<LeftMark>, AcquireError> {
        let mark = mark_of(&owned.path);
        let (node, data) = (owned.node.path.clone(), self.data(owned));

        loop {
            // Only while the node exists: another contender may hold the lock by now.
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

            // From here on the mark belongs to this holder, and is deleted with its node.
            owned.cleanup = Some(Cleanup::Transaction { first: node, others: vec![mark] });
            return Ok(None);
        }
    }

    /// Finds out which holder the mark belongs to.
    async fn look(self, owned: &OwnedNode, mark: &ZnodePath) -> Result<MarkOwner, AcquireError> {
        loop {
            match owned.client.data(mark).await {
                Ok((data, stat)) => {
                    let found = DelayMark::from_data(&data);
                    // An earlier try of this holder wrote it, and the reply was lost.
                    if found.as_ref().is_some_and(|mark| mark.node == owned.node.path.name()) {
                        return Ok(MarkOwner::Own);
                    }

                    if found.is_none() && self == Self::Obeyed {
                        // It is not a mark of any version, so it does not require a delay.
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

    /// How long to wait for a mark. A mark of an unknown version may mean more than this version can read.
    fn asked_for(self, found: Option<DelayMark>) -> Duration {
        let read = |mark: &DelayMark| Duration::from_millis(mark.delay_ms);
        match found {
            Some(mark) if mark.v <= FORMAT_VERSION => read(&mark),
            later => later.as_ref().map_or(self.own(), |mark| read(mark).max(self.own())),
        }
    }

    /// The delay that this contender sets for the next holder.
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

/// Waits out a delay. Returns `false` if an event reports the deletion of the node.
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

/// The name of the lock that a mark of this name belongs to; `None` if the name is not that of a mark.
pub(crate) fn lock_marked_by(name: &str) -> Option<&str> {
    lock_of_sibling(name, DELAY)
}

/// The path of a lock's mark.
pub(crate) fn mark_of(lock: &ZnodePath) -> ZnodePath {
    sibling(lock, DELAY)
}
