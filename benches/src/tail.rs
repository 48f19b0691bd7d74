//! The slowest cycles of the engine and of Redis, in alternating turns, the processor time of each,
//! and what the engine's syncs met on the disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use lockkeeper::{Client, Mutex};
use lockkeeper_engine::{Durability, Spin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::locks::redis::{self, RedisLock};
use crate::machine::processor_time;
use crate::measure::{Plan, Recorder, Release, record_cycles};
use crate::peers::{self, Server, free_port};
use crate::system::Fsync;

/// What is measured, and for how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How many seconds each side has with each number of tasks.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How long one turn is, in seconds.
    #[arg(long, default_value_t = 5)]
    turn: u64,
    /// Tasks with a lock each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64])]
    tasks: Vec<usize>,
    /// What the engine's replies promise: sync beside Redis `always`, os beside `everysec`.
    #[arg(long, default_value = "sync")]
    durability: Durability,
    /// How the engine spins; its default without this. Several are engines of their own.
    #[arg(long, value_delimiter = ',')]
    spin: Vec<Spin>,
    /// Builds of `lockkeeper`; the one beside this program without this.
    #[arg(long)]
    program: Vec<PathBuf>,
    /// Where the servers keep their data: on the disk that is measured.
    #[arg(long, default_value = "target/bench/data")]
    data: PathBuf,
}

/// How long the beginning of each turn does not count.
const WARM_UP: Duration = Duration::from_millis(300);

/// A server with its clients' connection.
struct TailSide {
    name: String,
    server: Server,
    /// Where the engine tells its metrics.
    metrics: Option<String>,
}

/// What one side did with one number of tasks.
struct Sum {
    recorders: (Recorder, Recorder),
    /// Of the server and of this process, in microseconds, and in how many cycles.
    processor: (f64, f64),
    cycles: f64,
}

/// Measures, and prints tables.
///
/// # Errors
/// A server does not start, or a client fails.
pub(crate) async fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.data)?;
    let folder = tempfile::tempdir_in(&options.data)?;
    let sides = sides(options, folder.path()).await?;
    let turns = options.seconds.div_ceil(options.turn.max(1));
    println!(
        "| tasks | side | cycles/s | p50 us | p99 | p99.9 | p99.99 | max | processor us/cycle |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|");

    for &tasks in &options.tasks {
        let mut sums: Vec<Sum> = sides.iter().map(|_| Sum::new()).collect();
        for turn in 0..turns {
            let mut order: Vec<usize> = (0..sides.len()).collect();
            order.rotate_left(turn as usize % sides.len());
            for side in order {
                sums[side].take_turn(&sides[side], tasks, turn, options.turn).await?;
            }
        }
        for (side, sum) in sides.iter().zip(&sums) {
            sum.print(tasks, &side.name, turns * options.turn);
        }
    }

    for side in &sides {
        if let Some(metrics) = &side.metrics {
            print_syncs(&side.name, &fetch(metrics).await?);
        }
    }
    Ok(())
}

/// Redis, and an engine for each build and way to spin.
async fn sides(options: &Options, folder: &Path) -> Result<Vec<TailSide>> {
    let fsync = match options.durability {
        Durability::Sync => Fsync::Always,
        Durability::Os => Fsync::Everysec,
        Durability::Memory => Fsync::Never,
    };
    let redis = peers::redis(folder, fsync).await?;
    let mut sides =
        vec![TailSide { name: format!("redis, {fsync:?}"), server: redis, metrics: None }];

    let beside = std::env::current_exe()?.with_file_name("lockkeeper");
    let programs = match &options.program[..] {
        [] => std::slice::from_ref(&beside),
        given => given,
    };
    let mut spins: Vec<Option<Spin>> = options.spin.iter().copied().map(Some).collect();
    if spins.is_empty() {
        spins.push(None);
    }

    for (build, program) in programs.iter().enumerate() {
        for spin in &spins {
            let mut name = format!("engine, {}", options.durability);
            if let Some(spin) = spin {
                name += &format!(", spin {spin}");
            }
            if programs.len() > 1 {
                name += &format!(", build {}", build + 1);
            }
            sides.push(engine(options, folder, (program, *spin), name).await?);
        }
    }
    Ok(sides)
}

async fn engine(
    options: &Options,
    folder: &Path,
    (program, spin): (&Path, Option<Spin>),
    name: String,
) -> Result<TailSide> {
    let (port, metrics) = (free_port()?, format!("127.0.0.1:{}", free_port()?));
    let file = name.replace(", ", "-").replace(' ', "-");
    let data = folder.join(&file);
    let mut command = peers::serve(program, options.durability, &data, port)?;
    command.arg("--metrics").arg(&metrics);
    if let Some(spin) = spin {
        command.arg(format!("--spin={spin}"));
    }
    let server = peers::serving(&file, &command, folder, port).await?;
    Ok(TailSide { name, server, metrics: Some(metrics) })
}

impl Sum {
    fn new() -> Self {
        let recorders = (Recorder::new(), Recorder::new());
        Self { recorders, processor: (0.0, 0.0), cycles: 0.0 }
    }

    async fn take_turn(
        &mut self,
        side: &TailSide,
        tasks: usize,
        turn: u64,
        seconds: u64,
    ) -> Result<()> {
        let plan = Plan { warm_up: WARM_UP, measure: Duration::from_secs(seconds) };
        let (server, own) = (side.server.process().id(), std::process::id());
        let before = (processor_time(server)?, processor_time(own)?);
        let counted = self.recorders.1.summary().count;

        match side.metrics {
            Some(_) => self.lockkeeper(side.server.address(), tasks, plan).await?,
            None => self.redis(side.server.address(), tasks, turn, plan).await?,
        }

        // The warm-up costs as well, at the same rate.
        let counted = (self.recorders.1.summary().count - counted) as f64;
        let share = (plan.warm_up + plan.measure).as_secs_f64() / plan.measure.as_secs_f64();
        self.cycles += counted * share;
        self.processor.0 += processor_time(server)? - before.0;
        self.processor.1 += processor_time(own)? - before.1;
        Ok(())
    }

    async fn lockkeeper(&self, address: &str, tasks: usize, plan: Plan) -> Result<()> {
        let client = Client::connect(address).await?;
        let lock = |task| Mutex::new(&client, &format!("/locks/tail-{task}"));
        let locks = (0..tasks).map(lock).collect::<Result<Vec<_>, _>>()?;
        record_cycles(locks, plan.begin(), Release::Awaited, &self.recorders).await?;
        client.close().await;
        Ok(())
    }

    async fn redis(&self, address: &str, tasks: usize, turn: u64, plan: Plan) -> Result<()> {
        let connection = redis::connect(address).await?;
        let pause = Duration::from_millis(1);
        let key = |task| format!("tail-{turn}-{task}");
        let lock = |task| RedisLock::new(&connection, key(task), pause);
        let locks = (0..tasks).map(lock).collect();
        record_cycles(locks, plan.begin(), Release::Awaited, &self.recorders).await
    }

    fn print(&self, tasks: usize, name: &str, seconds: u64) {
        let cycle = self.recorders.1.summary();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let (server, client) = (self.processor.0 / self.cycles, self.processor.1 / self.cycles);
        println!(
            "| {tasks} | {name} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} = {server:.1} + {client:.1} |",
            cycle.count as f64 / seconds as f64,
            us(cycle.p50),
            us(cycle.p99),
            us(cycle.p999),
            us(self.recorders.1.at(0.9999)),
            us(cycle.max),
            server + client,
        );
    }
}

/// The text that an engine tells Prometheus.
async fn fetch(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    if !text.starts_with("HTTP/1.1 200") {
        bail!("the engine does not tell its metrics: {text}");
    }
    Ok(text)
}

/// How many syncs took how long, by what else was under way.
fn print_syncs(name: &str, metrics: &str) {
    println!("\n{name}: syncs of the log, by what else was under way");
    let mut last = (String::new(), 0);
    for line in metrics.lines() {
        let Some((during, end, count)) = bucket(line) else { continue };
        if during != last.0 {
            println!("  {during}");
            last = (during.to_owned(), 0);
        }
        if count > last.1 {
            println!("    up to {end:>9} s {:>9}", count - last.1);
            last.1 = count;
        }
    }
}

/// The label, the upper end and the count of a line about syncs.
fn bucket(line: &str) -> Option<(&str, &str, u64)> {
    let rest = line.strip_prefix("lockkeeper_sync_seconds_bucket{during=\"")?;
    let (during, rest) = rest.split_once("\",le=\"")?;
    let (end, count) = rest.split_once("\"} ")?;
    Some((during, end, count.parse().context("a count").ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_about_syncs_is_read() {
        let line = r#"lockkeeper_sync_seconds_bucket{during="checkpoint",le="0.001"} 12"#;
        assert_eq!(bucket(line), Some(("checkpoint", "0.001", 12)));
        assert_eq!(bucket(r#"lockkeeper_sync_seconds_count{during="checkpoint"} 12"#), None);
    }
}
