//! The telemetry of locks: metrics, spans and events, and the loss of a guard as a token. Also checks that the
//! page, the alerts and the dashboard name existing metrics.
//!
//! Figures are of the whole process, so one test runs at a time.

mod cancellation;
mod documents;
mod figures;
mod log;
mod recorder;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{Client, Rehearsal};
use lockkeeper_testkit::backend::{Backend, TICK};

use recorder::Recorder;

const LOCK: &str = "/locks/orders";

/// What no test comes near unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a test alone, on an engine and with a recorder of its own, in a runtime that is gone when this returns.
fn run<F: Future<Output = Result<()>>>(test: impl FnOnce(Backend, Recorder) -> F) -> Result<()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let recorder = Recorder::default();
    let installed = recorder.clone();
    let _installed = metrics::set_default_local_recorder(&installed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let test = async { test(Backend::embedded().await?, recorder).await };
        tokio::time::timeout(LIMIT, test).await.context("it hangs")?
    })
}

/// A client in rehearsal.
async fn rehearsed(backend: &Backend) -> Result<(Client, Rehearsal)> {
    let rehearsal = Rehearsal::new();
    let client = Client::builder()
        .session_timeout(4 * TICK)
        .server_tick(TICK)
        .rehearsal(&rehearsal)
        .connect(&backend.connect_string())
        .await?;
    Ok((client, rehearsal))
}
