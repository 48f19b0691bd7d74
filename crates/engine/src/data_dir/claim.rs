//! Whether the data directory is still this engine's, and has its files.
//!
//! The lock on `LOCK` keeps other engines out of the directory for as long as its name leads to the
//! same file. When somebody removes the directory, or moves another one to its place, a second
//! engine starts there and grants what this one has granted already. And when somebody removes a
//! file of the data, this engine goes on writing to what nobody will ever read. So it looks, once a
//! second, and stops.

use std::collections::BTreeSet;
use std::fs::read_dir;
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use crate::error::EngineError;
use crate::storage::{LOCK, is_data};

const INTERVAL: Duration = Duration::from_secs(1);

/// The directory's lock file and the files of the data, as they were when the engine took it.
pub(crate) struct Claim {
    directory: PathBuf,
    lock: (u64, u64),
    /// By their inodes. None is made while the engine runs.
    data: BTreeSet<u64>,
}

impl Claim {
    /// To be called while the lock is held and all files are there; `None` if the lock is gone
    /// already, or does not tell.
    pub(crate) fn on(directory: &Path) -> Option<Self> {
        let lock = identity(directory).ok()?;
        // A directory that cannot be listed is watched by its lock alone.
        let data = data_files(directory).unwrap_or_default();
        Some(Self { directory: directory.to_owned(), lock, data })
    }

    /// Any other trouble than a missing or another file is no reason to stop: it passes, or commits
    /// meet it too.
    fn is_displaced(&self) -> bool {
        match identity(&self.directory) {
            Ok(found) => found != self.lock,
            Err(e) => matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    fn lacks_data(&self) -> bool {
        data_files(&self.directory).is_ok_and(|found| !self.data.is_subset(&found))
    }

    /// Returns when it is lost, with the reason.
    pub(crate) async fn watch(self) -> EngineError {
        let mut lacked_data = false;
        let path = self.directory.clone();
        loop {
            if self.is_displaced() {
                return EngineError::Displaced { path };
            }

            // Twice in a row: a file that is just getting another name may be in no listing.
            let lacks_data = self.lacks_data();
            if lacks_data && lacked_data {
                return EngineError::DataRemoved { path };
            }
            lacked_data = lacks_data;
            sleep(INTERVAL).await;
        }
    }
}

fn identity(directory: &Path) -> io::Result<(u64, u64)> {
    let meta = std::fs::metadata(directory.join(LOCK))?;
    Ok((meta.dev(), meta.ino()))
}

fn data_files(directory: &Path) -> io::Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    for entry in read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_data) {
            found.insert(entry.ino());
        }
    }
    Ok(found)
}
