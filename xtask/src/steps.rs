//! Steps that run one after the other, each under a headline, with a table at the end.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Skipped,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::Skipped => "skipped",
        })
    }
}

struct Step {
    name: String,
    verdict: Verdict,
    took: Duration,
}

/// What has run so far.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<Step>,
}

impl Steps {
    /// Runs one step under its headline. An error is shown and remembered; the next step still
    /// runs, so that one pass shows everything that is wrong.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> Result<Verdict>) {
        println!("\n=== {name}");
        let start = Instant::now();
        let verdict = step().unwrap_or_else(|error| {
            eprintln!("{name}: {error:#}");
            Verdict::Failed
        });
        self.done.push(Step { name: name.to_owned(), verdict, took: start.elapsed() });
    }

    /// Whether any step failed.
    pub(crate) fn any_failed(&self) -> bool {
        self.done.iter().any(|step| step.verdict == Verdict::Failed)
    }
}

/// The table: step, verdict, seconds.
impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0).max(4);
        writeln!(f, "{:width$}  {:7}  {:>7}", "step", "result", "seconds")?;
        for step in &self.done {
            let seconds = step.took.as_secs_f64();
            writeln!(f, "{:width$}  {:7}  {seconds:7.1}", step.name, step.verdict)?;
        }
        let total: f64 = self.done.iter().map(|step| step.took.as_secs_f64()).sum();
        write!(f, "{:width$}  {:7}  {total:7.1}", "total", "")
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_failure_is_remembered_and_the_next_step_runs() {
        let mut steps = Steps::default();
        steps.run("first", || bail!("broken"));
        assert!(steps.any_failed());
        steps.run("second", || Ok(Verdict::Passed));
        steps.run("third one", || Ok(Verdict::Skipped));
        let table = steps.to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[1].starts_with("first      FAILED "), "{table}");
        assert!(lines[2].starts_with("second     passed "), "{table}");
        assert!(lines[3].starts_with("third one  skipped "), "{table}");
    }
}
