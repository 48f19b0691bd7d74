//! Locks that nobody else wants: acquire, release, and again.

use std::panic::resume_unwind;
use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinSet;

use super::latency::Recorder;
use super::lock::Lock;
use super::measured::Measured;
use super::window::{Plan, Window};

/// Whether a cycle ends when the release is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Release {
    /// It does.
    Awaited,
    /// It ends when the release is on its way.
    NotAwaited,
}

impl Release {
    /// What is said behind a name, after `separator`: nothing of the usual.
    pub(crate) fn note(self, separator: &str) -> String {
        match self {
            Self::Awaited => String::new(),
            Self::NotAwaited => format!("{separator}release not awaited"),
        }
    }

    /// Gives a lock back in this way.
    pub(super) async fn give_back<L: Lock>(self, lock: &mut L, guard: L::Guard) -> Result<()> {
        match self {
            Self::Awaited => lock.release(guard).await,
            Self::NotAwaited => {
                lock.let_go(guard);
                Ok(())
            }
        }
    }
}

/// Runs a task for each lock, all at once, until the time is up.
///
/// # Errors
/// The first one of any task; the others are then given up.
///
/// # Cancel safety
/// Dropping it ends all tasks.
pub(crate) async fn cycles<L: Lock>(
    locks: Vec<L>,
    plan: Plan,
    release: Release,
) -> Result<Measured> {
    let recorders = (Recorder::new(), Recorder::new());
    let window = plan.begin();
    record_cycles(locks, window, release, &recorders).await?;
    let (acquire, latency) = (recorders.0.summary(), recorders.1.summary());
    let per_second = latency.count as f64 / window.length().as_secs_f64();
    Ok(Measured { per_second, acquire, latency, ..Measured::default() })
}

/// The same, with what was measured added to recorders for acquiring and for whole cycles.
///
/// # Errors
/// The first one of any task; the others are then given up.
///
/// # Cancel safety
/// Dropping it ends all tasks.
pub(crate) async fn record_cycles<L: Lock>(
    locks: Vec<L>,
    window: Window,
    release: Release,
    recorders: &(Recorder, Recorder),
) -> Result<()> {
    let mut tasks = JoinSet::new();
    for lock in locks {
        tasks.spawn(cycle(lock, window, release, recorders.clone()));
    }
    all(&mut tasks).await
}

async fn cycle<L: Lock>(
    mut lock: L,
    window: Window,
    release: Release,
    (acquires, cycles): (Recorder, Recorder),
) -> Result<()> {
    let mut start = Instant::now();
    while !window.is_over(start) {
        let guard = lock.acquire().await?;
        let acquired = Instant::now();
        release.give_back(&mut lock, guard).await?;
        let end = Instant::now();
        if window.counts(end) {
            acquires.record(acquired - start);
            cycles.record(end - start);
        }
        start = end;
    }
    Ok(())
}

/// Waits for all tasks; the first error, or panic, ends the others.
pub(crate) async fn all(tasks: &mut JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(result) => result?,
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
    Ok(())
}
