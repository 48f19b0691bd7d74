//! How contenders are named, so that programs in other languages can share a queue.

use std::fmt;

use lockkeeper_client::{CreateMode, Sequence, SessionId, Stat};
use uuid::Uuid;

/// What a contender asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// To hold alone.
    Exclusive,
    /// To hold together with other readers.
    Read,
    /// To hold together with other readers, and to become a writer later without another one in
    /// between. One at a time.
    Upgradeable,
    /// To hold alone, in a queue that has readers too.
    Write,
    /// To have this many of a number of permits.
    Permits(u32),
    /// To have one of the leases of Curator's or kazoo's semaphores.
    Lease,
    /// To lead an election, as Curator's `LeaderLatch` has it.
    Latch,
}

impl Kind {
    /// All kinds, in the order in which a name is to be tried as one of them. How many permits makes no
    /// difference to that.
    pub(crate) const ALL: &'static [Self] = &[
        Self::Exclusive,
        Self::Upgradeable,
        Self::Read,
        Self::Write,
        Self::Permits(1),
        Self::Latch,
        Self::Lease,
    ];

    /// The kinds of a queue: those that have a number in every profile.
    pub(crate) const QUEUED: &'static [Self] = Self::ALL.split_at(Self::ALL.len() - 1).0;

    /// Whether a contender of this kind must wait for one of the kind `ahead` that is ahead of it.
    /// Permits do not block each other: they are counted.
    pub fn is_blocked_by(self, ahead: Self) -> bool {
        match (self, ahead) {
            (Self::Read, Self::Read | Self::Upgradeable) | (Self::Upgradeable, Self::Read) => false,
            _ => self.permits().is_none() || ahead.permits().is_none(),
        }
    }

    /// The kinds by which a holder may be replaced at its own number, ahead of later contenders: a
    /// writer by a reader (downgrade), an upgradeable reader by a writer (upgrade).
    pub fn may_become(self) -> &'static [Self] {
        match self {
            Self::Write => &[Self::Read],
            Self::Upgradeable => &[Self::Write, Self::Read],
            _ => &[],
        }
    }

    /// How many permits it takes, if they are counted.
    pub fn permits(self) -> Option<u32> {
        match self {
            Self::Permits(permits) => Some(permits),
            Self::Lease => Some(1),
            _ => None,
        }
    }
}

/// How the contenders of one lock are named. All parties of a lock must use the same profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// As Apache Curator names them, and go-zookeeper, and Rust's zookeeper-client:
    /// `_c_<uuid>-lock-0000000007`.
    #[default]
    Curator,
    /// As kazoo names them: `<32 hexadecimal digits>__lock__0000000007`.
    Kazoo,
}

impl Profile {
    /// What separates a contender's identity from its number, for each kind.
    const fn marker(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Self::Curator, Kind::Exclusive) => "-lock-",
            (Self::Curator, Kind::Write) => "-__WRIT__",
            (Self::Curator, Kind::Read) => "-__READ__",
            // The other libraries look at what comes last, and so see a reader.
            (Self::Curator, Kind::Upgradeable) => "-upgr-__READ__",
            (Self::Kazoo, Kind::Exclusive | Kind::Write) => "__lock__",
            (Self::Kazoo, Kind::Read) => "__rlock__",
            (Self::Kazoo, Kind::Upgradeable) => "__upgr__rlock__",
            (_, Kind::Permits(_)) => "-permits-",
            (_, Kind::Lease) => "-lease-",
            (_, Kind::Latch) => "-latch-",
        }
    }

    /// What the nodes above contenders are. kazoo remembers that it has made them, and fails when
    /// one was reaped since.
    pub(crate) fn parents(self) -> CreateMode {
        match self {
            Self::Curator => CreateMode::Container,
            Self::Kazoo => CreateMode::Persistent,
        }
    }

    /// Whether a node like this may be a contender. They go with their sessions, except some of kazoo's
    /// (`Lock.acquire(ephemeral=False)`), which only a release deletes.
    pub(crate) fn is_contender(self, stat: &Stat) -> bool {
        self == Self::Kazoo || stat.ephemeral_owner != SessionId::NONE
    }

    /// The beginning of the name of a new contender, which nobody else will ever use.
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

    /// Reads the name of a contender of one of these kinds. `None`: it is no such name.
    ///
    /// What stands before the marker does not matter, except how many permits are asked for: each
    /// library has its own way there. Kinds are tried in the order given, upgradeable ones before
    /// readers. The number in `Kind::Permits` does not matter. kazoo's leases have no number, and so
    /// no order.
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

/// What a queue is used as, by the names in it.
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
    /// Reads the names of a queue's children: whose names they are, and what the queue is used as.
    /// `None` unless all are contenders of one profile, or what Curator's semaphores have below them. kazoo
    /// names its mutexes as its writers: those count as a mutex.
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

/// The child of a Curator semaphore that has its leases, and the one that has its gate.
pub(crate) const LEASES: &str = "leases";
pub(crate) const GATE: &str = "locks";

/// Whether these are all children of a semaphore of Curator.
pub(crate) fn has_curators_leases(names: &[String]) -> bool {
    let is_one = |name: &String| [LEASES, GATE].contains(&name.as_str());
    names.iter().any(|name| name == LEASES) && names.iter().all(is_one)
}

/// How many characters the number at the end of a contender's name has. One that is far below zero has one
/// more; no contender holds with such a number.
pub(crate) const DIGITS: usize = 10;

/// Parts a name into what stands before the marker and the number behind it.
fn split_name<'a>(name: &'a str, marker: &str) -> Option<(&'a str, Sequence)> {
    [DIGITS, DIGITS + 1].into_iter().find_map(|len| {
        let (front, number) = name.split_at_checked(name.len().checked_sub(len)?)?;
        Some((front.strip_suffix(marker)?, Sequence::parse(number)?))
    })
}

/// Whether kazoo's `Semaphore` could have made a node with this name.
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

    /// A kind that is missing in the list would be nobody's.
    #[test]
    fn a_name_of_any_kind_is_read_as_that_kind() {
        for profile in [Profile::Curator, Profile::Kazoo] {
            // Our own semaphores have Curator's names only.
            let is_named = |kind: &&Kind| profile == Profile::Curator || kind.permits().is_none();
            for kind in Kind::QUEUED.iter().filter(is_named) {
                let name = format!("{}0000000007", profile.new_prefix(*kind, Uuid::nil()));
                let (read, sequence) = profile.parse(&name, Kind::ALL).unwrap();
                // kazoo has one name for both.
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
