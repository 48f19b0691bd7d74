//! `cargo xtask differential`: the differential test for as long as wanted.

use anyhow::{Result, bail};

use crate::cargo::command;

/// `cargo xtask differential`
#[derive(clap::Args)]
pub(crate) struct Differential {
    /// How many operations to compare; a few thousand a second.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Repeats the run that has printed this seed.
    #[arg(long)]
    seed: Option<u64>,
}

/// Compares the engine with Apache ZooKeeper.
///
/// # Errors
///
/// There is a difference, which has been printed with the way to repeat it; or no ZooKeeper.
pub(crate) fn run(options: &Differential) -> Result<()> {
    let mut command =
        command(&["test", "--quiet", "--package", "lockkeeper-tests", "--test", "differential"]);
    command.args(["--", "--nocapture", "random_operations"]);
    command.env("LOCKKEEPER_OPERATIONS", options.operations.to_string());
    command.env("LOCKKEEPER_REQUIRE_PEERS", "1");
    if let Some(seed) = options.seed {
        command.env("LOCKKEEPER_SEED", seed.to_string());
    }
    if !command.status()?.success() {
        bail!("the engine and ZooKeeper differ, or were not compared: see above");
    }
    Ok(())
}
