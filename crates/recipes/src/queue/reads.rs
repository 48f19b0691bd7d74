//! Reads that continue over lost connections and ended sessions.

use bytes::Bytes;
use lockkeeper_client::{ReadOp, ReadResult, Reply, ZnodePath, present};

use crate::queue::core::Core;
use crate::queue::error::QueueError;
use crate::queue::lanes::{Segment, read_segments};
use crate::queue::layout::QueueMark;

impl Core {
    /// Repeats a read until it is answered; `None` if its node is missing.
    async fn read<T>(&self, ask: impl Fn() -> Reply<T>) -> Result<Option<T>, QueueError> {
        loop {
            match present(ask().await) {
                Ok(found) => return Ok(found),
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// The data of a node; `None` if it is missing.
    pub(super) async fn data_in(&self, node: &ZnodePath) -> Result<Option<Bytes>, QueueError> {
        let found = self.read(|| self.client.data(node)).await?;
        Ok(found.map(|(data, _)| data))
    }

    /// The mark of the queue; `None` if its node is missing.
    ///
    /// # Errors
    /// [`QueueError::Foreign`] if the node has other data.
    pub(super) async fn mark(&self) -> Result<Option<QueueMark>, QueueError> {
        let foreign = |found| QueueError::Foreign { path: self.path().clone(), found };
        let data = self.data_in(self.path()).await?;
        data.map(|data| QueueMark::read(&data).map_err(foreign)).transpose()
    }

    pub(super) async fn names_in(
        &self,
        node: &ZnodePath,
    ) -> Result<Option<Vec<String>>, QueueError> {
        let found = self.read(|| self.client.children(node)).await?;
        Ok(found.map(|(names, _)| names))
    }

    /// The segments, in the order in which they are listed; `None` if the queue does not exist.
    pub(super) async fn listed_segments(&self) -> Result<Option<Vec<Segment>>, QueueError> {
        Ok(self.names_in(&self.places.entries).await?.map(|names| read_segments(&names)))
    }

    /// Several reads, all from one state of the servers.
    pub(super) async fn read_all(&self, ops: Vec<ReadOp>) -> Result<Vec<ReadResult>, QueueError> {
        let answers = self.read(|| self.client.multi_read(ops.clone())).await?;
        Ok(answers.unwrap_or_default())
    }
}
