//! The lock that its owner can enter again.

use anyhow::Result;
use lockkeeper::{AcquireError, LossReason, Mutex, Owner, ReentrantMutex, ReleaseError};
use lockkeeper_testkit::backend::{Participant, children_reach};
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_wire::OpCode;

use crate::{LOCK, Pair, contract, lock_path, mutex, queue_empties};

contract!(reentrant_mutex);

fn reentrant(participant: &Participant) -> Result<ReentrantMutex> {
    Ok(ReentrantMutex::new(&participant.client, LOCK)?)
}

async fn the_first_entry_is_one_round_trip_and_others_are_none(alice: Participant) -> Result<()> {
    let (lock, owner) = (reentrant(&alice)?, Owner::new("alice"));
    lock.acquire(&owner).await?.release().await?;
    alice.proxy.clear();
    let outer = lock.acquire(&owner).await?;
    let requests = [OpCode::Create2, OpCode::GetChildren2];
    assert_eq!(alice.proxy.requests(), requests);
    let inner = lock.acquire(&owner).await?;
    inner.release().await?;
    assert_eq!(alice.proxy.requests(), requests, "no server was asked");
    alice.proxy.clear();
    outer.release().await?;
    assert_eq!(alice.proxy.requests(), [OpCode::Delete]);
    Ok(())
}

async fn the_last_of_the_entries_gives_the_lock_back((alice, bob): Pair) -> Result<()> {
    let (lock, owner) = (reentrant(&alice)?, Owner::new("alice"));
    let mut entries = Vec::new();
    for count in 1..=5 {
        entries.push(lock.acquire(&owner).await?);
        assert_eq!(lock.entries(&owner), count);
    }
    assert!(entries.windows(2).all(|pair| pair[0].token() == pair[1].token()), "one hold");
    // In any order, and by dropping too.
    drop(entries.remove(2));
    while entries.len() > 1 {
        entries.remove(0).release().await?;
        assert!(mutex(&bob)?.try_acquire().await?.is_none());
    }
    entries.remove(0).release().await?;
    assert_eq!(lock.entries(&owner), 0);
    mutex(&bob)?.try_acquire().await?.expect("free").release().await?;
    Ok(())
}

async fn two_handles_of_one_owner_are_one_lock(alice: Participant) -> Result<()> {
    let owner = Owner::new("alice");
    let outer = reentrant(&alice)?.acquire(&owner).await?;
    let other = ReentrantMutex::builder(&alice.client, LOCK).label("x").build()?;
    let inner = other.try_acquire(&owner).await?.expect("its owner holds it");
    assert_eq!((inner.token(), inner.owner()), (outer.token(), &owner));
    Ok(())
}

/// Rule 6 of the semantics.
async fn a_release_without_an_entry_names_the_holder((alice, bob): Pair) -> Result<()> {
    let (lock, owner) = (reentrant(&alice)?, Owner::new("alice"));
    let holder = |result| match result {
        Err(ReleaseError::NotHeld { holder, .. }) => holder,
        other => panic!("{other:?}"),
    };
    assert_eq!(holder(lock.release(&owner).await), None);
    let guard = Mutex::builder(&bob.client, LOCK).label("bob's").build()?.acquire().await?;
    let name = holder(lock.release(&owner).await).expect("bob");
    assert!(name.contains("bob's") && name.contains(&std::process::id().to_string()), "{name}");
    guard.release().await?;
    let _entry = lock.acquire(&owner).await?;
    let error = lock.release(&owner).await.expect_err("it belongs to a guard").to_string();
    assert!(error.contains("alice, by guards"), "{error}");
    Ok(())
}

async fn an_entry_that_is_kept_can_be_released_elsewhere(alice: Participant) -> Result<()> {
    let (lock, owner) = (reentrant(&alice)?, Owner::new("alice"));
    lock.acquire(&owner).await?.keep();
    lock.acquire(&owner).await?.keep();
    assert_eq!(lock.entries(&owner), 2);
    reentrant(&alice)?.release(&owner).await?;
    children_reach(&alice.observer().await?, &lock_path(), 1).await?;
    lock.release(&owner).await?;
    queue_empties(&alice).await?;
    let result = lock.release(&owner).await;
    assert!(matches!(result, Err(ReleaseError::NotHeld { holder: None, .. })), "{result:?}");
    Ok(())
}

async fn kept_entries_end_with_their_owner(alice: Participant) -> Result<()> {
    let owner = Owner::new("alice");
    reentrant(&alice)?.acquire(&owner).await?.keep();
    drop(owner.clone());
    children_reach(&alice.observer().await?, &lock_path(), 1).await?;
    drop(owner);
    queue_empties(&alice).await
}

/// Fails when a door is not locked during the wait: the second task waits for the first.
async fn two_tasks_of_one_owner_stand_in_line_once((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&bob)?.acquire().await?;
    let owner = Owner::new("alice");
    let mut entering = Vec::new();
    for _ in 0..4 {
        // Without the line that clones of one mutex have.
        let (lock, owner) = (reentrant(&alice)?, owner.clone());
        entering.push(tokio::spawn(async move { lock.acquire(&owner).await }));
    }
    children_reach(&alice.observer().await?, &lock_path(), 2).await?;
    assert!(reentrant(&alice)?.try_acquire(&owner).await?.is_none(), "it is in line");
    guard.release().await?;
    let mut entries = Vec::new();
    for entering in entering {
        entries.push(entering.await??);
    }
    assert_eq!(reentrant(&alice)?.entries(&owner), 4);
    children_reach(&alice.observer().await?, &lock_path(), 1).await
}

/// L2. Fails with the deletion taken out of `Contender::drop`.
async fn l2_an_entry_cancelled_in_line_leaves_nothing_and_lets_the_next_one_go_on(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = mutex(&bob)?.acquire().await?;
    let (lock, owner) = (reentrant(&alice)?, Owner::new("alice"));
    let enter = || {
        let (lock, owner) = (lock.clone(), owner.clone());
        tokio::spawn(async move { lock.acquire(&owner).await })
    };
    let first = enter();
    let observer = alice.observer().await?;
    children_reach(&observer, &lock_path(), 2).await?;
    let second = enter();
    first.abort();
    assert!(first.await.is_err(), "cancelled");
    guard.release().await?;
    second.await??.release().await?;
    queue_empties(&alice).await
}

async fn l6_a_release_that_is_lost_is_tried_again(alice: Participant) -> Result<()> {
    let entry = reentrant(&alice)?.acquire(&Owner::default()).await?;
    alice.proxy.lose_next(OpCode::Delete, Loss::BeforeRequest);
    entry.release().await?;
    queue_empties(&alice).await
}

/// L12: one session with two handles on one path shared the ownership by accident. Fails
/// with one table of entries for all owners.
async fn l12_two_owners_of_one_session_exclude_each_other(alice: Participant) -> Result<()> {
    let lock = reentrant(&alice)?;
    let (one, other) = (Owner::new("alice"), Owner::new("alice"));
    let entry = lock.acquire(&one).await?;
    assert!(lock.try_acquire(&other).await?.is_none(), "a name is not an identity");
    assert!(reentrant(&alice)?.try_acquire(&other).await?.is_none());
    entry.release().await?;
    Ok(())
}

/// L20: ownership by thread broke when tasks moved between threads. Here each entry is made and
/// released on a thread of its own.
async fn l20_entries_belong_to_no_thread(alice: Participant) -> Result<()> {
    let (lock, owner) = (reentrant(&alice)?, Owner::new("alice"));
    let outer = lock.acquire(&owner).await?;
    let on_a_thread = {
        let (lock, owner) = (lock.clone(), owner.clone());
        move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let inner = runtime.block_on(lock.acquire(&owner))?;
            let releasing = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                anyhow::Ok(runtime.block_on(inner.release())?)
            });
            releasing.join().expect("no panic")?;
            Ok(runtime.block_on(outer.release())?)
        }
    };
    tokio::task::spawn_blocking(on_a_thread).await??;
    assert_eq!(lock.entries(&owner), 0);
    queue_empties(&alice).await
}

/// L21: what kept a lock alive outlived it. A re-entry into a hold that is lost would.
///
/// Fails when `OwnerHold::current` takes any hold that is there: the new entry is a lost one.
async fn l21_a_lost_lock_is_not_entered_again(alice: Participant) -> Result<()> {
    let (lock, owner) = (reentrant(&alice)?, Owner::new("alice"));
    let old = lock.acquire(&owner).await?;
    alice.proxy.expire_session().await?;
    let reason = LossReason::SessionExpired;
    assert_eq!(old.lost().await, reason);
    for result in [lock.acquire(&owner).await.map(drop), lock.try_acquire(&owner).await.map(drop)] {
        assert_eq!(result, Err(AcquireError::OwnerLost { path: lock_path(), reason }));
    }
    let token = old.token();
    assert_eq!(old.release().await, Err(ReleaseError::Lost(reason)));
    let new = lock.acquire(&owner).await?;
    assert!(new.token() > token);
    new.verify().await?;
    Ok(())
}
