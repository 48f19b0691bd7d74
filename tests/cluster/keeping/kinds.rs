//! The kinds of locks. A new one is one more line of [`KINDS`].

use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper::{
    BuildError, Client, Clock, ExclusiveNode, Guard, LeaseMode, Locks, MultiLock, Mutex,
    MutexBuilder, Owner, Profile, ReentrantMutex, RwLock, Semaphore, SemaphoreProfile, ZnodePath,
    blocking,
};
use lockkeeper_testkit::backend::children_reach;
use lockkeeper_testkit::command::lockkeeper;
use lockkeeper_testkit::process::Process;

use super::Case;
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

macro_rules! library {
    ($name:literal, $scene:ident => $take:expr) => {
        KeptKind { name: $name, how: How::Library(|$scene| Box::pin($take)) }
    };
}

/// The same lock on both sides, which waits behind another program: how it is made by a client, how the other
/// program holds it, how it is taken, and what becomes of its guard then.
macro_rules! behind {
    ($name:literal, |$scene:ident, $client:ident| $lock:expr) => {
        behind!($name, |$scene, $client| $lock, acquire(), acquire())
    };
    ($name:literal, |$scene:ident, $client:ident| $lock:expr,
        $before:ident($($all:expr)?), $take:ident($($part:expr)?)
        $(, $guard:ident => $then:expr)?) => {
        library!($name, $scene => async move {
            let lock = |$client: &Client| $lock;
            let before = lock(&$scene.other)?.$before($($all)?).await?;
            let lock = lock(&$scene.client)?;
            let guard = $scene.behind(before, lock.$take($($part)?)).await?;
            $(let guard = { let $guard = guard; $then };)?
            Held::one(guard)
        })
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
    behind!("Mutex", |it, by| mutex(it, by).build()),
    behind!("Mutex of kazoo's", |it, by| mutex(it, by).profile(Profile::Kazoo).build()),
    behind!("Mutex with linger", |it, by| mutex(it, by).linger(it.lease).build()),
    behind!("Mutex with cohort", |it, by| mutex(it, by).cohort(8, it.lease * 8).build()),
    behind!("Mutex with lock delay", |it, by| mutex(it, by).lock_delay(it.lease).build()),
    library!("Mutex, the lock delay is the wait", it => after_lock_delay(it)),
    behind!("ReentrantMutex", |it, by| ReentrantMutex::new(by, &it.path),
        acquire(&Owner::new("before")), acquire(&Owner::new("case"))),
    library!("ReentrantMutex, entered again", it => entered_again(it)),
    behind!("ExclusiveNode", |it, by| ExclusiveNode::new(by, &it.path)),
    behind!("Locks", |it, by| Locks::new(by, &it.path)?.get("case 1")),
    library!("Mutex of a blocking client", it => of_blocking(it)),
    behind!("RwLock read", |it, by| RwLock::new(by, &it.path), write(), read()),
    behind!("RwLock read of kazoo's", |it, by|
        RwLock::builder(by, &it.path).profile(Profile::Kazoo).build(), write(), read()),
    behind!("RwLock write", |it, by| RwLock::new(by, &it.path), read(), write()),
    behind!("RwLock write of kazoo's", |it, by|
        RwLock::builder(by, &it.path).profile(Profile::Kazoo).build(), read(), write()),
    behind!("RwLock write, downgraded", |it, by| RwLock::new(by, &it.path), read(), write(),
        guard => guard.downgrade().await?),
    behind!("RwLock upgradeable read", |it, by| RwLock::new(by, &it.path), write(), upgradeable_read()),
    behind!("RwLock upgradeable read, upgraded", |it, by| RwLock::new(by, &it.path),
        write(), upgradeable_read(), guard => guard.upgrade().await?),
    library!("RwLock upgrade that waits", it => upgrade_waits(it)),
    behind!("Semaphore", |it, by| semaphore(it, by, Native, 2), acquire_many(2), acquire()),
    behind!("Semaphore, several permits", |it, by| semaphore(it, by, Native, 3), acquire_many(3), acquire_many(2)),
    behind!("Semaphore of Curator's", |it, by| semaphore(it, by, Curator, 2), acquire_many(2), acquire()),
    behind!("Semaphore of Curator's, several permits", |it, by| semaphore(it, by, Curator, 3), acquire_many(3), acquire_many(2)),
    behind!("Semaphore of kazoo's", |it, by| semaphore(it, by, Kazoo, 2), acquire_many(2), acquire()),
    behind!("Semaphore of kazoo's, several permits", |it, by| semaphore(it, by, Kazoo, 3), acquire_many(3), acquire_many(2)),
    library!("MultiLock, waits for its first lock", it => several(it, 0)),
    library!("MultiLock, waits for its last lock", it => several(it, 2)),
    library!("Mutex, handed over in the process", it => behind_task(it, |lock| lock)),
    library!("Mutex with linger, handed over", it => behind_task(it, |lock| lock.linger(it.lease * 8))),
    library!("Mutex with cohort, handed over", it => behind_task(it, |lock| lock.cohort(8, it.lease * 8))),
    library!("Mutex with cohort, handed over at once", it => handed_over_at_once(it)),
    library!("Mutex with linger, taken again", it => again(it, |lock| lock.linger(it.lease * 8))),
    library!("Mutex, idle client", it => async {
        it.idle().await;
        Held::one(mutex(it, &it.client).build()?.acquire().await?)
    }),
    library!("Mutex, idle client, try_acquire", it => async {
        it.idle().await;
        Held::one(mutex(it, &it.client).build()?.try_acquire().await?.context("it is free")?)
    }),
    library!("Mutex, idle client, acquired again", it => again(it, |lock| lock)),
    command!("run", "", Released, it => mutex(it, &it.other).build()?.acquire().await?),
    command!("run --profile kazoo", "--profile kazoo", Released,
        it => mutex(it, &it.other).profile(Profile::Kazoo).build()?.acquire().await?),
    command!("run --shared", "--shared", Released, it => RwLock::new(&it.other, &it.path)?.write().await?),
    command!("run --write", "--write", Released, it => RwLock::new(&it.other, &it.path)?.read().await?),
    command!("run --permits 2", "--permits 2", Released,
        it => Semaphore::new(&it.other, &it.path, 2)?.acquire_many(2).await?),
    command!("run --permits 3 --take 2", "--permits 3 --take 2", Released,
        it => Semaphore::new(&it.other, &it.path, 3)?.acquire_many(3).await?),
    command!("run --lock-delay", "--lock-delay 1s", Released,
        it => mutex(it, &it.other).lock_delay(it.wait).build()?.acquire().await?),
    command!("run --lock-delay, the delay is the wait", "--lock-delay 1s", Vanishes,
        it => mutex(it, &it.other).lock_delay(it.wait).build()?.acquire().await?),
];

// ----- a client's lock of a case --------------------------------------------------------------

fn mutex(scene: &Scene, client: &Client) -> MutexBuilder {
    Mutex::builder(client, &scene.path)
}

fn semaphore(
    scene: &Scene,
    client: &Client,
    layout: SemaphoreProfile,
    permits: u32,
) -> Result<Semaphore, BuildError> {
    Semaphore::builder(client, &scene.path, permits).profile(layout).build()
}

// ----- locks that wait behind another program, but not simply ---------------------------------

/// Its holder vanishes at once.
async fn after_lock_delay(scene: &Scene) -> Result<Held> {
    let lock = |client| mutex(scene, client).lock_delay(scene.wait).build();
    let before = lock(&scene.other)?.acquire().await?;
    let start = Clock.now();
    let guard = scene.until(vanish(scene, &before), lock(&scene.client)?.acquire()).await?;
    let waited = Clock.now().since(start);
    ensure!(waited >= scene.wait, "granted after {waited:?}, with a delay of {:?}", scene.wait);
    Held::one(guard)
}

/// As if its session had expired: what marks the lock delay stays.
async fn vanish(scene: &Scene, holder: &Guard) -> Result<()> {
    scene.other.delete(holder.node(), None).await?;
    Ok(())
}

/// The first entry ends at once, and the second one keeps the lock.
async fn entered_again(scene: &Scene) -> Result<Held> {
    let before = mutex(scene, &scene.other).build()?.acquire().await?;
    let (lock, owner) = (ReentrantMutex::new(&scene.client, &scene.path)?, Owner::new("case"));
    let first = scene.behind(before, lock.acquire(&owner)).await?;
    let second = lock.acquire(&owner).await?;
    first.release().await?;
    Held::one(second)
}

async fn of_blocking(scene: &Scene) -> Result<Held> {
    let before = mutex(scene, &scene.other).build()?.acquire().await?;
    let server = Arc::clone(&scene.case.server);
    let options = server.client(scene.case.mode);
    let connected = tokio::task::spawn_blocking(move || {
        blocking::Client::connect_with(options, &server.connect)
    });
    let client = connected.await??;
    let lock = mutex(scene, &client).build()?;

    let acquire = tokio::task::spawn_blocking(move || {
        let guard = client.wait(lock.acquire())?;
        anyhow::Ok(Held::Blocking(guard, client))
    });
    scene.behind(before, async { acquire.await? }).await
}

/// The upgrade itself waits, for a reader to leave.
async fn upgrade_waits(scene: &Scene) -> Result<Held> {
    let guard = RwLock::new(&scene.client, &scene.path)?.upgradeable_read().await?;
    let reader = RwLock::new(&scene.other, &scene.path)?.read().await?;
    Held::one(scene.behind(reader, guard.upgrade()).await?)
}

/// Waits for one of three locks, and holds the locks before it.
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
    let lock = options(mutex(scene, &scene.client)).build()?;
    let before = lock.acquire().await?;
    Held::one(scene.behind(before, lock.acquire()).await?)
}

/// The first task of a cohort waits for another program, and leaves its node to the second one as
/// soon as it has it.
async fn handed_over_at_once(scene: &Scene) -> Result<Held> {
    let before = mutex(scene, &scene.other).build()?.acquire().await?;
    let lock = mutex(scene, &scene.client).cohort(8, scene.lease * 8).build()?;
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
    let lock = options(mutex(scene, &scene.client)).build()?;
    lock.acquire().await?.release().await?;
    scene.idle().await;
    Held::one(lock.acquire().await?)
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
        let (name, folder) = (scene.path.replace('/', "-"), scene.case.server.folder.path());
        let mut process = Process::spawn(&name, &self.command(scene)?, folder)?;
        let path = ZnodePath::new(&scene.path)?;
        tokio::select! {
            biased;
            in_line = children_reach(&scene.other, &path, 2) => in_line?,
            ended = process.end(LIMIT) => bail!("it ended ({}) early: {}", ended?, process.tail()),
        }
        match (self.leaves, &before) {
            (Leaves::Vanishes, Held::One(guard)) => vanish(scene, guard).await?,
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
        let Case { server, mode, .. } = &scene.case;
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        let mut command = plain(&lockkeeper()?);
        command.args(["--connect", &server.connect]);
        command.args(["--session-timeout", &millis(server.form.timeout)]);
        command.args(["--server-tick", &millis(server.form.tick)]);
        command.args((*mode == LeaseMode::Direct).then_some("--lease=direct"));
        command.arg("run").args(self.options.split_whitespace()).arg(&scene.path).arg("--");
        let held = (scene.lease * LEASES).as_secs_f64();
        command.args(["sh", "-c", &format!("sleep {held:.3}; exit {OWN_CODE}")]);
        command.current_dir(server.folder.path());
        Ok(command)
    }
}
