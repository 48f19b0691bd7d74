//! A map-reduce step: all workers map, and when all have, all reduce. No worker begins alone, and if one dies, the
//! others learn its name.
//!
//! `cargo run --example barrier` starts a server of its own; with an argument such as `127.0.0.1:2181`, it uses
//! that one.

use std::error::Error;
use std::time::Duration;

use lockkeeper::{BarrierError, Client, DoubleBarrier};
use lockkeeper_engine::Engine;

type Failure = Box<dyn Error + Send + Sync>;

const WORKERS: [&str; 3] = ["ann", "bob", "cem"];

/// How long a worker waits for the others.
const PATIENCE: Duration = Duration::from_secs(2);

fn step(client: &Client) -> Result<DoubleBarrier, BarrierError> {
    DoubleBarrier::builder(client, "/steps/count-words").names(WORKERS).build()
}

/// Two rounds; `dies`: dies in the second one.
async fn work(servers: String, name: &'static str, dies: bool) -> Result<(), Failure> {
    let client = Client::connect(&servers).await?;
    let step = step(&client)?;
    for task in ["map", "reduce"] {
        let round = step.enter_timeout(name, PATIENCE).await?;
        println!("{name} begins to {task} with {:?}", round.parties());
        if dies && task == "reduce" {
            // As if it was killed: it has not left.
            return Err("I die".into());
        }
        round.leave().await?;
    }
    client.close().await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());

    // Two of three: they do not begin, and learn which one is missing.
    let (ann, bob) =
        tokio::join!(work(servers.clone(), "ann", false), work(servers.clone(), "bob", false));
    for waited in [ann, bob] {
        println!("{}", waited.err().ok_or("they have begun without the third")?);
    }

    let all = WORKERS.map(|name| tokio::spawn(work(servers.clone(), name, name == "cem")));
    for (name, worked) in WORKERS.iter().zip(all) {
        match worked.await? {
            Ok(()) => println!("{name} has done both"),
            Err(error) => println!("{name}: {error}"),
        }
    }
    Ok(())
}
