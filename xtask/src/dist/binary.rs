//! The command: which build of it is handed out, and which systems it runs on.

use std::cmp::Ordering;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::place::Dist;
use super::tools::{copy, output, run, write};
use crate::cargo::{command, succeeds};

/// The oldest C library that it runs with: that of Rust's own standard library.
const GLIBC: &str = "2.17";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Python packages: a C compiler with the symbols of each version of glibc, and its use by cargo.
const ZIG: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];

/// Notes the dependencies in the binary.
const AUDITABLE: &str = "cargo-auditable@0.7.7";

pub(super) struct Binary {
    pub(super) path: PathBuf,
    /// The libraries that it is linked to.
    libraries: Vec<String>,
    /// The symbol versions that it needs of them.
    symbols: Vec<String>,
}

impl Binary {
    /// Builds it for systems with an old C library.
    pub(super) fn for_older_systems(dist: &Dist) -> Result<Self> {
        let path = env::var("PATH").unwrap_or_default();
        let tools = dist.work_tools()?;
        let home =
            env::var("CARGO_HOME").or_else(|_| env::var("HOME").map(|home| home + "/.cargo"));
        let home = home.context("neither CARGO_HOME nor HOME is set")?;
        let remapped = format!(
            "--remap-path-prefix={}=/lockkeeper --remap-path-prefix={home}=/cargo",
            dist.sources.display()
        );
        let target = format!("{TARGET}.{GLIBC}");
        let mut build = command(&["auditable", "zigbuild", "--locked", "--profile", "dist"]);
        build.args(["--package", "lockkeeper-cli", "--target", &target]);
        build.current_dir(&dist.sources).env("CARGO_TARGET_DIR", &dist.target);
        build.env("RUSTFLAGS", remapped).env("SOURCE_DATE_EPOCH", &dist.epoch);
        build.env("PATH", format!("{0}/bin:{0}/zig/bin:{path}", tools.display()));
        ensure!(succeeds(&mut build)?, "it does not build");

        let built = Self::look(dist.target.join(TARGET).join("dist/lockkeeper"))?;
        if let Some(newest) = built.glibc() {
            ensure!(
                compare(&newest, GLIBC) != Ordering::Greater,
                "it needs glibc {newest}, not {GLIBC}"
            );
        }
        Ok(built)
    }

    /// The debug build, which `cargo xtask test` has made before.
    pub(super) fn of_debug_build(dist: &Dist) -> Result<Self> {
        let mut build = command(&["build", "--package", "lockkeeper-cli"]);
        ensure!(succeeds(build.current_dir(&dist.sources))?, "it does not build");
        let stripped = dist.work.join("lockkeeper");
        copy(&dist.target.join("debug/lockkeeper"), &stripped, 0o755)?;
        run(Command::new("strip").arg(&stripped))?;
        Self::look(stripped)
    }

    fn look(path: PathBuf) -> Result<Self> {
        let dynamic = output(Command::new("readelf").args(["--dynamic", "--wide"]).arg(&path))?;
        let libraries = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
        let libraries = libraries
            .filter_map(|line| Some(line.split_once('[')?.1.trim_end_matches(']').to_owned()));
        let table = output(Command::new("objdump").arg("-T").arg(&path))?;
        let mut symbols: Vec<String> =
            table.lines().filter_map(version).map(str::to_owned).collect();
        symbols.sort_unstable_by(|a, b| compare(a, b));
        symbols.dedup();
        Ok(Self { path, libraries: libraries.collect(), symbols })
    }

    /// The newest version of the C library that a symbol needs.
    pub(super) fn glibc(&self) -> Option<String> {
        let versions = self.symbols.iter().filter_map(|symbol| symbol.strip_prefix("GLIBC_"));
        versions.max_by(|a, b| compare(a, b)).map(str::to_owned)
    }

    /// The Debian packages with these libraries.
    pub(super) fn debian_dependencies(&self) -> String {
        let glibc = self.glibc().unwrap_or_default();
        let gcc = self.libraries.iter().any(|library| library.starts_with("libgcc_s"));
        format!("libc6 (>= {glibc}){}", if gcc { ", libgcc-s1 (>= 3.3.1)" } else { "" })
    }

    /// Writes down what a system must have.
    pub(super) fn write_symbols(&self, path: &Path) -> Result<()> {
        write(path, self.libraries.join("\n") + "\n" + &self.symbols.join("\n") + "\n")
    }

    /// Runs it with these words.
    pub(super) fn prints(&self, words: &[&str]) -> Result<String> {
        output(Command::new(&self.path).args(words))
    }
}

impl Dist {
    /// The tools that no Debian package has.
    fn work_tools(&self) -> Result<PathBuf> {
        let tools = self.work.join("tools");
        let complete = tools.join("complete");
        let wanted = format!("{ZIG:?} {AUDITABLE}");
        if fs::read_to_string(&complete).is_ok_and(|have| have == wanted) {
            return Ok(tools);
        }
        let zig = tools.join("zig");
        run(Command::new("python3").args(["-m", "venv"]).arg(&zig))?;
        run(Command::new(zig.join("bin/pip")).args(["install", "--quiet"]).args(ZIG))?;
        let mut auditable = command(&["install", "--quiet", "--locked", "--root"]);
        ensure!(succeeds(auditable.arg(&tools).arg(AUDITABLE))?, "cannot install {AUDITABLE}");
        write(&complete, wanted)?;
        Ok(tools)
    }
}

/// The version in a line of `objdump -T`.
fn version(line: &str) -> Option<&str> {
    let words = line.split_whitespace().map(|word| word.trim_matches(['(', ')']));
    words.into_iter().find(|word| word.starts_with("GLIBC_") || word.starts_with("GCC_"))
}

/// By numbers: 2.9 is before 2.17.
fn compare(a: &str, b: &str) -> Ordering {
    let key = |text: &str| -> (String, Vec<u32>) {
        let digits = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
        let (name, numbers) = text.split_at(digits);
        (name.to_owned(), numbers.split('.').map(|n| n.parse().unwrap_or(0)).collect())
    };
    key(a).cmp(&key(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_numbers() {
        assert_eq!(compare("2.9", "2.17"), Ordering::Less);
        assert_eq!(compare("GLIBC_2.2.5", "GLIBC_2.2"), Ordering::Greater);
        assert_eq!(compare("2.17", "2.17"), Ordering::Equal);
    }

    #[test]
    fn a_symbol_shows_its_version() {
        let line = "0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.17) clock_gettime";
        assert_eq!(version(line), Some("GLIBC_2.17"));
        assert_eq!(version("DYNAMIC SYMBOL TABLE:"), None);
    }
}
