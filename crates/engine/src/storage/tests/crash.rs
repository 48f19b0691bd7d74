//! A writer is killed in the middle of its commits (lesson S3: nothing acknowledged is lost).

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::numbered::{last_whole_commit, numbered};
use super::*;

const DIR: &str = "LOCKKEEPER_STORAGE_CRASH_DIR";
const DURABILITY: &str = "LOCKKEEPER_STORAGE_CRASH_DURABILITY";

/// Not a test by itself: the process that is killed. It commits until then, and prints the number of each commit once
/// it is acknowledged.
#[test]
#[ignore = "started by the tests below"]
fn writer() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return; // Started by hand.
    };
    let durability = std::env::var(DURABILITY).unwrap().parse().unwrap();
    let mut storage = Storage::open(Some(&dir), durability).unwrap();
    // Each log file is reused many times, so a start finds the remains of older logs.
    storage.set_log_length(40_000);
    for n in last_whole_commit(&storage) + 1.. {
        storage.commit(&mut numbered(n)).unwrap();
        println!("acknowledged {n}");
    }
}

fn start_writer(dir: &TempDir, durability: Durability) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "storage::tests::crash::writer"])
        .arg("--nocapture")
        .env(DIR, dir.path())
        .env(DURABILITY, durability.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// The number in the last complete line of this form.
fn last_acknowledged(output: &str) -> Option<u64> {
    let whole_lines = output.rsplit_once('\n')?.0;
    let number = |line: &str| line.strip_prefix("acknowledged ")?.parse().ok();
    whole_lines.lines().rev().find_map(number)
}

/// Kills the writer after `count` acknowledgements; returns the last one.
fn kill_after(dir: &TempDir, durability: Durability, count: usize) -> u64 {
    let (mut child, mut output) = start_writer(dir, durability);
    let mut text = String::new();
    let mut seen = 0;
    while seen < count {
        let start = text.len();
        assert_ne!(output.read_line(&mut text).unwrap(), 0, "the writer ended");
        seen += usize::from(text[start..].starts_with("acknowledged "));
    }
    child.kill().unwrap();
    output.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    last_acknowledged(&text).unwrap()
}

fn survives_kills(durability: Durability) {
    let dir = TempDir::new().unwrap();
    for count in [1, 7, 30, 2, 111, 64] {
        let acknowledged = kill_after(&dir, durability, count);
        let found = last_whole_commit(&open(&dir, durability).unwrap());
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "acknowledged {acknowledged}, found {found}"
        );
    }
}

#[test]
fn s3_sync_commits_survive_kill_9() {
    survives_kills(Durability::Sync);
}

#[test]
fn s3_os_commits_survive_kill_9() {
    survives_kills(Durability::Os);
}

/// The lock disappears with its holder, even with one that could not release it.
#[test]
fn a_killed_engine_does_not_lock_its_successor_out() {
    let dir = TempDir::new().unwrap();
    let (mut child, mut output) = start_writer(&dir, Durability::Os);
    let mut line = String::new();
    while !line.starts_with("acknowledged ") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the writer ended");
    }
    let error = refusal(dir.path());
    let holder = Some(child.id());
    assert!(matches!(error, StorageError::InUse { pid, .. } if pid == holder), "{error:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    open(&dir, Durability::Sync).unwrap();
}
