//! The real peers that are installed on this machine.
//!
//! They are searched where Debian's packages install them. A suite begins with
//!
//! ```no_run
//! use lockkeeper_testkit::peers::{self, Peer};
//!
//! if !peers::ready("interop", &[Peer::ZooKeeper, Peer::Curator]) {
//!     return;
//! }
//! ```

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::{network, postgres, process};

/// When set to `1`, a missing peer is a failure rather than a reason to skip.
pub const REQUIRE: &str = "LOCKKEEPER_REQUIRE_PEERS";

/// Names a file to which each skipped suite appends its line.
pub const SKIP_LOG: &str = "LOCKKEEPER_SKIP_LOG";

/// Names the class path of a ZooKeeper server to test against instead of Debian's.
pub const ZOOKEEPER_CLASS_PATH: &str = "LOCKKEEPER_ZOOKEEPER_CLASS_PATH";

/// The Python that sees the modules of the distribution's packages; the first one in `PATH` may be a different one.
pub const SYSTEM_PYTHON: &str = "/usr/bin/python3";

const JARS: &str = "/usr/share/java";

// Debian's jars name the rest of their class path in their manifests.
// Debian's `zookeeper.jar` does not list Netty's jars in its class path, and TLS needs them.
const ZOOKEEPER_JARS: &[&str] =
    &["zookeeper.jar", "slf4j-simple.jar", "netty-codec.jar", "netty-resolver.jar"];
const CURATOR_JARS: &[&str] = &[
    "curator-recipes.jar",
    "curator-x-discovery.jar",
    "curator-framework.jar",
    "curator-client.jar",
    "zookeeper.jar",
    "slf4j-simple.jar",
    "netty-codec.jar",
    "netty-resolver.jar",
];

/// Installed with the library itself.
const C_HEADER: &str = "/usr/include/zookeeper/zookeeper.h";

/// A real program that a suite runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Apache ZooKeeper's server, in Java.
    ZooKeeper,
    /// Apache Curator's recipes and discovery, and a compiler for our programs that use them.
    Curator,
    /// kazoo, for the system's Python.
    Kazoo,
    /// ZooKeeper's client for C, and a compiler for our programs that use it.
    CClient,
    /// Network namespaces, and the right to create them.
    Network,
    /// A compiler for the library that shifts wall clocks, and a program to shift them for.
    WallClock,
    /// strace, and the right to trace.
    Strace,
    /// PostgreSQL's server.
    PostgreSql,
    /// Chromium, and its driver.
    Chromium,
}

impl Peer {
    /// What is missing for this peer, as readable text; `None` if nothing is missing.
    pub fn missing(self) -> Option<String> {
        let mut missing: Vec<String> = match self {
            Peer::ZooKeeper if env::var_os(ZOOKEEPER_CLASS_PATH).is_some() => Vec::new(),
            Peer::ZooKeeper => missing_jars(ZOOKEEPER_JARS),
            Peer::Curator => missing_jars(CURATOR_JARS),
            Peer::Kazoo => missing_kazoo(),
            Peer::CClient => missing_file(C_HEADER),
            Peer::Network => network::missing().into_iter().collect(),
            Peer::WallClock => missing_file(SYSTEM_PYTHON),
            Peer::Strace | Peer::Chromium => Vec::new(),
            Peer::PostgreSql => {
                postgres::programs().err().map(|error| error.to_string()).into_iter().collect()
            }
        };
        missing.extend(self.programs().iter().filter_map(|program| missing_program(program)));
        (!missing.is_empty()).then(|| format!("{self} needs {}", missing.join(", ")))
    }

    fn programs(self) -> &'static [&'static str] {
        match self {
            Peer::ZooKeeper => &["java", "setpriv"],
            Peer::Curator => &["java", "javac", "setpriv"],
            Peer::Kazoo => &["setpriv"],
            Peer::CClient | Peer::WallClock => &["gcc", "setpriv"],
            Peer::Network => &["setpriv", "unshare", "nsenter", "ip", "ss", "sleep"],
            Peer::Strace => &["setpriv", "strace"],
            Peer::PostgreSql => &["setpriv"],
            Peer::Chromium => &["setpriv", "chromium", "chromedriver"],
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Peer::ZooKeeper => "Apache ZooKeeper",
            Peer::Curator => "Apache Curator",
            Peer::Kazoo => "kazoo",
            Peer::CClient => "ZooKeeper's C client",
            Peer::Network => "a network of namespaces",
            Peer::WallClock => "wall clocks that jump",
            Peer::Strace => "failing system calls",
            Peer::PostgreSql => "PostgreSQL",
            Peer::Chromium => "Chromium",
        })
    }
}

/// Returns whether `suite` can run. If it cannot, reports this in a line that no test runner captures, and the test
/// must return.
///
/// # Panics
///
/// A peer is missing and [`REQUIRE`] is `1`.
#[must_use = "a suite whose peers are missing must return"]
pub fn ready(suite: &str, needed: &[Peer]) -> bool {
    let missing: Vec<String> = needed.iter().filter_map(|peer| peer.missing()).collect();
    if missing.is_empty() {
        return true;
    }
    let why = missing.join("; ");
    assert!(
        env::var_os(REQUIRE).is_none_or(|value| value != "1"),
        "{suite} cannot run, and {REQUIRE}=1 forbids skipping it: {why}\n\
         `cargo xtask setup` installs what is missing, or prints how to"
    );
    report(&format!("SKIPPED: {suite}: {why}"));
    false
}

/// libtest captures what the print macros write, so the line goes to the stream itself, and to the file in which `cargo
/// xtask test` collects such lines.
pub fn report(line: &str) {
    // There is no way to report that reporting failed.
    let _ = writeln!(io::stderr(), "{line}");
    if let Some(log) = env::var_os(SKIP_LOG) {
        let file = OpenOptions::new().create(true).append(true).open(log);
        let _ = file.and_then(|mut file| writeln!(file, "{line}"));
    }
}

/// The class path of a ZooKeeper server.
pub(crate) fn zookeeper_class_path() -> String {
    env::var(ZOOKEEPER_CLASS_PATH).unwrap_or_else(|_| class_path(ZOOKEEPER_JARS))
}

/// The class path of a program that uses Curator.
pub(crate) fn curator_class_path() -> String {
    class_path(CURATOR_JARS)
}

fn class_path(jars: &[&str]) -> String {
    let jars: Vec<String> = jars.iter().map(|jar| format!("{JARS}/{jar}")).collect();
    jars.join(":")
}

fn missing_jars(jars: &[&str]) -> Vec<String> {
    let paths = jars.iter().map(|jar| format!("{JARS}/{jar}"));
    paths.filter(|path| !Path::new(path).exists()).collect()
}

fn missing_file(path: &str) -> Vec<String> {
    if Path::new(path).exists() { Vec::new() } else { vec![path.to_owned()] }
}

fn missing_program(program: &str) -> Option<String> {
    process::find(program).is_none().then(|| format!("the program {program}"))
}

fn missing_kazoo() -> Vec<String> {
    // Starting Python is slow, so the result is kept.
    static HAS_KAZOO: OnceLock<bool> = OnceLock::new();
    let has_kazoo = HAS_KAZOO.get_or_init(|| {
        let import = Command::new(SYSTEM_PYTHON)
            .args(["-c", "import kazoo"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        import.is_ok_and(|status| status.success())
    });
    if *has_kazoo { Vec::new() } else { vec![format!("the module kazoo in {SYSTEM_PYTHON}")] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing_jars(&["no-such.jar"]), ["/usr/share/java/no-such.jar"]);
        assert_eq!(missing_program("no-such").as_deref(), Some("the program no-such"));
        assert_eq!(missing_program("sh"), None);
    }
}
