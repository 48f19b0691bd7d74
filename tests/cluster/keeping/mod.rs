//! No healthy holder loses its lock.
//!
//! A grant looks at a lease that was proven when the contender's node was created, so it may be old
//! by the time that the lock is granted. Each case takes one kind of lock after some share of a
//! lease (behind another holder, in an idle process, during a lock delay), and then holds it for
//! three leases on a healthy server. The lock must never be lost, and its deadline must always lie
//! in the future.
//!
//! | file | what |
//! |---|---|
//! | `plan` | the rounds: which timeouts and ticks, which kinds, which shares of a lease |
//! | `servers` | the engine and a ZooKeeper with the tick of a round, and how fast they answer |
//! | `scene` | what one case has to itself, and how it waits |
//! | `kinds/` | the kinds of locks, in the library and in the command |
//! | `held` | holding, and looking at what is left of the lease |
//! | `cases` | cases side by side; those that fail run again, alone |
//! | `report` | the table |
//!
//! As a test, a few shares of short leases run. `cargo xtask keeping` runs all of them.

mod cases;
mod held;
mod kinds;
mod plan;
mod report;
mod scene;
mod servers;

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::keeping::plan::{Plan, Round};
use crate::keeping::servers::Servers;

/// What `cargo xtask keeping` starts.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    rounds(&Plan::parse(arguments)?).await
}

/// What `cargo test` starts.
pub(crate) async fn short() -> Result<()> {
    rounds(&Plan::short()).await
}

async fn rounds(plan: &Plan) -> Result<()> {
    let mut failed = 0;
    for round in &plan.rounds {
        failed += play(round).await?;
    }
    ensure!(failed == 0, "{failed} cases failed on healthy servers, see above");
    Ok(())
}

/// Runs one round and prints its table; returns how many cases failed.
async fn play(round: &Round) -> Result<usize> {
    if round.has_commands() {
        // Built by now, and not in the middle of a case.
        lockkeeper_testkit::command::lockkeeper()?;
    }
    let servers = Servers::start(round.form).await?;
    let cases = round.cases(&servers.names());
    println!("\n{}: {} cases", round.form, cases.len());
    let start = Instant::now();
    let outcomes = cases::all(&cases, &servers, round.form).await;
    print!("{}", report::page(&outcomes, &servers));
    println!("{:.0} s", start.elapsed().as_secs_f64());
    Ok(outcomes.iter().filter(|outcome| outcome.has_failed()).count())
}
