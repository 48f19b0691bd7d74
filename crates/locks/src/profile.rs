//! The names of contenders, which allow programs in other languages to share a queue.

use std::fmt;

use lockkeeper_client::{CreateMode, Sequence, SessionId, Stat};
use uuid::Uuid;

/// The kind of hold that a contender asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Exclusive.
    Exclusive,
    /// Shared with other readers.
    Read,
    /// Shared with other readers, with the right to become a writer later without another writer in
    /// between. At most one at a time holds.
    Upgradeable,
    /// Exclusive, in a queue that also has readers.
    Write,
    /// This many of a number of permits.
    Permits(u32),
    /// A lease of Curator's or kazoo's semaphores.
    Lease,
    /// Leadership of an election, as in Curator's `LeaderLatch`.
    Latch,
}

impl Kind {
    /// All kinds, in the order in which a name is parsed as one of them. The number of permits does not
    /// matter here.
    pub(crate) const ALL: &'static [Self] = &[
        Self::Exclusive,
        Self::Upgradeable,
        Self::Read,
        Self::Write,
        Self::Permits(1),
        Self::Latch,
        Self::Lease,
    ];

    /// The kinds that have a sequence number in every profile.
    pub(crate) const QUEUED: &'static [Self] = Self::ALL.split_at(Self::ALL.len() - 1).0;

    /// Whether a contender of this kind must wait for a contender of kind `ahead` that is ahead of it.
    /// Permits do not block each other; they are counted.
    pub fn is_blocked_by(self, ahead: Self) -> bool {
        match (self, ahead) {
            (Self::Read, Self::Read | Self::Upgradeable) | (Self::Upgradeable, Self::Read) => false,
            _ => self.permits().is_none() || ahead.permits().is_none(),
        }
    }

    /// The kinds that may replace a holder of this kind at its own number, ahead of later contenders: a
    /// reader replaces a writer (downgrade), and a writer replaces an upgradeable reader (upgrade).
    pub fn may_become(self) -> &'static [Self] {
        match self {
            Self::Write => &[Self::Read],
            Self::Upgradeable => &[Self::Write, Self::Read],
            _ => &[],
        }
    }

    /// The number of permits that it takes, if permits are counted.
    pub fn permits(self) -> Option<u32> {
        match self {
            Self::Permits(permits) => Some(permits),
            Self::Lease => Some(1),
            _ => None,
        }
    }
}

/// The names of the contenders of one lock. All programs that use a lock must use the same profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// The names of Apache Curator, go-zookeeper, and Rust's zookeeper-client:
    /// `_c_<uuid>-lock-0000000007`.
    #[default]
    Curator,
    /// The names of kazoo: `<32 hexadecimal digits>__lock__0000000007`.
    Kazoo,
}

impl Profile {
    /// The marker between a contender's id and its number, for each kind.
    const fn marker(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Self::Curator, Kind::Exclusive) => "-lock-",
            (Self::Curator, Kind::Write) => "-__WRIT__",
            (Self::Curator, Kind::Read) => "-__READ__",
            // Other libraries read the last part of the marker, and so see a reader.
            (Self::Curator, Kind::Upgradeable) => "-upgr-__READ__",
            (Self::Kazoo, Kind::Exclusive | Kind::Write) => "__lock__",
            (Self::Kazoo, Kind::Read) => "__rlock__",
            (Self::Kazoo, Kind::Upgradeable) => "__upgr__rlock__",
            (_, Kind::Permits(_)) => "-permits-",
            (_, Kind::Lease) => "-lease-",
            (_, Kind::Latch) => "-latch-",
        }
    }

    /// The create mode of the nodes above contenders. kazoo remembers that it has created them, and fails when
    /// a node has been deleted by the server since.
    pub(crate) fn parents(self) -> CreateMode {
        match self {
            Self::Curator => CreateMode::Container,
            Self::Kazoo => CreateMode::Persistent,
        }
    }

    /// Whether a node with this stat may be a contender. Contenders are ephemeral, except some of kazoo's
    /// (`Lock.acquire(ephemeral=False)`), which only a release deletes.
    pub(crate) fn is_contender(self, stat: &Stat) -> bool {
        self == Self::Kazoo || stat.ephemeral_owner != SessionId::NONE
    }

    /// The beginning of the name of a new contender, unique to it.
    pub(crate) fn new_prefix(self, kind: Kind, id: Uuid) -> String {
        let marker = self.marker(kind);
        let mut buffer = Uuid::encode_buffer();
        match (self, kind) {
            (Self::Curator, Kind::Permits(permits)) => format!("_c_{id}-{permits}{marker}"),
            (Self::Curator, _) => {
                ["_c_", id.hyphenated().encode_lower(&mut buffer), marker].concat()
            }
            (Self::Kazoo, _) => [id.simple().encode_lower(&mut buffer), marker].concat(),
        }
    }

    /// Parses the name of a contender of one of these kinds; `None` if it is not such a name.
    ///
    /// The text before the marker is ignored, except for the number of permits, because it differs between
    /// libraries. Kinds are tried in the given order; upgradeable readers must come before
    /// readers. The number in `Kind::Permits` is ignored. kazoo's leases do not have a sequence number, and so are not
    /// ordered.
    pub fn parse(self, name: &str, kinds: &[Kind]) -> Option<(Kind, Sequence)> {
        kinds.iter().find_map(|kind| {
            if (self, *kind) == (Self::Kazoo, Kind::Lease) {
                return is_kazoo_lease(name).then_some((Kind::Lease, Sequence(0)));
            }
            let (owner, sequence) = split_name(name, self.marker(*kind))?;
            match kind {
                Kind::Permits(_) => {
                    let (_, permits) = owner.rsplit_once('-')?;
                    Some((Kind::Permits(permits.parse().ok()?), sequence))
                }
                _ => Some((*kind, sequence)),
            }
        })
    }
}

/// The use of a queue, as the names in it show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Usage {
    /// A lock for one holder at a time, as a [`Mutex`](crate::Mutex) is.
    Mutex,
    /// An [`RwLock`](crate::RwLock).
    RwLock,
    /// A [`Semaphore`](crate::Semaphore).
    Semaphore,
    /// An [`Election`](crate::Election) with the names of Curator's `LeaderLatch`.
    Election,
}

impl Usage {
    /// Classifies the names of a queue's children: their profile, and the use of the queue.
    /// `None` unless all are contenders of one profile, or the children of a Curator semaphore. kazoo's
    /// mutexes and writers have the same names, and count as a mutex.
    pub fn of(names: &[String]) -> Option<(Profile, Self)> {
        if has_curators_leases(names) {
            return Some((Profile::Curator, Self::Semaphore));
        }
        let usage = |profile: Profile, name: &String| match profile.parse(name, Kind::QUEUED)?.0 {
            Kind::Exclusive => Some(Self::Mutex),
            Kind::Permits(_) | Kind::Lease => Some(Self::Semaphore),
            Kind::Latch => Some(Self::Election),
            Kind::Read | Kind::Upgradeable | Kind::Write => Some(Self::RwLock),
        };

        [Profile::Curator, Profile::Kazoo].into_iter().find_map(|profile| {
            let usages: Option<Vec<_>> = names.iter().map(|name| usage(profile, name)).collect();
            Some((profile, *usages?.first()?))
        })
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mutex => "a mutex",
            Self::RwLock => "a read-write lock",
            Self::Semaphore => "a semaphore",
            Self::Election => "an election",
        })
    }
}

/// The children of a Curator semaphore with its leases and with its gate.
pub(crate) const LEASES: &str = "leases";
pub(crate) const GATE: &str = "locks";

/// Whether all of these are children of a Curator semaphore.
pub(crate) fn has_curators_leases(names: &[String]) -> bool {
    let is_one = |name: &String| [LEASES, GATE].contains(&name.as_str());
    names.iter().any(|name| name == LEASES) && names.iter().all(is_one)
}

/// The number of characters of the sequence number in a contender's name. A large negative number has one
/// more, but no contender holds with such a number.
pub(crate) const DIGITS: usize = 10;

/// Splits a name into the part before the marker and the number after it.
fn split_name<'a>(name: &'a str, marker: &str) -> Option<(&'a str, Sequence)> {
    [DIGITS, DIGITS + 1].into_iter().find_map(|len| {
        let (front, number) = name.split_at_checked(name.len().checked_sub(len)?)?;
        Some((front.strip_suffix(marker)?, Sequence::parse(number)?))
    })
}

/// Whether kazoo's `Semaphore` could have created a node with this name.
pub(crate) fn is_kazoo_lease(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_other_libraries() {
        let id = "5e1d0b5c-7a5e-4d2c-9f0e-0123456789ab";
        let hex = "5e1d0b5c7a5e4d2c9f0e0123456789ab";
        let kinds = [Kind::Exclusive, Kind::Read, Kind::Write, Kind::Latch];
        for (profile, name, kind) in [
            (Profile::Curator, format!("_c_{id}-lock-0000000007"), Kind::Exclusive),
            (Profile::Curator, format!("_c_{id}-__WRIT__0000000007"), Kind::Write),
            (Profile::Curator, format!("_c_{id}-__READ__0000000007"), Kind::Read),
            (Profile::Curator, format!("{hex}-lock-0000000007"), Kind::Exclusive),
            (Profile::Kazoo, format!("{hex}__lock__0000000007"), Kind::Exclusive),
            (Profile::Kazoo, format!("{hex}__rlock__0000000007"), Kind::Read),
            (Profile::Curator, format!("_c_{id}-latch-0000000007"), Kind::Latch),
        ] {
            assert_eq!(profile.parse(&name, &kinds), Some((kind, Sequence(7))), "{name}");
        }
        for (text, number) in [("-000000007", -7), ("-2147483648", i32::MIN)] {
            let negative = format!("_c_{id}-lock-{text}");
            let place = Some((Kind::Exclusive, Sequence(number)));
            assert_eq!(Profile::Curator.parse(&negative, &kinds), place, "{text}");
        }
    }

    /// A kind that is missing in the list would never be recognized.
    #[test]
    fn a_name_of_any_kind_is_read_as_that_kind() {
        for profile in [Profile::Curator, Profile::Kazoo] {
            // Lockkeeper's own semaphores have only Curator's names.
            let is_named = |kind: &&Kind| profile == Profile::Curator || kind.permits().is_none();
            for kind in Kind::QUEUED.iter().filter(is_named) {
                let name = format!("{}0000000007", profile.new_prefix(*kind, Uuid::nil()));
                let (read, sequence) = profile.parse(&name, Kind::ALL).unwrap();
                // kazoo uses one name for both.
                let expected = match (profile, *kind) {
                    (Profile::Kazoo, Kind::Write) => Kind::Exclusive,
                    (_, kind) => kind,
                };
                assert_eq!((read, sequence), (expected, Sequence(7)), "{name}");
            }
        }
        assert!(!Kind::QUEUED.contains(&Kind::Lease) && Kind::ALL.contains(&Kind::Lease));
    }

    #[test]
    fn foreign_names_are_not_taken_for_contenders() {
        let kazoo = "5e1d0b5c7a5e4d2c9f0e0123456789ab__lock__0000000007";
        for name in [
            "",
            "lock",
            "x-lock-",
            "x-lock-7",
            "x-lock-000000000x",
            "0000000007",
            "ä000000007",
            kazoo,
        ] {
            assert_eq!(Profile::Curator.parse(name, &[Kind::Exclusive]), None, "{name}");
        }
        assert_eq!(Profile::Kazoo.parse("x-lock-0000000007", &[Kind::Exclusive]), None);
        assert_eq!(Profile::Curator.parse("x-__READ__0000000007", &[Kind::Exclusive]), None);
    }

    #[test]
    fn a_new_prefix_is_that_of_the_other_libraries() {
        let id = Uuid::from_u128(0x5e1d_0b5c_7a5e_4d2c_9f0e_0123_4567_89ab);
        for (profile, kind, prefix) in [
            (Profile::Curator, Kind::Exclusive, "_c_5e1d0b5c-7a5e-4d2c-9f0e-0123456789ab-lock-"),
            (
                Profile::Curator,
                Kind::Permits(3),
                "_c_5e1d0b5c-7a5e-4d2c-9f0e-0123456789ab-3-permits-",
            ),
            (Profile::Kazoo, Kind::Read, "5e1d0b5c7a5e4d2c9f0e0123456789ab__rlock__"),
        ] {
            assert_eq!(profile.new_prefix(kind, id), prefix);
        }
    }

    #[test]
    fn what_a_queue_is_used_as_shows_in_its_names() {
        for (name, expected) in [
            ("_c_x-lock-0000000001", Some((Profile::Curator, Usage::Mutex))),
            ("_c_x-__READ__0000000001", Some((Profile::Curator, Usage::RwLock))),
            ("_c_x-2-permits-0000000001", Some((Profile::Curator, Usage::Semaphore))),
            ("_c_x-latch-0000000001", Some((Profile::Curator, Usage::Election))),
            ("x__lock__0000000001", Some((Profile::Kazoo, Usage::Mutex))),
            ("x__rlock__0000000001", Some((Profile::Kazoo, Usage::RwLock))),
            ("config", None),
        ] {
            assert_eq!(Usage::of(&[name.to_owned()]), expected, "{name}");
        }
        assert_eq!(Usage::of(&["_c_x-lock-0000000001".to_owned(), "config".to_owned()]), None);
        assert_eq!(Usage::of(&[]), None);
    }

    #[test]
    fn only_readers_go_together() {
        for (me, ahead, blocked) in [
            (Kind::Read, Kind::Read, false),
            (Kind::Read, Kind::Write, true),
            (Kind::Write, Kind::Read, true),
            (Kind::Write, Kind::Write, true),
            (Kind::Exclusive, Kind::Exclusive, true),
        ] {
            assert_eq!(me.is_blocked_by(ahead), blocked, "{me:?} behind {ahead:?}");
        }
    }
}
