//! `crash` and `deadlock`: what happens to a lock whose holder is cut off or killed.

use std::time::Instant;

use lockkeeper::{CreateMode, EventKind, ExclusiveNode, Fence, Mutex, ZnodePath};
use serde_json::json;

use super::figures::{SceneResult, ms, timeout_ms, yes};
use crate::commands::demo::stage::Stage;

/// The holder is cut off from the servers, but keeps running.
pub(super) async fn crash(stage: &Stage<'_>) -> SceneResult {
    let path = stage.path("orders");
    let (one, two) = (stage.actor().await?, stage.actor().await?);
    let old = Mutex::new(&one.client, &path)?.acquire().await?;
    stage.say(&format!("   one holds, with token {}", old.token()))?;
    let lock = Mutex::new(&two.client, &path)?;
    let next = async {
        let guard = lock.acquire().await;
        (guard, Instant::now(), old.is_held())
    };
    tokio::pin!(next);
    tokio::select! {
        () = two.wire.wait_for(|counts| counts.watches > 0) => {}
        (guard, ..) = &mut next => {
            drop(guard?);
            return Err("two was granted the lock of one".into());
        }
    }

    let session = timeout_ms(&one);
    let cut = one.kill();
    stage.say(&format!("   two waits; one is cut off; its session timeout: {session} ms"))?;
    let lost = async { (old.lost().await, Instant::now()) };
    let ((reason, lost), (new, granted, both)) = tokio::join!(lost, next);
    let new = new?;
    let (lost, granted) = (ms(cut, lost), ms(cut, granted));
    stage.say(&format!("   one learns after {lost} ms that it has lost the lock:"))?;
    stage.say(&format!("      {reason}"))?;
    stage.say(&format!("   two holds after {granted} ms, with token {}", new.token()))?;
    stage.say(&format!("   one still believed then that it holds: {}", yes(both)))?;

    // The store has seen the token of two before a late write of one arrives.
    let fence = Fence::new();
    let admits = fence.admit(new.token()).is_ok();
    let refuses = fence.admit(old.token()).is_err();
    stage.say("   a store that checks the tokens:")?;
    stage.say(&format!("      admits two: {}; then refuses one: {}", yes(admits), yes(refuses)))?;
    let tokens = [old.token().to_u128(), new.token().to_u128()].map(|token| token.to_string());
    Ok(json!({ "session_timeout_ms": session, "lost_ms": lost, "granted_ms": granted,
               "both_hold": both, "tokens": tokens, "new_admitted": admits,
               "old_refused": refuses }))
}

/// The owner of two locks is killed: one is a persistent node, the other an ephemeral one.
pub(super) async fn deadlock(stage: &Stage<'_>) -> SceneResult {
    let (owner, other) = (stage.actor().await?, stage.actor().await?);
    let node = |name| ZnodePath::new(&stage.path(name));
    let (persistent, ephemeral) = (node("persistent")?, node("ephemeral")?);
    owner.client.ensure(&stage.root, CreateMode::Container).await?;
    owner.client.create(&persistent, "", CreateMode::Persistent).await?;
    owner.client.create(&ephemeral, "", CreateMode::Ephemeral).await?;
    let (_, mut persistent_watch) = other.client.data_watched(&persistent).await?;
    let (_, mut ephemeral_watch) = other.client.data_watched(&ephemeral).await?;

    let session = timeout_ms(&owner);
    let killed = owner.kill();
    stage
        .say(&format!("   the owner of two locks is killed; its session timeout: {session} ms"))?;
    let (freed, event) = tokio::select! {
        event = persistent_watch.changed() => (&persistent, event?),
        event = ephemeral_watch.changed() => (&ephemeral, event?),
    };
    let (freed, after) = (freed.name(), ms(killed, Instant::now()));
    stage.say(&format!("   {:?} of the {freed} node after {after} ms", event.kind))?;

    let (mut granted, mut guards) = (Vec::new(), Vec::new());
    for path in [&persistent, &ephemeral] {
        let guard = ExclusiveNode::new(&other.client, path.as_str())?.try_acquire().await?;
        let is_granted = guard.is_some();
        let name = path.name();
        stage.say(&format!("   the {name} lock is granted to another one: {}", yes(is_granted)))?;
        granted.push(is_granted);
        guards.extend(guard);
    }
    let stays = other.client.exists(&persistent).await?.is_some();
    stage.say(&format!("   the persistent node is still there: {}", yes(stays)))?;
    Ok(json!({ "session_timeout_ms": session, "freed": freed, "freed_ms": after,
               "deleted": event.kind == EventKind::NodeDeleted, "persistent_stays": stays,
               "persistent_granted": granted[0], "ephemeral_granted": granted[1] }))
}
