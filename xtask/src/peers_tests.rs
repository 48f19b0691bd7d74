//! Which tests failed, and whether another server's standstill may be the reason.
//!
//! A contract on Apache ZooKeeper fails when its JVM or its disk stands still for longer than a
//! session lives, which on a machine shared with others happens once in thousands of tests. Such a
//! test may be run once more. Nothing else may: what fails on the engine, in a simulation or in a
//! contest of programs is a bug until it is understood.

use std::io::{self, BufRead, BufReader};
use std::process::Command;

use anyhow::{Context, Result};

use crate::steps::Verdict;

/// The suite whose tests run on both backends, and the part of their names for the other one.
const SUITE: &str = "contract/main.rs";
const ON_PEER: &str = "::zookeeper::";

/// How a run of all tests ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// Nothing failed but these contracts on Apache ZooKeeper.
    OnlyWithPeers(Vec<String>),
}

impl Outcome {
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Outcome::Passed => Verdict::Passed,
            Outcome::Failed | Outcome::OnlyWithPeers(_) => Verdict::Failed,
        }
    }
}

/// Runs `cargo test`, shows what it prints, and reads it.
///
/// # Errors
///
/// It does not start.
pub(crate) fn run(tests: &mut Command) -> Result<Outcome> {
    let (output, input) = io::pipe().context("no pipe")?;
    let both = input.try_clone().context("no pipe")?;
    let mut child = tests.stdout(input).stderr(both).spawn().context("cannot start cargo")?;
    // Its copies of the pipe's end would keep the reading below from ending.
    tests.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut failures = Failures::default();
    for line in BufReader::new(output).lines() {
        let line = line.context("cannot read what cargo prints")?;
        println!("{line}");
        failures.read(&line);
    }
    let status = child.wait().context("cannot wait for cargo")?;
    Ok(if status.success() { Outcome::Passed } else { failures.outcome() })
}

#[derive(Default)]
struct Failures {
    suite: String,
    with_peers: Vec<String>,
    /// Whether anything else failed.
    others: bool,
    /// Whether the last line with anything in it was an error of cargo's own.
    after_error: bool,
}

impl Failures {
    fn read(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some(running) = trimmed.strip_prefix("Running ") {
            self.suite = running.to_owned();
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|test| test.strip_suffix(" ... FAILED"))
        {
            match self.suite.contains(SUITE) && name.contains(ON_PEER) {
                true => self.with_peers.push(name.to_owned()),
                false => self.others = true,
            }
        } else if line.starts_with("error") {
            self.others |= !is_known(line);
        } else if line.starts_with("Caused by:") {
            // A test that returns an error with causes prints this line too.
            self.others |= self.after_error;
        }

        if !trimmed.is_empty() {
            self.after_error = line.starts_with("error");
        }
    }

    fn outcome(self) -> Outcome {
        const MOST: usize = 3;
        match self.others || !(1..=MOST).contains(&self.with_peers.len()) {
            true => Outcome::Failed,
            false => Outcome::OnlyWithPeers(self.with_peers),
        }
    }
}

/// Cargo's own lines after tests that failed. Other suites have the same, and may have crashed
/// without the name of a test; so does this one, with a cause.
fn is_known(error: &str) -> bool {
    error.starts_with("error: 1 target failed:")
        || (error.starts_with("error: test failed, to rerun pass")
            && error.contains("--test contract`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lines: &[&str]) -> Outcome {
        let mut failures = Failures::default();
        lines.iter().for_each(|line| failures.read(line));
        failures.outcome()
    }

    const CONTRACT: &str = "     Running contract/main.rs (target/debug/deps/contract-1)";
    const RERUN: &str = "error: test failed, to rerun pass `-p x --test contract`";

    #[test]
    fn only_a_contract_on_the_peer_may_be_tried_again() {
        let on_peer = "test mutex::zookeeper::l1 ... FAILED";
        let on_engine = "test mutex::embedded::l1 ... FAILED";
        let again = Outcome::OnlyWithPeers(vec!["mutex::zookeeper::l1".to_owned()]);
        let returned = ["Error: the connection was lost", "", "Caused by:", "    closed"];
        let failed = [CONTRACT, on_peer, RERUN, "error: 1 target failed:"];
        assert_eq!(outcome(&failed), again);
        let failed = [&failed[..2], &returned, &failed[2..]].concat();
        assert_eq!(outcome(&failed), again);
        for worse in [
            vec![CONTRACT, on_peer, on_engine],
            vec![CONTRACT, on_peer, on_peer, on_peer, on_peer],
            vec!["     Running cluster/main.rs (target/debug/deps/cluster-1)", on_peer],
            vec![CONTRACT, on_peer, "error: could not compile"],
            vec![CONTRACT, on_peer, "error: test failed, to rerun pass `-p x --test cluster`"],
            vec![CONTRACT, on_peer, RERUN, "", "Caused by:"],
            vec![],
        ] {
            assert_eq!(outcome(&worse), Outcome::Failed, "{worse:?}");
        }
    }
}
