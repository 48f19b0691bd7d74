//! What numbers and the ids that are minted with them promise, on every server.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::{
    AcquireError, Client, Contact, CreateMode, EnsureError, HolderState, IdLayout, LossReason,
    MintError, WorkerId, WorkerIdError, WorkerIds, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::jeopardy::short;
use crate::{Clients, Observed, contract};

contract!(worker_ids);

const WORKERS: &str = "/workers";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(60);

/// One id in a millisecond, so that a reservation is soon used up.
const SPARSE: IdLayout = IdLayout { number_bits: 22, sequence_bits: 0, ..IdLayout::SNOWFLAKE };

fn node(below: &str) -> ZnodePath {
    ZnodePath::new(&format!("{WORKERS}/{below}")).expect("a path")
}

fn only_0(client: &Client) -> Result<WorkerIds> {
    Ok(WorkerIds::builder(client, WORKERS).numbers(0..1).layout(SPARSE).build()?)
}

/// The end of what is reserved of the number 0, and the version of its node.
async fn reserved(client: &Client) -> Result<(u64, i32)> {
    client.sync(&node("reserved/0")).await?;
    let (data, stat) = client.data(&node("reserved/0")).await?;
    let written: serde_json::Value = serde_json::from_slice(&data)?;
    assert_eq!(written["format"], 1);
    Ok((written["until_unix_ms"].as_u64().context("a number")?, stat.version))
}

/// Mints until what is reserved is used up.
fn rest(mut mint: impl FnMut() -> Result<i64, MintError>) -> Vec<i64> {
    std::iter::from_fn(|| mint().ok()).collect()
}

/// Mints all that is reserved, and the first one that is reserved then, twice.
async fn many(worker: &WorkerId) -> Result<Vec<i64>> {
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.extend(rest(|| worker.mint()));
        ids.push(worker.next().await?);
    }
    Ok(ids)
}

fn ensure_growing(ids: &[i64]) {
    assert!(ids.is_sorted_by(|one, next| one < next), "an id is not larger than those before it");
}

async fn a_number_has_one_holder_and_its_tokens_grow((one, two): Clients) -> Result<()> {
    let ours = WorkerIds::builder(&one, WORKERS).numbers(3..5).build()?;
    let theirs = WorkerIds::builder(&two, WORKERS).numbers(3..5).build()?;
    let (first, second) = (ours.acquire().await?, theirs.acquire().await?);
    let numbers = BTreeSet::from([first.number(), second.number()]);
    assert_eq!(numbers, BTreeSet::from([3, 4]));
    assert_eq!(*first.node(), node(&format!("held/{}", first.number())));
    assert!(first.is_held() && first.deadline().is_some());
    assert!(ours.try_acquire().await?.is_none() && theirs.try_acquire().await?.is_none());
    let late = ours.acquire_timeout(Duration::from_millis(50)).await;
    let timed_out = matches!(late, Err(WorkerIdError::Acquire(AcquireError::Timeout { .. })));
    assert!(timed_out, "{late:?}");

    let waiting = tokio::spawn(async move { ours.acquire().await });
    let (number, token) = (second.number(), second.token());
    second.release().await?;
    let third = tokio::time::timeout(LONG, waiting).await.context("it waits on")???;
    assert!(third.number() == number && third.token() > token, "{third:?}");
    drop((first, third));
    children_reach(&two, &node("held"), 0).await
}

async fn an_id_is_of_the_number_and_the_servers_time(client: Client) -> Result<()> {
    let worker = WorkerIds::new(&client, WORKERS)?.acquire().await?;
    let shown = async || -> Result<u64> {
        let path = node("now");
        client.create(&path, "", CreateMode::Ephemeral).await?;
        let (_, stat) = client.data(&path).await?;
        client.delete(&path, None).await?;
        Ok(u64::try_from(stat.ctime)?)
    };
    // This machine's monotonic clock and the servers' may differ a little until the next reservation.
    let drift = 100;
    let before = shown().await?;
    let ids: Vec<_> = (0..10_000).map(|_| worker.mint()).collect::<Result<_, _>>()?;
    let after = shown().await?;
    ensure_growing(&ids);
    for id in ids {
        let parts = IdLayout::SNOWFLAKE.parts(id);
        assert_eq!(parts.number, worker.number());
        let fits = (before - drift..=after + drift).contains(&parts.unix_ms);
        assert!(fits, "{parts:?}, between {before} and {after}");
    }
    worker.release().await?;
    Ok(())
}

async fn a_number_costs_three_round_trips_and_an_id_none(participant: Participant) -> Result<()> {
    let workers = only_0(&participant.client)?;
    workers.acquire().await?.release().await?;
    participant.proxy.clear();
    let worker = workers.acquire().await?;
    let frames = [OpCode::Create2, OpCode::GetData, OpCode::GetData, OpCode::Multi];
    assert_eq!(participant.proxy.requests(), frames);

    participant.proxy.clear();
    for _ in 0..500 {
        worker.mint()?;
    }
    assert!(!participant.proxy.requests().contains(&OpCode::Multi));
    worker.release().await?;
    Ok(())
}

/// Each tries a number at random, and then one of those that are free.
async fn those_that_start_together_do_not_try_number_after_number(
    participant: Participant,
) -> Result<()> {
    let workers = WorkerIds::builder(&participant.client, WORKERS).numbers(0..64).build()?;
    let started = (0..64).map(|_| {
        let workers = workers.clone();
        tokio::spawn(async move { workers.acquire().await })
    });
    let started: Vec<_> = started.collect();
    let mut held = Vec::new();
    for worker in started {
        held.push(worker.await??);
    }
    let numbers: BTreeSet<_> = held.iter().map(|worker| worker.number()).collect();
    assert_eq!(numbers, (0..64).collect());
    let claims = participant.proxy.requests();
    let claims = claims.iter().filter(|op| **op == OpCode::Create2).count();
    // One after the other, it would be 64 * 65 / 2.
    assert!(claims < 64 * 12, "{claims} claims of 64 numbers");
    Ok(())
}

async fn lost_replies_repeat_no_id_and_lose_none((participant, other): Observed) -> Result<()> {
    let workers = only_0(&participant.client)?;
    let mut last = 0;
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        for op in [OpCode::Create2, OpCode::GetData, OpCode::Multi] {
            participant.proxy.lose_next(op, loss);
            let worker = workers.acquire().await?;
            participant.proxy.lose_no_more();
            let (until, version) = reserved(&other).await?;
            let first = worker.mint()?;
            assert!(first > last, "{op:?}, {loss:?}");

            // It is reserved once more, over the lost reply.
            participant.proxy.lose_next(OpCode::Multi, loss);
            let ids = many(&worker).await?;
            ensure_growing(&ids);
            last = *ids.last().context("many")?;
            let (more, newer) = reserved(&other).await?;
            assert!(more > until && newer > version, "{op:?}, {loss:?}");
            worker.release().await?;
        }
    }
    Ok(())
}

/// The successor's ids come after all that the first one can mint, although the first one continues to mint.
async fn an_id_of_a_program_that_was_cut_off_does_not_come_again(
    (participant, other): Observed,
) -> Result<()> {
    let cut_off = only_0(&participant.client)?.acquire().await?;
    let mut ids = many(&cut_off).await?;
    participant.proxy.refuse();
    participant.proxy.expire_session().await?;

    let successor = only_0(&other)?.acquire().await?;
    let of_successor = many(&successor).await?;
    ids.extend(rest(|| cut_off.mint_unchecked()));
    ensure_growing(&ids);
    ensure_growing(&of_successor);
    assert!(ids.last() < of_successor.first(), "{ids:?} and {of_successor:?}");

    participant.proxy.restore();
    assert_eq!(cut_off.lost().await, LossReason::SessionExpired);
    let expired = MintError::NotHeld(EnsureError::Lost(LossReason::SessionExpired));
    assert_eq!(cut_off.mint(), Err(expired.clone()));
    assert_eq!(cut_off.next().await, Err(expired));
    assert!(rest(|| cut_off.mint_unchecked()).is_empty(), "nothing more is reserved");
    assert!(cut_off.release().await.is_err());
    successor.release().await?;
    Ok(())
}

/// Another client deletes the holder's node, so the check of a reservation finds that of the successor.
async fn a_holder_whose_node_was_deleted_reserves_nothing(
    (participant, other): Observed,
) -> Result<()> {
    let first = only_0(&participant.client)?.acquire().await?;
    participant.proxy.freeze();
    other.delete(&node("held/0"), None).await?;
    let second = only_0(&other)?.acquire().await?;
    let of_second = many(&second).await?;
    // Its next reservation is sent now.
    let mut of_first = rest(|| first.mint_unchecked());
    participant.proxy.restore();
    assert_eq!(first.lost().await, LossReason::NodeDeleted);
    of_first.extend(rest(|| first.mint_unchecked()));
    assert!(of_first.last() < of_second.first());
    let more = many(&second).await?;
    assert!(more.first() > of_second.last());
    Ok(())
}

async fn ids_go_on_in_an_outage_as_far_as_they_are_reserved(
    participant: Participant,
) -> Result<()> {
    let worker = only_0(&participant.client)?.acquire().await?;
    let first = worker.mint()?;
    participant.proxy.freeze();
    let mut ids = rest(|| worker.mint());
    assert!(ids.len() > 5_000 && worker.is_held(), "{}", ids.len());
    assert_eq!(worker.mint(), Err(MintError::UsedUp));
    ids.insert(0, first);

    let waiting = worker.next();
    participant.proxy.restore();
    ids.push(tokio::time::timeout(LONG, waiting).await.context("it waits on")??);
    ensure_growing(&ids);
    assert_eq!(worker.state(), HolderState::Held);
    Ok(())
}

async fn a_number_that_is_reserved_far_ahead_is_left_to_whoever_allows_it(
    client: Client,
) -> Result<()> {
    let of_2070 = 3_155_760_000_000_u64;
    client.ensure(&node("reserved"), CreateMode::Persistent).await?;
    let data = format!(r#"{{"format":1,"until_unix_ms":{of_2070},"by":"x"}}"#);
    client.create(&node("reserved/0"), data, CreateMode::Persistent).await?;

    let workers = WorkerIds::builder(&client, WORKERS).numbers(0..2);
    for _ in 0..5 {
        let worker = workers.clone().build()?.acquire().await?;
        assert_eq!(worker.number(), 1);
        worker.release().await?;
    }
    let refused = workers.clone().numbers(0..1).build()?.acquire().await;
    let far_ahead = matches!(&refused, Err(WorkerIdError::FarAhead { node: path, ahead_ms })
        if *path == node("reserved/0") && *ahead_ms > 1_000_000_000_000);
    assert!(far_ahead, "{refused:?}");
    assert_eq!(reserved(&client).await?, (of_2070, 0), "nothing is changed");
    children_reach(&client, &node("held"), 0).await?;

    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    let worker = workers.numbers(0..1).max_ahead(century).build()?.acquire().await?;
    assert_eq!(IdLayout::SNOWFLAKE.parts(worker.mint()?).unix_ms, of_2070);
    Ok(())
}

async fn what_is_no_reservation_is_not_touched((client, other): Clients) -> Result<()> {
    other.ensure(&node("reserved/0"), CreateMode::Persistent).await?;
    let foreign = only_0(&client)?.acquire().await.err();
    assert_eq!(foreign, Some(WorkerIdError::Foreign { node: node("reserved/0") }));
    let (data, stat) = other.data(&node("reserved/0")).await?;
    assert!(data.is_empty() && stat.version == 0);
    children_reach(&other, &node("held"), 0).await
}

async fn a_reservation_that_somebody_deletes_ends_the_ids((client, other): Clients) -> Result<()> {
    let worker = only_0(&client)?.acquire().await?;
    let before = rest(|| worker.mint_unchecked());
    other.delete(&node("reserved/0"), None).await?;
    let overtaken = WorkerIdError::Overtaken { node: node("reserved/0") };
    loop {
        match worker.next().await {
            Ok(id) => assert!(Some(&id) > before.last()),
            Err(error) => {
                assert_eq!(error, MintError::Ended(overtaken));
                return Ok(());
            }
        }
        // What was reserved before the deletion may be confirmed after it.
        if other.exists(&node("reserved/0")).await?.is_some() {
            bail!("it was made anew");
        }
    }
}

async fn a_wait_that_is_given_up_leaves_nothing((participant, other): Observed) -> Result<()> {
    let workers = only_0(&participant.client)?;
    workers.acquire().await?.release().await?;
    for op in [OpCode::Create2, OpCode::GetData, OpCode::Multi] {
        for reply in [false, true] {
            participant.proxy.clear();
            let seen = if reply { Passed::Reply(op) } else { Passed::Request(op) };
            tokio::select! {
                biased;
                () = participant.proxy.passes(|passed| passed.contains(&seen)) => {}
                acquired = workers.acquire() => drop(acquired?),
            }
            children_reach(&other, &node("held"), 0).await?;
        }
    }
    // Nor does one that waits for a number.
    let held = only_0(&other)?.acquire().await?;
    let late = workers.acquire_timeout(Duration::from_millis(50)).await;
    assert!(late.is_err(), "{late:?}");
    held.release().await?;
    children_reach(&other, &node("held"), 0).await
}

async fn what_does_not_fit_is_refused_before_anything_is_sent(client: Client) -> Result<()> {
    let builder = || WorkerIds::builder(&client, WORKERS);
    let empty = builder().numbers(7..7).build().err();
    assert_eq!(empty, Some(WorkerIdError::NoNumbers));
    let too_large = builder().numbers(0..1025).build().err();
    assert_eq!(too_large, Some(WorkerIdError::NumberTooLarge { number: 1024, bits: 10 }));
    let layout = IdLayout { time_bits: 42, ..IdLayout::SNOWFLAKE };
    let widths = builder().layout(layout).build().err();
    assert_eq!(widths, Some(WorkerIdError::Widths { time: 42, number: 10, sequence: 12 }));
    assert!(matches!(WorkerIds::new(&client, "workers").err(), Some(WorkerIdError::Place(_))));

    let layout = IdLayout { epoch_unix_ms: 4_000_000_000_000, ..IdLayout::SNOWFLAKE };
    let refused = builder().layout(layout).build()?.acquire().await.err();
    assert!(matches!(refused, Some(WorkerIdError::OutOfTime { .. })), "{refused:?}");
    children_reach(&client, &node("held"), 0).await
}

async fn a_wait_goes_on_over_the_end_of_its_session(backend: Backend) -> Result<()> {
    let (holder, waiter) = (backend.observer().await?, backend.participant().await?);
    let held = only_0(&holder)?.acquire().await?;
    waiter.proxy.clear();
    let workers = only_0(&waiter.client)?;
    let waiting = tokio::spawn(async move { workers.acquire().await });
    waiter.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetChildren2))).await;
    waiter.proxy.expire_session().await?;
    held.release().await?;
    let worker = tokio::time::timeout(LONG, waiting).await.context("it waits on")???;
    assert_eq!(worker.session(), waiter.client.session_id());
    worker.mint()?;
    Ok(())
}

/// Symptom: an attempt in an outage failed a session timeout after the connection was lost, and later ones at once.
async fn an_attempt_in_an_outage_has_a_session_timeout_of_its_own(backend: Backend) -> Result<()> {
    let participant = short(&backend).await?;
    let workers = only_0(&participant.client)?;
    participant.proxy.refuse();
    participant.client.status().wait_for(|it| it.contact == Contact::Unreachable).await?;
    let mut attempt = pin!(workers.acquire());
    tokio::select! {
        biased;
        ended = &mut attempt => bail!("it does not wait: {ended:?}"),
        () = std::future::ready(()) => participant.proxy.restore(),
    }
    tokio::time::timeout(LONG, attempt).await??.mint()?;
    Ok(())
}

/// Eight programs, and four numbers that go from hand to hand. Prints how long ten million ids take.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes about a minute"]
async fn ten_million_ids_come_once() -> Result<()> {
    const IDS: usize = 10_000_000;
    const AT_ONCE: usize = 100_000;
    let backend = Backend::embedded().await?;
    let begin = std::time::Instant::now();
    let mut programs = Vec::new();
    for _ in 0..8 {
        let client = backend.observer().await?;
        let workers = WorkerIds::builder(&client, WORKERS).numbers(0..4).build()?;
        programs.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            while ids.len() < IDS / 8 {
                let worker = workers.acquire().await?;
                for _ in 0..AT_ONCE {
                    ids.push(worker.next().await?);
                }
                worker.release().await?;
            }
            client.close().await;
            anyhow::Ok(ids)
        }));
    }
    let mut all = Vec::new();
    for program in programs {
        all.extend(program.await??);
    }
    println!("{} ids in {:?}", all.len(), begin.elapsed());
    all.sort_unstable();
    ensure_growing(&all);
    Ok(())
}
