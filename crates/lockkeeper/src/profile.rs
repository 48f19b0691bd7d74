//! How contenders are named, so that programs in other languages can stand in the same queue.

use lockkeeper_client::Sequence;
use uuid::Uuid;

/// What a contender asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// To be alone.
    Exclusive,
    /// To be with other readers.
    Read,
    /// To be alone, in a queue that has readers too.
    Write,
}

impl Kind {
    /// Whether a contender of this kind cannot hold while one of the kind `ahead` is before it.
    pub fn is_blocked_by(self, ahead: Self) -> bool {
        self != Self::Read || ahead != Self::Read
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
            (Self::Kazoo, Kind::Exclusive | Kind::Write) => "__lock__",
            (Self::Kazoo, Kind::Read) => "__rlock__",
        }
    }

    /// The beginning of the name of a new contender, which nobody else will ever use.
    pub(crate) fn new_prefix(self, kind: Kind) -> String {
        let (id, marker) = (Uuid::new_v4(), self.marker(kind));
        match self {
            Self::Curator => format!("_c_{id}{marker}"),
            Self::Kazoo => format!("{}{marker}", id.simple()),
        }
    }

    /// Reads the name of a contender of one of these kinds. `None`: it is no such name.
    ///
    /// What stands before the marker does not matter: each library has its own way there.
    pub fn parse(self, name: &str, kinds: &[Kind]) -> Option<(Kind, Sequence)> {
        kinds.iter().find_map(|kind| {
            let (_, number) = name.rsplit_once(self.marker(*kind))?;
            Some((*kind, Sequence::parse(number)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_other_libraries() {
        let id = "5e1d0b5c-7a5e-4d2c-9f0e-0123456789ab";
        let hex = "5e1d0b5c7a5e4d2c9f0e0123456789ab";
        let kinds = [Kind::Exclusive, Kind::Read, Kind::Write];
        for (profile, name, kind) in [
            (Profile::Curator, format!("_c_{id}-lock-0000000007"), Kind::Exclusive),
            (Profile::Curator, format!("_c_{id}-__WRIT__0000000007"), Kind::Write),
            (Profile::Curator, format!("_c_{id}-__READ__0000000007"), Kind::Read),
            (Profile::Curator, format!("{hex}-lock-0000000007"), Kind::Exclusive),
            (Profile::Kazoo, format!("{hex}__lock__0000000007"), Kind::Exclusive),
            (Profile::Kazoo, format!("{hex}__rlock__0000000007"), Kind::Read),
        ] {
            assert_eq!(profile.parse(&name, &kinds), Some((kind, Sequence(7))), "{name}");
        }
        let negative = format!("_c_{id}-lock--000000007");
        assert_eq!(
            Profile::Curator.parse(&negative, &kinds),
            Some((Kind::Exclusive, Sequence(-7)))
        );
    }

    #[test]
    fn foreign_names_are_not_taken_for_contenders() {
        let kazoo = "5e1d0b5c7a5e4d2c9f0e0123456789ab__lock__0000000007";
        for name in ["", "lock", "x-lock-", "x-lock-7", "x-lock-000000000x", "0000000007", kazoo] {
            assert_eq!(Profile::Curator.parse(name, &[Kind::Exclusive]), None, "{name}");
        }
        assert_eq!(Profile::Kazoo.parse("x-lock-0000000007", &[Kind::Exclusive]), None);
        assert_eq!(Profile::Curator.parse("x-__READ__0000000007", &[Kind::Exclusive]), None);
    }

    #[test]
    fn a_new_prefix_has_the_expected_form_and_is_never_used_twice() {
        let curator = Profile::Curator.new_prefix(Kind::Exclusive);
        assert_eq!((curator.len(), &curator[..3]), (3 + 36 + 6, "_c_"));
        assert_ne!(curator, Profile::Curator.new_prefix(Kind::Exclusive));
        let kazoo = Profile::Kazoo.new_prefix(Kind::Read);
        assert!(kazoo.len() == 32 + 9 && kazoo.ends_with("__rlock__"));
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
