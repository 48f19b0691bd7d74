//! One run, from the look at the machine to the page.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::awake::Awake;
use crate::bench::Bench;
use crate::machine::Machine;
use crate::peers::Peers;
use crate::report::{self, Run};
use crate::scenarios;
use crate::settings::Settings;

/// Runs the scenarios of these names, or all, and writes the results into `output`; the page of a full run of
/// all into `docs` too. The servers' data is below `output`: on the disk that is to be measured.
///
/// # Errors
/// If a name is unknown, the machine cannot be looked at, or a file cannot be written. A system
/// that cannot be measured is no error: the report says why.
pub(crate) async fn run(
    settings: Settings,
    (output, docs): (&Path, &Path),
    names: &[String],
) -> Result<()> {
    let chosen = scenarios::choose(names)?;
    let all = chosen.len() == scenarios::ALL.len() && settings.only.is_none();
    let begun = Instant::now();
    let mut peers = Peers::new(&output.join("data"));
    let awake = settings.keep_awake.then(Awake::start).transpose()?;
    let mut machine = Machine::look(&mut peers).await?;
    machine.kept_awake = awake.is_some();
    eprintln!("{machine}");

    let mut bench = Bench::new(settings, peers, begun);
    for scenario in chosen {
        bench.begin(scenario.name);
        if let Err(error) = (scenario.run)(&mut bench).await {
            bench.skip("all", &error);
        }
    }

    // The servers end before the machine is looked at again.
    let Bench { settings, peers, results, .. } = bench;
    let configurations = peers.configurations();
    drop(peers);
    machine.look_back()?;
    let run = Run {
        quick: settings.quick,
        seconds: begun.elapsed().as_secs(),
        machine,
        configurations,
        entries: results.entries(),
        skipped: results.skips().to_vec(),
    };
    report::write(&run, output)?;
    if all && !settings.quick {
        report::publish(Some(run.clone()), docs)?;
    }
    eprintln!("{}", report::summary(&run)?);
    if run.entries.0.is_empty() {
        bail!("nothing could be measured");
    }
    Ok(())
}
