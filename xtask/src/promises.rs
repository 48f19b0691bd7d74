//! What the pages say about tests: each promise names its tests, and each test that is named exists.

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
/// A named test does not exist, a promise names no test, or a row of the table is for no promise.
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
        findings.extend(unchecked(&text).into_iter().map(|finding| format!("{page}: {finding}")));
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

/// The names in the last column of tables of tests.
fn names_of_tests(page: &str) -> Vec<Name<'_>> {
    tables(page).flat_map(|(_, names)| names).collect()
}

/// The first cell of each row in a table whose head ends with `test` or `checked by`, and the tests in the last one.
/// Only the latter kind of table quotes names.
fn tables(page: &str) -> impl Iterator<Item = (&str, Vec<Name<'_>>)> {
    page.split("\n\n").flat_map(|paragraph| {
        let mut rows = paragraph.lines().filter(|line| line.starts_with('|'));
        let head = rows.next().unwrap_or_default().trim_end();
        let quotes = head.ends_with("| checked by |");
        let wanted = quotes || head.ends_with("| test |");
        rows.skip(1).filter(move |_| wanted).map(move |row| {
            let row = row.trim().trim_matches('|');
            let (first, rest) = row.split_once('|').unwrap_or((row, ""));
            let last = rest.rsplit('|').next().unwrap_or_default();
            let quoted = between(last, '"').filter(|_| quotes).map(Name::Quoted);
            (first.trim(), between(last, '`').map(Name::Code).chain(quoted).collect())
        })
    })
}

/// The headings under `## Promises` without a row that names a test, and the rows that are for no such heading.
fn unchecked(page: &str) -> Vec<String> {
    let Some((_, promises)) = page.split_once("\n## Promises\n") else { return Vec::new() };
    let promises = promises.split("\n## ").next().unwrap_or_default();
    let titles: Vec<_> = promises.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let rows: Vec<_> = tables(page).collect();

    let mut findings = Vec::new();
    if titles.is_empty() {
        findings.push("no promises".to_owned());
    }
    for title in &titles {
        if !rows.iter().any(|(row, names)| row == title && !names.is_empty()) {
            findings.push(format!("{title:?} names no test"));
        }
    }
    let strays = rows.iter().filter(|(row, _)| !titles.contains(row));
    findings.extend(strays.map(|(row, _)| format!("no promise {row:?}")));
    findings
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
        let page = "`code`\n\n| promise | checked by |\n|---|---|\n\
                    | A `promise` | `suite` (\"an invariant\"), `file` |\n\n\
                    | symptom \"x\" | test |\n|---|---|\n| `this` | `that`, `too` |\n| x | none |\n\n\
                    | `not` | run it |\n|---|---|\n| `a` | `b` |\n";
        let expected = [
            Name::Code("suite"),
            Name::Code("file"),
            Name::Quoted("an invariant"),
            Name::Code("that"),
            Name::Code("too"),
        ];
        assert_eq!(names_of_tests(page), expected);
    }

    #[test]
    fn a_promise_without_a_test_is_found_and_a_row_without_a_promise() {
        let page = "\n## Promises\n\n### One\n\nIt is so.\n\n### Two\n\nTrust us.\n\n### Three\n\n\
                    ## Not promised\n\n### Four\n\n## Checked by\n\n| promise | checked by |\n|---|---|\n\
                    | One | `x` |\n| Three | soon |\n| Five | `y` |\n";
        let expected = ["\"Two\" names no test", "\"Three\" names no test", "no promise \"Five\""];
        assert_eq!(unchecked(page), expected);
        assert!(unchecked("# A page without promises").is_empty());
    }
}
