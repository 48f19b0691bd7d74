//! Our elections beside Curator's and kazoo's on the same path: one leader at a time, turns for
//! everybody, and an observer who sees all of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper::{Client, CreateMode, Election, ElectionLayout, ZnodePath};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::shared_chroot;
use lockkeeper_testkit::{java, peers, python, scratch};
use tempfile::TempDir;

use crate::LIMIT;
use crate::Language::{self, Java, Python};

const ELECTION: &str = "/election";

/// How often each program leads.
const TERMS: usize = 40;

/// A program that leads so many times.
struct Candidate {
    process: Process,
    // After the program, which writes into it.
    _folder: TempDir,
}

impl Candidate {
    fn start(language: Language, connect: &str, kind: &str, id: &str) -> Result<Self> {
        let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        let (folder, terms) = (scratch::folder()?, TERMS.to_string());
        let mut command = match language {
            Java => java::Program::compile(&interop.join("CuratorElection.java"))?.command(),
            Python => python::command(&interop.join("kazoo_election.py")),
        };
        match language {
            Java => command.args([connect, ELECTION, kind, id, &terms]),
            Python => command.args([connect, ELECTION, id, &terms]),
        };
        let process = Process::spawn("candidate", &command, folder.path())?;
        Ok(Self { process, _folder: folder })
    }

    async fn ended(mut self) -> Result<()> {
        let ended = self.process.end(LIMIT).await?;
        ensure!(ended.success(), "{}", self.process.tail());
        let text = self.process.stdout();
        let lines = |word| text.lines().filter(|line| *line == word).count();
        ensure!(lines("OVERLAP") == 0 && lines("LEADS") == TERMS, "{text}");
        Ok(())
    }
}

#[tokio::test]
async fn a_latch_with_curator() -> Result<()> {
    together(ElectionLayout::CuratorLatch, Java, "latch").await
}

#[tokio::test]
async fn a_selector_with_curator() -> Result<()> {
    together(ElectionLayout::CuratorSelector, Java, "selector").await
}

#[tokio::test]
async fn an_election_with_kazoo() -> Result<()> {
    together(ElectionLayout::Kazoo, Python, "election").await
}

/// Whoever leads makes a node that must not be there; everybody gets turns; all are seen.
async fn together(layout: ElectionLayout, language: Language, kind: &str) -> Result<()> {
    let peer = match language {
        Java => peers::Peer::Curator,
        Python => peers::Peer::Kazoo,
    };
    if !peers::ready("interop: elections", &[peers::Peer::ZooKeeper, peer]) {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    let client = Client::connect(&connect).await?;
    let election = Election::builder(&client, ELECTION).layout(layout).id("ours").build()?;

    let mut leaders = election.observe().await?;
    let watching = tokio::spawn(async move {
        let mut seen = BTreeSet::new();
        let mut newest = None;
        while seen.len() < 3 {
            if let Some(leader) = leaders.next().await? {
                ensure!(newest <= Some(leader.token), "{leader:?} after {newest:?}");
                newest = Some(leader.token);
                seen.insert(leader.id);
            }
        }
        Ok(seen)
    });
    let mut others = Vec::new();
    for id in ["theirs 1", "theirs 2"] {
        let mut other = Candidate::start(language, &connect, kind, id)?;
        other.process.prints("LEADS", LIMIT).await?;
        others.push(other);
    }

    let mark = ZnodePath::new(&format!("{ELECTION}-mark"))?;
    for term in 0..TERMS {
        let leadership = election.campaign().await?;
        leadership.proclaim(format!("term {term}")).await?;
        client.create(&mark, "rust", CreateMode::Ephemeral).await.context("two lead")?;
        tokio::time::sleep(Duration::from_millis(5)).await;
        client.delete(&mark, None).await?;
        leadership.resign().await?;
    }
    for other in others {
        other.ended().await?;
    }
    let seen = tokio::time::timeout(LIMIT, watching).await.context("not all were seen")???;
    ensure!(seen.contains("ours"), "{seen:?}");
    client.close().await;
    Ok(())
}
