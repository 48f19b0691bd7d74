//! The commands of the page about several users of one machine, run as they stand there.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper_testkit::process::Process;
use serde_json::Value;

use crate::machine::{Machine, Who};
use crate::support::{Ended, eventually};

/// A command of the page, and the lines that it shows below.
struct Step {
    who: Who,
    command: String,
    shown: Vec<String>,
}

#[test]
fn the_page_about_several_users_is_true() -> Result<()> {
    let Some(machine) = Machine::new("the page about several users")? else { return Ok(()) };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/one-machine.md");
    let steps = steps(&fs::read_to_string(page)?)?;
    assert!(steps.len() > 15, "{}", steps.len());
    let mut job = None;
    for step in &steps {
        if step.command == "kill %1" {
            end(&machine, job.take().context("no job")?)?;
        } else if let Some(command) = step.command.strip_suffix(" &") {
            job = Some(start(&machine, step.who, command)?);
        } else {
            follow(&machine, step)?;
        }
    }
    Ok(())
}

/// All commands of all consoles on a page.
fn steps(page: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for console in page.split("```console\n").skip(1) {
        let (console, _) = console.split_once("```").context("a console without an end")?;
        for line in console.lines() {
            let command = |prompt| line.strip_prefix(prompt).map(str::to_owned);
            let (who, command) = match (command("alice$ "), command("root# ")) {
                (Some(command), _) => (Who::Nobody, command),
                (_, Some(command)) => (Who::Root, command),
                _ => {
                    steps.last_mut().context("output first")?.shown.push(line.to_owned());
                    continue;
                }
            };
            steps.push(Step { who, command, shown: Vec::new() });
        }
    }
    Ok(steps)
}

/// A shell of a user, in which the page's command is the one that was built.
fn shell(machine: &Machine, who: Who, script: &str) -> std::process::Command {
    let mut shell = machine.program_of(who, "sh");
    let script = with_names(machine, script).replace("lockkeeper ", "\"$LOCKKEEPER\" ");
    shell.args(["-c", &script]).env("LOCKKEEPER", machine.program());
    shell
}

/// The names of this test in place of those on the page.
fn with_names(machine: &Machine, text: &str) -> String {
    let (home, system) = (machine.home(Who::Nobody), machine.system());
    text.replace("/var/lib/lockkeeper-system", &system.to_string_lossy())
        .replace("/home/alice", &home.to_string_lossy())
        .replace("of alice", "of nobody")
        .replace("for alice", "for nobody")
        .replace("are alice", "are nobody")
        .replace("alice alone", "nobody alone")
        .replace("group deploy", "group nogroup")
}

/// Runs a command, and finds the lines of the page, in their order, in what it says.
fn follow(machine: &Machine, step: &Step) -> Result<()> {
    let ended = Ended::of(&mut shell(machine, step.who, &format!("exec 2>&1; {}", step.command)))?;
    ensure!(ended.code == Some(0), "{}: {ended:?}", step.command);
    let mut said = ended.stdout.lines();
    for line in &step.shown {
        let line = with_names(machine, line);
        if !said.any(|said| is_like(said, &line)) {
            bail!("{} does not say {line:?}, but {ended:?}", step.command);
        }
    }
    Ok(())
}

/// Whether a line is this one, in which an ellipsis stands for anything.
fn is_like(line: &str, pattern: &str) -> bool {
    match pattern.split_once('…') {
        None => line == pattern,
        Some((start, end)) => {
            let long_enough = line.len() >= start.len() + end.len();
            long_enough && line.starts_with(start) && line.ends_with(end)
        }
    }
}

/// Starts a command in the background, and waits until it holds its lock.
fn start(machine: &Machine, who: Who, command: &str) -> Result<Process> {
    let command = shell(machine, who, &format!("exec {command}"));
    let process = Process::spawn("job", &command, machine.folder())?;
    in_line(machine, 1)?;
    Ok(process)
}

/// Ends it, and waits until its lock is free.
fn end(machine: &Machine, mut process: Process) -> Result<()> {
    process.kill();
    in_line(machine, 0)
}

fn in_line(machine: &Machine, count: usize) -> Result<()> {
    eventually("the line of the lock", || {
        let shown: Value = serde_json::from_str(&machine.does(Who::Root, "--json show deploy")?)?;
        Ok(shown["contenders"].as_array().map(Vec::len) == Some(count))
    })
}
