//! Steps that run one after the other, each under a headline, with a table at the end. Programs may run in
//! parallel.

use std::fmt;
use std::process::{Command, Output};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    /// It failed in parallel with others, and passed alone.
    Unstable,
    Skipped,
}

impl Verdict {
    pub(crate) fn of(success: bool) -> Self {
        if success { Verdict::Passed } else { Verdict::Failed }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::Unstable => "unstable",
            Verdict::Skipped => "skipped",
        })
    }
}

/// A step that takes this many times its share is marked.
const LATE: f64 = 1.5;

struct Step {
    name: &'static str,
    verdict: Verdict,
    took: Duration,
}

/// Programs that run one after the other in the background, and their output.
pub(crate) struct Beside(JoinHandle<Vec<(Step, String)>>);

impl Beside {
    /// Starts the first program.
    pub(crate) fn start(programs: Vec<(&'static str, Command)>) -> Self {
        let run = |(name, mut program): (&'static str, Command)| {
            let start = Instant::now();
            let (verdict, text) = match program.output() {
                Ok(output) => (Verdict::of(output.status.success()), text(&output)),
                Err(error) => (Verdict::Failed, format!("it cannot be started: {error}\n")),
            };
            (Step { name, verdict, took: start.elapsed() }, text)
        };
        Self(thread::spawn(move || programs.into_iter().map(run).collect()))
    }
}

/// The whole output of a program.
pub(crate) fn text(output: &Output) -> String {
    (String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr)).into_owned()
}

/// The steps that have run so far.
pub(crate) struct Steps {
    start: Instant,
    done: Vec<Step>,
    /// The seconds that a step may take.
    share: fn(&str) -> Option<u64>,
}

impl Steps {
    pub(crate) fn new(share: fn(&str) -> Option<u64>) -> Self {
        Self { start: Instant::now(), done: Vec::new(), share }
    }

    /// Runs one step under its headline. An error is printed and recorded; the next steps still run, so that
    /// one pass shows all errors.
    pub(crate) fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result<Verdict>) {
        println!("\n=== {name}");
        let start = Instant::now();
        let verdict = step().unwrap_or_else(|error| {
            eprintln!("{name}: {error:#}");
            Verdict::Failed
        });
        self.done.push(Step { name, verdict, took: start.elapsed() });
    }

    /// Waits for programs, and prints each under its headline. Returns the output of those that failed.
    pub(crate) fn join(&mut self, programs: Beside) -> Vec<(&'static str, String)> {
        let mut failed = Vec::new();
        for (step, text) in programs.0.join().expect("running a program does not panic") {
            print!("\n=== {}\n{text}", step.name);
            if step.verdict == Verdict::Failed {
                failed.push((step.name, text));
            }
            self.done.push(step);
        }
        failed
    }

    /// Changes the verdict of a step that has run.
    pub(crate) fn correct(&mut self, name: &str, verdict: Verdict) {
        self.done
            .iter_mut()
            .filter(|step| step.name == name)
            .for_each(|step| step.verdict = verdict);
    }

    /// Whether any step failed.
    pub(crate) fn any_failed(&self) -> bool {
        self.done.iter().any(|step| step.verdict == Verdict::Failed)
    }
}

/// The table: step, verdict, seconds, and the share if there is one. The total is less than the sum if steps
/// ran in parallel.
impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0).max(4);
        writeln!(f, "{:width$}  {:8}  {:>7}  {:>5}", "step", "result", "seconds", "share")?;
        for step in &self.done {
            let seconds = step.took.as_secs_f64();
            write!(f, "{:width$}  {:8}  {seconds:7.1}", step.name, step.verdict)?;
            match (self.share)(step.name) {
                Some(share) if seconds > share as f64 * LATE => writeln!(f, "  {share:5}  LATE")?,
                Some(share) => writeln!(f, "  {share:5}")?,
                None => writeln!(f)?,
            }
        }
        let total = self.start.elapsed().as_secs_f64();
        write!(f, "{:width$}  {:8}  {total:7.1}", "total", "")
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_ran_beside_others_has_its_place_in_the_table() {
        let mut steps = Steps::new(|_| None);
        let programs = vec![("good", shell("true")), ("bad", shell("false"))];
        let beside = Beside::start(programs);
        steps.run("other", || Ok(Verdict::Passed));
        let failed = steps.join(beside);
        assert_eq!(failed, [("bad", String::new())]);
        assert!(steps.any_failed());
        let verdicts: Vec<_> = steps.done.iter().map(|step| step.verdict).collect();
        assert_eq!(verdicts, [Verdict::Passed, Verdict::Passed, Verdict::Failed]);
        steps.correct("bad", Verdict::Unstable);
        assert!(!steps.any_failed());
    }

    #[test]
    fn a_failure_is_remembered_and_the_next_step_runs() {
        let mut steps = Steps::new(|_| None);
        steps.run("first", || bail!("broken"));
        assert!(steps.any_failed());
        steps.run("second", || Ok(Verdict::Passed));
        steps.run("third one", || Ok(Verdict::Skipped));
        let table = steps.to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[1].starts_with("first      FAILED  "), "{table}");
        assert!(lines[2].starts_with("second     passed  "), "{table}");
        assert!(lines[3].starts_with("third one  skipped  "), "{table}");
    }
}
