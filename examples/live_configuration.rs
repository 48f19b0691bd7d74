//! Live configuration for a service, which keeps running while its server is restarted, and starts without one from
//! its last known values.
//!
//! `cargo run --example live_configuration` starts a server of its own.

use std::path::Path;

use lockkeeper::{Client, Shared, ValueChange};
use lockkeeper_engine::Engine;

type Limits = std::collections::BTreeMap<String, u32>;

/// The service: continues with the last good limits during an outage.
async fn serve(
    servers: String,
    file: &Path,
    enough: u32,
) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::builder().connect_later(&servers)?;
    let limits: Shared<Limits> = Shared::new(&client, "/limits")?;
    let mut changes = limits.changes();
    match changes.keep_in(file).await {
        Ok(true) => println!("service: starts with {:?}", changes.latest()),
        Ok(false) => println!("service: starts for the first time"),
        Err(error) => println!("service: {error}"),
    }
    while changes.latest().is_none_or(|limits| limits["requests"] < enough) {
        // During an outage, it waits.
        match changes.next().await? {
            ValueChange::Set(now) => println!("service: works with {:?}", now.value),
            other => println!("service: {other:?}; continues with {:?}", changes.latest()),
        }
    }
    changes.kept().await?;
    client.close().await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("lockkeeper-live-{}", std::process::id()));
    let file = directory.join("limits.last");
    let server = |port| {
        Engine::builder().listen(([127, 0, 0, 1], port).into()).data_dir(directory.join("data"))
    };
    std::fs::create_dir_all(&directory)?;
    let engine = server(0).start().await?;
    let port = engine.addr().expect("it listens").port();
    let servers = format!("127.0.0.1:{port}");

    let admin = Client::connect(&servers).await?;
    let limits: Shared<Limits> = Shared::new(&admin, "/limits")?;
    let change = async {
        limits.set(&Limits::from([("requests".into(), 100)])).await?;
        limits.set(&Limits::from([("requests".into(), 250)])).await
    };
    let (served, changed) = tokio::join!(serve(servers.clone(), &file, 250), change);
    served?;
    changed?;

    engine.stop().await?;
    println!("the server is away, and the service starts again");
    let restart = async {
        let engine = server(port).start().await?;
        limits.set(&Limits::from([("requests".into(), 500)])).await?;
        Ok::<_, Box<dyn std::error::Error>>(engine)
    };
    let (served, engine) = tokio::join!(serve(servers, &file, 500), restart);
    served?;

    admin.close().await;
    engine?.stop().await?;
    Ok(std::fs::remove_dir_all(directory)?)
}
