//! `cargo xtask test`: every check, every test, every example, on plain cargo.

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
use crate::instructions;
use crate::setup::{MissingPeers, Needs};
use crate::steps::{Beside, Steps, Verdict};
use crate::{deny, layers, peers_tests, promises, recipes, sections, setup};

/// Suites that wait for processes and servers for most of their time, so that more of their tests
/// than there are processors run at once.
const WAITING: [&str; 2] = ["command", "contract"];

/// Suites that wait for much of their time, too, and need the processors for the rest. As of those that wait,
/// none of them judges how fast a server is, so that others may run beside them.
const CONTESTS: [&str; 6] = ["clients", "differential", "hammer", "interop", "peers", "revocation"];

/// What computes, and runs beside those suites, instead of the suites of the same names, which do less.
const COMPUTING: [(&str, &[&str]); 3] =
    [("simulation", &["simulate"]), ("model", &["model"]), ("mutants", &["mutants", "--check"])];

/// The variable that says how many tests of a suite run at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// An example shows one thing; one that runs for longer hangs.
const EXAMPLE_LIMIT: Duration = Duration::from_secs(60);

/// Runs everything, or only the tests that match `filter`.
///
/// # Errors
///
/// A step failed. All of them ran, and the table says which.
pub(crate) fn run(policy: MissingPeers, filter: Option<&str>) -> Result<()> {
    let workspace = Workspace::open()?;
    let mut steps = Steps::new();
    if filter.is_none() {
        steps.run("setup", || setup::run(policy, Needs::OfSuites));
        checks(&mut steps);
        document(&mut steps);
        steps.run("fuzz targets", || workspace.fuzz_targets());
    }

    // Suites ask for the command and would build it, unseen, in the middle of a time limit.
    steps.run("command", || cargo(&["build", "--package", "lockkeeper-cli"]));
    match filter {
        Some(filter) => steps.run("tests", || workspace.tests(policy, &[filter])),
        None => workspace.everything(&mut steps, policy)?,
    }

    println!("\n{steps}");
    for skip in workspace.skips() {
        println!("{skip}");
    }
    if steps.any_failed() {
        bail!("not everything passed");
    }
    Ok(())
}

/// Runs what takes a minute or two after a change: no suite, no example and no peer.
///
/// # Errors
///
/// A step failed. All of them ran, and the table says which.
pub(crate) fn check() -> Result<()> {
    let mut steps = Steps::new();
    checks(&mut steps);
    steps.run("unit tests", || cargo(&["test", "--workspace", "--lib", "--bins", "--quiet"]));

    println!("\n{steps}");
    if steps.any_failed() {
        bail!("not everything passed");
    }
    Ok(())
}

fn checks(steps: &mut Steps) {
    steps.run("layers", || layers::run().map(|()| Verdict::Passed));
    steps.run("sections", || sections::run().map(|()| Verdict::Passed));
    steps.run("deny", || deny::run().map(|()| Verdict::Passed));
    steps.run("promises", || promises::run().map(|()| Verdict::Passed));
    steps.run("recipes", || recipes::run().map(|()| Verdict::Passed));
    steps.run("fmt", || cargo(&["fmt", "--all", "--check"]));
    steps.run("clippy", || {
        cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    });
}

fn document(steps: &mut Steps) {
    steps.run("doc", || {
        passed(command(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    });
}

/// A task of ours as a program that gives way to all others.
fn program(task: &[&str]) -> Result<Command> {
    let ours = match cfg!(target_os = "linux") {
        // Also after its file was replaced by another build.
        true => PathBuf::from(format!("/proc/{}/exe", std::process::id())),
        false => env::current_exe()?,
    };
    let mut program = Command::new("nice");
    program.args(["-n", "19"]).arg(ours).args(task).stdin(Stdio::null());
    Ok(program)
}

/// The workspace, and where its suites write down what they skipped.
struct Workspace {
    metadata: Metadata,
    skip_log: PathBuf,
}

impl Workspace {
    fn open() -> Result<Self> {
        let metadata = workspace()?;
        let folder = metadata.target_directory.join("xtask");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder}"))?;
        let skip_log = folder.join("skipped.log").into_std_path_buf();
        fs::write(&skip_log, "").with_context(|| format!("cannot write {}", skip_log.display()))?;
        Ok(Self { metadata, skip_log })
    }

    /// All suites and all examples, and beside some of these what computes.
    fn everything(&self, steps: &mut Steps, policy: MissingPeers) -> Result<()> {
        let suites = |wanted: &dyn Fn(&str) -> bool| {
            let suites = self.suites().filter(|suite| wanted(suite));
            suites.flat_map(|suite| ["--test", suite]).collect::<Vec<_>>()
        };
        let is_computing = |suite: &str| COMPUTING.iter().any(|(name, _)| *name == suite);
        let is_alone = |suite: &str| {
            !WAITING.contains(&suite) && !CONTESTS.contains(&suite) && !is_computing(suite)
        };
        let alone = [vec!["--lib", "--bins"], suites(&is_alone)].concat();
        steps.run("tests", || self.tests(policy, &alone));
        steps.run("doc tests", || self.tests(policy, &["--doc"]));

        let mut computing = COMPUTING.to_vec();
        match instructions::can_run() || policy == MissingPeers::Fail {
            true => computing.push(("instructions", &["instructions"])),
            false => steps.run("instructions", || Ok(Verdict::Skipped)),
        }
        let programs = computing.into_iter().map(|(name, task)| Ok((name, program(task)?)));
        let beside = Beside::start(programs.collect::<Result<_>>()?);
        let contests = suites(&|suite| CONTESTS.contains(&suite));
        steps.run("contests", || self.tests(policy, &contests));
        steps.run("suites that wait", || self.waiting(policy));
        steps.join(beside);
        steps.run("examples", || self.examples());
        Ok(())
    }

    fn tests(&self, policy: MissingPeers, which: &[&str]) -> Result<Verdict> {
        Ok(peers_tests::run(self.cargo_test(policy).args(which))?.verdict())
    }

    fn waiting(&self, policy: MissingPeers) -> Result<Verdict> {
        let mut tests = self.cargo_test(policy);
        tests.args(WAITING.iter().flat_map(|suite| ["--test", suite]));
        if env::var_os(TEST_THREADS).is_none() {
            let threads = 2 * thread::available_parallelism().map_or(1, usize::from);
            tests.env(TEST_THREADS, threads.to_string());
        }
        match peers_tests::run(&mut tests)? {
            peers_tests::Outcome::OnlyWithPeers(names) => self.once_more(&names),
            outcome => Ok(outcome.verdict()),
        }
    }

    /// `cargo test`, before it is told what to run.
    fn cargo_test(&self, policy: MissingPeers) -> Command {
        let mut tests = command(&["test", "--workspace", "--no-fail-fast"]);
        // libtest shows nothing that a passing test printed, so a skip goes through a file too.
        tests.env("LOCKKEEPER_SKIP_LOG", &self.skip_log);
        if policy == MissingPeers::Fail {
            tests.env("LOCKKEEPER_REQUIRE_PEERS", "1");
        }
        tests
    }

    /// The names of all suites, whichever package has them.
    fn suites(&self) -> impl Iterator<Item = &str> {
        let targets = self.metadata.packages.iter().flat_map(|package| &package.targets);
        let suites = targets.filter(|target| target.kind.contains(&TargetKind::Test));
        suites.map(|suite| suite.name.as_str())
    }

    /// Runs contracts alone that failed beside others.
    fn once_more(&self, names: &[String]) -> Result<Verdict> {
        println!("\nonce more, alone: {}", names.join(", "));
        let mut again = command(&["test", "--package", "lockkeeper-tests", "--test", "contract"]);
        again.env("LOCKKEEPER_SKIP_LOG", &self.skip_log);
        let verdict = passed(again.args(["--", "--exact"]).args(names))?;
        if verdict == Verdict::Passed {
            self.note(&format!("UNSTABLE, passed at the second attempt: {}", names.join(", ")))?;
        }
        Ok(verdict)
    }

    /// Adds a line to those that are shown at the end.
    fn note(&self, line: &str) -> Result<()> {
        let mut log = fs::OpenOptions::new().append(true).open(&self.skip_log)?;
        writeln!(log, "{line}").context("cannot write the list of skipped tests")
    }

    /// Type-checks the fuzz targets: running them takes a nightly tool chain, but they must not rot.
    fn fuzz_targets(&self) -> Result<Verdict> {
        let manifest = self.metadata.workspace_root.join("fuzz/Cargo.toml");
        let mut check = command(&["check", "--bins", "--manifest-path", manifest.as_str()]);
        check.arg("--target-dir").arg(&self.metadata.target_directory);
        // Nothing is linked, so the C++ sources of libFuzzer need not be compiled.
        check.env("CUSTOM_LIBFUZZER_PATH", "none/libnone.a");
        passed(&mut check)
    }

    /// The lines `SKIPPED: ...` of the last run, each once.
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

    /// Examples that their package asks not to run (they need arguments, or never end):
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
    let mut child = Command::new(program).stdin(Stdio::null()).spawn().context("does not start")?;
    match wait(&mut child, EXAMPLE_LIMIT)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => bail!("failed: {status}"),
        None => bail!("did not end within {} s", EXAMPLE_LIMIT.as_secs()),
    }
}

/// Waits for the child's end; kills it at the limit and answers `None`.
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
