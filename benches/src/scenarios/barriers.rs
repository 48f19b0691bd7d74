//! `barrier`: rounds that the parties of a double barrier enter and leave together, again and again.

use anyhow::Result;
use lockkeeper_engine::Durability;

use crate::bench::Bench;
use crate::lines::{close, sessions};
use crate::locks::bare::SecondLook;
use crate::locks::barrier::{BareParty, Party};
use crate::measure::{Measured, Plan, rounds};
use crate::system::System;

/// The parties, each with a connection of its own.
const PARTIES: usize = 8;

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let bare = System::BareRequests(SecondLook::Never);
    let systems = [System::OnZooKeeper, System::Curator, bare, System::Engine(Durability::Sync)];
    let turns = systems.map(|system| (system, format!("{PARTIES} parties")));
    bench
        .interleave_systems(&turns, true, async |bench, &(system, _), plan| {
            let measured = measure(bench, system, plan).await?;
            bench.note(system, PARTIES, "rounds_per_s", measured.per_second);
            let side = (system.name(), system.config());
            bench.note_latency(side, PARTIES, "round", measured.latency);
            Ok(())
        })
        .await;
    Ok(())
}

/// At a barrier that is new.
async fn measure(bench: &mut Bench, system: System, plan: Plan) -> Result<Measured> {
    if system == System::Curator {
        return bench.peers.curator().await?.measure("barrier", PARTIES, plan).await;
    }
    let servers = bench.peers.server_of(system).await?;
    let path = format!("/bench-barrier-{:016x}", fastrand::u64(..));
    let clients = sessions(&servers, PARTIES).await?;
    let measured = match system {
        System::BareRequests(_) => rounds(BareParty::of_each(&clients, &path).await?, plan).await?,
        _ => {
            let party = |(number, client)| Party::new(client, &path, PARTIES, number);
            let parties = clients.iter().enumerate().map(party).collect::<Result<_>>()?;
            rounds(parties, plan).await?
        }
    };
    close(clients).await;
    Ok(measured)
}
