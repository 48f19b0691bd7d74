//! What is measured.

use std::sync::{Arc, Mutex as Cell, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper::{Client, Mutex, ZnodePath};
use tokio::task::{JoinError, JoinSet};

use super::sample::Figures;
use crate::exit::{Exit, Failure};

/// The latencies that one task saw.
type Seen = Result<Vec<Duration>, Failure>;

/// Reads, one after the other: what no lock can be faster than.
pub(super) async fn round_trips(client: &Client, time: Duration) -> Result<Figures, Failure> {
    let (start, mut latencies) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let sent = Instant::now();
        client.exists(&ZnodePath::root()).await?;
        latencies.push(sent.elapsed());
    }
    Ok(Figures::of(latencies, start.elapsed()))
}

/// One task for each lock, over one session: nobody waits for anybody.
pub(super) async fn cycles(
    client: &Client,
    locks: Vec<ZnodePath>,
    time: Duration,
) -> Result<Figures, Failure> {
    let mut mutexes = Vec::with_capacity(locks.len());
    for lock in locks {
        let mutex = Mutex::new(client, lock.as_str())?;
        // The first one makes the lock's node.
        released(&mutex).await?;
        mutexes.push(mutex);
    }

    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    for mutex in mutexes {
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while start.elapsed() < time {
                let began = Instant::now();
                released(&mutex).await?;
                latencies.push(began.elapsed());
            }
            Ok(latencies)
        });
    }
    gather(tasks, start).await
}

async fn released(mutex: &Mutex) -> Result<(), Failure> {
    let guard = mutex.acquire().await?;
    guard.release().await.map_err(|error| Failure::new(Exit::NoServer, error.to_string()))
}

/// All sessions want one lock: from the release to the next holder.
pub(super) async fn hand_overs(
    clients: &[Client],
    lock: &ZnodePath,
    time: Duration,
) -> Result<Figures, Failure> {
    let given_back = Arc::new(Cell::new(None::<Instant>));
    let mut tasks = JoinSet::new();
    let start = Instant::now();

    for client in clients {
        let mutex = Mutex::new(client, lock.as_str())?;
        let given_back = Arc::clone(&given_back);
        let swap = move |at| {
            std::mem::replace(&mut *given_back.lock().unwrap_or_else(PoisonError::into_inner), at)
        };
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while start.elapsed() < time {
                let guard = mutex.acquire().await?;
                let held = Instant::now();
                latencies.extend(swap(None).map(|before| held - before));
                swap(Some(Instant::now()));
                let released = guard.release().await;
                released.map_err(|error| Failure::new(Exit::NoServer, error.to_string()))?;
            }
            Ok(latencies)
        });
    }
    gather(tasks, start).await
}

async fn gather(mut tasks: JoinSet<Seen>, start: Instant) -> Result<Figures, Failure> {
    let mut latencies = Vec::new();
    while let Some(seen) = tasks.join_next().await {
        latencies.extend(seen.map_err(panicked)??);
    }
    Ok(Figures::of(latencies, start.elapsed()))
}

fn panicked(error: JoinError) -> Failure {
    Failure::new(Exit::Bug, format!("the measurement has failed: {error}"))
}
