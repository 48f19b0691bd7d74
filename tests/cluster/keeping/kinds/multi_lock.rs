//! Several locks as one.

use anyhow::Result;
use lockkeeper::{MultiLock, Mutex};

use crate::keeping::held::Held;
use crate::keeping::scene::Scene;

/// The names of its locks, in the order in which it waits for them.
const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) async fn waits_for_first(scene: &Scene) -> Result<Held> {
    behind(scene, NAMES[0]).await
}

/// The others are held meanwhile.
pub(super) async fn waits_for_last(scene: &Scene) -> Result<Held> {
    behind(scene, NAMES[2]).await
}

async fn behind(scene: &Scene, taken: &str) -> Result<Held> {
    let path = |name: &str| format!("{}/{name}", scene.path);
    let before = Mutex::new(&scene.other, &path(taken))?.acquire().await?;
    let paths = NAMES.map(path);
    let lock = MultiLock::new(&scene.client, paths.iter().map(String::as_str))?;
    Ok(Held::Several(scene.behind(before, lock.acquire()).await?))
}
