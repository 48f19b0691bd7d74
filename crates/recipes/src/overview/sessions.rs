//! What each session holds, waits for and takes part in (pure).

use std::collections::BTreeMap;

use lockkeeper_client::{SessionId, ZnodePath};
use lockkeeper_locks::OwnerInfo;
use lockkeeper_locks::inspect::LockQueue;

use crate::pool::PoolReport;
use crate::queue::KnownConsumer;

/// What one session holds, waits for and takes part in. A session is one client; a program may have several.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionUse {
    /// The session.
    pub session: SessionId,
    /// The program, if one of the session's nodes contains it.
    pub owner: Option<OwnerInfo>,
    /// The locks that the session holds, the elections that it leads, and the pools and queues of which it holds
    /// a resource or an item, once for each.
    pub holds: Vec<ZnodePath>,
    /// The locks, elections and pools for which the session waits, once for each of its contenders.
    pub waits: Vec<ZnodePath>,
    /// The groups and services in which the session takes part, and the queues of which it is a consumer.
    pub takes_part: Vec<ZnodePath>,
}

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions(BTreeMap<SessionId, SessionUse>);

impl Sessions {
    /// The session with this id; `None` for a persistent node, which does not have a session.
    fn of(&mut self, session: SessionId, owner: Option<&OwnerInfo>) -> Option<&mut SessionUse> {
        if session == SessionId::NONE {
            return None;
        }
        let found = self.0.entry(session).or_insert_with(|| SessionUse {
            session,
            owner: None,
            holds: Vec::new(),
            waits: Vec::new(),
            takes_part: Vec::new(),
        });
        if found.owner.is_none() {
            found.owner = owner.cloned();
        }
        Some(found)
    }

    pub(super) fn add_lock(&mut self, lock: &LockQueue) {
        for entry in &lock.entries {
            let Some(session) = self.of(entry.session, entry.owner.as_ref()) else { continue };
            let list = if entry.holds { &mut session.holds } else { &mut session.waits };
            list.push(lock.path.clone());
        }
    }

    pub(super) fn add_pool(&mut self, pool: &ZnodePath, report: &PoolReport) {
        for held in &report.held {
            if let Some(session) = self.of(held.session, held.info.as_ref()) {
                session.holds.push(pool.clone());
            }
        }
        for waiting in &report.waiting {
            if let Some(session) = self.of(waiting.session, Some(&waiting.info)) {
                session.waits.push(pool.clone());
            }
        }
    }

    pub(super) fn add_consumers(&mut self, queue: &ZnodePath, consumers: Vec<KnownConsumer>) {
        for consumer in consumers {
            if let Some(session) = self.of(consumer.session, consumer.owner.as_ref()) {
                session.takes_part.push(queue.clone());
                session.holds.extend(std::iter::repeat_n(queue.clone(), consumer.items));
            }
        }
    }

    pub(super) fn add_members(
        &mut self,
        path: &ZnodePath,
        members: impl IntoIterator<Item = SessionId>,
    ) {
        for session in members {
            if let Some(session) = self.of(session, None) {
                session.takes_part.push(path.clone());
            }
        }
    }

    /// The sessions sorted by id, each with sorted paths.
    pub(super) fn into_sorted(self) -> Vec<SessionUse> {
        let mut sessions: Vec<_> = self.0.into_values().collect();
        for session in &mut sessions {
            session.holds.sort();
            session.waits.sort();
            session.takes_part.sort();
        }
        sessions
    }
}
