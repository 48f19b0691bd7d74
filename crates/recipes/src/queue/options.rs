//! [`PutOptions`]: when an item comes into a queue, and which others it has to wait for.

use std::time::Duration;

use crate::queue::marks::{Marks, encoded};
use crate::wall_clock::millis;

/// How long a key, a kind or an id is at most, in bytes, as a part of a name.
const LONGEST_NAME: usize = 128;

/// When an item comes into a queue, and beside which others it is worked on. In the layouts of other libraries, only
/// [what they have](crate::QueueLayout).
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::PutOptions;
/// let options = PutOptions::new().delay(Duration::from_secs(60)).key("customer-7");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct PutOptions {
    pub(super) due: Option<Due>,
    pub(super) priority: Option<i32>,
    pub(super) key: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) id: Option<String>,
    pub(super) keep_answer: Option<Duration>,
}

/// When an item comes into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    After(Duration),
    AtUnixMs(u64),
}

impl Due {
    /// In milliseconds since 1970, as `now_unix_ms` is.
    pub(super) fn from(self, now_unix_ms: u64) -> u64 {
        match self {
            Self::After(time) => now_unix_ms.saturating_add(millis(time)),
            Self::AtUnixMs(time) => time,
        }
    }
}

impl PutOptions {
    /// A put without any.
    pub fn new() -> Self {
        Self::default()
    }

    lockkeeper_client::setters! {
        /// After this time by the servers' clock, it comes into the queue, at the end. What is due at the same time
        /// comes in the order in which it was put. Default: at once.
        pub fn delay(self, time: Duration) => self.due = Some(Due::After(time));

        /// The same at a time, in milliseconds since 1970. Of a delay and a time, the last one counts.
        pub fn due_unix_ms(self, time: u64) => self.due = Some(Due::AtUnixMs(time));

        /// Items of lower priorities are taken first. Default: 0; in kazoo's layouts, 100.
        pub fn priority(self, priority: i32) => self.priority = Some(priority);

        /// Items of one key are worked on one at a time, in the order in which they came into the queue; those of
        /// other keys beside them. A name of 1 to 128 bytes; what is no letter, digit, `_`, `:` or `-` counts three
        /// times. Default: none.
        pub fn key(self, key: impl Into<String>) => self.key = Some(key.into());

        /// What a consumer may [limit](crate::QueueBuilder::at_most): how many items of one kind are worked on at
        /// once. A name, as for [`PutOptions::key`]. Default: none.
        pub fn kind(self, kind: impl Into<String>) => self.kind = Some(kind.into());

        /// Its id, in place of a random one: 1 to 64 letters, digits, `_` and `-`. The put fails with
        /// [`QueueError::Exists`](crate::QueueError::Exists) while an item of this id is in the queue, or a dead letter. When
        /// that is done or cancelled, the id may be used again.
        pub fn id(self, id: impl Into<String>) => self.id = Some(id.into());

        /// The answer to a [request](crate::Queue::request) is kept for this time after the put, by the servers' clock,
        /// whatever becomes of the requester, and not much longer; [`Queue::find_request`](crate::Queue::find_request) finds it. Without
        /// meaning for other puts. Default: as long as the session of the requester lives.
        pub fn keep_answer(self, time: Duration) => self.keep_answer = Some(time);
    }

    /// When it is due, in milliseconds since 1970; `now` at once.
    pub(super) fn due_from(&self, now_unix_ms: u64) -> u64 {
        self.due.map_or(now_unix_ms, |due| due.from(now_unix_ms))
    }

    /// What was asked for that is not among these; `None` if there is nothing.
    pub(super) fn beyond(&self, has: &[Ability]) -> Option<&'static str> {
        let asked = [
            (Ability::Due, self.due.is_some()),
            (Ability::Priority, self.priority.is_some()),
            (Ability::Key, self.key.is_some()),
            (Ability::Kind, self.kind.is_some()),
            (Ability::Id, self.id.is_some()),
        ];
        let missing = asked.into_iter().find(|(ability, asked)| *asked && !has.contains(ability));
        missing.map(|(ability, _)| ability.noun())
    }

    /// What the name of its entry says, and what is wrong with it. `due`: in milliseconds since 1970.
    pub(super) fn marks(&self, due: Option<u64>) -> Result<Marks, String> {
        for (what, name) in [("key", &self.key), ("kind", &self.kind)] {
            let Some(name) = name else { continue };
            let length = encoded(name).len();
            if !(1..=LONGEST_NAME).contains(&length) {
                return Err(format!(
                    "the {what} {name:?} takes {length} bytes, and may take 1 to {LONGEST_NAME}"
                ));
            }
        }
        Ok(Marks {
            due_unix_ms: due,
            priority: self.priority.unwrap_or_default(),
            key: self.key.clone(),
            kind: self.kind.clone(),
            ..Marks::NONE
        })
    }
}

/// For how long retries wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Backoff {
    /// That of an item that was taken so often.
    pub(super) fn after(self, takes: u32) -> Duration {
        let factor = 1_u32.checked_shl(takes.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// What a layout may have a place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ability {
    Due,
    Priority,
    Key,
    Kind,
    Id,
}

impl Ability {
    pub(super) const ALL: &[Self] = &[Self::Due, Self::Priority, Self::Key, Self::Kind, Self::Id];

    /// As a person would say it.
    fn noun(self) -> &'static str {
        match self {
            Self::Due => "due times",
            Self::Priority => "priorities",
            Self::Key => "keys",
            Self::Kind => "kinds",
            Self::Id => "ids of the caller",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_layout_does_not_have_is_named() {
        let options = PutOptions::new().priority(3).key("k");
        assert_eq!(options.beyond(&[Ability::Priority]), Some("keys"));
        assert_eq!(options.beyond(&[Ability::Key, Ability::Priority]), None);
    }

    #[test]
    fn a_retry_waits_twice_as_long_each_time_up_to_the_longest() {
        let [first, longest] = [2, 12].map(Duration::from_secs);
        let after = |takes| Backoff { first, longest }.after(takes).as_secs();
        assert_eq!([0, 1, 2, 3, 4, 33, 90].map(after), [2, 2, 4, 8, 12, 12, 12]);
    }

    #[test]
    fn a_name_that_is_too_long_or_empty_is_refused() {
        for key in [String::new(), "é".repeat(22)] {
            assert!(PutOptions::new().key(key).marks(None).is_err());
        }
        let marks = PutOptions::new().kind("é".repeat(21)).marks(Some(7)).unwrap();
        assert_eq!((marks.due_unix_ms, marks.priority), (Some(7), 0));
    }
}
