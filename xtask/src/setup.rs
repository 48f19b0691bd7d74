//! `cargo xtask setup`: what the suites with real peers need, as Debian packages.
//!
//! A need is probed by what the suites will really use (a file, a program, a Python module) and
//! not by asking the package manager: that is right on every distribution, and quick.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use self::Probe::{File, Program, PythonModule};
use crate::steps::Verdict;

/// Something that a suite uses, and the Debian package that brings it.
struct Need {
    what: &'static str,
    package: &'static str,
    probe: Probe,
}

const fn need(what: &'static str, package: &'static str, probe: Probe) -> Need {
    Need { what, package, probe }
}

enum Probe {
    File(&'static str),
    Program(&'static str),
    /// A module of the system's Python: packages of the distribution are invisible to any other
    /// Python that may come first in `PATH`.
    PythonModule(&'static str),
}

const SYSTEM_PYTHON: &str = "/usr/bin/python3";

const NEEDS: &[Need] = &[
    need("Apache ZooKeeper", "zookeeper", File("/usr/share/java/zookeeper.jar")),
    need("java", "default-jre-headless", Program("java")),
    need("javac", "default-jdk-headless", Program("javac")),
    need(
        "Curator's recipes",
        "libcurator-recipes-java",
        File("/usr/share/java/curator-recipes.jar"),
    ),
    need(
        "Curator's discovery",
        "libcurator-discovery-java",
        File("/usr/share/java/curator-x-discovery.jar"),
    ),
    need("Curator's client", "libcurator-client-java", File("/usr/share/java/curator-client.jar")),
    need(
        "Curator's framework",
        "libcurator-framework-java",
        File("/usr/share/java/curator-framework.jar"),
    ),
    need("kazoo", "python3-kazoo", PythonModule("kazoo")),
    need("ZooKeeper's C client", "libzookeeper-mt-dev", File("/usr/include/zookeeper/zookeeper.h")),
    need("gcc", "gcc", Program("gcc")),
    need("libc's headers", "libc6-dev", File("/usr/include/stdlib.h")),
    need("setpriv", "util-linux", Program("setpriv")),
    need("ip and ss", "iproute2", Program("ss")),
    need("openssl", "openssl", Program("openssl")),
    need("ps", "procps", Program("ps")),
    need("strace", "strace", Program("strace")),
    need("valgrind", "valgrind", Program("valgrind")),
];

/// What only the benchmarks use.
const BENCH_NEEDS: &[Need] = &[
    need("Redis", "redis-server", Program("redis-server")),
    need("etcd", "etcd-server", Program("etcd")),
    need("PostgreSQL", "postgresql", File("/usr/lib/postgresql")),
];

/// What to do about a peer that is not on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingPeers {
    /// Skip its suites, loudly.
    Skip,
    /// Count it as a failure.
    Fail,
}

/// Whose needs are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Those of the suites.
    OfSuites,
    /// Those of the suites and of the benchmarks.
    OfBenches,
}

impl Needs {
    fn all(self) -> Vec<&'static Need> {
        let more = if self == Self::OfBenches { BENCH_NEEDS } else { &[] };
        NEEDS.iter().chain(more).collect()
    }

    fn missing(self) -> Vec<&'static Need> {
        self.all().into_iter().filter(|need| !need.probe.is_there()).collect()
    }
}

/// Says which peers of a benchmark are not here; their rows are skipped.
pub(crate) fn say_what_benches_miss() {
    for need in Needs::OfBenches.missing() {
        println!("missing: {}; `cargo xtask setup --bench` installs it", need.what);
    }
}

/// Installs what is missing if this user may, and says what still is.
///
/// # Errors
///
/// Something is missing in the end and `policy` does not accept that.
pub(crate) fn run(policy: MissingPeers, needs: Needs) -> Result<Verdict> {
    let mut missing = needs.missing();
    if !missing.is_empty() && may_install() {
        if let Err(error) = install(&missing) {
            eprintln!("{error:#}");
        }
        missing = needs.missing();
    }

    if missing.is_empty() {
        println!("everything that is needed is here");
        return Ok(Verdict::Passed);
    }

    for need in &missing {
        println!("missing: {} (Debian package {})", need.what, need.package);
    }
    println!("as root: apt-get install --no-install-recommends {}", packages(&missing).join(" "));
    match policy {
        MissingPeers::Skip => Ok(Verdict::Skipped),
        MissingPeers::Fail => bail!("{} missing, see above", count(missing.len())),
    }
}

fn count(things: usize) -> String {
    if things == 1 { "one thing is".to_owned() } else { format!("{things} things are") }
}

fn packages(needs: &[&Need]) -> Vec<&'static str> {
    needs.iter().map(|need| need.package).collect()
}

/// Root, with Debian's package manager.
fn may_install() -> bool {
    let root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    root && in_path("apt-get").is_some()
}

fn install(missing: &[&Need]) -> Result<()> {
    let packages = packages(missing);
    println!("installing {}", packages.join(" "));
    // Lists that are a little old are often good enough: let the installation decide.
    if let Err(error) = apt_get(&["update", "-q"]) {
        eprintln!("{error:#}");
    }
    apt_get(&[&["install", "-q", "-y", "--no-install-recommends"], &packages[..]].concat())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot start apt-get")?;
    if !status.success() {
        bail!("`apt-get {}` failed: {status}", arguments.join(" "));
    }
    Ok(())
}

impl Probe {
    fn is_there(&self) -> bool {
        match self {
            File(path) => Path::new(path).exists(),
            Program(name) => in_path(name).is_some(),
            PythonModule(module) => Command::new(SYSTEM_PYTHON)
                .args(["-c", &format!("import {module}")])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success()),
        }
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_tell_present_from_missing() {
        assert!(Program("cargo").is_there());
        assert!(!Program("no-such-program-anywhere").is_there());
        assert!(File("/").is_there());
        assert!(!File("/no/such/file").is_there());
        assert!(!PythonModule("no_such_module_anywhere").is_there());
    }

    #[test]
    fn every_need_names_its_package_once() {
        let needs = Needs::OfBenches.all();
        let mut packages: Vec<_> = needs.iter().map(|need| need.package).collect();
        packages.sort_unstable();
        packages.dedup();
        assert_eq!(packages.len(), needs.len());
    }
}
