//! `cargo xtask test`: every check, every test, every example, on plain cargo.

use std::cell::RefCell;
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{Message, Metadata, TargetKind};

use crate::cargo::{command, succeeds, workspace};
use crate::failed_tests::Outcome;
use crate::instructions;
use crate::setup::{MissingPeers, Needs};
use crate::steps::{Beside, Steps, Verdict};
use crate::{deny, dist, failed_tests, layers, links, promises, recipes, sections, setup};

/// A suite of the daily run, or an xtask.
struct Suite {
    name: &'static str,
    lane: Lane,
    /// The number of parallel tests: most of them mainly wait for processes and servers.
    threads: usize,
    /// The seconds that it may take with two processors.
    share: u64,
}

/// When a suite runs. Suites that measure delays have priority over suites that run in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// Before all others: it measures the speed or the memory of a server.
    First,
    /// In parallel with the next ones, and with priority over them.
    Servers,
    /// One after the other.
    Others,
    /// From beginning to end, with the processor time that the others leave, as this xtask, which does more
    /// than the suite of the same name.
    Computing(&'static [&'static str]),
    /// After all others: a task of ours that needs what they have built.
    Last,
}

/// Every suite has its time share here.
const SUITES: &[Suite] = &[
    suite("cost", Lane::First, 1, 30),
    suite("allocations", Lane::First, 1, 5),
    suite("engine", Lane::First, 2, 90),
    suite("cluster", Lane::Servers, 1, 330),
    suite("fleet", Lane::Others, 2, 40),
    suite("client", Lane::Others, 8, 20),
    suite("tls", Lane::Others, 8, 10),
    suite("leases", Lane::Others, 2, 10),
    suite("contract", Lane::Others, 16, 150),
    suite("command", Lane::Others, 6, 150),
    suite("monitoring", Lane::Others, 1, 30),
    suite("console", Lane::Others, 2, 90),
    suite("interop", Lane::Others, 4, 135),
    suite("clients", Lane::Others, 4, 30),
    suite("peers", Lane::Others, 4, 20),
    suite("differential", Lane::Others, 2, 70),
    suite("simulation", Lane::Computing(&["simulate", "--seeds", "4000"]), 1, 480),
    suite("model", Lane::Computing(&["model"]), 1, 60),
    suite("mutants", Lane::Computing(&["mutants", "--check"]), 1, 90),
    suite("instructions", Lane::Computing(&["instructions"]), 1, 120),
    suite("dist", Lane::Last, 1, 150),
];

const fn suite(name: &'static str, lane: Lane, threads: usize, share: u64) -> Suite {
    Suite { name, lane, threads, share }
}

fn share(name: &str) -> Option<u64> {
    SUITES.iter().find(|suite| suite.name == name).map(|suite| suite.share)
}

/// The steps that run tests but are not suites.
const UNITS: &str = "unit tests";
const DOC_TESTS: &str = "doc tests";

/// The priority of suites below those of [`Lane::Servers`], and of computations below all others.
const POLITE: &str = "10";
const LAST: &str = "19";

/// An example shows one thing; one that runs for longer hangs.
const EXAMPLE_LIMIT: Duration = Duration::from_secs(60);

/// Runs everything, or only the tests that match `filter`.
///
/// # Errors
///
/// If a step failed. All steps run, and the table shows which ones failed.
pub(crate) fn run(policy: MissingPeers, filter: Option<&str>) -> Result<()> {
    let workspace = Workspace::open(policy)?;
    let mut steps = Steps::new(share);
    match filter {
        Some(filter) => {
            steps.run("build", build);
            steps.run("tests", || passed(workspace.cargo_test().arg(filter)));
        }
        None => workspace.everything(&mut steps)?,
    }

    let ended = finish(&steps);
    workspace.skips().iter().for_each(|skip| println!("{skip}"));
    ended
}

/// Runs what takes a minute or two after a change: no suites, examples or peers.
///
/// # Errors
///
/// If a step failed. All steps run, and the table shows which ones failed.
pub(crate) fn check() -> Result<()> {
    let mut steps = Steps::new(share);
    checks(&mut steps);
    steps.run("unit tests", || cargo(&["test", "--workspace", "--lib", "--bins", "--quiet"]));

    finish(&steps)
}

fn finish(steps: &Steps) -> Result<()> {
    println!("\n{steps}");
    ensure!(!steps.any_failed(), "not everything passed");
    Ok(())
}

/// Suites need the command. Otherwise they would build it without output, within a time limit.
fn build() -> Result<Verdict> {
    cargo(&["build", "--package", "lockkeeper-cli"])
}

fn checks(steps: &mut Steps) {
    steps.run("shares", || shares(&workspace()?).map(|()| Verdict::Passed));
    steps.run("layers", || layers::run().map(|()| Verdict::Passed));
    steps.run("sections", || sections::run().map(|()| Verdict::Passed));
    steps.run("deny", || deny::run().map(|()| Verdict::Passed));
    steps.run("promises", || promises::run().map(|()| Verdict::Passed));
    steps.run("links", || links::run().map(|()| Verdict::Passed));
    steps.run("recipes", || recipes::run().map(|()| Verdict::Passed));
    steps.run("fmt", || cargo(&["fmt", "--all", "--check"]));
    steps.run("clippy", || {
        cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    });
}

/// Checks that every suite has a line in [`SUITES`].
fn shares(metadata: &Metadata) -> Result<()> {
    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    let mut suites = targets.filter(|target| target.kind.contains(&TargetKind::Test));
    let without = suites.find(|suite| share(&suite.name).is_none());
    ensure!(without.is_none(), "a suite without a share of the time: {without:?}");
    Ok(())
}

/// An xtask as a program with the lowest priority.
fn program(task: &[&str]) -> Result<Command> {
    let ours = match cfg!(target_os = "linux") {
        // Works even if another build has replaced the file.
        true => PathBuf::from(format!("/proc/{}/exe", std::process::id())),
        false => env::current_exe()?,
    };
    let mut program = Command::new(ours);
    program.args(task).stdin(Stdio::null());
    Ok(gives_way(LAST, program))
}

fn gives_way(nice: &str, program: Command) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", nice]).arg(program.get_program()).args(program.get_args());
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null());
    command
}

/// The workspace, and the file in which its suites record what they skipped.
struct Workspace {
    metadata: Metadata,
    skip_log: PathBuf,
    policy: MissingPeers,
    /// Failed tests that may be repeated, by the step that ran them.
    failed: RefCell<Vec<(&'static str, Vec<String>)>>,
}

impl Workspace {
    fn open(policy: MissingPeers) -> Result<Self> {
        let metadata = workspace()?;
        let folder = metadata.target_directory.join("xtask");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder}"))?;
        let skip_log = folder.join("skipped.log").into_std_path_buf();
        fs::write(&skip_log, "").with_context(|| format!("cannot write {}", skip_log.display()))?;
        Ok(Self { metadata, skip_log, policy, failed: RefCell::default() })
    }

    /// All checks, suites and examples, and in parallel the computations.
    fn everything(&self, steps: &mut Steps) -> Result<()> {
        let policy = self.policy;
        steps.run("setup", || setup::run(policy, Needs::OfSuites));
        let mut computing = Vec::new();
        for Suite { name, lane, .. } in SUITES {
            let Lane::Computing(task) = lane else { continue };
            match *name != "instructions" || instructions::can_run() || policy == MissingPeers::Fail
            {
                true => computing.push((*name, program(task)?)),
                false => steps.run(name, || Ok(Verdict::Skipped)),
            }
        }
        let computing = Beside::start(computing);

        checks(steps);
        steps.run("doc", || {
            let mut doc = command(&["doc", "--workspace", "--no-deps"]);
            passed(doc.env("RUSTDOCFLAGS", "-D warnings"))
        });
        steps.run("fuzz targets", || self.fuzz_targets());
        steps.run("build", || {
            let tests = cargo(&["test", "--workspace", "--no-run", "--quiet"])?;
            Ok(if build()? == Verdict::Passed { tests } else { Verdict::Failed })
        });
        self.run_all(steps, Lane::First);
        let servers = SUITES.iter().filter(|suite| suite.lane == Lane::Servers);
        let servers = servers.map(|suite| (suite.name, self.suite(suite)));
        let servers = Beside::start(servers.collect());
        steps.run(UNITS, || self.tests(UNITS, &mut gives_way(POLITE, self.selected(UNITS))));
        self.run_all(steps, Lane::Others);
        steps.run(DOC_TESTS, || passed(&mut self.selected(DOC_TESTS)));
        steps.run("examples", || self.examples());
        steps.run("dist", || dist::thin(policy));
        for (name, output) in steps.join(servers) {
            self.note_failed(name, failed_tests::in_output(&output));
        }
        steps.join(computing);
        self.once_more(steps)
    }

    /// Runs the suites of a lane, one after the other.
    fn run_all(&self, steps: &mut Steps, lane: Lane) {
        for suite in SUITES.iter().filter(|suite| suite.lane == lane) {
            steps.run(suite.name, || self.tests(suite.name, &mut self.suite(suite)));
        }
    }

    /// Runs tests, and records which may be repeated.
    fn tests(&self, step: &'static str, tests: &mut Command) -> Result<Verdict> {
        let outcome = failed_tests::run(tests)?;
        let verdict = Verdict::of(outcome == Outcome::Passed);
        self.note_failed(step, outcome);
        Ok(verdict)
    }

    fn note_failed(&self, step: &'static str, outcome: Outcome) {
        if let Outcome::Tests(names) = outcome {
            self.failed.borrow_mut().push((step, names));
        }
    }

    /// Runs failed tests again, alone. A step passes if all its tests pass then.
    fn once_more(&self, steps: &mut Steps) -> Result<()> {
        for (step, names) in self.failed.take() {
            let listed = names.join(" ");
            println!("\n=== {step}, once more, alone: {listed}");
            let mut again = self.selected(step);
            again.env("RUST_TEST_THREADS", "1").args(["--", "--exact"]).args(names);
            match passed(&mut again)? {
                Verdict::Passed => {
                    steps.correct(step, Verdict::Unstable);
                    self.note(&format!(
                        "UNSTABLE, passed at the second attempt: {step}: {listed}"
                    ))?;
                }
                _ => self.note(&format!("FAILED twice: {step}: {listed}"))?,
            }
        }
        Ok(())
    }

    /// The command that runs one suite.
    fn suite(&self, suite: &Suite) -> Command {
        let mut test = self.selected(suite.name);
        test.env("RUST_TEST_THREADS", suite.threads.to_string());
        match suite.lane {
            Lane::Others => gives_way(POLITE, test),
            _ => test,
        }
    }

    /// `cargo test` for the tests of a step.
    fn selected(&self, step: &str) -> Command {
        let mut tests = self.cargo_test();
        match step {
            UNITS => tests.args(["--lib", "--bins"]),
            DOC_TESTS => tests.arg("--doc"),
            suite => tests.args(["--test", suite]),
        };
        tests
    }

    /// `cargo test`, before the selection of tests.
    fn cargo_test(&self) -> Command {
        let mut tests = command(&["test", "--workspace", "--no-fail-fast"]);
        // libtest hides the output of passing tests, so skipped tests are recorded in a file too.
        tests.env("LOCKKEEPER_SKIP_LOG", &self.skip_log);
        if self.policy == MissingPeers::Fail {
            tests.env("LOCKKEEPER_REQUIRE_PEERS", "1");
        }
        tests
    }

    /// Adds a line to those that are printed at the end.
    fn note(&self, line: &str) -> Result<()> {
        let mut log = fs::OpenOptions::new().append(true).open(&self.skip_log)?;
        writeln!(log, "{line}").context("cannot write the list of skipped tests")
    }

    /// Type-checks the fuzz targets: running them requires a nightly tool chain, but they must stay up to
    /// date.
    fn fuzz_targets(&self) -> Result<Verdict> {
        let manifest = self.metadata.workspace_root.join("fuzz/Cargo.toml");
        let mut check = command(&["check", "--bins", "--manifest-path", manifest.as_str()]);
        check.arg("--target-dir").arg(&self.metadata.target_directory);
        // Nothing is linked, so the C++ sources of libFuzzer need not be compiled.
        check.env("CUSTOM_LIBFUZZER_PATH", "none/libnone.a");
        passed(&mut check)
    }

    /// The lines `SKIPPED: ...` of the last run, without duplicates.
    fn skips(&self) -> Vec<String> {
        let log = fs::read_to_string(&self.skip_log).unwrap_or_default();
        let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
        lines.sort();
        lines.dedup();
        lines
    }

    fn examples(&self) -> Result<Verdict> {
        let not_run = self.not_run();
        let mut ran = 0_usize;
        let mut failures = Vec::new();
        for (name, program) in self.build_examples()? {
            if not_run.contains(&name) {
                println!("example {name}: built, not run");
                continue;
            }
            println!("--- example {name}");
            ran += 1;
            if let Err(error) = run_example(&program) {
                failures.push(format!("{name} {error:#}"));
            }
        }

        if !failures.is_empty() {
            bail!("{}", failures.join("; "));
        }
        println!("{ran} examples ran");
        Ok(if ran == 0 { Verdict::Skipped } else { Verdict::Passed })
    }

    /// Examples that their package excludes from running (they need arguments, or never end):
    /// `[package.metadata.xtask] examples-not-run = ["name"]`.
    fn not_run(&self) -> Vec<String> {
        self.metadata
            .packages
            .iter()
            .filter_map(|package| package.metadata["xtask"]["examples-not-run"].as_array())
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect()
    }

    fn build_examples(&self) -> Result<Vec<(String, PathBuf)>> {
        let format = "--message-format=json-render-diagnostics";
        let output = command(&["build", "--workspace", "--examples", format])
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        ensure!(output.status.success(), "the examples do not build");

        let mut examples = Vec::new();
        for message in Message::parse_stream(&output.stdout[..]) {
            if let Message::CompilerArtifact(artifact) = message?
                && artifact.target.kind.contains(&TargetKind::Example)
                && let Some(program) = artifact.executable
            {
                examples.push((artifact.target.name, program.into_std_path_buf()));
            }
        }
        examples.sort();
        Ok(examples)
    }
}

fn run_example(program: &Path) -> Result<()> {
    let mut child =
        Command::new(program).stdin(Stdio::null()).spawn().context("cannot be started")?;
    match wait(&mut child, EXAMPLE_LIMIT)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => bail!("failed: {status}"),
        None => bail!("did not end within {} s", EXAMPLE_LIMIT.as_secs()),
    }
}

/// Waits for the end of the child. At the limit, kills it and returns `None`.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

fn cargo(arguments: &[&str]) -> Result<Verdict> {
    passed(&mut command(arguments))
}

fn passed(command: &mut Command) -> Result<Verdict> {
    succeeds(command).map(Verdict::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(seconds: &str) -> Child {
        Command::new("sleep").arg(seconds).spawn().expect("every Unix has sleep")
    }

    #[test]
    fn every_suite_has_a_share() {
        shares(&workspace().unwrap()).unwrap();
    }

    #[test]
    fn a_program_that_ends_in_time_shows_its_status() {
        let status = wait(&mut sleep("0"), Duration::from_secs(30)).unwrap();
        assert!(status.is_some_and(|status| status.success()));
    }

    #[test]
    fn a_program_that_hangs_is_killed_at_the_limit() {
        let mut child = sleep("60");
        assert!(wait(&mut child, Duration::from_millis(50)).unwrap().is_none());
        assert!(child.try_wait().unwrap().is_some_and(|status| !status.success()));
    }
}
