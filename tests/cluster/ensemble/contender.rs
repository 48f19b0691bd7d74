//! A program of ours: takes locks of all kinds in every way, holds them through whatever happens,
//! writes under them, gives them back in every way, and says all that it is told.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{
    AcquireError, Client, ClientBuilder, CreateMode, Election, ErrorCode, FencingToken, Guard,
    Instant, Leadership, MultiGuard, MultiLock, Mutex, MutexGuard, RwLock, RwLockReadGuard,
    RwLockWriteGuard, Semaphore, SemaphoreGuard, SemaphoreProfile, SessionId, State, ZnodePath,
};
use lockkeeper_testkit::clock::{self, LeaseClock};
use lockkeeper_testkit::history::Share;
use lockkeeper_testkit::sharing::trees;
use tokio::time::sleep;

use crate::ensemble::locks::{Kind, PERMITS, register, share_word};
use crate::ensemble::recorder::Pen;
use crate::ensemble::sharing;

/// The file whose existence ends all turns.
pub(crate) const STOP: &str = "stop";

/// The file that is there while something is wrong.
pub(crate) const TROUBLE: &str = "trouble";

/// The file whose existence ends the program.
pub(crate) const END: &str = "end";

/// How often a holder looks at its deadline.
const LOOK: Duration = Duration::from_millis(5);

/// Arguments: `CONNECT FOLDER SESSION_MS TICK_MS NAME SEED`.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    let [servers, folder, session_ms, tick_ms, name, seed] = arguments else {
        anyhow::bail!("arguments: CONNECT FOLDER SESSION_MS TICK_MS NAME SEED");
    };
    let milliseconds = |text: &str| text.parse().map(Duration::from_millis).context("a number");
    let builder = Client::builder()
        .session_timeout(milliseconds(session_ms)?)
        .server_tick(milliseconds(tick_ms)?);
    let mut random = fastrand::Rng::with_seed(seed.parse().context("SEED")?);
    let folder = PathBuf::from(folder);
    let clocks = LeaseClock::compare();
    // One session for all locks, which always has something to say; or one for each, in which a
    // holder is silent but for its heartbeats.
    let shares = random.u8(0..4) == 0;
    let (mut workers, mut observers, mut clients) = (Vec::new(), Vec::new(), Vec::new());
    for kind in Kind::ALL {
        let client = match clients.first() {
            Some(first) if shares => Client::clone(first),
            _ => connect(&builder, servers).await,
        };
        clients.push(client.clone());
        if kind == Kind::Election {
            observers.push(tokio::spawn(observe(
                Election::new(&client, kind.paths()[0])?,
                folder.clone(),
            )));
        }
        let pen = Pen::new(&folder, &format!("{name}/{}", kind.name()))?;
        tokio::spawn(tell_sessions(client.clone(), pen.clone()));
        let worker = Worker {
            pen,
            lock: Lock::new(&client, kind)?,
            folder: folder.clone(),
            random: random.fork(),
            clocks,
        };
        workers.push(tokio::spawn(worker.work()));
    }
    // Of its own, so that holders are as silent as they were.
    let sharer = connect(&builder, servers).await;
    workers.extend(sharing::start(name, &sharer, &folder, &mut random)?);
    clients.push(sharer);
    for worker in workers {
        worker.await?;
    }
    for observer in observers {
        observer.await?;
    }
    // Still connected, so that only what was given back is gone.
    while !folder.join(END).exists() {
        sleep(Duration::from_millis(50)).await;
    }
    for client in clients {
        client.close().await;
    }
    Ok(())
}

/// Follows who leads, through whatever happens, until all turns are over.
///
/// # Panics
///
/// An older leader is told after a newer one.
async fn observe(election: Election, folder: PathBuf) {
    let mut leaders = loop {
        match election.observe().await {
            Ok(leaders) => break leaders,
            Err(_) if folder.join(STOP).exists() => return,
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    };

    let mut newest = leaders.current().map(|leader| leader.token);
    while !folder.join(STOP).exists() {
        let Ok(next) = tokio::time::timeout(Duration::from_secs(1), leaders.next()).await else {
            continue;
        };
        match next {
            Ok(Some(leader)) => {
                assert!(Some(leader.token) >= newest, "{leader:?} after {newest:?}");
                newest = Some(leader.token);
            }
            Ok(None) => {}
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

/// It may have been started while no server is well.
async fn connect(builder: &ClientBuilder, servers: &str) -> Client {
    loop {
        match builder.clone().connect(servers).await {
            Ok(client) => return client,
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Says which sessions the client has, for as long as there is one.
async fn tell_sessions(client: Client, pen: Pen) {
    let (mut status, mut told) = (client.status(), SessionId::NONE);
    drop(client);
    loop {
        let session = status.borrow_and_update().session;
        if session != told && session != SessionId::NONE {
            pen.say(clock::now(), &format!("session {session}"));
            told = session;
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

enum Lock {
    Mutex(Mutex),
    ReadWrite(RwLock),
    Semaphore(Semaphore),
    Multi(MultiLock),
    Election(Election),
}

enum Held {
    Mutex(MutexGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permits(SemaphoreGuard),
    Multi(MultiGuard),
    Leadership(Leadership),
}

impl Lock {
    fn new(client: &Client, kind: Kind) -> Result<Self> {
        let path = kind.paths()[0];
        let semaphore = |layout| {
            let semaphore = Semaphore::builder(client, path, PERMITS).profile(layout).build()?;
            anyhow::Ok(Self::Semaphore(semaphore))
        };
        Ok(match kind {
            Kind::Mutex => Self::Mutex(Mutex::new(client, path)?),
            Kind::ReadWrite => Self::ReadWrite(RwLock::new(client, path)?),
            Kind::CuratorSemaphore => semaphore(SemaphoreProfile::Curator)?,
            Kind::KazooSemaphore => semaphore(SemaphoreProfile::Kazoo)?,
            Kind::Semaphore => semaphore(SemaphoreProfile::Native)?,
            Kind::Multi => Self::Multi(MultiLock::new(client, kind.paths().iter().copied())?),
            Kind::Election => Self::Election(Election::new(client, path)?),
        })
    }

    async fn acquire(&self, random: &mut fastrand::Rng) -> Result<Option<Held>, AcquireError> {
        let patience = Duration::from_millis(random.u64(1..5_000));
        let way = random.u8(0..5);
        let one = |held| Ok(Some(held));
        match self {
            Self::Mutex(lock) => match way {
                0 => Ok(lock.try_acquire().await?.map(Held::Mutex)),
                1 => one(Held::Mutex(lock.acquire_timeout(patience).await?)),
                _ => one(Held::Mutex(lock.acquire().await?)),
            },
            Self::ReadWrite(lock) => match way {
                0 => Ok(lock.try_write().await?.map(Held::Write)),
                1 => one(Held::Write(lock.write_timeout(patience).await?)),
                2 => one(Held::Write(lock.write().await?)),
                _ => one(Held::Read(lock.read().await?)),
            },
            Self::Semaphore(lock) => match way {
                0 => Ok(lock.try_acquire().await?.map(Held::Permits)),
                1 => one(Held::Permits(lock.acquire_timeout(patience).await?)),
                2 => one(Held::Permits(lock.acquire_many(PERMITS).await?)),
                _ => one(Held::Permits(lock.acquire().await?)),
            },
            Self::Multi(lock) => match way {
                0 => Ok(lock.try_acquire().await?.map(Held::Multi)),
                1 => one(Held::Multi(lock.acquire_timeout(patience).await?)),
                _ => one(Held::Multi(lock.acquire().await?)),
            },
            Self::Election(election) => match way {
                0 => Ok(election.try_campaign().await?.map(Held::Leadership)),
                1 => one(Held::Leadership(election.campaign_timeout(patience).await?)),
                _ => one(Held::Leadership(election.campaign().await?)),
            },
        }
    }
}

impl Held {
    fn guards(&self) -> Vec<&Guard> {
        match self {
            Self::Mutex(guard) => vec![guard],
            Self::Read(guard) => vec![guard],
            Self::Write(guard) => vec![guard],
            Self::Permits(guard) => vec![guard],
            Self::Multi(guard) => guard.guards().iter().collect(),
            Self::Leadership(leadership) => vec![leadership],
        }
    }

    fn share(&self) -> Share {
        match self {
            Self::Mutex(_) | Self::Write(_) | Self::Multi(_) | Self::Leadership(_) => Share::Alone,
            Self::Read(_) => Share::Reader,
            Self::Permits(guard) => Share::Permits { taken: guard.permits(), of: PERMITS },
        }
    }

    async fn release(self) {
        // What becomes of the lock is seen by others.
        let _ = match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permits(guard) => guard.release().await,
            Self::Multi(guard) => guard.release().await,
            Self::Leadership(leadership) => leadership.resign().await,
        };
    }
}

/// What contends for one of the locks.
struct Worker {
    pen: Pen,
    lock: Lock,
    folder: PathBuf,
    random: fastrand::Rng,
    clocks: LeaseClock,
}

impl Worker {
    async fn work(mut self) {
        while !self.folder.join(STOP).exists() {
            match self.acquire().await {
                Ok(Some(held)) => self.hold(held).await,
                Ok(None) | Err(AcquireError::Timeout { .. }) => {}
                Err(error) => self.say(clock::now(), &format!("note does not get it: {error}")),
            }
            sleep(Duration::from_millis(self.random.u64(0..300))).await;
        }
    }

    /// Now and then it changes its mind, wherever it is then.
    async fn acquire(&mut self) -> Result<Option<Held>, AcquireError> {
        if self.random.u8(0..6) > 0 {
            return self.lock.acquire(&mut self.random).await;
        }
        let limit = Duration::from_millis(self.random.u64(0..2_000));
        let acquire = self.lock.acquire(&mut self.random);
        tokio::time::timeout(limit, acquire).await.unwrap_or(Ok(None))
    }

    async fn hold(&mut self, held: Held) {
        let granted = clock::now();
        let share = held.share();
        let names: Vec<(String, FencingToken)> =
            held.guards().iter().map(|guard| (guard.path().to_string(), guard.token())).collect();
        for (lock, token) in &names {
            self.say(granted, &format!("granted {lock} {token} {}", share_word(share)));
        }
        let until = granted + Duration::from_millis(self.random.u64(0..300));
        // Through all of what goes wrong, or in the middle of it.
        let stubborn = self.random.u8(0..4) > 0;
        let mut told = vec![None; names.len()];
        let mut writes = if share == Share::Alone { self.random.u8(0..3) } else { 0 };
        loop {
            let lost = self.look(&held, &names, &mut told);
            let goes_on = stubborn && self.folder.join(TROUBLE).exists();
            if lost || clock::now() >= until && !goes_on {
                break;
            }
            if writes > 0 && self.random.u8(0..16) == 0 {
                writes -= 1;
                self.write(&held).await;
            } else {
                sleep(LOOK).await;
            }
        }
        // Before anything is sent: what is promised ends with the wish to end it.
        let back = clock::now();
        for (lock, token) in &names {
            self.say(back, &format!("back {lock} {token}"));
        }
        match self.random.bool() {
            true => held.release().await,
            false => drop(held),
        }
    }

    /// Says what the guards say; tells whether all is lost.
    fn look(
        &self,
        held: &Held,
        names: &[(String, FencingToken)],
        told: &mut [Option<Instant>],
    ) -> bool {
        let mut lost = false;
        for ((guard, (lock, token)), told) in held.guards().iter().zip(names).zip(told) {
            let deadline = guard.deadline();
            if deadline.is_some() && deadline != *told {
                *told = deadline;
                let until = deadline.map(|deadline| self.clocks.shared(deadline).as_nanos());
                let until = until.unwrap_or_default();
                self.say(clock::now(), &format!("claimed {lock} {token} {until}"));
            }
            if let State::Lost(reason) = guard.state() {
                lost = true;
                self.say(clock::now(), &format!("lost {lock} {token} {reason:?}"));
            }
        }
        lost
    }

    /// Writes to the resource at once or late, or to a znode, together with a check.
    async fn write(&mut self, held: &Held) {
        let guards = held.guards();
        let guard = guards[self.random.usize(0..guards.len())];
        let (lock, token) = (guard.path().to_string(), guard.token());
        if self.random.bool() {
            let register = ZnodePath::new(&register(&lock)).expect("a path");
            let write = guard.transaction().set_data(&register, token.to_string(), None);
            if let Ok((_, zxid)) = write.commit_numbered().await {
                self.say(clock::now(), &format!("committed {lock} {token} {}", zxid.0));
            }
            return;
        }
        let late = Duration::from_millis(self.random.u64(0..6_000));
        let late = if self.random.bool() { late } else { Duration::ZERO };
        let pen = self.pen.clone();
        tokio::spawn(async move {
            sleep(late).await;
            // The answer is in the history.
            let _ = tokio::task::spawn_blocking(move || pen.write(&lock, token)).await;
        });
    }

    fn say(&self, at: Duration, words: &str) {
        self.pen.say(at, words);
    }
}

/// Makes the znodes that are written to under the locks. Arguments: `CONNECT`.
pub(crate) async fn prepare(arguments: &[String]) -> Result<()> {
    let [servers] = arguments else { anyhow::bail!("arguments: CONNECT") };
    let client = connect(&Client::builder(), servers).await;
    let registers = Kind::ALL.iter().flat_map(|kind| kind.paths()).map(|lock| register(lock));
    let others = ["/registers", trees::TREE].map(str::to_owned);
    for path in others.into_iter().chain(registers) {
        let path = ZnodePath::new(&path)?;
        while let Err(error) = client.create(&path, "", CreateMode::Persistent).await {
            match error.code() {
                Some(ErrorCode::NodeExists) => break,
                _ if error.is_retryable() => sleep(Duration::from_millis(200)).await,
                _ => return Err(error.into()),
            }
        }
    }
    client.close().await;
    Ok(())
}
