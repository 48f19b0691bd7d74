//! The long forms of the suites that prove something, and the pages that they write.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::cargo::{command, succeeds, workspace};

/// Where the pages go that are written by commands.
pub(crate) const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guarantees");

/// The long form of a scenario with real servers, whose options the suite knows: `cargo xtask partition --help`
/// prints them. Of some, the whole of it also writes a page.
///
/// # Errors
///
/// A promise was broken, which has been printed with the way to repeat it; or a peer is missing.
pub(crate) fn cluster(scenario: &str, options: &[String]) -> Result<()> {
    let mut suite = test(&[], "cluster");
    suite.args(["run", scenario]).args(options).env(REQUIRE_PEERS, "1");
    run(&mut suite, scenario)
}

/// `cargo xtask cost`
#[derive(clap::Args)]
pub(crate) struct Cost {
    /// For how long to search.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// What the search follows from; a new one if it is missing.
    #[arg(long)]
    seed: Option<u64>,
    /// Only measure this scenario.
    #[arg(long)]
    replay: Option<String>,
}

/// Searches for requests that take much of the engine's time and memory.
///
/// # Errors
///
/// It found one that other clients would notice; how to measure it again has been printed.
pub(crate) fn cost(options: &Cost) -> Result<()> {
    let mut suite = test(&["--profile", PROFILE], "cost");
    suite.arg("run");
    match &options.replay {
        Some(scenario) => suite.args(["--replay", scenario]),
        None => suite.args(["--minutes", &options.minutes.to_string()]),
    };
    run(suite.args(given("--seed", &options.seed)), "cost")
}

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
pub(crate) fn differential(options: &Differential) -> Result<()> {
    let mut test = test(&[], "differential");
    test.args(["--nocapture", "random_operations"]).env(REQUIRE_PEERS, "1");
    test.env("LOCKKEEPER_OPERATIONS", options.operations.to_string());
    test.envs(options.seed.map(|seed| ("LOCKKEEPER_SEED", seed.to_string())));
    ensure!(
        succeeds(&mut test)?,
        "the engine and ZooKeeper differ, or were not compared: see above"
    );
    Ok(())
}

/// Runs all contests and hand-overs with programs in other languages, two at a time: each is
/// seven programs.
///
/// # Errors
///
/// A test failed, which has printed its seed; or a peer is missing.
pub(crate) fn interop(filter: Option<&str>) -> Result<()> {
    let mut command = command(&["test", "--package", "lockkeeper-tests", "--no-fail-fast"]);
    command.args(["--test", "interop", "--", "--nocapture", "--test-threads", "2"]).args(filter);
    command.env("LOCKKEEPER_LONG", "1").env(REQUIRE_PEERS, "1");
    run(&mut command, "interop")
}

/// Runs programs that share data, or use a queue, on the engine and on Apache ZooKeeper, behind proxies that lose what
/// they can, again and again: each run is short, so that histories stay readable.
///
/// # Errors
///
/// Something was not exact, and has been printed with its seed; or a peer is missing.
pub(crate) fn histories(minutes: u64) -> Result<()> {
    let (begun, lasts) = (Instant::now(), Duration::from_secs(minutes * 60));
    while begun.elapsed() < lasts {
        let mut command = command(&["test", "--package", "lockkeeper-tests", "--test", "contract"]);
        // All at once: they mostly wait.
        command.args(["--", "--nocapture", "--test-threads", "4", "histories"]);
        command.env("LOCKKEEPER_SECONDS", "20").env(REQUIRE_PEERS, "1");
        run(&mut command, "histories")?;
    }
    Ok(())
}

/// `cargo xtask simulate`
#[derive(clap::Args)]
pub(crate) struct Simulate {
    /// How many seeds to run.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// Only this one, with its timeline.
    #[arg(long)]
    seed: Option<u64>,
    /// The first seed; the following ones count up from it.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How many run at a time; by default as many as there are processors.
    #[arg(long)]
    jobs: Option<usize>,
    /// Every seed runs twice, not one in 25: both times must be the same to the last byte.
    #[arg(long)]
    twice: bool,
    /// How many times members of partitions join and leave after the seeds; some hundred a second.
    #[arg(long, default_value_t = 300)]
    changes: u64,
}

/// Runs seeds, optimized and exactly repeatable.
///
/// # Errors
///
/// A seed failed, or went two ways; how to run it again has been printed.
pub(crate) fn simulate(options: &Simulate) -> Result<()> {
    let Simulate { seeds, seed, first, jobs, twice, changes } = options;
    let mut suite = repeatable("simulation")?;
    match seed {
        Some(seed) => suite.args(["--seed", &seed.to_string()]),
        None => suite
            .args(["--seeds", &seeds.to_string(), "--first", &first.to_string()])
            .args(["--changes", &changes.to_string()]),
    };
    suite.args(given("--jobs", jobs)).args(given("--repeat-each", &twice.then_some(1)));
    run(&mut suite, "simulation")
}

/// `cargo xtask leases`
#[derive(clap::Args)]
pub(crate) struct Leases {
    /// How many seeds each of its tests runs; some thousand a second.
    #[arg(long, default_value_t = 300_000)]
    seeds: u64,
    /// The first seed; the following ones count up from it.
    #[arg(long, default_value_t = 1)]
    first: u64,
}

/// Runs the suite of the session's leases, optimized.
///
/// # Errors
///
/// A lease lasted too long, or ended too soon; the seed and what happened have been printed.
pub(crate) fn leases(options: &Leases) -> Result<()> {
    let mut suite = command(&["test", "--quiet", "--profile", PROFILE]);
    suite.args(["--package", "lockkeeper-session", "--test", "leases"]);
    suite.env("LOCKKEEPER_LEASE_SEEDS", options.seeds.to_string());
    suite.env("LOCKKEEPER_LEASE_FIRST", options.first.to_string());
    run(&mut suite, "leases")
}

/// `cargo xtask model`
#[derive(clap::Args)]
pub(crate) struct Model {
    /// Everything, and write the table of `docs/guarantees/model.md`; without it, what takes
    /// seconds.
    #[arg(long)]
    long: bool,
    /// Only the lines of the table that have this in their name.
    #[arg(long)]
    only: Option<String>,
    /// The way to one state of the first of these lines, as a failure prints it: it is told step by
    /// step.
    #[arg(long, requires = "only")]
    path: Option<String>,
    /// How many lines are looked at side by side; by default as many as there are processors.
    #[arg(long)]
    jobs: Option<usize>,
}

/// Looks at every state within the bounds.
///
/// # Errors
///
/// A promise is broken in some state; the steps to it have been printed.
pub(crate) fn model(options: &Model) -> Result<()> {
    let Model { long, only, path, jobs } = options;
    let mut suite = repeatable("model")?;
    match only {
        Some(only) => drop(suite.args(["--long", "--only", only])),
        None if *long => drop(suite.args(["--long", "--docs", DOCS])),
        None => {}
    }
    run(suite.args(given("--path", path)).args(given("--jobs", jobs)), "model")
}

/// An option of a suite with its value, if there is one.
fn given<T: ToString>(option: &str, value: &Option<T>) -> Vec<String> {
    value.iter().flat_map(|value| [option.to_owned(), value.to_string()]).collect()
}

/// How suites are built that take long: see `Cargo.toml`.
pub(crate) const PROFILE: &str = "proof";

/// What makes a missing peer a failure.
const REQUIRE_PEERS: &str = "LOCKKEEPER_REQUIRE_PEERS";

/// The long form of a suite where tokio's own choices follow from a seed.
fn repeatable(name: &str) -> Result<Command> {
    // Another tokio than elsewhere, so in a folder of its own: nothing else is built anew.
    let target = workspace()?.target_directory.join("repeatable");
    let mut command = test(&["--profile", PROFILE, "--target-dir", target.as_str()], name);
    command.arg("run").env("RUSTFLAGS", "--cfg tokio_unstable");
    Ok(command)
}

/// The package that has a suite. Those in virtual time have one that is built without real servers.
fn package_of(suite: &str) -> &'static str {
    match suite {
        "simulation" | "model" => "lockkeeper-virtual",
        _ => "lockkeeper-tests",
    }
}

/// `cargo test` of a suite, before its own arguments.
fn test(options: &[&str], name: &str) -> Command {
    let mut command = command(&["test", "--quiet"]);
    command.args(options).args(["--package", package_of(name), "--test", name, "--"]);
    command
}

fn run(suite: &mut Command, name: &str) -> Result<()> {
    ensure!(succeeds(suite)?, "the suite {name} found something, see above");
    Ok(())
}
