//! `order`: readers share a lock, and a reader that arrives after a writer does not overtake it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lockkeeper::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::figures::{SceneError, SceneResult};
use crate::commands::demo::stage::Stage;

/// The order of the requests. The first letter is the kind: read or write.
const ASKED: [&str; 4] = ["R1", "R2", "W3", "R4"];

/// A program that is granted the lock, and the number of holders at that time.
type Grant = (&'static str, u32);

enum RwGuard {
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
}

/// Two readers hold the lock, a writer waits, and a reader waits behind the writer.
pub(super) async fn order(stage: &Stage<'_>) -> SceneResult {
    let path = stage.path("catalogue");
    let holders = Arc::new(AtomicU32::new(0));
    let (grants, mut granted) = mpsc::unbounded_channel();
    let mut order: Vec<Grant> = Vec::new();
    let (mut actors, mut asked) = (Vec::new(), Vec::new());
    for name in ASKED {
        let actor = stage.actor().await?;
        let lock = RwLock::new(&actor.client, &path)?;
        let (end, ended) = oneshot::channel();
        let task = hold(lock, name, Arc::clone(&holders), grants.clone(), ended);
        asked.push((name, end, tokio::spawn(task)));
        // The next program asks after this one holds the lock, or watches the node that it waits for.
        tokio::select! {
            Some(grant) = granted.recv() => say_grant(stage, &mut order, grant)?,
            () = actor.wire.wait_for(|counts| counts.watches > 0) => {
                stage.say(&format!("   {name} waits"))?;
            }
        }
        actors.push(actor);
    }

    for released in 0..ASKED.len() {
        let &(name, _) = order.get(released).ok_or("a free lock is not granted")?;
        let at = asked.iter().position(|(other, ..)| *other == name).ok_or("an unknown grant")?;
        let (_, end, task) = asked.swap_remove(at);
        stage.say(&format!("   {name} releases"))?;
        let _ = end.send(());
        task.await??;

        if order.len() == released + 1 && !asked.is_empty() {
            say_grant(stage, &mut order, granted.recv().await.ok_or("no one is left")?)?;
        }
        while let Ok(grant) = granted.try_recv() {
            say_grant(stage, &mut order, grant)?;
        }
    }
    let (granted, holding): (Vec<_>, Vec<_>) = order.into_iter().unzip();
    stage.say(&format!("\n   asked:   {}", ASKED.join(" ")))?;
    stage.say(&format!("   granted: {}", granted.join(" ")))?;
    Ok(json!({ "asked": ASKED, "granted": granted, "holding": holding }))
}

fn say_grant(stage: &Stage<'_>, order: &mut Vec<Grant>, grant: Grant) -> Result<(), SceneError> {
    stage.say(&format!("   {} holds; holders: {}", grant.0, grant.1))?;
    order.push(grant);
    Ok(())
}

/// Holds the lock, from its grant until the end.
async fn hold(
    lock: RwLock,
    name: &'static str,
    holders: Arc<AtomicU32>,
    grants: mpsc::UnboundedSender<Grant>,
    ended: oneshot::Receiver<()>,
) -> Result<(), SceneError> {
    let held = match name.starts_with('W') {
        true => RwGuard::Write(lock.write().await?),
        false => RwGuard::Read(lock.read().await?),
    };
    let now = holders.fetch_add(1, Ordering::SeqCst) + 1;
    let _ = grants.send((name, now));
    let _ = ended.await;
    holders.fetch_sub(1, Ordering::SeqCst);
    match held {
        RwGuard::Read(guard) => guard.release().await?,
        RwGuard::Write(guard) => guard.release().await?,
    }
    Ok(())
}
