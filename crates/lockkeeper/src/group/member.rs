//! One member of a group, as anybody sees it.

use bytes::Bytes;
use lockkeeper_client::{SessionId, ZnodePath};

use crate::token::FencingToken;

/// One member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// What it calls itself. In kazoo's layouts two members may have the same.
    pub id: String,
    /// The transaction of its joining: larger for whoever joined later, and another one each time that it
    /// comes back.
    pub token: FencingToken,
    /// What it tells. With [`GroupLayout::KazooParty`](crate::GroupLayout::KazooParty), its id.
    pub data: Bytes,
    /// The session that it goes with.
    pub session: SessionId,
    /// Its node.
    pub node: ZnodePath,
}
