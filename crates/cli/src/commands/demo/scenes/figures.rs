//! What a scene gives, and times in it.

use std::time::Instant;

use serde_json::Value;

use crate::commands::demo::stage::Actor;

/// What a scene has counted and measured, for programs; or what went wrong.
pub(super) type Played = Result<Value, SceneError>;
pub(super) type SceneError = Box<dyn std::error::Error + Send + Sync>;

/// Whole milliseconds between two moments.
pub(super) fn ms(from: Instant, to: Instant) -> u64 {
    u64::try_from((to - from).as_millis()).unwrap_or(u64::MAX)
}

/// The session timeout of these programs, which is the same for all, in milliseconds.
pub(super) fn timeout_ms(actor: &Actor) -> u64 {
    u64::try_from(actor.client.session_timeout().as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}
