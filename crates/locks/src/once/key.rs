//! The keys for which work is done once: a name, or the time at which the work is due.

#![expect(clippy::disallowed_types, reason = "a tick is a wall time, and is not used for waiting")]

use std::fmt;
use std::time::{Duration, SystemTime};

use lockkeeper_client::ZnodePath;

use crate::error::BuildError;
use crate::locks::{key_of, node_of};

/// A time at which work is due, in milliseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

impl Tick {
    /// The tick at this time, rounded down to a millisecond. A time before 1970 becomes 1970.
    pub fn at(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// The last tick due at this time, if a tick is due every `period`, counted from 1970 (UTC). A
    /// period of less than a millisecond counts as one millisecond.
    pub fn cut(time: SystemTime, period: Duration) -> Self {
        let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
        let Self(time) = Self::at(time);
        Self(time - time % period)
    }

    /// The tick at this number of milliseconds since 1970 (UTC).
    pub fn from_unix_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// The time of the tick, in milliseconds since 1970 (UTC).
    pub fn unix_ms(self) -> u64 {
        self.0
    }

    /// The time of the tick.
    pub fn time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.0)
    }
}

/// A key for which work is done once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnceKey {
    /// Any text, such as the name of a release. Its length is limited to 255 bytes in the encoding of znode
    /// names, in which some characters take several bytes.
    Named(String),
    /// A time. Ticks are ordered: after a tick has started, no earlier one starts.
    Tick(Tick),
}

/// The prefixes of the names of records.
const NAMED: &str = "key-";
const TICK: &str = "tick-";

/// The suffix of the name of a tick. A name that ends with a number would look like that of a contender.
const MS: &str = "ms";

/// The longest name of a key, in bytes. With it, the names of all records fit into one reply.
const MAX_KEY_BYTES: usize = 255;

impl OnceKey {
    /// The path of the record's node.
    pub(super) fn node(&self, records: &ZnodePath) -> Result<ZnodePath, BuildError> {
        match self {
            Self::Named(key) => {
                let name = node_of(records, key)?.name().to_owned();
                if name.len() > MAX_KEY_BYTES {
                    return Err(BuildError::KeyTooLong { bytes: name.len(), most: MAX_KEY_BYTES });
                }
                Ok(records.child(&format!("{NAMED}{name}"))?)
            }
            Self::Tick(Tick(ms)) => Ok(records.child(&format!("{TICK}{ms}{MS}"))?),
        }
    }

    /// The key whose record has this name; `None` if the name is not that of a record.
    pub(super) fn of(name: &str) -> Option<Self> {
        if let Some(name) = name.strip_prefix(NAMED) {
            return key_of(name).map(Self::Named);
        }
        let ms = name.strip_prefix(TICK)?.strip_suffix(MS)?.parse().ok()?;
        let key = Self::Tick(Tick(ms));
        (format!("{TICK}{ms}{MS}") == name).then_some(key)
    }
}

impl From<&str> for OnceKey {
    fn from(key: &str) -> Self {
        Self::Named(key.to_owned())
    }
}

impl From<String> for OnceKey {
    fn from(key: String) -> Self {
        Self::Named(key)
    }
}

impl From<Tick> for OnceKey {
    fn from(tick: Tick) -> Self {
        Self::Tick(tick)
    }
}

/// Shows the name, or the milliseconds since 1970 (UTC).
impl fmt::Display for OnceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(key) => f.write_str(key),
            Self::Tick(Tick(ms)) => write!(f, "{ms}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_from_the_name_of_its_record() {
        let records = ZnodePath::new("/n-__once__").unwrap();
        let keys = ["", "2026-11-27", "a/b", "key-x", "0000000007", "..", "ä", "tick-7ms"];
        let keys = keys.map(OnceKey::from).into_iter();
        let ticks = [0, 7, u64::MAX].map(|ms| OnceKey::from(Tick::from_unix_ms(ms)));
        for key in keys.chain(ticks) {
            let node = key.node(&records).unwrap();
            assert_eq!(OnceKey::of(node.name()), Some(key.clone()), "{node}");
            let profiles = [crate::Profile::Curator, crate::Profile::Kazoo].into_iter();
            let mut taken = profiles.filter_map(|p| p.parse(node.name(), crate::Kind::ALL));
            assert_eq!(taken.next(), None, "{node} would be a contender");
        }
        for name in ["", "key", "tick-", "tick-07ms", "tick-7", "other-7ms"] {
            assert_eq!(OnceKey::of(name), None, "{name}");
        }
        let long = OnceKey::Named("x".repeat(MAX_KEY_BYTES + 1));
        assert!(OnceKey::Named("x".repeat(MAX_KEY_BYTES)).node(&records).is_ok());
        assert!(matches!(long.node(&records), Err(BuildError::KeyTooLong { .. })));
    }

    #[test]
    fn a_time_is_cut_to_the_period() {
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let cut = |ms, period| Tick::cut(at(ms), Duration::from_millis(period)).unix_ms();
        assert_eq!(cut(299_999, 300_000), 0);
        assert_eq!(cut(300_000, 300_000), 300_000);
        assert_eq!(cut(7, 0), 7);
        assert_eq!(Tick::at(at(1_234)).time(), at(1_234));
    }
}
