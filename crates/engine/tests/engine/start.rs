//! Starts that are refused, each with a sentence that names the cause and a remedy.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use lockkeeper_engine::{Builder, Durability, Engine};
use lockkeeper_wire::CreateMode;

use crate::client::{Client, LONG};

/// The sentence with which a start is refused.
async fn refusal(builder: Builder) -> String {
    match builder.start().await {
        Ok(engine) => panic!("started on {}", engine.connect_string()),
        Err(e) => e.to_string(),
    }
}

fn mode(path: &std::path::Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_port_that_is_taken() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let sentence = refusal(Engine::builder().listen(address)).await;
    assert!(sentence.contains(&address.to_string()), "{sentence}");
    assert!(sentence.contains("another port"), "{sentence}");
}

#[tokio::test]
async fn an_address_of_another_machine() {
    let builder = Engine::builder().listen("192.0.2.1:0".parse().unwrap());
    let sentence = refusal(builder.clone()).await;
    assert!(sentence.contains("allow plaintext"), "{sentence}");
    let sentence = refusal(builder.allow_plaintext()).await;
    assert!(sentence.contains("192.0.2.1:0"), "{sentence}");
}

#[tokio::test]
async fn durability_without_a_directory() {
    let sentence = refusal(Engine::builder().durability(Durability::Sync)).await;
    assert!(sentence.contains("data directory"), "{sentence}");
}

#[tokio::test]
async fn a_refused_start_leaves_the_directory_free() {
    let dir = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let builder = Engine::builder().data_dir(dir.path());
    refusal(builder.clone().listen(taken)).await;
    builder.start().await.unwrap();
}

#[tokio::test]
async fn several_addresses_and_a_socket_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("new/engine.sock");
    let any = "127.0.0.1:0".parse().unwrap();
    let builder = Engine::builder().listen(any).listen(any);
    let engine = builder.unix_socket(&socket).start().await.unwrap();
    assert_eq!(engine.addrs().len(), 2);
    let mut first = Client::connect(&engine, LONG);
    first.create("/a", CreateMode::Persistent).unwrap();
    let others = [engine.addrs()[1].to_string(), format!("unix:{}", socket.display())];
    for connect in others {
        assert!(Client::connect_to(&connect, LONG).exists("/a"), "{connect}");
    }
    assert_eq!(mode(&socket), 0o600);
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
}

#[tokio::test]
async fn a_socket_may_be_for_others_too() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("engine.sock");
    let builder = Engine::builder().unix_socket(&socket).unix_socket_mode(0o660);
    let _engine = builder.start().await.unwrap();
    assert_eq!(mode(&socket), 0o660);
}

#[tokio::test]
async fn the_socket_of_a_live_engine_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("engine.sock");
    let builder = Engine::builder().unix_socket(&socket);
    let engine = builder.clone().start().await.unwrap();
    let sentence = refusal(builder).await;
    assert!(sentence.contains("another engine listens on"), "{sentence}");
    assert!(sentence.contains(&socket.display().to_string()), "{sentence}");
    Client::connect(&engine, LONG);
}

#[tokio::test]
async fn the_socket_of_a_dead_engine_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("engine.sock");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let builder = Engine::builder().unix_socket(&socket);
    Client::connect(&builder.start().await.unwrap(), LONG);
}

/// Engines that find the same dead socket at the same moment: one starts, and the others report it.
#[tokio::test]
async fn a_race_for_a_dead_socket_has_one_winner() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("engine.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let starts: Vec<_> =
        (0..8).map(|_| tokio::spawn(Engine::builder().unix_socket(&socket).start())).collect();
    let mut winners = Vec::new();
    for start in starts {
        match start.await.unwrap() {
            Ok(engine) => winners.push(engine),
            Err(e) => assert!(e.to_string().contains("another engine listens on"), "{e}"),
        }
    }
    assert_eq!(winners.len(), 1);
    Client::connect(&winners[0], LONG);
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    std::fs::write(&path, "precious").unwrap();
    let sentence = refusal(Engine::builder().unix_socket(&path)).await;
    assert!(sentence.contains("not a socket"), "{sentence}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[tokio::test]
async fn a_socket_path_that_is_too_long() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x".repeat(107));
    let sentence = refusal(Engine::builder().unix_socket(&path)).await;
    let len = path.as_os_str().len().to_string();
    assert!(sentence.contains(&len) && sentence.contains("at most"), "{sentence}");
}
