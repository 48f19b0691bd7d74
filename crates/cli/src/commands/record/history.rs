//! Derives the history of contenders from successive states of the queues. No I/O.

use std::collections::HashMap;
#[cfg(feature = "console")]
use std::time::{Duration, SystemTime};

use lockkeeper::inspect::{Entry, LockQueue};
use lockkeeper::{CacheUpdate, FencingToken, ZnodePath};
use serde::{Deserialize, Serialize};

use crate::shared::view;

/// An event, as one line of a history. The field names are stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HistoryLine {
    /// When it was observed, by the clock of the recording machine.
    pub(crate) at_unix_ms: u64,
    pub(crate) event: HistoryEvent,
    /// The lock; for events about the recording itself, the recorded path.
    pub(crate) lock: String,
    /// The contender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) who: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// For a grant, the time that it had waited; for an end, the time that it had held or waited. Only if the recording
    /// has observed the start of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lasted_ms: Option<u64>,
    /// Who asked it to release the lock, and why, if the request contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HistoryEvent {
    /// The recording started.
    RecordingBegan,
    /// The recording ended.
    RecordingEnded,
    /// No server had the recording's session: what happened until [`Self::ServersBack`] is known by its outcome.
    ServersAway,
    /// A server has it again.
    ServersBack,
    /// It held the lock when the recording started.
    Held,
    /// It joined the queue, or was in it when the recording started.
    Waits,
    /// It got the lock.
    Granted,
    /// It was asked to release the lock.
    Asked,
    /// Its node was deleted while it held the lock: it released the lock, or its session ended.
    Ended,
    /// Its node was deleted while it waited: it gave up, or its session ended.
    Left,
}

/// The contenders of all locks, in their last observed state.
#[derive(Debug, Default)]
pub(crate) struct History {
    locks: HashMap<ZnodePath, HashMap<ContenderKey, Known>>,
}

/// A later contender with the same name has another transaction.
type ContenderKey = (ZnodePath, FencingToken);

#[derive(Clone, Debug)]
struct Known {
    who: String,
    session: String,
    holds: bool,
    is_asked: bool,
    /// When it entered its current state, if that was observed.
    since: Option<u64>,
}

/// The locks whose queues may differ after an update, each once.
pub(crate) fn changed_locks(update: &CacheUpdate) -> Vec<ZnodePath> {
    let mut locks: Vec<ZnodePath> = Vec::new();
    for change in &update.changes {
        let node = ZnodePath::new(change.path()).ok();
        locks.extend(node.iter().flat_map(LockQueue::changed_by));
    }
    locks.sort();
    locks.dedup();
    locks
}

impl History {
    /// Records the state of a lock, and returns the events since its previous state. `begins`: there is no previous
    /// state.
    pub(crate) fn see(
        &mut self,
        lock: &ZnodePath,
        queue: Option<&LockQueue>,
        now: u64,
        begins: bool,
    ) -> Vec<HistoryLine> {
        let mut before = self.locks.remove(lock).unwrap_or_default();
        let (mut came, mut after) = (Vec::new(), HashMap::new());
        for entry in queue.into_iter().flat_map(|queue| &queue.entries) {
            let key = (entry.node.clone(), entry.token);
            let known = before.remove(&key);
            let mut tell = |event, lasted_ms, known: &Known| {
                let request = entry.revoke_request().filter(|_| event == HistoryEvent::Asked);
                let request = request.map(|request| view::by_whom(Some(&request)));
                let request = request.map(|text| text.trim().to_owned());
                let line = known.line(lock, &entry.node, event, now, lasted_ms);
                came.push(HistoryLine { request: request.filter(|it| !it.is_empty()), ..line });
            };

            let mut new = Known::of(entry);
            if known.is_none() {
                new.since = (!begins).then_some(now);
                if !entry.holds {
                    tell(HistoryEvent::Waits, None, &new);
                } else if begins {
                    tell(HistoryEvent::Held, None, &new);
                }
            }
            match &known {
                Some(known) if known.holds == entry.holds => new.since = known.since,
                Some(known) if entry.holds => {
                    let waited = known.since.map(|since| now.saturating_sub(since));
                    tell(HistoryEvent::Granted, waited, &new);
                    new.since = Some(now);
                }
                None if entry.holds && !begins => tell(HistoryEvent::Granted, Some(0), &new),
                _ => {}
            }
            if new.is_asked && !known.is_some_and(|known| known.is_asked) {
                tell(HistoryEvent::Asked, None, &new);
            }
            after.insert(key, new);
        }

        let mut lines: Vec<HistoryLine> = before
            .iter()
            .map(|((node, _), known)| {
                let event = if known.holds { HistoryEvent::Ended } else { HistoryEvent::Left };
                let lasted = known.since.map(|since| now.saturating_sub(since));
                known.line(lock, node, event, now, lasted)
            })
            .collect();
        lines.sort_by(|a, b| a.node.cmp(&b.node));
        lines.extend(came);
        if !after.is_empty() {
            self.locks.insert(lock.clone(), after);
        }
        lines
    }
}

#[cfg(feature = "console")]
impl History {
    /// Since when contenders hold that were seen to be granted their locks, by the clock of this machine.
    pub(crate) fn observed(&self) -> impl Iterator<Item = (ZnodePath, SystemTime)> {
        let all = self.locks.values().flatten().filter(|(_, known)| known.holds);
        all.filter_map(|((node, _), known)| {
            let since = Duration::from_millis(known.since?);
            Some((node.clone(), SystemTime::UNIX_EPOCH.checked_add(since)?))
        })
    }
}

impl Known {
    fn of(entry: &Entry) -> Self {
        Self {
            who: view::who(entry),
            session: entry.session.to_string(),
            holds: entry.holds,
            is_asked: entry.is_revoked(),
            since: None,
        }
    }

    fn line(
        &self,
        lock: &ZnodePath,
        node: &ZnodePath,
        event: HistoryEvent,
        now: u64,
        lasted_ms: Option<u64>,
    ) -> HistoryLine {
        HistoryLine {
            at_unix_ms: now,
            event,
            lock: lock.to_string(),
            who: Some(self.who.clone()),
            node: Some(node.to_string()),
            session: Some(self.session.clone()),
            lasted_ms,
            request: None,
        }
    }
}

impl HistoryLine {
    /// An event about the recording itself.
    pub(crate) fn of_recording(event: HistoryEvent, path: &ZnodePath, at_unix_ms: u64) -> Self {
        let lock = path.to_string();
        Self {
            at_unix_ms,
            event,
            lock,
            who: None,
            node: None,
            session: None,
            lasted_ms: None,
            request: None,
        }
    }
}
