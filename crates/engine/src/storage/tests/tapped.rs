//! A file that calls back before it is written or synced, and may then fail.

use std::fs::File;

use super::*;

/// The call that is about to happen.
#[derive(Debug, Clone, Copy)]
pub(super) enum Touch {
    Sync,
    /// A write up to this offset.
    Write(u64),
    Read,
}

struct Tapped<F> {
    file: Box<dyn StorageBackend>,
    before: F,
}

/// Calls `before` ahead of each call to a file.
pub(super) fn tapped(
    file: File,
    before: impl Fn(Touch) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<Box<dyn StorageBackend>> {
    Ok(Box::new(Tapped { file: disk::plain()(file)?, before }))
}

impl<F: Fn(Touch) -> io::Result<()> + Send + Sync + 'static> StorageBackend for Tapped<F> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        (self.before)(Touch::Read)?;
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        (self.before)(Touch::Sync)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (self.before)(Touch::Write(offset + data.len() as u64))?;
        self.file.write(offset, data)
    }
}

lockkeeper_wire::impl_debug!(Tapped<F>, self => file: self.file);
