//! `lockkeeper demo`: a live demonstration of locks on ZooKeeper.
//!
//! The first part shows the simplest lock and its timeline: two clients, one node. The second part shows what a release
//! costs with many waiters: a naive queue, in which every waiter watches the list of contenders, and a fair queue, in
//! which each waiter watches the contender before it. All figures are counted on the wire.
//!
//! `lockkeeper demo NAME` plays one of the `scenes` instead.

mod counter;
mod herd;
mod scenes;
mod stage;
mod timeline;

use clap::Args;
use lockkeeper::ZnodePath;
use lockkeeper_engine::Engine;
use rustix::process::{Resource, Rlimit, getpid, getrlimit, setrlimit};
use serde::Serialize;
use tokio::task::LocalSet;

use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::print_json;

use counter::Counter;
use herd::Figures;
use scenes::Scene;
use stage::{Paint, Stage};

/// Show how locks work, live
///
/// Without SCENE it shows a simple lock, and then one release with many waiters. A scene takes a few seconds, and
/// every figure in it is counted or measured in this run. Without --connect it uses a separate engine in memory.
#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    /// Show this scene instead of the story of two clients and many waiters
    #[arg(value_enum)]
    scene: Option<Scene>,
    /// The number of waiters for one lock in the second part of the story
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "scene",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    waiters: u16,
}

/// The figures as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownStory {
    handover_ms: f64,
    waiters: u16,
    naive: Figures,
    fair: Figures,
}

/// Shows both parts of the story, or one scene.
pub(crate) async fn demo(global: &Global, options: DemoOptions) -> Result<u8, Failure> {
    allow_many_connections();
    let DemoOptions { scene, waiters } = options;
    let sessions = scene.and_then(Scene::sessions).filter(|_| global.connect().is_none());
    let engine = match sessions {
        Some(sessions) => Engine::builder().tick(sessions.tick),
        None => Engine::builder(),
    };
    let own = match global.connect() {
        Some(_) => None,
        None => Some(engine.start().await?),
    };
    let servers =
        own.as_ref().map(Engine::connect_string).or_else(|| global.connect().map(str::to_owned));
    let servers = servers.unwrap_or_default();
    let counter = Counter::start(&servers).await?;

    let name = format!("lockkeeper-demo-{}", getpid().as_raw_nonzero());
    let root = ZnodePath::root().child(&name).map_err(lockkeeper::BuildError::from)?;
    let stage = Stage { global, servers, counter, root, paint: Paint::new(global), sessions };
    match scene {
        None => tell_story(&stage, waiters).await?,
        Some(scene) => {
            let figures = scenes::play(&stage, scene).await;
            let cleared = if own.is_none() { stage.clear().await } else { Ok(()) };
            let figures = figures?;
            cleared?;
            if global.json {
                print_json(&figures)?;
            }
        }
    }

    if let Some(engine) = own {
        engine.stop().await?;
    }
    Ok(Exit::Ok.code())
}

async fn tell_story(stage: &Stage<'_>, waiters: u16) -> Result<(), Failure> {
    let shown = play(stage, waiters).await?;
    stage.say("\n   More scenes: lockkeeper demo NAME; their names: lockkeeper demo --help")?;
    if stage.global.json { print_json(&shown) } else { Ok(()) }
}

async fn play(stage: &Stage<'_>, waiters: u16) -> Result<ShownStory, Failure> {
    let handover_ms = timeline::play(stage).await?;
    // The tasks of the crowd stay on this thread, as does everything here.
    let (naive, fair) = LocalSet::new().run_until(herd::play(stage, waiters)).await?;
    Ok(ShownStory { handover_ms, waiters, naive, fair })
}

/// Every waiter needs four file descriptors in this process, more than the usual soft limit allows.
fn allow_many_connections() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // If the limit cannot be raised, the connection that fails reports the error; use a smaller `--waiters`.
    let _ = setrlimit(Resource::Nofile, most);
}
