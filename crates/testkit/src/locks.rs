//! The locks of simulations and models: of any kind, in any layout, behind one face. A new kind of lock
//! is one more variant of [`Lock`].

use std::time::Duration;

use crate::history::Share;
use lockkeeper::{
    AcquireError, Client, Election, EnsureError, ExclusiveGuard, ExclusiveNode, Guard, Instant,
    Leadership, LossReason, MultiGuard, MultiLock, Mutex, MutexGuard, Owner, ReentrantGuard,
    ReentrantMutex, RwLock, RwLockReadGuard, RwLockUpgradeableGuard, RwLockWriteGuard, Semaphore,
    SemaphoreGuard, SemaphoreProfile, State, ZnodePath,
};

/// What a lock of a run is. All clients agree on it.
#[derive(Clone, Debug)]
pub struct Design {
    /// Where it is.
    pub path: &'static str,
    /// What it is.
    pub kind: Kind,
}

/// A kind of lock, and how it is laid out.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A mutex.
    Mutex,
    /// A mutex whose next holder waits when one has vanished.
    Delayed(Duration),
    /// A mutex that its holder enters twice.
    Reentrant,
    /// Each time together with the lock beside it.
    Multi,
    /// A node below the path.
    Exclusive,
    /// A lock for readers and writers.
    RwLock,
    /// A semaphore of so many permits, and what it is made of on the server.
    #[expect(missing_docs, reason = "said above")]
    Semaphore { permits: u32, layout: SemaphoreProfile },
    /// An election, whose leader holds it.
    Election,
}

/// How a client's mutex serves several holders of its process.
#[derive(Clone, Copy, Debug)]
pub enum Sharing {
    /// It does not.
    Never,
    /// Its node is kept for such a time when it is given back.
    Linger(Duration),
    /// Its node is handed on to others of the process.
    Cohort,
}

impl Sharing {
    /// One of the ways.
    pub fn any(random: &mut fastrand::Rng) -> Self {
        match random.u8(0..5) {
            0 => Self::Never,
            1 | 2 => Self::Linger(Duration::from_millis(random.u64(10..1_000))),
            _ => Self::Cohort,
        }
    }
}

impl Design {
    /// Any of the locks.
    pub fn any(path: &'static str, random: &mut fastrand::Rng) -> Self {
        let kind = match random.u8(0..12) {
            0..4 => Kind::Mutex,
            4 => Kind::Delayed(Duration::from_millis(random.u64(1..2_000))),
            5 => Kind::Reentrant,
            6 => Kind::Multi,
            7 => Kind::Exclusive,
            8 | 9 => Kind::RwLock,
            _ => {
                let layout = match random.u8(0..4) {
                    0 => SemaphoreProfile::Curator,
                    1 => SemaphoreProfile::Kazoo,
                    _ => SemaphoreProfile::Native,
                };
                Kind::Semaphore { permits: random.u32(1..4), layout }
            }
        };
        Self { path, kind }
    }

    /// A client's handle, with options of its own.
    ///
    /// # Panics
    ///
    /// If the path is none for a lock.
    pub fn open(&self, client: &Client, sharing: Sharing) -> Lock {
        const GOOD: &str = "a path for a lock";
        match &self.kind {
            Kind::Mutex => {
                let builder = Mutex::builder(client, self.path);
                let builder = match sharing {
                    Sharing::Never => builder,
                    Sharing::Linger(period) => builder.linger(period),
                    Sharing::Cohort => builder.cohort(3, Duration::from_secs(1)),
                };
                Lock::Mutex(builder.build().expect(GOOD))
            }
            Kind::Delayed(delay) => {
                let builder = Mutex::builder(client, self.path).lock_delay(*delay);
                Lock::Mutex(builder.build().expect(GOOD))
            }
            Kind::Reentrant => Lock::Reentrant(ReentrantMutex::new(client, self.path).expect(GOOD)),
            Kind::Multi => {
                let beside = self.beside();
                let paths = [self.path, beside.as_str()];
                Lock::Multi(MultiLock::new(client, paths).expect(GOOD))
            }
            Kind::Exclusive => {
                let node = ZnodePath::new(&self.below()).expect(GOOD);
                Lock::Exclusive(client.clone(), node)
            }
            Kind::RwLock => Lock::RwLock(RwLock::new(client, self.path).expect(GOOD)),
            Kind::Semaphore { permits, layout } => {
                // Somebody may have changed the number before this program first sees it.
                let builder =
                    Semaphore::builder(client, self.path, *permits).accept_other_permits();
                Lock::Semaphore(builder.profile(layout.clone()).build().expect(GOOD), *permits)
            }
            Kind::Election => Lock::Election(Election::new(client, self.path).expect(GOOD)),
        }
    }

    fn beside(&self) -> String {
        format!("{}-beside", self.path)
    }

    fn below(&self) -> String {
        format!("{}/node", self.path)
    }

    /// Every way to have it once all is well.
    pub fn shares(&self) -> Vec<Share> {
        match &self.kind {
            Kind::RwLock => vec![Share::Reader, Share::Upgradeable, Share::Alone],
            Kind::Semaphore { permits, .. } => {
                vec![Share::Permits { taken: *permits, of: *permits }]
            }
            _ => vec![Share::Alone],
        }
    }

    /// Where its contenders are.
    ///
    /// # Panics
    ///
    /// As [`Design::open`].
    pub fn queues(&self) -> Vec<ZnodePath> {
        let below = match &self.kind {
            Kind::Semaphore { layout: SemaphoreProfile::Curator, .. } => &["/locks", "/leases"][..],
            Kind::Semaphore { layout: SemaphoreProfile::Kazoo, .. } => &["", "-__lock__"],
            Kind::Multi => &["", "-beside"],
            _ => &[""],
        };
        let path = |below| ZnodePath::new(&format!("{}{below}", self.path)).expect("a path");
        below.iter().map(path).collect()
    }
}

/// A handle on a lock.
#[derive(Clone, Debug)]
pub enum Lock {
    /// A mutex.
    Mutex(Mutex),
    /// One that its holder enters twice.
    Reentrant(ReentrantMutex),
    /// Two locks at once.
    Multi(MultiLock),
    /// Whose every holder is an owner of its own.
    Exclusive(Client, ZnodePath),
    /// A lock for readers and writers.
    RwLock(RwLock),
    /// With how many permits there are.
    Semaphore(Semaphore, u32),
    /// An election.
    Election(Election),
}

/// How somebody goes about getting a lock.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// Not at all.
    None,
    /// For such a time.
    Until(Duration),
    /// For as long as it takes.
    Endless,
}

/// Gets a lock by the one of its three methods that a [`Patience`] asks for; `None` where that would need
/// more of it.
macro_rules! acquire_with {
    ($patience:expr, $lock:ident.($try:ident, $timeout:ident, $wait:ident)($($argument:expr),*)) => {
        match $patience {
            Patience::None => $lock.$try($($argument),*).await?,
            Patience::Until(limit) => {
                Some($lock.$timeout($($argument,)* limit).await?)
            }
            Patience::Endless => Some($lock.$wait($($argument),*).await?),
        }
    };
}

impl Lock {
    /// Where it is; the first path, if there are two.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn path(&self) -> &ZnodePath {
        match self {
            Self::Mutex(lock) => lock.path(),
            Self::Reentrant(lock) => lock.path(),
            Self::Multi(lock) => lock.paths().next().expect("there are two"),
            Self::Exclusive(_, node) => node,
            Self::RwLock(lock) => lock.path(),
            Self::Semaphore(lock, _) => lock.path(),
            Self::Election(election) => election.path(),
        }
    }

    /// One of the ways to have it.
    pub fn any_share(&self, random: &mut fastrand::Rng) -> Share {
        match self {
            Self::RwLock(_) => match random.u8(0..6) {
                0..3 => Share::Reader,
                3 => Share::Upgradeable,
                _ => Share::Alone,
            },
            Self::Semaphore(_, of) => Share::Permits { taken: random.u32(1..=*of), of: *of },
            _ => Share::Alone,
        }
    }

    /// Gets it, or `None` where that would need more patience.
    ///
    /// # Errors
    ///
    /// As those of the lock.
    pub async fn acquire(
        &self,
        share: Share,
        patience: Patience,
    ) -> Result<Option<Held>, AcquireError> {
        Ok(match self {
            Self::Mutex(lock) => {
                acquire_with!(patience, lock.(try_acquire, acquire_timeout, acquire)())
                    .map(Held::Mutex)
            }
            Self::Reentrant(lock) => enter_twice(lock, patience).await?,
            Self::Multi(lock) => {
                acquire_with!(patience, lock.(try_acquire, acquire_timeout, acquire)())
                    .map(Held::Multi)
            }
            Self::Exclusive(client, node) => {
                let owner = Owner::new("simulated");
                let lock = ExclusiveNode::builder(client, node.as_str()).owner(&owner);
                let lock = lock.build().expect("a path for a lock");
                acquire_with!(patience, lock.(try_acquire, acquire_timeout, acquire)())
                    .map(|guard| Held::Exclusive { lock, guard })
            }
            Self::RwLock(lock) => match share {
                Share::Reader => {
                    acquire_with!(patience, lock.(try_read, read_timeout, read)()).map(Held::Reader)
                }
                Share::Upgradeable => acquire_with!(
                    patience,
                    lock.(try_upgradeable_read, upgradeable_read_timeout, upgradeable_read)()
                )
                .map(Held::Upgradeable),
                _ => acquire_with!(patience, lock.(try_write, write_timeout, write)())
                    .map(Held::Writer),
            },
            Self::Semaphore(lock, _) => {
                let Share::Permits { taken, .. } = share else { unreachable!("{share:?}") };
                acquire_with!(
                    patience,
                    lock.(try_acquire_many, acquire_many_timeout, acquire_many)(taken)
                )
                .map(Held::Permits)
            }
            Self::Election(election) => {
                acquire_with!(patience, election.(try_campaign, campaign_timeout, campaign)())
                    .map(Held::Leads)
            }
        })
    }
}

/// Gets a lock as a new owner, who enters once more.
async fn enter_twice(
    lock: &ReentrantMutex,
    patience: Patience,
) -> Result<Option<Held>, AcquireError> {
    let owner = Owner::new("simulated");
    let outer = acquire_with!(patience, lock.(try_acquire, acquire_timeout, acquire)(&owner));
    let Some(outer) = outer else { return Ok(None) };
    let inner = lock.acquire(&owner).await?;
    Ok(Some(Held::Reentrant { lock: lock.clone(), outer, inner }))
}

/// A lock that is held.
#[derive(Debug)]
pub enum Held {
    /// A mutex.
    Mutex(MutexGuard),
    /// A mutex that was entered twice, first as `outer`.
    #[expect(missing_docs, reason = "said above")]
    Reentrant { lock: ReentrantMutex, outer: ReentrantGuard, inner: ReentrantGuard },
    /// Two locks at once.
    Multi(MultiGuard),
    /// A node of its own: as its owner, and the right to it.
    #[expect(missing_docs, reason = "said above")]
    Exclusive { lock: ExclusiveNode, guard: ExclusiveGuard },
    /// For reading.
    Reader(RwLockReadGuard),
    /// For reading, with the right to write later.
    Upgradeable(RwLockUpgradeableGuard),
    /// For writing.
    Writer(RwLockWriteGuard),
    /// Some permits.
    Permits(SemaphoreGuard),
    /// As the leader.
    Leads(Leadership),
}

impl Held {
    /// What its holder may believe; of two locks, about the first.
    pub fn guard(&self) -> &Guard {
        match self {
            Self::Mutex(guard) => guard,
            Self::Reentrant { inner, .. } => inner,
            Self::Multi(guard) => &guard.guards()[0],
            Self::Exclusive { guard, .. } => guard,
            Self::Reader(guard) => guard,
            Self::Upgradeable(guard) => guard,
            Self::Writer(guard) => guard,
            Self::Permits(guard) => guard,
            Self::Leads(leadership) => leadership,
        }
    }

    /// The same about each of the locks.
    pub fn guards(&self) -> &[Guard] {
        match self {
            Self::Multi(guard) => guard.guards(),
            one => std::slice::from_ref(one.guard()),
        }
    }

    /// How it stands; of two locks, the worse.
    pub fn state(&self) -> State {
        if let Self::Multi(guard) = self { guard.state() } else { self.guard().state() }
    }

    /// Until when it is certainly held.
    pub fn deadline(&self) -> Option<Instant> {
        if let Self::Multi(guard) = self { guard.deadline() } else { self.guard().deadline() }
    }

    /// Waits until it is in jeopardy.
    ///
    /// # Errors
    ///
    /// Why it is lost.
    pub async fn jeopardy(&self) -> Result<(), LossReason> {
        match self {
            Self::Multi(guard) => guard.jeopardy().await,
            one => one.guard().jeopardy().await,
        }
    }

    /// Waits until it is not in jeopardy.
    ///
    /// # Errors
    ///
    /// Why it is lost.
    pub async fn held_again(&self) -> Result<(), LossReason> {
        match self {
            Self::Multi(guard) => guard.held_again().await,
            one => one.guard().held_again().await,
        }
    }

    /// Waits out an outage between two steps of work.
    ///
    /// # Errors
    ///
    /// If it is lost, or not held for as long as is wanted.
    pub async fn checkpoint(&self, wanted: Duration, grace: Duration) -> Result<(), EnsureError> {
        match self {
            Self::Multi(guard) => guard.checkpoint(wanted, grace).await,
            one => one.guard().checkpoint(wanted, grace).await,
        }
    }

    /// Does work through outages.
    ///
    /// # Errors
    ///
    /// Why it was lost before the work was done.
    pub async fn run_through<T>(
        &self,
        grace: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, LossReason> {
        match self {
            Self::Multi(guard) => guard.run_through(grace, work).await,
            one => one.guard().run_through(grace, work).await,
        }
    }

    /// Enters it once more, if its owner may. Gives whether it is held at that moment; the entry ends at
    /// once.
    ///
    /// # Errors
    ///
    /// As those of the lock.
    pub async fn enter_again(&self) -> Result<Option<bool>, AcquireError> {
        Ok(match self {
            Self::Reentrant { lock, inner, .. } => {
                Some(lock.acquire(inner.owner()).await?.is_held())
            }
            Self::Exclusive { lock, .. } => Some(lock.acquire().await?.is_held()),
            _ => None,
        })
    }

    /// What it can become without being given back.
    pub fn may_become(&self) -> Option<Share> {
        match self {
            Self::Upgradeable(_) => Some(Share::Alone),
            Self::Writer(_) => Some(Share::Reader),
            _ => None,
        }
    }

    /// Makes it that.
    ///
    /// # Errors
    ///
    /// As those of the upgrade or downgrade; it is given back then.
    pub async fn turn(self, limit: Duration) -> Result<Self, AcquireError> {
        Ok(match self {
            Self::Upgradeable(guard) => Self::Writer(guard.upgrade_timeout(limit).await?),
            Self::Writer(guard) => Self::Reader(guard.downgrade().await?),
            same => same,
        })
    }

    /// Gives it back; whether a server has confirmed it.
    pub async fn release(self) -> bool {
        let released = match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Reentrant { outer, inner, .. } => {
                drop(inner);
                outer.release().await
            }
            Self::Multi(guard) => guard.release().await,
            Self::Exclusive { guard, .. } => guard.release().await,
            Self::Reader(guard) => guard.release().await,
            Self::Upgradeable(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
            Self::Permits(guard) => guard.release().await,
            Self::Leads(leadership) => leadership.resign().await,
        };
        released.is_ok()
    }
}
