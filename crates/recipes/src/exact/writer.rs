//! Sends transactions with an outcome marker, one at a time.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::retry::{Unanswered, retry_pause};
use lockkeeper_client::{
    Acl, Client, CreateMode, DefaultAcl, Error, ErrorCode, Permissions, SessionId, Transaction,
    TransactionError, ZnodePath,
};

use crate::exact::attempt::{Applied, Attempt, Next, WriteError};
use crate::exact::contention_backoff::ContentionBackoff;
use crate::exact::session_owned::SessionOwned;

/// The default directory of the markers. No recipe lists or caches it.
pub(crate) const DEFAULT_MARKERS: &str = "/lockkeeper-outcomes";

/// Sends transactions whose outcome is certain; see [`crate::exact`].
#[derive(Debug)]
pub(crate) struct ExactWriter {
    client: Client,
    /// The directory of the markers.
    directory: ZnodePath,
    marker: Option<Marker>,
    contention_backoff: ContentionBackoff,
    /// The duration of the last transaction.
    took: Duration,
    /// The session in which the last write began.
    session: SessionId,
}

impl ExactWriter {
    pub(crate) fn new(client: &Client, directory: &ZnodePath) -> Self {
        let (client, directory) = (client.clone(), directory.clone());
        let (contention_backoff, took, session) =
            (ContentionBackoff::default(), Duration::ZERO, SessionId::NONE);
        Self { client, directory, marker: None, contention_backoff, took, session }
    }

    /// Call before each write to a value that was read: returns when other programs have had time to write it,
    /// after a turn of this one. Returns whether the value must be read again, because it is out of date, or was
    /// read in an earlier session, which may have ended because servers were set back.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn let_others(&mut self) -> bool {
        let has_waited = waited(self.contention_backoff.rest(self.client.now())).await;
        let session = self.client.session_id();
        std::mem::replace(&mut self.session, session) != session || has_waited
    }

    /// Call when a transaction was refused because another program was faster: returns when to try again.
    /// Returns whether it waited, so that earlier reads are out of date.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn lost(&mut self) -> bool {
        let wait = self.contention_backoff.lost(self.took, self.client.now(), fastrand::f64());
        waited(wait).await
    }

    /// Creates the marker if it is missing, so that the next transaction need not. Costs one round trip then,
    /// which can overlap another wait of the caller.
    ///
    /// # Errors
    /// If the marker cannot be created; nothing was written.
    ///
    /// # Cancel safety
    /// Safe; leaves no node behind.
    pub(crate) async fn prepare(&mut self) -> Result<(), WriteError> {
        let marker = self.marker().await.map_err(not_applied)?;
        self.marker = Some(marker);
        Ok(())
    }

    /// The session of the last write that was applied.
    pub(crate) fn marked_session(&self) -> SessionId {
        self.marker.as_ref().map_or(SessionId::NONE, Marker::session)
    }

    /// Applies the steps in one transaction, at most once. Costs one round trip when the session has a
    /// marker, one more to create it, and one more after each lost reply. The very first may also create the
    /// directory of the markers.
    ///
    /// # Errors
    /// [`WriteError::NotApplied`] if a step was refused, with its index among the given steps;
    /// [`WriteError::TooLong`] if the connection is lost at each attempt; [`WriteError::Unknown`] if the session
    /// ended, or the marker was deleted, before the outcome was known.
    ///
    /// # Cancel safety
    /// When dropped after the transaction was sent, it is applied at most once. The next transaction is
    /// exact again.
    pub(crate) async fn commit(
        &mut self,
        steps: impl Fn(Transaction) -> Transaction,
    ) -> Result<Applied, WriteError> {
        self.commit_in(None, steps).await
    }

    /// Like [`ExactWriter::commit`], but only in the given session, if any: in a later one, nothing is applied.
    ///
    /// # Errors
    /// As [`ExactWriter::commit`]; [`WriteError::NotApplied`] with the end of the session, if it has ended.
    ///
    /// # Cancel safety
    /// As [`ExactWriter::commit`].
    pub(crate) async fn commit_in(
        &mut self,
        session: Option<SessionId>,
        steps: impl Fn(Transaction) -> Transaction,
    ) -> Result<Applied, WriteError> {
        loop {
            let mut marker = self.marker().await.map_err(not_applied)?;
            if let Some(wanted) = session.filter(|wanted| *wanted != marker.session()) {
                self.marker = Some(marker);
                // A session that has a successor has ended: the client refuses the request.
                let refused = steps(self.client.transaction()).in_session(wanted).commit_numbered();
                return match refused.await {
                    Ok((results, zxid)) => {
                        Ok(Applied { results: Some(results), zxid, at_unix_ms: None })
                    }
                    Err(error) => Err(WriteError::NotApplied(error)),
                };
            }
            let mut attempt = Attempt::new(marker.version);

            let sent = self.client.now();
            let Some(outcome) = self.in_one_session(&marker, &mut attempt, &steps).await else {
                continue;
            };

            let now = self.client.now();
            self.took = now - sent;
            if let Ok(_) | Err(WriteError::TooLong(_)) = outcome {
                marker.version = attempt.raised();
            }
            if outcome.is_ok() {
                self.contention_backoff.won(self.took, now, fastrand::f64());
            }

            // A refused transaction leaves the marker unchanged. The next one relies on that only if the refusal is
            // certain.
            if !matches!(outcome, Err(WriteError::Unknown(_))) {
                self.marker = Some(marker);
            }
            return outcome;
        }
    }

    /// Sends the same transaction until its outcome is known; `None` if it was not applied and needs another
    /// marker.
    async fn in_one_session(
        &self,
        marker: &Marker,
        attempt: &mut Attempt,
        steps: &impl Fn(Transaction) -> Transaction,
    ) -> Option<Result<Applied, WriteError>> {
        let mut unanswered = Unanswered::default();
        loop {
            let marked = marker.step(&self.client, attempt.mark());
            let transaction = if attempt.is_given_up() { marked } else { steps(marked) };
            let transaction = transaction.in_session(marker.session());
            let size = (transaction.data_len(), self.client.now());
            let look = async {
                match attempt.is_doubted() {
                    true => Some(self.client.exists(marker.node.path()).await),
                    false => None,
                }
            };
            // Pipelined in this order.
            let (answer, look) = tokio::join! { biased; transaction.commit_numbered(), look };

            match attempt.answered(answer, look) {
                Next::Done(outcome) => return Some(outcome),
                Next::OtherMarker => return None,
                Next::Again(error) => {
                    if let Some(why) = unanswered.one_more(&self.client, &error, size) {
                        attempt.give_up(why);
                    }
                    // The error is transient, or `Next` would be another.
                    let _ = retry_pause(error).await;
                }
            }
        }
    }

    /// The marker of the current session. May wait for a session.
    async fn marker(&mut self) -> Result<Marker, Error> {
        let session = self.client.session_id();
        if let Some(marker) = self.marker.take_if(|marker| marker.can_be_used_in(session)) {
            return Ok(marker);
        }

        loop {
            let name = self.client.unique_id().to_string();
            let path = self.directory.child(&name).expect("hexadecimal digits and dashes");
            let mut node = SessionOwned::new(&self.client, path);
            match node.create(Bytes::new()).await {
                Ok(()) => return Ok(Marker { node, version: 0 }),
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                    let maker = of_all(&self.client, &self.directory);
                    match maker.ensure(&self.directory, CreateMode::Container).await {
                        Err(error) if error.is_session_expired() => {}
                        Err(error) => retry_pause(error).await?,
                        Ok(()) => {}
                    }
                }
                Err(error) if error.is_session_expired() => {}
                // Use another marker under another name: this one is deleted if it was created.
                Err(error) => retry_pause(error).await?,
            }
        }
    }
}

/// A client that creates the directory so that all users of the servers can use it. The first user creates the shared
/// directory, and its own access control list would exclude the others. A user that deletes another's marker makes
/// that outcome unknown, but changes nothing else.
fn of_all(client: &Client, directory: &ZnodePath) -> Client {
    if client.creates_open() || directory.as_str() != DEFAULT_MARKERS {
        return client.clone();
    }
    let all = Permissions::READ | Permissions::CREATE | Permissions::DELETE;
    client.with_default_acl(&DefaultAcl::List(Acl::world(all)))
}

async fn waited(wait: Duration) -> bool {
    let waits = !wait.is_zero();
    if waits {
        tokio::time::sleep(wait).await;
    }
    waits
}

fn not_applied(error: Error) -> WriteError {
    WriteError::NotApplied(TransactionError::Request(error))
}

/// The node whose version shows whether a transaction was applied.
#[derive(Debug)]
struct Marker {
    node: SessionOwned,
    version: i32,
}

impl Marker {
    /// False when the marker has been changed so often that its next version would be -1, which servers take as
    /// "any version".
    fn can_be_used_in(&self, session: SessionId) -> bool {
        self.session() == session && self.version != i32::MAX
    }

    fn session(&self) -> SessionId {
        self.node.session()
    }

    /// A transaction that begins with the step on the marker.
    fn step(&self, client: &Client, data: Bytes) -> Transaction {
        client.transaction().set_data(self.node.path(), data, Some(self.version))
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::Client;

    use super::*;

    /// At version -1 servers compare nothing, and a repeated transaction would be applied twice.
    #[tokio::test]
    async fn a_marker_is_replaced_before_its_version_comes_around() {
        let engine = lockkeeper_engine::Engine::builder().start().await.unwrap();
        let client = Client::connect(&engine.connect_string()).await.unwrap();
        let session = client.session_id();
        let mut writer = ExactWriter::new(&client, &ZnodePath::new("/markers").unwrap());
        writer.prepare().await.unwrap();
        let first = writer.marker.as_ref().unwrap().node.path().clone();
        assert!(writer.marker.as_ref().unwrap().can_be_used_in(session));

        writer.marker.as_mut().unwrap().version = i32::MAX;
        let path = ZnodePath::new("/x").unwrap();
        let create = |steps: Transaction| steps.create(&path, "", CreateMode::Persistent);
        writer.commit(create).await.unwrap();
        let marker = writer.marker.as_ref().unwrap();
        assert!(marker.node.path() != &first && marker.version == 1, "{marker:?}");
        client.close().await;
    }
}
