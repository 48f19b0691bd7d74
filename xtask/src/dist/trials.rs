//! Trials of the files, as a user would use them: in roots of Debian without anything else.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::place::Dist;
use super::tools::{copy, empty, output, run};
use crate::cargo::command;

/// The packages of an ordinary Debian server that the smallest root lacks.
const SERVER: &str = "systemd,systemd-sysv,dbus,adduser";

/// The highest exposure by `systemd-analyze security`, in tenths.
const EXPOSURE: &str = "20";

/// Whether this user can make roots.
pub(super) fn can_run() -> bool {
    let root = output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    let has = |program: &&str| {
        env::split_paths(&env::var_os("PATH").unwrap_or_default())
            .any(|folder| folder.join(program).is_file())
    };
    root && ["mmdebstrap", "systemd-nspawn", "lintian", "skopeo", "umoci"].iter().all(has)
}

/// Debian's own check of packages.
pub(super) fn lintian(dist: &Dist) -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error,warning", "--tag-display-limit", "0", "--allow-root"]);
    run(lintian.args(files(&dist.out, "deb")?))
}

/// How much of the system each unit could reach if it were taken over.
pub(super) fn unit(dist: &Dist) -> Result<()> {
    for unit in ["lockkeeper-server.service", "lockkeeper-backup.service"] {
        let file = dist.packaging().join("lockkeeper-server").join(unit);
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE]);
        let report =
            output(analyze.arg(&file)).with_context(|| format!("{unit} is too exposed"))?;
        println!("{}", report.trim().lines().last().unwrap_or_default());
    }
    Ok(())
}

/// Installs, starts, uses, upgrades and removes the packages in a booted Debian without anything else.
pub(super) fn bare_root(dist: &Dist) -> Result<()> {
    let root = dist.root("bookworm", SERVER)?;
    let packages = root.join("packages");
    for (folder, of) in [("new", dist), ("old", &dist.beside("earlier"))] {
        for file in files(&of.out, "deb")? {
            let name = file.file_name().context("a package has a name")?;
            copy(&file, &packages.join(folder).join(name), 0o644)?;
        }
    }
    boot(dist, &root, "bare-root.sh", &[])
}

/// Runs the image with a root that cannot be written to, as its user, and asks its health check.
pub(super) fn image(dist: &Dist) -> Result<()> {
    let image = dist.out.join(format!("lockkeeper-{}-image.tar", dist.version));
    let work = dist.work.join("image-trial");
    empty(&work)?;
    script(dist, "image.sh", &[&image, &work])
}

/// Runs the tar's binary with the C library of an older Debian.
pub(super) fn older_system(dist: &Dist) -> Result<()> {
    let root = dist.root("bullseye", "")?;
    let archive = files(&dist.out, "gz")?.pop().context("there is no tar")?;
    script(dist, "older.sh", &[&root, &archive])
}

/// Leads the attacks of the engine's suite against an engine with the limits of the unit.
pub(super) fn attacks(dist: &Dist) -> Result<()> {
    let mut build = command(&[
        "test",
        "--package",
        "lockkeeper-engine",
        "--features",
        "tls",
        "--test",
        "engine",
    ]);
    build.args(["--no-run", "--message-format=json"]).current_dir(&dist.sources);
    let messages = output(&mut build)?;
    let mut programs = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_suite =
            message["target"]["name"] == "engine" && message["target"]["kind"][0] == "test";
        if is_suite { message["executable"].as_str().map(PathBuf::from) } else { None }
    });
    let suite = programs.next().context("cargo has built no suite")?;

    let root = dist.root("bookworm", SERVER)?;
    copy(&suite, &root.join("packages/engine"), 0o755)?;
    let unit = dist.packaging().join("lockkeeper-server/lockkeeper-server.service");
    copy(&unit, &root.join("packages/unit"), 0o644)?;
    boot(dist, &root, "attacks.sh", &[])
}

impl Dist {
    /// A new root of this release of Debian with these packages.
    fn root(&self, suite: &str, packages: &str) -> Result<PathBuf> {
        // Made once: it holds nothing of ours.
        let archive = self.work.join(format!("{suite}.tar"));
        if !archive.exists() {
            let mut make = Command::new("mmdebstrap");
            make.args(["--quiet", "--variant=minbase"]);
            if !packages.is_empty() {
                make.arg(format!("--include={packages}"));
            }
            run(make.arg(suite).arg(&archive))?;
        }
        let root = self.work.join(suite);
        empty(&root)?;
        run(Command::new("tar")
            .arg("--extract")
            .arg("--directory")
            .arg(&root)
            .arg("--file")
            .arg(&archive))?;
        Ok(root)
    }
}

/// Runs a script in a root that systemd has booted, without a network.
fn boot(dist: &Dist, root: &Path, name: &str, words: &[&Path]) -> Result<()> {
    copy(&dist.packaging().join("trials").join(name), &root.join("packages/trial.sh"), 0o755)?;
    let words = [&[root], words].concat();
    script(dist, "boot.sh", &words)
}

fn script(dist: &Dist, name: &str, words: &[&Path]) -> Result<()> {
    run(Command::new("bash").arg(dist.packaging().join("trials").join(name)).args(words))
}

/// The files in this folder that end like this.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("{}: build first", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|it| it == extension));
    files.sort();
    Ok(files)
}
