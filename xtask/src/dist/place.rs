//! Where the sources are, and where everything that is made from them goes.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::tools::{empty, output, run};
use crate::cargo::workspace;

/// Where things are, and what the files are made from.
#[derive(Clone)]
pub(super) struct Dist {
    /// The sources.
    pub(super) sources: PathBuf,
    /// Where the files go.
    pub(super) out: PathBuf,
    /// Where roots, tools and stages are.
    pub(super) work: PathBuf,
    /// What cargo builds in.
    pub(super) target: PathBuf,
    pub(super) version: String,
    /// Seconds since 1970: the time of all files.
    pub(super) epoch: String,
    pub(super) form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Thin,
    Full,
}

impl Form {
    /// How hard to compress: what is thrown away is not worth the time.
    pub(super) fn level(self) -> u8 {
        if self == Self::Thin { 1 } else { 9 }
    }
}

impl Dist {
    pub(super) fn open(out: &Path, form: Form) -> Result<Self> {
        let metadata = workspace()?;
        let sources = metadata.workspace_root.into_std_path_buf();
        let target = metadata.target_directory.into_std_path_buf();
        let package = metadata.packages.iter().find(|package| package.name == "lockkeeper-cli");
        let version = package.context("lockkeeper-cli is missing")?.version.to_string();
        let epoch = match env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => output(git(&sources).args(["log", "-1", "--format=%ct"]))?.trim().to_owned(),
        };
        let (out, work) = (sources.join(out), target.join("packaging/work"));
        fs::create_dir_all(&work)?;
        Ok(Self { sources, out, work, target, version, epoch, form })
    }

    /// The same sources, with another folder for the files, and for everything on the way to them.
    pub(super) fn beside(&self, name: &str) -> Self {
        Self { out: self.out.with_extension(name), ..self.clone() }
    }

    /// A copy of the sources, as git knows the files.
    pub(super) fn copy_to(&self, name: &str, commit: Option<&str>) -> Result<Self> {
        let copy = self.work.join(name);
        let sources = copy.join("sources");
        empty(&sources)?;
        let files = match commit {
            Some(commit) => format!("git archive {commit}"),
            None => "git ls-files -z | tar --create --null --files-from=- --ignore-failed-read"
                .to_owned(),
        };
        let copying = format!("{files} | tar --extract --directory \"$0\"");
        run(Command::new("sh").args(["-c", &copying]).arg(&sources).current_dir(&self.sources))?;
        Ok(Self { sources, target: copy.join("target"), ..self.beside(name) })
    }

    /// The time of all files, as ISO 8601 writes it.
    pub(super) fn time(&self) -> Result<String> {
        let epoch = format!("@{}", self.epoch);
        let time = output(Command::new("date").args(["--utc", "--date", &epoch, "+%FT%TZ"]))?;
        Ok(time.trim().to_owned())
    }

    pub(super) fn packaging(&self) -> PathBuf {
        self.sources.join("packaging")
    }
}

/// Git in this folder.
fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder);
    git
}
