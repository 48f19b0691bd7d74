//! Checks that each recipe is in all places that CONTRIBUTING lists, and that each type name stands for one
//! type.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cargo::workspace;

/// The crates of recipes.
const CRATES: [&str; 2] = ["crates/locks", "crates/recipes"];

/// The required sections in the documentation of a recipe's main type. The first one marks it as a recipe.
const OUTLINE: [&str; 5] = ["Znodes", "Guarantees", "Not guaranteed", "Cost", "Examples"];

/// The places, besides its own file and its crate's `lib.rs`, that must name a recipe.
const PLACES: [&str; 4] =
    ["tests/contract", "docs/guarantees.md", "docs/choosing.md", "CHANGELOG.md"];

/// Type names that may occur more than once in a crate: each is public in a module of its own.
const REPEATED: [&str; 1] = ["Error"];

/// Looks for every recipe in every place.
///
/// # Errors
///
/// One line for each place that lacks a recipe, and for each name that stands for two types.
pub(crate) fn run() -> Result<()> {
    let root = workspace()?.workspace_root.into_std_path_buf();
    let (count, mut findings) = misplaced(&root)?;
    for folder in crates_in(&root)? {
        let shown = folder.strip_prefix(&root).unwrap_or(&folder).display();
        let twice = declared_twice(&sources(&folder)?);
        findings.extend(twice.into_iter().map(|line| format!("{shown}: two types {line}")));
    }

    ensure!(count > 0, "no recipes were found");
    ensure!(findings.is_empty(), "{}", findings.join("\n"));
    println!("{count} recipes, each in its places");
    Ok(())
}

/// The number of recipes, and one line for each place that lacks one and each section that a recipe lacks.
fn misplaced(root: &Path) -> Result<(usize, Vec<String>)> {
    let mut places = Vec::new();
    for place in PLACES {
        places.push((place.to_owned(), sources(&root.join(place))?.into_values().collect()));
    }

    let (mut count, mut findings) = (0, Vec::new());
    for name in CRATES {
        let lib = format!("{name}/src/lib.rs");
        let exports = fs::read_to_string(root.join(&lib))?;
        let exports = (lib, exports);
        for (file, text) in sources(&root.join(name).join("src"))? {
            let file = file.strip_prefix(root).unwrap_or(&file).display();
            for recipe in recipes(&text) {
                count += 1;
                let lacks = recipe.lacks().map(|section| format!("{file}: no section {section:?}"));
                findings.extend(lacks);
                let all = places.iter().chain([&exports]);
                let missing = all.filter(|(_, text)| !has_word(text, &recipe.name));
                findings
                    .extend(missing.map(|(place, _)| format!("{}: not in {place}", recipe.name)));
            }
        }
    }
    Ok((count, findings))
}

/// The main type of a recipe, and the sections of its documentation.
#[derive(Debug, PartialEq, Eq)]
struct Recipe {
    name: String,
    sections: BTreeSet<String>,
}

impl Recipe {
    fn lacks(&self) -> impl Iterator<Item = &'static str> {
        OUTLINE.into_iter().filter(|section| !self.sections.contains(*section))
    }
}

fn recipes(text: &str) -> Vec<Recipe> {
    let (mut found, mut sections) = (Vec::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(section) = line.strip_prefix("/// # ") {
            sections.insert(section.to_owned());
        } else if !line.starts_with("///") && !line.starts_with("#[") {
            let recipe = sections.contains(OUTLINE[0]).then(|| declared(line)).flatten();
            found.extend(recipe.map(|(name, _)| Recipe { name, sections: sections.clone() }));
            sections.clear();
        }
    }
    found
}

/// The name of the type that a line declares, and whether other files can use it.
fn declared(line: &str) -> Option<(String, bool)> {
    let words = line.trim_start();
    let item = match words.strip_prefix("pub") {
        Some(item) => item.split_once(' ')?.1,
        None => words,
    };
    let name = ["struct ", "enum ", "trait "].iter().find_map(|kind| item.strip_prefix(kind))?;
    let end = name.find(|c: char| !is_of_name(c)).unwrap_or(name.len());
    (end > 0).then(|| (name[..end].to_owned(), item.len() < words.len()))
}

/// The type names that at least two files declare, one of them visible to other files; and these files.
fn declared_twice(sources: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut types: BTreeMap<String, (BTreeSet<&Path>, bool)> = BTreeMap::new();
    for (file, text) in sources {
        for (name, is_shared) in text.lines().filter_map(declared) {
            let (files, any_shared) = types.entry(name).or_default();
            files.insert(file);
            *any_shared |= is_shared;
        }
    }
    types.retain(|name, (files, is_shared)| {
        files.len() > 1 && *is_shared && !REPEATED.contains(&name.as_str())
    });
    let ends = |file: &Path| file.file_name().unwrap_or_default().display().to_string();
    let line = |(name, (files, _)): (String, (BTreeSet<&Path>, bool))| {
        format!("{name}: {}", files.into_iter().map(ends).collect::<Vec<_>>().join(", "))
    };
    types.into_iter().map(line).collect()
}

/// The folders that are crates; each suite counts as one.
fn crates_in(root: &Path) -> Result<Vec<PathBuf>> {
    let mut folders: Vec<_> = ["benches/src", "xtask/src"].map(|folder| root.join(folder)).into();
    for (group, within) in [("crates", "src"), ("crates", "tests"), ("tests", "")] {
        for entry in fs::read_dir(root.join(group))? {
            folders.push(entry?.path().join(within));
        }
    }
    folders.retain(|folder| folder.is_dir());
    Ok(folders)
}

/// A file, or all text files below a folder.
fn sources(path: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    if !path.is_dir() {
        let text = fs::read_to_string(path).with_context(|| format!("no {}", path.display()))?;
        found.insert(path.to_owned(), text);
        return Ok(found);
    }
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() || path.extension().is_some_and(|ending| ending == "rs") {
            found.extend(sources(&path)?);
        }
    }
    Ok(found)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !is_of_name(c)).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_known_by_its_outline() {
        let text = "/// A latch.\n///\n/// # Znodes\n/// # Cost\n#[derive(Clone)]\npub struct Latch<T>(T);\n\
                    /// # Cost\npub struct Other;\n";
        let found = recipes(text);
        let names: Vec<_> = found.iter().map(|recipe| recipe.name.as_str()).collect();
        assert_eq!(names, ["Latch"]);
        assert_eq!(
            found[0].lacks().collect::<Vec<_>>(),
            ["Guarantees", "Not guaranteed", "Examples"]
        );
        assert!(has_word("see Latch::new", "Latch") && !has_word("LatchError", "Latch"));
    }

    #[test]
    fn a_name_that_other_files_use_stands_for_one_type() {
        let file = |name: &str, text: &str| (PathBuf::from(name), text.to_owned());
        let twice = |a: &str, b: &str| declared_twice(&[file("a", a), file("b", b)].into());
        assert_eq!(twice("struct A;", "pub(crate) enum A {}"), ["A: a, b"]);
        assert_eq!(twice("struct A;", "struct A;\npub struct B;"), Vec::<String>::new());
        assert_eq!(twice("pub struct Error;", "pub enum Error {}"), Vec::<String>::new());
    }
}
