//! A copy of the sources, to which bugs are applied.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::mutants::patch::Patch;

/// The root of the sources.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The copy: a separate repository that shares the objects of the original.
pub(super) struct Tree {
    folder: PathBuf,
}

impl Tree {
    /// Makes `folder` a copy of the tracked files with their changes. Unchanged files are not written, so
    /// that cargo does not rebuild them.
    pub(super) fn copy(folder: PathBuf) -> Result<Self> {
        Self::copy_from(Path::new(ROOT), folder)
    }

    fn copy_from(root: &Path, folder: PathBuf) -> Result<Self> {
        if !folder.join(".git").exists() {
            fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder:?}"))?;
            fs::remove_dir_all(&folder)?;
            let init = ["init", "--quiet"].map(OsStr::new);
            git(root, init.into_iter().chain([folder.as_os_str()]))?;
        }
        let objects = root.join(git(root, ["rev-parse", "--git-path", "objects"])?);
        let objects = objects.canonicalize()?.into_os_string().into_encoded_bytes();
        fs::write(folder.join(".git/objects/info/alternates"), objects)?;

        // A commit of the tracked files as they are; empty if nothing has changed.
        let author = ["-c", "user.name=mutants", "-c", "user.email=mutants"];
        let changed = git(root, author.into_iter().chain(["stash", "create"]))?;
        let committed = git(root, ["rev-parse", "HEAD"])?;
        let now = if changed.is_empty() { &committed } else { &changed };
        git(&folder, ["checkout", "--quiet", "--force", "--detach", now])?;
        git(&folder, ["clean", "--quiet", "--force", "-d", "-x"])?;
        Ok(Self { folder })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Applies a bug, in addition to those already applied.
    pub(super) fn apply(&self, patch: &Patch) -> Result<()> {
        let applied = git(&self.folder, [OsStr::new("apply"), patch.file.as_os_str()]);
        applied.with_context(|| format!("{}: does not apply; update it", patch.name))?;
        Ok(())
    }

    /// Removes all applied bugs.
    pub(super) fn restore(&self) -> Result<()> {
        git(&self.folder, ["checkout", "--quiet", "--force"])?;
        git(&self.folder, ["clean", "--quiet", "--force", "-d"]).map(drop)
    }
}

/// Runs git in the repository of a folder, never in an enclosing repository or in that of a hook that runs
/// this program. Returns its output.
fn git(folder: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
    let mut git = Command::new("git");
    git.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder));
    for variable in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"] {
        git.env_remove(variable);
    }
    let output = git.args(arguments).current_dir(folder).output().context("cannot start git")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{git:?}: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DIFF: &str = "\
diff --git a/src/file b/src/file
--- a/src/file
+++ b/src/file
@@ -1,3 +1,3 @@
 first
-second
+planted
 third
";

    /// A patch changes only the copy. Leftovers of an interrupted run, and files that were added and removed,
    /// are not in the next copy. Unchanged files are not written.
    #[test]
    fn a_copy_is_what_is_tracked_until_a_patch_changes_it() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let source = "first\nsecond\nthird\n";
        fs::create_dir(root.join("src")).unwrap();
        fs::write(root.join("src/file"), "first\n").unwrap();
        fs::write(root.join("planted.patch"), DIFF).unwrap();
        git(root, ["init", "--quiet"]).unwrap();
        git(root, ["add", "src"]).unwrap();
        let author = ["-c", "user.name=a", "-c", "user.email=a"];
        git(root, author.into_iter().chain(["commit", "--quiet", "-m", "first"])).unwrap();
        fs::write(root.join("src/file"), source).unwrap();

        let copy = || Tree::copy_from(root, root.join("target/tree")).unwrap();
        let tree = copy();
        let file = tree.folder().join("src/file");
        let (name, what) = ("planted".to_owned(), String::new());
        let patch = Patch {
            name,
            what,
            file: root.join("planted.patch"),
            check: "leases, 9 seeds".parse().unwrap(),
            files: BTreeSet::from(["src/file".into()]),
        };
        for interrupted in [false, true] {
            tree.apply(&patch).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), source.replace("second", "planted"));
            assert_eq!(fs::read_to_string(root.join("src/file")).unwrap(), source);
            fs::write(tree.folder().join("src/old"), "").unwrap();
            if interrupted {
                drop(copy())
            } else {
                tree.restore().unwrap()
            }
            assert_eq!(fs::read_to_string(&file).unwrap(), source);
        }
        assert!(!tree.folder().join("src/old").exists());

        let changed = || fs::metadata(&file).unwrap().modified().unwrap();
        let before = changed();
        copy();
        assert_eq!(changed(), before);
        fs::write(root.join("src/file"), "other\n").unwrap();
        assert!(copy().apply(&patch).unwrap_err().to_string().contains("does not apply"));
    }
}
