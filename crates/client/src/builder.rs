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
use crate::driver::{Driven, Failures, drive};
use crate::error::ConnectError;
use crate::fault::FaultKind;
use crate::identity::SessionIdentity;
use crate::runtime::{Runtime, TokioRuntime};
use crate::service::Service;
use crate::shared::Shared;

impl Client {
    /// Connects with the default options. Costs what [`ClientBuilder::connect`] does.
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
#[must_use = "nothing happens before `connect`"]
pub struct ClientBuilder {
    config: Config,
    runtime: Arc<dyn Runtime>,
    /// Whether the runtime speaks TLS.
    encrypts: bool,
    connect_timeout: Duration,
    strict_servers: bool,
    /// `None`: as the credentials suggest.
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
        /// The session timeout to ask for: how long the servers keep a session that they do not hear
        /// of. Servers clamp it, usually to 2 to 20 of their ticks (4 s to 40 s). Default: 15 s, with
        /// which locks survive an outage of more than 8 s; see [`Timing`](crate::Timing). Less than 1 ms
        /// and more than 2,147,483,647 ms are refused when it connects.
        pub fn session_timeout(self, timeout: Duration) => self.config.session_timeout = timeout;

        /// What proves that the session is alive. Default: [`LeaseMode::Quorum`], which is right for
        /// every service; [`LeaseMode::Direct`] only for a server that stands alone.
        pub fn lease(self, mode: LeaseMode) => self.config.lease = mode;

        /// The servers' `tickTime`; a longer one shortens leases under [`LeaseMode::Quorum`], a
        /// shorter one than the servers really have makes them unsafe. Default: 2 s.
        pub fn server_tick(self, tick: Duration) => self.config.server_tick = tick;

        /// Whether reads never go back from one session to the next: servers that have not applied all
        /// that an earlier session of this client has seen are passed over. When all are behind for longer
        /// than a session can last, because they were wiped or restored, any is taken again, and
        /// [`Status::rewinds`](crate::Status::rewinds) counts. Default: `false`, with which a new session
        /// begins at the first server that answers.
        pub fn reads_go_forward(self, wanted: bool) => self.config.reads_go_forward = wanted;

        /// The largest message to send or take, in bytes (`jute.maxbuffer`). Default: 1,048,575. A read
        /// whose answer is longer fails: see [`Error::answer_too_long`](crate::Error::answer_too_long).
        pub fn max_frame(self, bytes: usize) => self.config.max_frame = bytes;
    }

    /// Shows `user:password` by the scheme `digest` to every server. On the wire the password is
    /// in the clear.
    pub fn digest(self, user: &str, password: &str) -> Self {
        self.credentials("digest", format!("{user}:{password}"))
    }

    lockkeeper_wire::setters! {
        /// Shows credentials of any scheme to every server.
        pub fn credentials(self, scheme: &str, secret: impl Into<Bytes>) =>
            self.config.credentials.push(Credentials { scheme: scheme.into(), secret: secret.into() });

        /// The access control list of the znodes that the client creates: the places in a queue, what
        /// is missing above them, and what is beside them. Default: [`DefaultAcl::Creator`] with
        /// credentials of the scheme `digest`, else [`DefaultAcl::Open`].
        pub fn default_acl(self, acl: DefaultAcl) => self.acl = Some(acl);

        /// How long the first connection may take, also if that is longer than the session timeout.
        /// Default: 10 s.
        pub fn connect_timeout(self, timeout: Duration) => self.connect_timeout = timeout;

        /// Whether no lock is granted before a majority of the servers that the connection string names has
        /// been seen to be one service; see [`Client::prove_one_service`]. With the default, `false`, servers
        /// that cannot be reached are passed over with a warning. With both, servers that are seen to be
        /// different services are an error.
        pub fn strict_servers(self, wanted: bool) => self.strict_servers = wanted;
    }

    /// Speaks TLS with every server that is not a socket on this machine, whether the connection
    /// string begins with `tls://` or not.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::tls::Tls) -> Self {
        self.runtime = Arc::new(crate::tls::Encrypted::new(tls));
        self.encrypts = true;
        self
    }

    lockkeeper_wire::setters! {
        /// Lets a test make the client suffer; see [`Rehearsal`](crate::Rehearsal).
        #[cfg(feature = "rehearsal")]
        pub fn rehearsal(self, rehearsal: &crate::rehearsal::Rehearsal) =>
            self.rehearsal = Some(rehearsal.clone());

        /// Replaces the clock, the network, identifiers and tasks: for simulations.
        #[doc(hidden)]
        pub fn runtime(self, runtime: Arc<dyn Runtime>) => self.runtime = runtime;
    }

    /// Connects to one of the servers and starts a session. A task of the current tokio runtime
    /// then keeps the session alive until the last clone of the client has gone. When that runtime ends
    /// before, the client is closed: whatever is asked of it fails, and the servers end the session after its
    /// timeout. Other runtimes may use the client too, and may end. Costs a connection and one round trip for
    /// each server that is tried.
    ///
    /// # Errors
    /// If the connection string is malformed, an option is out of its range, no server accepts a session
    /// within the connect timeout (the error tells why of each), or the granted session timeout is too short
    /// for a lease. At once, if what answers is nowhere a ZooKeeper server, or none that trusts and is
    /// trusted. Also if a server refuses the credentials before this returns; a later refusal closes the
    /// client.
    ///
    /// # Session loss
    /// The client starts the next session by itself; see [`Client`].
    ///
    /// # Cancel safety
    /// Safe: nothing is left running.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub async fn connect(self, servers: &str) -> Result<Client, ConnectError> {
        let (client, failed) = self.begin(servers)?;
        first_connection(&client, failed, self.connect_timeout).await?;
        lease_fits(&client)?;
        Ok(client)
    }

    /// Makes a client as [`ClientBuilder::connect`] does, but returns without waiting for a server. For
    /// programs that have something to do without servers, such as following a value whose last known good
    /// state is on disk. Requests wait for the first connection, each for a session timeout at most
    /// ([`Client::reachable`] waits for longer). [`Client::status`] shows whether there is a connection.
    ///
    /// # Errors
    /// If the connection string is malformed or asks for TLS without roots to trust, or an option is
    /// out of its range. The other failures of [`ClientBuilder::connect`] show later: refused credentials
    /// close the client, and no lock is granted with a session timeout that is too short for a lease.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn connect_later(self, servers: &str) -> Result<Client, ConnectError> {
        Ok(self.begin(servers)?.0)
    }

    /// Ends a session that another process has left behind, and with it all its ephemeral nodes.
    /// To be called when that process is certain not to act on its locks any more.
    ///
    /// It takes as long as the first connection may take, and no longer than the session timeout:
    /// the session has expired by then. Costs a connection and two round trips.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    ///
    /// # Session loss
    /// Is what it is for: if the session is over already, this succeeds.
    ///
    /// # Cancel safety
    /// The closing goes on in the background.
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

    /// Asks one server a four-letter word, such as `srvr`, over a connection of the kind that the
    /// client would have: encrypted, or the socket of this machine. Servers answer only what they
    /// are configured to. Costs a connection and one round trip.
    ///
    /// # Errors
    /// If there is no connection, or it breaks.
    ///
    /// # Session loss
    /// Has no effect: no session is needed.
    ///
    /// # Cancel safety
    /// Safe. There is no time limit: a server that is not one may keep the connection open.
    pub async fn ask_word(&self, host: &Host, word: &str) -> io::Result<String> {
        ask(self.runtime.connect(host, None).await?.into_stream(), word).await
    }

    /// Starts a new session.
    #[cfg(not(feature = "rehearsal"))]
    fn begin(&self, servers: &str) -> Result<(Client, watch::Receiver<Tried>), ConnectError> {
        self.begin_in(&self.runtime, servers)
    }

    /// The same, with what a rehearsal may do to it.
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

    /// Refuses what no session could be had with. Not what servers clamp, or refuse with a reason.
    fn check_ranges(&self) -> Result<(), ConnectError> {
        let Config { session_timeout, server_tick, max_frame, .. } = &self.config;
        let refused =
            |option, value: String, range| Err(ConnectError::OutOfRange { option, value, range });

        if !(1..=MOST_MS).contains(&session_timeout.as_millis()) {
            let range =
                "1 ms to 2147483647 ms; servers grant 2 to 20 of their ticks, mostly 4 s to 40 s";
            return refused("session timeout", format!("{session_timeout:?}"), range);
        }

        if !(1..=MOST_MS).contains(&server_tick.as_millis()) {
            let range = "1 ms to 2147483647 ms; it is the tickTime of the servers, mostly 2 s";
            return refused("servers' tick", format!("{server_tick:?}"), range);
        }

        if *max_frame < LEAST_FRAME {
            let range =
                "1024 bytes or more; it is the jute.maxbuffer of the servers, mostly 1048575";
            return refused("largest frame", format!("{max_frame} bytes"), range);
        }
        Ok(())
    }

    fn chosen_acl(&self) -> DefaultAcl {
        // A certificate is no sign: hosts that share a lock have one each.
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
        runtime.spawn(Box::pin(drive(Driven(shared), dialer, failures)));
        (client, failed)
    }
}

/// The longest time that the protocol has room for, in milliseconds.
const MOST_MS: u128 = i32::MAX as u128;

/// With less, not even the requests of a lock have room.
const LEAST_FRAME: usize = 1024;

/// More than any answer to a word has.
const LONGEST_ANSWER: u64 = 256 * 1024;

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, word: &str) -> io::Result<String> {
    stream.write_all(word.as_bytes()).await?;
    stream.flush().await?;

    let mut answer = Vec::new();
    match stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await {
        // Servers close encrypted connections without a farewell.
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
    // Not `Unreachable`: a session timeout without a server is no reason to wait for less than was asked for.
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
        // Nothing but refused credentials closes a client that has not been handed out.
        Contact::Closed => Err(ConnectError::AuthFailed),
        _ => Err(no_session(tried)),
    }
}

fn no_session(tried: Tried) -> ConnectError {
    match tried.hopeless {
        Some(FaultKind::Foreign) => ConnectError::NotZooKeeper(tried.reasons),
        Some(FaultKind::Distrust) => ConnectError::Untrusted(tried.reasons),
        _ => ConnectError::Unreachable(tried.reasons),
    }
}

/// Refuses a session timeout in which a lease has no room.
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

    /// A session timeout of nothing was asked for all the same, and the client told of servers that
    /// could not be reached.
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
                message.starts_with(&format!("the session timeout is {timeout:?}, ")),
                "{message}"
            );
            assert!(message.contains("4 s to 40 s"), "{message}");
        }
        let tick = refused(ClientBuilder::default().server_tick(Duration::ZERO));
        assert!(tick.contains("servers' tick is 0ns, and can be 1 ms to"), "{tick}");
        let frame = refused(ClientBuilder::default().max_frame(0));
        assert!(frame.contains("largest frame is 0 bytes, and can be 1024"), "{frame}");
        for timeout in [ms(1), ms((1 << 31) - 1)] {
            let builder = ClientBuilder::default().session_timeout(timeout);
            assert_eq!(builder.check_ranges(), Ok(()), "{timeout:?}");
        }
    }
}
