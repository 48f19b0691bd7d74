//! Engines that follow one another at one place: the next one does not grant again what the previous one has granted,
//! neither as a number nor during its lease.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockkeeper_engine::{
    Builder, Durability, Engine, Existing, Restoration, RestoreFailure, StartError, StorageError,
    check, restore,
};
use lockkeeper_wire::CreateMode;
use tempfile::TempDir;

use crate::client::{Client, Ticket, eventually, word};
use crate::lineage::copy_by_hand;

const TIMEOUT: Duration = Duration::from_secs(30);
/// For tests that wait for it.
const SHORT: Duration = Duration::from_millis(600);
const NO_QUIET: Option<Duration> = Some(Duration::ZERO);

/// A place for data directories.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    async fn start(&self, name: &str) -> Engine {
        let builder = Engine::builder().data_dir(self.path(name)).quiet_time(Duration::ZERO);
        builder.start().await.unwrap()
    }

    /// Takes a backup in which a session holds a node, and ends the engine.
    async fn backup(&self) -> Ticket {
        let engine = self.start("data").await;
        let mut client = Client::connect(&engine, TIMEOUT);
        client.create("/locks", CreateMode::Persistent).unwrap();
        client.create("/locks/held", CreateMode::Ephemeral).unwrap();
        engine.backup(self.path("backup")).await.unwrap();
        engine.stop().await.unwrap();
        client.ticket()
    }

    fn restore(&self, backup: &str, to: &str) -> Result<Restoration, RestoreFailure> {
        restore(self.path(backup), self.path(to), Existing::Replace, NO_QUIET)
    }

    /// Starts an engine, takes a number as a lock would take its token, and ends it.
    async fn token(&self, name: &str) -> i64 {
        let engine = self.start(name).await;
        let token = take_token(&engine);
        engine.stop().await.unwrap();
        token
    }
}

/// The transaction of a new node.
fn take_token(engine: &Engine) -> i64 {
    Client::connect(engine, TIMEOUT).create("/n-", CreateMode::EphemeralSequential).unwrap();
    eventually("it is counted", || engine.stats().ephemerals > 0);
    engine.stats().last_zxid.0
}

fn assert_grow(tokens: &[i64]) {
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert!(tokens.iter().all(|token| *token < 1 << 53), "{tokens:?}");
}

/// Symptom: 14 and 18 were issued again after a backup had been restored. A backup that is restored twice issued the
/// numbers of the first restore again, because "one more than the backup" is the same twice.
#[tokio::test]
async fn tokens_grow_over_restores_of_one_backup() {
    let place = Place::new();
    place.backup().await;
    let mut tokens = vec![place.token("data").await];
    for round in 0..4 {
        let restored = place.restore("backup", "data").unwrap();
        assert!(restored.last_zxid.0 > tokens[round], "{restored:?}");
        tokens.push(place.token("data").await);
    }
    // Only the file next to the directory is left to compare with.
    fs::remove_dir_all(place.path("data")).unwrap();
    place.restore("backup", "data").unwrap();
    tokens.push(place.token("data").await);
    assert_grow(&tokens);
    let epochs: Vec<i64> = tokens.iter().map(|token| token >> 32).collect();
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
}

/// As on independent machines whose clocks are right.
#[tokio::test]
async fn tokens_grow_over_restores_to_different_places() {
    let place = Place::new();
    place.backup().await;
    let mut tokens = Vec::new();
    for name in ["one", "two", "three"] {
        place.restore("backup", name).unwrap();
        tokens.push(place.token(name).await);
    }
    assert_grow(&tokens);
}

#[tokio::test]
async fn a_plain_copy_can_be_restored_and_one_that_is_put_back_by_hand_is_noticed() {
    let place = Place::new();
    place.backup().await;
    copy_by_hand(&place.path("data"), &place.path("copy"));
    place.restore("copy", "data").unwrap();
    let mut tokens = vec![place.token("data").await];

    let engine = place.start("data").await;
    let ticket = Client::connect(&engine, TIMEOUT).ticket();
    engine.stop().await.unwrap();
    copy_by_hand(&place.path("data"), &place.path("older"));
    place.restore("copy", "data").unwrap();
    tokens.push(place.token("data").await);
    fs::remove_dir_all(place.path("data")).unwrap();
    fs::rename(place.path("older"), place.path("data")).unwrap();
    let engine = place.start("data").await;
    let (_, answer) = Client::resume(&engine, &ticket, TIMEOUT);
    assert_eq!(answer.timeout_ms, 0, "the sessions of the copy have ended");
    tokens.push(take_token(&engine));
    assert_grow(&tokens);
}

#[tokio::test]
async fn an_engine_on_its_own_directory_counts_on_and_keeps_its_sessions() {
    let place = Place::new();
    let ticket = place.backup().await;
    place.restore("backup", "other").unwrap();
    for name in ["data", "other"] {
        let before = check(place.path(name)).unwrap().last_zxid.0;
        let token = place.token(name).await;
        assert!(token > before && token < before + 5, "{name}: {before}, then {token}");
    }
    let engine = place.start("data").await;
    let (_, answer) = Client::resume(&engine, &ticket, TIMEOUT);
    assert_eq!(answer.session_id, ticket.session);
}

/// A session that lived on would bring back its node, which was released long ago.
#[tokio::test]
async fn no_session_of_a_copy_lives_on() {
    let place = Place::new();
    let ticket = place.backup().await;
    let restored = place.restore("backup", "data").unwrap();
    assert_eq!((restored.sessions_ended, restored.ephemerals_deleted), (1, 1));
    let report = check(place.path("data")).unwrap();
    assert_eq!((report.sessions, report.ephemerals), (0, 0));
    assert_eq!((report.last_zxid, report.nodes), (restored.last_zxid, restored.nodes));

    let engine = place.start("data").await;
    let (_, answer) = Client::resume(&engine, &ticket, TIMEOUT);
    assert_eq!(answer.timeout_ms, 0, "it is over");
    let mut client = Client::connect(&engine, TIMEOUT);
    assert!(client.exists("/locks") && !client.exists("/locks/held"));
    assert_eq!(check(place.path("backup")).unwrap().sessions, 1, "the backup stays as it is");
}

#[tokio::test]
async fn what_is_replaced_is_kept_and_what_is_not_to_be_stays() {
    let place = Place::new();
    place.backup().await;
    let kept = place.token("data").await;
    let refused = restore(place.path("backup"), place.path("data"), Existing::Keep, None);
    let error = refused.unwrap_err();
    assert!(
        matches!(error, RestoreFailure::Start(StartError::Storage(StorageError::Exists { .. }))),
        "{error}"
    );
    let first = place.restore("backup", "data").unwrap().replaced.unwrap();
    let second = place.restore("backup", "data").unwrap().replaced.unwrap();
    assert_eq!(
        [&first, &second],
        [".replaced-1", ".replaced-2"]
            .map(|end| {
                place.path("data").canonicalize().unwrap().with_file_name(format!("data{end}"))
            })
            .each_ref()
    );
    assert!(check(&first).unwrap().last_zxid.0 >= kept, "as its engine left it");

    fs::create_dir(place.path("empty")).unwrap();
    restore(place.path("backup"), place.path("empty"), Existing::Keep, None).unwrap();
    fs::create_dir(place.path("others")).unwrap();
    fs::write(place.path("others/file"), "text").unwrap();
    let error = place.restore("backup", "others").unwrap_err();
    assert!(matches!(error, RestoreFailure::Foreign { .. }), "{error}");
}

#[tokio::test]
async fn a_backup_that_cannot_be_read_replaces_nothing() {
    let place = Place::new();
    place.backup().await;
    let names = || {
        let mut names: Vec<_> =
            place.0.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let file = place.path("backup/lockkeeper.redb");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let before = names();
    let error = place.restore("backup", "data").unwrap_err().to_string();
    assert!(error.contains("lockkeeper.redb is damaged"), "{error}");
    fs::create_dir(place.path("nothing")).unwrap();
    let error = place.restore("nothing", "data").unwrap_err();
    assert!(matches!(error, RestoreFailure::Empty { .. }), "{error}");
    let error = place.restore("data", "data/below").unwrap_err();
    assert!(matches!(error, RestoreFailure::Within { .. }), "{error}");
    fs::remove_dir_all(place.path("nothing")).unwrap();
    assert_eq!(names(), before);
}

#[tokio::test]
async fn a_directory_in_use_is_left_alone() {
    let place = Place::new();
    place.backup().await;
    let engine = place.start("data").await;
    let in_use = |result: Result<Restoration, RestoreFailure>| {
        matches!(
            result,
            Err(RestoreFailure::Start(StartError::Storage(StorageError::InUse { .. })))
        )
    };
    assert!(in_use(place.restore("backup", "data")));
    assert!(in_use(place.restore("data", "other")), "it cannot be used as a backup either");
    take_token(&engine);
    engine.stop().await.unwrap();

    let engine = in_memory(&place, "data").start().await.unwrap();
    assert!(in_use(place.restore("backup", "data")), "an engine in memory");
    engine.stop().await.unwrap();
    place.restore("backup", "data").unwrap();
}

/// The reason for most restores.
#[tokio::test]
async fn a_damaged_directory_can_be_replaced() {
    let place = Place::new();
    place.backup().await;
    let token = place.token("data").await;
    fs::write(place.path("data/lockkeeper.redb"), "nonsense").unwrap();
    let restored = place.restore("backup", "data").unwrap();
    assert!(!restored.replaced_was_readable);
    assert_grow(&[token, place.token("data").await]);
}

// ----- quiet time -----------------------------------------------------------------------------

/// Whether a session can begin: its handshake is answered, or the connection is closed.
fn begins(engine: &Engine) -> bool {
    Client::raw(engine).handshake(TIMEOUT).is_ok()
}

/// How long it takes until a session begins.
fn time_to_begin(engine: &Engine) -> Duration {
    let start = Instant::now();
    eventually("a session begins", || begins(engine));
    start.elapsed()
}

/// A holder may rely on its lease for a session timeout after its server has gone.
#[tokio::test]
async fn after_a_restore_no_session_begins_while_leases_may_go_on() {
    let place = Place::new();
    let ticket = place.backup().await;
    restore(place.path("backup"), place.path("data"), Existing::Replace, None).unwrap();
    let builder = Engine::builder().data_dir(place.path("data")).four_letter_word("mntr");
    let engine = builder.clone().start().await.unwrap();
    assert!(!begins(&engine));
    let (_, answer) = Client::resume(&engine, &ticket, TIMEOUT);
    assert_eq!(answer.timeout_ms, 0, "the old session has ended at once");
    let mntr = word(&engine, "mntr");
    let left = mntr.lines().find_map(|line| line.strip_prefix("zk_quiet_time\t")).unwrap();
    assert!((20_000..=40_000).contains(&left.parse().unwrap()), "{left}");

    engine.skip_time(Duration::from_secs(39)).await;
    let engine = restarted(engine, &builder).await;
    engine.skip_time(Duration::from_secs(39)).await;
    assert!(!begins(&engine), "the restart began a new quiet time");
    engine.skip_time(Duration::from_secs(1)).await;
    assert!(begins(&engine));
}

async fn restarted(engine: Engine, builder: &Builder) -> Engine {
    engine.stop().await.unwrap();
    builder.clone().start().await.unwrap()
}

#[tokio::test]
async fn a_quiet_time_is_had_once() {
    let place = Place::new();
    place.backup().await;
    restore(place.path("backup"), place.path("data"), Existing::Replace, Some(SHORT)).unwrap();
    let builder = Engine::builder().data_dir(place.path("data"));
    let started = Instant::now();
    let engine = builder.clone().start().await.unwrap();
    time_to_begin(&engine);
    assert!(started.elapsed() >= SHORT);
    eventually("the mark is gone", || !place.path("data/RESTORED").exists());
    let engine = restarted(engine, &builder).await;
    assert!(begins(&engine));
}

#[tokio::test]
async fn an_operator_who_knows_better_skips_the_quiet_time() {
    let place = Place::new();
    place.backup().await;
    restore(place.path("backup"), place.path("data"), Existing::Replace, None).unwrap();
    let builder = Engine::builder().data_dir(place.path("data"));
    let engine = builder.clone().quiet_time(Duration::ZERO).start().await.unwrap();
    assert!(begins(&engine));
    eventually("the mark is gone", || !place.path("data/RESTORED").exists());
    let engine = restarted(engine, &builder).await;
    assert!(begins(&engine));
    engine.stop().await.unwrap();
    place.restore("backup", "data").unwrap();
    assert!(begins(&builder.start().await.unwrap()), "the restore was given a quiet time of zero");
}

// ----- in memory ------------------------------------------------------------------------------

fn in_memory(place: &Place, name: &str) -> Builder {
    let builder = Engine::builder().data_dir(place.path(name)).durability(Durability::Memory);
    builder.min_session_timeout(SHORT).max_session_timeout(TIMEOUT)
}

/// Symptom: an engine in memory that restarted issued 18 and then 6.
#[tokio::test]
async fn tokens_grow_over_restarts_in_memory() {
    let place = Place::new();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        // It does not know of earlier engines, so it uses the clock.
        let engine = Engine::builder().start().await.unwrap();
        tokens.push(take_token(&engine));
        engine.stop().await.unwrap();
    }
    for _ in 0..3 {
        let builder = in_memory(&place, "memory").quiet_time(Duration::ZERO);
        let engine = builder.start().await.unwrap();
        tokens.push(take_token(&engine));
        engine.stop().await.unwrap();
    }
    assert_grow(&tokens);
}

/// The clock does not help if it was set back, or if the earlier state was ahead of it.
#[tokio::test]
async fn an_engine_in_memory_begins_above_what_was_at_its_place() {
    let place = Place::new();
    place.backup().await;
    let ahead = 9 << 48;
    let line = format!("lockkeeper-floor 1: 1 {ahead} 0; 1 {ahead} 0");
    fs::write(place.path("memory.floor"), format!("{line:<159}\n")).unwrap();
    let engine = in_memory(&place, "memory").start().await.unwrap();
    let token = take_token(&engine);
    assert!(token > ahead && token < ahead + 10, "{token}");
    engine.stop().await.unwrap();

    // An engine that keeps its data follows one that did not.
    let engine = in_memory(&place, "data").quiet_time(Duration::ZERO).start().await.unwrap();
    let mut tokens = vec![take_token(&engine)];
    engine.stop().await.unwrap();
    tokens.push(place.token("data").await);
    assert_grow(&tokens);
}

/// The state after a crash is tested in `tests/command`.
#[tokio::test]
async fn in_memory_sessions_that_were_left_are_waited_for_and_no_others() {
    let place = Place::new();
    let builder = in_memory(&place, "memory");
    let engine = builder.clone().start().await.unwrap();
    assert!(begins(&engine), "no engine ran here before");
    engine.stop().await.unwrap();

    let engine = builder.clone().start().await.unwrap();
    assert!(!begins(&engine));
    let error = builder.clone().start().await.unwrap_err();
    assert!(matches!(error, StartError::Storage(StorageError::InUse { .. })), "{error}");
    // An end within the quiet time does not shorten it.
    let engine = restarted(engine, &builder).await;
    assert!(!begins(&engine));
    engine.skip_time(Duration::from_secs(30)).await;
    assert!(begins(&engine));
    engine.skip_time(Duration::from_secs(60)).await;
    eventually("all sessions have ended", || engine.sessions() == 0);
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn in_memory_there_is_no_quiet_time_after_the_last_session() {
    let place = Place::new();
    let builder = in_memory(&place, "memory");
    let engine = builder.clone().start().await.unwrap();
    let mut client = Client::connect(&engine, SHORT);
    client.call(lockkeeper_wire::Request::CloseSession).unwrap();
    eventually("the session is closed", || engine.sessions() == 0);
    let engine = restarted(engine, &builder).await;
    assert!(begins(&engine));
}

#[tokio::test]
async fn sessions_on_disk_are_waited_for_by_an_engine_in_memory() {
    let place = Place::new();
    place.backup().await;
    let engine = in_memory(&place, "data").start().await.unwrap();
    assert!(!begins(&engine));
    engine.skip_time(TIMEOUT).await;
    assert!(begins(&engine));
}
