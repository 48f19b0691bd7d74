//! Real servers, real programs in three languages, and everything that can go wrong with them.
//!
//! Three Apache ZooKeeper servers and the programs are on hosts of their own (network namespaces
//! with wall clocks of their own). Programs on this library, on Apache Curator and on kazoo hold
//! locks of all kinds during a script of faults, which is derived from a seed. Programs on this
//! library also share data, provide a service and are members of a group, as they do in the
//! simulation. Then all faults are repaired: every program must get a turn, and no node may be left. The test kit's
//! checker checks the results of all programs, as in the simulation.
//!
//! As a test it runs one seed for three minutes; `LOCKKEEPER_SEED` gives another one.
//! `cargo xtask ensemble` runs it for as long as wanted.

pub(crate) mod contender;
mod diagnosis;
mod field;
mod programs;
mod recorder;
mod script;
pub(crate) mod sharing;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use clap::Args;
use lockkeeper_testkit::beliefs::{Overlap, overlaps};
use lockkeeper_testkit::checker;
use lockkeeper_testkit::history::{Entry, History, What};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::sharing::Done;

use self::diagnosis::Disagreements;
use self::field::Field;
use self::programs::{Language, PARTICIPANTS};
use self::script::{Step, script};

/// For how many minutes things go wrong in the short form; a third one goes by at the beginning and
/// at the end.
const SHORT: u64 = 2;

/// After so many minutes everything is healed and checked, and begins anew: histories stay
/// readable.
const EPISODE: u64 = 10;

#[derive(Args)]
pub(crate) struct EnsembleOptions {
    /// For how long things go wrong. Every ten minutes everything is healed and checked, and then
    /// begins anew with the next seed.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Repeats the script of faults of the run that has printed this seed; its minutes belong to it.
    #[arg(long, default_value_t = fastrand::u64(0..1 << 32))]
    seed: u64,
}

/// What `cargo test` starts.
pub(crate) async fn short() -> Result<()> {
    let seed = env::var("LOCKKEEPER_SEED").ok().and_then(|seed| seed.parse().ok());
    EnsembleOptions { seed: seed.unwrap_or(1), minutes: SHORT }.run().await
}

impl EnsembleOptions {
    /// How many runs may be void, one in five: more of them would hide what is to be found.
    fn void_at_most(&self) -> u64 {
        (self.minutes / EPISODE / 5).max(1)
    }

    pub(crate) async fn run(&self) -> Result<()> {
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
                EnsembleOutcome::Kept => left -= minutes,
                EnsembleOutcome::Void => void += 1,
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
enum EnsembleOutcome {
    Kept,
    /// Void: some programs made no progress, or did not read what was written, and the servers had different trees.
    Void,
}

/// Promises that a history breaks.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(String);

/// One set of servers and programs, from the beginning to the end. What explains a failure is kept.
async fn episode(seed: u64, minutes: u64) -> Result<EnsembleOutcome> {
    let mut field = Field::start(seed).await?;
    let Err(broken) = go_through(&mut field, seed, minutes).await else {
        return Ok(EnsembleOutcome::Kept);
    };
    let history = field.recorder.history();
    let mut kept = vec![keep_text(seed, "timeline", &history.to_string())];
    if let Some(diagnosis) = &field.diagnosis {
        kept.push(keep_text(seed, "diagnosis", diagnosis));
    }
    kept.push(keep_folders(seed, &field.folders()));
    let (verdict, kept) = (verdict(&field.disagreements), kept.join("\n"));
    if broken.is::<Broken>() && checker::are_locks_safe(&history) && field.is_explained() {
        println!("{verdict}{broken:#}\n{kept}\nvoid: another run takes the place of this one");
        return Ok(EnsembleOutcome::Void);
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
    // Nodes left by stuck programs are no further evidence.
    if went_on {
        field.end().await?;
    }
    let history = field.recorder.history();
    println!("{}", table(&history));
    let done = Done::of(&history);
    println!("{done}");
    let is_enough = done.is_enough() && done.views > 0;
    ensure!(!went_on || is_enough, "too little was done with shared data");
    Ok(checker::check(&history).map_err(Broken)?)
}

/// Runs a script. Returns whether all programs make progress before and after.
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

// ----- the turns of each program, and holds that were believed for too long ---------------------

#[derive(Default)]
struct Row {
    turns: usize,
    interrupted: usize,
    admitted: usize,
    refused: usize,
    overlaps: usize,
    longest: Duration,
}

/// A table with a row for each library and each of its locks, in Markdown.
fn table(history: &History) -> String {
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    for Entry { who, what, .. } in history.entries() {
        let Some(row) = key(who).map(|key| rows.entry(key).or_default()) else { continue };
        match what {
            What::Granted { .. } | What::Believes { .. } => row.turns += 1,
            What::Lost { .. } | What::Warned => row.interrupted += 1,
            What::Admitted { .. } => row.admitted += 1,
            What::Refused { .. } => row.refused += 1,
            _ => {}
        }
    }
    for Overlap { who, lasted, .. } in overlaps(history) {
        if let Some(row) = key(&who).and_then(|key| rows.get_mut(&key)) {
            row.overlaps += 1;
            row.longest = row.longest.max(lasted);
        }
    }
    let mut text = String::from(
        "| library | lock | turns | losses and warnings | writes: admitted | refused | believed for \
         too long | longest |\n|---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for ((library, lock), row) in rows {
        let Row { turns, interrupted, admitted, refused, overlaps, longest } = row;
        let longest = longest.as_secs_f64();
        let _ = writeln!(
            text,
            "| {library} | {lock} | {turns} | {interrupted} | {admitted} | {refused} | {overlaps} \
             | {longest:.2} s |"
        );
    }
    text
}

/// The library and the lock of a worker of a lock.
fn key(who: &str) -> Option<(String, String)> {
    let (name, lock) = who.split_once('/')?;
    let participant = PARTICIPANTS.iter().find(|participant| participant.name == name)?;
    participant.workers().find(|worker| worker == who)?;
    let library = match participant.language {
        Language::Rust => "Lockkeeper",
        Language::Java => "Curator",
        Language::Python => "kazoo",
    };
    Some((library.to_owned(), lock.to_owned()))
}

// ----- what is kept of a run that broke a promise ---------------------------------------------

/// A file or folder of this seed, next to the test binary, so that `cargo clean` removes it.
fn place(seed: u64, kind: &str) -> PathBuf {
    let name = format!("ensemble-{seed}.{kind}");
    env::current_exe().unwrap_or_default().with_file_name(name)
}

/// Says where the text is, or why it is not there.
fn keep_text(seed: u64, kind: &str, text: &str) -> String {
    let file = place(seed, kind);
    match fs::write(&file, text) {
        Ok(()) => format!("The {kind} is in {}", file.display()),
        Err(error) => format!("The {kind} cannot be written: {error}"),
    }
}

/// Copies folders, in place of what was kept of this seed before, and says where they are.
fn keep_folders(seed: u64, folders: &[(String, &Path)]) -> String {
    let target = place(seed, "kept");
    let kept = || -> Result<()> {
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
        fs::create_dir_all(&target)?;
        for (name, folder) in folders {
            // A server may remove some of it during the copy.
            let copied =
                Command::new("cp").arg("-r").arg(folder).arg(target.join(name)).output()?;
            if !copied.status.success() {
                eprintln!("not all is kept: {}", String::from_utf8_lossy(&copied.stderr).trim());
            }
        }
        Ok(())
    };
    match kept() {
        Ok(()) => format!("Logs, and the servers' data, are in {}", target.display()),
        Err(error) => format!("Logs cannot be kept: {error:#}"),
    }
}
