//! A handle to the queue of a lock. Every lock that has a queue enters it through this handle.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::retry::{pause, reachable};
use lockkeeper_client::{Client, ErrorCode, Transaction, TransactionError, ZnodePath};

use crate::acquire::lock_delay::{LockDelay, SeenMarks, obeying};
use crate::attempt::retry_acquire;
use crate::contender::node::{Contender, Front};
use crate::contender::order::{QueueTail, WaitQueue};
use crate::contender::queue_settings::QueueSettings;
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::guard::state::HolderState;
use crate::profile::{DIGITS, Kind};
use crate::telemetry::acquiring::{AcquireSpan, Acquiring};
use crate::token::FencingToken;

/// A handle to a queue: its settings, and what a contender of this process needs to enter it.
#[derive(Clone, Debug)]
pub(crate) struct QueueHandle {
    pub(crate) client: Client,
    pub(crate) settings: Arc<QueueSettings>,
    pub(crate) data: Bytes,
    delay: Option<(LockDelay, SeenMarks)>,
}

/// Whether an attempt waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Never,
    Forever,
}

impl QueueHandle {
    pub(crate) fn new(client: Client, settings: Arc<QueueSettings>, data: Bytes) -> Self {
        Self { client, settings, data, delay: None }
    }

    /// Makes contenders wait out lock delays.
    pub(crate) fn with_delay(mut self, delay: Option<LockDelay>) -> Self {
        if let Some(delay) = delay {
            self.data = obeying(&self.data);
            self.delay = Some((delay, SeenMarks::default()));
        }
        self
    }

    pub(crate) fn path(&self) -> &ZnodePath {
        &self.settings.path
    }

    /// The remaining time of the last lock delay seen.
    pub(crate) fn delay_left(&self) -> Option<Duration> {
        self.delay.as_ref().and_then(|(_, seen_marks)| seen_marks.left(self.client.now()))
    }

    pub(crate) async fn enter(&self, kind: Kind) -> Result<(Contender, WaitQueue), AcquireError> {
        self.enter_behind(None, kind).await
    }

    async fn enter_behind(
        &self,
        tail: Option<QueueTail>,
        kind: Kind,
    ) -> Result<(Contender, WaitQueue), AcquireError> {
        Contender::enter(&self.client, &self.settings, kind, &self.data, tail.as_ref()).await
    }

    /// Starts the telemetry of a call that acquires this lock.
    pub(crate) fn acquiring(&self, kind: Kind) -> Acquiring<'_> {
        Acquiring::new(&self.client, self.path(), kind)
    }

    /// Waits in the queue.
    pub(crate) async fn acquire(&self, kind: Kind) -> Result<Guard, AcquireError> {
        let acquiring = self.acquiring(kind);
        let call = pin!(async { Ok(self.acquire_behind(None, kind, acquiring.span()).await?.0) });
        acquiring.settle(call).await
    }

    /// Waits in the queue. `tail`: the end of the queue, if the last holder of the same handle knew it. Also
    /// returns the queue as it was at the grant.
    pub(crate) async fn acquire_behind(
        &self,
        tail: Option<QueueTail>,
        kind: Kind,
        span: &AcquireSpan,
    ) -> Result<(Guard, WaitQueue), AcquireError> {
        let (contender, mut queue) = self.enter_behind(tail, kind).await?;
        span.entered(&queue, &contender);
        let front = contender.wait_in(&mut queue).await?;
        let guard = self.grant(contender, front).await?;
        Ok((self.with_valid_token(guard, &queue).await?, queue))
    }

    /// Acquires the lock only if it is free.
    pub(crate) async fn try_acquire(&self, kind: Kind) -> Result<Option<Guard>, AcquireError> {
        let acquiring = self.acquiring(kind);
        let call = pin!(async {
            let taken = self.try_acquire_behind(None, kind, acquiring.span()).await?;
            Ok(taken.map(|(guard, _)| guard))
        });
        acquiring.settle(call).await
    }

    /// [`QueueHandle::acquire_behind`], but only if the lock is free.
    pub(crate) async fn try_acquire_behind(
        &self,
        tail: Option<QueueTail>,
        kind: Kind,
        span: &AcquireSpan,
    ) -> Result<Option<(Guard, WaitQueue)>, AcquireError> {
        let (contender, queue) = self.enter_behind(tail, kind).await?;
        span.entered(&queue, &contender);
        let Some(front) = contender.at_front(&queue)? else { return Ok(None) };
        let Some(guard) = self.try_grant(contender, front).await? else { return Ok(None) };
        Ok(Some((self.with_valid_token(guard, &queue).await?, queue)))
    }

    /// Acquires the lock as one part of a larger call, whose span is `span`.
    pub(crate) async fn take(
        &self,
        kind: Kind,
        wait: Wait,
        span: &AcquireSpan,
    ) -> Result<Option<Guard>, AcquireError> {
        let taken = match wait {
            Wait::Never => self.try_acquire_behind(None, kind, span).await?,
            Wait::Forever => Some(self.acquire_behind(None, kind, span).await?),
        };
        Ok(taken.map(|(guard, _)| guard))
    }

    /// Grants the lock to the contender at the front, after it has waited out any lock delay.
    pub(crate) async fn grant(
        &self,
        contender: Contender,
        front: Front,
    ) -> Result<Guard, AcquireError> {
        match &self.delay {
            Some((delay, seen_marks)) => delay.grant(seen_marks, contender, front).await,
            None => Guard::grant(contender, front).await,
        }
    }

    /// Like [`QueueHandle::grant`], but returns `None` if there is a lock delay to wait for.
    pub(crate) async fn try_grant(
        &self,
        contender: Contender,
        front: Front,
    ) -> Result<Option<Guard>, AcquireError> {
        match &self.delay {
            Some((delay, seen_marks)) => delay.try_grant(seen_marks, contender, front).await,
            None => Guard::grant(contender, front).await.map(Some),
        }
    }

    /// Mints a token if the creation of the holder's node is not a valid one. It always is where all contenders
    /// are of one kind, because then no contender overtakes another.
    async fn with_valid_token(
        &self,
        guard: Guard,
        queue: &WaitQueue,
    ) -> Result<Guard, AcquireError> {
        if self.settings.kinds.len() == 1 || queue.vouches_for(guard.token().zxid()) {
            return Ok(guard);
        }
        let minted = self.mint(guard.node()).await;
        match guard.state() {
            // The lock was lost while the reply was in flight, or before this task ran.
            HolderState::Lost(reason) => {
                Err(AcquireError::Lost { path: self.path().clone(), reason })
            }
            _ => Ok(guard.with_token(minted?)),
        }
    }

    /// Returns a token larger than all earlier ones: the transaction of a write to the holder's own node.
    async fn mint(&self, node: &ZnodePath) -> Result<FencingToken, AcquireError> {
        let (mut data, mut version) = (self.data.clone(), 0);
        loop {
            let failed = match self.client.set_data(node, data.clone(), Some(version)).await {
                Ok(stat) => return Ok(FencingToken::new(stat.mzxid)),
                // Another client has written to the node, perhaps a request to release the lock. Its data is kept.
                Err(error) if error.code() == Some(ErrorCode::BadVersion) => {
                    match self.client.data(node).await {
                        Ok((found, stat)) => {
                            (data, version) = (found, stat.version);
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };

            if failed.code() == Some(ErrorCode::NoNode) {
                return Err(AcquireError::NodeDeleted { node: node.clone() });
            }
            retry_acquire(self.path(), failed).await?;
        }
    }

    /// Replaces a holder's node with one of another kind and the same number, in one transaction with the
    /// steps that `more` adds. No client ever sees the queue without either node. Costs one round trip.
    pub(crate) async fn replace(
        &self,
        guard: &Guard,
        kind: Kind,
        more: impl Fn(Transaction) -> Transaction,
    ) -> Result<Contender, TransactionError> {
        let number = guard.node().name().len().saturating_sub(DIGITS);
        let number = guard.node().name().get(number..).unwrap_or_default();
        let name = self.settings.profile.new_prefix(kind, self.client.unique_id()) + number;
        let mut contender = Contender::reserve(&self.client, &self.settings, name, &self.data);
        contender.take_place(|create| more(create.delete(guard.node(), None))).await?;
        Ok(contender)
    }

    /// Why a holder could not be replaced.
    pub(crate) fn not_replaced(&self, guard: &Guard, error: TransactionError) -> AcquireError {
        match (guard.state(), error) {
            (HolderState::Lost(reason), _) => {
                AcquireError::Lost { path: self.path().clone(), reason }
            }
            (_, TransactionError::Request(error)) => AcquireError::from_client(self.path(), error),
            (_, TransactionError::Failed { code: ErrorCode::NoNode, .. }) => {
                AcquireError::NodeDeleted { node: guard.node().clone() }
            }
            (_, source) => AcquireError::Refused { path: self.path().clone(), source },
        }
    }
}

/// An acquire with a shorter time limit than this tries once. It is too short to wait in a queue, and could
/// end before a server has replied that the lock is free.
pub const TRIES_ONCE: Duration = Duration::from_millis(10);

/// The time limit of such a single try, which replaces the caller's.
pub const LONGEST_TRY: Duration = Duration::from_secs(1);

/// Limits the total time of an acquire. An outage does not end it early. A limit below [`TRIES_ONCE`] makes a
/// single try.
pub(crate) async fn within<T, F>(
    client: &Client,
    path: &ZnodePath,
    timeout: Duration,
    acquire: impl Fn() -> F,
    try_acquire: impl Future<Output = Result<Option<T>, AcquireError>>,
) -> Result<T, AcquireError>
where
    F: Future<Output = Result<T, AcquireError>>,
{
    if timeout < TRIES_ONCE {
        return tried_once(client, path, timeout, try_acquire).await;
    }
    once_within(client, path, timeout, over_outages(client, acquire)).await
}

/// Makes the single try of an acquire with a time limit below [`TRIES_ONCE`].
pub(crate) async fn tried_once<T>(
    client: &Client,
    path: &ZnodePath,
    timeout: Duration,
    try_acquire: impl Future<Output = Result<Option<T>, AcquireError>>,
) -> Result<T, AcquireError> {
    let late = || AcquireError::timeout(client, path, timeout);
    match tokio::time::timeout(LONGEST_TRY, try_acquire).await {
        Ok(tried) => tried?.ok_or_else(late),
        Err(_) => Err(late()),
    }
}

/// Limits the time of an attempt that cannot be repeated.
pub(crate) async fn once_within<T>(
    client: &Client,
    path: &ZnodePath,
    timeout: Duration,
    acquiring: impl Future<Output = Result<T, AcquireError>>,
) -> Result<T, AcquireError> {
    let result = tokio::time::timeout(timeout, acquiring).await;
    result.unwrap_or_else(|_| Err(AcquireError::timeout(client, path, timeout)))
}

/// Repeats an attempt that an outage has ended, as soon as a server can be reached. For callers that have a time limit
/// of their own.
pub(crate) async fn over_outages<T, F>(
    client: &Client,
    acquire: impl Fn() -> F,
) -> Result<T, AcquireError>
where
    F: Future<Output = Result<T, AcquireError>>,
{
    loop {
        match acquire().await {
            Err(error) if error.passes() => {
                reachable(client).await;
                pause().await;
            }
            settled => return settled,
        }
    }
}
