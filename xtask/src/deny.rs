//! The check of what may enter the dependencies: licences, banned packages, sources, and known
//! vulnerabilities where a copy of RustSec's database is given.
//!
//! It reads the part of `deny.toml` that this project uses, needs no network, and is the same on every
//! machine. Where `cargo deny` is installed, it has its say on the same file, too.

mod advisories;
mod expression;
mod lock;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{MetadataCommand, Package};
use serde::Deserialize;

use self::expression::is_allowed;
use self::lock::{Lock, Locked};
use crate::cargo::{command, workspace};

/// Names a directory with a clone of <https://github.com/RustSec/advisory-db>.
const DATABASE: &str = "LOCKKEEPER_ADVISORY_DB";

/// `deny.toml`. A setting that is not here is an error, as it would have no effect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Rules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
    advisories: Advisories,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Graph {
    targets: Vec<String>,
    all_features: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    multiple_versions: Allow,
    wildcards: Deny,
    allow_wildcard_paths: bool,
    deny: Vec<Banned>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_registry: Deny,
    unknown_git: Deny,
    allow_registry: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Advisories {
    ignore: BTreeSet<String>,
}

/// The only value that this check knows for some settings.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Deny {
    Deny,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Allow {
    Allow,
}

/// Checks this workspace.
///
/// # Errors
///
/// One line for each package that may not enter.
pub(crate) fn run() -> Result<()> {
    let root = workspace()?.workspace_root.into_std_path_buf();
    let read = |name: &str| {
        let path = root.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let rules: Rules = toml::from_str(&read("deny.toml")?).context("deny.toml")?;
    let lock: Lock = toml::from_str(&read("Cargo.lock")?).context("Cargo.lock")?;

    let mut offences = BTreeSet::new();
    let mut members = BTreeSet::new();
    for target in &rules.graph.targets {
        let mut options = ["--locked", "--filter-platform", target].map(str::to_owned).to_vec();
        options.extend(rules.graph.all_features.then(|| "--all-features".to_owned()));
        let metadata = MetadataCommand::new().other_options(options).exec();
        let metadata = metadata.context("cannot read this workspace with `cargo metadata`")?;
        offences.extend(metadata.packages.iter().filter_map(|package| license(&rules, package)));
        let own = metadata.workspace_packages();
        offences.extend(own.iter().flat_map(|package| wildcards(&rules, package)));
        members.extend(own.iter().map(|package| package.name.to_string()));
    }
    offences.extend(lock.package.iter().filter_map(|package| banned(&rules, package)));
    let source = |package| source(&rules, &members, package);
    offences.extend(lock.package.iter().filter_map(source));

    match std::env::var_os(DATABASE).map(PathBuf::from) {
        None => println!("vulnerabilities: not checked; {DATABASE} can name RustSec's database"),
        Some(database) => {
            offences.extend(advisories::check(&database, &lock, &rules.advisories.ignore)?);
        }
    }
    if !offences.is_empty() {
        let offences: Vec<String> = offences.into_iter().collect();
        bail!("not as deny.toml wants it:\n  {}", offences.join("\n  "));
    }
    println!("{} packages, all in order", lock.package.len());
    cargo_deny()
}

/// The tool itself, where it is installed.
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

fn license(rules: &Rules, package: &Package) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    let Some(license) = &package.license else {
        return Some(format!("{name}: names no licence"));
    };
    match is_allowed(license, &rules.licenses.allow) {
        Ok(true) => None,
        Ok(false) => Some(format!("{name}: its licence is not allowed: {license}")),
        Err(e) => Some(format!("{name}: its licence cannot be read: {license}: {e}")),
    }
}

/// Whatever is published under the name would be taken.
fn wildcards(rules: &Rules, package: &Package) -> Vec<String> {
    let Bans { wildcards: Deny::Deny, allow_wildcard_paths, .. } = rules.bans;
    let any = package.dependencies.iter().filter(|dependency| {
        let is_path = dependency.path.is_some();
        dependency.req.comparators.is_empty() && !(is_path && allow_wildcard_paths)
    });
    let line = |name: &str| format!("{}: takes any version of {name}", package.name);
    any.map(|dependency| line(&dependency.name)).collect()
}

fn banned(rules: &Rules, package: &Locked) -> Option<String> {
    let Allow::Allow = rules.bans.multiple_versions;
    let is_banned = rules.bans.deny.iter().any(|banned| banned.name == package.name);
    is_banned.then(|| format!("{} {}: is banned", package.name, package.version))
}

fn source(rules: &Rules, members: &BTreeSet<String>, package: &Locked) -> Option<String> {
    let Sources { unknown_registry: Deny::Deny, unknown_git: Deny::Deny, allow_registry } =
        &rules.sources;
    let from = match &package.source {
        None if members.contains(&package.name) => return None,
        None => "a folder outside of this workspace",
        Some(source) => source,
    };
    let registry = from.strip_prefix("registry+").or_else(|| from.strip_prefix("sparse+"));
    let is_known = registry.is_some_and(|url| allow_registry.iter().any(|known| known == url));
    (!is_known).then(|| format!("{} {}: comes from {from}", package.name, package.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        graph = { targets = ["x"], all-features = true }
        licenses = { allow = ["MIT"] }
        sources = { unknown-registry = "deny", unknown-git = "deny", allow-registry = ["https://good"] }
        advisories = { ignore = [] }
        [bans]
        multiple-versions = "allow"
        wildcards = "deny"
        allow-wildcard-paths = true
        deny = [{ crate = "bad" }]
    "#;

    fn rules() -> Rules {
        toml::from_str(RULES).unwrap()
    }

    fn locked(name: &str, source: Option<&str>) -> Locked {
        Locked {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            source: source.map(str::to_owned),
        }
    }

    #[test]
    fn only_the_registry_and_this_workspace_are_sources() {
        let members = BTreeSet::from(["ours".to_owned()]);
        let judge = |name, from| source(&rules(), &members, &locked(name, from));
        assert_eq!(judge("ours", None), None);
        assert_eq!(judge("theirs", Some("registry+https://good")), None);
        for (name, from) in [
            ("theirs", None),
            ("theirs", Some("registry+https://other")),
            ("theirs", Some("git+https://good#0123")),
            ("ours", Some("git+https://good#0123")),
        ] {
            assert!(judge(name, from).is_some(), "{name} {from:?}");
        }
    }

    #[test]
    fn a_banned_package_is_named() {
        let line = banned(&rules(), &locked("bad", Some("registry+https://good")));
        assert_eq!(line.as_deref(), Some("bad 1.0.0: is banned"));
        assert_eq!(banned(&rules(), &locked("good", None)), None);
    }

    /// Else a rule could be written down that nobody checks.
    #[test]
    fn settings_that_would_have_no_effect_are_refused() {
        for (from, to) in [
            ("allow = [\"MIT\"]", "allow = [\"MIT\"], exceptions = []"),
            ("unknown-git = \"deny\"", "unknown-git = \"warn\""),
            ("multiple-versions = \"allow\"", "multiple-versions = \"deny\""),
            ("{ crate = \"bad\" }", "{ crate = \"bad\", wrappers = [] }"),
        ] {
            let changed = RULES.replace(from, to);
            assert_ne!(changed, RULES);
            assert!(toml::from_str::<Rules>(&changed).is_err(), "{to}");
        }
    }
}
