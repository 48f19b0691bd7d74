//! Servers as child processes on free ports of the loopback address.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lockkeeper_engine::Durability;
use lockkeeper_testkit::peers::Peer;
use lockkeeper_testkit::process::{self, Process};
use lockkeeper_testkit::zookeeper::{Config, ZooKeeper};
use tokio::net::TcpStream;

use crate::children::READY;
use crate::floors::Processors;
use crate::system::Fsync;

const START_LIMIT: Duration = Duration::from_secs(30);

/// A server, killed on drop.
pub(crate) struct Server {
    process: Process,
    address: String,
}

impl Server {
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }
}

/// A command that runs this program as a child.
pub(crate) fn child(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(this_program()?);
    command.args(arguments);
    Ok(command)
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("this process does not know its own file")
}

/// Waits for a child's line, and returns what it has to say.
pub(crate) async fn ready_line(process: &mut Process) -> Result<String> {
    process.prints("\n", START_LIMIT).await?;
    let text = process.stdout();
    let line = text.lines().find_map(|line| line.strip_prefix(READY));
    Ok(line.with_context(|| format!("the child says something else: {text}"))?.to_owned())
}

/// The command that users run, beside this program, as a server.
pub(crate) fn lockkeeper(durability: Durability, data: &Path, port: u16) -> Result<Command> {
    let program = this_program()?.with_file_name("lockkeeper");
    serve(&program, durability, data, port)
}

/// A build of that command, as a server.
pub(crate) fn serve(
    program: &Path,
    durability: Durability,
    data: &Path,
    port: u16,
) -> Result<Command> {
    ensure!(
        program.exists(),
        "{} is missing: build it with `cargo build --release --package lockkeeper-cli`",
        program.display()
    );
    let mut command = Command::new(program);
    command.args(["serve", &format!("--durability={durability}")]);
    command.arg(format!("--listen=127.0.0.1:{port}"));
    if durability != Durability::Memory {
        command.arg("--data-dir").arg(data);
    }
    // As it comes: what this shell wants of it is not what is measured.
    for (variable, _) in std::env::vars_os() {
        if variable.to_str().is_some_and(|name| name.starts_with("LOCKKEEPER_")) {
            command.env_remove(variable);
        }
    }
    Ok(command)
}

pub(super) async fn engine(folder: &Path, durability: Durability) -> Result<Server> {
    let (port, name) = (free_port()?, format!("engine-{durability}"));
    let command = lockkeeper(durability, &folder.join(&name), port)?;
    serving(&name, &command, folder, port).await
}

pub(super) async fn echo(folder: &Path) -> Result<Server> {
    let processor = Processors::look()?.server().to_string();
    let mut process =
        Process::spawn("echo", &child(&["echo", "--processor", &processor])?, folder)?;
    let address = ready_line(&mut process).await?;
    Ok(Server { process, address })
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

pub(super) async fn etcd(folder: &Path) -> Result<Server> {
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

/// Starts a server, and waits until it accepts connections.
pub(crate) async fn serving(
    name: &str,
    command: &Command,
    folder: &Path,
    port: u16,
) -> Result<Server> {
    let mut process = Process::spawn(name, command, folder)?;
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        if process.status()?.is_some() || start.elapsed() > START_LIMIT {
            bail!("{name} does not serve\n{}", process.tail());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(Server { process, address: format!("127.0.0.1:{port}") })
}

pub(super) fn needs(program: &str) -> Result<()> {
    let there = process::find(program).is_some();
    ensure!(there, "the program {program} is missing: `cargo xtask setup --bench` installs it");
    Ok(())
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The first line that a program says about its version.
pub(super) fn version(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let line = text.lines().next().unwrap_or("version unknown");
    // Redis tells its build too.
    line.split(" sha=").next().unwrap_or(line).to_owned()
}

pub(super) fn zookeeper_version() -> String {
    format!("Apache ZooKeeper {}", jar_version("zookeeper"))
}

pub(super) fn curator_version() -> String {
    format!("Apache Curator {}", jar_version("curator-recipes"))
}

/// Debian's `name-version.jar` is a link to `name.jar`.
fn jar_version(name: &str) -> String {
    let jars = fs::read_dir("/usr/share/java").into_iter().flatten().flatten();
    let names = jars.filter_map(|jar| jar.file_name().into_string().ok());
    let mut versions = names.filter_map(|jar| {
        let version = jar.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(".jar")?;
        version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
    });
    versions.next().unwrap_or_else(|| "(version unknown)".to_owned())
}
