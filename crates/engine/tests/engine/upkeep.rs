//! Maintenance of a data directory: checking it, copying it, and a full disk.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_engine::{
    BackupError, Engine, EngineError, Existing, StartError, StorageError, check, restore,
};
use lockkeeper_wire::{CreateMode, Request};

use crate::client::{Client, LONG, create_op, create_with, delete, eventually, number};
use crate::durable::start;

/// The names and contents of all files.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = dir
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_check_reports_the_contents_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let engine = start(&data).await;
    let mut client = Client::connect(&engine, LONG);
    client.create("/a", CreateMode::Persistent).unwrap();
    client.create("/lock", CreateMode::Ephemeral).unwrap();
    let error = check(&data).unwrap_err();
    assert!(matches!(error, StartError::Storage(StorageError::InUse { .. })), "{error}");
    let zxid = engine.stats().last_zxid;
    engine.stop().await.unwrap();

    let before = files(&data);
    let report = check(&data).unwrap();
    assert_eq!((report.nodes, report.ephemerals, report.sessions), (6, 1, 1));
    assert_eq!((report.last_zxid, report.after_crash), (zxid, false));
    let text = report.to_string();
    assert!(text.contains("6 nodes, 1 of them ephemeral") && text.contains("1 sessions"), "{text}");
    assert!(files(&data) == before, "a check only looks");

    let error = check(dir.path().join("missing")).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
    assert!(!dir.path().join("missing").exists());
}

/// Symptom: `check` and `backup` of a wrong directory, such as `/etc`, left a file `LOCK` there, and the check reported
/// that it was in order.
#[test]
fn a_directory_without_data_is_no_data_directory() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let error = check(&empty).unwrap_err();
    assert!(matches!(error, StartError::Storage(StorageError::NoData { .. })), "{error}");
    let error = lockkeeper_engine::backup(&empty, dir.path().join("copy")).unwrap_err();
    assert!(matches!(error, BackupError::Storage(StorageError::NoData { .. })), "{error}");
    assert!(files(&empty).is_empty());
}

/// Symptom: a check created `LOCK` in a backup, and failed where it could not.
#[tokio::test]
async fn what_is_only_read_need_not_be_writable() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(32);
    let medium = disk.as_ref().map_or(dir.path(), |disk| disk.0.path());
    let (data, copy) = (medium.join("data"), medium.join("copy"));
    let engine = start(&data).await;
    Client::connect(&engine, LONG).create("/a", CreateMode::Persistent).unwrap();
    engine.backup(&copy).await.unwrap();
    engine.stop().await.unwrap();
    match &disk {
        Some(disk) => disk.protect(),
        None => println!("in part: this user cannot mount a medium that cannot be written"),
    }

    let before = (files(&data), files(&copy));
    for read in [&data, &copy] {
        assert_eq!(check(read).unwrap().nodes, 5);
        let again = dir.path().join("again").join(read.file_name().unwrap());
        std::fs::create_dir_all(again.parent().unwrap()).unwrap();
        lockkeeper_engine::backup(read, again).unwrap();
    }
    assert!((files(&data), files(&copy)) == before);
}

/// Symptom: a backup was created inside its own original, together with missing parent directories.
#[tokio::test]
async fn a_backup_has_a_parent_that_is_not_its_original() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let engine = start(&data).await;
    std::os::unix::fs::symlink(&data, dir.path().join("link")).unwrap();
    let refused = [
        ("no/parent", "does not exist: create it first"),
        ("data/copy", "is inside"),
        ("link/copy", "is inside"),
        ("data", "exists already"),
        ("a\nb", "line break"),
    ];
    for (target, why) in refused {
        let target = dir.path().join(target);
        let error = lockkeeper_engine::backup(&data, &target).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        if why != "line break" {
            let error = engine.backup(&target).await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
    engine.stop().await.unwrap();
    for (target, why) in refused {
        let error = lockkeeper_engine::backup(&data, dir.path().join(target)).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(!dir.path().join("no").exists() && !dir.path().join("a").exists());
    lockkeeper_engine::backup(&data, dir.path().join("copy/")).unwrap();
    assert_eq!(check(dir.path().join("copy")).unwrap().nodes, 4);
}

/// Symptom: a relative path was interpreted in the engine's working directory.
#[tokio::test]
async fn invalid_requests_to_the_control_socket_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(dir.path()).await;
    let long = format!("/{}\n", "x".repeat(10_000));
    for question in ["copy\n", "\n", "../copy\n", "/no/end", &long] {
        let mut stream = UnixStream::connect(dir.path().join("CONTROL")).unwrap();
        // The engine stops reading a request that is too long.
        let _ = stream.write_all(question.as_bytes());
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        assert_eq!(answer, "error send a line with an absolute path\n", "{question}");
    }
    assert!(!std::path::Path::new("copy").exists());
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_check_refuses_what_an_engine_refuses_and_says_which_file() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(dir.path()).await;
    let mut client = Client::connect(&engine, LONG);
    for i in 0..200 {
        client.create(&format!("/n{i}"), CreateMode::Persistent).unwrap();
    }
    engine.stop().await.unwrap();
    let file = dir.path().join("lockkeeper.redb");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(4).position(|found| found == b"/n77").unwrap();
    bytes[at + 2] ^= 1;
    std::fs::write(&file, &bytes).unwrap();

    let error = check(dir.path()).unwrap_err().to_string();
    assert!(error.contains("lockkeeper.redb is damaged") && error.contains("backup"), "{error}");
    assert!(std::fs::read(&file).unwrap() == bytes);
    assert!(Engine::builder().data_dir(dir.path()).start().await.is_err());
}

/// Pairs of nodes are written in transactions all the time; no copy has half of one, and none lacks a write that was
/// acknowledged before the backup was requested.
#[tokio::test]
async fn a_backup_of_a_busy_engine_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(&dir.path().join("data")).await;
    let mut client = Client::connect(&engine, LONG);
    let mut writer = Client::connect(&engine, LONG);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let writing = std::thread::spawn(move || {
        for i in 0.. {
            let pair = ["l", "r"].map(|side| create_op(&format!("/{side}{i}")));
            writer.call(Request::Multi(pair.to_vec())).unwrap();
            if stopped.load(Ordering::Relaxed) {
                return;
            }
        }
    });
    for number in 0..5 {
        client.create(&format!("/before{number}"), CreateMode::Ephemeral).unwrap();
        let target = dir.path().join(format!("copy{number}"));
        assert_eq!(engine.backup(&target).await.unwrap().path, target);
    }
    stop.store(true, Ordering::Relaxed);
    writing.join().unwrap();
    let error = engine.backup(dir.path().join("copy0")).await.unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
    engine.stop().await.unwrap();

    let mut before = 0;
    for number in 0..5 {
        let copy = dir.path().join(format!("copy{number}"));
        let report = check(&copy).unwrap();
        assert!(!report.after_crash && report.nodes > before);
        before = report.nodes;
        assert_eq!(report.ephemerals, number + 1, "acknowledged before the backup");
        assert_eq!(report.sessions, 2);
        let restored = dir.path().join(format!("restored{number}"));
        restore(&copy, &restored, Existing::Keep, Some(Duration::ZERO)).unwrap();
        let engine = start(&restored).await;
        let names = Client::connect(&engine, LONG).children("/");
        let count = |side| names.iter().filter(|name| name.starts_with(side)).count();
        assert_eq!(count('l'), count('r'), "half of a pair");
    }
    assert!(!dir.path().join("copy0.partial").exists());
}

/// As from another process: the two share only the directory.
#[tokio::test]
async fn anyone_who_may_use_the_directory_can_ask_for_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let engine = start(&data).await;
    let mut client = Client::connect(&engine, LONG);
    client.create("/lock", CreateMode::Ephemeral).unwrap();
    let backup = lockkeeper_engine::backup(&data, dir.path().join("running")).unwrap();
    assert_eq!(backup.records, 4 + 1 + 1 + 1, "nodes, the lock, its session, the last transaction");
    let error = lockkeeper_engine::backup(&data, dir.path().join("running")).unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
    engine.stop().await.unwrap();
    let before = files(&data);
    lockkeeper_engine::backup(&data, dir.path().join("stopped")).unwrap();
    assert!(files(&data) == before);
    for copy in ["running", "stopped"] {
        let copy = dir.path().join(copy);
        assert_eq!(check(&copy).unwrap().ephemerals, 1);
        // Symptom: an engine on a backup issued tokens again that its original had issued since.
        let error = Engine::builder().data_dir(&copy).start().await.unwrap_err();
        assert!(matches!(error, StartError::Storage(StorageError::Backup { .. })), "{error}");
    }
}

#[tokio::test]
async fn what_is_in_memory_only_has_no_backup() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::builder().start().await.unwrap();
    let error = engine.backup(dir.path().join("copy")).await.unwrap_err();
    assert!(matches!(error, BackupError::NothingKept));
    assert_eq!(engine.disk_room(), None);
    let engine = start(&dir.path().join("data")).await;
    assert!(engine.disk_room().is_some_and(|(_, reserve)| reserve > 0));
    let error = engine.backup(dir.path().join("no/such/parent/\0")).await.unwrap_err();
    assert!(matches!(error, BackupError::Storage(_)), "{error}");
}

/// A file system of a few megabytes, unmounted on drop. Only root can create one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(megabytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(dir.path())
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(dir)),
            _ => None,
        }
    }

    /// Makes it read-only.
    fn protect(&self) {
        let mut mount = Command::new("mount");
        assert!(mount.args(["-o", "remount,ro"]).arg(self.0.path()).status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Symptom: a disk that filled up ended the engine, and with it all locks. Now growth stops earlier, and operations
/// that need almost no space continue, until there is space again. Seen to fail without the reserve.
#[tokio::test]
async fn a_disk_that_is_nearly_full_stops_growth_alone() {
    let Some(disk) = SmallDisk::mount(64) else {
        println!("skipped: this user cannot mount; what may grow then has tests of its own");
        return;
    };
    let builder = Engine::builder().data_dir(disk.0.path().join("data")).disk_reserve(24 * MB);
    let engine = builder.four_letter_word("mntr").start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    client.create("/locks", CreateMode::Persistent).unwrap();
    let lock = client.create("/locks/a-", CreateMode::EphemeralSequential).unwrap();
    // Space for a while of writes, but not for all. Acknowledged data may still be on its way from the log into the
    // database, and must leave half of the reserve.
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 28 * MB as usize]).unwrap();
    let value = Bytes::from(vec![7; 100_000]);
    let large = |n: usize| create_with(&format!("/n{n}"), CreateMode::Persistent, value.clone());
    let mut made = 0;
    eventually("growth is refused", || {
        let answer = client.call(large(made));
        made += usize::from(answer.is_ok());
        answer == Err(-125)
    });
    assert!(made > 0 && number(&engine, "disk_free") < 24 * MB as usize);

    let mut other = Client::connect(&engine, LONG);
    let next = other.create("/locks/a-", CreateMode::EphemeralSequential).unwrap();
    assert!(other.exists("/n0"));
    client.call(delete(&lock)).unwrap();
    assert_eq!(other.children("/locks"), [next.trim_start_matches("/locks/")]);
    client.call(delete("/n0")).unwrap();
    other.call(Request::CloseSession).unwrap();

    std::fs::remove_file(ballast).unwrap();
    eventually("growth resumes by itself", || client.call(large(0)).is_ok());
    engine.stop().await.unwrap();
}

const MB: u64 = 1024 * 1024;

/// Symptom: on a small file system the logs and the database used all space in the end. Deletes freed none, because
/// files do not shrink, so nothing could be created any more; or the deletes themselves found no space, and the engine
/// ended. Seen to fail without the logs' shorter length and without `spare`.
#[tokio::test]
async fn a_small_file_system_that_was_full_has_room_again_after_deletes() {
    for megabytes in [64, 128] {
        let Some(disk) = SmallDisk::mount(megabytes) else {
            println!("skipped: this user cannot mount; the arithmetic has tests of its own");
            return;
        };
        let engine = start(&disk.0.path().join("data")).await;
        let mut client = Client::connect(&engine, LONG);
        let value = Bytes::from(vec![7; 8_000]);
        let new = |n: usize| create_with(&format!("/n{n}"), CreateMode::Persistent, value.clone());
        for round in 0..2 {
            let made = (0..).take_while(|n| client.call(new(*n)).is_ok()).count();
            println!("{megabytes} MB: {made} nodes");
            assert!(made as u64 * 8_000 > megabytes * MB / 16, "{made} in round {round}");
            for n in 0..made {
                client.call(delete(&format!("/n{n}"))).unwrap();
            }
            eventually("deletes free space", || client.call(new(made)).is_ok());
            client.call(delete(&format!("/n{made}"))).unwrap();
        }
        engine.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_stops_the_engine_and_after_making_room_all_that_was_acknowledged_is_there() {
    let Some(disk) = SmallDisk::mount(32) else {
        println!("skipped: this user cannot mount; the same with an injected error is tested");
        return;
    };
    let data = disk.0.path().join("data");
    let ballast = disk.0.path().join("ballast");
    // The next start needs space to write the log into the database.
    std::fs::write(&ballast, vec![0; 24 * 1024 * 1024]).unwrap();
    let engine = Engine::builder().data_dir(&data).disk_reserve(0).start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let mut acknowledged = Vec::new();
    for i in 0.. {
        assert!(i < 200, "the disk does not fill up");
        let path = format!("/n{i}");
        let data = Bytes::from(vec![7; 100_000]);
        if !client.try_send(&[create_with(&path, CreateMode::Persistent, data)]) {
            break;
        }
        match client.reply() {
            Ok((header, _)) => assert_eq!(header.error, 0),
            Err(_) => break,
        }
        acknowledged.push(path);
    }
    let ended = engine.stopped().await.unwrap_err();
    let EngineError::Storage(error) = &ended else { panic!("{ended}") };
    assert!(matches!(**error, StorageError::Full { .. }), "{error}");
    assert!(ended.to_string().contains("no space is left"), "{ended}");
    assert!(acknowledged.len() > 5, "{acknowledged:?}");
    drop(engine);

    std::fs::remove_file(ballast).unwrap();
    let engine = start(&data).await;
    let mut client = Client::connect(&engine, LONG);
    for path in &acknowledged {
        assert!(client.exists(path), "{path} was acknowledged and is gone");
    }
    client.create("/goes-on", CreateMode::Persistent).unwrap();
    println!("{} acknowledged writes are there after the disk was full", acknowledged.len());
    engine.stop().await.unwrap();
}
