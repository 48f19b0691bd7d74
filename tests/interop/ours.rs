//! Our own contenders: tasks with sessions of their own, which also give up and change their mind.

use std::time::{Duration, Instant};

use anyhow::Result;
use lockkeeper::{
    AcquireError, Client, MultiLock, Mutex, Profile, RwLock, RwLockReadGuard,
    RwLockUpgradeableGuard, RwLockWriteGuard, Semaphore, SemaphoreProfile,
};

use crate::inside::{Inside, Way};

/// What the contest is about.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Mutex(Profile),
    ReadWrite(Profile),
    Semaphore(SemaphoreProfile, u32),
    /// Some of several mutexes, together.
    Multi(Profile),
}

/// The names of several locks below the path, and of the rooms of those inside.
const ROOMS: [&str; 3] = ["a", "b", "c"];

impl Kind {
    /// How many may be inside at once where permits are counted.
    pub(crate) fn permits(&self) -> usize {
        match self {
            Self::Semaphore(_, permits) => usize::try_from(*permits).unwrap_or(usize::MAX),
            _ => 1,
        }
    }

    /// The folders, one for each lock, in which programs mark themselves as inside.
    pub(crate) fn rooms(&self) -> &'static [&'static str] {
        match self {
            Self::Multi(_) => &ROOMS,
            _ => &["."],
        }
    }

    /// Whether a turn of this name counted in a room.
    pub(crate) fn counts(&self, turn: &str, room: &str) -> bool {
        match self {
            Self::Multi(_) => turn.contains(room),
            _ => ["x", "d", "u"].contains(&turn),
        }
    }
}

pub(crate) struct Contender {
    lock: Lock,
    /// One for each of the rooms.
    rooms: Vec<Inside>,
}

enum Lock {
    Mutex(Mutex),
    ReadWrite(RwLock),
    Semaphore(Semaphore),
    Multi { client: Client, path: String, profile: Profile },
}

impl Contender {
    pub(crate) fn new(
        client: &Client,
        path: &str,
        kind: &Kind,
        rooms: Vec<Inside>,
    ) -> Result<Self> {
        let lock = match kind {
            Kind::Mutex(profile) => {
                Lock::Mutex(Mutex::builder(client, path).profile(*profile).build()?)
            }
            Kind::ReadWrite(profile) => {
                Lock::ReadWrite(RwLock::builder(client, path).profile(*profile).build()?)
            }
            Kind::Semaphore(layout, permits) => {
                let builder = Semaphore::builder(client, path, *permits);
                Lock::Semaphore(builder.profile(layout.clone()).build()?)
            }
            Kind::Multi(profile) => {
                Lock::Multi { client: client.clone(), path: path.to_owned(), profile: *profile }
            }
        };
        Ok(Self { lock, rooms })
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
            turns.extend(turn);
            pause(&mut random, 10).await;
        }
        Ok(turns)
    }

    async fn turn(&self, patience: Duration, random: &mut fastrand::Rng) -> Result<Option<String>> {
        if let Lock::Multi { client, path, profile } = &self.lock {
            return self.several(client, path, *profile, patience, random).await;
        }
        Ok(self.one(patience, random).await?.map(str::to_owned))
    }

    /// Takes some of the locks, given in any order.
    async fn several(
        &self,
        client: &Client,
        path: &str,
        profile: Profile,
        patience: Duration,
        random: &mut fastrand::Rng,
    ) -> Result<Option<String>> {
        let mut chosen: Vec<usize> = (0..ROOMS.len()).filter(|_| random.u32(..3) > 0).collect();
        if chosen.is_empty() {
            return Ok(None);
        }
        random.shuffle(&mut chosen);
        let paths: Vec<_> = chosen.iter().map(|room| format!("{path}/{}", ROOMS[*room])).collect();
        let paths = paths.iter().map(String::as_str);
        let lock = MultiLock::builder(client, paths).profile(profile).build()?;
        let Some(guard) = in_time(lock.acquire_timeout(patience).await)? else { return Ok(None) };
        chosen.sort_unstable();
        let rooms: Vec<_> = chosen.iter().map(|room| &self.rooms[*room]).collect();
        for (room, (_, token)) in rooms.iter().zip(guard.tokens()) {
            room.enter(Way::Alone)?;
            room.log(token.zxid().0)?;
        }
        for room in &rooms {
            room.count(pause(random, 20)).await?;
        }
        for room in rooms {
            room.leave(Way::Alone)?;
        }
        match random.bool() {
            true => guard.release().await?,
            false => drop(guard),
        }
        Ok(Some(chosen.iter().map(|room| ROOMS[*room]).collect()))
    }

    /// Takes the only lock that there is.
    async fn one(
        &self,
        patience: Duration,
        random: &mut fastrand::Rng,
    ) -> Result<Option<&'static str>> {
        match &self.lock {
            Lock::Multi { .. } => Ok(None),
            Lock::Mutex(mutex) => {
                let Some(guard) = in_time(mutex.acquire_timeout(patience).await)? else {
                    return Ok(None);
                };
                self.room().enter(Way::Alone)?;
                self.room().log(guard.token().zxid().0)?;
                self.room().count(pause(random, 20)).await?;
                self.room().leave(Way::Alone)?;
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
                    self.room().enter(Way::Reading)?;
                    self.read(guard, random).await.map(|()| Some("r"))
                }
                45..75 => {
                    let Some(guard) = in_time(lock.write_timeout(patience).await)? else {
                        return Ok(None);
                    };
                    self.room().enter(Way::Alone)?;
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
                let Some(guard) = in_time(semaphore.acquire_many_timeout(wanted, patience).await)?
                else {
                    return Ok(None);
                };
                self.room().enter(Way::Permitted)?;
                pause(random, 20).await;
                self.room().look(Way::Permitted)?;
                self.room().leave(Way::Permitted)?;
                guard.release().await?;
                Ok(Some("p"))
            }
        }
    }

    fn room(&self) -> &Inside {
        &self.rooms[0]
    }

    async fn read(&self, guard: RwLockReadGuard, random: &mut fastrand::Rng) -> Result<()> {
        pause(random, 20).await;
        self.room().look(Way::Reading)?;
        self.room().leave(Way::Reading)?;
        guard.release().await?;
        Ok(())
    }

    /// Writes, and sometimes continues as a reader.
    async fn write(
        &self,
        guard: RwLockWriteGuard,
        random: &mut fastrand::Rng,
    ) -> Result<&'static str> {
        self.room().count(pause(random, 20)).await?;
        self.room().look(Way::Alone)?;
        if random.u32(..3) > 0 {
            self.room().leave(Way::Alone)?;
            guard.release().await?;
            return Ok("x");
        }
        // Before others may come in to read.
        self.room().change(Way::Alone, Way::Reading)?;
        let guard = guard.downgrade().await?;
        self.read(guard, random).await?;
        Ok("d")
    }

    /// Reads, and then writes, without another holder in between.
    async fn upgrade(
        &self,
        guard: RwLockUpgradeableGuard,
        random: &mut fastrand::Rng,
    ) -> Result<&'static str> {
        self.room().enter(Way::Reading)?;
        pause(random, 10).await;
        let before = self.room().counted()?;
        let guard = guard.upgrade().await?;
        self.room().change(Way::Reading, Way::Alone)?;
        anyhow::ensure!(self.room().counted()? == before, "another program wrote in between");
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
