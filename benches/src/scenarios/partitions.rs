//! `partitions`: items that members share, when one of the members leaves: how many have another owner then, and how
//! long it takes until all have one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper::{Client, PartitionMember, Partitions};
use lockkeeper_engine::Durability;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bench::Bench;
use crate::lines::{LIMIT, close, sessions};
use crate::system::System;

const MEMBERS: usize = 10;
const ITEMS: usize = 1_000;

/// The items that programs work on, with the number of the member that has each.
type Owners = watch::Sender<BTreeMap<String, usize>>;

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    // It waits for half a minute at each change.
    bench.interleave(1, &[System::Kazoo], measure).await;
    let rounds = bench.settings.rounds;
    let ours = [System::OnZooKeeper, System::Engine(Durability::Sync)];
    bench.interleave(rounds, &ours, measure).await;
    Ok(())
}

async fn measure(bench: &mut Bench, &system: &System) -> Result<()> {
    let (moved, took) = match system {
        System::Kazoo => bench.peers.kazoo().await?.partitions(MEMBERS, ITEMS).await?,
        _ => one_leaves(&bench.peers.server_of(system).await?).await?,
    };
    bench.note(system, MEMBERS, "moved_of_the_leavers", moved);
    bench.note(system, MEMBERS, "owned_again_ms", took.as_secs_f64() * 1e3);
    Ok(())
}

/// How many items have another owner than before, divided by those that the member had that leaves; and how long it took.
async fn one_leaves(servers: &str) -> Result<(f64, Duration)> {
    let path = format!("/bench-partitions-{:016x}", fastrand::u64(..));
    let clients = sessions(servers, MEMBERS).await?;
    let owners = Arc::new(Owners::default());
    let (mut leaves, mut members) = (Vec::new(), JoinSet::new());
    for (number, client) in clients.iter().enumerate() {
        let (leave, told) = oneshot::channel();
        leaves.push(leave);
        let member = join(client, &path, number).await?;
        members.spawn(work(member, number, Arc::clone(&owners), told));
    }
    let before = all_owned_by(&owners, |_| true).await?;

    let leaver = MEMBERS - 1;
    let start = Instant::now();
    let leave = leaves.pop().context("there is one")?;
    ensure!(leave.send(()).is_ok(), "a member has ended");
    let after = all_owned_by(&owners, |owner| owner != leaver).await?;
    let took = start.elapsed();

    let moved = after.iter().filter(|(item, owner)| before.get(*item) != Some(*owner)).count();
    let leavers = before.values().filter(|owner| **owner == leaver).count();
    for leave in leaves {
        ensure!(leave.send(()).is_ok(), "a member has ended");
    }
    while let Some(left) = members.join_next().await {
        left??;
    }
    close(clients).await;
    Ok((moved as f64 / leavers as f64, took))
}

async fn join(client: &Client, path: &str, number: usize) -> Result<PartitionMember> {
    let items = (0..ITEMS).map(|item| format!("item-{item}"));
    let partitions = Partitions::builder(client, path).items(items).build()?;
    Ok(partitions.join(format!("member-{number}")).await?)
}

/// Works on what a member gets, until it is told to leave.
async fn work(
    member: PartitionMember,
    number: usize,
    owners: Arc<Owners>,
    mut told: oneshot::Receiver<()>,
) -> Result<()> {
    loop {
        let assignment = tokio::select! {
            _ = &mut told => return Ok(member.leave().await?),
            assignment = member.next() => assignment?,
        };
        let owners = Arc::clone(&owners);
        tokio::spawn(async move {
            let item = assignment.item().to_owned();
            owners.send_modify(|all| all.extend([(item.clone(), number)]));
            tokio::select! {
                _ = assignment.moving() => {}
                _ = assignment.lost() => {}
            }
            owners.send_modify(|all| {
                if all.get(&item) == Some(&number) {
                    all.remove(&item);
                }
            });
            drop(assignment);
        });
    }
}

/// Waits until each item has an owner, which is one of those.
async fn all_owned_by(
    owners: &Owners,
    is_one: impl Fn(usize) -> bool,
) -> Result<BTreeMap<String, usize>> {
    let mut changes = owners.subscribe();
    let all_owned =
        changes.wait_for(|all| all.len() == ITEMS && all.values().all(|it| is_one(*it)));
    let owned = timeout(LIMIT, all_owned).await;
    let owned = owned.with_context(|| format!("items have no owner after {LIMIT:?}"))??;
    Ok(owned.clone())
}
