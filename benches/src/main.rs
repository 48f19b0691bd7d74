//! `cargo xtask bench` runs this.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use lockkeeper_benches::run::{self, Folders};
use lockkeeper_benches::settings::Settings;
use lockkeeper_benches::{children, scenarios, tail};

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
    Run(Run),
    /// The slowest cycles: the engine and Redis in turns, and what the engine's syncs met.
    Tail(tail::Options),
    /// Write the page and the charts of an earlier run again, from its `results.json`.
    Page {
        /// The folder that it is in.
        #[arg(default_value = "target/bench")]
        output: PathBuf,
    },
    /// List the scenarios.
    Scenarios,
    /// (child) Send back whatever comes.
    #[command(hide = true)]
    Echo {
        #[arg(long)]
        processor: usize,
    },
    /// (child) Add to a counter.
    #[command(hide = true)]
    Count {
        #[arg(long)]
        servers: String,
    },
    /// (child) Keep a cache.
    #[command(hide = true)]
    Cache {
        #[arg(long)]
        servers: String,
        #[arg(long)]
        path: String,
    },
    /// (child) Follow a value.
    #[command(hide = true)]
    Subscribe {
        #[arg(long)]
        servers: String,
        #[arg(long)]
        count: usize,
        #[arg(long)]
        kind: String,
    },
    /// (child) Hold a lock.
    #[command(hide = true)]
    Hold {
        #[arg(long)]
        servers: String,
        #[arg(long)]
        path: String,
        #[arg(long)]
        session_ms: u64,
    },
}

#[derive(Args)]
struct Run {
    /// A run of under three minutes, whose figures are good for a look and no more.
    #[arg(long)]
    quick: bool,
    /// Only turns whose progress line has this in it, such as `(engine, os), 256 tasks`.
    #[arg(long)]
    only: Option<String>,
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
            let settings = Settings { only: run.only, ..Settings::of(run.quick) };
            let data = run.output.join("data");
            let folders = Folders { output: run.output, docs: run.docs, data };
            run::run(settings, &folders, &run.scenarios).await
        }
        Task::Tail(options) => tail::run(&options).await,
        Task::Page { output } => run::page(&output),
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
            children::subscribe(&servers, count, &kind).await
        }
        Task::Hold { servers, path, session_ms } => {
            children::hold(&servers, &path, Duration::from_millis(session_ms)).await
        }
    }
}
