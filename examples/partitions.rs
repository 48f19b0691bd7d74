//! A crawl whose shards are shared by its workers: a second worker takes about half of them, and gives them back
//! when it leaves.

use std::error::Error;

use lockkeeper::{Client, PartitionMember, Partitions};
use lockkeeper_engine::Engine;

const SHARDS: usize = 8;

/// Works on the assignments of a member, until it has left.
async fn work(member: &PartitionMember) {
    while let Ok(shard) = member.next().await {
        println!("{}: {} with token {}", member.name(), shard.item(), shard.token());
        tokio::spawn(async move {
            tokio::select! {
                _until = shard.moving() => println!("{} is finished for now", shard.item()),
                reason = shard.lost() => println!("{} is lost: {reason}", shard.item()),
            }
            // It may be lost by now.
            let _ = shard.release().await;
        });
    }
}

async fn join(client: &Client, name: &str) -> Result<PartitionMember, Box<dyn Error>> {
    let shards = (0..SHARDS).map(|n| format!("shard-{n}"));
    Ok(Partitions::builder(client, "/crawl").items(shards).build()?.join(name).await?)
}

/// Lets two workers work until this is true.
async fn until(one: &PartitionMember, two: &PartitionMember, is_so: impl Fn() -> bool) {
    let is_so = async {
        while !is_so() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = work(one) => {}
        () = work(two) => {}
        () = is_so => {}
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let first = Client::connect(&engine.connect_string()).await?;
    let second = Client::connect(&engine.connect_string()).await?;

    let alice = join(&first, "alice").await?;
    let bob = join(&second, "bob").await?;
    let is_shared = || {
        let (hers, his) = (alice.owned().len(), bob.owned().len());
        his > 0 && hers + his == SHARDS
    };
    until(&alice, &bob, is_shared).await;
    println!("alice has {:?}, bob has {:?}", alice.owned(), bob.owned());

    bob.leave().await?;
    while alice.owned().len() < SHARDS {
        let shard = alice.next().await?;
        println!("alice: {} with token {}", shard.item(), shard.token());
        tokio::spawn(async move { shard.moving().await });
    }
    println!("alice has {:?}", alice.owned());

    alice.leave().await?;
    first.close().await;
    second.close().await;
    Ok(())
}
