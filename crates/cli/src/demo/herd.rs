//! The second part: one release, many waiters.

use std::time::{Duration, Instant};

use lockkeeper::{Client, CreateMode, Error, Mutex, ZnodePath};
use serde::Serialize;
use tokio::task::JoinSet;

use super::Stage;
use super::counter::Counts;
use crate::exit::{Exit, Failure};

/// What one release caused.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    notifications: u64,
    requests: u64,
    bytes: u64,
    /// From the release until the next one had the lock.
    next_holder_ms: f64,
}

/// How wide the longest bar is.
const BAR: u64 = 23;

/// Plays both; gives the figures of the naive queue and of the fair one.
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

/// One who holds, and those who wait, each with a session of its own.
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

    /// The queue in which everyone watches the list.
    async fn naive(&mut self) -> Result<Figures, Failure> {
        let path = self.stage.root.clone();
        self.holder.ensure(&path, CreateMode::Container).await?;
        let first = enter(&self.holder, &path).await?;
        let mut lines = JoinSet::new();
        for client in &self.waiters {
            let (client, path) = (client.clone(), path.clone());
            lines.spawn_local(async move {
                let own = enter(&client, &path).await?;
                reach_front(&client, &path, &own).await
            });
        }
        let before = self.stage.counter.settled().await;
        let released = Instant::now();
        self.holder.delete(&first, None).await?;
        let next = lines.join_next().await;
        let took = released.elapsed();
        let figures = self.figures(before, took).await;
        next.ok_or_else(nobody)?.map_err(|_| nobody())??;
        lines.shutdown().await;
        self.tidy(&path).await?;
        Ok(figures)
    }

    /// The queue in which everyone watches the one before.
    async fn fair(&mut self) -> Result<Figures, Failure> {
        let path = self.stage.root.clone();
        let guard = Mutex::new(&self.holder, path.as_str())?.acquire().await?;
        let mut lines = JoinSet::new();
        for client in &self.waiters {
            let lock = Mutex::new(client, path.as_str())?;
            lines.spawn_local(async move { lock.acquire().await });
        }
        let before = self.stage.counter.settled().await;
        let released = Instant::now();
        let next = tokio::join!(guard.release(), lines.join_next()).1;
        let took = released.elapsed();
        let figures = self.figures(before, took).await;
        let _guard = next.ok_or_else(nobody)?.map_err(|_| nobody())??;
        lines.shutdown().await;
        Ok(figures)
    }

    async fn figures(&self, before: Counts, took: Duration) -> Figures {
        let Counts { notifications, requests, bytes } =
            self.stage.counter.settled().await.since(before);
        Figures { notifications, requests, bytes, next_holder_ms: took.as_secs_f64() * 1_000.0 }
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

    /// Ends all sessions, and with them their nodes; then the lock's own.
    async fn leave(self) -> Result<(), Failure> {
        let mut leaving = JoinSet::new();
        for client in self.waiters {
            leaving.spawn_local(async move { client.close().await });
        }
        while leaving.join_next().await.is_some() {}
        // If somebody is still in line, the servers delete it with the last one.
        let _ = self.holder.delete(&self.stage.root, None).await;
        self.holder.close().await;
        Ok(())
    }
}

fn nobody() -> Failure {
    Failure::new(Exit::Bug, "nobody got the lock after the release")
}

async fn enter(client: &Client, path: &ZnodePath) -> Result<ZnodePath, Error> {
    let name = path.child("naive-").unwrap_or_else(|_| path.clone());
    Ok(client.create(&name, "", CreateMode::EphemeralSequential).await?.path)
}

/// Looks at the whole list after every change of it.
async fn reach_front(client: &Client, path: &ZnodePath, own: &ZnodePath) -> Result<(), Error> {
    loop {
        let ((names, _), mut watcher) = client.children_watched(path).await?;
        if names.iter().min().is_some_and(|first| first == own.name()) {
            return Ok(());
        }
        // A session that is over shows with the next request.
        let _ = watcher.changed().await;
    }
}
