//! Our counters and values beside Curator's and kazoo's on the same nodes; and what theirs make of a
//! reply that is lost.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use lockkeeper::{Client, Counter, CounterLayout, CreateMode, Raw, Shared, ZnodePath};
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_wire::OpCode;

use crate::theirs::Language::{self, Java, Python};
use crate::theirs::{Place, Theirs};

pub(crate) const COUNTER: &str = "/counter";

/// How often each program adds.
const ADDS: i64 = 150;

/// Seconds that no program needs that ends by itself.
const HOUR: u64 = 3_600;

/// A program of theirs, and what it calls its counter.
pub(crate) type Kind = (Language, &'static str);

/// Starts a program that adds 1 so often, for so many seconds at most.
pub(crate) fn adder(
    (language, kind): Kind,
    connect: &str,
    (adds, seconds): (i64, u64),
) -> Result<Theirs> {
    let (adds, seconds) = (adds.to_string(), seconds.to_string());
    Theirs::start(language, "Counter", &[connect, COUNTER, kind, &adds, &seconds])
}

/// The results that an adder got for each add.
pub(crate) fn adds(adder: &Theirs) -> Result<Vec<(i64, i64)>> {
    let added = adder.said("ADDED ");
    let adds = added.iter().map(|line| {
        let (before, after) = line.split_once(' ').context("two numbers")?;
        Ok((before.parse()?, after.parse()?))
    });
    adds.collect()
}

tests! {
    fn a_long_with_curator() =
        together(CounterLayout::CuratorLong, &[(Java, "long"), (Java, "long")]);
    fn an_integer_with_curator_and_kazoo() =
        together(CounterLayout::CuratorInt, &[(Java, "int"), (Java, "shared"), (Python, "curator")]);
    fn digits_with_kazoo() =
        together(CounterLayout::KazooAscii, &[(Python, "ascii"), (Python, "ascii")]);

    /// The reply to one write of Curator's `DistributedAtomicLong` is lost. Its client sends the write
    /// again, gets a version error, and the recipe adds once more: it reports one add, and
    /// the sum is two. `contract::counter` has the same test with Lockkeeper's counter, which counts once.
    fn a_lost_reply_counts_twice_in_curators_long() =
        lost((Java, "long"), CounterLayout::CuratorLong);
    /// The same with `SharedCount`: `trySetCount` says that it did not set what it has set.
    fn a_lost_reply_counts_twice_in_curators_shared_count() =
        lost((Java, "shared"), CounterLayout::CuratorInt);
    /// The same with kazoo's `Counter`, which reads and adds again after any lost connection.
    fn a_lost_reply_counts_twice_in_kazoos_counter() =
        lost((Python, "ascii"), CounterLayout::KazooAscii);
}

async fn counter(client: &Client, layout: CounterLayout) -> Result<Counter> {
    let counter = Counter::builder(client, COUNTER).layout(layout).build()?;
    counter.add(0).await?;
    Ok(counter)
}

/// Without lost replies, all adds count once, and each got a distinct result.
async fn together(layout: CounterLayout, others: &[Kind]) -> Result<()> {
    let languages: Vec<_> = others.iter().map(|(language, _)| *language).collect();
    let Some(place) = Place::with("counters", &languages).await? else { return Ok(()) };
    let counter = counter(&place.client, layout).await?;
    let started = others.iter().map(|kind| adder(*kind, &place.connect, (ADDS, HOUR)));
    let mut started = started.collect::<Result<Vec<_>>>()?;
    // All are at it together. With pauses: theirs read and write one after the other, and would never
    // get between two adds of ours.
    for adder in &mut started {
        adder.prints("ADDED ").await?;
    }
    let mut all = Vec::new();
    for _ in 0..ADDS {
        let added = counter.add(1).await?;
        all.push((added.before, added.after));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for mut adder in started {
        adder.ends().await?;
        let told = adds(&adder)?;
        ensure!(told.len() == usize::try_from(ADDS)?, "{told:?}");
        all.extend(told);
    }
    all.sort_unstable();
    for (number, (before, after)) in (0..).zip(&all) {
        ensure!((*before, *after) == (number, number + 1), "add {number}: {all:?}");
    }
    ensure!(counter.value().await? == i64::try_from(all.len())?);
    Ok(())
}

async fn lost(kind: Kind, layout: CounterLayout) -> Result<()> {
    let Some(place) = Place::with("counters", &[kind.0]).await? else { return Ok(()) };
    let counter = counter(&place.client, layout).await?;
    let (proxy, through) = place.proxy().await?;
    proxy.lose_next(OpCode::SetData, Loss::BeforeReply);
    let mut adder = adder(kind, &through, (1, HOUR))?;
    adder.ends().await?;
    // What they tell, and what they did.
    let told = adds(&adder)?;
    ensure!(told == [(1, 2)], "{told:?}");
    ensure!(counter.value().await? == 2, "one add of 1");
    Ok(())
}

#[tokio::test]
async fn a_value_with_curator() -> Result<()> {
    let Some(place) = Place::with("counters", &[Java]).await? else { return Ok(()) };
    let client = &place.client;
    let value: Shared<Bytes, Raw> = Shared::builder(client, COUNTER).codec(Raw).build()?;
    value.set(&Bytes::from_static(b"by ours")).await?;
    let mut changes = value.changes();
    changes.next().await?;
    let mut changing = adder((Java, "value"), &place.connect, (1, HOUR))?;
    changing.ends().await?;
    ensure!(changing.said("VALUE ") == ["by ours"]);
    changes.next().await?;
    ensure!(&changes.latest().context("a value")?.value[..] == b"by Curator");
    // An empty node, which Curator takes for a value, is one for us too.
    let path = ZnodePath::new("/empty")?;
    client.create(&path, Bytes::new(), CreateMode::Persistent).await?;
    let empty: Shared<Bytes, Raw> = Shared::builder(client, "/empty").codec(Raw).build()?;
    ensure!(empty.get().await?.context("a value")?.value.is_empty());
    Ok(())
}

/// What we write, kazoo's `DataWatch` reads, also after a connection that was lost.
#[tokio::test]
async fn a_value_is_followed_by_kazoos_data_watch() -> Result<()> {
    let Some(place) = Place::with("counters", &[Python]).await? else { return Ok(()) };
    let (proxy, through) = place.proxy().await?;
    let value: Shared<Vec<u32>> = Shared::new(&place.client, COUNTER)?;
    let mut theirs = Theirs::start(Python, "data_watch", &[&through, COUNTER])?;
    theirs.prints("ABSENT\n").await?;

    value.set(&vec![1]).await?;
    theirs.prints("VALUE 0 [1]\n").await?;
    value.update(|old| [old.map_or(&[][..], Vec::as_slice), &[2]].concat()).await?;
    theirs.prints("VALUE 1 [1,2]\n").await?;
    proxy.refuse();
    value.set(&vec![3]).await?;
    proxy.restore();
    theirs.prints("VALUE 2 [3]\n").await?;
    Ok(())
}
