//! The servers that a contract suite runs on, behind one interface.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use lockkeeper_client::{Client, ClientBuilder, ZnodePath};
use lockkeeper_engine::{Builder, Engine};

use crate::peers::{self, Peer};
use crate::proxy::Proxy;
use crate::zookeeper;

/// The tick of every backend.
pub const TICK: Duration = Duration::from_millis(500);

/// The longest session timeout that any backend grants.
pub const LONGEST_SESSION: Duration = Duration::from_secs(60);

/// A server for one test, with the resources that keep it running.
#[derive(Clone, Debug)]
pub struct Backend {
    /// `host:port`
    target: String,
    /// `/name`, or empty.
    chroot: String,
    _engine: Option<Arc<Engine>>,
}

/// A client with a proxy of its own to the server.
#[derive(Debug)]
pub struct Participant {
    /// The client.
    pub client: Client,
    /// Its proxy.
    pub proxy: Proxy,
    /// The server's own address.
    direct: String,
}

impl Participant {
    /// A client without a proxy, to inspect the server's state.
    ///
    /// # Errors
    /// The client cannot connect.
    pub async fn observer(&self) -> Result<Client> {
        Ok(Client::connect(&self.direct).await?)
    }
}

impl Backend {
    /// A new engine in this process, which keeps its data in memory.
    ///
    /// # Errors
    /// The engine does not start.
    pub async fn embedded() -> Result<Self> {
        Self::on(engine()).await
    }

    /// A chroot of its own on the real ZooKeeper server of this process; `None`, with a report, if this machine has no
    /// ZooKeeper.
    ///
    /// # Errors
    /// The server does not start.
    pub async fn zookeeper(suite: &str) -> Result<Option<Self>> {
        Self::in_chroot(suite, zookeeper::shared_chroot()).await
    }

    /// Like [`Backend::embedded`], with nodes that have a time to live, and frequent searches for overdue nodes and
    /// empty containers.
    ///
    /// # Errors
    /// The engine does not start.
    pub async fn embedded_reaping() -> Result<Self> {
        Self::on(engine().allow_ttl_nodes().reap_interval(zookeeper::REAPING)).await
    }

    async fn on(builder: Builder) -> Result<Self> {
        let engine = builder.start().await?;
        let target = engine.connect_string();
        Ok(Self { target, chroot: String::new(), _engine: Some(Arc::new(engine)) })
    }

    /// Like [`Backend::zookeeper`], on a real ZooKeeper server with the options of [`Backend::embedded_reaping`].
    ///
    /// # Errors
    /// The server does not start.
    pub async fn zookeeper_reaping(suite: &str) -> Result<Option<Self>> {
        Self::in_chroot(suite, zookeeper::shared_reaping_chroot()).await
    }

    async fn in_chroot(
        suite: &str,
        connect: impl Future<Output = Result<String>>,
    ) -> Result<Option<Self>> {
        if !peers::ready(suite, &[Peer::ZooKeeper]) {
            return Ok(None);
        }
        let connect = connect.await?;
        let (target, chroot) = connect.split_once('/').unwrap_or((&connect, ""));
        let (target, chroot) = (target.to_owned(), format!("/{chroot}"));
        Ok(Some(Self { target, chroot, _engine: None }))
    }

    /// A participant with the longest session timeout that the servers grant. No test reaches it, and the requests that
    /// a test counts include no heartbeat or proof of an old lease, unless the machine stalls for an eighth of the
    /// timeout.
    ///
    /// # Errors
    /// The participant cannot connect.
    pub async fn participant(&self) -> Result<Participant> {
        self.participant_with(Client::builder().session_timeout(LONGEST_SESSION)).await
    }

    /// A participant with the given options; the tick is set to the server's.
    ///
    /// # Errors
    /// The participant cannot connect.
    pub async fn participant_with(&self, builder: ClientBuilder) -> Result<Participant> {
        let proxy = Proxy::start(&self.target).await?;
        let servers = format!("{}{}", proxy.address(), self.chroot);
        let client = builder.server_tick(TICK).connect(&servers).await?;
        Ok(Participant { client, proxy, direct: self.connect_string() })
    }

    /// A participant that has not reached a server, and cannot until its proxy is restored.
    ///
    /// # Errors
    /// No port is free.
    pub async fn cut_off(&self) -> Result<Participant> {
        let proxy = Proxy::start(&self.target).await?;
        proxy.refuse();
        let servers = format!("{}{}", proxy.address(), self.chroot);
        let client = Client::builder().server_tick(TICK).connect_later(&servers)?;
        Ok(Participant { client, proxy, direct: self.connect_string() })
    }

    /// A client without a proxy, to inspect the server's state.
    ///
    /// # Errors
    /// The client cannot connect.
    pub async fn observer(&self) -> Result<Client> {
        Ok(Client::connect(&self.connect_string()).await?)
    }

    /// The connection string for a client without a proxy.
    pub fn connect_string(&self) -> String {
        format!("{}{}", self.target, self.chroot)
    }
}

/// The settings that all engines share.
fn engine() -> Builder {
    let builder = Engine::builder().tick(TICK).max_session_timeout(LONGEST_SESSION);
    builder.listen(([127, 0, 0, 1], 0).into())
}

/// Waits until a node has this many children; a missing node has 0. It follows the server's events, so it returns as
/// soon as the number is reached.
///
/// # Errors
/// A request fails.
pub async fn children_reach(client: &Client, path: &ZnodePath, wanted: usize) -> Result<()> {
    loop {
        let (exists, mut created) = client.exists_watched(path).await?;
        if exists.is_none() {
            if wanted == 0 {
                return Ok(());
            }
            created.changed().await?;
            continue;
        }

        drop(created);
        let Ok(((names, _), mut changed)) = client.children_watched(path).await else { continue };
        if names.len() == wanted {
            return Ok(());
        }
        changed.changed().await?;
    }
}
