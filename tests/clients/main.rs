//! The recipe sets of other clients' libraries, and what is below them, on the engine as on Apache
//! ZooKeeper.
//!
//! One program per library does every recipe and prints `OK <recipe>` for each. The engine passes
//! if the program says the same on it as on a real server: all of it.

mod stores;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper_engine::Engine;
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::shared_chroot;
use lockkeeper_testkit::{java, python, scratch};

use crate::stores::Stores;

const LIMIT: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(500);

#[tokio::test]
async fn kazoo() -> Result<()> {
    if !peers::ready("clients: kazoo", &[Peer::ZooKeeper, Peer::Kazoo]) {
        return Ok(());
    }
    alike(|| Ok(python::command(&source("kazoo_recipes.py"))), 19).await
}

/// K2: kazoo found no version in what the engine says of itself.
#[tokio::test]
async fn kazoo_reads_the_version_of_the_engine() -> Result<()> {
    if !peers::ready("clients: kazoo", &[Peer::Kazoo]) {
        return Ok(());
    }
    let engine = Engine::builder().four_letter_word("envi").start().await?;
    let version =
        run(python::command(&source("kazoo_version.py")), &engine.connect_string()).await?;
    ensure!(version == ["3.9.4"], "{version:?}");
    Ok(())
}

/// K1, K2, K4: null data was read as none, a version was not found, and a `multi` of 13,000 creates
/// was refused.
#[tokio::test]
async fn kazoo_below_its_recipes() -> Result<()> {
    if !peers::ready("clients: kazoo", &[Peer::ZooKeeper, Peer::Kazoo]) {
        return Ok(());
    }
    alike(|| Ok(python::command(&source("kazoo_basics.py"))), 3).await
}

/// The same by ZooKeeper's own client.
#[tokio::test]
async fn java_below_the_recipes() -> Result<()> {
    if !peers::ready("clients: Java", &[Peer::ZooKeeper, Peer::Curator]) {
        return Ok(());
    }
    let program = java::Program::compile(&source("JavaBasics.java"))?;
    alike(|| Ok(program.command()), 4).await
}

/// ZooKeeper's own client with its key stores, and kazoo with PEM files, against PEM files of the server.
#[tokio::test]
async fn clients_with_certificates() -> Result<()> {
    if !peers::ready("clients: TLS", &[Peer::ZooKeeper, Peer::Curator, Peer::Kazoo]) {
        return Ok(());
    }
    let stores = Stores::new()?;
    let program = java::Program::compile(&source("JavaBasics.java"))?;
    for kind in ["JKS", "PKCS12"] {
        let java = |connect: &str| {
            let mut command = program.command();
            command.env("JAVA_TOOL_OPTIONS", stores.java_options(kind)).arg(connect).arg("tls");
            command
        };
        stores.alike(java, 4).await.context(kind)?;
    }
    let kazoo = |connect: &str| {
        let mut command = python::command(&source("kazoo_basics.py"));
        command.arg(connect);
        command.args(["ca.pem", "client.pem", "client.key"].map(|name| stores.path(name)));
        command
    };
    stores.alike(kazoo, 2).await
}

#[tokio::test]
async fn curator() -> Result<()> {
    if !peers::ready("clients: Curator", &[Peer::ZooKeeper, Peer::Curator]) {
        return Ok(());
    }
    let program = java::Program::compile(&source("CuratorRecipes.java"))?;
    alike(|| Ok(program.command()), 26).await
}

#[tokio::test]
async fn the_c_client() -> Result<()> {
    if !peers::ready("clients: the C client", &[Peer::ZooKeeper, Peer::CClient]) {
        return Ok(());
    }
    let folder = scratch::folder()?;
    let program = folder.path().join("c_recipes");
    compile(&source("c_recipes.c"), &program)?;
    alike(|| Ok(Command::new(&program)), 12).await
}

/// Runs a program on both servers; it must be fine with `recipes` recipes at least, or it has been
/// cut short.
async fn alike(program: impl Fn() -> Result<Command>, recipes: usize) -> Result<()> {
    let expected = run(program()?, &shared_chroot().await?).await.context("on ZooKeeper")?;
    ensure!(expected.len() >= recipes, "no more than {expected:?}");
    let engine = Engine::builder().tick(TICK).max_session_timeout(Duration::from_secs(60));
    let engine = engine.four_letter_word("*").start().await?;
    let on_engine = run(program()?, &engine.connect_string()).await.context("on the engine")?;
    ensure!(on_engine == expected, "only {on_engine:?} of {expected:?}");
    Ok(())
}

/// The recipes that were fine.
async fn run(mut command: Command, connect: &str) -> Result<Vec<String>> {
    command.arg(connect);
    finish(command).await
}

async fn finish(command: Command) -> Result<Vec<String>> {
    let folder = scratch::folder()?;
    let mut process = Process::spawn("recipes", &command, folder.path())?;
    let status = process.end(LIMIT).await?;
    let output = process.stdout();
    ensure!(status.success(), "{status}\n{output}\n{}", process.tail());
    Ok(output.lines().filter_map(|line| line.strip_prefix("OK ")).map(str::to_owned).collect())
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

fn compile(source: &Path, target: &Path) -> Result<()> {
    let output = Command::new("gcc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-DTHREADED", "-o"])
        .arg(target)
        .arg(source)
        .args(["-lzookeeper_mt", "-lpthread"])
        .stdin(Stdio::null())
        .output()
        .context("cannot start gcc")?;
    ensure!(output.status.success(), "gcc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
