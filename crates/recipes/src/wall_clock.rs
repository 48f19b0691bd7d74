//! The wall clock of this machine. It is read only where other libraries also use the wall clock.

#![expect(clippy::disallowed_types, reason = "for people to read, and for other libraries' times")]

use std::time::{Duration, SystemTime};

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The duration in whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
