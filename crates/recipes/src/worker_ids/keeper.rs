//! The task that extends the reservation of a number.

use std::sync::Arc;

use lockkeeper_client::Failure;
use lockkeeper_client::retry::{pause, reachable};
use tokio::task::JoinHandle;

use crate::worker_ids::error::WorkerIdError;
use crate::worker_ids::minting::{MIN_RESERVE_INTERVAL, Minting};
use crate::worker_ids::write::{ReservationWriter, ReserveFailure};

/// The task that extends the reservation, until this is dropped.
#[derive(Debug)]
pub(super) struct ReservationKeeper(JoinHandle<()>);

impl ReservationKeeper {
    /// Starts it, given the version of the current reservation.
    pub(super) fn start(minting: &Arc<Minting>, writer: ReservationWriter, version: i32) -> Self {
        let runtime = writer.client.tokio_runtime().clone();
        Self(runtime.spawn(keep(Arc::clone(minting), writer, version)))
    }

    /// Stops it, and returns when it has ended.
    pub(super) async fn stop(mut self) {
        self.0.abort();
        // It was cancelled, or had ended.
        let _ = (&mut self.0).await;
    }
}

impl Drop for ReservationKeeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Extends the reservation until the number is lost, or another program reserves for it.
async fn keep(minting: Arc<Minting>, writer: ReservationWriter, mut version: i32) {
    loop {
        let until = minting.due().await;
        let asked = writer.client.now();
        match writer.write(Some(version), until).await {
            Ok(written) => {
                version = written.version;
                minting.extend(written, asked);
            }
            // The guard reports it.
            Err(ReserveFailure::Lost) => return,
            Err(ReserveFailure::Overtaken(_)) => {
                return minting.end(WorkerIdError::Overtaken { node: writer.node });
            }
            // The session may outlive an outage.
            Err(ReserveFailure::Failed(error)) if error.is_retryable() => {
                reachable(&writer.client).await;
                pause().await;
            }
            Err(ReserveFailure::Failed(error)) => return minting.end(error),
        }
        tokio::time::sleep(MIN_RESERVE_INTERVAL).await;
    }
}
