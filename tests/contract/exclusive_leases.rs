//! What a holder of a lock may believe, and until when.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{
    Acl, AcquireError, Client, Contact, EnsureError, HolderState, LeaseMode, LossReason, Status,
    VerifyError,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;

use crate::directory::hidden;
use crate::locks::{Exclusive, line_up, lock_of};
use crate::{Pair, contract, gets};

contract!(exclusive_leases);

/// Long enough for a busy machine, short enough to wait for.
const TIMEOUT: Duration = Duration::from_secs(6);

async fn short(backend: &Backend) -> Result<Participant> {
    backend.participant_with(Client::builder().session_timeout(TIMEOUT)).await
}

async fn a_cut_off_holder_knows_before_the_next_one_holds<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    let guard = Arc::new(guard);
    let looking = Arc::clone(&guard);
    // When the next contender holds the lock, the state shows the loss, even if no event has arrived yet.
    let waiting = tokio::spawn(async move {
        let next = waiting.await??;
        anyhow::Ok((next, looking.state()))
    });
    alice.proxy.freeze();
    assert_eq!(guard.lost().await, LossReason::DeadlinePassed);
    let (next, seen) = waiting.await??;
    assert_eq!(seen, HolderState::Lost(LossReason::DeadlinePassed), "when the next one holds");
    assert!(next.token() > guard.token());
    Ok(())
}

async fn a_holder_is_suspect_without_a_connection_and_sound_after_it<L: Exclusive>(
    alice: Participant,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    assert_eq!(guard.state(), HolderState::Held);
    let mut status = alice.client.status();
    alice.proxy.refuse();
    status.wait_for(|status| status.contact == Contact::Disconnected).await?;
    let HolderState::Suspect { until } = guard.state() else { panic!("{:?}", guard.state()) };
    assert_eq!(guard.deadline(), Some(until));
    alice.proxy.restore();
    status.wait_for(|status| status.contact == Contact::Connected).await?;
    assert_eq!(guard.state(), HolderState::Held);
    guard.verify().await?;
    Ok(())
}

async fn a_lock_lost_at_the_deadline_stays_lost<L: Exclusive>(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    alice.proxy.freeze();
    guard.lost().await;
    assert_eq!((guard.deadline(), guard.remaining()), (None, Duration::ZERO));
    alice.proxy.restore();
    alice.client.status().wait_for(|status| status.contact == Contact::Connected).await?;
    alice.client.transaction().check(&lockkeeper::ZnodePath::root(), None).commit().await.ok();
    let lost = HolderState::Lost(LossReason::DeadlinePassed);
    assert_eq!(guard.state(), lost);
    let verified = guard.verify().await;
    assert_eq!(verified, Err(VerifyError::Lost(LossReason::DeadlinePassed)));
    Ok(())
}

async fn heartbeats_keep_a_lease<L: Exclusive>(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let first = guard.deadline().expect("held");
    let beats = |passed: &[Passed]| {
        passed.iter().filter(|p| **p == Passed::Reply(OpCode::Multi)).count() >= 8
    };
    tokio::select! {
        reason = guard.lost() => panic!("lost: {reason}"),
        () = alice.proxy.passes(beats) => {}
    }
    assert!(guard.deadline() > Some(first + TIMEOUT / 2), "eight heartbeats later");
    Ok(())
}

async fn verify_renews_the_deadline<L: Exclusive>(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    // A new session is proven to live for longer than a write alone can show.
    let lease = alice.client.timing().lease();
    while guard.remaining() >= lease {
        tokio::time::sleep(guard.remaining() - lease + Duration::from_millis(1)).await;
    }
    let first = guard.deadline();
    alice.proxy.clear();
    guard.verify().await?;
    assert!(guard.deadline() > first);
    assert_eq!(alice.proxy.requests(), L::VERIFY, "one committed write, in one round trip");
    Ok(())
}

async fn a_deleted_holder_is_told<L: Exclusive>((alice, bob): Pair) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let node = guard.node().clone();
    let lost = tokio::spawn(async move { (guard.lost().await, guard) });
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;
    bob.client.delete(&node, None).await?;
    let (reason, guard) = lost.await?;
    assert_eq!(reason, LossReason::NodeDeleted);
    assert_eq!(guard.verify().await, Err(VerifyError::Lost(LossReason::NodeDeleted)));

    let guard = lock_of::<L>(&alice)?.acquire().await?;
    bob.client.delete(guard.node(), None).await?;
    let verified = guard.verify().await;
    assert_eq!(verified, Err(VerifyError::Lost(LossReason::NodeDeleted)), "without waiting for it");
    assert_eq!(guard.state(), HolderState::Lost(LossReason::NodeDeleted));
    Ok(())
}

/// Symptom: one refused check failed every heartbeat of its client. All locks of the client were lost, and the
/// reported reason was slow servers.
async fn a_node_that_may_not_be_checked_is_lost_and_no_other<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let alice = short(&backend).await?;
    let other = lockkeeper::Mutex::new(&alice.client, "/another")?.acquire().await?;
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let observer = backend.observer().await?;
    observer.set_acl(guard.node(), hidden(), None).await?;
    assert_eq!(guard.lost().await, LossReason::CheckRefused);

    let first = other.deadline();
    let multi = |passed: &&Passed| **passed == Passed::Reply(OpCode::Multi);
    alice.proxy.clear();
    alice.proxy.passes(|passed| passed.iter().filter(multi).count() >= 2).await;
    assert!(other.deadline() > first, "{other:?}");

    // Its place is given up.
    observer.set_acl(guard.node(), Acl::open(), None).await?;
    drop(guard);
    lock_of::<L>(&backend.participant().await?)?.acquire().await?;
    Ok(())
}

/// Symptom: the first future had the only watch on the node. When it was no longer polled, no future
/// noticed the deletion, because a direct lease does not have heartbeats.
///
/// Fails with the watch locked for the whole wait of a future.
async fn a_loss_is_told_although_another_wait_is_not_polled<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let alice = backend.participant_with(Client::builder().lease(LeaseMode::Direct)).await?;
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let mut first = std::pin::pin!(guard.lost());
    alice.proxy.clear();
    tokio::select! {
        biased;
        reason = &mut first => panic!("{reason}"),
        () = alice.proxy.passes(|passed| gets(passed) > 0) => {}
    }

    backend.observer().await?.delete(guard.node(), None).await?;
    let work = guard.run(std::future::pending::<()>());
    let told = tokio::time::timeout(TIMEOUT, work).await?;
    assert_eq!(told, Err(LossReason::NodeDeleted));
    assert_eq!(first.await, LossReason::NodeDeleted);
    Ok(())
}

/// Symptom: of two waits on one guard, the second one read the node with every change of the connection,
/// and each second.
async fn each_wait_for_a_loss_reads_the_node_once<L: Exclusive>(alice: Participant) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    alice.proxy.clear();
    let changes = async {
        alice.proxy.passes(|passed| gets(passed) == 2).await;
        for _ in 0..5 {
            let status = alice.client.status().borrow().change;
            alice.proxy.cut();
            let is_back = |now: &Status| now.change > status && now.contact == Contact::Connected;
            alice.client.status().wait_for(is_back).await?;
        }
        // What the waits sent before this is answered.
        anyhow::Ok(alice.client.data(guard.node()).await?)
    };

    tokio::select! {
        reason = guard.lost() => panic!("{reason}"),
        reason = guard.lost() => panic!("{reason}"),
        result = changes => drop(result?),
    }
    assert_eq!(gets(&alice.proxy.passed()), 3);
    Ok(())
}

async fn work_ends_when_the_lock_is_lost<L: Exclusive>(alice: Participant) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    assert_eq!(guard.run(async { 42 }).await, Ok(42));
    let (ended, mut end) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(async move {
        let work = async move {
            let _ended = ended;
            std::future::pending::<()>().await;
        };
        guard.run(work).await
    });
    assert!(end.try_recv().is_err());
    alice.proxy.expire_session().await?;
    assert_eq!(working.await?, Err(LossReason::SessionExpired));
    assert!(end.await.is_err(), "the work was dropped");
    Ok(())
}

async fn ensure_looks_at_what_is_left<L: Exclusive>(alice: Participant) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    guard.ensure(Duration::from_secs(1))?;
    let wanted = Duration::from_secs(3600);
    let result = guard.ensure(wanted);
    assert!(matches!(result, Err(EnsureError::TooShort { left, .. }) if left < wanted));
    alice.proxy.expire_session().await?;
    guard.lost().await;
    let result = guard.ensure(Duration::ZERO);
    assert_eq!(result, Err(EnsureError::Lost(LossReason::SessionExpired)));
    Ok(())
}

async fn a_waiter_without_any_server_gets_an_error<L: Exclusive>(backend: Backend) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, short(&backend).await?);
    let _guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    bob.proxy.refuse();
    let error = waiting.await?.expect_err("no server is reachable");
    assert!(matches!(error, AcquireError::Unreachable { .. }), "{error:?}");
    Ok(())
}

async fn a_session_too_short_for_a_lease_is_refused<L: Exclusive>(backend: Backend) -> Result<()> {
    let tick = Duration::from_secs(60);
    let servers = backend.participant().await?.proxy;
    let builder = Client::builder().session_timeout(TIMEOUT).server_tick(tick);
    let error = builder.connect(&servers.address().to_string()).await.expect_err("no lease fits");
    assert!(error.to_string().contains("too short"), "{error}");
    Ok(())
}
