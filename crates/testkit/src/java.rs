//! Our Java programs that use Apache Curator.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{peers, process};

/// Options for a JVM that lives for seconds: a fast start matters more than top speed.
pub(crate) const SHORT_LIVED: &[&str] =
    &["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"];

/// A compiled program: one source file with a `main` in the class of the file's name.
#[derive(Clone, Debug)]
pub struct Program {
    class: String,
    classes: PathBuf,
}

impl Program {
    /// Compiles `source` against Curator, unless the same text was compiled before.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or the compiler is missing or reports errors; the error contains its messages.
    pub fn compile(source: &Path) -> Result<Self> {
        let class = source.file_stem().and_then(|stem| stem.to_str());
        let class = class
            .with_context(|| format!("cannot derive a class name from {}", source.display()))?;
        let text = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;

        let cache = cache()?;
        let classes = cache.join(format!("{class}-{:016x}", fingerprint(&text)));
        if !classes.exists() {
            // Several test processes may do this at once: each compiles into a directory of its own, and the first one
            // to rename it wins.
            let aside = tempfile::tempdir_in(&cache)?;
            javac(source, aside.path())?;
            let aside = aside.keep();
            if fs::rename(&aside, &classes).is_err() {
                fs::remove_dir_all(&aside)?;
            }
        }

        Ok(Self { class: class.to_owned(), classes })
    }

    /// A command that runs the program; the caller adds arguments. Warnings of the libraries appear on its standard
    /// error.
    pub fn command(&self) -> Command {
        let mut command = Command::new("java");
        command
            .args(SHORT_LIVED)
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .arg("-cp")
            .arg(format!("{}:{}", self.classes.display(), peers::curator_class_path()))
            .arg(&self.class);
        command
    }
}

fn javac(source: &Path, target: &Path) -> Result<()> {
    let mut javac = Command::new("javac");
    javac
        .args(["-Xlint:all,-classfile,-path", "-encoding", "UTF-8", "-cp"])
        .arg(peers::curator_class_path())
        .arg("-d")
        .arg(target)
        .arg(source);
    process::run_tool(&mut javac, &format!("javac refuses {}", source.display()))
}

fn fingerprint(source: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    peers::curator_class_path().hash(&mut hasher);
    hasher.finish()
}

/// Next to the test binary, so that `cargo clean` removes it.
fn cache() -> Result<PathBuf> {
    let binary = env::current_exe().context("cannot determine this process's executable")?;
    let cache = binary.with_file_name("lockkeeper-java");
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    Ok(cache)
}
