//! What each lock promises, on every server: the same tests run on the embedded engine and on a
//! real Apache ZooKeeper, so that the two cannot drift apart.
//!
//! A test is a function of a [`Backend`], or of its participants (see [`Cast`]). `contract!` creates one test for each
//! server from each such function of a file (`build.rs` finds them), or from the functions that it is given.

mod access;
mod barrier;
mod blocking;
mod chroot;
mod costs;
mod counter;
mod deadlock;
mod directory;
mod double_barrier;
mod election;
mod election_stories;
mod ends;
mod exclusive;
mod exclusive_faults;
mod exclusive_leases;
mod exclusive_node;
mod grant;
mod group;
mod herd;
mod histories;
mod interface;
mod jeopardy;
mod kazoo_profile;
mod last_good;
mod lock_delay;
mod locks;
mod multi_lock;
mod mutex_local;
mod names;
mod notify;
mod once;
mod one_service;
mod overview;
mod partitions;
mod pool;
mod presence;
mod publication;
mod queue;
mod queue_access;
mod queue_costs;
mod queue_histories;
mod queue_layouts;
mod queue_options;
mod reentrant_mutex;
mod registration;
mod registry;
mod rehearsal;
mod revocation;
mod runtimes;
mod rw_lock;
mod scale;
mod seen;
mod semaphore;
mod semaphore_layouts;
mod set_back;
mod shared;
mod shown;
mod streams;
mod tree_cache;
mod ttl_presence;
mod unpolled;
mod upgrade;
mod versions;
mod watches;
mod wiped;
mod worker_ids;

use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{
    Acl, Client, Contact, ErrorCode, Mutex, Permissions, SessionId, TransactionError, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::locks::Exclusive;

/// What no test comes near unless it hangs.
const LIMIT: Duration = Duration::from_secs(240);

/// How often a test may wake up within a second in which no server can be reached. Its client tries to connect,
/// which is 20 times; one request that is repeated after the first pause each time is another 100.
const IDLE: u64 = 60;

/// The lock that each test is about; every test has a server, or a chroot, of its own.
const LOCK: &str = "/locks/orders";

/// Runs each test of this file on each server, or each of these functions. A test with a parameter `L: Exclusive`
/// runs for each exclusive lock, and one with `L: InLine` for each exclusive lock with a queue.
macro_rules! contract {
    ($file:ident) => {
        include!(concat!(env!("OUT_DIR"), "/", stringify!($file), ".rs"));
    };
    ($suite:literal: $($test:ident),* $(,)?) => {
        crate::servers! { $suite: $($test),* }
    };
}
pub(crate) use contract;

/// Runs each of these tests for each exclusive lock. Tests of a queue do not run for the exclusive node.
macro_rules! for_each_lock {
    ($suite:literal: $($test:ident),*; where there is a line: $($fair:ident),*) => {
        crate::for_lock!(mutex, lockkeeper::Mutex, $suite: $($test,)* $($fair,)*);
        crate::for_lock!(write_lock, crate::locks::WriteLock, $suite: $($test,)* $($fair,)*);
        crate::for_lock!(one_permit, crate::locks::OnePermit, $suite: $($test,)* $($fair,)*);
        crate::for_lock!(first_entry, crate::locks::FirstEntry, $suite: $($test,)* $($fair,)*);
        crate::for_lock!(exclusive_node, lockkeeper::ExclusiveNode, $suite: $($test,)*);
    };
}
pub(crate) use for_each_lock;

macro_rules! for_lock {
    ($name:ident, $lock:ty, $suite:literal: $($test:ident,)*) => {
        mod $name {
            crate::servers! { $suite: $($test = super::super::$test::<$lock>),* }
        }
    };
}
pub(crate) use for_lock;

macro_rules! servers {
    ($suite:literal: $($test:ident),*) => {
        crate::servers! { $suite: $($test = super::$test),* }
    };
    ($suite:literal: $($test:ident = $function:expr),*) => {
        mod embedded {
            $(
                #[tokio::test]
                async fn $test() -> anyhow::Result<()> {
                    let backend = lockkeeper_testkit::backend::Backend::embedded().await?;
                    crate::run($function, backend).await
                }
            )*
        }

        mod zookeeper {
            $(
                #[tokio::test]
                async fn $test() -> anyhow::Result<()> {
                    let suite = concat!("contract: ", $suite, " on ZooKeeper");
                    match lockkeeper_testkit::backend::Backend::zookeeper(suite).await? {
                        Some(backend) => crate::run($function, backend).await,
                        None => Ok(()),
                    }
                }
            )*
        }
    };
}
pub(crate) use servers;

/// What a test is a function of.
trait Cast: Sized {
    async fn on(backend: &Backend) -> Result<Self>;
}

impl Cast for Backend {
    async fn on(backend: &Backend) -> Result<Self> {
        Ok(backend.clone())
    }
}

impl Cast for Participant {
    async fn on(backend: &Backend) -> Result<Self> {
        backend.participant().await
    }
}

/// A client without a proxy.
impl Cast for Client {
    async fn on(backend: &Backend) -> Result<Self> {
        backend.observer().await
    }
}

impl<A: Cast, B: Cast> Cast for (A, B) {
    async fn on(backend: &Backend) -> Result<Self> {
        Ok((A::on(backend).await?, B::on(backend).await?))
    }
}

type Pair = (Participant, Participant);
type Observed = (Participant, Client);
type Clients = (Client, Client);

/// Runs a test on a server, which lives as long as the test.
async fn run<C: Cast>(test: impl AsyncFnOnce(C) -> Result<()>, backend: Backend) -> Result<()> {
    limited(async { test(C::on(&backend).await?).await }).await
}

async fn limited(test: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::time::timeout(LIMIT, test).await.context("the test hangs")?
}

fn lock_path() -> ZnodePath {
    ZnodePath::new(LOCK).expect("a path")
}

/// How many reads were answered.
fn gets(passed: &[Passed]) -> usize {
    passed.iter().filter(|passed| **passed == Passed::Reply(OpCode::GetData)).count()
}

fn mutex(participant: &Participant) -> Result<Mutex> {
    Ok(Mutex::new(&participant.client, LOCK)?)
}

type Acquiring<T> = JoinHandle<Result<T, lockkeeper::AcquireError>>;

/// Starts to acquire, and returns when the contender is in the queue as number `place`.
async fn queue_up<L: Exclusive>(
    participant: &Participant,
    lock: &L,
    place: usize,
) -> Result<Acquiring<L::Held>> {
    let lock = lock.clone();
    enqueue(participant, place, async move { lock.acquire().await }).await
}

/// The same for anything that puts one contender into the queue.
async fn enqueue<T: Send + 'static>(
    participant: &Participant,
    place: usize,
    acquire: impl Future<Output = Result<T, lockkeeper::AcquireError>> + Send + 'static,
) -> Result<Acquiring<T>> {
    let observer = participant.observer().await?;
    let acquiring = tokio::spawn(acquire);
    children_reach(&observer, &lock_path(), place).await?;
    Ok(acquiring)
}

/// A client that sees the whole tree, also where each test has a chroot of its own.
async fn without_chroot(backend: &Backend) -> Result<Client> {
    let servers = backend.connect_string();
    Ok(Client::connect(servers.split('/').next().unwrap_or_default()).await?)
}

/// Returns when no contender is left.
async fn queue_empties(participant: &Participant) -> Result<()> {
    children_reach(&participant.observer().await?, &lock_path(), 0).await
}

/// Denies all clients every permission on a node, so that servers refuse to check it.
async fn shut(client: &Client, node: &ZnodePath) -> Result<()> {
    let others = Acl::new(Permissions::ALL, "ip", "192.0.2.1");
    client.set_acl(node, vec![others], None).await?;
    Ok(())
}

/// Whether a transaction failed because of a missing permission.
fn is_no_auth(error: &TransactionError) -> bool {
    matches!(error, TransactionError::Failed { code: ErrorCode::NoAuth, .. })
}

/// Cuts a client off while reads of what `write` changes are tried again and again. Returns when no server
/// could be reached for a session timeout, and all requests fail at once.
pub(crate) async fn cut_off_at_reads(
    participant: &Participant,
    write: impl Future<Output = Result<()>>,
) -> Result<()> {
    let proxy = &participant.proxy;
    proxy.refuse_next(OpCode::GetData, ErrorCode::ThrottledOp, usize::MAX);
    proxy.clear();
    write.await?;
    proxy.passes(|passed| gets(passed) > 0).await;
    proxy.freeze();
    let mut status = participant.client.status();
    status.wait_for(|status| status.contact == Contact::Unreachable).await?;
    Ok(())
}

/// Ends what [`cut_off_at_reads`] began.
pub(crate) fn reconnect(participant: &Participant) {
    participant.proxy.refuse_next(OpCode::GetData, ErrorCode::ThrottledOp, 0);
    participant.proxy.restore();
}

/// How often this test wakes up within a second.
pub(crate) async fn wake_ups() -> u64 {
    let metrics = Handle::current().metrics();
    let before = metrics.worker_park_count(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    metrics.worker_park_count(0) - before
}

/// Waits until the client has a session that is not this one.
pub(crate) async fn next_session(participant: &Participant, old: SessionId) -> Result<()> {
    let mut status = participant.client.status();
    let next = |session| session != old && session != SessionId::NONE;
    status.wait_for(|s| s.contact == Contact::Connected && next(s.session)).await?;
    Ok(())
}
