//! `cargo xtask mutants`: wakes one deliberate bug after the other, and sees what catches it.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::proof::{DOCS, PROFILE};
use crate::test::command;

/// The check that is to catch a bug.
#[derive(Clone, Copy)]
enum Check {
    /// The suite `simulation`, seed by seed.
    Simulation,
    /// The suite `partition`, one run of a form.
    Partition(&'static str),
    /// Unit tests of the session with this in their names.
    Session(&'static str),
}

/// Every deliberate bug, by its name in the `mutants.rs` of its crate, and what it is.
const MUTANTS: &[(&str, &str, Check)] = &[
    ("RepliesBeforeSync", "the server answers before its disk has synced", Check::Simulation),
    ("DeadlineFromAnswer", "a lease counts from the answer, not the request", Check::Simulation),
    ("DeadlineMovedByPing", "pings, reads and `sync` move a lease on an ensemble", LEASE),
    ("DeadlineMovedBySync", "`sync` alone moves a lease on an ensemble", LEASE),
    ("SlowWriteCounts", "a write counts however late its answer came", LEASE),
    ("EnsembleTakenForOneServer", "pings move a lease, and there is no heartbeat", FOLLOWER),
    ("LostReplyMeansNotApplied", "a lost reply is taken for a refusal", Check::Simulation),
    ("CleanupDroppedAtDisconnect", "a delete in flight is forgotten", Check::Simulation),
    ("WatchesNotRearmed", "watches are not armed on the next connection", Check::Simulation),
    ("WatchesByExists", "a watch waits for a node that has gone already", Check::Simulation),
    ("WatchesWrongPredecessor", "the nearest one ahead is overlooked", Check::Simulation),
    ("NeverListsAgain", "held when the one before has gone, not the others", Check::Simulation),
    ("OrderedByName", "contenders are ordered by name, not by number", Check::Simulation),
    ("ReadersPassWriters", "readers go ahead of writers that wait", Check::Simulation),
    ("OnePermitTooMany", "a semaphore counts one permit too many", Check::Simulation),
    ("TokenIsCreation", "who came after an upgrade never makes a token", Check::Simulation),
    ("TrustsAnyNumber", "nobody is thought to have come meanwhile", Check::Simulation),
    ("CancelForgetsNode", "a cancelled wait leaves its node", Check::Simulation),
    ("ReleaseForgetsRetry", "a release is tried once", Check::Simulation),
    ("GrantsWithoutLease", "a lock is granted without time left", Check::Simulation),
    ("SkipsOwnershipCheck", "the node of an old session is good for a grant", Check::Simulation),
    ("AdoptsOldSessionsNode", "a holder goes on in the next session", Check::Simulation),
];

const LEASE: Check = Check::Session("lease");
const FOLLOWER: Check = Check::Partition("follower");

/// As many seeds as a bug may live through.
const SEEDS: &str = "3000";

/// Wakes each, and writes the table.
///
/// # Errors
///
/// One was not caught, or the suites do not pass without any.
pub(crate) fn run() -> Result<()> {
    let mut table = String::from(
        "# Mutants\n\nWritten by `cargo xtask mutants`; do not edit. Each is a deliberate bug, \
         which the named check must find.\n\n\
         | bug | what it does | caught by | how | seconds |\n|---|---|---|---|--:|\n",
    );
    if let Some(how) = caught("None", Check::Simulation)? {
        bail!("the simulation fails without any bug: {how}");
    }
    let mut survivors = Vec::new();
    for (name, what, check) in MUTANTS {
        let start = Instant::now();
        let how = caught(name, *check)?;
        let seconds = start.elapsed().as_secs_f64();
        let by = match check {
            Check::Simulation => "simulation".to_owned(),
            Check::Partition(form) => format!("partition, {form}"),
            Check::Session(filter) => format!("unit tests, {filter}"),
        };
        println!("{name}: {}", how.as_deref().unwrap_or("SURVIVES"));
        if how.is_none() {
            survivors.push(*name);
        }
        let how = how.unwrap_or_else(|| "**survives**".to_owned());
        writeln!(table, "| {name} | {what} | {by} | {how} | {seconds:.1} |")?;
    }
    std::fs::create_dir_all(DOCS)?;
    std::fs::write(format!("{DOCS}/mutants.md"), table)?;
    if !survivors.is_empty() {
        bail!("not caught: {}", survivors.join(", "));
    }
    Ok(())
}

/// How a bug shows; `None` if it does not.
fn caught(name: &str, check: Check) -> Result<Option<String>> {
    let package = match check {
        Check::Session(_) => "lockkeeper-session",
        _ => "lockkeeper-tests",
    };
    let mut run = command(&["test", "--quiet", "--profile", PROFILE, "--features", "mutants"]);
    run.args(["--package", package]);
    match check {
        Check::Simulation => {
            run.args(["--test", "simulation", "--", "run", "--seeds", SEEDS]);
        }
        Check::Partition(form) => {
            run.args(["--test", "partition", "--", "run", "--runs", "1"]);
            run.args(["--peers", "lockkeeper", "--form", form]);
        }
        Check::Session(filter) => {
            run.args(["--lib", "--", filter]);
        }
    }
    let output = run.env("LOCKKEEPER_MUTANT", name).output().context("cannot start cargo")?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let line = |wanted: &str| text.lines().find(|line| line.contains(wanted)).map(str::to_owned);
    // What a failing suite prints, and not what a failing compiler does.
    let how = line("violated: ").or_else(|| line("two holders for")).or_else(|| line("FAILED"));
    let seed = line("failed").filter(|line| line.starts_with("seed"));
    match how {
        Some(how) => {
            let how = how.trim_start_matches("violated: ").trim_start_matches("error: ").to_owned();
            let how = how.split(". Again").next().unwrap_or_default().to_owned();
            Ok(Some(match seed {
                Some(seed) => format!("{how} ({})", seed.trim_end_matches(" failed")),
                None => how,
            }))
        }
        None => bail!("{name}: the suite does not run:\n{text}"),
    }
}
