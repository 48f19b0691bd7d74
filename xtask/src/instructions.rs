//! `cargo xtask instructions`: compares the instruction counts of the hot paths with a stored baseline.
//!
//! Only counts, not times: a busy or slow machine gives the same count. Each path runs twice under valgrind
//! with different numbers of iterations, and the difference belongs to the loop.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::cargo::{self, succeeds, workspace};

/// The path of the baseline, relative to the workspace root.
const BASELINE: &str = "benches/instructions.json";

/// Hash seeds differ from run to run, and affect every count: those of one path through the tree vary by up
/// to 2 % around their median.
const TOLERANCE: f64 = 0.03;

/// The median of this many counts is stored. A deviation is reported only if the median deviates.
const SAMPLES: usize = 7;

const FEW: u32 = 500;
const MANY: u32 = 1_500;

/// The stored counts.
#[derive(Deserialize, Serialize)]
struct Baseline {
    /// A different compiler generates different code.
    compiler: String,
    /// Instructions per iteration of each path.
    counts: BTreeMap<String, u64>,
}

/// Whether to compare with the baseline or replace it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Compare,
    Bless,
}

/// Whether the instruction counter is available.
pub(crate) fn can_run() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Counts, and compares or replaces.
///
/// # Errors
///
/// If something cannot be built or counted, or a count differs by more than [`TOLERANCE`] from its baseline:
/// a higher count may be a regression, and after a lower one the baseline no longer detects regressions.
pub(crate) fn run(mode: Mode) -> Result<()> {
    let metadata = workspace()?;
    let build = ["build", "--release", "--package", "lockkeeper-hot-paths"];
    ensure!(succeeds(&mut cargo::command(&build))?, "the hot paths do not build");

    let program = metadata.target_directory.join("release/lockkeeper-hot-paths");
    let program = program.as_std_path();
    let file = metadata.workspace_root.join(BASELINE).into_std_path_buf();
    let baseline = match mode {
        Mode::Compare => Some(read(&file)?),
        Mode::Bless => None,
    };
    let mut counts = BTreeMap::new();
    for path in output(Command::new(program))?.lines() {
        let before = baseline.as_ref().and_then(|baseline| baseline.counts.get(path)).copied();
        counts.insert(path.to_owned(), settled(program, path, before)?);
    }

    let now = Baseline { compiler: compiler()?, counts };
    match baseline {
        Some(baseline) => compare(&baseline, &now),
        None => bless(&file, &now),
    }
}

/// One count if it matches the previous one, otherwise the median of several.
fn settled(program: &Path, path: &str, before: Option<u64>) -> Result<u64> {
    let mut counts = vec![iteration(program, path)?];
    if before.is_none_or(|before| change(before, counts[0]).abs() > TOLERANCE) {
        while counts.len() < SAMPLES {
            counts.push(iteration(program, path)?);
        }
        counts.sort_unstable();
    }
    Ok(counts[counts.len() / 2])
}

/// The instructions of one iteration.
fn iteration(program: &Path, path: &str) -> Result<u64> {
    let few = count(program, path, FEW)?;
    let many = count(program, path, MANY)?;
    Ok(many.saturating_sub(few) / u64::from(MANY - FEW))
}

/// The instructions of one run.
fn count(program: &Path, path: &str, iterations: u32) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([path, &iterations.to_string()])
        .stdin(Stdio::null());
    let result =
        command.output().context("cannot start valgrind: `cargo xtask setup` installs it")?;
    let said = String::from_utf8_lossy(&result.stderr);
    ensure!(result.status.success(), "{path} failed under valgrind:\n{said}");
    let count = said.lines().find_map(|line| line.split_once("Collected : ")?.1.parse().ok());
    count.with_context(|| format!("valgrind did not report a count for {path}:\n{said}"))
}

fn compiler() -> Result<String> {
    let mut command = Command::new("rustc");
    command.arg("--version");
    Ok(output(command)?.trim().to_owned())
}

fn output(mut command: Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

fn read(file: &Path) -> Result<Baseline> {
    let text = fs::read_to_string(file).with_context(|| {
        format!("cannot read {}; `cargo xtask instructions --bless` writes it", file.display())
    })?;
    Ok(serde_json::from_str(&text)?)
}

fn bless(file: &Path, now: &Baseline) -> Result<()> {
    for (path, count) in &now.counts {
        println!("{path:20} {count:>9}");
    }
    fs::write(file, serde_json::to_string_pretty(now)? + "\n")
        .with_context(|| format!("cannot write {}", file.display()))
}

fn compare(baseline: &Baseline, now: &Baseline) -> Result<()> {
    let findings = findings(&baseline.counts, &now.counts);
    println!("{:20} {:>9} {:>9}", "path", "baseline", "now");
    for (path, count) in &now.counts {
        let before = baseline.counts.get(path).map_or("-".to_owned(), u64::to_string);
        println!("{path:20} {before:>9} {count:>9}");
    }
    if findings.is_empty() {
        println!("all within {} %", TOLERANCE * 100.0);
        return Ok(());
    }

    // A different compiler generates different code for the same source.
    let hint = match baseline.compiler == now.compiler {
        true => String::new(),
        false => format!(
            "\nthe baseline was made with {}, this is {}: their code differs",
            baseline.compiler, now.compiler
        ),
    };
    bail!(
        "{}{hint}\nif the change is intended: cargo xtask instructions --bless",
        findings.join("\n")
    );
}

/// The deviation of a count from its baseline, as a fraction.
fn change(before: u64, count: u64) -> f64 {
    (count as f64 - before as f64) / before.max(1) as f64
}

/// A line for each path whose count deviates from its baseline, or that exists only in one of the two.
fn findings(baseline: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, &count) in now {
        match baseline.get(path) {
            None => findings.push(format!("{path}: no baseline")),
            Some(&before) => {
                let change = change(before, count);
                if change.abs() > TOLERANCE {
                    let percent = change * 100.0;
                    findings.push(format!("{path}: {before} -> {count} ({percent:+.1} %)"));
                }
            }
        }
    }

    let gone = baseline.keys().filter(|path| !now.contains_key(*path));
    findings.extend(gone.map(|path| format!("{path}: in the baseline, but not counted any more")));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
        counts.iter().map(|&(path, count)| (path.to_owned(), count)).collect()
    }

    #[test]
    fn both_directions_leave_the_baseline() {
        let baseline = counts(&[("up", 1_000), ("down", 1_000), ("near", 1_000), ("gone", 1)]);
        let now = counts(&[("up", 1_031), ("down", 969), ("near", 1_029), ("new", 5)]);
        let findings = findings(&baseline, &now);
        assert_eq!(
            findings,
            [
                "down: 1000 -> 969 (-3.1 %)",
                "new: no baseline",
                "up: 1000 -> 1031 (+3.1 %)",
                "gone: in the baseline, but not counted any more",
            ]
        );
    }
}
