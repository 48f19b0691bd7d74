//! What a pick among the instances of a directory costs. It asks no server, so there is no system to hold
//! it against; what it cannot do without, reading the clock once, stands beside it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockkeeper::{Client, CreateMode, Instance, Pick, ServiceDirectory, ZnodePath};
use lockkeeper_engine::Durability;

use crate::bench::{Bench, Turn};
use crate::system::System;

const INSTANCES: u32 = 100;

/// Calls that are under way at a time.
const AT_A_TIME: usize = 16;

/// How often so many are picked.
const TIMES: usize = 20_000;

/// A way to pick, or none for the clock alone, and whether all instances have the same weight.
struct Way {
    name: &'static str,
    pick: Option<Pick<'static>>,
    is_even: bool,
}

const KEY: Pick<'static> = Pick::Key(b"customer-4711");

const WAYS: [Way; 6] = [
    Way { name: "the clock alone", pick: None, is_even: false },
    Way { name: "in turn", pick: Some(Pick::RoundRobin), is_even: false },
    Way { name: "weighted", pick: Some(Pick::Weighted), is_even: false },
    Way { name: "of two", pick: Some(Pick::PowerOfTwo), is_even: false },
    Way { name: "by key, equal weights", pick: Some(KEY), is_even: true },
    Way { name: "by key", pick: Some(KEY), is_even: false },
];

impl Turn for Way {
    fn describe(&self) -> String {
        format!("{INSTANCES} instances, {}", self.name)
    }
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.settings.rounds;
    bench.interleave(rounds, &WAYS, measure).await;
    Ok(())
}

async fn measure(bench: &mut Bench, way: &Way) -> Result<()> {
    let servers = bench.peers.server_of(System::Engine(Durability::Os)).await?;
    let client = Client::connect(&servers).await?;
    let service = format!("picks-{}", client.now().since_start().as_nanos());
    for number in 0..INSTANCES {
        let id = format!("10.0.0.{number}:8080");
        let weight = if way.is_even { 1 } else { 1 + number % 7 };
        let instance = Instance::new(&service, &id).weight(weight);
        let path = ZnodePath::new(&format!("/services/{service}/{id}"))?;
        client.ensure(&path.parent().context("a parent")?, CreateMode::Container).await?;
        client.create(&path, instance.to_json(), CreateMode::Ephemeral).await?;
    }

    let web = ServiceDirectory::open(&client, "/services", &service).await?;
    anyhow::ensure!(web.instances().len() == INSTANCES as usize, "{:?}", web.instances());
    let (picking, calling) = match way.pick {
        Some(how) => of_picks(&web, how)?,
        None => of_clock(&client),
    };

    let nanos = |time: Duration| time.as_nanos() as f64 / (AT_A_TIME * TIMES) as f64;
    let side = (System::Engine(Durability::Os).name(), way.name);
    bench.note_as(side, INSTANCES as usize, "pick_ns", nanos(picking));
    bench.note_as(side, INSTANCES as usize, "pick_and_end_ns", nanos(calling));
    drop(web);
    client.close().await;
    Ok(())
}

/// The time of all picks, and the time of these and the ends of their calls.
fn of_picks(web: &ServiceDirectory, how: Pick<'_>) -> Result<(Duration, Duration)> {
    let mut calls = Vec::with_capacity(AT_A_TIME);
    let (mut picking, mut calling) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..TIMES {
        let begun = Instant::now();
        for _ in 0..AT_A_TIME {
            calls.push(web.pick(black_box(how))?);
        }
        picking += begun.elapsed();
        calls.clear();
        calling += begun.elapsed();
    }
    Ok((picking, calling))
}

fn of_clock(client: &Client) -> (Duration, Duration) {
    let begun = Instant::now();
    for _ in 0..AT_A_TIME * TIMES {
        black_box(client.now());
    }
    let time = begun.elapsed();
    (time, time * 2)
}
