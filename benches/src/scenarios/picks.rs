//! What a pick among the instances of a directory costs. It asks no server, so there is no system to hold
//! it against; what it cannot do without, reading the clock once, stands beside it.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockkeeper::{Client, CreateMode, Instance, Pick, ServiceDirectory, ZnodePath};
use lockkeeper_engine::Durability;

use crate::bench::{Bench, Turn};
use crate::system::System;

const INSTANCES: usize = 100;

/// Calls that are under way at a time.
const AT_A_TIME: usize = 16;

/// How often so many are picked.
const TIMES: usize = 20_000;

#[derive(Clone, Copy)]
enum Way {
    Clock,
    InTurn,
    Weighted,
    OfTwo,
    ByKey { is_even: bool },
}

const WAYS: [Way; 6] = [
    Way::Clock,
    Way::InTurn,
    Way::Weighted,
    Way::OfTwo,
    Way::ByKey { is_even: true },
    Way::ByKey { is_even: false },
];

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clock => "the clock alone",
            Self::InTurn => "in turn",
            Self::Weighted => "weighted",
            Self::OfTwo => "of two",
            Self::ByKey { is_even: true } => "by key, equal weights",
            Self::ByKey { is_even: false } => "by key",
        })
    }
}

impl Way {
    fn pick(self) -> Option<Pick<'static>> {
        match self {
            Self::Clock => None,
            Self::InTurn => Some(Pick::RoundRobin),
            Self::Weighted => Some(Pick::Weighted),
            Self::OfTwo => Some(Pick::PowerOfTwo),
            Self::ByKey { .. } => Some(Pick::Key(b"customer-4711")),
        }
    }

    /// Of an instance; between 1 and 7 unless all are to be the same.
    fn weight(self, number: usize) -> u32 {
        match self {
            Self::ByKey { is_even: true } => 1,
            _ => 1 + (number % 7) as u32,
        }
    }
}

impl Turn for Way {
    fn describe(&self) -> String {
        format!("{INSTANCES} instances, {self}")
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
        let instance = Instance::new(&service, &id).weight(way.weight(number));
        let path = ZnodePath::new(&format!("/services/{service}/{id}"))?;
        client.ensure(&path.parent().context("a parent")?, CreateMode::Container).await?;
        client.create(&path, instance.to_json(), CreateMode::Ephemeral).await?;
    }

    let web = ServiceDirectory::open(&client, "/services", &service).await?;
    anyhow::ensure!(web.instances().len() == INSTANCES, "{:?}", web.instances());
    let (picking, calling) = match way.pick() {
        Some(how) => of_picks(&web, how)?,
        None => of_clock(&client),
    };

    let nanos = |time: Duration| time.as_nanos() as f64 / (AT_A_TIME * TIMES) as f64;
    let config = way.to_string();
    let side = (System::Engine(Durability::Os).name(), config.as_str());
    bench.note_as(side, INSTANCES, "pick_ns", nanos(picking));
    bench.note_as(side, INSTANCES, "pick_and_end_ns", nanos(calling));
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
