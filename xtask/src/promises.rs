//! Checks that each test exists that the documentation names.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cargo_metadata::TargetKind;
use cargo_metadata::camino::Utf8Path;

use crate::cargo::workspace;

/// The pages in which all names of tests are checked.
const PAGES: &[&str] = &["docs/guarantees.md", "docs/bugs-found.md"];

/// Looks up everything that the pages name as a test.
///
/// # Errors
///
/// If a name does not exist, or a promise does not name a test.
pub(crate) fn run() -> Result<()> {
    let metadata = workspace()?;
    let root = metadata.workspace_root.as_path();
    let mut sources = String::new();
    for folder in ["crates", "tests"] {
        read_sources(root.join(folder).as_std_path(), &mut sources)?;
    }

    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    let suites = targets.filter(|target| target.kind.contains(&TargetKind::Test));
    let suites: Vec<&str> = suites.map(|target| target.name.as_str()).collect();
    let exists = |name: &Name<'_>| match name {
        Name::Quoted(text) => sources.contains(&format!("\"{text}\"")),
        Name::Code(name) => {
            suites.contains(name)
                || sources.contains(&format!("\"{name}::"))
                || sources.contains(&format!("fn {name}("))
                || sources.contains(&format!("fn {name}<"))
                || is_path(root, name)
        }
    };

    let mut findings = Vec::new();
    let mut count = 0;
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).with_context(|| format!("no {page}"))?;
        for promise in promises_without_tests(&text) {
            findings.push(format!("{page}: {promise:?} does not name a test"));
        }
        let names = names_of_tests(&text);
        count += names.len();
        let missing = names.iter().filter(|name| !exists(name));
        findings.extend(missing.map(|name| format!("{page}: {name:?} does not exist")));
    }
    if !findings.is_empty() {
        bail!("{}", findings.join("\n"));
    }
    println!("{count} names of tests, all found");
    Ok(())
}

fn is_path(root: &Utf8Path, name: &str) -> bool {
    name.contains('/') && root.join(name).exists()
}

fn read_sources(folder: &Path, into: &mut String) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            read_sources(&path, into)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            into.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The form in which a page names a test.
#[derive(Debug, PartialEq, Eq)]
enum Name<'a> {
    /// A suite, a folder of scenarios, a function, or a file.
    Code(&'a str),
    /// A suite's name of one of its checks.
    Quoted(&'a str),
}

/// The names of tests in paragraphs that begin with "Checked by", and in the last column of tables whose
/// header ends with `test`.
fn names_of_tests(page: &str) -> Vec<Name<'_>> {
    let mut names = Vec::new();
    for paragraph in page.split("\n\n") {
        let listed = paragraph.find("Checked by:").map(|start| &paragraph[start..]);
        if let Some(text) = listed {
            names.extend(between(text, '`').map(Name::Code));
            names.extend(between(text, '"').map(Name::Quoted));
        }

        let mut rows = paragraph.lines().filter(|line| line.starts_with('|'));
        if rows.next().is_some_and(|head| head.trim_end().ends_with("| test |")) {
            for row in rows {
                let last = row.trim_end().trim_end_matches('|').rsplit('|').next();
                names.extend(last.into_iter().flat_map(|cell| between(cell, '`')).map(Name::Code));
            }
        }
    }
    names
}

/// The bold beginnings of the paragraphs under `## Promises` that do not name a check.
fn promises_without_tests(page: &str) -> Vec<&str> {
    let Some((_, promises)) = page.split_once("\n## Promises\n") else { return Vec::new() };
    let promises = promises.split("\n## ").next().unwrap_or_default();
    let paragraphs = promises.split("\n\n").filter(|text| text.trim_start().starts_with("**"));
    let silent = paragraphs.filter(|text| !text.contains("Checked by:") || !text.contains('`'));
    silent
        .filter_map(|text| text.trim_start().trim_start_matches("**").split("**").next())
        .collect()
}

/// The texts between pairs of a mark.
fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_tests_are_named_and_nowhere_else() {
        let page = "`code`\n\n**A promise.** More.\nChecked by: `suite` (\"an invariant\").\n\n\
                    | symptom | test |\n|---|---|\n| `this` | `that`, `too` |\n| x | none |\n\n\
                    | `not` | run it |\n|---|---|\n| `a` | `b` |\n";
        let expected = [
            Name::Code("suite"),
            Name::Quoted("an invariant"),
            Name::Code("that"),
            Name::Code("too"),
        ];
        assert_eq!(names_of_tests(page), expected);
    }

    #[test]
    fn a_promise_without_a_test_is_found() {
        let page = "\n## Promises\n\n**One.** It is so.\nChecked by: `x`.\n\n**Two.** Trust us.\n\n\
                    ## Not promised\n\n**Three.**";
        assert_eq!(promises_without_tests(page), ["Two."]);
    }
}
