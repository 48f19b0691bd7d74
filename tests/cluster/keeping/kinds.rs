//! The kinds of locks. A new one is one more line of [`KINDS`].

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::{
    AcquireError, BuildError, Client, ExclusiveNode, Guard, LeaseMode, Locks, MultiLock, Mutex,
    MutexBuilder, MutexGuard, Owner, Profile, ReentrantMutex, RwLock, RwLockWriteGuard, Semaphore,
    SemaphoreProfile, ZnodePath, blocking,
};
use lockkeeper_testkit::backend::children_reach;
use lockkeeper_testkit::command::lockkeeper;
use lockkeeper_testkit::process::Process;

use super::cases::End;
use super::scene::{Held, LEASES, Scene};
use crate::programs::plain;

/// One kind of lock, and of waiting for it.
pub(super) struct KeptKind {
    pub(super) name: &'static str,
    pub(super) how: How,
}

pub(super) enum How {
    Library(Take),
    Command(KindRun),
}

/// Takes a lock after the wait of a case.
pub(super) type Take =
    for<'a> fn(&'a Scene) -> Pin<Box<dyn Future<Output = Result<Held>> + Send + 'a>>;

/// How a lock is taken by the command.
pub(super) struct KindRun {
    /// What chooses the lock.
    options: &'static str,
    /// What holds it before.
    before: Take,
    leaves: Leaves,
}

/// How the holder before leaves.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    /// Gives the lock back after the wait.
    Released,
    /// Vanishes at once: its lock delay is the wait.
    Vanishes,
}

impl fmt::Debug for KeptKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! library {
    ($name:literal, $scene:ident => $take:expr) => {
        KeptKind { name: $name, how: How::Library(|$scene| Box::pin($take)) }
    };
}

macro_rules! command {
    ($name:literal, $options:literal, $leaves:ident, $scene:ident => $before:expr) => {
        KeptKind {
            name: concat!("lockkeeper ", $name),
            how: How::Command(KindRun {
                options: $options,
                before: |$scene| Box::pin(async { Held::one($before) }),
                leaves: Leaves::$leaves,
            }),
        }
    };
}

use SemaphoreProfile::{Curator, Kazoo, Native};

#[rustfmt::skip]
pub(super) const KINDS: &[KeptKind] = &[
    library!("Mutex", it => mutex(it, |lock| lock)),
    library!("Mutex of kazoo's", it => mutex(it, |lock| lock.profile(Profile::Kazoo))),
    library!("Mutex with linger", it => mutex(it, |lock| lock.linger(it.lease))),
    library!("Mutex with cohort", it => mutex(it, |lock| lock.cohort(8, it.lease * 8))),
    library!("Mutex with lock delay", it => mutex(it, |lock| lock.lock_delay(it.lease))),
    library!("Mutex, the lock delay is the wait", it => after_lock_delay(it)),
    library!("ReentrantMutex", it => reentrant(it)),
    library!("ReentrantMutex, entered again", it => entered_again(it)),
    library!("ExclusiveNode", it => exclusive_node(it)),
    library!("Locks", it => of_registry(it)),
    library!("Mutex of a blocking client", it => of_blocking(it)),
    library!("RwLock read", it => read(it, Profile::Curator)),
    library!("RwLock read of kazoo's", it => read(it, Profile::Kazoo)),
    library!("RwLock write", it => async { Held::one(write(it, Profile::Curator).await?) }),
    library!("RwLock write of kazoo's", it => async { Held::one(write(it, Profile::Kazoo).await?) }),
    library!("RwLock write, downgraded", it => downgraded(it)),
    library!("RwLock upgradeable read", it => upgradeable(it)),
    library!("RwLock upgradeable read, upgraded", it => upgraded(it)),
    library!("RwLock upgrade that waits", it => upgrade_waits(it)),
    library!("Semaphore", it => permits(it, Native, 1, 2)),
    library!("Semaphore, several permits", it => permits(it, Native, 2, 3)),
    library!("Semaphore of Curator's", it => permits(it, Curator, 1, 2)),
    library!("Semaphore of Curator's, several permits", it => permits(it, Curator, 2, 3)),
    library!("Semaphore of kazoo's", it => permits(it, Kazoo, 1, 2)),
    library!("Semaphore of kazoo's, several permits", it => permits(it, Kazoo, 2, 3)),
    library!("MultiLock, waits for its first lock", it => several(it, 0)),
    library!("MultiLock, waits for its last lock", it => several(it, 2)),
    library!("Mutex, handed over in the process", it => behind_task(it, |lock| lock)),
    library!("Mutex with linger, handed over", it => behind_task(it, |lock| lock.linger(it.lease * 8))),
    library!("Mutex with cohort, handed over", it => behind_task(it, |lock| lock.cohort(8, it.lease * 8))),
    library!("Mutex with cohort, handed over at once", it => handed_over_at_once(it)),
    library!("Mutex with linger, taken again", it => again(it, |lock| lock.linger(it.lease * 8))),
    library!("Mutex, idle client", it => idle(it)),
    library!("Mutex, idle client, try_acquire", it => idle_try(it)),
    library!("Mutex, idle client, acquired again", it => again(it, |lock| lock)),
    command!("run", "", Released, it => other(it, |lock| lock).await?),
    command!("run --profile kazoo", "--profile kazoo", Released,
        it => other(it, |lock| lock.profile(Profile::Kazoo)).await?),
    command!("run --shared", "--shared", Released,
        it => rw_lock(&it.other, it, Profile::Curator)?.write().await?),
    command!("run --write", "--write", Released,
        it => rw_lock(&it.other, it, Profile::Curator)?.read().await?),
    command!("run --permits 2", "--permits 2", Released,
        it => Semaphore::new(&it.other, &it.path, 2)?.acquire_many(2).await?),
    command!("run --permits 3 --take 2", "--permits 3 --take 2", Released,
        it => Semaphore::new(&it.other, &it.path, 3)?.acquire_many(3).await?),
    command!("run --lock-delay", "--lock-delay 1s", Released,
        it => other(it, |lock| lock.lock_delay(it.wait)).await?),
    command!("run --lock-delay, the delay is the wait", "--lock-delay 1s", Vanishes,
        it => other(it, |lock| lock.lock_delay(it.wait)).await?),
];

// ----- locks for one holder at a time, which wait behind another program ----------------------

/// Held by the other one.
async fn other(
    scene: &Scene,
    options: impl Fn(MutexBuilder) -> MutexBuilder,
) -> Result<MutexGuard> {
    Ok(options(Mutex::builder(&scene.other, &scene.path)).build()?.acquire().await?)
}

/// The same kind of mutex on both sides.
async fn mutex(scene: &Scene, options: impl Fn(MutexBuilder) -> MutexBuilder) -> Result<Held> {
    let before = other(scene, &options).await?;
    let lock = options(Mutex::builder(&scene.client, &scene.path)).build()?;
    Held::one(scene.behind(before, lock.acquire()).await?)
}

async fn after_lock_delay(scene: &Scene) -> Result<Held> {
    let before = other(scene, |lock| lock.lock_delay(scene.wait)).await?;
    let lock = Mutex::builder(&scene.client, &scene.path).lock_delay(scene.wait).build()?;
    Held::one(scene.after_delay(&before, lock.acquire()).await?)
}

async fn reentrant(scene: &Scene) -> Result<Held> {
    let before = other(scene, |lock| lock).await?;
    let lock = ReentrantMutex::new(&scene.client, &scene.path)?;
    Held::one(scene.behind(before, lock.acquire(&Owner::new("case"))).await?)
}

/// The first entry ends at once, and the second one goes on with its lock.
async fn entered_again(scene: &Scene) -> Result<Held> {
    let before = other(scene, |lock| lock).await?;
    let (lock, owner) = (ReentrantMutex::new(&scene.client, &scene.path)?, Owner::new("case"));
    let first = scene.behind(before, lock.acquire(&owner)).await?;
    let second = lock.acquire(&owner).await?;
    first.release().await?;
    Held::one(second)
}

async fn exclusive_node(scene: &Scene) -> Result<Held> {
    let before = ExclusiveNode::new(&scene.other, &scene.path)?.acquire().await?;
    let lock = ExclusiveNode::new(&scene.client, &scene.path)?;
    Held::one(scene.behind(before, lock.acquire()).await?)
}

async fn of_registry(scene: &Scene) -> Result<Held> {
    let lock = |client: &Client| Locks::new(client, &scene.path)?.get("case 1");
    let before = lock(&scene.other)?.acquire().await?;
    Held::one(scene.behind(before, lock(&scene.client)?.acquire()).await?)
}

/// A guard, and the client of a program without async that it belongs to.
struct Blocking(MutexGuard, #[expect(dead_code, reason = "it owns the session")] blocking::Client);

impl Deref for Blocking {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

async fn of_blocking(scene: &Scene) -> Result<Held> {
    let before = other(scene, |lock| lock).await?;
    let options = scene.servers.client(scene.case.mode);
    let servers = scene.servers.connect_string(scene.case.server).to_owned();
    let path = scene.path.clone();
    let connected =
        tokio::task::spawn_blocking(move || blocking::Client::connect_with(options, &servers));
    let client = connected.await??;
    let lock = Mutex::new(&client, &path)?;

    let acquire = async {
        let acquire = tokio::task::spawn_blocking(move || {
            let guard = client.wait(lock.acquire())?;
            Ok(Blocking(guard, client))
        });
        let guard: Result<_, AcquireError> = acquire.await.expect("to acquire does not panic");
        guard
    };
    Held::one(scene.behind(before, acquire).await?)
}

// ----- readers and writers --------------------------------------------------------------------

fn rw_lock(client: &Client, scene: &Scene, profile: Profile) -> Result<RwLock, BuildError> {
    RwLock::builder(client, &scene.path).profile(profile).build()
}

async fn read(scene: &Scene, profile: Profile) -> Result<Held> {
    let before = rw_lock(&scene.other, scene, profile)?.write().await?;
    let lock = rw_lock(&scene.client, scene, profile)?;
    Held::one(scene.behind(before, lock.read()).await?)
}

async fn write(scene: &Scene, profile: Profile) -> Result<RwLockWriteGuard> {
    let before = rw_lock(&scene.other, scene, profile)?.read().await?;
    let lock = rw_lock(&scene.client, scene, profile)?;
    scene.behind(before, lock.write()).await
}

async fn downgraded(scene: &Scene) -> Result<Held> {
    Held::one(write(scene, Profile::Curator).await?.downgrade().await?)
}

async fn upgradeable(scene: &Scene) -> Result<Held> {
    let before = RwLock::new(&scene.other, &scene.path)?.write().await?;
    let lock = RwLock::new(&scene.client, &scene.path)?;
    Held::one(scene.behind(before, lock.upgradeable_read()).await?)
}

async fn upgraded(scene: &Scene) -> Result<Held> {
    let before = RwLock::new(&scene.other, &scene.path)?.write().await?;
    let lock = RwLock::new(&scene.client, &scene.path)?;
    let guard = scene.behind(before, lock.upgradeable_read()).await?;
    Held::one(guard.upgrade().await?)
}

/// The upgrade itself waits, for a reader to leave.
async fn upgrade_waits(scene: &Scene) -> Result<Held> {
    let guard = RwLock::new(&scene.client, &scene.path)?.upgradeable_read().await?;
    let reader = RwLock::new(&scene.other, &scene.path)?.read().await?;
    Held::one(scene.behind(reader, async { Ok(guard.upgrade().await?) }).await?)
}

// ----- several --------------------------------------------------------------------------------

/// Waits for so many permits of `total`, while another one has all of them.
async fn permits(scene: &Scene, layout: SemaphoreProfile, take: u32, total: u32) -> Result<Held> {
    let lock = |client: &Client| {
        Semaphore::builder(client, &scene.path, total).profile(layout.clone()).build()
    };
    let before = lock(&scene.other)?.acquire_many(total).await?;
    let lock = lock(&scene.client)?;
    Held::one(scene.behind(before, lock.acquire_many(take)).await?)
}

/// Waits for one of three locks; those before it are held meanwhile.
async fn several(scene: &Scene, taken: usize) -> Result<Held> {
    let paths = ["a", "b", "c"].map(|name| format!("{}/{name}", scene.path));
    let before = Mutex::new(&scene.other, &paths[taken])?.acquire().await?;
    let lock = MultiLock::new(&scene.client, paths.iter().map(String::as_str))?;
    Ok(Held::Several(scene.behind(before, lock.acquire()).await?))
}

// ----- locks that one task of a process leaves to another, or takes again ---------------------

/// Another task of the same process holds for the share of a lease.
async fn behind_task(
    scene: &Scene,
    options: impl Fn(MutexBuilder) -> MutexBuilder,
) -> Result<Held> {
    let lock = options(Mutex::builder(&scene.client, &scene.path)).build()?;
    let before = lock.acquire().await?;
    Held::one(scene.behind(before, lock.acquire()).await?)
}

/// The first task of a cohort waits for another program, and leaves its node to the second one as
/// soon as it has it.
async fn handed_over_at_once(scene: &Scene) -> Result<Held> {
    let before = other(scene, |lock| lock).await?;
    let lock = Mutex::builder(&scene.client, &scene.path).cohort(8, scene.lease * 8).build()?;
    // It enters the line of the process before the first one gives its node on.
    let both = async {
        let first = async { lock.acquire().await.map(drop) };
        let (first, second) = tokio::join!(biased; first, lock.acquire());
        first.and(second)
    };
    Held::one(scene.behind(before, both).await?)
}

/// The lock is free for the share of a lease, or its node lies idle.
async fn again(scene: &Scene, options: impl Fn(MutexBuilder) -> MutexBuilder) -> Result<Held> {
    let lock = options(Mutex::builder(&scene.client, &scene.path)).build()?;
    lock.acquire().await?.release().await?;
    scene.idle().await;
    Held::one(lock.acquire().await?)
}

/// The client has not talked for the share of a lease.
async fn idle(scene: &Scene) -> Result<Held> {
    let lock = Mutex::new(&scene.client, &scene.path)?;
    scene.idle().await;
    Held::one(lock.acquire().await?)
}

async fn idle_try(scene: &Scene) -> Result<Held> {
    let lock = Mutex::new(&scene.client, &scene.path)?;
    scene.idle().await;
    Held::one(lock.try_acquire().await?.context("nobody has it")?)
}

// ----- `lockkeeper run`, behind a holder of the library's -------------------------------------

/// The exit code of what runs under the lock.
const OWN_CODE: i32 = 7;

/// The exit code of the command when the lock was lost.
const LOST_CODE: i32 = 79;

/// Longer than a process takes to end on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

impl KindRun {
    /// Runs one case: the child must end by itself.
    pub(super) async fn play(&self, scene: &Scene) -> Result<End> {
        let before = (self.before)(scene).await?;
        let (name, folder) = (scene.path.replace('/', "-"), scene.servers.folder().path());
        let mut process = Process::spawn(&name, &self.command(scene)?, folder)?;
        let path = ZnodePath::new(&scene.path)?;
        tokio::select! {
            biased;
            in_line = children_reach(&scene.other, &path, 2) => in_line?,
            ended = process.end(LIMIT) => bail!("it ended ({}) early: {}", ended?, process.tail()),
        }
        match (self.leaves, &before) {
            (Leaves::Vanishes, Held::One(guard)) => {
                scene.other.delete(guard.node(), None).await?;
            }
            _ => {
                scene.idle().await;
                drop(before);
            }
        }

        let status = process.end(LIMIT + scene.lease * (LEASES + 2)).await?;
        match status.code() {
            Some(OWN_CODE) => Ok(End::Kept(None)),
            Some(LOST_CODE) => Ok(End::Lost(process.stderr().trim().replace('\n', "; "))),
            _ => bail!("it ended with {status}: {}", process.tail()),
        }
    }

    fn command(&self, scene: &Scene) -> Result<Command> {
        let (case, form) = (scene.case, scene.servers.form());
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        let mut command = plain(&lockkeeper()?);
        command.args(["--connect", scene.servers.connect_string(case.server)]);
        command.arg("--session-timeout").arg(millis(form.timeout));
        command.arg("--server-tick").arg(millis(form.tick));
        command.args((case.mode == LeaseMode::Direct).then_some("--lease=direct"));
        command.arg("run").args(self.options.split_whitespace()).arg(&scene.path).arg("--");
        let held = (scene.lease * LEASES).as_secs_f64();
        command.args(["sh", "-c", &format!("sleep {held:.3}; exit {OWN_CODE}")]);
        command.current_dir(scene.servers.folder().path());
        Ok(command)
    }
}
