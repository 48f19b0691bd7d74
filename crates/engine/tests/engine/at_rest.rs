//! What the embedding program does when a load is over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper_engine::Engine;
use lockkeeper_wire::{CreateMode, Request};

use crate::client::{Client, create, eventually};

const LONG: Duration = Duration::from_secs(30);
const MANY: usize = 1_000;

/// An engine on which [`LONG`] is short.
async fn engine(give_back: fn()) -> Engine {
    let builder = Engine::builder().max_session_timeout(LONG * 100).at_rest(give_back);
    builder.start().await.unwrap()
}

/// Lets time pass until rest would have come more often than it may.
async fn let_it_rest(engine: &Engine, client: &mut Client) {
    for _ in 0..5 {
        engine.skip_time(Duration::from_secs(2)).await;
        client.ping();
    }
}

#[tokio::test]
async fn rest_comes_twice_after_many_requests() {
    static RESTS: AtomicUsize = AtomicUsize::new(0);
    let engine = engine(|| {
        RESTS.fetch_add(1, Ordering::Relaxed);
    })
    .await;
    let mut client = Client::connect(&engine, LONG * 100);
    let_it_rest(&engine, &mut client).await;
    assert_eq!(RESTS.load(Ordering::Relaxed), 0, "there was no load");
    for after in [2, 4] {
        client.send(&vec![Request::Ping; MANY]);
        for _ in 0..MANY {
            client.reply().unwrap();
        }
        let_it_rest(&engine, &mut client).await;
        assert_eq!(RESTS.load(Ordering::Relaxed), after);
    }
}

#[tokio::test]
async fn what_ends_with_a_session_counts_as_load() {
    static RESTS: AtomicUsize = AtomicUsize::new(0);
    let engine = engine(|| {
        RESTS.fetch_add(1, Ordering::Relaxed);
    })
    .await;
    let mut client = Client::connect(&engine, LONG * 100);
    let mut silent = Client::connect(&engine, LONG);
    let nodes: Vec<Request> =
        (0..MANY).map(|i| create(&format!("/{i}"), CreateMode::Ephemeral)).collect();
    silent.send(&nodes);
    for _ in 0..MANY {
        silent.reply().unwrap();
    }
    let_it_rest(&engine, &mut client).await;
    assert_eq!((RESTS.load(Ordering::Relaxed), engine.sessions()), (2, 2));

    engine.skip_time(LONG * 2).await;
    eventually("the silent session is over", || engine.sessions() == 1);
    let_it_rest(&engine, &mut client).await;
    assert_eq!(RESTS.load(Ordering::Relaxed), 4);
}
