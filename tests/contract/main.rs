//! What each lock promises, on every server: the same tests run on the embedded engine and on a
//! real Apache ZooKeeper, so that the two cannot drift apart.
//!
//! A test is a function of a [`Backend`]; `contract!` makes one test for each server out of it.

mod mutex;
mod mutex_faults;
mod mutex_leases;
mod mutex_local;

use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{Mutex, MutexGuard, ZnodePath};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use tokio::task::JoinHandle;

/// What no test comes near unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The lock that each test is about; every test has a server, or a chroot, of its own.
const LOCK: &str = "/locks/orders";

/// Runs each of these functions on each server.
macro_rules! contract {
    ($suite:literal: $($test:ident),* $(,)?) => {
        mod embedded {
            $(
                #[tokio::test]
                async fn $test() -> anyhow::Result<()> {
                    let backend = lockkeeper_testkit::backend::Backend::embedded().await?;
                    crate::limited(super::$test(backend)).await
                }
            )*
        }

        mod zookeeper {
            $(
                #[tokio::test]
                async fn $test() -> anyhow::Result<()> {
                    let suite = concat!("contract: ", $suite, " on ZooKeeper");
                    match lockkeeper_testkit::backend::Backend::zookeeper(suite).await? {
                        Some(backend) => crate::limited(super::$test(backend)).await,
                        None => Ok(()),
                    }
                }
            )*
        }
    };
}
pub(crate) use contract;

async fn limited(test: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::time::timeout(LIMIT, test).await.context("the test hangs")?
}

fn lock_path() -> ZnodePath {
    ZnodePath::new(LOCK).expect("a path")
}

fn mutex(participant: &Participant) -> Result<Mutex> {
    Ok(Mutex::new(&participant.client, LOCK)?)
}

type Acquiring = JoinHandle<Result<MutexGuard, lockkeeper::AcquireError>>;

/// Starts to acquire, and returns when the contender is in the queue as number `place`.
async fn queue_up(backend: &Backend, lock: &Mutex, place: usize) -> Result<Acquiring> {
    let observer = backend.observer().await?;
    let lock = lock.clone();
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    children_reach(&observer, &lock_path(), place).await?;
    Ok(acquiring)
}

/// Returns when no contender is left.
async fn queue_empties(backend: &Backend) -> Result<()> {
    children_reach(&backend.observer().await?, &lock_path(), 0).await
}
