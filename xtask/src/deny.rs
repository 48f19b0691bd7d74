//! Checks the dependencies: licences, banned packages, versions and sources.
//!
//! Reads `deny.toml`, and needs neither a network nor an installed tool. If `cargo deny` is installed, it
//! checks the same file too; it also uses the settings that are not read here.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::MetadataCommand;
use spdx::{Expression, ParseMode};
use toml::{Table, Value};

use crate::cargo::{command, workspace};

/// Checks this workspace.
///
/// # Errors
///
/// One line for each package that is not allowed.
pub(crate) fn run() -> Result<()> {
    let root = workspace()?.workspace_root;
    let read = |name: &str| -> Result<Table> {
        let text =
            fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        toml::from_str(&text).with_context(|| name.to_owned())
    };
    let (rules, lock) = (read("deny.toml")?, read("Cargo.lock")?);
    let licenses = strings(&rules, "licenses", "allow")?;
    let banned = strings(&rules, "bans", "deny")?;
    let registries = strings(&rules, "sources", "allow-registry")?;

    // Licences of the packages for these targets: other packages may not be on this machine.
    let mut offences = BTreeSet::new();
    let mut members = BTreeSet::new();
    for target in strings(&rules, "graph", "targets")? {
        let options = ["--locked", "--all-features", "--filter-platform", &target];
        let metadata = MetadataCommand::new().other_options(options.map(str::to_owned)).exec();
        let metadata = metadata.context("cannot read this workspace with `cargo metadata`")?;
        for package in &metadata.packages {
            if let Err(error) = license(package.license.as_deref(), &licenses) {
                offences.insert(format!("{} {}: {error:#}", package.name, package.version));
            }
        }
        for package in metadata.workspace_packages() {
            members.insert(package.name.to_string());
            let is_any = |it: &&cargo_metadata::Dependency| {
                it.req.comparators.is_empty() && it.path.is_none()
            };
            let any = package.dependencies.iter().filter(is_any);
            offences.extend(
                any.map(|it| format!("{}: takes any version of {}", package.name, it.name)),
            );
        }
    }

    // Names and sources of all locked packages, for every target.
    let packages =
        lock.get("package").and_then(Value::as_array).context("Cargo.lock has no packages")?;
    for package in packages {
        let field = |name: &str| package.get(name).and_then(Value::as_str);
        let name = field("name").context("a package in Cargo.lock lacks a name")?;
        let is_ours = members.contains(name);
        if banned.contains(name) {
            offences.insert(format!("{name}: is banned"));
        }
        if !is_allowed_source(field("source"), is_ours, &registries) {
            let source = field("source").unwrap_or("a folder outside of this workspace");
            offences.insert(format!("{name}: comes from {source}"));
        }
    }

    if !offences.is_empty() {
        let offences: Vec<String> = offences.into_iter().collect();
        bail!("violations of deny.toml:\n  {}", offences.join("\n  "));
    }
    println!("{} packages, all in order", packages.len());
    cargo_deny()
}

/// The tool itself, if it is installed.
fn cargo_deny() -> Result<()> {
    let version = command(&["deny", "--version"]).output().context("cannot start cargo")?;
    if !version.status.success() {
        return Ok(());
    }
    let checks = ["deny", "--offline", "check", "bans", "licenses", "sources"];
    let status = command(&checks).status().context("cannot start cargo")?;
    ensure!(status.success(), "cargo deny: {status}");
    Ok(())
}

fn strings(rules: &Table, table: &str, key: &str) -> Result<BTreeSet<String>> {
    let list = rules.get(table).and_then(|table| table.get(key)).cloned();
    let list = list.with_context(|| format!("deny.toml: [{table}] lacks {key}"))?;
    list.try_into().with_context(|| format!("deny.toml: {key} of [{table}]"))
}

/// Whether at least one alternative of the licence expression is allowed.
fn license(expression: Option<&str>, allowed: &BTreeSet<String>) -> Result<()> {
    let text = expression.context("does not name a licence")?;
    let mode =
        ParseMode { allow_slash_as_or_operator: true, allow_deprecated: true, ..ParseMode::STRICT };
    let parsed = Expression::parse_mode(text, mode)
        .with_context(|| format!("cannot read its licence {text}"))?;
    ensure!(
        parsed.evaluate(|it| allowed.contains(&it.to_string())),
        "its licence is not allowed: {text}"
    );
    Ok(())
}

fn is_allowed_source(source: Option<&str>, is_ours: bool, registries: &BTreeSet<String>) -> bool {
    let Some(source) = source else { return is_ours };
    source.split_once('+').is_some_and(|(kind, url)| kind != "git" && registries.contains(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_choice_of_allowed_licences_is_enough() {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        let judge = |text| license(text, &BTreeSet::from(allowed.clone())).is_ok();
        for good in ["MIT", "GPL-3.0/MIT", "Apache-2.0 WITH LLVM-exception", "(MIT OR X11) AND ISC"]
        {
            assert!(judge(Some(good)), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "MIT WITH", ""] {
            assert!(!judge(Some(bad)), "{bad}");
        }
        assert!(!judge(None));
    }

    #[test]
    fn only_the_registry_and_this_workspace_are_sources() {
        let judge = |from, is_ours| {
            is_allowed_source(from, is_ours, &BTreeSet::from(["https://good".to_owned()]))
        };
        assert!(judge(None, true) && judge(Some("registry+https://good"), false));
        for from in [
            None,
            Some("registry+https://other"),
            Some("git+https://good#0123"),
            Some("https://good"),
        ] {
            assert!(!judge(from, false), "{from:?}");
        }
    }
}
