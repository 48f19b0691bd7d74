//! Lockkeeper's queues together with Curator's and kazoo's on the same path: each item is worked on, by one
//! program at a time, also after kills. Also how their queues handle faults, compared with Lockkeeper's.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use lockkeeper::{
    AtMostOnce, Client, CreateMode, Queue, QueueBuilder, QueueError, QueueLayout, Raw, ZnodePath,
};
use lockkeeper_testkit::backend::children_reach;
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_testkit::scratch;
use lockkeeper_wire::OpCode;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::theirs::Language::{self, Java, Python};
use crate::theirs::{LIMIT, Place, SESSION_MS, Theirs, until};
use crate::{seed_of, time_of_a_contest};

const QUEUE: &str = "/work/queue";
const CLAIMS: &str = "/work/claims";

/// How many items go each way.
const ITEMS: usize = 5;

/// A layout of ours, and what they call it.
#[derive(Clone, Copy)]
struct QueueKind {
    layout: QueueLayout,
    language: Language,
    theirs: &'static str,
    /// Where the claims are, if that can be chosen.
    claims: Option<&'static str>,
}

const fn curator(layout: QueueLayout, theirs: &'static str) -> QueueKind {
    QueueKind { layout, language: Java, theirs, claims: Some(CLAIMS) }
}

const CURATOR: QueueKind = curator(QueueLayout::CuratorQueue, "queue");
const PRIORITY: QueueKind = curator(QueueLayout::CuratorPriority, "priority");
const DELAY: QueueKind = curator(QueueLayout::CuratorDelay, "delay");
const ID: QueueKind = curator(QueueLayout::CuratorId, "id");
const SIMPLE: QueueKind =
    QueueKind { claims: None, ..curator(QueueLayout::CuratorSimple, "simple") };
const UNCLAIMED: QueueKind = QueueKind { claims: None, ..CURATOR };
const KAZOO: QueueKind =
    QueueKind { layout: QueueLayout::KazooQueue, language: Python, theirs: "queue", claims: None };
const LOCKING: QueueKind =
    QueueKind { layout: QueueLayout::KazooLocking, theirs: "locking", ..KAZOO };

impl QueueKind {
    async fn room(self) -> Result<Option<Room>> {
        let Some(place) = Place::with("queues", &[self.language]).await? else { return Ok(None) };
        Ok(Some(Room { kind: self, place, state: scratch::folder()? }))
    }

    fn has_claims(self) -> bool {
        self.claims.is_some() || self.layout == QueueLayout::KazooLocking
    }

    fn builder(self, client: &Client) -> QueueBuilder<Bytes> {
        let builder = Queue::<Bytes>::builder(client, QUEUE).layout(self.layout);
        match self.claims {
            Some(claims) => builder.lock_path(claims),
            None => builder,
        }
    }

    fn claiming(self, client: &Client) -> Result<Queue<Bytes>> {
        Ok(self.builder(client).build_with(Raw)?)
    }

    fn taking_out(self, client: &Client) -> Result<Queue<Bytes, AtMostOnce>> {
        Ok(self.builder(client).delivery(AtMostOnce).build_with(Raw)?)
    }

    fn entries(self) -> Result<ZnodePath> {
        let below = if self.layout == QueueLayout::KazooLocking { "/entries" } else { "" };
        Ok(ZnodePath::new(&format!("{QUEUE}{below}"))?)
    }
}

/// A queue, and the folder in which programs mark the items that they work on.
struct Room {
    kind: QueueKind,
    place: Place,
    state: TempDir,
}

impl Room {
    /// Starts a program that puts this many items on command, or takes items if the number is 0.
    fn start(&self, connect: &str, kind: &str, name: &str, count: usize) -> Result<Theirs> {
        let state = self.state.path().to_str().context("a path")?;
        let claims = self.kind.claims.unwrap_or("-");
        let count = count.to_string();
        let arguments = [connect, SESSION_MS, QUEUE, claims, kind, name, state, &count];
        Theirs::start(self.kind.language, "Queue", &arguments)
    }

    fn theirs(&self, name: &str, count: usize) -> Result<Theirs> {
        self.start(&self.place.connect, self.kind.theirs, name, count)
    }

    /// The same, when it is ready.
    async fn ready(&self, connect: &str, kind: &str, count: usize) -> Result<Theirs> {
        let mut theirs = self.start(connect, kind, "theirs", count)?;
        theirs.prints("READY").await?;
        Ok(theirs)
    }

    async fn put(&self, item: &str) -> Result<()> {
        let kind = self.kind;
        self.place.client.ensure(&kind.entries()?, CreateMode::Persistent).await?;
        kind.taking_out(&self.place.client)?.put(&Bytes::from(item.to_owned())).await?;
        Ok(())
    }

    async fn left(&self) -> Result<usize> {
        Ok(self.place.client.children(&self.kind.entries()?).await?.0.len())
    }
}

fn text(value: &Bytes) -> String {
    String::from_utf8_lossy(value).into_owned()
}

fn items(name: &str, count: usize) -> BTreeSet<String> {
    (0..count).map(|number| format!("{name}-{number}")).collect()
}

/// A file that marks an item as being worked on.
struct AtWork(PathBuf);

impl AtWork {
    /// Starts the work, and checks that no other program works on the item.
    fn on(state: &Path, item: &str, name: &str) -> Result<Self> {
        let own = format!("{item}@{name}");
        fs::OpenOptions::new().write(true).create_new(true).open(state.join(&own))?;
        let at_work = Self(state.join(&own));
        for other in names_in(state)? {
            let same = other.starts_with(&format!("{item}@"));
            ensure!(!same || other == own, "VIOLATION {own} and {other}");
        }
        Ok(at_work)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // The next program that works on the item checks this.
        let _ = fs::remove_file(&self.0);
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let names =
        fs::read_dir(folder)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

tests! {
    fn a_queue_with_curator() = both_ways(CURATOR);
    fn a_queue_without_claims_with_curator() = both_ways(UNCLAIMED);
    fn a_priority_queue_with_curator() = both_ways(PRIORITY);
    fn a_delay_queue_with_curator() = both_ways(DELAY);
    fn an_id_queue_with_curator() = both_ways(ID);
    fn a_simple_queue_with_curator() = both_ways(SIMPLE);
    fn a_queue_with_kazoo() = both_ways(KAZOO);
    fn a_locking_queue_with_kazoo() = both_ways(LOCKING);
    fn a_queue_with_curator_through_kills() = through_kills(CURATOR);
    fn a_locking_queue_with_kazoo_through_kills() = through_kills(LOCKING);
}

/// What they put, we take, and the other way round.
async fn both_ways(kind: QueueKind) -> Result<()> {
    let Some(room) = kind.room().await? else { return Ok(()) };
    let client = &room.place.client;
    let mut theirs = room.theirs("theirs", ITEMS)?;
    theirs.leave("go", "")?;
    theirs.ends().await?;
    let mut taken = Vec::new();
    for _ in 0..ITEMS {
        taken.push(match kind.has_claims() {
            true => {
                let item = kind.claiming(client)?.take_timeout(LIMIT).await?.context("an item")?;
                item.done().await?;
                text(item.value())
            }
            false => text(&kind.taking_out(client)?.take_timeout(LIMIT).await?.context("an item")?),
        });
    }
    ensure!(taken.iter().cloned().collect::<BTreeSet<_>>() == items("theirs", ITEMS), "{taken:?}");
    if kind.layout == QueueLayout::CuratorPriority {
        taken.reverse();
    }
    ensure!(kind.layout == QueueLayout::CuratorDelay || taken.is_sorted(), "{taken:?}");

    for number in 0..ITEMS {
        room.put(&format!("ours-{number}")).await?;
    }
    let mut theirs = room.theirs("theirs", 0)?;
    let took = async || Ok(theirs.said("TOOK ").len() == ITEMS);
    until(took).await.with_context(|| theirs.process.tail())?;
    ensure!(theirs.said("TOOK ") == items("ours", ITEMS).into_iter().collect::<Vec<_>>());
    theirs.end().await?;
    ensure!(room.left().await? == 0);
    Ok(())
}

/// Programs of both put and take, and are killed.
async fn through_kills(kind: QueueKind) -> Result<()> {
    let Some(room) = kind.room().await? else { return Ok(()) };
    let mut random = fastrand::Rng::with_seed(seed_of(&format!("queues: {}", kind.theirs)));
    let client = &room.place.client;
    let queue = kind.claiming(client)?;
    let state = room.state.path();
    let (mut took, mut all) = (Vec::new(), BTreeSet::new());
    let mut workers = Vec::new();
    for name in ["theirs-a", "theirs-b"] {
        let mut worker = room.theirs(name, 0)?;
        worker.prints("READY").await?;
        workers.push((name.to_owned(), worker));
    }
    let mut putting = room.theirs("theirs", 100_000)?;
    putting.prints("READY").await?;
    putting.leave("go", "")?;
    let mut ours = Vec::new();
    for name in ["ours-a", "ours-b"] {
        ours.push(work(&room, name).await?);
    }

    let (start, time, mut kills) = (Instant::now(), time_of_a_contest(), 0);
    while start.elapsed() < time || kills < 2 {
        for _ in 0..20 {
            let item = format!("ours-{}", all.len());
            queue.put(&Bytes::from(item.clone())).await?;
            all.insert(item);
            tokio::time::sleep(Duration::from_millis(random.u64(..20))).await;
        }
        // In the middle of something, most of the time.
        let victim = random.usize(..workers.len() + 1);
        if let Some((name, mut worker)) =
            (victim < workers.len()).then(|| workers.swap_remove(victim))
        {
            worker.process.kill();
            ensure!(worker.said("VIOLATION").is_empty(), "{}", worker.process.tail());
            took.extend(worker.said("TOOK "));
            forget(state, &name)?;
            let name = format!("theirs-{kills}");
            workers.push((name.clone(), room.theirs(&name, 0)?));
            kills += 1;
        } else {
            end(ours.swap_remove(random.usize(..ours.len()))).await?;
            ours.push(work(&room, &format!("ours-{}", all.len())).await?);
        }
    }
    // Those that it says it has put; the last one it may not have said.
    putting.process.kill();
    all.extend(putting.said("PUT "));

    let nothing_left = async || Ok(room.left().await? == 0);
    until(nothing_left).await.with_context(|| workers[0].1.process.tail())?;
    for (_, worker) in &mut workers {
        worker.end().await?;
        ensure!(worker.said("VIOLATION").is_empty(), "{}", worker.process.tail());
        took.extend(worker.said("TOOK "));
    }
    for worker in ours {
        end(worker).await?;
    }
    let log = fs::read_to_string(state.join("log")).unwrap_or_default();
    let by_us = log.lines().count();
    took.extend(log.lines().map(str::to_owned));
    let distinct: BTreeSet<_> = took.iter().cloned().collect();
    let lost: Vec<_> = all.difference(&distinct).collect();
    ensure!(lost.is_empty(), "put, and never taken: {lost:?}");
    let again = took.len() - distinct.len();
    println!("{} items, {by_us} taken by ours, {again} again after {kills} kills", all.len());
    ensure!(by_us > 0 && by_us < took.len(), "both take: {by_us} of {}", took.len());
    Ok(())
}

/// A worker of ours, with a session of its own.
async fn work(room: &Room, name: &str) -> Result<JoinHandle<Result<()>>> {
    let (kind, state) = (room.kind, room.state.path().to_owned());
    let client = Client::connect(&room.place.connect).await?;
    let own = name.to_owned();
    Ok(tokio::spawn(async move {
        let queue = kind.claiming(&client)?;
        loop {
            let item = queue.take().await?;
            let value = text(item.value());
            // It goes before the item, also when the task is cancelled.
            let at_work = AtWork::on(&state, &value, &own)?;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..20))).await;
            note(&state, &value)?;
            drop(at_work);
            item.done().await?;
        }
    }))
}

/// Cancels a worker of ours, wherever it is.
async fn end(worker: JoinHandle<Result<()>>) -> Result<()> {
    worker.abort();
    match worker.await {
        Ok(failed) => failed,
        Err(_) => Ok(()),
    }
}

fn note(state: &Path, item: &str) -> Result<()> {
    use std::io::Write;
    let log = fs::OpenOptions::new().create(true).append(true).open(state.join("log"));
    Ok(log?.write_all(format!("{item}\n").as_bytes())?)
}

/// Takes one that is gone out of what it worked on.
fn forget(state: &Path, name: &str) -> Result<()> {
    for file in names_in(state)? {
        if file.split_once('@').is_some_and(|(_, who)| who == name) {
            fs::remove_file(state.join(file))?;
        }
    }
    Ok(())
}

tests! {
    /// Theirs: the delete is sent again, finds no node, and takes that for the success of another consumer.
    fn a_lost_reply_loses_an_item_of_curators_simple_queue() = lost_item(SIMPLE);
    /// The same of a `DistributedQueue` without a lock path.
    fn a_lost_reply_loses_an_item_of_curators_queue() = lost_item(UNCLAIMED);
    fn a_lost_reply_loses_an_item_of_kazoos_queue() = lost_item(KAZOO);
}

async fn lost_item(kind: QueueKind) -> Result<()> {
    let Some(room) = kind.room().await? else { return Ok(()) };
    let (proxy, through) = room.place.proxy().await?;
    let mut theirs = room.ready(&through, kind.theirs, 0).await?;
    proxy.lose_next(OpCode::Delete, Loss::BeforeReply);
    room.put("lost").await?;
    until(async || Ok(proxy.losses_to_come() == 0)).await?;
    room.put("next").await?;
    theirs.prints("TOOK next").await?;
    ensure!(theirs.said("TOOK ") == ["next"] && room.left().await? == 0);
    theirs.end().await?;

    let client = Client::connect(&through).await?;
    let ours = kind.taking_out(&client)?;
    room.put("first").await?;
    ensure!(text(&ours.take().await?) == "first");
    room.put("second").await?;
    proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    ensure!(text(&ours.take().await?) == "second" && proxy.losses_to_come() == 0);
    Ok(())
}

/// Curator: an unreadable item is deleted, also with claims, and only the log shows it.
#[tokio::test]
async fn curators_queue_deletes_what_it_cannot_read() -> Result<()> {
    let Some(room) = CURATOR.room().await? else { return Ok(()) };
    let ours = CURATOR.claiming(&room.place.client)?;
    room.put("fine").await?;
    let bad = CURATOR.entries()?.child("queue-0000000000")?;
    room.place.client.delete(&bad, None).await?;
    room.place.client.create(&bad, "no item file", CreateMode::Persistent).await?;
    let told = ours.try_take().await;
    ensure!(matches!(told, Err(QueueError::Undecodable { .. })), "{told:?}");
    ensure!(ours.try_take().await?.is_none() && room.left().await? == 1);

    let mut theirs = room.ready(&room.place.connect, CURATOR.theirs, 0).await?;
    until(async || Ok(room.left().await? == 0)).await?;
    theirs.end().await?;
    ensure!(theirs.said("TOOK ").is_empty(), "{}", theirs.process.tail());
    Ok(())
}

/// Theirs: a put whose reply is lost is sent again, and is two items.
#[tokio::test]
async fn a_lost_reply_doubles_an_item_in_curators_queue() -> Result<()> {
    let Some(room) = CURATOR.room().await? else { return Ok(()) };
    let (proxy, through) = room.place.proxy().await?;
    let mut theirs = room.ready(&through, CURATOR.theirs, 1).await?;
    proxy.lose_next(OpCode::Create2, Loss::BeforeReply);
    theirs.leave("go", "")?;
    theirs.ends().await?;
    ensure!(proxy.losses_to_come() == 0 && room.left().await? == 2);

    let client = Client::connect(&through).await?;
    let ours = CURATOR.claiming(&client)?;
    ours.put(&Bytes::from_static(b"first")).await?;
    proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    ours.put(&Bytes::from_static(b"second")).await?;
    ensure!(proxy.losses_to_come() == 0 && room.left().await? == 4);
    Ok(())
}

/// kazoo: a claim whose reply was lost is taken for that of another consumer, so the item is not worked on until the
/// session ends.
#[tokio::test]
async fn kazoos_own_claim_is_anothers_after_a_lost_reply() -> Result<()> {
    let Some(room) = LOCKING.room().await? else { return Ok(()) };
    room.put("x").await?;
    let (proxy, through) = room.place.proxy().await?;
    proxy.lose_next(OpCode::Create, Loss::BeforeReply);
    let mut theirs = room.ready(&through, LOCKING.theirs, 0).await?;
    theirs.prints("LOST").await?;
    // It looks again and again.
    let looks = async || Ok(theirs.said("NOTHING").len() > 15);
    until(looks).await.with_context(|| theirs.process.tail())?;
    ensure!(theirs.said("TOOK ").is_empty() && room.left().await? == 1);
    let claims = ZnodePath::new(QUEUE)?.child("taken")?;
    ensure!(room.place.client.children(&claims).await?.0.len() == 1, "its own");
    theirs.end().await?;

    let client = Client::connect(&through).await?;
    let ours = LOCKING.claiming(&client)?;
    let item = ours.take().await?;
    item.done().await?;
    room.put("y").await?;
    proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    let item = ours.take().await?;
    ensure!(proxy.losses_to_come() == 0 && text(item.value()) == "y");
    Ok(item.done().await?)
}

/// Theirs: the watches are used up by a lost connection, which `get` does not look at. It waits on, whatever is put.
#[tokio::test]
async fn kazoos_get_waits_on_after_a_lost_connection() -> Result<()> {
    let Some(room) = LOCKING.room().await? else { return Ok(()) };
    let (proxy, through) = room.place.proxy().await?;
    let mut theirs = room.ready(&through, "once", 0).await?;
    until(async || Ok(proxy.watches() == 2)).await?;
    proxy.cut();
    let is_back = async || Ok(theirs.said("STATE ") == ["CONNECTED", "SUSPENDED", "CONNECTED"]);
    until(is_back).await.with_context(|| theirs.process.tail())?;
    room.put("x").await?;
    theirs.prints("NOTHING").await?;
    theirs.ends().await?;
    ensure!(room.left().await? == 1, "it was there");

    let client = Client::connect(&through).await?;
    let ours = LOCKING.claiming(&client)?;
    ours.take().await?.done().await?;
    let waiting = tokio::spawn(async move { ours.take().await });
    let line = ZnodePath::new(&format!("{QUEUE}-__lockkeeper__"))?;
    children_reach(&room.place.client, &line, 1).await?;
    proxy.cut();
    room.put("y").await?;
    let item = tokio::time::timeout(LIMIT, waiting).await???;
    ensure!(text(item.value()) == "y");
    Ok(item.done().await?)
}

/// Curator: a consumer does not learn that its session has ended. It works concurrently with the next one, and
/// deletes the item that this one has claimed. A Lockkeeper holder learns of it, and cannot end an item without its
/// claim (contract).
#[tokio::test]
async fn curators_consumer_ends_what_another_has_claimed() -> Result<()> {
    let Some(room) = CURATOR.room().await? else { return Ok(()) };
    let (proxy, through) = room.place.proxy().await?;
    let mut theirs = room.ready(&through, CURATOR.theirs, 0).await?;
    room.put("slow").await?;
    theirs.prints("BEGINS slow").await?;
    proxy.expire_session().await?;
    let ours = CURATOR.claiming(&room.place.client)?;
    let item = ours.take_timeout(LIMIT).await?.context("an item")?;

    theirs.leave("go", "")?;
    theirs.prints("TOOK slow").await?;
    until(async || Ok(room.left().await? == 0)).await.with_context(|| theirs.process.tail())?;
    let done = item.done().await;
    ensure!(matches!(done, Err(QueueError::Lost { .. })), "{done:?}");
    theirs.end().await
}
