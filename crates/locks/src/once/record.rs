//! Records of work that is done once, as JSON, and the decisions that follow from them.

#![expect(clippy::disallowed_types, reason = "the server's wall time, for people to read")]

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lockkeeper_client::{Stat, Zxid};
use serde::{Deserialize, Serialize};

use crate::once::key::{OnceKey, Tick};
use crate::owner_info::OwnerInfo;
use crate::token::FencingToken;

/// The version of both formats.
const FORMAT: u32 = 1;

/// The record of work that was started for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnceRecord {
    /// The key of the work.
    pub key: OnceKey,
    /// How often the work was started, including this time.
    pub attempt: u32,
    /// The program that did the work.
    pub owner: OwnerInfo,
    /// The fencing token under which the work was done.
    pub token: FencingToken,
    /// When the work was started, by the servers' clock.
    pub began: SystemTime,
    /// How the work ended; `None` if no end is recorded: the work is running, or its program lost the lock.
    pub end: Option<OnceEnd>,
}

/// How work that is done once has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnceEnd {
    /// The exit code, or another code chosen by the program. 0 means success.
    pub code: i32,
    /// How long the work took, by the clock of its program.
    pub took: Duration,
}

impl OnceRecord {
    /// Sorts records by the time at which they were started.
    pub(super) fn sort(records: &mut [Self]) {
        records.sort_by(|one, other| (one.began, &one.key).cmp(&(other.began, &other.key)));
    }
}

/// A record as stored in its node. Unknown fields of later versions are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    v: u32,
    /// The call of `begin` that has written it.
    run: String,
    attempt: u32,
    owner: OwnerInfo,
    token: FencingToken,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    took_ms: Option<u64>,
}

impl Written {
    pub(super) fn begun(run: &str, attempt: u32, owner: OwnerInfo, token: FencingToken) -> Self {
        let (code, took_ms) = (None, None);
        Self { v: FORMAT, run: run.to_owned(), attempt, owner, token, code, took_ms }
    }

    pub(super) fn ended(&self, code: i32, took: Duration) -> Self {
        let took_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        Self { code: Some(code), took_ms, ..self.clone() }
    }

    pub(super) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether this call has written it.
    pub(super) fn is_of(&self, run: &str) -> bool {
        self.run == run
    }

    pub(super) fn has_ended(&self) -> bool {
        self.code.is_some()
    }

    /// Reads a node's data; `None` if it is not a record.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(super) fn to_data(&self) -> Bytes {
        to_json(self)
    }

    /// The record with the times of this stat.
    pub(super) fn record(self, key: OnceKey, stat: &Stat) -> OnceRecord {
        let written = Duration::from_millis(u64::try_from(stat.mtime).unwrap_or_default());
        let took = Duration::from_millis(self.took_ms.unwrap_or_default());
        OnceRecord {
            key,
            attempt: self.attempt,
            owner: self.owner,
            token: self.token,
            began: SystemTime::UNIX_EPOCH + written.saturating_sub(took),
            end: self.code.map(|code| OnceEnd { code, took }),
        }
    }
}

/// The data of the node above the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Floor {
    v: u32,
    /// The last tick that was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor_unix_ms: Option<u64>,
}

impl Floor {
    pub(super) fn of(tick: Option<Tick>) -> Self {
        Self { v: FORMAT, floor_unix_ms: tick.map(Tick::unix_ms) }
    }

    pub(super) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(super) fn to_data(&self) -> Bytes {
        to_json(self)
    }

    pub(super) fn tick(&self) -> Option<Tick> {
        self.floor_unix_ms.map(Tick::from_unix_ms)
    }
}

fn to_json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).map_or_else(|_| Bytes::new(), Bytes::from)
}

/// What happens if work was started and no end is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfUnfinished {
    /// The work is done again: at least once.
    #[default]
    Rerun,
    /// The work is not done again: at most once.
    Skip,
}

/// What follows from the records for a holder of the lock that wants to do the work of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The work was never started.
    Begin,
    /// The work was started, and has to be done again.
    Again,
    /// This call has already started the work; the reply was lost.
    Begun,
    /// The work is done.
    Done,
    /// The work was started, and must not be done again.
    Unfinished,
    /// A later tick was started.
    Passed,
}

/// `run`: the call that asks.
pub(super) fn judge(
    key: &OnceKey,
    floor: Option<Tick>,
    found: Option<&Written>,
    run: &str,
    if_unfinished: IfUnfinished,
) -> Verdict {
    let is_past = match key {
        OnceKey::Tick(tick) => floor.is_some_and(|floor| *tick < floor),
        OnceKey::Named(_) => false,
    };
    // The record of this tick was deleted, or left out of a copy. The tick was started, because its start sets
    // the floor.
    let is_floor = matches!(key, OnceKey::Tick(tick) if floor == Some(*tick));

    match found {
        Some(found) if found.has_ended() => Verdict::Done,
        Some(found) if found.is_of(run) => Verdict::Begun,
        _ if is_past => Verdict::Passed,
        None if is_floor => Verdict::Passed,
        None => Verdict::Begin,
        Some(_) => match if_unfinished {
            IfUnfinished::Rerun => Verdict::Again,
            IfUnfinished::Skip => Verdict::Unfinished,
        },
    }
}

/// Selects the records to delete, so that the newest of each sort are kept: for ticks the
/// latest, for other keys those that were created last.
pub(super) fn surplus(mut records: Vec<(OnceKey, Zxid)>, keep: usize) -> Vec<OnceKey> {
    let is_tick = |key: &OnceKey| matches!(key, OnceKey::Tick(_));
    records.sort_by(|(one, created), (other, later)| match (one, other) {
        (OnceKey::Tick(one), OnceKey::Tick(other)) => one.cmp(other),
        _ => is_tick(one).cmp(&is_tick(other)).then(created.cmp(later)),
    });
    let ticks = records.iter().position(|(key, _)| is_tick(key)).unwrap_or(records.len());
    let (named, ticks) = records.split_at(ticks);
    let oldest = |of: &[(OnceKey, Zxid)]| of[..of.len().saturating_sub(keep)].to_vec();
    let both = oldest(named).into_iter().chain(oldest(ticks));
    both.map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(run: &str, code: Option<i32>) -> Written {
        let token = FencingToken::new(Zxid(7));
        let begun = Written::begun(run, 1, OwnerInfo::default(), token);
        code.map_or(begun.clone(), |code| begun.ended(code, Duration::from_secs(2)))
    }

    #[test]
    fn what_is_written_can_be_read_and_what_a_later_version_adds_is_read_over() {
        for record in [written("a", None), written("a", Some(3))] {
            assert_eq!(Written::read(&record.to_data()), Some(record));
        }
        for tick in [None, Some(Tick::from_unix_ms(7))] {
            assert_eq!(Floor::read(&Floor::of(tick).to_data()).unwrap().tick(), tick);
        }
        assert_eq!(Floor::read(br#"{"v":2,"zone":"b"}"#).unwrap().tick(), None);
        for data in ["", "7", "{}", "[]"] {
            assert_eq!(
                (Written::read(data.as_bytes()), Floor::read(data.as_bytes())),
                (None, None)
            );
        }
    }

    #[test]
    fn a_key_begins_once_and_a_passed_tick_never() {
        use IfUnfinished::{Rerun, Skip};
        let tick = |ms| OnceKey::Tick(Tick::from_unix_ms(ms));
        let floor = Some(Tick::from_unix_ms(7));
        let (open, own) = (written("other", None), written("own", None));
        let done = written("other", Some(0));
        for (key, found, policy, verdict) in [
            (tick(8), None, Rerun, Verdict::Begin),
            (tick(6), None, Rerun, Verdict::Passed),
            (tick(6), Some(&open), Rerun, Verdict::Passed),
            (tick(6), Some(&done), Rerun, Verdict::Done),
            (tick(7), None, Rerun, Verdict::Passed),
            (tick(7), Some(&open), Rerun, Verdict::Again),
            (tick(7), Some(&open), Skip, Verdict::Unfinished),
            (tick(7), Some(&own), Skip, Verdict::Begun),
            (tick(7), Some(&done), Skip, Verdict::Done),
            ("x".into(), None, Skip, Verdict::Begin),
            ("x".into(), Some(&open), Rerun, Verdict::Again),
            ("x".into(), Some(&open), Skip, Verdict::Unfinished),
            ("x".into(), Some(&done), Rerun, Verdict::Done),
        ] {
            assert_eq!(judge(&key, floor, found, "own", policy), verdict, "{key:?} {found:?}");
        }
        assert_eq!(judge(&tick(0), None, None, "own", Rerun), Verdict::Begin);
    }

    #[test]
    fn the_newest_of_each_sort_are_kept() {
        let tick = |ms| OnceKey::Tick(Tick::from_unix_ms(ms));
        // A tick that was started again is not older than a later one.
        let ticks = [(tick(10), Zxid(1)), (tick(9), Zxid(8))];
        let named = [("b".into(), Zxid(2)), ("a".into(), Zxid(4)), ("c".into(), Zxid(3))];
        let all: Vec<(OnceKey, Zxid)> = named.into_iter().chain(ticks).collect();
        assert_eq!(surplus(all.clone(), 1), ["b".into(), "c".into(), tick(9)]);
        assert_eq!(surplus(all, 3), []);
    }
}
