//! The files of the database and the logs, and the interface where tests insert failing disks.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redb::StorageBackend;
use redb::backends::FileBackend;

/// Wraps an opened file. Tests insert disks that fail, lose writes or record calls.
pub(super) type Wrap =
    Arc<dyn Fn(File) -> io::Result<Box<dyn StorageBackend>> + Send + Sync + 'static>;

/// Uses the file itself.
pub(super) fn plain() -> Wrap {
    Arc::new(|file| Ok(Box::new(FileBackend::new(file).map_err(io::Error::other)?)))
}

/// How much is written in the background before it is synced, in bytes: a commit's sync waits for the data that the
/// disk received before it.
pub(super) const PIECE: u64 = 256 * 1024;

/// Paces background writes so that the disk serves commits: small pieces with pauses in between.
#[derive(Debug, Default)]
pub(super) struct WritePace {
    /// Whether a thread waits for the background writes.
    hurried: AtomicBool,
    /// Whether the database is written in the background.
    background: AtomicBool,
    /// Bytes that were written to the database and not synced.
    unsynced: AtomicU64,
}

impl WritePace {
    /// Pauses after a piece that took this long: the disk is idle for most of the time.
    pub(super) fn rest(&self, took: Duration) {
        const LONGEST: Duration = Duration::from_millis(20);
        if !self.is_hurried() {
            thread::sleep((3 * took).min(LONGEST));
        }
    }

    pub(super) fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed)
    }

    /// Sets whether a thread waits for the background writes.
    pub(super) fn hurry(&self, hurried: bool) {
        self.hurried.store(hurried, Ordering::Relaxed);
    }

    /// Sets whether the database is written in the background.
    pub(super) fn set_background(&self, background: bool) {
        self.background.store(background, Ordering::Relaxed);
    }
}

/// A file of any kind, for the database library.
#[derive(Debug)]
pub(super) struct DiskFile {
    pub(super) file: Box<dyn StorageBackend>,
    pub(super) pace: Arc<WritePace>,
}

// The lock methods keep their default, "unsupported": the directory's own lock protects the file.
impl StorageBackend for DiskFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.pace.unsynced.store(0, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)?;
        // Additional syncs do not affect the guarantees on which the library relies.
        let unsynced = data.len() as u64;
        let unsynced = unsynced + self.pace.unsynced.fetch_add(unsynced, Ordering::Relaxed);
        if unsynced >= PIECE && self.pace.background.load(Ordering::Relaxed) {
            let start = Instant::now();
            self.sync_data()?;
            self.pace.rest(start.elapsed());
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
