//! Known vulnerabilities, from a copy of RustSec's database: `crates/<name>/RUSTSEC-*.md`, each of which
//! begins with a block of TOML.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use cargo_metadata::semver::{Version, VersionReq};
use serde::Deserialize;

use super::lock::{Lock, Locked};

#[derive(Debug, Deserialize)]
struct Entry {
    advisory: Advisory,
    #[serde(default)]
    versions: Versions,
}

#[derive(Debug, Deserialize)]
struct Advisory {
    id: String,
    withdrawn: Option<toml::Value>,
    /// Set for what is no vulnerability: that nobody keeps a package any more, and the like.
    informational: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<VersionReq>,
    #[serde(default)]
    unaffected: Vec<VersionReq>,
}

/// A line for each locked package with a vulnerability that is not on the list to ignore. What is for
/// information only is printed.
pub(super) fn check(
    database: &Path,
    lock: &Lock,
    ignore: &BTreeSet<String>,
) -> Result<Vec<String>> {
    let crates = database.join("crates");
    ensure!(crates.is_dir(), "{} is no clone of RustSec's database", database.display());
    let mut offences = Vec::new();
    for package in &lock.package {
        for entry in entries(&crates.join(&package.name))? {
            let id = &entry.advisory.id;
            if !affects(&entry, package)? || ignore.contains(id) {
                continue;
            }

            let line = format!("{} {}: {id}", package.name, package.version);
            match &entry.advisory.informational {
                Some(kind) => println!("{line} ({kind})"),
                None => offences.push(line),
            }
        }
    }
    Ok(offences)
}

fn affects(entry: &Entry, package: &Locked) -> Result<bool> {
    let version = Version::parse(&package.version)?;
    let Versions { patched, unaffected } = &entry.versions;
    let is_fine = patched.iter().chain(unaffected).any(|good| good.matches(&version));
    Ok(entry.advisory.withdrawn.is_none() && !is_fine)
}

fn entries(folder: &Path) -> Result<Vec<Entry>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let files = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut entries = Vec::new();
    for file in files {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let entry = fs::read_to_string(&path).map_err(anyhow::Error::from);
            entries.push(entry.and_then(|text| parse(&text)).context(path.display().to_string())?);
        }
    }
    Ok(entries)
}

fn parse(text: &str) -> Result<Entry> {
    let block = text.trim_start().strip_prefix("```toml").and_then(|rest| rest.split_once("\n```"));
    let (block, _) = block.context("it does not begin with a block of TOML")?;
    Ok(toml::from_str(block)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "```toml\n[advisory]\nid = \"RUSTSEC-2026-0001\"\npackage = \"weak\"\n\
                         date = \"2026-01-01\"\n[versions]\npatched = [\">= 1.2.3\"]\n\
                         unaffected = [\"< 1.0.0\"]\n```\n\n# It is weak\n";

    /// The lines for this version of a package that the entry is about.
    fn judge(version: &str, entry: &str, ignore: &[&str]) -> Vec<String> {
        let database = tempfile::tempdir().unwrap();
        let folder = database.path().join("crates/weak");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("RUSTSEC-2026-0001.md"), entry).unwrap();
        let package = Locked { name: "weak".to_owned(), version: version.to_owned(), source: None };
        let ignore = ignore.iter().map(|id| (*id).to_owned()).collect();
        check(database.path(), &Lock { package: vec![package] }, &ignore).unwrap()
    }

    #[test]
    fn a_vulnerable_version_has_a_line() {
        assert_eq!(judge("1.1.0", ENTRY, &[]), ["weak 1.1.0: RUSTSEC-2026-0001"]);
        for fine in ["0.9.0", "1.2.3", "2.0.0"] {
            assert_eq!(judge(fine, ENTRY, &[]), Vec::<String>::new(), "{fine}");
        }
    }

    #[test]
    fn what_is_ignored_withdrawn_or_for_information_has_none() {
        assert!(judge("1.1.0", ENTRY, &["RUSTSEC-2026-0001"]).is_empty());
        for more in ["withdrawn = \"2026-02-02\"", "informational = \"unmaintained\""] {
            let entry = ENTRY.replace("[versions]", &format!("{more}\n[versions]"));
            assert!(judge("1.1.0", &entry, &[]).is_empty(), "{more}");
        }
    }

    #[test]
    fn a_folder_that_is_no_database_is_an_error() {
        let lock = Lock { package: Vec::new() };
        assert!(check(Path::new("/proc"), &lock, &BTreeSet::new()).is_err());
    }
}
