//! What is stored of a run.

use serde::{Deserialize, Serialize};

use super::targets::Target;
use crate::machine::Machine;
use crate::peers::Configuration;
use crate::results::{Entries, Skip};

/// `results.json`: the page and the charts follow from it.
#[derive(Deserialize, Serialize)]
pub(crate) struct Run {
    pub(crate) quick: bool,
    pub(crate) seconds: u64,
    pub(crate) machine: Machine,
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) entries: Entries,
    /// They follow from the entries, and are there for who reads the file.
    #[serde(skip_deserializing)]
    pub(crate) targets: Vec<Target>,
    pub(crate) skipped: Vec<Skip>,
}
