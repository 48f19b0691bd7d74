//! Disks in memory that record what is done to them, one for each file of a directory.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard};

use super::*;

#[derive(Debug, Clone)]
pub(super) enum Call {
    Length(usize),
    Write(usize, Vec<u8>),
    Sync,
}

impl Call {
    pub(super) fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Call::Length(length) => image.resize(*length, 0),
            Call::Write(at, data) => {
                image.resize(image.len().max(at + data.len()), 0);
                image[*at..at + data.len()].copy_from_slice(data);
            }
            Call::Sync => {}
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct DisksState {
    /// The file of each disk: names change, inodes do not.
    inodes: Vec<u64>,
    /// The contents as a reader sees them.
    pub(super) images: Vec<Vec<u8>>,
    /// The calls, each with the number of its disk.
    pub(super) calls: Vec<(usize, Call)>,
    /// The number of calls until all fail, if it is set.
    pub(super) left: Option<u64>,
    /// Whether syncs report success without syncing.
    pub(super) lies: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Disks(Arc<Mutex<DisksState>>);

impl Disks {
    pub(super) fn state(&self) -> MutexGuard<'_, DisksState> {
        self.0.lock().unwrap()
    }

    pub(super) fn wrap(&self) -> Wrap {
        let disks = self.clone();
        Arc::new(move |file: File| {
            let inode = file.metadata()?.ino();
            let mut state = disks.state();
            let known = state.inodes.iter().position(|known| *known == inode);
            let number = known.unwrap_or_else(|| {
                state.inodes.push(inode);
                state.images.push(Vec::new());
                state.inodes.len() - 1
            });
            drop(state);
            Ok(Box::new(SimulatedDisk { disks: disks.clone(), number }))
        })
    }

    /// The disk of a file.
    pub(super) fn number(&self, inode: u64) -> Option<usize> {
        self.state().inodes.iter().position(|known| *known == inode)
    }

    /// A directory like `dir` with other contents in its files.
    pub(super) fn copy(&self, dir: &TempDir, images: &[Vec<u8>]) -> TempDir {
        let copy = TempDir::new().unwrap();
        let inodes = self.state().inodes.clone();
        for entry in dir.path().read_dir().unwrap() {
            let entry = entry.unwrap();
            let to = copy.path().join(entry.file_name());
            let inode = entry.metadata().unwrap().ino();
            match inodes.iter().position(|known| *known == inode) {
                Some(number) => std::fs::write(to, &images[number]).unwrap(),
                None => _ = std::fs::copy(entry.path(), to).unwrap(),
            }
        }
        copy
    }

    fn call(&self, number: usize, call: Call) -> io::Result<()> {
        let mut state = self.state();
        match &mut state.left {
            Some(0) => return Err(io::Error::other("the power is out")),
            Some(left) => *left -= 1,
            None => {}
        }
        if state.lies && matches!(call, Call::Sync) {
            return Ok(());
        }
        call.apply(&mut state.images[number]);
        state.calls.push((number, call));
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedDisk {
    disks: Disks,
    number: usize,
}

impl StorageBackend for SimulatedDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disks.state().images[self.number].len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = offset as usize;
        out.copy_from_slice(&self.disks.state().images[self.number][at..at + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disks.call(self.number, Call::Length(len as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disks.call(self.number, Call::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disks.call(self.number, Call::Write(offset as usize, data.to_vec()))
    }
}
