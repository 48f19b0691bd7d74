//! `cargo xtask mutants`: plants one deliberate bug after the other in a copy of the sources, and
//! sees that the check that it names catches it.
//!
//! A bug is a file in `tests/mutants`: see [`patch`]. No switch for one is in the code of production.

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
    /// Only these, with commas between them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only apply each patch and type-check what it touches: what `cargo xtask test` runs.
    #[arg(long)]
    check: bool,
}

/// Plants those that are wanted. A run of all of them writes the table.
///
/// # Errors
///
/// A patch does not apply or compile, a check fails without any bug, or a bug was not caught.
pub(crate) fn run(options: &Mutants) -> Result<()> {
    let mut patches = patch::only(Patch::all()?, &options.only)?;
    // One after the other those that change the same files: less is built anew in between.
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

/// Applies each patch, and type-checks what they touch: all at once that fit each other, and one by one those
/// that do not compile together. That a patch compiles only because another one is planted too is not found
/// here, but by `cargo xtask mutants` alone.
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

/// What came of a planted bug.
struct Planted<'a> {
    patch: &'a Patch,
    /// How it showed; `None` if it did not.
    how: Option<String>,
    /// How long the check took, without the build.
    seconds: f64,
}

/// Plants each, and runs its check.
fn catch<'a>(patches: &'a [Patch], tree: &Tree, checks: &Checks) -> Result<Vec<Planted<'a>>> {
    // A check that fails anyway catches nothing.
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
