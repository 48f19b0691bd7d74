//! The crates: what a registry would get, and what users do with it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::MetadataCommand;

use super::place::{Dist, Form};
use super::tools::{empty, run, write};
use crate::cargo::{command, succeeds, workspace};

/// Packages every crate that is published; in the full form, builds each from its package.
pub(super) fn package(dist: &Dist) -> Result<()> {
    describes()?;
    rust_version()?;
    let mut package = command(&["package", "--workspace", "--locked", "--allow-dirty", "--quiet"]);
    for member in workspace()?.workspace_packages() {
        if member.publish.as_ref().is_some_and(Vec::is_empty) {
            package.args(["--exclude", &member.name]);
        }
    }
    if dist.form == Form::Thin {
        package.arg("--no-verify");
    }
    ensure!(succeeds(package.current_dir(&dist.sources))?, "a crate does not package");
    Ok(())
}

/// Each published crate says what a registry shows, and each of its features what it does.
fn describes() -> Result<()> {
    let mut missing = Vec::new();
    for package in workspace()?.workspace_packages() {
        if package.publish.as_ref().is_some_and(Vec::is_empty) {
            continue;
        }
        let mut miss = |what: &str| missing.push(format!("{}: {what}", package.name));
        if package.description.is_none() || package.license.is_none() {
            miss("a description or a license");
        }
        if package.readme.is_none() {
            miss("a readme");
        }
        if package.keywords.is_empty() || package.categories.is_empty() {
            miss("keywords or categories");
        }
        if package.rust_version.is_none() {
            miss("a rust-version");
        }
        if package.metadata["docs"]["rs"]["all-features"] != true {
            miss("all-features for docs.rs");
        }
        let manifest = fs::read_to_string(&package.manifest_path)?;
        let lines: Vec<&str> = manifest.lines().collect();
        let begin = lines.iter().position(|line| *line == "[features]").unwrap_or(lines.len());
        for pair in lines[begin..].windows(2).take_while(|pair| !pair[1].starts_with('[')) {
            if pair[1].contains(" = ") && !pair[0].starts_with("## ") {
                miss(&format!("what its feature does: {}", pair[1]));
            }
        }
    }
    ensure!(missing.is_empty(), "missing:\n  {}", missing.join("\n  "));
    Ok(())
}

/// This tool chain is the oldest that is declared, so everything here is built and tested with that. No dependency
/// declares a newer one.
fn rust_version() -> Result<()> {
    let metadata = MetadataCommand::new().other_options(["--locked".to_owned()]).exec()?;
    let ours =
        metadata.workspace_packages().iter().find_map(|package| package.rust_version.clone());
    let ours = ours.context("no crate declares a Rust version")?;
    let newer =
        metadata.packages.iter().filter(|package| package.rust_version.as_ref() > Some(&ours));
    let newer: Vec<String> =
        newer.map(|package| format!("{} {}", package.name, package.version)).collect();
    if !newer.is_empty() {
        bail!("they need a newer Rust than {ours}: {}", newer.join(", "));
    }
    let output = Command::new("rustc").arg("--version").output()?;
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    let declared = format!("rustc {}.{}.", ours.major, ours.minor);
    if version.starts_with(&declared) {
        println!("built and tested with the Rust that is declared, {ours}");
    } else {
        println!("NOT CHECKED: Rust {ours} is declared, this is {}", version.trim());
    }
    Ok(())
}

/// Installs the command from its sources, as a user does.
pub(super) fn install(dist: &Dist) -> Result<()> {
    let root = dist.work.join("installed");
    empty(&root)?;
    let mut install =
        command(&["install", "--quiet", "--locked", "--debug", "--path", "crates/cli", "--root"]);
    install.arg(&root).current_dir(&dist.sources).env("CARGO_TARGET_DIR", &dist.target);
    ensure!(succeeds(&mut install)?, "`cargo install --path crates/cli` failed");
    run(Command::new(root.join("bin/lockkeeper")).arg("--version"))
}

/// Builds and runs the program of the README in a fresh crate, with the newest dependencies.
pub(super) fn depend(dist: &Dist) -> Result<()> {
    let folder = dist.work.join("dependency");
    empty(&folder)?;
    let crates = dist.sources.join("crates");
    let manifest = format!(
        "[package]\nname = \"dependency\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         lockkeeper = {{ path = \"{0}/lockkeeper\", features = [\"tls\", \"stream\", \"metrics\", \"tokio-util\"] }}\n\
         lockkeeper-engine = {{ path = \"{0}/engine\" }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt\"] }}\n\n[workspace]\n",
        crates.display()
    );
    write(&folder.join("Cargo.toml"), manifest)?;
    let example = fs::read(dist.sources.join("examples/getting_started.rs"))?;
    write(&folder.join("src/main.rs"), example)?;
    let mut built = command(&["run", "--quiet"]);
    ensure!(succeeds(built.current_dir(&folder))?, "a program that depends on the library fails");
    Ok(())
}
