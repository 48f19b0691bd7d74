//! A copy of the sources, in which bugs are planted.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::mutants::patch::Patch;

/// Where the sources are.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The copy.
pub(super) struct Tree {
    folder: PathBuf,
    /// By the names of the patches that are planted, what their files held before.
    planted: RefCell<BTreeMap<String, Vec<Vec<u8>>>>,
}

impl Tree {
    /// Makes `folder` the same as the tracked files. Those that are the same already stay as they
    /// are, so that cargo builds nothing anew for them.
    pub(super) fn copy(folder: PathBuf) -> Result<Self> {
        Self::copy_from(Path::new(ROOT), folder)
    }

    fn copy_from(root: &Path, folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder:?}"))?;
        let folder = folder.canonicalize()?;
        let tracked = tracked(root)?;
        for file in &tracked {
            let copy = folder.join(file);
            update(&root.join(file), &copy).with_context(|| format!("cannot write {copy:?}"))?;
        }
        remove_others(&folder, &folder, &tracked)?;
        Ok(Self { folder, planted: RefCell::default() })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Plants a bug.
    pub(super) fn apply(&self, patch: &Patch) -> Result<()> {
        let before = self.contents(patch)?;
        self.git_apply(patch)?;
        // What git takes for a file of another repository, it skips without a word.
        if self.contents(patch)?.iter().zip(&before).any(|(after, before)| after == before) {
            bail!("{}: the patch changed nothing", patch.name);
        }
        self.planted.borrow_mut().insert(patch.name.clone(), before);
        Ok(())
    }

    /// Takes it out again; of several that touch one file, the last one that was planted comes first. The
    /// files are put back as they were: a patch in reverse may fit another place as well.
    pub(super) fn revert(&self, patch: &Patch) -> Result<()> {
        let before = self.planted.borrow_mut().remove(&patch.name);
        let before = before.with_context(|| format!("{} is not planted", patch.name))?;
        for (file, contents) in patch.files.iter().zip(before) {
            let copy = self.folder.join(file);
            fs::write(&copy, contents).with_context(|| format!("cannot write {copy:?}"))?;
        }
        Ok(())
    }

    fn contents(&self, patch: &Patch) -> Result<Vec<Vec<u8>>> {
        let read = |file: &PathBuf| {
            fs::read(self.folder.join(file))
                .with_context(|| format!("{}: there is no {}", patch.name, file.display()))
        };
        patch.files.iter().map(read).collect()
    }

    fn git_apply(&self, patch: &Patch) -> Result<()> {
        let mut git = Command::new("git");
        git.arg("apply").arg(&patch.file).current_dir(&self.folder);
        // The copy lies in a repository, and is no part of it.
        git.env("GIT_CEILING_DIRECTORIES", self.folder.parent().unwrap_or(&self.folder));
        let output = git.output().context("cannot start git")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!("{}: the patch does not apply, write it anew:\n{text}", patch.name);
        }
        Ok(())
    }
}

/// The tracked files of the working tree.
fn tracked(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .context("cannot start git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8(output.stdout).context("a file has a name that is not UTF-8")?;
    let files = names.split_terminator('\0').map(PathBuf::from);
    // A deleted file is tracked until that is committed.
    Ok(files.filter(|file| root.join(file).is_file()).collect())
}

fn update(file: &Path, copy: &Path) -> Result<()> {
    if copy.is_file() && fs::read(file)? == fs::read(copy)? {
        return Ok(());
    }
    if let Some(parent) = copy.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(file, copy)?;
    Ok(())
}

/// Removes what an earlier copy had.
fn remove_others(root: &Path, folder: &Path, tracked: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(root, &path, tracked)?;
        } else if !path.strip_prefix(root).is_ok_and(|file| tracked.contains(file)) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {path:?}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

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

    /// A repository with one file, and in it a folder for copies, as `target` is.
    fn repository() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("src")).unwrap();
        fs::write(root.path().join("src/file"), "first\nsecond\nthird\n").unwrap();
        fs::write(root.path().join("planted.patch"), DIFF).unwrap();
        git(root.path(), &["init", "--quiet"]);
        git(root.path(), &["add", "src"]);
        root
    }

    fn git(root: &Path, arguments: &[&str]) {
        assert!(Command::new("git").args(arguments).current_dir(root).status().unwrap().success());
    }

    fn patch(root: &TempDir) -> Patch {
        let file = root.path().join("planted.patch");
        let files = BTreeSet::from([PathBuf::from("src/file")]);
        let (name, what) = ("planted".to_owned(), String::new());
        Patch { name, what, file, check: "leases, 9 seeds".parse().unwrap(), files }
    }

    fn copy(root: &TempDir) -> Tree {
        Tree::copy_from(root.path(), root.path().join("target/tree")).unwrap()
    }

    fn read(tree: &Tree) -> String {
        fs::read_to_string(tree.folder().join("src/file")).unwrap()
    }

    #[test]
    fn a_patch_changes_the_copy_and_is_taken_out_again() {
        let root = repository();
        let (tree, patch) = (copy(&root), patch(&root));
        tree.apply(&patch).unwrap();
        assert_eq!(read(&tree), "first\nplanted\nthird\n");
        let source = fs::read_to_string(root.path().join("src/file")).unwrap();
        assert_eq!(source, "first\nsecond\nthird\n");
        tree.revert(&patch).unwrap();
        assert_eq!(read(&tree), source);
    }

    #[test]
    fn a_patch_that_does_not_fit_the_sources_is_an_error() {
        let root = repository();
        fs::write(root.path().join("src/file"), "first\nother\nthird\n").unwrap();
        let error = copy(&root).apply(&patch(&root)).unwrap_err();
        assert!(error.to_string().contains("does not apply"), "{error}");
    }

    /// A run that was interrupted leaves its bug, and files come and go.
    #[test]
    fn a_copy_is_made_the_same_again_and_what_is_the_same_is_left_alone() {
        let root = repository();
        let tree = copy(&root);
        tree.apply(&patch(&root)).unwrap();
        fs::write(tree.folder().join("src/old"), "").unwrap();
        let tree = copy(&root);
        assert_eq!(read(&tree), "first\nsecond\nthird\n");
        assert!(!tree.folder().join("src/old").exists());

        let changed = || fs::metadata(tree.folder().join("src/file")).unwrap().modified().unwrap();
        let before = changed();
        copy(&root);
        assert_eq!(changed(), before);
    }
}
