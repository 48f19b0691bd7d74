//! What a claim to a name promises, on every server.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::{
    AcquireError, ClaimError, Client, CreateMode, HolderState, LossReason, Names, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::exclusive_node::after_heartbeats;
use crate::jeopardy::short;
use crate::{Clients, Observed, contract};

contract!(names);

const NAMES: &str = "/workers";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(20);

fn node(name: &str) -> ZnodePath {
    ZnodePath::new(NAMES).and_then(|path| path.child(name)).expect("a path")
}

async fn a_name_has_one_holder_and_its_tokens_grow((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (Names::new(&one, NAMES)?, Names::new(&two, NAMES)?);
    let first = ours.claim("7").await?;
    assert_eq!((first.name(), first.node()), ("7", &node("7")));
    assert!(first.deadline().is_some() && first.is_held());
    assert!(theirs.try_claim("7").await?.is_none());
    // Another claim of the same program is another one.
    assert!(ours.try_claim("7").await?.is_none());
    let other = theirs.claim("8").await?;
    assert_eq!(other.session(), two.session_id());

    let token = first.token();
    first.release().await?;
    let second = theirs.claim_now("7").await?;
    assert!(second.token() > token, "{} after {token}", second.token());
    drop((second, other));
    children_reach(&one, &ZnodePath::new(NAMES)?, 0).await
}

async fn who_waits_for_a_name_gets_it(backend: Backend) -> Result<()> {
    let (one, participant) = (backend.observer().await?, backend.participant().await?);
    let (ours, theirs) = (Names::new(&one, NAMES)?, Names::new(&participant.client, NAMES)?);
    let first = ours.claim("7").await?;
    let late = theirs.claim_timeout("7", Duration::from_millis(50)).await;
    assert!(matches!(late, Err(ClaimError::Acquire(AcquireError::Timeout { .. }))), "{late:?}");

    participant.proxy.clear();
    let waiting = tokio::spawn(async move { theirs.claim("7").await });
    participant.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;
    let token = first.token();
    first.release().await?;
    let second = waiting.await??;
    assert!(second.token() > token);
    second.release().await?;
    Ok(())
}

async fn who_has_a_name_is_told((one, two): Clients) -> Result<()> {
    let ours = Names::builder(&one, NAMES).label("10.0.0.7:80").build()?;
    let theirs = Names::new(&two, NAMES)?;
    assert_eq!(theirs.holder("7").await?, None);
    assert_eq!(theirs.taken().await?, Vec::<String>::new());

    let claim = ours.claim("7").await?;
    let holder = theirs.holder("7").await?.context("nobody")?;
    assert_eq!((holder.token, holder.session), (claim.token(), one.session_id()));
    let label = holder.info.clone().and_then(|info| info.label);
    assert_eq!(label.as_deref(), Some("10.0.0.7:80"));
    assert_eq!(theirs.taken().await?, ["7"]);

    let Err(refused) = theirs.claim_now("7").await else { bail!("two have it") };
    let told = refused.to_string();
    assert!(told.contains("\"7\" is taken by") && told.contains("10.0.0.7:80"), "{told}");
    assert_eq!(refused, ClaimError::Taken { name: "7".into(), by: Box::new(holder) });
    claim.release().await?;
    Ok(())
}

async fn a_claim_is_lost_with_a_reason((participant, other): Observed) -> Result<()> {
    let names = Names::new(&participant.client, NAMES)?;
    let claim = names.claim("7").await?;
    other.delete(&node("7"), None).await?;
    assert_eq!(claim.lost().await, LossReason::NodeDeleted);
    drop(claim);

    let claim = names.claim("7").await?;
    participant.proxy.refuse();
    participant.proxy.expire_session().await?;
    let theirs = Names::new(&other, NAMES)?.claim("7").await?;
    participant.proxy.restore();
    assert_eq!(claim.lost().await, LossReason::SessionExpired);
    assert!(!claim.is_held() && claim.deadline().is_none());
    // What the later holder has is not touched.
    drop(claim);
    theirs.verify().await?;
    theirs.release().await?;
    Ok(())
}

async fn a_claim_costs_one_round_trip(participant: Participant) -> Result<()> {
    let names = Names::new(&participant.client, NAMES)?;
    names.claim("7").await?.release().await?;
    participant.proxy.clear();
    let claim = names.claim("7").await?;
    assert_eq!(participant.proxy.requests(), [OpCode::Create2]);
    participant.proxy.clear();
    assert!(names.try_claim("7").await?.is_none());
    assert!(names.holder("7").await?.is_some());
    assert_eq!(names.taken().await?, ["7"]);
    let one_each = [OpCode::Create2, OpCode::GetData, OpCode::GetChildren2];
    assert_eq!(participant.proxy.requests(), one_each);
    claim.release().await?;
    Ok(())
}

async fn a_claim_whose_reply_is_lost_leaves_one_node((participant, other): Observed) -> Result<()> {
    let names = Names::new(&participant.client, NAMES)?;
    names.claim("7").await?.release().await?;
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        participant.proxy.lose_next(OpCode::Create2, loss);
        let claim = names.claim("7").await?;
        let (_, stat) = other.data(&node("7")).await?;
        assert_eq!(stat.czxid, claim.token().zxid());
        claim.release().await?;
        assert!(other.exists(&node("7")).await?.is_none());
    }
    Ok(())
}

async fn the_first_name_that_is_free_is_claimed(client: Client) -> Result<()> {
    let names = Names::new(&client, NAMES)?;
    let numbers = || (1..=3).map(|number| format!("worker-{number}"));
    let mut claims = Vec::new();
    for expected in numbers() {
        let claim = names.claim_any(numbers()).await?.context("one is free")?;
        assert_eq!(claim.name(), expected);
        claims.push(claim);
    }
    assert!(names.claim_any(numbers()).await?.is_none());
    claims.remove(1).release().await?;
    let again = names.claim_any(numbers()).await?.context("one is free")?;
    assert_eq!(again.name(), "worker-2");
    Ok(())
}

async fn any_text_is_a_name(client: Client) -> Result<()> {
    let names = Names::new(&client, NAMES)?;
    let mut claims = Vec::new();
    let mut all = ["2026/07/Zürich 🔒", "", ".", "a%b", "x-lock-0000000001"];
    for name in all {
        let claim = names.claim_now(name).await?;
        assert_eq!(claim.name(), name);
        claims.push(claim);
    }
    let mut taken = names.taken().await?;
    taken.sort();
    all.sort();
    assert_eq!(taken, all);
    let long = names.claim(&"x".repeat(100_000)).await;
    assert!(matches!(long, Err(ClaimError::Name(_))), "{long:?}");
    Ok(())
}

async fn a_node_that_does_not_go_by_itself_is_no_claim((client, other): Clients) -> Result<()> {
    other.ensure(&node("7"), CreateMode::Persistent).await?;
    let before = other.data(&node("7")).await?;
    let names = Names::new(&client, NAMES)?;
    let foreign = ClaimError::Foreign { node: node("7") };
    assert_eq!(names.claim("7").await.err(), Some(foreign.clone()));
    assert_eq!(names.claim_now("7").await.err(), Some(foreign.clone()));
    assert_eq!(names.holder("7").await.err(), Some(foreign));
    assert!(names.try_claim("7").await?.is_none());
    assert_eq!(other.data(&node("7")).await?, before, "nothing is touched");
    Ok(())
}

/// A node that replaces the claim's node does not prove the claim.
///
/// Fails with heartbeats that check the path alone.
async fn a_claim_whose_name_becomes_anothers_is_lost(backend: Backend) -> Result<()> {
    for mode in [CreateMode::Ephemeral, CreateMode::Persistent] {
        let (alice, bob) = (short(&backend).await?, backend.observer().await?);
        let claim = Names::new(&alice.client, NAMES)?.claim("7").await?;
        let taken = bob.transaction().delete(&node("7"), None).create(&node("7"), "", mode);
        taken.commit().await?;
        let lost = HolderState::Lost(LossReason::NodeDeleted);
        assert_eq!(after_heartbeats(&alice, &claim).await, lost, "{mode:?}");
        drop(claim);
        alice.client.sync(&node("7")).await?;
        bob.delete(&node("7"), None).await.context("it is not the claim's")?;
    }
    Ok(())
}

/// Only the first read of the holder could find it.
///
/// Fails with one look, before the wait: it waited on.
async fn a_name_that_becomes_such_a_node_is_not_waited_for(backend: Backend) -> Result<()> {
    let (one, participant) = (backend.observer().await?, backend.participant().await?);
    let (ours, theirs) = (Names::new(&one, NAMES)?, Names::new(&participant.client, NAMES)?);
    let first = ours.claim("7").await?;
    participant.proxy.clear();
    let waiting = tokio::spawn(async move { theirs.claim("7").await });
    participant.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;

    let replaced = one.transaction().delete(&node("7"), None);
    replaced.create(&node("7"), "", CreateMode::Persistent).commit().await?;
    let ended = tokio::time::timeout(LONG, waiting).await.context("it waits on")??;
    assert_eq!(ended.err(), Some(ClaimError::Foreign { node: node("7") }));
    drop(first);
    Ok(())
}

/// Each claim looked at the lists of the znodes above it, and warned again.
async fn names_look_for_exposures_once(backend: Backend) -> Result<()> {
    let alice = backend.participant_with(Client::builder().digest("ann", "secret")).await?;
    let names = Names::new(&alice.client, NAMES)?;
    let looks = || alice.proxy.requests().into_iter().filter(|op| *op == OpCode::GetAcl).count();
    names.claim("7").await?.release().await?;
    let before = looks();
    assert!(before > 0, "it looks");
    names.claim("8").await?.release().await?;
    assert!(names.clone().claim_any(["9"]).await?.is_some());
    assert_eq!(looks(), before);
    Ok(())
}
