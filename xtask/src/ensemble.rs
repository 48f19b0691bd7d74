//! `cargo xtask ensemble`: real servers and programs in three languages, and everything that can
//! go wrong with them, for as long as wanted.

use anyhow::{Result, bail};

use crate::cargo::command;

/// `cargo xtask ensemble`
#[derive(clap::Args)]
pub(crate) struct Ensemble {
    /// For how long things go wrong. Every ten minutes everything is healed and checked, and then
    /// begins anew with the next seed.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Repeats the script of faults of the run that has printed this seed; its minutes belong to it.
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs it; a violation has been printed with the way to repeat it.
///
/// # Errors
///
/// A promise was broken, or a peer is missing.
pub(crate) fn run(options: &Ensemble) -> Result<()> {
    let mut command =
        command(&["test", "--quiet", "--package", "lockkeeper-tests", "--test", "ensemble"]);
    command.args(["--", "run", "--minutes", &options.minutes.to_string()]);
    if let Some(seed) = options.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    command.env("LOCKKEEPER_REQUIRE_PEERS", "1");
    if !command.status()?.success() {
        bail!("a promise was broken, or nothing was run: see above");
    }
    Ok(())
}
