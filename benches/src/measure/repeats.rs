//! Anything that is done again and again.

use std::future::Future;
use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinSet;

use super::cycles::all;
use super::latency::{Latency, Recorder};
use super::window::Plan;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeats {
    /// How many were done in a second, by all tasks together.
    pub(crate) per_second: f64,
    /// How long each took.
    pub(crate) latency: Latency,
}

/// Runs a task for each of `operations`, which does it again and again until the time is up.
///
/// # Errors
/// The first one of any task; the others are then given up.
///
/// # Cancel safety
/// Dropping it ends all tasks.
pub(crate) async fn repeat<O, F>(operations: Vec<O>, plan: Plan) -> Result<Repeats>
where
    O: FnMut() -> F + Send + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let (window, recorder) = (plan.begin(), Recorder::new());
    let mut tasks = JoinSet::new();
    for mut operation in operations {
        let recorder = recorder.clone();
        tasks.spawn(async move {
            let mut start = Instant::now();
            while !window.is_over(start) {
                operation().await?;
                let end = Instant::now();
                if window.counts(end) {
                    recorder.record(end - start);
                }
                start = end;
            }
            Ok(())
        });
    }

    all(&mut tasks).await?;
    let latency = recorder.summary();
    Ok(Repeats { per_second: latency.count as f64 / window.length().as_secs_f64(), latency })
}
