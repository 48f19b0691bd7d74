//! Whether the links of the documentation lead somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cargo::workspace;

/// Folders without pages of this repository.
const SKIPPED: [&str; 3] = ["target", "node_modules", "corpus"];

/// Follows every relative link of every Markdown file, and every page that a text or a source names by its path.
///
/// # Errors
///
/// One line for each link to a file or a heading that does not exist.
pub(crate) fn run() -> Result<()> {
    let root = workspace()?.workspace_root.into_std_path_buf();
    let mut files = Vec::new();
    collect(&root, &mut files)?;

    let mut anchors = BTreeMap::new();
    for file in files.iter().filter(|file| is(file, "md")) {
        anchors.insert(file.clone(), headings(&read(file)?));
    }
    let (mut count, mut findings) = (0, Vec::new());
    for file in &files {
        let text = read(file)?;
        let shown = file.strip_prefix(&root).unwrap_or(file).display();
        if is(file, "md") {
            let folder = file.parent().unwrap_or(&root);
            for link in links(&text) {
                count += 1;
                if let Some(why) = broken(link, file, folder, &anchors) {
                    findings.push(format!("{shown}: {link}: {why}"));
                }
            }
        }
        for page in pages(&text) {
            count += 1;
            if !root.join(page).exists() {
                findings.push(format!("{shown}: there is no {page}"));
            }
        }
    }

    ensure!(count > 0, "no link was found");
    ensure!(findings.is_empty(), "{}", findings.join("\n"));
    println!("{count} links, all of them lead somewhere");
    Ok(())
}

fn is(file: &Path, ending: &str) -> bool {
    file.extension().is_some_and(|found| found == ending)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// All Markdown and Rust files below a folder.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && !SKIPPED.contains(&&*name) {
                collect(&path, into)?;
            }
        } else if is(&path, "md") || is(&path, "rs") {
            into.push(path);
        }
    }
    Ok(())
}

/// Why a link leads nowhere, if it does not lead out of the repository.
fn broken(
    link: &str,
    file: &Path,
    folder: &Path,
    anchors: &BTreeMap<PathBuf, BTreeSet<String>>,
) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { file.to_owned() } else { lexically(&folder.join(path)) };
    if !target.exists() {
        return Some("no such file");
    }
    let known = anchors.get(&target);
    let is_heading = || known.is_some_and(|known| known.contains(anchor));
    (!anchor.is_empty() && !is_heading()).then_some("no such heading")
}

/// A path without `.` and `..`, as the map of headings has it.
fn lexically(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// The lines of a page outside of its blocks of code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of a page's links and pictures, inline (`[a](b)`) and by reference (`[a]: b`).
fn links(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in prose(page) {
        let outside_of_code = line.split('`').step_by(2);
        for text in outside_of_code {
            for rest in text.split("](").skip(1) {
                found.extend(rest.split(')').next().and_then(|target| target.split(' ').next()));
            }
        }
        let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        found.extend(reference.map(|(_, target)| target.trim()));
    }
    found.retain(|target| !target.is_empty());
    found
}

/// The anchors of a page's headings, as GitHub and most renderers make them.
fn headings(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(page).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String =
            kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();

        let mut numbered = anchor.clone();
        let mut number = 0;
        while !found.insert(numbered.clone()) {
            number += 1;
            numbered = format!("{anchor}-{number}");
        }
    }
    found
}

/// The pages below `docs` that a text names, each with its ending.
fn pages(source: &str) -> Vec<&str> {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    let mut found = Vec::new();
    for (start, _) in source.match_indices("docs/") {
        let is_inner = source[..start].ends_with(|c: char| is_of_path(c) || c == '{');
        let end = source[start..].find(|c| !is_of_path(c)).map_or(source.len(), |end| start + end);
        let path = source[start..end].trim_end_matches('.');
        let is_pattern = path.contains("NNNN");
        if !is_inner && !is_pattern && path.ends_with(".md") {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let page = "# T\n\n[a](b.md#c) and ![p](p.png \"title\"), `[no](x)`\n\n```rust\n[no](y)\n```\n\
                    [r]: ../r.rs\n";
        assert_eq!(links(page), ["b.md#c", "p.png", "../r.rs"]);
    }

    #[test]
    fn headings_become_anchors() {
        let page = "# A `Lock`, or two\n## x\n## x\n```sh\n# no\n```\n";
        let expected = ["a-lock-or-two", "x", "x-1"].map(str::to_owned);
        assert_eq!(headings(page), expected.into());
    }

    #[test]
    fn broken_links_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.md"), folder.path().join("b.md"));
        fs::write(&a, "# A\n").unwrap();
        fs::write(&b, "# B\n").unwrap();
        let anchors = BTreeMap::from([
            (a.clone(), BTreeSet::from(["a".to_owned()])),
            (b.clone(), BTreeSet::from(["b".to_owned()])),
        ]);
        let why = |link| broken(link, &a, folder.path(), &anchors);
        assert_eq!(why("b.md"), None);
        assert_eq!(why("./b.md#b"), None);
        assert_eq!(why("#a"), None);
        assert_eq!(why("https://example.org/x#y"), None);
        assert_eq!(why("c.md"), Some("no such file"));
        assert_eq!(why("b.md#a"), Some("no such heading"));
    }

    #[test]
    fn pages_are_found_in_sources() {
        let source = "/// See `docs/engine.md`.\nlet x = \"../docs/other.md\"; // docs/decisions/0028, docs/access.md";
        assert_eq!(pages(source), ["docs/engine.md", "docs/access.md"]);
    }
}
