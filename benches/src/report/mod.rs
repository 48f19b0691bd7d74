//! `results.json`, the page, the charts.

mod breakdown;
mod charts;
mod page;
mod svg;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::book::{Book, Entry, Skip};
use crate::machine::Machine;
use crate::settings::Settings;
use crate::targets::{Target, targets};

/// Everything that is written.
#[derive(Serialize)]
pub(crate) struct Report {
    quick: bool,
    seconds: u64,
    machine: Machine,
    configurations: Vec<(String, String)>,
    rows: Vec<Entry>,
    targets: Vec<Target>,
    skipped: Vec<Skip>,
    #[serde(skip)]
    page: String,
    #[serde(skip)]
    charts: Vec<(&'static str, String)>,
}

impl Report {
    pub(crate) fn new(
        settings: &Settings,
        machine: Machine,
        configurations: Vec<(String, String)>,
        book: &Book,
        took: Duration,
    ) -> Self {
        let mut report = Self {
            quick: settings.quick,
            seconds: took.as_secs(),
            targets: targets(book),
            rows: book.entries(),
            skipped: book.skips().to_vec(),
            machine,
            configurations,
            page: String::new(),
            charts: charts::charts(book, settings),
        };
        report.page = page::page(&report, book, settings);
        report
    }

    /// Writes everything into a folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)? + "\n";
        put(&folder.join("results.json"), &json)?;
        self.publish(folder)
    }

    /// Writes the page and its charts.
    pub(crate) fn publish(&self, folder: &Path) -> Result<()> {
        put(&folder.join("benchmarks.md"), &self.page)?;
        for (name, svg) in &self.charts {
            put(&folder.join("benchmarks").join(format!("{name}.svg")), svg)?;
        }
        eprintln!("written: {}", folder.join("benchmarks.md").display());
        Ok(())
    }

    /// The targets, for the terminal.
    pub(crate) fn summary(&self) -> String {
        let lines = self.targets.iter().filter(|target| target.ratio.is_some()).map(|target| {
            let verdict = if target.met { "met" } else { "NOT MET" };
            let number = |value: Option<f64>| value.map_or("-".to_owned(), page::short);
            let (ratio, goal) = (number(target.ratio), number(target.goal));
            format!("{:4} {ratio:>9} (goal {goal:>5}) {verdict:8} {}\n", target.id, target.what)
        });
        lines.collect()
    }
}

fn put(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
