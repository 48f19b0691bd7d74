//! Our own contenders: tasks with sessions of their own, which also give up and change their mind.

use std::time::{Duration, Instant};

use anyhow::Result;
use lockkeeper::{
    AcquireError, Client, Guard, Mutex, Profile, RwLock, RwLockUpgradeableGuard, RwLockWriteGuard,
    Semaphore, SemaphoreLayout,
};

use crate::inside::{Inside, Way};

/// What the contest is about.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Mutex(Profile),
    ReadWrite(Profile),
    Semaphore(SemaphoreLayout, u32),
}

impl Kind {
    /// How many may be inside at once where permits are counted.
    pub(crate) fn permits(&self) -> usize {
        match self {
            Self::Semaphore(_, permits) => usize::try_from(*permits).unwrap_or(usize::MAX),
            _ => 1,
        }
    }
}

pub(crate) struct Contender {
    lock: Lock,
    inside: Inside,
}

enum Lock {
    Mutex(Mutex),
    ReadWrite(RwLock),
    Semaphore(Semaphore),
}

impl Contender {
    pub(crate) fn new(client: &Client, path: &str, kind: &Kind, inside: Inside) -> Result<Self> {
        let lock = match kind {
            Kind::Mutex(profile) => {
                Lock::Mutex(Mutex::builder(client, path).profile(*profile).build()?)
            }
            Kind::ReadWrite(profile) => {
                Lock::ReadWrite(RwLock::builder(client, path).profile(*profile).build()?)
            }
            Kind::Semaphore(layout, permits) => {
                let builder = Semaphore::builder(client, path, *permits);
                Lock::Semaphore(builder.layout(layout.clone()).build()?)
            }
        };
        Ok(Self { lock, inside })
    }

    /// Goes inside again and again; tells in which way.
    pub(crate) async fn take_turns(
        self,
        time: Duration,
        mut random: fastrand::Rng,
    ) -> Result<Vec<String>> {
        let (start, mut turns) = (Instant::now(), Vec::new());
        while start.elapsed() < time {
            // Now and then it gives up, wherever it is then.
            let patience = match random.u32(..5) {
                0 => Duration::from_millis(random.u64(1..40)),
                _ => Duration::from_secs(60),
            };
            let turn = self.turn(patience, &mut random).await?;
            turns.extend(turn.map(str::to_owned));
            pause(&mut random, 10).await;
        }
        Ok(turns)
    }

    async fn turn(
        &self,
        patience: Duration,
        random: &mut fastrand::Rng,
    ) -> Result<Option<&'static str>> {
        match &self.lock {
            Lock::Mutex(mutex) => {
                let Some(guard) = in_time(mutex.acquire_timeout(patience).await)? else {
                    return Ok(None);
                };
                self.inside.enter(Way::Alone)?;
                self.inside.log(guard.token().zxid().0)?;
                self.inside.count(pause(random, 20)).await?;
                self.inside.leave(Way::Alone)?;
                // One way or the other.
                match random.bool() {
                    true => guard.release().await?,
                    false => drop(guard),
                }
                Ok(Some("x"))
            }
            Lock::ReadWrite(lock) => match random.u32(..100) {
                0..45 => {
                    let Some(guard) = in_time(lock.read_timeout(patience).await)? else {
                        return Ok(None);
                    };
                    self.inside.enter(Way::Reading)?;
                    self.read(guard, random).await.map(|()| Some("r"))
                }
                45..75 => {
                    let Some(guard) = in_time(lock.write_timeout(patience).await)? else {
                        return Ok(None);
                    };
                    self.inside.enter(Way::Alone)?;
                    self.write(guard, random).await.map(Some)
                }
                _ => {
                    let guard = lock.upgradeable_read_timeout(patience).await;
                    let Some(guard) = in_time(guard)? else { return Ok(None) };
                    self.upgrade(guard, random).await.map(Some)
                }
            },
            Lock::Semaphore(semaphore) => {
                let wanted = 1 + u32::from(random.u32(..4) == 0);
                let Some(guard) = in_time(semaphore.acquire_timeout(wanted, patience).await)?
                else {
                    return Ok(None);
                };
                self.inside.enter(Way::Permitted)?;
                pause(random, 20).await;
                self.inside.look(Way::Permitted)?;
                self.inside.leave(Way::Permitted)?;
                guard.release().await?;
                Ok(Some("p"))
            }
        }
    }

    async fn read(&self, guard: Guard, random: &mut fastrand::Rng) -> Result<()> {
        pause(random, 20).await;
        self.inside.look(Way::Reading)?;
        self.inside.leave(Way::Reading)?;
        guard.release().await?;
        Ok(())
    }

    /// Writes, and goes on as a reader now and then.
    async fn write(
        &self,
        guard: RwLockWriteGuard,
        random: &mut fastrand::Rng,
    ) -> Result<&'static str> {
        self.inside.count(pause(random, 20)).await?;
        self.inside.look(Way::Alone)?;
        if random.u32(..3) > 0 {
            self.inside.leave(Way::Alone)?;
            guard.release().await?;
            return Ok("x");
        }
        // Before others may come in to read.
        self.inside.change(Way::Alone, Way::Reading)?;
        let guard = guard.downgrade().await?;
        self.read(guard, random).await?;
        Ok("d")
    }

    /// Reads, and then writes, with nobody in between.
    async fn upgrade(
        &self,
        guard: RwLockUpgradeableGuard,
        random: &mut fastrand::Rng,
    ) -> Result<&'static str> {
        self.inside.enter(Way::Reading)?;
        pause(random, 10).await;
        let before = self.inside.counted()?;
        let guard = guard.upgrade().await?;
        self.inside.change(Way::Reading, Way::Alone)?;
        anyhow::ensure!(self.inside.counted()? == before, "somebody wrote in between");
        match self.write(guard, random).await? {
            "x" => Ok("u"),
            other => Ok(other),
        }
    }
}

fn in_time<T>(result: Result<T, AcquireError>) -> Result<Option<T>> {
    match result {
        Ok(guard) => Ok(Some(guard)),
        Err(AcquireError::Timeout { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn pause(random: &mut fastrand::Rng, most_ms: u64) {
    tokio::time::sleep(Duration::from_micros(random.u64(..most_ms * 1_000))).await;
}
