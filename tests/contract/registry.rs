//! Locks by key.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{BuildError, Locks};
use lockkeeper_testkit::backend::{Participant, children_reach};
use lockkeeper_wire::OpCode;

use crate::contract;

contract!(registry);

const PREFIX: &str = "/locks/by-key";

async fn any_key_is_a_lock_and_can_be_read_back(alice: Participant) -> Result<()> {
    let locks = Locks::new(&alice.client, PREFIX)?;
    let long = "ключ".repeat(2_000);
    let keys = ["", ".", "..", "a/b", "%", "\0\n", "🔒", "\u{f8ff}\u{e000}", "zookeeper", &long];
    let mut guards = Vec::new();
    for key in keys {
        guards.push(locks.get(key)?.acquire().await?);
    }
    let (mut found, mut expected) = (locks.keys().await?, keys.map(str::to_owned).to_vec());
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    for guard in guards {
        guard.release().await?;
    }
    let error = locks.get(&long.repeat(100)).expect_err("too long for any server");
    assert!(matches!(error, BuildError::KeyTooLong { .. }), "{error}");
    Ok(())
}

async fn equal_keys_are_one_handle(alice: Participant) -> Result<()> {
    let locks = Locks::with(&alice.client, PREFIX, |lock| lock.linger(Duration::from_secs(3600)))?;
    locks.get("a")?.acquire().await?.release().await?;
    alice.proxy.clear();
    locks.clone().get("a")?.acquire().await?.release().await?;
    let creates = alice.proxy.requests().iter().filter(|op| **op == OpCode::Create2).count();
    assert_eq!(creates, 0, "its node lingered in the handle");
    Ok(())
}

async fn handles_that_are_used_are_kept_and_others_bounded(alice: Participant) -> Result<()> {
    let linger = Duration::from_secs(3600);
    let locks = Locks::with(&alice.client, PREFIX, move |lock| lock.linger(linger))?.keep_idle(8);
    let held = locks.get("held")?.acquire().await?;
    let idle = locks.get("idle")?;
    idle.acquire().await?.release().await?;
    for key in 0..100 {
        locks.get(&key.to_string())?;
    }
    assert!(locks.get("held")?.try_acquire().await?.is_none(), "the same handle, or the same line");
    alice.proxy.clear();
    let again = locks.get("idle")?.acquire().await?;
    assert!(!alice.proxy.requests().contains(&OpCode::Create2), "it was in use, and so kept");
    again.release().await?;
    // Nobody uses it now: the next ones take its place, and its node goes.
    drop(idle);
    held.release().await?;
    for key in 100..200 {
        locks.get(&key.to_string())?;
    }
    children_reach(&alice.observer().await?, &locks.path("idle")?, 0).await
}

/// L24. The servers reap containers that are empty: the locks' own nodes, and the prefix.
async fn l24_what_is_made_for_a_key_is_a_container(alice: Participant) -> Result<()> {
    Locks::new(&alice.client, PREFIX)?.get("a/b")?.acquire().await?.release().await?;
    let mut creates = alice.proxy.requests();
    creates.retain(|op| matches!(op, OpCode::Create | OpCode::CreateContainer));
    assert!(!creates.is_empty() && !creates.contains(&OpCode::Create), "{creates:?}");
    Ok(())
}
