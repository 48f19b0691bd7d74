//! `group`: what a server sends to each of those who see a group when one more joins, by how many are in
//! it already.
//!
//! Beside it two programs of bare requests: one that is told of each node that comes and reads it, which
//! is the floor, and one that lists the group after each change, as those do that know no watch on a whole
//! tree.

use std::future::pending;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{AddWatchMode, Client, CreateMode, EventKind, Group, WatchItem, ZnodePath};
use lockkeeper_engine::Durability;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bench::Bench;
use crate::lines::{LIMIT, close, sessions};
use crate::locks::bare::SecondLook;
use crate::peers::Worker;
use crate::system::System;
use crate::tap::{Passed, Tap};

/// Members that are there already.
const MEMBERS: [usize; 2] = [100, 1_000];

/// Those who look, each with a connection of its own; of Curator, which is a process, one.
const WATCHERS: usize = 10;

/// Members that join after these, one after the other.
const JOINS: usize = 5;

/// When nothing has passed for so long, all have seen it.
const QUIET: Duration = Duration::from_millis(100);

/// What a member tells.
const DATA: &str = "10.0.0.7:8080";

/// How the group is looked at.
#[derive(Clone, Copy)]
enum SeenBy {
    View,
    Reads,
    Listings,
}

impl SeenBy {
    fn note(self) -> &'static str {
        match self {
            Self::View | Self::Reads => "",
            Self::Listings => ", listings",
        }
    }
}

struct GroupTurn {
    system: System,
    how: SeenBy,
    members: usize,
}

impl crate::bench::Turn for GroupTurn {
    fn describe(&self) -> String {
        let Self { system, how, members } = self;
        format!("{system}{}, {members} members", how.note())
    }
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let bare = System::BareRequests(SecondLook::Never);
    let kinds = [
        (System::OnZooKeeper, SeenBy::View),
        (System::Engine(Durability::Sync), SeenBy::View),
        (System::Curator, SeenBy::View),
        (bare, SeenBy::Reads),
        (bare, SeenBy::Listings),
    ];
    let of_each = |members| kinds.map(|(system, how)| GroupTurn { system, how, members });
    let turns: Vec<_> = MEMBERS.into_iter().flat_map(of_each).collect();
    // One round: those who join are the repetitions, and bytes are no matter of chance.
    bench.interleave(1, &turns, measure).await;
    Ok(())
}

async fn measure(bench: &mut Bench, turn: &GroupTurn) -> Result<()> {
    let GroupTurn { system, how, members } = *turn;
    let servers = bench.peers.server_of(system).await?;
    let client = Client::connect(&servers).await?;
    let path = ZnodePath::new(&format!("/bench-group-{members}"))?;
    client.ensure(&path, CreateMode::Container).await?;
    let mut made = Vec::new();
    for number in 0..members {
        let node = path.child(&format!("member-{number}"))?;
        made.push(client.create(&node, DATA, CreateMode::Ephemeral));
    }
    for made in made {
        made.await?;
    }

    let tap = Tap::start(&servers).await?;
    let mut watching = match system {
        System::Curator => {
            // So that it is among the peers of this run, with its version.
            bench.peers.curator().await?;
            Watching::curator(&tap, members).await?
        }
        _ => Watching::ours(&tap, &path, how).await?,
    };
    tap.quiet(QUIET).await;
    let group = Group::new(&client, path.as_str())?;
    let config = format!("{}{}", system.config(), how.note());
    for number in 0..JOINS {
        let before = tap.passed();
        let member = group.join(format!("joined-{number}"), DATA).await?;
        let after = watching.told(&tap, before, members + 1).await?;
        let mut note = |what: &str, before, after| {
            let each = (after - before) as f64 / watching.count() as f64;
            bench.note_as((system.name(), &config), members, &format!("{what}_to_each"), each);
        };
        note("bytes", before.to_clients, after.to_clients);
        note("frames", before.frames, after.frames);
        note("events", before.events, after.events);

        member.leave().await?;
        watching.told(&tap, after, members).await?;
    }
    watching.end().await?;
    client.close().await;
    Ok(())
}

/// Those who look.
enum Watching {
    Ours { clients: Vec<Client>, looking: JoinSet<Result<()>> },
    Curator { program: Box<Worker>, group: usize },
}

impl Watching {
    async fn ours(tap: &Tap, path: &ZnodePath, how: SeenBy) -> Result<Self> {
        let (clients, mut looking) = (sessions(&tap.address(), WATCHERS).await?, JoinSet::new());
        let (ready, mut are_ready) = mpsc::unbounded_channel();
        for client in &clients {
            let (client, path, ready) = (client.clone(), path.clone(), ready.clone());
            looking.spawn(async move {
                match how {
                    SeenBy::View => view(&client, &path, &ready).await,
                    SeenBy::Reads => read(&client, &path, &ready).await,
                    SeenBy::Listings => list(&client, &path, &ready).await,
                }
            });
        }
        for _ in &clients {
            timeout(LIMIT, are_ready.recv()).await.context("not all of them look")?;
        }
        Ok(Self::Ours { clients, looking })
    }

    /// A member that is one more itself.
    async fn curator(tap: &Tap, group: usize) -> Result<Self> {
        let mut program = Box::new(Worker::curator(&tap.address()).await?);
        program.group(group, group + 1).await?;
        Ok(Self::Curator { program, group })
    }

    fn count(&self) -> usize {
        match self {
            Self::Ours { .. } => WATCHERS,
            Self::Curator { .. } => 1,
        }
    }

    /// What has passed when all of them have seen so many members, and no more comes.
    async fn told(&mut self, tap: &Tap, before: Passed, members: usize) -> Result<Passed> {
        let events = before.events + self.count() as u64;
        timeout(LIMIT, tap.events(events)).await.context("not all of them were told")??;
        if let Self::Curator { program, group } = self {
            program.group(*group, members + 1).await?;
        }
        tap.quiet(QUIET).await;
        Ok(tap.passed())
    }

    async fn end(self) -> Result<()> {
        match self {
            Self::Ours { clients, mut looking } => {
                // Whoever has ended by now has failed.
                if let Some(ended) = looking.try_join_next() {
                    ended??;
                }
                looking.shutdown().await;
                close(clients).await;
                Ok(())
            }
            Self::Curator { mut program, group } => program.group(group, 0).await,
        }
    }
}

/// Whoever looks says so.
type Ready = mpsc::UnboundedSender<()>;

async fn view(client: &Client, path: &ZnodePath, ready: &Ready) -> Result<()> {
    let _members = Group::new(client, path.as_str())?.watch().await?;
    let _ = ready.send(());
    pending().await
}

async fn read(client: &Client, path: &ZnodePath, ready: &Ready) -> Result<()> {
    let mut items = client.watch(path, AddWatchMode::PersistentRecursive).await?;
    let _ = ready.send(());
    loop {
        if let WatchItem::Event(event) = items.next().await?
            && event.kind == EventKind::NodeCreated
        {
            client.data(&ZnodePath::new(&event.path)?).await?;
        }
    }
}

async fn list(client: &Client, path: &ZnodePath, ready: &Ready) -> Result<()> {
    loop {
        let (_, mut changed) = client.children_watched(path).await?;
        let _ = ready.send(());
        changed.changed().await?;
    }
}
