//! Settings that have been checked to fit together, for the rest of the engine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_tree::Config;

use super::four_letter::FourLetterWords;
use super::limits::Limits;
#[cfg(feature = "tls")]
use crate::sockets::tls::Tls;
use crate::spin::Spin;
use crate::storage::Durability;

/// The checked settings of an engine. The setters of [`Builder`](crate::Builder) describe each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) unix_socket: Option<PathBuf>,
    pub(crate) unix_socket_mode: Option<u32>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<(Vec<SocketAddr>, Tls)>,
    pub(crate) metrics_address: Option<SocketAddr>,
    /// The host names for which monitors may send requests, besides `localhost`.
    pub(crate) metrics_hosts: Vec<String>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) durability: Durability,
    pub(crate) quiet_time: Option<Duration>,
    pub(crate) spin: Spin,
    pub(crate) idle_hook: Option<IdleHook>,
    pub(crate) limits: Limits,
    pub(crate) four_letter_words: FourLetterWords,
    /// The settings of the tree.
    pub(crate) config: Config,
}

impl Plan {
    /// Whether there is any address for clients.
    pub(super) fn listens(&self) -> bool {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return true;
        }
        !self.listen.is_empty() || self.unix_socket.is_some()
    }
}

/// The embedding program's action for an engine that has become idle after a load.
#[derive(Clone)]
pub(crate) struct IdleHook(Arc<dyn Fn() + Send + Sync>);

impl IdleHook {
    pub(crate) fn new(action: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(action))
    }

    pub(crate) fn act(&self) {
        (self.0)();
    }
}

lockkeeper_wire::impl_debug!(IdleHook, self =>);
