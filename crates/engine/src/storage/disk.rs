//! The database file under the library's feet.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;

/// Whether syncs are passed on to the disk, shared between the file and its owner.
#[derive(Debug, Clone, Default)]
pub(super) struct Syncs {
    skipped: Arc<AtomicBool>,
}

impl Syncs {
    /// From here on a commit ends with the operating system.
    pub(super) fn skip(&self) {
        self.skipped.store(true, Ordering::Release);
    }

    /// From here on a sync reaches the disk, and takes with it all that was skipped.
    pub(super) fn resume(&self) {
        self.skipped.store(false, Ordering::Release);
    }

    fn are_skipped(&self) -> bool {
        self.skipped.load(Ordering::Acquire)
    }
}

/// A file whose syncs can be switched off. Everything written goes to the operating system at
/// once, so that it survives the end of the process in any case.
#[derive(Debug)]
pub(super) struct DiskFile<B> {
    file: B,
    syncs: Syncs,
}

impl<B> DiskFile<B> {
    pub(super) fn new(file: B, syncs: Syncs) -> DiskFile<B> {
        DiskFile { file, syncs }
    }
}

// The lock methods keep their default, "unsupported": the directory's own lock guards the file.
impl<B: StorageBackend> StorageBackend for DiskFile<B> {
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
        if self.syncs.are_skipped() {
            return Ok(());
        }
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
