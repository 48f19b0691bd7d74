//! What comes of a measurement, in this program or in another one.

use serde::{Deserialize, Serialize};

use super::latency::Latency;

/// What was measured. What has no meaning for it is 0.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Measured {
    /// How many were done in a second, by all tasks together: cycles of a lock, grants to another client
    /// than the one before, or whatever else was repeated.
    pub(crate) per_second: f64,
    /// All grants a second of a lock with several clients: more, where the one that releases may be
    /// faster than those who wait.
    pub(crate) grants_per_second: f64,
    /// Acquiring alone, of a cycle.
    pub(crate) acquire: Latency,
    /// How long each took. A hand-off begins when the holder begins to release, and ends with the next
    /// one's grant.
    pub(crate) latency: Latency,
}
