//! `results.json`, the page, the charts.

mod charts;
mod description;
mod numbers;
mod page;
mod run;
mod svg;
mod targets;
mod template;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use self::description::Description;
use self::run::{Run, Runs};
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
        let (entries, skipped) = (results.entries(), results.skips().to_vec());
        let seconds = took.as_secs();
        Self::of(Run { quick, seconds, machine, configurations, entries, skipped })
    }

    /// That of an earlier run, from its `results.json`.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let read = || Self::of(serde_json::from_str(&fs::read_to_string(file)?)?);
        read().with_context(|| format!("cannot read {}", file.display()))
    }

    fn of(run: Run) -> Result<Self> {
        Ok(Self { description: Arc::new(Description::read()?), run })
    }

    /// Writes `results.json`, and a page of this run alone, into a folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.run)? + "\n";
        put(&folder.join("results.json"), &json)?;
        self.page(&Runs(vec![self.run.clone()]), folder)
    }

    /// Writes the page of the documentation: of this run, and of the earlier ones as far as it does not
    /// take their place.
    pub(crate) fn publish(&self, docs: &Path) -> Result<()> {
        let file = docs.join("benchmarks/runs.jsonl");
        let mut runs = Runs::read(&file)?;
        runs.add(self.run.clone());
        put(&file, &runs.to_lines()?)?;
        self.page(&runs, docs)
    }

    /// A page of these runs, and the charts of this one.
    fn page(&self, runs: &Runs, folder: &Path) -> Result<()> {
        let page = folder.join("benchmarks.md");
        put(&page, &page::page(&self.description, runs)?)?;
        for (chart, svg) in charts::draw(&self.description, &self.run.entries)? {
            put(&folder.join("benchmarks").join(format!("{}.svg", chart.name)), &svg)?;
        }
        eprintln!("written: {}", page.display());
        Ok(())
    }

    /// The targets that were measured, for the terminal.
    pub(crate) fn summary(&self) -> Result<String> {
        let Run { entries, machine, .. } = &self.run;
        let mut lines = String::new();
        for target in targets::targets(&self.description, entries, machine.wake_up())? {
            for part in &target.parts {
                let (Some(ratio), Some(met)) = (part.ratio, part.met) else { continue };
                let (id, goal, ratio) = (&target.id, &part.goal, numbers::short(ratio));
                let verdict = if met { "met" } else { "NOT MET" };
                let what = format!("{}; {}", target.what, part.part);
                lines += &format!("{id:4} {ratio:>9} ({goal}) {verdict:8} {what}\n");
            }
        }
        Ok(lines)
    }
}

fn put(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
