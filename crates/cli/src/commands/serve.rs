//! `lockkeeper serve`: the engine in the foreground.

mod certificates;
mod limits;
mod notify;
mod with;
pub(super) mod zoo_cfg;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lockkeeper_engine::{
    Builder, ClientCertificates, Durability, Engine, EngineError, Spin, StartError,
};
use rustix::termios::isatty;

use self::certificates::TlsFiles;
use self::limits::Limits;
use self::notify::Notifier;
use self::with::With;
use self::zoo_cfg::ZooCfg;
use crate::local;
use crate::shared::exit::{Exit, Failure};
use crate::shared::server_signals::{ServerSignals, SignalRequest};
use crate::shared::{allocator, names};

const DEFAULT_PORT: u16 = 2181;

/// ZooKeeper does not define a default port for TLS; its documentation uses this one.
const DEFAULT_TLS_PORT: u16 = 2281;

/// Run a server that any ZooKeeper client can use
///
/// TERM and INT stop the server; locks whose sessions have not expired still exist at the next start.
/// On HUP it reads its certificates again. Command-line options override the configuration file.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// ZooKeeper's configuration file; the log names keys that have no effect here
    #[arg(long, value_name = "ZOO.CFG")]
    config: Option<PathBuf>,

    /// The address to listen on [default: 127.0.0.1:2181]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Vec<SocketAddr>,

    /// The data directory [default: the directory `serve` in LOCKKEEPER_HOME]; with durability
    /// memory, only the file DIR.floor next to it is kept
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// What acknowledged writes survive: sync (a power failure), os (kill -9) or memory (nothing)
    #[arg(long, value_name = "sync|os|memory", default_value = "sync")]
    durability: Durability,

    /// Whether threads poll for more requests before they sleep: faster answers on machines where
    /// waking a thread is slow, at the cost of processor time while busy
    #[arg(long, value_name = "off|adaptive", default_value_t)]
    spin: Spin,

    /// The unit of session expiry; a session timeout is 2 to 20 of these [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = names::nonzero_duration)]
    tick: Option<Duration>,

    /// How long no session starts after a restore, or after a restart in memory, because clients of the
    /// previous engine may still hold locks; 0s if none can [default: the longest session timeout]
    #[arg(long, value_name = "DURATION", value_parser = names::duration)]
    quiet_time: Option<Duration>,

    /// Allow unencrypted connections on an address that other machines can reach
    #[arg(long)]
    allow_plaintext: bool,

    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, with /healthz and /readyz
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    metrics: Option<SocketAddr>,

    /// Also answer requests for http://NAME. On a loopback address, only localhost and IP addresses
    /// are answered by default, so that web pages cannot read the metrics. Repeatable
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    allow_host: Vec<String>,

    /// Also answer these four-letter words of ZooKeeper, such as mntr,stat, or * for all of them
    /// [default: srvr, ruok and isro]
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    four_letter_words: Vec<String>,

    /// The super user, who has all permissions, in ZooKeeper's format: user:base64(sha1(user:password))
    #[arg(long, value_name = "USER:HASH", env = "LOCKKEEPER_SUPER_DIGEST", hide_env_values = true)]
    super_digest: Option<SuperDigest>,

    /// Allow clients to create nodes with a time to live
    #[arg(long)]
    ttl_nodes: bool,

    /// Reject changes that exceed a hard quota, instead of only counting
    #[arg(long)]
    enforce_quotas: bool,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    tls: TlsOptions,
}

/// The TLS options.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
struct TlsOptions {
    /// The address to listen on with TLS [default: 127.0.0.1:2281]; without --listen, TLS only
    #[arg(long, value_name = "ADDRESS:PORT", requires = "cert", value_parser = address)]
    tls_listen: Vec<SocketAddr>,

    /// A PEM file with the server's certificate, including the chain up to its root
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// A PEM file with the certificate's private key
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// A PEM file with the root certificates for client certificates
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,

    /// Reject clients without a certificate
    #[arg(long, requires = "client_ca")]
    require_client_cert: bool,
}

/// A user name and the hash of a password. Never printed.
#[derive(Clone)]
struct SuperDigest(String);

impl From<String> for SuperDigest {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for SuperDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SuperDigest(..)")
    }
}

/// Serves until a signal or an error ends it.
pub(crate) async fn serve(options: ServeOptions) -> Result<u8, Failure> {
    let (builder, tls_files) = builder(options)?;
    let mut signals = ServerSignals::register()?;
    // Loading much data takes time. Acknowledged writes are on the disk, so nothing is lost if the process ends
    // before that.
    let started = tokio::select! {
        started = builder.start() => started,
        _ = signals.stop() => return Ok(Exit::Ok.code()),
    };
    let engine = started.map_err(|error| match error {
        StartError::Plaintext { .. } => Failure::from(error).advise("see --allow-plaintext"),
        error => Failure::from(error),
    })?;
    let connect = engine.connect_string();
    let trust = if connect.starts_with("tls://") { " --tls-ca CA.pem" } else { "" };
    let when = match quiet(&engine) {
        None => "ready; try".to_owned(),
        Some(quiet) => format!("ready; {quiet}; after that, try"),
    };
    tracing::info!("{when}: lockkeeper --connect {connect}{trust} run demo/hello -- echo hi");

    let notifier = Notifier::from_environment();
    let mut serving =
        Serving { engine: &engine, tls_files, notifier: &notifier, has_old_certificates: false };
    notifier.ready(&serving.status());
    serving.until_the_end(&mut signals).await?;
    notifier.stopping();
    engine.stop().await?;
    Ok(Exit::Ok.code())
}

/// The status during the quiet time.
fn quiet(engine: &Engine) -> Option<String> {
    let left = engine.quiet_time_left()?.as_secs_f64().ceil();
    Some(format!("no session starts for another {left} s (quiet time)"))
}

/// A running engine.
struct Serving<'a> {
    engine: &'a Engine,
    tls_files: Option<TlsFiles>,
    notifier: &'a Notifier,
    /// Whether the last reload failed.
    has_old_certificates: bool,
}

impl Serving<'_> {
    /// The status line for the service manager.
    fn status(&self) -> String {
        let serving = format!("serving {}", self.engine.connect_string());
        let stale = self.has_old_certificates.then(|| {
            "the certificates could not be reloaded, and the previous ones stay in use: see the log"
                .to_owned()
        });
        let parts = [Some(serving), quiet(self.engine), stale];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Handles signals until one requests the end.
    async fn until_the_end(&mut self, signals: &mut ServerSignals) -> Result<(), EngineError> {
        let in_terminal = isatty(std::io::stderr());
        loop {
            tokio::select! {
                ended = self.engine.stopped() => return ended,
                () = quiet_passes(self.engine) => self.notifier.status(&self.status()),
                asked = signals.next() => match asked {
                    SignalRequest::Stop(name) => {
                        tracing::info!("{name}: stopping");
                        return Ok(());
                    }
                    // After its terminal was closed, the server must not keep running.
                    SignalRequest::Reload if in_terminal && !isatty(std::io::stderr()) => return Ok(()),
                    SignalRequest::Reload => self.reload(),
                },
            }
        }
    }

    /// Reads the certificates again. If that fails, the previous ones stay in use.
    fn reload(&mut self) {
        self.notifier.reloading();
        let read = self.tls_files.as_ref().map(TlsFiles::read);
        self.has_old_certificates = matches!(read, Some(Err(_)));
        match read {
            None => tracing::info!("HUP: no certificates to reload"),
            Some(Ok(tls)) => {
                self.engine.set_tls(tls);
                tracing::info!("HUP: certificates reloaded for new connections");
            }
            Some(Err(failure)) => {
                tracing::error!("HUP: the previous certificates stay in use: {failure}");
            }
        }
        self.notifier.ready(&self.status());
    }
}

/// Waits for a second of the quiet time to pass, or its end. Without a quiet time, never returns.
async fn quiet_passes(engine: &Engine) {
    match engine.quiet_time_left() {
        None => std::future::pending().await,
        // Timers stop while the machine is suspended; the quiet time does not.
        Some(left) => tokio::time::sleep(left.min(Duration::from_secs(1))).await,
    }
}

/// The settings: the command line overrides the file, which overrides the defaults.
fn builder(options: ServeOptions) -> Result<(Builder, Option<TlsFiles>), Failure> {
    let file = match &options.config {
        Some(path) => ZooCfg::read(path)?,
        None => ZooCfg::default(),
    };
    file.check_security(options.tls.cert.is_some())?;
    file.warn();

    let tls = options.tls.settings(&file);
    let mut listen = options.listen;
    if listen.is_empty() {
        let default = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT));
        listen.extend(file.address().or(tls.is_none().then_some(default)));
    }

    // Values of the file are set first, so that the command line overrides them.
    let engine = Engine::builder().at_rest(allocator::give_back);
    let mut builder = file.apply(engine.durability(options.durability).spin(options.spin));
    builder = options.limits.apply(builder);
    builder = listen.into_iter().fold(builder, Builder::listen);

    let mut tls_files = None;
    if let Some((addresses, files)) = tls {
        let tls = files.read()?;
        tls_files = Some(files);
        let with_tls = |builder: Builder, address| builder.listen_tls(address, tls.clone());
        builder = addresses.into_iter().fold(builder, with_tls);
    }

    let given = options.data_dir.or(file.data_dir.clone());
    builder = builder
        .with(data_dir(given, options.durability)?, Builder::data_dir)
        .with(options.quiet_time, Builder::quiet_time)
        .set_flag(options.allow_plaintext, Builder::allow_plaintext)
        .with(options.tick.or(file.tick), Builder::tick)
        .with(options.metrics, Builder::metrics_address)
        .set_flag(options.ttl_nodes, Builder::allow_ttl_nodes)
        .set_flag(options.enforce_quotas, Builder::enforce_quotas);
    if let Some(SuperDigest(digest)) = options.super_digest.filter(|digest| !digest.0.is_empty()) {
        builder = builder.super_digest(digest);
    }

    builder = options.allow_host.into_iter().fold(builder, Builder::allow_host);
    let words = options.four_letter_words.into_iter();
    Ok((words.fold(builder, Builder::four_letter_word), tls_files))
}

/// A host name, as in a request but without the port.
fn host_name(text: &str) -> Result<String, &'static str> {
    let is_in_names = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    match !text.is_empty() && text.chars().all(is_in_names) {
        true => Ok(text.to_owned()),
        false => Err("write only the name, such as metrics.example.org, without a port"),
    }
}

/// The data directory; `None` for an engine in memory that keeps nothing.
fn data_dir(given: Option<PathBuf>, durability: Durability) -> Result<Option<PathBuf>, Failure> {
    match given.map_or_else(local::served_data, Ok) {
        Ok(directory) => Ok(Some(directory)),
        Err(failure) if durability == Durability::Memory => {
            tracing::warn!(
                "the next engine will not know this one: it issues smaller tokens if the clock is \
                 set back, and has no quiet time unless --quiet-time sets one ({failure})"
            );
            Ok(None)
        }
        Err(failure) => Err(failure.advise("or use --data-dir")),
    }
}

impl TlsOptions {
    /// The addresses to listen on with TLS and the files for it, if TLS is enabled.
    fn settings(&self, file: &ZooCfg) -> Option<(Vec<SocketAddr>, TlsFiles)> {
        if let (Some(certificate), Some(key)) = (self.cert.clone(), self.key.clone()) {
            let mut addresses = self.tls_listen.clone();
            if addresses.is_empty() {
                addresses.push(SocketAddr::from(([127, 0, 0, 1], DEFAULT_TLS_PORT)));
            }
            let clients = match self.require_client_cert {
                true => ClientCertificates::Required,
                false => ClientCertificates::Optional,
            };
            let client_roots = self.client_ca.clone().map(|roots| (roots, clients));
            return Some((addresses, TlsFiles { certificate, key, client_roots }));
        }
        // ZooKeeper's PEM key stores contain both in one file.
        let (address, both) = file.secure()?;
        let client_roots = file.client_roots().map(|(roots, clients)| (roots.into(), clients));
        let (certificate, key) = (both.to_owned(), both.to_owned());
        Some((vec![address], TlsFiles { certificate, key, client_roots }))
    }
}

/// Parses `127.0.0.1:2181` or `localhost:2181`.
fn address(text: &str) -> Result<SocketAddr, String> {
    let explain = |why: &str| format!("{why}; use the form 127.0.0.1:2181");
    let mut found = text.to_socket_addrs().map_err(|error| explain(&error.to_string()))?;
    found.next().ok_or_else(|| explain("the name has no address"))
}
