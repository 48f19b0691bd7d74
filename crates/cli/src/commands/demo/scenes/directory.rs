//! `balance` and `names`: which instance a call goes to, and unique names for programs.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper::{Counter, IdBlocks, Instance, Names, Pick, Registration, ServiceDirectory};
use serde_json::json;

use super::figures::{SceneError, SceneResult};
use crate::commands::demo::stage::{Actor, Stage};

const CALLS: usize = 30;

/// How many numbers each program allocates, and how many of them with one write.
const NUMBERS: usize = 100;
const BLOCK: u32 = 25;

/// Calls are distributed over three instances and, after one has left, over two.
pub(super) async fn balance(stage: &Stage<'_>) -> SceneResult {
    let base = stage.path("services");
    let mut registered = Vec::new();
    for id in ["web-1", "web-2", "web-3"] {
        let actor = stage.actor().await?;
        let instance = Instance::new("web", id).address("127.0.0.1").port(8080);
        let registration = Registration::start(&actor.client, &base, instance).await?;
        registered.push((actor, registration));
    }

    let caller = stage.actor().await?;
    let web = ServiceDirectory::open(&caller.client, &base, "web").await?;
    let mut changes = web.changes();
    let before = caller.wire.counts();
    let all = call(&web)?;
    let requests = caller.wire.counts().since(before).requests;
    stage.say(&format!("   {CALLS} calls: {all:?}; requests for them: {requests}"))?;

    let (_actor, leaving) = registered.remove(1);
    leaving.unregister().await?;
    changes.next().await?;
    let left = call(&web)?;
    stage.say(&format!("   web-2 leaves. {CALLS} calls: {left:?}"))?;
    Ok(json!({ "calls": CALLS, "requests": requests, "before": all, "after": left }))
}

/// The number of calls that each instance got.
fn call(web: &ServiceDirectory) -> Result<BTreeMap<String, usize>, SceneError> {
    let mut calls = BTreeMap::new();
    for _ in 0..CALLS {
        let call = web.pick(Pick::RoundRobin)?;
        *calls.entry(call.instance().id.clone()).or_default() += 1;
    }
    Ok(calls)
}

/// Four programs want three names; three programs take numbers at the same time.
pub(super) async fn names(stage: &Stage<'_>) -> SceneResult {
    let path = stage.path("workers");
    let wanted = ["worker-1", "worker-2", "worker-3"];
    let (mut actors, mut claims) = (Vec::new(), Vec::new());
    for _ in wanted {
        let actor = stage.actor().await?;
        claims.extend(Names::new(&actor.client, &path)?.claim_any(wanted).await?);
        actors.push(actor);
    }
    let given: Vec<_> = claims.iter().map(|claim| claim.name().to_owned()).collect();
    stage.say(&format!("   {} programs claim a name each: {given:?}", actors.len()))?;

    let fourth = stage.actor().await?;
    let names = Names::new(&fourth.client, &path)?;
    let without = names.claim_any(wanted).await?.map(|claim| claim.name().to_owned());
    claims.remove(1).release().await?;
    let freed = names.claim_any(wanted).await?.map(|claim| claim.name().to_owned());
    stage.say(&format!(
        "   a fourth one gets {}; after {} is given back, it gets {}",
        without.as_deref().unwrap_or("none"),
        given[1],
        freed.as_deref().unwrap_or("none")
    ))?;

    let before: u64 = actors.iter().map(|actor| actor.wire.counts().writes).sum();
    let path = stage.path("orders");
    let (one, two, three) = tokio::try_join!(
        numbers(&actors[0], &path),
        numbers(&actors[1], &path),
        numbers(&actors[2], &path)
    )?;
    let taken = [one, two, three].concat();
    let writes = actors.iter().map(|actor| actor.wire.counts().writes).sum::<u64>() - before;
    let distinct = taken.iter().collect::<BTreeSet<_>>().len();
    stage.say(&format!(
        "   they take {} numbers at the same time; {distinct} are distinct; writes: {writes}",
        taken.len()
    ))?;
    Ok(json!({ "given": given, "fourth": without, "after_release": freed,
               "numbers": taken.len(), "distinct": distinct, "writes": writes }))
}

/// Allocates numbers that no other program has.
async fn numbers(actor: &Actor, path: &str) -> Result<Vec<i64>, SceneError> {
    let ids = IdBlocks::new(&Counter::new(&actor.client, path)?, BLOCK);
    let mut taken = Vec::new();
    for _ in 0..NUMBERS {
        taken.push(ids.next().await?);
    }
    Ok(taken)
}
