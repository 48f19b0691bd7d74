//! A Lockkeeper program: acquires locks of all kinds in every way, holds them through all faults,
//! writes under them, releases them in every way, and prints all results.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use lockkeeper::{
    AcquireError, Client, ClientBuilder, CreateMode, Election, ErrorCode, HolderState, Instant,
    SessionId, ZnodePath,
};
use lockkeeper_testkit::clock::{self, LeaseClock};
use lockkeeper_testkit::history::{Share, What};
use lockkeeper_testkit::locks::{Held, Lock, Sharing, Wait};
use lockkeeper_testkit::sharing::trees;
use tokio::time::sleep;

use super::programs::{PERMITS, ProgramKind};
use super::recorder::Pen;
use super::sharing;

/// The file whose existence ends all turns.
pub(super) const STOP: &str = "stop";

/// The file that is there while something is wrong.
pub(super) const TROUBLE: &str = "trouble";

/// The file whose existence ends the program.
pub(super) const END: &str = "end";

/// How often a holder looks at its deadline.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Args)]
pub(crate) struct Contender {
    connect: String,
    folder: PathBuf,
    session_ms: u64,
    tick_ms: u64,
    name: String,
    seed: u64,
}

impl Contender {
    pub(crate) async fn run(self) -> Result<()> {
        let Self { connect: servers, folder, session_ms, tick_ms, name, seed } = self;
        let builder = Client::builder()
            .session_timeout(Duration::from_millis(session_ms))
            .server_tick(Duration::from_millis(tick_ms));
        let mut random = fastrand::Rng::with_seed(seed);
        let clocks = LeaseClock::compare();
        // One session for all locks, which always has something to say; or one for each, in which a
        // holder is silent but for its heartbeats.
        let shares = random.u8(0..4) == 0;
        let (mut tasks, mut clients) = (Vec::new(), Vec::new());
        for kind in ProgramKind::ALL {
            let client = match clients.first() {
                Some(first) if shares => Client::clone(first),
                _ => connect(&builder, &servers).await,
            };
            clients.push(client.clone());
            let lock = kind.design().open(&client, Sharing::Never);
            if let Lock::Election(election) = &lock {
                tasks.push(tokio::spawn(observe(election.clone(), folder.clone())));
            }
            let pen = Pen::new(&folder, &kind.worker(&name))?;
            tokio::spawn(tell_sessions(client.clone(), pen.clone()));
            let (folder, random) = (folder.clone(), random.fork());
            let worker = Worker { pen, kind, lock, folder, random, clocks };
            tasks.push(tokio::spawn(worker.work()));
        }
        // Of its own, so that holders are as silent as they were.
        let sharer = connect(&builder, &servers).await;
        tasks.extend(sharing::start(&name, &sharer, &folder, &mut random)?);
        clients.push(sharer);
        for task in tasks {
            task.await?;
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
}

/// Observes the leader, through all faults, until all turns are over.
///
/// # Panics
///
/// An older leader is reported after a newer one.
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

/// What contends for one of the locks.
struct Worker {
    pen: Pen,
    kind: ProgramKind,
    lock: Lock,
    folder: PathBuf,
    random: fastrand::Rng,
    clocks: LeaseClock,
}

impl Worker {
    async fn work(mut self) {
        while !self.folder.join(STOP).exists() {
            match self.acquire().await {
                Ok(Some((held, share))) => self.hold(held, share).await,
                Ok(None) | Err(AcquireError::Timeout { .. }) => {}
                Err(error) => {
                    self.say(clock::now(), What::Note(format!("does not get it: {error}")))
                }
            }
            sleep(Duration::from_millis(self.random.u64(0..300))).await;
        }
    }

    /// In any way. Now and then it changes its mind, wherever it is then.
    async fn acquire(&mut self) -> Result<Option<(Held, Share)>, AcquireError> {
        let changes_its_mind = self.random.u8(0..6) == 0;
        let limit = Duration::from_millis(self.random.u64(0..2_000));
        let patience = Duration::from_millis(self.random.u64(1..5_000));
        let way = self.random.u8(0..5);
        let patience = match way {
            0 => Wait::Never,
            1 => Wait::For(patience),
            _ => Wait::Forever,
        };
        let share = match self.kind {
            ProgramKind::ReadWrite if way > 2 => Share::Reader,
            ProgramKind::CuratorSemaphore
            | ProgramKind::KazooSemaphore
            | ProgramKind::Semaphore => {
                Share::Permits { taken: if way == 2 { PERMITS } else { 1 }, of: PERMITS }
            }
            _ => Share::Alone,
        };

        let acquire = self.lock.acquire(share, patience);
        let held = match changes_its_mind {
            true => tokio::time::timeout(limit, acquire).await.unwrap_or(Ok(None)),
            false => acquire.await,
        };
        Ok(held?.map(|held| (held, share)))
    }

    async fn hold(&mut self, held: Held, share: Share) {
        let granted = clock::now();
        let names = held.guards().iter().map(|it| (it.path().to_string(), it.token().to_u128()));
        let names: Vec<_> = names.collect();
        for (lock, token) in names.iter().cloned() {
            self.say(granted, What::Granted { lock, token, share });
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
        for (lock, token) in names {
            self.say(back, What::GaveBack { lock, token });
        }
        match self.random.bool() {
            // What becomes of the lock is seen by others.
            true => drop(held.release().await),
            false => drop(held),
        }
    }

    /// Says what the guards say; tells whether all is lost.
    fn look(&self, held: &Held, names: &[(String, u128)], told: &mut [Option<Instant>]) -> bool {
        let mut lost = false;
        for ((guard, (lock, token)), told) in held.guards().iter().zip(names).zip(told) {
            let (lock, token) = (lock.clone(), *token);
            if let Some(deadline) = guard.deadline().filter(|deadline| Some(*deadline) != *told) {
                *told = Some(deadline);
                let (lock, until) = (lock.clone(), self.clocks.shared(deadline));
                self.say(clock::now(), What::Claimed { lock, token, until });
            }
            if let HolderState::Lost(reason) = guard.state() {
                lost = true;
                let reason = format!("{reason:?}");
                self.say(clock::now(), What::Lost { lock, token, reason });
            }
        }
        lost
    }

    /// Writes to the resource at once or late, or to a znode, together with a check.
    async fn write(&mut self, held: &Held) {
        let guards = held.guards();
        let guard = &guards[self.random.usize(0..guards.len())];
        let (lock, token) = (guard.path().to_string(), guard.token());
        if self.random.bool() {
            let register = ZnodePath::new(&register(&lock)).expect("a path");
            let write = guard.transaction().set_data(&register, token.to_string(), None);
            if let Ok((_, zxid)) = write.commit_numbered().await {
                let (token, zxid) = (token.to_u128(), zxid.0.cast_unsigned());
                self.say(clock::now(), What::Committed { lock, token, zxid });
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

    fn say(&self, at: Duration, what: What) {
        self.pen.note(at, &what);
    }
}

/// What is written together with a check of the own node.
fn register(lock: &str) -> String {
    lock.replacen("/locks", "/registers", 1)
}

/// Makes the znodes that are written to under the locks.
pub(crate) async fn prepare(servers: &str) -> Result<()> {
    let client = connect(&Client::builder(), servers).await;
    let registers = ProgramKind::ALL.map(|kind| register(kind.path()));
    let others = ["/registers", trees::TREE, "/registers/multi-beside"].map(str::to_owned);
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
