//! One lock that everybody wants: how often it changes hands, and how long that takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use super::cycles::{Release, all};
use super::latency::Recorder;
use super::lock::Lock;
use super::measured::Measured;
use super::window::{Plan, Window};

/// Runs a task for each client of one lock until the time is up. A client that has released the
/// lock wants it again at once.
///
/// # Errors
/// The first one of any task; the others are then given up.
///
/// # Cancel safety
/// Dropping it ends all tasks.
pub(crate) async fn hand_offs<L: Lock>(
    clients: Vec<L>,
    plan: Plan,
    release: Release,
) -> Result<Measured> {
    let window = plan.begin();
    let baton = Arc::new(Baton::new());
    let mut tasks = JoinSet::new();
    for (index, lock) in clients.into_iter().enumerate() {
        tasks.spawn(contend(index, lock, (window, release), baton.clone()));
    }
    all(&mut tasks).await?;
    let seconds = window.length().as_secs_f64();
    let latency = baton.waits.summary();
    Ok(Measured {
        per_second: latency.count as f64 / seconds,
        grants_per_second: baton.grants.load(Ordering::Relaxed) as f64 / seconds,
        latency,
        ..Measured::default()
    })
}

/// What one holder leaves for the next. Only ever used by who holds the lock.
struct Baton {
    epoch: Instant,
    released_nanos: AtomicU64,
    holder: AtomicUsize,
    grants: AtomicU64,
    waits: Recorder,
}

impl Baton {
    fn new() -> Self {
        Self {
            epoch: Instant::now(),
            released_nanos: AtomicU64::new(0),
            holder: AtomicUsize::new(usize::MAX),
            grants: AtomicU64::new(0),
            waits: Recorder::new(),
        }
    }

    fn taken(&self, by: usize, window: Window) {
        let now = Instant::now();
        let before = self.holder.swap(by, Ordering::Relaxed);
        if !window.counts(now) {
            return;
        }
        self.grants.fetch_add(1, Ordering::Relaxed);
        if before != by && before != usize::MAX {
            let released = Duration::from_nanos(self.released_nanos.load(Ordering::Relaxed));
            self.waits.record((now - self.epoch).saturating_sub(released));
        }
    }

    fn given_back(&self) {
        let nanos = self.epoch.elapsed().as_nanos();
        self.released_nanos.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

async fn contend<L: Lock>(
    index: usize,
    mut lock: L,
    (window, release): (Window, Release),
    baton: Arc<Baton>,
) -> Result<()> {
    while !window.is_over(Instant::now()) {
        let guard = lock.acquire().await?;
        baton.taken(index, window);
        baton.given_back();
        release.give_back(&mut lock, guard).await?;
    }
    Ok(())
}
