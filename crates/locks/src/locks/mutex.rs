//! A fair lock for one holder at a time. The files of the other locks have the same order: the type with its
//! outline, its options, its methods, its guard.

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{Client, ZnodePath};

use crate::acquire::local::{LocalHold, LocalQueue, SharedHold, Sharing};
use crate::acquire::lock_delay::LockDelay;
use crate::acquire::lock_options::{LockOptions, lock_options};
use crate::acquire::queue_handle::{QueueHandle, within};
use crate::attempt::unless_closed;
use crate::contender::order::QueueTail;
use crate::error::{AcquireError, BuildError, ReleaseError};
use crate::guard::offers_guard;
use crate::profile::Kind;
use crate::telemetry::acquiring::AcquireSpan;

/// A fair lock for one holder at a time, among all programs that use the same path.
///
/// Do not use it where a database transaction is enough, or within a single process: it costs
/// round trips to a server. Cheap to clone; clones are the same lock and share a queue in this
/// process. Two locks built for one path exclude each other as two programs do. A guard keeps its
/// turn in the local queue until it is released or dropped, even after the lock is lost,
/// because the work under it may still be running. If the client is closed, the waiting tasks get
/// [`AcquireError::ClientClosed`].
///
/// # Guarantees
///
/// - Contenders get the lock in the order in which they arrive in the queue on the server. The
///   tasks of one handle wait in a local queue, and only the first of them has a contender on the
///   server.
/// - A release wakes one contender.
/// - No contender leaves a znode behind.
///
/// # Not guaranteed
///
/// - Exclusion does not hold for a holder that checks neither deadline nor token; see
///   `docs/guarantees.md`.
/// - The lock is not reentrant: a task that acquires a lock that it already holds waits for itself. Use a
///   [`ReentrantMutex`](crate::ReentrantMutex) for that.
///
/// # Znodes
///
/// A contender is `<path>/_c_<uuid>-lock-N`, ephemeral and sequential, as in Curator's
/// `InterProcessMutex`; its data is [`OwnerInfo`](crate::OwnerInfo). `<path>` is a container node.
/// Other [profiles](MutexBuilder::profile) use other names.
///
/// # Cost
///
/// - An acquire costs 1 round trip; behind others, 1 more and 1 event.
/// - A release costs 1 round trip. If it is not awaited, it costs no waiting time.
/// - Both are free when [`linger`](MutexBuilder::linger) keeps the znode, or
///   [`cohort`](MutexBuilder::cohort) hands it on.
/// - A release that is not awaited and the next acquire together cost 1 round trip, or 2 if another
///   contender arrives in between.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use std::time::Duration;
/// use lockkeeper::Mutex;
///
/// let lock = Mutex::new(&client, "/locks/orders")?;
/// let guard = lock.acquire_timeout(Duration::from_secs(5)).await?;
/// let done = guard.run(async { /* only while the lock is held */ 42 }).await?;
/// assert!(lock.try_acquire().await?.is_none(), "it is held");
/// guard.release().await?;
/// # assert_eq!(done, 42);
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mutex {
    queue_handle: QueueHandle,
    local: Arc<LocalQueue>,
}

lockkeeper_client::shown_by_path!(Mutex);

/// The options of a [`Mutex`] or of a [`ReentrantMutex`](crate::ReentrantMutex). For the latter, an owner with all its
/// entries counts as one holder.
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct MutexBuilder<L = Mutex> {
    options: LockOptions,
    path: String,
    sharing: Sharing,
    delay: Option<LockDelay>,
    of: PhantomData<fn() -> L>,
}

lock_options!(MutexBuilder<L>: profile, acl, label, user, why);

impl<L> MutexBuilder<L> {
    pub(crate) fn new(client: &Client, path: &str) -> Self {
        let (options, path, of) = (LockOptions::new(client), path.to_owned(), PhantomData);
        Self { options, path, sharing: Sharing::default(), delay: None, of }
    }

    lockkeeper_client::setters! {
        /// Keeps the node of a released lock until it has been idle for `period`, or another contender
        /// enters the queue. Until then this process can acquire the lock again without a round trip.
        /// Another contender waits for one more round trip and one more event. Off by default.
        pub fn linger(self, period: Duration) => self.sharing.linger = Some(period);

        /// Hands one node to up to `holders` tasks of this process in a row, the last of them within
        /// `time`. Without it, each task enters the queue on the server at its end. Contenders of other
        /// processes wait longer by at most `time` plus the hold of the last task. With 0 or 1 holders
        /// the node is not handed on. Off by default.
        pub fn cohort(self, holders: u32, time: Duration) =>
            self.sharing.cohort = Some((holders, time));

        /// Makes the next holder wait for `delay` if this one vanishes without a release, for example because
        /// the program dies. For resources that cannot check fencing tokens. All programs that use the lock must
        /// set a delay, of any length, or [obey](MutexBuilder::obey_lock_delay) the delays of others. Costs one
        /// more round trip at each grant, and an additional node, `<path>-__delay__`. Off by default.
        pub fn lock_delay(self, delay: Duration) => self.delay = Some(LockDelay::Kept(delay));

        /// Waits out the [lock delay](MutexBuilder::lock_delay) of a vanished holder of another program,
        /// and sets none. A lock without this option and without a delay of its own ignores lock delays, because
        /// checking for them costs a round trip at each grant. Costs one more round trip at each grant.
        /// Not needed together with [`lock_delay`](MutexBuilder::lock_delay), which also obeys the delays of
        /// others. Off by default.
        pub fn obey_lock_delay(self) => self.delay = self.delay.or(Some(LockDelay::Obeyed));
    }

    pub(crate) fn mutex(self) -> Result<Mutex, BuildError> {
        let queue_handle = self.options.queue_handle(&self.path, &[Kind::Exclusive])?;
        Ok(Mutex::queued(queue_handle.with_delay(self.delay), self.sharing))
    }
}

impl MutexBuilder {
    /// Builds the lock. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a lock.
    pub fn build(self) -> Result<Mutex, BuildError> {
        self.mutex()
    }
}

impl Mutex {
    /// The lock at a path such as `/locks/orders`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a lock.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The options of a lock.
    pub fn builder(client: &Client, path: &str) -> MutexBuilder {
        MutexBuilder::new(client, path)
    }

    /// A lock with this queue. Elections are built on such a lock.
    pub(crate) fn queued(queue_handle: QueueHandle, sharing: Sharing) -> Self {
        Self { queue_handle, local: LocalQueue::new(sharing) }
    }

    /// The lock's path.
    pub fn path(&self) -> &ZnodePath {
        self.queue_handle.path()
    }

    /// The remaining [lock delay](MutexBuilder::lock_delay) that an earlier attempt by this
    /// handle or a clone found; `None` if there was none, or it is over. Makes no request, so another program
    /// may have held the lock since.
    pub fn lock_delay_left(&self) -> Option<Duration> {
        self.queue_handle.delay_left()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.queue_handle.client
    }

    /// Whether there is another clone of this handle, a guard, or a waiting task.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.local) > 1
    }

    /// Waits in the queue for the lock. Costs one round trip if the lock is free; behind others, one more
    /// and an event. Options [change this](Mutex#cost). After this program or the servers were suspended, the
    /// grant also waits for a proof that the lock is held: one or two round trips, half a tick apart.
    ///
    /// # Errors
    /// An [`AcquireError`]: the contender is lost (`SessionExpired`,
    /// `NodeDeleted`), no server could be reached for a session timeout (`Unreachable`), the client is closed
    /// (`ClientClosed`), the order of the queue is unknown or unreliable (`Foreign`, `NotEphemeral`,
    /// `Exhausted`), replies take too long for a lease (`LeaseTooShort`), a request is refused (`Client`,
    /// `Refused`), or several attempts fail in a row (`GaveUp`).
    ///
    /// # Session loss
    /// Ends the wait in the queue with [`AcquireError::SessionExpired`]. An attempt without a node
    /// starts again in the next session.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue. The node is deleted in the background.
    pub async fn acquire(&self) -> Result<MutexGuard, AcquireError> {
        let acquiring = self.queue_handle.acquiring(self.kind());
        acquiring.settle(pin!(self.wait(acquiring.span()))).await
    }

    async fn wait(&self, span: &AcquireSpan) -> Result<MutexGuard, AcquireError> {
        let turn = unless_closed(self.client(), self.path(), self.local.turn()).await?;
        let mut turn = match turn.take_cached() {
            Ok(hold) => return Ok(MutexGuard(hold)),
            Err(turn) => turn,
        };
        let (guard, queue) =
            self.queue_handle.acquire_behind(turn.take_tail(), self.kind(), span).await?;
        Ok(MutexGuard(turn.hold(guard, &queue)))
    }

    /// [`Mutex::acquire`] with a time limit: `timeout` covers the whole call. While no server can be
    /// reached, it waits for one until the time is over, and enters the queue again if the outage takes longer
    /// than a session timeout. A limit below 10 ms makes a single try, like [`Mutex::try_acquire`], of up to a
    /// second: a free lock is acquired however short the timeout is. Costs the same as [`Mutex::acquire`].
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`], except `Unreachable` and `GaveUp`; and [`AcquireError::Timeout`].
    ///
    /// # Session loss
    /// Same as [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`Mutex::acquire`].
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<MutexGuard, AcquireError> {
        within(self.client(), self.path(), timeout, || self.acquire(), self.try_acquire()).await
    }

    /// Acquires the lock only if no contender holds it or waits for it. Returns `None` otherwise, or
    /// while a [lock delay](MutexBuilder::lock_delay) has not passed. Waits for servers and for the proof of the
    /// grant like [`Mutex::acquire`], but not for other contenders. Costs the same as that for a free lock. Makes no
    /// request while another task holds the lock or waits for it through this handle or a
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`], except the errors of waiting.
    ///
    /// # Session loss
    /// Same as [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`Mutex::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<MutexGuard>, AcquireError> {
        let acquiring = self.queue_handle.acquiring(self.kind());
        acquiring.settle(pin!(self.take(acquiring.span()))).await
    }

    async fn take(&self, span: &AcquireSpan) -> Result<Option<MutexGuard>, AcquireError> {
        let Some(turn) = self.local.try_turn() else {
            return AcquireError::unless_closed(self.client(), self.path());
        };
        let mut turn = match turn.take_cached() {
            Ok(hold) => return Ok(Some(MutexGuard(hold))),
            Err(turn) => turn,
        };

        // The remembered queue may be stale, and a contender that has left since would count as waiting.
        let tail = turn.take_tail().filter(QueueTail::is_whole_queue);
        let taken = self.queue_handle.try_acquire_behind(tail, self.kind(), span).await?;
        Ok(taken.map(|(guard, queue)| MutexGuard(turn.hold(guard, &queue))))
    }

    /// The kind of all contenders in the queue of a mutex.
    fn kind(&self) -> Kind {
        self.queue_handle.settings.kinds.first().copied().unwrap_or(Kind::Exclusive)
    }
}

/// A held [`Mutex`]. See [`Guard`](crate::Guard) for what a holder may rely on.
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard(LocalHold);

impl MutexGuard {
    /// Leaves the guard to its sharers, and returns the value that releases the lock.
    pub(crate) fn share(&mut self) -> Option<SharedHold> {
        self.0.share()
    }

    /// Releases the lock, and waits until a server has confirmed it; see
    /// [`Guard::release`](crate::Guard::release). Costs one round trip. Makes no request if `linger` or `cohort`
    /// keeps the node.
    ///
    /// # Errors
    /// Same as [`Guard::release`](crate::Guard::release).
    ///
    /// # Session loss
    /// Same as [`Guard::release`](crate::Guard::release).
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        match self.0.give_back() {
            Some(releasing) => releasing.confirmed().await,
            None => Ok(()),
        }
    }
}

offers_guard!(MutexGuard, self => self.0.guard());
