//! [`PutOptions`]: when an item is due, and which others it waits for.

use std::time::Duration;

use crate::queue::marks::{Marks, encoded};
use crate::wall_clock::millis;

/// The maximum length of a key, a kind or an id, in bytes, as a part of a name.
const MAX_NAME_BYTES: usize = 128;

/// Options of a put: when an item is due, its order, and which others it waits for. Other libraries' layouts
/// support [some of them](crate::QueueLayout).
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

/// When an item is due.
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
    /// A put without options.
    pub fn new() -> Self {
        Self::default()
    }

    lockkeeper_client::setters! {
        /// Delays the item: after this time by the servers' clock, it is put at the end of the queue. Items that
        /// are due at the same time keep the order in which they were put. Default: no delay.
        pub fn delay(self, time: Duration) => self.due = Some(Due::After(time));

        /// Delays the item until this time, in milliseconds since 1970. The last call of `delay` and `due_unix_ms`
        /// counts.
        pub fn due_unix_ms(self, time: u64) => self.due = Some(Due::AtUnixMs(time));

        /// Sets the priority: items of lower numbers are taken first. Default: 0; in kazoo's layouts, 100.
        pub fn priority(self, priority: i32) => self.priority = Some(priority);

        /// Sets a key. Items with the same key are worked on one at a time, in the order in which they came into
        /// the queue; items of other keys are independent. A name of 1 to 128 bytes; characters other than letters,
        /// digits, `_`, `:` and `-` count three times for each byte. Default: none.
        pub fn key(self, key: impl Into<String>) => self.key = Some(key.into());

        /// Sets a kind. Consumers may [limit](crate::QueueBuilder::at_most) how many items of one kind are worked
        /// on at the same time. A name, as for [`PutOptions::key`]. Default: none.
        pub fn kind(self, kind: impl Into<String>) => self.kind = Some(kind.into());

        /// Sets the id, instead of a random one: 1 to 64 letters, digits, `_` and `-`. The put fails with
        /// [`QueueError::Exists`](crate::QueueError::Exists) while the queue has an item or a dead letter with this
        /// id. When that is done or cancelled, the id may be used again.
        pub fn id(self, id: impl Into<String>) => self.id = Some(id.into());

        /// Keeps the answer to a [request](crate::Queue::request) for this time after the put, by the servers'
        /// clock, even if the requester ends, and not much longer;
        /// [`Queue::find_request`](crate::Queue::find_request) finds it. Ignored by other puts. Default: as long as
        /// the session of the requester.
        pub fn keep_answer(self, time: Duration) => self.keep_answer = Some(time);
    }

    /// When it is due, in milliseconds since 1970; `now` if it is not delayed.
    pub(super) fn due_from(&self, now_unix_ms: u64) -> u64 {
        self.due.map_or(now_unix_ms, |due| due.from(now_unix_ms))
    }

    /// The first of these options that the layout does not support; `None` if it supports all.
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

    /// The marks for the name of its entry. The error says which option is invalid. `due`: in milliseconds since
    /// 1970.
    pub(super) fn marks(&self, due: Option<u64>) -> Result<Marks, String> {
        for (what, name) in [("key", &self.key), ("kind", &self.kind)] {
            let Some(name) = name else { continue };
            let length = encoded(name).len();
            if !(1..=MAX_NAME_BYTES).contains(&length) {
                return Err(format!(
                    "the {what} {name:?} has {length} bytes, and must have 1 to {MAX_NAME_BYTES}"
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

/// The delays of retries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Backoff {
    /// The delay of an item that was taken this often.
    pub(super) fn after(self, takes: u32) -> Duration {
        let factor = 1_u32.checked_shl(takes.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// An option that a layout may support.
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

    /// The option as a plural noun, for messages.
    fn noun(self) -> &'static str {
        match self {
            Self::Due => "due times",
            Self::Priority => "priorities",
            Self::Key => "keys",
            Self::Kind => "kinds",
            Self::Id => "ids set by the caller",
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
