//! Crates may depend on each other only in the direction shown in `ARCHITECTURE.md`, and pure crates on
//! hardly anything else.

use std::collections::BTreeSet;

use cargo_metadata::{DependencyKind, Metadata};

/// The allowed dependencies of a crate.
struct Layer {
    name: &'static str,
    inside: Inside,
    outside: Outside,
}

/// The packages of this workspace that a crate may depend on.
enum Inside {
    Only(&'static [&'static str]),
    AnyBut(&'static [&'static str]),
}

/// The external packages that a crate may depend on.
enum Outside {
    /// A pure crate: none of these packages has I/O, a clock or randomness.
    Pure(&'static [&'static str]),
    Any,
}

const WIRE: &str = "lockkeeper-wire";
const SESSION: &str = "lockkeeper-session";
const TREE: &str = "lockkeeper-tree";
const CLIENT: &str = "lockkeeper-client";
const ENGINE: &str = "lockkeeper-engine";
const LOCKS: &str = "lockkeeper-locks";
const RECIPES: &str = "lockkeeper-recipes";
const LOCKKEEPER: &str = "lockkeeper";
const CLI: &str = "lockkeeper-cli";
const TESTKIT: &str = "lockkeeper-testkit";
const TESTS: &str = "lockkeeper-tests";
const VIRTUAL: &str = "lockkeeper-virtual";
const BENCHES: &str = "lockkeeper-benches";
const HOT_PATHS: &str = "lockkeeper-hot-paths";
const XTASK: &str = "xtask";

const LAYERS: &[Layer] = &[
    pure(WIRE, &[], &["bytes", "thiserror", "serde"]),
    pure(SESSION, &[WIRE], &["bytes", "thiserror"]),
    // Of `foldhash`, only states with an explicit seed: see the tree's `hash`.
    pure(
        TREE,
        &[WIRE],
        &[
            "bytes",
            "thiserror",
            "sha1",
            "sha2",
            "sha3",
            "base64",
            "subtle",
            "foldhash",
            "hashbrown",
        ],
    ),
    layer(CLIENT, &[SESSION, WIRE]),
    layer(ENGINE, &[TREE, WIRE]),
    // These use `wire` and `session` only through `client`. Locks do not depend on recipes.
    layer(LOCKS, &[CLIENT]),
    layer(RECIPES, &[LOCKS, CLIENT]),
    layer(LOCKKEEPER, &[RECIPES, LOCKS, CLIENT]),
    layer(CLI, &[LOCKKEEPER, CLIENT, ENGINE]),
    Layer {
        name: TESTKIT,
        inside: Inside::AnyBut(&[CLI, TESTS, BENCHES, XTASK]),
        outside: Outside::Any,
    },
    Layer { name: TESTS, inside: Inside::AnyBut(&[BENCHES, XTASK]), outside: Outside::Any },
    layer(VIRTUAL, &[]),
    Layer { name: BENCHES, inside: Inside::AnyBut(&[CLI, TESTS, XTASK]), outside: Outside::Any },
    layer(HOT_PATHS, &[LOCKKEEPER, CLIENT, SESSION, TREE, WIRE]),
    layer(XTASK, &[]),
];

const fn pure(
    name: &'static str,
    inside: &'static [&'static str],
    outside: &'static [&'static str],
) -> Layer {
    Layer { name, inside: Inside::Only(inside), outside: Outside::Pure(outside) }
}

const fn layer(name: &'static str, inside: &'static [&'static str]) -> Layer {
    Layer { name, inside: Inside::Only(inside), outside: Outside::Any }
}

/// A dependency as declared in a manifest.
#[derive(Debug)]
struct Edge {
    from: String,
    to: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Needed to build the crate itself, including build scripts.
    Build,
    /// Needed only by its tests.
    Dev,
}

/// One line for each dependency in the wrong direction.
pub(super) fn check(metadata: &Metadata) -> Vec<String> {
    let packages: BTreeSet<String> =
        metadata.packages.iter().map(|package| package.name.to_string()).collect();
    offences(&packages, &edges(metadata))
}

fn edges(metadata: &Metadata) -> Vec<Edge> {
    let mut edges = Vec::new();
    for package in &metadata.packages {
        for dependency in &package.dependencies {
            let kind = match dependency.kind {
                DependencyKind::Development => Kind::Dev,
                _ => Kind::Build,
            };
            edges.push(Edge { from: package.name.to_string(), to: dependency.name.clone(), kind });
        }
    }
    edges
}

fn offences(packages: &BTreeSet<String>, edges: &[Edge]) -> Vec<String> {
    let mut offences: Vec<String> = packages
        .iter()
        .filter(|package| find(package).is_none())
        .map(|package| format!("{package}: add it to the layers in xtask/src/layers"))
        .collect();
    for edge in edges {
        if let Some(layer) = find(&edge.from)
            && let Err(why) = judge(layer, edge, packages)
        {
            offences.push(format!("{} -> {}: {why}", edge.from, edge.to));
        }
    }
    offences
}

fn find(package: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.name == package)
}

fn judge(layer: &Layer, edge: &Edge, packages: &BTreeSet<String>) -> Result<(), String> {
    let to = edge.to.as_str();
    match edge.kind {
        Kind::Dev => match layer.outside {
            Outside::Pure(_) if to == "tokio" => {
                Err("a pure crate must be testable without a runtime".to_owned())
            }
            _ => Ok(()),
        },
        Kind::Build if packages.contains(to) => judge_inside(&layer.inside, to),
        Kind::Build => judge_outside(&layer.outside, to),
    }
}

fn judge_inside(inside: &Inside, to: &str) -> Result<(), String> {
    match inside {
        Inside::Only([]) => Err("it may depend on no crate of this workspace".to_owned()),
        Inside::Only(allowed) if !allowed.contains(&to) => {
            Err(format!("of this workspace it may depend on {} only", allowed.join(", ")))
        }
        Inside::AnyBut(forbidden) if forbidden.contains(&to) => {
            Err(format!("it may depend on any crate but {}", forbidden.join(", ")))
        }
        _ => Ok(()),
    }
}

fn judge_outside(outside: &Outside, to: &str) -> Result<(), String> {
    match outside {
        Outside::Pure(allowed) if !allowed.contains(&to) => {
            Err(format!("a pure crate, which may only depend on {}", allowed.join(", ")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(edges: &[(&str, &str, Kind)]) -> Vec<String> {
        let packages = LAYERS.iter().map(|layer| layer.name.to_owned()).collect();
        let edges: Vec<Edge> = edges
            .iter()
            .map(|&(from, to, kind)| Edge { from: from.to_owned(), to: to.to_owned(), kind })
            .collect();
        offences(&packages, &edges)
    }

    #[test]
    fn the_picture_itself_is_accepted() {
        let picture = [
            (SESSION, WIRE),
            (TREE, WIRE),
            (TREE, "sha1"),
            (CLIENT, SESSION),
            (CLIENT, WIRE),
            (CLIENT, "tokio"),
            (ENGINE, TREE),
            (LOCKS, CLIENT),
            (RECIPES, LOCKS),
            (LOCKKEEPER, RECIPES),
            (CLI, LOCKKEEPER),
            (CLI, ENGINE),
            (TESTKIT, LOCKKEEPER),
            (TESTS, CLI),
            (WIRE, "bytes"),
        ];
        let edges: Vec<_> = picture.iter().map(|&(from, to)| (from, to, Kind::Build)).collect();
        assert_eq!(judged(&edges), Vec::<String>::new());
    }

    #[test]
    fn every_wrong_edge_gets_a_line_with_both_ends() {
        let wrong = [
            (WIRE, SESSION),
            (SESSION, TREE),
            (CLIENT, ENGINE),
            (ENGINE, CLIENT),
            (LOCKS, WIRE),
            (LOCKS, RECIPES),
            (CLIENT, LOCKS),
            (LOCKKEEPER, ENGINE),
            (CLI, WIRE),
            (TESTKIT, CLI),
            (CLIENT, TESTKIT),
            (XTASK, WIRE),
        ];
        let edges: Vec<_> = wrong.iter().map(|&(from, to)| (from, to, Kind::Build)).collect();
        let offences = judged(&edges);
        assert_eq!(offences.len(), wrong.len(), "{offences:#?}");
        for ((from, to), line) in wrong.iter().zip(&offences) {
            assert!(line.starts_with(&format!("{from} -> {to}: ")), "{line}");
        }
    }

    #[test]
    fn a_pure_crate_takes_nothing_from_outside_its_list() {
        assert_eq!(judged(&[(WIRE, "tokio", Kind::Build)]).len(), 1);
        assert_eq!(judged(&[(SESSION, "sha1", Kind::Build)]).len(), 1);
        assert_eq!(judged(&[(TREE, "getrandom", Kind::Build)]).len(), 1);
        assert_eq!(judged(&[(ENGINE, "getrandom", Kind::Build)]), Vec::<String>::new());
    }

    #[test]
    fn tests_may_use_anything_but_a_runtime_in_a_pure_crate() {
        assert_eq!(judged(&[(SESSION, "tokio", Kind::Dev)]).len(), 1);
        assert_eq!(judged(&[(SESSION, "proptest", Kind::Dev)]), Vec::<String>::new());
        assert_eq!(judged(&[(LOCKKEEPER, TESTKIT, Kind::Dev)]), Vec::<String>::new());
        assert_eq!(judged(&[(CLIENT, "tokio", Kind::Dev)]), Vec::<String>::new());
    }

    #[test]
    fn a_package_without_a_place_is_reported() {
        let packages = BTreeSet::from(["lockkeeper-new".to_owned()]);
        let offences = offences(&packages, &[]);
        assert_eq!(offences, ["lockkeeper-new: add it to the layers in xtask/src/layers"]);
    }
}
