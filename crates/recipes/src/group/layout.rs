//! Names of members' nodes, and which nodes are not members. No I/O.

use bytes::Bytes;
use lockkeeper_client::{CreateMode, SessionId, Stat, ZnodePath};
use lockkeeper_locks::FencingToken;
use lockkeeper_locks::Usage;
use uuid::Uuid;

use crate::group::error::GroupError;
use crate::group::member::Member;

/// The text that kazoo's `Party` appends to its 32 digits.
const PARTY: &str = "__party__";

/// The names of the members' nodes in a group. All members must use the same layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupLayout {
    /// As Curator's `GroupMember`: `<group>/<id>`. The data is the member's own.
    #[default]
    CuratorMember,
    /// As kazoo's `Party`: `<group>/<32 hexadecimal digits>__party__`. The data is the id, so a member cannot
    /// have other data. Several members may have the same id. Data that is not UTF-8 makes an id with replacement
    /// characters.
    KazooParty,
    /// As kazoo's `ShallowParty`: `<group>/<32 hexadecimal digits>-<id>`. The data is the id, unless the member
    /// sets other data. Several members may have the same id.
    KazooShallowParty,
}

impl GroupLayout {
    /// The node and the data of a new member. The node's name is unique.
    pub(super) fn place(
        self,
        group: &ZnodePath,
        id: &str,
        data: Bytes,
        unique: Uuid,
    ) -> Result<(ZnodePath, Bytes), GroupError> {
        let bad = |why: &str| GroupError::Id { id: id.to_owned(), why: why.to_owned() };
        let own = unique.simple();
        let (name, data) = match self {
            Self::CuratorMember if is_of_another_kind(id) => {
                return Err(bad("it looks like a node of a party or of a lock"));
            }
            Self::CuratorMember => (id.to_owned(), data),
            Self::KazooParty if !data.is_empty() => return Err(GroupError::NoRoom),
            Self::KazooParty => (format!("{own}{PARTY}"), Bytes::from(id.to_owned())),
            Self::KazooShallowParty if data.is_empty() => {
                (format!("{own}-{id}"), Bytes::from(id.to_owned()))
            }
            Self::KazooShallowParty => (format!("{own}-{id}"), data),
        };

        let node = group.child(&name).map_err(|error| bad(&error.to_string()))?;
        Ok((node, data))
    }

    /// The mode of created parents. kazoo creates its parents once, and fails when they are gone.
    pub(super) fn parents(self) -> CreateMode {
        match self {
            Self::CuratorMember => CreateMode::Container,
            Self::KazooParty | Self::KazooShallowParty => CreateMode::Persistent,
        }
    }

    /// Whether a node is a member.
    pub(super) fn is_member(self, name: &str, stat: &Stat) -> bool {
        self.own_name(name, stat).is_some()
    }

    /// Parses a member from its node; `None` if the node is not a member.
    pub(super) fn read(
        self,
        group: &ZnodePath,
        name: &str,
        data: &[u8],
        stat: &Stat,
    ) -> Option<Member> {
        let own_name = self.own_name(name, stat)?;
        let id = match self {
            Self::KazooParty => String::from_utf8_lossy(data).into_owned(),
            Self::CuratorMember | Self::KazooShallowParty => own_name.to_owned(),
        };
        Some(Member {
            id,
            token: FencingToken::new(stat.czxid),
            data: Bytes::copy_from_slice(data),
            since_unix_ms: u64::try_from(stat.ctime).unwrap_or_default(),
            session: stat.ephemeral_owner,
            node: group.child(name).ok()?,
        })
    }

    /// The layout in which a node of this name is a member; `None` if it is not a member in any layout.
    pub(super) fn of(name: &str, stat: &Stat) -> Option<Self> {
        let layouts = [Self::KazooParty, Self::KazooShallowParty, Self::CuratorMember];
        layouts.into_iter().find(|layout| layout.is_member(name, stat))
    }

    /// The part of a member's node name that identifies it; `None` if the node is not a member. The data must not
    /// decide that, because it can change without a change of the view's id.
    fn own_name<'a>(self, name: &'a str, stat: &Stat) -> Option<&'a str> {
        // A node that is not ephemeral is not a member: its death could not be noticed.
        if stat.ephemeral_owner == SessionId::NONE {
            return None;
        }
        match self {
            Self::CuratorMember => (!is_of_another_kind(name)).then_some(name),
            Self::KazooParty => name.strip_suffix(PARTY).filter(|own| is_hex(own)),
            Self::KazooShallowParty => {
                let (own, id) = name.split_once('-')?;
                is_hex(own).then_some(id)
            }
        }
    }
}

/// Whether a name that could be an id is that of a party's or a contender's node.
fn is_of_another_kind(name: &str) -> bool {
    let is_contender = || Usage::of(&[name.to_owned()]).is_some();
    let is_named_for_one = name.starts_with("_c_") || name.get(..32).is_some_and(is_hex);
    name.strip_suffix(PARTY).is_some_and(is_hex) || is_named_for_one && is_contender()
}

fn is_hex(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::Zxid;

    use super::*;
    use GroupLayout::{CuratorMember, KazooParty, KazooShallowParty};

    const HEX: &str = "5e1d0b5c7a5e4d2c9f0e0123456789ab";

    fn group() -> ZnodePath {
        ZnodePath::new("/workers").unwrap()
    }

    fn ephemeral() -> Stat {
        Stat { czxid: Zxid(7), ephemeral_owner: SessionId(1), ..Stat::default() }
    }

    #[test]
    fn what_is_placed_is_read_as_it_was() {
        for (layout, data) in [
            (CuratorMember, "told"),
            (CuratorMember, ""),
            (KazooParty, ""),
            (KazooShallowParty, ""),
            (KazooShallowParty, "told"),
        ] {
            let (node, written) =
                layout.place(&group(), "host-7", data.into(), Uuid::from_u128(7)).unwrap();
            let read = layout.read(&group(), node.name(), &written, &ephemeral()).unwrap();
            assert_eq!((read.id.as_str(), &read.node), ("host-7", &node), "{layout:?}");
            assert_eq!(read.token, FencingToken::new(Zxid(7)));
        }
    }

    #[test]
    fn nodes_of_another_kind_are_no_members() {
        let read = |layout: GroupLayout, name: &str| {
            layout.read(&group(), name, b"x", &ephemeral()).map(|member| member.id)
        };
        let party = format!("{HEX}__party__");
        let shallow = format!("{HEX}-host-7");
        assert_eq!(read(KazooParty, &party).as_deref(), Some("x"));
        assert_eq!(read(KazooShallowParty, &shallow).as_deref(), Some("host-7"));
        assert_eq!(read(CuratorMember, &shallow), Some(shallow.clone()), "it may be an id");
        for (layout, name) in [
            (CuratorMember, party.as_str()),
            (CuratorMember, "_c_5e1d0b5c-7a5e-4d2c-9f0e-0123456789ab-lock-0000000007"),
            (CuratorMember, "5e1d0b5c7a5e4d2c9f0e0123456789ab__lock__0000000007"),
            (KazooParty, "host-7"),
            (KazooParty, shallow.as_str()),
            (KazooParty, "__party__"),
            (KazooShallowParty, "host-7"),
            (KazooShallowParty, party.as_str()),
        ] {
            assert_eq!(read(layout, name), None, "{layout:?} {name}");
        }
        let lasting = Stat { ephemeral_owner: SessionId::NONE, ..ephemeral() };
        assert_eq!(CuratorMember.read(&group(), "host-7", b"", &lasting), None);
        // Ids that only end like a contender's name.
        for id in ["a-lock-0000000007", "web-latch-0000000001"] {
            assert_eq!(read(CuratorMember, id).as_deref(), Some(id));
        }
    }

    /// Data may change without a change of the view's id, so it must not decide membership.
    #[test]
    fn data_does_not_decide_membership() {
        for (layout, name) in [
            (CuratorMember, "host-7".to_owned()),
            (KazooParty, format!("{HEX}__party__")),
            (KazooShallowParty, format!("{HEX}-host-7")),
        ] {
            for data in [&b""[..], b"x", b"a\xff"] {
                let member = layout.read(&group(), &name, data, &ephemeral());
                assert!(member.is_some(), "{layout:?} {data:?}");
                assert!(layout.is_member(&name, &ephemeral()));
            }
        }
        let member = KazooParty.read(&group(), &format!("{HEX}__party__"), b"a\xff", &ephemeral());
        assert_eq!(member.map(|member| member.id).as_deref(), Some("a\u{fffd}"));
    }

    #[test]
    fn an_id_that_no_node_can_have_is_refused() {
        let place = |layout: GroupLayout, id: &str, data: &'static str| {
            layout.place(&group(), id, data.into(), Uuid::from_u128(7))
        };
        for id in ["", "a/b", ".", "..", "a\0", &format!("{HEX}__party__")] {
            let refused = place(CuratorMember, id, "");
            assert!(matches!(refused, Err(GroupError::Id { .. })), "{id:?}: {refused:?}");
        }
        assert!(place(CuratorMember, "a-lock-0000000007", "").is_ok());
        let refused = place(KazooParty, "a", "told");
        assert!(matches!(refused, Err(GroupError::NoRoom)));
        assert!(place(KazooParty, "a/b", "").is_ok(), "it is no name there");
    }
}
