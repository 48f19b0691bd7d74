//! `members` and `leader`: a program is killed, and the others notice when its session ends, not earlier.

use std::time::Instant;

use lockkeeper::{Election, Group, MemberChange};
use serde_json::json;

use super::figures::{SceneError, SceneResult, ms, timeout_ms, yes};
use crate::commands::demo::stage::{Actor, Stage};

/// Two members watch the group when the third is killed.
pub(super) async fn members(stage: &Stage<'_>) -> SceneResult {
    let path = stage.path("group");
    let mut joined = Vec::new();
    for id in ["one", "two", "three"] {
        let actor = stage.actor().await?;
        let group = Group::new(&actor.client, &path)?;
        let membership = group.join(id, "").await?;
        joined.push((actor, group, membership));
    }

    let victim = joined.pop().ok_or("no member")?;
    let mut watching = Vec::new();
    for (_, group, membership) in &joined {
        let members = group.watch().await?;
        let view = members.wait_for(3).await?;
        stage.say(&format!("   {} sees {} members", membership.id(), view.len()))?;
        watching.push(members.changes());
    }

    let session = timeout_ms(&victim.0);
    let killed = victim.0.kill();
    stage.say(&format!("   three is killed; its session timeout: {session} ms"))?;
    let (mut left, mut sizes, mut views, mut after) = (vec![], vec![], vec![], vec![]);
    for ((_, _, membership), changes) in joined.iter().zip(&mut watching) {
        let update = changes.next().await?;
        let (now, view) = (ms(killed, Instant::now()), update.view.id());
        let gone = update.changes.iter().filter_map(|change| match change {
            MemberChange::Left(member) => Some(member.id.as_str()),
            _ => None,
        });
        let gone = gone.collect::<Vec<_>>().join(", ");
        let (id, size) = (membership.id(), update.view.len());
        stage.say(&format!("   {id} sees after {now} ms that this member has left: {gone}"))?;
        stage.say(&format!("      members: {size}; view {view}"))?;
        after.push(now);
        left.push(gone);
        sizes.push(size);
        views.push(view.to_string());
    }
    Ok(json!({ "session_timeout_ms": session, "seen_after_ms": after, "left": left,
               "sizes": sizes, "views": views }))
}

fn election(actor: &Actor, path: &str, id: &str) -> Result<Election, SceneError> {
    Ok(Election::builder(&actor.client, path).id(id).build()?)
}

/// The first of three candidates leads, and is killed.
pub(super) async fn leader(stage: &Stage<'_>) -> SceneResult {
    let path = stage.path("leader");
    let (one, two, three) = (stage.actor().await?, stage.actor().await?, stage.actor().await?);
    let first = election(&one, &path, "one")?.campaign().await?;
    stage.say(&format!("   one leads, with token {}", first.token()))?;

    let candidate = election(&two, &path, "two")?;
    let next = async {
        let second = candidate.campaign().await;
        (second, Instant::now(), first.is_held())
    };
    tokio::pin!(next);
    tokio::select! {
        () = two.wire.wait_for(|counts| counts.watches > 0) => {}
        (second, ..) = &mut next => {
            drop(second?);
            return Err("two leads at the same time as one".into());
        }
    }
    let last = election(&three, &path, "three")?;
    let last = tokio::spawn(async move { last.campaign().await });
    three.wire.wait_for(|counts| counts.watches > 0).await;
    let before = three.wire.counts();
    let observer = stage.actor().await?;
    let mut leaders = election(&observer, &path, "observer")?.observe().await?;
    let mut seen: Vec<_> = leaders.current().map(|leader| leader.id.clone()).into_iter().collect();

    let session = timeout_ms(&one);
    let killed = one.kill();
    stage.say("   two and three are candidates, in this order")?;
    stage.say(&format!("   one is killed; its session timeout: {session} ms"))?;
    let (second, led, both) = next.await;
    let second = second?;
    while seen.len() < 2 {
        seen.extend(leaders.next().await?.map(|leader| leader.id));
    }
    let events = three.wire.counts().since(before).notifications;
    last.abort();

    let led = ms(killed, led);
    stage.say(&format!("   two leads after {led} ms, with token {}", second.token()))?;
    stage.say(&format!("   one still believed then that it leads: {}", yes(both)))?;
    stage.say(&format!("   an observer has seen {seen:?}; events that three had: {events}"))?;
    let tokens = [first.token().to_u128(), second.token().to_u128()].map(|token| token.to_string());
    Ok(json!({ "session_timeout_ms": session, "leads_ms": led, "both_lead": both,
               "tokens": tokens, "seen": seen, "events_of_third": events }))
}
