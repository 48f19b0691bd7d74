//! The same locks in three languages: our tasks contend with programs on Apache Curator (Java) and
//! kazoo (Python) on one path of a real ZooKeeper, with random timings and kills.
//!
//! No two programs are inside that exclude each other, all get turns, and no node is left. Each contest
//! lasts for some seconds, or for half a minute with `LOCKKEEPER_LONG=1`, and prints the seed that
//! its timings come from; `LOCKKEEPER_SEED` gives it.

/// Tests that differ in what they run.
macro_rules! tests {
    ($($(#[$about:meta])* fn $name:ident() = $run:expr;)*) => {
        $(
            $(#[$about])*
            #[tokio::test]
            async fn $name() -> anyhow::Result<()> {
                $run.await
            }
        )*
    };
}

mod barriers;
mod caches;
mod counters;
mod discovery;
mod downgrade;
mod elections;
mod groups;
mod inside;
mod ours;
mod presences;
mod queues;
mod revocation;
mod sums;
mod theirs;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper::{Client, ErrorCode, Profile, SemaphoreProfile, ZnodePath, exposures};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::scratch;
use lockkeeper_testkit::zookeeper::shared_chroot;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::inside::Inside;
use crate::ours::Kind;
use crate::theirs::Language::{self, Java, Python};
use crate::theirs::{LIMIT, SESSION_MS, are_ready, until};

const PATH: &str = "/locks/shared";

/// Two programs of each library.
const BOTH: &[Language] = &[Java, Java, Python, Python];

tests! {
    fn mutex_with_curator_and_kazoo() =
        contest(Kind::Mutex(Profile::Curator), "mutex", BOTH, None);
    /// All of them show the same credentials, and keep strangers out by an `ACLProvider` in Curator, a
    /// `default_acl` in kazoo, and what is ours by default.
    fn mutex_with_curator_and_kazoo_and_credentials() =
        contest(Kind::Mutex(Profile::Curator), "mutex", BOTH, Some(("ann", "secret")));
    fn mutex_with_kazoo_and_its_own_names() =
        contest(Kind::Mutex(Profile::Kazoo), "kazoo-mutex", &[Python; 3], None);
    fn read_write_lock_with_curator_and_kazoo() =
        contest(Kind::ReadWrite(Profile::Curator), "rw", BOTH, None);
    fn read_write_lock_with_kazoo_and_its_own_names() =
        contest(Kind::ReadWrite(Profile::Kazoo), "kazoo-rw", &[Python; 3], None);
    fn semaphore_with_curator() =
        contest(Kind::Semaphore(SemaphoreProfile::Curator, 3), "semaphore:3", &[Java; 3], None);
    fn semaphore_with_kazoo() =
        contest(Kind::Semaphore(SemaphoreProfile::Kazoo, 3), "semaphore:3", &[Python; 3], None);
    fn several_locks_with_curator_and_kazoo() =
        contest(Kind::Multi(Profile::Curator), "multi", BOTH, None);
    fn several_locks_with_kazoo_and_its_own_names() =
        contest(Kind::Multi(Profile::Kazoo), "kazoo-multi", &[Python; 3], None);
}

/// How many tasks of ours take part.
const OURS: usize = 3;

/// `digest`: the user and the password that all contenders show.
async fn contest(
    kind: Kind,
    theirs: &str,
    languages: &[Language],
    digest: Option<(&'static str, &'static str)>,
) -> Result<()> {
    let user = digest.map(|(user, _)| format!(" as {user}")).unwrap_or_default();
    let suite = format!("{kind:?}{user}");
    if !are_ready(&suite, languages) {
        return Ok(());
    }
    let (seed, time) = (seed_of(&suite), time_of_a_contest());
    let contest = Contest {
        connect: shared_chroot().await?,
        kind,
        theirs: theirs.to_owned(),
        digest,
        time,
        random: fastrand::Rng::with_seed(seed),
        folder: scratch::folder()?,
        programs: Vec::new(),
        ended: Turns::new(),
        kills: 0,
    };
    contest.run(languages).await.with_context(|| format!("{suite}, LOCKKEEPER_SEED={seed}"))
}

/// What the timings of a contest come from.
fn seed_of(suite: &str) -> u64 {
    let seed = env::var("LOCKKEEPER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("{suite}: LOCKKEEPER_SEED={seed}");
    seed
}

/// How long a contest lasts.
fn time_of_a_contest() -> Duration {
    let is_long = env::var_os("LOCKKEEPER_LONG").is_some_and(|value| value == "1");
    Duration::from_secs(if is_long { 30 } else { 8 })
}

/// How often each contender was inside, and in which way.
type Turns = BTreeMap<String, Vec<String>>;

struct Contest {
    connect: String,
    kind: Kind,
    theirs: String,
    digest: Option<(&'static str, &'static str)>,
    time: Duration,
    random: fastrand::Rng,
    // Before the folder, so that no program still writes when the folder is removed.
    programs: Vec<Program>,
    folder: TempDir,
    /// Of those that were killed.
    ended: Turns,
    kills: usize,
}

struct Program {
    name: String,
    language: Language,
    process: Process,
}

impl Contest {
    async fn run(mut self, languages: &[Language]) -> Result<()> {
        for room in self.rooms() {
            fs::create_dir_all(room.join("inside"))?;
        }
        for (index, language) in languages.iter().enumerate() {
            let program = self.start(*language, index, self.time)?;
            self.programs.push(program);
        }
        // Those in Java need a moment to come up.
        for program in &mut self.programs {
            program.process.prints("TURN", LIMIT).await?;
        }
        let started = Instant::now();
        let ours = self.start_ours().await?;
        self.kill_some(started).await?;
        let turns = self.finish(ours).await?;
        self.check(&turns).await
    }

    fn start(&mut self, language: Language, number: usize, time: Duration) -> Result<Program> {
        let mut command = language.program("Locks")?;
        let name = format!("{language:?}-{number}").to_lowercase();
        let seconds = time.as_secs().max(2).to_string();
        command.args([&self.connect, &self.theirs, PATH, &seconds]).arg(self.folder.path());
        command.args([SESSION_MS, &name, &self.random.u32(..).to_string()]);
        if let Some((user, password)) = self.digest {
            command.env("CONTENDER_DIGEST", format!("{user}:{password}"));
        }
        let process = Process::spawn(&name, &command, self.folder.path())?;
        Ok(Program { name, language, process })
    }

    async fn start_ours(&mut self) -> Result<Vec<Ours>> {
        let mut ours = Vec::new();
        for number in 0..OURS {
            let name = format!("ours-{number}");
            let permits = self.kind.permits();
            let rooms = self.rooms().map(|room| Inside::new(&room, &name, permits)).collect();
            let client = self.client().await?;
            let contender = ours::Contender::new(&client, PATH, &self.kind, rooms)?;
            let (time, random) = (self.time, self.random.fork());
            let task = tokio::spawn(async move {
                let turns = contender.take_turns(time, random).await;
                client.close().await;
                turns
            });
            ours.push((name, task));
        }
        Ok(ours)
    }

    /// Kills a program now and then, wherever it is, and starts another in its place.
    async fn kill_some(&mut self, started: Instant) -> Result<()> {
        loop {
            let pause = Duration::from_millis(self.random.u64(1_000..5_000));
            if started.elapsed() + pause + Duration::from_secs(3) > self.time && self.kills > 0 {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            let victim = self.random.usize(..self.programs.len());
            let mut victim = self.programs.swap_remove(victim);
            victim.process.kill();
            // Its session lives for some more seconds: its place is not taken before this is done.
            for room in self.rooms() {
                Inside::forget(&room, &victim.name)?;
            }
            ensure!(!victim.process.stdout().contains("VIOLATION"), "{}", victim.process.tail());
            self.ended.insert(victim.name, turns(&victim.process.stdout()));
            self.kills += 1;
            let left = self.time.saturating_sub(started.elapsed());
            let number = 10 + self.kills;
            let next = self.start(victim.language, number, left)?;
            self.programs.push(next);
        }
    }

    async fn finish(&mut self, ours: Vec<Ours>) -> Result<Turns> {
        let mut all = Turns::new();
        for (name, task) in ours {
            let turns = tokio::time::timeout(self.time + LIMIT, task).await;
            let turns = turns.with_context(|| format!("{name} hangs"))???;
            all.insert(name, turns);
        }
        for program in &mut self.programs {
            let status = program.process.end(LIMIT).await?;
            let tail = program.process.tail();
            ensure!(status.success(), "{}: {status}\n{tail}", program.name);
            all.insert(program.name.clone(), turns(&program.process.stdout()));
        }
        Ok(all)
    }

    async fn check(&self, turns: &Turns) -> Result<()> {
        let counts: Vec<_> = turns.iter().map(|(name, turns)| (name, turns.len())).collect();
        println!("turns: {counts:?}, {} killed", self.kills);
        for (name, turns) in turns {
            ensure!(!turns.is_empty(), "{name} was never inside: {counts:?}");
        }
        for (name, folder) in self.kind.rooms().iter().zip(self.rooms()) {
            Inside::nobody(&folder)?;
            // One that is killed may have counted, and not said so.
            let said = turns.values().chain(self.ended.values()).flatten();
            let said = said.filter(|turn| self.kind.counts(turn, name)).count();
            let counter = Inside::counter(&folder)?;
            ensure!(
                (said..=said + self.kills).contains(&counter),
                "{said} said that they counted, and the counter is {counter}"
            );
            tokens_grow(&folder)?;
        }
        if self.digest.is_some() {
            strangers_stay_out(&self.connect).await?;
        }
        self.nothing_is_left().await
    }

    fn rooms(&self) -> impl Iterator<Item = PathBuf> {
        self.kind.rooms().iter().map(|room| self.folder.path().join(room))
    }

    /// Waits until the sessions of killed programs and all nodes are gone.
    async fn nothing_is_left(&self) -> Result<()> {
        let client = self.client().await?;
        let left = async || ephemerals(&client, ZnodePath::new("/locks")?).await;
        let nothing = until(async || Ok(left().await?.is_empty())).await;
        match nothing {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(format!("left behind: {:?}", left().await?))),
        }
    }

    async fn client(&self) -> Result<Client> {
        let mut builder = Client::builder().session_timeout(Duration::from_secs(10));
        if let Some((user, password)) = self.digest {
            builder = builder.digest(user, password);
        }
        Ok(builder.server_tick(Duration::from_millis(500)).connect(&self.connect).await?)
    }
}

/// Whoever made the znodes of the lock, in whatever language, made none that is open.
async fn strangers_stay_out(connect: &str) -> Result<()> {
    let (stranger, lock) = (Client::connect(connect).await?, ZnodePath::new(PATH)?);
    ensure!(stranger.exists(&lock).await?.is_some(), "the lock is there");
    let open = exposures(&stranger, &lock).await?;
    ensure!(open.is_empty(), "open: {open:?}");
    let refused = stranger.delete(&lock, None).await.map_err(|error| error.code());
    ensure!(refused == Err(Some(ErrorCode::NoAuth)), "{refused:?}");
    Ok(())
}

/// Whoever came later into a mutex has a larger token, in whatever language.
fn tokens_grow(room: &Path) -> Result<()> {
    let log = fs::read_to_string(room.join("log")).unwrap_or_default();
    let tokens: Result<Vec<i64>, _> = log.lines().map(str::parse).collect();
    ensure!(tokens?.is_sorted_by(|a, b| a < b), "tokens do not grow: {log}");
    Ok(())
}

type Ours = (String, JoinHandle<Result<Vec<String>>>);

/// The lines `TURN ...` of a program.
fn turns(output: &str) -> Vec<String> {
    output.lines().filter_map(|line| line.strip_prefix("TURN ").map(str::to_owned)).collect()
}

/// All ephemeral nodes at a path and below it.
async fn ephemerals(client: &Client, path: ZnodePath) -> Result<Vec<ZnodePath>> {
    let (mut found, mut open) = (Vec::new(), vec![path]);
    while let Some(path) = open.pop() {
        let (names, stat) = match client.children(&path).await {
            Err(error) if error.code() == Some(ErrorCode::NoNode) => continue,
            listing => listing?,
        };
        open.extend(names.iter().filter_map(|name| path.child(name).ok()));
        if stat.ephemeral_owner.0 != 0 {
            found.push(path);
        }
    }
    Ok(found)
}
