//! Bare requests in place of a queue: the same transactions on nodes of the same kind, one under way for each
//! client at a time, with what waits for it in the next.
//!
//! They know which entries there are without a listing, and nobody waits for an item: this program tells the
//! consumers. No two try the same entry. They know no lost replies.

use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use lockkeeper::{Client, CreateMode, OpResult, Transaction, ZnodePath};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::items::{Consumers, Items, ON_THEIR_WAY, put_until_done};
use crate::lines::{close, sessions};
use crate::measure::{Measured, Plan};

/// What an entry is told of who has taken it is about as long.
const HOLDER: &[u8] = &[0x55; 120];

/// A name as long as an item's.
const ID: usize = 32;

/// The nodes.
#[derive(Clone)]
struct Nodes {
    entries: ZnodePath,
    segment: ZnodePath,
    bodies: ZnodePath,
    claims: ZnodePath,
}

impl Nodes {
    async fn make(client: &Client, path: &str) -> Result<Self> {
        let path = ZnodePath::new(path)?;
        let entries = path.child("entries")?;
        let segment = entries.child("0000000000")?;
        let nodes =
            Self { entries, segment, bodies: path.child("bodies")?, claims: path.child("claims")? };
        for node in [&nodes.segment, &nodes.bodies, &nodes.claims] {
            client.ensure(node, CreateMode::Persistent).await?;
        }
        Ok(nodes)
    }
}

/// A client with the node that each of its transactions writes to, and that of its session.
struct Writer {
    client: Client,
    marker: ZnodePath,
    worker: ZnodePath,
}

impl Writer {
    async fn new(client: &Client, path: &str) -> Result<Self> {
        let path = ZnodePath::new(path)?;
        client.ensure(&path, CreateMode::Persistent).await?;
        let own = |kind| path.child(&format!("{kind}-{:032x}", fastrand::u128(..)));
        let (marker, worker) = (own("marker")?, own("worker")?);
        for node in [&marker, &worker] {
            client.create(node, "", CreateMode::Ephemeral).await?;
        }
        Ok(Self { client: client.clone(), marker, worker })
    }

    fn steps(&self) -> Transaction {
        self.client.transaction().set_data(&self.marker, "", None)
    }
}

/// An entry that is free: its node, and the item's name.
type Entry = (ZnodePath, String);

/// As [`super::ours::measure`].
pub(crate) async fn measure(
    servers: &str,
    path: &str,
    consumers: Consumers,
    plan: Plan,
) -> Result<Measured> {
    let clients = sessions(servers, consumers.count + 1).await?;
    let (items, mut running) = (Items::new(), JoinSet::new());
    let nodes = Nodes::make(&clients[0], path).await?;
    let (offer, free) = mpsc::unbounded_channel();
    let free = Arc::new(Mutex::new(free));
    for client in &clients[1..] {
        let writer = Writer::new(client, path).await?;
        let (nodes, items, free) = (nodes.clone(), items.clone(), Arc::clone(&free));
        running.spawn(async move {
            loop {
                let mut entries = Vec::new();
                free.lock().await.recv_many(&mut entries, consumers.at_once()).await;
                for body in work(&writer, &nodes, &entries).await? {
                    items.done(&body)?;
                }
            }
        });
    }

    let writer = Writer::new(&clients[0], path).await?;
    let (ask, mut asked) = mpsc::unbounded_channel();
    running.spawn(async move {
        loop {
            let mut contents = Vec::new();
            asked.recv_many(&mut contents, ON_THEIR_WAY).await;
            for entry in put(&writer, &nodes, contents).await? {
                offer.send(entry)?;
            }
        }
    });
    let put = move |content| {
        let asked = ask.send(content).context("nobody puts");
        async move { asked }
    };
    let measured = put_until_done(&items, running, put, plan).await?;
    close(clients).await;
    Ok(measured)
}

/// One transaction.
async fn put(writer: &Writer, nodes: &Nodes, contents: Vec<Bytes>) -> Result<Vec<Entry>> {
    let ids: Vec<String> =
        contents.iter().map(|_| format!("{:032x}", fastrand::u128(..))).collect();
    let steps = writer.steps().check(&nodes.segment, Some(0));
    let steps = ids.iter().zip(contents).try_fold(steps, |steps, (id, content)| {
        let entry = nodes.segment.child(&format!("{id}.0-"))?;
        let steps = steps.create(&nodes.bodies.child(id)?, content, CreateMode::Persistent);
        anyhow::Ok(steps.create(&entry, "", CreateMode::PersistentSequential))
    })?;
    let results = steps.set_data(&nodes.entries, "", None).commit().await?;

    let made = results.iter().filter_map(|result| match result {
        OpResult::Create { path } | OpResult::Create2 { path, .. } => ZnodePath::new(path).ok(),
        _ => None,
    });
    let entries = made.filter(|node| node.name().len() > ID);
    Ok(entries.zip(ids).collect())
}

/// One transaction that takes entries, beside the reads of what the items contain, and one that ends them.
async fn work(writer: &Writer, nodes: &Nodes, entries: &[Entry]) -> Result<Vec<Bytes>> {
    let steps = writer.steps().check(&writer.worker, None);
    let taking = entries.iter().try_fold(steps, |steps, (entry, id)| {
        let steps = steps.set_data(entry, HOLDER, Some(0));
        let claim = nodes.claims.child(&format!("{id}.1"))?;
        anyhow::Ok(steps.create(&claim, id.clone(), CreateMode::Ephemeral))
    })?;
    let bodies = async {
        let read =
            entries.iter().map(|(_, id)| anyhow::Ok(writer.client.data(&nodes.bodies.child(id)?)));
        // Sent before any is waited for.
        let read = read.collect::<Result<Vec<_>>>()?;
        let mut bodies = Vec::new();
        for body in read {
            bodies.push(body.await?.0);
        }
        anyhow::Ok(bodies)
    };
    let (taken, bodies) = tokio::join!(biased; taking.commit(), bodies);
    taken?;

    let ending = entries.iter().try_fold(writer.steps(), |steps, (entry, id)| {
        let steps = steps.delete(&nodes.claims.child(&format!("{id}.1"))?, None);
        anyhow::Ok(steps.delete(entry, Some(1)).delete(&nodes.bodies.child(id)?, None))
    })?;
    ending.commit().await?;
    bodies
}
