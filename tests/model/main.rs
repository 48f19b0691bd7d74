//! Every order in which things can happen to a few clients of one lock, consumers of one item, or parties of one barrier,
//! up to a bound.
//!
//! All of it is the code that runs in production: the locks, the queue and the client as they are, each client
//! in a runtime of its own, and the engine's tree as the server. The network loses connections before
//! and after each message, time passes in steps, sessions expire, waits are cancelled, holders
//! upgrade, downgrade, enter once more, and give back what they acquire again at once, the number of
//! permits changes, and the server restarts or has its data put back.
//!
//! ```text
//!   scenarios    the requests of the clients, and how often each fault may happen
//!   search       visits every state, the closest first; reports the path to a wrong state
//!   state        all of it at one moment, and what can happen next
//!   judge        what must be true of every state          items     ... of the item of a queue
//!                                                          rounds    ... of the rounds of a barrier
//!   histories    a client is a function of its history: each history is run once
//!   program      ... what it does on a command             machine   ... its clock and network
//!   wanted       ... what it asks for
//!   service      the server's states, each of whose inputs is handled once
//!   timeline     steps as people read them                frames    messages, each kept once
//! ```

// The build that is exactly repeatable has a name that cargo does not know.
#![allow(unexpected_cfgs)]

mod frames;
mod histories;
mod items;
mod judge;
mod machine;
mod program;
mod rounds;
mod scenarios;
mod search;
mod service;
mod state;
mod timeline;
mod wanted;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper_tests::is_wanted;

use crate::scenarios::{Length, SCENARIOS, Scenario};
use crate::search::Totals;

/// Much of the time goes into small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The lock.
const LOCK: &str = "/l";

/// The queue.
const QUEUE: &str = "/q";

/// The barrier.
const BARRIER: &str = "/b";

/// What holders write to that ride out outages. It is not there, and so nothing comes of it.
const WORK: &str = "/effects";

/// How long the server keeps a session that it does not hear of.
const TIMEOUT: Duration = Duration::from_secs(6);

/// What the command line asks for.
struct Plan {
    length: Length,
    filter: String,
    /// The path to one state of the first scenario, to be reported.
    path: Option<String>,
    /// Where the page goes.
    docs: Option<PathBuf>,
    /// How many scenarios are looked at side by side.
    jobs: usize,
}

impl Plan {
    fn of(length: Length) -> Self {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        Self { length, filter: String::new(), path: None, docs: None, jobs }
    }

    fn parse(arguments: &[String]) -> Option<Self> {
        let mut plan = Self::of(Length::Short);
        let mut arguments = arguments.iter();
        while let Some(option) = arguments.next() {
            match option.as_str() {
                "--long" => plan.length = Length::Long,
                "--only" => plan.filter.clone_from(arguments.next()?),
                "--path" => plan.path = Some(arguments.next()?.clone()),
                "--docs" => plan.docs = Some(arguments.next()?.into()),
                "--jobs" => plan.jobs = arguments.next()?.parse().ok()?,
                _ => return None,
            }
        }
        Some(plan)
    }

    fn scenarios(&self) -> Vec<&'static Scenario> {
        let is_wanted = |scenario: &&Scenario| {
            scenario.length <= self.length && scenario.name.contains(&self.filter)
        };
        SCENARIOS.iter().filter(is_wanted).collect()
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    const NAME: &str = "model::scenarios";
    let plan = if arguments.first().is_some_and(|first| first == "run") {
        Plan::parse(&arguments[1..])
    } else if is_wanted(NAME, &arguments) {
        Some(Plan::of(Length::Moment))
    } else {
        return ExitCode::SUCCESS;
    };
    let Some(plan) = plan else {
        eprintln!(
            "arguments: run [--long] [--only WORDS [--path STEPS]] [--docs FOLDER] [--jobs N]"
        );
        return ExitCode::FAILURE;
    };
    let result = match (&plan.path, plan.scenarios().first()) {
        (Some(path), Some(scenario)) => search::tell(scenario, path).map(|told| println!("{told}")),
        _ => check_all(&plan),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Looks at all scenarios, some at a time.
fn check_all(plan: &Plan) -> Result<(), String> {
    let scenarios = plan.scenarios();
    let results: Vec<_> = scenarios.iter().map(|_| Mutex::new(None)).collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs {
            scope.spawn(|| {
                while failed.load(Ordering::Relaxed) == 0 {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(number) else { return };
                    let result = search::search(scenario);
                    match &result {
                        Ok(totals) => println!("{}: {totals}", scenario.name),
                        Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
                    }
                    *results[number].lock().expect("the lock is not poisoned") = Some(result);
                }
            });
        }
    });

    let mut table = String::from(HEAD);
    for (scenario, result) in scenarios.iter().zip(results) {
        let Some(result) = result.into_inner().expect("the lock is not poisoned") else { continue };
        row(&mut table, scenario, &result?);
    }
    if let Some(docs) = &plan.docs {
        let page = docs.join("model.md");
        std::fs::write(&page, table).map_err(|error| format!("{}: {error}", page.display()))?;
    }
    Ok(())
}

/// The page, above its rows.
const HEAD: &str = "\
# States of the model

Written by `cargo xtask model --long`; do not edit. Every state that can be reached within the bounds,
and in each of them every promise was true. *Steps* are what leads from one state to the next, all of
which were tried, and *depth* is the most of them to a state that is reached in no shorter way.
*Histories* are the different things that can happen to one client, for each of which real clients ran;
*servers* are the different states of the engine's tree.

What a client sends at once may *arrive* one by one, with what others send in between, or only together,
unless the connection is lost in the middle of it.

| what, and what may go wrong | arrive | states | steps | depth | histories | servers | seconds |
|---|---|--:|--:|--:|--:|--:|--:|
";

fn row(table: &mut String, scenario: &Scenario, totals: &Totals) {
    let numbers = [
        totals.states as u64,
        totals.transitions,
        totals.depth as u64,
        totals.histories as u64,
        totals.servers as u64,
    ];
    let arrive = if scenario.bounds.together { "together" } else { "one by one" };
    let _ = write!(table, "| {} | {arrive} |", scenario.name);
    for number in numbers {
        let _ = write!(table, " {} |", thousands(number));
    }
    let _ = writeln!(table, " {:.1} |", totals.took.as_secs_f64());
}

/// A number as people read it.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
