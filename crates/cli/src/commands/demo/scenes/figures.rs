//! The result of a scene, and times in it.

use std::time::Instant;

use serde_json::Value;

use crate::commands::demo::stage::Actor;

/// What a scene has counted and measured, for programs; or an error.
pub(super) type SceneResult = Result<Value, SceneError>;
pub(super) type SceneError = Box<dyn std::error::Error + Send + Sync>;

/// Whole milliseconds between two instants.
pub(super) fn ms(from: Instant, to: Instant) -> u64 {
    u64::try_from((to - from).as_millis()).unwrap_or(u64::MAX)
}

/// The session timeout of the scene's programs, which is the same for all, in milliseconds.
pub(super) fn timeout_ms(actor: &Actor) -> u64 {
    u64::try_from(actor.client.session_timeout().as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}
