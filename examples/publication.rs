//! Configuration of any size that is never seen half changed, with its history: published, watched, and rolled
//! back.
//!
//! `cargo run --example publication` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::collections::BTreeMap;
use std::error::Error;

use lockkeeper::{Client, Publication, ValueChange};
use lockkeeper_engine::Engine;

/// Which host serves which customer.
type Routes = BTreeMap<String, String>;

/// 50,000 customers are more than two megabytes: more than a node can hold.
fn routes(host: &str) -> Routes {
    let route = |n| (format!("customer-{n:05}"), format!("{host}.example.org:8080"));
    (0..50_000).map(route).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());
    let (operator, service) = (Client::connect(&servers).await?, Client::connect(&servers).await?);
    let published: Publication<Routes> =
        Publication::builder(&operator, "/routes").keep(3).build()?;
    let first = published.publish(&routes("old")).await?;

    let followed: Publication<Routes> = Publication::new(&service, "/routes")?;
    let mut editions = followed.follow();
    let work = async {
        loop {
            match editions.next().await? {
                ValueChange::Set(now) => {
                    let host = &now.value["customer-00000"];
                    let all = now.value.values().all(|other| other == host);
                    println!("{} customers at {host}; all of them: {all}", now.value.len());
                    if host.starts_with("old") && now.revision.version > 1 {
                        return Ok::<_, Box<dyn Error>>(());
                    }
                }
                // Unreadable editions are reported, and the last good one stays.
                other => println!("{other:?}"),
            }
        }
    };
    let change = async {
        let second = published.publish(&routes("new")).await?;
        println!(
            "published edition {second}; the editions kept are {:?}",
            published.editions().await?
        );
        let again = published.rollback(first).await?;
        println!("back to edition {first}, as edition {again:?}");
        Ok::<_, Box<dyn Error>>(())
    };
    let (worked, changed) = tokio::join!(work, change);
    worked?;
    changed?;

    service.close().await;
    operator.close().await;
    Ok(())
}
