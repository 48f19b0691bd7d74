//! The kinds of locks that `run` can acquire, behind one type.

use std::slice;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use lockkeeper::inspect::LockQueue;
use lockkeeper::overview::PathUse;
use lockkeeper::{
    AcquireError, BuildError, Client, Election, Guard, HolderState, Instant, Item, Kind,
    Leadership, LossReason, MultiGuard, MultiLock, Mutex, MutexGuard, Pool, PoolError, PoolGuard,
    Profile, ReleaseError, RevokeRequest, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore,
    SemaphoreGuard, SemaphoreProfile, Usage, ZnodePath,
};

use crate::session::path_use;
use crate::shared::exit::{Exit, Failure};
use crate::shared::{names, user, view};

/// The kind of lock, and how to hold it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Which lock")]
pub(super) struct LockOptions {
    /// Share the lock with others that hold it --shared
    #[arg(short, long, conflicts_with = "write")]
    shared: bool,

    /// Hold it exclusively, which is the default; if others hold it --shared, use --write instead
    #[arg(id = "exclusive", short = 'x', visible_short_alias = 'e', long = "exclusive",
          conflicts_with_all = ["shared", "permits"])]
    _exclusive: bool,

    /// Always in effect: processes that the command leaves behind do not keep the lock
    #[arg(id = "close", short = 'o', long = "close", hide = true)]
    _close: bool,

    /// Hold it exclusively where others hold it --shared; a run without options fails there
    #[arg(long)]
    write: bool,

    /// Hold one of N permits. Every run of the lock must pass the same N: a run with another number than the
    /// stored one fails (see lockkeeper permits)
    #[arg(long, value_name = "N", conflicts_with_all = ["shared", "write"],
          value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,

    /// Use the stored number of permits if it differs from N
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

    /// If lockkeeper dies while it holds the lock, block the next holder for this long; for resources that
    /// cannot check fencing tokens. Runs without this option wait as well, and so do programs that use the
    /// library and support lock delays
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["shared", "write", "permits"],
          value_parser = names::nonzero_duration, allow_hyphen_values = true)]
    lock_delay: Option<Duration>,

    /// Give up, as if the lock were not free, if this wait is part of a deadlock (see lockkeeper graph). Checks all
    /// locks on the servers, after a second and then less and less often. The most recent wait gives up, or two
    /// seconds later another one with this option, unless a shorter -w ends first
    #[arg(long)]
    pub(super) detect_deadlocks: bool,

    /// What the lock is held for, as shown to others.
    #[arg(skip)]
    pub(super) why: Option<String>,
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
    /// In Curator's layout: below two children of the lock's node.
    Children,
}

/// A lock, and how it is to be held.
#[derive(Debug)]
pub(super) enum Lock {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits {
        semaphore: Semaphore,
        of: u32,
        take: u32,
        layout: Layout,
    },
    /// All locks or none, each as a mutex.
    Several(MultiLock),
    /// One of several locks, as a thing of the pool above them.
    OneOf(Pool),
    /// The leadership of an election.
    Lead(Election),
}

/// A held lock, or several of them.
#[derive(Debug)]
pub(super) enum Held {
    Mutex(MutexGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permits(SemaphoreGuard),
    Several(MultiGuard),
    OneOf(PoolGuard),
    Lead(Leadership),
    Item(Box<Item<Bytes>>),
}

/// The part of a held lock that is the same for all kinds.
enum Grip<'a> {
    One(&'a Guard),
    All(&'a MultiGuard),
}

impl LockOptions {
    /// Whether several holders are possible at a time.
    pub(super) fn is_for_several(&self) -> bool {
        self.shared || self.permits.is_some()
    }

    /// Rejects options that could never work. Not left to the servers, which would store the number of permits first.
    pub(super) fn check(&self, paths: &[ZnodePath]) -> Result<(), Failure> {
        self.check_several(paths)?;
        match self.permits {
            Some(of) if self.take > of => {
                let message = format!("--take {} exceeds --permits {of}", self.take);
                Err(Failure::new(Exit::Usage, message))
            }
            _ => Ok(()),
        }
    }

    /// Rejects several locks that cannot be held together.
    fn check_several(&self, paths: &[ZnodePath]) -> Result<(), Failure> {
        if paths.len() < 2 {
            return Ok(());
        }
        let unfit = [
            ("--shared", self.shared),
            ("--write", self.write),
            ("--permits", self.permits.is_some()),
            ("--lock-delay", self.lock_delay.is_some()),
        ];
        if let Some((option, _)) = unfit.iter().find(|(_, is_given)| *is_given) {
            let message = format!(
                "{option} works with one lock only: several locks are always held exclusively"
            );
            return Err(Failure::new(Exit::Usage, message));
        }

        let mut sorted: Vec<_> = paths.iter().collect();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(BuildError::Repeated(twice[0].clone()).into());
        }
        for path in paths {
            let mut above = path.parent();
            while let Some(folder) = above {
                if paths.contains(&folder) {
                    let message = format!("{path} is below {folder}: locks cannot be nested");
                    return Err(Failure::new(Exit::Usage, message).advise("use another name"));
                }
                above = folder.parent();
            }
        }
        Ok(())
    }

    /// Creates the lock at these paths. `label`: the holder's name in the queue.
    pub(super) fn lock(
        &self,
        client: &Client,
        paths: &[ZnodePath],
        label: &str,
    ) -> Result<Lock, BuildError> {
        let profile = match self.profile {
            Some(Library::Kazoo) => Profile::Kazoo,
            Some(Library::Curator) | None => Profile::Curator,
        };

        let (user, why) = (user::name(), self.why.as_deref().unwrap_or_default());
        let [path] = paths else {
            let paths = paths.iter().map(ZnodePath::as_str);
            let several =
                MultiLock::builder(client, paths).profile(profile).label(label).user(user);
            return several.obey_lock_delay().build().map(Lock::Several);
        };
        let path = path.as_str();
        if let Some(of) = self.permits {
            let mut semaphore =
                Semaphore::builder(client, path, of).label(label).user(user).why(why);
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
            let lock =
                RwLock::builder(client, path).profile(profile).label(label).user(user).why(why);
            let lock = lock.build()?;
            return Ok(if self.shared { Lock::Read(lock) } else { Lock::Write(lock) });
        }

        let mut mutex =
            Mutex::builder(client, path).profile(profile).label(label).user(user).why(why);
        mutex = match self.lock_delay {
            Some(delay) => mutex.lock_delay(delay),
            None => mutex.obey_lock_delay(),
        };
        mutex.build().map(Lock::Mutex)
    }
}

impl Lock {
    /// One of these locks, as things of the pool above them.
    pub(super) fn one_of(
        client: &Client,
        paths: &[ZnodePath],
        label: &str,
    ) -> Result<Self, Failure> {
        let pool = paths.first().and_then(ZnodePath::parent).filter(|pool| !pool.is_root());
        let Some(pool) = pool else {
            let message =
                "--one-of needs names with the same part before the last /, which is the pool";
            return Err(Failure::new(Exit::Usage, message).advise("use names like gpu/0 gpu/1"));
        };
        if let Some(other) = paths.iter().find(|path| path.parent().as_ref() != Some(&pool)) {
            let message = format!("{other} is not directly below {pool}, the pool of --one-of");
            return Err(Failure::new(Exit::Usage, message));
        }
        let unread = paths.iter().find(|path| path.name().contains(['{', '}']));
        if let Some(path) = unread {
            let message = format!("{path} contains braces, which this shell does not expand");
            return Err(Failure::new(Exit::Usage, message).advise("write each name: gpu/0 gpu/1"));
        }
        let things = paths.iter().map(ZnodePath::name);
        let pool = Pool::builder(client, pool.as_str()).things(things).label(label).build();
        pool.map(Self::OneOf).map_err(|error| Failure::new(Exit::Usage, error.to_string()))
    }

    /// Its path; for several locks, their paths in the order in which they are acquired.
    pub(super) fn paths(&self) -> Vec<&ZnodePath> {
        match self {
            Self::Mutex(mutex) => vec![mutex.path()],
            Self::Read(lock) | Self::Write(lock) => vec![lock.path()],
            Self::Permits { semaphore, .. } => vec![semaphore.path()],
            Self::Several(several) => several.paths().collect(),
            Self::OneOf(pool) => vec![pool.path()],
            Self::Lead(election) => vec![election.path()],
        }
    }

    /// Its name in messages: `/a`, or `/a, /b and /c`.
    pub(super) fn name(&self) -> String {
        view::all_of(self.paths())
    }

    /// Whether it can be held at the same time as a holder of that kind.
    pub(super) fn goes_together_with(&self, outer: Kind) -> bool {
        match self {
            Self::Mutex(_) | Self::Write(_) | Self::Several(_) | Self::OneOf(_) | Self::Lead(_) => {
                false
            }
            Self::Read(_) => outer == Kind::Read,
            Self::Permits { of, take, .. } => {
                outer.permits().is_some_and(|held| held.saturating_add(*take) <= *of)
            }
        }
    }

    /// How much is left of the lock delay that blocks it.
    pub(super) fn delay_left(&self) -> Option<Duration> {
        match self {
            Self::Mutex(mutex) => mutex.lock_delay_left(),
            Self::Several(several) => several.lock_delay_left(),
            _ => None,
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
            Self::Several(several) => several.acquire().await.map(Held::Several),
            Self::OneOf(pool) => pool.acquire().await.map(Held::OneOf).map_err(of_pool),
            Self::Lead(election) => election.campaign().await.map(Held::Lead),
        }
    }

    /// Acquires the lock only if that does not require waiting.
    pub(super) async fn try_acquire(&self) -> Result<Option<Held>, AcquireError> {
        Ok(match self {
            Self::Mutex(mutex) => mutex.try_acquire().await?.map(Held::Mutex),
            Self::Read(lock) => lock.try_read().await?.map(Held::Read),
            Self::Write(lock) => lock.try_write().await?.map(Held::Write),
            Self::Permits { semaphore, take, .. } => {
                semaphore.try_acquire_many(*take).await?.map(Held::Permits)
            }
            Self::Several(several) => several.try_acquire().await?.map(Held::Several),
            Self::OneOf(pool) => pool.try_acquire().await.map_err(of_pool)?.map(Held::OneOf),
            Self::Lead(election) => election.try_campaign().await?.map(Held::Lead),
        })
    }

    /// Rejects permits in Curator's layout if the lock is in use as another kind, because that layout would ignore the
    /// other kind's queue.
    pub(super) async fn check_layout(&self, client: &Client) -> Result<(), Failure> {
        if let Self::OneOf(pool) = self {
            // A failed read is ignored: the request for the lock reports the error.
            if let Ok((names, _)) = client.children(pool.path()).await
                && let Some((_, usage)) = Usage::of(&names)
            {
                let message =
                    format!("{} is in use as {}, not as a pool", pool.path(), what(usage));
                return Err(Failure::new(Exit::Data, message).advise("use another name"));
            }
            return match pool.inspect().await {
                Err(error @ PoolError::Foreign { .. }) => {
                    Err(Failure::new(Exit::Data, error.to_string()))
                }
                _ => Ok(()),
            };
        }
        let Self::Permits { semaphore, layout: Layout::Children, .. } = self else { return Ok(()) };
        // A failed read is ignored: the request for the lock reports the error.
        let Ok((mut names, _)) = client.children(semaphore.path()).await else { return Ok(()) };
        names.retain(|name| !SemaphoreProfile::CURATORS_CHILDREN.contains(&name.as_str()));
        match names.is_empty() {
            true => Ok(()),
            false => {
                let (path, profile) = (semaphore.path().clone(), Profile::Curator);
                Err(self.failure(AcquireError::Foreign { path, profile, names }))
            }
        }
    }

    /// Rejects a lock of another kind while the lock delay of a mutex is pending, because the other kinds do not wait
    /// for it.
    pub(super) async fn check_delay(&self, client: &Client) -> Result<(), Failure> {
        let path = match self {
            Self::Mutex(_) | Self::Several(_) | Self::OneOf(_) | Self::Lead(_) => return Ok(()),
            Self::Read(lock) | Self::Write(lock) => lock.path(),
            Self::Permits { semaphore, .. } => semaphore.path(),
        };
        match LockQueue::inspect(client, path).await {
            Ok(Some(queue)) if queue.delay.is_some() => {
                let message = format!("{path} is not free{}", view::held_by(&queue));
                let advice = format!("wait for it: lockkeeper wait {path}");
                Err(Failure::new(Exit::Data, message).advise(&advice))
            }
            // A failed read is ignored: the request for the lock reports the error.
            _ => Ok(()),
        }
    }

    /// The failure for an unsuccessful attempt.
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
            if let Some(used) = PathUse::by_children(names).filter(|used| *used != PathUse::Lock) {
                let (what, see) = path_use::names(used);
                let message = format!("{path} is {what}, not a lock");
                return Failure::new(Exit::Data, message)
                    .advise(&format!("see lockkeeper {see} {path}"));
            }
            let message = format!(
                "{path} cannot be a lock while there are other nodes below it ({}): locks cannot be \
                 nested; use another name, such as {path}/all",
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
        let message = format!("{path} is in use as {what}; {advice}: a lock has one kind");
        Failure::new(Exit::Data, message)
    }

    fn usage(&self) -> Usage {
        match self {
            Self::Mutex(_) | Self::Several(_) | Self::OneOf(_) | Self::Lead(_) => Usage::Mutex,
            Self::Read(_) | Self::Write(_) => Usage::RwLock,
            Self::Permits { .. } => Usage::Semaphore,
        }
    }
}

/// Converts an error of a pool to an error of a lock.
fn of_pool(error: PoolError) -> AcquireError {
    match error {
        PoolError::Take { source, .. } => source,
        PoolError::Client { path, source } if source.is_unreachable() => {
            AcquireError::Unreachable { path }
        }
        PoolError::Client { path, source } => AcquireError::Client { path, source },
        PoolError::Refused { path, source } => AcquireError::Refused { path, source },
        PoolError::Foreign { path, found } => {
            AcquireError::Foreign { path, profile: Profile::Curator, names: vec![found] }
        }
        // The names were checked before, and fit into a request.
        error => unreachable!("{error}"),
    }
}

/// The kind of a lock, in the words of the options.
fn what(usage: Usage) -> &'static str {
    match usage {
        Usage::Mutex => "an exclusive lock",
        Usage::RwLock => "a read-write lock",
        Usage::Semaphore => "a lock with permits",
        _ => "a kind that `run` does not support",
    }
}

/// The options for a lock of this kind.
fn options(usage: Usage) -> Option<&'static str> {
    match usage {
        Usage::Mutex => Some("use neither --shared nor --write nor --permits"),
        Usage::RwLock => Some("use --shared, or --write for exclusive access"),
        Usage::Semaphore => Some("use --permits"),
        _ => None,
    }
}

impl Held {
    fn grip(&self) -> Grip<'_> {
        match self {
            Self::Mutex(guard) => Grip::One(guard),
            Self::Read(guard) => Grip::One(guard),
            Self::Write(guard) => Grip::One(guard),
            Self::Permits(guard) => Grip::One(guard),
            Self::Several(guard) => Grip::All(guard),
            Self::OneOf(guard) => Grip::One(guard),
            Self::Lead(leadership) => Grip::One(leadership),
            Self::Item(item) => Grip::One(item),
        }
    }

    /// The guard of each lock, in the order of their paths; at least one.
    pub(super) fn guards(&self) -> &[Guard] {
        match self.grip() {
            Grip::One(guard) => slice::from_ref(guard),
            Grip::All(guard) => guard.guards(),
        }
    }

    /// The thing, if the lock is a pool.
    pub(super) fn thing(&self) -> Option<&str> {
        match self {
            Self::OneOf(guard) => Some(guard.name()),
            _ => None,
        }
    }

    /// The item, if the lock is a queue.
    pub(super) fn item(&self) -> Option<&str> {
        match self {
            Self::Item(item) => Some(item.id()),
            _ => None,
        }
    }

    /// Its name in messages; see [`Lock::name`].
    pub(super) fn name(&self) -> String {
        match self {
            Self::OneOf(guard) => self.name_of(guard.path()),
            _ => view::all_of(self.guards().iter().map(Guard::path)),
        }
    }

    /// The name of one of the locks in messages; the thing, if the lock is a pool.
    pub(super) fn name_of(&self, path: &ZnodePath) -> String {
        match self.thing() {
            Some(thing) => format!("{path}/{thing}"),
            None => path.to_string(),
        }
    }

    /// A request by another program, as the start of a sentence.
    pub(super) fn request_of(&self, path: &ZnodePath) -> String {
        match self {
            Self::Item(item) => format!("{path}: item {} was cancelled", item.id()),
            _ => format!("{}: release requested", self.name_of(path)),
        }
    }

    /// The request for one of the locks, if there is one.
    pub(super) fn request(&self, path: &ZnodePath) -> Option<RevokeRequest> {
        self.guards().iter().find(|guard| guard.path() == path)?.revoke_request()
    }

    /// The worst state of all locks.
    pub(super) fn state(&self) -> HolderState {
        match self.grip() {
            Grip::One(guard) => guard.state(),
            Grip::All(guard) => guard.state(),
        }
    }

    /// The name of the lost lock, or of all locks if none is lost.
    pub(super) fn lost_name(&self) -> String {
        let is_lost = |guard: &&Guard| matches!(guard.state(), HolderState::Lost(_));
        let lost = self.guards().iter().find(is_lost);
        lost.map_or_else(|| self.name(), |guard| self.name_of(guard.path()))
    }

    /// The earliest deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.grip() {
            Grip::One(guard) => guard.deadline(),
            Grip::All(guard) => guard.deadline(),
        }
    }

    /// The time until the earliest deadline.
    pub(super) fn remaining(&self) -> Duration {
        match self.grip() {
            Grip::One(guard) => guard.remaining(),
            Grip::All(guard) => guard.remaining(),
        }
    }

    pub(super) fn allow_jeopardy(&self) -> Result<(), LossReason> {
        match self.grip() {
            Grip::One(guard) => guard.allow_jeopardy(),
            Grip::All(guard) => guard.allow_jeopardy(),
        }
    }

    pub(super) async fn jeopardy(&self) -> Result<(), LossReason> {
        match self.grip() {
            Grip::One(guard) => guard.jeopardy().await,
            Grip::All(guard) => guard.jeopardy().await,
        }
    }

    pub(super) async fn held_again(&self) -> Result<(), LossReason> {
        match self.grip() {
            Grip::One(guard) => guard.held_again().await,
            Grip::All(guard) => guard.held_again().await,
        }
    }

    /// Waits until one of the locks is lost.
    pub(super) async fn lost(&self) -> LossReason {
        match self.grip() {
            Grip::One(guard) => guard.lost().await,
            Grip::All(guard) => guard.lost().await.1,
        }
    }

    /// Waits until another program requests one of the locks, and returns its path.
    pub(super) async fn revoke_requested(&self) -> Result<&ZnodePath, LossReason> {
        if let Self::Item(item) = self {
            item.cancelled().await;
            return Ok(item.path());
        }
        match self.grip() {
            Grip::One(guard) => guard.revoke_requested().await.map(|()| guard.path()),
            Grip::All(guard) => guard.revoke_requested().await,
        }
    }

    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permits(guard) => guard.release().await,
            Self::Several(guard) => guard.release().await,
            Self::OneOf(guard) => guard.release().await,
            Self::Lead(leadership) => leadership.resign().await,
            // The item goes to the next consumer.
            Self::Item(item) => {
                drop(item);
                Ok(())
            }
        }
    }
}
