//! Real servers, real programs in three languages, and everything that can go wrong with them.
//!
//! Three Apache ZooKeeper servers and the programs are on hosts of their own (network namespaces
//! with wall clocks of their own). Programs on this library, on Apache Curator and on kazoo hold
//! locks of all kinds while a script of faults, which follows from a seed, goes on; those on this
//! library share data, provide a service and are members of a group as well, as they do in the
//! simulation. Then all is healed: everybody must get a turn, and nothing may be left. What all of them
//! were told is checked by the test kit's checker, as in the simulation.
//!
//! As a test it runs one seed for three minutes; `LOCKKEEPER_SEED` gives another one.
//! `cargo xtask ensemble` runs it for as long as wanted.

pub(crate) mod contender;
mod diagnosis;
mod evidence;
mod field;
mod locks;
mod programs;
mod recorder;
mod report;
mod script;
pub(crate) mod sharing;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper_testkit::checker;
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::sharing::Done;
use lockkeeper_tests::read_options;

use crate::ensemble::diagnosis::Disagreements;
use crate::ensemble::field::Field;
use crate::ensemble::script::{Step, script};

/// For how many minutes things go wrong in the short form; a third one goes by at the beginning and
/// at the end.
const SHORT: u64 = 2;

/// After so many minutes everything is healed and checked, and begins anew: histories stay
/// readable.
const EPISODE: u64 = 10;

/// What `cargo xtask ensemble` starts.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    Plan::parse(arguments)?.run().await
}

/// What `cargo test` starts.
pub(crate) async fn short() -> Result<()> {
    let seed = std::env::var("LOCKKEEPER_SEED").ok().and_then(|seed| seed.parse().ok());
    Plan { seed: seed.unwrap_or(1), minutes: SHORT }.run().await
}

/// What the command line asks for.
struct Plan {
    seed: u64,
    minutes: u64,
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut plan = Self { seed: fastrand::u64(0..1 << 32), minutes: SHORT };
        read_options(arguments, |option, value| {
            match option {
                "--seed" => plan.seed = value.parse()?,
                "--minutes" => plan.minutes = value.parse()?,
                _ => bail!("there is no such option"),
            }
            Ok(())
        })?;
        Ok(plan)
    }

    /// How many runs may be void, one in five: more of them would hide what is to be found.
    fn void_at_most(&self) -> u64 {
        (self.minutes / EPISODE / 5).max(1)
    }

    async fn run(&self) -> Result<()> {
        let needed = [Peer::ZooKeeper, Peer::Network, Peer::WallClock, Peer::Curator, Peer::Kazoo];
        if !peers::ready("ensemble", &needed) {
            return Ok(());
        }
        let (mut left, mut seed, mut void) = (self.minutes, self.seed, 0);
        while left > 0 {
            let minutes = left.min(EPISODE);
            let again = format!("cargo xtask ensemble --seed {seed} --minutes {minutes}");
            println!("seed {seed}; again: {again}");
            match episode(seed, minutes).await.with_context(|| format!("Again: {again}"))? {
                Outcome::Kept => left -= minutes,
                Outcome::Void => void += 1,
            }
            if void > self.void_at_most() {
                ensure!(
                    self.minutes <= EPISODE,
                    "too often servers disagreed: {void} runs are void"
                );
                // The short form says no more than that locks were safe.
                peers::report(&format!(
                    "VOID: ensemble: ZooKeeper's servers had different trees in all of {void} runs"
                ));
                return Ok(());
            }
            seed += 1;
        }
        Ok(())
    }
}

/// What a run says of the promises.
enum Outcome {
    Kept,
    /// Nothing: not everybody got on, or read what was written, and the servers had different trees.
    Void,
}

/// Promises that a history breaks.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(String);

/// One set of servers and programs, from the beginning to the end. What explains a failure is kept.
async fn episode(seed: u64, minutes: u64) -> Result<Outcome> {
    let mut field = Field::start(seed).await?;
    let Err(broken) = go_through(&mut field, seed, minutes).await else {
        return Ok(Outcome::Kept);
    };
    let history = field.recorder.history();
    let mut kept = vec![evidence::keep_text(seed, "timeline", &history.to_string())];
    if let Some(diagnosis) = &field.diagnosis {
        println!("{}", diagnosis.summary);
        kept.push(evidence::keep_text(seed, "diagnosis", &diagnosis.whole));
    }
    kept.push(evidence::keep_folders(seed, &field.folders()));
    let (verdict, kept) = (verdict(&field.disagreements), kept.join("\n"));
    if broken.is::<Broken>() && checker::are_locks_safe(&history) && field.is_explained() {
        println!("{verdict}{broken:#}\n{kept}\nvoid: another run takes the place of this one");
        return Ok(Outcome::Void);
    }
    Err(anyhow::anyhow!("{verdict}{broken:#}\n{kept}"))
}

/// What is known of the servers, before what is known of the programs: these could not keep their
/// promises if those have different histories.
fn verdict(disagreements: &Disagreements) -> String {
    let Disagreements { found, lost } = disagreements;
    let found: Vec<_> = found.iter().map(String::as_str).collect();
    let sure = if lost.is_empty() { "by their own word" } else { "which is proven" };
    match found[..] {
        [] => String::new(),
        _ => format!("THE SERVERS DISAGREE, {sure}:\n  {}\n", found.join("\n  ")),
    }
}

async fn go_through(field: &mut Field, seed: u64, minutes: u64) -> Result<()> {
    let went_on = go_wrong(field, script(seed, Duration::from_secs(60 * minutes))).await?;
    // What is left by those who are stuck says nothing more.
    if went_on {
        field.end().await?;
    }
    let history = field.recorder.history();
    println!("{}", report::table(&history));
    let done = Done::of(&history);
    println!("{done}");
    let is_enough = done.is_enough() && done.views > 0;
    ensure!(!went_on || is_enough, "too little was done with shared data");
    Ok(checker::check(&history).map_err(Broken)?)
}

/// Goes through a script; tells whether everybody gets on before and after.
async fn go_wrong(field: &mut Field, script: Vec<Step>) -> Result<bool> {
    if !field.everybody_goes_on().await.context("before anything is wrong")? {
        return Ok(false);
    }
    for step in script {
        println!("  {step}");
        field.recorder.note("world", What::Fault(step.fault.to_string()));
        field.strike(step.fault).await.with_context(|| step.to_string())?;
        tokio::time::sleep(step.lasts).await;
        field.recorder.note("world", What::Fault("healed".into()));
        field.heal()?;
        tokio::time::sleep(step.rest).await;
    }
    field.everybody_goes_on().await.context("after everything is healed")
}
