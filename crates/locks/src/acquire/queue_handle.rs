//! The way into a queue, which every lock takes that has one.

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
use crate::guard::state::State;
use crate::profile::{DIGITS, Kind};
use crate::telemetry::acquiring::{AcquireSpan, Acquiring};
use crate::token::FencingToken;

/// A queue, and what the contenders of this program need to enter it.
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

    /// The same queue, whose contenders wait out lock delays.
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

    /// What is left of the lock delay that was last seen.
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

    /// A call for a lock of this queue begins.
    pub(crate) fn acquiring(&self, kind: Kind) -> Acquiring<'_> {
        Acquiring::new(&self.client, self.path(), kind)
    }

    /// Waits in the queue.
    pub(crate) async fn acquire(&self, kind: Kind) -> Result<Guard, AcquireError> {
        let acquiring = self.acquiring(kind);
        let call = pin!(async { Ok(self.acquire_behind(None, kind, acquiring.span()).await?.0) });
        acquiring.settle(call).await
    }

    /// Waits in the queue, whose end may be known from the last holder of the same handle. Also returns the
    /// queue as it was at the grant.
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

    /// Takes the lock only if that needs no waiting.
    pub(crate) async fn try_acquire(&self, kind: Kind) -> Result<Option<Guard>, AcquireError> {
        let acquiring = self.acquiring(kind);
        let call = pin!(async {
            let taken = self.try_acquire_behind(None, kind, acquiring.span()).await?;
            Ok(taken.map(|(guard, _)| guard))
        });
        acquiring.settle(call).await
    }

    /// [`QueueHandle::acquire_behind`], only if that needs no waiting.
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

    /// The same with that patience, as a part of a call for something else.
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

    /// Grants the lock to a contender at the front, after the lock delay that it has to wait out.
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

    /// The same, unless there is a lock delay to wait for.
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

    /// Mints a token if the creation of the holder's node is none. Where all contenders are of one kind, no
    /// contender overtakes another, and it always is one.
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
            // It was lost while the answer was on its way, or before this task ran.
            State::Lost(reason) => Err(AcquireError::Lost { path: self.path().clone(), reason }),
            _ => Ok(guard.with_token(minted?)),
        }
    }

    /// A token that is larger than all before it: the transaction of a write to the own node.
    async fn mint(&self, node: &ZnodePath) -> Result<FencingToken, AcquireError> {
        let (mut data, mut version) = (self.data.clone(), 0);
        loop {
            let failed = match self.client.set_data(node, data.clone(), Some(version)).await {
                Ok(stat) => return Ok(FencingToken::new(stat.mzxid)),
                // Another client's data stays: it may ask the holder to give way.
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

    /// Replaces a holder's node by one of another kind at the same number, in one transaction with the
    /// steps that `more` adds. So no client ever sees the place empty. Costs one round trip.
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
            (State::Lost(reason), _) => AcquireError::Lost { path: self.path().clone(), reason },
            (_, TransactionError::Request(error)) => AcquireError::from_client(self.path(), error),
            (_, TransactionError::Failed { code: ErrorCode::NoNode, .. }) => {
                AcquireError::NodeDeleted { node: guard.node().clone() }
            }
            (_, source) => AcquireError::Refused { path: self.path().clone(), source },
        }
    }
}

/// A time limit below which an acquire tries once: a queue that is waited in for less may as well not be entered,
/// and the limit could end before a server has said that the lock is free.
pub const TRIES_ONCE: Duration = Duration::from_millis(10);

/// How long such a try may take, as its limit says nothing about that.
pub const LONGEST_TRY: Duration = Duration::from_secs(1);

/// Bounds the whole time that an acquire takes, and uses all of it; with hardly any, tries once.
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

/// Tries once, for an acquire with such a limit.
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

/// Bounds the time of one attempt, which cannot be made again.
pub(crate) async fn once_within<T>(
    client: &Client,
    path: &ZnodePath,
    timeout: Duration,
    acquiring: impl Future<Output = Result<T, AcquireError>>,
) -> Result<T, AcquireError> {
    let result = tokio::time::timeout(timeout, acquiring).await;
    result.unwrap_or_else(|_| Err(AcquireError::timeout(client, path, timeout)))
}

/// Makes an attempt that an outage has ended again when servers can be reached, for callers whose own limit
/// ends it.
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
