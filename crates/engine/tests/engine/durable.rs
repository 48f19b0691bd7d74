//! State that outlives an engine, and failures that end one.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_engine::{Engine, EngineError, Existing, StartError, StorageError, restore};
use lockkeeper_wire::{CreateMode, CreateRequest, EventKind, NodeData, Request};

use crate::client::{Client, LONG, PATIENCE, create, eventually, exists, get_data, persistent};

pub(crate) async fn start(dir: &Path) -> Engine {
    Engine::builder().data_dir(dir).start().await.unwrap()
}

#[tokio::test]
async fn sessions_and_ephemerals_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(dir.path()).await;
    let mut client = Client::connect(&engine, LONG);
    client.create("/kept", CreateMode::Persistent).unwrap();
    client.create("/lock", CreateMode::Ephemeral).unwrap();
    let ticket = client.ticket();
    engine.stop().await.unwrap();

    let engine = start(dir.path()).await;
    assert_eq!((engine.sessions(), engine.stats().ephemerals), (1, 1));
    let (mut client, response) = Client::resume(&engine, &ticket, LONG);
    assert_eq!(response.session_id, ticket.session);
    assert!(client.exists("/kept") && client.exists("/lock"));
    // The owner is the same session: its end deletes the node.
    let mut watcher = Client::connect(&engine, LONG);
    watcher.call(exists("/lock", true)).unwrap();
    engine.expire_session(ticket.session).await;
    assert_eq!(watcher.event(), (EventKind::NodeDeleted, "/lock".to_owned()));
}

/// K1: clients distinguish a node without data (null) from one with zero bytes; both are read back as the latter.
#[tokio::test]
async fn k1_null_data_survives_restarts_and_restores() {
    let place = tempfile::tempdir().unwrap();
    let [data, copy, restored] = ["data", "copy", "restored"].map(|name| place.path().join(name));
    let engine = start(&data).await;
    let mut client = Client::connect(&engine, LONG);
    for (path, data) in [("/null", NodeData::NULL), ("/empty", Bytes::new().into())] {
        client.call(Request::Create(CreateRequest { data, ..persistent(path) })).unwrap();
    }
    assert_null_and_empty(&engine);
    engine.backup(&copy).await.unwrap();
    engine.stop().await.unwrap();
    assert_null_and_empty(&start(&data).await);

    restore(&copy, &restored, Existing::Keep, Some(Duration::ZERO)).unwrap();
    let engine = Engine::builder().data_dir(&restored).quiet_time(Duration::ZERO);
    assert_null_and_empty(&engine.start().await.unwrap());
}

fn assert_null_and_empty(engine: &Engine) {
    let mut client = Client::connect(engine, LONG);
    for (path, expected) in [("/null", [0xff; 4]), ("/empty", [0; 4])] {
        client.send(&[get_data(path)]);
        let (header, mut body) = client.reply().unwrap();
        assert_eq!(header.error, 0);
        assert_eq!(body.take(4).unwrap(), expected.as_slice(), "{path}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_come_back_after_a_restart_expires() {
    let dir = tempfile::tempdir().unwrap();
    let tick = Duration::from_millis(20);
    let engine = Engine::builder().data_dir(dir.path()).tick(tick);
    let engine = engine.start().await.unwrap();
    let mut client = Client::connect(&engine, tick * 2);
    client.create("/lock", CreateMode::Ephemeral).unwrap();
    let ticket = client.ticket();
    engine.stop().await.unwrap();

    let engine = Engine::builder().data_dir(dir.path()).tick(tick);
    let engine = engine.start().await.unwrap();
    eventually("the session has expired", || engine.sessions() == 0);
    assert!(engine.idle_since().is_some());
    let (_, response) = Client::resume(&engine, &ticket, LONG);
    assert_eq!(response.timeout_ms, 0);
    assert!(!Client::connect(&engine, LONG).exists("/lock"));
}

#[tokio::test]
async fn two_engines_never_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(dir.path()).await;
    let second = Engine::builder().data_dir(dir.path()).start().await;
    let error = second.unwrap_err();
    assert!(matches!(error, StartError::Storage(StorageError::InUse { .. })));
    let sentence = error.to_string();
    assert!(sentence.contains(&dir.path().display().to_string()), "{sentence}");
    engine.stop().await.unwrap();
    start(dir.path()).await.stop().await.unwrap();
}

#[tokio::test]
async fn a_dropped_engine_frees_its_directory_soon() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(dir.path()).await;
    let mut client = Client::connect(&engine, LONG);
    client.create("/kept", CreateMode::Persistent).unwrap();
    drop(engine);
    let mut free = None;
    for _ in 0..2_000 {
        match Engine::builder().data_dir(dir.path()).start().await {
            Ok(engine) => {
                free = Some(engine);
                break;
            }
            Err(StartError::Storage(StorageError::InUse { .. })) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(e) => panic!("{e}"),
        }
    }
    let engine = free.expect("the directory is never released");
    assert!(Client::connect(&engine, LONG).exists("/kept"));
}

/// Symptom: an engine whose directory was removed continued to grant locks, while another one had started at the same
/// place.
#[tokio::test]
async fn an_engine_whose_directory_was_removed_stops_and_leaves_its_successor_alone() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let builder =
        Engine::builder().data_dir(home.join("data")).unix_socket(home.join("engine.sock"));
    let old = builder.clone().start().await.unwrap();
    let mut client = Client::connect(&old, LONG);
    client.create("/lock", CreateMode::Ephemeral).unwrap();
    std::fs::remove_dir_all(&home).unwrap();
    let new = builder.start().await.unwrap();

    let ended = tokio::time::timeout(PATIENCE, old.stopped()).await;
    let ended = ended.expect("the engine must stop").unwrap_err();
    assert!(matches!(&ended, EngineError::Displaced { path } if *path == home.join("data")));
    assert!(ended.to_string().contains("was removed or replaced"), "{ended}");
    assert!(client.rest().is_empty(), "its clients are disconnected");
    drop(old);
    assert!(!Client::connect(&new, LONG).exists("/lock"));
    lockkeeper_engine::backup(home.join("data"), dir.path().join("copy")).unwrap();
}

/// Symptom: an engine continued to acknowledge writes to a file that had been removed.
#[tokio::test]
async fn an_engine_of_which_a_data_file_was_removed_stops() {
    for name in ["lockkeeper.redb", "acknowledged", "commits.a", "commits.b", "FORMAT"] {
        let dir = tempfile::tempdir().unwrap();
        let engine = start(dir.path()).await;
        Client::connect(&engine, LONG).create("/a", CreateMode::Persistent).unwrap();
        std::fs::remove_file(dir.path().join(name)).unwrap();
        let ended = tokio::time::timeout(PATIENCE, engine.stopped()).await;
        let ended = ended.unwrap_or_else(|_| panic!("it continues without {name}")).unwrap_err();
        assert!(matches!(&ended, EngineError::DataRemoved { path } if *path == dir.path()));
    }
}

/// S3, S4: a failed commit was answered, or the engine continued after it.
#[tokio::test]
async fn s4_after_a_storage_error_nothing_is_answered_and_the_reason_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(dir.path()).await;
    let mut client = Client::connect(&engine, LONG);
    client.create("/acknowledged", CreateMode::Persistent).unwrap();
    engine.fail_next_commit();
    client.send(&[create("/lost", CreateMode::Persistent)]);
    client.send(&[exists("/acknowledged", false)]);
    assert!(client.reply().is_err(), "no reply follows");

    let ended = engine.stopped().await.unwrap_err();
    assert!(matches!(ended, EngineError::Storage(_)), "{ended}");
    assert!(engine.stop().await.is_err(), "it remains stopped");

    let engine = start(dir.path()).await;
    let mut client = Client::connect(&engine, LONG);
    assert!(client.exists("/acknowledged") && !client.exists("/lost"));
}

/// The same if the commit thread encounters the error instead of the tree thread.
#[tokio::test]
async fn s4_after_a_storage_error_of_a_group_nothing_is_answered_and_the_reason_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(dir.path()).await;
    let mut client = Client::connect(&engine, LONG);
    let nodes = engine.stats().nodes;
    engine.pause_commits();
    engine.fail_next_commit();
    client.send(&[create("/lost", CreateMode::Persistent)]);
    eventually("it is in the queue", || engine.stats().nodes > nodes);
    engine.resume_commits();
    assert!(client.reply().is_err(), "no reply follows");
    let ended = engine.stopped().await.unwrap_err();
    assert!(matches!(ended, EngineError::Storage(_)), "{ended}");
}

/// The caller's runtime has one thread, and the test blocks it all the time.
#[tokio::test(flavor = "current_thread")]
async fn an_engine_needs_nothing_of_the_callers_runtime() {
    let engine = Engine::builder().start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    for i in 0..100 {
        client.create(&format!("/n{i}"), CreateMode::Persistent).unwrap();
    }
}
