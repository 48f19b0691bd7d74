//! The files under the libraries' feet.

use std::fs::File;
use std::io;
use std::sync::Arc;

use redb::StorageBackend;
use redb::backends::FileBackend;

/// Makes the file that is really used of one that was opened. Tests put disks between that fail,
/// forget or remember.
pub(super) type Wrap =
    Arc<dyn Fn(File) -> io::Result<Box<dyn StorageBackend>> + Send + Sync + 'static>;

/// The file itself.
pub(super) fn plain() -> Wrap {
    Arc::new(|file| Ok(Box::new(FileBackend::new(file).map_err(io::Error::other)?)))
}

/// A file of any kind, for the database library.
#[derive(Debug)]
pub(super) struct DiskFile(pub(super) Box<dyn StorageBackend>);

// The lock methods keep their default, "unsupported": the directory's own lock guards the file.
impl StorageBackend for DiskFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}
