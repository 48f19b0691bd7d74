//! A writer that becomes a reader keeps its place, whichever library looks: ours seen by Curator
//! and kazoo, and Curator's seen by ours. Step by step; `main.rs` has the same in a crowd.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lockkeeper::{Client, RwLock, ZnodePath};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::{shared, shared_chroot};
use lockkeeper_testkit::{java, peers, python, scratch};
use tempfile::TempDir;

use crate::Language::{self, Java, Python};
use crate::{LIMIT, PATH};

/// A program in another language that takes one step after the other.
struct Steps {
    process: Process,
    next: usize,
    // After the program, which looks into it.
    folder: TempDir,
}

impl Steps {
    fn start(language: Language, connect: &str) -> Result<Self> {
        let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        let folder = scratch::folder()?;
        let mut command = match language {
            Java => java::Program::compile(&interop.join("CuratorSteps.java"))?.command(),
            Python => python::command(&interop.join("kazoo_steps.py")),
        };
        command.args([connect, PATH, "30000"]).arg(folder.path());
        let process = Process::spawn("steps", &command, folder.path())?;
        Ok(Self { process, next: 0, folder })
    }

    /// Lets it take a step, which may have to wait.
    fn begin(&mut self, step: &str) -> Result<()> {
        let written = self.folder.path().join("next");
        fs::write(&written, step)?;
        fs::rename(written, self.folder.path().join(format!("step-{}", self.next)))?;
        self.next += 1;
        Ok(())
    }

    async fn done(&mut self, step: &str) -> Result<()> {
        self.process.prints(&format!("DONE {step}\n"), LIMIT).await
    }

    async fn take(&mut self, step: &str) -> Result<()> {
        self.begin(step)?;
        self.done(step).await
    }

    fn waits(&self, step: &str) -> bool {
        !self.process.stdout().contains(&format!("DONE {step}\n"))
    }
}

/// Returns when somebody watches the node: whoever is behind it has found it, and waits.
async fn watched(connect: &str, node: &ZnodePath) -> Result<()> {
    let chroot = connect.split_once('/').map_or(String::new(), |(_, path)| format!("/{path}"));
    let (line, start) = (format!("{chroot}{node}"), Instant::now());
    while !shared().await?.four_letter("wchp").await?.lines().any(|path| path == line) {
        ensure!(start.elapsed() < LIMIT, "nobody watches {node}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn ready(language: Language) -> bool {
    let library = match language {
        Java => peers::Peer::Curator,
        Python => peers::Peer::Kazoo,
    };
    peers::ready("interop: downgrades", &[peers::Peer::ZooKeeper, library])
}

/// A session that no wait of this test outlasts.
async fn client(connect: &str) -> Result<Client> {
    Ok(Client::builder().session_timeout(Duration::from_secs(30)).connect(connect).await?)
}

/// Seen to fail with a downgrade that takes a new number: the other writer does not wait for us.
async fn ours_keeps_its_place(language: Language) -> Result<()> {
    if !ready(language) {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    // First: its compiler holds up everything else of this test, heartbeats too.
    let mut theirs = Steps::start(language, &connect)?;
    let lock = RwLock::new(&client(&connect).await?, PATH)?;
    let writing = lock.write().await?;
    theirs.begin("write")?;
    watched(&connect, writing.node()).await?;
    let reading = writing.downgrade().await?;
    watched(&connect, reading.node()).await?;
    ensure!(theirs.waits("write"), "it writes while we read");
    reading.verify().await?;
    reading.release().await?;
    theirs.done("write").await?;
    ensure!(lock.try_read().await?.is_none(), "we read while it writes");
    theirs.take("release-write").await?;

    let reading = lock.write().await?.downgrade().await?;
    theirs.take("read").await?;
    ensure!(lock.try_write().await?.is_none(), "two read");
    reading.release().await?;
    ensure!(lock.try_write().await?.is_none(), "the other one still reads");
    theirs.take("release-read").await?;
    lock.write().await?.release().await?;
    theirs.begin("end")?;
    ensure!(theirs.process.end(LIMIT).await?.success(), "{}", theirs.process.tail());
    Ok(())
}

#[tokio::test]
async fn l15_our_downgrade_keeps_its_place_for_curator() -> Result<()> {
    ours_keeps_its_place(Java).await
}

#[tokio::test]
async fn l15_our_downgrade_keeps_its_place_for_kazoo() -> Result<()> {
    ours_keeps_its_place(Python).await
}

/// Curator's own: it reads while it still writes, and then stops writing. Whoever comes meanwhile
/// or later finds a reader. Those who came before are only safe since Curator 5.5 (CURATOR-621);
/// `CuratorLocks.java` does what that version does.
#[tokio::test]
async fn a_downgrade_of_curator_keeps_our_writers_out() -> Result<()> {
    if !ready(Java) {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    let mut theirs = Steps::start(Java, &connect)?;
    let lock = RwLock::new(&client(&connect).await?, PATH)?;
    theirs.take("write").await?;
    ensure!(lock.try_read().await?.is_none());
    theirs.take("read").await?;
    ensure!(lock.try_read().await?.is_none(), "it writes too");
    theirs.take("release-write").await?;
    ensure!(lock.try_write().await?.is_none(), "it reads");
    let reading = lock.try_read().await?;
    reading.ok_or_else(|| anyhow::anyhow!("readers go together"))?.release().await?;
    let behind = lock.clone();
    let writing = tokio::spawn(async move { behind.write().await });
    let (names, _) = client(&connect).await?.children(&ZnodePath::new(PATH)?).await?;
    let reader = names.iter().find(|name| name.contains("__READ__")).map(String::as_str);
    let reader = ZnodePath::new(PATH)?.child(reader.unwrap_or("no reader"))?;
    watched(&connect, &reader).await?;
    ensure!(!writing.is_finished(), "we write while it reads");
    theirs.take("release-read").await?;
    writing.await??.release().await?;
    theirs.begin("end")?;
    ensure!(theirs.process.end(LIMIT).await?.success(), "{}", theirs.process.tail());
    Ok(())
}
