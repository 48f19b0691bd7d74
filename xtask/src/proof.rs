//! The long runs of the suites that check promises, and the pages that they write.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::cargo::{command, succeeds, workspace};

/// The folder of the pages that commands write.
pub(crate) const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guarantees");

/// The long run of a scenario with real servers. The suite parses the options: `cargo xtask partition --help`
/// prints them. Complete runs of some scenarios also write a page.
///
/// # Errors
///
/// If a promise was broken, which is printed with the way to repeat it; or a peer is missing.
pub(crate) fn cluster(scenario: &str, options: &[String]) -> Result<()> {
    let mut suite = test(&[], "cluster");
    suite.args(["run", scenario]).args(options).env(REQUIRE_PEERS, "1");
    run(&mut suite, scenario)
}

/// `cargo xtask cost`
#[derive(clap::Args)]
pub(crate) struct Cost {
    /// How long to search.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// The seed of the search; random by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Only measure this scenario.
    #[arg(long)]
    replay: Option<String>,
}

/// Searches for requests that use much of the engine's time and memory.
///
/// # Errors
///
/// If it finds a request that other clients would notice. How to repeat the measurement is printed.
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
    /// The number of operations to compare; a few thousand per second.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Repeat the run that printed this seed.
    #[arg(long)]
    seed: Option<u64>,
}

/// Compares the engine with Apache ZooKeeper.
///
/// # Errors
///
/// If there is a difference, which is printed with the way to repeat it; or ZooKeeper is missing.
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

/// Runs all contests and hand-overs with programs in other languages, two at a time: each consists of seven
/// programs.
///
/// # Errors
///
/// If a test failed, which prints its seed; or a peer is missing.
pub(crate) fn interop(filter: Option<&str>) -> Result<()> {
    let mut command = command(&["test", "--package", "lockkeeper-tests", "--no-fail-fast"]);
    command.args(["--test", "interop", "--", "--nocapture", "--test-threads", "2"]).args(filter);
    command.env("LOCKKEEPER_LONG", "1").env(REQUIRE_PEERS, "1");
    run(&mut command, "interop")
}

/// Runs programs that share data or use a queue on the engine and on Apache ZooKeeper, behind proxies that
/// lose messages, repeatedly: each run is short, so that histories stay readable.
///
/// # Errors
///
/// If a result was not exact, which is printed with its seed; or a peer is missing.
pub(crate) fn histories(minutes: u64) -> Result<()> {
    let (begun, lasts) = (Instant::now(), Duration::from_secs(minutes * 60));
    while begun.elapsed() < lasts {
        let mut command = command(&["test", "--package", "lockkeeper-tests", "--test", "contract"]);
        // In parallel: they mostly wait.
        command.args(["--", "--nocapture", "--test-threads", "4", "histories"]);
        command.env("LOCKKEEPER_SECONDS", "20").env(REQUIRE_PEERS, "1");
        run(&mut command, "histories")?;
    }
    Ok(())
}

/// `cargo xtask simulate`
#[derive(clap::Args)]
pub(crate) struct Simulate {
    /// The number of seeds to run.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// Run only this seed, and print its timeline.
    #[arg(long)]
    seed: Option<u64>,
    /// The first seed; the following ones count up from it.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// The number of parallel runs; by default the number of processors.
    #[arg(long)]
    jobs: Option<usize>,
    /// Run every seed twice, not one in 25: both runs must be identical to the last byte.
    #[arg(long)]
    twice: bool,
    /// How often members of partitions join and leave after the seeds; a few hundred per second.
    #[arg(long, default_value_t = 300)]
    changes: u64,
}

/// Runs seeds, optimised and exactly repeatable.
///
/// # Errors
///
/// If a seed failed, or its runs differed. How to repeat it is printed.
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
    /// The number of seeds of each test; a few thousand per second.
    #[arg(long, default_value_t = 300_000)]
    seeds: u64,
    /// The first seed; the following ones count up from it.
    #[arg(long, default_value_t = 1)]
    first: u64,
}

/// Runs the suite of the session's leases, optimised.
///
/// # Errors
///
/// If a lease lasted too long or ended too early. The seed and the events are printed.
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
    /// Check everything, and write the table of `docs/guarantees/model.md`; by default only what takes
    /// seconds.
    #[arg(long)]
    long: bool,
    /// Only the rows of the table with this in their name.
    #[arg(long)]
    only: Option<String>,
    /// The path to one state of the first of these rows, as a failure prints it: print it step by step.
    #[arg(long, requires = "only")]
    path: Option<String>,
    /// The number of rows that are checked in parallel; by default the number of processors.
    #[arg(long)]
    jobs: Option<usize>,
}

/// Checks every state within the bounds.
///
/// # Errors
///
/// If a promise is broken in a state. The steps to it are printed.
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

/// An option of a suite with its value, if it has one.
fn given<T: ToString>(option: &str, value: &Option<T>) -> Vec<String> {
    value.iter().flat_map(|value| [option.to_owned(), value.to_string()]).collect()
}

/// The profile for suites that take long: see `Cargo.toml`.
pub(crate) const PROFILE: &str = "proof";

/// Makes a missing peer a failure.
const REQUIRE_PEERS: &str = "LOCKKEEPER_REQUIRE_PEERS";

/// The long run of a suite in which tokio's random choices follow from a seed.
fn repeatable(name: &str) -> Result<Command> {
    // Uses a different build of tokio, so it has its own folder: nothing else is rebuilt.
    let target = workspace()?.target_directory.join("repeatable");
    let mut command = test(&["--profile", PROFILE, "--target-dir", target.as_str()], name);
    command.arg("run").env("RUSTFLAGS", "--cfg tokio_unstable");
    Ok(command)
}

/// The package of a suite. Suites in virtual time have a package that is built without real servers.
fn package_of(suite: &str) -> &'static str {
    match suite {
        "simulation" | "model" => "lockkeeper-virtual",
        _ => "lockkeeper-tests",
    }
}

/// `cargo test` of a suite, before the suite's own arguments.
fn test(options: &[&str], name: &str) -> Command {
    let mut command = command(&["test", "--quiet"]);
    command.args(options).args(["--package", package_of(name), "--test", name, "--"]);
    command
}

fn run(suite: &mut Command, name: &str) -> Result<()> {
    ensure!(succeeds(suite)?, "the suite {name} failed: see above");
    Ok(())
}
