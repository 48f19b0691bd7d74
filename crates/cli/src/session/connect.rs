//! From the options to a session.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockkeeper::{
    Client, ClientBuilder, ConnectError, ConnectString, Contact, DefaultAcl, Tls, TlsError,
};
use lockkeeper_engine::files::read_regular_file;
use lockkeeper_engine::read_pem;
use serde::{Deserialize, Serialize};

use crate::local::address;
use crate::local::home::Home;
use crate::local::start::{self, LocalEngine, LocalSession};
use crate::shared::config::Source;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::{Digest, Global};
use crate::shared::output::tell;
use crate::shared::roots;

/// How long the first connection may take, unless the options say.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// After this, the user is told what the command is waiting for.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many bytes of a file with credentials are read.
const LONGEST_DIGEST: u64 = 64 * 1024;

/// The permissions of the group and of everyone else to read and to write.
const OTHERS: u32 = 0o066;

/// How long the answers to the deletion of what is left, and to the end of the session, are waited for. A
/// server that is slow does later what it was sent; the session of one that hangs expires.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// A session, and how another process would get one.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// A connection string for the same servers.
    pub(crate) servers: String,
    /// What the servers ask for.
    pub(crate) access: Access,
    /// The engine of this machine, if that is the server.
    pub(crate) engine: Option<LocalEngine>,
    /// Whether the user, or a run around this command, has named the server.
    is_named: bool,
}

impl Connection {
    /// Starts a session with the servers of the options, or with this machine's engine, which is
    /// started if need be.
    pub(crate) async fn open(global: &Global) -> Result<Self, Failure> {
        let connection = Self::open_within(global, &mut None).await?;
        if let Some(engine) = connection.unnamed_engine() {
            engine.announce();
        }
        Ok(connection)
    }

    /// A session with servers that are there, within this time: starts no engine, and says nothing.
    pub(crate) async fn with_what_runs(global: &Global, limit: Duration) -> Result<Self, Failure> {
        let access = Access::of(global)?;
        let builder = with_terms(global, access.builder()?).connect_timeout(limit);
        let servers = match ChosenServer::of(global)? {
            ChosenServer::Remote(servers) => servers,
            ChosenServer::Local(home) if home.socket().exists() => {
                home.connect_string().parse().map_err(ConnectError::from)?
            }
            ChosenServer::Local(_) => {
                return Err(Failure::new(Exit::NoServer, "no engine is running"));
            }
        };
        Self::remote(builder, &servers, access, limit).await
    }

    /// Does something in a session of its own, which is closed whatever comes of it.
    pub(crate) async fn during<T>(
        global: &Global,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let connection = Self::open(global).await?;
        let result = work(&connection).await;
        connection.close().await;
        result
    }

    /// Tells a user who takes or awaits a lock whose locks this machine's engine has, if that could be a
    /// surprise.
    pub(crate) fn introduce_engine(&self, global: &Global) {
        if let Some(engine) = self.unnamed_engine().filter(|_| !global.quiet) {
            engine.introduce();
        }
    }

    /// The engine of this machine, if it is the server because no servers are named.
    pub(crate) fn unnamed_engine(&self) -> Option<&LocalEngine> {
        self.engine.as_ref().filter(|_| !self.is_named)
    }

    /// The same for somebody who waits for so long, and then for what is left of it, without a word
    /// about the engine.
    pub(crate) async fn open_within(
        global: &Global,
        time: &mut Option<Duration>,
    ) -> Result<Self, Failure> {
        let began = Instant::now();
        let patience = time.map_or(CONNECT_LIMIT, |time| time.max(start::LEAST_PATIENCE));
        let limit = global.connect_timeout.unwrap_or(patience);
        let access = Access::of(global)?;
        let builder = with_terms(global, access.builder()?).connect_timeout(limit);

        let connection = match ChosenServer::of(global)? {
            ChosenServer::Remote(servers) => Self::remote(builder, &servers, access, limit).await?,
            ChosenServer::Local(home) => {
                let limit = global.connect_timeout.or(*time);
                let LocalSession { client, engine, servers } =
                    start::with_engine(home, builder, limit).await?;
                let is_named = global.connect().is_some();
                Self { client, servers, access, engine: Some(engine), is_named }
            }
        };

        connection.compare_timeouts(global);
        *time = time.map(|time| time.saturating_sub(began.elapsed()));
        Ok(connection)
    }

    /// Tells the user if the session timeout is another than the one that they asked for.
    fn compare_timeouts(&self, global: &Global) {
        let (wanted, granted) = (global.session_timeout, self.client.session_timeout());
        let is_wish = matches!(global.settings.source("session-timeout"), Source::Option(_));
        if is_wish && granted != wanted {
            tell(&format!(
                "the server granted a session timeout of {granted:?} and not {wanted:?}: it has \
                 limits of its own"
            ));
        }
    }

    async fn remote(
        builder: ClientBuilder,
        servers: &ConnectString,
        access: Access,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let servers = servers.to_string();
        let client = patiently(builder, &servers, limit).await.map_err(|error| {
            let advice = match &error {
                ConnectError::NotZooKeeper(_) => "for TLS write tls://HOST:PORT, and give --tls-ca",
                ConnectError::Untrusted(_) => access.advice(),
                ConnectError::Unreachable(_) => "check --connect, and that a server runs there",
                _ => return Failure::from(error),
            };
            Failure::from(error).advise(advice)
        })?;
        Ok(Self { client, servers, access, engine: None, is_named: true })
    }

    /// Starts this machine's engine again whenever it dies, for those who wait; they keep their
    /// places. Ends only if that fails.
    pub(crate) async fn keep_engine(&self) -> Failure {
        match &self.engine {
            Some(engine) => engine.keep(&self.client).await,
            None => std::future::pending().await,
        }
    }

    /// Makes sure that what was last heard of a lock may still be so, at the end of a wait.
    pub(crate) fn still_there(&self, lock: &str) -> Result<(), Failure> {
        if self.client.contact() == Contact::Connected {
            return Ok(());
        }
        let message =
            format!("{lock} was not free in time, and no server could be reached at last");
        Err(Failure::new(Exit::NoServer, message).advise("check that the servers run"))
    }

    /// Ends the session, and with it whatever is left of it on the server.
    pub(crate) async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE_LIMIT, self.client.close()).await;
    }
}

/// Where the locks are.
enum ChosenServer {
    Remote(ConnectString),
    /// The engine in this home, which is started if need be.
    Local(Home),
}

impl ChosenServer {
    fn of(global: &Global) -> Result<Self, Failure> {
        let Some(servers) = global.connect() else {
            return match global.requires_servers() {
                true => Err(global.no_servers()),
                false => address::default().map(Self::Local),
            };
        };
        let servers = servers.parse::<ConnectString>().map_err(|error| {
            let by = global.settings.source("connect").to_string();
            Failure::from(ConnectError::from(error)).about(&by)
        })?;

        // An engine of this machine is a server like any other to those who want none started.
        let local = match global.requires_servers() {
            true => None,
            false => address::home(&servers)?,
        };
        Ok(local.map_or(Self::Remote(servers), Self::Local))
    }
}

/// Connects, and tells the user if that takes a while. If the end of it comes soon after, that tells enough.
async fn patiently(
    builder: ClientBuilder,
    servers: &str,
    limit: Duration,
) -> Result<Client, ConnectError> {
    let connected = builder.connect(servers);
    tokio::pin!(connected);
    if limit < 2 * PATIENCE {
        return connected.await;
    }
    if let Ok(connected) = tokio::time::timeout(PATIENCE, &mut connected).await {
        return connected;
    }
    tell(&format!("no answer from {servers} yet; giving up after {limit:?}"));
    connected.await
}

/// What servers ask of their clients, as the options say it. It can be handed to another process;
/// the digest is secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Access {
    digest: Option<Digest>,
    digest_file: Option<PathBuf>,
    #[serde(skip)]
    acl: Option<DefaultAcl>,
    tls_ca: Option<PathBuf>,
    /// Whether the roots that this system trusts are trusted: the servers speak TLS, and no others are given.
    system_roots: bool,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_name: Option<String>,
}

impl Access {
    fn of(global: &Global) -> Result<Self, Failure> {
        let digest_file = global.credentials_file()?;
        let digest = match digest_file {
            Some(file) => Some(read_digest(file)?),
            None => global.digest.clone(),
        };
        let servers = global.connect().and_then(|servers| servers.parse::<ConnectString>().ok());
        let speak_tls = servers.is_some_and(|servers| servers.tls);
        Ok(Self {
            digest,
            digest_file: digest_file.map(Path::to_owned),
            acl: global.acl.clone(),
            tls_ca: global.tls_ca.clone(),
            system_roots: speak_tls && global.tls_ca.is_none(),
            tls_cert: global.tls_cert.clone(),
            tls_key: global.tls_key.clone(),
            tls_name: global.tls_name.clone(),
        })
    }

    /// By which a run within this one reaches the same servers: the files, wherever it runs. Credentials of the
    /// command line and the environment are not handed on.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let file = |name, path: &Option<PathBuf>| {
            let path = path.as_ref().and_then(|path| std::path::absolute(path).ok());
            path.map(|path| (name, path.into_os_string()))
        };
        let name = self.tls_name.as_ref().map(|name| ("LOCKKEEPER_TLS_NAME", name.into()));
        let files = [
            file("LOCKKEEPER_DIGEST_FILE", &self.digest_file),
            file("LOCKKEEPER_TLS_CA", &self.tls_ca),
            file("LOCKKEEPER_TLS_CERT", &self.tls_cert),
            file("LOCKKEEPER_TLS_KEY", &self.tls_key),
        ];
        files.into_iter().flatten().chain(name)
    }

    /// Whether there is anything by which the servers know who this is.
    pub(crate) fn shows_credentials(&self) -> bool {
        self.digest.is_some() || self.tls_cert.is_some()
    }

    /// A client with this, and with the defaults otherwise.
    pub(crate) fn builder(&self) -> Result<ClientBuilder, Failure> {
        let builder = self.plain_builder();
        Ok(match self.tls()? {
            Some(tls) => builder.tls(tls),
            None => builder,
        })
    }

    /// What to do when client and servers do not trust each other.
    fn advice(&self) -> &'static str {
        match self.tls_cert {
            _ if self.system_roots => {
                "give their root certificates with --tls-ca: without it, those that this system trusts count"
            }
            Some(_) => "check --tls-ca, --tls-name, and --tls-cert with its --tls-key",
            None => {
                "check --tls-ca and --tls-name; a server that asks for a certificate needs \
                 --tls-cert and --tls-key"
            }
        }
    }

    fn plain_builder(&self) -> ClientBuilder {
        let builder = match &self.digest {
            Some(digest) => Client::builder().digest(&digest.user, &digest.password),
            None => Client::builder(),
        };
        match &self.acl {
            Some(acl) => builder.default_acl(acl.clone()),
            None => builder,
        }
    }

    /// Which servers to trust, if anything is to be encrypted.
    fn tls(&self) -> Result<Option<Tls>, Failure> {
        let read = |path: &PathBuf| read_pem(path).map_err(unusable);
        let pem = match &self.tls_ca {
            Some(file) => read(file)?,
            None if self.system_roots => roots::of_system()?,
            None => return Ok(None),
        };
        let named: Vec<_> = self.tls_ca.iter().collect();
        let trusting = Tls::from_pem(&pem).map_err(|error| about(error, &named))?;

        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let tls = Tls::with_identity(&pem, &read(certificate)?, &read(key)?);
                tls.map_err(|error| match error {
                    TlsError::NoCertificate => about(error, &[certificate]),
                    TlsError::NoKey => about(error, &[key]),
                    _ => about(error, &[certificate, key]),
                })?
            }
            (None, None) => trusting,
            _ => {
                let message = "--tls-cert and --tls-key belong together: give both, or none";
                return Err(Failure::new(Exit::Usage, message));
            }
        };

        match &self.tls_name {
            Some(name) => tls.server_name(name).map(Some).map_err(unusable),
            None => Ok(Some(tls)),
        }
    }
}

/// Reads credentials from a file that only its owner can read or write.
fn read_digest(file: &Path) -> Result<Digest, Failure> {
    let name = format!("credentials in {}", file.display());
    let failed = |error: io::Error| unusable(error).about(&name);
    // First: it is the only one of these with permissions that say anything.
    let content = match is_of_shell(file) {
        true => read_pipe(file),
        false => read_regular_file(file, LONGEST_DIGEST),
    };
    let content = content.map_err(failed)?;
    if fs::metadata(file).map_err(failed)?.permissions().mode() & OTHERS != 0 {
        let message =
            format!("others can read or write the credentials: chmod 600 {}", file.display());
        return Err(Failure::new(Exit::Config, message));
    }

    let text = String::from_utf8(content).map_err(|error| unusable(error).about(&name))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let credentials = text.trim_end_matches(['\n', '\r']);
    if credentials.contains(['\n', '\r']) {
        let message = "more than one line; write one user:password, and no more";
        return Err(unusable(message).about(&name));
    }
    Digest::read(credentials).map_err(|error| unusable(error).about(&name))
}

/// Whether this is what a shell hands over: `--digest-file <(pass show lock)`, or standard input. It has a writer.
fn is_of_shell(file: &Path) -> bool {
    let is_pipe = || fs::metadata(file).is_ok_and(|meta| meta.file_type().is_fifo());
    ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|of| file.starts_with(of)) && is_pipe()
}

#[expect(clippy::disallowed_methods, reason = "the kernel's name for a descriptor")]
fn read_pipe(file: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(file)?.take(LONGEST_DIGEST).read_to_end(&mut content)?;
    Ok(content)
}

/// Names the files that an error is about.
fn about(error: TlsError, files: &[&PathBuf]) -> Failure {
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    unusable(error).about(&files.join(", "))
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Config, error.to_string())
}

/// The options of a session.
pub(crate) fn builder(global: &Global) -> Result<ClientBuilder, Failure> {
    Ok(with_terms(global, Access::of(global)?.builder()?))
}

/// The same without encryption, for a server within this process.
pub(crate) fn plain_builder(global: &Global) -> Result<ClientBuilder, Failure> {
    Ok(with_terms(global, Access::of(global)?.plain_builder()))
}

fn with_terms(global: &Global, builder: ClientBuilder) -> ClientBuilder {
    builder
        .session_timeout(global.session_timeout)
        .lease(global.lease())
        .server_tick(global.server_tick)
        .strict_servers(global.strict_servers.unwrap_or_default())
        .connect_timeout(global.connect_timeout.unwrap_or(CONNECT_LIMIT))
}
