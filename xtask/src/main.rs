//! Set-up, tests and checks of this repository, run as `cargo xtask <task>`.
//!
//! Invariant: this package does not depend on other packages of the workspace, so that it can check them
//! while they do not compile.

mod bench;
mod cargo;
mod crash;
mod deny;
mod failed_tests;
mod instructions;
mod layers;
mod mutants;
mod promises;
mod proof;
mod recipes;
mod sections;
mod setup;
mod steps;
mod test;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::setup::MissingPeers;

/// Set-up, tests and checks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check format, lints, layers and documentation, and run the unit tests: run it after each change.
    Check,
    /// Compare the engine with Apache ZooKeeper, with random operations.
    Differential(proof::Differential),
    /// Search for requests that use much of the engine's time and memory.
    Cost(proof::Cost),
    /// Check the licences, names and sources of all dependencies against deny.toml.
    Deny,
    /// Kill engines in the middle of a write load, and look for the acknowledged writes.
    Crash {
        /// The number of engines.
        #[arg(long, default_value_t = 1000)]
        runs: usize,
    },
    /// Let programs with Curator and kazoo compete with Lockkeeper, for half a minute per lock.
    Interop {
        /// Run only the tests whose name contains this.
        filter: Option<String>,
    },
    /// Let programs share data and use a queue on the engine and on Apache ZooKeeper, behind proxies that
    /// lose replies, and check the results as the simulation does.
    Histories {
        /// How long to run, in minutes.
        #[arg(long, default_value_t = 10)]
        minutes: u64,
    },
    /// Run real servers and programs in three languages under many faults, and check the results that the
    /// programs got.
    Ensemble(Passed),
    /// Process the jobs of a queue for a day with faults, on the engine and on an ensemble, and check that
    /// each has its effect once.
    Day(Passed),
    /// Hold locks of every kind on healthy servers, each granted after some share of a lease, and check that
    /// none is lost.
    Keeping(Passed),
    /// Run sessions against ensembles in virtual time, by seeds: no lease lasts too long or ends too early.
    Leases(proof::Leases),
    /// Check that crates, and the modules of each, depend on each other in one direction only.
    Layers,
    /// Check that public async functions document costs, errors, cancellation and session loss.
    Sections,
    /// Check that each recipe is in all required places, and that type names are unique.
    Recipes,
    /// Check that all tests exist that the documentation names for its promises.
    Promises,
    /// Run whole programs in virtual time, with the faults of many seeds, or repeat one seed.
    Simulate(proof::Simulate),
    /// Install the peers that the suites need, or list what is missing.
    Setup {
        #[command(flatten)]
        peers: Peers,
        /// Also install what the benchmarks need. Debian starts some of these as services.
        #[arg(long)]
        bench: bool,
    },
    /// Check every state that the session and the order of contenders can reach with a few clients.
    Model(proof::Model),
    /// Apply deliberate bugs one by one, and check that the suites detect each.
    Mutants(mutants::Mutants),
    /// Make servers unreachable for lock holders, and measure how long an outage they survive.
    Outage(Passed),
    /// Cut a lock holder's server off from the others, on real ZooKeeper servers, and measure how long two
    /// clients believe to hold the lock: Curator, kazoo and Lockkeeper.
    Partition(Passed),
    /// Run every check, every test and every example.
    Test {
        #[command(flatten)]
        peers: Peers,
        /// Run only the tests whose name contains this, without the other checks.
        filter: Option<String>,
    },
    /// Compare Lockkeeper with its peers, in one run.
    Bench {
        /// Options of the harness, such as `--quick`, and scenarios; an unknown name prints the list.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Measure the slowest cycles of the engine and Redis alternately, and the delays of the engine's syncs.
    Tail {
        /// Options of the harness, such as `--seconds 600 --tasks 1,64 --spin off,adaptive`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Compare the instruction counts of the hot paths with benches/instructions.json.
    Instructions {
        /// Replace the baseline with the current counts.
        #[arg(long)]
        bless: bool,
    },
}

/// Arguments that are passed to a suite.
#[derive(Args)]
#[command(disable_help_flag = true)]
struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

#[derive(Args, Clone, Copy)]
struct Peers {
    /// Fail when a real peer (Apache ZooKeeper, Curator, kazoo) is missing, instead of skipping.
    #[arg(long)]
    require_peers: bool,
}

impl Peers {
    fn policy(self) -> MissingPeers {
        if self.require_peers { MissingPeers::Fail } else { MissingPeers::Skip }
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Check => test::check(),
        Task::Differential(options) => proof::differential(&options),
        Task::Cost(options) => proof::cost(&options),
        Task::Deny => deny::run(),
        Task::Crash { runs } => crash::run(runs),
        Task::Interop { filter } => proof::interop(filter.as_deref()),
        Task::Histories { minutes } => proof::histories(minutes),
        Task::Day(passed) => proof::cluster("day", &passed.options),
        Task::Ensemble(passed) => proof::cluster("ensemble", &passed.options),
        Task::Keeping(passed) => proof::cluster("keeping", &passed.options),
        Task::Layers => layers::run(),
        Task::Sections => sections::run(),
        Task::Promises => promises::run(),
        Task::Recipes => recipes::run(),
        Task::Leases(options) => proof::leases(&options),
        Task::Simulate(options) => proof::simulate(&options),
        Task::Model(options) => proof::model(&options),
        Task::Mutants(options) => mutants::run(&options),
        Task::Outage(passed) => proof::cluster("outage", &passed.options),
        Task::Partition(passed) => proof::cluster("partition", &passed.options),
        Task::Setup { peers, bench } => {
            let needs = if bench { setup::Needs::OfBenches } else { setup::Needs::OfSuites };
            setup::run(peers.policy(), needs).map(|_| ())
        }
        Task::Test { peers, filter } => test::run(peers.policy(), filter.as_deref()),
        Task::Bench { options } => bench::run(&options),
        Task::Tail { options } => bench::tail(&options),
        Task::Instructions { bless } => {
            let mode = if bless { instructions::Mode::Bless } else { instructions::Mode::Compare };
            instructions::run(mode)
        }
    };

    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
