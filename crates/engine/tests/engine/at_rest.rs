//! The action of the embedding program after a load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper_engine::Engine;
use lockkeeper_wire::{CreateMode, Request};

use crate::client::{Client, LONG, create, eventually};

const MANY: usize = 1_000;

/// An engine for which [`LONG`] is short, and the number of times that it became idle.
async fn engine() -> (Engine, Arc<AtomicUsize>) {
    let rests = Arc::new(AtomicUsize::new(0));
    let counted = rests.clone();
    let builder = Engine::builder().max_session_timeout(LONG * 100).at_rest(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    (builder.start().await.unwrap(), rests)
}

/// Advances the time until more idle intervals would have been reported than are allowed.
async fn let_it_rest(engine: &Engine, client: &mut Client) {
    for _ in 0..5 {
        engine.skip_time(Duration::from_secs(2)).await;
        client.ping();
    }
}

#[tokio::test]
async fn rest_comes_twice_after_many_requests() {
    let (engine, rests) = engine().await;
    let mut client = Client::connect(&engine, LONG * 100);
    let_it_rest(&engine, &mut client).await;
    assert_eq!(rests.load(Ordering::Relaxed), 0, "there was no load");
    for after in [2, 4] {
        client.send(&vec![Request::Ping; MANY]);
        for _ in 0..MANY {
            client.reply().unwrap();
        }
        let_it_rest(&engine, &mut client).await;
        assert_eq!(rests.load(Ordering::Relaxed), after);
    }
}

#[tokio::test]
async fn what_ends_with_a_session_counts_as_load() {
    let (engine, rests) = engine().await;
    let mut client = Client::connect(&engine, LONG * 100);
    for (so_far, in_order) in [(0, false), (4, true)] {
        let mut owner = Client::connect(&engine, LONG);
        let nodes = (0..MANY).map(|i| create(&format!("/{i}"), CreateMode::Ephemeral));
        owner.send(&nodes.collect::<Vec<Request>>());
        for _ in 0..MANY {
            owner.reply().unwrap();
        }
        let_it_rest(&engine, &mut client).await;
        assert_eq!((rests.load(Ordering::Relaxed), engine.sessions()), (so_far + 2, 2));

        if in_order {
            owner.call(Request::CloseSession).unwrap();
        } else {
            engine.skip_time(LONG * 2).await;
        }
        eventually("its session has expired", || engine.sessions() == 1);
        let_it_rest(&engine, &mut client).await;
        assert_eq!(rests.load(Ordering::Relaxed), so_far + 4);
    }
}
