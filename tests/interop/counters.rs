//! Our counters and values beside Curator's and kazoo's on the same nodes; and what theirs make of a
//! reply that is lost.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use lockkeeper::{Client, Counter, CounterLayout, CreateMode, Raw, Shared, ZnodePath};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::proxy::{Loss, Proxy};
use lockkeeper_testkit::zookeeper::shared_chroot;
use lockkeeper_testkit::{java, peers, python, scratch};
use lockkeeper_wire::OpCode;
use tempfile::TempDir;

use crate::LIMIT;
use crate::Language::{self, Java, Python};

pub(crate) const COUNTER: &str = "/counter";

/// How often each program adds.
const ADDS: i64 = 150;

/// Seconds that no program needs that ends by itself.
const HOUR: u64 = 3_600;

/// A program that adds 1 so many times.
pub(crate) struct Adder {
    process: Process,
    // After the program, which writes into it.
    _folder: TempDir,
}

impl Adder {
    /// Adds so often, for so many seconds at most.
    pub(crate) fn start(
        language: Language,
        connect: &str,
        kind: &str,
        (adds, seconds): (i64, u64),
    ) -> Result<Self> {
        let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        let folder = scratch::folder()?;
        let mut command = match language {
            Java => java::Program::compile(&interop.join("CuratorCounter.java"))?.command(),
            Python => python::command(&interop.join("kazoo_counter.py")),
        };
        command.args([connect, COUNTER, kind, &adds.to_string(), &seconds.to_string()]);
        let process = Process::spawn("adder", &command, folder.path())?;
        Ok(Self { process, _folder: folder })
    }

    /// Waits for its first add.
    pub(crate) async fn begins(&mut self) -> Result<()> {
        self.process.prints("ADDED ", LIMIT).await
    }

    /// What it had been told when it was killed.
    pub(crate) fn killed(mut self) -> Result<Vec<(i64, i64)>> {
        self.process.kill();
        let text = self.process.stdout();
        // The last line may have come to half.
        adds_in(text.rsplit_once('\n').map_or("", |(whole, _)| whole))
    }

    /// What it was told of each add, when it has ended.
    pub(crate) async fn told(mut self) -> Result<Vec<(i64, i64)>> {
        let ended = self.process.end(LIMIT).await?;
        ensure!(ended.success(), "{}", self.process.tail());
        adds_in(&self.process.stdout())
    }
}

fn adds_in(text: &str) -> Result<Vec<(i64, i64)>> {
    let adds = text.lines().filter_map(|line| line.strip_prefix("ADDED ")).map(|line| {
        let (before, after) = line.split_once(' ').context("two numbers")?;
        Ok((before.parse()?, after.parse()?))
    });
    adds.collect()
}

pub(crate) fn ready(languages: &[Language]) -> bool {
    let mut needed = vec![peers::Peer::ZooKeeper];
    needed.extend(languages.iter().map(|language| match language {
        Java => peers::Peer::Curator,
        Python => peers::Peer::Kazoo,
    }));
    peers::ready("interop: counters", &needed)
}

#[tokio::test]
async fn a_long_with_curator() -> Result<()> {
    together(CounterLayout::CuratorLong, &[(Java, "long"), (Java, "long")]).await
}

#[tokio::test]
async fn an_integer_with_curator_and_kazoo() -> Result<()> {
    let others = [(Java, "int"), (Java, "shared"), (Python, "curator")];
    together(CounterLayout::CuratorInt, &others).await
}

#[tokio::test]
async fn digits_with_kazoo() -> Result<()> {
    together(CounterLayout::KazooAscii, &[(Python, "ascii"), (Python, "ascii")]).await
}

/// While nobody loses a reply, everyone's adds count once, and each was told a place of its own.
async fn together(layout: CounterLayout, others: &[(Language, &str)]) -> Result<()> {
    let languages: Vec<_> = others.iter().map(|(language, _)| *language).collect();
    if !ready(&languages) {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    let client = Client::connect(&connect).await?;
    let counter = Counter::builder(&client, COUNTER).layout(layout).build()?;
    counter.add(0).await?;
    let started =
        others.iter().map(|(language, kind)| Adder::start(*language, &connect, kind, (ADDS, HOUR)));
    let mut started = started.collect::<Result<Vec<_>>>()?;
    // All are at it together. With pauses: theirs read and write one after the other, and would never
    // get between two adds of ours.
    for adder in &mut started {
        adder.begins().await?;
    }
    let mut adds = Vec::new();
    for _ in 0..ADDS {
        let added = counter.add(1).await?;
        adds.push((added.before, added.after));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for adder in started {
        let told = adder.told().await?;
        ensure!(told.len() == usize::try_from(ADDS)?, "{told:?}");
        adds.extend(told);
    }
    adds.sort_unstable();
    for (number, (before, after)) in (0..).zip(&adds) {
        ensure!((*before, *after) == (number, number + 1), "add {number}: {adds:?}");
    }
    ensure!(counter.value().await? == i64::try_from(adds.len())?);
    client.close().await;
    Ok(())
}

/// The reply to one write of Curator's `DistributedAtomicLong` is lost. Its client sends the write
/// again, is told that the version is another, and the recipe adds once more: it tells of one add, and
/// the sum is two. `contract::counter` has the same with ours, which counts once.
#[tokio::test]
async fn a_lost_reply_counts_twice_in_curators_long() -> Result<()> {
    lost(Java, "long", CounterLayout::CuratorLong).await
}

/// The same with `SharedCount`: `trySetCount` says that it did not set what it has set.
#[tokio::test]
async fn a_lost_reply_counts_twice_in_curators_shared_count() -> Result<()> {
    lost(Java, "shared", CounterLayout::CuratorInt).await
}

/// The same with kazoo's `Counter`, which reads and adds again after any lost connection.
#[tokio::test]
async fn a_lost_reply_counts_twice_in_kazoos_counter() -> Result<()> {
    lost(Python, "ascii", CounterLayout::KazooAscii).await
}

async fn lost(language: Language, kind: &str, layout: CounterLayout) -> Result<()> {
    if !ready(&[language]) {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    let (server, chroot) = connect.split_once('/').context("a chroot")?;
    let client = Client::connect(&connect).await?;
    let counter = Counter::builder(&client, COUNTER).layout(layout).build()?;
    counter.add(0).await?;

    let proxy = Proxy::start(server).await?;
    proxy.lose_next(OpCode::SetData, Loss::BeforeReply);
    let adder = Adder::start(language, &format!("{}/{chroot}", proxy.address()), kind, (1, HOUR))?;
    let told = adder.told().await?;
    // What they tell, and what they did.
    ensure!(told == [(1, 2)], "{told:?}");
    ensure!(counter.value().await? == 2, "one add of 1");
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn a_value_with_curator() -> Result<()> {
    if !ready(&[Java]) {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    let client = Client::connect(&connect).await?;
    let value: Shared<Bytes, Raw> = Shared::builder(&client, COUNTER).codec(Raw).build()?;
    value.set(&Bytes::from_static(b"by ours")).await?;
    let mut changes = value.changes();
    changes.next().await?;
    let mut changing = Adder::start(Java, &connect, "value", (1, HOUR))?;
    ensure!(changing.process.end(LIMIT).await?.success(), "{}", changing.process.tail());
    ensure!(changing.process.stdout().contains("VALUE by ours\n"));
    changes.next().await?;
    ensure!(&changes.latest().context("a value")?.value[..] == b"by Curator");
    // An empty node, which Curator takes for a value, is one for us too.
    let path = ZnodePath::new("/empty")?;
    client.create(&path, Bytes::new(), CreateMode::Persistent).await?;
    let empty: Shared<Bytes, Raw> = Shared::builder(&client, "/empty").codec(Raw).build()?;
    ensure!(empty.get().await?.context("a value")?.value.is_empty());
    client.close().await;
    Ok(())
}

/// What we write, kazoo's `DataWatch` reads, also after a connection that was lost.
#[tokio::test]
async fn a_value_is_followed_by_kazoos_data_watch() -> Result<()> {
    if !ready(&[Python]) {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    let (server, chroot) = connect.split_once('/').context("a chroot")?;
    let (client, proxy) = (Client::connect(&connect).await?, Proxy::start(server).await?);
    let value: Shared<Vec<u32>> = Shared::new(&client, COUNTER)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/kazoo_data_watch.py");
    let (mut command, folder) = (python::command(&script), scratch::folder()?);
    command.args([&format!("{}/{chroot}", proxy.address()), COUNTER]);
    let mut theirs = Process::spawn("watch", &command, folder.path())?;
    theirs.prints("ABSENT\n", LIMIT).await?;

    value.set(&vec![1]).await?;
    theirs.prints("VALUE 0 [1]\n", LIMIT).await?;
    value.update(|old| [old.map_or(&[][..], Vec::as_slice), &[2]].concat()).await?;
    theirs.prints("VALUE 1 [1,2]\n", LIMIT).await?;
    proxy.refuse();
    value.set(&vec![3]).await?;
    proxy.restore();
    theirs.prints("VALUE 2 [3]\n", LIMIT).await?;
    client.close().await;
    Ok(())
}
