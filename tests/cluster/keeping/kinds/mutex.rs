//! Locks for one holder at a time, which wait behind another program.

use std::ops::Deref;

use anyhow::Result;
use lockkeeper::{
    AcquireError, Client, ExclusiveNode, Guard, Locks, Mutex, MutexBuilder, MutexGuard, Owner,
    Profile, ReentrantMutex, blocking,
};

use crate::keeping::held::Held;
use crate::keeping::scene::Scene;

/// The same kind of mutex on both sides.
async fn behind(
    scene: &Scene,
    options: impl Fn(MutexBuilder) -> MutexBuilder,
) -> Result<MutexGuard> {
    let lock = |client: &Client| options(Mutex::builder(client, &scene.path)).build();
    let before = lock(&scene.other)?.acquire().await?;
    scene.behind(before, lock(&scene.client)?.acquire()).await
}

pub(super) async fn plain(scene: &Scene) -> Result<Held> {
    Ok(Held::one(behind(scene, |lock| lock).await?))
}

pub(super) async fn kazoo(scene: &Scene) -> Result<Held> {
    Ok(Held::one(behind(scene, |lock| lock.profile(Profile::Kazoo)).await?))
}

pub(super) async fn with_linger(scene: &Scene) -> Result<Held> {
    Ok(Held::one(behind(scene, |lock| lock.linger(scene.lease)).await?))
}

pub(super) async fn with_cohort(scene: &Scene) -> Result<Held> {
    Ok(Held::one(behind(scene, |lock| lock.cohort(8, scene.lease * 8)).await?))
}

pub(super) async fn with_lock_delay(scene: &Scene) -> Result<Held> {
    Ok(Held::one(behind(scene, |lock| lock.lock_delay(scene.lease)).await?))
}

pub(super) async fn after_lock_delay(scene: &Scene) -> Result<Held> {
    let lock = |client: &Client| Mutex::builder(client, &scene.path).lock_delay(scene.wait).build();
    let before = lock(&scene.other)?.acquire().await?;
    let next = lock(&scene.client)?;
    Ok(Held::one(scene.after_delay(&before, next.acquire()).await?))
}

pub(super) async fn reentrant(scene: &Scene) -> Result<Held> {
    let before = Mutex::new(&scene.other, &scene.path)?.acquire().await?;
    let lock = ReentrantMutex::new(&scene.client, &scene.path)?;
    Ok(Held::one(scene.behind(before, lock.acquire(&Owner::new("case"))).await?))
}

/// The first entry ends at once, and the second one goes on with its lock.
pub(super) async fn entered_again(scene: &Scene) -> Result<Held> {
    let before = Mutex::new(&scene.other, &scene.path)?.acquire().await?;
    let (lock, owner) = (ReentrantMutex::new(&scene.client, &scene.path)?, Owner::new("case"));
    let first = scene.behind(before, lock.acquire(&owner)).await?;
    let second = lock.acquire(&owner).await?;
    first.release().await?;
    Ok(Held::one(second))
}

pub(super) async fn exclusive_node(scene: &Scene) -> Result<Held> {
    let before = ExclusiveNode::new(&scene.other, &scene.path)?.acquire().await?;
    let lock = ExclusiveNode::new(&scene.client, &scene.path)?;
    Ok(Held::one(scene.behind(before, lock.acquire()).await?))
}

pub(super) async fn of_registry(scene: &Scene) -> Result<Held> {
    let lock = |client: &Client| Locks::new(client, &scene.path)?.get("case 1");
    let before = lock(&scene.other)?.acquire().await?;
    Ok(Held::one(scene.behind(before, lock(&scene.client)?.acquire()).await?))
}

/// A guard, and the client of a program without async that it belongs to.
struct Blocking(MutexGuard, #[expect(dead_code, reason = "it owns the session")] blocking::Client);

impl Deref for Blocking {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

pub(super) async fn blocking(scene: &Scene) -> Result<Held> {
    let before = Mutex::new(&scene.other, &scene.path)?.acquire().await?;
    let options = scene.servers.client(scene.case.mode);
    let servers = scene.servers.connect_string(scene.case.server).to_owned();
    let path = scene.path.clone();
    let connected =
        tokio::task::spawn_blocking(move || blocking::Client::connect_with(options, &servers));
    let client = connected.await??;
    let lock = Mutex::new(&client, &path)?;

    let acquire = async {
        let acquire = tokio::task::spawn_blocking(move || {
            let guard = client.wait(lock.acquire())?;
            Ok(Blocking(guard, client))
        });
        let guard: Result<_, AcquireError> = acquire.await.expect("to acquire does not panic");
        guard
    };
    Ok(Held::one(scene.behind(before, acquire).await?))
}
