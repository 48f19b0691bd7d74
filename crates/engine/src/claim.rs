//! Whether the data directory is still this engine's.
//!
//! The lock on `LOCK` keeps other engines out of the directory for as long as its name leads to the
//! same file. When somebody removes the directory, or moves another one to its place, a second
//! engine starts there and grants what this one has granted already. So this one looks, once a
//! second, and stops.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::sleep;

use crate::tree_loop::Event;

const INTERVAL: Duration = Duration::from_secs(1);

/// The directory's lock file, as it was when the engine took it.
pub(crate) struct Claim {
    directory: PathBuf,
    file: (u64, u64),
}

impl Claim {
    /// To be called while the lock is held; `None` if the file is gone already, or does not tell.
    pub(crate) fn on(directory: &Path) -> Option<Self> {
        let file = identity(directory).ok()?;
        Some(Self { directory: directory.to_owned(), file })
    }

    /// Any other trouble than a missing or another file is no reason to stop: it passes, or commits
    /// meet it too.
    fn is_lost(&self) -> bool {
        match identity(&self.directory) {
            Ok(found) => found != self.file,
            Err(e) => matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    /// Tells the tree thread when it is lost.
    pub(crate) async fn watch(self, events: UnboundedSender<Event>) {
        while !self.is_lost() {
            sleep(INTERVAL).await;
        }
        // Without a tree thread there is nothing left to stop.
        let _ = events.send(Event::Displaced(self.directory));
    }
}

fn identity(directory: &Path) -> io::Result<(u64, u64)> {
    let meta = std::fs::metadata(directory.join("LOCK"))?;
    Ok((meta.dev(), meta.ino()))
}
