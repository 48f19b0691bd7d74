//! `election`: how long it takes from a leader that resigns to the next one, with a few candidates who
//! all want to lead again; and, with very many, how many watch events a change of leader makes, with
//! an observer beside them.

use std::time::Instant;

use anyhow::Result;
use lockkeeper::{Client, Election, Leadership};
use lockkeeper_engine::Durability;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bench::Bench;
use crate::lines::{LIMIT, close, next, sessions, wait_for_queue};
use crate::locks::bare::{BareLock, SecondLook};
use crate::measure::{Measured, Plan, Release, hand_offs, micros};
use crate::system::System;
use crate::tap::Tap;

/// Candidates that lead in turns.
const CANDIDATES: usize = 8;

/// Changes of leader that are looked at, with many candidates.
const CHANGES: usize = 5;

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    // Bare requests in place of an election, as they are in place of a lock: a leader goes, the next one
    // is told, and looks whether it is the first.
    let [bare, second_look] =
        [SecondLook::Never, SecondLook::IfMoreWereAhead].map(System::BareRequests);
    let on_engine = System::Engine(Durability::Sync);
    let systems = [System::OnZooKeeper, System::Curator, on_engine, bare, second_look];
    let turns = systems.map(|system| (system, format!("{CANDIDATES} candidates")));
    bench
        .interleave_systems(&turns, true, async |bench, &(system, _), plan| {
            let measured = hand_over(bench, system, plan).await?;
            bench.note(system, CANDIDATES, "hand_overs_per_s", measured.per_second);
            let side = (system.name(), system.config());
            bench.note_latency(side, CANDIDATES, "hand_over", measured.latency);
            Ok(())
        })
        .await;

    let many = bench.settings.herd;
    let systems = [System::Engine(Durability::Os), System::OnZooKeeper];
    let turns = systems.map(|system| (system, format!("{many} candidates")));
    // One round: its changes of leader are the repetitions.
    bench.interleave(1, &turns, change).await;
    Ok(())
}

async fn hand_over(bench: &mut Bench, system: System, plan: Plan) -> Result<Measured> {
    if system == System::Curator {
        return bench.peers.curator().await?.measure("latches", CANDIDATES, plan).await;
    }

    let servers = bench.peers.server_of(system).await?;
    let clients = sessions(&servers, CANDIDATES).await?;

    let measured = if let System::BareRequests(look) = system {
        let mut locks = Vec::new();
        for client in &clients {
            locks.push(BareLock::new(client, "/bare-election", look).await?);
        }
        hand_offs(locks, plan, Release::Awaited).await?
    } else {
        let election = |client| Election::new(client, "/bench-election/few");
        let elections = clients.iter().map(election).collect::<Result<Vec<_>, _>>()?;
        hand_offs(elections, plan, Release::Awaited).await?
    };

    close(clients).await;
    Ok(measured)
}

async fn change(bench: &mut Bench, &(system, _): &(System, String)) -> Result<()> {
    let servers = bench.peers.server_of(system).await?;
    let candidates = bench.settings.herd;
    let (tap, observers) = (Tap::start(&servers).await?, Tap::start(&servers).await?);
    let clients = sessions(&tap.address(), candidates).await?;
    let observer = Client::connect(&observers.address()).await?;

    let (leads, mut led) = mpsc::unbounded_channel();
    let mut waiting = JoinSet::new();
    for client in &clients {
        let election = Election::new(client, "/bench-election/many")?;
        let leads = leads.clone();
        // The one who listens goes away when enough was seen.
        waiting.spawn(async move { drop(leads.send(election.campaign().await)) });
    }
    let mut leader: Leadership = next(&mut led).await?;
    let election = Election::new(&observer, "/bench-election/many")?;
    wait_for_queue(&observer, election.path(), candidates).await?;
    let mut leaders = election.observe().await?;

    let who = (system.name(), system.config());
    for _ in 0..CHANGES {
        tap.settle().await;
        let (before, observed) = (tap.passed().events, observers.passed().events);
        let start = Instant::now();
        leader.resign().await?;
        leader = next(&mut led).await?;
        let took = start.elapsed();
        while leaders.current().is_none_or(|seen| seen.token != leader.token()) {
            timeout(LIMIT, leaders.next()).await??;
        }

        tap.settle().await;
        let events = |tap: &Tap, before| (tap.passed().events - before) as f64;
        bench.note_as(who, candidates, "events_per_change", events(&tap, before));
        let to_observer = events(&observers, observed);
        bench.note_as(who, candidates, "events_to_an_observer", to_observer);
        bench.note_as(who, candidates, "next_leader_us", micros(took));
    }
    waiting.shutdown().await;
    drop(leader);
    observer.close().await;
    close(clients).await;
    Ok(())
}
