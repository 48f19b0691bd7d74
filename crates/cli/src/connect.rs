//! From the options to a session.

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper::{Client, ClientBuilder, ConnectError, ConnectString, Contact, Tls, ZnodePath};
use lockkeeper_engine::read_pem;

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::local::start::{self, LocalEngine};
use crate::output::tell;

/// How long the first connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// After this, the user is told what the command is waiting for.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the end of a session may take; afterwards it expires by itself.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// A session, and how another process would get one.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// A connection string for the same servers.
    pub(crate) servers: String,
    /// The engine of this machine, if that is the server.
    pub(crate) engine: Option<LocalEngine>,
}

impl Connection {
    /// Starts a session with the servers of the options, or with this machine's engine, which is
    /// started if need be.
    pub(crate) async fn open(global: &Global) -> Result<Self, Failure> {
        Self::open_within(global, None).await
    }

    /// The same for somebody who has so much time. A connection gets a second of it at least.
    pub(crate) async fn open_within(
        global: &Global,
        time: Option<Duration>,
    ) -> Result<Self, Failure> {
        let limit = time.map_or(CONNECT_LIMIT, |time| time.clamp(PATIENCE, CONNECT_LIMIT));
        let builder = builder(global)?.connect_timeout(limit);
        match global.connect() {
            Some(servers) => Self::remote(builder, servers, limit).await,
            None => start::with_engine(builder).await,
        }
    }

    async fn remote(
        builder: ClientBuilder,
        servers: &str,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let servers = match servers.parse::<ConnectString>() {
            Ok(servers) => servers.to_string(),
            Err(error) => return Err(Failure::from(ConnectError::from(error))),
        };
        let client = patiently(builder, &servers, limit).await.map_err(|error| {
            let is_stranger = matches!(error, ConnectError::NotZooKeeper(_));
            let failure = Failure::from(error);
            if is_stranger {
                failure.advise("for TLS write tls://HOST:PORT, and give --tls-ca")
            } else if failure.code() == Exit::NoServer.code() {
                failure.advise("check --connect, and that a server runs there")
            } else {
                failure
            }
        })?;
        Ok(Self { client, servers, engine: None })
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
    pub(crate) fn still_there(&self, lock: &ZnodePath) -> Result<(), Failure> {
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

/// Connects, and tells the user if that takes a while.
async fn patiently(
    builder: ClientBuilder,
    servers: &str,
    limit: Duration,
) -> Result<Client, ConnectError> {
    let connected = builder.connect(servers);
    tokio::pin!(connected);
    if let Ok(connected) = tokio::time::timeout(PATIENCE, &mut connected).await {
        return connected;
    }
    tell(&format!("no answer from {servers} yet; giving up after {limit:?}"));
    connected.await
}

/// The options of a session.
pub(crate) fn builder(global: &Global) -> Result<ClientBuilder, Failure> {
    let builder = plain_builder(global);
    Ok(match tls(global)? {
        Some(tls) => builder.tls(tls),
        None => builder,
    })
}

/// Whom to trust, if anything is to be encrypted.
fn tls(global: &Global) -> Result<Option<Tls>, Failure> {
    let read = |path: &PathBuf| read_pem(path).map_err(unusable);
    let Some(roots) = &global.tls_ca else { return Ok(None) };
    let tls = match (&global.tls_cert, &global.tls_key) {
        (Some(certificate), Some(key)) => {
            Tls::with_identity(&read(roots)?, &read(certificate)?, &read(key)?)
        }
        (None, None) => Tls::from_pem(&read(roots)?),
        _ => {
            let message = "--tls-cert and --tls-key belong together: give both, or none";
            return Err(Failure::new(Exit::Usage, message));
        }
    };
    let tls = tls.map_err(|error| unusable(error).about(&roots.display().to_string()))?;
    match &global.tls_name {
        Some(name) => tls.server_name(name).map(Some).map_err(unusable),
        None => Ok(Some(tls)),
    }
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Config, error.to_string())
}

/// The same without encryption, for a server within this process.
pub(crate) fn plain_builder(global: &Global) -> ClientBuilder {
    let builder = Client::builder()
        .session_timeout(global.session_timeout)
        .lease(global.lease())
        .server_tick(global.server_tick)
        .connect_timeout(CONNECT_LIMIT);
    match &global.digest {
        Some(digest) => builder.digest(&digest.user, &digest.password),
        None => builder,
    }
}
