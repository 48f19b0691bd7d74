//! Programs that take locks all the time, wherever their configuration says that the servers are,
//! and what each of them believed, and when.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper::{
    AcquireError, Client, FencingToken, Guard, HolderState, Mutex, MutexGuard, RwLock,
    RwLockReadGuard, RwLockWriteGuard,
};
use lockkeeper_testkit::clock::{self, LeaseClock};
use lockkeeper_testkit::history::{Entry, History, Share, What};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::python;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::support::{Home, LIMIT, eventually};

/// The tick of all servers.
pub(super) const TICK: &str = "500ms";
const SERVER_TICK: Duration = Duration::from_millis(500);
const SESSION: Duration = Duration::from_secs(3);

/// After this wait, a waiter reads the addresses of the servers again.
const PATIENCE: Duration = Duration::from_millis(700);

/// The pause between two attempts without a server.
const RETRY: Duration = Duration::from_millis(100);

/// How often a holder looks at its deadline.
const LOOK: Duration = Duration::from_millis(5);

/// The locks of which tokens grow from holder to holder. The other one has readers.
const MUTEXES: [&str; 2] = ["/orders", "/reports"];
const TABLE: &str = "/table";

/// Who holds on while [`Programs::hold_on`]: a guard of the one lock, a command of the other.
const STUBBORN: [&str; 2] = ["ann", "cron-2"];
const HOLDS_ON: &str = "holds on";
const HAS_LOST: &str = "has lost its lock";

/// The exit code of a command whose lock was lost.
const LOST: i32 = 79;

/// Several programs, and their configuration.
pub(super) struct Programs {
    scene: Arc<Scene>,
    contenders: Vec<(&'static str, JoinHandle<Result<()>>)>,
}

/// What all of them share.
struct Scene {
    folder: PathBuf,
    start: Duration,
    leases: LeaseClock,
    entries: StdMutex<Vec<Entry>>,
}

#[derive(Clone, Copy)]
enum Way {
    Mutex(&'static str),
    Read,
    Write,
}

impl Programs {
    /// Starts all, with these servers.
    pub(super) fn start(home: &Home, servers: &str) -> Result<Self> {
        let scene = Arc::new(Scene {
            folder: home.folder().to_owned(),
            start: clock::now(),
            leases: LeaseClock::compare(),
            entries: StdMutex::default(),
        });
        scene.configure(servers)?;
        let [orders, reports] = MUTEXES;
        let guards = [
            ("ann", Way::Mutex(orders)),
            ("bea", Way::Mutex(orders)),
            ("dan", Way::Mutex(reports)),
            ("eve", Way::Read),
            ("fay", Way::Write),
        ];
        let mut contenders: Vec<_> = guards
            .map(|(name, way)| {
                let contender = Contender { name, way, scene: Arc::clone(&scene) };
                (name, tokio::spawn(reported(name, contender.goes_on())))
            })
            .into();
        for (name, lock) in [("cron-1", orders), ("cron-2", reports)] {
            let command = scene.turn(home, name, lock);
            let turns = commands(Arc::clone(&scene), name, command);
            contenders.push((name, tokio::spawn(reported(name, turns))));
        }
        Ok(Self { scene, contenders })
    }

    /// Tells all of them other servers.
    pub(super) fn tell(&self, servers: &str) -> Result<()> {
        self.note(&format!("the programs are told {servers}"));
        self.scene.configure(servers)
    }

    /// Adds a line to the history that helps its reader.
    pub(super) fn note(&self, what: &str) {
        self.scene.say("the move", What::Note(what.to_owned()));
    }

    /// Waits until each of these has had so many turns more; all of them, if none is named.
    pub(super) fn go_on(&self, names: &[&str], turns: usize) -> Result<()> {
        let now = self.scene.time();
        let all = self.contenders.iter().map(|(name, _)| *name);
        let names: Vec<_> = if names.is_empty() { all.collect() } else { names.to_vec() };
        eventually("each has had its turns", || {
            self.all_run()?;
            let history = self.history()?;
            let count = |name| {
                let grants = history.entries().iter().filter(|entry| {
                    entry.at > now
                        && entry.who == name
                        && matches!(entry.what, What::Granted { .. })
                });
                grants.count()
            };
            Ok(names.iter().all(|name| count(*name) >= turns))
        })
    }

    /// Waits until a guard and a command hold, each of which will go on until it has lost its lock.
    /// Tells since when.
    pub(super) fn hold_on(&self) -> Result<Duration> {
        let now = self.scene.time();
        fs::write(self.scene.hold_file(), "")?;
        self.stubborn_say(HOLDS_ON, now)?;
        Ok(now)
    }

    /// Waits until those two have lost their locks, and lets the next ones give theirs back.
    pub(super) fn have_lost(&self, since: Duration) -> Result<()> {
        self.stubborn_say(HAS_LOST, since)?;
        self.let_go()
    }

    /// Ends [`Programs::hold_on`].
    pub(super) fn let_go(&self) -> Result<()> {
        Ok(fs::remove_file(self.scene.hold_file())?)
    }

    fn stubborn_say(&self, words: &str, since: Duration) -> Result<()> {
        eventually(words, || {
            self.all_run()?;
            let history = self.history()?;
            let says = |name: &&str| {
                let said = |what: &What| matches!(what, What::Note(note) if note == words);
                let mut entries = history.entries().iter();
                entries.any(|e| e.at > since && e.who == *name && said(&e.what))
            };
            Ok(STUBBORN.iter().all(says))
        })
    }

    /// # Errors
    ///
    /// One has ended by itself.
    fn all_run(&self) -> Result<()> {
        for (name, contender) in &self.contenders {
            ensure!(!contender.is_finished(), "{name} has ended");
        }
        Ok(())
    }

    /// Ends all of them.
    pub(super) async fn end(&mut self) -> Result<()> {
        fs::write(self.scene.end_file(), "")?;
        for (name, contender) in self.contenders.drain(..) {
            let ended = tokio::time::timeout(LIMIT, contender).await;
            ended.with_context(|| format!("{name} does not end"))??.context(name)?;
        }
        Ok(())
    }

    /// What happened so far, in the order of time.
    pub(super) fn history(&self) -> Result<History> {
        let mut entries = self.scene.entries();
        entries.extend(self.scene.entries_of_commands()?);
        entries.sort_by_key(|entry| entry.at);
        let mut history = History::default();
        for Entry { at, who, what } in entries {
            history.push(at, who, what);
        }
        Ok(history)
    }
}

/// Shows at once why a program ends that should not.
async fn reported(name: &str, program: impl Future<Output = Result<()>>) -> Result<()> {
    program.await.inspect_err(|error| eprintln!("{name}: {error:?}"))
}

/// From holder to holder, on all services: each holder of a mutex has a larger token than
/// all earlier holders.
pub(super) fn tokens_grow(history: &History) -> Result<(), String> {
    for wanted in MUTEXES {
        let mut highest: Option<(u128, &Entry)> = None;
        for entry in history.entries() {
            let What::Granted { lock, token, .. } = &entry.what else { continue };
            if lock != wanted {
                continue;
            }
            if let Some((_, before)) = highest.filter(|(highest, _)| highest >= token) {
                return Err(format!("a token that did not grow: {before:?}, then {entry:?}"));
            }
            highest = Some((*token, entry));
        }
    }
    Ok(())
}

impl Scene {
    fn configure(&self, servers: &str) -> Result<()> {
        // Nobody reads half of it.
        let draft = self.folder.join("servers.new");
        fs::write(&draft, servers)?;
        Ok(fs::rename(draft, self.folder.join("servers"))?)
    }

    fn servers(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.join("servers"))?)
    }

    fn hold_file(&self) -> PathBuf {
        self.folder.join("hold")
    }

    fn end_file(&self) -> PathBuf {
        self.folder.join("end")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("commands.log")
    }

    fn is_over(&self) -> bool {
        self.end_file().exists()
    }

    fn holds_on(&self, name: &str) -> bool {
        STUBBORN.contains(&name) && self.hold_file().exists()
    }

    fn time(&self) -> Duration {
        clock::now().saturating_sub(self.start)
    }

    fn say(&self, who: &str, what: What) {
        self.say_at(self.time(), who, what);
    }

    fn say_at(&self, at: Duration, who: &str, what: What) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(Entry { at, who: who.to_owned(), what });
    }

    fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What `lockkeeper` runs for one of the commands that are started again and again.
    fn turn(&self, home: &Home, name: &str, lock: &str) -> Command {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("command/growing/turn.py");
        let hold = if STUBBORN.contains(&name) { self.hold_file() } else { self.folder.join("-") };
        let mut turn = python::command(&source);
        turn.arg(self.log()).args([name, lock]).arg(hold);

        let session = format!("{}s", SESSION.as_secs());
        let mut run = home.command(&format!(
            "--session-timeout {session} --server-tick {TICK} --connect-timeout 2s run -q -w 2s {lock} --",
            lock = lock.trim_start_matches('/'),
        ));
        run.arg(turn.get_program()).args(turn.get_args());
        run
    }

    /// What the commands wrote. One that was killed had its lock until its last line at least.
    fn entries_of_commands(&self) -> Result<Vec<Entry>> {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let mut entries = Vec::new();
        // The last line may be half of one.
        for line in log.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let words: Vec<_> = line.split(' ').collect();
            let [time, who, what, lock, token] = words[..] else { continue };
            let at = Duration::from_nanos(time.parse()?).saturating_sub(self.start);
            let (lock, token) = (lock.to_owned(), token.parse::<FencingToken>()?.to_u128());
            let mut push = |what| entries.push(Entry { at, who: who.to_owned(), what });
            match what {
                "granted" => push(What::Granted { lock, token, share: Share::Alone }),
                "back" => push(What::GaveBack { lock, token }),
                "holds-on" => push(What::Note(HOLDS_ON.to_owned())),
                _ => push(What::Claimed { lock, token, until: at }),
            }
        }
        Ok(entries)
    }
}

/// Runs a command under its lock, again and again.
async fn commands(scene: Arc<Scene>, name: &'static str, command: Command) -> Result<()> {
    let mut number = 0;
    while !scene.is_over() {
        number += 1;
        let mut run = Command::new(command.get_program());
        run.args(command.get_args()).current_dir(&scene.folder);
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => run.env(key, value),
                None => run.env_remove(key),
            };
        }
        run.env("LOCKKEEPER_CONNECT", scene.servers()?);
        let mut process = Process::spawn(&format!("{name}-{}", number % 100), &run, &scene.folder)?;
        let status = process.end(LIMIT).await?;
        match status.code() {
            Some(0) => {}
            Some(LOST) => scene.say(name, What::Note(HAS_LOST.to_owned())),
            // The lock is held, or no server is reachable.
            Some(1 | 75) => scene.say(name, What::Note(format!("no turn: {status}"))),
            _ => bail!("{status}: {}", process.tail()),
        }
    }
    Ok(())
}

/// A program on the library.
struct Contender {
    name: &'static str,
    way: Way,
    scene: Arc<Scene>,
}

enum Held {
    Mutex(MutexGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
}

impl Held {
    fn guard(&self) -> &Guard {
        match self {
            Self::Mutex(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
        }
    }

    fn share(&self) -> Share {
        match self {
            Self::Mutex(_) | Self::Write(_) => Share::Alone,
            Self::Read(_) => Share::Reader,
        }
    }
}

impl Contender {
    async fn goes_on(self) -> Result<()> {
        while !self.scene.is_over() {
            let servers = self.scene.servers()?;
            let builder = Client::builder().session_timeout(SESSION).server_tick(SERVER_TICK);
            match builder.connect_timeout(Duration::from_secs(1)).connect(&servers).await {
                Ok(client) => {
                    self.takes_turns(&client, &servers).await?;
                    client.close().await;
                }
                Err(error) => self.note(&format!("no server: {error}")),
            }
            sleep(RETRY).await;
        }
        Ok(())
    }

    /// Until it gets other addresses.
    async fn takes_turns(&self, client: &Client, servers: &str) -> Result<()> {
        while !self.scene.is_over() && self.scene.servers()? == servers {
            match self.acquire(client).await {
                Ok(held) => self.hold(held).await,
                Err(error) => {
                    self.note(&format!("no turn: {error}"));
                    sleep(RETRY).await;
                }
            }
        }
        Ok(())
    }

    async fn acquire(&self, client: &Client) -> Result<Held, AcquireError> {
        let table = || RwLock::new(client, TABLE).expect("a path");
        Ok(match self.way {
            Way::Mutex(path) => {
                let lock = Mutex::new(client, path).expect("a path");
                Held::Mutex(lock.acquire_timeout(PATIENCE).await?)
            }
            Way::Read => Held::Read(table().read_timeout(PATIENCE).await?),
            Way::Write => Held::Write(table().write_timeout(PATIENCE).await?),
        })
    }

    /// Has its turn, or holds on until the lock is lost.
    async fn hold(&self, held: Held) {
        let guard = held.guard();
        let (lock, token) = (guard.path().to_string(), guard.token().to_u128());
        self.say(What::Granted { lock: lock.clone(), token, share: held.share() });
        let end = clock::now() + Duration::from_millis(50);
        let (mut told, mut holds_on) = (None, false);
        loop {
            let deadline = guard.deadline();
            if deadline != told
                && let Some(until) = deadline
            {
                told = deadline;
                let until = self.scene.leases.shared(until).saturating_sub(self.scene.start);
                self.say(What::Claimed { lock: lock.clone(), token, until });
            }
            if let HolderState::Lost(reason) = guard.state() {
                let reason = format!("{reason:?}");
                self.say(What::Lost { lock: lock.clone(), token, reason });
                self.note(HAS_LOST);
                break;
            }

            let held_on = std::mem::replace(&mut holds_on, self.scene.holds_on(self.name));
            if holds_on && !held_on {
                self.note(HOLDS_ON);
            }
            if clock::now() >= end && !holds_on {
                break;
            }
            sleep(LOOK).await;
        }

        // Before anything is sent: what is promised ends with the wish to end it.
        self.say(What::GaveBack { lock, token });
        // In the background: servers may be away.
        drop(held);
    }

    fn note(&self, what: &str) {
        self.say(What::Note(what.to_owned()));
    }

    fn say(&self, what: What) {
        self.scene.say(self.name, what);
    }
}
