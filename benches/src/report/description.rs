//! The rows of the report as `description.toml` describes them.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::numbers::short;
use crate::machine::WakeUp;
use crate::results::{Entries, Side};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    pub(super) sides: BTreeMap<String, (String, String)>,
    metrics: BTreeMap<String, Metric>,
    pub(super) targets: Vec<Target>,
    pub(super) charts: Vec<Chart>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metric {
    scenario: String,
    tasks: Option<usize>,
    metric: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    pub(super) id: String,
    pub(super) what: String,
    pub(super) parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Part {
    pub(super) part: String,
    pub(super) metric: String,
    pub(super) of: Vec<String>,
    #[serde(default)]
    pub(super) against: Vec<String>,
    pub(super) against_metric: Option<String>,
    #[serde(default)]
    pub(super) against_fewest: bool,
    /// What cannot be done without, in place of the sides of `of`.
    #[serde(default)]
    pub(super) floor: Vec<String>,
    pub(super) at_most: Option<Goal>,
    pub(super) at_least: Option<Goal>,
}

/// A goal, of both kinds of machine or of each.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
pub(super) enum Goal {
    Both(f64),
    Each { fast: f64, slow: f64 },
}

impl Goal {
    pub(super) fn on(self, wake_up: WakeUp) -> f64 {
        match (self, wake_up) {
            (Self::Both(goal), _) => goal,
            (Self::Each { fast, .. }, WakeUp::Fast) => fast,
            (Self::Each { slow, .. }, WakeUp::Slow) => slow,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Both(goal) => f.write_str(&short(goal)),
            Self::Each { fast, slow } => {
                write!(f, "{} (fast), {} (slow)", short(fast), short(slow))
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Chart {
    pub(super) name: String,
    pub(super) scenario: String,
    pub(super) metric: String,
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) bars: Option<usize>,
    #[serde(default)]
    pub(super) across: String,
    #[serde(default)]
    pub(super) awaited_only: bool,
}

impl Description {
    pub(super) fn read() -> Result<Self> {
        toml::from_str(include_str!("description.toml")).context("description.toml")
    }

    pub(super) fn side(&self, name: &str) -> Result<Side<'_>> {
        let side = self.sides.get(name).with_context(|| format!("there is no side {name}"))?;
        Ok((&side.0, &side.1))
    }

    /// A metric of the first of these sides that was measured: with its own number of tasks or the
    /// most, and with the fewest.
    pub(super) fn number(
        &self,
        entries: &Entries,
        metric: &str,
        sides: &[String],
    ) -> Result<Option<(f64, f64)>> {
        let Metric { scenario, tasks, metric } =
            self.metrics.get(metric).with_context(|| format!("there is no metric {metric}"))?;
        for side in sides {
            let mut curve = entries.curve(scenario, self.side(side)?, metric);
            curve.retain(|(count, _)| tasks.is_none_or(|tasks| tasks == *count));
            if let (Some(fewest), Some(most)) = (curve.first(), curve.last()) {
                return Ok(Some((most.1, fewest.1)));
            }
        }
        Ok(None)
    }
}
