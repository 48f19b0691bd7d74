//! A fresh ZooKeeper and a fresh engine, set up alike, without TLS or with.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use lockkeeper_engine::{Builder, ClientCertificates, Engine, Tls, read_pem};
use lockkeeper_testkit::zookeeper::{self, ZooKeeper};
use tokio::runtime::Runtime;

use crate::certificates::{Certificates, Credentials};
use crate::known::Version;
use crate::view::Base;

const TICK: Duration = Duration::from_millis(500);
const LONGEST_SESSION: Duration = Duration::from_secs(60);
/// For runs in which nothing may be reaped: that goes by time, so it would come between different
/// operations on each.
pub(crate) const NEVER: Duration = Duration::from_secs(1_000_000);

/// A superuser, and its entry in the server's configuration.
pub(crate) const SUPER: &str = "super:test";
const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

pub(crate) struct Servers {
    zookeeper: ZooKeeper,
    engine: Engine,
    /// Where the engine's transactions begin.
    engine_base: Base,
    version: Version,
    /// With TLS: ZooKeeper's address, and the credentials of the clients.
    tls: Option<(SocketAddr, Vec<Credentials>)>,
    // After what may still want it for its end.
    _runtime: Runtime,
}

impl Servers {
    /// Both look for containers and TTL nodes at this interval.
    pub(crate) fn start(reaping: Duration) -> Result<Self> {
        Self::start_with(reaping, None)
    }

    /// Both speak TLS, and ask for certificates without insisting on them.
    pub(crate) fn start_with_tls(certificates: &Certificates) -> Result<Self> {
        Self::start_with(NEVER, Some(certificates))
    }

    fn start_with(reaping: Duration, certificates: Option<&Certificates>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut zookeeper = zookeeper::Config::new()
            .tick(TICK)
            .extended_types()
            .jvm_argument("-Dzookeeper.enforceQuota=true")
            .jvm_argument(&format!(
                "-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"
            ))
            // What a crash would leave does not matter here, and speed does.
            .jvm_argument("-Dzookeeper.forceSync=no")
            .jvm_argument("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
            .jvm_argument(&format!("-Dznode.container.checkIntervalMs={}", reaping.as_millis()));
        let mut tls = None;
        if let Some(certificates) = certificates {
            let address = zookeeper::secure_address()?;
            let (key_store, trust_store) = (certificates.key_store(), certificates.trust_store());
            zookeeper = zookeeper.secure(address, &key_store, &trust_store);
            tls = Some((address, certificates.clients()?));
        }
        let zookeeper = runtime.block_on(zookeeper.standalone())?;
        if let Some((address, _)) = tls {
            zookeeper::wait_for_secure(address)?;
        }
        let version = runtime.block_on(version(&zookeeper))?;
        let mut engine = Engine::builder()
            .tick(TICK)
            .max_session_timeout(LONGEST_SESSION)
            .allow_ttl_nodes()
            .enforce_quotas()
            .super_digest(SUPER_DIGEST)
            .reap_interval(reaping);
        if let Some(certificates) = certificates {
            engine = engine_with_tls(engine, certificates)?;
        }
        let engine = runtime.block_on(engine.start())?;
        let engine_base = Base(engine.stats().last_zxid);
        Ok(Self { zookeeper, engine, engine_base, version, tls, _runtime: runtime })
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn engine_base(&self) -> Base {
        self.engine_base
    }

    pub(crate) fn zookeeper(&self) -> SocketAddr {
        match self.tls {
            None => self.zookeeper.connect_string().parse().expect("an address of this machine"),
            Some((address, _)) => address,
        }
    }

    pub(crate) fn engine(&self) -> SocketAddr {
        let address = self.engine.addr().or_else(|| self.engine.tls_addrs().first().copied());
        address.expect("an engine without a Unix socket listens on TCP")
    }

    /// Those of the clients, one after the other; none without TLS.
    pub(crate) fn credentials(&self) -> &[Credentials] {
        self.tls.as_ref().map_or(&[], |(_, credentials)| credentials)
    }
}

fn engine_with_tls(engine: Builder, certificates: &Certificates) -> Result<Builder> {
    let (both, roots) =
        (read_pem(certificates.key_store())?, read_pem(certificates.trust_store())?);
    let tls = Tls::with_client_roots(&both, &both, &roots, ClientCertificates::Optional)?;
    Ok(engine.listen_tls((Ipv4Addr::LOCALHOST, 0).into(), tls))
}

async fn version(zookeeper: &ZooKeeper) -> Result<Version> {
    let answer = zookeeper.four_letter("srvr").await?;
    let first = answer.lines().next().unwrap_or_default();
    println!("{first}");
    Ok(if first.contains(" 3.8.") { Version::V38 } else { Version::Later })
}
