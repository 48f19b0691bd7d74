//! The builder: the options of an engine, and the check that they fit together.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_tree::{Config, DigestAlgorithm, SuperDigest};

use super::plan::{IdleHook, Plan};
use crate::error::StartError;
#[cfg(feature = "tls")]
use crate::sockets::tls::Tls;
use crate::spin::Spin;
use crate::storage::Durability;

/// The settings of an engine to start; see [`Engine::builder`](crate::Engine::builder).
///
/// By default, the engine listens on a free port of the loopback interface and keeps everything in memory.
#[derive(Clone, Debug, Default)]
#[must_use = "the engine runs only after `start`"]
pub struct Builder {
    /// The settings that do not depend on each other.
    plan: Plan,
    allow_plaintext: bool,
    durability: Option<Durability>,
    min_session_timeout: Option<Duration>,
    max_session_timeout: Option<Duration>,
    super_digest: Option<Secret>,
    words: Vec<String>,
    whitelist: Option<String>,
}

/// A text that must not appear in logs.
#[derive(Clone)]
struct Secret(String);

lockkeeper_wire::impl_debug!(Secret, self =>);

impl Builder {
    lockkeeper_wire::setters! {
        /// Listens on a TCP address; port 0 chooses a free port. May be called several times.
        pub fn listen(self, address: SocketAddr) => self.plan.listen.push(address);

        /// Listens on a Unix socket at `path` (at most 107 bytes when made absolute; 103 on systems other than Linux),
        /// for this user only unless [`Builder::unix_socket_mode`] allows others: the socket gets the mode 0600, and a
        /// missing directory 0700. A socket that a dead engine left there is replaced.
        pub fn unix_socket(self, path: impl Into<PathBuf>) =>
            self.plan.unix_socket = Some(path.into());

        /// The permissions of the Unix socket: every user that may write to it and enter its directory can connect.
        /// Default: 0600.
        pub fn unix_socket_mode(self, mode: u32) => self.plan.unix_socket_mode = Some(mode);
    }

    /// Listens on a TCP address with TLS; port 0 chooses a free port. May be called several times; the last `tls`
    /// applies to all.
    #[cfg(feature = "tls")]
    pub fn listen_tls(mut self, address: SocketAddr, tls: Tls) -> Self {
        let (mut addresses, _) = self.plan.tls.take().unwrap_or_else(|| (Vec::new(), tls.clone()));
        addresses.push(address);
        self.plan.tls = Some((addresses, tls));
        self
    }

    lockkeeper_wire::setters! {
        /// Allows TCP addresses that other machines can reach although the traffic is not encrypted and every client is
        /// served. Without this, such addresses are refused.
        pub fn allow_plaintext(self) => self.allow_plaintext = true;

        /// Keeps the state in this directory, which is created if missing (mode 0700). Only one engine can use it at a
        /// time.
        ///
        /// With [`Durability::Memory`] only the state that the next engine needs is kept, in a file `<directory>.floor`
        /// next to the directory: the token above which to begin, and how long leases may last.
        pub fn data_dir(self, path: impl Into<PathBuf>) => self.plan.data_dir = Some(path.into());

        /// The durability that a reply promises. Default: [`Durability::Sync`] with a data directory,
        /// [`Durability::Memory`] without.
        pub fn durability(self, durability: Durability) => self.durability = Some(durability);

        /// Whether the engine's threads poll for work before they sleep, which uses processor time and saves the time
        /// of waking them. Default: see [`Spin`].
        pub fn spin(self, spin: Spin) => self.plan.spin = spin;

        /// The unit of session expiry, at least 1 ms: a session expires at the first whole tick after its timeout.
        /// Default: 2 s, as in ZooKeeper.
        pub fn tick(self, tick: Duration) => self.plan.config.tick = tick;

        /// The shortest session timeout that a client can get. Default: 2 ticks.
        pub fn min_session_timeout(self, timeout: Duration) =>
            self.min_session_timeout = Some(timeout);

        /// The longest session timeout that a client can get. Default: 20 ticks.
        pub fn max_session_timeout(self, timeout: Duration) =>
            self.max_session_timeout = Some(timeout);

        /// How long new sessions are refused if the engine follows one whose clients may still hold locks: on a
        /// directory that was [restored](crate::restore), or in memory. Zero disables it.
        ///
        /// Default: after a restore, the longest session timeout that clients can get or could get before; in memory,
        /// the longest timeout that was granted, according to the file next to the data directory. So an engine in
        /// memory without a data directory, or whose file was lost, has no quiet time: set one if it follows another
        /// engine at the same address.
        pub fn quiet_time(self, time: Duration) => self.plan.quiet_time = Some(time);

        /// Allows clients to create nodes with a time to live. Without this they get an error, as from a ZooKeeper
        /// server without `extendedTypesEnabled`.
        pub fn allow_ttl_nodes(self) => self.plan.config.ttl_nodes = true;

        /// How often the engine searches for empty containers and overdue TTL nodes. Default: every minute, as in
        /// ZooKeeper.
        pub fn reap_interval(self, interval: Duration) => self.plan.config.reap_interval = interval;

        /// The time after which a container that never had a child is deleted too. Default: never, as in ZooKeeper.
        pub fn unused_container(self, limit: Duration) =>
            self.plan.config.unused_container = Some(limit);

        /// Grants all permissions to clients that present this user's password with the scheme `digest`:
        /// `user:base64(sha1(user:password))`, ZooKeeper's `superDigest`. With another
        /// [algorithm](Builder::digest_algorithm), the hash is computed with that one.
        pub fn super_digest(self, digest: impl Into<String>) =>
            self.super_digest = Some(Secret(digest.into()));

        /// The algorithm by which passwords of the scheme `digest` are hashed: ZooKeeper's `digestAlg`. Default: SHA-1.
        /// Access control lists contain the hashes, so after a change they no longer match the same passwords.
        pub fn digest_algorithm(self, algorithm: DigestAlgorithm) =>
            self.plan.config.digest_algorithm = algorithm;

        /// Enforces the hard limits of quotas and logs warnings for the soft ones, as ZooKeeper's `enforceQuota` does.
        /// Without this, the server only keeps the statistics.
        pub fn enforce_quotas(self) => self.plan.config.enforce_quotas = true;

        /// Answers this four-letter word too, or all of them for `*`. By default, `srvr`, `ruok` and `isro` are
        /// answered. Some other words list clients and locks, and are costly.
        pub fn four_letter_word(self, word: impl Into<String>) => self.words.push(word.into());

        /// Answers only `srvr` and the words of this list: ZooKeeper's `4lw.commands.whitelist`, with commas between
        /// the words, or `*`. Unknown words are logged and ignored. The words of
        /// [`four_letter_word`](Builder::four_letter_word) are answered too.
        pub fn four_letter_whitelist(self, list: impl Into<String>) =>
            self.whitelist = Some(list.into());

        /// Serves metrics in Prometheus' format at `http://<address>/metrics`, the liveness of the engine at
        /// `/healthz`, and at `/readyz` whether clients can get a session. Every program that reaches the address can
        /// read them, so an address that other machines can reach requires [`Builder::allow_plaintext`].
        pub fn metrics_address(self, address: SocketAddr) =>
            self.plan.metrics_address = Some(address);

        /// Also answers HTTP requests for a host of this name, with any port; may be called several times.
        ///
        /// On a loopback address, a request whose `Host` is neither `localhost`, nor an IP address, nor one of these
        /// names is refused with status 421: otherwise a web page in a browser on this machine could read the metrics
        /// under a name of its own. On other addresses all names are answered, unless names are listed here.
        pub fn allow_host(self, name: impl Into<String>) =>
            self.plan.metrics_hosts.push(name.into());

        /// Runs this action when the engine becomes idle after a load (more than 200 requests, changes and ended
        /// connections within 2 s), on the thread that owns the tree: 2 to 5 s after the load, and once more 2 to 3 s
        /// later. By then the engine has freed the memory that only the load needed; an allocator with one heap per
        /// thread can return it to the system here.
        ///
        /// The action also runs while the process uses more than 13/16 of the memory of the machine, or of the memory
        /// that its control groups and limits allow, at most every 5 s: above 14/16, clients may only create locks, and
        /// above 15/16 they may create nothing.
        ///
        /// Clients wait while it runs. The thread runs a `tokio` runtime, so the action must not block on another one;
        /// a panic ends the engine with [`EngineError::Panicked`](crate::EngineError::Panicked).
        pub fn at_rest(self, action: impl Fn() + Send + Sync + 'static) =>
            self.plan.idle_hook = Some(IdleHook::new(action));
    }

    /// Checks the settings by themselves.
    pub(crate) fn check(mut self) -> Result<Plan, StartError> {
        self.check_addresses()?;
        self.check_timeouts()?;
        if let Some(Secret(digest)) = &self.super_digest {
            let algorithm = self.plan.config.digest_algorithm;
            self.plan.config.super_digest = Some(SuperDigest::new(digest, algorithm)?);
        }
        if let Some(list) = &self.whitelist {
            self.plan.four_letter_words.allow_only(list);
        }
        for word in &self.words {
            self.plan
                .four_letter_words
                .allow(word)
                .map_err(|word| StartError::UnknownWord { word })?;
        }

        let default = match self.plan.data_dir {
            Some(_) => Durability::Sync,
            None => Durability::Memory,
        };
        self.plan.durability = self.durability.unwrap_or(default);
        self.plan.limits.apply_to(&mut self.plan.config);
        if !self.plan.listens() {
            self.plan.listen.push(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        }
        Ok(self.plan)
    }

    /// Addresses without encryption must be unreachable for other machines unless that was allowed.
    fn check_addresses(&self) -> Result<(), StartError> {
        let mut plain = self.plan.listen.iter().chain(&self.plan.metrics_address);
        match plain.find(|address| !is_loopback(address)) {
            Some(&address) if !self.allow_plaintext => Err(StartError::Plaintext { address }),
            _ => Ok(()),
        }
    }

    fn check_timeouts(&mut self) -> Result<(), StartError> {
        let tick = self.plan.config.tick;
        let min = self.min_session_timeout.unwrap_or_else(|| Config::min_timeout(tick));
        let max = self.max_session_timeout.unwrap_or_else(|| Config::max_timeout(tick));
        if tick < Duration::from_millis(1) || min.is_zero() || min > max {
            return Err(StartError::Timeouts { tick, min, max });
        }
        self.plan.config.min_session_timeout = min;
        self.plan.config.max_session_timeout = max;
        Ok(())
    }
}

pub(crate) fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// The limits for one client and for all clients together.
///
/// A client that reaches a limit gets an error or is disconnected, and the log gets one line; other clients are not
/// affected.
impl Builder {
    lockkeeper_wire::setters! {
        /// The largest request and the largest reply, in bytes. Default: [`MAX_FRAME`](lockkeeper_wire::MAX_FRAME), 1
        /// MiB less one, as in ZooKeeper. A client that sends a larger request is disconnected; a request whose reply
        /// would be larger gets the error -5.
        pub fn max_frame(self, bytes: usize) => self.plan.config.max_frame = bytes;

        /// The number of connections. Default: 10,000. The last tenth is reserved for clients that return with a
        /// session; others are disconnected. The engine raises the process's limit of open files as far as necessary.
        /// If the system does not allow this, there are fewer connections, and the log reports it.
        pub fn max_connections(self, count: usize) => self.plan.limits.max_connections = count;

        /// The number of connections from one IP address, or over a Unix socket from one user. Beyond it, returning
        /// clients get a quarter of the places that are reserved for them. Default: three quarters of all, 7,500. The
        /// user of this process and root may use all places, and 100 more if other users can reach the socket
        /// ([`Builder::unix_socket_mode`]).
        pub fn max_connections_per_address(self, count: usize) =>
            self.plan.limits.max_connections_per_address = Some(count);

        /// The number of connections that may wait in the operating system to be accepted, on each address; the system
        /// may allow fewer. Default: 1,024.
        pub fn listen_backlog(self, count: u32) => self.plan.limits.backlog = count;

        /// The number of connections that are accepted per second, on all addresses together, at least 1; bursts of a
        /// fifth of it are not slowed down. Further connections wait; none is refused. Default: 5,000.
        pub fn connection_rate(self, per_second: u32) =>
            self.plan.limits.connection_rate = per_second;

        /// The number of sessions, connected or not; a client that requests another one is disconnected. Default:
        /// 1,000,000.
        pub fn max_sessions(self, count: usize) => self.plan.config.max_sessions = count;

        /// The number of paths that one connection may watch; a request for one more gets the error -127. Default:
        /// 1,000,000.
        pub fn max_watches(self, paths: usize) => self.plan.config.max_watches = paths;

        /// The number of operations in a `multi`; a longer one gets the error -8. Default: 100,000, which is more than
        /// a frame of the default length can hold. (A `multi` cannot contain another one.)
        pub fn max_multi(self, operations: usize) => self.plan.config.max_ops = operations;

        /// The bytes of replies and events that may wait for one client. Default: 64 MiB. Above a quarter of it, the
        /// client's requests are neither read nor handled until half of that has been sent. So a client that requests
        /// more at once and reads the replies is not disconnected. A client with many watches that does not read its
        /// events is disconnected when the limit is exceeded (its session lives on).
        pub fn max_outgoing(self, bytes: usize) => self.plan.limits.max_outgoing = bytes;

        /// How long a client may read none of the data that waits for it before it is disconnected (its session lives
        /// on). Default: 30 s.
        pub fn send_timeout(self, limit: Duration) => self.plan.limits.send_timeout = limit;

        /// The bytes that may wait for all connections together: replies and events that clients have not read, and
        /// requests that are incomplete or not yet handled. The memory of watches reduces the budget, by at most half.
        /// Default: a quarter of the machine's memory, or of the memory that the control groups and the limits of the
        /// process (`ulimit -v` and `-d`) allow if that is less.
        ///
        /// Above half of the budget, clients that use more than their share are paused, and those among them that read
        /// nothing for 2 s are disconnected, the largest first (their sessions live on). When all of it is used, the
        /// largest are disconnected in any case. Clients that use less than 16 KiB are not affected.
        pub fn memory_budget(self, bytes: usize) => self.plan.limits.memory_budget = Some(bytes);

        /// The size of the data in bytes, which is about the memory that growing data takes (after many deletes an
        /// allocator may hold more): nodes with their paths, data, access control lists and per-node overhead, as
        /// reported by `data_weight` in `mntr`. Default: half of the machine's memory, or of the memory that the
        /// control groups and the limits of the process (`ulimit -v` and `-d`) allow if that is less.
        ///
        /// A write that exceeds the budget gets the error -125 (quota exceeded). The last eighth is reserved for
        /// ephemeral nodes with up to 1 KiB of data, so that locks can be acquired when the rest is full. Deletes, and
        /// updates that do not enlarge the data, are never refused, and existing data is kept.
        pub fn data_budget(self, bytes: usize) => self.plan.limits.data_budget = Some(bytes);

        /// The bytes that the engine leaves free on the disk of its data directory. Default: 256 MiB, or a quarter of a
        /// smaller file system. Zero disables the reserve.
        ///
        /// With less free space, creates and updates that enlarge the data are refused with the error -125 (quota
        /// exceeded), except for ephemeral nodes with up to 1 KiB of data; with less than half of it, those are refused
        /// as well. Everything else continues. The free space is checked every second while there is plenty, every 0.1
        /// s while there is little, and every 10 ms while little space shrinks further.
        pub fn disk_reserve(self, bytes: u64) => self.plan.limits.disk_reserve = Some(bytes);

        /// The number of ephemeral nodes that one session may have; one more gets the error -125. They are all deleted
        /// in one transaction, during which other clients wait. Default: 20,000.
        pub fn max_ephemerals(self, count: usize) => self.plan.config.max_ephemerals = count;

        /// How long a new connection may take for its handshake, including that of TLS. Default: 10 s.
        pub fn handshake_time(self, limit: Duration) => self.plan.limits.handshake_time = limit;
    }
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
    fn addresses_that_other_machines_reach_must_be_allowed() {
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
