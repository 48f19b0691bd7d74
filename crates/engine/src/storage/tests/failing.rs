//! A disk that fails on request (lesson S4: no commits after a failed sync).

use std::fmt::{self, Write as _};
use std::sync::Mutex;
use std::thread;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::numbered::numbered;
use super::tapped::{Touch, tapped};
use super::*;

/// The call that the disk is to refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreRefusal {
    Sync(i32),
    Write(i32),
}

/// Refuses one call when armed, then works again: like a kernel that reports a failed sync once.
#[derive(Debug, Clone, Default)]
struct NextRefusal(Arc<Mutex<Option<StoreRefusal>>>);

impl NextRefusal {
    fn arm(&self, refusal: StoreRefusal) {
        *self.0.lock().unwrap() = Some(refusal);
    }

    fn strike(&self, of_kind: impl Fn(i32) -> StoreRefusal) -> io::Result<()> {
        let mut armed = self.0.lock().unwrap();
        match *armed {
            Some(refusal @ (StoreRefusal::Sync(errno) | StoreRefusal::Write(errno)))
                if refusal == of_kind(errno) =>
            {
                *armed = None;
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => Ok(()),
        }
    }
}

/// All files share the same fault.
fn failing(fault: &NextRefusal) -> Wrap {
    let fault = fault.clone();
    Arc::new(move |file| {
        let fault = fault.clone();
        tapped(file, move |touch| match touch {
            Touch::Sync => fault.strike(StoreRefusal::Sync),
            Touch::Write(_) => fault.strike(StoreRefusal::Write),
            Touch::Read => Ok(()),
        })
    })
}

const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();

/// Commits "/a", makes the commit of "/b" and "/c" fail, and returns its error.
fn fail_second_commit(dir: &TempDir, refusal: StoreRefusal) -> (Storage, StorageError) {
    let fault = NextRefusal::default();
    let mut storage = open_on(dir, Durability::Sync, failing(&fault));
    storage.commit(&mut nodes(&[("/a", Some("1"))])).unwrap();
    fault.arm(refusal);
    let error = storage.commit(&mut nodes(&[("/b", Some("2")), ("/c", Some("3"))])).unwrap_err();
    (storage, error)
}

#[test]
fn s4_nothing_is_written_after_a_failed_sync() {
    for refusal in [StoreRefusal::Sync(EIO), StoreRefusal::Write(EIO)] {
        let dir = TempDir::new().unwrap();
        let (mut storage, error) = fail_second_commit(&dir, refusal);
        assert!(matches!(error, StorageError::Io { .. }), "{error:?}");

        for mut batch in [nodes(&[("/d", Some("4"))]), Batch::default()] {
            let error = storage.commit(&mut batch).unwrap_err();
            assert!(matches!(error, StorageError::Stopped { .. }), "{error:?}");
        }
        drop(storage);

        let after = stored_nodes(&open(&dir, Durability::Sync).unwrap());
        assert_eq!(after[0], pair("/a", "1"), "an acknowledged commit is lost");
        let rest = &after[1..];
        assert!(
            rest.is_empty() || rest == [pair("/b", "2"), pair("/c", "3")],
            "half a batch: {rest:?}"
        );
    }
}

#[test]
fn a_full_disk_is_named_and_loses_nothing() {
    for refusal in [StoreRefusal::Sync(ENOSPC), StoreRefusal::Write(ENOSPC)] {
        let dir = TempDir::new().unwrap();
        let (storage, error) = fail_second_commit(&dir, refusal);
        assert!(matches!(error, StorageError::Full { .. }), "{error:?}");
        drop(storage);
        let storage = open(&dir, Durability::Sync).unwrap();
        assert_eq!(stored_nodes(&storage)[0], pair("/a", "1"));
    }
}

#[test]
fn an_opening_that_fails_can_be_tried_again() {
    let dir = TempDir::new().unwrap();
    let fault = NextRefusal::default();
    fault.arm(StoreRefusal::Sync(EIO));
    let opened = Storage::open_with(Some(dir.path()), Durability::Sync, failing(&fault));
    assert!(opened.is_err());
    let storage = open(&dir, Durability::Sync).unwrap();
    assert!(contents(&storage).is_empty());
}

/// The database follows in the background; a failure there must be reported.
#[test]
fn s4_a_checkpoint_that_fails_ends_the_commits() {
    for refusal in [StoreRefusal::Sync(ENOSPC), StoreRefusal::Write(ENOSPC)] {
        let dir = TempDir::new().unwrap();
        let fault = NextRefusal::default();
        // Commits are not synced, so the next sync, and the next write before it, are the checkpoint's.
        let mut storage = open_on(&dir, Durability::Os, failing(&fault));
        storage.commit(&mut nodes(&[("/a", Some("1"))])).unwrap();
        fault.arm(refusal);
        let error = storage.journal_mut().close().unwrap_err();
        assert!(matches!(error, StorageError::Full { .. }), "{error:?}");
        storage.disk.as_mut().unwrap().failed = true;
        drop(storage);
        assert_eq!(stored_nodes(&open(&dir, Durability::Os).unwrap()), [pair("/a", "1")]);
    }
}

/// Symptom: commits were acknowledged until the next log was full, which takes days on an idle engine, and it was not
/// reported that the database could no longer be written. Found by reading.
#[test]
fn s4_a_checkpoint_that_fails_is_noticed_by_the_next_commit() {
    let dir = TempDir::new().unwrap();
    let fault = NextRefusal::default();
    let mut storage = open_on(&dir, Durability::Os, failing(&fault));
    storage.set_log_length(1);
    storage.commit(&mut nodes(&[("/a", Some("1"))])).unwrap();
    // Commits are not synced, so the next sync is the checkpoint's.
    fault.arm(StoreRefusal::Sync(ENOSPC));
    storage.commit(&mut nodes(&[("/b", Some("2"))])).unwrap();
    storage.set_log_length(1 << 40);
    let mut expected = vec![pair("/a", "1"), pair("/b", "2")];
    let start = std::time::Instant::now();
    let error = loop {
        match storage.commit(&mut nodes(&[("/c", Some("3"))])) {
            Err(e) => break e,
            // None succeeds if the checkpoint has already failed.
            Ok(_) if expected.len() == 2 => expected.push(pair("/c", "3")),
            Ok(_) => assert!(start.elapsed().as_secs() < 60, "commits continue"),
        }
        std::thread::yield_now();
    };
    assert!(matches!(error, StorageError::Full { .. }), "{error:?}");
    drop(storage);
    let after = stored_nodes(&open(&dir, Durability::Os).unwrap());
    assert_eq!(after, expected);
}

/// The logged errors, preceded by the names of the threads that log them.
#[derive(Debug, Clone, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{value:?}").unwrap();
    }
}

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{}: ", thread::current().name().unwrap_or_default()));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Symptom: errors in the background were not logged to the subscriber of the engine's caller, because the threads were
/// not started like the others. Seen to fail that way.
#[test]
fn e46_threads_of_the_journal_log_to_where_the_engine_does() {
    // A full log has a checkpoint, and otherwise the next log grows.
    for (name, length) in [("lockkeeper-checkpoint", 1), ("lockkeeper-growth", 1 << 20)] {
        let errors = Errors::default();
        let _here = tracing::subscriber::set_default(errors.clone());
        let dir = TempDir::new().unwrap();
        let refused = Arc::new(AtomicBool::new(false));
        let is_refused = refused.clone();
        let wrap: Wrap = Arc::new(move |file| {
            let is_refused = is_refused.clone();
            tapped(file, move |touch| match touch {
                Touch::Write(_) if thread::current().name() == Some(name) => {
                    is_refused.store(true, Ordering::Relaxed);
                    Err(io::Error::from_raw_os_error(EIO))
                }
                _ => Ok(()),
            })
        });

        let mut storage = open_on(&dir, Durability::Os, wrap);
        storage.set_log_length(length);
        let mut n = 0;
        let error = loop {
            n += 1;
            match storage.commit(&mut numbered(n)) {
                Err(e) => break e,
                Ok(_) => assert!(n < 100_000, "nothing fails in {name}"),
            }
            // Another commit could hurry the background work that has just begun.
            while storage.has_background() && !refused.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        };
        let logged = errors.0.lock().unwrap();
        assert_eq!(*logged, [format!("{name}: {error}")]);
    }
}
