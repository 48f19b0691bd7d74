//! Checks whether the servers of a connection string are one service.
//!
//! The proof is a node that this client has just created: a server that shows the node, with the same
//! creation and the same owner, belongs to the service of this session. The check needs its own session on
//! that server, because neither the reply to a foreign session id nor a transaction number is a proof: an
//! expired session and a lagging follower get the same replies.
//!
//! A server counts as *not* having the node only if its reply was committed by a quorum, and if the node is
//! then proven to still exist, also by a commit. A follower that is cut off shows old data.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_session::{Config, Contact, Instant, Timing};
use lockkeeper_wire::{SessionId, Stat, ZnodePath, Zxid};
use tokio::sync::watch;
use tokio::time::{Instant as Moment, sleep, sleep_until, timeout};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;
use uuid::Uuid;

use crate::builder::ClientBuilder;
use crate::client::{Client, WeakClient};
use crate::connect_string::{ConnectString, Host};
use crate::dial::first_of;
use crate::error::{Error, TransactionError};
use crate::runtime::{Boxed, Runtime, Transport};
use crate::server::{Server, servers_of};
use crate::service::{Asked, Compared, Judgement, Seen, ServiceError, judge, unproven};
use crate::shared::{Link, Shared};

/// How long a server may take to show the node.
const LONGEST_PROBE: Duration = Duration::from_secs(2);

/// The minimum duration of a strict client's check while servers are unreachable: a program that retries at
/// once must not keep servers and processor busy.
const MIN_STRICT_CHECK: Duration = Duration::from_secs(1);

impl Client {
    /// Verifies that the servers of the connection string are one service, and not several services that
    /// would each grant the same lock. Every lock does this before its first grant; call it for a program
    /// that shares other things. `node` is an ephemeral node that this client has created, and `stat` is the
    /// stat of its creation.
    ///
    /// The service of this session must have a majority of the servers. Each address of a name counts as a
    /// server, but addresses of this machine that belong to one name count once. The result holds for the
    /// current connection. Costs nothing if it is known, or if there is only one server; otherwise a
    /// connection, a session and two requests for each server that is asked: half of the other servers, if
    /// all reply. A server that does not reply within two seconds is skipped.
    ///
    /// # Errors
    /// If a server belongs to another service, the node is gone, or, with [`ClientBuilder::strict_servers`],
    /// too few servers are reachable. Without that option, unreachable servers cause a warning.
    ///
    /// # Session loss
    /// Returns an error, because the node is gone with its session.
    ///
    /// # Cancel safety
    /// Safe: the check continues in the background, for the next call.
    pub async fn prove_one_service(
        &self,
        node: &ZnodePath,
        stat: &Stat,
    ) -> Result<(), ServiceError> {
        if !self.service().may_be_several() {
            return Ok(());
        }

        loop {
            if let Some(decided) = self.decided() {
                return decided;
            }
            if self.is_closed() || self.session_id() != stat.ephemeral_owner {
                return Ok(());
            }

            let (mut compared, is_own) = self.compare(node, stat);
            let compared = compared.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
            match compared {
                Some(Compared::Decided(_, decided)) => return decided,
                Some(Compared::NodeGone) if is_own => {
                    return Err(ServiceError::NodeGone { node: node.clone() });
                }
                // The check used a node of another task, or a connection that has ended.
                _ => sleep(self.timing().retry_interval()).await,
            }
        }
    }

    /// Starts the check of [`Client::prove_one_service`] in the background, so that it runs while a lock is
    /// waited for. The cost is the same.
    #[doc(hidden)]
    pub fn begin_to_prove_one_service(&self, node: &ZnodePath, stat: &Stat) {
        if self.service().may_be_several() && self.decided().is_none() {
            self.compare(node, stat);
        }
    }

    /// The result for the current connection, if it is known.
    fn decided(&self) -> Option<Result<(), ServiceError>> {
        self.service().decided(self.shared().link_number())
    }

    /// The check in progress, or a new one with this node; and whether it is a new one.
    fn compare(&self, node: &ZnodePath, stat: &Stat) -> (watch::Receiver<Option<Compared>>, bool) {
        let mut is_own = false;
        let compared = self.service().compare(|tell| {
            is_own = true;
            let comparison = Comparison::new(self, Marker::of(node, stat));
            self.shared().runtime().spawn(Box::pin(comparison.make(tell)));
        });
        (compared, is_own)
    }
}

/// A node that the check looks for on the servers.
#[derive(Clone, Debug)]
struct Marker {
    path: ZnodePath,
    czxid: Zxid,
    session: SessionId,
}

impl Marker {
    fn of(path: &ZnodePath, stat: &Stat) -> Self {
        Self { path: path.clone(), czxid: stat.czxid, session: stat.ephemeral_owner }
    }

    fn is(&self, stat: Option<Stat>) -> bool {
        stat.is_some_and(|stat| stat.czxid == self.czxid && stat.ephemeral_owner == self.session)
    }

    /// Whether the node exists, according to a reply that a quorum has committed.
    async fn is_certain(&self, client: &Client) -> Result<bool, Error> {
        let committed = client.transaction().check(&self.path, None).commit();
        // Sent together, and in this order.
        let (committed, found) =
            tokio::join! { biased; committed, async { client.exists(&self.path).await } };
        match committed {
            Err(TransactionError::Request(error)) => Err(error),
            // A refused transaction is committed too.
            Ok(_) | Err(TransactionError::Failed { .. }) => Ok(self.is(found?)),
        }
    }
}

/// A check of the servers.
struct Comparison {
    client: WeakClient,
    hosts: Vec<Host>,
    link: Link,
    timing: Timing,
    probe: Arc<Probe>,
    begun: Moment,
}

/// The pending result of one server, with its index.
type Showing = Boxed<'static, (usize, Seen)>;

impl Comparison {
    fn new(client: &Client, marker: Marker) -> Self {
        let shared = client.shared();
        let probe = Probe {
            runtime: Arc::clone(shared.runtime()),
            config: shared.read(|session| session.config().clone()),
            chroot: client.chroot().clone(),
            marker,
        };
        Self {
            client: client.downgrade(),
            hosts: client.service().hosts.clone(),
            link: shared.link(),
            timing: client.timing(),
            probe: Arc::new(probe),
            begun: Moment::now(),
        }
    }

    async fn make(self, tell: watch::Sender<Option<Compared>>) {
        let servers = servers_of(&self.hosts, &*self.probe.runtime).await;
        let compared = self.ask(servers).await;
        if let Some(client) = self.client.upgrade() {
            client.service().note(&compared);
        }
        tell.send_replace(Some(compared));
    }

    /// Asks servers until the result is certain: one more whenever one is slow or does not reply.
    async fn ask(&self, servers: Vec<Server>) -> Compared {
        let mut asked = self.known(servers);
        let mut open: Vec<usize> = (0..asked.len()).filter(|it| asked[*it].1.is_none()).collect();
        fastrand::shuffle(&mut open);

        let mut showing: Vec<Showing> = Vec::new();
        let mut wanted = 0;
        loop {
            match judge(&asked) {
                Judgement::Undecided(missing) => wanted = wanted.max(missing),
                Judgement::OneService => return self.agreed(&asked),
                Judgement::OtherService(other) => return self.refute(&other).await,
                Judgement::Unproven { own, all } => return self.unproven(own, all, &asked).await,
            }

            while showing.len() < wanted
                && let Some(index) = open.pop()
            {
                let (probe, server) = (Arc::clone(&self.probe), asked[index].0.clone());
                showing.push(Box::pin(async move { (index, probe.ask(&server).await) }));
            }

            tokio::select! {
                biased;
                (index, seen) = first_of(&mut showing) => asked[index].1 = Some(seen),
                () = sleep(self.timing.retry_interval()), if !open.is_empty() => wanted += 1,
            }
        }
    }

    /// The servers, with the results that are known without asking.
    fn known(&self, servers: Vec<Server>) -> Vec<Asked> {
        let session = self.probe.marker.session;
        let is_current = |server: &Server| {
            let host = self.link.host.as_ref();
            host.is_some_and(|host| server.is_at(host, self.link.address))
        };
        let client = self.client.upgrade();
        let is_own = |server: &Server| {
            client.as_ref().is_some_and(|client| client.service().is_own(session, server))
        };

        // Known results carry over if a server of the session's service is among these servers.
        let goes_on = servers.iter().any(|server| is_current(server) && is_own(server));
        let asked = |server: Server| {
            let is_known = is_current(&server) || goes_on && is_own(&server);
            (server, is_known.then_some(Seen::Own))
        };
        servers.into_iter().map(asked).collect()
    }

    /// Records which servers belong to the session's service.
    fn agreed(&self, asked: &[Asked]) -> Compared {
        let own = asked.iter().filter(|(_, seen)| *seen == Some(Seen::Own));
        if let Some(client) = self.client.upgrade() {
            let own = own.map(|(server, _)| server.clone());
            client.service().add_own(self.probe.marker.session, own);
        }
        self.decided(Ok(()))
    }

    /// The result, for the connection on which the check began.
    fn decided(&self, outcome: Result<(), ServiceError>) -> Compared {
        Compared::Decided(self.link.number, outcome)
    }

    /// Verifies that the node, which another server certainly does not have, still exists.
    async fn refute(&self, other: &Server) -> Compared {
        let Some(client) = self.client.upgrade() else { return Compared::Undecided };
        let own = self.link.host.as_ref().map_or_else(String::new, Host::to_string);
        match self.probe.marker.is_certain(&client).await {
            Ok(true) => {
                let (own, other) = (own, other.to_string());
                self.decided(Err(ServiceError::NotOne { own, other }))
            }
            Ok(false) => Compared::NodeGone,
            Err(_) => Compared::Undecided,
        }
    }

    /// Logs a warning about servers that did not reply, or fails if the client is strict.
    async fn unproven(&self, own: usize, all: usize, asked: &[Asked]) -> Compared {
        let nothing = asked.iter().filter_map(|(server, seen)| match seen {
            Some(Seen::Nothing(why)) => Some((server.to_string(), why.clone())),
            _ => None,
        });
        let unreachable: Vec<_> = nothing.collect();
        let Some(client) = self.client.upgrade() else { return Compared::Undecided };
        if client.service().is_strict {
            // The pause must not keep the client alive.
            drop(client);
            sleep_until(self.begun + MIN_STRICT_CHECK).await;
            return self.decided(Err(ServiceError::Unproven { own, all, unreachable }));
        }

        let warning = unproven(own, all, &unreachable);
        if client.service().is_news(&warning) {
            tracing::warn!("{warning}");
        }
        self.decided(Ok(()))
    }
}

/// Everything that is needed to ask a server.
struct Probe {
    runtime: Arc<dyn Runtime>,
    config: Config,
    chroot: ZnodePath,
    marker: Marker,
}

impl Probe {
    /// Reads the node on a server. The session of the check is closed in the background.
    async fn ask(&self, server: &Server) -> Seen {
        let late = || format!("no reply within {} s", LONGEST_PROBE.as_secs());
        // The caller reports the failures of a probe.
        let shown = self.read_marker(server).with_subscriber(NoSubscriber::new());
        match timeout(LONGEST_PROBE, shown).await {
            Ok(Ok(seen)) => seen,
            Ok(Err(why)) => Seen::Nothing(why),
            Err(_) => Seen::Nothing(late()),
        }
    }

    async fn read_marker(&self, server: &Server) -> Result<Seen, String> {
        let client = self.connect(server).await?;
        let path = &self.marker.path;
        // A follower may lag behind the server on which the node was created.
        let (synced, found) = (client.sync(path), client.exists(path));
        let describe = |error: Error| error.to_string();
        synced.await.map_err(describe)?;
        if self.marker.is(found.await.map_err(describe)?) {
            return Ok(Seen::Own);
        }

        match self.marker.is_certain(&client).await.map_err(describe)? {
            true => Ok(Seen::Own),
            false => Ok(Seen::Other),
        }
    }

    /// Starts a session with this server only, or returns the first error.
    async fn connect(&self, server: &Server) -> Result<Client, String> {
        let pinned = Pinned { runtime: Arc::clone(&self.runtime), address: server.address };
        let runtime: Arc<dyn Runtime> = Arc::new(pinned);
        let shared = Shared::new(Arc::clone(&runtime), self.config.clone());
        let (hosts, chroot) = (vec![server.host.clone()], self.chroot.clone());
        let alone = ConnectString { tls: false, hosts, chroot };
        let (client, mut tried) = ClientBuilder::default().runtime(runtime).start(alone, shared);

        let mut status = client.status();
        let connected = status.wait_for(|status| status.contact == Contact::Connected);
        tokio::select! {
            biased;
            connected = connected => match connected {
                Ok(_) => {}
                Err(_) => return Err("the client was closed".to_owned()),
            },
            failed = tried.wait_for(|tried| !tried.reasons.is_empty()) => {
                let reasons = failed.map(|tried| tried.reasons.clone()).unwrap_or_default();
                return Err(reasons.into_iter().map(|(_, why)| why).collect());
            }
        }
        Ok(client)
    }
}

/// A runtime that connects to a single address, if there is one.
#[derive(Debug)]
struct Pinned {
    runtime: Arc<dyn Runtime>,
    address: Option<IpAddr>,
}

impl Runtime for Pinned {
    fn now(&self) -> Instant {
        self.runtime.now()
    }

    fn connect<'a>(
        &'a self,
        host: &'a Host,
        _: Option<IpAddr>,
    ) -> Boxed<'a, io::Result<Transport>> {
        self.runtime.connect(host, self.address)
    }

    fn unique_id(&self) -> Uuid {
        self.runtime.unique_id()
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        self.runtime.spawn(Box::pin(task.with_subscriber(NoSubscriber::new())));
    }
}
