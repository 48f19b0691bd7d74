//! The servers that a contract suite runs on, all handled in the same way.

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

/// The longest session that any backend grants.
pub const LONGEST_SESSION: Duration = Duration::from_secs(60);

/// A server for one test, and whatever keeps it running.
#[derive(Clone, Debug)]
pub struct Backend {
    /// `host:port`
    target: String,
    /// `/name`, or nothing.
    chroot: String,
    _engine: Option<Arc<Engine>>,
}

/// A client with a proxy of its own between it and the server.
#[derive(Debug)]
pub struct Participant {
    /// The client.
    pub client: Client,
    /// Its proxy.
    pub proxy: Proxy,
    /// How the server is reached without it.
    direct: String,
}

impl Participant {
    /// A client without a proxy, to look at what is there.
    ///
    /// # Errors
    /// If it cannot connect.
    pub async fn observer(&self) -> Result<Client> {
        Ok(Client::connect(&self.direct).await?)
    }
}

impl Backend {
    /// A fresh engine in this process, which keeps its data in memory.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn embedded() -> Result<Self> {
        Self::on(engine()).await
    }

    /// A chroot of its own on the real ZooKeeper server of this process; `None` if this machine
    /// has none, which has been said loudly.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn zookeeper(suite: &str) -> Result<Option<Self>> {
        Self::in_chroot(suite, zookeeper::shared_chroot()).await
    }

    /// The same as [`Backend::embedded`], with nodes that have a time to live, which are looked for
    /// often, as empty containers are.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn embedded_reaping() -> Result<Self> {
        Self::on(engine().allow_ttl_nodes().reap_interval(zookeeper::REAPING)).await
    }

    async fn on(builder: Builder) -> Result<Self> {
        let engine = builder.start().await?;
        let target = engine.connect_string();
        Ok(Self { target, chroot: String::new(), _engine: Some(Arc::new(engine)) })
    }

    /// The same on the real ZooKeeper server of this process that does so, as [`Backend::zookeeper`].
    ///
    /// # Errors
    /// If it does not start.
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

    /// A participant with the longest session timeout that the servers grant: no test runs into
    /// it, and no heartbeat or proof of an old lease is among the requests that a test counts,
    /// unless the machine stands still for an eighth of it.
    ///
    /// # Errors
    /// If it cannot connect.
    pub async fn participant(&self) -> Result<Participant> {
        self.participant_with(Client::builder().session_timeout(LONGEST_SESSION)).await
    }

    /// A participant with options of its own; the tick is set to that of the server.
    ///
    /// # Errors
    /// If it cannot connect.
    pub async fn participant_with(&self, builder: ClientBuilder) -> Result<Participant> {
        let proxy = Proxy::start(&self.target).await?;
        let servers = format!("{}{}", proxy.address(), self.chroot);
        let client = builder.server_tick(TICK).connect(&servers).await?;
        Ok(Participant { client, proxy, direct: self.connect_string() })
    }

    /// A participant that has not reached a server, and cannot before its proxy is restored.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn cut_off(&self) -> Result<Participant> {
        let proxy = Proxy::start(&self.target).await?;
        proxy.refuse();
        let servers = format!("{}{}", proxy.address(), self.chroot);
        let client = Client::builder().server_tick(TICK).connect_later(&servers)?;
        Ok(Participant { client, proxy, direct: self.connect_string() })
    }

    /// A client without a proxy, to look at what is there.
    ///
    /// # Errors
    /// If it cannot connect.
    pub async fn observer(&self) -> Result<Client> {
        Ok(Client::connect(&self.connect_string()).await?)
    }

    /// How a client connects without a proxy.
    pub fn connect_string(&self) -> String {
        format!("{}{}", self.target, self.chroot)
    }
}

/// What every engine has in common.
fn engine() -> Builder {
    let builder = Engine::builder().tick(TICK).max_session_timeout(LONGEST_SESSION);
    builder.listen(([127, 0, 0, 1], 0).into())
}

/// Waits until a node has as many children as wanted; no node has none. Follows the server's own
/// events, so it ends as soon as that is so.
///
/// # Errors
/// If a request fails.
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
