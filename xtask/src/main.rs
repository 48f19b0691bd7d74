//! Set-up, tests and checks of this repository, run as `cargo xtask <task>`.
//!
//! Invariant: this package depends on no other package of the workspace, so that it can still
//! check them while they do not compile.

mod bench;
mod cargo;
mod crash;
mod deny;
mod dist;
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
    /// Check format, lints, layers and documentation, and run the unit tests: what to run after each change.
    Check,
    /// Compare the engine with Apache ZooKeeper by random operations.
    Differential(proof::Differential),
    /// Search for requests that take much of the engine's time and memory.
    Cost(proof::Cost),
    /// Check the licences, the names and the sources of all dependencies against deny.toml.
    Deny,
    /// Build what is handed out (a tar, Debian packages, an image, papers), and try each.
    Dist(dist::Options),
    /// Kill engines in the middle of a write load, and look for what they had acknowledged.
    Crash {
        /// How many engines.
        #[arg(long, default_value_t = 1000)]
        runs: usize,
    },
    /// Let programs on Curator and kazoo contend with ours, for half a minute each lock.
    Interop {
        /// Only the tests whose name contains this.
        filter: Option<String>,
    },
    /// Let programs share data and use a queue on the engine and on Apache ZooKeeper, behind proxies that lose
    /// replies, and check what they were told as the simulation does.
    Histories {
        /// For how many minutes.
        #[arg(long, default_value_t = 10)]
        minutes: u64,
    },
    /// Run real servers and programs in three languages while everything goes wrong, and check what
    /// they were told.
    Ensemble(Passed),
    /// Work on the jobs of a queue for a day of troubles, on the engine and on an ensemble, and see that each has
    /// its effect once.
    Day(Passed),
    /// Hold locks of every kind on healthy servers, each granted after some share of a lease, and
    /// see that none is lost.
    Keeping(Passed),
    /// Run sessions against ensembles in virtual time, by seeds: no lease lasts too long, and none ends too soon.
    Leases(proof::Leases),
    /// Check that the crates, and the modules of each, depend on each other in one direction only.
    Layers,
    /// Check that each public async function of the libraries says what its callers must know.
    Sections,
    /// Check that each recipe is in its places, and that no name stands for two types.
    Recipes,
    /// Check that every test exists that the pages name for what they promise.
    Promises,
    /// Run whole programs in virtual time, with the faults of many seeds, or one seed again.
    Simulate(proof::Simulate),
    /// Install what the suites with real peers need, or say what is missing.
    Setup {
        #[command(flatten)]
        peers: Peers,
        /// What the benchmarks need too. Debian starts some of these as services.
        #[arg(long)]
        bench: bool,
    },
    /// Look at every state that the session and the order can come to with a few clients.
    Model(proof::Model),
    /// Plant deliberate bugs, one after the other, and see that the checks catch each.
    Mutants(mutants::Mutants),
    /// Take servers away from lock holders for a while, and measure how long an outage they survive.
    Outage(Passed),
    /// Cut a lock holder's server off from the others, on real ZooKeeper servers, and measure for
    /// how long two believe to hold: Curator, kazoo and ours.
    Partition(Passed),
    /// Run every check, every test and every example.
    Test {
        #[command(flatten)]
        peers: Peers,
        /// Run only the tests whose name contains this, and none of the other checks.
        filter: Option<String>,
    },
    /// Measure Lockkeeper beside its peers, in one run.
    Bench {
        /// Options of the harness, such as `--quick`, and scenarios; an unknown name lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Measure the slowest cycles of the engine and Redis in turns, and what the engine's syncs met.
    Tail {
        /// Options of the harness, such as `--seconds 600 --tasks 1,64 --spin off,adaptive`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Count the instructions of the hot paths, against benches/instructions.json.
    Instructions {
        /// Make the present counts the baseline.
        #[arg(long)]
        bless: bool,
    },
}

/// What a suite reads.
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
        Task::Dist(options) => dist::dist(&options),
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
