//! The locks of simulations and models: of any kind and layout, behind one interface. A new kind of lock is one more
//! variant of [`Lock`].

use std::time::Duration;

use crate::history::Share;
use lockkeeper::{
    AcquireError, Client, Election, EnsureError, ExclusiveGuard, ExclusiveNode, Guard, HolderState,
    Instant, Leadership, LossReason, MultiGuard, MultiLock, Mutex, MutexGuard, Owner,
    ReentrantGuard, ReentrantMutex, RwLock, RwLockReadGuard, RwLockUpgradeableGuard,
    RwLockWriteGuard, Semaphore, SemaphoreGuard, SemaphoreProfile, ZnodePath,
};

/// The lock of a run. All clients agree on it.
#[derive(Clone, Debug)]
pub struct Design {
    /// Its path.
    pub path: &'static str,
    /// Its kind.
    pub kind: Kind,
}

/// A kind of lock and its layout.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A mutex.
    Mutex,
    /// A mutex with a lock delay: the next holder waits after a holder has disappeared.
    Delayed(Duration),
    /// A mutex that its holder enters twice.
    Reentrant,
    /// A multi-lock on this lock and a second one.
    Multi,
    /// An exclusive node below the path.
    Exclusive,
    /// A lock for readers and writers.
    RwLock,
    /// A semaphore with this number of permits, and its layout on the server.
    #[expect(missing_docs, reason = "see the variant")]
    Semaphore { permits: u32, layout: SemaphoreProfile },
    /// An election; the leader holds it.
    Election,
}

/// How the holders of one process share a client's mutex.
#[derive(Clone, Copy, Debug)]
pub enum Sharing {
    /// They do not.
    Never,
    /// After a release its node is kept for this time.
    Linger(Duration),
    /// Its node is handed on to other contenders of the process.
    Cohort,
}

impl Sharing {
    /// Chooses one at random.
    pub fn any(random: &mut fastrand::Rng) -> Self {
        match random.u8(0..5) {
            0 => Self::Never,
            1 | 2 => Self::Linger(Duration::from_millis(random.u64(10..1_000))),
            _ => Self::Cohort,
        }
    }
}

impl Design {
    /// Chooses a lock at random.
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
    /// The path is not valid for a lock.
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
                // Another program may change the number before this one first reads it.
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

    /// All shares in which it can be held.
    pub fn shares(&self) -> Vec<Share> {
        match &self.kind {
            Kind::RwLock => vec![Share::Reader, Share::Upgradeable, Share::Alone],
            Kind::Semaphore { permits, .. } => {
                vec![Share::Permits { taken: *permits, of: *permits }]
            }
            _ => vec![Share::Alone],
        }
    }

    /// The parents of its contenders' nodes.
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
        let path = |below| ZnodePath::new(&format!("{}{below}", self.path)).expect("a valid path");
        below.iter().map(path).collect()
    }
}

/// A handle on a lock.
#[derive(Clone, Debug)]
pub enum Lock {
    /// A mutex.
    Mutex(Mutex),
    /// A mutex that its holder enters twice.
    Reentrant(ReentrantMutex),
    /// Two locks at once.
    Multi(MultiLock),
    /// An exclusive node, of which each holder is a different owner.
    Exclusive(Client, ZnodePath),
    /// A lock for readers and writers.
    RwLock(RwLock),
    /// A semaphore, with its number of permits.
    Semaphore(Semaphore, u32),
    /// An election.
    Election(Election),
}

/// How long an acquisition may wait.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// It does not wait.
    Never,
    /// It waits for this time at most.
    For(Duration),
    /// It waits without a limit.
    Forever,
}

/// Acquires a lock by the method that a [`Wait`] requires; evaluates to `None` if the lock cannot be had within it.
macro_rules! acquire_with {
    ($patience:expr, $lock:ident.($try:ident, $timeout:ident, $wait:ident)($($argument:expr),*)) => {
        match $patience {
            Wait::Never => $lock.$try($($argument),*).await?,
            Wait::For(limit) => {
                Some($lock.$timeout($($argument,)* limit).await?)
            }
            Wait::Forever => Some($lock.$wait($($argument),*).await?),
        }
    };
}

impl Lock {
    /// Its path; the first one if it has two.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn path(&self) -> &ZnodePath {
        match self {
            Self::Mutex(lock) => lock.path(),
            Self::Reentrant(lock) => lock.path(),
            Self::Multi(lock) => lock.paths().next().expect("a multi-lock has two paths"),
            Self::Exclusive(_, node) => node,
            Self::RwLock(lock) => lock.path(),
            Self::Semaphore(lock, _) => lock.path(),
            Self::Election(election) => election.path(),
        }
    }

    /// Chooses one of its shares at random.
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

    /// Acquires it; `None` if that takes longer than the caller may wait.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    pub async fn acquire(
        &self,
        share: Share,
        patience: Wait,
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

/// Acquires a lock as a new owner, and enters it a second time.
async fn enter_twice(lock: &ReentrantMutex, patience: Wait) -> Result<Option<Held>, AcquireError> {
    let owner = Owner::new("simulated");
    let outer = acquire_with!(patience, lock.(try_acquire, acquire_timeout, acquire)(&owner));
    let Some(outer) = outer else { return Ok(None) };
    let inner = lock.acquire(&owner).await?;
    Ok(Some(Held::Reentrant { lock: lock.clone(), outer, inner }))
}

/// A held lock.
#[derive(Debug)]
pub enum Held {
    /// A mutex.
    Mutex(MutexGuard),
    /// A mutex that was entered twice, first as `outer`.
    #[expect(missing_docs, reason = "see the variant")]
    Reentrant { lock: ReentrantMutex, outer: ReentrantGuard, inner: ReentrantGuard },
    /// Two locks at once.
    Multi(MultiGuard),
    /// An exclusive node: the handle of its owner, and the guard.
    #[expect(missing_docs, reason = "see the variant")]
    Exclusive { lock: ExclusiveNode, guard: ExclusiveGuard },
    /// For reading.
    Reader(RwLockReadGuard),
    /// For reading, with the right to upgrade to writing.
    Upgradeable(RwLockUpgradeableGuard),
    /// For writing.
    Writer(RwLockWriteGuard),
    /// Some permits.
    Permits(SemaphoreGuard),
    /// An election, as its leader.
    Leads(Leadership),
}

impl Held {
    /// The guard; of two locks, the first one's.
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

    /// The guards of all its locks.
    pub fn guards(&self) -> &[Guard] {
        match self {
            Self::Multi(guard) => guard.guards(),
            one => std::slice::from_ref(one.guard()),
        }
    }

    /// Its state; of two locks, the worse one.
    pub fn state(&self) -> HolderState {
        if let Self::Multi(guard) = self { guard.state() } else { self.guard().state() }
    }

    /// The deadline until which it is certainly held.
    pub fn deadline(&self) -> Option<Instant> {
        if let Self::Multi(guard) = self { guard.deadline() } else { self.guard().deadline() }
    }

    /// Waits until it is in jeopardy.
    ///
    /// # Errors
    ///
    /// The reason for which it is lost.
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
    /// The reason for which it is lost.
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
    /// It is lost, or is not held for as long as requested.
    pub async fn checkpoint(&self, wanted: Duration, grace: Duration) -> Result<(), EnsureError> {
        match self {
            Self::Multi(guard) => guard.checkpoint(wanted, grace).await,
            one => one.guard().checkpoint(wanted, grace).await,
        }
    }

    /// Runs work through outages.
    ///
    /// # Errors
    ///
    /// The reason for which it was lost before the work ended.
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

    /// Enters it once more, if its owner may. Returns whether it is held at that moment; the entry ends at once.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    pub async fn enter_again(&self) -> Result<Option<bool>, AcquireError> {
        Ok(match self {
            Self::Reentrant { lock, inner, .. } => {
                Some(lock.acquire(inner.owner()).await?.is_held())
            }
            Self::Exclusive { lock, .. } => Some(lock.acquire().await?.is_held()),
            _ => None,
        })
    }

    /// The share to which it can be converted without a release.
    pub fn may_become(&self) -> Option<Share> {
        match self {
            Self::Upgradeable(_) => Some(Share::Alone),
            Self::Writer(_) => Some(Share::Reader),
            _ => None,
        }
    }

    /// Converts it to that share.
    ///
    /// # Errors
    ///
    /// Those of the upgrade or downgrade; the lock is then released.
    pub async fn turn(self, limit: Duration) -> Result<Self, AcquireError> {
        Ok(match self {
            Self::Upgradeable(guard) => Self::Writer(guard.upgrade_timeout(limit).await?),
            Self::Writer(guard) => Self::Reader(guard.downgrade().await?),
            same => same,
        })
    }

    /// Releases it; returns whether a server has confirmed the release.
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
