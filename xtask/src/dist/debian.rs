//! The Debian packages: trees of files, packed by `dpkg-deb`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::binary::Binary;
use super::pages::documentation;
use super::papers::Papers;
use super::place::Dist;
use super::tools::{copy, empty, run, write};

const MAINTAINER: &str = "Lockkeeper contributors <lockkeeper@localhost>";

/// Writes both packages.
pub(super) fn packages(dist: &Dist, binary: &Binary, papers: &Papers) -> Result<()> {
    command(dist, binary, papers)?;
    server(dist, papers)
}

/// `lockkeeper`: the command, and the units that run jobs with it.
fn command(dist: &Dist, binary: &Binary, papers: &Papers) -> Result<()> {
    let tree = dist.work.join("lockkeeper.deb");
    empty(&tree)?;
    let share = tree.join("usr/share");
    copy(&binary.path, &tree.join("usr/bin/lockkeeper"), 0o755)?;
    manual(binary, &share.join("man/man1"))?;
    let pages = share.join("man/man1");
    run(Command::new("sh").args(["-c", "gzip --no-name --best \"$0\"/*.1"]).arg(&pages))?;
    completions(binary, "bash", &share.join("bash-completion/completions/lockkeeper"))?;
    completions(binary, "zsh", &share.join("zsh/vendor-completions/_lockkeeper"))?;
    completions(binary, "fish", &share.join("fish/vendor_completions.d/lockkeeper.fish"))?;
    documentation(dist, &share.join("doc/lockkeeper"))?;
    let files = dist.packaging().join("lockkeeper");
    for unit in ["lockkeeper-run@.service", "lockkeeper-run@.timer"] {
        copy(&files.join(unit), &tree.join("lib/systemd/system").join(unit), 0o644)?;
    }
    scripts(&files, &tree)?;
    overrides(&files, &tree, "lockkeeper")?;
    copyright(dist, &tree, "lockkeeper", papers)?;
    let dependencies = binary.debian_dependencies();
    let description = "distributed locks and queues for commands\n \
        lockkeeper runs a command while it holds a lock, on one machine or on many,\n \
        where ZooKeeper servers or an engine of its own keep the locks. It has queues,\n \
        elections, groups, barriers, pools and values for scripts as well.";
    build(dist, &tree, "lockkeeper", &dependencies, description)
}

/// `lockkeeper-server`: the service.
fn server(dist: &Dist, papers: &Papers) -> Result<()> {
    let tree = dist.work.join("lockkeeper-server.deb");
    empty(&tree)?;
    let files = dist.packaging().join("lockkeeper-server");
    for unit in
        ["lockkeeper-server.service", "lockkeeper-backup.service", "lockkeeper-backup.timer"]
    {
        copy(&files.join(unit), &tree.join("lib/systemd/system").join(unit), 0o644)?;
    }
    copy(&files.join("zoo.cfg"), &tree.join("etc/lockkeeper/zoo.cfg"), 0o644)?;
    write(&tree.join("DEBIAN/conffiles"), "/etc/lockkeeper/zoo.cfg\n")?;
    scripts(&files, &tree)?;
    overrides(&files, &tree, "lockkeeper-server")?;
    copyright(dist, &tree, "lockkeeper-server", papers)?;
    let dependencies = format!("lockkeeper (= {}-1), adduser", dist.version);
    let description = "server that keeps distributed locks\n \
        A service on one machine that any ZooKeeper client can use: it speaks the\n \
        protocol of ZooKeeper, and keeps its data on the disk. Installing it starts\n \
        nothing: systemctl enable --now lockkeeper-server";
    build(dist, &tree, "lockkeeper-server", &dependencies, description)
}

/// Packs a tree that everyone may read.
fn build(
    dist: &Dist,
    tree: &Path,
    name: &str,
    dependencies: &str,
    description: &str,
) -> Result<()> {
    let version = &dist.version;
    let size = fs_size(tree)?.div_ceil(1024);
    let control = format!(
        "Package: {name}\nVersion: {version}-1\nArchitecture: amd64\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {size}\nDepends: {dependencies}\nSection: admin\nPriority: optional\n\
         Description: {description}\n"
    );
    write(&tree.join("DEBIAN/control"), control)?;
    let sums = "cd \"$0\" && find usr lib -type f | LC_ALL=C sort | xargs md5sum > DEBIAN/md5sums && \
                chmod 644 DEBIAN/md5sums && find . -type d -exec chmod 755 {} +";
    run(Command::new("sh").args(["-c", sums]).arg(tree))?;
    let file = dist.out.join(format!("{name}_{version}-1_amd64.deb"));
    let mut build = Command::new("dpkg-deb");
    build
        .args(["--root-owner-group", "-Zxz", &format!("-z{}", dist.form.level()), "--build"])
        .arg(tree)
        .arg(file);
    run(build.env("SOURCE_DATE_EPOCH", &dist.epoch))
}

fn fs_size(folder: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        size += if entry.file_type()?.is_dir() {
            fs_size(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(size)
}

/// The manual pages of the command and of all its subcommands.
pub(super) fn manual(binary: &Binary, folder: &Path) -> Result<()> {
    let mut to_write = vec![Vec::new()];
    while let Some(words) = to_write.pop() {
        let page = binary.prints(&[&["man"], &words[..]].concat())?;
        let name = [&["lockkeeper"], &words[..]].concat().join("-");
        for line in page.replace("\\-", "-").lines() {
            let Some(child) = line.strip_suffix("(1)").and_then(|line| line.strip_prefix(&name))
            else {
                continue;
            };
            if let Some(word) = child.strip_prefix('-') {
                let word: &'static str = word.to_owned().leak();
                to_write.push([&words[..], &[word]].concat());
            }
        }
        write(&folder.join(format!("{name}.1")), page)?;
    }
    Ok(())
}

/// What completes the command in a shell.
pub(super) fn completions(binary: &Binary, shell: &str, file: &Path) -> Result<()> {
    write(file, binary.prints(&["completions", shell])?)
}

/// What `dpkg` runs.
fn scripts(files: &Path, tree: &Path) -> Result<()> {
    for script in ["postinst", "prerm", "postrm"] {
        copy(&files.join(script), &tree.join("DEBIAN").join(script), 0o755)?;
    }
    Ok(())
}

/// What lintian finds and is meant.
fn overrides(files: &Path, tree: &Path, name: &str) -> Result<()> {
    copy(&files.join("lintian"), &tree.join("usr/share/lintian/overrides").join(name), 0o644)
}

/// The licences, and the changes.
fn copyright(dist: &Dist, tree: &Path, name: &str, papers: &Papers) -> Result<()> {
    let folder = tree.join("usr/share/doc").join(name);
    let mit = fs::read_to_string(dist.sources.join("LICENSE-MIT"))?;
    let text = format!(
        "Lockkeeper is licensed under the Apache License, Version 2.0, which is in\n\
         /usr/share/common-licenses/Apache-2.0, or under the MIT license below, at your option.\n\
         THIRD-PARTY-LICENSES.txt in /usr/share/doc/lockkeeper has the licences of what is linked with it.\n\n{mit}"
    );
    write(&folder.join("copyright"), text)?;
    if name == "lockkeeper" {
        copy(&papers.licences, &folder.join("THIRD-PARTY-LICENSES.txt"), 0o644)?;
        copy(&dist.sources.join("CHANGELOG.md"), &folder.join("changelog"), 0o644)?;
        run(Command::new("gzip").args(["--no-name", "--best"]).arg(folder.join("changelog")))?;
    }
    let date = format!("@{}", dist.epoch);
    let date =
        super::tools::output(Command::new("date").args(["--utc", "--rfc-email", "--date", &date]))?;
    let version = &dist.version;
    let changes = format!(
        "{name} ({version}-1) stable; urgency=medium\n\n  * See the changelog of Lockkeeper.\n\n -- {MAINTAINER}  {date}"
    );
    write(&folder.join("changelog.Debian"), changes)?;
    run(Command::new("gzip").args(["--no-name", "--best"]).arg(folder.join("changelog.Debian")))
}
