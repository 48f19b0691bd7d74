//! `herd`: a lock of one node that all waiters watch, compared with a lock that has a queue.

use std::future::Future;

use lockkeeper::{AcquireError, Client, ExclusiveNode, Mutex};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::figures::{SceneError, SceneResult};
use crate::commands::demo::stage::Stage;

const WAITERS: u32 = 20;

/// One release of each lock.
pub(super) async fn herd(stage: &Stage<'_>) -> SceneResult {
    let holder = stage.client().await?;
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(stage.client().await?);
    }
    let crowd = Crowd { stage, waiters };

    let path = stage.path("node");
    let lock = |client: &Client| ExclusiveNode::new(client, &path);
    let guard = lock(&holder)?.acquire().await?;
    let locks = crowd.waiters.iter().map(lock).collect::<Result<Vec<_>, _>>()?;
    let waits = locks.into_iter().map(|lock| async move { lock.acquire().await }).collect();
    // A waiter that is woken without getting the lock watches the node again.
    let one_node = crowd.release(waits, guard.release(), u64::from(WAITERS) - 1).await?;
    say(stage, "one node, which all watch", &one_node)?;

    let path = stage.path("line");
    let lock = |client: &Client| Mutex::new(client, &path);
    let guard = lock(&holder)?.acquire().await?;
    let locks = crowd.waiters.iter().map(lock).collect::<Result<Vec<_>, _>>()?;
    let waits = locks.into_iter().map(|lock| async move { lock.acquire().await }).collect();
    let line = crowd.release(waits, guard.release(), 0).await?;
    say(stage, "a queue, in which each watches the one before it", &line)?;
    Ok(json!({ "waiters": WAITERS, "one_node": one_node, "line": line }))
}

fn say(stage: &Stage<'_>, lock: &str, figures: &Value) -> Result<(), SceneError> {
    let [events, vain, requests] = ["events", "in_vain", "requests"].map(|name| &figures[name]);
    stage.say(&format!("   {lock}: one release, {WAITERS} waiters"))?;
    stage.say(&format!("      events: {events}; in vain: {vain}; requests: {requests}"))?;
    Ok(())
}

struct Crowd<'a> {
    stage: &'a Stage<'a>,
    waiters: Vec<Client>,
}

impl Crowd<'_> {
    /// The cost of one release, until this number of waiters watch again.
    async fn release<G: Send + 'static>(
        &self,
        waits: Vec<impl Future<Output = Result<G, AcquireError>> + Send + 'static>,
        release: impl Future<Output = Result<(), lockkeeper::ReleaseError>>,
        again: u64,
    ) -> Result<Value, SceneError> {
        let counter = &self.stage.counter;
        let watches = counter.counts().watches;
        let mut waits: JoinSet<_> = waits.into_iter().collect();
        counter.wait_for(|counts| counts.watches >= watches + u64::from(WAITERS)).await;

        let before = counter.counts();
        release.await?;
        let first = waits.join_next().await.ok_or("none waits")???;
        counter.wait_for(|counts| counts.watches >= before.watches + again).await;
        // Notifications of a change arrive before the reply to a later sync.
        for client in &self.waiters {
            client.sync(&self.stage.root).await?;
        }
        let counts = counter.counts().since(before);
        let mut granted = 1;
        while let Some(more) = waits.try_join_next() {
            more??;
            granted += 1;
        }
        waits.shutdown().await;
        drop(first);
        Ok(json!({ "events": counts.notifications, "granted": granted,
                   "in_vain": counts.notifications.saturating_sub(granted),
                   "requests": counts.requests }))
    }
}
