//! Lockkeeper beside its peers, measured in one run: `cargo xtask bench` runs this.
//!
//! ```text
//!   run        one run, from the look at the machine to the page
//!   report     results.json, the page, the charts; the targets described once
//!   tail       the slowest cycles, of the engine and Redis in turns, and what syncs met
//!   scenarios  what is done with each system
//!   bench      Bench: interleaves the systems, round after round, and notes their numbers
//!   awake      keeps processors from sleeping, as where waking is fast
//!   machine    what the run ran on, and the processor time that it used
//!   baselines  what the machine itself allows: a round trip, a record on the disk
//!   peers      the servers and programs, started when a scenario first asks for them
//!   children   what this program does as a child of itself
//!   counters, subscribers  what such children do to a counter and a value
//!   lines      many sessions, and a line that grows
//!   queues     items that are put and taken: ours, the peers', and bare requests
//!   orders     what programs that measure for us answer, in whatever language
//!   settings   how long, how often, how many: a quick run or a full one
//!   system     what is measured: a lock on a server, in one configuration
//!   locks      the peers' locks, behind measure::Lock
//!   measure    cycles, hand-offs and percentiles of anything that is a lock
//!   results    every number, and its median, least and greatest
//!   tap        a relay that counts bytes, frames and watch events
//!   memory     the memory of a process
//!   processors which processor a thread runs on
//! ```
//!
//! Invariants: a ratio is only ever taken of numbers of one run; whatever could not be measured is
//! in the report, with the reason; and nothing that was started survives this process.

mod awake;
mod baselines;
mod bench;
mod children;
mod counters;
mod lines;
mod locks;
mod machine;
mod measure;
mod memory;
mod orders;
mod peers;
mod processors;
mod queues;
mod report;
mod results;
mod run;
mod scenarios;
mod settings;
mod subscribers;
mod system;
mod tail;
mod tap;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use self::settings::Settings;

/// As in the `lockkeeper` command; the clients of the peers that are measured here have it, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Lockkeeper beside its peers, measured in one run.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure, and write the results.
    Run(RunOptions),
    /// The slowest cycles: the engine and Redis in turns, and what the engine's syncs met.
    Tail(tail::Options),
    /// Write the page of the documentation again, with an earlier run if its folder is given.
    Page {
        /// The folder of its `results.json`.
        output: Option<PathBuf>,
        /// The documentation's folder.
        #[arg(long, default_value = "docs")]
        docs: PathBuf,
    },
    /// List the scenarios.
    Scenarios,
    /// (child) Send back whatever comes.
    #[command(hide = true)]
    Echo { processor: usize },
    /// (child) Add to a counter.
    #[command(hide = true)]
    Count { servers: String },
    /// (child) Keep a cache.
    #[command(hide = true)]
    Cache { servers: String, path: String },
    /// (child) Follow a value.
    #[command(hide = true)]
    Subscribe { servers: String, count: usize, kind: subscribers::Kind },
    /// (child) Take items of a queue.
    #[command(hide = true)]
    Consume { servers: String, path: String, count: usize },
    /// (child) Hold a lock.
    #[command(hide = true)]
    Hold { servers: String, path: String, session_ms: u64 },
}

#[derive(Args)]
struct RunOptions {
    /// A run of under three minutes, whose figures are good for a look and no more.
    #[arg(long)]
    quick: bool,
    /// Only turns whose progress line has this in it, such as `(engine, os), 256 tasks`.
    #[arg(long)]
    only: Option<String>,
    /// Keep the processors from sleeping while it runs, as on a machine on which waking a thread is fast. Needs
    /// root.
    #[arg(long)]
    keep_awake: bool,
    /// For results.json, the page and its charts.
    #[arg(long, default_value = "target/bench")]
    output: PathBuf,
    /// The documentation's folder, written to by a full run of all scenarios.
    #[arg(long, default_value = "docs")]
    docs: PathBuf,
    /// Only these scenarios.
    scenarios: Vec<String>,
}

fn main() -> ExitCode {
    // One thread for everything on the client's side, the same for each system: the servers have
    // the other cores.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(perform(Cli::parse().task)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn perform(task: Task) -> Result<()> {
    match task {
        Task::Run(run) => {
            let RunOptions { only, keep_awake, .. } = run;
            let settings = Settings { only, keep_awake, ..Settings::of(run.quick) };
            run::run(settings, (&run.output, &run.docs), &run.scenarios).await
        }
        Task::Tail(options) => tail::run(&options).await,
        Task::Page { output, docs } => {
            report::publish(output.as_deref().map(report::read).transpose()?, &docs)
        }
        Task::Scenarios => {
            for scenario in scenarios::ALL {
                println!("{:12} {}", scenario.name, scenario.about);
            }
            Ok(())
        }
        Task::Echo { processor } => children::echo(processor).await,
        Task::Count { servers } => children::count(&servers).await,
        Task::Cache { servers, path } => children::cache(&servers, &path).await,
        Task::Subscribe { servers, count, kind } => {
            children::subscribe(&servers, count, kind).await
        }
        Task::Consume { servers, path, count } => children::consume(&servers, &path, count).await,
        Task::Hold { servers, path, session_ms } => {
            children::hold(&servers, &path, Duration::from_millis(session_ms)).await
        }
    }
}
