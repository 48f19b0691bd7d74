//! How long servers take to start, and what memory they take: idle, for a session, a node, a contender.

use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use lockkeeper::{Client, CreateMode, Mutex, ZnodePath};
use lockkeeper_engine::Durability;
use lockkeeper_testkit::process::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::lines::{sessions, wait_for_queue};
use crate::memory::Memory;
use crate::peers::{Program, free_port, lockkeeper};
use crate::system::{Fsync, System};

/// How long a server has had nothing to do when it counts as idle: the engine has given memory back
/// for the second time by then.
const REST: Duration = Duration::from_secs(10);

/// Contenders of one lock: the listing that each gets grows with them.
const LINE: usize = 100;

/// The sessions that the contenders share.
const CLIENTS: usize = 10;

const MIB: f64 = 1024.0 * 1024.0;

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.settings.rounds;
    let systems = [System::Engine(Durability::Sync), System::Engine(Durability::Memory)];
    bench.interleave(rounds, &systems, start).await;
    bench.interleave(1, &[(System::OnZooKeeper, "just started")], fresh_peer).await;
    bench.interleave(1, &[System::OnZooKeeper, System::Redis(Fsync::Never)], idle_peer).await;
    let turns = [
        (System::Engine(Durability::Memory), What::Session),
        (System::Engine(Durability::Memory), What::Node),
        (System::Engine(Durability::Memory), What::Contender),
        (System::OnZooKeeper, What::Node),
    ];
    bench.interleave(1, &turns, grow).await;
    Ok(())
}

/// A fresh engine, from the start of its process to its first answer; then its memory.
async fn start(bench: &mut Bench, system: &System) -> Result<()> {
    let System::Engine(durability) = *system else { return Ok(()) };
    let folder = bench.peers.folder()?;
    let begun = Instant::now();
    let (engine, address) = fresh(durability, &folder).await?;
    let took = begun.elapsed();
    bench.note(*system, 0, "start_ms", took.as_secs_f64() * 1e3);
    idle(bench, *system, &address, engine.id()).await
}

/// A fresh ZooKeeper, as the engine above.
async fn fresh_peer(bench: &mut Bench, (system, _): &(System, &str)) -> Result<()> {
    let begun = Instant::now();
    let server = bench.peers.fresh_zookeeper().await?;
    bench.note(*system, 0, "start_ms", begun.elapsed().as_secs_f64() * 1e3);
    idle(bench, *system, &server.connect_string(), server.process_id()?).await
}

/// Notes the memory of a server that has one client, who asks nothing.
async fn idle(bench: &mut Bench, system: System, address: &str, process: u32) -> Result<()> {
    let client = Client::connect(address).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    note_memory(bench, system, "idle", process)?;
    client.close().await;
    Ok(())
}

fn note_memory(bench: &mut Bench, system: System, when: &str, process: u32) -> Result<()> {
    let memory = Memory::of(process)?;
    let mut note = |what: &str, bytes: u64| {
        bench.note(system, 0, &format!("{when}_{what}mib"), bytes as f64 / MIB);
    };
    note("", memory.resident());
    note("mapped_", memory.mapped);
    note("private_", memory.private);
    Ok(())
}

async fn fresh(durability: Durability, folder: &Path) -> Result<(Process, String)> {
    let (port, data) = (free_port()?, tempfile::tempdir_in(folder)?.keep());
    let engine = Process::spawn("fresh-engine", &lockkeeper(durability, &data, port)?, folder)?;
    let address = format!("127.0.0.1:{port}");
    let limit = Instant::now() + Duration::from_secs(10);
    while is_ok(&address).await.is_err() {
        anyhow::ensure!(Instant::now() < limit, "no answer\n{}", engine.tail());
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    Ok((engine, address))
}

async fn is_ok(address: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"ruok").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    anyhow::ensure!(answer == "imok", "it says {answer:?}");
    Ok(())
}

/// The memory of a peer after all that it did in this run, if it did anything.
async fn idle_peer(bench: &mut Bench, system: &System) -> Result<()> {
    let id = match system {
        System::OnZooKeeper => bench.peers.zookeeper().await?.process_id()?,
        _ => bench.peers.server(Program::Redis(Fsync::Never)).await?.process().id(),
    };
    tokio::time::sleep(REST).await;
    note_memory(bench, *system, "after_load", id)?;
    // Ours beside it, after the same.
    let engine = bench.peers.server(Program::Engine(Durability::Sync)).await?.process().id();
    note_memory(bench, System::Engine(Durability::Sync), "after_load", engine)
}

/// What there may be many of.
#[derive(Clone, Copy)]
enum What {
    Session,
    Node,
    Contender,
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Session => "session",
            Self::Node => "node",
            Self::Contender => "contender",
        })
    }
}

/// Makes many of something on a fresh server, and looks at what each has added.
async fn grow(bench: &mut Bench, &(system, what): &(System, What)) -> Result<()> {
    let (engine, zookeeper, address, process);
    match system {
        System::Engine(durability) => {
            (engine, address) = fresh(durability, &bench.peers.folder()?).await?;
            process = engine.id();
        }
        _ => {
            zookeeper = bench.peers.fresh_zookeeper().await?;
            (address, process) = (zookeeper.connect_string(), zookeeper.process_id()?);
        }
    }
    let count = match what {
        What::Session => bench.settings.sessions,
        What::Node => bench.settings.nodes,
        What::Contender => bench.settings.contenders,
    };
    let warm = Client::connect(&address).await?;
    let before = Memory::of(process)?.resident();

    let begun = Instant::now();
    let added = match what {
        What::Session => after(sessions(&address, count), process).await?,
        What::Node => after(nodes(&address, count), process).await?,
        What::Contender => after(contenders(&address, count), process).await?,
    };

    let seconds = begun.elapsed().as_secs_f64();
    let each = added.saturating_sub(before) as f64 / count as f64;
    bench.note(system, count, &format!("bytes_per_{what}"), each);
    bench.note(system, count, &format!("{what}s_made_per_s"), count as f64 / seconds);
    warm.close().await;
    Ok(())
}

/// The memory of a process while what was made is there.
async fn after<T>(making: impl Future<Output = Result<T>>, process: u32) -> Result<u64> {
    let made = making.await?;
    let bytes = Memory::of(process)?.resident();
    drop(made);
    Ok(bytes)
}

async fn nodes(address: &str, count: usize) -> Result<Client> {
    let client = Client::connect(address).await?;
    let root = ZnodePath::new("/nodes")?;
    client.create(&root, "", CreateMode::Persistent).await?;

    let mut made = Vec::new();
    for index in 0..count {
        let path = root.child(&format!("node-{index:09}"))?;
        made.push(client.create(&path, vec![0x55; 100], CreateMode::Persistent));
        if made.len() == 1_000 {
            for made in made.drain(..) {
                made.await?;
            }
        }
    }

    for made in made {
        made.await?;
    }
    Ok(client)
}

/// Contenders in lines of a hundred, on a few sessions: one holds, the others wait.
async fn contenders(address: &str, count: usize) -> Result<(Vec<Client>, JoinSet<()>)> {
    let clients = sessions(address, CLIENTS).await?;
    let mut waiting = JoinSet::new();
    for line in 0..count.div_ceil(LINE) {
        let path = format!("/locks/line-{line}");
        for place in 0..LINE.min(count - line * LINE) {
            let lock = Mutex::new(&clients[(line + place) % CLIENTS], &path)?;
            waiting.spawn(async move {
                if let Ok(guard) = lock.acquire().await {
                    guard.lost().await;
                }
            });
        }
        // Line by line: not a hundred thousand requests at once.
        wait_for_queue(&clients[0], &ZnodePath::new(&path)?, LINE).await?;
    }
    Ok((clients, waiting))
}
