//! `cargo xtask mutants`: applies deliberate bugs one by one to a copy of the sources, and checks that the
//! named suite detects each.
//!
//! A bug is a file in `tests/mutants`: see [`patch`]. The product code has no switches for them.

mod check;
mod patch;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::cargo::workspace;
use crate::mutants::check::Checks;
use crate::mutants::patch::{Check, Patch};
use crate::mutants::tree::Tree;
use crate::proof::DOCS;

/// `cargo xtask mutants`
#[derive(clap::Args)]
pub(crate) struct Mutants {
    /// Only these, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only apply each patch and type-check the affected packages, as `cargo xtask test` does.
    #[arg(long)]
    check: bool,
}

/// Applies the selected bugs, and writes their rows of the table.
///
/// # Errors
///
/// If a patch does not apply or compile, a check fails without a bug, or a bug is not detected.
pub(crate) fn run(options: &Mutants) -> Result<()> {
    let mut patches = patch::only(Patch::all()?, &options.only)?;
    // Patches of the same files run one after the other, which reduces rebuilding.
    patches.sort_by(|a, b| (&a.files, &a.name).cmp(&(&b.files, &b.name)));
    let target = workspace()?.target_directory;
    let folder = target.join("mutants").into_std_path_buf();
    let tree = Tree::copy(folder.join("tree"))?;
    let checks = Checks::new(tree.folder().to_owned(), folder.join("target"));
    if options.check {
        return compile(&patches, &tree, &checks);
    }

    let survivors = catch(&patches, &tree, &checks)?;
    if !survivors.is_empty() {
        bail!("not caught: {}", survivors.join(", "));
    }
    Ok(())
}

/// Applies each patch and type-checks the affected packages: compatible patches together, and one by one
/// those that do not compile together. A patch that compiles only together with another one is not detected
/// here, only by `cargo xtask mutants`.
fn compile(patches: &[Patch], tree: &Tree, checks: &Checks) -> Result<()> {
    for patch in patches {
        patch.check.names_something(tree.folder())?;
        tree.apply(patch)?;
        tree.restore()?;
    }

    let mut left: Vec<&Patch> = patches.iter().collect();
    while !left.is_empty() {
        let (planted, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|patch| tree.apply(patch).is_ok());
        let compiles = check(&planted, checks).is_ok();
        tree.restore()?;
        for patch in planted.iter().filter(|_| !compiles) {
            tree.apply(patch)?;
            check(&[patch], checks).with_context(|| patch.name.clone())?;
            tree.restore()?;
        }
        left = others;
    }
    println!("{} patches apply and compile", patches.len());
    Ok(())
}

fn check(planted: &[&Patch], checks: &Checks) -> Result<()> {
    let touched: Result<Vec<_>> = planted.iter().map(|patch| patch.touched()).collect();
    checks.compile(&touched?.into_iter().flatten().collect())
}

/// Applies each bug and runs its check. Returns the bugs that were not detected.
fn catch(patches: &[Patch], tree: &Tree, checks: &Checks) -> Result<Vec<String>> {
    // A check that fails without a bug cannot detect one.
    let kinds: BTreeSet<_> = patches.iter().map(|patch| &patch.check).collect();
    let widest = |check: &&&Check| !kinds.iter().any(|other| other.covers(check));
    for check in kinds.iter().filter(widest) {
        checks.build(check)?;
        if let Some(how) = checks.run(check)? {
            bail!("{check} fails without any bug: {how}");
        }
    }

    let mut table = Table::open()?;
    let mut survivors = Vec::new();
    for patch in patches {
        tree.apply(patch)?;
        checks.build(&patch.check).with_context(|| patch.name.clone())?;
        let start = Instant::now();
        let how = checks.run(&patch.check).with_context(|| patch.name.clone())?;
        let seconds = start.elapsed().as_secs_f64();
        tree.restore()?;
        println!("{}: {} ({seconds:.1} s)", patch.name, how.as_deref().unwrap_or("SURVIVES"));
        if how.is_none() {
            survivors.push(patch.name.clone());
        }
        // At once: a run of all takes hours.
        table.set(patch, how.as_deref(), seconds)?;
    }
    Ok(survivors)
}

/// The table of results, one row for each bug. It keeps the rows of earlier runs.
struct Table {
    file: PathBuf,
    /// By bug.
    rows: BTreeMap<String, String>,
}

impl Table {
    fn open() -> Result<Self> {
        let file = PathBuf::from(format!("{DOCS}/mutants.md"));
        let text = fs::read_to_string(&file).unwrap_or_default();
        let all = Patch::all()?;
        let rows = text.lines().filter_map(|row| {
            let name = row.strip_prefix("| ")?.split(" | ").next()?;
            all.iter().any(|patch| patch.name == name).then(|| (name.to_owned(), row.to_owned()))
        });
        Ok(Self { file, rows: rows.collect() })
    }

    /// Records a result. `how`: the symptom; `None` if the bug was not detected. `seconds`: the duration of the
    /// check, without the build.
    fn set(&mut self, patch: &Patch, how: Option<&str>, seconds: f64) -> Result<()> {
        let Patch { name, what, check, .. } = patch;
        let how = how.unwrap_or("**survives**");
        let row = format!("| {name} | {what} | {check} | {how} | {seconds:.1} |");
        self.rows.insert(name.clone(), row);

        let rows: Vec<_> = self.rows.values().map(String::as_str).collect();
        let text = format!(
            "# Mutants\n\nWritten by `cargo xtask mutants`; do not edit. Each is a deliberate bug, a patch in \
             `tests/mutants`, which the named check must find. A bug without a row has not been tried yet by this \
             command.\n\n| bug | what it does | caught by | how | seconds |\n|---|---|---|---|--:|\n{}\n",
            rows.join("\n")
        );
        fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))
    }
}
