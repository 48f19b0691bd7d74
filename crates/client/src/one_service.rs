//! Asks the servers of a connection string whether they are one service.
//!
//! What proves it is a node that this client has just made: a server which shows it, with the same
//! creation and the same owner, belongs to the service of this session. The question takes a session
//! of its own at that server, as neither the answer to a foreign session id nor a transaction number
//! proves anything: an expired session and a follower that lags are answered alike.
//!
//! That a server does *not* have the node is believed only if it says so in an answer that a quorum
//! has committed, and if the node is then proven to exist still, also by a commit. A follower that is
//! cut off shows old data.

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

/// How long a server has to show the node.
const LONGEST_PROBE: Duration = Duration::from_secs(2);

/// How long a strict client looks at servers that cannot be reached, at least, before it says so: a
/// program that tries again at once does not keep servers and processor busy.
const STRICT_ROUND: Duration = Duration::from_secs(1);

impl Client {
    /// Makes sure that the servers which the connection string stands for are one service, and not several
    /// that would each grant the same lock. Every lock does this before its first grant; call it for
    /// a program that shares other things. `node` is an ephemeral node that this client has made, and
    /// `stat` what it was created with.
    ///
    /// The service of this session has to have a majority of the servers: each address of a name counts,
    /// but addresses of this machine that belong to one name are one server. The answer holds for the
    /// present connection. Costs nothing if it is known, or if there is only one server; else a connection,
    /// a session and two requests for each server that is asked: half of the other servers, if all
    /// answer. A server that gives no answer within two seconds is passed over for the next one.
    ///
    /// # Errors
    /// If a server belongs to another service, the node is gone, or, with
    /// [`ClientBuilder::strict_servers`], too few servers can be reached. Without it, there is a warning.
    ///
    /// # Session loss
    /// Returns, as the node is gone and nothing can be held by it any more.
    ///
    /// # Cancel safety
    /// Safe: the question goes on in the background, for the next call.
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
                // With a node of another task, or on a connection that has ended.
                _ => sleep(self.timing().retry_interval()).await,
            }
        }
    }

    /// Begins what [`Client::prove_one_service`] waits for, so that it takes place while a lock is waited
    /// for. Costs what that does.
    #[doc(hidden)]
    pub fn begin_to_prove_one_service(&self, node: &ZnodePath, stat: &Stat) {
        if self.service().may_be_several() && self.decided().is_none() {
            self.compare(node, stat);
        }
    }

    /// What is known for the present connection.
    fn decided(&self) -> Option<Result<(), ServiceError>> {
        self.service().decided(self.shared().link_number())
    }

    /// The comparison that is under way, or one with this node; and whether it is that.
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

/// A node by which servers are compared.
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

    /// Whether the node is there, by an answer that a quorum has committed.
    async fn is_certain(&self, client: &Client) -> Result<bool, Error> {
        let committed = client.transaction().check(&self.path, None).commit();
        // Sent in one go, and in this order.
        let (committed, found) =
            tokio::join! { biased; committed, async { client.exists(&self.path).await } };
        match committed {
            Err(TransactionError::Request(error)) => Err(error),
            // What is refused is committed as well.
            Ok(_) | Err(TransactionError::Failed { .. }) => Ok(self.is(found?)),
        }
    }
}

/// A comparison of the servers.
struct Comparison {
    client: WeakClient,
    hosts: Vec<Host>,
    link: Link,
    timing: Timing,
    probe: Arc<Probe>,
    begun: Moment,
}

/// What a server will show, and which one it is.
type Showing = Boxed<'static, (usize, Seen)>;

impl Comparison {
    fn new(client: &Client, marker: Marker) -> Self {
        let shared = client.shared();
        let probe = Probe {
            runtime: Arc::clone(shared.runtime()),
            config: shared.look(|session| session.config().clone()),
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

    /// Asks as many servers as it takes: one more when one is slow or gives no answer.
    async fn ask(&self, servers: Vec<Server>) -> Compared {
        let mut asked = self.known(servers);
        let mut open: Vec<usize> = (0..asked.len()).filter(|it| asked[*it].1.is_none()).collect();
        fastrand::shuffle(&mut open);

        let mut showing: Vec<Showing> = Vec::new();
        let mut wanted = 0;
        loop {
            match judge(&asked) {
                Judgement::Open(missing) => wanted = wanted.max(missing),
                Judgement::One => return self.agreed(&asked),
                Judgement::Not(other) => return self.refute(&other).await,
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

    /// The servers, and what is known of them without asking.
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

        // What is known of the others is known of the service of a server that is among them.
        let goes_on = servers.iter().any(|server| is_current(server) && is_own(server));
        let asked = |server: Server| {
            let is_known = is_current(&server) || goes_on && is_own(&server);
            (server, is_known.then_some(Seen::Own))
        };
        servers.into_iter().map(asked).collect()
    }

    /// Notes which servers belong to the session's service.
    fn agreed(&self, asked: &[Asked]) -> Compared {
        let own = asked.iter().filter(|(_, seen)| *seen == Some(Seen::Own));
        if let Some(client) = self.client.upgrade() {
            let own = own.map(|(server, _)| server.clone());
            client.service().add_own(self.probe.marker.session, own);
        }
        self.decided(Ok(()))
    }

    /// The outcome, for the connection on which the comparison began.
    fn decided(&self, outcome: Result<(), ServiceError>) -> Compared {
        Compared::Decided(self.link.number, outcome)
    }

    /// Makes sure that the node, which another server certainly does not have, still exists.
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

    /// Warns of servers that gave no answer, or refuses to go on without them.
    async fn unproven(&self, own: usize, all: usize, asked: &[Asked]) -> Compared {
        let nothing = asked.iter().filter_map(|(server, seen)| match seen {
            Some(Seen::Nothing(why)) => Some((server.to_string(), why.clone())),
            _ => None,
        });
        let unreachable: Vec<_> = nothing.collect();
        let Some(client) = self.client.upgrade() else { return Compared::Undecided };
        if client.service().is_strict {
            // The pause must not keep the client from its end.
            drop(client);
            sleep_until(self.begun + STRICT_ROUND).await;
            return self.decided(Err(ServiceError::Unproven { own, all, unreachable }));
        }

        let warning = unproven(own, all, &unreachable);
        if client.service().is_news(&warning) {
            tracing::warn!("{warning}");
        }
        self.decided(Ok(()))
    }
}

/// What is needed to ask a server.
struct Probe {
    runtime: Arc<dyn Runtime>,
    config: Config,
    chroot: ZnodePath,
    marker: Marker,
}

impl Probe {
    /// What a server shows of the node. Its session is closed in the background.
    async fn ask(&self, server: &Server) -> Seen {
        let late = || format!("no answer within {} s", LONGEST_PROBE.as_secs());
        // The failures of a probe are told by the one who asked for it.
        let looked = self.look(server).with_subscriber(NoSubscriber::new());
        match timeout(LONGEST_PROBE, looked).await {
            Ok(Ok(seen)) => seen,
            Ok(Err(why)) => Seen::Nothing(why),
            Err(_) => Seen::Nothing(late()),
        }
    }

    async fn look(&self, server: &Server) -> Result<Seen, String> {
        let client = self.connect(server).await?;
        let path = &self.marker.path;
        // A follower may lag behind the server that the node was made on.
        let (synced, found) = (client.sync(path), client.exists(path));
        let told = |error: Error| error.to_string();
        synced.await.map_err(told)?;
        if self.marker.is(found.await.map_err(told)?) {
            return Ok(Seen::Own);
        }

        match self.marker.is_certain(&client).await.map_err(told)? {
            true => Ok(Seen::Own),
            false => Ok(Seen::Other),
        }
    }

    /// A session with this server alone; why there is none, at its first failure.
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
                Err(_) => return Err("the client ended".to_owned()),
            },
            failed = tried.wait_for(|tried| !tried.reasons.is_empty()) => {
                let reasons = failed.map(|tried| tried.reasons.clone()).unwrap_or_default();
                return Err(reasons.into_iter().map(|(_, why)| why).collect());
            }
        }
        Ok(client)
    }
}

/// A runtime whose connections are all to one address, if there is one.
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
