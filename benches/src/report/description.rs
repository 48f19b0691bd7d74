//! The rows of the report as `description.toml` describes them, and how far the targets are met.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::template::short;
use crate::machine::WakeUp;
use crate::results::{Entries, Side};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    pub(super) sides: BTreeMap<String, (String, String)>,
    metrics: BTreeMap<String, Metric>,
    targets: Vec<Target>,
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
struct Target {
    id: String,
    what: String,
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Part {
    part: String,
    metric: String,
    of: Vec<String>,
    #[serde(default)]
    against: Vec<String>,
    against_metric: Option<String>,
    #[serde(default)]
    against_fewest: bool,
    /// What cannot be done without, in place of the sides of `of`.
    #[serde(default)]
    floor: Vec<String>,
    at_most: Option<Goal>,
    at_least: Option<Goal>,
}

/// A goal, of both kinds of machine or of each.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Goal {
    Both(f64),
    Each { fast: f64, slow: f64 },
}

impl Goal {
    fn on(self, wake_up: WakeUp) -> f64 {
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

/// One part of a target, measured.
#[derive(Debug, Serialize)]
pub(super) struct Row<'a> {
    pub(super) id: &'a str,
    pub(super) what: &'a str,
    pub(super) part: &'a str,
    /// Empty if the number is only to be known.
    pub(super) goal: String,
    /// `None` where a number is missing.
    pub(super) ratio: Option<f64>,
    /// The same of what cannot be done without.
    pub(super) floor: Option<f64>,
    /// `None` without a goal or a number.
    pub(super) met: Option<bool>,
}

impl Description {
    pub(super) fn read() -> Result<Self> {
        toml::from_str(include_str!("description.toml")).context("description.toml")
    }

    pub(super) fn side(&self, name: &str) -> Result<Side<'_>> {
        let side = self.sides.get(name).with_context(|| format!("there is no side {name}"))?;
        Ok((&side.0, &side.1))
    }

    /// All targets, with the goals of one kind of machine.
    pub(super) fn rows(&self, entries: &Entries, wake_up: WakeUp) -> Result<Vec<Row<'_>>> {
        let mut rows = Vec::new();
        for Target { id, what, parts } in &self.targets {
            for part in parts {
                let ratio = self.ratio(part, &part.of, entries)?;
                let floor = self.ratio(part, &part.floor, entries)?;
                let is_most = |goal: Goal| ratio.map(|ratio| ratio <= goal.on(wake_up));
                let is_least = |goal: Goal| ratio.map(|ratio| ratio >= goal.on(wake_up));
                let (goal, met) = match (part.at_most, part.at_least) {
                    (Some(most), _) => (format!("at most {most}"), is_most(most)),
                    (None, Some(least)) => (format!("at least {least}"), is_least(least)),
                    (None, None) => (String::new(), None),
                };
                rows.push(Row { id, what, part: &part.part, goal, ratio, floor, met });
            }
        }
        Ok(rows)
    }

    /// The ratio of a part, for the first of `sides` that was measured.
    fn ratio(&self, part: &Part, sides: &[String], entries: &Entries) -> Result<Option<f64>> {
        let Some((ours, fewest)) = self.number(entries, &part.metric, sides)? else {
            return Ok(None);
        };
        if part.against_fewest {
            // Nothing at all among few and among many is as flat as can be.
            return Ok(Some(if ours == fewest { 1.0 } else { ours / fewest }));
        }
        if part.against.is_empty() {
            return Ok(Some(ours));
        }
        let metric = part.against_metric.as_ref().unwrap_or(&part.metric);
        let theirs = self.number(entries, metric, &part.against)?.map(|(theirs, _)| theirs);
        // A side that got nothing done in its turns has no ratio.
        Ok(theirs.filter(|&theirs| ours > 0.0 && theirs > 0.0).map(|theirs| ours / theirs))
    }

    /// A metric of the first of these sides that was measured: with its own number of tasks or the
    /// most, and with the fewest.
    fn number(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::{ONE_PROCESSOR, TWO_PROCESSORS};

    type Number<'a> = (&'a str, Side<'a>, usize, &'a str, f64);

    /// The ratios of a target's parts, and whether they are as wanted.
    fn of(id: &str, numbers: &[Number<'_>], wake_up: WakeUp) -> Vec<(Option<f64>, Option<bool>)> {
        let description = Description::read().unwrap();
        let rows = description.rows(&Entries::from_numbers(numbers), wake_up).unwrap();
        rows.iter().filter(|row| row.id == id).map(|row| (row.ratio, row.met)).collect()
    }

    #[test]
    fn goals_depend_on_the_kind_of_machine() {
        let cycle = |side, value| ("cycles", side, 1, "cycle_p50_us", value);
        let ours = cycle(("lockkeeper", "engine, os"), 70.0);
        let numbers = [ours, cycle(("redis", "appendfsync everysec"), 100.0)];
        let with = |met| vec![(Some(0.7), Some(met)), (None, None)];
        assert_eq!(of("P1", &numbers, WakeUp::Fast), with(true));
        assert_eq!(of("P1", &numbers, WakeUp::Slow), with(false));
    }

    #[test]
    fn p9_is_held_against_the_echo_on_as_many_processors_as_there_are() {
        let numbers = [
            ("cycles", ("lockkeeper", "engine, memory"), 1, "acquire_p50_us", 60.0),
            ("cycles", ONE_PROCESSOR, 1, "round_trip_p50_us", 20.0),
            ("cycles", TWO_PROCESSORS, 1, "round_trip_p50_us", 50.0),
        ];
        let of_p9 = |numbers| of("P9", numbers, WakeUp::Slow);
        assert_eq!(of_p9(&numbers), [(Some(1.2), Some(true)), (Some(3.0), None)]);
        assert_eq!(of_p9(&numbers[..2]), [(Some(3.0), Some(false)), (Some(3.0), None)]);
    }

    #[test]
    fn one_more_among_many_is_held_against_one_more_among_few() {
        let one = ("lockkeeper", "engine, os, one process");
        let waiters = |count, metric, value| ("waiters", one, count, metric, value);
        let numbers = [
            waiters(1_000, "time_per_waiter_us", 3.0),
            waiters(10, "time_per_waiter_us", 2.0),
            waiters(1_000, "bytes_per_waiter", 0.0),
            waiters(10, "bytes_per_waiter", 0.0),
        ];
        let parts = of("P13", &numbers, WakeUp::Slow);
        assert_eq!(parts[..2], [(Some(1.5), Some(true)), (Some(1.0), Some(true))]);
    }
}
