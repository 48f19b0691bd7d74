//! Opens a session as the options require.

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
use crate::shared::{roots, view};

/// The default time limit for the first connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long a connection may take before a notice explains the wait.
const NOTICE_DELAY: Duration = Duration::from_secs(1);

/// The largest credentials file, in bytes.
const MAX_DIGEST_BYTES: u64 = 64 * 1024;

/// The permission bits of the group and of others to read and to write.
const OTHERS: u32 = 0o066;

/// How long to wait until left-over nodes are deleted and the session is closed. A slow server executes these
/// requests later. If a server hangs, the session expires.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// A session, and how another process can open one.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// A connection string for the same servers.
    pub(crate) servers: String,
    /// The security settings that the servers require.
    pub(crate) access: Access,
    /// The engine of this machine, if it is the server.
    pub(crate) engine: Option<LocalEngine>,
    /// Whether the user, or an outer run, has named the server.
    is_named: bool,
}

impl Connection {
    /// Opens a session with the configured servers, or with this machine's engine, which is started if necessary.
    pub(crate) async fn open(global: &Global) -> Result<Self, Failure> {
        let connection = Self::open_within(global, &mut None).await?;
        if let Some(engine) = connection.unnamed_engine() {
            engine.announce();
        }
        Ok(connection)
    }

    /// Opens a session with servers that already run, within a time limit. Starts no engine and prints no notices.
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

    /// Runs a task in its own session, and closes the session in every case.
    pub(crate) async fn during<T>(
        global: &Global,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let connection = Self::open(global).await?;
        let result = work(&connection).await;
        connection.close().await;
        result
    }

    /// Prints which engine keeps the locks, in cases that could surprise a user who acquires or awaits a lock.
    pub(crate) fn introduce_engine(&self, global: &Global) {
        if let Some(engine) = self.unnamed_engine().filter(|_| !global.quiet) {
            engine.introduce();
        }
    }

    /// The engine of this machine, if it is the server because no servers are configured.
    pub(crate) fn unnamed_engine(&self) -> Option<&LocalEngine> {
        self.engine.as_ref().filter(|_| !self.is_named)
    }

    /// Like [`Self::open`], for a caller that waits at most `wait` in total. Prints no notice about the engine.
    pub(crate) async fn open_within(
        global: &Global,
        time: &mut Option<Duration>,
    ) -> Result<Self, Failure> {
        let began = Instant::now();
        let patience = time.map_or(CONNECT_LIMIT, |time| time.max(start::MIN_CONNECT_TIME));
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

    /// Prints a notice if the session timeout differs from the requested one.
    fn compare_timeouts(&self, global: &Global) {
        let (wanted, granted) = (global.session_timeout, self.client.session_timeout());
        let is_wish = matches!(global.settings.source("session-timeout"), Source::Option(_));
        if is_wish && granted != wanted {
            tell(&format!(
                "the server granted a session timeout of {granted:?} instead of {wanted:?}, because of its \
                 own limits"
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
                ConnectError::NotZooKeeper(_) => "for TLS, use tls://HOST:PORT with --tls-ca",
                ConnectError::Untrusted(_) => access.advice(),
                ConnectError::Unreachable(_) => "check --connect, and that the servers are running",
                _ => return Failure::from(error),
            };
            Failure::from(error).advise(advice)
        })?;
        Ok(Self { client, servers, access, engine: None, is_named: true })
    }

    /// Restarts this machine's engine whenever it dies, for commands that wait for a lock. They keep their place in the
    /// queue. Returns only if the restart fails.
    pub(crate) async fn keep_engine(&self) -> Failure {
        match &self.engine {
            Some(engine) => engine.keep(&self.client).await,
            None => std::future::pending().await,
        }
    }

    /// Prints a notice when no server has been reachable for a session timeout, and one at the next connection. For
    /// commands that then continue to wait.
    pub(crate) fn tell_outages(&self, global: &Global) {
        if global.quiet {
            return;
        }
        let mut status = self.client.status();
        tokio::spawn(async move {
            while status.wait_for(|now| now.contact == Contact::Unreachable).await.is_ok() {
                tell("no server has been reachable for a session timeout; waiting for the servers");
                if status.wait_for(|now| now.contact == Contact::Connected).await.is_ok() {
                    tell("reconnected");
                }
            }
        });
    }

    /// Fails if the last known state of a lock may be outdated at the end of a wait.
    pub(crate) fn still_there(&self, lock: &str) -> Result<(), Failure> {
        if self.client.contact() == Contact::Connected {
            return Ok(());
        }
        let message = format!("{lock} was not free in time, and no server could be reached");
        Err(Failure::new(Exit::NoServer, message).advise("check that the servers are running"))
    }

    /// Closes the session, which deletes its ephemeral nodes on the server.
    pub(crate) async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE_LIMIT, self.client.close()).await;
    }
}

/// The servers that keep the locks.
enum ChosenServer {
    Remote(ConnectString),
    /// The engine in this home directory, which is started if necessary.
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

        // With `require-servers`, an engine of this machine is a server like any other, and is not started.
        let local = match global.requires_servers() {
            true => None,
            false => address::home(&servers)?,
        };
        Ok(local.map_or(Self::Remote(servers), Self::Local))
    }
}

/// Connects, and prints a notice if that takes long, unless the time limit is about to pass anyway.
async fn patiently(
    builder: ClientBuilder,
    servers: &str,
    limit: Duration,
) -> Result<Client, ConnectError> {
    let connected = builder.connect(servers);
    tokio::pin!(connected);
    if limit < 2 * NOTICE_DELAY {
        return connected.await;
    }
    if let Ok(connected) = tokio::time::timeout(NOTICE_DELAY, &mut connected).await {
        return connected;
    }
    tell(&format!("no answer from {servers} yet; giving up after {}", view::duration(limit)));
    connected.await
}

/// The security settings that servers require from clients, from the options. They can be passed to another process;
/// the digest is secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Access {
    digest: Option<Digest>,
    digest_file: Option<PathBuf>,
    #[serde(skip)]
    acl: Option<DefaultAcl>,
    tls_ca: Option<PathBuf>,
    /// Whether to trust the system's root certificates: the servers use TLS, and no other certificates are configured.
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

    /// The variables by which an inner run reaches the same servers. They contain absolute paths of files, but no
    /// credentials of the command line or the environment.
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

    /// Whether the client authenticates to the servers.
    pub(crate) fn shows_credentials(&self) -> bool {
        self.digest.is_some() || self.tls_cert.is_some()
    }

    /// A client builder with these settings, and otherwise the defaults.
    pub(crate) fn builder(&self) -> Result<ClientBuilder, Failure> {
        let builder = self.plain_builder();
        Ok(match self.tls()? {
            Some(tls) => builder.tls(tls),
            None => builder,
        })
    }

    /// Advice if the client and the servers do not trust each other.
    fn advice(&self) -> &'static str {
        match self.tls_cert {
            _ if self.system_roots => {
                "name their root certificates with --tls-ca; without it, only those of this system are trusted"
            }
            Some(_) => "check --tls-ca, --tls-name, and --tls-cert with its --tls-key",
            None => {
                "check --tls-ca and --tls-name; a server that requires a client certificate needs \
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

    /// The TLS settings, if the connection is encrypted.
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
                let message = "--tls-cert and --tls-key must be used together";
                return Err(Failure::new(Exit::Usage, message));
            }
        };

        match &self.tls_name {
            Some(name) => tls.server_name(name).map(Some).map_err(unusable),
            None => Ok(Some(tls)),
        }
    }
}

/// Reads credentials from a file that only its owner may read or write.
fn read_digest(file: &Path) -> Result<Digest, Failure> {
    let name = format!("credentials in {}", file.display());
    let failed = |error: io::Error| unusable(error).about(&name);
    // Checked first: only a regular file has meaningful permissions.
    let content = match is_of_shell(file) {
        true => read_pipe(file),
        false => read_regular_file(file, MAX_DIGEST_BYTES),
    };
    let content = content.map_err(failed)?;
    if fs::metadata(file).map_err(failed)?.permissions().mode() & OTHERS != 0 {
        let message =
            format!("other users can read or write the credentials: chmod 600 {}", file.display());
        return Err(Failure::new(Exit::Config, message));
    }

    let text = String::from_utf8(content).map_err(|error| unusable(error).about(&name))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let credentials = text.trim_end_matches(['\n', '\r']);
    if credentials.contains(['\n', '\r']) {
        let message = "it must contain exactly one line: user:password";
        return Err(unusable(message).about(&name));
    }
    Digest::read(credentials).map_err(|error| unusable(error).about(&name))
}

/// Whether the file is a pipe from the shell, as in `--digest-file <(pass show lock)`, or standard input.
fn is_of_shell(file: &Path) -> bool {
    let is_pipe = || fs::metadata(file).is_ok_and(|meta| meta.file_type().is_fifo());
    ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|of| file.starts_with(of)) && is_pipe()
}

#[expect(clippy::disallowed_methods, reason = "the kernel's name for a descriptor")]
fn read_pipe(file: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(file)?.take(MAX_DIGEST_BYTES).read_to_end(&mut content)?;
    Ok(content)
}

/// Adds the names of the files to an error.
fn about(error: TlsError, files: &[&PathBuf]) -> Failure {
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    unusable(error).about(&files.join(", "))
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Config, error.to_string())
}

/// A client builder with the session options.
pub(crate) fn builder(global: &Global) -> Result<ClientBuilder, Failure> {
    Ok(with_terms(global, Access::of(global)?.builder()?))
}

/// The same without encryption, for a server in this process.
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
