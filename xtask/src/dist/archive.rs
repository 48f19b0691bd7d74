//! Archives whose bytes depend on their contents only, and the tar for any system.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::binary::Binary;
use super::debian::{completions, manual};
use super::pages::documentation;
use super::papers::Papers;
use super::place::Dist;
use super::tools::{copy, empty, run};

/// What systemd needs of the tar.
const UNITS: [&str; 6] = [
    "lockkeeper-server/lockkeeper-server.service",
    "lockkeeper-server/lockkeeper-backup.service",
    "lockkeeper-server/lockkeeper-backup.timer",
    "lockkeeper-server/zoo.cfg",
    "lockkeeper/lockkeeper-run@.service",
    "lockkeeper/lockkeeper-run@.timer",
];

/// Packs the folder `name` of `folder`, or all that is in it for `.`; compressed if the file is a `gz`.
pub(super) fn pack(dist: &Dist, folder: &Path, name: &str, to: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{}", dist.epoch)).arg("--directory").arg(folder);
    if to.extension().is_some_and(|extension| extension == "gz") {
        tar.arg(format!("--use-compress-program=gzip --no-name -{}", dist.form.level()));
    }
    run(tar.arg("--file").arg(to).arg(name))
}

/// The command and what belongs to it, for systems without Debian's packages.
pub(super) fn tarball(dist: &Dist, binary: &Binary, papers: &Papers) -> Result<()> {
    let name = format!("lockkeeper-{}-x86_64-linux", dist.version);
    let stage = dist.work.join("tar");
    let top = stage.join(&name);
    empty(&top)?;
    copy(&binary.path, &top.join("lockkeeper"), 0o755)?;
    manual(binary, &top.join("man/man1"))?;
    for (shell, file) in
        [("bash", "lockkeeper.bash"), ("zsh", "_lockkeeper"), ("fish", "lockkeeper.fish")]
    {
        completions(binary, shell, &top.join("completions").join(file))?;
    }
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"] {
        copy(&dist.sources.join(file), &top.join(file), 0o644)?;
    }
    documentation(dist, &top)?;
    copy(&papers.licences, &top.join("THIRD-PARTY-LICENSES.txt"), 0o644)?;
    for unit in UNITS {
        let file = dist.packaging().join(unit);
        copy(&file, &top.join("systemd").join(file.file_name().unwrap_or_default()), 0o644)?;
    }
    run(Command::new("chown").args(["--recursive", "0:0"]).arg(&top))?;
    pack(dist, &stage, &name, &dist.out.join(format!("{name}.tar.gz")))
}
