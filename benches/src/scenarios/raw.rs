//! Plain reads and writes, with the same client on each server.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use bytes::Bytes;
use lockkeeper::{Client, CreateMode, ZnodePath};
use lockkeeper_engine::Durability;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::measure::Plan;
use crate::system::System;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    SetData,
    CreateDelete,
    Data,
    Exists,
}

impl Operation {
    const ALL: [Self; 4] = [Self::SetData, Self::CreateDelete, Self::Data, Self::Exists];
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SetData => "set_data",
            Self::CreateDelete => "create_and_delete",
            Self::Data => "get_data",
            Self::Exists => "exists",
        })
    }
}

/// The tasks of the one client.
const TASKS: [usize; 3] = [1, 64, 256];

/// What a lock's node holds is about as long.
const DATA: &[u8] = &[0x55; 100];

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.settings.rounds;
    let systems = [
        System::Engine(Durability::Sync),
        System::Engine(Durability::Os),
        System::Engine(Durability::Memory),
        System::OnZooKeeper,
    ];
    for tasks in TASKS {
        for operation in Operation::ALL {
            let turns = systems.map(|system| (system, format!("{operation}, {tasks} tasks")));
            bench
                .interleave(rounds, &turns, async |bench, &(system, _)| {
                    let servers = bench.peers.server_of(system).await?;
                    let plan = bench.settings.plan;
                    let count = measure(&servers, operation, tasks, plan).await?;
                    let per_second = count as f64 / plan.measure.as_secs_f64();
                    bench.note(system, tasks, &format!("{operation}_per_s"), per_second);
                    Ok(())
                })
                .await;
        }
    }
    Ok(())
}

/// How many operations came to an end while it was measured.
async fn measure(servers: &str, operation: Operation, tasks: usize, plan: Plan) -> Result<u64> {
    let client = Client::connect(servers).await?;
    let root = ZnodePath::new("/raw")?;
    client.ensure(&root, CreateMode::Persistent).await?;
    let data = Bytes::from_static(DATA);
    let mut paths = Vec::new();
    for task in 0..tasks {
        let path = root.child(&format!("node-{task}"))?;
        client.create(&path, data.clone(), CreateMode::Ephemeral).await?;
        paths.push(path);
    }

    let window = plan.begin();
    let data = Arc::new(data);
    let mut running = JoinSet::new();
    for path in paths {
        let (client, data) = (client.clone(), data.clone());
        running.spawn(async move {
            let below = path.parent().context("a node has a parent")?.child("made-")?;
            let (mut start, mut count) = (Instant::now(), 0_u64);
            while !window.is_over(start) {
                perform(&client, operation, (&path, &below), &data).await?;
                start = Instant::now();
                count += u64::from(window.counts(start));
            }
            anyhow::Ok(count)
        });
    }

    let mut count = 0;
    for result in running.join_all().await {
        count += result?;
    }
    client.close().await;
    Ok(count)
}

async fn perform(
    client: &Client,
    operation: Operation,
    (own, prefix): (&ZnodePath, &ZnodePath),
    data: &Bytes,
) -> Result<()> {
    match operation {
        Operation::SetData => drop(client.set_data(own, data.clone(), None).await?),
        Operation::CreateDelete => {
            let mode = CreateMode::EphemeralSequential;
            let made = client.create(prefix, data.clone(), mode).await?;
            client.delete(&made.path, None).await?;
        }
        Operation::Data => drop(client.data(own).await?),
        Operation::Exists => drop(client.exists(own).await?),
    }
    Ok(())
}
