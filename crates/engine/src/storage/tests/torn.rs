//! The last commit, cut short at every byte that it writes, or failed at every call that it makes.
//!
//! The power cuts beside this file choose at random; here nothing is left out. What is written
//! before the cut has reached the disk, the rest has not.

use std::sync::Mutex;

use super::numbered::{last_whole_commit, numbered};
use super::*;

/// How many commits are in place before the one that is cut short.
const BEFORE: u64 = 3;

#[derive(Debug, Clone)]
enum Call {
    Length(u64),
    Write(usize, Vec<u8>),
    Sync,
}

#[derive(Debug, Default)]
struct State {
    image: Vec<u8>,
    /// What was called since `record` was set.
    calls: Vec<Call>,
    record: bool,
    /// Which of the calls to come fails.
    fail_at: Option<usize>,
}

/// A disk in memory that remembers what is done to it.
#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<State>>);

impl Recorder {
    fn holding(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State { image, ..State::default() })))
    }

    fn call(&self, call: Call) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        match &mut state.fail_at {
            Some(0) => return Err(io::Error::other("this call was told to fail")),
            Some(left) => *left -= 1,
            None => {}
        }
        apply(&call, &mut state.image);
        if state.record {
            state.calls.push(call);
        }
        Ok(())
    }
}

fn apply(call: &Call, image: &mut Vec<u8>) {
    match call {
        Call::Length(len) => image.resize(*len as usize, 0),
        Call::Write(at, data) => {
            image.resize(image.len().max(at + data.len()), 0);
            image[*at..at + data.len()].copy_from_slice(data);
        }
        Call::Sync => {}
    }
}

impl StorageBackend for Recorder {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().image.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = offset as usize;
        out.copy_from_slice(&self.0.lock().unwrap().image[at..at + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(Call::Length(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.call(Call::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.call(Call::Write(offset as usize, data.to_vec()))
    }
}

fn open_on(dir: &TempDir, disk: &Recorder) -> Storage {
    Storage::open_with(Some(dir.path()), Durability::Sync, |_| disk.clone()).unwrap()
}

/// A disk with all commits but the last one, the image of it, and what the last commit does.
fn last_commit(dir: &TempDir) -> (Vec<u8>, Vec<Call>) {
    let disk = Recorder::default();
    let mut storage = open_on(dir, &disk);
    for n in 1..=BEFORE {
        storage.commit(&numbered(n)).unwrap();
    }
    let before = {
        let mut state = disk.0.lock().unwrap();
        state.record = true;
        state.image.clone()
    };
    storage.commit(&numbered(BEFORE + 1)).unwrap();
    let calls = std::mem::take(&mut disk.0.lock().unwrap().calls);
    // What dropping does to the disk comes too late for the power cut.
    drop(storage);
    (before, calls)
}

/// The directory is locked by one engine at a time, so each opening has the file in memory.
fn opens_whole(dir: &TempDir, image: Vec<u8>) -> u64 {
    // The library insists on a file that is not empty, although it is given another.
    std::fs::write(dir.path().join("lockkeeper.redb"), b"in memory").unwrap();
    last_whole_commit(&open_on(dir, &Recorder::holding(image)))
}

#[test]
fn the_last_commit_cut_short_at_every_byte_is_there_as_a_whole_or_not_at_all() {
    let dir = TempDir::new().unwrap();
    let (mut image, calls) = last_commit(&dir);
    let (mut cuts, mut found) = (0, [0; 2]);
    for call in &calls {
        if let Call::Write(at, data) = call {
            image.resize(image.len().max(at + data.len()), 0);
            for (index, byte) in data.iter().enumerate() {
                // A byte that does not change makes no image that was not tried.
                if image[at + index] == *byte {
                    continue;
                }
                image[at + index] = *byte;
                // Most bytes are text in the middle of a page: there one in 97 is enough, while
                // all are tried where pages begin and in the file's header.
                let is_telling = *at < 4_096 || index < 64 || index + 64 > data.len();
                cuts += 1;
                if is_telling || cuts % 97 == 0 || std::env::var_os("LOCKKEEPER_LONG").is_some() {
                    let last = opens_whole(&dir, image.clone());
                    assert!((BEFORE..=BEFORE + 1).contains(&last), "{last} after {cuts} bytes");
                    found[(last - BEFORE) as usize] += 1;
                }
            }
        }
        apply(call, &mut image);
    }
    let [without, with] = found;
    println!("{cuts} bytes change; of those tried, {without} are without the commit, {with} with");
    // The very last byte completes the header, which decides; up to there nothing has happened.
    assert!(without > 100, "{without} without, {with} with");
    assert_eq!(opens_whole(&dir, image), BEFORE + 1);
}

#[test]
fn an_error_at_any_call_of_the_last_commit_loses_nothing() {
    let dir = TempDir::new().unwrap();
    let (_, calls) = last_commit(&dir);
    for fail_at in 0..calls.len() {
        let dir = TempDir::new().unwrap();
        let disk = Recorder::default();
        let mut storage = open_on(&dir, &disk);
        for n in 1..=BEFORE {
            storage.commit(&numbered(n)).unwrap();
        }
        disk.0.lock().unwrap().fail_at = Some(fail_at);
        storage.commit(&numbered(BEFORE + 1)).unwrap_err();
        let after = storage.commit(&numbered(BEFORE + 2)).unwrap_err();
        assert!(matches!(after, StorageError::Stopped { .. }), "{after:?}");
        drop(storage);
        let image = disk.0.lock().unwrap().image.clone();
        let last = opens_whole(&dir, image);
        assert!((BEFORE..=BEFORE + 1).contains(&last), "{last} after call {fail_at}");
    }
}
