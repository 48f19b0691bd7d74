//! `results.json`, the page, the charts.

mod breakdown;
mod charts;
mod markdown;
mod not_awaited;
mod page;
mod run;
mod sides;
mod svg;
mod targets;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use self::run::Run;
use self::targets::Goal;
use crate::machine::Machine;
use crate::peers::Configuration;
use crate::results::Results;

/// A run with everything that is written of it.
pub(crate) struct Report(Run);

impl Report {
    pub(crate) fn new(
        quick: bool,
        machine: Machine,
        configurations: Vec<Configuration>,
        results: &Results,
        took: Duration,
    ) -> Self {
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
        let read = || anyhow::Ok(Self::of(serde_json::from_str(&fs::read_to_string(file)?)?));
        read().with_context(|| format!("cannot read {}", file.display()))
    }

    fn of(run: Run) -> Self {
        Self(Run { targets: targets::targets(&run.entries), ..run })
    }

    /// Writes everything into a folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.0)? + "\n";
        put(&folder.join("results.json"), &json)?;
        self.publish(folder)
    }

    /// Writes the page and its charts.
    pub(crate) fn publish(&self, folder: &Path) -> Result<()> {
        let page = folder.join("benchmarks.md");
        put(&page, &page::page(&self.0))?;
        for (name, svg) in charts::draw(&self.0.entries) {
            put(&folder.join("benchmarks").join(format!("{name}.svg")), &svg)?;
        }
        eprintln!("written: {}", page.display());
        Ok(())
    }

    /// The targets that were measured, for the terminal.
    pub(crate) fn summary(&self) -> String {
        let mut lines = String::new();
        for target in &self.0.targets {
            for part in target.parts.iter().filter(|part| part.goal != Goal::Stated) {
                let Some(ratio) = part.ratio else { continue };
                let (ratio, goal) = (markdown::short(ratio), page::goal(part.goal));
                let verdict = if part.met { "met" } else { "NOT MET" };
                let (id, what) = (target.id, format!("{}; {}", target.what, part.part));
                lines += &format!("{id:4} {ratio:>9} ({goal:>14}) {verdict:8} {what}\n");
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
