//! What the command is made of: a bill of materials, and the licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use serde_json::{Value, json};
use toml::Table;

use super::place::Dist;
use super::tools::{output, write};
use crate::cargo::command;

/// The files that go with every form of the command.
pub(super) struct Papers {
    pub(super) licences: PathBuf,
    pub(super) materials: PathBuf,
}

impl Papers {
    pub(super) fn write(dist: &Dist) -> Result<Self> {
        let mut options = vec!["--locked".to_owned(), "--filter-platform".to_owned()];
        options.push("x86_64-unknown-linux-gnu".to_owned());
        let metadata =
            MetadataCommand::new().current_dir(&dist.sources).other_options(options).exec();
        let metadata = metadata.context("cannot read the workspace with `cargo metadata`")?;
        let packages = linked(&metadata)?;

        let papers = Self {
            licences: dist.out.join("THIRD-PARTY-LICENSES.txt"),
            materials: dist.out.join(format!("lockkeeper-{}.cdx.json", dist.version)),
        };
        let rust = output(command(&["--version"]).env_remove("CARGO"))?;
        write(&papers.licences, licences(&packages, rust.trim())?)?;
        let lock = fs::read_to_string(dist.sources.join("Cargo.lock"))?;
        let checksums = checksums(&toml::from_str(&lock)?);
        let materials = materials(dist, &packages, &checksums);
        write(&papers.materials, serde_json::to_string_pretty(&materials)? + "\n")?;
        Ok(papers)
    }
}

/// What is linked into the command, by name: its dependencies, and theirs, but for what only builds or tests.
fn linked(metadata: &Metadata) -> Result<Vec<&Package>> {
    let resolve = metadata.resolve.as_ref().context("`cargo metadata` resolved nothing")?;
    let root = metadata.packages.iter().find(|package| package.name == "lockkeeper-cli");
    let mut to_visit = vec![&root.context("lockkeeper-cli is missing")?.id];
    let mut seen: BTreeSet<&PackageId> = BTreeSet::new();
    while let Some(id) = to_visit.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = resolve
            .nodes
            .iter()
            .find(|node| node.id == *id)
            .context("a package is missing in the graph")?;
        let is_linked = |kinds: &[cargo_metadata::DepKindInfo]| {
            kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        };
        to_visit
            .extend(node.deps.iter().filter(|dep| is_linked(&dep.dep_kinds)).map(|dep| &dep.pkg));
    }
    let mut packages: Vec<_> =
        metadata.packages.iter().filter(|package| seen.contains(&package.id)).collect();
    packages.sort_by_key(|package| (package.name.to_string(), package.version.clone()));
    Ok(packages)
}

/// The texts of all licences, each once, below the packages that come with it.
fn licences(packages: &[&Package], rust: &str) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in packages {
        let name = format!("{} {}", package.name, package.version);
        let expression = package.license.as_deref().unwrap_or("see its files");
        list += &format!("{name}: {expression}\n");
        if package.source.is_none() {
            continue;
        }
        let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
        let mut files: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        files.sort_by_key(std::fs::DirEntry::file_name);
        for file in files {
            let upper = file.file_name().to_string_lossy().to_uppercase();
            let is_licence =
                ["LICEN", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|it| upper.starts_with(it));
            if is_licence && file.path().is_file() {
                let text = String::from_utf8_lossy(&fs::read(file.path())?).replace("\r\n", "\n");
                texts.entry(text.trim().to_owned()).or_default().push(name.clone());
            }
        }
    }

    let mut all = format!(
        "The command lockkeeper is built with {rust} from these packages. The standard library of Rust is\n\
         licensed under MIT OR Apache-2.0, the unwinder of LLVM that is linked with it under Apache-2.0 WITH\n\
         LLVM-exception.\n\n{list}"
    );
    for (text, names) in &texts {
        all += &format!("\n{}\n{}\n\n{text}\n", "=".repeat(80), names.join(", "));
    }
    Ok(all)
}

/// The checksums that the registry has, by name and version.
fn checksums(lock: &Table) -> BTreeMap<(String, String), String> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let field = |package: &toml::Value, name: &str| Some(package.get(name)?.as_str()?.to_owned());
    let entries = packages.into_iter().flatten().filter_map(|package| {
        Some(((field(package, "name")?, field(package, "version")?), field(package, "checksum")?))
    });
    entries.collect()
}

/// A bill of materials in CycloneDX's format.
fn materials(
    dist: &Dist,
    packages: &[&Package],
    checksums: &BTreeMap<(String, String), String>,
) -> Value {
    let components = packages.iter().map(|package| {
        let (name, version) = (package.name.to_string(), package.version.to_string());
        let mut component = json!({
            "type": "library",
            "bom-ref": format!("pkg:cargo/{name}@{version}"),
            "purl": format!("pkg:cargo/{name}@{version}"),
            "name": name,
            "version": version,
        });
        if let Some(license) = &package.license {
            // Some packages write a slash for OR.
            component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        if let Some(checksum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        component
    });
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "lockkeeper",
                "version": dist.version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": components.collect::<Vec<_>>(),
    })
}
