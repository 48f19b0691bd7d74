//! What the command is made of: a bill of materials, and the licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{
    DepKindInfo, DependencyKind, Metadata, MetadataCommand, Package, PackageId, Resolve, Target,
};
use serde_json::{Value, json};
use toml::Table;

use super::place::Dist;
use super::tools::{output, write};
use crate::cargo::command;

/// The package of the command.
const COMMAND: &str = "lockkeeper-cli";

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
        let materials = materials(dist, &metadata, &packages, &checksums)?;
        write(&papers.materials, serde_json::to_string_pretty(&materials)? + "\n")?;
        Ok(papers)
    }
}

/// What is linked into the command, by name: its dependencies, and theirs, but for what only builds or tests.
fn linked(metadata: &Metadata) -> Result<Vec<&Package>> {
    let resolve = metadata.resolve.as_ref().context("`cargo metadata` resolved nothing")?;
    let root = metadata.packages.iter().find(|package| package.name == COMMAND);
    let mut to_visit = vec![&root.context("lockkeeper-cli is missing")?.id];
    let mut seen: BTreeSet<&PackageId> = BTreeSet::new();
    while let Some(id) = to_visit.pop() {
        // A macro is part of the compiler.
        let is_macro = metadata[id].targets.iter().any(Target::is_proc_macro);
        if is_macro || !seen.insert(id) {
            continue;
        }
        to_visit.extend(dependencies(resolve, id)?);
    }
    let mut packages: Vec<_> =
        metadata.packages.iter().filter(|package| seen.contains(&package.id)).collect();
    packages.sort_by_key(|package| (package.name.to_string(), package.version.clone()));
    Ok(packages)
}

/// What a package depends on in the command, and not only in its build or tests.
fn dependencies<'a>(resolve: &'a Resolve, id: &PackageId) -> Result<Vec<&'a PackageId>> {
    let node = resolve.nodes.iter().find(|node| node.id == *id);
    let node = node.context("a package is missing in the graph")?;
    let is_linked =
        |kinds: &[DepKindInfo]| kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
    Ok(node.deps.iter().filter(|dep| is_linked(&dep.dep_kinds)).map(|dep| &dep.pkg).collect())
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
        for file in licence_files(folder.as_std_path())? {
            let text = String::from_utf8_lossy(&fs::read(file)?).replace("\r\n", "\n");
            let packages = texts.entry(text.trim().to_owned()).or_default();
            if packages.last() != Some(&name) {
                packages.push(name.clone());
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

/// The licences in a package, also those of what it has taken from elsewhere.
fn licence_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let upper = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_licence = ["LICEN", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"]
            .iter()
            .any(|start| upper.starts_with(start));
        let is_source =
            path.extension().is_some_and(|it| ["rs", "c", "h"].iter().any(|s| it == *s));
        if path.is_dir() {
            if !["BENCHES", "EXAMPLES", "TESTS"].contains(&&*upper) {
                found.extend(licence_files(&path)?);
            }
        } else if is_licence && !is_source {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
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
    metadata: &Metadata,
    packages: &[&Package],
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Value> {
    let resolve = metadata.resolve.as_ref().context("`cargo metadata` resolved nothing")?;
    let is_linked = |id: &PackageId| packages.iter().any(|package| package.id == *id);
    let mut graph = Vec::new();
    for package in packages {
        let on = dependencies(resolve, &package.id)?.into_iter().filter(|id| is_linked(id));
        let mut on: Vec<_> = on.map(|id| purl(&metadata[id])).collect();
        on.sort();
        graph.push(json!({ "ref": purl(package), "dependsOn": on }));
    }

    let (command, libraries): (Vec<&Package>, Vec<&Package>) =
        packages.iter().copied().partition(|package| package.name == COMMAND);
    let components = libraries.iter().map(|package| {
        let (name, version) = (package.name.to_string(), package.version.to_string());
        let mut component = json!({
            "type": "library",
            "bom-ref": purl(package),
            "purl": purl(package),
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
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": dist.time()?,
            "component": {
                "type": "application",
                "bom-ref": command.first().copied().map(purl),
                "name": "lockkeeper",
                "version": dist.version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": components.collect::<Vec<_>>(),
        "dependencies": graph,
    }))
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}
