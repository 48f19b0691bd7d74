//! The power goes while the disk still holds writes that were not synced (lessons S2, S3).
//!
//! A disk may have kept any of them, in any order and sector by sector. So the simulated one
//! keeps a random choice, and the engine has to find its way from there.

use std::sync::{Mutex, MutexGuard};

use super::numbered::{last_whole_commit, numbered};
use super::*;

/// What a disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// How often each test cuts the power.
const CUTS: u32 = 40;

/// Random numbers, the same in every run.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[derive(Debug)]
enum Change {
    Length(usize),
    Sector(usize, Vec<u8>),
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Change::Length(length) => image.resize(*length, 0),
            Change::Sector(at, data) => {
                image.resize(image.len().max(at + data.len()), 0);
                image[*at..at + data.len()].copy_from_slice(data);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Contents {
    /// What a reader sees.
    live: Vec<u8>,
    /// What was there at the last sync.
    durable: Vec<u8>,
    /// What was written since.
    unsynced: Vec<Change>,
    /// Calls until the power goes, once it is counting.
    left: Option<u64>,
}

impl Contents {
    fn tick(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => Err(io::Error::other("the power is out")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.unsynced.push(change);
    }

    /// What is found when the power is back: of the unsynced changes, a share of 0 to 8 eighths.
    fn after_power_cut(&self, random: &mut Random) -> Vec<u8> {
        let mut image = self.durable.clone();
        let share = random.below(9);
        for change in &self.unsynced {
            if random.below(8) < share {
                change.apply(&mut image);
            }
        }
        image
    }
}

#[derive(Debug, Clone, Default)]
struct VolatileDisk(Arc<Mutex<Contents>>);

impl VolatileDisk {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }
}

impl StorageBackend for VolatileDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.contents().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = offset as usize;
        out.copy_from_slice(&self.contents().live[at..at + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut contents = self.contents();
        contents.tick()?;
        contents.change(Change::Length(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut contents = self.contents();
        contents.tick()?;
        contents.unsynced.clear();
        contents.durable = contents.live.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut contents = self.contents();
        contents.tick()?;
        let mut at = offset as usize;
        let mut rest = data;
        while !rest.is_empty() {
            let (sector, after) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
            contents.change(Change::Sector(at, sector.to_vec()));
            at += sector.len();
            rest = after;
        }
        Ok(())
    }
}

/// Commits on a volatile disk until its power goes; leaves in `dir` what is found afterwards.
/// Returns the number of the last commit that was acknowledged.
fn run_until_power_cut(dir: &TempDir, durability: Durability, random: &mut Random) -> u64 {
    let disk = VolatileDisk::default();
    let opened = Storage::open_with(Some(dir.path()), durability, |_| disk.clone());
    let mut storage = opened.unwrap();
    disk.contents().left = Some(random.below(600));
    let failed = |&n: &u64| storage.commit(&numbered(n)).is_err();
    let unacknowledged = (1..).find(failed).unwrap();
    drop(storage);
    let image = disk.contents().after_power_cut(random);
    std::fs::write(dir.path().join("lockkeeper.redb"), image).unwrap();
    unacknowledged - 1
}

#[test]
fn synced_commits_survive_a_power_cut() {
    let mut random = Random(88_172_645_463_325_252);
    for _ in 0..CUTS {
        let dir = TempDir::new().unwrap();
        let acknowledged = run_until_power_cut(&dir, Durability::Sync, &mut random);
        let found = last_whole_commit(&open(&dir, Durability::Sync).unwrap());
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "acknowledged {acknowledged}, found {found}"
        );
    }
}

/// Unsynced commits may be lost or make the file unreadable, but half of one is never found.
#[test]
fn unsynced_commits_are_whole_or_refused_after_a_power_cut() {
    let mut random = Random(2_463_534_242);
    let (mut whole, mut refused) = (0, 0);
    for _ in 0..CUTS {
        let dir = TempDir::new().unwrap();
        let acknowledged = run_until_power_cut(&dir, Durability::Os, &mut random);
        match open(&dir, Durability::Os) {
            Ok(storage) => {
                assert!(last_whole_commit(&storage) <= acknowledged + 1);
                whole += 1;
            }
            Err(StorageError::Damaged { .. }) => refused += 1,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
}
