//! `cargo xtask mutants`: applies deliberate bugs one by one to a copy of the sources, and checks that the
//! named suite detects each.
//!
//! A bug is a file in `tests/mutants`: see [`patch`]. The product code has no switches for them.

mod check;
mod patch;
mod tree;

use std::collections::BTreeSet;
use std::fmt::Write as _;
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

/// Applies the selected bugs. A run of all bugs writes the table.
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

    let mut results = catch(&patches, &tree, &checks)?;
    results.sort_by(|a, b| a.patch.name.cmp(&b.patch.name));
    if options.only.is_empty() {
        let file = format!("{DOCS}/mutants.md");
        std::fs::write(&file, table(&results)).with_context(|| format!("cannot write {file}"))?;
    }
    let survivors: Vec<_> = results.iter().filter(|result| result.how.is_none()).collect();
    if !survivors.is_empty() {
        let names: Vec<_> = survivors.iter().map(|result| result.patch.name.as_str()).collect();
        bail!("not caught: {}", names.join(", "));
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

/// The result of an applied bug.
struct Planted<'a> {
    patch: &'a Patch,
    /// The symptom; `None` if the bug was not detected.
    how: Option<String>,
    /// The duration of the check, without the build.
    seconds: f64,
}

/// Applies each bug and runs its check.
fn catch<'a>(patches: &'a [Patch], tree: &Tree, checks: &Checks) -> Result<Vec<Planted<'a>>> {
    // A check that fails without a bug cannot detect one.
    let kinds: BTreeSet<_> = patches.iter().map(|patch| &patch.check).collect();
    let widest = |check: &&&Check| !kinds.iter().any(|other| other.covers(check));
    for check in kinds.iter().filter(widest) {
        checks.build(check)?;
        if let Some(how) = checks.run(check)? {
            bail!("{check} fails without any bug: {how}");
        }
    }

    let mut results = Vec::new();
    for patch in patches {
        tree.apply(patch)?;
        checks.build(&patch.check).with_context(|| patch.name.clone())?;
        let start = Instant::now();
        let how = checks.run(&patch.check).with_context(|| patch.name.clone())?;
        let seconds = start.elapsed().as_secs_f64();
        tree.restore()?;
        println!("{}: {} ({seconds:.1} s)", patch.name, how.as_deref().unwrap_or("SURVIVES"));
        results.push(Planted { patch, how, seconds });
    }
    Ok(results)
}

fn table(results: &[Planted<'_>]) -> String {
    let mut table = String::from(
        "# Mutants\n\nWritten by `cargo xtask mutants`; do not edit. Each is a deliberate bug, a \
         patch in `tests/mutants`, which the named check must find.\n\n\
         | bug | what it does | caught by | how | seconds |\n|---|---|---|---|--:|\n",
    );
    for Planted { patch: Patch { name, what, check, .. }, how, seconds } in results {
        let how = how.as_deref().unwrap_or("**survives**");
        let _ = writeln!(table, "| {name} | {what} | {check} | {how} | {seconds:.1} |");
    }
    table
}
