//! Commits that are too large for a log.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, Weak};

use super::tapped::tapped;
use super::*;

/// A batch that goes to the database at once.
fn large() -> Batch {
    let mut batch = nodes(&[("/small", Some("1"))]);
    batch.put(Table::Nodes, "/large", vec![b'x'; 33 * 1024 * 1024]);
    batch
}

/// Checks, at each write to the database, whether a snapshot could be taken at that moment.
#[derive(Debug, Clone, Default)]
struct Watch {
    open: Arc<Mutex<Weak<OpenDisk>>>,
    writes: Arc<Mutex<Vec<bool>>>,
}

impl Watch {
    fn look(&self) {
        if let Some(open) = self.open.lock().unwrap().upgrade() {
            self.writes.lock().unwrap().push(open.recycling.try_lock().is_ok());
        }
    }
}

/// A snapshot is the database and, a moment later, the logs. Symptom: a large commit was written into the database in
/// between, and the next one into the log, so that a backup contained the second without the first. Found by reading.
#[test]
fn nothing_is_written_into_the_database_while_a_snapshot_is_taken() {
    let dir = TempDir::new().unwrap();
    let watch = Watch::default();
    let path = dir.path().join("lockkeeper.redb");
    let of_database = watch.clone();
    let wrap: Wrap = Arc::new(move |file: File| {
        if file.metadata()?.ino() != path.metadata()?.ino() {
            return disk::plain()(file);
        }
        let watch = of_database.clone();
        tapped(file, move |_| {
            watch.look();
            Ok(())
        })
    });
    let mut storage = open_on(&dir, Durability::Sync, wrap);
    *watch.open.lock().unwrap() = Arc::downgrade(&storage.disk.as_ref().unwrap().open);

    storage.commit(&mut nodes(&[("/first", Some("1"))])).unwrap();
    storage.commit(&mut large()).unwrap();
    let writes = std::mem::take(&mut *watch.writes.lock().unwrap());
    assert!(!writes.is_empty());
    assert!(!writes.contains(&true), "{writes:?}");
    *watch.open.lock().unwrap() = Weak::new();
}

#[test]
fn a_large_commit_is_there_after_a_kill_and_so_is_what_came_before_and_after_it() {
    let dir = TempDir::new().unwrap();
    let mut storage = open(&dir, Durability::Sync).unwrap();
    storage.commit(&mut nodes(&[("/first", Some("1"))])).unwrap();
    storage.commit(&mut large()).unwrap();
    storage.commit(&mut nodes(&[("/last", Some("1")), ("/large", None)])).unwrap();
    let left = copied(&dir);
    let expected = [pair("/first", "1"), pair("/last", "1"), pair("/small", "1")];
    assert_eq!(stored_nodes(&open(&left, Durability::Sync).unwrap()), expected);
}
