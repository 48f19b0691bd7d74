//! What all locks and guards offer alike.

use std::ops::Deref;

use anyhow::{Context, Result};
use lockkeeper::{
    Acl, DefaultAcl, ExclusiveNode, Guard, LossReason, MultiLock, Mutex, Owner, OwnerInfo,
    Permissions, Profile, ReentrantMutex, RwLock, Semaphore, ZnodePath,
};
use lockkeeper_testkit::backend::Participant;
use lockkeeper_wire::OpCode;

use crate::locks::{Exclusive, lock_of};
use crate::{LOCK, Pair, contract};

contract!(interface);

/// The access control list of these tests: everyone may do everything, except change the list.
fn acl() -> Vec<Acl> {
    let all = Permissions::READ | Permissions::WRITE | Permissions::CREATE | Permissions::DELETE;
    vec![Acl { permissions: all, scheme: "world".into(), id: "anyone".into() }]
}

/// Whether the options that a lock was made with show in its holder's node.
async fn shows(
    participant: &Participant,
    guard: impl Deref<Target = Guard>,
    profile: Option<Profile>,
) -> Result<()> {
    let (client, node) = (&participant.client, guard.node());
    let data = client.data(node).await?.0;
    match profile {
        Some(Profile::Kazoo) => assert_eq!(&data[..], b"nightly", "{node}"),
        _ => {
            let owner = OwnerInfo::from_data(&data).context("no owner")?;
            let told = [owner.label, owner.user, owner.why].map(Option::unwrap_or_default);
            assert_eq!(told, ["nightly", "ann", "restoring"], "{node}");
        }
    }
    assert_eq!(client.acl(node).await?.0, acl(), "{node}");
    let kazoo = node.name().contains("lock__") || !node.name().contains('-');
    assert_eq!(profile.is_none_or(|profile| profile == Profile::Kazoo), kazoo, "{node}");
    Ok(())
}

/// A builder with the options that every lock takes.
macro_rules! equipped {
    ($builder:expr) => {
        $builder.acl(&DefaultAcl::List(acl())).label("nightly").user("ann").why("restoring")
    };
}

/// Fails with a `MultiLock` that leaves the label out.
async fn every_lock_takes_the_same_options(alice: Participant) -> Result<()> {
    let client = &alice.client;
    for (index, profile) in [Profile::Curator, Profile::Kazoo].into_iter().enumerate() {
        let path = |name: &str| format!("/{name}-{index}");

        let lock = equipped!(Mutex::builder(client, &path("mutex"))).profile(profile).build()?;
        shows(&alice, lock.acquire().await?, Some(profile)).await?;

        let lock = equipped!(ReentrantMutex::builder(client, &path("reentrant")))
            .profile(profile)
            .build()?;
        shows(&alice, lock.acquire(&Owner::new("alice")).await?, Some(profile)).await?;

        let lock = equipped!(RwLock::builder(client, &path("rw"))).profile(profile).build()?;
        shows(&alice, lock.read().await?, Some(profile)).await?;

        let lock = equipped!(Semaphore::builder(client, &path("semaphore"), 2))
            .profile(profile)
            .build()?;
        shows(&alice, lock.acquire().await?, Some(profile)).await?;

        let (one, two) = (path("one"), path("two"));
        let lock = equipped!(MultiLock::builder(client, [one.as_str(), two.as_str()]))
            .profile(profile)
            .build()?;
        for guard in lock.acquire().await?.guards() {
            shows(&alice, guard, Some(profile)).await?;
        }
    }
    // Its node does not have a name of its own that a profile could define.
    let lock = equipped!(ExclusiveNode::builder(client, "/node"));
    let lock = lock.owner(&Owner::new("alice")).build()?;
    assert_eq!(lock.owner().name(), "alice");
    shows(&alice, lock.acquire().await?, None).await
}

async fn a_guard_tells_in_one_line_how_it_stands<L: Exclusive>((alice, bob): Pair) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    assert!(guard.is_held());
    let line = format!("{guard:?}");
    assert!(line.ends_with(&format!("Guard({LOCK}, token {}, held)", guard.token())), "{line}");
    assert_eq!(format!("{guard:#?}"), line, "nothing in it has more than one line");

    bob.client.delete(guard.node(), None).await?;
    assert_eq!(guard.lost().await, LossReason::NodeDeleted);
    assert!(!guard.is_held());
    let line = format!("{guard:?}");
    assert!(line.contains("lost: the holder's node was deleted"), "{line}");
    Ok(())
}

const PATHS: [&str; 2] = ["/locks/a", "/locks/b"];

async fn a_guard_of_several_locks_offers_what_others_do((alice, bob): Pair) -> Result<()> {
    let guard = MultiLock::new(&alice.client, PATHS)?.acquire().await?;
    assert!(guard.is_held());
    assert_eq!(guard.session(), alice.client.session_id());
    let [one, two] = guard.guards() else { panic!("{guard:?}") };
    let (least, left) = (one.remaining().min(two.remaining()), guard.remaining());
    assert!(!left.is_zero() && left <= least, "{left:?} of {least:?}");
    let line = format!("{guard:#?}");
    let tokens = [one, two].map(|guard| guard.token());
    let told =
        format!("MultiGuard(/locks/a, token {}; /locks/b, token {}; held)", tokens[0], tokens[1]);
    assert_eq!(line, told);

    bob.client.delete(two.node(), None).await?;
    assert_eq!(guard.lost().await, (two.path(), LossReason::NodeDeleted));
    assert!(!guard.is_held() && one.is_held());
    assert!(guard.remaining().is_zero());
    assert!(format!("{guard:?}").contains("lost: "), "{guard:?}");
    Ok(())
}

/// Fails with a wait for the first lock alone.
async fn a_request_for_one_of_several_locks_is_told((alice, bob): Pair) -> Result<()> {
    let guard = MultiLock::new(&alice.client, PATHS)?.acquire().await?;
    let path = ZnodePath::new(PATHS[1])?;
    let asked = tokio::spawn(async move {
        let asked = guard.revoke_requested().await.cloned();
        (asked, guard)
    });
    let reads = |passed: &[_]| crate::rw_lock::replies(passed, OpCode::GetData) >= 2;
    alice.proxy.passes(reads).await;
    lockkeeper::revoke::revoke(&bob.client, &path).await?;
    let (asked, guard) = asked.await?;
    assert_eq!(asked, Ok(path));
    assert!(guard.is_held(), "a request does not take the lock");

    bob.client.delete(guard.guards()[0].node(), None).await?;
    assert_eq!(guard.lost().await.1, LossReason::NodeDeleted);
    guard.release().await.expect_err("it is lost");
    Ok(())
}
