//! What is stored of a run, and of the runs that a page is made of.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, WakeUp};
use crate::peers::Configuration;
#[cfg(test)]
use crate::results::Side;
use crate::results::{Entries, Skip};

/// `results.json`: the page and the charts follow from it.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Run {
    pub(crate) quick: bool,
    pub(crate) seconds: u64,
    pub(crate) machine: Machine,
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) entries: Entries,
    pub(crate) skipped: Vec<Skip>,
}

impl Run {
    /// One with these numbers, and nothing else.
    #[cfg(test)]
    pub(super) fn of_numbers(numbers: &[(&str, Side<'_>, usize, &str, f64)]) -> Self {
        Self {
            quick: false,
            seconds: 1,
            machine: Machine::default(),
            configurations: Vec::new(),
            entries: Entries::from_numbers(numbers),
            skipped: Vec::new(),
        }
    }

    fn has(&self, scenario: &str) -> bool {
        self.entries.0.iter().any(|entry| entry.key.scenario == scenario)
    }
}

/// The runs that a page is made of, the latest last. No number is in one with those of another.
#[derive(Default)]
pub(super) struct Runs(pub(super) Vec<Run>);

impl Runs {
    /// Those of a file, which has a line for each; none if there is no such file.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", file.display()))?,
        };
        let runs = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        Ok(Self(runs.with_context(|| format!("cannot read {}", file.display()))?))
    }

    pub(super) fn to_lines(&self) -> Result<String> {
        let line = |run| Ok(serde_json::to_string(run)? + "\n");
        self.0.iter().map(line).collect()
    }

    /// Adds a run. It takes the place of what earlier ones on the same kind of machine have of its
    /// scenarios.
    pub(super) fn add(&mut self, run: Run) {
        for earlier in &mut self.0 {
            if earlier.machine.wake_up() == run.machine.wake_up() {
                earlier.entries.0.retain(|entry| !run.has(&entry.key.scenario));
                earlier.skipped.retain(|skip| !run.has(&skip.scenario));
            }
        }
        self.0.retain(|earlier| !earlier.entries.0.is_empty());
        self.0.push(run);
    }

    /// The latest one that has this scenario.
    pub(super) fn of(&self, scenario: &str) -> Option<&Run> {
        self.0.iter().rev().find(|run| run.has(scenario))
    }

    /// The numbers of the latest run of each scenario, on this kind of machine if it is given.
    pub(super) fn entries(&self, wake_up: Option<WakeUp>) -> Entries {
        let mut all = Entries::default();
        for run in self.0.iter().rev() {
            if wake_up.is_none_or(|wake_up| wake_up == run.machine.wake_up()) {
                let known = all.clone();
                let is_new = |scenario: &str| known.0.iter().all(|it| it.key.scenario != scenario);
                let new = run.entries.0.iter().filter(|entry| is_new(&entry.key.scenario));
                all.0.extend(new.cloned());
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SIDE: Side<'static> = ("lockkeeper", "zookeeper");

    fn run(round_trip: u64, numbers: &[(&str, f64)]) -> Run {
        let numbers: Vec<_> = numbers.iter().map(|&(name, it)| (name, SIDE, 1, "it", it)).collect();
        let mut run = Run::of_numbers(&numbers);
        run.machine.loopback_one.p50 = Duration::from_micros(round_trip);
        run
    }

    #[test]
    fn the_latest_run_of_each_scenario_is_kept_of_both_kinds_of_machine() {
        let mut runs = Runs::default();
        runs.add(run(70, &[("cycles", 1.0), ("herd", 2.0)]));
        runs.add(run(30, &[("cycles", 3.0), ("cache", 4.0)]));
        runs.add(run(31, &[("cache", 5.0)]));
        runs.add(run(32, &[("cache", 6.0)]));
        assert_eq!(runs.0.len(), 3, "one has nothing that is shown");

        let of = |wake_up, scenario| {
            runs.entries(wake_up).curve(scenario, SIDE, "it").first().map(|&(_, value)| value)
        };
        assert_eq!(["cycles", "herd", "cache"].map(|it| of(None, it)), [3.0, 2.0, 6.0].map(Some));
        let slow = Some(WakeUp::Slow);
        assert_eq!(["cycles", "herd"].map(|it| of(slow, it)), [1.0, 2.0].map(Some));
        assert_eq!(of(slow, "cache"), None);
        assert_eq!(runs.of("herd").unwrap().machine.wake_up(), WakeUp::Slow);
    }
}
