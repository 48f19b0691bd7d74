//! A day of operations of a queue: ten programs elect a scheduler that puts jobs, and work on them, while programs
//! and servers are killed and paused and links are cut. Each job has its effect in SQLite once.
//!
//! In each hour of the day there is a portion of the jobs, and one trouble, which strikes in the middle of the
//! work. The short form has an hour for each kind of trouble. `cargo xtask day` runs a whole day.

mod effects;
pub(crate) mod worker;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use lockkeeper_testkit::network::{Host, Network};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::scratch;
use lockkeeper_tests::{all, name};
use tempfile::TempDir;

use self::effects::Effects;
use self::worker::{BATCH, DIE_AFTER_EFFECT, DIE_AFTER_PUT, END, HELD, HOLD, WANTED, is_poison};
use crate::servers::{LIMIT, Place, Servers};

const WORKERS: usize = 10;

/// How many jobs there are in each hour of the short form.
const FEW: u32 = 120;

#[derive(Args)]
pub(crate) struct DayOptions {
    /// How many jobs there are.
    #[arg(long, default_value_t = 10_000)]
    jobs: u32,
    /// The number of faults. The first hour is without faults.
    #[arg(long, default_value_t = 24)]
    hours: u32,
    /// Where the queue is. Both, one after the other, if it is missing.
    #[arg(long, value_parser = ["engine", "ensemble"])]
    place: Option<String>,
    /// Repeats the troubles of the run that has printed this seed.
    #[arg(long, default_value_t = fastrand::u64(0..1 << 32))]
    seed: u64,
}

impl DayOptions {
    pub(crate) async fn run(&self) -> Result<()> {
        for place in all::<Place>().into_iter().filter(|place| *place != Place::Local) {
            if self.place.as_ref().is_none_or(|wanted| *wanted == name(place)) {
                self.run_on(place).await?;
            }
        }
        Ok(())
    }

    async fn run_on(&self, place: Place) -> Result<()> {
        let needed: &[Peer] = match place {
            Place::Ensemble => &[Peer::Network, Peer::ZooKeeper],
            Place::Engine | Place::Local => &[Peer::Network],
        };
        if !peers::ready("cluster: day", needed) {
            return Ok(());
        }
        let Self { jobs, hours, seed, .. } = self;
        let place_name = name(place);
        let again = format!(
            "cargo xtask day --jobs {jobs} --hours {hours} --place {place_name} --seed {seed}"
        );
        println!("again: {again}");
        let mut day = Day::start(place, *jobs).await?;
        let gone = day.go_through(*hours, fastrand::Rng::with_seed(*seed)).await;
        gone.with_context(|| format!("{}Again: {again}", day.tails()))
    }
}

/// What `cargo test` starts.
pub(crate) async fn short(place: Place) -> Result<()> {
    let seed = std::env::var("LOCKKEEPER_SEED").ok().and_then(|seed| seed.parse().ok());
    let hours = 1 + u32::try_from(Trouble::ALL.len())?;
    DayOptions { jobs: hours * FEW, hours, place: None, seed: seed.unwrap_or(1) }
        .run_on(place)
        .await
}

/// What goes wrong in an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// A worker is killed.
    WorkerDies,
    /// The scheduler is killed.
    SchedulerDies,
    /// The scheduler dies when it has put jobs, and before it has recorded that.
    SchedulerDiesAfterPut,
    /// A worker dies when a job has had its effect, and before its item is done.
    WorkerDiesAfterEffect,
    /// A worker is paused before an effect until another one has had it.
    WorkerIsLate,
    /// The links of two workers, one of them the scheduler, are cut for longer than a session lives.
    LinksAreCut,
    /// All servers are killed, and started again.
    ServersRestart,
    /// The leader of the ensemble is killed, and started again. An engine is paused.
    LeaderDies,
}

impl Trouble {
    const ALL: [Self; 8] = [
        Self::WorkerDies,
        Self::SchedulerDies,
        Self::SchedulerDiesAfterPut,
        Self::WorkerDiesAfterEffect,
        Self::WorkerIsLate,
        Self::LinksAreCut,
        Self::ServersRestart,
        Self::LeaderDies,
    ];

    /// What a program finds when the hour begins.
    fn word(self) -> Option<&'static str> {
        match self {
            Self::SchedulerDiesAfterPut => Some(DIE_AFTER_PUT),
            Self::WorkerDiesAfterEffect => Some(DIE_AFTER_EFFECT),
            Self::WorkerIsLate => Some(HOLD),
            _ => None,
        }
    }
}

struct Day {
    place: Place,
    jobs: u32,
    wanted: u32,
    effects: Effects,
    workers: Vec<Process>,
    lives: usize,
    look: Option<Process>,
    // After the programs that use them.
    servers: Servers,
    network: Network,
    folder: TempDir,
}

impl Day {
    async fn start(place: Place, jobs: u32) -> Result<Self> {
        let folder = scratch::folder()?;
        let network = Network::start(u8::try_from(place.servers() + WORKERS + 1)?)?;
        let servers = Servers::start(place, &network).await?;
        let effects = Effects::create(folder.path())?;
        let (workers, look) = (Vec::new(), None);
        let mut day = Self {
            place,
            jobs,
            wanted: 0,
            effects,
            workers,
            lives: 0,
            look,
            servers,
            network,
            folder,
        };
        day.want(0)?;
        for number in 0..WORKERS {
            let worker = day.start_worker(number)?;
            day.workers.push(worker);
        }
        Ok(day)
    }

    async fn go_through(&mut self, hours: u32, mut random: fastrand::Rng) -> Result<()> {
        let (mut deck, mut counts) = (Vec::new(), [0_usize; 3]);
        for hour in 0..hours {
            if deck.is_empty() {
                deck = Trouble::ALL.to_vec();
                random.shuffle(&mut deck);
            }
            let trouble = if hour == 0 { None } else { deck.pop() };
            let start = Instant::now();
            self.hour(hour, hours, trouble, &mut random)
                .await
                .with_context(|| format!("{trouble:?}"))?;
            if hour == 0 {
                let suppressed = self.effects.suppressed()?;
                ensure!(suppressed == 0, "{suppressed} repeats although nothing is wrong");
            }
            for (count, word) in counts.iter_mut().zip([DIE_AFTER_PUT, DIE_AFTER_EFFECT, HOLD]) {
                *count += usize::from(trouble.and_then(Trouble::word) == Some(word));
            }
            let (done, took) = (self.effects.count()?, start.elapsed().as_secs_f64());
            println!("hour {hour}: {trouble:?}, {done} of {} jobs done, {took:.1} s", self.wanted);
        }
        self.end().await?;
        self.judge(counts)
    }

    /// Adds the hour's jobs; when they are being worked on, the trouble strikes and passes. Half of the jobs at
    /// least are done at its end.
    async fn hour(
        &mut self,
        hour: u32,
        hours: u32,
        trouble: Option<Trouble>,
        random: &mut fastrand::Rng,
    ) -> Result<()> {
        if let Some(word) = trouble.and_then(Trouble::word) {
            fs::write(self.folder.path().join(word), "")?;
        }
        let (before, started) = (self.wanted, self.effects.count()?);
        self.want(self.jobs * (hour + 1) / hours)?;
        let half = (before + self.wanted) / 2;
        // Some of those that are due by then always fail.
        let done = |due: u32| (0..due).filter(|job| !is_poison(*job)).count();
        let end = done(if trouble.is_some() { half } else { self.wanted });

        self.until("work begins", |day| Ok(day.effects.count()? > started)).await?;
        if let Some(trouble) = trouble {
            self.strike(trouble, random).await?;
        }
        self.until("half of the jobs are done", |day| Ok(day.effects.count()? >= end)).await?;
        for worker in &mut self.workers {
            ensure!(worker.status()?.is_none(), "a worker ended by itself\n{}", worker.tail());
        }
        Ok(())
    }

    async fn strike(&mut self, trouble: Trouble, random: &mut fastrand::Rng) -> Result<()> {
        let lasts = Duration::from_millis(random.u64(500..5_000));
        let any = random.usize(0..WORKERS);
        match trouble {
            Trouble::WorkerDies => self.kill(any, lasts).await,
            Trouble::SchedulerDies => self.kill(self.effects.scheduler()?, lasts).await,
            Trouble::SchedulerDiesAfterPut | Trouble::WorkerDiesAfterEffect => {
                let mut dead = None;
                self.until("one dies", |day| {
                    dead = day.ended()?;
                    Ok(dead.is_some())
                })
                .await?;
                self.kill(dead.context("it was found")?, lasts).await
            }
            Trouble::WorkerIsLate => self.be_late().await,
            Trouble::LinksAreCut => {
                let sites: BTreeSet<_> = [self.effects.scheduler()?, any].into();
                self.for_links(&sites, Network::isolate)?;
                // Longer than a session.
                tokio::time::sleep(Duration::from_secs(5) + lasts).await;
                self.for_links(&sites, Network::rejoin)
            }
            Trouble::ServersRestart => {
                self.servers.kill();
                tokio::time::sleep(lasts).await;
                self.servers.begin_restart()?;
                self.servers.settle().await
            }
            Trouble::LeaderDies if self.place == Place::Engine => {
                self.servers.pause()?;
                tokio::time::sleep(lasts).await;
                self.servers.resume()
            }
            Trouble::LeaderDies => {
                let leader = self.servers.ensemble()?.leader().await?;
                self.servers.ensemble_mut()?.kill(leader);
                tokio::time::sleep(lasts).await;
                self.servers.ensemble_mut()?.server_mut(leader).begin_restart()?;
                self.servers.settle().await
            }
        }
    }

    /// The workers of these sites, and the servers.
    fn for_links(
        &self,
        sites: &BTreeSet<usize>,
        does: fn(&Network, usize, &[usize]) -> Result<()>,
    ) -> Result<()> {
        let servers: Vec<_> = (0..self.place.servers()).collect();
        sites.iter().try_for_each(|site| does(&self.network, servers.len() + site, &servers))
    }

    /// Kills a worker if it lives, and starts it again after a while.
    async fn kill(&mut self, worker: usize, lasts: Duration) -> Result<()> {
        self.workers[worker].kill();
        tokio::time::sleep(lasts).await;
        self.workers[worker] = self.start_worker(worker)?;
        Ok(())
    }

    /// Pauses the worker that is about to have an effect until another one has had it; the first one is refused.
    async fn be_late(&mut self) -> Result<()> {
        let held = self.folder.path().join(HELD);
        self.until("a worker is about to have an effect", |_| Ok(held.exists())).await?;
        let text = fs::read_to_string(&held)?;
        let (worker, job) = text.split_once(' ').with_context(|| format!("{text:?}"))?;
        let (worker, job): (usize, u32) = (worker.parse()?, job.parse()?);

        self.workers[worker].pause()?;
        self.until("another worker has the effect", |day| day.effects.has(job)).await?;
        let stale = self.effects.stale()?;
        fs::remove_file(&held)?;
        self.workers[worker].resume()?;
        self.until("the late one is refused", |day| Ok(day.effects.stale()? > stale)).await
    }

    /// Everything that was put is done, or a dead letter; and all programs end.
    async fn end(&mut self) -> Result<()> {
        let all = (0..self.jobs).filter(|job| !is_poison(*job)).count();
        self.until("all jobs are done", |day| Ok(day.effects.count()? == all)).await?;
        let mut look = self.spawn("day-look", self.host(WORKERS), &[self.jobs.to_string()])?;
        look.prints("EMPTY", 3 * LIMIT).await?;
        fs::write(self.folder.path().join(END), "")?;
        for worker in &mut self.workers {
            let status = worker.end(LIMIT).await?;
            ensure!(status.success(), "a worker ended with {status}\n{}", worker.tail());
        }
        let status = look.end(LIMIT).await?;
        print!("{}", look.stdout());
        ensure!(status.success(), "the queue: {status}\n{}", look.tail());
        self.look = Some(look);
        Ok(())
    }

    fn judge(&self, [after_put, after_effect, late]: [usize; 3]) -> Result<()> {
        let effects = &self.effects;
        let wanted: Vec<_> = (0..self.jobs).filter(|job| !is_poison(*job)).collect();
        ensure!(effects.jobs()? == wanted, "effects that no job had");
        let (suppressed, stale) = (effects.suppressed()?, effects.stale()?);
        let (put_again, terms) = (effects.put_again()?, effects.terms()?);
        println!(
            "{} effects, each once; {suppressed} repeats suppressed, {stale} of them by the token; {put_again} jobs \
             put again, over {terms} terms of schedulers; {} lives of workers",
            wanted.len(),
            self.lives
        );
        ensure!(
            (after_put..=usize::try_from(BATCH)? * terms).contains(&put_again),
            "the jobs of a scheduler that died are not put again, or more than these"
        );
        ensure!(stale >= late, "a late effect was not refused by its token");
        ensure!(suppressed >= after_effect + late, "a repeat was not suppressed");
        Ok(())
    }

    fn want(&mut self, jobs: u32) -> Result<()> {
        let folder = self.folder.path();
        fs::write(folder.join("wanted-next"), jobs.to_string())?;
        fs::rename(folder.join("wanted-next"), folder.join(WANTED))?;
        self.wanted = jobs;
        Ok(())
    }

    /// Waits for this condition, as long as there is progress.
    async fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let (mut last, mut since) = (0, Instant::now());
        while !is_so(self)? {
            let now = self.effects.count()? + self.effects.suppressed()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > LIMIT {
                bail!("no progress for {LIMIT:?}, before {what}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// A worker that has ended.
    fn ended(&mut self) -> Result<Option<usize>> {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            if worker.status()?.is_some() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    fn host(&self, number: usize) -> &Host {
        self.network.host(self.place.servers() + number)
    }

    fn start_worker(&mut self, number: usize) -> Result<Process> {
        self.lives += 1;
        let folder = self.folder.path().display().to_string();
        self.spawn("day-worker", self.host(number), &[folder, number.to_string()])
    }

    /// This program on a host, in a role of this folder.
    fn spawn(&self, role: &str, host: &Host, arguments: &[String]) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["run", role, &self.servers.connect_string()]).args(arguments);
        Process::spawn(
            &format!("{role}-{}", self.lives),
            &host.command(&command),
            self.folder.path(),
        )
    }

    fn tails(&self) -> String {
        self.workers.iter().map(Process::tail).collect()
    }
}
