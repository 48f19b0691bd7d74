//! The names of candidates.

use std::sync::Arc;

use lockkeeper_client::ZnodePath;

use crate::contender::queue_settings::QueueSettings;
use crate::profile::{Kind, Profile};

/// How the candidates of one election are named. All candidates must use the same layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElectionLayout {
    /// Like Curator's `LeaderLatch`: `_c_<uuid>-latch-0000000007`. The data is the id.
    #[default]
    CuratorLatch,
    /// Like Curator's `LeaderSelector`, its `InterProcessMutex` and this library's
    /// [`Mutex`](crate::Mutex): `_c_<uuid>-lock-0000000007`. The data is the id.
    CuratorSelector,
    /// Like kazoo's `Election` and its `Lock`: `<32 hexadecimal digits>__lock__0000000007`. The data is
    /// the id.
    Kazoo,
}

impl ElectionLayout {
    /// The settings of the queue of an election at this path.
    pub(super) fn settings(self, path: ZnodePath) -> Arc<QueueSettings> {
        match self {
            Self::CuratorLatch => QueueSettings::new(path, Profile::Curator, &[Kind::Latch]),
            Self::CuratorSelector => QueueSettings::new(path, Profile::Curator, &[Kind::Exclusive]),
            Self::Kazoo => QueueSettings::new(path, Profile::Kazoo, &[Kind::Exclusive]),
        }
    }
}
