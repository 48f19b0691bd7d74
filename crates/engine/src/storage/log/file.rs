//! A log file that is written in place.
//!
//! Syncing a growing file costs about twice as much as syncing one whose blocks are allocated, because the file
//! system's own records change too. So the file is filled with zeros ahead of the writes, and is reused without
//! clearing when its contents are in the database.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use redb::StorageBackend;
use wal_db::{WalError, WalStore};

use crate::storage::disk::{PIECE, WritePace};
use crate::storage::error::is_full;

/// How much is filled with zeros at a time, in bytes, when a commit needs it at once.
pub(crate) const CHUNK: u64 = if cfg!(test) { 64 * 1024 } else { 1024 * 1024 };

/// How much is read at once, in bytes.
const READ: u64 = 64 * 1024;

/// A log file, shared by its writer and the readers of its commits.
#[derive(Clone)]
pub(crate) struct LogFile(Arc<SharedFile>);

struct SharedFile {
    file: Box<dyn StorageBackend>,
    /// The end of the written data.
    end: AtomicU64,
    /// The end of the acknowledged data, which can be read while more is written.
    committed: AtomicU64,
    /// The number of the last commit before that; 0 without one.
    last_commit: AtomicU64,
    /// The length of the file.
    allocated: AtomicU64,
    /// Whether the disk was full when the file was to grow.
    has_no_room: AtomicBool,
    /// A piece that was read, and its offset. Written data does not change until the file is reused, so the piece
    /// remains valid.
    piece: Mutex<(u64, Vec<u8>)>,
}

impl LogFile {
    /// Takes a file whose contents no longer count.
    pub(crate) fn unused(file: Box<dyn StorageBackend>) -> io::Result<Self> {
        let allocated = file.len()?.into();
        let (end, committed, last_commit) = Default::default();
        let has_no_room = AtomicBool::new(false);
        let piece = Mutex::default();
        let shared =
            SharedFile { file, end, committed, last_commit, allocated, has_no_room, piece };
        Ok(Self(Arc::new(shared)))
    }

    /// Marks all written data as acknowledged, up to the commit with this number.
    pub(crate) fn commit(&self, number: u64) {
        self.0.committed.store(self.end(), Ordering::Release);
        self.0.last_commit.store(number, Ordering::Release);
    }

    /// The number of the last acknowledged commit; 0 without one.
    pub(crate) fn last_commit(&self) -> u64 {
        self.0.last_commit.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) -> u64 {
        self.0.end.load(Ordering::Acquire)
    }

    /// The length of the file: up to here, a write only changes contents.
    pub(crate) fn allocated(&self) -> u64 {
        self.0.allocated.load(Ordering::Relaxed)
    }

    /// The acknowledged data.
    pub(crate) fn contents(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.0.committed.load(Ordering::Acquire) as usize];
        self.0.file.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Discards its contents: it is overwritten from the beginning.
    pub(crate) fn reuse(&self) {
        let SharedFile { end, committed, last_commit, .. } = &*self.0;
        for position in [last_commit, end, committed] {
            position.store(0, Ordering::Release);
        }
        *self.piece() = Default::default();
        // There may be space by now.
        self.0.has_no_room.store(false, Ordering::Relaxed);
    }

    fn piece(&self) -> MutexGuard<'_, (u64, Vec<u8>)> {
        self.0.piece.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether [`LogFile::grow`] to this length is useful.
    pub(crate) fn can_grow(&self, length: u64) -> bool {
        self.allocated() < length && !self.0.has_no_room.load(Ordering::Relaxed)
    }

    /// Fills the file with zeros up to `length`, piece by piece, so that commits to another file find the disk idle in
    /// between, as paced by `pace`. No data may be written at the same time.
    ///
    /// Insufficient space is not an error: commits may find enough for themselves.
    pub(crate) fn grow(&self, length: u64, pace: &WritePace) -> io::Result<()> {
        while self.can_grow(length) && !pace.is_hurried() {
            let start = Instant::now();
            let target = length.min(self.allocated() + PIECE);
            match fill(&*self.0.file, self.allocated(), target) {
                Err(e) if is_full(&e) => {
                    self.stop_growing();
                    return Ok(());
                }
                filled => filled?,
            }

            self.0.file.sync_data()?;
            self.0.allocated.store(target, Ordering::Relaxed);
            pace.rest(start.elapsed());
        }
        Ok(())
    }

    /// Keeps its length until it is reused: the disk has little space.
    pub(crate) fn stop_growing(&self) {
        self.0.has_no_room.store(true, Ordering::Relaxed);
    }

    /// Truncates it to this length. Its contents no longer count.
    pub(crate) fn shorten(&self, length: u64) -> io::Result<()> {
        if self.allocated() > length {
            self.0.file.set_len(length)?;
            self.0.allocated.store(length, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Allocates space for a commit up to this offset; `false` if the disk is full.
    pub(crate) fn has_room_for(&self, until: u64) -> io::Result<bool> {
        match self.allocate(until) {
            Err(e) if is_full(&e) => Ok(false),
            allocated => allocated.map(|()| true),
        }
    }

    /// Fills the file with zeros up to `until`, if it is shorter.
    fn allocate(&self, until: u64) -> io::Result<()> {
        let allocated = self.0.allocated.load(Ordering::Relaxed);
        if until > allocated {
            let target = until.next_multiple_of(CHUNK);
            fill(&*self.0.file, allocated, target)?;
            self.0.allocated.store(target, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The contents of a file, read as a whole, without the zeros at its end.
pub(super) fn read(file: &dyn StorageBackend) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    file.read(0, &mut bytes)?;
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(bytes)
}

fn fill(file: &dyn StorageBackend, from: u64, to: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    let mut at = from;
    while at < to {
        let length = (to - at).min(ZEROS.len() as u64);
        file.write(at, &ZEROS[..length as usize])?;
        at += length;
    }
    Ok(())
}

impl WalStore for LogFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), WalError> {
        let end = offset + bytes.len() as u64;
        self.allocate(end)?;
        self.0.file.write(offset, bytes)?;
        self.0.end.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// A checkpoint reads a header and a commit at a time, so the file is read in larger pieces.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, WalError> {
        let left = self.end().saturating_sub(offset);
        let length = left.min(buf.len() as u64) as usize;
        let (begin, bytes) = &mut *self.piece();
        let within = |begin: u64| offset.checked_sub(begin).map(|at| at as usize);

        let has_it = |at: usize| bytes.len().checked_sub(at).is_some_and(|rest| rest >= length);
        let at = match within(*begin).filter(|at| has_it(*at)) {
            Some(at) => at,
            None => {
                bytes.resize(left.min(READ.max(length as u64)) as usize, 0);
                *begin = offset;
                self.0.file.read(offset, bytes)?;
                0
            }
        };
        buf[..length].copy_from_slice(&bytes[at..at + length]);
        Ok(length)
    }

    /// Only files without contents are opened for writing, so there is nothing to truncate.
    fn truncate(&self, _: u64) -> Result<(), WalError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    fn sync(&self) -> Result<(), WalError> {
        Ok(self.0.file.sync_data()?)
    }

    fn len(&self) -> Result<u64, WalError> {
        Ok(self.end())
    }
}

lockkeeper_wire::impl_debug!(LogFile, self => end: self.end());
