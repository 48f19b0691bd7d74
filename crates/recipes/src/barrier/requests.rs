//! Requests that all barriers and latches make: creating their nodes, and retrying.

use lockkeeper_client::retry::{pause, reachable, retry_anywhere};
use lockkeeper_client::{
    Client, CreateMode, Error, ErrorCode, TransactionError, ZnodePath, present,
};

use crate::barrier::error::BarrierError;
use crate::barrier::layout::Kind;

/// Returns when a failed request about this barrier may be repeated, with the next session if the last one has ended.
pub(super) async fn again(path: &ZnodePath, error: Error) -> Result<(), BarrierError> {
    retry_anywhere(error).await.map_err(|error| BarrierError::read(path, error))
}

/// Returns when a call with a time limit is worth another try, however long an outage lasts.
pub(super) async fn outlast(client: &Client, error: BarrierError) -> Result<(), BarrierError> {
    if !error.passes() || client.is_closed() {
        return Err(error);
    }
    reachable(client).await;
    pause().await;
    Ok(())
}

/// Creates the missing parents of a barrier. Returns when the barrier is worth another try.
pub(super) async fn make_parent(client: &Client, path: &ZnodePath) -> Result<(), BarrierError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    match client.ensure(&parent, CreateMode::Container).await {
        Ok(()) => Ok(()),
        Err(error) => again(path, error).await,
    }
}

/// Creates a node with the mark of its kind, and child nodes with data. Another program may have created it first.
///
/// # Errors
/// [`BarrierError::Foreign`] if the path has anything else.
pub(super) async fn make(
    client: &Client,
    path: &ZnodePath,
    kind: Kind,
    below: impl IntoIterator<Item = (&ZnodePath, String)>,
) -> Result<(), BarrierError> {
    let steps = client.transaction().create(path, kind.mark(), CreateMode::Persistent);
    let steps = below
        .into_iter()
        .fold(steps, |steps, (node, data)| steps.create(node, data, CreateMode::Persistent));
    match steps.commit().await {
        Ok(_) => Ok(()),
        Err(TransactionError::Failed { code: ErrorCode::NodeExists, .. }) => {
            match present(client.data(path).await) {
                Ok(None) => Ok(()),
                Ok(Some((data, _))) => kind.ensure(path, &data),
                Err(error) => again(path, error).await,
            }
        }
        Err(TransactionError::Failed { code: ErrorCode::NoNode, .. }) => {
            make_parent(client, path).await
        }
        Err(TransactionError::Request(error)) => again(path, error).await,
        Err(source) => Err(BarrierError::Refused { path: path.clone(), source }),
    }
}
