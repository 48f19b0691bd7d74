//! The named scenes: each one shows a use of the service, or a known problem. Every figure is counted or measured while
//! the scene runs.
//!
//! ```text
//!   signals         publish, notify
//!   directory       balance, names
//!   members         members, leader
//!   queue           queue
//!   order           order
//!   deaths          crash, deadlock
//!   disconnects     disconnects
//!   one_node        herd
//!   figures         the result of a scene, and times in it
//! ```

mod deaths;
mod directory;
mod disconnects;
mod figures;
mod members;
mod one_node;
mod order;
mod queue;
mod signals;

use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;
use tokio::time::timeout;

use super::stage::{ShortSessions, Stage};
use crate::shared::exit::{Exit, Failure};
use figures::SceneError;

/// Short sessions, for scenes in which programs are killed, on the demo's own engine.
const SHORT_SESSIONS: ShortSessions =
    ShortSessions { tick: Duration::from_millis(100), timeout: Duration::from_millis(1500) };

/// Longer than any scene takes, with the longest sessions and on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scene {
    /// Publish/subscribe: one write, one event for each follower
    Publish,
    /// Load balancing: calls go to the available instances
    Balance,
    /// Naming: unique names and numbers
    Names,
    /// Coordination and notification: waiters are woken, and miss nothing
    Notify,
    /// Cluster membership: a member is killed, and the others notice
    Members,
    /// Leader election: the leader is killed, and the next one leads
    Leader,
    /// Queue: a consumer is killed, and the other one processes its item
    Queue,
    /// Read-write lock: the order of the grants
    Order,
    /// Crash: the holder of a lock is cut off
    Crash,
    /// Deadlock: a lock that is a persistent node, after its owner is killed
    Deadlock,
    /// Many disconnects at once: the locks stay held
    Disconnects,
    /// Herd effect: all waiters watch the one node that is the lock
    Herd,
}

impl Scene {
    /// The sessions on the demo's own engine; `None`: the usual ones, which survive on a busy machine.
    pub(super) fn sessions(self) -> Option<ShortSessions> {
        match self {
            Self::Members | Self::Leader | Self::Queue | Self::Crash | Self::Deadlock => {
                Some(SHORT_SESSIONS)
            }
            Self::Publish
            | Self::Balance
            | Self::Names
            | Self::Notify
            | Self::Order
            | Self::Disconnects
            | Self::Herd => None,
        }
    }
}

/// Runs the scene; returns its figures.
pub(super) async fn play(stage: &Stage<'_>, scene: Scene) -> Result<Value, Failure> {
    let about = scene.to_possible_value();
    let about = about.as_ref().and_then(|value| value.get_help()).map(ToString::to_string);
    stage.say(&format!("{}\n", stage.paint.bold(&about.unwrap_or_default())))?;

    let played = timeout(LIMIT, async {
        match scene {
            Scene::Publish => signals::publish(stage).await,
            Scene::Balance => directory::balance(stage).await,
            Scene::Names => directory::names(stage).await,
            Scene::Notify => signals::notify(stage).await,
            Scene::Members => members::members(stage).await,
            Scene::Leader => members::leader(stage).await,
            Scene::Queue => queue::queue(stage).await,
            Scene::Order => order::order(stage).await,
            Scene::Crash => deaths::crash(stage).await,
            Scene::Deadlock => deaths::deadlock(stage).await,
            Scene::Disconnects => disconnects::disconnects(stage).await,
            Scene::Herd => one_node::herd(stage).await,
        }
    });
    let late = || Failure::new(Exit::NoServer, format!("the scene did not end within {LIMIT:?}"));
    played.await.map_err(|_| late())?.map_err(|error| {
        let other = |error: SceneError| Failure::new(Exit::NoServer, error.to_string());
        error.downcast().map_or_else(other, |failure| *failure)
    })
}
