//! Workers that know each other: each takes the work whose key belongs to it in the view of all.
//!
//! `cargo run --example group` starts a server of its own; with an argument such as `127.0.0.1:2181`, it
//! uses that one.

use std::error::Error;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use lockkeeper::{Client, Group, GroupView, MemberChange};
use lockkeeper_engine::Engine;

/// The worker that a key belongs to: in the same view, it is the same in all programs of one build. Work that must
/// never run on two workers needs a lock too, because views may differ for a moment.
fn worker_of(view: &GroupView, key: &str) -> Option<String> {
    let weight = |id: &String| {
        let mut hasher = DefaultHasher::new();
        (id, key).hash(&mut hasher);
        hasher.finish()
    };
    view.members().map(|member| member.id).max_by_key(weight)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());

    // Three machines; each joins with its address.
    let mut workers = Vec::new();
    for n in 1..=3 {
        let client = Client::connect(&servers).await?;
        let group = Group::new(&client, "/group")?;
        let membership = group.join(format!("worker-{n}"), format!("10.0.0.{n}:80")).await?;
        workers.push((client, group, membership));
    }

    // They begin when all of them have joined.
    let members = workers[0].1.watch().await?;
    let Some(view) = members.wait_for_timeout(3, Duration::from_secs(10)).await? else {
        return Err("some worker is missing".into());
    };
    for key in ["orders", "invoices", "reports"] {
        println!("{key}: {}", worker_of(&view, key).unwrap_or_default());
    }

    // One worker leaves. Its work goes to the others; nothing else moves.
    let mut changes = members.changes();
    let (client, _, membership) = workers.swap_remove(1);
    membership.leave().await?;
    let update = changes.next().await?;
    if let [MemberChange::Left(member)] = &update.changes[..] {
        println!("{} has stopped; view {} follows {}", member.id, update.view.id(), view.id());
    }
    for key in ["orders", "invoices", "reports"] {
        println!("{key}: {}", worker_of(&update.view, key).unwrap_or_default());
    }

    drop((changes, members));
    client.close().await;
    for (client, _, membership) in workers {
        membership.leave().await?;
        client.close().await;
    }
    Ok(())
}
