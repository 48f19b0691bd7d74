//! Servers of an ensemble that are killed one at a time, under holders that must not notice.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper_testkit::java;
use lockkeeper_testkit::network::Network;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::{clock, scratch};

use crate::outage::forms::Place;
use crate::outage::holders::{Group, Kind};
use crate::outage::observer;
use crate::outage::programs::{Site, runs, sleeps};
use crate::outage::servers::{LIMIT, Servers};
use crate::outage::timeout::Timeout;

/// How many locks the programs of each kind hold.
const LOCKS: usize = 5;

/// Their host, after those of the servers.
const HOLDERS: usize = 3;

const POLL: Duration = Duration::from_millis(10);

/// A kind of program that holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Guard,
    Run,
    /// Apache Curator's `InterProcessMutex`.
    Curator,
}

impl Program {
    pub(crate) const ALL: [Self; 3] = [Self::Guard, Self::Run, Self::Curator];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Guard => "Lockkeeper: guards",
            Self::Run => "Lockkeeper: commands under `run`",
            Self::Curator => "Curator: `InterProcessMutex`",
        }
    }
}

/// What became of one lock.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) program: Program,
    /// How often the holder was told that its connection was lost.
    pub(crate) warnings: usize,
    pub(crate) is_lost: bool,
    /// For how long two believed to hold, in seconds.
    pub(crate) overlap: f64,
}

/// What became of all of them.
#[derive(Clone, Debug)]
pub(crate) struct Kills {
    /// How long nobody could write after each kill of a leader.
    pub(crate) leaders: Vec<Duration>,
    pub(crate) followers: u32,
    pub(crate) records: Vec<Record>,
}

/// Which server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Leader,
    Follower,
}

/// Kills so many leaders and as many followers, in turn. Our holders have the default timeout;
/// Curator's has the same.
pub(crate) async fn run(times: u32) -> Result<Kills> {
    let network = Network::start(u8::try_from(Place::Ensemble.servers() + 1)?)?;
    let mut servers = Servers::start(Place::Ensemble, &network).await?;
    let folder = scratch::folder()?;
    let session = Timeout::Default.of(Kind::Guard).await?;
    let site = Site {
        place: Place::Ensemble,
        connect: servers.connect_string(),
        host: Some(network.host(HOLDERS).clone()),
        folder: folder.path().to_owned(),
    };
    let mut locks = contend(&site, session).await?;
    queued(&servers, 2 * locks.len()).await?;

    let (mut leaders, mut followers) = (Vec::new(), 0);
    for number in 1..=times {
        let outage = kill(&mut servers, &network, &mut locks, Victim::Leader).await?;
        println!("leader {number} killed: no write for {:.2} s", outage.as_secs_f64());
        leaders.push(outage);
        kill(&mut servers, &network, &mut locks, Victim::Follower).await?;
        println!("follower {number} killed");
        followers += 1;
    }
    // Whoever lost a lease by the last kill knows by then.
    look_until(&mut locks, clock::now() + session + Duration::from_secs(1)).await?;
    let records = locks.iter().map(Lock::record).collect::<Result<_>>()?;
    Ok(Kills { leaders, followers, records })
}

/// Kills a server, starts it again, and returns when it has rejoined. Returns for how long nobody
/// could write.
async fn kill(
    servers: &mut Servers,
    network: &Network,
    locks: &mut [Lock],
    victim: Victim,
) -> Result<Duration> {
    let listeners = servers.listeners(network)?;
    let ensemble = servers.ensemble()?;
    let index = match victim {
        Victim::Leader => ensemble.leader().await?,
        Victim::Follower => ensemble.follower().await?,
    };
    let start = clock::now();
    ensemble.kill(index);
    let end = observer::commits(listeners, LIMIT).await?;

    // It is away for a while, as a machine that starts anew.
    look_until(locks, end + Duration::from_millis(fastrand::u64(0..2_000))).await?;
    servers.ensemble()?.server_mut(index).begin_restart()?;
    let mut settled = Box::pin(servers.settle());
    loop {
        tokio::select! {
            settled = &mut settled => break settled?,
            () = tokio::time::sleep(POLL) => look(locks)?,
        }
    }
    Ok(end - start)
}

async fn look_until(locks: &mut [Lock], end: Duration) -> Result<()> {
    while clock::now() < end {
        look(locks)?;
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn look(locks: &mut [Lock]) -> Result<()> {
    locks.iter_mut().try_for_each(Lock::look)
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

/// Starts holders, and a waiter for each that holds.
async fn contend(site: &Site, session: Duration) -> Result<Vec<Lock>> {
    let mut holders = Vec::new();
    for program in [Program::Guard, Program::Run] {
        for number in 0..LOCKS {
            holders.push((program, number, begin(site, program, number, "holder", session)?));
        }
    }
    holders.push((Program::Curator, 0, begin(site, Program::Curator, 0, "holder", session)?));

    let mut locks = Vec::new();
    for (program, number, mut holder) in holders {
        holder.prints("HELD", LIMIT).await?;
        let waiter = begin(site, program, number, "waiter", session)?;
        let seen = clock::now();
        locks.push(Lock { program, holder, waiter, seen, is_ended: false });
    }
    Ok(locks)
}

/// Waits until there are so many contenders.
async fn queued(servers: &Servers, wanted: usize) -> Result<()> {
    let start = clock::now();
    loop {
        let found = servers.ephemerals("/kills/").await?;
        if found == wanted {
            return Ok(());
        }
        ensure!(clock::now() < start + LIMIT, "{found} contenders instead of {wanted}");
        tokio::time::sleep(POLL).await;
    }
}

fn begin(
    site: &Site,
    program: Program,
    number: usize,
    role: &str,
    session: Duration,
) -> Result<Process> {
    let lock = format!("kills/{program:?}-{number}");
    let name = format!("{program:?}-{number}-{role}");
    match program {
        Program::Guard => {
            let group = Group { kind: Kind::Guard, timeout: Timeout::Default, session, size: 1 };
            site.guards(group, &lock, &name, Duration::ZERO)
        }
        Program::Run => site.run(Kind::Run, Timeout::Default, &lock, &name, &sleeps()?),
        Program::Curator => {
            let source = crate::interop().join("CuratorHolder.java");
            let mut command: Command = java::Program::compile(&source)?.command();
            command.arg(&site.connect).arg(format!("/{lock}"));
            command.arg(session.as_millis().to_string());
            site.start(&name, &command)
        }
    }
}

impl Lock {
    /// Notes whether the holder still runs.
    fn look(&mut self) -> Result<()> {
        if self.is_ended {
            return Ok(());
        }
        let runs = match self.program {
            Program::Run => runs(&mut self.holder)?,
            Program::Guard | Program::Curator => self.holder.status()?.is_none(),
        };
        match runs {
            true => self.seen = clock::now(),
            false => self.is_ended = true,
        }
        Ok(())
    }

    fn record(&self) -> Result<Record> {
        let said = said(&self.holder.stdout())?;
        let warnings =
            said.iter().filter(|(_, word)| word == "SUSPENDED" || word == "SUSPECT").count();
        let next = self.next_held()?;
        let is_told = said.iter().any(|(_, word)| word == "GONE" || word == "LOST");
        let is_lost = self.is_ended || is_told || next.is_some();
        let overlap = match next {
            None => 0.0,
            Some(next) => (self.believes_until(&said, next) - next).max(0.0),
        };
        Ok(Record { program: self.program, warnings, is_lost, overlap })
    }

    /// When the waiter was told that it holds.
    fn next_held(&self) -> Result<Option<f64>> {
        let said = said(&self.waiter.stdout())?;
        Ok(said.iter().find(|(_, word)| word == "HELD").map(|(time, _)| *time))
    }

    /// When the holder was told to stop, if it was not told so by the time `next`.
    fn believes_until(&self, said: &[(f64, String)], next: f64) -> f64 {
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

/// The times, in seconds, and the words of the lines that a holder has printed.
fn said(output: &str) -> Result<Vec<(f64, String)>> {
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let nanos: u64 = words.next().unwrap_or_default().parse().context("a line without time")?;
        let Some(word) = words.next() else { bail!("a line without a word: {line}") };
        Ok((Duration::from_nanos(nanos).as_secs_f64(), word.to_owned()))
    };
    output.lines().map(parse).collect()
}
