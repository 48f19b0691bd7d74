//! The locks that `run` can take, behind one face.

use std::ops::Deref;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lockkeeper::inspect::Queue;
use lockkeeper::{
    AcquireError, BuildError, Client, Guard, Kind, Mutex, MutexGuard, Profile, ReleaseError,
    RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphoreGuard, SemaphoreProfile, Usage,
    ZnodePath,
};

use crate::exit::{Exit, Failure};
use crate::names;
use crate::view;

/// Which of the locks, and how it is used.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Which lock")]
pub(super) struct Which {
    /// Hold the lock together with others that hold it --shared
    #[arg(short, long, conflicts_with = "write")]
    shared: bool,

    /// Hold it alone, where others hold it --shared; a plain run does not go together with those
    #[arg(long)]
    write: bool,

    /// Hold one of N permits. Every run of the lock must pass the same N: a run with another number than the
    /// stored one fails (see lockkeeper permits)
    #[arg(long, value_name = "N", conflicts_with_all = ["shared", "write"],
          value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,

    /// Use the stored number of permits if it is another than N
    #[arg(long, requires = "permits")]
    any_permits: bool,

    /// Hold K of the permits
    #[arg(long, value_name = "K", requires = "permits", default_value_t = 1,
          hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
    take: u32,

    /// The library of the other programs that use the lock: Apache Curator (Java) or kazoo
    /// (Python) [default: curator; with --permits: neither, which is faster]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "curator|kazoo")]
    profile: Option<Library>,

    /// If lockkeeper dies while it holds the lock, keep the next one waiting for so long; for what
    /// cannot check fencing tokens. Runs without this option wait too, and programs on the library that
    /// obey lock delays
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["shared", "write", "permits"],
          value_parser = names::some_time, allow_hyphen_values = true)]
    lock_delay: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Library {
    Curator,
    Kazoo,
}

/// Where the contenders for permits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Below the lock's own node.
    Own,
    /// As Curator has them: below two children of it.
    Children,
}

/// A lock, and how it is to be held.
#[derive(Debug)]
pub(super) enum Lock {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits { semaphore: Semaphore, of: u32, take: u32, layout: Layout },
}

/// A held lock.
#[derive(Debug)]
pub(super) enum Held {
    Mutex(MutexGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permits(SemaphoreGuard),
}

impl Which {
    /// Refuses what could never be had. Not by the servers, which would note the number of permits first.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.permits {
            Some(of) if self.take > of => {
                let message = format!("--take {} is more than --permits {of}", self.take);
                Err(Failure::new(Exit::Usage, message))
            }
            _ => Ok(()),
        }
    }

    /// Makes the lock. `label`: what its holder is called where the queue is shown.
    pub(super) fn lock(
        &self,
        client: &Client,
        path: &ZnodePath,
        label: &str,
    ) -> Result<Lock, BuildError> {
        let profile = match self.profile {
            Some(Library::Kazoo) => Profile::Kazoo,
            Some(Library::Curator) | None => Profile::Curator,
        };

        let path = path.as_str();
        if let Some(of) = self.permits {
            let mut semaphore = Semaphore::builder(client, path, of).label(label);
            if self.profile.is_some() {
                semaphore = semaphore.profile(profile);
            }
            if self.any_permits {
                semaphore = semaphore.accept_other_permits();
            }
            let layout = match self.profile {
                Some(Library::Curator) => Layout::Children,
                Some(Library::Kazoo) | None => Layout::Own,
            };
            let (semaphore, take) = (semaphore.build()?, self.take);
            return Ok(Lock::Permits { semaphore, of, take, layout });
        }

        if self.shared || self.write {
            let lock = RwLock::builder(client, path).profile(profile).label(label).build()?;
            return Ok(if self.shared { Lock::Read(lock) } else { Lock::Write(lock) });
        }

        let mut mutex = Mutex::builder(client, path).profile(profile).label(label);
        mutex = match self.lock_delay {
            Some(delay) => mutex.lock_delay(delay),
            None => mutex.obey_lock_delay(),
        };
        mutex.build().map(Lock::Mutex)
    }
}

impl Lock {
    pub(super) fn path(&self) -> &ZnodePath {
        match self {
            Self::Mutex(mutex) => mutex.path(),
            Self::Read(lock) | Self::Write(lock) => lock.path(),
            Self::Permits { semaphore, .. } => semaphore.path(),
        }
    }

    /// Whether it can be held together with a holder of that kind.
    pub(super) fn goes_together_with(&self, outer: Kind) -> bool {
        match self {
            Self::Mutex(_) | Self::Write(_) => false,
            Self::Read(_) => outer == Kind::Read,
            Self::Permits { of, take, .. } => {
                outer.permits().is_some_and(|held| held.saturating_add(*take) <= *of)
            }
        }
    }

    /// How much is left of a lock delay that kept it from being taken.
    pub(super) fn delay_left(&self) -> Option<Duration> {
        match self {
            Self::Mutex(mutex) => mutex.lock_delay_left(),
            Self::Read(_) | Self::Write(_) | Self::Permits { .. } => None,
        }
    }

    /// Waits in the queue.
    pub(super) async fn acquire(&self) -> Result<Held, AcquireError> {
        match self {
            Self::Mutex(mutex) => mutex.acquire().await.map(Held::Mutex),
            Self::Read(lock) => lock.read().await.map(Held::Read),
            Self::Write(lock) => lock.write().await.map(Held::Write),
            Self::Permits { semaphore, take, .. } => {
                semaphore.acquire_many(*take).await.map(Held::Permits)
            }
        }
    }

    /// Takes the lock only if that needs no waiting.
    pub(super) async fn try_acquire(&self) -> Result<Option<Held>, AcquireError> {
        Ok(match self {
            Self::Mutex(mutex) => mutex.try_acquire().await?.map(Held::Mutex),
            Self::Read(lock) => lock.try_read().await?.map(Held::Read),
            Self::Write(lock) => lock.try_write().await?.map(Held::Write),
            Self::Permits { semaphore, take, .. } => {
                semaphore.try_acquire_many(*take).await?.map(Held::Permits)
            }
        })
    }

    /// Refuses permits as Curator has them at a lock that is in use as another kind. Its queue would not
    /// be looked at.
    pub(super) async fn check_layout(&self, client: &Client) -> Result<(), Failure> {
        let Self::Permits { layout: Layout::Children, .. } = self else { return Ok(()) };
        // What cannot be seen now fails in so many words when the lock is asked for.
        let Ok((mut names, _)) = client.children(self.path()).await else { return Ok(()) };
        names.retain(|name| !SemaphoreProfile::CURATORS_CHILDREN.contains(&name.as_str()));
        match names.is_empty() {
            true => Ok(()),
            false => {
                let (path, profile) = (self.path().clone(), Profile::Curator);
                Err(self.failure(AcquireError::Foreign { path, profile, names }))
            }
        }
    }

    /// Refuses a lock of another kind while the lock delay of one for a single holder is due: the others
    /// do not wait for it.
    pub(super) async fn check_delay(&self, client: &Client) -> Result<(), Failure> {
        if let Self::Mutex(_) = self {
            return Ok(());
        }
        match Queue::inspect(client, self.path()).await {
            Ok(Some(queue)) if queue.delay.is_some() => {
                let message = format!("{} is not free{}", self.path(), view::held_by(&queue));
                let advice = format!("wait for it: lockkeeper wait {}", self.path());
                Err(Failure::new(Exit::Data, message).advise(&advice))
            }
            // What cannot be seen now fails in so many words when the lock is asked for.
            _ => Ok(()),
        }
    }

    /// What to tell the user of an attempt that failed.
    pub(super) fn failure(&self, error: AcquireError) -> Failure {
        if let AcquireError::OtherPermits { path, permits, stored } = &error {
            let has = view::permits(*stored);
            let message = format!(
                "{path} has {has}, not {permits}: every run of it must pass the same number"
            );
            let advice = format!(
                "use --permits {stored}, change the number (lockkeeper permits set {path} {permits}), or \
                 accept it with --any-permits"
            );
            return Failure::new(Exit::Data, message).advise(&advice);
        }
        let AcquireError::Foreign { path, profile, names } = &error else { return error.into() };
        let Some((library, usage)) = Usage::of(names) else {
            let message = format!(
                "{path} cannot be a lock while there is something else below it ({}): a lock has \
                 no other locks below it; use another name, such as {path}/all",
                view::listed(names)
            );
            return Failure::new(Exit::Data, message);
        };

        let mut advice = Vec::new();
        if usage != self.usage() {
            advice.extend(options(usage));
        }
        match library {
            Profile::Kazoo if library != *profile => advice.push("use --profile kazoo"),
            _ if library != *profile => advice.push("use --profile curator"),
            _ => {}
        }
        advice.push(if advice.is_empty() { "take another lock" } else { "or take another lock" });
        let (what, advice) = (what(usage), advice.join(", "));
        let message = format!("{path} is in use as {what}; {advice}: each is of one kind");
        Failure::new(Exit::Data, message)
    }

    fn usage(&self) -> Usage {
        match self {
            Self::Mutex(_) => Usage::Mutex,
            Self::Read(_) | Self::Write(_) => Usage::RwLock,
            Self::Permits { .. } => Usage::Semaphore,
        }
    }
}

/// What a lock is used as, in the words of the options.
fn what(usage: Usage) -> &'static str {
    match usage {
        Usage::Mutex => "a lock for one holder at a time",
        Usage::RwLock => "a lock that can be shared",
        Usage::Semaphore => "a number of permits",
        _ => "something that `run` does not take part in",
    }
}

/// The options for a lock that is used so.
fn options(usage: Usage) -> Option<&'static str> {
    match usage {
        Usage::Mutex => Some("use neither --shared nor --write nor --permits"),
        Usage::RwLock => Some("use --shared, or --write to have it alone"),
        Usage::Semaphore => Some("use --permits"),
        _ => None,
    }
}

impl Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Mutex(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permits(guard) => guard,
        }
    }
}

impl Held {
    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permits(guard) => guard.release().await,
        }
    }
}
