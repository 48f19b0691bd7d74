//! What happened in a run, as the checker reads it and a person too.

use std::fmt;
use std::time::Duration;

/// One thing that a participant was told or did.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// It was told that it holds a lock.
    Granted {
        /// The lock.
        lock: String,
        /// The fencing token.
        token: u128,
    },
    /// It was told that nobody else can be granted the lock before `until`.
    Claimed {
        /// The lock.
        lock: String,
        /// The fencing token.
        token: u128,
        /// In true time, whatever its own clock says.
        until: Duration,
    },
    /// It began to give the lock back, or to drop it: its claims are over.
    GaveBack {
        /// The lock.
        lock: String,
        /// The fencing token.
        token: u128,
    },
    /// It was told that it has lost the lock.
    Lost {
        /// The lock.
        lock: String,
        /// The fencing token.
        token: u128,
        /// Why.
        reason: String,
    },
    /// A resource accepted a write that carried this token.
    Admitted {
        /// The lock that guards the resource.
        lock: String,
        /// The fencing token.
        token: u128,
    },
    /// A resource refused a write that carried this token.
    Refused {
        /// The lock that guards the resource.
        lock: String,
        /// The fencing token.
        token: u128,
    },
    /// A plain register was read.
    Read {
        /// When it was asked.
        asked: Duration,
        /// Which version it was.
        version: i32,
        /// What was in it.
        value: u64,
    },
    /// A plain register was written.
    Wrote {
        /// When it was asked.
        asked: Duration,
        /// Which version it became; `None`: nobody knows whether it was written.
        version: Option<i32>,
        /// What was put into it.
        value: u64,
    },
    /// Something was still there after everything had been given back and healed.
    Left(String),
    /// Somebody waited for longer than anything takes that works.
    Stuck(String),
    /// A fault began or ended.
    Fault(String),
    /// Anything else that helps a reader.
    Note(String),
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// In true time, since the beginning.
    pub at: Duration,
    /// The participant.
    pub who: String,
    /// What happened.
    pub what: What,
}

/// What happened in a run, in order.
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
            Self::Granted { lock, token } => write!(f, "HOLDS {lock}, token {token:x}"),
            Self::Claimed { lock, token, until } => {
                write!(f, "claims {lock}, token {token:x}, until {:.3} s", until.as_secs_f64())
            }
            Self::GaveBack { lock, token } => write!(f, "gives back {lock}, token {token:x}"),
            Self::Lost { lock, token, reason } => {
                write!(f, "LOST {lock}, token {token:x}: {reason}")
            }
            Self::Admitted { lock, token } => write!(f, "writes under {lock}, token {token:x}"),
            Self::Refused { lock, token } => {
                write!(f, "is refused a write under {lock}, token {token:x}")
            }
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
            Self::Stuck(what) => write!(f, "STUCK: {what}"),
            Self::Fault(what) => write!(f, "### {what}"),
            Self::Note(what) => write!(f, "{what}"),
        }
    }
}
