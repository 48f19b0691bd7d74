//! The semaphore as Curator and kazoo lay it out: a gate, and a lease for each permit.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::inspect::{self, LockQueue};
use lockkeeper::{
    AcquireError, BuildError, Client, CreateMode, HolderState, Kind, LeaseMode, LossReason, Mutex,
    Semaphore, SemaphoreGuard, SemaphoreProfile, SetPermitsError, VerifyError, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;
use tokio::task::JoinHandle;

use crate::rw_lock::replies;
use crate::{Pair, contract, next_session};

contract!(semaphore_layouts);

/// One for each layout: they do not mix.
fn base(layout: &SemaphoreProfile) -> &'static str {
    match layout {
        SemaphoreProfile::Kazoo => "/kazoo/printers",
        SemaphoreProfile::Curator => "/curator/printers",
        _ => "/counted/printers",
    }
}

const COUNT: &str = "/locks/printer-count";

fn layouts() -> [SemaphoreProfile; 3] {
    let counted = SemaphoreProfile::CuratorCounted(COUNT.to_owned());
    [SemaphoreProfile::Curator, counted, SemaphoreProfile::Kazoo]
}

fn semaphore(
    participant: &Participant,
    permits: u32,
    layout: &SemaphoreProfile,
) -> Result<Semaphore> {
    let builder = Semaphore::builder(&participant.client, base(layout), permits);
    Ok(builder.profile(layout.clone()).label("printer").build()?)
}

fn path(path: &str) -> ZnodePath {
    ZnodePath::new(path).expect("a path")
}

/// Where the gate is, and where the leases are.
fn places(layout: &SemaphoreProfile) -> (ZnodePath, ZnodePath) {
    let base = base(layout);
    match layout {
        SemaphoreProfile::Kazoo => (path(&format!("{base}-__lock__")), path(base)),
        _ => (path(&format!("{base}/locks")), path(&format!("{base}/leases"))),
    }
}

/// Waits until so many are at the gate, and so many leases taken.
async fn reach(
    participant: &Participant,
    layout: &SemaphoreProfile,
    gate: usize,
    leases: usize,
) -> Result<()> {
    let (observer, places) = (participant.observer().await?, places(layout));
    children_reach(&observer, &places.1, leases).await?;
    children_reach(&observer, &places.0, gate).await
}

type Acquiring = JoinHandle<Result<lockkeeper::SemaphoreGuard, AcquireError>>;

fn acquiring(semaphore: &Semaphore, permits: u32) -> Acquiring {
    let semaphore = semaphore.clone();
    tokio::spawn(async move { semaphore.acquire_many(permits).await })
}

/// What one that waits for a lease has at the gate and among the leases: Curator's comes with its
/// lease, kazoo's without.
fn waiting_leases(layout: &SemaphoreProfile) -> usize {
    if *layout == SemaphoreProfile::Kazoo { 0 } else { 1 }
}

async fn curator_nodes_are_where_curator_looks(backend: Backend) -> Result<()> {
    let (alice, layout) = (backend.participant().await?, SemaphoreProfile::Curator);
    let guard = semaphore(&alice, 1, &layout)?.acquire().await?;
    let name = guard.node().name();
    assert!(name.starts_with("_c_") && name.ends_with("-lease-0000000000"), "{name}");
    assert_eq!(guard.node().parent(), Some(places(&layout).1));
    reach(&alice, &layout, 0, 1).await?;
    guard.release().await?;
    reach(&alice, &layout, 0, 0).await
}

async fn kazoo_nodes_are_where_kazoo_looks(backend: Backend) -> Result<()> {
    let (alice, layout) = (backend.participant().await?, SemaphoreProfile::Kazoo);
    let guard = semaphore(&alice, 3, &layout)?.acquire().await?;
    let name = guard.node().name();
    assert!(name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(guard.node().parent(), Some(path(base(&layout))));
    let (identifier, _) = alice.client.data(guard.node()).await?;
    assert_eq!(&identifier[..], b"printer");
    let (number, stat) = alice.client.data(&path(base(&layout))).await?;
    assert_eq!((&number[..], stat.ephemeral_owner.0), (&b"3"[..], 0));
    assert!(!alice.proxy.requests().contains(&OpCode::CreateContainer), "kazoo's parents stay");
    reach(&alice, &layout, 0, 1).await
}

async fn so_many_hold_and_no_more(backend: Backend) -> Result<()> {
    for layout in layouts() {
        let (alice, bob) = (backend.participant().await?, backend.participant().await?);
        let (ours, theirs) = (semaphore(&alice, 2, &layout)?, semaphore(&bob, 2, &layout)?);
        let (one, two) = (ours.acquire().await?, theirs.acquire().await?);
        assert!(two.token() > one.token());
        assert!(ours.try_acquire().await?.is_none() && theirs.try_acquire().await?.is_none());
        reach(&alice, &layout, 0, 2).await?;
        let next = acquiring(&theirs, 1);
        reach(&alice, &layout, 1, 2 + waiting_leases(&layout)).await?;
        let last = acquiring(&ours, 1);
        reach(&alice, &layout, 2, 2 + waiting_leases(&layout)).await?;
        one.release().await?;
        let next = next.await??;
        assert!(next.token() > two.token() && !last.is_finished());
        two.release().await?;
        let last = last.await??;
        assert!(last.token() > next.token());
        next.release().await?;
        last.release().await?;
        reach(&alice, &layout, 0, 0).await?;
    }
    Ok(())
}

/// L17: one that died, or hung, at the gate jammed the semaphore.
///
/// Fails with a persistent gate node (`Contender::attempt`): no contender gets in.
async fn l17_a_zombie_at_the_gate_does_not_jam_it(backend: Backend) -> Result<()> {
    for layout in layouts() {
        let (alice, bob) = (backend.participant().await?, backend.participant().await?);
        let (ours, theirs) = (semaphore(&alice, 1, &layout)?, semaphore(&bob, 1, &layout)?);
        let holder = ours.acquire().await?;
        let zombie = acquiring(&theirs, 1);
        reach(&alice, &layout, 1, 1 + waiting_leases(&layout)).await?;
        let next = acquiring(&ours, 1);
        reach(&alice, &layout, 2, 1 + waiting_leases(&layout)).await?;
        // A contender whose create is still unanswered would just enter again.
        bob.proxy.passes(|passed| replies(passed, OpCode::GetChildren2) > 0).await;
        bob.proxy.expire_session().await?;
        assert!(zombie.await?.is_err(), "its place is lost");
        holder.release().await?;
        next.await??.release().await?;
        reach(&alice, &layout, 0, 0).await?;
    }
    Ok(())
}

/// L17, with one that gives up: neither its place at the gate nor its lease may stay.
///
/// Fails without the clean-up in `Contender`'s `Drop`: both stay.
async fn l17_one_that_gives_up_at_the_gate_leaves_nothing(backend: Backend) -> Result<()> {
    for layout in layouts() {
        let (alice, bob) = (backend.participant().await?, backend.participant().await?);
        let (ours, theirs) = (semaphore(&alice, 1, &layout)?, semaphore(&bob, 1, &layout)?);
        let holder = ours.acquire().await?;
        let late = theirs.acquire_timeout(Duration::from_millis(100)).await;
        assert!(matches!(late, Err(AcquireError::Timeout { .. })), "{late:?}");
        reach(&alice, &layout, 0, 1).await?;
        holder.release().await?;
        reach(&alice, &layout, 0, 0).await?;
    }
    Ok(())
}

/// L17: leases were orphaned when a reply was lost.
///
/// Fails with `Contender::recover` taking every lost create for one that was not made: the
/// lease stays.
async fn l17_leases_are_not_orphaned_by_lost_replies(backend: Backend) -> Result<()> {
    for layout in layouts() {
        for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
            let alice = backend.participant().await?;
            let semaphore = semaphore(&alice, 2, &layout)?;
            semaphore.acquire().await?.release().await?;
            // Those of the gate, of a second attempt there, and of the lease.
            let kazoo = [OpCode::Create2, OpCode::Multi];
            let lost = match layout {
                SemaphoreProfile::Kazoo => &kazoo[..],
                _ if loss == Loss::BeforeReply => &[OpCode::Create2; 2],
                _ => &[OpCode::Create2; 3],
            };
            for op in lost {
                alice.proxy.lose_next(*op, loss);
            }
            let lease = semaphore.acquire().await?;
            reach(&alice, &layout, 0, 1).await?;
            lease.verify().await?;
            lease.release().await?;
            reach(&alice, &layout, 0, 0).await?;
        }
    }
    Ok(())
}

/// L17, with the gate taken away: kazoo's leases are not ordered, so only the contender at the gate may
/// create one.
///
/// Fails without `gate.run`: it keeps waiting.
async fn l17_one_that_loses_the_gate_takes_no_lease((alice, bob): Pair) -> Result<()> {
    let layout = SemaphoreProfile::Kazoo;
    let holder = semaphore(&alice, 1, &layout)?.acquire().await?;
    let waiting = acquiring(&semaphore(&bob, 1, &layout)?, 1);
    let (observer, (gate, _)) = (alice.observer().await?, places(&layout));
    children_reach(&observer, &gate, 1).await?;
    let (names, _) = observer.children(&gate).await?;
    observer.delete(&gate.child(&names[0])?, None).await?;
    let error = waiting.await?.expect_err("the gate is lost");
    assert!(error.is_retryable(), "{error:?}");
    holder.release().await?;
    reach(&alice, &layout, 0, 0).await
}

async fn l18_a_shared_count_lets_in_those_who_wait(backend: Backend) -> Result<()> {
    let layout = SemaphoreProfile::CuratorCounted(COUNT.to_owned());
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let (ours, theirs) = (semaphore(&alice, 1, &layout)?, semaphore(&bob, 1, &layout)?);
    let one = ours.acquire().await?;
    let (count, _) = alice.client.data(&path(COUNT)).await?;
    assert_eq!(&count[..], [0, 0, 0, 1]);
    let next = acquiring(&theirs, 1);
    reach(&alice, &layout, 1, 2).await?;
    // As Curator's SharedCount does.
    alice.client.set_data(&path(COUNT), &[0, 0, 0, 2][..], None).await?;
    let next = next.await??;
    let last = acquiring(&theirs, 1);
    reach(&alice, &layout, 1, 3).await?;
    ours.set_permits(3).await?;
    let last = last.await??;
    drop((one, next, last));
    reach(&alice, &layout, 0, 0).await
}

async fn several_permits_are_all_or_nothing(backend: Backend) -> Result<()> {
    for layout in layouts() {
        let (alice, bob) = (backend.participant().await?, backend.participant().await?);
        let (ours, theirs) = (semaphore(&alice, 3, &layout)?, semaphore(&bob, 3, &layout)?);
        let two = ours.acquire_many(2).await?;
        reach(&alice, &layout, 0, 2).await?;
        assert!(theirs.try_acquire_many(2).await?.is_none());
        reach(&alice, &layout, 0, 2).await?;
        let both = acquiring(&theirs, 2);
        reach(&alice, &layout, 1, 2 + 2 * waiting_leases(&layout)).await?;
        assert!(!both.is_finished());
        two.release().await?;
        let both = both.await??;
        assert_eq!(both.permits(), 2);
        reach(&alice, &layout, 0, 2).await?;
        both.release().await?;
        reach(&alice, &layout, 0, 0).await?;
        alice.proxy.clear();
        let error = ours.acquire_many(4).await.expect_err("there are three");
        assert!(matches!(error, AcquireError::TooMany { .. }), "{error:?}");
        // It made a lease for each, and was refused only then.
        let created = alice.proxy.requests().into_iter().filter(|op| *op == OpCode::Create2);
        assert_eq!(created.count(), 0, "{layout:?}");
        reach(&alice, &layout, 0, 0).await?;
    }
    Ok(())
}

async fn a_number_that_is_a_convention_cannot_be_set(alice: Participant) -> Result<()> {
    for layout in [SemaphoreProfile::Curator, SemaphoreProfile::Kazoo] {
        let result = semaphore(&alice, 2, &layout)?.set_permits(3).await;
        assert!(matches!(result, Err(SetPermitsError::Fixed { .. })), "{result:?}");
    }
    Ok(())
}

async fn foreign_leases_are_refused(backend: Backend) -> Result<()> {
    for layout in layouts() {
        let alice = backend.participant().await?;
        let semaphore = semaphore(&alice, 2, &layout)?;
        semaphore.acquire().await?.release().await?;
        let foreign = places(&layout).1.child("config")?;
        alice.client.create(&foreign, "", CreateMode::Persistent).await?;
        let error = semaphore.acquire().await.expect_err("it is not a lease");
        assert!(matches!(error, AcquireError::Foreign { .. }), "{error:?}");
        alice.client.delete(&foreign, None).await?;
        reach(&alice, &layout, 0, 0).await?;
    }
    Ok(())
}

async fn leases_are_shown_and_keys_that_look_like_them_are_not(alice: Participant) -> Result<()> {
    for layout in layouts() {
        let guard = semaphore(&alice, 2, &layout)?.acquire().await?;
        let queue = LockQueue::inspect(&alice.client, &places(&layout).1).await?.expect("a queue");
        let holders: Vec<_> = queue.holders().map(|entry| (&entry.node, entry.kind)).collect();
        assert_eq!(holders, [(guard.node(), Kind::Lease)], "{layout:?}");
        let kazoo = layout == SemaphoreProfile::Kazoo;
        assert_eq!(queue.permits, kazoo.then_some(2), "elsewhere it is a convention");
        let all = inspect::queues(&alice.client, &ZnodePath::root()).await?;
        let mut listed = all.queues.iter().flat_map(|found| &found.entries);
        assert!(listed.any(|entry| entry.node == *guard.node()), "{layout:?}");
        guard.release().await?;
    }
    let key = "/keys/0123456789abcdef0123456789abcdef";
    let guard = Mutex::new(&alice.client, key)?.acquire().await?;
    let all = inspect::queues(&alice.client, &path("/keys")).await?;
    let paths: Vec<_> = all.queues.iter().map(|queue| queue.path.as_str()).collect();
    assert_eq!(paths, [key]);
    guard.release().await?;
    Ok(())
}

/// Each permit has a node there, and the loss of any is the loss of all.
///
/// Fails with only the last of the nodes held: it stays held.
async fn the_loss_of_one_of_several_permits_is_told(backend: Backend) -> Result<()> {
    for layout in layouts() {
        for lost in 0..3 {
            let (alice, bob) = (backend.participant().await?, backend.participant().await?);
            let guard = semaphore(&alice, 3, &layout)?.acquire_many(3).await?;
            let leases = places(&layout).1;
            let (mut names, _) = bob.client.children(&leases).await?;
            names.sort();
            let node = leases.child(&names[lost])?;
            guard.verify().await?;
            bob.client.delete(&node, None).await?;
            let written = guard.transaction().create(&path("/x"), "", CreateMode::Persistent);
            assert!(written.commit().await.is_err(), "only while all are held");
            let reason = LossReason::NodeDeleted;
            assert_eq!(guard.verify().await, Err(VerifyError::Lost(reason)), "{layout:?} {lost}");
            assert_eq!(guard.state(), HolderState::Lost(reason));
            assert!(guard.release().await.is_err(), "it was lost before");
            reach(&alice, &layout, 0, 0).await?;
        }
    }
    Ok(())
}

/// Takes two permits, and has another client delete the node that is not the guard's own.
async fn without_one_of_two(
    backend: &Backend,
    alice: &Participant,
    layout: &SemaphoreProfile,
) -> Result<SemaphoreGuard> {
    let guard = semaphore(alice, 2, layout)?.acquire_many(2).await?;
    let leases = places(layout).1;
    let observer = backend.observer().await?;
    let (names, _) = observer.children(&leases).await?;
    let other = names.iter().find(|name| *name != guard.node().name()).expect("two");
    observer.delete(&leases.child(other)?, None).await?;
    Ok(guard)
}

/// The same without asking: a heartbeat finds it. Nothing waits for the loss, which would watch the nodes.
async fn the_loss_of_one_of_several_permits_is_found(backend: Backend) -> Result<()> {
    for layout in layouts() {
        let builder = Client::builder().session_timeout(Duration::from_secs(6));
        let alice = backend.participant_with(builder).await?;
        let guard = without_one_of_two(&backend, &alice, &layout).await?;
        while guard.is_held() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(guard.state(), HolderState::Lost(LossReason::NodeDeleted), "{layout:?}");
        drop(guard);
        reach(&alice, &layout, 0, 0).await?;
    }
    Ok(())
}

/// Symptom: only one of the nodes was watched, and without heartbeats the others were not checked.
async fn the_loss_of_one_of_several_permits_is_heard_of_without_heartbeats(
    backend: Backend,
) -> Result<()> {
    let builder = Client::builder().lease(LeaseMode::Direct);
    let alice = backend.participant_with(builder).await?;
    for layout in layouts() {
        let guard = without_one_of_two(&backend, &alice, &layout).await?;
        let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await?;
        assert_eq!(lost, LossReason::NodeDeleted, "{layout:?}");
        drop(guard);
        reach(&alice, &layout, 0, 0).await?;
    }
    Ok(())
}

/// Symptom: waiters no longer read the number of permits after that.
async fn a_count_that_is_made_anew_is_heard_of(backend: Backend) -> Result<()> {
    let layout = SemaphoreProfile::CuratorCounted(COUNT.to_owned());
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let one = semaphore(&alice, 1, &layout)?.acquire().await?;
    let next = acquiring(&semaphore(&bob, 1, &layout)?, 1);
    reach(&alice, &layout, 1, 2).await?;
    bob.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;

    bob.proxy.clear();
    alice.client.delete(&path(COUNT), None).await?;
    bob.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::Exists))).await;
    alice.client.create(&path(COUNT), &[0, 0, 0, 2][..], CreateMode::Persistent).await?;
    let next = tokio::time::timeout(Duration::from_secs(20), next).await???;
    drop((one, next));
    reach(&alice, &layout, 0, 0).await
}

/// Symptom: the number was written, but only its writer could read it.
async fn more_permits_than_curator_counts_are_refused(alice: Participant) -> Result<()> {
    let layout = SemaphoreProfile::CuratorCounted(COUNT.to_owned());
    let most = i32::MAX.unsigned_abs();
    let built = Semaphore::builder(&alice.client, base(&layout), most + 1).profile(layout.clone());
    let refused = built.build().map(drop).expect_err("Curator cannot count so many");
    assert_eq!(refused, BuildError::TooManyPermits { path: path(base(&layout)), most });
    let semaphore = semaphore(&alice, most, &layout)?;
    let refused = semaphore.set_permits(most + 1).await;
    let path = path(base(&layout));
    assert_eq!(refused, Err(SetPermitsError::TooMany { path, most }));
    Ok(())
}

/// Several permits were granted although the session of the first of them had ended before the
/// last one was taken: only the last one's was looked at.
///
/// Fails without the comparison of sessions, in `Contenders::all_of`.
async fn permits_of_two_sessions_are_not_granted_together(backend: Backend) -> Result<()> {
    let (alice, layout) = (backend.participant().await?, SemaphoreProfile::Curator);
    let printers = semaphore(&alice, 2, &layout)?;
    printers.acquire_many(2).await?.release().await?;
    expires_between_two_leases(&alice, &printers).await?;
    reach(&alice, &layout, 0, 0).await
}

/// Symptom: two contenders waited forever, each for leases of the other. One had lost the gate with its session,
/// and continued to create leases in the next session, concurrently with the next contender at the gate.
///
/// Fails without `Contenders::all_of`: it keeps waiting.
async fn one_whose_gate_is_of_an_earlier_session_does_not_wait_for_leases(
    (alice, bob): Pair,
) -> Result<()> {
    let layout = SemaphoreProfile::Curator;
    let holder = semaphore(&bob, 2, &layout)?.acquire_many(2).await?;
    reach(&alice, &layout, 0, 2).await?;
    expires_between_two_leases(&alice, &semaphore(&alice, 2, &layout)?).await?;
    holder.release().await?;
    reach(&alice, &layout, 0, 0).await
}

/// Acquires two permits with a session that ends after the first lease, and must fail.
async fn expires_between_two_leases(alice: &Participant, printers: &Semaphore) -> Result<()> {
    alice.proxy.clear();
    let acquiring = printers.acquire_many(2);
    tokio::pin!(acquiring);
    // The gate, and the first lease.
    let first = |passed: &[Passed]| replies(passed, OpCode::GetChildren2) == 2;
    tokio::select! {
        biased;
        () = alice.proxy.passes(first) => {}
        result = &mut acquiring => panic!("it has not asked for the second lease: {result:?}"),
    }
    let old = alice.client.session_id();
    alice.proxy.expire_session().await?;
    // It continues when the next session is established.
    next_session(alice, old).await?;
    let error = acquiring.await.expect_err("the gate and the first lease are gone");
    assert!(matches!(error, AcquireError::SessionExpired { .. }), "{error:?}");
    Ok(())
}
