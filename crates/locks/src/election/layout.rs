//! How candidates are named.

use std::sync::Arc;

use lockkeeper_client::ZnodePath;

use crate::contender::queue_settings::QueueSettings;
use crate::profile::{Kind, Profile};

/// How the candidates of one election are named. All candidates must use the same layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElectionLayout {
    /// As Curator's `LeaderLatch`: `_c_<uuid>-latch-0000000007`, data: the id.
    #[default]
    CuratorLatch,
    /// As Curator's `LeaderSelector`, and so as its `InterProcessMutex` and our
    /// [`Mutex`](crate::Mutex): `_c_<uuid>-lock-0000000007`, data: the id.
    CuratorSelector,
    /// As kazoo's `Election`, and so as its `Lock`: `<32 hexadecimal digits>__lock__0000000007`, data:
    /// the id.
    Kazoo,
}

impl ElectionLayout {
    /// What the queue of an election at this path is like.
    pub(super) fn settings(self, path: ZnodePath) -> Arc<QueueSettings> {
        match self {
            Self::CuratorLatch => QueueSettings::new(path, Profile::Curator, &[Kind::Latch]),
            Self::CuratorSelector => QueueSettings::new(path, Profile::Curator, &[Kind::Exclusive]),
            Self::Kazoo => QueueSettings::new(path, Profile::Kazoo, &[Kind::Exclusive]),
        }
    }
}
