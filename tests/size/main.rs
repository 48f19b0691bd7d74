//! How large and how fast to start the engine is, beside Apache ZooKeeper on the same machine.
//!
//! Measures rather than tests, so it runs when asked for only: `cargo xtask engine-size`. Both
//! servers are processes of their own, each alone while it is measured.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockkeeper_client::{Client, CreateMode, ZnodePath};
use lockkeeper_engine::{Durability, Engine};
use lockkeeper_testkit::zookeeper::Config;

const DIR: &str = "LOCKKEEPER_SIZE_DIR";
const DATA: [u8; 100] = [b'x'; 100];
const PARENTS: usize = 1_000;
const STARTS: usize = 11;

/// How many nodes; a million unless `LOCKKEEPER_SIZE_NODES` says otherwise.
fn nodes() -> usize {
    let given = std::env::var("LOCKKEEPER_SIZE_NODES").ok();
    given.and_then(|count| count.parse().ok()).unwrap_or(1_000_000)
}

/// Not a test: the engine that is measured.
#[tokio::test]
#[ignore = "started by the measurement below"]
async fn engine() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let builder = Engine::builder().data_dir(dir).durability(Durability::Os);
    let engine = builder.start().await.unwrap();
    println!("\nlistening {}", engine.connect_string());
    // Ends with the parent, should that die first.
    let _ = std::io::stdin().read(&mut [0]);
}

struct Server {
    process: Child,
    connect: String,
    took: Duration,
}

impl Server {
    fn start(dir: &std::path::Path) -> Result<Self> {
        let start = Instant::now();
        let mut process = Command::new(std::env::current_exe()?)
            .args(["engine", "--exact", "--ignored", "--nocapture"])
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(process.stdout.take().context("it is piped")?);
        let connect = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening ").map(str::to_owned))
            .context("the engine did not start")?;
        ruok(&connect)?;
        Ok(Self { process, connect, took: start.elapsed() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ruok(connect: &str) -> Result<()> {
    let mut stream = TcpStream::connect(connect)?;
    stream.write_all(b"ruok")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    anyhow::ensure!(answer == "imok", "{answer:?}");
    Ok(())
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

/// Idle memory: all of it, and the part that is no mapped file, such as the program itself, which
/// the system shares between processes and takes back when it needs it.
fn print_idle(name: &str, pid: u32) -> Result<u64> {
    let (all, own) = (resident(pid)?, memory(pid, "RssAnon:")?);
    let mib = |kib: u64| kib as f64 / 1024.0;
    println!("{name}: idle {:.1} MiB resident, {:.1} MiB of it not of files", mib(all), mib(own));
    Ok(all)
}

fn memory(pid: u32, what: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.context("this system does not tell the memory of a process")
}

/// Creates the nodes, below parents of a thousand each, 500 in a transaction.
async fn fill(connect: &str, nodes: usize) -> Result<()> {
    let client = Client::connect(connect).await?;
    let per_parent = nodes.div_ceil(PARENTS);
    for parent in 0..PARENTS {
        let parent = ZnodePath::new(&format!("/n{parent:04}"))?;
        client.create(&parent, "", CreateMode::Persistent).await?;
        let mut number = 0;
        while number < per_parent {
            let mut transaction = client.transaction();
            for _ in 0..500.min(per_parent - number) {
                let path = ZnodePath::new(&format!("{parent}/{number:06}"))?;
                transaction = transaction.create(&path, &DATA[..], CreateMode::Persistent);
                number += 1;
            }
            transaction.commit().await?;
        }
    }
    client.close().await;
    Ok(())
}

/// The process whose command line names this file.
fn process_with(argument: &std::path::Path) -> Result<u32> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let names = command.split(|byte| *byte == 0);
        let argument = argument.as_os_str().as_encoded_bytes();
        if names.into_iter().any(|name| name == argument) {
            return Ok(entry.file_name().to_string_lossy().parse()?);
        }
    }
    anyhow::bail!("no process has {} on its command line", argument.display())
}

/// KiB of live objects, after collecting the others; `None` without the JDK's tools.
fn live_heap(pid: u32) -> Option<u64> {
    let run = |what: &str| Command::new("jcmd").args([&pid.to_string(), what]).output().ok();
    run("GC.run")?;
    let info = String::from_utf8(run("GC.heap_info")?.stdout).ok()?;
    let used = info.lines().filter_map(|line| line.split("used ").nth(1));
    let kib = used.filter_map(|rest| rest.split('K').next()?.parse::<u64>().ok());
    // The first lines are the generations, the last two the metaspace.
    let all: Vec<u64> = kib.collect();
    Some(all.iter().take(all.len().saturating_sub(2)).sum())
}

async fn measure_engine(nodes: usize) -> Result<()> {
    let mut starts = Vec::new();
    let mut idle = 0;
    for _ in 0..STARTS {
        let dir = tempfile::tempdir()?;
        let server = Server::start(dir.path())?;
        starts.push(server.took);
        if starts.len() == STARTS {
            idle = print_idle("engine", server.process.id())?;
        }
    }
    starts.sort_unstable();
    println!(
        "engine: start to first answer {:.1?} at best, {:.1?} in the middle of {STARTS}",
        starts[0],
        starts[STARTS / 2]
    );

    let dir = tempfile::tempdir()?;
    let server = Server::start(dir.path())?;
    let start = Instant::now();
    fill(&server.connect, nodes).await?;
    let took = start.elapsed();
    let full = resident(server.process.id())?;
    println!(
        "engine: {nodes} nodes in {took:.1?}, then {:.1} MiB resident, {} bytes per node",
        full as f64 / 1024.0,
        (full - idle) * 1024 / nodes as u64
    );
    drop(server);
    let server = Server::start(dir.path())?;
    let full = resident(server.process.id())?;
    println!(
        "engine: started again on them in {:.1?}, then {:.1} MiB resident, {} bytes per node",
        server.took,
        full as f64 / 1024.0,
        (full - idle) * 1024 / nodes as u64
    );
    Ok(())
}

/// A server without the settings that make those of tests small.
fn as_by_itself() -> Config {
    let settings = ["-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=4"];
    settings.into_iter().fold(Config::new(), Config::jvm_argument)
}

async fn measure_zookeeper(nodes: usize) -> Result<()> {
    let start = Instant::now();
    // What its own start script gives it.
    let server = as_by_itself().jvm_argument("-Xmx1000m").standalone().await?;
    println!("zookeeper: start to first answer {:.1?}", start.elapsed());
    let pid = process_with(&server.folder().join("zoo.cfg"))?;
    print_idle("zookeeper", pid)?;
    drop(server);
    // More room, so that the collector of garbage is not what is measured.
    let server = as_by_itself().jvm_argument("-Xmx3g").standalone().await?;
    let pid = process_with(&server.folder().join("zoo.cfg"))?;
    let idle = resident(pid)?;
    let idle_heap = live_heap(pid);
    let start = Instant::now();
    fill(&server.connect_string(), nodes).await?;
    let took = start.elapsed();
    let full = resident(pid)?;
    println!(
        "zookeeper: {nodes} nodes in {took:.1?}, then {:.1} MiB resident, {} bytes per node",
        full as f64 / 1024.0,
        (full - idle) * 1024 / nodes as u64
    );
    if let (Some(before), Some(after)) = (idle_heap, live_heap(pid)) {
        let per_node = after.saturating_sub(before) * 1024 / nodes as u64;
        println!("zookeeper: of that, {per_node} bytes per node are live objects");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "a measurement: cargo xtask engine-size"]
async fn measure() {
    let nodes = nodes();
    measure_engine(nodes).await.unwrap();
    if let Err(e) = measure_zookeeper(nodes).await {
        println!("zookeeper: not measured: {e:#}");
    }
}
