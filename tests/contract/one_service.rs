//! Servers of one connection string that are not one service: each would grant the same lock.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use lockkeeper::{
    AcquireError, Client, ClientBuilder, ConnectString, Election, ExclusiveNode, Mutex, Names,
    RwLock, Semaphore, ServiceError, ZnodePath,
};
use lockkeeper_engine::Engine;
use lockkeeper_testkit::backend::{Backend, TICK};
use lockkeeper_testkit::proxy::{Passed, Proxy};
use lockkeeper_wire::OpCode;
use tokio::net::TcpListener;

use crate::{LOCK, contract};

contract!(one_service);

/// Where the servers of a client are, each behind a proxy.
struct Servers {
    proxies: Vec<Proxy>,
    chroot: String,
}

impl Servers {
    /// So many addresses of the backend.
    async fn of(backend: &Backend, count: usize) -> Result<Self> {
        let parts: ConnectString = backend.connect_string().parse()?;
        let chroot = if parts.chroot.is_root() { String::new() } else { parts.chroot.to_string() };
        let mut servers = Self { proxies: Vec::new(), chroot };
        for _ in 0..count {
            servers.add(&parts.hosts[0].to_string()).await?;
        }
        Ok(servers)
    }

    async fn add(&mut self, target: &str) -> Result<()> {
        self.proxies.push(Proxy::start(target).await?);
        Ok(())
    }

    fn connect_string(&self) -> String {
        let addresses: Vec<_> =
            self.proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        format!("{}{}", addresses.join(","), self.chroot)
    }

    async fn client(&self, builder: ClientBuilder) -> Result<Client> {
        Ok(builder.server_tick(TICK).connect(&self.connect_string()).await?)
    }

    /// The one that the client is connected to, and the others.
    fn split(&self) -> Result<(&Proxy, Vec<&Proxy>)> {
        let is_used = |proxy: &&Proxy| proxy.requests().contains(&OpCode::Create2);
        let used = self.proxies.iter().find(is_used).context("nothing was created")?;
        let others = self.proxies.iter().filter(|proxy| proxy.address() != used.address());
        Ok((used, others.collect()))
    }

    /// How many servers were asked for a node.
    fn probed(&self) -> usize {
        self.proxies.iter().filter(|proxy| proxy.requests().contains(&OpCode::Exists)).count()
    }
}

/// An engine that is independent of the backend.
async fn stranger() -> Result<Engine> {
    Ok(Engine::builder().tick(TICK).listen(([127, 0, 0, 1], 0).into()).start().await?)
}

fn is_refuted(error: &AcquireError) -> bool {
    matches!(error, AcquireError::Servers { source: ServiceError::NotOne { .. }, .. })
}

/// Three engines with the configuration of an ensemble granted one lock three times.
async fn two_services_grant_no_lock_of_any_kind(backend: Backend) -> Result<()> {
    let stranger = stranger().await?;
    let mut servers = Servers::of(&backend, 1).await?;
    servers.add(&stranger.connect_string()).await?;

    // Clients of either service: each begins with any of the servers.
    let mut both = [0; 2];
    while both.contains(&0) {
        servers.proxies.iter().for_each(Proxy::clear);
        let client = servers.client(Client::builder()).await?;
        every_kind_is_refuted(&client).await?;
        let of_stranger = servers.split()?.0.address() == servers.proxies[1].address();
        both[usize::from(of_stranger)] += 1;
        client.close().await;
    }

    for service in [&backend.connect_string(), &stranger.connect_string()] {
        let client = Client::connect(service).await?;
        let path = ZnodePath::new(LOCK)?.child("kind")?;
        let left = lockkeeper_client::present(client.children(&path).await)?;
        assert!(left.is_none_or(|(names, _)| names.is_empty()), "nothing is left on {service}");
    }
    Ok(())
}

async fn every_kind_is_refuted(client: &Client) -> Result<()> {
    let refuted = |kind: &str, error: Option<AcquireError>| match error {
        Some(error) => assert!(is_refuted(&error), "{kind}: {error}"),
        None => panic!("{kind} was granted"),
    };

    let path = format!("{LOCK}/kind");
    let mutex = Mutex::new(client, &path)?;
    let refused = mutex.acquire().await.err();
    let message = refused.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(message.contains("are not one service") && message.contains(LOCK), "{message}");
    assert!(refused.as_ref().is_some_and(|error| !error.is_retryable()));
    refuted("Mutex", refused);
    refuted("Mutex, at once", mutex.try_acquire().await.err());

    let lock = RwLock::new(client, &format!("{LOCK}/rw"))?;
    refuted("RwLock, read", lock.read().await.err());
    refuted("RwLock, write", lock.write().await.err());
    refuted("Semaphore", Semaphore::new(client, &format!("{LOCK}/s"), 2)?.acquire().await.err());
    refuted(
        "ExclusiveNode",
        ExclusiveNode::new(client, &format!("{LOCK}/n"))?.acquire().await.err(),
    );

    refuted("Election", Election::new(client, &format!("{LOCK}/e"))?.campaign().await.err());
    let name = Names::new(client, &format!("{LOCK}/names"))?.claim("a").await.err();
    assert!(name.is_some_and(|error| error.to_string().contains("are not one service")));
    Ok(())
}

/// {A, B} and {C, D}: one probe, of B, was no proof for a client of A.
async fn one_server_of_another_service_is_found_among_four(backend: Backend) -> Result<()> {
    let stranger = stranger().await?;
    let mut servers = Servers::of(&backend, 2).await?;
    servers.add(&stranger.connect_string()).await?;
    servers.add(&stranger.connect_string()).await?;
    for _ in 0..6 {
        let client = servers.client(Client::builder()).await?;
        let refused = Mutex::new(&client, LOCK)?.acquire().await.err();
        assert!(refused.as_ref().is_some_and(is_refuted), "{refused:?}");
        client.close().await;
    }
    Ok(())
}

/// Half of the others are asked, once: later grants cost what they do with one server.
async fn servers_of_one_service_are_asked_once(backend: Backend) -> Result<()> {
    for (count, probes) in [(2, 1), (3, 1), (5, 2)] {
        let servers = Servers::of(&backend, count).await?;
        let client = servers.client(Client::builder()).await?;
        let lock = Mutex::new(&client, LOCK)?;
        lock.acquire().await?.release().await?;
        assert_eq!(servers.probed(), probes, "of {count} servers");

        servers.proxies.iter().for_each(Proxy::clear);
        lock.acquire().await?.release().await?;
        lock.try_acquire().await?.context("it is free")?.release().await?;
        let (_, others) = servers.split()?;
        for other in others {
            let requests = other.requests();
            assert!(!requests.contains(&OpCode::Exists), "asked again: {requests:?}");
        }
        client.close().await;
    }
    Ok(())
}

/// The session moves to a server that was not compared yet: the next grant compares it, and later ones do not.
async fn a_server_that_the_session_moves_to_is_compared(backend: Backend) -> Result<()> {
    let servers = Servers::of(&backend, 3).await?;
    let client = servers.client(Client::builder()).await?;
    let session = client.session_id();
    let lock = Mutex::new(&client, LOCK)?;
    lock.acquire().await?.release().await?;
    let (used, others) = servers.split()?;
    let asked = |proxy: &&&Proxy| proxy.requests().contains(&OpCode::Exists);
    let known = others.iter().find(asked).context("none was asked")?;

    used.refuse();
    known.refuse();
    servers.proxies.iter().for_each(Proxy::clear);
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    let fresh = others.iter().find(|other| other.address() != known.address()).context("three")?;
    fresh.passes(|passed| passed.contains(&Passed::Reply(OpCode::Create2))).await;
    known.restore();
    let guard = acquiring.await??;
    assert_eq!(guard.session(), session);
    known.passes(|passed| passed.contains(&Passed::Request(OpCode::Exists))).await;
    guard.release().await?;
    Ok(())
}

/// What cannot be reached proves nothing: locks are granted, with a warning.
async fn servers_that_give_no_answer_are_passed_over(backend: Backend) -> Result<()> {
    let mut servers = Servers::of(&backend, 1).await?;
    let nobody = TcpListener::bind("127.0.0.1:0").await?;
    let address = nobody.local_addr()?;
    drop(nobody);
    let list = servers.connect_string();
    let list = match list.split_once('/') {
        Some((servers, chroot)) => format!("{servers},{address}/{chroot}"),
        None => format!("{list},{address}"),
    };
    let client = Client::builder().server_tick(TICK).connect(&list).await?;
    Mutex::new(&client, LOCK)?.acquire().await?.release().await?;
    client.close().await;

    // One that accepts connections and says nothing.
    servers.add(&backend.connect_string()).await?;
    servers.proxies.iter().for_each(Proxy::clear);
    let client = servers.client(Client::builder()).await?;
    client.exists(&ZnodePath::root()).await?;
    let is_unused = |proxy: &&Proxy| proxy.requests().is_empty();
    servers.proxies.iter().find(is_unused).context("two servers")?.freeze();
    Mutex::new(&client, LOCK)?.acquire().await?.release().await?;
    Ok(())
}

/// Strict clients are refused instead, until the servers are there. Trying again and again takes time
/// and no processor.
async fn strict_clients_wait_for_no_server_in_vain(backend: Backend) -> Result<()> {
    let servers = Servers::of(&backend, 2).await?;
    servers.proxies[1].refuse();
    let client = servers.client(Client::builder().strict_servers(true)).await?;
    let lock = Mutex::new(&client, LOCK)?;
    let (begun, mut tries) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_millis(1_500) {
        let refused = lock.acquire().await.err().context("granted")?;
        let AcquireError::Servers { source, .. } = &refused else { panic!("{refused}") };
        let ServiceError::Unproven { own, all, unreachable } = source else { panic!("{source}") };
        assert_eq!((*own, *all, unreachable.len()), (1, 2, 1));
        assert!(refused.is_retryable());
        tries += 1;
    }
    assert!(tries <= 3, "{tries} tries in 1.5 s");

    // Inside the limit of the call, which is longer than one look at the servers.
    let waiting = tokio::spawn(async move { lock.acquire_timeout(Duration::from_secs(60)).await });
    servers.proxies[1].restore();
    waiting.await??.release().await?;
    Ok(())
}
