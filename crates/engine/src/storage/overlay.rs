//! A read-only file: writes to it stay in memory and are lost when it is dropped.
//!
//! The library repairs a file while it opens it. A check must leave the file unchanged, so the library repairs this
//! overlay instead.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// How much is copied on the first write to a part of the file, in bytes.
const BLOCK: u64 = 4_096;

/// The file, and the data written over it.
#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    len: u64,
    /// From here on the file's own contents are hidden: it was truncated there.
    file_end: u64,
    blocks: HashMap<u64, Box<[u8]>>,
}

impl Overlay {
    pub(super) fn over(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let written = Written { len, file_end: len, blocks: HashMap::new() };
        Ok(Self { file, written: Mutex::new(written) })
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of the file; zeros beyond its end.
    fn read_block(&self, block: u64, file_end: u64) -> io::Result<Box<[u8]>> {
        let mut bytes = vec![0; BLOCK as usize];
        let start = block * BLOCK;
        let len = file_end.saturating_sub(start).min(BLOCK) as usize;
        self.file.read_exact_at(&mut bytes[..len], start)?;
        Ok(bytes.into())
    }

    /// Calls `each` for every part of a block in the range, with the position of the part in it.
    fn parts(
        offset: u64,
        len: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = (at % BLOCK) as usize;
            let count = (len - done).min(BLOCK as usize - within);
            each(at / BLOCK, within..within + count, done..done + count)?;
            done += count;
        }
        Ok(())
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.lock();
        if offset.saturating_add(out.len() as u64) > written.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }

        let len = out.len();
        Self::parts(offset, len, |block, within, range| {
            match written.blocks.get(&block) {
                Some(bytes) => out[range].copy_from_slice(&bytes[within]),
                None => {
                    let bytes = self.read_block(block, written.file_end)?;
                    out[range].copy_from_slice(&bytes[within]);
                }
            }
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.lock();
        if len < written.len {
            // Truncated data must not reappear when the file grows again.
            written.blocks.retain(|block, _| block * BLOCK < len);
            if let Some(bytes) = written.blocks.get_mut(&(len / BLOCK)) {
                bytes[(len % BLOCK) as usize..].fill(0);
            }
            written.file_end = written.file_end.min(len);
        }
        written.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.lock();
        let end = offset.saturating_add(data.len() as u64);
        written.len = written.len.max(end);

        let file_end = written.file_end;
        Self::parts(offset, data.len(), |block, within, range| {
            let bytes = match written.blocks.entry(block) {
                std::collections::hash_map::Entry::Occupied(there) => there.into_mut(),
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(self.read_block(block, file_end)?)
                }
            };
            bytes[within].copy_from_slice(&data[range]);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_file_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let original: Vec<u8> = (0..10_000_u32).map(|i| i as u8).collect();
        std::fs::write(&path, &original).unwrap();
        let overlay = Overlay::over(File::open(&path).unwrap()).unwrap();
        let mut expected = original.clone();

        overlay.write(4_000, &[7; 200]).unwrap();
        expected[4_000..4_200].fill(7);
        overlay.write(9_990, &[8; 20]).unwrap();
        expected.resize(10_010, 0);
        expected[9_990..].fill(8);
        overlay.set_len(5_000).unwrap();
        overlay.set_len(12_000).unwrap();
        expected.truncate(5_000);
        expected.resize(12_000, 0);

        let mut found = vec![1; 12_000];
        overlay.read(0, &mut found).unwrap();
        assert!(found == expected);
        assert!(overlay.read(11_999, &mut [0; 2]).is_err());
        assert!(std::fs::read(&path).unwrap() == original);
    }
}
