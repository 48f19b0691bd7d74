//! What an engine is started with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_tree::Config;
use lockkeeper_wire::MAX_FRAME;

use crate::conversation::Limits;
use crate::engine::Engine;
use crate::{Durability, StartError, startup};

/// The settings of an engine that is about to start; see [`Engine::builder`].
///
/// Without any setting: a free port on the loopback interface, everything in memory.
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `start`"]
pub struct Builder {
    listen: Vec<SocketAddr>,
    unix_socket: Option<PathBuf>,
    allow_plaintext: bool,
    data_dir: Option<PathBuf>,
    durability: Option<Durability>,
    tick: Duration,
    min_session_timeout: Option<Duration>,
    max_session_timeout: Option<Duration>,
    ttl_nodes: bool,
    reap_interval: Option<Duration>,
    max_connections: usize,
    max_connections_per_address: usize,
    limits: Limits,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            unix_socket: None,
            allow_plaintext: false,
            data_dir: None,
            durability: None,
            tick: Duration::from_secs(2),
            min_session_timeout: None,
            max_session_timeout: None,
            ttl_nodes: false,
            reap_interval: None,
            max_connections: 10_000,
            max_connections_per_address: 10_000,
            limits: Limits {
                max_frame: MAX_FRAME,
                max_outgoing: 64 * 1024 * 1024,
                handshake_time: Duration::from_secs(10),
            },
        }
    }
}

impl Builder {
    /// Listens on a TCP address; port 0 takes a free one. May be called several times.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen.push(address);
        self
    }

    /// Listens on a Unix socket at `path` (at most 107 bytes when made absolute; 103 on systems
    /// other than Linux), for this user alone: the socket gets the mode 0600, and a missing
    /// directory 0700. What a dead engine left there is replaced.
    pub fn unix_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.unix_socket = Some(path.into());
        self
    }

    /// Allows TCP addresses that other machines can reach, although nothing is encrypted and
    /// anyone who reaches them is served. Without this they are refused.
    pub fn allow_plaintext(mut self) -> Self {
        self.allow_plaintext = true;
        self
    }

    /// Keeps the state in this directory, which is made if missing (0700). One engine at a time.
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// What a reply promises. Default: [`Durability::Sync`] with a data directory,
    /// [`Durability::Memory`] (which ignores it) without.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// The unit of session expiry, at least 1 ms: sessions end at the next whole tick after their
    /// timeout. Default: 2 s, as in ZooKeeper.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The shortest session timeout that a client can get. Default: 2 ticks.
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.min_session_timeout = Some(timeout);
        self
    }

    /// The longest session timeout that a client can get. Default: 20 ticks.
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.max_session_timeout = Some(timeout);
        self
    }

    /// Allows nodes with a time to live. Off by default, as in ZooKeeper.
    pub fn allow_ttl_nodes(mut self) -> Self {
        self.ttl_nodes = true;
        self
    }

    /// How often empty containers and overdue TTL nodes are looked for. Default: 60 s, as in
    /// ZooKeeper.
    pub fn reap_interval(mut self, interval: Duration) -> Self {
        self.reap_interval = Some(interval);
        self
    }

    /// The largest request, in bytes. Default: [`MAX_FRAME`](lockkeeper_wire::MAX_FRAME), 1 MiB
    /// less one. A client that sends a larger one loses its connection.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.limits.max_frame = bytes;
        self
    }

    /// How many connections there may be. Default: 10,000.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.max_connections = count;
        self
    }

    /// How many connections may come from one IP address; those over a Unix socket count for none.
    /// Default: 10,000.
    pub fn max_connections_per_address(mut self, count: usize) -> Self {
        self.max_connections_per_address = count;
        self
    }

    /// How many bytes may wait for a client that does not read; one for which there is more is
    /// dropped (its session lives on). Default: 64 MiB. At a quarter of it, the engine stops
    /// reading that client's requests.
    pub fn max_outgoing(mut self, bytes: usize) -> Self {
        self.limits.max_outgoing = bytes;
        self
    }

    /// How long a new connection may take to send its handshake. Default: 10 s.
    pub fn handshake_time(mut self, limit: Duration) -> Self {
        self.limits.handshake_time = limit;
        self
    }

    /// Starts the engine: returns when it listens, with all that its data directory holds.
    ///
    /// It runs on threads of its own, so it neither needs a runtime here nor suffers when the
    /// caller's is blocked. Its log goes to the caller's `tracing` subscriber.
    ///
    /// # Errors
    /// Each names the address or path concerned and the way out; nothing is left behind.
    ///
    /// # Cancel safety
    /// If the future is dropped, the engine stops as soon as it has started.
    pub async fn start(self) -> Result<Engine, StartError> {
        startup::start(self.check()?).await
    }

    /// Finds what is wrong with the settings alone.
    fn check(self) -> Result<Plan, StartError> {
        let exposed = self.listen.iter().find(|address| !is_loopback(address));
        if let Some(&address) = exposed
            && !self.allow_plaintext
        {
            return Err(StartError::Plaintext { address });
        }
        let config = self.config()?;
        let mut listen = self.listen;
        if listen.is_empty() && self.unix_socket.is_none() {
            listen.push(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        }
        let default = match self.data_dir {
            Some(_) => Durability::Sync,
            None => Durability::Memory,
        };
        Ok(Plan {
            listen,
            unix_socket: self.unix_socket,
            data_dir: self.data_dir,
            durability: self.durability.unwrap_or(default),
            max_connections: self.max_connections,
            max_connections_per_address: self.max_connections_per_address,
            limits: self.limits,
            config,
        })
    }

    fn config(&self) -> Result<Config, StartError> {
        let tick = self.tick;
        let min = self.min_session_timeout.unwrap_or(tick.saturating_mul(2));
        let max = self.max_session_timeout.unwrap_or(tick.saturating_mul(20));
        if tick < Duration::from_millis(1) || min.is_zero() || min > max {
            return Err(StartError::Timeouts { tick, min, max });
        }
        let mut config = Config::with_tick(tick);
        config.min_session_timeout = min;
        config.max_session_timeout = max;
        config.max_frame = self.limits.max_frame;
        config.ttl_nodes = self.ttl_nodes;
        config.reap_interval = self.reap_interval.unwrap_or(config.reap_interval);
        Ok(config)
    }
}

fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Settings that fit together.
pub(crate) struct Plan {
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) unix_socket: Option<PathBuf>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) durability: Durability,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) limits: Limits,
    pub(crate) config: Config,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(builder: Builder) -> String {
        match builder.check() {
            Ok(_) => panic!("accepted"),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn addresses_that_others_reach_need_a_word() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:2181"] {
            let builder = Builder::default().listen(address.parse().unwrap());
            assert!(builder.clone().allow_plaintext().check().is_ok());
            assert!(refusal(builder).contains(address));
        }
        for address in ["127.0.0.2:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let builder = Builder::default().listen(address.parse().unwrap());
            assert!(builder.check().is_ok(), "{address}");
        }
    }

    #[test]
    fn timeouts_must_fit_together() {
        let second = Duration::from_secs(1);
        let wrong = [
            Builder::default().tick(Duration::ZERO),
            Builder::default().min_session_timeout(Duration::ZERO),
            Builder::default().max_session_timeout(second),
        ];
        for builder in wrong {
            assert!(refusal(builder).contains("do not fit"));
        }
    }

    #[test]
    fn a_directory_makes_it_durable() {
        let durability = |builder: Builder| builder.check().ok().unwrap().durability;
        let with_dir = Builder::default().data_dir("somewhere");
        assert_eq!(durability(Builder::default()), Durability::Memory);
        assert_eq!(durability(with_dir.clone()), Durability::Sync);
        assert_eq!(durability(with_dir.durability(Durability::Os)), Durability::Os);
    }
}
