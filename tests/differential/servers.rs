//! A fresh ZooKeeper and a fresh engine, set up alike.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper_engine::Engine;
use lockkeeper_testkit::zookeeper::{self, ZooKeeper};
use tokio::runtime::Runtime;

use crate::known::Version;
use crate::view::Base;

const TICK: Duration = Duration::from_millis(500);
const LONGEST_SESSION: Duration = Duration::from_secs(60);
/// For runs in which nothing may be reaped: that goes by time, so it would come between different
/// operations on each.
pub(crate) const NEVER: Duration = Duration::from_secs(1_000_000);

/// A user who may do everything, and what a server is told about it.
pub(crate) const SUPER: &str = "super:test";
const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

pub(crate) struct Servers {
    zookeeper: ZooKeeper,
    engine: Engine,
    /// Where the engine's transactions begin.
    engine_base: Base,
    version: Version,
    // After what may still want it for its end.
    _runtime: Runtime,
}

impl Servers {
    /// Both look for containers and TTL nodes at this interval.
    pub(crate) fn start(reaping: Duration) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let zookeeper = zookeeper::Config::new()
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
        let zookeeper = runtime.block_on(zookeeper.standalone())?;
        let version = runtime.block_on(version(&zookeeper))?;
        let engine = Engine::builder()
            .tick(TICK)
            .max_session_timeout(LONGEST_SESSION)
            .allow_ttl_nodes()
            .enforce_quotas()
            .super_digest(SUPER_DIGEST)
            .reap_interval(reaping);
        let engine = runtime.block_on(engine.start())?;
        engine.addr().context("the engine listens nowhere")?;
        let engine_base = Base(engine.stats().last_zxid);
        Ok(Self { zookeeper, engine, engine_base, version, _runtime: runtime })
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn engine_base(&self) -> Base {
        self.engine_base
    }

    pub(crate) fn zookeeper(&self) -> SocketAddr {
        self.zookeeper.connect_string().parse().expect("an address of this machine")
    }

    pub(crate) fn engine(&self) -> SocketAddr {
        self.engine.addr().expect("checked at the start")
    }
}

async fn version(zookeeper: &ZooKeeper) -> Result<Version> {
    let answer = zookeeper.four_letter("srvr").await?;
    let first = answer.lines().next().unwrap_or_default();
    println!("{first}");
    Ok(if first.contains(" 3.8.") { Version::V38 } else { Version::Later })
}
