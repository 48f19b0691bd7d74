//! Builder: the options of an engine, and the check that they fit together.

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

/// The settings of an engine that is about to start; see [`Engine::builder`](crate::Engine::builder).
///
/// Without any setting: a free port on the loopback interface, everything in memory.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing runs before `start`"]
pub struct Builder {
    /// As far as one setting does not depend on another.
    plan: Plan,
    allow_plaintext: bool,
    durability: Option<Durability>,
    min_session_timeout: Option<Duration>,
    max_session_timeout: Option<Duration>,
    super_digest: Option<Secret>,
    words: Vec<String>,
    whitelist: Option<String>,
}

/// A text that no log may show.
#[derive(Clone)]
struct Secret(String);

lockkeeper_wire::impl_debug!(Secret, self =>);

impl Builder {
    lockkeeper_wire::setters! {
        /// Listens on a TCP address; port 0 takes a free one. May be called several times.
        pub fn listen(self, address: SocketAddr) => self.plan.listen.push(address);

        /// Listens on a Unix socket at `path` (at most 107 bytes when made absolute; 103 on systems
        /// other than Linux), for this user alone unless [`Builder::unix_socket_mode`] says otherwise: the
        /// socket gets the mode 0600, and a missing directory 0700. What a dead engine left there is
        /// replaced.
        pub fn unix_socket(self, path: impl Into<PathBuf>) =>
            self.plan.unix_socket = Some(path.into());

        /// The permissions of the Unix socket: whoever may write to it, and may enter its directory, is
        /// served. Default: 0600.
        pub fn unix_socket_mode(self, mode: u32) => self.plan.unix_socket_mode = Some(mode);
    }

    /// Listens on a TCP address and speaks TLS there; port 0 takes a free one. May be called
    /// several times; the last `tls` counts for all.
    #[cfg(feature = "tls")]
    pub fn listen_tls(mut self, address: SocketAddr, tls: Tls) -> Self {
        let (mut addresses, _) = self.plan.tls.take().unwrap_or_else(|| (Vec::new(), tls.clone()));
        addresses.push(address);
        self.plan.tls = Some((addresses, tls));
        self
    }

    lockkeeper_wire::setters! {
        /// Allows TCP addresses that other machines can reach, although nothing is encrypted and
        /// anyone who reaches them is served. Without this they are refused.
        pub fn allow_plaintext(self) => self.allow_plaintext = true;

        /// Keeps the state in this directory, which is made if missing (0700). One engine at a time.
        ///
        /// With [`Durability::Memory`] only what the next engine must know is kept, in a file
        /// `<directory>.floor` beside it: above which token to begin, and for how long leases may go on.
        pub fn data_dir(self, path: impl Into<PathBuf>) => self.plan.data_dir = Some(path.into());

        /// What a reply promises. Default: [`Durability::Sync`] with a data directory,
        /// [`Durability::Memory`] without.
        pub fn durability(self, durability: Durability) => self.durability = Some(durability);

        /// Whether the engine's threads poll for more work before they sleep, which takes processor time
        /// and saves the time of waking them. Default: see [`Spin`].
        pub fn spin(self, spin: Spin) => self.plan.spin = spin;

        /// The unit of session expiry, at least 1 ms: sessions end at the next whole tick after their
        /// timeout. Default: 2 s, as in ZooKeeper.
        pub fn tick(self, tick: Duration) => self.plan.config.tick = tick;

        /// The shortest session timeout that a client can get. Default: 2 ticks.
        pub fn min_session_timeout(self, timeout: Duration) =>
            self.min_session_timeout = Some(timeout);

        /// The longest session timeout that a client can get. Default: 20 ticks.
        pub fn max_session_timeout(self, timeout: Duration) =>
            self.max_session_timeout = Some(timeout);

        /// For how long no session begins, if the engine follows one whose clients may still hold locks:
        /// on a directory that was [restored](crate::restore), or in memory. Zero: not at all.
        ///
        /// Default: after a restore the longest session timeout that clients can get, or could before; in
        /// memory the longest that was granted, as the file beside the data directory tells. So an engine in
        /// memory without a data directory, or whose file was lost, has no quiet time: give one if it
        /// follows another at the same address.
        pub fn quiet_time(self, time: Duration) => self.plan.quiet_time = Some(time);

        /// Allows clients to create nodes with a time to live. Without this they get an error, as from
        /// a ZooKeeper without `extendedTypesEnabled`.
        pub fn allow_ttl_nodes(self) => self.plan.config.ttl_nodes = true;

        /// How often empty containers and overdue TTL nodes are looked for. Default: every minute, as
        /// in ZooKeeper.
        pub fn reap_interval(self, interval: Duration) => self.plan.config.reap_interval = interval;

        /// After what time a container that never had a child is reaped too. Default: never, as in
        /// ZooKeeper.
        pub fn unused_container(self, limit: Duration) =>
            self.plan.config.unused_container = Some(limit);

        /// Gives all permissions to whoever shows this user's password by the scheme `digest`:
        /// `user:base64(sha1(user:password))`, ZooKeeper's `superDigest`. With another
        /// [algorithm](Builder::digest_algorithm), the hash is one of that.
        pub fn super_digest(self, digest: impl Into<String>) =>
            self.super_digest = Some(Secret(digest.into()));

        /// How the passwords of the scheme `digest` are hashed: ZooKeeper's `digestAlg`. Default: SHA-1.
        /// The lists of nodes have the hashes, so after a change their owners are not recognised any more.
        pub fn digest_algorithm(self, algorithm: DigestAlgorithm) =>
            self.plan.config.digest_algorithm = algorithm;

        /// Enforces the hard limits of quotas, and warns of the soft ones, as ZooKeeper's
        /// `enforceQuota` does. Without this, the server only keeps the books.
        pub fn enforce_quotas(self) => self.plan.config.enforce_quotas = true;

        /// Answers this four-letter word too, or all of them for `*`. Without this: `srvr`, `ruok` and
        /// `isro`. Some of the others tell who is connected and what is locked, and are costly.
        pub fn four_letter_word(self, word: impl Into<String>) => self.words.push(word.into());

        /// Answers only `srvr` and the words of this list: ZooKeeper's `4lw.commands.whitelist`, with
        /// commas between the words, or `*`. Words that there are not are named in the log, and have no
        /// effect. Those of [`four_letter_word`](Builder::four_letter_word) are answered too.
        pub fn four_letter_whitelist(self, list: impl Into<String>) =>
            self.whitelist = Some(list.into());

        /// Serves the metrics in Prometheus' format at `http://<address>/metrics`, and beside them whether
        /// the engine is alive at `/healthz`, and whether a client would get a session at `/readyz`. Anyone
        /// who reaches the address can read them, so one that other machines reach needs
        /// [`Builder::allow_plaintext`].
        pub fn metrics_address(self, address: SocketAddr) =>
            self.plan.metrics_address = Some(address);

        /// Answers HTTP requests for a host of this name too, with any port; may be called several times.
        ///
        /// On a loopback address, a request whose `Host` is neither `localhost`, nor an IP address, nor one
        /// of these names is refused with the status 421: a web page that is open in a browser of this
        /// machine could read the metrics otherwise, under a name of its own. On other addresses every name
        /// is answered, unless names are listed here.
        pub fn allow_host(self, name: impl Into<String>) =>
            self.plan.metrics_hosts.push(name.into());

        /// Does this when the engine comes to rest after a load (more than 200 requests, changes and
        /// ends of connections within 2 s), on the thread that owns the tree: 2 to 5 s after the load,
        /// and once more 2 to 3 s later. By then the engine has freed what only the load needed; an
        /// allocator that has a heap for each thread can be made to give it back to the system here.
        ///
        /// The same happens while the process has more than 13/16 of the memory of the machine, or of what
        /// its control groups and limits allow, at most every 5 s: from 14/16 on, clients may create
        /// nothing but locks, and nothing from 15/16 on.
        ///
        /// Clients wait meanwhile. The thread runs a `tokio` runtime, so nothing may block on another
        /// there; a panic ends the engine with [`EngineError::Panicked`](crate::EngineError::Panicked).
        pub fn at_rest(self, action: impl Fn() + Send + Sync + 'static) =>
            self.plan.idle_hook = Some(IdleHook::new(action));
    }

    /// Finds what is wrong with the settings alone.
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

    /// Where nothing is encrypted, nobody else listens in unless that was allowed.
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

/// The limits: what one client, or all of them, may take.
///
/// Whoever runs into one gets an error or loses its connection, the log gets one line, and nobody
/// else notices.
impl Builder {
    lockkeeper_wire::setters! {
        /// The largest request and the largest reply, in bytes. Default:
        /// [`MAX_FRAME`](lockkeeper_wire::MAX_FRAME), 1 MiB less one, as in ZooKeeper. A client that
        /// sends a larger one loses its connection; one whose reply would be larger gets the error -5.
        pub fn max_frame(self, bytes: usize) => self.plan.config.max_frame = bytes;

        /// How many connections there may be. Default: 10,000. The last tenth is kept for clients that come
        /// back with a session; others are closed. The process's limit of open files is raised as far as
        /// the system allows and this needs it. If the system allows less, there are fewer connections, and
        /// the log says so.
        pub fn max_connections(self, count: usize) => self.plan.limits.max_connections = count;

        /// How many connections may come from one IP address, or over a Unix socket from one user. Clients
        /// that come back with a session get a quarter of the places that are kept for such beyond that.
        /// Default: three quarters of all, 7,500. The user of this process and root may have all, and 100
        /// more if other users can reach the socket ([`Builder::unix_socket_mode`]).
        pub fn max_connections_per_address(self, count: usize) =>
            self.plan.limits.max_connections_per_address = Some(count);

        /// How many connections may wait in the operating system to be accepted, on each address; the
        /// system may allow fewer. Default: 1,024.
        pub fn listen_backlog(self, count: u32) => self.plan.limits.backlog = count;

        /// How many connections are accepted per second, on all addresses together, at least 1; bursts
        /// of a fifth of it are not slowed down. More have to wait, and none is refused for it.
        /// Default: 5,000.
        pub fn connection_rate(self, per_second: u32) =>
            self.plan.limits.connection_rate = per_second;

        /// How many sessions there may be, connected or not; a client that wants another one is
        /// closed. Default: 1,000,000.
        pub fn max_sessions(self, count: usize) => self.plan.config.max_sessions = count;

        /// How many paths one connection may watch; a request for one more gets the error -127.
        /// Default: 1,000,000.
        pub fn max_watches(self, paths: usize) => self.plan.config.max_watches = paths;

        /// How many operations a `multi` may have; a longer one gets the error -8. Default: 100,000,
        /// which no frame of the default length reaches. (There are none within another one.)
        pub fn max_multi(self, operations: usize) => self.plan.config.max_ops = operations;

        /// How many bytes of replies and events may wait for one client. Default: 64 MiB. From a quarter of
        /// it on the client is held back: what it asks for is neither read nor handled until it has taken
        /// half of that. So nobody is dropped who asks for more in one go, and takes it. A client for which
        /// more than all of it waits, as it watches much and reads nothing, is dropped (its session lives
        /// on).
        pub fn max_outgoing(self, bytes: usize) => self.plan.limits.max_outgoing = bytes;

        /// How long a client may take nothing of what waits for it before it is dropped (its session lives
        /// on). Default: 30 s.
        pub fn send_timeout(self, limit: Duration) => self.plan.limits.send_timeout = limit;

        /// How many bytes may wait for all connections together: replies and events that clients have not
        /// taken, and requests that are not whole or not handled; watches, by what they weigh, leave less of
        /// it and get half of it at most. Default: a quarter of the machine's memory, or of what the control
        /// groups and the limits of the process (`ulimit -v` and `-d`) allow if that is less.
        ///
        /// From half of it on, a client that has more of it than others with much is held back, and those of
        /// them that take nothing for 2 s are dropped, the largest first (their sessions live on). When all
        /// of it is taken, the largest are dropped in any case. Clients with less than 16 KiB notice nothing.
        pub fn memory_budget(self, bytes: usize) => self.plan.limits.memory_budget = Some(bytes);

        /// How many bytes the data may weigh, which is about the memory that it takes as it grows (an
        /// allocator may keep more after many deletes): nodes with their paths, data, access control lists
        /// and what the engine keeps with each node, as counted (`data_weight` in `mntr`). Default: half of
        /// the machine's memory, or of what the control groups and the limits of the process (`ulimit -v`
        /// and `-d`) allow if that is less.
        ///
        /// A write for which there is no room gets the error -125 (quota exceeded). The last eighth is for
        /// ephemeral nodes with up to 1 KiB of data, so that locks can be taken when the rest is full.
        /// Deletes, and data that gets no longer, are never refused; nor is anything that was there before.
        pub fn data_budget(self, bytes: usize) => self.plan.limits.data_budget = Some(bytes);

        /// How many bytes the engine leaves free on the disk of its data directory. Default: 256 MiB, or a
        /// quarter of a smaller file system. Zero: none.
        ///
        /// With less room, creates and data that gets longer are refused with the error -125 (quota
        /// exceeded), except for ephemeral nodes with up to 1 KiB of data, and with less than half of it
        /// those as well. Everything else goes on. The room is looked at every second while there is
        /// plenty, every 0.1 s while there is little, and every 10 ms while that gets less.
        pub fn disk_reserve(self, bytes: u64) => self.plan.limits.disk_reserve = Some(bytes);

        /// How many ephemeral nodes one session may have; one more gets the error -125. They all end in one
        /// transaction, during which everyone waits. Default: 20,000.
        pub fn max_ephemerals(self, count: usize) => self.plan.config.max_ephemerals = count;

        /// How long a new connection may take to send its handshake, that of TLS included. Default:
        /// 10 s.
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
