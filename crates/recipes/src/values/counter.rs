//! [`Counter`]: a number that many programs add to. `write_batches` sends the adds of many tasks as one
//! write.

use std::fmt;
use std::sync::{Arc, Mutex};

use lockkeeper_client::{
    Client, CreateMode, Error, ErrorCode, OpResult, Stat, TransactionError, ZnodePath, present,
};

use crate::exact::shared_write::{SharedWrite, WriteTurn, lock};
use crate::exact::{Applied, ExactWriter, WriteError};
use crate::values::counter_layout::CounterLayout;
use crate::values::error::{ValueError, ValuePathError};
use crate::values::place::{Place, PlaceOptions, place_options};

/// The value before and after an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Added {
    /// The value before.
    pub before: i64,
    /// The value after.
    pub after: i64,
}

/// A number that many programs add to, each add exactly once.
///
/// Do not use it where a database's sequence is available, nor to count events that happen thousands of times
/// a second in many processes: each add of a process is a write to a quorum, or a part of one. For
/// numbers that only need to be unique, [`IdBlocks`](crate::IdBlocks) needs one write for a block of
/// them. Cheap to clone; clones share the write in progress.
///
/// # Guarantees
///
/// - Each add is applied once, and returns the exact value before and after it, even when its reply
///   is lost. It is unknown whether it was applied only if, before the answer came, the session
///   ended, no server could be reached for a session timeout, or the outcome marker was
///   deleted; or if the write [panicked](ValueError::Panicked).
/// - Data that is not a number is never overwritten.
///
/// # Not guaranteed
///
/// Adds are not exact if the counter is deleted and created again while it is used, or if servers are set back
/// during an add. The new counter starts at an older value, and has the same version as the old one once it has
/// been written as often.
///
/// # Znodes
///
/// - `<path>`, persistent, has the number in the [`CounterLayout`]. Missing parents are
///   created as container nodes. Curator's and kazoo's counters interoperate on the same node.
/// - `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle, ephemeral and empty. It is deleted
///   with the handle.
///
/// # Cost
///
/// - An add costs 1 round trip (1 write) when the last value is known.
/// - It costs 1 round trip more for each time that another program was faster; from the second
///   time in a row with a random pause and a read, and after a turn with a rest, so that
///   programs that add at the same time take turns.
/// - A handle has one write in progress, for any number of tasks. Adds that arrive during it are combined in the
///   next one. But work in [`Guard::run`](lockkeeper_locks::Guard::run) or
///   [`run_through`](lockkeeper_locks::Guard::run_through) writes on its own.
/// - The first add of a session reads first, creates the marker in the same round trip, and then
///   any missing nodes.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Added, Counter};
///
/// let orders = Counter::new(&client, "/orders")?;
/// assert_eq!(orders.add(5).await?, Added { before: 0, after: 5 });
/// assert_eq!(orders.add(-2).await?.after, 3);
/// assert_eq!(orders.value().await?, 3);
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "DistributedAtomicLong")]
#[doc(alias = "DistributedAtomicInteger")]
#[doc(alias = "SharedCount")]
#[derive(Clone)]
pub struct Counter(Arc<CounterInner>);

lockkeeper_client::shown_by_path!(Counter);

/// Options of a [`Counter`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct CounterBuilder {
    place: PlaceOptions,
    layout: CounterLayout,
}

place_options!(CounterBuilder);

impl CounterBuilder {
    /// Sets the layout of the number. Default: [`CounterLayout::CuratorLong`].
    pub fn layout(mut self, layout: CounterLayout) -> Self {
        self.layout = layout;
        self
    }

    /// Creates the handle. No I/O.
    ///
    /// # Errors
    /// If one of the paths is not valid for a value.
    pub fn build(self) -> Result<Counter, ValuePathError> {
        let (place, markers) = self.place.build()?;
        let node = CounterNode { place, layout: self.layout, markers };
        let (shared, bound) = (SharedWrite::new(), Mutex::default());
        Ok(Counter(Arc::new(CounterInner { node, shared, bound })))
    }
}

impl Counter {
    /// A counter at a path such as `/app/orders`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a value.
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        Self::builder(client, path).build()
    }

    /// The options of a counter.
    pub fn builder(client: &Client, path: &str) -> CounterBuilder {
        let place = PlaceOptions::new(client, path);
        CounterBuilder { place, layout: CounterLayout::default() }
    }

    /// The counter's path.
    pub fn path(&self) -> &ZnodePath {
        &self.0.node.place.path
    }

    /// Reads the value; 0 if the node is missing. Costs one round trip. A server of an ensemble may lag behind the
    /// latest writes; the result of an add never does.
    ///
    /// # Errors
    /// If the data is not a number, or no server can be reached for a session timeout.
    ///
    /// # Session loss
    /// Reads again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn value(&self) -> Result<i64, ValueError> {
        Ok(self.0.node.read().await?.value)
    }

    /// Adds to the value; a negative number lowers it. Costs one round trip (1 write) when the last value is known,
    /// and [more](Counter#cost) at first and when other programs add too.
    ///
    /// # Errors
    /// If the data is not a number, the sum is out of the range of the layout, or a request is refused; then
    /// nothing was added. Two errors have an unknown [outcome](ValueError::outcome): [`ValueError::Unknown`], if
    /// the session, or the runtime in which the client was connected, ended, no server could be reached for a
    /// session timeout, or the outcome marker was deleted, after the write was sent and before the answer came; and
    /// [`ValueError::Panicked`].
    ///
    /// # Session loss
    /// A write that was not sent yet continues in the next session.
    ///
    /// # Cancel safety
    /// When dropped, it is added once or not at all, because a write in progress continues. Its outcome may be open
    /// for a while: when `add(0)` has succeeded, no dropped add is applied any more. The adds of other tasks in the
    /// same write stay exact. They do not wait for a call that is not polled; the runtime in which the client was
    /// connected must run.
    pub async fn add(&self, delta: i64) -> Result<Added, ValueError> {
        if self.is_bound() {
            return self.0.add_alone(delta).await;
        }
        if self.client().is_closed() {
            // This returns the error.
            self.value().await?;
        }
        let node = self.0.node.clone();
        let write = |turn| write_batches(node, turn);
        match self.0.shared.ask(self.client(), delta, write).await {
            Some(answer) => answer,
            None => Err(self.0.unanswered().await),
        }
    }
}

impl Counter {
    /// Whether the caller runs under a lock.
    pub(super) fn is_bound(&self) -> bool {
        self.client().is_bound()
    }

    pub(super) fn client(&self) -> &Client {
        &self.0.node.place.client
    }
}

/// State shared by the clones of a handle.
struct CounterInner {
    node: CounterNode,
    shared: SharedWrite<i64, AddResult, WriteState>,
    /// The state after the last add of work under a lock, if none is in progress.
    bound: Mutex<Option<WriteState>>,
}

type AddResult = Result<Added, ValueError>;

/// The state that one write leaves to the next.
struct WriteState {
    writer: Box<ExactWriter>,
    /// The value, if known.
    base: Option<KnownValue>,
    /// Whether the last write had adds of several tasks.
    was_shared: bool,
}

impl fmt::Debug for CounterInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("node", &self.node).finish_non_exhaustive()
    }
}

impl CounterInner {
    /// Adds for work that runs under a lock ([`Guard::run`](lockkeeper_locks::Guard::run)). It is a write of its own,
    /// because writes of other tasks are not bound to the lock, and must not wait for work that may be suspended.
    async fn add_alone(&self, delta: i64) -> Result<Added, ValueError> {
        let left = lock(&self.bound).take();
        let mut state = left.unwrap_or_else(|| self.node.first_state());
        let sum = self.node.write(&mut state, || vec![delta]).await;
        *lock(&self.bound) = Some(state);
        sum?.adds.remove(0)
    }

    /// The error of an add without an answer: its write ended early, with the client's runtime or by a panic.
    async fn unanswered(&self) -> ValueError {
        let Place { client, path } = &self.node.place;
        let path = path.clone();
        if client.is_closed()
            && let Err(error) = client.exists(&path).await
        {
            return ValueError::Unknown { path, source: TransactionError::Request(error) };
        }
        ValueError::Panicked { path }
    }
}

/// The location and layout of a counter.
#[derive(Clone, Debug)]
struct CounterNode {
    place: Place,
    layout: CounterLayout,
    /// The directory of the outcome markers.
    markers: ZnodePath,
}

/// A value that was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownValue {
    value: i64,
    /// The node's version; `None` if it is missing.
    version: Option<i32>,
}

/// The result of a batch of adds.
#[derive(Debug)]
struct BatchSum {
    after: i64,
    /// For each add, the values before and after it, or an error if the sum is outside of the layout's range.
    adds: Vec<Result<Added, ValueError>>,
}

/// Combines the waiting adds and those that arrive before the write is sent, writes their sum, and answers them.
async fn write_batches(node: CounterNode, mut turn: WriteTurn<i64, AddResult, WriteState>) {
    loop {
        if turn.state.as_ref().is_some_and(|state| state.was_shared) {
            // Tasks that were answered together usually add again together. Without this, the first of them would
            // be sent alone, and all others would wait for its write.
            tokio::task::yield_now().await;
        }
        let Some(mut batch) = turn.next() else { return };

        let mut state = turn.state.take().unwrap_or_else(|| node.first_state());
        // Called each time the write is sent: it includes adds that have arrived since, and excludes those whose task
        // was cancelled.
        let deltas = || {
            turn.refresh(&mut batch);
            batch.iter().map(|call| call.question).collect()
        };
        let answers = match node.write(&mut state, deltas).await {
            Ok(sum) => sum.adds,
            Err(error) => vec![Err(error); batch.len()],
        };

        state.was_shared = batch.len() > 1;
        turn.state = Some(state);
        for (call, answer) in batch.into_iter().zip(answers) {
            call.answer(answer);
        }
    }
}

impl CounterNode {
    /// The state of the first write.
    fn first_state(&self) -> WriteState {
        WriteState {
            writer: Box::new(ExactWriter::new(&self.place.client, &self.markers)),
            base: None,
            was_shared: false,
        }
    }

    /// Adds all deltas in one write to the value at that moment. Each try uses the deltas that wait then.
    async fn write(
        &self,
        state: &mut WriteState,
        mut deltas: impl FnMut() -> Vec<i64>,
    ) -> Result<BatchSum, ValueError> {
        if state.writer.let_others().await {
            state.base = None;
        }

        loop {
            // Only a write that is known to be the last one leaves a known state.
            let cached = state.base.take();
            let base = match cached {
                Some(base) => base,
                None => {
                    // Both in one round trip.
                    let prepared = state.writer.prepare();
                    let (base, prepared) = tokio::join! { biased; self.read(), prepared };
                    // If the marker was not prepared, the write returns the reason, or works by then.
                    drop(prepared);
                    base?
                }
            };

            let sum = self.sum(base.value, &deltas());
            if sum.adds.iter().all(Result::is_err) {
                if cached.is_some() {
                    // Others may have made room since. A late write is reported; this is not.
                    continue;
                }
                state.base = Some(base);
                return Ok(sum);
            }

            let (written, seen) = self.exchange(&mut state.writer, base, sum.after).await?;
            match written {
                Ok(applied) => {
                    state.base = Some(base.followed_by(sum.after, &applied));
                    return Ok(sum);
                }
                Err(error) if is_conflict(&error, base) => {
                    if state.writer.lost().await {
                        continue;
                    }
                    state.base = seen.ok().map(|found| self.base(found)).transpose()?;
                }
                Err(error) if is_orphan(&error, base) => self.place.make_parents().await?,
                Err(error) => return Err(ValueError::write(&self.place.path, error)),
            }
        }
    }

    /// Writes a value over another one, and reads the node in the same round trip.
    async fn exchange(
        &self,
        writer: &mut ExactWriter,
        base: KnownValue,
        after: i64,
    ) -> Result<
        (Result<Applied, WriteError>, Result<Option<(bytes::Bytes, Stat)>, Error>),
        ValueError,
    > {
        let Place { client, path } = &self.place;
        if base.version == Some(-1) {
            return Err(ValueError::VersionWrapped { path: path.clone() });
        }
        // The read must follow the write.
        writer.prepare().await.map_err(|error| ValueError::write(path, error))?;
        let data = self.layout.encode(after).expect("the sum is in range");
        let written = writer.commit(|steps| match base.version {
            None => steps.create(path, data.clone(), CreateMode::Persistent),
            version => steps.set_data(path, data.clone(), version),
        });
        let seen = async { present(client.data(path).await) };
        Ok(tokio::join! { biased; written, seen })
    }

    async fn read(&self) -> Result<KnownValue, ValueError> {
        self.base(self.place.read().await?)
    }

    fn base(&self, found: Option<(bytes::Bytes, Stat)>) -> Result<KnownValue, ValueError> {
        let Some((data, stat)) = found else { return Ok(KnownValue { value: 0, version: None }) };
        let value = self.layout.decode(&data).map_err(|found| {
            let (path, layout) = (self.place.path.clone(), self.layout);
            ValueError::NoNumber { path, layout, found }
        })?;
        Ok(KnownValue { value, version: Some(stat.version) })
    }

    /// Adds one delta after the other, except those whose sum is outside of the layout's range.
    fn sum(&self, base: i64, deltas: &[i64]) -> BatchSum {
        let mut after = base;
        let adds = deltas.iter().map(|delta| {
            let before = after;
            let sum = before.checked_add(*delta).filter(|sum| self.layout.encode(*sum).is_some());
            let Some(sum) = sum else {
                let (path, layout) = (self.place.path.clone(), self.layout);
                return Err(ValueError::Overflow { path, layout, value: before, delta: *delta });
            };
            after = sum;
            Ok(Added { before, after })
        });
        let adds = adds.collect();
        BatchSum { after, adds }
    }
}

impl KnownValue {
    /// The known state after a value was written over this one.
    fn followed_by(self, value: i64, applied: &Applied) -> Self {
        let version = match applied.results.as_deref() {
            Some([OpResult::SetData(stat)]) => stat.version,
            // The version that was compared with, plus one.
            _ => self.version.map_or(0, |version| version.wrapping_add(1)),
        };
        Self { value, version: Some(version) }
    }
}

/// Whether the node's parent is missing.
fn is_orphan(error: &WriteError, base: KnownValue) -> bool {
    base.version.is_none() && error.refuses_first(&[ErrorCode::NoNode])
}

/// Whether another program was faster: the node has changed since it was read.
fn is_conflict(error: &WriteError, base: KnownValue) -> bool {
    error.refuses_first(match base.version {
        None => &[ErrorCode::NodeExists],
        Some(_) => &[ErrorCode::BadVersion, ErrorCode::NoNode],
    })
}
