//! Live configuration for a service, which keeps running while its server is restarted.
//!
//! `cargo run --example live_configuration` starts a server of its own.

use lockkeeper::{Client, Shared, ValueChange};
use lockkeeper_engine::Engine;

type Limits = std::collections::BTreeMap<String, u32>;

/// The service: goes on with the last good limits, whatever happens to the servers.
async fn serve(limits: Shared<Limits>) {
    let mut changes = limits.changes();
    while changes.latest().is_none_or(|limits| limits["requests"] < 250) {
        match changes.next().await {
            Ok(ValueChange::Set(now)) => println!("service: works with {:?}", now.value),
            Ok(other) => println!("service: {other:?}; goes on with {:?}", changes.latest()),
            // Not while servers are away: then it waits.
            Err(error) => return println!("service: no longer follows: {error}"),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("lockkeeper-live-{}", std::process::id()));
    let server =
        |port| Engine::builder().listen(([127, 0, 0, 1], port).into()).data_dir(&directory);
    let engine = server(0).start().await?;
    let port = engine.addr().expect("it listens").port();

    let client = Client::connect(&format!("127.0.0.1:{port}")).await?;
    let limits: Shared<Limits> = Shared::new(&client, "/limits")?;
    let service = tokio::spawn(serve(limits.clone()));
    limits.set(&Limits::from([("requests".into(), 100)])).await?;
    engine.stop().await?;
    println!("the server is away");
    let engine = server(port).start().await?;
    limits.set(&Limits::from([("requests".into(), 250)])).await?;
    service.await?;

    client.close().await;
    engine.stop().await?;
    Ok(std::fs::remove_dir_all(directory)?)
}
