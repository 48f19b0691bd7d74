//! Servers of an ensemble that are killed one at a time, under holders that must not notice.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper_testkit::clock;
use lockkeeper_testkit::peers::Peer;
use lockkeeper_testkit::process::Process;
use lockkeeper_tests::median;

use super::holders::{HolderKind, default_timeout};
use super::is_ready;
use super::rivals::{writer, writes};
use super::stand::Stand;
use crate::programs::{Site, curator, first_said, runs, said};
use crate::servers::{LIMIT, Place, queued};

/// A kind of program that holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Guard,
    Run,
    /// Apache Curator's `InterProcessMutex`.
    Curator,
}

/// The programs, with the number of locks that each holds, and its name in the table.
const PROGRAMS: [(Program, usize, &str); 3] = [
    (Program::Guard, 5, "Lockkeeper: guards"),
    (Program::Run, 5, "Lockkeeper: commands under `run`"),
    (Program::Curator, 1, "Curator: `InterProcessMutex`"),
];

/// What became of one lock.
#[derive(Clone, Debug)]
struct Record {
    program: Program,
    /// How often the holder was informed of a lost connection.
    warnings: usize,
    is_lost: bool,
    /// For how long two believed to hold, in seconds.
    overlap: f64,
}

/// What became of all of them.
pub(super) struct Kills {
    /// How long writes were impossible after each kill of a leader. The same number of followers was killed.
    leaders: Vec<Duration>,
    records: Vec<Record>,
}

/// What `cargo test` starts.
pub(crate) async fn short() -> Result<()> {
    if !is_ready(&[Peer::Curator]) {
        return Ok(());
    }
    run(3).await?.judge()
}

/// Kills so many leaders and as many followers, in turn. Our holders have the default timeout;
/// Curator's has the same.
pub(super) async fn run(times: u32) -> Result<Kills> {
    let session = default_timeout(HolderKind::Guard)?;
    let mut stand = Stand::start(Place::Ensemble, 1).await?;
    let mut locks = Vec::new();
    for (program, count, _) in PROGRAMS {
        for number in 0..count {
            locks.push(Lock::begin(&stand.site(0), program, number, session).await?);
        }
    }
    queued(stand.servers.ensemble()?, "/kills/", 2 * locks.len()).await?;

    let mut leaders = Vec::new();
    for number in 1..=times {
        let leader = stand.servers.ensemble()?.leader().await?;
        let outage = kill(&mut stand, leader).await?;
        println!("leader {number} killed: no write for {:.2} s", outage.as_secs_f64());
        leaders.push(outage);
        let follower = stand.servers.ensemble()?.follower().await?;
        kill(&mut stand, follower).await?;
        println!("follower {number} killed");
    }
    // Whoever lost a lease by the last kill knows by then.
    tokio::time::sleep(session + Duration::from_secs(1)).await;
    let records = locks.iter_mut().map(Lock::record).collect::<Result<_>>()?;
    let kills = Kills { leaders, records };
    println!("\n{}", kills.table());
    Ok(kills)
}

/// Kills a server, starts it again, and returns when it has rejoined. Returns how long writes
/// were impossible.
async fn kill(stand: &mut Stand, server: usize) -> Result<Duration> {
    let outage = stand.kill(server).await?;
    // It is away for a while, as a machine that starts anew.
    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..2_000))).await;
    stand.servers.ensemble_mut()?.server_mut(server).begin_restart()?;
    stand.servers.settle().await?;
    Ok(outage)
}

/// A lock with a holder and a waiting contender.
struct Lock {
    program: Program,
    holder: Process,
    waiter: Process,
    /// What the commands under `run` write to.
    ledger: PathBuf,
}

impl Lock {
    async fn begin(
        site: &Site,
        program: Program,
        number: usize,
        session: Duration,
    ) -> Result<Self> {
        let lock = format!("kills/{program:?}-{number}");
        let ledger = site.folder.join(format!("{program:?}-{number}.ledger"));
        let start = |role: &str| {
            let (path, name) = (format!("/{lock}"), format!("{program:?}-{number}-{role}"));
            match program {
                Program::Guard => site.ours(&name, "hold", &path, &[]),
                Program::Run => site.run(&name, &lock, None, false, &writer(&ledger)?),
                Program::Curator => {
                    let mut command = curator("CuratorHolder")?;
                    command.args([&site.connect, &path, &session.as_millis().to_string()]);
                    site.start(&name, &command)
                }
            }
        };
        let mut holder = start("holder")?;
        holder.prints("HELD", LIMIT).await?;
        let waiter = start("waiter")?;
        Ok(Self { program, holder, waiter, ledger })
    }

    fn record(&mut self) -> Result<Record> {
        let is_ended = match self.program {
            Program::Run => !runs(&mut self.holder)?,
            Program::Guard | Program::Curator => self.holder.status()?.is_some(),
        };
        let output = self.holder.stdout();
        let said = said(&output);
        let warnings = said.iter().filter(|(_, words)| is_any(words, &["SUSPENDED", "SUSPECT"]));
        // When the waiter was granted the lock.
        let next = first_said(&self.waiter.stdout(), "HELD");
        let is_told = said.iter().any(|(_, words)| is_any(words, &["GONE", "LOST"]));
        let overlap = match next {
            Some(next) => (self.believes_until(&said, next)? - next).max(0.0),
            None => 0.0,
        };
        Ok(Record {
            program: self.program,
            warnings: warnings.count(),
            is_lost: is_ended || is_told || next.is_some(),
            overlap,
        })
    }

    /// When the holder had to stop, if that was after the time `next`. For a command, when it wrote last.
    fn believes_until(&self, said: &[(f64, &str)], next: f64) -> Result<f64> {
        if self.program == Program::Run {
            let wrote = writes(&self.ledger)?;
            let (_, token) = *wrote.first().context("it has written nothing")?;
            let last = wrote.iter().rfind(|(_, by)| *by == token);
            return Ok(last.map_or(next, |(time, _)| *time));
        }
        let ends = |words: &str| is_any(words, &["SUSPENDED", "LOST", "GONE"]);
        let before = said.iter().rfind(|(time, _)| *time <= next);
        if before.is_some_and(|(_, word)| ends(word)) {
            return Ok(next);
        }
        let after = said.iter().find(|(time, word)| *time > next && ends(word));
        Ok(after.map_or(clock::now().as_secs_f64(), |(time, _)| *time))
    }
}

fn is_any(words: &str, events: &[&str]) -> bool {
    events.iter().any(|event| words.starts_with(event))
}

impl Kills {
    /// Curator's figures are only reported; Lockkeeper's must be zero.
    pub(super) fn judge(&self) -> Result<()> {
        let ours = self.records.iter().filter(|record| record.program != Program::Curator);
        let broken = ours.filter(|record| record.is_lost || record.overlap > 0.0);
        let broken: Vec<_> = broken.map(|record| format!("\n  {record:?}")).collect();
        let lines = broken.concat();
        ensure!(broken.is_empty(), "{} holders have lost their locks:{lines}", broken.len());
        Ok(())
    }

    /// What servers that are killed did to holders, in Markdown.
    pub(super) fn table(&self) -> String {
        let mut text = String::from(
            "| holders | locks | leader kills | follower kills | warned | lost | overlap |\n\
             |---|--:|--:|--:|--:|--:|--:|\n",
        );
        for (program, _, title) in PROGRAMS {
            let records = self.records.iter().filter(|record| record.program == program);
            let warnings: usize = records.clone().map(|record| record.warnings).sum();
            let lost = records.clone().filter(|record| record.is_lost).count();
            let overlap = records.clone().map(|record| record.overlap).fold(0.0, f64::max);
            let warned = if program == Program::Run { "not told" } else { &warnings.to_string() };
            let (locks, kills) = (records.count(), self.leaders.len());
            let _ = writeln!(
                text,
                "| {title} | {locks} | {kills} | {kills} | {warned} | {lost} | {overlap:.2} s |"
            );
        }
        let lengths = self.leaders.iter().map(Duration::as_secs_f64);
        let (middle, longest) = (median(lengths.clone()), lengths.fold(0.0, f64::max));
        let _ = writeln!(
            text,
            "\nNobody could write for {middle:.2} s after the kill of a leader (median; longest \
             {longest:.2} s)."
        );
        text
    }
}
