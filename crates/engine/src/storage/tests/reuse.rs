//! Log files that are overwritten.

use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use super::disks::{Call, Disks};
use super::numbered::{last_whole_commit, numbered};
use super::*;

/// P14: at each turn of the log, zeros were written over all of the old one, it was renamed, and the directory was
/// synced, while commits waited for the disk.
///
/// Seen to fail with files that are cleared for their next use.
#[test]
fn a_log_file_that_is_long_enough_is_only_written_to() {
    const LONG: u64 = 200_000;
    let dir = TempDir::new().unwrap();
    let disks = Disks::default();
    let mut storage = open_on(&dir, Durability::Sync, disks.wrap());
    storage.set_log_length(LONG);
    let mut n = 0;
    let mut commit = |storage: &mut Storage, bytes: u64| {
        let mut written = 0;
        while written < bytes {
            n += 1;
            let mut batch = numbered(n);
            written += batch.encoded().len() as u64;
            storage.commit(&mut batch).unwrap();
            storage.journal_mut().wait();
        }
        (n, written)
    };
    // Both files become long, while commits go to the other one.
    commit(&mut storage, 6 * LONG);
    let logs: Vec<usize> =
        ["commits.a", "commits.b"].iter().map(|name| disks.of(&dir, name)).collect();
    let lengths = |disks: &Disks| logs.iter().map(|&log| disks.state().images[log].len()).collect();
    let before: Vec<usize> = lengths(&disks);
    disks.state().calls.clear();

    let (last, committed) = commit(&mut storage, 6 * LONG);
    let mut written = 0;
    for (_, call) in disks.state().calls.iter().filter(|(file, _)| logs.contains(file)) {
        match call {
            Call::Write(_, bytes) => written += bytes.len() as u64,
            Call::Length(_) => panic!("the length of a log file changes"),
            Call::Sync => {}
        }
    }
    assert_eq!(lengths(&disks), before);
    assert!(written < committed + committed / 10, "{written} bytes for {committed}");
    let images = disks.state().images.clone();
    let copy = disks.copy(&dir, &images);
    assert_eq!(last_whole_commit(&open(&copy, Durability::Sync).unwrap()), last);
}

/// Symptom: a checkpoint read each commit of its log with two system calls: a hundred thousand for 16 MiB of small
/// commits. Seen to fail that way.
#[test]
fn a_checkpoint_reads_its_log_in_large_pieces() {
    let dir = TempDir::new().unwrap();
    drop(open(&dir, Durability::Sync).unwrap());
    let logs: Vec<u64> = ["commits.a", "commits.b"]
        .map(|name| dir.path().join(name).metadata().unwrap().ino())
        .to_vec();
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    let wrap: Wrap = Arc::new(move |file| {
        let (counts, reads) = (logs.contains(&file.metadata()?.ino()), counted.clone());
        tapped::tapped(file, move |touch| {
            let is_read = counts && matches!(touch, tapped::Touch::Read);
            reads.fetch_add(u64::from(is_read), Ordering::Relaxed);
            Ok(())
        })
    });

    let mut storage = open_on(&dir, Durability::Os, wrap);
    let (mut last, mut bytes) = (0, 0);
    while bytes < 400_000 {
        last += 1;
        let mut batch = numbered(last);
        bytes += batch.encoded().len();
        storage.commit(&mut batch).unwrap();
    }
    reads.store(0, Ordering::Relaxed);
    storage.close().unwrap();
    let reads = reads.load(Ordering::Relaxed);
    assert!((1..=20).contains(&reads), "{reads} reads of {bytes} bytes in {last} commits");
    assert_eq!(last_whole_commit(&open(&dir, Durability::Sync).unwrap()), last);
}

/// A file grows while commits go to the other one, in pieces that are synced one by one; a commit never waits for more
/// than its own piece.
#[test]
fn the_next_log_grows_in_small_synced_pieces_before_it_is_needed() {
    const LONG: u64 = 4 * disk::PIECE;
    let dir = TempDir::new().unwrap();
    let disks = Disks::default();
    let mut storage = open_on(&dir, Durability::Sync, disks.wrap());
    storage.set_log_length(LONG);
    let next = |storage: &Storage| storage.journal().unwrap().next_file();
    let next = disks.of(&dir, next(&storage));
    let mut n = 0;
    while disks.state().images[next].is_empty() {
        n += 1;
        storage.commit(&mut numbered(n)).unwrap();
        std::thread::yield_now();
    }
    let start = std::time::Instant::now();
    while (disks.state().images[next].len() as u64) < LONG {
        assert!(start.elapsed().as_secs() < 60, "it does not grow");
        std::thread::yield_now();
    }
    storage.journal_mut().join().unwrap();
    let (mut unsynced, mut syncs) = (0, 0);
    for (_, call) in disks.state().calls.iter().filter(|(file, _)| *file == next) {
        match call {
            Call::Write(_, bytes) => unsynced += bytes.len() as u64,
            Call::Length(_) => panic!("a file that grows without writes has no blocks"),
            Call::Sync => (unsynced, syncs) = (0, syncs + 1),
        }
        assert!(unsynced <= disk::PIECE, "{unsynced} bytes in one piece");
    }
    assert_eq!((unsynced, syncs), (0, LONG / disk::PIECE));
}

/// A disk with space for commits, but not for files that grow in advance, must not stop the engine.
///
/// Seen to fail with a growth that must succeed.
#[test]
fn a_disk_without_room_for_growth_takes_commits() {
    let dir = TempDir::new().unwrap();
    drop(open(&dir, Durability::Sync).unwrap());
    let refused = Arc::new(AtomicBool::new(false));
    let is_refused = refused.clone();
    let wrap: Wrap = Arc::new(move |file| {
        let is_refused = is_refused.clone();
        tapped::tapped(file, move |touch| {
            // Only growth writes to the files on a thread of its own here.
            let is_growth = std::thread::current().name() == Some("lockkeeper-growth");
            if is_growth && matches!(touch, tapped::Touch::Write(_)) {
                is_refused.store(true, Ordering::Relaxed);
                return Err(rustix::io::Errno::NOSPC.into());
            }
            Ok(())
        })
    });
    let mut storage = open_on(&dir, Durability::Sync, wrap);
    let mut last = 0;
    while !refused.load(Ordering::Relaxed) || last < 50 {
        last += 1;
        storage.commit(&mut numbered(last)).unwrap();
        storage.journal_mut().wait();
        assert!(last < 1_000, "nothing grows");
    }
    drop(storage);
    assert_eq!(last_whole_commit(&open(&dir, Durability::Sync).unwrap()), last);
}

/// Makes this many commits of a node with this many bytes each.
fn commit_large(storage: &mut Storage, commits: u64, bytes: usize) {
    for n in 1..=commits {
        let mut batch = numbered(n);
        batch.put(Table::Nodes, format!("/large/{n}"), vec![b'x'; bytes]);
        storage.commit(&mut batch).unwrap();
    }
}

/// A log that waits for the previous checkpoint grows to four times its usual length, and no more: the reserved disk
/// space depends on that. Symptom: it grew further by one commit, which may have 32 MiB. Seen to fail that way.
#[test]
fn e44_a_log_that_waits_for_a_checkpoint_has_a_bound() {
    /// A fifth commit makes a log as long as possible, and a sixth one too long.
    const LONG: u64 = 256 * 1024;
    const BYTES: usize = 200_000;
    let dir = TempDir::new().unwrap();
    drop(open(&dir, Durability::Sync).unwrap());
    let disk: Arc<OnceLock<Arc<disk::WritePace>>> = Arc::default();
    let pace = disk.clone();
    let wrap: Wrap = Arc::new(move |file| {
        let pace = pace.clone();
        tapped::tapped(file, move |_| {
            // A checkpoint proceeds only when a thread waits for it.
            let is_checkpoint = std::thread::current().name() == Some("lockkeeper-checkpoint");
            while is_checkpoint && !pace.wait().is_hurried() {
                std::thread::yield_now();
            }
            Ok(())
        })
    });

    let mut storage = open_on(&dir, Durability::Os, wrap);
    disk.set(storage.disk.as_ref().unwrap().open.pace.clone()).unwrap();
    storage.set_log_length(LONG);
    let mut longest = 0;
    for n in 1..=30 {
        let mut batch = numbered(n);
        batch.put(Table::Nodes, "/large", vec![b'x'; BYTES]);
        storage.commit(&mut batch).unwrap();
        let length = |name| dir.path().join(name).metadata().unwrap().len();
        longest = longest.max(length("commits.a")).max(length("commits.b"));
    }
    assert!(longest > 3 * LONG, "no checkpoint was waited for: {longest} bytes");
    assert!(longest <= 4 * LONG, "{longest} bytes");
}

/// A copy is stored: logs that are ready for the next commits would be most of a small one.
#[test]
fn the_logs_of_a_copy_take_no_room() {
    let (dir, place) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut storage = open(&dir, Durability::Sync).unwrap();
    commit_large(&mut storage, 100, 20_000);
    let target = place.path().join("copy");
    storage.snapshots().unwrap().copy_to(&target).unwrap().unwrap();
    for name in ["commits.a", "commits.b"] {
        assert_eq!(target.join(name).metadata().unwrap().len(), 0, "{name}");
    }
    assert!(Storage::inspect(&target).unwrap().is_some());
    // Symptom: an engine on a backup issued tokens again that its original had issued since.
    let served = Storage::open(Some(&target), Durability::Sync);
    assert!(matches!(served, Err(StorageError::Backup { .. })));
}

/// Symptom: a running copy kept the directory locked after the end of its engine. Seen to fail that way.
#[test]
fn e43_a_copy_gives_the_directory_up_with_its_storage() {
    let (dir, place) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut storage = open(&dir, Durability::Os).unwrap();
    commit_large(&mut storage, 60, 1_000_000);
    let (snapshots, target) = (storage.snapshots().unwrap(), place.path().join("copy"));
    let copying = {
        let target = target.clone();
        std::thread::spawn(move || snapshots.copy_to(&target).map(Result::unwrap))
    };
    while place.path().read_dir().unwrap().next().is_none() {
        std::thread::yield_now();
    }
    drop(storage);
    assert!(open(&dir, Durability::Os).is_ok(), "the copy still holds it");
    let is_whole = copying.join().unwrap().is_some();
    assert_eq!(place.path().read_dir().unwrap().count(), usize::from(is_whole));
}

impl Disks {
    /// The disk of a file of this name.
    fn of(&self, dir: &TempDir, name: &str) -> usize {
        let inode = dir.path().join(name).metadata().unwrap().ino();
        self.number(inode).unwrap()
    }
}
