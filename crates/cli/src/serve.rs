//! `lockkeeper serve`: the engine in the foreground.

mod limits;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lockkeeper_engine::{
    Builder, ClientCertificates, Durability, Engine, StartError, Tls, TlsError, read_pem,
};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use self::limits::Limits;
use crate::args::Directory;
use crate::exit::{Exit, Failure};
use crate::zoo_cfg::ZooCfg;
use crate::{allocator, local, names};

const DEFAULT_PORT: u16 = 2181;

/// ZooKeeper has none of its own for TLS; this is the one that its documents use.
const DEFAULT_TLS_PORT: u16 = 2281;

/// Run a server that any ZooKeeper client can use
///
/// It stops on TERM and INT, and then every lock is still there at the next start, for as long as
/// its session lasts. What the command line says goes before the configuration file.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// ZooKeeper's configuration file; keys that have no effect here are named in the log
    #[arg(long, value_name = "ZOO.CFG")]
    config: Option<PathBuf>,

    /// Where to listen [default: 127.0.0.1:2181]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Vec<SocketAddr>,

    /// Where to keep the data [default: a directory `serve` in LOCKKEEPER_HOME]; with durability
    /// memory, the file DIR.floor beside it is all that is kept
    #[arg(long, value_name = "DIR")]
    data_dir: Option<Directory>,

    /// What a reply promises: sync (survives a power cut), os (survives kill -9) or memory
    #[arg(long, value_name = "sync|os|memory", default_value = "sync")]
    durability: Durability,

    /// The unit of session expiry; sessions last 2 to 20 of these [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = names::some_time)]
    tick: Option<Duration>,

    /// How long no session begins after a restore, or a restart in memory: clients of the engine
    /// before may still hold locks; 0s if that is impossible [default: the longest session timeout]
    #[arg(long, value_name = "DURATION", value_parser = names::duration)]
    quiet_time: Option<Duration>,

    /// Listen where other machines can reach it, although nothing is encrypted
    #[arg(long)]
    allow_plaintext: bool,

    /// Serve metrics for Prometheus, at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    metrics: Option<SocketAddr>,

    /// Answer these of ZooKeeper's four-letter words too, such as mntr,stat, or * for all of them
    /// [default: srvr, ruok and isro]
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    four_letter_words: Vec<String>,

    /// Who may do everything, in ZooKeeper's format: user:base64(sha1(user:password))
    #[arg(long, value_name = "USER:HASH", env = "LOCKKEEPER_SUPER_DIGEST", hide_env_values = true)]
    super_digest: Option<SuperDigest>,

    /// Let clients create nodes with a time to live
    #[arg(long)]
    ttl_nodes: bool,

    /// Refuse what exceeds a hard quota, rather than keep the books only
    #[arg(long)]
    enforce_quotas: bool,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    tls: TlsOptions,
}

/// Encryption.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
struct TlsOptions {
    /// Where to listen with TLS [default: 127.0.0.1:2281]; without --listen, nowhere else
    #[arg(long, value_name = "ADDRESS:PORT", requires = "cert", value_parser = address)]
    tls_listen: Vec<SocketAddr>,

    /// The server's certificate, with the chain up to its root: a PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// The certificate's private key: a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Who issues the certificates that clients may show: a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,

    /// Refuse clients that show no certificate
    #[arg(long, requires = "client_ca")]
    require_client_cert: bool,
}

/// A user and the hash of a password; never printed.
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
pub(crate) async fn serve(options: Options) -> Result<u8, Failure> {
    let builder = builder(options)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(refused)?;
    // From here on a file that reaches its limit is an error of the disk, as a full one is.
    let _file_size = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map_err(refused)?;
    // Large data takes its time. What was acknowledged is on the disk, so nothing is lost if the
    // process ends meanwhile.
    let started = tokio::select! {
        started = builder.start() => started,
        _ = interrupt.recv() => return Ok(Exit::Ok.code()),
        _ = terminate.recv() => return Ok(Exit::Ok.code()),
        _ = hangup.recv() => return Ok(Exit::Ok.code()),
    };
    let engine = started.map_err(|error| match error {
        StartError::Plaintext { .. } => Failure::from(error).advise("see --allow-plaintext"),
        error => Failure::from(error),
    })?;
    let connect = engine.connect_string();
    let trust = if connect.starts_with("tls://") { " --tls-ca CA.pem" } else { "" };
    tracing::info!("ready; try: lockkeeper --connect {connect}{trust} run demo/hello -- echo hi");
    tokio::select! {
        ended = engine.stopped() => ended?,
        _ = interrupt.recv() => tracing::info!("INT: stopping"),
        _ = terminate.recv() => tracing::info!("TERM: stopping"),
        _ = hangup.recv() => tracing::info!("HUP: stopping"),
    }
    engine.stop().await?;
    Ok(Exit::Ok.code())
}

fn refused(error: std::io::Error) -> Failure {
    Failure::new(Exit::System, format!("the system does not let signals be handled: {error}"))
}

/// The settings: the command line, then the file, then the defaults.
fn builder(options: Options) -> Result<Builder, Failure> {
    let file = match &options.config {
        Some(path) => ZooCfg::read(path)?,
        None => ZooCfg::default(),
    };
    file.check_security(options.tls.cert.is_some())?;
    file.warn();
    let tls = options.tls.settings(&file)?;
    let mut listen = options.listen;
    if listen.is_empty() {
        let default = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT));
        listen.extend(file.address().or(tls.is_none().then_some(default)));
    }
    // What the file says comes first, so that the command line has the last word.
    let engine = Engine::builder().at_rest(allocator::give_back);
    let mut builder = file.apply(engine.durability(options.durability));
    builder = options.limits.apply(builder);
    builder = listen.into_iter().fold(builder, Builder::listen);
    if let Some((addresses, tls)) = tls {
        let with_tls = |builder: Builder, address| builder.listen_tls(address, tls.clone());
        builder = addresses.into_iter().fold(builder, with_tls);
    }
    let given = options.data_dir.or(file.data_dir.clone());
    let in_memory = options.durability == Durability::Memory;
    match given.map_or_else(local::served_data, Ok) {
        Ok(directory) => builder = builder.data_dir(directory),
        Err(failure) if in_memory => tracing::warn!(
            "the next engine will know nothing of this one: it gives smaller tokens if the clock is \
             set back, and has no quiet time unless it is told one ({failure})"
        ),
        Err(failure) => return Err(failure),
    }
    if let Some(time) = options.quiet_time {
        builder = builder.quiet_time(time);
    }
    if options.allow_plaintext {
        builder = builder.allow_plaintext();
    }
    if let Some(tick) = options.tick.or(file.tick) {
        builder = builder.tick(tick);
    }
    if let Some(address) = options.metrics {
        builder = builder.metrics_address(address);
    }
    if let Some(SuperDigest(digest)) = options.super_digest.filter(|digest| !digest.0.is_empty()) {
        builder = builder.super_digest(digest);
    }
    if options.ttl_nodes {
        builder = builder.allow_ttl_nodes();
    }
    if options.enforce_quotas {
        builder = builder.enforce_quotas();
    }
    Ok(options.four_letter_words.into_iter().fold(builder, Builder::four_letter_word))
}

impl TlsOptions {
    /// Where to listen with TLS, and how, if at all.
    fn settings(&self, file: &ZooCfg) -> Result<Option<(Vec<SocketAddr>, Tls)>, Failure> {
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            let mut addresses = self.tls_listen.clone();
            if addresses.is_empty() {
                addresses.push(SocketAddr::from(([127, 0, 0, 1], DEFAULT_TLS_PORT)));
            }
            let clients = match self.require_client_cert {
                true => ClientCertificates::Required,
                false => ClientCertificates::Optional,
            };
            let roots = self.client_ca.as_deref().map(|roots| (roots, clients));
            return Ok(Some((addresses, tls(cert, key, roots)?)));
        }
        match file.secure() {
            // ZooKeeper's PEM key stores have both in one file.
            Some((address, both)) => {
                Ok(Some((vec![address], tls(both, both, file.client_roots())?)))
            }
            None => Ok(None),
        }
    }
}

fn tls(
    cert: &Path,
    key: &Path,
    roots: Option<(&Path, ClientCertificates)>,
) -> Result<Tls, Failure> {
    let read = |path: &Path| read_pem(path).map_err(|error| unusable(error, None));
    let (certificate, private) = (read(cert)?, read(key)?);
    let tls = match roots {
        None => Tls::from_pem(&certificate, &private),
        Some((roots, clients)) => {
            Tls::with_client_roots(&certificate, &private, &read(roots)?, clients)
        }
    };
    tls.map_err(|error| unusable(error, Some((cert, key))))
}

fn unusable(error: TlsError, files: Option<(&Path, &Path)>) -> Failure {
    let failure = Failure::new(Exit::Config, error.to_string());
    match files {
        Some((cert, key)) => failure.about(&format!("{}, {}", cert.display(), key.display())),
        None => failure,
    }
}

/// Reads `127.0.0.1:2181` or `localhost:2181`.
fn address(text: &str) -> Result<SocketAddr, String> {
    let explain = |why: &str| format!("{why}; write it like 127.0.0.1:2181");
    let mut found = text.to_socket_addrs().map_err(|error| explain(&error.to_string()))?;
    found.next().ok_or_else(|| explain("the name has no address"))
}
