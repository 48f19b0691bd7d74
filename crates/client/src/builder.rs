//! ClientBuilder: the options of a client, and its first connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_session::{Config, Contact, Credentials, LeaseMode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

use crate::client::Client;
use crate::connect_string::{ConnectString, Host};
use crate::default_acl::DefaultAcl;
use crate::dial::{Dialer, Tried};
use crate::driver::{DrivenSession, Failures, drive};
use crate::error::ConnectError;
use crate::fault::FaultKind;
use crate::identity::SessionIdentity;
use crate::runtime::{Runtime, TokioRuntime};
use crate::service::Service;
use crate::shared::Shared;

impl Client {
    /// Connects with the default options. Costs the same as [`ClientBuilder::connect`].
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    ///
    /// # Session loss
    /// As [`ClientBuilder::connect`].
    ///
    /// # Cancel safety
    /// As [`ClientBuilder::connect`].
    ///
    /// # Panics
    /// As [`ClientBuilder::connect`].
    pub async fn connect(servers: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(servers).await
    }

    /// The options of a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}

/// The options of a [`Client`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `connect` is called"]
pub struct ClientBuilder {
    config: Config,
    runtime: Arc<dyn Runtime>,
    /// Whether the runtime encrypts connections with TLS.
    encrypts: bool,
    connect_timeout: Duration,
    strict_servers: bool,
    /// `None`: chosen by the credentials.
    acl: Option<DefaultAcl>,
    #[cfg(feature = "rehearsal")]
    rehearsal: Option<crate::rehearsal::Rehearsal>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            config: Config::default(),
            runtime: Arc::new(TokioRuntime::default()),
            encrypts: false,
            connect_timeout: Duration::from_secs(10),
            strict_servers: false,
            acl: None,
            #[cfg(feature = "rehearsal")]
            rehearsal: None,
        }
    }
}

impl ClientBuilder {
    lockkeeper_wire::setters! {
        /// The session timeout to request: how long the servers keep a session that they do not hear from.
        /// Servers limit it, usually to between 2 and 20 of their ticks (4 s to 40 s). Default: 15 s, with
        /// which locks survive an outage of more than 8 s; see [`Timing`](crate::Timing). Connecting fails if
        /// it is less than 1 ms or more than 2,147,483,647 ms.
        pub fn session_timeout(self, timeout: Duration) => self.config.session_timeout = timeout;

        /// What proves that the session is alive. Default: [`LeaseMode::Quorum`], which is correct for every
        /// service. Use [`LeaseMode::Direct`] only for a standalone server.
        pub fn lease(self, mode: LeaseMode) => self.config.lease = mode;

        /// The servers' `tickTime`. A longer value shortens leases under [`LeaseMode::Quorum`]; a value below
        /// the real `tickTime` makes them unsafe. Default: 2 s.
        pub fn server_tick(self, tick: Duration) => self.config.server_tick = tick;

        /// Whether reads never go back from one session to the next: servers that have not applied everything
        /// that an earlier session of this client has seen are skipped. When all servers have been behind for
        /// longer than a session can last, because they were wiped or restored, any server is accepted again,
        /// and [`Status::rewinds`](crate::Status::rewinds) increases. Default: `false`: a new session starts
        /// at the first server that answers.
        pub fn reads_go_forward(self, wanted: bool) => self.config.reads_go_forward = wanted;

        /// The largest message to send or accept, in bytes (`jute.maxbuffer`). Default: 1,048,575. A read
        /// with a longer reply fails: see [`Error::answer_too_long`](crate::Error::answer_too_long).
        pub fn max_frame(self, bytes: usize) => self.config.max_frame = bytes;
    }

    /// Authenticates with `user:password` and the scheme `digest` at every server. Without TLS, the password
    /// is sent in clear text.
    pub fn digest(self, user: &str, password: &str) -> Self {
        self.credentials("digest", format!("{user}:{password}"))
    }

    lockkeeper_wire::setters! {
        /// Authenticates with credentials of any scheme at every server.
        pub fn credentials(self, scheme: &str, secret: impl Into<Bytes>) =>
            self.config.credentials.push(Credentials { scheme: scheme.into(), secret: secret.into() });

        /// The access control list of the znodes that the client creates: contenders in a queue, missing
        /// parents, and auxiliary znodes. Default: [`DefaultAcl::Creator`] if there are credentials of the
        /// scheme `digest`, otherwise [`DefaultAcl::Open`].
        pub fn default_acl(self, acl: DefaultAcl) => self.acl = Some(acl);

        /// The time limit of the first connection, which may be longer than the session timeout. Default: 10
        /// s.
        pub fn connect_timeout(self, timeout: Duration) => self.connect_timeout = timeout;

        /// Whether to grant a lock only after a majority of the servers in the connection string have been
        /// shown to be one service; see [`Client::prove_one_service`]. With the default, `false`, unreachable
        /// servers are skipped with a warning. In both cases, servers that turn out to be different services
        /// are an error.
        pub fn strict_servers(self, wanted: bool) => self.strict_servers = wanted;
    }

    /// Uses TLS with every server except Unix sockets, whether or not the connection string begins with
    /// `tls://`.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::tls::Tls) -> Self {
        self.runtime = Arc::new(crate::tls::Encrypted::new(tls));
        self.encrypts = true;
        self
    }

    lockkeeper_wire::setters! {
        /// Lets a test inject faults into the client; see [`Rehearsal`](crate::Rehearsal).
        #[cfg(feature = "rehearsal")]
        pub fn rehearsal(self, rehearsal: &crate::rehearsal::Rehearsal) =>
            self.rehearsal = Some(rehearsal.clone());

        /// Replaces the clock, the network, the source of identifiers and the spawning of tasks. For
        /// simulations.
        #[doc(hidden)]
        pub fn runtime(self, runtime: Arc<dyn Runtime>) => self.runtime = runtime;
    }

    /// Connects to one of the servers and starts a session. A task of the current tokio runtime then keeps
    /// the session alive until the last clone of the client is dropped. When that runtime ends first, the
    /// client is closed: all its requests fail, and the servers expire the session after its timeout. Other
    /// runtimes may use the client too, and may end. Costs a connection and one round trip for each server
    /// that is tried.
    ///
    /// # Errors
    /// If the connection string is malformed, an option is out of range, no server accepts a session within
    /// the connect timeout (the error gives the reason for each server), or the granted session timeout is
    /// too short for a lease. Fails at once if none of the servers speaks the ZooKeeper protocol, or if no
    /// server and client trust each other's certificates. Also fails if a server refuses the credentials
    /// before this method returns; a later refusal closes the client.
    ///
    /// # Session loss
    /// The client starts the next session automatically; see [`Client`].
    ///
    /// # Cancel safety
    /// Safe: no task or connection is left.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub async fn connect(self, servers: &str) -> Result<Client, ConnectError> {
        let (client, failed) = self.begin(servers)?;
        first_connection(&client, failed, self.connect_timeout).await?;
        lease_fits(&client)?;
        Ok(client)
    }

    /// Creates a client like [`ClientBuilder::connect`], but returns without waiting for a server. For
    /// programs that are useful without servers, for example because they keep the last known value on disk.
    /// Requests wait for the first connection, each for at most a session timeout ([`Client::reachable`]
    /// waits for longer). [`Client::status`] shows whether the client is connected.
    ///
    /// # Errors
    /// If the connection string is malformed or asks for TLS without trusted roots, or an option is out of
    /// range. The other failures of [`ClientBuilder::connect`] show up later: refused credentials close the
    /// client, and no lock is granted if the session timeout is too short for a lease.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn connect_later(self, servers: &str) -> Result<Client, ConnectError> {
        Ok(self.begin(servers)?.0)
    }

    /// Ends a session that another process has left behind, including all its ephemeral nodes. Call it only
    /// when that process certainly no longer acts on its locks.
    ///
    /// Takes at most the connect timeout, and at most the session timeout, after which the session has
    /// expired anyway. Costs a connection and two round trips.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    ///
    /// # Session loss
    /// Succeeds if the session has already ended.
    ///
    /// # Cancel safety
    /// The session continues to be closed in the background.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub async fn close_session(
        self,
        servers: &str,
        session: &SessionIdentity,
    ) -> Result<(), ConnectError> {
        let servers = self.checked(servers)?;
        let limit = self.connect_timeout.min(session.timeout);
        let shared = Shared::resuming(Arc::clone(&self.runtime), self.config.clone(), session);
        let (client, failed) = self.start(servers, shared);

        let closed = client.close();
        let mut no_hope = failed.clone();
        tokio::select! {
            biased;
            () = closed => return Ok(()),
            _ = no_hope.wait_for(|tried| tried.hopeless.is_some()) => {}
            () = tokio::time::sleep(limit) => {}
        }
        let tried = failed.borrow().clone();
        Err(no_session(tried))
    }

    /// Sends a four-letter word, such as `srvr`, to one server and returns the reply. The connection is of
    /// the same kind as the client's: encrypted, or a Unix socket. Servers answer only the words that they
    /// are configured for. Costs a connection and one round trip.
    ///
    /// # Errors
    /// If the connection fails or breaks.
    ///
    /// # Session loss
    /// No effect: no session is needed.
    ///
    /// # Cancel safety
    /// Safe. There is no time limit: a peer that is not a ZooKeeper server may keep the connection open.
    pub async fn ask_word(&self, host: &Host, word: &str) -> io::Result<String> {
        ask(self.runtime.connect(host, None).await?.into_stream(), word).await
    }

    /// Starts a new session.
    #[cfg(not(feature = "rehearsal"))]
    fn begin(&self, servers: &str) -> Result<(Client, watch::Receiver<Tried>), ConnectError> {
        self.begin_in(&self.runtime, servers)
    }

    /// Starts a new session, in which a rehearsal may inject faults.
    #[cfg(feature = "rehearsal")]
    fn begin(&self, servers: &str) -> Result<(Client, watch::Receiver<Tried>), ConnectError> {
        let Some(rehearsal) = &self.rehearsal else { return self.begin_in(&self.runtime, servers) };
        let runtime = rehearsal.around(Arc::clone(&self.runtime));
        let begun = self.begin_in(&runtime, servers)?;
        rehearsal.is_of(&begun.0, &self.runtime);
        Ok(begun)
    }

    fn begin_in(
        &self,
        runtime: &Arc<dyn Runtime>,
        servers: &str,
    ) -> Result<(Client, watch::Receiver<Tried>), ConnectError> {
        let servers = self.checked(servers)?;
        let shared = Shared::new(Arc::clone(runtime), self.config.clone());
        Ok(self.start(servers, shared))
    }

    fn checked(&self, servers: &str) -> Result<ConnectString, ConnectError> {
        let servers: ConnectString = servers.parse()?;
        self.check_ranges()?;
        if servers.tls && !self.encrypts {
            return Err(ConnectError::NoTls);
        }
        Ok(servers)
    }

    /// Rejects values with which no session is possible. Not values that servers limit, or refuse with a
    /// reason.
    fn check_ranges(&self) -> Result<(), ConnectError> {
        let Config { session_timeout, server_tick, max_frame, .. } = &self.config;
        let refused =
            |option, value: String, range| Err(ConnectError::OutOfRange { option, value, range });

        if !(1..=MAX_TIMEOUT_MS).contains(&session_timeout.as_millis()) {
            let range =
                "1 ms to 2147483647 ms; servers grant 2 to 20 of their ticks, usually 4 s to 40 s";
            return refused("session timeout", format!("{session_timeout:?}"), range);
        }

        if !(1..=MAX_TIMEOUT_MS).contains(&server_tick.as_millis()) {
            let range = "1 ms to 2147483647 ms; it is the servers' tickTime, usually 2 s";
            return refused("servers' tick", format!("{server_tick:?}"), range);
        }

        if *max_frame < MIN_FRAME {
            let range = "1024 bytes or more; it is the servers' jute.maxbuffer, usually 1048575";
            return refused("largest frame", format!("{max_frame} bytes"), range);
        }
        Ok(())
    }

    fn chosen_acl(&self) -> DefaultAcl {
        // A client certificate is not considered: hosts that share a lock usually have one each.
        let has_digest = || self.config.credentials.iter().any(|shown| shown.scheme == "digest");
        let usual = || if has_digest() { DefaultAcl::Creator } else { DefaultAcl::Open };
        self.acl.clone().unwrap_or_else(usual)
    }

    /// Starts the task that keeps the session connected.
    pub(crate) fn start(
        &self,
        servers: ConnectString,
        shared: Shared,
    ) -> (Client, watch::Receiver<Tried>) {
        let service = Service::new(servers.hosts.clone(), self.strict_servers);
        let shared = Arc::new(shared);
        #[cfg(feature = "metrics")]
        crate::session_figures::begin(&shared);
        let dialer = Dialer::new(servers.hosts, Arc::clone(shared.runtime()));
        let failures = Failures::default();
        let failed = failures.subscribe();

        let acl = self.chosen_acl();
        let client = Client::new(Arc::clone(&shared), servers.chroot, &acl, service);
        let runtime = Arc::clone(shared.runtime());
        runtime.spawn(Box::pin(drive(DrivenSession(shared), dialer, failures)));
        (client, failed)
    }
}

/// The longest timeout that the protocol can express, in milliseconds.
const MAX_TIMEOUT_MS: u128 = i32::MAX as u128;

/// A smaller frame cannot hold the requests of a lock.
const MIN_FRAME: usize = 1024;

/// More than the reply to any four-letter word, in bytes.
const MAX_WORD_REPLY: u64 = 256 * 1024;

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, word: &str) -> io::Result<String> {
    stream.write_all(word.as_bytes()).await?;
    stream.flush().await?;

    let mut answer = Vec::new();
    match stream.take(MAX_WORD_REPLY).read_to_end(&mut answer).await {
        // Servers close encrypted connections without a `close_notify`.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
        _ => {}
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

async fn first_connection(
    client: &Client,
    mut tried: watch::Receiver<Tried>,
    timeout: Duration,
) -> Result<(), ConnectError> {
    let mut status = client.status();
    // Does not stop at `Unreachable`: the session timeout may be shorter than the requested connect timeout.
    let decided =
        status.wait_for(|status| matches!(status.contact, Contact::Connected | Contact::Closed));

    let mut no_hope = tried.clone();
    let contact = tokio::select! {
        biased;
        decided = decided => decided.map_or(Contact::Unreachable, |status| status.contact),
        _ = no_hope.wait_for(|tried| tried.hopeless.is_some()) => Contact::Unreachable,
        () = tokio::time::sleep(timeout) => Contact::Unreachable,
    };

    let tried = tried.borrow_and_update().clone();
    match contact {
        Contact::Connected => Ok(()),
        // A client that has not been returned yet is closed only by refused credentials.
        Contact::Closed => Err(ConnectError::AuthFailed),
        _ => Err(no_session(tried)),
    }
}

fn no_session(tried: Tried) -> ConnectError {
    match tried.hopeless {
        Some(FaultKind::NotZooKeeper) => ConnectError::NotZooKeeper(tried.reasons),
        Some(FaultKind::Untrusted) => ConnectError::Untrusted(tried.reasons),
        _ => ConnectError::Unreachable(tried.reasons),
    }
}

/// Rejects a session timeout that is too short for a lease.
fn lease_fits(client: &Client) -> Result<(), ConnectError> {
    let timing = client.timing();
    if timing.is_enough() {
        return Ok(());
    }

    let granted_ms = u64::try_from(timing.timeout().as_millis()).unwrap_or(u64::MAX);
    let is_enough = |ms: &u64| timing.with_timeout(Duration::from_millis(*ms)).is_enough();
    let least_ms = (granted_ms..=600_000).step_by(100).find(is_enough).unwrap_or(600_000);
    Err(ConnectError::TimeoutTooShort { granted_ms, least_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: a session timeout of zero was requested anyway, and the client reported unreachable servers.
    #[test]
    fn what_no_session_could_be_had_with_is_refused() {
        let ms = Duration::from_millis;
        let refused = |builder: ClientBuilder| {
            let error = builder.connect_later("localhost").err();
            error.map(|error| error.to_string()).unwrap_or_default()
        };
        for timeout in [Duration::ZERO, Duration::from_micros(900), ms(1 << 31), Duration::MAX] {
            let message = refused(ClientBuilder::default().session_timeout(timeout));
            assert!(
                message.starts_with(&format!("the session timeout is {timeout:?}; ")),
                "{message}"
            );
            assert!(message.contains("4 s to 40 s"), "{message}");
        }
        let tick = refused(ClientBuilder::default().server_tick(Duration::ZERO));
        assert!(tick.contains("servers' tick is 0ns; it must be 1 ms to"), "{tick}");
        let frame = refused(ClientBuilder::default().max_frame(0));
        assert!(frame.contains("largest frame is 0 bytes; it must be 1024"), "{frame}");
        for timeout in [ms(1), ms((1 << 31) - 1)] {
            let builder = ClientBuilder::default().session_timeout(timeout);
            assert_eq!(builder.check_ranges(), Ok(()), "{timeout:?}");
        }
    }
}
