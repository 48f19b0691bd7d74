//! One run, from the look at the machine to the page.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};

use crate::bench::Bench;
use crate::machine::Machine;
use crate::peers::Peers;
use crate::report::Report;
use crate::scenarios;
use crate::settings::Settings;

/// The folders that a run writes to.
#[derive(Clone, Debug)]
pub struct Folders {
    /// For `results.json`, the page and its charts, of every run.
    pub output: PathBuf,
    /// The documentation's folder, for the page of a full run of all scenarios.
    pub docs: PathBuf,
    /// For the data of the servers: on the disk that is to be measured.
    pub data: PathBuf,
}

/// Runs the scenarios of these names, or all, and writes the results.
///
/// # Errors
/// If a name is unknown, the machine cannot be looked at, or a file cannot be written. A system
/// that cannot be measured is no error: the report says why.
pub async fn run(settings: Settings, folders: &Folders, names: &[String]) -> Result<()> {
    let chosen = scenarios::choose(names)?;
    let all = chosen.len() == scenarios::ALL.len() && settings.only.is_none();
    let begun = Instant::now();
    let mut peers = Peers::new(&folders.data);
    let mut machine = Machine::look(&mut peers).await?;
    eprintln!("{machine}");

    let mut bench = Bench::new(settings, peers, begun);
    for scenario in chosen {
        bench.begin(scenario.name);
        if let Err(error) = scenario.run(&mut bench).await {
            bench.skip("all", &error);
        }
    }

    // The servers end before the machine is looked at again.
    let Bench { settings, peers, results, .. } = bench;
    let configurations = peers.configurations();
    drop(peers);
    machine.look_back()?;
    let report = Report::new(settings.quick, machine, configurations, &results, begun.elapsed())?;
    report.write(&folders.output)?;
    if all && !settings.quick {
        report.publish(&folders.docs)?;
    }
    eprintln!("{}", report.summary());
    if results.entries().0.is_empty() {
        bail!("nothing could be measured");
    }
    Ok(())
}

/// Writes the page and the charts of an earlier run again, from the `results.json` in a folder.
///
/// # Errors
/// If the file cannot be read, or a file cannot be written.
pub fn page(output: &Path) -> Result<()> {
    Report::read(&output.join("results.json"))?.publish(output)
}
