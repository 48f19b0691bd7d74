//! The long forms of the suites that prove something, and the pages that they write.

use anyhow::{Context, Result, bail};

use crate::test::command;

/// Where the pages go that are written by commands.
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guarantees");

/// `cargo xtask partition`
#[derive(clap::Args)]
pub(crate) struct Partition {
    /// How often each form runs; about 16 seconds each.
    #[arg(long, default_value_t = 20)]
    runs: u64,
    /// The seed of the first run; the following ones count up from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these forms, with commas between them: follower, leader, paused.
    #[arg(long)]
    form: Option<String>,
    /// Only these libraries, with commas between them: curator, kazoo, lockkeeper.
    #[arg(long)]
    peers: Option<String>,
}

/// Runs the experiment; the whole of it also writes its page.
///
/// # Errors
///
/// Two of ours held at once, or a run did not work.
pub(crate) fn partition(options: &Partition) -> Result<()> {
    let mut arguments =
        vec![("--runs", options.runs.to_string()), ("--seed", options.seed.to_string())];
    match (&options.form, &options.peers) {
        (None, None) => arguments.push(("--docs", DOCS.to_owned())),
        (form, peers) => {
            arguments.extend(form.clone().map(|form| ("--form", form)));
            arguments.extend(peers.clone().map(|peers| ("--peers", peers)));
        }
    }
    suite("partition", "run", arguments)
}

/// Runs a suite of the package of tests with arguments of its own.
fn suite(name: &str, mode: &str, arguments: Vec<(&str, String)>) -> Result<()> {
    let mut command =
        command(&["test", "--quiet", "--package", "lockkeeper-tests", "--test", name]);
    command.args(["--", mode]);
    for (option, value) in arguments {
        command.arg(option).arg(value);
    }
    let status = command.status().context("cannot start cargo")?;
    if !status.success() {
        bail!("the suite {name} found something, see above");
    }
    Ok(())
}
