//! What requests cost the engine's tree thread, and a search for those that cost the most.
//!
//! All clients of an engine wait while its tree thread works for one of them, and share its memory.
//! A scenario is a short program of requests; its score is the processor time of the longest single
//! call of the server, the time and the memory for each byte that was sent, and the replies of one
//! call. The search changes the scenarios with the highest scores, again and again.
//!
//! | file | what |
//! |---|---|
//! | `scenario` | steps, as text and as random changes of others |
//! | `requests` | the frames of a step |
//! | `drive` | a server under a scenario, measured |
//! | `search` | the scenarios with the highest scores |
//!
//! As a test, it runs the scenarios of `found.txt`: those that the search has found, and the attacks that were
//! known before. `cargo xtask cost` searches for a given time.

mod drive;
mod requests;
mod scenario;
mod search;

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper_tests::{exit_code, is_wanted};

use crate::drive::{Costs, MAX_CALL, MAX_CALL_DEBUG};
use crate::scenario::Scenario;
use crate::search::Search;

/// That of the command. The C library's stops for up to 0.1 s when a large piece is freed after a million
/// little ones, which it then joins.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The scenarios that must stay cheap, one in a line; `#` begins a comment.
const FOUND: &str = include_str!("found.txt");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("one") => one(&arguments[1..].join(" ")),
        Some("run") => run(&arguments[1..]),
        _ => as_a_test(&arguments),
    };
    exit_code(result)
}

fn as_a_test(arguments: &[String]) -> Result<()> {
    const NAME: &str = "cost::no_request_keeps_others_waiting";
    if !is_wanted(NAME, arguments) {
        return Ok(());
    }
    let max_call = if cfg!(debug_assertions) { MAX_CALL_DEBUG } else { MAX_CALL };
    for scenario in found()? {
        let costs = measure(&scenario)?;
        println!("{costs}  {scenario}");
        costs.check(max_call).with_context(|| format!("cargo xtask cost --replay '{scenario}'"))?;
    }
    println!("test {NAME} ... ok");
    Ok(())
}

/// The scenarios of [`FOUND`].
fn found() -> Result<Vec<Scenario>> {
    let lines = FOUND.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(str::parse).collect()
}

/// Measures one scenario in this process, and prints its costs for [`measure`].
fn one(text: &str) -> Result<()> {
    println!("{}", drive::drive(&text.parse()?)?.to_line());
    Ok(())
}

/// Measures a scenario in a process of its own: what it leaves in memory counts for no other, and
/// one that takes all memory ends nothing else.
fn measure(scenario: &Scenario) -> Result<Costs> {
    let program = std::env::current_exe()?;
    let output = Command::new(program).arg("one").arg(scenario.to_string()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "a server has ended under {scenario}: {} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Costs::from_line(&text).with_context(|| format!("no costs in {text:?}"))
}

fn run(arguments: &[String]) -> Result<()> {
    let (mut minutes, mut seed) = (60.0, fastrand::u64(..));
    for pair in arguments.chunks(2) {
        let [option, value] = pair else { bail!("{} needs a value", pair[0]) };
        match option.as_str() {
            "--minutes" => minutes = value.parse().context("--minutes")?,
            "--seed" => seed = value.parse().context("--seed")?,
            "--replay" => {
                let costs = measure(&value.parse()?)?;
                println!("{costs}");
                return costs.check(MAX_CALL);
            }
            _ => bail!("unknown option {option}"),
        }
    }
    println!("seed {seed}, {minutes} minutes");
    let search = Search::begin(seed, found()?);
    let found = search.run(Duration::from_secs_f64(60.0 * minutes))?;
    println!("\n{}", found.report());
    let expensive = found.expensive();
    ensure!(expensive.is_empty(), "too expensive:{}", expensive.concat());
    Ok(())
}
