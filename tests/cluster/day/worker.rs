//! A program that works on jobs, and stands for election as the scheduler that puts them.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use lockkeeper::{Client, Election, Item, Queue, Shared};
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::{Instant, sleep};

use super::effects::Effects;
use crate::servers::LIMIT;

/// The shortest session that the servers grant: two ticks.
const SESSION: Duration = Duration::from_secs(4);

/// How many jobs a scheduler puts at once, and how many a worker works on.
pub(super) const BATCH: u32 = 20;
const AT_ONCE: usize = 4;

/// How often a job that always fails is tried.
const TRIES: u32 = 5;

/// One job of so many always fails.
const POISON: u32 = 101;

/// How many jobs there are to be by now.
pub(super) const WANTED: &str = "wanted";
/// Ends all workers.
pub(super) const END: &str = "end";
/// The scheduler that finds this dies between a put and the record of it.
pub(super) const DIE_AFTER_PUT: &str = "die-after-put";
/// The worker that finds this dies between an effect and the end of the item.
pub(super) const DIE_AFTER_EFFECT: &str = "die-after-effect";
/// The worker that finds this names itself and the job in [`HELD`] before its effect, and has it when that is gone.
pub(super) const HOLD: &str = "hold";
pub(super) const HELD: &str = "held";

pub(super) fn is_poison(job: u32) -> bool {
    job % POISON == POISON - 1
}

async fn connect(servers: &str) -> Client {
    loop {
        // It may be started while no server is well.
        match Client::builder().session_timeout(SESSION).connect(servers).await {
            Ok(client) => return client,
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

fn jobs(client: &Client, label: &str) -> Result<Queue<u32>> {
    Ok(Queue::<u32>::builder(client, "/day/jobs").max_tries(TRIES).label(label).build()?)
}

#[derive(Args)]
pub(crate) struct DayWorker {
    connect: String,
    folder: PathBuf,
    number: u32,
}

impl DayWorker {
    pub(crate) async fn run(self) -> Result<()> {
        let client = connect(&self.connect).await;
        let queue = jobs(&client, &format!("worker {}", self.number))?;
        let election = Election::new(&client, "/day/scheduler")?;
        let cursor = Shared::new(&client, "/day/cursor")?;
        let effects = Arc::new(Mutex::new(Effects::open(&self.folder)?));
        let ended = async {
            while !self.folder.join(END).exists() {
                sleep(Duration::from_millis(50)).await;
            }
        };

        tokio::select! {
            never = election.lead(|_| self.schedule(&queue, &cursor)) => match never?? {},
            worked = queue.work_until(AT_ONCE, ended, |item| self.work(&effects, item)) => worked?,
        }
        drop((queue, election, cursor));
        client.close().await;
        Ok(())
    }

    /// Puts the jobs that are due, from where the last scheduler was. One that died between a put and the record
    /// of it has the next one put the same batch again: the job's number is the key of its effect.
    async fn schedule(&self, queue: &Queue<u32>, cursor: &Shared<u32>) -> Result<Infallible> {
        let effects = Effects::open(&self.folder)?;
        loop {
            effects.begin_term(self.number)?;
            let Err(error) = self.put_jobs(queue, cursor).await;
            eprintln!("putting again: {error:#}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn put_jobs(&self, queue: &Queue<u32>, cursor: &Shared<u32>) -> Result<Infallible> {
        let mut next = cursor.get().await?.map_or(0, |found| found.value);
        loop {
            let wanted: u32 = fs::read_to_string(self.folder.join(WANTED))?.parse()?;
            if next == wanted {
                sleep(Duration::from_millis(20)).await;
                continue;
            }
            let end = wanted.min(next + BATCH);
            queue.put_all(&(next..end).collect::<Vec<_>>()).await?;
            if takes(&self.folder, DIE_AFTER_PUT) {
                die();
            }
            cursor.set(&end).await?;
            next = end;
        }
    }

    async fn work(
        &self,
        effects: &Arc<Mutex<Effects>>,
        item: Arc<Item<u32>>,
    ) -> Result<(), String> {
        let job = *item.value();
        if is_poison(job) {
            return Err(format!("job {job} always fails"));
        }
        // What the job takes.
        sleep(Duration::from_millis(fastrand::u64(1..20))).await;

        let (effects, folder) = (Arc::clone(effects), self.folder.clone());
        let (id, token, number) = (item.id().to_owned(), item.token(), self.number);
        let effect = tokio::task::spawn_blocking(move || {
            // Whoever is paused while it holds still is in no transaction, in which it would keep all others out.
            let mut effects = effects.lock().expect("no panic");
            // A repeat would tell nothing: the world waits until another worker has the effect.
            if !effects.has(job)? && takes(&folder, HOLD) {
                hold(&folder, number, job)?;
            }
            effects.have(job, &id, token)?;
            if takes(&folder, DIE_AFTER_EFFECT) {
                die();
            }
            anyhow::Ok(())
        });
        effect.await.map_err(|error| error.to_string())?.map_err(|error| format!("{error:#}"))
    }
}

/// Stands still until the world lets it go on.
fn hold(folder: &Path, worker: u32, job: u32) -> Result<()> {
    let held = folder.join(HELD);
    fs::write(folder.join("holding"), format!("{worker} {job}"))?;
    fs::rename(folder.join("holding"), &held)?;
    while held.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether there was a word of this name; one program takes it.
fn takes(folder: &Path, word: &str) -> bool {
    fs::rename(folder.join(word), folder.join(format!("taken-{word}"))).is_ok()
}

fn die() {
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Looks at the queue at the end of the day: nothing is left but the jobs that always fail. Deletes it then.
#[derive(Args)]
pub(crate) struct DayLook {
    connect: String,
    jobs: u32,
}

impl DayLook {
    pub(crate) async fn run(self) -> Result<()> {
        let client = connect(&self.connect).await;
        let queue = jobs(&client, "look")?;
        let mut last = queue.inspect().await?;
        let mut since = Instant::now();
        while last.waiting + last.claimed > 0 {
            ensure!(since.elapsed() < LIMIT, "no progress: {last:?}");
            sleep(Duration::from_millis(100)).await;
            let now = queue.inspect().await?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        println!("{last:?}");

        let mut dead = Vec::new();
        for letter in queue.dead_letters().await? {
            let job =
                queue.dead_value(&letter.id).await?.context("a dead letter without a value")?;
            let reason = format!("tried {TRIES} times: job {job} always fails");
            // Whoever had it last may have died before it could say that.
            let is_lost =
                letter.reason == format!("tried {TRIES} times: given back or lost each time");
            ensure!(letter.reason == reason || is_lost, "{letter:?}");
            ensure!(letter.attempts == TRIES && letter.holder.is_some(), "{letter:?}");
            dead.push(job);
        }
        println!("{} dead letters", dead.len());
        dead.sort_unstable();
        dead.dedup();
        let poison: Vec<_> = (0..self.jobs).filter(|job| is_poison(*job)).collect();
        ensure!(dead == poison, "dead letters of the jobs {dead:?}, not of {poison:?}");

        println!("EMPTY");
        while queue.inspect().await?.workers > 0 {
            ensure!(since.elapsed() < LIMIT, "consumers are left");
            sleep(Duration::from_millis(100)).await;
        }
        match queue.delete().await? {
            true => Ok(()),
            false => Err(anyhow!("there was no queue")),
        }
    }
}
