//! A counter: many tasks of two programs add to it, each add exactly once.
//!
//! `cargo run --example counter` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;

use lockkeeper::{Client, Counter, IdBlocks};
use lockkeeper_engine::Engine;

const TASKS: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());
    // Like two programs, each with its own session.
    let (alice, bob) = (Client::connect(&servers).await?, Client::connect(&servers).await?);

    let mut adding = Vec::new();
    for client in [&alice, &bob] {
        let counter = Counter::new(client, "/orders")?;
        for _ in 0..TASKS {
            let counter = counter.clone();
            // Adds of one program that come together are one write.
            adding.push(tokio::spawn(async move { counter.add(1).await }));
        }
    }
    let mut highest = 0;
    for add in adding {
        highest = highest.max(add.await??.after);
    }
    println!("{} tasks added 1; the highest sum was {highest}", 2 * TASKS);

    // Unique numbers without a write for each.
    let ids = IdBlocks::new(&Counter::new(&alice, "/ids")?, 1_000);
    println!("the next numbers are {} and {}", ids.next().await?, ids.next().await?);
    alice.close().await;
    bob.close().await;
    Ok(())
}
