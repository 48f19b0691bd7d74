//! Real servers, real programs, and everything that can go wrong with them.
//!
//! | folder | what it shows |
//! |---|---|
//! | `partition` | no two programs hold a lock when the holder's server leaves the others |
//! | `outage` | how long an outage a holder survives, and that one of two rivals writes at a time |
//! | `keeping` | no healthy holder loses its lock |
//! | `ensemble` | promises are kept during a script of faults, with programs in three languages |
//! | `day` | each job of a queue has its effect once |
//! | `hammer` | no update is lost when holders are killed, or when three languages take turns |
//!
//! `cargo test` runs the short form of each line of [`SCENARIOS`], in a process of its own and beside
//! others: nearly all of it is waiting. `cargo xtask partition`, for example, runs a long form. This program
//! is also most of the programs that the scenarios start.

mod day;
mod ensemble;
mod hammer;
mod keeping;
mod outage;
mod partition;
mod programs;
mod servers;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Parser;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::scratch;
use lockkeeper_tests::{exit_code, is_wanted};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How much runs side by side: with more of it, servers answer late.
const ROOM: usize = 6;

/// Longer than any short form takes.
const LIMIT: Duration = Duration::from_secs(900);

/// The scenarios that `cargo test` runs, the longest ones first: the name, the share of [`ROOM`], and the function.
macro_rules! scenarios {
    ($($name:literal, $load:literal, $short:expr;)*) => {
        const SCENARIOS: &[(&str, u32)] = &[$(($name, $load)),*];

        async fn short(name: &str) -> Result<()> {
            match name {
                $($name => $short.await,)*
                _ => bail!("unknown scenario {name}"),
            }
        }
    };
}

scenarios! {
    "ensemble::everything_goes_wrong_and_no_promise_is_broken", 2, ensemble::short();
    "keeping::no_healthy_holder_loses_its_lock", 2, keeping::short();
    "partition::no_overlap_in_any_form", 1, partition::short();
    "outage::one_writes_at_a_time_through_outages_of_every_length", 1, outage::rivals::short();
    "outage::servers_killed_one_at_a_time_end_nothing", 1, outage::kills::short();
    "outage::an_outage_shorter_than_promised_ends_nothing", 4, outage::probe::short();
    "day::each_job_has_its_effect_once_on_an_ensemble", 2, day::short(servers::Place::Ensemble);
    "day::each_job_has_its_effect_once_on_an_engine", 2, day::short(servers::Place::Engine);
    "hammer::fifty_processes_on_the_machine_local_engine", 3, hammer::fifty_processes_on_the_machine_local_engine();
    "hammer::fifty_processes_on_an_ensemble", 3, hammer::fifty_processes_on_an_ensemble();
    "hammer::the_command_takes_turns_with_curator_and_kazoo", 1, hammer::three_languages();
}

/// What this program is.
#[derive(Parser)]
enum Role {
    Partition(partition::PartitionOptions),
    Outage(outage::OutageOptions),
    Keeping(keeping::KeepingOptions),
    Ensemble(ensemble::EnsembleOptions),
    Day(day::DayOptions),
    DayWorker(day::worker::DayWorker),
    DayLook(day::worker::DayLook),
    Short { name: String },
    Hold(programs::Hold),
    Work,
    Rival(outage::rivals::Rival),
    Write { ledger: PathBuf },
    Prepare { connect: String },
    Contender(ensemble::contender::Contender),
    Look { connect: String, folder: PathBuf },
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Any other word is a filter.
    let is_role = arguments.first().is_some_and(|word| word == "run");
    exit_code(match is_role.then(|| Role::parse_from(&arguments)) {
        // What runs under `lockkeeper run` needs no runtime.
        Some(Role::Work) => programs::work(),
        Some(role) => role.run(),
        None => as_tests(&arguments),
    })
}

impl Role {
    #[tokio::main]
    async fn run(self) -> Result<()> {
        match self {
            Self::Partition(options) => options.run().await,
            Self::Outage(options) => options.run().await,
            Self::Keeping(options) => options.run().await,
            Self::Ensemble(options) => options.run().await,
            Self::Day(options) => options.run().await,
            Self::DayWorker(worker) => worker.run().await,
            Self::DayLook(look) => look.run().await,
            Self::Short { name } => short(&name).await,
            Self::Hold(hold) => hold.run().await,
            Self::Rival(rival) => rival.run().await,
            Self::Write { ledger } => {
                outage::rivals::write(&ledger, &std::env::var("LOCKKEEPER_TOKEN")?).await
            }
            Self::Prepare { connect } => ensemble::contender::prepare(&connect).await,
            Self::Contender(contender) => contender.run().await,
            Self::Look { connect, folder } => ensemble::sharing::look(&connect, &folder).await,
            Self::Work => unreachable!("it runs without a runtime"),
        }
    }
}

/// What `cargo test` starts.
#[tokio::main]
async fn as_tests(arguments: &[String]) -> Result<()> {
    let folder = scratch::folder()?;
    let room = Arc::new(Semaphore::new(ROOM));
    let mut running = JoinSet::new();
    for &(name, load) in SCENARIOS.iter().filter(|(name, _)| is_wanted(name, arguments)) {
        let place = Arc::clone(&room).acquire_many_owned(load).await?;
        let folder = folder.path().to_owned();
        running.spawn(async move {
            let ended = in_a_process(name, folder).await;
            drop(place);
            ended
        });
    }

    let ended = running.join_all().await.into_iter().collect::<Result<Vec<bool>>>()?;
    let failed = ended.iter().filter(|passed| !**passed).count();
    if failed > 0 {
        println!("test result: FAILED. {} passed; {failed} failed", ended.len() - failed);
    }
    ensure!(failed == 0, "{failed} scenarios failed, see above");
    Ok(())
}

/// Runs a scenario, and shows at its end what it has printed; whether it passed.
async fn in_a_process(name: &str, folder: PathBuf) -> Result<bool> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "short", name]);
    let start = Instant::now();
    let mut process = Process::spawn(&name.replace("::", "-"), &command, &folder)?;
    let passed = process.end(LIMIT).await.is_ok_and(|status| status.success());

    let (out, err, took) = (process.stdout(), process.stderr(), start.elapsed().as_secs_f64());
    let verdict = if passed { "ok" } else { "FAILED" };
    println!("\n=== {name}\n{out}{err}{took:.0} s\ntest {name} ... {verdict}");
    Ok(passed)
}
