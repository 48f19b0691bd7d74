//! Ten thousand followers of one value in one process: the server has one watch for them, and sends one event.

use std::time::Duration;

use anyhow::{Result, ensure};
use lockkeeper::{Shared, ValueChange};
use lockkeeper_wire::OpCode;
use tokio::sync::mpsc;

use crate::Observed;

crate::contract!("scale": ten_thousand_subscribers_share_a_watch);

const SUBSCRIBERS: usize = 10_000;

const VALUE: &str = "/value";

/// Longer than any of them waits.
const LIMIT: Duration = Duration::from_secs(120);

async fn ten_thousand_subscribers_share_a_watch((participant, writer): Observed) -> Result<()> {
    let value: Shared<u64> = Shared::new(&writer, VALUE)?;
    value.set(&1).await?;
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut following = tokio::task::JoinSet::new();
    for _ in 0..SUBSCRIBERS {
        let follower: Shared<u64> = Shared::new(&participant.client, VALUE)?;
        let tell = tell.clone();
        following.spawn(async move {
            let mut changes = follower.changes();
            while let Ok(ValueChange::Set(now)) = changes.next().await {
                let _ = tell.send(now.value);
            }
        });
    }
    let mut all_told = async |wanted: u64| {
        for _ in 0..SUBSCRIBERS {
            let value = tokio::time::timeout(LIMIT, told.recv()).await?;
            ensure!(value == Some(wanted), "told {value:?} instead of {wanted}");
        }
        Ok(())
    };

    all_told(1).await?;
    participant.proxy.clear();
    value.set(&2).await?;
    all_told(2).await?;
    let events = participant.proxy.events().len();
    ensure!(events == 1, "the server has told {events} times of one change");
    let requests = participant.proxy.requests();
    let reads = requests.iter().filter(|op| **op == OpCode::GetData).count();
    ensure!(reads <= SUBSCRIBERS, "{reads} reads");
    following.shutdown().await;
    Ok(())
}
