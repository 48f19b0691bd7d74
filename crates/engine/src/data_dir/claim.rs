//! Checks whether the data directory still belongs to this engine and contains its files.
//!
//! The lock on `LOCK` keeps other engines out of the directory while its name leads to the same file. If the directory
//! is removed, or another one is moved to its place, a second engine can start there and grant locks that this one has
//! already granted. And if a data file is removed, this engine continues to write to a file that is lost. So it checks
//! once a second, and stops.

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

/// The directory's lock file and data files as they were when the engine claimed the directory.
pub(crate) struct Claim {
    directory: PathBuf,
    lock: (u64, u64),
    /// By their inodes. No data file is created while the engine runs.
    data: BTreeSet<u64>,
}

impl Claim {
    /// To be called while the lock is held and all files exist; `None` if the lock file is already gone or cannot be
    /// examined.
    pub(crate) fn on(directory: &Path) -> Option<Self> {
        let lock = identity(directory).ok()?;
        // If the directory cannot be listed, only its lock is watched.
        let data = data_files(directory).unwrap_or_default();
        Some(Self { directory: directory.to_owned(), lock, data })
    }

    /// Any problem other than a missing or a different file is no reason to stop: it passes, or commits encounter it
    /// too.
    fn is_displaced(&self) -> bool {
        match identity(&self.directory) {
            Ok(found) => found != self.lock,
            Err(e) => matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    fn lacks_data(&self) -> bool {
        data_files(&self.directory).is_ok_and(|found| !self.data.is_subset(&found))
    }

    /// Returns when the claim is lost, with the reason.
    pub(crate) async fn watch(self) -> EngineError {
        let mut lacked_data = false;
        let path = self.directory.clone();
        loop {
            if self.is_displaced() {
                return EngineError::Displaced { path };
            }

            // Twice in a row: a file that is being renamed may be absent from a listing.
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
