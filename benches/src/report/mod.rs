//! `results.json`, the page, the charts.

mod charts;
mod description;
mod page;
mod run;
mod template;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use self::description::Description;
pub(crate) use self::run::Run;
use self::run::Runs;

/// Writes `results.json`, and a page of this run alone, into a folder.
pub(crate) fn write(run: &Run, folder: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(run)? + "\n";
    put(&folder.join("results.json"), &json)?;
    render(&Runs(vec![run.clone()]), folder)
}

/// Writes the page of the documentation: of this run if there is one, and of the earlier ones as far as it does
/// not take their place.
pub(crate) fn publish(run: Option<Run>, docs: &Path) -> Result<()> {
    let file = docs.join("benchmarks/runs.jsonl");
    let mut runs = Runs::read(&file)?;
    if let Some(run) = run {
        runs.add(run);
        put(&file, &runs.to_lines()?)?;
    }
    render(&runs, docs)
}

/// An earlier run, from the `results.json` in a folder.
pub(crate) fn read(folder: &Path) -> Result<Run> {
    let file = folder.join("results.json");
    let read = || Ok::<_, anyhow::Error>(serde_json::from_str(&fs::read_to_string(&file)?)?);
    read().with_context(|| format!("cannot read {}", file.display()))
}

/// The targets that were measured, for the terminal.
pub(crate) fn summary(run: &Run) -> Result<String> {
    let mut lines = String::new();
    for row in Description::read()?.rows(&run.entries, run.machine.wake_up())? {
        let (Some(ratio), Some(met)) = (row.ratio, row.met) else { continue };
        let (ratio, verdict) = (template::short(ratio), if met { "met" } else { "NOT MET" });
        let (id, goal, what, part) = (row.id, row.goal, row.what, row.part);
        lines += &format!("{id:4} {ratio:>9} ({goal}) {verdict:8} {what}; {part}\n");
    }
    Ok(lines)
}

fn render(runs: &Runs, folder: &Path) -> Result<()> {
    for (name, text) in files(runs)? {
        put(&folder.join(name), &text)?;
    }
    eprintln!("written: {}", folder.join(PAGE).display());
    Ok(())
}

const PAGE: &str = "benchmarks.md";

/// The page of these runs, and its charts, with their paths below the folder of the documentation.
fn files(runs: &Runs) -> Result<Vec<(PathBuf, String)>> {
    let description = Description::read()?;
    let charts = charts::draw(&description, &runs.entries(None))?;
    let path = |name: &str| PathBuf::from(format!("benchmarks/{name}.svg"));
    let mut files: Vec<_> =
        charts.iter().map(|(chart, svg)| (path(&chart.name), svg.clone())).collect();
    let charts = charts.into_iter().map(|(chart, _)| (chart.scenario.clone(), chart.name.clone()));
    files.push((PAGE.into(), page::page(runs, &charts.collect::<Vec<_>>())?));
    Ok(files)
}

fn put(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that the page says follows from the runs that are kept: `lockkeeper-benches page` writes it again.
    #[test]
    fn the_page_and_its_charts_follow_from_the_runs() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let runs = Runs::read(&docs.join("benchmarks/runs.jsonl")).unwrap();
        for (name, text) in files(&runs).unwrap() {
            let known = fs::read_to_string(docs.join(&name)).unwrap();
            assert!(text == known, "docs/{} is another one", name.display());
        }
    }

    #[test]
    fn a_page_of_hardly_any_numbers_can_be_written() {
        let run = Run::of_numbers(&[("raw", ("lockkeeper", "zookeeper"), 1, "exists_per_s", 7.0)]);
        assert!(summary(&run).unwrap().is_empty());
        assert_eq!(files(&Runs(vec![run])).unwrap().len(), 1);
    }
}
