//! `publish` and `notify`: programs learn about changes by one event each.

use lockkeeper::{Editions, Notify, Publication, ValueChange};
use serde_json::json;

use super::figures::{SceneError, SceneResult};
use crate::commands::demo::stage::Stage;

const FOLLOWERS: usize = 3;

/// How many notifications are made while the waiters are busy.
const BURST: usize = 5;

/// A value is published to followers, and to a program that starts later.
pub(super) async fn publish(stage: &Stage<'_>) -> SceneResult {
    let path = stage.path("greeting");
    let editor = stage.actor().await?;
    let published: Publication<String> = Publication::new(&editor.client, &path)?;
    published.publish(&"hello".to_owned()).await?;

    let mut followers = Vec::new();
    for _ in 0..FOLLOWERS {
        let actor = stage.actor().await?;
        let mut editions = Publication::new(&actor.client, &path)?.follow();
        next_text(&mut editions).await?;
        followers.push((actor, editions));
    }
    stage.say(&format!("   {FOLLOWERS} programs follow a value: \"hello\""))?;

    let before: Vec<_> = followers.iter().map(|(actor, _)| actor.wire.counts()).collect();
    let before_write = editor.wire.counts();
    published.publish(&"good morning".to_owned()).await?;
    let writes = editor.wire.counts().since(before_write).writes;
    stage.say(&format!("   \"good morning\" is published; writes: {writes}"))?;

    let (mut events, mut heard) = (Vec::new(), Vec::new());
    for ((actor, editions), before) in followers.iter_mut().zip(before) {
        heard.push(next_text(editions).await?);
        events.push(actor.wire.counts().since(before).notifications);
    }
    stage.say(&format!("   the followers read {heard:?}"))?;
    stage.say(&format!("   events that each of them had: {events:?}"))?;

    let late = stage.actor().await?;
    let late_reads =
        next_text(&mut Publication::<String>::new(&late.client, &path)?.follow()).await?;
    stage.say(&format!("   a program that starts later reads \"{late_reads}\""))?;
    Ok(json!({ "writes": writes, "events": events, "heard": heard, "late": late_reads }))
}

async fn next_text(editions: &mut Editions<String>) -> Result<String, SceneError> {
    loop {
        if let ValueChange::Set(edition) = editions.next().await? {
            return Ok(edition.value);
        }
    }
}

/// Waiters are woken by one notification, and read once after many.
pub(super) async fn notify(stage: &Stage<'_>) -> SceneResult {
    let path = stage.path("news");
    let teller = stage.actor().await?;
    let news = Notify::new(&teller.client, &path)?;
    let known = news.notify().await?;

    let mut waiters = Vec::new();
    for _ in 0..FOLLOWERS {
        let actor = stage.actor().await?;
        let news = Notify::new(&actor.client, &path)?;
        let woken = tokio::spawn({
            let news = news.clone();
            async move { news.wait_past(known).await }
        });
        actor.wire.wait_for(|counts| counts.watches == 1).await;
        waiters.push((actor, news, woken));
    }
    stage.say(&format!("   {FOLLOWERS} programs wait"))?;

    let told = news.notify().await?;
    let (mut woken, mut events, mut idle) = (0, Vec::new(), Vec::new());
    for (actor, news, wait) in waiters {
        woken += usize::from(wait.await?? == told);
        events.push(actor.wire.counts().notifications);
        // The actor is kept, and its session with it.
        idle.push((actor, news));
    }
    stage.say(&format!("   one notification wakes {woken} of them; events of each: {events:?}"))?;

    let mut last = told;
    for _ in 0..BURST {
        last = news.notify().await?;
    }
    let mut looks = vec![0_u32; idle.len()];
    for ((_actor, news), looks) in idle.iter().zip(&mut looks) {
        let mut known = told;
        while known < last {
            known = news.wait_past(known).await?;
            *looks += 1;
        }
    }
    stage.say(&format!(
        "   {BURST} more while they are busy; looks of each until the last is seen: {looks:?}"
    ))?;
    Ok(json!({ "woken": woken, "events": events, "burst": BURST, "looks": looks }))
}
