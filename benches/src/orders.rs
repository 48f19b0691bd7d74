//! What programs answer that measure for us, in whatever language.

use serde::{Deserialize, Serialize};

use crate::measure::{Latency, Repeats};

/// What the programs answer.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Answer {
    pub(crate) error: Option<String>,
    pub(crate) per_second: f64,
    pub(crate) grants_per_second: f64,
    pub(crate) acquire: Latency,
    pub(crate) latency: Latency,
}

impl From<Repeats> for Answer {
    fn from(Repeats { per_second, latency }: Repeats) -> Self {
        Self { per_second, latency, ..Self::default() }
    }
}
