//! A scheduler that runs once in the cluster: every instance stands for election, one leads, and all know its
//! address.
//!
//! `cargo run --example scheduler` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;
use std::time::Duration;

use lockkeeper::{Client, Election};
use lockkeeper_engine::Engine;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());

    // Like three programs, each with its own session.
    let mut instances = Vec::new();
    for number in 1..=3 {
        let client = Client::connect(&servers).await?;
        instances.push(tokio::spawn(async move {
            let id = format!("instance-{number}");
            let election = Election::builder(&client, "/election/scheduler").id(&id).build()?;
            // Leads again after a loss, until the work is done once.
            let jobs = election.lead(|leadership| async move {
                leadership.proclaim(format!("10.0.0.{number}:4000")).await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
                println!("instance {number} has run its jobs, with token {}", leadership.token());
                Ok::<_, lockkeeper::ProclaimError>(())
            });
            jobs.await??;
            client.close().await;
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        }));
    }

    // Any client can watch the leader. Changes in quick succession may be reported as one.
    let client = Client::connect(&servers).await?;
    let mut leaders = Election::new(&client, "/election/scheduler")?.observe().await?;
    let watching = tokio::spawn(async move {
        loop {
            match leaders.current() {
                Some(leader) => println!("{} leads; it is at {:?}", leader.id, leader.value),
                None => println!("no instance leads"),
            }
            if let Err(error) = leaders.next().await {
                return println!("cannot watch the leader: {error}");
            }
        }
    });

    for instance in instances {
        instance.await?.map_err(|error| error.to_string())?;
    }
    watching.abort();
    client.close().await;
    Ok(())
}
