//! Sends transactions with an outcome marker, one after the other.

use bytes::Bytes;
use lockkeeper_client::{
    Cleanup, Client, CreateMode, Error, SessionId, Transaction, TransactionError, ZnodePath,
};

use crate::contender::retry::retry_backoff;
use crate::exact::attempt::{Applied, Attempt, Next, WriteError};

/// Sends transactions whose outcome is certain; see the room's page.
#[derive(Debug)]
pub(crate) struct ExactWriter {
    client: Client,
    /// Where the markers are.
    directory: ZnodePath,
    marker: Option<Marker>,
}

impl ExactWriter {
    pub(crate) fn new(client: &Client, directory: &ZnodePath) -> Self {
        Self { client: client.clone(), directory: directory.clone(), marker: None }
    }

    /// Applies the steps in one transaction, at most once. Costs one round trip when the session has a
    /// marker or can create one, and one more after each lost reply; the first one of all may have to
    /// create the directory of the markers before.
    ///
    /// # Errors
    /// [`WriteError::NotApplied`] if a step was refused, with its index among the steps that were
    /// given; [`WriteError::Unknown`] if the session ended before the outcome was known.
    ///
    /// # Cancel safety
    /// It is sent when this is first polled. When dropped later, it may be applied or not, at most
    /// once; the next transaction is as exact as ever.
    pub(crate) async fn commit(
        &mut self,
        steps: impl Fn(Transaction) -> Transaction,
    ) -> Result<Applied, WriteError> {
        loop {
            let mut marker = self.marker().await.map_err(not_applied)?;
            let mut attempt = Attempt::new(marker.version);
            match self.in_one_session(&mut marker, &mut attempt, &steps).await {
                Some(applied) => {
                    if applied.is_ok() {
                        marker.version = Some(attempt.raised());
                    }
                    // After a refusal it is as it was before, which the next one relies on only if
                    // this is certain.
                    if !matches!(applied, Err(WriteError::Unknown(_))) {
                        self.marker = Some(marker);
                    }
                    return applied;
                }
                None => drop(marker),
            }
        }
    }

    /// Sends the same transaction until its outcome is known; `None` if it was not applied and needs
    /// another marker.
    async fn in_one_session(
        &self,
        marker: &mut Marker,
        attempt: &mut Attempt,
        steps: &impl Fn(Transaction) -> Transaction,
    ) -> Option<Result<Applied, WriteError>> {
        loop {
            let transaction = steps(marker.step()).in_session(marker.session);
            let look = async {
                match attempt.is_doubted() {
                    true => Some(self.client.exists(&marker.path).await),
                    false => None,
                }
            };
            // Sent in one go, and in this order.
            let (answer, look) = tokio::join! { biased; transaction.commit_numbered(), look };
            match attempt.answered(answer, look) {
                Next::Done(outcome) => return Some(outcome),
                Next::OtherMarker => return None,
                Next::Again(error) => {
                    // It can be tried again, or this would not be what comes next.
                    let _ = retry_backoff(error).await;
                }
                Next::MakeDirectory => {
                    if let Err(error) = self.make_directory().await {
                        return Some(Err(not_applied(error)));
                    }
                }
            }
        }
    }

    async fn make_directory(&self) -> Result<(), Error> {
        loop {
            match self.client.ensure(&self.directory, CreateMode::Container).await {
                Err(error) if error.is_session_expired() => return Ok(()),
                Err(error) => retry_backoff(error).await?,
                Ok(()) => return Ok(()),
            }
        }
    }

    /// The marker of the present session, which there may have to be waited for.
    async fn marker(&mut self) -> Result<Marker, Error> {
        loop {
            let session = self.client.session_id();
            if let Some(marker) = self.marker.take_if(|marker| marker.session == session) {
                return Ok(marker);
            }
            if session != SessionId::NONE {
                return Ok(Marker::new(&self.client, &self.directory, session));
            }
            // Between two sessions, a request waits for the next one.
            match self.client.exists(&self.directory).await {
                Err(error) if !error.is_session_expired() => retry_backoff(error).await?,
                _ => {}
            }
        }
    }
}

fn not_applied(error: Error) -> WriteError {
    WriteError::NotApplied(TransactionError::Request(error))
}

/// An ephemeral node of one session. It is deleted when this goes away.
#[derive(Debug)]
struct Marker {
    client: Client,
    path: ZnodePath,
    session: SessionId,
    /// `None` before it is created.
    version: Option<i32>,
    /// Whether there may be a node.
    sent: bool,
}

impl Marker {
    fn new(client: &Client, directory: &ZnodePath, session: SessionId) -> Self {
        let name = client.unique_id().to_string();
        let path = directory.child(&name).expect("hexadecimal digits and dashes");
        Self { client: client.clone(), path, session, version: None, sent: false }
    }

    /// A transaction that begins with the step on the marker.
    fn step(&mut self) -> Transaction {
        self.sent = true;
        let transaction = self.client.transaction();
        match self.version {
            None => transaction.create(&self.path, Bytes::new(), CreateMode::Ephemeral),
            version => transaction.set_data(&self.path, Bytes::new(), version),
        }
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        if self.sent && self.session == self.client.session_id() {
            self.client.clean_up(Cleanup::Node(self.path.clone()));
        }
    }
}
