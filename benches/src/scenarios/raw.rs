//! Plain reads and writes, with the same client on each server.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use lockkeeper::{Client, CreateMode, ZnodePath};
use lockkeeper_engine::Durability;

use crate::bench::Bench;
use crate::measure::{Plan, repeat};
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
                    let per_second = measure(&servers, operation, tasks, plan).await?;
                    bench.note(system, tasks, &format!("{operation}_per_s"), per_second);
                    Ok(())
                })
                .await;
        }
    }
    Ok(())
}

/// How many operations a second came to an end.
async fn measure(servers: &str, operation: Operation, tasks: usize, plan: Plan) -> Result<f64> {
    let client = Client::connect(servers).await?;
    let root = ZnodePath::new("/raw")?;
    client.ensure(&root, CreateMode::Persistent).await?;
    let mut operations = Vec::new();
    for task in 0..tasks {
        let own = root.child(&format!("node-{task}"))?;
        client.create(&own, Bytes::from_static(DATA), CreateMode::Ephemeral).await?;
        let task = Arc::new((client.clone(), own, root.child("made-")?));
        operations.push(move || perform(operation, Arc::clone(&task)));
    }
    let measured = repeat(operations, plan).await?;
    client.close().await;
    Ok(measured.per_second)
}

/// One operation of a task: on its own node, or on one that it makes and deletes.
async fn perform(operation: Operation, task: Arc<(Client, ZnodePath, ZnodePath)>) -> Result<()> {
    let (client, own, prefix) = &*task;
    let data = Bytes::from_static(DATA);
    match operation {
        Operation::SetData => drop(client.set_data(own, data, None).await?),
        Operation::CreateDelete => {
            let made = client.create(prefix, data, CreateMode::EphemeralSequential).await?;
            client.delete(&made.path, None).await?;
        }
        Operation::Data => drop(client.data(own).await?),
        Operation::Exists => drop(client.exists(own).await?),
    }
    Ok(())
}
