//! What programs have left that died, looked for now and then by those that make the same.

use std::time::Duration;

use lockkeeper_client::ReadResult;

use crate::queue::core::Core;
use crate::queue::error::QueueError;
use crate::queue::layout::{Places, is_id};
use crate::queue::long::UPLOADING;
use crate::queue::reads::{children_of, data_of, names_of};

/// How often one handle looks, for each of them.
const EVERY: Duration = Duration::from_secs(60);

/// How many long values are looked at with one request.
const AT_ONCE: usize = 100;

impl Core {
    /// Deletes the answers that were kept for long enough.
    pub(super) async fn sweep_answers(&self) -> Result<(), QueueError> {
        if !self.answers_swept.is_due(EVERY, self.client.now()) {
            return Ok(());
        }
        let now = self.server_time().await?;
        for name in self.names_in(&self.places.answers).await?.unwrap_or_default() {
            if Places::kept_answer(&name).is_some_and(|(_, until)| until <= now)
                && let Ok(node) = self.places.answers.child(&name)
            {
                drop(self.client.delete(&node, None));
            }
        }
        Ok(())
    }

    /// Deletes the parts of long values that nobody puts any more, and whose item is not there.
    pub(super) async fn sweep_parts(&self) -> Result<(), QueueError> {
        if !self.parts_swept.is_due(EVERY, self.client.now()) {
            return Ok(());
        }
        let places = &self.places;
        let uploads = self.names_in(&places.parts).await?.unwrap_or_default();
        for uploads in uploads.chunks(AT_ONCE) {
            let looks = uploads.iter().flat_map(|upload| {
                let directory = places.parts_of(upload);
                [children_of(&directory), data_of(&directory)]
            });
            let mut answers = self.read_all(looks.collect()).await?.into_iter();
            for upload in uploads {
                let parts = answers.next().and_then(names_of).unwrap_or_default();
                let Some(ReadResult::Data { data, .. }) = answers.next() else { continue };
                let id = String::from_utf8_lossy(&data).into_owned();
                if parts.iter().any(|name| name == UPLOADING) || !is_id(&id) {
                    continue;
                }
                // The upload has ended before, with its item if that was put.
                let body = self.data_in(&places.body(&id)).await?;
                if body.is_some_and(|body| body == upload.as_bytes()) {
                    continue;
                }
                let directory = places.parts_of(upload);
                let nodes = parts.iter().filter_map(|name| directory.child(name).ok());
                for node in nodes.chain([directory.clone()]) {
                    // Whoever looks next tries again if it fails.
                    drop(self.client.delete(&node, None));
                }
            }
        }
        Ok(())
    }
}
