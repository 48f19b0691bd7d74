//! Leader election: one program at a time leads, and observers see which one it is.
//!
//! ```text
//!   mod        Election: campaigning; Leadership: a guard that can proclaim a value
//!   leaders    Leaders: observes the leader
//!   layout     the names of candidates, which allow Curator and kazoo programs to take part
//!   record     the record of the value that a leader proclaims
//!   term       Term: a leadership that the work of `lead` shares
//! ```

mod layout;
mod leaders;
mod record;
mod term;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{self, Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::retry::{TooLong, Unanswered, retry_pause};
use lockkeeper_client::{Client, CreateMode, ErrorCode, OpResult, TransactionError, ZnodePath};
use tokio::sync::oneshot;

use crate::acquire::local::Sharing;
use crate::acquire::queue_handle::QueueHandle;
use crate::error::{
    AcquireError, BuildError, LossReason, ObserveError, ProclaimError, ReleaseError,
};
use crate::guard::offers_guard;
use crate::guard::state::HolderState;
use crate::locks::{Mutex, MutexGuard};
use crate::owner_info::OwnerInfo;

pub use layout::ElectionLayout;
pub use leaders::{Leader, Leaders};
use record::{LeaderRecord, record_path};
use term::Term;

/// The shortest pause of [`Election::lead`] before it campaigns again. The pause is random, and up to twice as long.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// An election: candidates wait in a queue, and the first one leads.
///
/// Cheap to clone. The candidates of one handle and its clones wait in a local queue; only the first of
/// them is a candidate on the server.
///
/// # Guarantees
///
/// - There is one leader at a time, by lease and by token. Leadership survives a lost
///   connection until the exact deadline, and its loss is reported before another candidate can
///   lead.
/// - Candidates lead in order of arrival.
/// - A deposed leader cannot proclaim a value.
/// - An observer never sees an older leader after a newer one.
///
/// # Not guaranteed
///
/// Exclusion does not hold for a leader that checks neither deadline nor token; see
/// `docs/guarantees.md`.
///
/// # Znodes
///
/// - A candidate is `<path>/_c_<uuid>-latch-N`, ephemeral and sequential, as in Curator's
///   `LeaderLatch`; its data is the candidate's [id](ElectionBuilder::id). `<path>` is a container
///   node. A [layout](ElectionBuilder::layout) other than the default one has other names.
/// - `<path>-__leader__` exists from the first proclamation on, and is persistent. It holds the
///   value, and the node of the leader that proclaimed it.
///
/// # Cost
///
/// - A campaign costs 1 round trip; behind others, 1 more and 1 event.
/// - Resigning costs 1 round trip.
/// - A proclamation costs 1 write, and 1 read before the first one of a leadership.
/// - Observing costs 3 round trips to begin, and 1 more for each of `<path>` and `<path>-__leader__`
///   that does not exist yet. A new leader costs 1 event and 1 round trip, however
///   many candidates there are. A new value costs 1 event and 1 round trip.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::Election;
///
/// let election = Election::builder(&client, "/election/scheduler").id("node-7").build()?;
/// let leadership = election.campaign().await?;
/// leadership.proclaim("10.0.0.7:4000").await?;
///
/// let leaders = election.observe().await?;
/// let leader = leaders.current().ok_or("no leader")?;
/// assert_eq!((leader.id.as_str(), leader.value.as_deref()), ("node-7", Some("10.0.0.7:4000")));
/// leadership.resign().await?;
/// # drop(leaders);
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "LeaderLatch")]
#[doc(alias = "LeaderSelector")]
#[doc(alias = "LeaderElection")]
#[derive(Clone)]
pub struct Election {
    lock: Mutex,
    layout: ElectionLayout,
    record: ZnodePath,
    id: String,
    grace: Duration,
    rides_out: Option<Duration>,
}

lockkeeper_client::shown_by_path!(Election);

/// The options of an [`Election`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct ElectionBuilder {
    client: Client,
    path: String,
    layout: ElectionLayout,
    id: Option<String>,
    grace: Duration,
    rides_out: Option<Duration>,
}

impl ElectionBuilder {
    lockkeeper_client::setters! {
        /// The id of the candidate, for observers to read. It does not affect the election. Default: program,
        /// process and host.
        pub fn id(self, id: impl Into<String>) => self.id = Some(id.into());

        /// How candidates are named. All candidates of one election must use the same layout. Default:
        /// [`ElectionLayout::CuratorLatch`].
        pub fn layout(self, layout: ElectionLayout) => self.layout = layout;

        /// How long [`Election::lead`] waits, as the leader, before it starts the work. It is for resources that
        /// cannot check tokens: requests of a vanished leader that are still in flight arrive before the work
        /// starts. Default: zero.
        pub fn grace(self, grace: Duration) => self.grace = grace;

        /// Makes [`Election::lead`] run the work like [`Guard::run_through`](crate::Guard::run_through):
        /// at a deadline, the work is paused instead of dropped, for less than `longest`. It continues with the
        /// same token if the servers prove that this candidate has led all the time. For work that can be
        /// paused at any `.await`. Default: the work is dropped at a deadline.
        pub fn ride_out(self, longest: Duration) => self.rides_out = Some(longest);

        /// The access control list of the election's znodes and of missing parent znodes.
        /// Default: the client's; see [`DefaultAcl`](lockkeeper_client::DefaultAcl).
        pub fn acl(self, acl: &lockkeeper_client::DefaultAcl) =>
            self.client = self.client.with_default_acl(acl);
    }

    /// Builds the election. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for an election. The rules are those of a lock's path.
    pub fn build(self) -> Result<Election, BuildError> {
        let path = BuildError::check(&self.client, &self.path)?;
        let record = record_path(&path);
        let id = self.id.unwrap_or_else(|| OwnerInfo::current(None).to_string());
        let data = Bytes::from(id.clone());
        let queue_handle = QueueHandle::new(self.client, self.layout.settings(path), data);
        let lock = Mutex::queued(queue_handle, Sharing::default());
        let Self { layout, grace, rides_out, .. } = self;
        Ok(Election { lock, layout, record, id, grace, rides_out })
    }
}

impl Election {
    /// The election at a path such as `/election/scheduler`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for an election.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The options of an election.
    pub fn builder(client: &Client, path: &str) -> ElectionBuilder {
        ElectionBuilder {
            client: client.clone(),
            path: path.to_owned(),
            layout: ElectionLayout::default(),
            id: None,
            grace: Duration::ZERO,
            rides_out: None,
        }
    }

    /// The election's path.
    pub fn path(&self) -> &ZnodePath {
        self.lock.path()
    }

    /// The id of this candidate.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Enters the election as a candidate, and waits until it leads. Costs one round trip if there is no other
    /// candidate; behind others, one more and an event.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Session loss
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate; its node is deleted in the background.
    pub async fn campaign(&self) -> Result<Leadership, AcquireError> {
        self.lock.acquire().await.map(|guard| self.leads(guard))
    }

    /// [`Election::campaign`] with a time limit: `timeout` covers the whole call. Costs the same as
    /// [`Election::campaign`].
    ///
    /// # Errors
    /// Same as [`Election::campaign`], and [`AcquireError::Timeout`].
    ///
    /// # Session loss
    /// Same as [`Election::campaign`].
    ///
    /// # Cancel safety
    /// Same as [`Election::campaign`].
    pub async fn campaign_timeout(&self, timeout: Duration) -> Result<Leadership, AcquireError> {
        self.lock.acquire_timeout(timeout).await.map(|guard| self.leads(guard))
    }

    /// Becomes the leader only if there is no other candidate; `None` otherwise. Costs one round trip. Makes no
    /// request while another candidate of this handle leads or waits.
    ///
    /// # Errors
    /// Same as [`Election::campaign`], except those of waiting.
    ///
    /// # Session loss
    /// Same as [`Election::campaign`].
    ///
    /// # Cancel safety
    /// Same as [`Election::campaign`].
    pub async fn try_campaign(&self) -> Result<Option<Leadership>, AcquireError> {
        Ok(self.lock.try_acquire().await?.map(|guard| self.leads(guard)))
    }

    /// Runs work as the leader, and returns its result. When leadership is lost, it drops the work at
    /// once, campaigns again, and starts the work from the beginning. It also campaigns again when the candidate
    /// loses its place, and when no server can be reached. The work can
    /// [survive outages](ElectionBuilder::ride_out).
    ///
    /// Leadership ends with the work, for each of its handles. A handle that outlives the work, such as one in a
    /// spawned task, reports the loss: [`LossReason::Released`](crate::LossReason::Released) if the work
    /// is done. But such a task may still rely on a [deadline](crate::Guard::deadline) that it has read. So
    /// while a handle is kept, the next candidate leads only after that deadline, this method returns only
    /// then, and the log has a warning. To avoid this, let the work wait for its tasks, or end them.
    ///
    /// Costs a [campaign](Election::campaign) each time, a watch as in [`Guard::lost`](crate::Guard::lost), and
    /// one round trip to resign.
    ///
    /// # Errors
    /// Only permanent failures: the path has nodes of another kind, a request is refused, or the
    /// client was closed.
    ///
    /// # Session loss
    /// Drops the work and campaigns with the next session.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work. Leadership, or the place in the queue, is given up in the
    /// background.
    pub async fn lead<T, F>(
        &self,
        mut work: impl FnMut(Arc<Leadership>) -> F,
    ) -> Result<T, AcquireError>
    where
        F: Future<Output = T>,
    {
        loop {
            let leadership = self.stand().await?;
            match self.work_as_leader(leadership, &mut work).await {
                Ok(output) => return Ok(output),
                Err(reason) => {
                    tracing::debug!(election = %self.path(), %reason, "standing again");
                }
            }
            pause().await;
        }
    }

    /// Campaigns until this candidate leads, and retries after every transient failure.
    async fn stand(&self) -> Result<Leadership, AcquireError> {
        loop {
            match self.campaign().await {
                Ok(leadership) => return Ok(leadership),
                Err(error) if error.is_retryable() => {
                    tracing::debug!(election = %self.path(), %error, "campaigning again");
                }
                Err(error) => return Err(error),
            }
            pause().await;
        }
    }

    async fn outwait_grace(&self) {
        if !self.grace.is_zero() {
            tokio::time::sleep(self.grace).await;
        }
    }

    /// Runs the work after the grace time while leadership lasts, and resigns when the work is done.
    async fn work_as_leader<T, F>(
        &self,
        leadership: Leadership,
        work: &mut impl FnMut(Arc<Leadership>) -> F,
    ) -> Result<T, LossReason>
    where
        F: Future<Output = T>,
    {
        // Declared before the work, and so dropped after it.
        let term = leadership.into_term();
        let leadership = term.leadership();
        let led = async {
            self.outwait_grace().await;
            work(Arc::clone(&leadership)).await
        };
        let led = match self.rides_out {
            Some(longest) => leadership.run_through(longest, led).await,
            None => leadership.run(led).await,
        };

        drop(leadership);
        term.end(led.as_ref().err().copied().unwrap_or(LossReason::Released)).await;
        led
    }

    /// Observes who leads: [`Leaders::next`] returns each change. The observer is not a candidate. Costs
    /// [three round trips](Election#cost), or a few more.
    ///
    /// # Errors
    /// If the path has nodes of another kind, the first node is not ephemeral, a request is refused, or the
    /// client was closed. It waits while no server can be reached.
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// Safe. No watch is left behind.
    pub async fn observe(&self) -> Result<Leaders, ObserveError> {
        Leaders::open(self.lock.client(), self.layout.settings(self.path().clone()), &self.record)
            .await
    }

    fn leads(&self, guard: MutexGuard) -> Leadership {
        let record = self.record.clone();
        Leadership { guard, record, known_record: sync::Mutex::default(), handle: None }
    }
}

/// Waits before a candidate that has lost its leadership or its place campaigns again, so that many candidates
/// that lost their sessions together do not all return at once.
async fn pause() {
    tokio::time::sleep(MIN_PAUSE.mul_f64(1.0 + fastrand::f64())).await;
}

/// A transaction that has been sent.
type Committing = Pin<Box<dyn Future<Output = Result<Vec<OpResult>, TransactionError>> + Send>>;

/// The right to lead an [`Election`]. See [`Guard`](crate::Guard) for what its holder may rely on.
#[must_use = "leadership is given up when it is dropped"]
pub struct Leadership {
    guard: MutexGuard,
    record: ZnodePath,
    known_record: sync::Mutex<KnownRecord>,
    /// Dropped with the last handle of a leadership that is shared.
    handle: Option<oneshot::Sender<Infallible>>,
}

/// What is known about the record.
#[derive(Debug, Default)]
struct KnownRecord {
    /// Whether its node exists; `None` before the first read.
    is_made: Option<bool>,
    /// The last value to proclaim. Every write sends this value, so the later of two concurrent values
    /// remains, although neither waits for the other.
    last: Bytes,
}

impl Leadership {
    fn into_term(mut self) -> Term<Self> {
        let (handle, handles) = oneshot::channel();
        self.handle = Some(handle);
        let hold = self.guard.share();
        Term::new(self, hold, handles)
    }

    /// Publishes a value to all observers, such as the leader's address, and replaces the previous one. It is
    /// written only while this candidate leads, and observers no longer see it when leadership ends. At most
    /// about 1,000,000 bytes; small values are best. Costs one round trip (1 write), and one more (1 read) before
    /// the first value of a leadership.
    ///
    /// # Errors
    /// If leadership is lost, the node for the value contains other data, or a request is refused.
    /// [`ProclaimError::TooLong`] if servers seem to close the connection because of the length; observers may see the
    /// value nevertheless.
    ///
    /// # Session loss
    /// [`ProclaimError::Lost`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the value may have been published, or may still be published.
    pub async fn proclaim(&self, value: impl Into<String>) -> Result<(), ProclaimError> {
        let record = LeaderRecord::new(self.node().name(), value.into());
        self.known_record().last = record.to_data();
        let mut unanswered = Unanswered::default();
        loop {
            if let HolderState::Lost(reason) = self.state() {
                return Err(ProclaimError::Lost(reason));
            }
            let known = self.known_record().is_made;
            let exists = match known {
                Some(known) => known,
                None => match self.look_at_record().await? {
                    Some(found) => found,
                    None => continue,
                },
            };

            let begun = self.guard.client().now();
            let (bytes, written) = self.write_last(exists).await;
            match written {
                Ok(_) => {
                    self.known_record().is_made = Some(true);
                    return Ok(());
                }
                Err(TransactionError::Failed { code: ErrorCode::NoNode, index: 0, .. }) => {
                    return Err(ProclaimError::Lost(self.guard.found_missing()));
                }
                Err(TransactionError::Failed {
                    code: ErrorCode::NoNode | ErrorCode::NodeExists,
                    ..
                }) => {
                    self.known_record().is_made = None;
                    unanswered = Unanswered::default();
                }
                Err(TransactionError::Request(error)) => {
                    if let Some(why) =
                        unanswered.one_more(self.guard.client(), &error, (bytes, begun))
                    {
                        return Err(self.too_long(why));
                    }
                    retry_pause(error).await.map_err(|error| self.failed(error))?;
                }
                Err(refused) => return Err(ProclaimError::Refused(refused)),
            }
        }
    }

    /// Writes the last value into the record. Also returns its length in bytes.
    async fn write_last(&self, exists: bool) -> (usize, Result<(), TransactionError>) {
        let (mut sent, mut bytes) = (None::<Committing>, 0);
        let written = poll_fn(|context| {
            if let Some(sent) = &mut sent {
                return sent.as_mut().poll(context);
            }

            // The lock is kept until the request is sent, which the first poll does, so that no other value becomes the
            // last one in between.
            let known_record = self.known_record();
            let data = known_record.last.clone();
            bytes = data.len();

            // The check of the own node comes first, so a deposed leader cannot write. Writing a value twice
            // after a lost reply is harmless.
            let leads = self.transaction();
            let write = match exists {
                true => leads.set_data(&self.record, data, None),
                false => leads.create(&self.record, data, CreateMode::Persistent),
            };

            sent.insert(Box::pin(write.commit())).as_mut().poll(context)
        });
        let written = written.await.map(drop);
        (bytes, written)
    }

    fn known_record(&self) -> sync::MutexGuard<'_, KnownRecord> {
        self.known_record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node for the value exists; `None` if it must be read again.
    async fn look_at_record(&self) -> Result<Option<bool>, ProclaimError> {
        match self.guard.client().data(&self.record).await {
            Ok((data, _)) if data.is_empty() || LeaderRecord::read(&data).is_some() => {
                Ok(Some(true))
            }
            Ok(_) => Err(ProclaimError::Foreign { node: self.record.clone() }),
            Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(Some(false)),
            Err(error) => {
                retry_pause(error).await.map_err(|error| self.failed(error))?;
                Ok(None)
            }
        }
    }

    fn failed(&self, error: lockkeeper_client::Error) -> ProclaimError {
        match self.state() {
            HolderState::Lost(reason) => ProclaimError::Lost(reason),
            _ if error.is_session_expired() => ProclaimError::Lost(LossReason::SessionExpired),
            _ => ProclaimError::Refused(TransactionError::Request(error)),
        }
    }

    fn too_long(&self, TooLong { bytes, tries }: TooLong) -> ProclaimError {
        ProclaimError::TooLong { node: self.record.clone(), bytes, tries }
    }

    /// Gives up leadership, and waits until a server has confirmed it. Costs one round trip.
    ///
    /// # Errors
    /// Same as [`Guard::release`](crate::Guard::release).
    ///
    /// # Session loss
    /// The call fails. Leadership was lost.
    ///
    /// # Cancel safety
    /// The resignation continues in the background.
    pub async fn resign(self) -> Result<(), ReleaseError> {
        self.guard.release().await
    }
}

offers_guard!(Leadership, self => &self.guard);
