//! Free locks, taken by a client that has not talked for the share of a lease.

use anyhow::{Context, Result};
use lockkeeper::Mutex;

use crate::keeping::held::Held;
use crate::keeping::scene::Scene;

pub(super) async fn acquire(scene: &Scene) -> Result<Held> {
    let lock = Mutex::new(&scene.client, &scene.path)?;
    scene.idle().await;
    Ok(Held::one(lock.acquire().await?))
}

pub(super) async fn try_acquire(scene: &Scene) -> Result<Held> {
    let lock = Mutex::new(&scene.client, &scene.path)?;
    scene.idle().await;
    Ok(Held::one(lock.try_acquire().await?.context("nobody has it")?))
}

pub(super) async fn again(scene: &Scene) -> Result<Held> {
    let lock = Mutex::new(&scene.client, &scene.path)?;
    lock.acquire().await?.release().await?;
    scene.idle().await;
    Ok(Held::one(lock.acquire().await?))
}
