//! Anything that is done again and again.

use std::future::Future;
use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinSet;

use super::cycles::all;
use super::latency::Recorder;
use super::measured::Measured;
use super::window::Plan;

/// Runs a task for each of `operations`, which does it again and again until the time is up.
///
/// # Errors
/// The first one of any task; the others are then given up.
///
/// # Cancel safety
/// Dropping it ends all tasks.
pub(crate) async fn repeat<O, F>(operations: Vec<O>, plan: Plan) -> Result<Measured>
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
    let per_second = latency.count as f64 / window.length().as_secs_f64();
    Ok(Measured { per_second, latency, ..Measured::default() })
}
