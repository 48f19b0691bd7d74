//! The commands of the page about several users of one machine, run as they stand there.

use anyhow::{Context, Result, ensure};
use lockkeeper_testkit::process::Process;
use serde_json::Value;

use crate::machine::{Machine, Who};
use crate::page::{Step, shows, steps};
use crate::support::{Ended, eventually};

const ALICE: &str = "alice$ ";
const ROOT: &str = "root# ";

#[test]
fn the_page_about_several_users_is_true() -> Result<()> {
    let Some(machine) = Machine::new("the page about several users")? else { return Ok(()) };
    let steps = steps("one-machine.md", &[ALICE, ROOT])?;
    assert!(steps.len() > 15, "{}", steps.len());
    let mut job = None;
    for step in &steps {
        if step.command == "kill %1" {
            end(&machine, job.take().context("no job")?)?;
        } else if let Some(command) = step.command.strip_suffix(" &") {
            job = Some(start(&machine, who(step), command)?);
        } else {
            follow(&machine, step)?;
        }
    }
    Ok(())
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

fn who(step: &Step) -> Who {
    if step.prompt == ROOT { Who::Root } else { Who::Nobody }
}

/// Runs a command, and finds the lines of the page, in their order, in what it says.
fn follow(machine: &Machine, step: &Step) -> Result<()> {
    let script = format!("exec 2>&1; {}", step.command);
    let ended = Ended::of(&mut shell(machine, who(step), &script))?;
    ensure!(ended.code == Some(0), "{}: {ended:?}", step.command);
    let shown: Vec<_> = step.shown.iter().map(|line| with_names(machine, line)).collect();
    shows(&ended.stdout, &shown).with_context(|| format!("{}: {ended:?}", step.command))
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
