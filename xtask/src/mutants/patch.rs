//! A deliberate bug as a file.
//!
//! ```text
//! The server answers before its disk has synced.
//!
//! Caught by: simulation, 3000 seeds
//!
//! diff --git a/tests/simulation/server.rs b/tests/simulation/server.rs
//! ...
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail, ensure};

/// The folder of the patches.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/mutants");

const CAUGHT_BY: &str = "Caught by: ";

/// A deliberate bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patch {
    pub(super) name: String,
    pub(super) file: PathBuf,
    /// What the bug is, in one sentence.
    pub(super) what: String,
    pub(super) check: Check,
    /// The files that it changes, relative to the root of the sources.
    pub(super) files: BTreeSet<PathBuf>,
}

/// The check that must detect a bug, as written in a patch.
///
/// | check | what it is |
/// |---|---|
/// | `leases, 500 seeds` | the suite of the session's leases, each test with this many seeds |
/// | `unit tests of session, lease` | the tests in `crates/session` with `lease` in their names |
/// | `simulation, 100 seeds` | as many seeds as the bug may survive |
/// | `model, lost connection` | the scenarios of the model with this in their names |
/// | `partition, follower` | one run of a form, which needs real servers |
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Check {
    text: String,
    /// The folder of the package with the tests.
    pub(super) package: String,
    /// The target that cargo must build.
    pub(super) target: Vec<String>,
    /// The arguments of the built program.
    pub(super) arguments: Vec<String>,
    /// The number of seeds for suites with seeds, starting from the first one.
    pub(super) seeds: Option<u64>,
}

impl Patch {
    /// Every deliberate bug, by name.
    pub(super) fn all() -> Result<Vec<Self>> {
        let mut patches = Vec::new();
        let entries = std::fs::read_dir(FOLDER).with_context(|| format!("cannot read {FOLDER}"))?;
        for entry in entries {
            let file = entry?.path();
            patches.push(Self::read(&file).with_context(|| file.display().to_string())?);
        }
        patches.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(patches)
    }

    fn read(file: &Path) -> Result<Self> {
        let file = file.canonicalize()?;
        if file.extension().is_none_or(|extension| extension != "patch") {
            bail!("it is not a patch");
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file)?;
        Self::parse(name, file, &text)
    }

    fn parse(name: String, file: PathBuf, text: &str) -> Result<Self> {
        let (words, diff) = text.split_once("\ndiff --git ").context("the diff is missing")?;
        let (what, check) =
            words.split_once(CAUGHT_BY).context("the line that names the check is missing")?;
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        if what.is_empty() {
            bail!("it does not begin with a description of the bug");
        }
        let files = diff.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        let files = files.map(PathBuf::from).collect();
        Ok(Self { name, file, what, check: check.trim().parse()?, files })
    }

    /// The arguments with which cargo type-checks the affected library or suite.
    pub(super) fn touched(&self) -> Result<BTreeSet<String>> {
        let touched = |file: &PathBuf| {
            let parts: Option<Vec<_>> = file.iter().map(|part| part.to_str()).collect();
            Ok(match parts.unwrap_or_default().as_slice() {
                ["crates", folder, "src", ..] => {
                    format!("--manifest-path crates/{folder}/Cargo.toml --lib")
                }
                ["tests", suite @ ("simulation" | "model"), ..] => {
                    format!("--manifest-path tests/virtual/Cargo.toml --test {suite}")
                }
                ["tests", suite, _, ..] => {
                    format!("--manifest-path tests/Cargo.toml --test {suite}")
                }
                _ => bail!("{}: not the code of a package or a suite", file.display()),
            })
        };
        self.files.iter().map(touched).collect()
    }
}

impl FromStr for Check {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, rest) = text.split_once(", ").unwrap_or((text, ""));
        let suite = |package: &str, suite: &str, arguments: &[&str]| Self {
            text: text.to_owned(),
            package: package.to_owned(),
            target: ["--test", suite].map(str::to_owned).to_vec(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            seeds: None,
        };
        Ok(match (kind, rest) {
            ("leases", seeds) => {
                Self { seeds: Some(parse_seeds(seeds)?), ..suite("crates/session", "leases", &[]) }
            }
            ("simulation", seeds) => {
                let (seeds, run) = (parse_seeds(seeds)?, ["run", "--seeds"]);
                let mut simulation = suite("tests/virtual", "simulation", &run);
                simulation.arguments.push(seeds.to_string());
                Self { seeds: Some(seeds), ..simulation }
            }
            (_, "") => bail!("unknown check: {text}"),
            ("model", only) => suite("tests/virtual", "model", &["run", "--long", "--only", only]),
            ("partition", form) => {
                let ours =
                    ["run", "partition", "--runs", "1", "--peers", "lockkeeper", "--form", form];
                suite("tests", "cluster", &ours)
            }
            (kind, filter) => {
                let folder = kind.strip_prefix("unit tests of ");
                let folder = folder.with_context(|| format!("unknown check: {text}"))?;
                let target = vec!["--lib".to_owned()];
                Self { target, ..suite(&format!("crates/{folder}"), "", &[filter]) }
            }
        })
    }
}

impl Check {
    /// Whether this check runs the same as the other one, with at least as many seeds.
    pub(super) fn covers(&self, other: &Self) -> bool {
        (&self.package, &self.target) == (&other.package, &other.target)
            && other.seeds.is_some()
            && self.seeds > other.seeds
    }

    /// Whether unit tests with this name exist, according to the sources: otherwise nothing would be checked.
    pub(super) fn names_something(&self, root: &Path) -> Result<()> {
        let [filter] = self.arguments.as_slice() else { return Ok(()) };
        let folder = root.join(&self.package).join("src");
        let mut grep = Command::new("grep");
        let found = grep.args(["-rqE", &format!("(fn|mod) \\w*{filter}")]).arg(folder).status()?;
        ensure!(self.target != ["--lib"] || found.success(), "no unit test matches {self}");
        Ok(())
    }
}

fn parse_seeds(text: &str) -> Result<u64> {
    let number = text.strip_suffix(" seeds").context("how many seeds?")?;
    number.parse().with_context(|| format!("not a number: {number}"))
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The patches with these names, or all without names.
pub(super) fn only(all: Vec<Patch>, names: &[String]) -> Result<Vec<Patch>> {
    let is_known = |name: &&String| all.iter().any(|patch| patch.name == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        bail!("{unknown} does not exist in tests/mutants");
    }
    let is_wanted = |patch: &Patch| names.is_empty() || names.contains(&patch.name);
    Ok(all.into_iter().filter(is_wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Two lines say
what the bug is.

Caught by: simulation, 100 seeds

diff --git a/crates/session/src/lease.rs b/crates/session/src/lease.rs
--- a/crates/session/src/lease.rs
+++ b/crates/session/src/lease.rs
@@ -1,1 +1,1 @@
-a
+b
diff --git a/tests/simulation/server.rs b/tests/simulation/server.rs
--- a/tests/simulation/server.rs
+++ b/tests/simulation/server.rs
@@ -1,1 +1,1 @@
-a
+b
";

    fn parse(text: &str) -> Result<Patch> {
        Patch::parse("name".to_owned(), PathBuf::from("name.patch"), text)
    }

    #[test]
    fn a_patch_says_what_it_is_what_catches_it_and_what_it_touches() {
        let patch = parse(TEXT).unwrap();
        assert_eq!(patch.what, "Two lines say what the bug is.");
        assert_eq!(patch.check, "simulation, 100 seeds".parse().unwrap());
        let touched =
            ["crates/session/Cargo.toml --lib", "tests/virtual/Cargo.toml --test simulation"]
                .map(|rest| format!("--manifest-path {rest}"));
        assert_eq!(patch.touched().unwrap(), BTreeSet::from(touched));
    }

    #[test]
    fn a_patch_without_one_of_its_parts_is_refused() {
        let (_, without_words) = TEXT.split_once("\n\n").unwrap();
        assert!(parse(without_words).is_err());
        assert!(parse(&TEXT.replace("Caught by", "Found by")).is_err());
        assert!(parse(&TEXT.replace("100 seeds", "some seeds")).is_err());
        let (without_diff, _) = TEXT.split_once("diff ").unwrap();
        assert!(parse(without_diff).is_err());
        let elsewhere = TEXT.replace("crates/session/src/lease.rs", "xtask/src/main.rs");
        assert!(parse(&elsewhere).unwrap().touched().is_err());
    }

    #[test]
    fn each_check_is_what_its_words_say() {
        for (text, words) in [
            ("leases, 500 seeds", "crates/session --test leases"),
            ("unit tests of session, lease", "crates/session --lib lease"),
            ("simulation, 7 seeds", "tests/virtual --test simulation run --seeds 7"),
            (
                "model, lost connection",
                "tests/virtual --test model run --long --only lost connection",
            ),
            (
                "partition, link",
                "tests --test cluster run partition --runs 1 --peers lockkeeper --form link",
            ),
        ] {
            let check: Check = text.parse().unwrap();
            assert_eq!(check.to_string(), text);
            let Check { package, target, arguments, .. } = check;
            assert_eq!([vec![package], target, arguments].concat().join(" "), words);
        }
        for text in [
            "",
            "leases",
            "leases, all seeds",
            "simulation",
            "partition",
            "unit tests of session",
            "model",
        ] {
            assert!(text.parse::<Check>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_choose_and_an_unknown_one_is_an_error() {
        let named = |name: &str| Patch { name: name.to_owned(), ..parse(TEXT).unwrap() };
        let all = ["a", "b", "c"].map(named).to_vec();
        let choose = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            let chosen = only(all.clone(), &names)?;
            anyhow::Ok(chosen.into_iter().map(|patch| patch.name).collect::<String>())
        };
        assert_eq!(choose(&["c", "a"]).unwrap(), "ac");
        assert_eq!(choose(&[]).unwrap(), "abc");
        assert!(choose(&["d"]).is_err());
    }
}
