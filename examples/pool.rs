//! Two GPUs, and four jobs of two users: each job takes one and learns which. No user has both while others wait
//! for one.
//!
//! `cargo run --example pool` starts a server of its own; with an argument such as `127.0.0.1:2181`, it uses
//! that one.

use std::error::Error;
use std::time::Duration;

use lockkeeper::{Client, Pool};
use lockkeeper_engine::Engine;

type Failure = Box<dyn Error + Send + Sync>;

async fn train(servers: String, user: &'static str, job: u32) -> Result<(), Failure> {
    let client = Client::connect(&servers).await?;
    let gpus = Pool::builder(&client, "/pools/gpu")
        .things(["gpu-0", "gpu-1"])
        .at_most(user, 1)
        .label(format!("{user}'s job {job}"))
        .build()?;

    let gpu = gpus.acquire().await?;
    println!("job {job} of {user} has {} with token {}", gpu.name(), gpu.token());
    tokio::select! {
        // For example as `CUDA_VISIBLE_DEVICES` of a child process.
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
        reason = gpu.lost() => return Err(format!("{} was lost: {reason}", gpu.name()).into()),
    }
    gpu.release().await?;
    client.close().await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());

    let users = [("ann", 1), ("ann", 2), ("bob", 3), ("ann", 4)];
    let jobs = users.map(|(user, job)| tokio::spawn(train(servers.clone(), user, job)));
    for job in jobs {
        job.await??;
    }

    let client = Client::connect(&servers).await?;
    let all = Pool::builder(&client, "/pools/gpu").things(["gpu-0", "gpu-1"]).build()?;
    println!("free: {:?}", all.inspect().await?.free);
    client.close().await;
    Ok(())
}
