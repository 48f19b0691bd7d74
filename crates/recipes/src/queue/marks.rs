//! The options of a put, in the name of the entry. No I/O.
//!
//! They are in the name so that consumers know them from a listing, before they take the item.

use std::fmt;

use crate::queue::lanes::Lane;

/// The options of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Marks {
    /// When it is due, in milliseconds since 1970 by the servers' clock, if it is delayed.
    pub(super) due_unix_ms: Option<u64>,
    pub(super) priority: i32,
    /// Items with the same key are worked on one at a time, in order.
    pub(super) key: Option<String>,
    /// Consumers may limit how many items of a kind are worked on at the same time.
    pub(super) kind: Option<String>,
    /// Whether a requester waits for its answer.
    pub(super) requested: Option<Requested>,
    /// The id that its putter has set, instead of a random one.
    pub(super) name: Option<String>,
    /// Its place in a queue with an exact bound.
    pub(super) slot: Option<u32>,
    /// The location of its value, if that is too long for the body.
    pub(super) parts: Option<Parts>,
}

/// A value in parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parts {
    pub(super) count: u32,
    /// The name of their directory, which is unique.
    pub(super) upload: String,
}

/// How long an answer is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Requested {
    /// As long as the requester's session.
    ForSession,
    /// Until then, in milliseconds since 1970 by the servers' clock.
    Until(u64),
}

impl Marks {
    /// Without options.
    pub(super) const NONE: Self = Self {
        due_unix_ms: None,
        priority: 0,
        key: None,
        kind: None,
        requested: None,
        name: None,
        slot: None,
        parts: None,
    };

    /// Parses the marks in an entry's name, each after a dot; empty if there are none.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut marks = Self::default();
        for mark in text.split('.').skip(1) {
            let (what, value) = mark.split_at_checked(1)?;
            match what {
                "t" => marks.due_unix_ms = Some(value.parse().ok()?),
                "p" => marks.priority = value.parse().ok()?,
                "k" => marks.key = Some(decoded(value)?),
                "n" => marks.kind = Some(decoded(value)?),
                "r" if value.is_empty() => marks.requested = Some(Requested::ForSession),
                "r" => marks.requested = Some(Requested::Until(value.parse().ok()?)),
                "i" => marks.name = Some(value.to_owned()),
                "s" => marks.slot = Some(value.parse().ok()?),
                "b" => {
                    let (count, upload) = value.split_once(':')?;
                    let (count, upload) = (count.parse().ok()?, upload.to_owned());
                    marks.parts = Some(Parts { count, upload });
                }
                _ => return None,
            }
        }
        Some(marks)
    }

    /// The lane of its entry.
    pub(super) fn lane(&self) -> Lane {
        self.due_unix_ms.map_or(Lane::Ready(self.priority), Lane::due_at)
    }

    /// The same marks, of an item that is no longer delayed.
    pub(super) fn come(self) -> Self {
        Self { due_unix_ms: None, ..self }
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(due) = self.due_unix_ms {
            write!(f, ".t{due}")?;
        }
        if self.priority != 0 {
            write!(f, ".p{}", self.priority)?;
        }
        if let Some(key) = &self.key {
            write!(f, ".k{}", encoded(key))?;
        }
        if let Some(kind) = &self.kind {
            write!(f, ".n{}", encoded(kind))?;
        }
        match self.requested {
            None => {}
            Some(Requested::ForSession) => f.write_str(".r")?,
            Some(Requested::Until(time)) => write!(f, ".r{time}")?,
        }
        if let Some(name) = &self.name {
            write!(f, ".i{name}")?;
        }
        if let Some(slot) = self.slot {
            write!(f, ".s{slot}")?;
        }
        match &self.parts {
            Some(Parts { count, upload }) => write!(f, ".b{count}:{upload}"),
            None => Ok(()),
        }
    }
}

/// Text as a part of a name: characters other than letters, digits, `_`, `:` and `-` become `%` and two hexadecimal
/// digits for each byte.
pub(super) fn encoded(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'_' | b':' | b'-' => name.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name
}

fn decoded(name: &str) -> Option<String> {
    let mut parts = name.split('%');
    let mut text = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        text.push(u8::from_str_radix(digits, 16).ok()?);
        text.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_from_what_they_are_written_as() {
        let marks = Marks {
            due_unix_ms: Some(1_700_000_000_123),
            priority: -5,
            key: Some("Köln/7.2-%".to_owned()),
            kind: Some("gpu".to_owned()),
            requested: Some(Requested::Until(7)),
            name: Some("order-7".to_owned()),
            slot: Some(3),
            parts: Some(Parts { count: 12, upload: "7f".to_owned() }),
        };
        let text = marks.to_string();
        assert_eq!(text, ".t1700000000123.p-5.kK%c3%b6ln%2f7%2e2-%25.ngpu.r7.iorder-7.s3.b12:7f");
        let for_session = Marks { requested: Some(Requested::ForSession), ..Marks::NONE };
        assert_eq!(Marks::read(&for_session.to_string()), Some(for_session));
        assert_eq!(Marks::read(&text), Some(marks));
        assert_eq!(Marks::read(""), Some(Marks::NONE));
        for foreign in [".x1", ".t", ".k%f", ".k%ff", "."] {
            assert_eq!(Marks::read(foreign), None, "{foreign}");
        }
    }
}
