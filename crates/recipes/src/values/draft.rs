//! An edition that is being written, and why it may fail to become the last one.

use bytes::Bytes;
use lockkeeper_client::retry::{TooLong, Unanswered};
use lockkeeper_client::{
    Cleanup, Client, CreateMode, ErrorCode, OpCode, Transaction, TransactionError, ZnodePath,
};

use crate::exact::WriteError;
use crate::values::error::ValueError;
use crate::values::manifest::{Edition, part_name};
use crate::values::place::Place;

/// The longest edition that is stored in the manifest's node, in bytes. It is written twice in one request.
const MAX_INLINE_BYTES: usize = 256 * 1024;

/// The length of a part, in bytes.
const PART_BYTES: usize = 512 * 1024;

/// Why a draft has not become the last edition.
pub(super) enum PublishFailure {
    /// Its nodes may be missing: the session that wrote its parts has ended, or a parent was deleted; or, for a
    /// rollback, some of them were deleted.
    DraftLost,
    /// Another edition was published first.
    Conflict,
    Failed(ValueError),
}

/// Why the write that makes a draft the last edition was refused.
pub(super) enum RefusalCause {
    /// The manifest has changed.
    Conflict,
    /// The parent of the pointer is missing.
    Orphan,
    /// The nodes of the draft may be missing.
    DraftLost,
    /// An old edition cannot be deleted: another program deleted it, or created nodes below it.
    OldEdition,
    Other,
}

impl RefusalCause {
    pub(super) fn of(error: &WriteError, version: Option<i32>, draft: &Draft) -> Self {
        use ErrorCode::{BadVersion, NoNode, NodeExists, NotEmpty};
        let WriteError::NotApplied(TransactionError::Failed { index, code, .. }) = error else {
            return Self::Other;
        };

        // The manifest, the draft's nodes, and the old editions.
        let old_editions = 1 + draft.steps();
        match (*index, *code) {
            (0, BadVersion | NodeExists) => Self::Conflict,
            (0, NoNode) if version.is_some() => Self::Conflict,
            (0, NoNode) => Self::Orphan,
            (1.., NoNode) if *index < old_editions => Self::DraftLost,
            (_, NoNode | NotEmpty) if *index >= old_editions => Self::OldEdition,
            _ => Self::Other,
        }
    }
}

impl From<ValueError> for PublishFailure {
    fn from(error: ValueError) -> Self {
        Self::Failed(error)
    }
}

impl PublishFailure {
    pub(super) fn told(self, place: &Place) -> ValueError {
        match self {
            Self::Failed(error) => error,
            Self::DraftLost | Self::Conflict => {
                let path = place.path.clone();
                ValueError::SessionsTooShort { path }
            }
        }
    }
}

/// The longest edition that is stored in the manifest's node, in bytes.
pub(super) fn inline_limit(client: &Client) -> usize {
    MAX_INLINE_BYTES.min(client.max_frame() / 4)
}

/// The length of a part, in bytes.
fn part_length(client: &Client) -> usize {
    PART_BYTES.min(client.max_frame() / 2).max(1)
}

/// The name of the node that exists while parts are written.
pub(super) const WRITING: &str = "writing";

/// An edition that is about to become the last one.
pub(super) struct Draft {
    pub(super) id: String,
    pub(super) parts: u32,
    pub(super) bytes: usize,
    /// Its data, if it is stored in the manifest's node.
    pub(super) inline: Option<Bytes>,
    /// Its data, unless it is on the servers already.
    pub(super) body: Option<Bytes>,
}

impl Draft {
    pub(super) fn new(place: &Place, body: Bytes) -> Self {
        let (id, bytes) = (place.client.unique_id().to_string(), body.len());
        let inline = (bytes <= inline_limit(&place.client)).then(|| body.clone());
        let parts = match inline {
            Some(_) => 0,
            None => u32::try_from(bytes.div_ceil(part_length(&place.client))).unwrap_or(u32::MAX),
        };
        Self { id, parts, bytes, inline, body: Some(body) }
    }

    pub(super) fn entry(&self, number: u64) -> Edition {
        Edition { number, id: self.id.clone(), parts: self.parts, bytes: self.bytes }
    }

    /// The number of steps in [`Draft::finish`].
    fn steps(&self) -> usize {
        match &self.body {
            None if self.parts == 0 => 1,
            None => self.parts as usize + 1,
            Some(_) if self.parts == 0 => 1,
            Some(_) => 2,
        }
    }

    /// The draft's steps in the write that makes it an edition. They write the node of the edition, so that its
    /// time is that of the edition.
    pub(super) fn finish(&self, steps: Transaction, place: &Place) -> Transaction {
        let above = node(&place.path, &self.id);
        match &self.body {
            // All its nodes must still exist.
            None => {
                let parts = (0..self.parts).map(|part| node(&above, &part_name(part)));
                let steps = parts.fold(steps, |steps, part| steps.check(&part, None));
                match (&self.inline, self.parts) {
                    (Some(body), 0) => steps.set_data(&above, body.clone(), None),
                    // Written by a client with longer frames: its time stays that of the older edition.
                    (None, 0) => steps.check(&above, None),
                    _ => steps.set_data(&above, "", None),
                }
            }
            Some(body) if self.parts == 0 => {
                steps.create(&above, body.clone(), CreateMode::Persistent)
            }
            Some(_) => steps.delete(&node(&above, WRITING), None).set_data(&above, "", None),
        }
    }

    /// Writes the parts, if any, within the current session. Keep the result until the draft is an edition.
    pub(super) async fn write(
        &self,
        place: &Place,
    ) -> Result<Option<UnfinishedDraft>, PublishFailure> {
        let (Place { client, path }, Some(body)) = (place, &self.body) else { return Ok(None) };
        if self.parts == 0 {
            return Ok(None);
        }
        let (directory, empty) = (node(path, &self.id), Bytes::new());
        let writing = node(&directory, WRITING);
        // Created before the request is sent, so that the nodes are deleted whatever its outcome.
        let mut unfinished = UnfinishedDraft::new(client, &directory);

        let begin = || {
            let steps = client.transaction();
            let steps = steps.create(&directory, empty.clone(), CreateMode::Persistent);
            steps.create(&writing, empty.clone(), CreateMode::Ephemeral)
        };
        let above = || client.transaction().create(path, empty.clone(), CreateMode::Persistent);
        place.once(path, above).await?;
        place.once(&writing, begin).await?;
        for (number, part) in (0..).zip(body.chunks(part_length(client))) {
            let (name, part) = (node(&directory, &part_name(number)), body.slice_ref(part));
            let write = || {
                let steps = client.transaction().check(&writing, None);
                steps.create(&name, part.clone(), CreateMode::Persistent)
            };
            unfinished.parts = number + 1;
            if let Err(refused) = place.once(&name, write).await {
                unfinished.parts = number;
                return Err(refused);
            }
        }
        Ok(Some(unfinished))
    }
}

/// The nodes of a draft in parts. Dropping it deletes them, unless the draft is an edition by then: the node
/// [`WRITING`] is deleted by the write that makes it one, and the others are deleted only together with that node.
/// If there are more nodes than it knows of, because a reply was lost just before, only that node is deleted, and a
/// later publisher deletes the rest.
#[must_use = "the nodes of the draft are deleted when this is dropped"]
pub(super) struct UnfinishedDraft {
    client: Client,
    directory: ZnodePath,
    /// The number of parts that may exist.
    parts: u32,
    is_finished: bool,
}

impl UnfinishedDraft {
    fn new(client: &Client, directory: &ZnodePath) -> Self {
        let (client, directory) = (client.clone(), directory.clone());
        Self { client, directory, parts: 0, is_finished: false }
    }

    /// Call when the draft is an edition.
    pub(super) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for UnfinishedDraft {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let parts = (0..self.parts).map(|part| node(&self.directory, &part_name(part)));
        let others = parts.chain([self.directory.clone()]).collect();
        let first = node(&self.directory, WRITING);
        self.client.clean_up(Cleanup::Transaction { first, others });
    }
}

impl Place {
    /// Commits steps that create nodes with unique names, `made` among them: if one exists, an earlier attempt was
    /// applied. Missing parents are created once: if they are missing again, another program deletes them.
    async fn once(
        &self,
        made: &ZnodePath,
        steps: impl Fn() -> Transaction,
    ) -> Result<(), PublishFailure> {
        let (mut is_above, mut unanswered) = (false, Unanswered::default());
        loop {
            let steps = steps();
            let size = (steps.data_len(), self.client.now());

            match steps.commit().await {
                Ok(_) | Err(TransactionError::Failed { code: ErrorCode::NodeExists, .. }) => {
                    return Ok(());
                }
                Err(TransactionError::Failed { op, code: ErrorCode::NoNode, .. }) => match op {
                    OpCode::Check => return Err(PublishFailure::DraftLost),
                    _ if is_above => return Err(PublishFailure::DraftLost),
                    _ => {
                        self.make_parents().await?;
                        (is_above, unanswered) = (true, Unanswered::default());
                    }
                },
                Err(TransactionError::Request(error)) => {
                    if let Some(why) = unanswered.one_more(&self.client, &error, size) {
                        return self.refuse_unless_made(made, why).await;
                    }
                    self.again_to_write(error).await?;
                }
                Err(error) => {
                    return Err(ValueError::write(&self.path, WriteError::NotApplied(error)).into());
                }
            }
        }
    }

    /// Gives up a transaction that is too long, unless `made` shows that only the answers were lost.
    async fn refuse_unless_made(
        &self,
        made: &ZnodePath,
        why: TooLong,
    ) -> Result<(), PublishFailure> {
        let synced = self.client.sync(made);
        let (_, seen) = tokio::join! { biased; synced, self.client.exists(made) };
        match seen {
            Ok(Some(_)) => Ok(()),
            _ => Err(ValueError::too_long(&self.path, why).into()),
        }
    }
}

pub(super) fn node(above: &ZnodePath, name: &str) -> ZnodePath {
    above.child(name).expect("hexadecimal digits, dashes and letters")
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::Outcome;

    use crate::{Publication, Raw};

    use super::*;

    /// Without a limit, this took until the session ended.
    #[tokio::test]
    async fn an_edition_of_whose_parts_servers_close_the_connection_is_given_up() {
        let engine = lockkeeper_engine::Engine::builder().max_frame(300_000);
        let engine = engine.start().await.unwrap();
        let client = Client::connect(&engine.connect_string()).await.unwrap();
        let publication = Publication::builder(&client, "/p").codec(Raw).build().unwrap();
        let error = publication.publish(&Bytes::from(vec![7; 2 * PART_BYTES])).await.unwrap_err();
        let path = ZnodePath::new("/p").unwrap();
        assert_eq!(error, ValueError::TooLong { path, bytes: part_length(&client), tries: 3 });
        assert_eq!(error.outcome(), Outcome::NotApplied);
        publication.publish(&Bytes::from_static(b"short")).await.unwrap();
        client.close().await;
    }
}
