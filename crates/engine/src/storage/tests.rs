//! The promises of the storage, under injected faults.

mod crash;
mod damage;
mod disks;
mod failing;
mod full;
mod large;
mod numbered;
mod power_cut;
mod reuse;
mod tapped;
mod torn;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper_tree::Table;
use redb::StorageBackend;
use tempfile::TempDir;

use super::batch::{TABLES, name};
use super::database::OpenDisk;
use super::disk::Wrap;
use super::journal::Journal;
use super::*;

const ON_DISK: [Durability; 2] = [Durability::Sync, Durability::Os];

fn open(dir: &TempDir, durability: Durability) -> Result<Storage, StorageError> {
    Storage::open(Some(dir.path()), durability)
}

/// The same on disks of another kind.
fn open_on(dir: &TempDir, durability: Durability, disks: Wrap) -> Storage {
    Storage::open_with(Some(dir.path()), durability, disks).unwrap()
}

impl Storage {
    fn journal_mut(&mut self) -> &mut Journal {
        self.disk.as_mut().unwrap().journal.as_mut().unwrap()
    }

    /// Sets the length, in bytes, at which a log is replaced by the next one.
    fn set_log_length(&mut self, length: u64) {
        self.journal_mut().set_long(length);
    }
}

/// The error of opening a directory that must be refused.
fn refusal(dir: &Path) -> StorageError {
    match Storage::open(Some(dir), Durability::Sync) {
        Ok(_) => panic!("{} was opened", dir.display()),
        Err(e) => e,
    }
}

/// A copy of the directory as it is now: what would remain after a kill at this moment.
fn copied(dir: &TempDir) -> TempDir {
    let copy = TempDir::new().unwrap();
    for entry in dir.path().read_dir().unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn nodes(changes: &[(&str, Option<&str>)]) -> Batch {
    let mut batch = Batch::default();
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(Table::Nodes, key, value),
            None => batch.delete(Table::Nodes, key),
        }
    }
    batch
}

/// All stored records as text.
fn contents(storage: &Storage) -> Vec<(Table, String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut all = Vec::new();
    let loaded: Result<(), StorageError> = storage.load(|table, key, value| {
        all.push((table, text(key), text(value)));
        Ok(())
    });
    loaded.unwrap();
    all
}

/// Only the nodes.
fn stored_nodes(storage: &Storage) -> Vec<(String, String)> {
    let of_nodes = |(table, key, value)| (table == Table::Nodes).then_some((key, value));
    contents(storage).into_iter().filter_map(of_nodes).collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn what_was_committed_is_there_after_a_restart() {
    for durability in ON_DISK {
        let dir = TempDir::new().unwrap();
        let mut storage = open(&dir, durability).unwrap();
        storage.commit(&mut nodes(&[("/a", Some("1")), ("/b", Some("2"))])).unwrap();
        storage.commit(&mut nodes(&[("/a", None), ("/b", Some("3")), ("/never", None)])).unwrap();
        drop(storage);

        let storage = open(&dir, durability).unwrap();
        assert_eq!(stored_nodes(&storage), [pair("/b", "3")], "{durability}");
    }
}

#[test]
fn tables_are_apart_and_loaded_in_order() {
    let dir = TempDir::new().unwrap();
    let mut batch = Batch::default();
    for table in [Table::Nodes, Table::Meta, Table::Sessions] {
        batch.put(table, "k2", "v");
        batch.put(table, "k1", name(table));
    }
    open(&dir, Durability::Sync).unwrap().commit(&mut batch).unwrap();

    let expected: Vec<_> = TABLES
        .into_iter()
        .flat_map(|table| [(table, "k1", name(table)), (table, "k2", "v")])
        .map(|(table, key, value)| (table, key.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(contents(&open(&dir, Durability::Sync).unwrap()), expected);
}

#[test]
fn the_last_change_of_a_key_wins() {
    let mut batch = nodes(&[("/a", Some("1")), ("/a", None), ("/b", None)]);
    batch.put(Table::Nodes, "/b", "2");
    let dir = TempDir::new().unwrap();
    let mut storage = open(&dir, Durability::Os).unwrap();
    storage.commit(&mut nodes(&[("/a", Some("0"))])).unwrap();
    storage.commit(&mut batch).unwrap();
    drop(storage);
    assert_eq!(stored_nodes(&open(&dir, Durability::Os).unwrap()), [pair("/b", "2")]);

    assert!(!batch.is_empty());
    batch.clear();
    assert!(batch.is_empty());
}

/// A log is written into the database in portions: a later portion may delete a record that an earlier one puts.
#[test]
fn a_long_log_ends_in_its_last_state() {
    let dir = TempDir::new().unwrap();
    let mut storage = open(&dir, Durability::Os).unwrap();
    for n in 1..=60 {
        storage.commit(&mut numbered::numbered(n)).unwrap();
    }
    drop(storage);
    assert_eq!(numbered::last_whole_commit(&open(&dir, Durability::Os).unwrap()), 60);
}

#[test]
fn memory_needs_no_directory_and_keeps_nothing() {
    let dir = TempDir::new().unwrap();
    let mut storage = open(&dir, Durability::Memory).unwrap();
    storage.commit(&mut nodes(&[("/a", Some("1"))])).unwrap();
    assert!(contents(&storage).is_empty());
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    assert!(Storage::open(None, Durability::Memory).is_ok());
}

#[test]
fn commits_can_be_made_on_a_thread_of_their_own() {
    let mut storage = Storage::open(None, Durability::Memory).unwrap();
    let commit = move || storage.commit(&mut nodes(&[("/a", Some("1"))]));
    std::thread::spawn(commit).join().unwrap().unwrap();
}

#[test]
fn durability_is_spelled_as_it_is_shown() {
    for durability in [Durability::Sync, Durability::Os, Durability::Memory] {
        assert_eq!(durability.to_string().parse(), Ok(durability));
    }
    let error = "fsync".parse::<Durability>().unwrap_err();
    assert_eq!(error.to_string(), "durability `fsync` is unknown: choose sync, os or memory");
}

#[test]
fn a_missing_directory_is_made_for_the_user_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a/b");
    let storage = Storage::open(Some(&path), Durability::Sync).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for entry in path.read_dir().unwrap() {
        let entry = entry.unwrap().path();
        assert_eq!(mode(&entry), 0o600, "{}", entry.display());
    }
    drop(storage);
}

#[test]
fn no_directory_is_an_error_that_names_the_choice() {
    let Err(error) = Storage::open(None, Durability::Os) else {
        panic!("opened nothing");
    };
    assert_eq!(
        error.to_string(),
        "durability `os` needs a data directory: give one, or choose durability `memory`"
    );
}

#[test]
fn a_file_is_not_a_directory() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = refusal(&path);
        assert!(matches!(error, StorageError::NotADirectory { .. }), "{error:?}");
    }
}

#[test]
fn a_read_only_directory_is_refused() {
    if rustix::process::geteuid().is_root() {
        return; // For root every directory is writable.
    }
    let dir = TempDir::new().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o500)).unwrap();
    let error = refusal(dir.path());
    assert!(matches!(error, StorageError::NotWritable { .. }), "{error:?}");
}

#[test]
fn system_errors_name_a_remedy() {
    use rustix::io::Errno;
    let text = |errno: Errno| {
        let source = io::Error::from_raw_os_error(errno.raw_os_error());
        StorageError::io(Path::new("/data"), source).to_string()
    };
    for errno in [Errno::ACCESS, Errno::PERM, Errno::ROFS] {
        assert!(text(errno).starts_with("/data is not writable ("));
    }
    for errno in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG] {
        let cause = io::Error::from_raw_os_error(errno.raw_os_error());
        let expected = format!("no space is left for /data ({cause}): free");
        assert!(text(errno).starts_with(&expected));
    }
    let other = text(Errno::IO);
    assert!(other.starts_with("/data cannot be read or written (Input/output error"));
    assert!(other.ends_with("check the disk and the system log, then restart the engine"));
}

#[test]
fn the_error_of_a_second_engine_names_the_owner() {
    let dir = TempDir::new().unwrap();
    let storage = open(&dir, Durability::Sync).unwrap();
    let expected = format!(
        "{} is in use by another engine (process {}): stop that engine, or choose another directory",
        dir.path().display(),
        std::process::id()
    );
    assert_eq!(refusal(dir.path()).to_string(), expected);
    drop(storage);
    open(&dir, Durability::Sync).unwrap();
}

/// Symptom: an engine whose directory was moved away and replaced by a successor's took the successor's log for its own
/// when it ended, and renamed it: files were identified by their paths.
#[test]
fn an_engine_whose_directory_was_replaced_leaves_the_logs_of_its_successor_alone() {
    let dir = TempDir::new().unwrap();
    let (data, moved) = (dir.path().join("data"), dir.path().join("moved"));
    let mut old = Storage::open(Some(&data), Durability::Sync).unwrap();
    old.commit(&mut nodes(&[("/old", Some("1"))])).unwrap();
    std::fs::rename(&data, &moved).unwrap();
    let mut new = Storage::open(Some(&data), Durability::Sync).unwrap();
    new.commit(&mut nodes(&[("/new", Some("1"))])).unwrap();
    let names = || {
        let entries = data.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();

    old.close().unwrap();
    assert_eq!(names(), before);
    new.close().unwrap();
    for (path, key) in [(data, "/new"), (moved, "/old")] {
        let storage = Storage::open(Some(&path), Durability::Sync).unwrap();
        assert_eq!(stored_nodes(&storage), [pair(key, "1")]);
    }
}
