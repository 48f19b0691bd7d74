//! What programs answer that measure for us, in whatever language.

use serde::{Deserialize, Serialize};

use crate::measure::Measured;

/// What the programs answer.
#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) error: Option<String>,
    #[serde(flatten)]
    pub(crate) measured: Measured,
}
