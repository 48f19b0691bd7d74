//! The locks of a run: of any kind, in any layout, behind one face. A new kind of lock is one more
//! variant of [`Lock`].

use std::time::Duration;

use lockkeeper::{
    AcquireError, Client, Guard, Mutex, MutexGuard, RwLock, RwLockUpgradeableGuard,
    RwLockWriteGuard, Semaphore, SemaphoreGuard, SemaphoreLayout, ZnodePath,
};
use lockkeeper_testkit::history::Share;

/// What a lock of a run is. All clients agree on it.
#[derive(Clone, Debug)]
pub(crate) struct Design {
    pub(crate) path: &'static str,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Mutex,
    RwLock,
    Semaphore { permits: u32, layout: SemaphoreLayout },
}

impl Design {
    pub(crate) fn any(path: &'static str, random: &mut fastrand::Rng) -> Self {
        let kind = match random.u8(0..8) {
            0..4 => Kind::Mutex,
            4..6 => Kind::RwLock,
            _ => {
                let layout = match random.u8(0..4) {
                    0 => SemaphoreLayout::Curator,
                    1 => SemaphoreLayout::Kazoo,
                    _ => SemaphoreLayout::Native,
                };
                Kind::Semaphore { permits: random.u32(1..4), layout }
            }
        };
        Self { path, kind }
    }

    /// A client's handle, with options of its own.
    pub(crate) fn open(&self, client: &Client, linger: Option<Duration>) -> Lock {
        const GOOD: &str = "a path for a lock";
        match &self.kind {
            Kind::Mutex => {
                let builder = Mutex::builder(client, self.path);
                let builder = match linger {
                    Some(period) => builder.linger(period),
                    None => builder.cohort(3, Duration::from_secs(1)),
                };
                Lock::Mutex(builder.build().expect(GOOD))
            }
            Kind::RwLock => Lock::RwLock(RwLock::new(client, self.path).expect(GOOD)),
            Kind::Semaphore { permits, layout } => {
                let builder = Semaphore::builder(client, self.path, *permits);
                Lock::Semaphore(builder.layout(layout.clone()).build().expect(GOOD), *permits)
            }
        }
    }

    /// Every way to have it once all is well.
    pub(crate) fn shares(&self) -> Vec<Share> {
        match &self.kind {
            Kind::Mutex => vec![Share::Alone],
            Kind::RwLock => vec![Share::Reader, Share::Upgradeable, Share::Alone],
            Kind::Semaphore { permits, .. } => {
                vec![Share::Permits { taken: *permits, of: *permits }]
            }
        }
    }

    /// Where its contenders are.
    pub(crate) fn queues(&self) -> Vec<ZnodePath> {
        let below = match &self.kind {
            Kind::Semaphore { layout: SemaphoreLayout::Curator, .. } => &["/locks", "/leases"][..],
            Kind::Semaphore { layout: SemaphoreLayout::Kazoo, .. } => &["", "-__lock__"],
            _ => &[""],
        };
        let path = |below| ZnodePath::new(&format!("{}{below}", self.path)).expect("a path");
        below.iter().map(path).collect()
    }
}

/// A handle on a lock.
#[derive(Clone, Debug)]
pub(crate) enum Lock {
    Mutex(Mutex),
    RwLock(RwLock),
    /// With how many permits there are.
    Semaphore(Semaphore, u32),
}

/// How somebody goes about getting a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    None,
    Until(Duration),
    Endless,
}

impl Lock {
    pub(crate) fn path(&self) -> &ZnodePath {
        match self {
            Self::Mutex(lock) => lock.path(),
            Self::RwLock(lock) => lock.path(),
            Self::Semaphore(lock, _) => lock.path(),
        }
    }

    /// One of the ways to have it.
    pub(crate) fn any_share(&self, random: &mut fastrand::Rng) -> Share {
        match self {
            Self::Mutex(_) => Share::Alone,
            Self::RwLock(_) => match random.u8(0..6) {
                0..3 => Share::Reader,
                3 => Share::Upgradeable,
                _ => Share::Alone,
            },
            Self::Semaphore(_, of) => Share::Permits { taken: random.u32(1..=*of), of: *of },
        }
    }

    /// Gets it, or `None` where that would need more patience.
    pub(crate) async fn acquire(
        &self,
        share: Share,
        patience: Patience,
    ) -> Result<Option<Held>, AcquireError> {
        use Patience::{Endless, None, Until};
        Ok(match (self, share, patience) {
            (Self::Mutex(lock), _, None) => lock.try_acquire().await?.map(Held::Mutex),
            (Self::Mutex(lock), _, Until(limit)) => {
                Some(Held::Mutex(lock.acquire_timeout(limit).await?))
            }
            (Self::Mutex(lock), _, Endless) => Some(Held::Mutex(lock.acquire().await?)),
            (Self::RwLock(lock), Share::Reader, None) => lock.try_read().await?.map(Held::Reader),
            (Self::RwLock(lock), Share::Reader, Until(limit)) => {
                Some(Held::Reader(lock.read_timeout(limit).await?))
            }
            (Self::RwLock(lock), Share::Reader, Endless) => Some(Held::Reader(lock.read().await?)),
            (Self::RwLock(lock), Share::Upgradeable, None) => {
                lock.try_upgradeable_read().await?.map(Held::Upgradeable)
            }
            (Self::RwLock(lock), Share::Upgradeable, Until(limit)) => {
                Some(Held::Upgradeable(lock.upgradeable_read_timeout(limit).await?))
            }
            (Self::RwLock(lock), Share::Upgradeable, Endless) => {
                Some(Held::Upgradeable(lock.upgradeable_read().await?))
            }
            (Self::RwLock(lock), _, None) => lock.try_write().await?.map(Held::Writer),
            (Self::RwLock(lock), _, Until(limit)) => {
                Some(Held::Writer(lock.write_timeout(limit).await?))
            }
            (Self::RwLock(lock), _, Endless) => Some(Held::Writer(lock.write().await?)),
            (Self::Semaphore(lock, _), share, patience) => {
                let Share::Permits { taken, .. } = share else { unreachable!("{share:?}") };
                match patience {
                    None => lock.try_acquire_many(taken).await?.map(Held::Permits),
                    Until(limit) => Some(Held::Permits(lock.acquire_timeout(taken, limit).await?)),
                    Endless => Some(Held::Permits(lock.acquire_many(taken).await?)),
                }
            }
        })
    }
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) enum Held {
    Mutex(MutexGuard),
    Reader(Guard),
    Upgradeable(RwLockUpgradeableGuard),
    Writer(RwLockWriteGuard),
    Permits(SemaphoreGuard),
}

impl Held {
    pub(crate) fn guard(&self) -> &Guard {
        match self {
            Self::Mutex(guard) => guard,
            Self::Reader(guard) => guard,
            Self::Upgradeable(guard) => guard,
            Self::Writer(guard) => guard,
            Self::Permits(guard) => guard,
        }
    }

    /// What it can become without being given back.
    pub(crate) fn may_become(&self) -> Option<Share> {
        match self {
            Self::Upgradeable(_) => Some(Share::Alone),
            Self::Writer(_) => Some(Share::Reader),
            Self::Mutex(_) | Self::Reader(_) | Self::Permits(_) => None,
        }
    }

    /// Makes it that.
    pub(crate) async fn turn(self, limit: Duration) -> Result<Self, AcquireError> {
        Ok(match self {
            Self::Upgradeable(guard) => Self::Writer(guard.upgrade_timeout(limit).await?),
            Self::Writer(guard) => Self::Reader(guard.downgrade().await?),
            same => same,
        })
    }

    /// Gives it back; whether a server has confirmed it.
    pub(crate) async fn release(self) -> bool {
        let released = match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Reader(guard) => guard.release().await,
            Self::Upgradeable(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
            Self::Permits(guard) => guard.release().await,
        };
        released.is_ok()
    }
}
