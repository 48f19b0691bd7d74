//! Lockkeeper's elections together with Curator's and kazoo's on the same path: one leader at a time, turns for
//! all candidates, and an observer that sees all leaders; without faults, and with killed programs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper::{
    Client, CreateMode, Election, ElectionLayout, ErrorCode, FencingToken, Leaders, Leadership,
    TransactionError, ZnodePath,
};

use crate::theirs::Language::{self, Java, Python};
use crate::theirs::{LIMIT, Place, SESSION_MS, Theirs, until};
use crate::{seed_of, time_of_a_contest};

const ELECTION: &str = "/election";

/// How often each program leads.
const TERMS: usize = 40;

/// As often as there is time.
const NO_END: usize = 1_000_000;

/// A layout of ours, and what they call it.
type Kind = (ElectionLayout, Language, &'static str);

const LATCH: Kind = (ElectionLayout::CuratorLatch, Java, "latch");
const SELECTOR: Kind = (ElectionLayout::CuratorSelector, Java, "selector");
const KAZOO: Kind = (ElectionLayout::Kazoo, Python, "election");

tests! {
    fn a_latch_with_curator() = together(LATCH);
    fn a_selector_with_curator() = together(SELECTOR);
    fn an_election_with_kazoo() = together(KAZOO);
    fn a_latch_with_curator_and_kills() = with_kills(LATCH);
    fn a_selector_with_curator_and_kills() = with_kills(SELECTOR);
    fn an_election_with_kazoo_and_kills() = with_kills(KAZOO);
}

/// Starts a program that leads so many times.
fn candidate((_, language, kind): Kind, connect: &str, id: &str, terms: usize) -> Result<Theirs> {
    let session = if terms == NO_END { SESSION_MS } else { "10000" };
    let arguments = [connect, ELECTION, kind, id, &terms.to_string(), session];
    Theirs::start(language, "Election", &arguments)
}

/// How often a candidate led, and how often another one led at that time.
fn terms_of(candidate: &Theirs) -> (usize, usize) {
    (candidate.said("LEADS").len(), candidate.said("OVERLAP").len())
}

fn election(client: &Client, layout: ElectionLayout) -> Result<Election> {
    Ok(Election::builder(client, ELECTION).layout(layout).id("ours").build()?)
}

/// The node that a leader creates, and must not find.
fn mark() -> ZnodePath {
    ZnodePath::new(&format!("{ELECTION}-mark")).expect("a path")
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

/// Each leader creates a node that must not exist before; all candidates get turns; the observer sees all leaders.
async fn together(kind: Kind) -> Result<()> {
    let Some(Place { connect, client }) = Place::with("elections", &[kind.1]).await? else {
        return Ok(());
    };
    let election = election(&client, kind.0)?;
    let leaders = election.observe().await?;
    let watching = tokio::spawn(sees(leaders, 3));
    let mut others = Vec::new();
    for id in ["theirs 1", "theirs 2"] {
        let mut other = candidate(kind, &connect, id, TERMS)?;
        other.prints("LEADS").await?;
        others.push(other);
    }

    for term in 0..TERMS {
        let leadership = election.campaign().await?;
        leadership.proclaim(format!("term {term}")).await?;
        client.create(&mark(), "rust", CreateMode::Ephemeral).await.context("two lead")?;
        tokio::time::sleep(Duration::from_millis(5)).await;
        client.delete(&mark(), None).await?;
        leadership.resign().await?;
    }
    for other in &mut others {
        other.ends().await?;
        ensure!(terms_of(other) == (TERMS, 0), "{}", other.process.stdout());
    }
    let seen = tokio::time::timeout(LIMIT, watching).await.context("not all were seen")???;
    ensure!(seen.contains("ours"), "{seen:?}");
    Ok(())
}

/// Programs of other libraries are killed, mostly while they lead. Whenever a Lockkeeper candidate leads, it is
/// the first in the queue, and its tokens grow. In the end all remaining candidates get turns.
///
/// They know no deadline: one of theirs that leads on beside ours after its session has ended is counted as
/// theirs, and printed.
async fn with_kills(kind: Kind) -> Result<()> {
    let Some(Place { connect, client }) = Place::with("elections", &[kind.1]).await? else {
        return Ok(());
    };
    let mut random = fastrand::Rng::with_seed(seed_of(kind.2));
    let election = election(&client, kind.0)?;
    let leaders = election.observe().await?;
    let watching = tokio::spawn(sees(leaders, 4));
    let start = |number: u32| candidate(kind, &connect, &format!("theirs {number}"), NO_END);
    let mut theirs = vec![start(1)?, start(2)?];
    for other in &mut theirs {
        other.prints("LEADS").await?;
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
            strays += terms_of(&victim).1;
            kills += 1;
            theirs.push(start(2 + kills)?);
        }
    }

    for other in &theirs {
        let (led, _) = terms_of(other);
        let has_turns = until(async || Ok(terms_of(other).0 >= led + 2)).await;
        has_turns.with_context(|| format!("one has no turn: {}", other.process.tail()))?;
        strays += terms_of(other).1;
    }
    let seen = tokio::time::timeout(LIMIT, watching).await.context("not all were seen")???;
    let (_, _, name) = kind;
    println!("{name}: ours led {terms} times, {kills} killed, {strays} strays of theirs; {seen:?}");
    Ok(())
}

/// Leads for a moment, and checks that it is the first in the queue. Returns whether no other candidate acted as
/// leader.
async fn works_alone(
    client: &Client,
    election: &Election,
    leadership: &Leadership,
) -> Result<bool> {
    let marked = leadership.transaction().create(&mark(), "rust", CreateMode::Ephemeral);
    let is_alone = match marked.commit().await {
        Ok(_) => true,
        Err(TransactionError::Failed { code: ErrorCode::NodeExists, .. }) => false,
        Err(error) => return Err(error.into()),
    };
    let (mut names, _) = client.children(election.path()).await?;
    names.sort_by_key(|name| name[name.len().saturating_sub(10)..].to_owned());
    let first = names.first().context("the queue is empty")?;
    ensure!(first == leadership.node().name(), "{first} is before {leadership:?}");
    if is_alone {
        client.delete(&mark(), None).await?;
    }
    Ok(is_alone)
}
