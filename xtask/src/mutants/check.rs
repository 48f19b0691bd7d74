//! The checks that detect bugs, and how to recognise a detected bug in their output.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::command;
use crate::mutants::patch::Check;
use crate::proof::PROFILE;
use crate::steps::text;

/// Cargo in the copy of the sources, with its own target folder.
pub(super) struct Checks {
    tree: PathBuf,
    target: PathBuf,
}

impl Checks {
    pub(super) fn new(tree: PathBuf, target: PathBuf) -> Self {
        Self { tree, target }
    }

    /// Type-checks the packages that a patch affects.
    pub(super) fn compile(&self, touched: &BTreeSet<String>) -> Result<()> {
        for arguments in touched {
            built(self.cargo(&["check", "--quiet"]).args(arguments.split(' ')))?;
        }
        Ok(())
    }

    /// Builds a check. A compile error does not count as detection.
    pub(super) fn build(&self, check: &Check) -> Result<()> {
        built(self.test(check).arg("--no-run"))
    }

    /// The symptom if the check fails with the current sources; `None` if it passes.
    pub(super) fn run(&self, check: &Check) -> Result<Option<String>> {
        let mut run = self.test(check);
        run.arg("--").args(&check.arguments);
        run.envs(check.seeds.map(|seeds| ("LOCKKEEPER_LEASE_SEEDS", seeds.to_string())));

        let output = run.output().context("cannot start cargo")?;
        if output.status.success() {
            return Ok(None);
        }
        let text = text(&output);
        match symptom(&text) {
            Some(how) => Ok(Some(how)),
            None => bail!("{check}: the suite does not run:\n{text}"),
        }
    }

    fn test(&self, check: &Check) -> Command {
        let mut test = self.cargo(&["test", "--quiet", "--profile", PROFILE]);
        test.args(["--manifest-path", &format!("{}/Cargo.toml", check.package)]);
        test.args(&check.target);
        test
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        // Like the simulation, which must be exactly repeatable. The same for all checks, so that tokio is
        // built once.
        command.env("RUSTFLAGS", "--cfg tokio_unstable");
        command
    }
}

fn built(command: &mut Command) -> Result<()> {
    let output = command.output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("it does not compile:\n{}", text(&output));
    }
    Ok(())
}

/// The finding in a suite's output, with the seed if there is one; `None` if there is no finding.
fn symptom(text: &str) -> Option<String> {
    let after = |words| text.lines().find_map(move |line| line.strip_prefix(words));
    let beliefs = || text.lines().find(|line| line.starts_with("error: two holders for "));
    let test = || text.lines().find_map(|line| line.strip_suffix(" --- FAILED"));
    let how = after("violated: ").or_else(beliefs).or_else(test)?.trim_start_matches("error: ");
    let how = how.split(". Again").next().unwrap_or_default();

    let number = |line: &str| line.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok();
    Some(match after("seed ").and_then(number) {
        Some(seed) => format!("{how} (seed {seed})"),
        None => how.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symptom_is_what_a_suite_says_and_not_what_a_compiler_says() {
        let simulation = "0.1 s held\nseed 7 failed\nviolated: every wait ends\nagain: x\n";
        assert_eq!(symptom(simulation).unwrap(), "every wait ends (seed 7)");
        let libtest = "F.\nno_session_expires --- FAILED\n\nseed 12: told 4s, expired at 3s\n";
        assert_eq!(symptom(libtest).unwrap(), "no_session_expires (seed 12)");
        let partition = "form\nerror: two holders for 8.060 s. Again: cargo xtask partition\n";
        assert_eq!(symptom(partition).unwrap(), "two holders for 8.060 s");
        assert_eq!(symptom("error[E0425]: cannot find value `seed` in this scope"), None);
    }
}
