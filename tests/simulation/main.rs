//! Whole programs in virtual time: real clients, real locks and the engine's tree, on machines and
//! a network that do what a seed says. See `docs/guarantees.md`.
//!
//! Each run writes a history, which `lockkeeper_testkit::checker` judges. As a test, some seeds
//! run; `cargo xtask simulate` runs as many as you like, and one again:
//! `cargo xtask simulate --seed 42`. That command builds with `--cfg tokio_unstable`, where tokio
//! lets the seed decide also in which order a channel wakes several tasks at one instant.

// The build that is exactly repeatable has a name that cargo does not know.
#![allow(unexpected_cfgs)]

mod faults;
mod locks;
mod network;
mod participants;
mod run;
mod server;
mod world;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_testkit::checker;
use lockkeeper_tests::is_wanted;

/// How many seeds a plain test run takes, unoptimized; `cargo xtask test` runs more.
const SEEDS_OF_A_TEST: u64 = 100;

/// One seed of so many runs twice, and should go the same way: else no failure could be looked at.
const REPEAT_EACH: u64 = 50;

/// So many of those may go another way. Contenders have random names, and a server tells of several
/// nodes in the order of their names: two tasks of a client may then change places in an instant.
const STRAYS: u64 = 5;

/// What the command line asks for.
struct Plan {
    first: u64,
    seeds: u64,
    jobs: usize,
    /// Whether to print the timelines of good runs too.
    show: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    const NAME: &str = "simulation::seeds";
    let plan = if arguments.first().is_some_and(|first| first == "run") {
        Plan::parse(&arguments[1..])
    } else if is_wanted(NAME, &arguments) {
        Some(Plan { first: 1, seeds: SEEDS_OF_A_TEST, jobs: 1, show: false })
    } else {
        return ExitCode::SUCCESS;
    };
    match plan {
        Some(plan) => many(&plan),
        None => {
            eprintln!("arguments: run [--seeds N] [--seed N] [--first N] [--jobs N]");
            ExitCode::FAILURE
        }
    }
}

impl Plan {
    fn parse(arguments: &[String]) -> Option<Self> {
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let mut plan = Self { first: 1, seeds: SEEDS_OF_A_TEST, jobs, show: false };
        for pair in arguments.chunks(2) {
            let [option, value] = pair else { return None };
            let value: u64 = value.parse().ok()?;
            match option.as_str() {
                "--seeds" => plan.seeds = value,
                "--first" => plan.first = value,
                "--jobs" => plan.jobs = usize::try_from(value).ok()?.max(1),
                "--seed" => (plan.first, plan.seeds, plan.show) = (value, 1, true),
                _ => return None,
            }
        }
        Some(plan)
    }
}

fn many(plan: &Plan) -> ExitCode {
    let start = Instant::now();
    let (next, failed, lines) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (repeated, strays) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..plan.jobs.min(usize::try_from(plan.seeds).unwrap_or(usize::MAX)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    // One failure is enough to look at.
                    if number >= plan.seeds || failed.load(Ordering::Relaxed) > 0 {
                        return;
                    }
                    let seed = plan.first + number;
                    let history = run::simulate(seed);
                    lines.fetch_add(history.entries().len() as u64, Ordering::Relaxed);
                    let judged = checker::check(&history);
                    if run::REPEATABLE && number.is_multiple_of(REPEAT_EACH) {
                        let again = run::simulate(seed);
                        repeated.fetch_add(1, Ordering::Relaxed);
                        strays.fetch_add(u64::from(again != history), Ordering::Relaxed);
                    }
                    if plan.show || judged.is_err() {
                        println!("{history}");
                    }
                    if let Err(why) = judged {
                        failed.fetch_add(1, Ordering::Relaxed);
                        println!(
                            "seed {seed} failed\n{why}\nagain: cargo xtask simulate --seed {seed}"
                        );
                    }
                    if number > 0 && number.is_multiple_of(10_000) {
                        println!("{number} seeds, {:.0} s", start.elapsed().as_secs_f64());
                    }
                }
            });
        }
    });
    let took = start.elapsed().max(Duration::from_millis(1)).as_secs_f64();
    let (repeated, strays) = (repeated.into_inner(), strays.into_inner());
    if strays > 0 {
        println!("{strays} of {repeated} seeds that ran twice went two ways");
    }
    let too_many = u64::from(strays > STRAYS + repeated / 20);
    let failed = failed.into_inner() + too_many;
    let ran = next.into_inner().min(plan.seeds);
    println!(
        "{ran} seeds from {}, {} events, {took:.1} s, {:.0} seeds/s, {failed} failed",
        plan.first,
        lines.into_inner(),
        ran as f64 / took,
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
