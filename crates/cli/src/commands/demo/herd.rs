//! The second part of the story: one release, many waiters.

use std::future::{Future, pending};
use std::time::{Duration, Instant};

use lockkeeper::{Client, CreateMode, Error, Mutex, Watcher, ZnodePath};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::counter::Counts;
use super::stage::Stage;
use crate::shared::exit::{Exit, Failure};

/// The cost of one release.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    notifications: u64,
    requests: u64,
    bytes: u64,
    /// From the release until the next waiter had the lock.
    next_holder_ms: f64,
}

/// The width of the longest bar.
const BAR: u64 = 23;

/// The watches of each waiter in the fair queue: one on the node before its own, immediately, and one on its own node,
/// after a while.
const WATCHES: u64 = 2;

/// How long all waiters may take to join the queue. Longer than any server needs: counts that are taken too early would
/// be wrong.
const LINE_UP_LIMIT: Duration = Duration::from_secs(60);

/// When a waiter had the lock, and what it keeps until the counts are taken.
type TimedTurn<T> = Result<(Instant, T), Failure>;

/// Shows both; returns the figures of the naive queue and of the fair one.
pub(super) async fn play(stage: &Stage<'_>, waiters: u16) -> Result<(Figures, Figures), Failure> {
    stage.say(&stage.paint.bold(&format!("2. One release, {waiters} waiters")))?;
    stage.say("   naive: every waiter watches the list of contenders")?;
    stage.say("   fair:  every waiter watches the one before it\n")?;
    let heading = "         notifications  requests     bytes  next holder";
    stage.say(&stage.paint.dim(heading))?;

    let mut crowd = Crowd::gather(stage, waiters).await?;
    let naive = crowd.naive().await?;
    stage.say(&row(stage, "naive", naive, naive.notifications))?;
    let fair = crowd.fair().await?;
    stage.say(&row(stage, "fair", fair, naive.notifications))?;

    crowd.leave().await?;
    stage.say(&format!(
        "\n   Counted on the wire, with a connection for each of the {} clients.",
        u32::from(waiters) + 1
    ))?;
    Ok((naive, fair))
}

fn row(stage: &Stage<'_>, name: &str, figures: Figures, most: u64) -> String {
    let Figures { notifications, requests, bytes, next_holder_ms } = figures;
    let length = (notifications * BAR).div_ceil(most.max(1));
    let bar = "#".repeat(usize::try_from(length).unwrap_or_default());
    let bar = if name == "fair" { stage.paint.green(&bar) } else { stage.paint.yellow(&bar) };
    format!(
        "   {name:<6}{notifications:>13}{requests:>10}{bytes:>10}{next_holder_ms:>10.1} ms  {bar}"
    )
}

/// A holder and waiters, each with its own session.
struct Crowd<'a> {
    stage: &'a Stage<'a>,
    holder: Client,
    waiters: Vec<Client>,
}

impl<'a> Crowd<'a> {
    async fn gather(stage: &'a Stage<'a>, waiters: u16) -> Result<Self, Failure> {
        let holder = stage.client().await?;
        let mut crowd = Self { stage, holder, waiters: Vec::new() };
        for _ in 0..waiters {
            crowd.waiters.push(stage.client().await?);
        }
        Ok(crowd)
    }

    /// The queue in which every waiter watches the list.
    async fn naive(&mut self) -> Result<Figures, Failure> {
        let path = self.stage.root.clone();
        self.holder.ensure(&path, CreateMode::Container).await?;
        let first = enter(&self.holder, &path).await?;

        let mut line = JoinSet::new();
        let mut views = Vec::new();
        for client in &self.waiters {
            let (client, path) = (client.clone(), path.clone());
            let (view, seen) = watch::channel(0);
            views.push(seen);
            line.spawn_local(async move {
                let own = enter(&client, &path).await?;
                Ok(reach_front(&client, &path, &own, &view).await?)
            });
        }

        // Until then, new waiters wake those that already wait.
        let all = views.len() + 1;
        lined_up(&mut line, all_see(&mut views, all)).await?;
        let before = self.quiet().await?;
        let released = Instant::now();
        self.holder.delete(&first, None).await?;
        let (next, _watcher) = turn(&mut line).await?;
        lined_up(&mut line, all_see(&mut views, all - 1)).await?;
        let figures = Figures::new(self.quiet().await?.since(before), next - released);

        line.shutdown().await;
        self.tidy(&path).await?;
        Ok(figures)
    }

    /// The queue in which every waiter watches the node before its own.
    async fn fair(&mut self) -> Result<Figures, Failure> {
        let path = self.stage.root.clone();
        let guard = Mutex::new(&self.holder, path.as_str())?.acquire().await?;
        let watches = self.quiet().await?.watches + self.waiters.len() as u64 * WATCHES;

        let mut line = JoinSet::new();
        for client in &self.waiters {
            let lock = Mutex::new(client, path.as_str())?;
            line.spawn_local(async move {
                let guard = lock.acquire().await?;
                Ok((Instant::now(), guard))
            });
        }

        let counter = &self.stage.counter;
        lined_up(&mut line, counter.wait_for(|counts| counts.watches >= watches)).await?;
        let before = self.quiet().await?;
        let released = Instant::now();
        let (gone, next) = tokio::join!(guard.release(), turn(&mut line));
        gone.map_err(|error| Failure::new(Exit::NoServer, error.to_string()))?;
        let (next, _guard) = next?;
        let figures = Figures::new(self.quiet().await?.since(before), next - released);

        line.shutdown().await;
        Ok(figures)
    }

    /// The counts when a round trip of every session causes no further messages. Notifications of a change arrive
    /// before the reply to a later sync.
    async fn quiet(&self) -> Result<Counts, Failure> {
        let mut before = self.stage.counter.counts();
        loop {
            let sessions = self.waiters.iter().chain([&self.holder]);
            let synced: Vec<_> = sessions.map(|client| client.sync(&self.stage.root)).collect();
            for reply in synced {
                reply.await?;
            }

            let now = self.stage.counter.counts();
            if now == before {
                return Ok(now);
            }
            before = now;
        }
    }

    /// Deletes the contenders of the naive queue.
    async fn tidy(&self, path: &ZnodePath) -> Result<(), Error> {
        let (names, _) = self.holder.children(path).await?;
        let nodes = names.iter().filter_map(|name| path.child(name).ok());
        let deleted: Vec<_> = nodes.map(|node| self.holder.delete(&node, None)).collect();
        for deleted in deleted {
            deleted.await?;
        }
        Ok(())
    }

    /// Closes all sessions, which deletes their nodes, and then deletes the lock's own node.
    async fn leave(self) -> Result<(), Failure> {
        let mut leaving = JoinSet::new();
        for client in self.waiters {
            leaving.spawn_local(async move { client.close().await });
        }
        while leaving.join_next().await.is_some() {}
        // If a contender is still in the queue, the servers delete the node with the last contender.
        let _ = self.holder.delete(&self.stage.root, None).await;
        self.holder.close().await;
        Ok(())
    }
}

impl Figures {
    fn new(counts: Counts, took: Duration) -> Self {
        let Counts { notifications, requests, bytes, .. } = counts;
        Self { notifications, requests, bytes, next_holder_ms: took.as_secs_f64() * 1_000.0 }
    }
}

/// The next waiter that has the lock.
async fn turn<T: 'static>(line: &mut JoinSet<TimedTurn<T>>) -> TimedTurn<T> {
    let nobody = || Failure::new(Exit::Bug, "no waiter got the lock after the release");
    line.join_next().await.ok_or_else(nobody)?.map_err(|_| nobody())?
}

/// Waits until all waiters are in the queue, or one of them has failed.
async fn lined_up<T: 'static>(
    line: &mut JoinSet<TimedTurn<T>>,
    all_there: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let early = || Failure::new(Exit::Bug, "a waiter got the lock before the release");
    let late = format!("not all waiters were in line within {LINE_UP_LIMIT:?}");
    tokio::select! {
        biased;
        there = timeout(LINE_UP_LIMIT, all_there) => {
            there.map_err(|_| Failure::new(Exit::NoServer, late))
        }
        ended = turn(line) => Err(ended.err().unwrap_or_else(early)),
    }
}

/// Waits until every waiter of the naive queue has seen a list of this length.
async fn all_see(views: &mut [watch::Receiver<usize>], count: usize) {
    for seen in views {
        if seen.wait_for(|seen| *seen == count).await.is_err() {
            // The task of that waiter returns the error.
            pending::<()>().await;
        }
    }
}

async fn enter(client: &Client, path: &ZnodePath) -> Result<ZnodePath, Error> {
    let name = path.child("naive-").unwrap_or_else(|_| path.clone());
    Ok(client.create(&name, "", CreateMode::EphemeralSequential).await?.path)
}

/// Reads the whole list after every change, and publishes its length. Also returns the last watch: removing it would be
/// another request.
async fn reach_front(
    client: &Client,
    path: &ZnodePath,
    own: &ZnodePath,
    view: &watch::Sender<usize>,
) -> Result<(Instant, Watcher), Error> {
    loop {
        let ((names, _), mut watcher) = client.children_watched(path).await?;
        view.send_replace(names.len());
        if names.iter().min().is_some_and(|first| first == own.name()) {
            return Ok((Instant::now(), watcher));
        }
        // An expired session is noticed with the next request.
        let _ = watcher.changed().await;
    }
}
