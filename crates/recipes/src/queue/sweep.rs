//! Deletes the remains of programs that died. Programs that create such nodes do so periodically.

use std::time::Duration;

use lockkeeper_client::{ReadResult, ZnodePath};

use crate::queue::answer::AnswerData;
use crate::queue::core::Core;
use crate::queue::error::QueueError;
use crate::queue::layout::{QueueNodes, is_id};
use crate::reads::data_of;

/// How often one handle cleans up each kind.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// How many answers one request reads.
pub(super) const AT_ONCE: usize = 100;

impl Core {
    /// Deletes answers whose time is over.
    pub(super) async fn sweep_answers(&self) -> Result<(), QueueError> {
        if !self.answers_swept.is_due(SWEEP_INTERVAL, self.client.now()) {
            return Ok(());
        }
        let now = self.server_time().await?.least;
        let names = self.names_in(&self.places.answers).await?.unwrap_or_default();
        let nodes: Vec<_> =
            names.iter().filter_map(|name| self.places.answers.child(name).ok()).collect();
        for nodes in nodes.chunks(AT_ONCE) {
            for (node, answer) in nodes.iter().zip(self.answers_in(nodes).await?) {
                if answer.and_then(|answer| answer.until).is_some_and(|until| until <= now) {
                    drop(self.client.delete(node, None));
                }
            }
        }
        Ok(())
    }

    /// The data of these answers; `None` for missing ones.
    pub(super) async fn answers_in(
        &self,
        nodes: &[ZnodePath],
    ) -> Result<Vec<Option<AnswerData>>, QueueError> {
        let read = self.read_all(nodes.iter().map(data_of).collect()).await?;
        let answers = read.into_iter().map(|read| match read {
            ReadResult::Data { data, .. } => AnswerData::read(&data).ok(),
            _ => None,
        });
        Ok(answers.collect())
    }

    /// Deletes the parts of long values that cannot be put any more, and whose item does not exist.
    pub(super) async fn sweep_parts(&self) -> Result<(), QueueError> {
        if !self.parts_swept.is_due(SWEEP_INTERVAL, self.client.now()) {
            return Ok(());
        }
        let places = &self.places;
        let uploads = self.names_in(&places.parts).await?.unwrap_or_default();
        for upload in QueueNodes::ended_uploads(&uploads) {
            let directory = places.parts_of(upload);
            let Some(id) = self.data_in(&directory).await? else { continue };
            let id = String::from_utf8_lossy(&id).into_owned();
            if !is_id(&id) {
                continue;
            }
            // Read last: if the item was put, the transaction that ended the upload has created it.
            let body = self.data_in(&places.body(&id)).await?;
            if body.is_some_and(|body| body == upload.as_bytes()) {
                continue;
            }
            let parts = self.names_in(&directory).await?.unwrap_or_default();
            let nodes = parts.iter().filter_map(|name| directory.child(name).ok());
            for node in nodes.chain([directory.clone()]) {
                // If it fails, the next cleanup tries again.
                drop(self.client.delete(&node, None));
            }
        }
        Ok(())
    }
}
