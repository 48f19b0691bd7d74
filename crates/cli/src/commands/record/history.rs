//! What happens to the contenders of locks, as the queues tell it from one time to the next: pure.

use std::collections::HashMap;
#[cfg(feature = "console")]
use std::time::{Duration, SystemTime};

use lockkeeper::inspect::{Entry, LockQueue};
use lockkeeper::{FencingToken, ZnodePath};
use serde::{Deserialize, Serialize};

use crate::shared::view;

/// Something that happened, as a line of a history. The names are stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HistoryLine {
    /// When it was seen, by the clock of the recording machine.
    pub(crate) at_unix_ms: u64,
    pub(crate) event: HistoryEvent,
    /// The lock; of what concerns the recording itself, the path below which it looks.
    pub(crate) lock: String,
    /// The contender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) who: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// Of a grant, how long it had waited; of an end, how long it had held or waited. Only if the recording saw the
    /// beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lasted_ms: Option<u64>,
    /// Who asked it to release the lock, and why, if the request said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HistoryEvent {
    /// The recording began.
    RecordingBegan,
    /// The recording ended.
    RecordingEnded,
    /// It held the lock when the recording began.
    Held,
    /// It came into the line, or was there when the recording began.
    Waits,
    /// It got the lock.
    Granted,
    /// It was asked to release the lock.
    Asked,
    /// Its node went while it held the lock: it released it, or its session ended.
    Ended,
    /// Its node went while it waited: it gave up, or its session ended.
    Left,
}

/// The contenders of all locks, as they were last seen.
#[derive(Debug, Default)]
pub(crate) struct History {
    locks: HashMap<ZnodePath, HashMap<ContenderKey, Known>>,
}

/// Another contender of the same name has another transaction.
type ContenderKey = (ZnodePath, FencingToken);

#[derive(Clone, Debug)]
struct Known {
    who: String,
    session: String,
    holds: bool,
    is_asked: bool,
    /// Since when it has been as it is, if that was seen.
    since: Option<u64>,
}

impl History {
    /// Notes how a lock is now, and gives what has happened since it was last seen: who went, who came, who was granted
    /// the lock, and who was asked for it. `begins`: nothing was seen before.
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

impl History {
    /// Since when contenders hold that were seen to be granted their locks, by the clock of this machine.
    #[cfg(feature = "console")]
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
    /// Something about the recording itself.
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
