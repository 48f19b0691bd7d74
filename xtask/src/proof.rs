//! The long forms of the suites that prove something, and the pages that they write.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::command;

/// Where the pages go that are written by commands.
pub(crate) const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guarantees");

/// `cargo xtask partition`
#[derive(clap::Args)]
pub(crate) struct Partition {
    /// How often each form runs; about 17 seconds each.
    #[arg(long, default_value_t = 20)]
    runs: u64,
    /// The seed of the first run; the following ones count up from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these forms, with commas between them: follower, leader, paused, client-paused,
    /// leader-paused, link, returned.
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

/// `cargo xtask outage`
#[derive(clap::Args)]
pub(crate) struct Outage {
    /// How often each length is tried, with eight holders each time; about an hour a round. With 0,
    /// only servers are killed.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// How many leaders of an ensemble are killed, and as many followers; about 12 seconds a pair.
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// Only these places, with commas between them: engine, local, ensemble.
    #[arg(long)]
    place: Option<String>,
    /// Only these forms, with commas between them: stopped, restarted, link, leader.
    #[arg(long)]
    form: Option<String>,
    /// Only these session timeouts in seconds, with commas between them, such as 4,20,default.
    #[arg(long)]
    timeout: Option<String>,
    /// Whether two contend for each lock through outages of every length; a minute and a half.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    rivals: bool,
}

/// Measures the outages that holders survive; the whole of it also writes its page.
///
/// # Errors
///
/// An outage that is shorter than promised ended something, or a run did not work.
pub(crate) fn outage(options: &Outage) -> Result<()> {
    let mut arguments =
        vec![("--rounds", options.rounds.to_string()), ("--kills", options.kills.to_string())];
    arguments.push(("--rivals", options.rivals.to_string()));
    let only =
        [("--place", &options.place), ("--form", &options.form), ("--timeout", &options.timeout)];
    let only: Vec<_> =
        only.into_iter().filter_map(|(option, value)| Some((option, value.clone()?))).collect();
    if only.is_empty() && options.rounds > 0 && options.kills > 0 && options.rivals {
        arguments.push(("--docs", DOCS.to_owned()));
    }
    arguments.extend(only);
    suite("outage", "run", arguments)
}

/// `cargo xtask keeping`
#[derive(clap::Args)]
pub(crate) struct Keeping {
    /// Only these session timeouts and server ticks, in seconds, with commas between them:
    /// `10/2,4/0.4`.
    #[arg(long)]
    form: Option<String>,
    /// Only these shares of a lease, in percent, with commas between them.
    #[arg(long)]
    share: Option<String>,
    /// Only the kinds of locks that have this in their name in the table.
    #[arg(long)]
    only: Option<String>,
}

/// Holds locks of every kind on healthy servers, each granted after some share of a lease.
///
/// # Errors
///
/// One was lost; which has been printed.
pub(crate) fn keeping(options: &Keeping) -> Result<()> {
    let Keeping { form, share, only } = options;
    let options = [("--form", form), ("--share", share), ("--only", only)];
    let given = options.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
    suite("keeping", "run", given.collect())
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
    let mut command = command(&["test", "--quiet", "--profile", PROFILE]);
    command.args(["--package", "lockkeeper-tests", "--test", "cost", "--", "run"]);
    match &options.replay {
        Some(scenario) => drop(command.args(["--replay", scenario])),
        None => drop(command.arg("--minutes").arg(options.minutes.to_string())),
    }
    command.args(options.seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
    run(&mut command, "cost")
}

/// Runs all contests and hand-overs with programs in other languages, two at a time: each is
/// seven programs.
///
/// # Errors
///
/// A test failed, which has printed its seed; or a peer is missing.
pub(crate) fn interop(filter: Option<&str>) -> Result<()> {
    let mut command = command(&["test", "--package", "lockkeeper-tests", "--no-fail-fast"]);
    command.args(["--test", "interop", "--test", "revocation"]);
    command.args(["--", "--nocapture", "--test-threads", "2"]).args(filter);
    command.env("LOCKKEEPER_LONG", "1").env("LOCKKEEPER_REQUIRE_PEERS", "1");
    run(&mut command, "interop")
}

/// Runs programs that share data on the engine and on Apache ZooKeeper, behind proxies that lose what they
/// can, a minute on both at a time: histories stay readable.
///
/// # Errors
///
/// Something was not exact, and has been printed with its seed; or a peer is missing.
pub(crate) fn histories(minutes: u64) -> Result<()> {
    for _ in 0..minutes {
        let mut command = command(&["test", "--package", "lockkeeper-tests", "--test", "contract"]);
        command.args(["--", "--nocapture", "--test-threads", "1", "histories"]);
        command.env("LOCKKEEPER_SECONDS", "30").env("LOCKKEEPER_REQUIRE_PEERS", "1");
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
}

/// Runs seeds, optimized and exactly repeatable.
///
/// # Errors
///
/// A seed failed, or went two ways; how to run it again has been printed.
pub(crate) fn simulate(options: &Simulate) -> Result<()> {
    let mut arguments = match options.seed {
        Some(seed) => vec![("--seed", seed.to_string())],
        None => {
            vec![("--seeds", options.seeds.to_string()), ("--first", options.first.to_string())]
        }
    };
    arguments.extend(options.jobs.map(|jobs| ("--jobs", jobs.to_string())));
    arguments.extend(options.twice.then(|| ("--repeat-each", 1.to_string())));
    let mut command = optimized("simulation")?;
    for (option, value) in arguments {
        command.arg(option).arg(value);
    }
    run(&mut command, "simulation")
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
    let mut command = optimized("model")?;
    match &options.only {
        Some(only) => drop(command.args(["--long", "--only", only])),
        None if options.long => drop(command.args(["--long", "--docs", DOCS])),
        None => {}
    }
    command.args(options.path.iter().flat_map(|path| ["--path", path.as_str()]));
    command.args(options.jobs.iter().flat_map(|jobs| ["--jobs".to_owned(), jobs.to_string()]));
    run(&mut command, "model")
}

/// A suite with the profile for such suites, where tokio's own choices follow from a seed.
fn optimized(name: &str) -> Result<Command> {
    let mut command = command(&["test", "--quiet", "--profile", PROFILE]);
    command.args(["--package", "lockkeeper-tests", "--test", name]);
    // Another tokio than elsewhere, so in a folder of its own: nothing else is built anew.
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().exec()?;
    let target = metadata.target_directory.join("repeatable");
    command.args(["--target-dir", target.as_str()]).env("RUSTFLAGS", "--cfg tokio_unstable");
    command.args(["--", "run"]);
    Ok(command)
}

/// How suites are built that take long: see `Cargo.toml`.
pub(crate) const PROFILE: &str = "proof";

/// Runs a suite of the package of tests with arguments of its own.
fn suite(name: &str, mode: &str, arguments: Vec<(&str, String)>) -> Result<()> {
    let mut command =
        command(&["test", "--quiet", "--package", "lockkeeper-tests", "--test", name]);
    command.args(["--", mode]);
    for (option, value) in arguments {
        command.arg(option).arg(value);
    }
    run(&mut command, name)
}

fn run(command: &mut Command, name: &str) -> Result<()> {
    let status = command.status().context("cannot start cargo")?;
    if !status.success() {
        bail!("the suite {name} found something, see above");
    }
    Ok(())
}
