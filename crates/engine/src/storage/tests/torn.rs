//! The last commit, cut short at every byte that it writes, or failing at every call that it makes.
//!
//! The tests of power cuts choose at random; these are complete. Data written before the cut has reached the disk, and
//! the rest has not.

use super::disks::{Call, Disks};
use super::numbered::{last_whole_commit, numbered};
use super::*;

/// The number of commits before the one that is cut short.
const BEFORE: u64 = 3;

/// A way to write commit `BEFORE + 1`.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// To the log.
    Log,
    /// To the next log, during a checkpoint.
    NextLog,
    /// To the log, and from there into the database.
    Database,
}

const WAYS: [Way; 3] = [Way::Log, Way::NextLog, Way::Database];

/// A storage with all commits but the last one.
fn before(dir: &TempDir, disks: &Disks) -> Storage {
    let mut storage = open_on(dir, Durability::Sync, disks.wrap());
    for n in 1..=BEFORE {
        storage.commit(&mut numbered(n)).unwrap();
    }
    disks.state().calls.clear();
    storage
}

fn write_last(storage: &mut Storage, way: Way) -> Result<(), StorageError> {
    if matches!(way, Way::NextLog) {
        storage.set_log_length(1);
    }
    storage.commit(&mut numbered(BEFORE + 1))?;
    let disk = storage.disk.as_mut().unwrap();
    match way {
        Way::Log => Ok(()),
        Way::NextLog => disk.journal.as_mut().unwrap().join(),
        Way::Database => disk.close(),
    }
}

fn opens_whole(disks: &Disks, dir: &TempDir, images: &[Vec<u8>]) -> u64 {
    let copy = disks.copy(dir, images);
    last_whole_commit(&open(&copy, Durability::Sync).unwrap())
}

#[test]
fn s2_the_last_commit_cut_short_at_every_byte_is_there_as_a_whole_or_not_at_all() {
    for way in WAYS {
        let dir = TempDir::new().unwrap();
        let disks = Disks::default();
        let mut storage = before(&dir, &disks);
        let mut images = disks.state().images.clone();
        write_last(&mut storage, way).unwrap();
        let calls = std::mem::take(&mut disks.state().calls);
        // Its own end comes too late for the power cut.
        drop(storage);
        let found = cut_everywhere(&disks, &dir, &mut images, &calls);
        println!("{way:?}: {found:?} without the commit and with it");
        assert!(found[0] > 20, "{found:?}");
        assert_eq!(opens_whole(&disks, &dir, &images), BEFORE + 1);
    }
}

/// How often the commit was missing, and how often it was there.
fn cut_everywhere(
    disks: &Disks,
    dir: &TempDir,
    images: &mut [Vec<u8>],
    calls: &[(usize, Call)],
) -> [u32; 2] {
    let (mut cuts, mut found) = (0, [0; 2]);
    let step = if std::env::var_os("LOCKKEEPER_LONG").is_some() { 11 } else { 197 };
    for (number, call) in calls {
        if let Call::Write(at, data) = call {
            let length = images[*number].len().max(at + data.len());
            images[*number].resize(length, 0);
            for (index, byte) in data.iter().enumerate() {
                // A byte that does not change produces an image that was already tried.
                if images[*number][at + index] == *byte {
                    continue;
                }
                images[*number][at + index] = *byte;
                // Most bytes are in the middle of a text: there one in 197 is enough, in the long form one in 11. At
                // the beginning and the end of each write all are tried.
                cuts += 1;
                if index < 24 || index + 24 > data.len() || cuts % step == 0 {
                    let last = opens_whole(disks, dir, images);
                    assert!((BEFORE..=BEFORE + 1).contains(&last), "{last} after {cuts} bytes");
                    found[(last - BEFORE) as usize] += 1;
                }
            }
        }
        call.apply(&mut images[*number]);
    }
    found
}

#[test]
fn an_error_at_any_call_of_the_last_commit_loses_nothing() {
    for way in WAYS {
        let mut fail_at = 0;
        loop {
            let dir = TempDir::new().unwrap();
            let disks = Disks::default();
            let mut storage = before(&dir, &disks);
            disks.state().left = Some(fail_at);
            let failed = write_last(&mut storage, way).is_err();
            if failed {
                storage.disk.as_mut().unwrap().failed = true;
                let after = storage.commit(&mut numbered(BEFORE + 2)).unwrap_err();
                assert!(matches!(after, StorageError::Stopped { .. }), "{after:?}");
            }
            drop(storage);
            let images = disks.state().images.clone();
            let last = opens_whole(&disks, &dir, &images);
            assert!((BEFORE..=BEFORE + 1).contains(&last), "{last} after call {fail_at}");
            if !failed {
                break;
            }
            fail_at += 1;
        }
        assert!(fail_at > 1, "{way:?}");
    }
}

/// Symptom: each failed start left two more logs behind. Found by reading.
#[test]
fn starts_that_fail_leave_no_more_and_more_files() {
    let dir = TempDir::new().unwrap();
    let disks = Disks::default();
    let mut storage = before(&dir, &disks);
    write_last(&mut storage, Way::Log).unwrap();
    disks.state().left = Some(0);
    drop(storage);
    // The simulation did not write this file, and an empty one would be damage.
    std::fs::write(dir.path().join("lockkeeper.redb"), "simulated").unwrap();
    for calls in 0.. {
        disks.state().left = Some(calls);
        let opened = Storage::open_with(Some(dir.path()), Durability::Sync, disks.wrap());
        let names = dir.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let logs = names.filter(|name| name.to_str().unwrap().starts_with("commits."));
        assert!(logs.count() <= 4, "after {calls} calls");
        if let Ok(storage) = opened {
            assert!(calls > 3);
            assert_eq!(last_whole_commit(&storage), BEFORE + 1);
            break;
        }
    }
}
