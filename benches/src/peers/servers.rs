//! How each server is started and configured.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lockkeeper_engine::Durability;
use lockkeeper_testkit::peers::Peer;
use lockkeeper_testkit::process::{Process, find};
use lockkeeper_testkit::zookeeper::{Config, ZooKeeper};

use super::postgres;
use super::program::{Configuration, Program};
use super::server::{
    Server, child, free_port, jar_version, lockkeeper, ready_line, serving, version,
};
use crate::processors::Processors;
use crate::system::{Fsync, System};

pub(super) async fn start(program: Program, folder: &Path) -> Result<Server> {
    match program {
        Program::Echo => echo(folder).await,
        Program::Engine(durability) => engine(folder, durability).await,
        Program::Redis(fsync) => redis(folder, fsync).await,
        Program::Etcd => etcd(folder).await,
        Program::Postgres => postgres::start().await,
    }
}

async fn engine(folder: &Path, durability: Durability) -> Result<Server> {
    let (port, name) = (free_port()?, format!("engine-{durability}"));
    let command = lockkeeper(durability, &folder.join(&name), port)?;
    serving(&name, &command, folder, port).await
}

async fn echo(folder: &Path) -> Result<Server> {
    let processor = Processors::allowed()?.server.to_string();
    let mut process = Process::spawn("echo", &child(&["echo", &processor])?, folder)?;
    let address = ready_line(&mut process).await?;
    Ok(Server { process, address, _folder: None })
}

pub(super) async fn zookeeper() -> Result<ZooKeeper> {
    if let Some(missing) = Peer::ZooKeeper.missing() {
        bail!(missing);
    }
    zookeeper_config().standalone().await
}

/// The test kit starts JVMs that live for seconds; this one is to be fast.
fn zookeeper_config() -> Config {
    Config::new()
        .tick(Duration::from_secs(2))
        .jvm_argument("-XX:TieredStopAtLevel=4")
        .jvm_argument("-Xmx1g")
        .jvm_argument("-Dzookeeper.preAllocSize=65536")
        .jvm_argument("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
}

pub(crate) async fn redis(folder: &Path, fsync: Fsync) -> Result<Server> {
    needs("redis-server")?;
    let port = free_port()?;
    let data = folder.join(format!("redis-{fsync:?}"));
    fs::create_dir_all(&data)?;
    let (append, policy) = match fsync {
        Fsync::Always => ("yes", "always"),
        Fsync::Everysec => ("yes", "everysec"),
        Fsync::Never => ("no", "no"),
    };

    let mut command = Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
        .args(["--appendonly", append, "--appendfsync", policy, "--dir"])
        .arg(&data);
    serving(&format!("redis-{fsync:?}"), &command, folder, port).await
}

async fn etcd(folder: &Path) -> Result<Server> {
    needs("etcd")?;
    let (port, peer_port) = (free_port()?, free_port()?);
    let (clients, peers) =
        (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));

    let mut command = Command::new("etcd");
    command
        .args(["--name", "bench", "--logger", "zap", "--log-level", "error"])
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("bench={peers}"), "--data-dir"])
        .arg(folder.join("etcd"));

    let server = serving("etcd", &command, folder, port).await?;
    // It accepts connections before it has elected itself.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(server)
}

/// How a server ran; `None` for what is no peer.
pub(super) fn describe(program: Program) -> Option<Configuration> {
    let (system, version, settings) = match program {
        Program::Echo => return None,
        Program::Engine(durability) => (
            System::Engine(durability),
            concat!("Lockkeeper ", env!("CARGO_PKG_VERSION")).to_owned(),
            format!("`lockkeeper serve --durability {durability}`; data on the measured disk"),
        ),
        Program::Redis(fsync) => (
            System::Redis(fsync),
            version("Redis", "redis-server", &["--version"]),
            format!(
                "{}; no snapshots; one multiplexed connection (crate redis 1.8), and one \
                 for each consumer of a stream; a waiter asks again after 1 ms on average",
                match fsync {
                    Fsync::Always => "appendonly yes, appendfsync always",
                    Fsync::Everysec => "appendonly yes, appendfsync everysec",
                    Fsync::Never => "appendonly no",
                }
            ),
        ),
        Program::Etcd => (
            System::Etcd,
            version("etcd", "etcd", &["--version"]),
            "one server, defaults (fsync); gRPC with one HTTP/2 connection (for hand-offs one \
             each)"
                .to_owned(),
        ),
        Program::Postgres => (
            System::Postgres,
            postgres::version(),
            "defaults; prepared statements, 16 connections at most (for hand-offs one each); an \
             advisory lock is never written to the disk; a consumer of a queue deletes the rows \
             that it has locked in the same transaction"
                .to_owned(),
        ),
    };
    Some(Configuration { system: system.name().to_owned(), version, settings })
}

pub(super) fn describe_zookeeper() -> Configuration {
    Configuration {
        system: "zookeeper".to_owned(),
        version: format!("Apache ZooKeeper {}", jar_version("zookeeper")),
        settings: "one server, forceSync on, 64 MiB logs, tick 2 s; full JIT, -Xmx1g, serial \
                   collector"
            .to_owned(),
    }
}

fn needs(program: &str) -> Result<()> {
    let there = find(program).is_some();
    ensure!(there, "the program {program} is missing: `cargo xtask setup --bench` installs it");
    Ok(())
}
