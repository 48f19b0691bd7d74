//! Servers of an ensemble that are killed one at a time, under holders that must not notice.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use lockkeeper_testkit::clock;
use lockkeeper_testkit::peers::Peer;
use lockkeeper_testkit::process::Process;
use lockkeeper_tests::median;

use super::holders::{HolderKind, Timeout};
use super::is_ready;
use super::stand::Stand;
use crate::programs::{Site, curator, first_said, runs, said, sleeps};
use crate::servers::{LIMIT, Place, queued};

/// How many locks the programs of each kind of ours hold.
const LOCKS: usize = 5;

const POLL: Duration = Duration::from_millis(10);

/// A kind of program that holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Guard,
    Run,
    /// Apache Curator's `InterProcessMutex`.
    Curator,
}

/// What became of one lock.
#[derive(Clone, Debug)]
struct Record {
    program: Program,
    /// How often the holder was told that its connection was lost.
    warnings: usize,
    is_lost: bool,
    /// For how long two believed to hold, in seconds.
    overlap: f64,
}

/// What became of all of them.
pub(super) struct Kills {
    /// How long nobody could write after each kill of a leader. As many followers were killed.
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
    let session = Timeout::Default.of(HolderKind::Guard).await?;
    let mut stand = Stand::start(Place::Ensemble, 1).await?;
    let mut locks = Vec::new();
    for (program, count) in [(Program::Guard, LOCKS), (Program::Run, LOCKS), (Program::Curator, 1)]
    {
        for number in 0..count {
            let holder = begin(&stand.site(0), program, number, "holder", session)?;
            locks.push((program, number, holder));
        }
    }
    let mut contended = Vec::new();
    for (program, number, mut holder) in locks {
        holder.prints("HELD", LIMIT).await?;
        let waiter = begin(&stand.site(0), program, number, "waiter", session)?;
        contended.push(Lock { program, holder, waiter, seen: clock::now(), is_ended: false });
    }
    let mut locks = contended;
    queued(stand.servers.ensemble()?, "/kills/", 2 * locks.len()).await?;

    let mut leaders = Vec::new();
    for number in 1..=times {
        let leader = stand.servers.ensemble()?.leader().await?;
        let outage = kill(&mut stand, &mut locks, leader).await?;
        println!("leader {number} killed: no write for {:.2} s", outage.as_secs_f64());
        leaders.push(outage);
        let follower = stand.servers.ensemble()?.follower().await?;
        kill(&mut stand, &mut locks, follower).await?;
        println!("follower {number} killed");
    }
    // Whoever lost a lease by the last kill knows by then.
    look_until(&mut locks, clock::now() + session + Duration::from_secs(1)).await?;
    let kills = Kills { leaders, records: locks.iter().map(Lock::record).collect() };
    println!("\n{}", kills.table());
    Ok(kills)
}

/// Kills a server, starts it again, and returns when it has rejoined. Returns for how long nobody
/// could write.
async fn kill(stand: &mut Stand, locks: &mut [Lock], server: usize) -> Result<Duration> {
    let outage = stand.kill(server).await?;
    // It is away for a while, as a machine that starts anew.
    look_until(locks, clock::now() + Duration::from_millis(fastrand::u64(0..2_000))).await?;
    stand.servers.ensemble_mut()?.server_mut(server).begin_restart()?;
    let mut settled = Box::pin(stand.servers.settle());
    loop {
        tokio::select! {
            settled = &mut settled => return settled.map(|()| outage),
            () = tokio::time::sleep(POLL) => locks.iter_mut().try_for_each(Lock::look)?,
        }
    }
}

async fn look_until(locks: &mut [Lock], end: Duration) -> Result<()> {
    while clock::now() < end {
        locks.iter_mut().try_for_each(Lock::look)?;
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn begin(
    site: &Site,
    program: Program,
    number: usize,
    role: &str,
    session: Duration,
) -> Result<Process> {
    let lock = format!("kills/{program:?}-{number}");
    let (path, name) = (format!("/{lock}"), format!("{program:?}-{number}-{role}"));
    match program {
        Program::Guard => site.ours(&name, "hold", &path, &[]),
        Program::Run => site.run(&name, &lock, None, false, &sleeps()?),
        Program::Curator => {
            let mut command = curator("CuratorHolder")?;
            command.args([&site.connect, &path, &session.as_millis().to_string()]);
            site.start(&name, &command)
        }
    }
}

/// A lock with a holder and a waiting contender.
struct Lock {
    program: Program,
    holder: Process,
    waiter: Process,
    /// When the holder, or the command under `run`, was seen to run at last.
    seen: Duration,
    is_ended: bool,
}

impl Lock {
    /// Notes whether the holder still runs.
    fn look(&mut self) -> Result<()> {
        let runs = !self.is_ended
            && match self.program {
                Program::Run => runs(&mut self.holder)?,
                Program::Guard | Program::Curator => self.holder.status()?.is_none(),
            };
        match runs {
            true => self.seen = clock::now(),
            false => self.is_ended = true,
        }
        Ok(())
    }

    fn record(&self) -> Record {
        let output = self.holder.stdout();
        let said: Vec<(f64, &str)> = said(&output)
            .into_iter()
            .map(|(time, words)| (time, words.split(' ').next().unwrap_or_default()))
            .collect();
        let warnings = said.iter().filter(|(_, word)| matches!(*word, "SUSPENDED" | "SUSPECT"));
        // When the waiter was told that it holds.
        let next = first_said(&self.waiter.stdout(), "HELD");
        let is_told = said.iter().any(|(_, word)| matches!(*word, "GONE" | "LOST"));
        Record {
            program: self.program,
            warnings: warnings.count(),
            is_lost: self.is_ended || is_told || next.is_some(),
            overlap: next.map_or(0.0, |next| (self.believes_until(&said, next) - next).max(0.0)),
        }
    }

    /// When the holder was told to stop, if it was not told so by the time `next`.
    fn believes_until(&self, said: &[(f64, &str)], next: f64) -> f64 {
        if self.program == Program::Run || self.is_ended {
            return self.seen.as_secs_f64();
        }
        let ends = |word: &str| matches!(word, "SUSPENDED" | "LOST" | "GONE");
        let before = said.iter().rfind(|(time, _)| *time <= next);
        if before.is_some_and(|(_, word)| ends(word)) {
            return next;
        }
        let after = said.iter().find(|(time, word)| *time > next && ends(word));
        after.map_or(clock::now().as_secs_f64(), |(time, _)| *time)
    }
}

impl Kills {
    /// Curator's figures are what they are; ours must be zero.
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
        for (program, title) in [
            (Program::Guard, "Lockkeeper: guards"),
            (Program::Run, "Lockkeeper: commands under `run`"),
            (Program::Curator, "Curator: `InterProcessMutex`"),
        ] {
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
