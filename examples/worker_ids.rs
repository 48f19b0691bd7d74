//! Two services that mint ids of orders without a request for each: each has a unique number.
//!
//! `cargo run --example worker_ids` starts a server of its own; with an argument such as `127.0.0.1:2181`, it uses
//! that one.

use std::error::Error;

use lockkeeper::{Client, IdLayout, WorkerIds};
use lockkeeper_engine::Engine;

/// Milliseconds since 2024, 64 services and 16 ids in a millisecond of each, in 63 bits.
const LAYOUT: IdLayout =
    IdLayout { epoch_unix_ms: 1_704_067_200_000, time_bits: 53, number_bits: 6, sequence_bits: 4 };

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());

    // Usually each of these is a separate program.
    for address in ["10.0.0.7:80", "10.0.0.8:80"] {
        let client = Client::connect(&servers).await?;
        let workers = WorkerIds::builder(&client, "/order-ids")
            .numbers(0..64)
            .layout(LAYOUT)
            .label(address)
            .build()?;
        let worker = workers.acquire().await?;
        println!("{address} has the number {}", worker.number());

        // From here on, no id needs a request.
        for _ in 0..3 {
            let id = worker.mint()?;
            println!("  order {id}: {:?}", LAYOUT.parts(id));
        }

        // A large batch may exceed the reservation: this waits for the servers where `mint` would fail.
        let mut last = worker.mint()?;
        for _ in 0..200_000 {
            let id = worker.next().await?;
            assert!(id > last, "ids grow");
            last = id;
        }
        worker.release().await?;
        client.close().await;
    }
    Ok(())
}
