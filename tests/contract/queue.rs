//! Queues: nothing that was put is lost or done twice, and nobody is woken for nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use lockkeeper::{
    AtMostOnce, Client, CreateMode, ErrorCode, Failure, Item, LossReason, Outcome, Queue,
    QueueError, Raw, State, Verdict, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;
use tokio::task::JoinHandle;

use crate::{Clients, Observed, Pair, contract, next_session};

contract!(queue);

const JOBS: &str = "/app/jobs";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(30);

/// A wait that ends without an item.
const SHORT: Duration = Duration::from_millis(100);

fn node(name: &str) -> ZnodePath {
    ZnodePath::new(&format!("{JOBS}{name}")).expect("a path")
}

fn jobs(client: &Client) -> Result<Queue<u32>> {
    Ok(Queue::new(client, JOBS)?)
}

fn taking(queue: &Queue<u32>) -> JoinHandle<Result<Item<u32>, QueueError>> {
    let queue = queue.clone();
    tokio::spawn(async move { queue.take().await })
}

async fn taken(taking: JoinHandle<Result<Item<u32>, QueueError>>) -> Result<Item<u32>> {
    Ok(tokio::time::timeout(LONG, taking).await.context("nothing is taken")???)
}

/// Takes what there is, and records it as done.
async fn drained(queue: &Queue<u32>) -> Result<Vec<u32>> {
    let mut values = Vec::new();
    while let Some(item) = queue.try_take().await? {
        values.push(*item.value());
        item.done().await?;
    }
    Ok(values)
}

/// Waits until so many consumers stand in line.
async fn in_line(observer: &Client, count: usize) -> Result<()> {
    children_reach(observer, &node("/line"), count).await
}

async fn items_come_in_order_and_are_gone_when_they_are_done((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    let first = ours.put(&1).await?;
    let more = ours.put_all(&[2, 3, 4]).await?;
    assert_eq!(more.iter().chain([&first]).collect::<BTreeSet<_>>().len(), 4);

    let item = theirs.take().await?;
    assert_eq!((*item.value(), item.id(), item.attempt()), (1, first.as_str(), 1));
    assert!(item.is_held() && item.deadline().is_some() && !item.is_ended());
    let token = item.token();
    item.done().await?;
    assert!(item.is_ended());
    assert!(matches!(item.done().await, Err(QueueError::Ended { .. })));

    let second = theirs.take().await?;
    assert!(second.token() > token);
    second.done().await?;
    assert_eq!(drained(&theirs).await?, [3, 4]);
    assert!(theirs.try_take().await?.is_none() && ours.try_take().await?.is_none());
    assert!(theirs.take_timeout(SHORT).await?.is_none());
    for part in ["/bodies", "/claims", "/entries/0000000000", "/line"] {
        children_reach(&one, &node(part), 0).await?;
    }
    Ok(())
}

async fn an_item_has_one_holder((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    ours.put_all(&[1, 2]).await?;
    let (mine, other) = (ours.take().await?, theirs.take().await?);
    assert_ne!(mine.value(), other.value());
    assert!(ours.try_take().await?.is_none() && theirs.try_take().await?.is_none());
    mine.done().await?;
    Ok(other.done().await?)
}
