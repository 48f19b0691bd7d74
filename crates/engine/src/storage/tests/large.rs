//! Commits that are too large for a log.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, Weak};

use super::*;

/// A batch that goes to the database at once.
fn large() -> Batch {
    let mut batch = nodes(&[("/small", Some("1"))]);
    batch.put(Table::Nodes, "/large", vec![b'x'; 33 * 1024 * 1024]);
    batch
}

/// Looks, whenever the database is written, whether a snapshot could be taken just then.
#[derive(Debug)]
struct Watched {
    file: Box<dyn StorageBackend>,
    watch: Option<Watch>,
}

#[derive(Debug, Clone, Default)]
struct Watch {
    open: Arc<Mutex<Weak<OpenDisk>>>,
    writes: Arc<Mutex<Vec<bool>>>,
}

impl Watched {
    fn look(&self) {
        let Some(watch) = &self.watch else {
            return;
        };
        if let Some(open) = watch.open.lock().unwrap().upgrade() {
            watch.writes.lock().unwrap().push(open.recycling.try_lock().is_ok());
        }
    }
}

impl StorageBackend for Watched {
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
        self.look();
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.look();
        self.file.write(offset, data)
    }
}

/// A snapshot is the database and, a moment later, the logs. Symptom: a large commit went into the
/// database in between, and the next one into the log, so that a backup had the second without the
/// first. Found by reading.
#[test]
fn nothing_is_written_into_the_database_while_a_snapshot_is_taken() {
    let dir = TempDir::new().unwrap();
    let watch = Watch::default();
    let (path, plain) = (dir.path().join("lockkeeper.redb"), disk::plain());
    let of_database = watch.clone();
    let wrap: Wrap = Arc::new(move |file: File| {
        let is_database = file.metadata()?.ino() == path.metadata()?.ino();
        let watch = is_database.then(|| of_database.clone());
        Ok(Box::new(Watched { file: plain(file)?, watch }))
    });
    let mut storage = Storage::open_with(Some(dir.path()), Durability::Sync, wrap).unwrap();
    *watch.open.lock().unwrap() = Arc::downgrade(&storage.disk.as_ref().unwrap().open);

    storage.commit(&nodes(&[("/first", Some("1"))])).unwrap();
    storage.commit(&large()).unwrap();
    let writes = std::mem::take(&mut *watch.writes.lock().unwrap());
    assert!(!writes.is_empty());
    assert!(!writes.contains(&true), "{writes:?}");
    *watch.open.lock().unwrap() = Weak::new();
}

#[test]
fn a_large_commit_is_there_after_a_kill_and_so_is_what_came_before_and_after_it() {
    let (dir, left) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut storage = open(&dir, Durability::Sync).unwrap();
    storage.commit(&nodes(&[("/first", Some("1"))])).unwrap();
    storage.commit(&large()).unwrap();
    storage.commit(&nodes(&[("/last", Some("1")), ("/large", None)])).unwrap();
    for entry in dir.path().read_dir().unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), left.path().join(entry.file_name())).unwrap();
    }
    let expected = [pair("/first", "1"), pair("/last", "1"), pair("/small", "1")];
    assert_eq!(stored_nodes(&open(&left, Durability::Sync).unwrap()), expected);
}
