//! Workers with a unique number each: the first free one, for as long as they live.
//!
//! `cargo run --example names` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;
use std::time::Duration;

use lockkeeper::{Client, NameClaim, Names};
use lockkeeper_engine::Engine;

/// The maximum number of workers.
const WORKERS: u32 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());

    // Usually each of these is a separate program.
    let (one, two) = (Client::connect(&servers).await?, Client::connect(&servers).await?);
    let first = number(&one, "10.0.0.7:80").await?;
    let second = number(&two, "10.0.0.8:80").await?;
    println!("numbers: {} and {}", first.name(), second.name());

    // The holder of number 1 is found by its name.
    let names = Names::new(&two, "/numbers")?;
    if let Some(holder) = names.holder(first.name()).await? {
        let label = holder.info.and_then(|info| info.label).unwrap_or_default();
        println!("number {} is {label}, with token {}", first.name(), holder.token);
    }

    // Anything that requires the number must check that it is still held.
    first.ensure(Duration::from_millis(500))?;
    first.release().await?;
    second.release().await?;

    println!("taken: {:?}", names.taken().await?);
    one.close().await;
    two.close().await;
    Ok(())
}

async fn number(client: &Client, address: &str) -> Result<NameClaim, Box<dyn Error>> {
    let names = Names::builder(client, "/numbers").label(address).build()?;
    let claim = names.claim_any((1..=WORKERS).map(|number| number.to_string())).await?;
    Ok(claim.ok_or("all numbers are taken")?)
}
