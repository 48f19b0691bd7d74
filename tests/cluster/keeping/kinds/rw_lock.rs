//! Readers and writers.

use anyhow::Result;
use lockkeeper::{BuildError, Client, Profile, RwLock, RwLockWriteGuard};

use crate::keeping::held::Held;
use crate::keeping::scene::Scene;

fn lock(client: &Client, scene: &Scene) -> Result<RwLock, BuildError> {
    RwLock::new(client, &scene.path)
}

fn kazoo(client: &Client, scene: &Scene) -> Result<RwLock, BuildError> {
    RwLock::builder(client, &scene.path).profile(Profile::Kazoo).build()
}

type Make = fn(&Client, &Scene) -> Result<RwLock, BuildError>;

async fn read_behind(scene: &Scene, lock: Make) -> Result<Held> {
    let before = lock(&scene.other, scene)?.write().await?;
    let lock = lock(&scene.client, scene)?;
    let guard = scene.behind(before, lock.read()).await?;
    Ok(Held::one(guard))
}

async fn write_behind(scene: &Scene, lock: Make) -> Result<RwLockWriteGuard> {
    let before = lock(&scene.other, scene)?.read().await?;
    let lock = lock(&scene.client, scene)?;
    scene.behind(before, lock.write()).await
}

pub(super) async fn read(scene: &Scene) -> Result<Held> {
    read_behind(scene, lock).await
}

pub(super) async fn kazoo_read(scene: &Scene) -> Result<Held> {
    read_behind(scene, kazoo).await
}

pub(super) async fn write(scene: &Scene) -> Result<Held> {
    Ok(Held::one(write_behind(scene, lock).await?))
}

pub(super) async fn kazoo_write(scene: &Scene) -> Result<Held> {
    Ok(Held::one(write_behind(scene, kazoo).await?))
}

pub(super) async fn downgraded(scene: &Scene) -> Result<Held> {
    let guard = write_behind(scene, lock).await?.downgrade().await?;
    Ok(Held::one(guard))
}

pub(super) async fn upgradeable(scene: &Scene) -> Result<Held> {
    let before = lock(&scene.other, scene)?.write().await?;
    let lock = lock(&scene.client, scene)?;
    Ok(Held::one(scene.behind(before, lock.upgradeable_read()).await?))
}

pub(super) async fn upgraded(scene: &Scene) -> Result<Held> {
    let before = lock(&scene.other, scene)?.write().await?;
    let lock = lock(&scene.client, scene)?;
    let guard = scene.behind(before, lock.upgradeable_read()).await?;
    Ok(Held::one(guard.upgrade().await?))
}

/// The upgrade itself waits, for a reader to leave.
pub(super) async fn upgrade_waits(scene: &Scene) -> Result<Held> {
    let guard = lock(&scene.client, scene)?.upgradeable_read().await?;
    let reader = lock(&scene.other, scene)?.read().await?;
    Ok(Held::one(scene.behind(reader, async { Ok(guard.upgrade().await?) }).await?))
}
