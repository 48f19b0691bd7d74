//! Values that are too long for one request: their parts are written before the item is put, and deleted with it.

use bytes::{Bytes, BytesMut};
use lockkeeper_client::{
    Cleanup, Client, CreateMode, ErrorCode, SessionId, Transaction, TransactionError, ZnodePath,
};

use crate::queue::commit::nothing;
use crate::queue::core::Core;
use crate::queue::error::QueueError;
use crate::queue::layout::{Entry, new_id};
use crate::queue::marks::{Marks, Parts};

/// The default size of a part, in bytes. Shorter values are in the body.
const DEFAULT_PART_BYTES: usize = 256 << 10;

/// The maximum number of parts of a value: servers keep them in memory, and a consumer reads all of them.
const MAX_PARTS: usize = 64;

/// The nodes to put for one value.
pub(super) struct NewBody {
    pub(super) body: Bytes,
    /// The parts that were written before.
    pub(super) parts: Option<Parts>,
    pub(super) upload: Option<Upload>,
}

/// The right to put an item with parts that were written for it. After it is dropped, the item cannot be put any
/// more, so that [a cleanup](Core::sweep_parts) deletes the parts, unless it was put.
pub(super) struct Upload {
    client: Client,
    /// The node that a put of these parts requires and deletes.
    uploading: ZnodePath,
    is_over: bool,
}

impl Upload {
    /// The item was put.
    pub(super) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_over {
            self.client.clean_up(Cleanup::Node(self.uploading.clone()));
        }
    }
}

impl Core {
    /// Writes the parts of a value, if it is long. The put of the item [ends the upload](Core::end_upload).
    ///
    /// # Errors
    /// [`QueueError::ValueTooLong`] if it has too many parts.
    pub(super) async fn upload(&self, id: &str, body: &Bytes) -> Result<NewBody, QueueError> {
        let part = self.options.part.unwrap_or(DEFAULT_PART_BYTES);
        if body.len() <= part {
            return Ok(NewBody { body: body.clone(), parts: None, upload: None });
        }
        let (bytes, limit) = (body.len(), part * MAX_PARTS);
        if bytes > limit {
            return Err(QueueError::ValueTooLong { path: self.path().clone(), bytes, limit });
        }
        self.ensure_open().await?;
        self.sweep_parts().await?;
        let chunks: Vec<_> =
            (0..bytes).step_by(part).map(|from| body.slice(from..bytes.min(from + part))).collect();
        'anew: loop {
            let name = new_id(&self.client);
            let (client, uploading) = (self.client.clone(), self.places.uploading(&name));
            let upload = Upload { client, uploading, is_over: false };
            let session = self.begin_upload(id, &name).await?;
            for (number, chunk) in (0..).zip(&chunks) {
                if !self.upload_part(&name, number, chunk, session).await? {
                    continue 'anew;
                }
            }
            let count = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
            let body = Bytes::from(name.clone());
            let parts = Some(Parts { count, upload: name });
            return Ok(NewBody { body, parts, upload: Some(upload) });
        }
    }

    /// Creates a directory for the parts of a value, with the item's id as its data, and returns the session.
    async fn begin_upload(&self, id: &str, upload: &str) -> Result<SessionId, QueueError> {
        let directory = self.places.parts_of(upload);
        let uploading = self.places.uploading(upload);
        let id = Bytes::copy_from_slice(id.as_bytes());
        loop {
            let steps = self.client.transaction();
            let steps = steps.create(&directory, id.clone(), CreateMode::Persistent);
            let steps = steps.create(&uploading, nothing(), CreateMode::Ephemeral);
            let session = self.client.session_id();
            match steps.in_session(session).commit().await {
                Ok(_) => return Ok(session),
                // An earlier try was applied: the name is unique.
                Err(TransactionError::Failed { code: ErrorCode::NodeExists, .. }) => {
                    return Ok(session);
                }
                Err(TransactionError::Failed { code: ErrorCode::NoNode, .. }) => {
                    self.open().await?
                }
                Err(TransactionError::Request(error)) => self.again(error).await?,
                Err(source) => {
                    return Err(QueueError::Refused { path: self.path().clone(), source });
                }
            }
        }
    }

    /// Writes a part, unless the upload has ended.
    async fn upload_part(
        &self,
        upload: &str,
        number: u32,
        chunk: &Bytes,
        session: SessionId,
    ) -> Result<bool, QueueError> {
        let node = self.places.part(upload, number);
        let uploading = self.places.uploading(upload);
        loop {
            let steps = self.client.transaction().check(&uploading, None);
            let steps = steps.create(&node, chunk.clone(), CreateMode::Persistent);
            match steps.in_session(session).commit().await {
                Ok(_) => return Ok(true),
                // An earlier try was applied: the id is unique.
                Err(TransactionError::Failed { index: 1, code: ErrorCode::NodeExists, .. }) => {
                    return Ok(true);
                }
                Err(TransactionError::Failed { code: ErrorCode::NoNode, .. }) => return Ok(false),
                Err(TransactionError::Request(error)) if error.is_session_expired() => {
                    return Ok(false);
                }
                Err(TransactionError::Request(error)) => self.again(error).await?,
                Err(source) => {
                    return Err(QueueError::Refused { path: self.path().clone(), source });
                }
            }
        }
    }

    /// A step that ends an upload, if any.
    pub(super) fn end_upload(&self, steps: Transaction, parts: Option<&Parts>) -> Transaction {
        match parts {
            None => steps,
            Some(Parts { upload, .. }) => steps.delete(&self.places.uploading(upload), None),
        }
    }

    /// Deletes the parts of an item that was not put. If that fails, [a cleanup](Core::sweep_parts) finds them.
    pub(super) fn drop_upload(&self, Parts { count, upload }: &Parts) {
        let directory = self.places.parts_of(upload);
        let parts = (0..*count).map(|number| self.places.part(upload, number));
        for node in parts.chain([directory]) {
            drop(self.client.delete(&node, None));
        }
    }

    /// The value of an item; `None` if it is gone.
    pub(super) async fn value_of(&self, entry: &Entry) -> Result<Option<Bytes>, QueueError> {
        self.whole_value(&entry.id, entry.marks()).await
    }

    /// The value of the item with this id and these marks.
    pub(super) async fn whole_value(
        &self,
        id: &str,
        marks: &Marks,
    ) -> Result<Option<Bytes>, QueueError> {
        let Some(body) = self.data_in(&self.places.body(id)).await? else { return Ok(None) };
        let Some(Parts { count, upload }) = &marks.parts else { return Ok(Some(body)) };
        let mut whole = BytesMut::new();
        for number in 0..*count {
            let Some(part) = self.data_in(&self.places.part(upload, number)).await? else {
                return Ok(None);
            };
            whole.extend_from_slice(&part);
        }
        Ok(Some(whole.freeze()))
    }
}
