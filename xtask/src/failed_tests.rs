//! Which tests failed, and whether they may be repeated.
//!
//! Most suites run in real time, in parallel, with servers as separate processes. On a machine that is slow
//! for a moment, one test in thousands fails: a JVM or a disk pauses for longer than a session timeout. So a
//! few failed tests run once more, alone, after everything else. Those that pass then are listed as UNSTABLE.
//! A failed computation is not repeated: a simulation gives the same result twice.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// If more tests of a suite fail, a slow machine is not the reason.
const MOST: usize = 3;

/// How a run of tests ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// Only these tests failed.
    Tests(Vec<String>),
    /// Many tests failed, or a program crashed or did not build.
    Failed,
}

/// Runs `cargo test`, shows what it prints, and reads it.
///
/// # Errors
///
/// If it cannot be started.
pub(crate) fn run(tests: &mut Command) -> Result<Outcome> {
    let (output, input) = io::pipe().context("no pipe")?;
    let both = input.try_clone().context("no pipe")?;
    let mut child = tests.stdout(input).stderr(both).spawn().context("cannot start cargo")?;
    // Otherwise the copies of the pipe would keep the reader below from reaching the end.
    tests.stdout(Stdio::null()).stderr(Stdio::null());
    let mut report = Report::default();
    for line in BufReader::new(output).lines() {
        let line = line.context("cannot read what cargo prints")?;
        println!("{line}");
        report.read(&line);
    }
    let status = child.wait().context("cannot wait for cargo")?;
    Ok(if status.success() { Outcome::Passed } else { report.outcome() })
}

/// The outcome according to the output of a failed `cargo test`.
pub(crate) fn in_output(output: &str) -> Outcome {
    let mut report = Report::default();
    output.lines().for_each(|line| report.read(line));
    report.outcome()
}

#[derive(Default)]
struct Report {
    failed: Vec<String>,
    /// The number of programs that cargo reports as failed, and of those that ran to their end.
    programs: usize,
    ended: usize,
    /// The number of failed tests according to those programs.
    counted: usize,
}

impl Report {
    fn read(&mut self, line: &str) {
        if let Some(name) =
            line.strip_prefix("test ").and_then(|test| test.strip_suffix(" ... FAILED"))
        {
            self.failed.push(name.to_owned());
        } else if let Some(counts) = line.strip_prefix("test result: FAILED. ") {
            let failed = counts.split("; ").find_map(|count| count.strip_suffix(" failed"));
            self.counted += failed.and_then(|count| count.parse().ok()).unwrap_or(0);
            self.ended += 1;
        } else if line.starts_with("error: test failed, to rerun pass `") {
            self.programs += 1;
        }
    }

    /// A program that crashed did not report the number of its failed tests.
    fn outcome(self) -> Outcome {
        let Self { failed, programs, ended, counted } = self;
        let is_known = programs == ended && failed.len() == counted;
        match is_known && (1..=MOST).contains(&counted) {
            true => Outcome::Tests(failed),
            false => Outcome::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUTEX: &str = "test mutex::zookeeper::l1 ... FAILED";
    const ONE: &str = "test result: FAILED. 20 passed; 1 failed; 0 ignored; 0 measured";
    const RERUN: &str = "error: test failed, to rerun pass `-p x --test contract`";

    fn outcome(lines: &[&str]) -> Outcome {
        in_output(&lines.join("\n"))
    }

    #[test]
    fn a_few_tests_that_failed_may_be_run_again() {
        let one = vec!["mutex::zookeeper::l1".to_owned()];
        let lines = ["test mutex::l2 ... ok", MUTEX, "Error: closed", ONE, "", RERUN];
        assert_eq!(outcome(&lines), Outcome::Tests(one.clone()));

        let two = [MUTEX, ONE, RERUN, "test one ... FAILED", ONE, RERUN];
        let names = [one, vec!["one".to_owned()]].concat();
        assert_eq!(outcome(&two), Outcome::Tests(names));
    }

    #[test]
    fn whatever_else_failed_is_final() {
        for worse in [
            vec![],
            vec!["error: could not compile `x`"],
            // It crashed in another test.
            vec![MUTEX, RERUN, "Caused by:", "  process didn't exit successfully"],
            vec![MUTEX, ONE, RERUN, RERUN],
            vec![ONE, RERUN],
            vec![MUTEX, MUTEX, MUTEX, MUTEX, "test result: FAILED. 0 passed; 4 failed", RERUN],
        ] {
            assert_eq!(outcome(&worse), Outcome::Failed, "{worse:?}");
        }
    }
}
