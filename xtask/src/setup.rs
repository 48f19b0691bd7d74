//! `cargo xtask setup`: installs the Debian packages that the suites with real peers need.
//!
//! A need is checked by what the suites actually use (a file, a program, a Python module), not with the
//! package manager. That works on every distribution, and is fast.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::steps::Verdict;

/// What a suite uses, the Debian package that provides it, and the check: a file, a program, or the import of
/// a module by the system's Python. Other Python installations that come first in `PATH` do not see the
/// packages of the distribution.
type Need = (&'static str, &'static str, &'static str);

const SYSTEM_PYTHON: &str = "/usr/bin/python3";

const NEEDS: &[Need] = &[
    ("Apache ZooKeeper", "zookeeper", "/usr/share/java/zookeeper.jar"),
    ("java", "default-jre-headless", "java"),
    ("javac", "default-jdk-headless", "javac"),
    ("Curator's recipes", "libcurator-recipes-java", "/usr/share/java/curator-recipes.jar"),
    ("Curator's discovery", "libcurator-discovery-java", "/usr/share/java/curator-x-discovery.jar"),
    ("Curator's client", "libcurator-client-java", "/usr/share/java/curator-client.jar"),
    ("Curator's framework", "libcurator-framework-java", "/usr/share/java/curator-framework.jar"),
    ("kazoo", "python3-kazoo", "import kazoo"),
    ("ZooKeeper's C client", "libzookeeper-mt-dev", "/usr/include/zookeeper/zookeeper.h"),
    ("gcc", "gcc", "gcc"),
    ("libc's headers", "libc6-dev", "/usr/include/stdlib.h"),
    ("PostgreSQL", "postgresql", "/usr/lib/postgresql"),
    ("Chromium", "chromium", "chromium"),
    ("Chromium's driver", "chromium-driver", "chromedriver"),
    ("setpriv", "util-linux", "setpriv"),
    ("ip and ss", "iproute2", "ss"),
    ("openssl", "openssl", "openssl"),
    ("ps", "procps", "ps"),
    ("strace", "strace", "strace"),
    ("valgrind", "valgrind", "valgrind"),
    ("mmdebstrap", "mmdebstrap", "mmdebstrap"),
    ("systemd-nspawn", "systemd-container", "systemd-nspawn"),
    ("systemd-analyze", "systemd", "systemd-analyze"),
    ("lintian", "lintian", "lintian"),
    ("skopeo", "skopeo", "skopeo"),
    ("umoci", "umoci", "umoci"),
];

/// Needed only by the benchmarks.
const BENCH_NEEDS: &[Need] =
    &[("Redis", "redis-server", "redis-server"), ("etcd", "etcd-server", "etcd")];

/// What to do if a peer is not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingPeers {
    /// Skip its suites and report it.
    Skip,
    /// Treat it as a failure.
    Fail,
}

/// The users of the needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The suites.
    OfSuites,
    /// The suites and the benchmarks.
    OfBenches,
}

impl Needs {
    fn missing(self) -> Vec<&'static Need> {
        let more = if self == Self::OfBenches { BENCH_NEEDS } else { &[] };
        NEEDS.iter().chain(more).filter(|(_, _, probe)| !is_there(probe)).collect()
    }
}

/// Prints the missing peers of the benchmarks; their rows are skipped.
pub(crate) fn say_what_benches_miss() {
    for (what, ..) in Needs::OfBenches.missing() {
        println!("missing: {what}; `cargo xtask setup --bench` installs it");
    }
}

/// Installs what is missing if the user may, and prints what is still missing.
///
/// # Errors
///
/// If something is still missing and `policy` does not allow that.
pub(crate) fn run(policy: MissingPeers, needs: Needs) -> Result<Verdict> {
    let mut missing = needs.missing();
    if !missing.is_empty() && may_install() {
        if let Err(error) = install(&missing) {
            eprintln!("{error:#}");
        }
        missing = needs.missing();
    }

    if missing.is_empty() {
        println!("everything is installed");
        return Ok(Verdict::Passed);
    }

    for (what, package, _) in &missing {
        println!("missing: {what} (Debian package {package})");
    }
    println!("as root: apt-get install --no-install-recommends {}", packages(&missing).join(" "));
    match policy {
        MissingPeers::Skip => Ok(Verdict::Skipped),
        MissingPeers::Fail => bail!("{} missing, see above", missing.len()),
    }
}

fn packages(needs: &[&Need]) -> Vec<&'static str> {
    needs.iter().map(|(_, package, _)| *package).collect()
}

/// Whether the user is root, with Debian's package manager.
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
    // Slightly outdated lists usually suffice: let the installation decide.
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

fn is_there(probe: &str) -> bool {
    if probe.starts_with("import ") {
        let python = Command::new(SYSTEM_PYTHON).args(["-c", probe]).stderr(Stdio::null()).status();
        return python.is_ok_and(|status| status.success());
    }
    Path::new(probe).is_absolute() && Path::new(probe).exists() || in_path(probe).is_some()
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
        assert!(is_there("cargo") && is_there("/"));
        for missing in ["no-such-program", "/no/such/file", "import no_such_module_anywhere"] {
            assert!(!is_there(missing), "{missing}");
        }
    }
}
