//! The history of a run, in the form that the checker and a person read.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::data_event::DataEvent;

/// The share of a lock that a holder has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub enum Share {
    /// The whole lock: a mutex, or a lock that is held for writing.
    Alone,
    /// Shared with other readers.
    Reader,
    /// Shared with readers, with the exclusive right to upgrade to writing later.
    Upgradeable,
    /// Some permits.
    #[expect(missing_docs, reason = "the permits taken and the permits in total")]
    Permits { taken: u32, of: u32 },
}

impl Share {
    /// Whether all of these shares may be held at the same time.
    pub fn fit(shares: &[Self]) -> bool {
        let count = |wanted: fn(&Self) -> bool| shares.iter().filter(|share| wanted(share)).count();
        let permits = |share: &Self| match share {
            Self::Permits { taken, of } => Some((*taken, *of)),
            _ => None,
        };
        let taken: u32 = shares.iter().filter_map(permits).map(|(taken, _)| taken).sum();
        let of = shares.iter().filter_map(permits).map(|(_, of)| of).min();
        shares.len() <= 1
            || count(|share| *share == Self::Alone) == 0
                && count(|share| *share == Self::Upgradeable) <= 1
                && of.is_none_or(|of| taken <= of)
    }

    /// Whether a contender behind all of these, some of which wait, may hold this share: none of them excludes it, and
    /// enough permits remain for all.
    pub fn fits_behind(self, ahead: &[Self]) -> bool {
        let all: Vec<Self> = ahead.iter().copied().chain([self]).collect();
        let counted = matches!(self, Self::Permits { .. });
        ahead.iter().all(|other| Self::fit(&[self, *other])) && (!counted || Self::fit(&all))
    }
}

/// The name of a share in a timeline.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => write!(f, "alone"),
            Self::Reader => write!(f, "reading"),
            Self::Upgradeable => write!(f, "reading, may write later"),
            Self::Permits { taken, of } => write!(f, "{taken} of {of}"),
        }
    }
}

/// An event of a participant: a result that it received or an operation that it made. `lock` is the path of the lock,
/// `token` the fencing token, `share` the share of the lock, `asked` the time of the request; all times are true times,
/// whatever the participant's own clock shows. One process sends it to another as JSON.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[expect(missing_docs, reason = "fields of one name mean the same in all variants")]
pub enum What {
    /// It was granted a lock.
    Granted { lock: String, token: u128, share: Share },
    /// It learned that the lock cannot be granted to another contender before `until`.
    Claimed { lock: String, token: u128, until: Duration },
    /// It began to release or drop the lock: its claims end.
    GaveBack { lock: String, token: u128 },
    /// It chose to keep this lock through outages.
    RidesOut { lock: String, token: u128 },
    /// The state of the lock became unknown: it may or may not still be held.
    Doubted { lock: String, token: u128 },
    /// It learned that it has held the lock without interruption.
    HeldAgain { lock: String, token: u128 },
    /// Its work was made to act while it did not hold the lock.
    Unheld { lock: String, token: u128 },
    /// It learned that it has lost the lock.
    Lost { lock: String, token: u128, reason: String },
    /// Its request for a lock failed for another reason than a timeout.
    Denied { lock: String, reason: String },
    /// Its request for a lock that was free failed, on healthy servers, after the process was suspended for less than
    /// its session's lifetime.
    DeniedFree(String),
    /// From now on every program runs, and the servers are healthy or away for no longer than locks are kept: each
    /// grant is promised to leave this much of the lease.
    Well { always_left: Duration },
    /// A resource accepted a write that carried this token.
    Admitted { lock: String, token: u128 },
    /// A resource refused a write that carried this token.
    Refused { lock: String, token: u128 },
    /// A write was committed together with a check that the holder's own node exists.
    Committed { lock: String, token: u128, zxid: u64 },
    /// A program that uses another library was granted a lock without a deadline. Its token is the transaction that
    /// created its node, in the form of a fencing token; 0 if the node was already gone.
    Believes { lock: String, token: u128, share: Share },
    /// Such a program began to release the lock.
    Stops { lock: String, token: u128 },
    /// Such a program's library reported that its connection is in doubt: a careful program stops its work.
    Warned,
    /// A program was killed.
    Died,
    /// A plain register was read.
    Read { asked: Duration, version: i32, value: u64 },
    /// A plain register was written. `None`: the outcome is unknown.
    Wrote { asked: Duration, version: Option<i32>, value: u64 },
    /// Something still existed after everything had been released and the faults had ended.
    Left(String),
    /// A shared value differs from what its confirmed operations produce.
    InexactValue(String),
    /// A wait took longer than any successful operation does.
    Stuck(String),
    /// A healthy program waited for one that had died, although what it wanted was free.
    WaitsForDead(String),
    /// An event about shared data.
    Data(DataEvent),
    /// A snapshot of a tree was not one of its states, or was an older one.
    InexactSnapshot(String),
    /// A presence took another presence's node for its own, or modified it.
    WrongPresence(String),
    /// A presence was lost on healthy servers.
    LostPresence(String),
    /// A directory lacked an instance of a service that was registered, or listed it in a past state.
    MissingInstance(String),
    /// A view of a group did not follow from the changes, or did not contain the members present.
    WrongView(String),
    /// Something that is done once began where it must not, or did not begin where it must.
    WrongOnce(String),
    /// A queue broke a promise.
    WrongItem(String),
    /// A barrier or a latch broke a promise.
    WrongRound(String),
    /// A pool broke a promise.
    WrongThing(String),
    /// Ids or their numbers broke a promise.
    WrongId(String),
    /// A partition ended, moved or stayed without a reason, or an error occurred although all is well.
    WrongPartition(String),
    /// A fault began or ended.
    Fault(String),
    /// Other information for a reader.
    Note(String),
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// True time since the beginning.
    pub at: Duration,
    /// The participant.
    pub who: String,
    /// What happened.
    pub what: What,
}

/// The events of a run, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    entries: Vec<Entry>,
}

impl History {
    /// Adds a line.
    pub fn push(&mut self, at: Duration, who: impl Into<String>, what: What) {
        self.entries.push(Entry { at, who: who.into(), what });
    }

    /// All lines, in the order in which they were added.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// A timeline: one line for each entry.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Entry { at, who, what } in &self.entries {
            writeln!(f, "{:9.3} s  {who:10} {what}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { lock, token, share } => {
                write!(f, "HOLDS {lock} ({share}), token {token:x}")
            }
            Self::Claimed { lock, token, until } => {
                write!(f, "claims {lock}, token {token:x}, until {:.3} s", until.as_secs_f64())
            }
            Self::GaveBack { lock, token } => write!(f, "gives back {lock}, token {token:x}"),
            Self::RidesOut { lock, token } => write!(f, "rides out with {lock}, token {token:x}"),
            Self::Doubted { lock, token } => write!(f, "is in JEOPARDY, {lock}, token {token:x}"),
            Self::HeldAgain { lock, token } => write!(f, "HOLDS {lock} AGAIN, token {token:x}"),
            Self::Unheld { lock, token } => write!(f, "WORKS WITHOUT {lock}, token {token:x}"),
            Self::Lost { lock, token, reason } => {
                write!(f, "LOST {lock}, token {token:x}: {reason}")
            }
            Self::Denied { lock, reason } => write!(f, "is DENIED {lock}: {reason}"),
            Self::DeniedFree(what) => write!(f, "is DENIED {what}"),
            Self::Well { always_left } => {
                let left = always_left.as_secs_f64();
                write!(f, "### all is well or nearly so: each grant leaves {left:.3} s")
            }
            Self::Admitted { lock, token } => write!(f, "writes under {lock}, token {token:x}"),
            Self::Refused { lock, token } => {
                write!(f, "is refused a write under {lock}, token {token:x}")
            }
            Self::Committed { lock, token, zxid } => {
                write!(f, "commits {zxid:x} under {lock}, token {token:x}")
            }
            Self::Believes { lock, token, share } => {
                write!(f, "believes that it holds {lock} ({share}), token {token:x}")
            }
            Self::Stops { lock, token } => write!(f, "stops with {lock}, token {token:x}"),
            Self::Warned => write!(f, "is warned"),
            Self::Died => write!(f, "DIED"),
            Self::Read { asked, version, value } => {
                let asked = asked.as_secs_f64();
                write!(f, "reads {value} in version {version}, asked at {asked:.3} s")
            }
            Self::Wrote { asked, version, value } => {
                let asked = asked.as_secs_f64();
                match version {
                    Some(version) => {
                        write!(f, "wrote {value} as version {version}, asked at {asked:.3} s")
                    }
                    None => write!(f, "may have written {value}, asked at {asked:.3} s"),
                }
            }
            Self::Left(what) => write!(f, "LEFT BEHIND: {what}"),
            Self::InexactValue(what) => write!(f, "INEXACT: {what}"),
            Self::Stuck(what) => write!(f, "STUCK: {what}"),
            Self::WaitsForDead(what) => write!(f, "WAITS FOR THE DEAD: {what}"),
            Self::Data(told) => write!(f, "{told}"),
            Self::InexactSnapshot(what) => write!(f, "INEXACT: {what}"),
            Self::WrongPresence(what) => write!(f, "WRONG PRESENCE: {what}"),
            Self::LostPresence(what) => write!(f, "LOST PRESENCE: {what}"),
            Self::MissingInstance(what) => write!(f, "MISSING: {what}"),
            Self::WrongOnce(what) => write!(f, "NOT ONCE: {what}"),
            Self::WrongView(what) => write!(f, "WRONG VIEW: {what}"),
            Self::WrongItem(what) => write!(f, "WRONG ITEM: {what}"),
            Self::WrongRound(what) => write!(f, "WRONG ROUND: {what}"),
            Self::WrongThing(what) => write!(f, "WRONG THING: {what}"),
            Self::WrongId(what) => write!(f, "WRONG ID: {what}"),
            Self::WrongPartition(what) => write!(f, "WRONG PARTITION: {what}"),
            Self::Fault(what) => write!(f, "### {what}"),
            Self::Note(what) => write!(f, "{what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Participants in other languages write such lines by hand.
    #[test]
    fn what_one_process_prints_another_reads() {
        let (lock, token) = ("/l".to_owned(), u128::from(u64::MAX) << 32);
        let members = [("a".to_owned(), "7.2".parse().unwrap())].into();
        let (share, until) = (Share::Permits { taken: 1, of: 2 }, Duration::from_millis(1_500));
        for what in [
            What::Granted { lock: lock.clone(), token, share },
            What::Claimed { lock: lock.clone(), token, until },
            What::Data(DataEvent::View { watcher: u64::MAX, id: 9, members }),
        ] {
            let text = serde_json::to_string(&what).unwrap();
            assert_eq!(serde_json::from_str::<What>(&text).unwrap(), what, "{text}");
        }

        let (token, share) = (1 << 64, Share::Reader);
        for (text, what) in [
            ("\"Warned\"", What::Warned),
            ("{'Note':'why'}", What::Note("why".to_owned())),
            (
                "{'Believes':{'lock':'/l','token':18446744073709551616,'share':'Reader'}}",
                What::Believes { lock: lock.clone(), token, share },
            ),
            (
                "{'Stops':{'lock':'/l','token':18446744073709551616}}",
                What::Stops { lock: lock.clone(), token },
            ),
            (
                "{'Committed':{'lock':'/l','token':18446744073709551616,'zxid':5}}",
                What::Committed { lock, token, zxid: 5 },
            ),
        ] {
            let text = text.replace('\'', "\"");
            assert_eq!(serde_json::from_str::<What>(&text).unwrap(), what, "{text}");
        }
    }
}

/// Histories for the tests of checkers.
#[cfg(test)]
pub(crate) mod lines {
    use super::*;
    use crate::checker::check;

    pub(crate) const LOCK: &str = "/l";

    pub(crate) fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    pub(crate) fn granted(token: u128) -> What {
        What::Granted { lock: LOCK.into(), token, share: Share::Alone }
    }

    pub(crate) fn claimed(token: u128, until: u64) -> What {
        What::Claimed { lock: LOCK.into(), token, until: at(until) }
    }

    /// Builds a history of these lines: the second, the participant, the event.
    pub(crate) fn history<T: Into<What>>(lines: Vec<(u64, &str, T)>) -> History {
        let mut history = History::default();
        for (seconds, who, what) in lines {
            history.push(at(seconds), who, what.into());
        }
        history
    }

    /// Asserts that these lines violate this invariant and no other.
    pub(crate) fn refused(lines: Vec<(u64, &str, What)>, invariant: &str) {
        let why = check(&history(lines)).unwrap_err();
        assert!(why.contains(invariant) && why.lines().count() == 2, "{why}");
    }

    /// Asserts that a checker found this violation.
    pub(crate) fn found(judged: Result<(), String>, part: &str) {
        let why = judged.unwrap_err();
        assert!(why.contains(part), "{why}");
    }

    impl From<DataEvent> for What {
        fn from(told: DataEvent) -> Self {
            Self::Data(told)
        }
    }
}
