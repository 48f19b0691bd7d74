//! Locks that one task of a process leaves to another, or takes again.

use anyhow::Result;
use lockkeeper::{Mutex, MutexBuilder};

use crate::keeping::held::Held;
use crate::keeping::scene::Scene;

/// Another task of the same process holds for the share of a lease.
async fn behind_task(
    scene: &Scene,
    options: impl Fn(MutexBuilder) -> MutexBuilder,
) -> Result<Held> {
    let lock = options(Mutex::builder(&scene.client, &scene.path)).build()?;
    let before = lock.acquire().await?;
    Ok(Held::one(scene.behind(before, lock.acquire()).await?))
}

pub(super) async fn handed_over(scene: &Scene) -> Result<Held> {
    behind_task(scene, |lock| lock).await
}

pub(super) async fn handed_over_by_linger(scene: &Scene) -> Result<Held> {
    behind_task(scene, |lock| lock.linger(scene.lease * 8)).await
}

pub(super) async fn handed_over_by_cohort(scene: &Scene) -> Result<Held> {
    behind_task(scene, |lock| lock.cohort(8, scene.lease * 8)).await
}

/// The first task of a cohort waits for another program, and leaves its node to the second one as
/// soon as it has it.
pub(super) async fn handed_over_at_once(scene: &Scene) -> Result<Held> {
    let before = Mutex::new(&scene.other, &scene.path)?.acquire().await?;
    let lock = Mutex::builder(&scene.client, &scene.path).cohort(8, scene.lease * 8).build()?;
    // It enters the line of the process before the first one gives its node on.
    let both = async {
        let first = async { lock.acquire().await.map(drop) };
        let (first, second) = tokio::join!(biased; first, lock.acquire());
        first.and(second)
    };
    Ok(Held::one(scene.behind(before, both).await?))
}

/// The node lies idle for the share of a lease.
pub(super) async fn taken_again(scene: &Scene) -> Result<Held> {
    let lock = Mutex::builder(&scene.client, &scene.path).linger(scene.lease * 8).build()?;
    lock.acquire().await?.release().await?;
    scene.idle().await;
    Ok(Held::one(lock.acquire().await?))
}
