//! Whole programs in virtual time: real clients, real locks and the engine's tree, on machines and
//! a network that do what a seed says. See `docs/guarantees.md`.
//!
//! Each run writes a history, which `lockkeeper_testkit::checker` judges. As a test, some seeds
//! run; `cargo xtask simulate` runs as many as you like, and one again:
//! `cargo xtask simulate --seed 42`. That command builds with `--cfg tokio_unstable`, where tokio
//! lets the seed decide also in which order a channel wakes several tasks at one instant.
//!
//! Beside the seeds, members of `Partitions` come and go ([`churn`]): a few hundred times, or 10,000 times with
//! `cargo xtask simulate --seeds 0 --changes 10000`.

// The build that is exactly repeatable has a name that cargo does not know.
#![allow(unexpected_cfgs)]

mod barriers;
mod candidates;
mod churn;
mod faults;
mod followers;
mod ids;
mod machine;
mod members;
mod network;
mod participants;
mod partitions;
mod pools;
mod presences;
mod queues;
mod run;
mod server;
mod services;
mod severity;
mod sharing;
mod standstill;
mod strays;
mod ticks;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_testkit::checker;
use lockkeeper_tests::is_wanted;

use crate::run::Ran;

/// Much of the time goes into small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many seeds a plain test run takes, unoptimized; `cargo xtask test` runs more.
const SEEDS_OF_A_TEST: u64 = 100;

/// How many joins and leaves a plain test run takes.
const CHANGES_OF_A_TEST: u64 = 300;

/// One seed of so many runs twice, and goes the same way: else no failure could be looked at.
const REPEAT_EACH: u64 = 25;

/// What the command line asks for.
struct Plan {
    first: u64,
    seeds: u64,
    jobs: usize,
    /// One seed of so many runs twice.
    repeat_each: u64,
    /// How many joins and leaves of members come after the seeds.
    changes: u64,
    /// Whether to print the timelines of good runs too.
    show: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    const SEEDS: &str = "simulation::seeds";
    const CHURN: &str = "simulation::churn";
    let plan = if arguments.first().is_some_and(|first| first == "run") {
        Plan::parse(&arguments[1..])
    } else {
        let wanted = |name, count| if is_wanted(name, &arguments) { count } else { 0 };
        let seeds = wanted(SEEDS, SEEDS_OF_A_TEST);
        let changes = wanted(CHURN, CHANGES_OF_A_TEST);
        Some(Plan { jobs: 1, seeds, changes, ..Plan::default() })
    };
    match plan {
        Some(plan) if many(&plan) && come_and_go(&plan) => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
        None => {
            eprintln!(
                "arguments: run [--seeds N] [--seed N] [--first N] [--jobs N] [--repeat-each N] \
                 [--changes N]"
            );
            ExitCode::FAILURE
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let (seeds, repeat_each) = (SEEDS_OF_A_TEST, REPEAT_EACH);
        Self { first: 1, seeds, jobs, repeat_each, changes: 0, show: false }
    }
}

impl Plan {
    fn parse(arguments: &[String]) -> Option<Self> {
        let mut plan = Self::default();
        for pair in arguments.chunks(2) {
            let [option, value] = pair else { return None };
            let value: u64 = value.parse().ok()?;
            match option.as_str() {
                "--seeds" => plan.seeds = value,
                "--changes" => plan.changes = value,
                "--first" => plan.first = value,
                "--jobs" => plan.jobs = usize::try_from(value).ok()?.max(1),
                "--repeat-each" => plan.repeat_each = value.max(1),
                "--seed" => (plan.first, plan.seeds, plan.show) = (value, 1, true),
                _ => return None,
            }
        }
        Some(plan)
    }
}

/// What has come of the seeds so far.
#[derive(Default)]
struct Tally {
    next: AtomicU64,
    events: AtomicU64,
    repeated: AtomicU64,
    failed: AtomicU64,
    /// A sum over all timelines, the same whenever the same seeds run.
    timelines: AtomicU64,
}

/// Runs the seeds. Returns whether all is as it should be.
fn many(plan: &Plan) -> bool {
    if plan.seeds == 0 {
        return true;
    }
    let (start, tally) = (Instant::now(), Tally::default());
    thread::scope(|scope| {
        for _ in 0..plan.jobs.min(usize::try_from(plan.seeds).unwrap_or(usize::MAX)) {
            scope.spawn(|| {
                loop {
                    let number = tally.next.fetch_add(1, Ordering::Relaxed);
                    // One failure is enough to look at.
                    if number >= plan.seeds || tally.failed.load(Ordering::Relaxed) > 0 {
                        return;
                    }
                    one(plan, number, &tally);
                    if number > 0 && number.is_multiple_of(10_000) {
                        println!("{number} seeds, {:.0} s", start.elapsed().as_secs_f64());
                    }
                }
            });
        }
    });
    let took = start.elapsed().max(Duration::from_millis(1)).as_secs_f64();
    let (ran, failed) = (tally.next.into_inner().min(plan.seeds), tally.failed.into_inner());
    println!(
        "{ran} seeds from {}, {} of them twice, {} events, {took:.1} s, {:.0} seeds/s, {failed} \
         failed; timelines {:016x}",
        plan.first,
        tally.repeated.into_inner(),
        tally.events.into_inner(),
        ran as f64 / took,
        tally.timelines.into_inner(),
    );
    failed == 0
}

/// Has members of partitions join and leave. Returns whether all is as it should be.
fn come_and_go(plan: &Plan) -> bool {
    let Plan { first, changes, .. } = *plan;
    if changes == 0 {
        return true;
    }
    let start = Instant::now();
    let figures = churn::churn(first, changes);
    match &figures {
        Ok(figures) => println!("{figures}, {:.1} s", start.elapsed().as_secs_f64()),
        Err(why) => println!(
            "members that come and go: {why}\nagain: cargo xtask simulate --seeds 0 --first {first} \
             --changes {changes}"
        ),
    }
    figures.is_ok()
}

/// Runs one seed, judges it, and adds it to the tally.
fn one(plan: &Plan, number: u64, tally: &Tally) {
    let seed = plan.first + number;
    let ran = run::simulate(seed);
    let timeline = ran.history.to_string();
    let mut sum = DefaultHasher::new();
    (seed, &timeline).hash(&mut sum);
    tally.timelines.fetch_add(sum.finish(), Ordering::Relaxed);
    tally.events.fetch_add(ran.history.entries().len() as u64, Ordering::Relaxed);
    let mut judged = checker::check(&ran.history);
    if run::REPEATABLE && number.is_multiple_of(plan.repeat_each) {
        tally.repeated.fetch_add(1, Ordering::Relaxed);
        judged = judged.and_then(|()| same(&ran, &run::simulate(seed)));
    }
    if plan.show || judged.is_err() {
        println!("{timeline}");
    }
    if let Err(why) = judged {
        tally.failed.fetch_add(1, Ordering::Relaxed);
        println!("seed {seed} failed\n{why}\nagain: cargo xtask simulate --seed {seed}");
    }
}

/// Whether two runs of a seed went the same way: to the last byte on the network, and to the last
/// letter of the timeline.
fn same(ran: &Ran, again: &Ran) -> Result<(), String> {
    let (one, other) = (ran.history.to_string(), again.history.to_string());
    let mut lines = one.lines().zip(other.lines()).enumerate();
    if let Some((number, (one, other))) = lines.find(|(_, (one, other))| one != other) {
        let number = number + 1;
        return Err(format!("went two ways, from line {number}:\n  {one}\n  {other}"));
    }
    if one != other || ran.history != again.history {
        return Err("went two ways, near the end".into());
    }
    if ran.traffic != again.traffic {
        return Err("went two ways: the timelines are equal, what was sent is not".into());
    }
    Ok(())
}
