//! One member of a group.

use bytes::Bytes;
use lockkeeper_client::{SessionId, ZnodePath};
use serde::{Deserialize, Serialize};

use lockkeeper_locks::FencingToken;
use lockkeeper_locks::inspect::KnownTree;

use crate::group::layout::GroupLayout;

/// One member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Member {
    /// Its id. In kazoo's layouts, two members may have the same id.
    pub id: String,
    /// The transaction that created its node. It is larger for members that joined later, and new each time that
    /// the member comes back.
    pub token: FencingToken,
    /// Its data. With [`GroupLayout::KazooParty`](crate::GroupLayout::KazooParty), its id.
    pub data: Bytes,
    /// When it joined, in milliseconds since 1970 by the clock of the servers. For display.
    #[serde(default)]
    pub since_unix_ms: u64,
    /// The session that owns its node.
    pub session: SessionId,
    /// Its node.
    pub node: ZnodePath,
}

impl Member {
    /// The members of a group in a tree that is known already, by when they joined. The layout follows from the name of
    /// each node. No I/O.
    pub fn in_tree(tree: &impl KnownTree, group: &ZnodePath) -> Vec<Self> {
        let names = tree.children(group.as_str()).into_iter();
        let members = names.filter_map(|name| {
            let (data, stat) = tree.node(group.child(&name).ok()?.as_str())?;
            GroupLayout::of(&name, &stat)?.read(group, &name, &data, &stat)
        });
        let mut members: Vec<_> = members.collect();
        members.sort_by_key(|member| member.token);
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::ViewId;

    #[test]
    fn a_member_and_a_view_come_back_from_json() {
        let member = Member {
            id: "one".to_owned(),
            token: "7.1".parse().unwrap(),
            data: Bytes::from_static(b"\xff\0"),
            since_unix_ms: 5,
            session: SessionId(-2),
            node: ZnodePath::new("/workers/one").unwrap(),
        };
        let json = serde_json::to_string(&member).unwrap();
        assert_eq!(serde_json::from_str::<Member>(&json).unwrap(), member);
        let elsewhere = json.replace("/workers/one", "workers");
        assert!(serde_json::from_str::<Member>(&elsewhere).is_err(), "{elsewhere}");
        let view: ViewId = serde_json::from_str("4294967298").unwrap();
        assert_eq!(serde_json::to_string(&view).unwrap(), "4294967298");
    }
}
