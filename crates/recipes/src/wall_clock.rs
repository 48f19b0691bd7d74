//! The wall clock of this machine. Nothing is decided by it but what other libraries decide by theirs.

#![expect(clippy::disallowed_types, reason = "for people to read, and for other libraries' times")]

use std::time::{Duration, SystemTime};

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// In whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
