//! Consoles on a page of the docs: what is typed there, and what is shown below.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A command of a page, and the lines that it shows below.
#[derive(Debug)]
pub(crate) struct Step {
    /// Such as `root# `: the user and the place of the command.
    pub(crate) prompt: &'static str,
    pub(crate) command: String,
    pub(crate) shown: Vec<String>,
}

/// All commands of all consoles on a page, after one of these prompts each.
pub(crate) fn steps(page: &str, prompts: &[&'static str]) -> Result<Vec<Step>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no folder above")?;
    let page = fs::read_to_string(root.join("docs").join(page))?;
    let mut steps: Vec<Step> = Vec::new();
    for console in page.split("```console\n").skip(1) {
        let (console, _) = console.split_once("```").context("a console without an end")?;
        for line in console.lines() {
            let typed = |prompt: &&'static str| Some((*prompt, line.strip_prefix(*prompt)?));
            match prompts.iter().find_map(typed) {
                Some((prompt, command)) => {
                    let command = command.to_owned();
                    steps.push(Step { prompt, command, shown: Vec::new() });
                }
                None => steps.last_mut().context("output first")?.shown.push(line.to_owned()),
            }
        }
    }
    Ok(steps)
}

/// Finds these lines, in their order, in what a command said.
pub(crate) fn shows(said: &str, lines: &[String]) -> Result<()> {
    let mut said = said.lines();
    for line in lines {
        if !said.any(|said| is_like(said, line)) {
            bail!("it does not say {line:?}");
        }
    }
    Ok(())
}

/// Whether a line is this one, in which each ellipsis stands for anything.
fn is_like(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(last) = parts.next_back() else { return line == pattern };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn an_ellipsis_stands_for_anything() {
    for (line, pattern) in [
        ("stopped", "stopped"),
        ("stopped (pid 7)", "stopped (pid …)"),
        ("anything", "…"),
        ("3 znodes; at most 9 (zxid 0x1, epoch 2)", "… znodes; at most … (zxid …, epoch 2)"),
    ] {
        assert!(is_like(line, pattern), "{line:?} {pattern:?}");
    }
    for (line, pattern) in [
        ("stopped", "stopped…stopped"),
        ("stopped (pid 7) twice", "stopped (pid …)"),
        ("3 znodes; (zxid 0x1, epoch 3)", "… znodes; (zxid …, epoch 2)"),
    ] {
        assert!(!is_like(line, pattern), "{line:?} {pattern:?}");
    }
}
