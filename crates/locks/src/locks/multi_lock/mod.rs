//! Several locks as one: all of them or none. `enter` and `attempt` create the znodes of all remaining locks
//! in one transaction; `guard.rs` contains the guard.

mod guard;

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper_client::{
    Client, CreateMode, Created, Error, ErrorCode, OpResult, Outcome, SessionId, Stat,
    TransactionError, ZnodePath, Zxid,
};

use crate::acquire::lock_delay::LockDelay;
use crate::acquire::lock_options::{LockOptions, lock_options};
use crate::acquire::queue_handle::{QueueHandle, TRIES_ONCE, over_outages, tried_once};
use crate::attempt::{Attempt, retried};
use crate::contender::node::Contender;
use crate::contender::order::WaitQueue;
use crate::error::{AcquireError, BuildError};
use crate::locks::multi_lock::guard::Acquired;
use crate::profile::Kind;
use crate::telemetry::acquiring::Acquiring;
use crate::telemetry::metric_kind::MetricKind;

pub use crate::locks::multi_lock::guard::MultiGuard;

/// Several exclusive locks that are held together or not at all.
///
/// Do not use it to split a lock without need: one lock for everything that belongs together is
/// cheaper, and it is fair. Cheap to clone.
///
/// # Guarantees
///
/// - Programs do not deadlock if they take several locks with this type, or one by one in the order
///   of their paths.
/// - If one lock cannot be acquired, no other lock stays held.
/// - Each lock has a fencing token of its own.
///
/// # Not guaranteed
///
/// The order of arrival is not kept: while a handle waits for one lock, it is not in any other queue,
/// and holds only the locks with earlier paths.
///
/// A place in a queue blocks others, so it has the effect of a hold. Entering all queues at once is safe
/// only if all locks are free: a contender that kept its place in a later queue while it waits in
/// an earlier one could deadlock with a program that acquired the earlier lock first. So a handle immediately
/// gives up its places after the first lock that is not free, and enters these queues again when
/// it holds that lock.
///
/// # Znodes
///
/// Those of [`Mutex`](crate::Mutex), in each path.
///
/// # Cost
///
/// - An acquire costs 1 round trip if all locks are free.
/// - Each lock that it has to wait for costs 1 round trip to watch, 1 event, and 1 round trip to
///   enter the remaining queues.
/// - A release costs 1 round trip.
/// - [`obey_lock_delay`](MultiLockBuilder::obey_lock_delay) costs 1 round trip more for each lock.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use std::time::Duration;
/// use lockkeeper::MultiLock;
///
/// let both = MultiLock::new(&client, ["/accounts/bob", "/accounts/alice"])?;
/// let guard = both.acquire_timeout(Duration::from_secs(5)).await?;
/// for (path, token) in guard.tokens() {
///     println!("{path}: {token}");
/// }
/// guard.release().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MultiLock {
    client: Client,
    /// In the order in which the handle waits for them, which is the order of the paths.
    locks: Vec<QueueHandle>,
}

/// Shows the paths.
impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MultiLock({})", Paths(&self.locks))
    }
}

/// The paths of several locks, for display.
struct Paths<'a>(&'a [QueueHandle]);

impl fmt::Display for Paths<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.0.iter().map(|lock| lock.path().as_str()).collect();
        f.write_str(&paths.join(", "))
    }
}

/// The options of a [`MultiLock`], which apply to each of its locks.
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct MultiLockBuilder {
    options: LockOptions,
    paths: Vec<String>,
    delay: Option<LockDelay>,
}

lock_options!(MultiLockBuilder: profile, acl, label, user, why);

impl MultiLockBuilder {
    /// Waits out the [lock delay](crate::MutexBuilder::lock_delay) of a vanished holder of another program,
    /// at each of the locks, and sets none. The other locks stay held during that time. Costs one more round
    /// trip for each lock at each grant. Off by default.
    pub fn obey_lock_delay(mut self) -> Self {
        self.delay = Some(LockDelay::Obeyed);
        self
    }

    /// Builds the lock. No I/O.
    ///
    /// # Errors
    /// If there is no path, a path occurs twice, or a path is not valid for a lock.
    pub fn build(self) -> Result<MultiLock, BuildError> {
        let mut locks = Vec::new();
        for path in &self.paths {
            let lock = self.options.clone().queue_handle(path, &[Kind::Exclusive])?;
            locks.push(lock.with_delay(self.delay));
        }
        locks.sort_by(|a, b| a.path().cmp(b.path()));

        if let Some(twice) = locks.windows(2).find(|pair| pair[0].path() == pair[1].path()) {
            return Err(BuildError::Repeated(twice[0].path().clone()));
        }
        if locks.is_empty() {
            return Err(BuildError::None);
        }
        Ok(MultiLock { client: self.options.client, locks })
    }
}

impl MultiLock {
    /// The locks at these paths, each named as [`Mutex::new`](crate::Mutex::new) names one. No I/O.
    ///
    /// # Errors
    /// If there is no path, a path occurs twice, or a path is not valid for a lock.
    pub fn new<'a>(
        client: &Client,
        paths: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, BuildError> {
        Self::builder(client, paths).build()
    }

    /// The options of a lock.
    pub fn builder<'a>(
        client: &Client,
        paths: impl IntoIterator<Item = &'a str>,
    ) -> MultiLockBuilder {
        let paths = paths.into_iter().map(str::to_owned).collect();
        MultiLockBuilder { options: LockOptions::new(client), paths, delay: None }
    }

    /// The paths, in the order in which the handle waits for them.
    pub fn paths(&self) -> impl Iterator<Item = &ZnodePath> {
        self.locks.iter().map(QueueHandle::path)
    }

    /// The longest remaining [lock delay](MultiLockBuilder::obey_lock_delay) that an earlier attempt by this
    /// handle or a clone found; `None` if there was none, or all are over. Makes no request, so another program
    /// may have held the lock since.
    pub fn lock_delay_left(&self) -> Option<Duration> {
        self.locks.iter().filter_map(QueueHandle::delay_left).max()
    }

    /// Waits until all locks are held. Costs one round trip if all are free, and [more](MultiLock#cost)
    /// for each lock that is not.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire), for any of them, and [`AcquireError::Lost`] if one is
    /// lost before all are held. In that case none is held.
    ///
    /// # Session loss
    /// Fails with [`AcquireError::SessionExpired`], unless no queue has been entered yet.
    ///
    /// # Cancel safety
    /// Dropping the future gives up all places. Their nodes are deleted in the background.
    pub async fn acquire(&self) -> Result<MultiGuard, AcquireError> {
        self.acquire_all(&AtomicUsize::new(0)).await
    }

    /// [`MultiLock::acquire`] with a time limit: `timeout` covers the whole call. A limit below 10 ms makes a single
    /// try, like [`Mutex::acquire_timeout`](crate::Mutex::acquire_timeout). Costs the same as
    /// [`MultiLock::acquire`].
    ///
    /// # Errors
    /// Same as [`MultiLock::acquire`], and [`AcquireError::Timeout`], which names the lock that was
    /// waited for.
    ///
    /// # Session loss
    /// Same as [`MultiLock::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`MultiLock::acquire`].
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<MultiGuard, AcquireError> {
        if timeout < TRIES_ONCE {
            let path = self.locks[0].path();
            return tried_once(&self.client, path, timeout, self.try_acquire()).await;
        }
        let waiting_for = AtomicUsize::new(0);
        let acquiring = over_outages(&self.client, || self.acquire_all(&waiting_for));
        let result = tokio::time::timeout(timeout, acquiring).await;
        result.unwrap_or_else(|_| {
            let path = self.locks[waiting_for.into_inner()].path();
            Err(AcquireError::timeout(&self.client, path, timeout))
        })
    }

    /// Acquires the locks only if no contender holds or waits for any of them. Returns `None` otherwise, or while a
    /// [lock delay](MultiLockBuilder::obey_lock_delay) has not passed. Costs one round trip.
    ///
    /// # Errors
    /// Same as [`MultiLock::acquire`], except the errors of waiting.
    ///
    /// # Session loss
    /// Same as [`MultiLock::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`MultiLock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, AcquireError> {
        let paths = Paths(&self.locks);
        self.acquiring(&paths).settle(pin!(self.take())).await
    }

    async fn take(&self) -> Result<Option<MultiGuard>, AcquireError> {
        let mut acquired = Acquired::new();
        let waiting = self.enter(&mut acquired).await?;
        match waiting {
            Some(_) => Ok(None),
            None => self.try_grant(acquired).await,
        }
    }

    async fn acquire_all(&self, waiting_for: &AtomicUsize) -> Result<MultiGuard, AcquireError> {
        let paths = Paths(&self.locks);
        self.acquiring(&paths).settle(pin!(self.wait(waiting_for))).await
    }

    fn acquiring<'a>(&'a self, paths: &'a Paths<'a>) -> Acquiring<'a> {
        Acquiring::several(&self.client, self.locks[0].path(), paths, MetricKind::Several)
    }

    async fn wait(&self, waiting_for: &AtomicUsize) -> Result<MultiGuard, AcquireError> {
        let mut acquired = Acquired::new();
        // Repeated after a wait, even if no queue is left to enter: it also shows that the locks acquired
        // before are still held.
        while let Some((contender, mut queue)) = self.enter(&mut acquired).await? {
            waiting_for.store(acquired.len(), Ordering::Relaxed);
            let front = contender.wait_in(&mut queue).await?;
            acquired.push((contender, front));
        }
        for lock in &self.locks {
            lock.settings.warned.look(&self.client, lock.path()).await;
        }
        self.grant(acquired).await
    }

    async fn grant(&self, acquired: Acquired) -> Result<MultiGuard, AcquireError> {
        let mut guards = Vec::with_capacity(acquired.len());
        for ((contender, front), lock) in acquired.into_iter().zip(&self.locks) {
            guards.push(lock.grant(contender, front).await?);
        }
        MultiGuard::of(guards)
    }

    /// Like [`MultiLock::grant`], but returns `None` if there is a lock delay to wait for.
    async fn try_grant(&self, acquired: Acquired) -> Result<Option<MultiGuard>, AcquireError> {
        let mut guards = Vec::with_capacity(acquired.len());
        for ((contender, front), lock) in acquired.into_iter().zip(&self.locks) {
            let Some(guard) = lock.try_grant(contender, front).await? else { return Ok(None) };
            guards.push(guard);
        }
        MultiGuard::of(guards).map(Some)
    }

    /// Enters all remaining queues, and gives up the places after the first lock that is not free.
    /// Returns the contender for that lock.
    async fn enter(
        &self,
        acquired: &mut Acquired,
    ) -> Result<Option<(Contender, WaitQueue)>, AcquireError> {
        let next = self.locks[acquired.len().min(self.locks.len() - 1)].path();
        let entered = retried(next, || self.attempt(acquired)).await?;
        for (contender, queue) in entered {
            match contender.at_front(&queue)? {
                Some(front) => acquired.push((contender, front)),
                None => return Ok(Some((contender, queue))),
            }
        }
        Ok(None)
    }

    /// Creates all remaining nodes in one transaction, which also checks the nodes of acquired locks,
    /// and lists their queues. Costs one round trip.
    async fn attempt(&self, acquired: &Acquired) -> Result<Vec<(Contender, WaitQueue)>, Attempt> {
        let locks = &self.locks[acquired.len()..];
        let enter = |lock: &QueueHandle| {
            Contender::new(&self.client, &lock.settings, Kind::Exclusive, &lock.data)
        };
        // The contenders exist before the request is sent, so that all nodes that it creates are deleted.
        let mut contenders: Vec<_> = locks.iter().map(enter).collect();

        let mut transaction = self.client.transaction();
        for node in acquired.iter().filter_map(|(contender, _)| contender.node()) {
            transaction = transaction.check(&node.path, None);
        }
        for (contender, lock) in contenders.iter().zip(locks) {
            let (path, mode) = (contender.new_node(), CreateMode::EphemeralSequential);
            transaction = transaction.create(&path, lock.data.clone(), mode);
        }

        let queues = async {
            let asked: Vec<_> =
                locks.iter().map(|lock| self.client.children(lock.path())).collect();
            let mut queues = Vec::with_capacity(asked.len());
            for reply in asked {
                queues.push(reply.await);
            }
            queues
        };

        let session = self.client.session_id();
        // The transaction is sent first. The server processes requests in order, so the listings show its nodes.
        let (made, queues) = tokio::join!(biased; transaction.commit_numbered(), queues);

        let (made, zxid) = match made {
            Ok(made) => made,
            Err(error) => return Err(self.refused(acquired, &mut contenders, error).await),
        };
        // The reply does not show which session the nodes belong to. If the session has changed, they may belong
        // to the old one.
        if self.client.session_id() != session {
            return Err(Attempt::Again);
        }

        let created = |result| created(result, zxid, session);
        let nodes = made.into_iter().skip(acquired.len()).filter_map(created);
        let mut entered = Vec::with_capacity(locks.len());
        for ((contender, node), queue) in contenders.into_iter().zip(nodes).zip(queues) {
            let listing = queue
                .map_err(|error| Attempt::at_listing(error, |error| self.lost(acquired, error)))?;
            entered.push(contender.placed(node, listing).await?);
        }

        // A reply with too few nodes is not reliable.
        if entered.len() == locks.len() { Ok(entered) } else { Err(Attempt::Again) }
    }

    /// Decides what to do when the transaction was refused, or its reply is lost.
    async fn refused(
        &self,
        acquired: &Acquired,
        contenders: &mut [Contender],
        error: TransactionError,
    ) -> Attempt {
        let source = match error {
            TransactionError::Request(error) => {
                if error.outcome() == Outcome::NotApplied || error.is_session_expired() {
                    contenders.iter_mut().for_each(Contender::disarm);
                }
                return self.lost(acquired, error);
            }
            failed => failed,
        };

        // It was refused as a whole, so there is no node to delete.
        contenders.iter_mut().for_each(Contender::disarm);
        let TransactionError::Failed { index, code, .. } = source else { return Attempt::Again };

        match (acquired.get(index), code) {
            (Some((contender, _)), ErrorCode::NoNode) => Attempt::Failed(contender.deleted()),
            (None, ErrorCode::NoNode) => match self.make_parents(acquired.len()).await {
                Ok(()) => Attempt::Prepared,
                Err(error) => self.lost(acquired, error),
            },
            _ => {
                let path = self.locks[index.min(self.locks.len() - 1)].path().clone();
                Attempt::Failed(AcquireError::Refused { path, source })
            }
        }
    }

    async fn make_parents(&self, acquired: usize) -> Result<(), Error> {
        for lock in &self.locks[acquired..] {
            self.client.ensure(lock.path(), lock.settings.profile.parents()).await?;
        }
        Ok(())
    }

    /// Classifies a request without a reply. The end of the session is transient only if no lock has been
    /// acquired yet.
    fn lost(&self, acquired: &Acquired, error: Error) -> Attempt {
        match acquired.first() {
            Some((contender, _)) if error.is_session_expired() => {
                Attempt::Failed(contender.session_ended())
            }
            _ => Attempt::at_entry(
                self.locks[acquired.len().min(self.locks.len() - 1)].path(),
                error,
            ),
        }
    }
}

/// The node that a create in a transaction has created. Apache ZooKeeper's reply lacks the stat; this fills in
/// the fields that matter.
fn created(result: OpResult, zxid: Zxid, session: SessionId) -> Option<Created> {
    let (OpResult::Create { path } | OpResult::Create2 { path, .. }) = result else { return None };
    Some(Created { path: ZnodePath::new(&path).ok()?, stat: Stat::of_new(zxid, session) })
}
