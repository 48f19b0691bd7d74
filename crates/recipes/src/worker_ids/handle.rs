//! [`WorkerIds`]: numbers that one program has at a time.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::retry::retry_pause;
use lockkeeper_client::{Client, Contact, DefaultAcl, Instant, ZnodePath, present};
use lockkeeper_locks::{AcquireError, BuildError, NameClaim, Names};

use crate::waits::within;
use crate::worker_ids::error::WorkerIdError;
use crate::worker_ids::id_layout::IdLayout;
use crate::worker_ids::keeper::ReservationKeeper;
use crate::worker_ids::minter::Minter;
use crate::worker_ids::minting::Minting;
use crate::worker_ids::numbers::{Numbers, Skipped, reservation_of};
use crate::worker_ids::reservation::Horizon;
use crate::worker_ids::time_estimate::TimeEstimate;
use crate::worker_ids::worker_id::WorkerId;
use crate::worker_ids::write::{LastReservation, ReservationWriter, ReserveFailure, unix_ms};

/// How far ahead of the servers' time a reservation may be.
const MAX_AHEAD: Duration = Duration::from_secs(60);

/// Numbers that one program has at a time, and 64-bit ids made from them, ordered by time and without a request for
/// each: Snowflake's worker numbers and ids. Cheap to clone.
///
/// # Guarantees
///
/// - A number has one holder at a time, by lease and by token, as a name of [`Names`] has.
/// - An id is never minted twice, whatever the clocks of programs and servers show, however long a program is
///   suspended, and whichever program had the number before. This does not depend on a deadline: the time of an id
///   is reserved in writing before the id is minted, and a reservation is only written over one that was read.
/// - The ids of one [`WorkerId`] grow, and those of the next one with the same number are larger.
/// - A program's own clock has no effect. The time of an id is the servers' time when it was minted, or later.
///
/// # Not guaranteed
///
/// - Ids of different numbers are ordered by time to within about a round trip, and not if they were minted [ahead
///   of the time](WorkerId::mint).
/// - A reservation has no effect if it is deleted, if the servers are set back to an older state, or on another
///   service. After that, wait for `max_ahead` before ids are minted, or use another range of numbers.
/// - Ids are unique among programs that use the same path and the same layout.
/// - A copy of a running program, for example of a virtual machine, mints the same ids until it notices the end of
///   its session.
/// - Programs that wait for a number get one in any order.
///
/// # Znodes
///
/// `<path>/held/<number>` is ephemeral, as that of a [name](Names). `<path>/reserved/<number>` is persistent and
/// never deleted: JSON with `format` 1, `until_unix_ms`, before which ids of the number may have been minted, and
/// `by`, an id of its writer. It is changed only by a transaction that checks the number's node and the version.
///
/// # Cost
///
/// - A number costs 3 round trips with 2 writes, 1 more for a listing if the first guess is taken, and 2 for each
///   time that another program was faster. The first use of a path creates the nodes above it.
/// - A number that is held costs 1 write every 5 seconds, and 1 read with each heartbeat.
/// - An id costs nothing. Minting more ids in a millisecond than [`IdLayout::sequence_bits`] allow costs 1 write
///   for half a second's, 4 times a second at most.
/// - While all numbers are taken, each number that is given back costs each waiter 1 event and 1 listing.
/// - Giving a number back costs 2 round trips.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{IdLayout, WorkerIds};
///
/// let workers = WorkerIds::builder(&client, "/workers").numbers(0..64).build()?;
/// let worker = workers.acquire().await?;
/// let (first, second) = (worker.mint()?, worker.mint()?);
/// assert!(first < second);
/// assert_eq!(IdLayout::SNOWFLAKE.parts(first).number, worker.number());
/// worker.release().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "Snowflake")]
#[derive(Clone)]
pub struct WorkerIds {
    client: Client,
    path: ZnodePath,
    numbers: Numbers,
    reserved: ZnodePath,
    layout: IdLayout,
    horizon: Horizon,
}

lockkeeper_client::shown_by_path!(WorkerIds);

/// Options of [`WorkerIds`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct WorkerIdsBuilder {
    client: Client,
    path: String,
    numbers: Range<u32>,
    layout: IdLayout,
    max_ahead: Duration,
    label: Option<String>,
}

impl WorkerIdsBuilder {
    lockkeeper_client::setters! {
        /// Sets the range of numbers. Default: 0 to 1023.
        pub fn numbers(self, numbers: Range<u32>) => self.numbers = numbers;

        /// Sets the layout of an id. All programs must use the same one. Default: [`IdLayout::SNOWFLAKE`].
        pub fn layout(self, layout: IdLayout) => self.layout = layout;

        /// Sets how far ahead of the servers' time ids may be minted; at least 20 seconds. A number whose ids may
        /// have been minted further ahead is not taken: the servers' clock was wrong, then or now. Default: a
        /// minute.
        pub fn max_ahead(self, time: Duration) => self.max_ahead = time.max(MAX_AHEAD / 3);

        /// Sets a label that others see with the number, such as an address. Default: only host, process and
        /// program.
        pub fn label(self, label: impl Into<String>) => self.label = Some(label.into());

        /// Sets the access control list of the created nodes and their parents. Default: that of the client; see
        /// [`DefaultAcl`].
        pub fn acl(self, acl: &DefaultAcl) => self.client = self.client.with_default_acl(acl);
    }

    /// Creates the handle. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a parent of numbers, the range is empty, or the layout does not fit it.
    pub fn build(self) -> Result<WorkerIds, WorkerIdError> {
        let largest = match self.numbers.is_empty() {
            true => return Err(WorkerIdError::NoNumbers),
            false => self.numbers.end - 1,
        };
        self.layout.check(largest)?;

        let path = ZnodePath::new(&self.path).map_err(BuildError::from)?;
        let child = |name| path.child(name).map_err(BuildError::from);
        let (held, reserved) = (child("held")?, child("reserved")?);
        // The check of this path also covers that of the names.
        Names::new(&self.client, path.as_str())?;
        let names = Names::builder(&self.client, held.as_str());
        let names = match self.label {
            Some(label) => names.label(label).build()?,
            None => names.build()?,
        };
        Ok(WorkerIds {
            numbers: Numbers::new(&self.client, names, self.numbers),
            client: self.client,
            path,
            reserved,
            layout: self.layout,
            horizon: Horizon::new(&self.layout, self.max_ahead),
        })
    }
}

/// The outcome of an attempt to reserve ids of a number.
enum ReserveOutcome {
    Done(WorkerId),
    /// It is reserved until then, far ahead of the servers' time.
    FarAhead(u64),
    /// The number was lost in the meantime.
    Lost,
}

impl WorkerIds {
    /// The numbers 0 to 1023 below a path such as `/workers`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a parent of numbers.
    pub fn new(client: &Client, path: &str) -> Result<Self, WorkerIdError> {
        Self::builder(client, path).build()
    }

    /// The options of worker ids.
    pub fn builder(client: &Client, path: &str) -> WorkerIdsBuilder {
        WorkerIdsBuilder {
            client: client.clone(),
            path: path.to_owned(),
            numbers: 0..1024,
            layout: IdLayout::SNOWFLAKE,
            max_ahead: MAX_AHEAD,
            label: None,
        }
    }

    /// The parent path of the numbers.
    pub fn path(&self) -> &ZnodePath {
        &self.path
    }

    /// The layout of an id.
    pub fn layout(&self) -> IdLayout {
        self.layout
    }

    /// Takes a free number, and waits while all are taken. Costs three round trips with two writes if its first
    /// guess is free; see [Cost](WorkerIds#cost).
    ///
    /// # Errors
    /// [`WorkerIdError::FarAhead`] if all numbers are reserved far ahead of the servers' time, and
    /// [`WorkerIdError::OutOfTime`] if the layout ends before that time; otherwise as [`Names::claim`]. During an
    /// outage, each request waits for a session timeout, and then fails.
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait; a node that was created is deleted in the background.
    pub async fn acquire(&self) -> Result<WorkerId, WorkerIdError> {
        let taken = self.take(true).await;
        taken.map(|worker| worker.expect("it waits until there is one"))
    }

    /// [`WorkerIds::acquire`], with a time limit for the whole call. With less than 10 ms it tries once. An outage
    /// of the servers does not end it. Costs the same.
    ///
    /// # Errors
    /// As [`WorkerIds::acquire`], and [`AcquireError::Timeout`].
    ///
    /// # Session loss
    /// As [`WorkerIds::acquire`].
    ///
    /// # Cancel safety
    /// As [`WorkerIds::acquire`].
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<WorkerId, WorkerIdError> {
        let late = || {
            let is_connected = self.client.contact() == Contact::Connected;
            let path = self.path.clone();
            WorkerIdError::from(AcquireError::Timeout { path, waited: timeout, is_connected })
        };
        let passes = |error: &WorkerIdError| error.is_out_of_reach() && !self.client.is_closed();
        let call = || self.acquire();
        let acquired = within(&self.client, timeout, self.try_acquire(), call, passes);
        acquired.await?.ok_or_else(late)
    }

    /// Takes a number only if one is free; `None` if all are taken. Costs as much as [`WorkerIds::acquire`].
    ///
    /// # Errors
    /// As [`WorkerIds::acquire`], but [`WorkerIdError::FarAhead`] if all free numbers are reserved far ahead.
    ///
    /// # Session loss
    /// As [`WorkerIds::acquire`].
    ///
    /// # Cancel safety
    /// As [`WorkerIds::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<WorkerId>, WorkerIdError> {
        self.take(false).await
    }

    async fn take(&self, waits: bool) -> Result<Option<WorkerId>, WorkerIdError> {
        let mut skipped = Skipped::new();
        loop {
            let Some((number, claim)) = self.numbers.take(&skipped, waits).await? else {
                return match skipped.first_key_value() {
                    Some((number, ahead)) => Err(WorkerIdError::FarAhead {
                        node: reservation_of(&self.reserved, *number),
                        ahead_ms: *ahead,
                    }),
                    None => Ok(None),
                };
            };

            let claim = Arc::new(claim);
            match self.reserve(number, &claim).await? {
                ReserveOutcome::Done(worker) => return Ok(Some(worker)),
                ReserveOutcome::Lost => {}
                ReserveOutcome::FarAhead(ahead) => {
                    skipped.insert(number, ahead);
                    // A later deletion would look like a number that is given back.
                    if let Some(claim) = Arc::into_inner(claim) {
                        let _ = claim.release().await;
                    }
                }
            }
        }
    }

    /// Reserves the first ids of a number, after those of the last reservation.
    async fn reserve(
        &self,
        number: u32,
        claim: &Arc<NameClaim>,
    ) -> Result<ReserveOutcome, WorkerIdError> {
        let node = reservation_of(&self.reserved, number);
        let claimed = self.client.now();
        let Some((time, mut last)) = self.look(claim, &node, claimed).await? else {
            return Ok(ReserveOutcome::Lost);
        };
        let writer = ReservationWriter {
            client: self.client.clone(),
            node,
            claim: Arc::downgrade(claim),
            by: self.client.unique_id().to_string(),
        };

        let mut from = 0;
        loop {
            let asked = self.client.now();
            let now = time.at(asked);
            if !(self.layout.epoch_unix_ms..self.layout.end_unix_ms()).contains(&now) {
                return Err(WorkerIdError::OutOfTime { unix_ms: now });
            }
            from = last.as_ref().map_or(from, |found| found.reservation.until_unix_ms.max(from));
            if self.horizon.is_beyond(now, from) {
                return Ok(ReserveOutcome::FarAhead(from - now));
            }

            let until = self.horizon.reach(now, from.max(now), from);
            match writer.write(last.as_ref().map(|found| found.version), until).await {
                Ok(written) => {
                    let minter = Minter::new(self.layout, number, from, from);
                    let minting = Minting::new(&self.client, self.horizon, minter, time);
                    minting.extend(written, asked);
                    let minting = Arc::new(minting);
                    let keeper = ReservationKeeper::start(&minting, writer, written.version);
                    let worker = WorkerId::new(number, minting, keeper, Arc::clone(claim));
                    return Ok(ReserveOutcome::Done(worker));
                }
                Err(ReserveFailure::Lost) => return Ok(ReserveOutcome::Lost),
                // A late write of the previous holder has arrived.
                Err(ReserveFailure::Overtaken(found)) => last = found,
                Err(ReserveFailure::Failed(error)) => return Err(error),
            }
        }
    }

    /// The servers' time, from the claim, and the last reservation; `None` if the claim is lost.
    async fn look(
        &self,
        claim: &NameClaim,
        node: &ZnodePath,
        claimed: Instant,
    ) -> Result<Option<(TimeEstimate, Option<LastReservation>)>, WorkerIdError> {
        loop {
            // Pipelined.
            let (own, last) = (self.client.data(claim.node()), self.client.data(node));
            let read = async { Ok((present(own.await)?, present(last.await)?)) };
            match read.await {
                Ok((None, _)) => return Ok(None),
                Ok((Some((_, own)), last)) => {
                    let time = TimeEstimate::new(unix_ms(own.mtime), claimed);
                    let last = last
                        .map(|(data, stat)| LastReservation::new(node, &data, &stat))
                        .transpose()?;
                    return Ok(Some((time, last)));
                }
                Err(error) => {
                    let error: lockkeeper_client::Error = error;
                    if error.is_session_expired() {
                        return Ok(None);
                    }
                    let failed = |source| WorkerIdError::Client { node: node.clone(), source };
                    retry_pause(error).await.map_err(failed)?;
                }
            }
        }
    }
}
