//! `results.json`, the page, the charts.

mod charts;
mod description;
mod numbers;
mod page;
mod run;
mod svg;
mod targets;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use self::description::Description;
use self::run::Run;
use crate::machine::Machine;
use crate::peers::Configuration;
use crate::results::Results;

/// A run with everything that is written of it.
pub(crate) struct Report {
    description: Arc<Description>,
    run: Run,
}

impl Report {
    pub(crate) fn new(
        quick: bool,
        machine: Machine,
        configurations: Vec<Configuration>,
        results: &Results,
        took: Duration,
    ) -> Result<Self> {
        Self::of(Run {
            quick,
            seconds: took.as_secs(),
            machine,
            configurations,
            entries: results.entries(),
            targets: Vec::new(),
            skipped: results.skips().to_vec(),
        })
    }

    /// That of an earlier run, from its `results.json`.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let read = || Self::of(serde_json::from_str(&fs::read_to_string(file)?)?);
        read().with_context(|| format!("cannot read {}", file.display()))
    }

    fn of(run: Run) -> Result<Self> {
        let description = Description::read()?;
        let targets = targets::targets(&description, &run.entries)?;
        Ok(Self { description: Arc::new(description), run: Run { targets, ..run } })
    }

    /// Writes everything into a folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.run)? + "\n";
        put(&folder.join("results.json"), &json)?;
        self.publish(folder)
    }

    /// Writes the page and its charts.
    pub(crate) fn publish(&self, folder: &Path) -> Result<()> {
        let page = folder.join("benchmarks.md");
        put(&page, &page::page(self.description.clone(), &self.run)?)?;
        for (chart, svg) in charts::draw(&self.description, &self.run.entries) {
            put(&folder.join("benchmarks").join(format!("{}.svg", chart.name)), &svg)?;
        }
        eprintln!("written: {}", page.display());
        Ok(())
    }

    /// The targets that were measured, for the terminal.
    pub(crate) fn summary(&self) -> String {
        let mut lines = String::new();
        for target in &self.run.targets {
            for part in &target.parts {
                let (Some(ratio), Some(goal)) = (part.ratio, part.at_most.or(part.at_least)) else {
                    continue;
                };
                let (ratio, goal) = (numbers::short(ratio), numbers::short(goal));
                let verdict = if part.met { "met" } else { "NOT MET" };
                let (id, what) = (&target.id, format!("{}; {}", target.what, part.part));
                lines += &format!("{id:4} {ratio:>9} (goal {goal:>5}) {verdict:8} {what}\n");
            }
        }
        lines
    }
}

fn put(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
