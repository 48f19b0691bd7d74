//! The free space on the disk, and the limits on growth while it is low.
//!
//! On a full disk the engine would end, and every client would lose it. So growth stops earlier, and operations that
//! need almost no space continue: reads, sessions, deletes, the release of locks.

use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_tree::{Growth, Stats};
use rustix::fs::statvfs;
use tokio::time::sleep;

use crate::storage::DATABASE;

/// The default reserve, in bytes: the space that the logs may use before their content is in the database (twice 64
/// MiB), and as much for the database.
const RESERVE: u64 = 256 * 1024 * 1024;
/// On a small file system, one part in this many instead.
const SMALL: u64 = 4;

/// The approximate size of a node in the database besides its path and its data, in bytes; and the factor by which the
/// database may exceed all of that: pages that are partly filled, and copies of the pages that a checkpoint changes.
const RECORD: usize = 100;
const SPARE: u64 = 3;

/// The interval between checks: while there is plenty of space, while there is not, and while little space shrinks
/// further.
const INTERVAL: Duration = Duration::from_secs(1);
const SHORT_INTERVAL: Duration = Duration::from_millis(100);
const SHRINKING_INTERVAL: Duration = Duration::from_millis(10);
/// This many times the reserve is plenty.
const PLENTY: u64 = 8;

/// The free space on the disk, readable by all threads.
#[derive(Debug, Default)]
pub(crate) struct DiskRoom {
    free: AtomicU64,
    reserve: AtomicU64,
    /// Whether there is too little even for locks.
    is_full: AtomicBool,
}

impl DiskRoom {
    /// The bytes that the engine's user can still write; 0 before the first check.
    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// The number of free bytes below which the data no longer grows.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve.load(Ordering::Relaxed)
    }

    /// Whether all growth is stopped, that of locks included.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

/// Monitors the file system of a data directory.
pub(crate) struct DiskGauge {
    directory: PathBuf,
    room: Arc<DiskRoom>,
    reserve: u64,
    growth: Growth,
}

impl DiskGauge {
    /// Checks for the first time; `None` if the system does not report the space, or no reserve is kept.
    pub(crate) fn of(directory: &Path, reserve: Option<u64>, room: Arc<DiskRoom>) -> Option<Self> {
        let (free, whole) = measure(directory)?;
        let reserve = reserve.unwrap_or(RESERVE.min(whole / SMALL));
        room.free.store(free, Ordering::Relaxed);
        room.reserve.store(reserve, Ordering::Relaxed);
        let directory = directory.to_owned();
        (reserve > 0).then_some(Self { directory, room, reserve, growth: Growth::All })
    }

    /// Passes on the allowed growth whenever it changes; `stats` returns the state of the tree.
    pub(crate) async fn watch(mut self, stats: impl Fn() -> Stats, tell: impl Fn(Growth)) {
        loop {
            let before = self.room.free();
            if let Some((free, _)) = measure(&self.directory) {
                self.room.free.store(free, Ordering::Relaxed);
                let Stats { nodes, data_bytes, .. } = stats();
                let own = spare(taken(&self.directory), (nodes * RECORD + data_bytes) as u64);

                let growth = next(self.growth, free, own, self.reserve);
                if growth != self.growth {
                    self.log(growth, free);
                    self.growth = growth;
                    self.room.is_full.store(growth == Growth::Nothing, Ordering::Relaxed);
                    tell(growth);
                }
            }

            sleep(self.interval(before)).await;
        }
    }

    /// The time until the next check; `before` bytes were free at the check before the last one.
    fn interval(&self, before: u64) -> Duration {
        let free = self.room.free();
        match free > self.reserve.saturating_mul(PLENTY) {
            true => INTERVAL,
            false if free < before => SHRINKING_INTERVAL,
            false => SHORT_INTERVAL,
        }
    }

    fn log(&self, growth: Growth, free: u64) {
        let (directory, reserve) = (self.directory.display(), self.reserve);
        match growth {
            Growth::All => {
                tracing::info!(free, reserve, "the disk of {directory} has enough free space again")
            }
            Growth::Locks => tracing::warn!(
                free,
                reserve,
                "the disk of {directory} is nearly full: only small ephemeral nodes and \
                 containers are created until there is more space"
            ),
            Growth::Nothing => tracing::error!(
                free,
                reserve,
                "the disk of {directory} is almost completely full: no nodes are created until there is \
                 more space; reads, sessions and deletes continue"
            ),
        }
    }
}

/// The growth allowed with this much space left on the disk and in the database's own file. Resuming needs slightly
/// more space than stopping, so that single bytes do not fill the log.
///
/// The free space within the database's file is an estimate: long access control lists take more than is counted here,
/// and a backup keeps all of it. And the logs cannot use it. So only a part of it counts towards the reserve, and some
/// space on the disk is always required.
fn next(now: Growth, free: u64, own: u64, reserve: u64) -> Growth {
    let margin = reserve / 8;
    let least = reserve / 4 + if now == Growth::Nothing { margin } else { 0 };
    if free < least {
        return Growth::Nothing;
    }

    let free = free.saturating_add(own.min(reserve / 4 * 3));
    let (all, locks) = match now {
        Growth::All => (reserve, reserve / 2),
        Growth::Locks => (reserve + margin, reserve / 2),
        Growth::Nothing => (reserve + margin, reserve / 2 + margin),
    };
    match free {
        free if free >= all => Growth::All,
        free if free >= locks => Growth::Locks,
        _ => Growth::Nothing,
    }
}

/// How much of the database's file will be reused before the file grows, in bytes: pages of deleted data. The file does
/// not shrink with the data.
fn spare(database: u64, data: u64) -> u64 {
    database.saturating_sub(SPARE * data)
}

/// The size of the database on the disk, in bytes.
fn taken(directory: &Path) -> u64 {
    metadata(directory.join(DATABASE)).map_or(0, |meta| meta.blocks() * 512)
}

/// The bytes free for this user, and the size of the file system.
fn measure(directory: &Path) -> Option<(u64, u64)> {
    let found = statvfs(directory).ok()?;
    Some((
        found.f_bavail.saturating_mul(found.f_frsize),
        found.f_blocks.saturating_mul(found.f_frsize),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_stops_in_two_steps_and_comes_back_a_little_later() {
        let mut growth = Growth::All;
        let frees = [100, 80, 79, 40, 39, 45, 49, 50, 85, 89, 90, 10, 90];
        let seen = frees.map(|free| {
            growth = next(growth, free, 0, 80);
            growth
        });
        use Growth::{All, Locks, Nothing};
        let expected = [
            All, All, Locks, Locks, Nothing, Nothing, Nothing, Locks, Locks, Locks, All, Nothing,
            All,
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn room_of_the_databases_own_does_not_stand_for_that_on_the_disk() {
        use Growth::{All, Locks, Nothing};
        let of = |now, free, own| next(now, free, own, 80);
        assert_eq!(
            of(Nothing, 40, 60),
            All,
            "the engine had filled the disk, and its data was deleted"
        );
        assert_eq!(of(All, 19, 1_000_000), Nothing, "logs need some space");
        assert_eq!(of(Nothing, 29, 1_000_000), Nothing);
        assert_eq!(of(Nothing, 30, 1_000_000), All);
        assert_eq!(of(All, 20, 1_000_000), All);
        assert_eq!(of(All, 20, 59), Locks);
    }

    #[test]
    fn what_is_deleted_makes_room_although_no_file_gets_shorter() {
        assert_eq!(spare(100, 20), 40);
        assert_eq!(spare(100, 50), 0, "the database uses all of its file");
    }

    #[test]
    fn the_reserve_fits_the_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let room = Arc::new(DiskRoom::default());
        let gauge = DiskGauge::of(dir.path(), None, room.clone()).unwrap();
        assert!(gauge.reserve > 0 && gauge.reserve <= RESERVE);
        assert!(room.free() > 0);
        assert!(DiskGauge::of(dir.path(), Some(0), room.clone()).is_none());
        assert!(DiskGauge::of(&dir.path().join("missing"), None, room).is_none());
    }
}
