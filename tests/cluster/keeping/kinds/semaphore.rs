//! Permits, in each layout.

use anyhow::Result;
use lockkeeper::{Client, Semaphore, SemaphoreProfile};

use crate::keeping::held::Held;
use crate::keeping::scene::Scene;

/// Waits for so many permits of `total`, while another one has all of them.
async fn behind(scene: &Scene, layout: SemaphoreProfile, take: u32, total: u32) -> Result<Held> {
    let lock = |client: &Client| {
        Semaphore::builder(client, &scene.path, total).profile(layout.clone()).build()
    };
    let before = lock(&scene.other)?.acquire_many(total).await?;
    let lock = lock(&scene.client)?;
    Ok(Held::one(scene.behind(before, lock.acquire_many(take)).await?))
}

pub(super) async fn native(scene: &Scene) -> Result<Held> {
    behind(scene, SemaphoreProfile::Native, 1, 2).await
}

pub(super) async fn several(scene: &Scene) -> Result<Held> {
    behind(scene, SemaphoreProfile::Native, 2, 3).await
}

pub(super) async fn curator(scene: &Scene) -> Result<Held> {
    behind(scene, SemaphoreProfile::Curator, 1, 2).await
}

pub(super) async fn curator_several(scene: &Scene) -> Result<Held> {
    behind(scene, SemaphoreProfile::Curator, 2, 3).await
}

pub(super) async fn kazoo(scene: &Scene) -> Result<Held> {
    behind(scene, SemaphoreProfile::Kazoo, 1, 2).await
}

pub(super) async fn kazoo_several(scene: &Scene) -> Result<Held> {
    behind(scene, SemaphoreProfile::Kazoo, 2, 3).await
}
