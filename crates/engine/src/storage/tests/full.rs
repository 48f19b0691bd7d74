//! Disks on which the logs have no more room.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::Mutex;

use redb::StorageBackend;

use super::numbered::{last_whole_commit, numbered};
use super::*;

const LONG: u64 = 2 * 1024 * 1024;

/// The lengths of the logs, and how much they may have together.
#[derive(Debug)]
struct Room {
    lengths: Mutex<HashMap<String, u64>>,
    capacity: u64,
}

/// A file that shares the room with others if it is a log.
#[derive(Debug)]
struct Limited {
    file: Box<dyn StorageBackend>,
    log: Option<String>,
    room: Arc<Room>,
}

impl StorageBackend for Limited {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(log) = &self.log {
            let mut lengths = self.room.lengths.lock().unwrap();
            let before = lengths.get(log).copied().unwrap_or(0);
            let after = before.max(offset + data.len() as u64);
            let taken: u64 = lengths.values().sum();
            if taken - before + after > self.room.capacity {
                return Err(rustix::io::Errno::NOSPC.into());
            }
            lengths.insert(log.clone(), after);
        }
        self.file.write(offset, data)
    }
}

fn limited(capacity: u64) -> Wrap {
    let room = Arc::new(Room { lengths: Mutex::default(), capacity });
    Arc::new(move |file: File| {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let log = name.filter(|name| name.starts_with("commits."));
        if let Some(log) = &log {
            let length = file.metadata()?.len();
            room.lengths.lock().unwrap().insert(log.clone(), length);
        }
        Ok(Box::new(Limited { file: disk::plain()(file)?, log, room: room.clone() }) as Box<_>)
    })
}

/// A full log, or one that is shorter than the other, asked a full disk for more although the other file
/// had room once its log was in the database: the engine ended, and need not have.
///
/// Seen to fail without the turn in `Journal::take_turns` for want of room.
#[test]
fn a_full_disk_is_no_end_while_the_other_log_has_room() {
    // As long as both get and no more; and less than that, shared unevenly.
    for capacity in [2 * LONG + 1_000, 64 * 1024 + 256 * 1024 + 1_000] {
        let dir = TempDir::new().unwrap();
        drop(open(&dir, Durability::Sync).unwrap());
        let opened = Storage::open_with(Some(dir.path()), Durability::Sync, limited(capacity));
        let mut storage = opened.unwrap();
        storage.set_log_length(LONG);

        for n in 1..=2_000 {
            storage.commit(&mut numbered(n)).unwrap();
            if n < 400 {
                storage.disk.as_mut().unwrap().journal.as_mut().unwrap().wait();
            }
        }
        drop(storage);
        assert_eq!(last_whole_commit(&open(&dir, Durability::Sync).unwrap()), 2_000, "{capacity}");
    }
}
