//! What an engine is started with.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_tree::Config;
use lockkeeper_wire::MAX_FRAME;

use crate::admin::four_letter::Words;
use crate::engine::Engine;
use crate::error::StartError;
use crate::net::conversation::Limits;
use crate::net::listener::BACKLOG;
use crate::settings::memory;
#[cfg(feature = "tls")]
use crate::sockets::tls::Tls;
use crate::sockets::unix::PRIVATE;
use crate::spin::Spin;
use crate::startup;
use crate::storage::Durability;
use crate::tree_loop::idle::AtRest;

/// The settings of an engine that is about to start; see [`Engine::builder`].
///
/// Without any setting: a free port on the loopback interface, everything in memory.
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `start`"]
pub struct Builder {
    listen: Vec<SocketAddr>,
    unix_socket: Option<PathBuf>,
    unix_socket_mode: u32,
    #[cfg(feature = "tls")]
    tls: Option<(Vec<SocketAddr>, Tls)>,
    allow_plaintext: bool,
    data_dir: Option<PathBuf>,
    durability: Option<Durability>,
    spin: Spin,
    tick: Duration,
    min_session_timeout: Option<Duration>,
    max_session_timeout: Option<Duration>,
    quiet_time: Option<Duration>,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: Option<usize>,
    pub(crate) backlog: u32,
    pub(crate) connection_rate: u32,
    pub(crate) limits: Limits,
    pub(crate) memory_budget: Option<usize>,
    pub(crate) data_budget: Option<usize>,
    pub(crate) disk_reserve: Option<u64>,
    /// What the tree decides about; its times are filled in at the start.
    pub(crate) config: Config,
    super_digest: Option<Secret>,
    words: Vec<String>,
    metrics_address: Option<SocketAddr>,
    at_rest: Option<AtRest>,
}

/// A text that no log may show.
#[derive(Clone)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            unix_socket: None,
            unix_socket_mode: PRIVATE,
            #[cfg(feature = "tls")]
            tls: None,
            allow_plaintext: false,
            data_dir: None,
            durability: None,
            spin: Spin::default(),
            tick: Duration::from_secs(2),
            min_session_timeout: None,
            max_session_timeout: None,
            quiet_time: None,
            max_connections: 10_000,
            max_connections_per_address: None,
            backlog: BACKLOG,
            connection_rate: 5_000,
            limits: Limits {
                max_frame: MAX_FRAME,
                max_outgoing: 64 * 1024 * 1024,
                handshake_time: Duration::from_secs(10),
                send_timeout: Duration::from_secs(30),
            },
            memory_budget: None,
            data_budget: None,
            disk_reserve: None,
            config: Config::default(),
            super_digest: None,
            words: Vec::new(),
            metrics_address: None,
            at_rest: None,
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
    /// other than Linux), for this user alone unless [`Builder::unix_socket_mode`] says otherwise: the
    /// socket gets the mode 0600, and a missing directory 0700. What a dead engine left there is
    /// replaced.
    pub fn unix_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.unix_socket = Some(path.into());
        self
    }

    /// The permissions of the Unix socket: whoever may write to it, and may enter its directory, is
    /// served. Default: 0600.
    pub fn unix_socket_mode(mut self, mode: u32) -> Self {
        self.unix_socket_mode = mode;
        self
    }

    /// Listens on a TCP address and speaks TLS there; port 0 takes a free one. May be called
    /// several times; the last `tls` counts for all.
    #[cfg(feature = "tls")]
    pub fn listen_tls(mut self, address: SocketAddr, tls: Tls) -> Self {
        let (mut addresses, _) = self.tls.take().unwrap_or_else(|| (Vec::new(), tls.clone()));
        addresses.push(address);
        self.tls = Some((addresses, tls));
        self
    }

    /// Allows TCP addresses that other machines can reach, although nothing is encrypted and
    /// anyone who reaches them is served. Without this they are refused.
    pub fn allow_plaintext(mut self) -> Self {
        self.allow_plaintext = true;
        self
    }

    /// Keeps the state in this directory, which is made if missing (0700). One engine at a time.
    ///
    /// With [`Durability::Memory`] only what the next engine must know is kept, in a file
    /// `<directory>.floor` beside it: above which token to begin, and for how long leases may go on.
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// What a reply promises. Default: [`Durability::Sync`] with a data directory,
    /// [`Durability::Memory`] without.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Whether the engine's threads poll for more work before they sleep, which takes processor time
    /// and saves the time of waking them. Default: see [`Spin`].
    pub fn spin(mut self, spin: Spin) -> Self {
        self.spin = spin;
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

    /// For how long no session begins, if the engine follows one whose clients may still hold locks:
    /// on a directory that was [restored](crate::restore), or in memory. Zero: not at all.
    ///
    /// Default: after a restore the longest session timeout that clients can get, or could before; in
    /// memory the longest that was granted, as the file beside the data directory tells. So an engine in
    /// memory without a data directory, or whose file was lost, has no quiet time: give one if it
    /// follows another at the same address.
    pub fn quiet_time(mut self, time: Duration) -> Self {
        self.quiet_time = Some(time);
        self
    }

    /// Allows clients to create nodes with a time to live. Without this they get an error, as from
    /// a ZooKeeper without `extendedTypesEnabled`.
    pub fn allow_ttl_nodes(mut self) -> Self {
        self.config.ttl_nodes = true;
        self
    }

    /// How often empty containers and overdue TTL nodes are looked for. Default: every minute, as
    /// in ZooKeeper.
    pub fn reap_interval(mut self, interval: Duration) -> Self {
        self.config.reap_interval = interval;
        self
    }

    /// After what time a container that never had a child is reaped too. Default: never, as in
    /// ZooKeeper.
    pub fn unused_container(mut self, limit: Duration) -> Self {
        self.config.unused_container = Some(limit);
        self
    }

    /// Gives all permissions to whoever shows this user's password by the scheme `digest`:
    /// `user:base64(sha1(user:password))`, ZooKeeper's `superDigest`.
    pub fn super_digest(mut self, digest: impl Into<String>) -> Self {
        self.super_digest = Some(Secret(digest.into()));
        self
    }

    /// Enforces the hard limits of quotas, and warns of the soft ones, as ZooKeeper's
    /// `enforceQuota` does. Without this, the server only keeps the books.
    pub fn enforce_quotas(mut self) -> Self {
        self.config.enforce_quotas = true;
        self
    }

    /// Answers this four-letter word too, or all of them for `*`. Without this: `srvr`, `ruok` and
    /// `isro`. Some of the others tell who is connected and what is locked, and are costly.
    pub fn four_letter_word(mut self, word: impl Into<String>) -> Self {
        self.words.push(word.into());
        self
    }

    /// Serves the metrics in Prometheus' format at `http://<address>/metrics`, and beside them whether
    /// the engine is alive at `/healthz`, and whether a client would get a session at `/readyz`. Anyone
    /// who reaches the address can read them, so one that other machines reach needs
    /// [`Builder::allow_plaintext`].
    pub fn metrics_address(mut self, address: SocketAddr) -> Self {
        self.metrics_address = Some(address);
        self
    }

    /// Does this when the engine comes to rest after a load (more than 200 requests, changes and
    /// ends of connections within 2 s), on the thread that owns the tree: 2 to 5 s after the load,
    /// and once more 2 to 3 s later. By then the engine has freed what only the load needed; an allocator that has a
    /// heap for each thread can be made to give it back to the system here.
    ///
    /// Clients wait meanwhile. The thread runs a `tokio` runtime, so nothing may block on another
    /// there; a panic ends the engine with [`EngineError::Panicked`](crate::EngineError::Panicked).
    pub fn at_rest(mut self, action: impl Fn() + Send + Sync + 'static) -> Self {
        self.at_rest = Some(AtRest::new(action));
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
        let exposed =
            self.listen.iter().chain(&self.metrics_address).find(|address| !is_loopback(address));
        if let Some(&address) = exposed
            && !self.allow_plaintext
        {
            return Err(StartError::Plaintext { address });
        }
        let config = self.config()?;
        let words = self.words()?;
        let most = self.max_connections - self.max_connections / 4;
        let per_address = self.max_connections_per_address.unwrap_or(most);
        let memory_budget = self.room_for_waiting();
        let mut listen = self.listen;
        #[cfg(feature = "tls")]
        let has_tls = self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let has_tls = false;
        if listen.is_empty() && self.unix_socket.is_none() && !has_tls {
            listen.push(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        }
        let default = match self.data_dir {
            Some(_) => Durability::Sync,
            None => Durability::Memory,
        };
        Ok(Plan {
            listen,
            unix_socket: self.unix_socket,
            unix_socket_mode: self.unix_socket_mode,
            data_dir: self.data_dir,
            durability: self.durability.unwrap_or(default),
            spin: self.spin,
            max_connections: self.max_connections,
            max_connections_per_address: per_address,
            backlog: self.backlog,
            connection_rate: self.connection_rate,
            limits: self.limits,
            memory_budget,
            disk_reserve: self.disk_reserve,
            #[cfg(feature = "tls")]
            tls: self.tls,
            metrics_address: self.metrics_address,
            at_rest: self.at_rest,
            quiet_time: self.quiet_time,
            words,
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
        let mut config = self.config.clone();
        config.tick = tick;
        config.min_session_timeout = min;
        config.max_session_timeout = max;
        config.max_frame = self.limits.max_frame;
        config.max_watch_bytes = self.room_for_waiting() / 2;
        config.max_weight = self.data_budget.unwrap_or_else(memory::default_data_budget);
        if let Some(Secret(digest)) = &self.super_digest {
            config.super_digest = Some(digest.parse()?);
        }
        Ok(config)
    }

    fn room_for_waiting(&self) -> usize {
        self.memory_budget.unwrap_or_else(memory::default_budget)
    }

    fn words(&self) -> Result<Words, StartError> {
        let mut words = Words::default();
        for word in &self.words {
            words.allow(word).map_err(|word| StartError::UnknownWord { word })?;
        }
        Ok(words)
    }
}

fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Settings that fit together.
pub(crate) struct Plan {
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) unix_socket: Option<PathBuf>,
    pub(crate) unix_socket_mode: u32,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) durability: Durability,
    pub(crate) spin: Spin,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) backlog: u32,
    pub(crate) connection_rate: u32,
    pub(crate) limits: Limits,
    pub(crate) memory_budget: usize,
    pub(crate) disk_reserve: Option<u64>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<(Vec<SocketAddr>, Tls)>,
    pub(crate) metrics_address: Option<SocketAddr>,
    pub(crate) at_rest: Option<AtRest>,
    pub(crate) quiet_time: Option<Duration>,
    pub(crate) words: Words,
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
    fn a_super_digest_is_checked_and_never_shown() {
        let builder = Builder::default().super_digest("super:secret");
        assert!(!format!("{builder:?}").contains("secret"));
        let refusal = refusal(builder);
        assert!(refusal.contains("user:base64") && !refusal.contains("secret"), "{refusal}");
        let good = Builder::default().super_digest("super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert!(good.check().is_ok());
    }

    #[test]
    fn unknown_words_and_open_metrics_are_refused() {
        assert!(refusal(Builder::default().four_letter_word("kill")).contains("kill"));
        assert!(Builder::default().four_letter_word("*").check().is_ok());
        let open = Builder::default().metrics_address("0.0.0.0:7000".parse().unwrap());
        assert!(refusal(open).contains("0.0.0.0:7000"));
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
