//! The room on the disk, and what may grow while there is little.
//!
//! After a full disk the engine ends, and every client loses it. So it stops growing before, and what
//! needs next to nothing goes on: reads, sessions, deletes, the release of locks.

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

/// The reserve where none is set, in bytes: what the logs may take before they are in the database
/// (twice 64 MiB), and as much for the database.
const RESERVE: u64 = 256 * 1024 * 1024;
/// Of a small file system, one part in so many instead.
const SMALL: u64 = 4;

/// What a node takes in the database beside its path and its data, about, in bytes, and how many times
/// as much as all of that the database may need: pages that are partly filled, and copies of those that
/// a checkpoint changes.
const RECORD: usize = 100;
const SPARE: u64 = 3;

/// How often the room is looked at: while there is plenty of it, while there is not, and while it gets
/// less besides.
const INTERVAL: Duration = Duration::from_secs(1);
const SHORT_INTERVAL: Duration = Duration::from_millis(100);
const SHRINKING_INTERVAL: Duration = Duration::from_millis(10);
/// How many times the reserve is plenty.
const PLENTY: u64 = 8;

/// How much room there is on the disk, for all threads to read.
#[derive(Debug, Default)]
pub(crate) struct DiskRoom {
    free: AtomicU64,
    reserve: AtomicU64,
    /// Whether there is too little for locks, too.
    is_full: AtomicBool,
}

impl DiskRoom {
    /// Bytes that the engine's user can still write; 0 if nobody has looked.
    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Below how many bytes the data does not grow any more.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve.load(Ordering::Relaxed)
    }

    /// Whether nothing may grow, locks included.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

/// What looks at the file system of a data directory.
pub(crate) struct DiskGauge {
    directory: PathBuf,
    room: Arc<DiskRoom>,
    reserve: u64,
    growth: Growth,
}

impl DiskGauge {
    /// Looks for the first time; `None` if the system does not tell, or nothing is to be kept free.
    pub(crate) fn of(directory: &Path, reserve: Option<u64>, room: Arc<DiskRoom>) -> Option<Self> {
        let (free, whole) = measure(directory)?;
        let reserve = reserve.unwrap_or(RESERVE.min(whole / SMALL));
        room.free.store(free, Ordering::Relaxed);
        room.reserve.store(reserve, Ordering::Relaxed);
        let directory = directory.to_owned();
        (reserve > 0).then_some(Self { directory, room, reserve, growth: Growth::All })
    }

    /// Tells whenever something else may grow; `stats` says what there is.
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

    /// How long until the next look, when `before` bytes were free at the look before this one.
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
            Growth::All => tracing::info!(free, reserve, "the disk of {directory} has room again"),
            Growth::Locks => tracing::warn!(
                free,
                reserve,
                "the disk of {directory} is nearly full: nothing but small ephemeral nodes \
                 and containers is created until there is more room"
            ),
            Growth::Nothing => tracing::error!(
                free,
                reserve,
                "the disk of {directory} is all but full: nothing is created until there is more \
                 room; reads, sessions and deletes go on"
            ),
        }
    }
}

/// What may grow with so much room left on the disk, and in the database's own file. A little more is
/// needed to go back than to stop, so that the log does not tell of each byte.
///
/// What the database is thought to have for itself is a guess: long access control lists take more of it
/// than is known here, and a backup keeps all of it. And none of it is room for the logs. So it counts as
/// a part of the reserve only, and without some real room nothing grows.
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

/// How much of the database's file will be used again before it grows, in bytes: pages that had what is
/// deleted. The file gets no shorter when the data does.
fn spare(database: u64, data: u64) -> u64 {
    database.saturating_sub(SPARE * data)
}

/// What the database takes on the disk, in bytes.
fn taken(directory: &Path) -> u64 {
    metadata(directory.join(DATABASE)).map_or(0, |meta| meta.blocks() * 512)
}

/// Bytes free for this user, and in all.
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
        assert_eq!(of(Nothing, 40, 60), All, "the engine has filled the disk, and was emptied");
        assert_eq!(of(All, 19, 1_000_000), Nothing, "logs need some");
        assert_eq!(of(Nothing, 29, 1_000_000), Nothing);
        assert_eq!(of(Nothing, 30, 1_000_000), All);
        assert_eq!(of(All, 20, 1_000_000), All);
        assert_eq!(of(All, 20, 59), Locks);
    }

    #[test]
    fn what_is_deleted_makes_room_although_no_file_gets_shorter() {
        assert_eq!(spare(100, 20), 40);
        assert_eq!(spare(100, 50), 0, "the database needs what it has");
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
