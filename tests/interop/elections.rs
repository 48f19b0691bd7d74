//! Our elections beside Curator's and kazoo's on the same path: one leader at a time, turns for
//! everybody, and an observer who sees all of them; without a fault, and with programs that are killed.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper::{
    Client, CreateMode, Election, ElectionLayout, ErrorCode, FencingToken, Leaders,
    TransactionError, ZnodePath,
};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::shared_chroot;
use lockkeeper_testkit::{java, peers, python, scratch};
use tempfile::TempDir;

use crate::Language::{self, Java, Python};
use crate::{LIMIT, SESSION_MS, seed_of, time_of_a_contest};

const ELECTION: &str = "/election";

/// How often each program leads.
const TERMS: usize = 40;

/// As often as there is time.
const NO_END: usize = 1_000_000;

/// A program that leads so many times.
struct Candidate {
    terms: usize,
    process: Process,
    // After the program, which writes into it.
    _folder: TempDir,
}

impl Candidate {
    fn start(
        language: Language,
        connect: &str,
        kind: &str,
        id: &str,
        terms: usize,
    ) -> Result<Self> {
        let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        let (folder, many) = (scratch::folder()?, terms.to_string());
        let session = if terms == NO_END { SESSION_MS } else { "10000" };
        let mut command = match language {
            Java => java::Program::compile(&interop.join("CuratorElection.java"))?.command(),
            Python => python::command(&interop.join("kazoo_election.py")),
        };
        match language {
            Java => command.args([connect, ELECTION, kind, id, &many, session]),
            Python => command.args([connect, ELECTION, id, &many, session]),
        };
        let process = Process::spawn("candidate", &command, folder.path())?;
        Ok(Self { terms, process, _folder: folder })
    }

    fn lines(&self, word: &str) -> usize {
        self.process.stdout().lines().filter(|line| *line == word).count()
    }

    async fn ended(mut self) -> Result<()> {
        let ended = self.process.end(LIMIT).await?;
        ensure!(ended.success(), "{}", self.process.tail());
        let is_well = self.lines("OVERLAP") == 0 && self.lines("LEADS") == self.terms;
        ensure!(is_well, "{}", self.process.stdout());
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

#[tokio::test]
async fn a_latch_with_curator_and_kills() -> Result<()> {
    with_kills(ElectionLayout::CuratorLatch, Java, "latch").await
}

#[tokio::test]
async fn a_selector_with_curator_and_kills() -> Result<()> {
    with_kills(ElectionLayout::CuratorSelector, Java, "selector").await
}

#[tokio::test]
async fn an_election_with_kazoo_and_kills() -> Result<()> {
    with_kills(ElectionLayout::Kazoo, Python, "election").await
}

fn are_ready(language: Language) -> bool {
    let peer = match language {
        Java => peers::Peer::Curator,
        Python => peers::Peer::Kazoo,
    };
    peers::ready("interop: elections", &[peers::Peer::ZooKeeper, peer])
}

/// Waits until so many have led, by their ids, none of them behind a later one.
async fn sees(mut leaders: Leaders, how_many: usize) -> Result<BTreeSet<String>> {
    let (mut seen, mut newest) = (BTreeSet::new(), None::<FencingToken>);
    while seen.len() < how_many {
        if let Some(leader) = leaders.next().await? {
            ensure!(newest <= Some(leader.token), "{leader:?} after {newest:?}");
            newest = Some(leader.token);
            seen.insert(leader.id);
        }
    }
    Ok(seen)
}

/// Whoever leads makes a node that must not be there; everybody gets turns; all are seen.
async fn together(layout: ElectionLayout, language: Language, kind: &str) -> Result<()> {
    if !are_ready(language) {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    let client = Client::connect(&connect).await?;
    let election = Election::builder(&client, ELECTION).layout(layout).id("ours").build()?;

    let leaders = election.observe().await?;
    let watching = tokio::spawn(async move { sees(leaders, 3).await });
    let mut others = Vec::new();
    for id in ["theirs 1", "theirs 2"] {
        let mut other = Candidate::start(language, &connect, kind, id, TERMS)?;
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

/// Programs of theirs are killed, mostly as they lead. Whenever ours leads it is the first in line, and its
/// tokens grow; in the end everybody who is left has turns.
///
/// They know no deadline: one of theirs that leads on beside ours after its session has ended is counted as
/// theirs, and printed.
async fn with_kills(layout: ElectionLayout, language: Language, kind: &str) -> Result<()> {
    if !are_ready(language) {
        return Ok(());
    }
    let mut random = fastrand::Rng::with_seed(seed_of(kind));
    let connect = shared_chroot().await?;
    let client = Client::connect(&connect).await?;
    let election = Election::builder(&client, ELECTION).layout(layout).id("ours").build()?;
    let leaders = election.observe().await?;
    let watching = tokio::spawn(async move { sees(leaders, 4).await });
    let start = |number: u32| {
        Candidate::start(language, &connect, kind, &format!("theirs {number}"), NO_END)
    };
    let mut theirs = vec![start(1)?, start(2)?];
    for other in &mut theirs {
        other.process.prints("LEADS", LIMIT).await?;
    }

    let (started, time) = (Instant::now(), time_of_a_contest());
    let (mut newest, mut terms, mut kills, mut strays) = (None, 0, 0_u32, 0);
    while started.elapsed() < time || kills < 2 {
        let leading = tokio::time::timeout(LIMIT, election.campaign()).await;
        let leadership = leading.context("ours does not lead")??;
        ensure!(newest < Some(leadership.token()), "{leadership:?} after {newest:?}");
        newest = Some(leadership.token());
        strays += usize::from(!works_alone(&client, &election, &leadership).await?);
        leadership.resign().await?;
        terms += 1;

        if random.u8(0..8) == 0 {
            tokio::time::sleep(Duration::from_millis(random.u64(0..30))).await;
            let mut victim = theirs.swap_remove(random.usize(..theirs.len()));
            victim.process.kill();
            strays += victim.lines("OVERLAP");
            kills += 1;
            theirs.push(start(2 + kills)?);
        }
    }

    for other in &theirs {
        let (led, start) = (other.lines("LEADS"), Instant::now());
        while other.lines("LEADS") < led + 2 {
            ensure!(start.elapsed() < LIMIT, "one has no turn: {}", other.process.tail());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        strays += other.lines("OVERLAP");
    }
    let seen = tokio::time::timeout(LIMIT, watching).await.context("not all were seen")???;
    println!("{kind}: ours led {terms} times, {kills} killed, {strays} strays of theirs; {seen:?}");
    client.close().await;
    Ok(())
}

/// Leads for a moment, and makes sure that it is the first in line. Says whether nobody else acted as leader.
async fn works_alone(
    client: &Client,
    election: &Election,
    leadership: &lockkeeper::Leadership,
) -> Result<bool> {
    let mark = ZnodePath::new(&format!("{ELECTION}-mark"))?;
    let marked = leadership.transaction().create(&mark, "rust", CreateMode::Ephemeral);
    let is_alone = match marked.commit().await {
        Ok(_) => true,
        Err(TransactionError::Failed { code: ErrorCode::NodeExists, .. }) => false,
        Err(error) => return Err(error.into()),
    };
    let (mut names, _) = client.children(election.path()).await?;
    names.sort_by_key(|name| name[name.len().saturating_sub(10)..].to_owned());
    let first = names.first().context("nobody stands in line")?;
    ensure!(first == leadership.node().name(), "{first} is before {leadership:?}");
    if is_alone {
        client.delete(&mark, None).await?;
    }
    Ok(is_alone)
}
