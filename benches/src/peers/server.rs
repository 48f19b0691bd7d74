//! Servers as child processes on free ports of the loopback address.

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lockkeeper_engine::Durability;
use lockkeeper_testkit::process::Process;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::children::READY;

const START_LIMIT: Duration = Duration::from_secs(30);

/// A server, killed on drop.
pub(crate) struct Server {
    // Before the folder, so that the server is dead when its data goes.
    pub(super) process: Process,
    pub(super) address: String,
    pub(super) _folder: Option<TempDir>,
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
    // In memory too: engines of one place exclude each other.
    command.arg("--data-dir").arg(data);
    if durability == Durability::Memory {
        // Nobody holds a lock of the engine of an earlier run.
        command.arg("--quiet-time=0s");
    }

    // As it comes: what this shell wants of it is not what is measured.
    for (variable, _) in std::env::vars_os() {
        if variable.to_str().is_some_and(|name| name.starts_with("LOCKKEEPER_")) {
            command.env_remove(variable);
        }
    }
    Ok(command)
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
    Ok(Server { process, address: format!("127.0.0.1:{port}"), _folder: None })
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A name with the version that the program says it has.
pub(super) fn version(name: &str, program: impl AsRef<OsStr>, arguments: &[&str]) -> String {
    let text = said(program, arguments);
    let words = text.split_whitespace().map(|word| word.trim_start_matches("v="));
    let number = words.into_iter().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    format!("{name} {}", number.unwrap_or("(version unknown)"))
}

/// Debian's `name-version.jar` is a link to `name.jar`.
pub(super) fn jar_version(name: &str) -> String {
    let jars = fs::read_dir("/usr/share/java").into_iter().flatten().flatten();
    let names = jars.filter_map(|jar| jar.file_name().into_string().ok());
    let mut versions = names.filter_map(|jar| {
        let version = jar.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(".jar")?;
        version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
    });
    versions.next().unwrap_or_else(|| "(version unknown)".to_owned())
}

/// What a program prints, if there is such a one.
pub(crate) fn said(program: impl AsRef<OsStr>, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}
