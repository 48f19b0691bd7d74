//! `disconnects`: many clients lose their connections at once.

use std::time::Instant;

use lockkeeper::Mutex;
use serde_json::json;

use super::figures::{SceneResult, ms};
use crate::commands::demo::stage::Stage;

const HOLDERS: u32 = 20;

/// Each program holds its own lock, for which another program waits.
pub(super) async fn disconnects(stage: &Stage<'_>) -> SceneResult {
    let mut holders = Vec::new();
    for number in 0..HOLDERS {
        let client = stage.client().await?;
        let guard = Mutex::new(&client, &stage.path(&format!("lock-{number}")))?.acquire().await?;
        holders.push((client.session_id(), client, guard));
    }
    let waiter = stage.actor().await?;
    let mut waits = tokio::task::JoinSet::new();
    for number in 0..HOLDERS {
        let lock = Mutex::new(&waiter.client, &stage.path(&format!("lock-{number}")))?;
        waits.spawn(async move { lock.acquire().await });
    }
    waiter.wire.wait_for(|counts| counts.watches >= u64::from(HOLDERS)).await;
    stage.say(&format!("   {HOLDERS} programs hold a lock each; another one waits for all"))?;

    let before = stage.counter.counts().connections;
    let dropped = Instant::now();
    stage.counter.drop_connections();
    stage.counter.wait_for(|counts| counts.connections >= before + u64::from(HOLDERS)).await;
    let (mut sessions, mut kept) = (0, 0);
    for (session, client, guard) in &holders {
        client.reachable().await;
        sessions += u32::from(client.session_id() == *session);
        kept += u32::from(guard.verify().await.is_ok());
    }
    let back = ms(dropped, Instant::now());
    let connected = stage.counter.counts().connections - before;
    stage.say(&format!("   all connections end at once; new ones: {connected}"))?;
    stage.say(&format!("   after {back} ms all are back; sessions kept: {sessions}"))?;

    let mut others = 0;
    while let Some(granted) = waits.try_join_next() {
        let _guard = granted??;
        others += 1;
    }
    stage
        .say(&format!("   locks that the servers confirm: {kept}; granted to others: {others}"))?;

    for (_, _, guard) in holders {
        guard.release().await?;
    }
    let mut granted = 0;
    while let Some(next) = waits.join_next().await {
        next??.release().await?;
        granted += 1;
    }
    stage.say(&format!("   all release; granted to the waiting program: {granted}"))?;
    Ok(
        json!({ "holders": HOLDERS, "connections": connected, "sessions_kept": sessions, "locks_kept": kept,
               "granted_meanwhile": others, "granted_later": granted, "back_ms": back }),
    )
}
