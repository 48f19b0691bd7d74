//! Who may do what: credentials, access control lists, and the znodes that a lock is below.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lockkeeper::revoke::{revoke, revoke_within};
use lockkeeper::{
    Acl, Client, Counter, CreateMode, DefaultAcl, Error, ErrorCode, ExclusiveNode, MultiLock,
    Mutex, Permissions, RwLock, Semaphore, ZnodePath, exposures,
};
use lockkeeper_testkit::backend::{Backend, Participant};

use crate::locks::{Exclusive, Held, line_up, lock_of};
use crate::{LOCK, contract, gets, lock_path};

contract!(access);

/// Two users with the password `secret`: their ids are `user:base64(sha1(user:password))`.
const ANN: &str = "digest:ann:7RJfAeIvrl4zdj6sS2fXrQHDvHM=:cdrwa";
const BOB: &str = "digest:bob:fyVmFCwVbTJYrznoSu1koqYEYF0=:cdrwa";

async fn user(backend: &Backend, name: &str) -> Result<Participant> {
    backend.participant_with(Client::builder().digest(name, "secret")).await
}

async fn user_with(backend: &Backend, name: &str, acl: &DefaultAcl) -> Result<Participant> {
    let builder = Client::builder().digest(name, "secret").default_acl(acl.clone());
    backend.participant_with(builder).await
}

fn folder() -> ZnodePath {
    lock_path().parent().expect("not the root")
}

fn is_refused<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(error) if error.code() == Some(ErrorCode::NoAuth))
}

/// A client without credentials took the lock of one with them: it asked for it, did not wait, and
/// deleted the holder's znode, with which everyone might do everything.
///
/// Fails with `DefaultAcl::Open` as the default of a client with credentials.
async fn with_credentials_a_stranger_can_neither_hold_nor_end_a_hold<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let ann = user(&backend, "ann").await?;
    let held = lock_of::<L>(&ann)?.acquire().await?;

    for stranger in [backend.participant().await?, user(&backend, "eve").await?] {
        let Err(error) = lock_of::<L>(&stranger)?.try_acquire().await else {
            bail!("a stranger came to the lock");
        };
        ensure!(error.to_string().contains("show credentials"), "it says what to do: {error}");

        let (client, node) = (&stranger.client, held.node());
        if L::FAIR {
            ensure!(is_refused(revoke(client, &lock_path()).await), "it revoked");
            let forced = revoke_within(client, &lock_path(), Duration::ZERO).await;
            ensure!(is_refused(forced), "it revoked by force");
        }
        ensure!(is_refused(client.set_data(node, "mine", None).await), "it wrote");
        ensure!(is_refused(client.delete(node, None).await), "it deleted");
        for node in [node, &L::line(), &folder()] {
            ensure!(is_refused(client.set_acl(node, Acl::open(), None).await), "it opened {node}");
        }
    }

    held.verify().await?;
    Ok(held.release().await?)
}

/// The first client with credentials made the directory of the outcome markers with its own list, and all others could
/// write no counter, pool or queue on these servers, whatever its path.
///
/// Fails with the list of the first client.
async fn outcome_markers_keep_no_other_user_out(backend: Backend) -> Result<()> {
    let ann = user(&backend, "ann").await?;
    Counter::new(&ann.client, "/of-ann")?.add(1).await?;

    for (number, other) in
        [user(&backend, "bob").await?, backend.participant().await?].iter().enumerate()
    {
        let counter = Counter::new(&other.client, &format!("/of-others-{number}"))?;
        ensure!(counter.add(2).await?.after == 2);
        let forbidden = Counter::new(&other.client, "/of-ann")?.add(1).await;
        ensure!(forbidden.is_err_and(|error| error.to_string().contains("not permitted")));
        let markers = ZnodePath::new("/lockkeeper-outcomes")?;
        let opened = other.client.set_acl(&markers, Acl::open(), None).await;
        ensure!(is_refused(opened), "the list cannot be changed");
    }
    Ok(())
}

async fn those_on_a_list_wait_for_each_other<L: Exclusive>(backend: Backend) -> Result<()> {
    let both: DefaultAcl = format!("{ANN},{BOB},world:anyone:r").parse()?;
    let ann = user_with(&backend, "ann", &both).await?;
    let bob = user_with(&backend, "bob", &both).await?;

    let held = lock_of::<L>(&ann)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    held.release().await?;
    waiting.await??.release().await?;

    let stranger = lock_of::<L>(&user(&backend, "eve").await?)?.try_acquire().await;
    ensure!(stranger.is_err(), "a client that is not on the list acquired the lock");
    Ok(())
}

/// A waiter reads the znode ahead. Below a znode that is open to both, a holder whose own znode is
/// closed to the waiter would block it forever.
///
/// Fails with a list of the creator alone.
async fn a_waiter_with_other_credentials_can_watch_the_holder<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let open = if L::FAIR { L::line() } else { folder() };
    backend.observer().await?.ensure(&open, CreateMode::Persistent).await?;

    let (ann, bob) = (user(&backend, "ann").await?, user(&backend, "bob").await?);
    let held = lock_of::<L>(&ann)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    bob.proxy.passes(|passed| gets(passed) > 0).await;
    held.release().await?;
    waiting.await??.release().await?;
    Ok(())
}

/// The lists of a znode and of all below it.
async fn lists(client: &Client, top: &ZnodePath) -> Result<Vec<(ZnodePath, Vec<Acl>)>> {
    let (mut found, mut left) = (Vec::new(), vec![top.clone()]);
    while let Some(node) = left.pop() {
        let (names, _) = client.children(&node).await?;
        for name in names {
            left.push(node.child(&name)?);
        }
        let (acl, _) = client.acl(&node).await?;
        found.push((node, acl));
    }
    Ok(found)
}

async fn everything_that_a_lock_makes_has_its_list(backend: Backend) -> Result<()> {
    let participant = user(&backend, "ann").await?;
    let ann = &participant.client;
    let mutex = Mutex::builder(ann, "/locks/mutex").lock_delay(Duration::from_secs(1)).build()?;
    let _mutex = mutex.acquire().await?;
    let _reader = RwLock::new(ann, "/locks/shared")?.read().await?;
    let _permit = Semaphore::new(ann, "/locks/permits", 2)?.acquire().await?;
    let _node = ExclusiveNode::new(ann, "/locks/node")?.acquire().await?;
    let _both = MultiLock::new(ann, ["/locks/one", "/locks/two"])?.acquire().await?;

    let made = lists(ann, &folder()).await?;
    ensure!(made.len() > 10, "each with its contender, and the mark of a delay: {made:?}");
    for (node, acl) in made {
        let all: Vec<_> = acl.iter().filter(|one| one.permissions == Permissions::ALL).collect();
        ensure!(all.len() == 1 && all[0].scheme == "digest", "{node}: {acl:?}");
        ensure!(acl.len() == 2 && acl.ends_with(&Acl::world(Permissions::READ)), "{node}: {acl:?}");
    }
    Ok(())
}

async fn without_credentials_everyone_may_do_everything(ann: Participant) -> Result<()> {
    let _held = Mutex::new(&ann.client, LOCK)?.acquire().await?;
    let made = lists(&ann.client, &folder()).await?;
    ensure!(made.len() == 3, "{made:?}");
    for (node, acl) in made {
        ensure!(acl == Acl::open(), "{node}: {acl:?}");
    }

    // A lock may have a list of its own.
    let most = Permissions::CREATE | Permissions::DELETE | Permissions::READ;
    let list = DefaultAcl::List(Acl::world(most));
    let other = Mutex::builder(&ann.client, "/other/lock").acl(&list).build()?;
    let _other = other.acquire().await?;
    let made = lists(&ann.client, &ZnodePath::new("/other")?).await?;
    ensure!(made.len() == 3, "{made:?}");
    for (node, acl) in made {
        ensure!(acl == Acl::world(most), "{node}: {acl:?}");
    }
    Ok(())
}

async fn a_list_of_the_creator_needs_credentials(participant: Participant) -> Result<()> {
    let nobody = participant.client.with_default_acl(&DefaultAcl::Creator);
    let Err(error) = Mutex::new(&nobody, LOCK)?.acquire().await else {
        bail!("it was not created, so it must not be usable");
    };
    ensure!(error.to_string().contains("show credentials"), "it says what to do: {error}");
    Ok(())
}

async fn an_open_parent_is_found(backend: Backend) -> Result<()> {
    backend.observer().await?.ensure(&lock_path(), CreateMode::Persistent).await?;
    let ann = user(&backend, "ann").await?;
    let found = exposures(&ann.client, &lock_path()).await?;
    let nodes: Vec<_> = found.iter().map(|exposure| exposure.node.clone()).collect();
    assert_eq!(nodes, [lock_path(), folder()]);
    let told = found[0].to_string();
    ensure!(told.contains("delete znodes below it") && told.contains(LOCK), "{told}");
    Ok(())
}

async fn a_znode_that_others_may_only_read_is_no_exposure(backend: Backend) -> Result<()> {
    let ann = user(&backend, "ann").await?;
    assert_eq!(exposures(&ann.client, &lock_path()).await?, []);
    let _held = Mutex::new(&ann.client, LOCK)?.acquire().await?;
    assert_eq!(exposures(&ann.client, &lock_path()).await?, []);
    Ok(())
}
