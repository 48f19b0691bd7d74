//! Rounds that several take part in, each of which begins and ends for all of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinSet;

use super::cycles::all;
use super::latency::Recorder;
use super::lock::Lock;
use super::measured::Measured;
use super::window::{Plan, Window};

/// Runs a task for each party, all at once, until the time is up. To acquire is to enter the next round, and to release
/// is to leave it with all others.
///
/// # Errors
/// The first one of any task; the others are then given up.
///
/// # Cancel safety
/// Dropping it ends all tasks.
pub(crate) async fn rounds<L: Lock>(parties: Vec<L>, plan: Plan) -> Result<Measured> {
    let (window, recorder, is_last) = (plan.begin(), Recorder::new(), Arc::default());
    let mut tasks = JoinSet::new();
    for (number, party) in parties.into_iter().enumerate() {
        let recorder = (number == 0).then(|| recorder.clone());
        tasks.spawn(take_part(party, window, recorder, Arc::clone(&is_last)));
    }
    all(&mut tasks).await?;
    let latency = recorder.summary();
    let per_second = latency.count as f64 / window.length().as_secs_f64();
    Ok(Measured { per_second, latency, ..Measured::default() })
}

/// The one with the recorder decides which round is the last, while all are inside: each has looked at the word of the
/// round before, as it came into this one, and looks at this one's when all have left.
async fn take_part<L: Lock>(
    mut party: L,
    window: Window,
    recorder: Option<Recorder>,
    is_last: Arc<AtomicBool>,
) -> Result<()> {
    let mut start = Instant::now();
    loop {
        let inside = party.acquire().await?;
        if recorder.is_some() && window.is_over(Instant::now()) {
            is_last.store(true, Ordering::Relaxed);
        }
        party.release(inside).await?;
        let end = Instant::now();
        if let Some(recorder) = &recorder
            && window.counts(end)
        {
            recorder.record(end - start);
        }
        if is_last.load(Ordering::Relaxed) {
            return Ok(());
        }
        start = end;
    }
}
