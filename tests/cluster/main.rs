//! Real servers, real programs, and everything that can go wrong with them.
//!
//! | folder | what it shows |
//! |---|---|
//! | `partition` | no two hold when the holder's server leaves the others |
//! | `outage` | how long an outage a holder survives, and that one of two rivals writes at a time |
//! | `keeping` | no healthy holder loses its lock |
//! | `ensemble` | promises are kept while a script of faults goes on, under programs in three languages |
//! | `hammer` | no update is lost when holders are killed, or when three languages take turns |
//!
//! `cargo test` runs the short form of each line of [`SCENARIOS`], in a process of its own and beside
//! others: nearly all of it is waiting. `cargo xtask partition`, for example, runs a long form. This program
//! is also most of the programs that the scenarios start.

mod ensemble;
mod hammer;
mod keeping;
mod outage;
mod partition;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::scratch;
use lockkeeper_tests::{exit_code, is_wanted};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// What `cargo test` runs.
struct Scenario {
    name: &'static str,
    /// How much of [`ROOM`] it takes.
    load: u32,
    short: fn() -> Pin<Box<dyn Future<Output = Result<()>>>>,
}

/// How much load runs side by side: more of it, and servers answer late.
const ROOM: usize = 6;

/// Longer than any short form takes.
const LIMIT: Duration = Duration::from_secs(900);

/// The longest ones first.
const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "ensemble::everything_goes_wrong_and_no_promise_is_broken",
        load: 2,
        short: || Box::pin(ensemble::short()),
    },
    Scenario {
        name: "keeping::no_healthy_holder_loses_its_lock",
        load: 2,
        short: || Box::pin(keeping::short()),
    },
    Scenario {
        name: "partition::no_overlap_in_any_form",
        load: 1,
        short: || Box::pin(partition::short()),
    },
    Scenario {
        name: "outage::one_writes_at_a_time_through_outages_of_every_length",
        load: 1,
        short: || Box::pin(outage::short_rivals()),
    },
    Scenario {
        name: "outage::servers_killed_one_at_a_time_end_nothing",
        load: 1,
        short: || Box::pin(outage::short_kills()),
    },
    Scenario {
        name: "outage::an_outage_shorter_than_promised_ends_nothing",
        load: 2,
        short: || Box::pin(outage::short_probe()),
    },
    Scenario {
        name: "hammer::fifty_processes_on_the_machine_local_engine",
        load: 3,
        short: || Box::pin(hammer::on_the_machine_local_engine()),
    },
    Scenario {
        name: "hammer::fifty_processes_on_an_ensemble",
        load: 3,
        short: || Box::pin(hammer::on_an_ensemble()),
    },
    Scenario {
        name: "hammer::the_command_takes_turns_with_curator_and_kazoo",
        load: 1,
        short: || Box::pin(hammer::languages()),
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    exit_code(match arguments.first().map(String::as_str) {
        // What runs under `lockkeeper run` needs no runtime.
        Some("work") => outage::programs::work(),
        Some("write") => outage::rivals::write(&arguments[1..]),
        _ => start(&arguments),
    })
}

#[tokio::main]
async fn start(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    match words[..] {
        ["holder", ..] => partition::holder::hold(rest).await,
        ["leader", ..] => partition::holder::lead(rest).await,
        ["guard", ..] => outage::guard::run(rest).await,
        ["first", ..] => outage::rivals::first(rest).await,
        ["second", ..] => outage::rivals::second(rest).await,
        ["contender", ..] => ensemble::contender::run(rest).await,
        ["prepare", ..] => ensemble::contender::prepare(rest).await,
        ["look", ..] => ensemble::sharing::look(rest).await,
        ["run", "partition", ..] => partition::run(&rest[1..]).await,
        ["run", "outage", ..] => outage::run(&rest[1..]).await,
        ["run", "keeping", ..] => keeping::run(&rest[1..]).await,
        ["run", "ensemble", ..] => ensemble::run(&rest[1..]).await,
        ["short", name] => {
            let known = SCENARIOS.iter().find(|scenario| scenario.name == name);
            (known.context("there is no such scenario")?.short)().await
        }
        _ => as_tests(arguments).await,
    }
}

/// What `cargo test` starts.
async fn as_tests(arguments: &[String]) -> Result<()> {
    let folder = scratch::folder()?;
    let room = Arc::new(Semaphore::new(ROOM));
    let mut running = JoinSet::new();
    for scenario in SCENARIOS.iter().filter(|scenario| is_wanted(scenario.name, arguments)) {
        let place = Arc::clone(&room).acquire_many_owned(scenario.load).await?;
        let folder = folder.path().to_owned();
        running.spawn(async move {
            let ended = in_a_process(scenario, folder).await;
            drop(place);
            ended
        });
    }

    let ended = running.join_all().await.into_iter().collect::<Result<Vec<bool>>>()?;
    let failed = ended.iter().filter(|passed| !**passed).count();
    ensure!(failed == 0, "{failed} scenarios failed, see above");
    Ok(())
}

/// Runs a scenario, and shows at its end what it has printed; whether it passed.
async fn in_a_process(scenario: &Scenario, folder: PathBuf) -> Result<bool> {
    let name = scenario.name;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["short", name]);
    let start = Instant::now();
    let mut process = Process::spawn(&name.replace("::", "-"), &command, &folder)?;
    let ended = process.end(LIMIT).await;
    let passed = ended.as_ref().is_ok_and(|status| status.success());

    print!("\n=== {name}\n{}{}", process.stdout(), process.stderr());
    let verdict = if passed { "ok" } else { "FAILED" };
    println!("{:.0} s\ntest {name} ... {verdict}", start.elapsed().as_secs_f64());
    Ok(passed)
}

/// Where the programs are that use other libraries.
fn interop() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/interop"))
}
