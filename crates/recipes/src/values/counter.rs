//! [`Counter`]: a number that many programs add to. `write_batch` sends the adds of many tasks as one
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
    /// Before it.
    pub before: i64,
    /// After it.
    pub after: i64,
}

/// A number that many programs add to, each add exactly once.
///
/// Do not use it where a database's sequence is at hand, nor to count what happens thousands of times
/// a second in many processes: each add of a process is a write to a quorum, or a part of one. For
/// numbers that are only to be unique, [`IdBlocks`](crate::IdBlocks) needs a write for a block of
/// them. Cheap to clone; clones share the write that is under way.
///
/// # Guarantees
///
/// - Each add is applied once, and answers the exact value before and after it, also when its reply
///   is lost. It is unknown whether it was applied only if, before an answer came, the session
///   ended, no server could be reached for a whole session timeout, or somebody deleted the outcome
///   marker; or if the write [panicked](ValueError::Panicked).
/// - Data that is no number is never overwritten.
///
/// # Not guaranteed
///
/// Adds are not exact over a counter that somebody deletes and makes anew while it is used, or that
/// is set back with its servers while an add is under way. It begins at an older value again, and
/// once it has been written as often as the old one, it has the same version.
///
/// # Znodes
///
/// - `<path>`, persistent, holds the number in the [`CounterLayout`]. What is missing above it is
///   made as container nodes. Curator's and kazoo's counters on the same node take part.
/// - `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle, ephemeral and empty. It goes
///   with the handle.
///
/// # Cost
///
/// - An add costs 1 round trip (1 write) when the last value is known.
/// - It costs 1 round trip more for each time that another program was quicker; from the second
///   time in a row with a pause at random and a read, and after a turn with a rest, so that
///   programs that all add at once take turns.
/// - However many tasks add by one handle, it has one write under way, and those that come
///   meanwhile go into the next one together. But work in [`Guard::run`](lockkeeper_locks::Guard::run) or
///   [`run_through`](lockkeeper_locks::Guard::run_through) writes by itself.
/// - The first add of a session reads first, creates the marker in the same round trip, and after
///   it what else there is to create.
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

/// The options of a [`Counter`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct CounterBuilder {
    place: PlaceOptions,
    layout: CounterLayout,
}

place_options!(CounterBuilder);

impl CounterBuilder {
    /// How the number is written. Default: [`CounterLayout::CuratorLong`].
    pub fn layout(mut self, layout: CounterLayout) -> Self {
        self.layout = layout;
        self
    }

    /// Makes the counter. No I/O.
    ///
    /// # Errors
    /// If one of the paths cannot be that of a value.
    pub fn build(self) -> Result<Counter, ValuePathError> {
        let (place, markers) = self.place.build()?;
        let node = CounterNode { place, layout: self.layout, markers };
        let (shared, bound) = (SharedWrite::new(), Mutex::default());
        Ok(Counter(Arc::new(CounterInner { node, shared, bound })))
    }
}

impl Counter {
    /// The counter at a path such as `/app/orders`. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a value.
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

    /// Reads the value; 0 without a node. Costs one round trip. A server of an ensemble may be behind
    /// others by what was written a moment ago; the answer of an add never is.
    ///
    /// # Errors
    /// If the data is no number, or no server can be reached for a whole session timeout.
    ///
    /// # Session loss
    /// It is read again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn value(&self) -> Result<i64, ValueError> {
        Ok(self.0.node.read().await?.value)
    }

    /// Adds to the value, which may make it smaller. Costs one round trip (1 write) when the last value is
    /// known, and [more](Counter#cost) at first and when other programs add, too.
    ///
    /// # Errors
    /// If the data is no number, the sum has no place in the layout, or a request is refused; nothing
    /// was added then. Two errors have an unknown [outcome](ValueError::outcome): [`ValueError::Unknown`],
    /// if the session, or the runtime in which the client was connected, ended, no server could be reached
    /// for a whole session timeout, or somebody deleted the outcome marker, after it was sent and before an
    /// answer came; and [`ValueError::Panicked`].
    ///
    /// # Session loss
    /// What was not sent yet goes on in the next session.
    ///
    /// # Cancel safety
    /// When dropped, it is added once or not at all: a write that is under way goes on. It may still be
    /// undecided for a while: when `add(0)` has succeeded, nothing that was dropped before is added any more.
    /// What other tasks add with the same write is as exact as ever. They do not wait for a call that is not
    /// polled; the runtime in which the client was connected has to run.
    pub async fn add(&self, delta: i64) -> Result<Added, ValueError> {
        if self.is_bound() {
            return self.0.add_alone(delta).await;
        }
        if self.client().is_closed() {
            // The error says so.
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
    /// Whether this is asked by work that runs under a lock.
    pub(super) fn is_bound(&self) -> bool {
        self.client().is_bound()
    }

    pub(super) fn client(&self) -> &Client {
        &self.0.node.place.client
    }
}

/// What the clones of a handle share.
struct CounterInner {
    node: CounterNode,
    shared: SharedWrite<i64, AddResult, WriteState>,
    /// What the last add of work under a lock has left, if none is under way.
    bound: Mutex<Option<WriteState>>,
}

type AddResult = Result<Added, ValueError>;

/// What is left when a write is over: what the next one begins with.
struct WriteState {
    writer: Box<ExactWriter>,
    /// The value, as far as it is known.
    base: Option<Base>,
    /// Whether it had the adds of several tasks in it.
    was_shared: bool,
}

impl fmt::Debug for CounterInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("node", &self.node).finish_non_exhaustive()
    }
}

impl CounterInner {
    /// Adds for work that runs under a lock ([`Guard::run`](lockkeeper_locks::Guard::run)). By itself: what another
    /// task sends is not bound to the lock, and others must not wait for work that stands still.
    async fn add_alone(&self, delta: i64) -> Result<Added, ValueError> {
        let left = lock(&self.bound).take();
        let mut state = left.unwrap_or_else(|| self.node.first_state());
        let sum = self.node.write(&mut state, || vec![delta]).await;
        *lock(&self.bound) = Some(state);
        sum?.adds.remove(0)
    }

    /// Why an add has no answer: its write ended early, with the client's runtime or by a panic.
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

/// Where a counter is, and how it is written.
#[derive(Clone, Debug)]
struct CounterNode {
    place: Place,
    layout: CounterLayout,
    /// The directory of the outcome markers.
    markers: ZnodePath,
}

/// A value that was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Base {
    value: i64,
    /// The node's version; `None` without a node.
    version: Option<i32>,
}

/// What a batch of adds comes to.
#[derive(Debug)]
struct Sum {
    after: i64,
    /// For each add, the values around it, or what has no place in the layout.
    adds: Vec<Result<Added, ValueError>>,
}

/// Writes what the adds that wait come to, with those that come before it is sent, and answers them.
async fn write_batches(node: CounterNode, mut turn: WriteTurn<i64, AddResult, WriteState>) {
    loop {
        if turn.state.as_ref().is_some_and(|state| state.was_shared) {
            // Tasks that were answered together add again together. Without this, the first of them would
            // leave alone, and all others would wait for its write.
            tokio::task::yield_now().await;
        }
        let Some(mut batch) = turn.next() else { return };

        let mut state = turn.state.take().unwrap_or_else(|| node.first_state());
        // Called each time the write is sent: adds that came meanwhile are in it, and those whose task
        // was cancelled are not.
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
    /// What the first write begins with.
    fn first_state(&self) -> WriteState {
        WriteState {
            writer: Box::new(ExactWriter::new(&self.place.client, &self.markers)),
            base: None,
            was_shared: false,
        }
    }

    /// Adds all of it in one write, on whatever value is there at that moment. Each try is of the deltas that
    /// there are then.
    async fn write(
        &self,
        state: &mut WriteState,
        mut deltas: impl FnMut() -> Vec<i64>,
    ) -> Result<Sum, ValueError> {
        if state.writer.let_others().await {
            state.base = None;
        }

        loop {
            // Only a write that is known to be the last one leaves something to go by.
            let cached = state.base.take();
            let base = match cached {
                Some(base) => base,
                None => {
                    // Both in one round trip.
                    let prepared = state.writer.prepare();
                    let (base, prepared) = tokio::join! { biased; self.read(), prepared };
                    // If it was not prepared, the write tells why, or that it works by then.
                    drop(prepared);
                    base?
                }
            };

            let sum = self.sum(base.value, &deltas());
            if sum.adds.iter().all(Result::is_err) {
                if cached.is_some() {
                    // Others may have made room since. A write that was too late is told; this is not.
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

    /// Writes a value over another one, and reads what is there then in the same round trip.
    async fn exchange(
        &self,
        writer: &mut ExactWriter,
        base: Base,
        after: i64,
    ) -> Result<
        (Result<Applied, WriteError>, Result<Option<(bytes::Bytes, Stat)>, Error>),
        ValueError,
    > {
        let Place { client, path } = &self.place;
        if base.version == Some(-1) {
            return Err(ValueError::VersionWrapped { path: path.clone() });
        }
        // What is read beside the write must be read after it.
        writer.prepare().await.map_err(|error| ValueError::write(path, error))?;
        let data = self.layout.encode(after).expect("only what has a place is written");
        let written = writer.commit(|steps| match base.version {
            None => steps.create(path, data.clone(), CreateMode::Persistent),
            version => steps.set_data(path, data.clone(), version),
        });
        let seen = async { present(client.data(path).await) };
        Ok(tokio::join! { biased; written, seen })
    }

    async fn read(&self) -> Result<Base, ValueError> {
        self.base(self.place.read().await?)
    }

    fn base(&self, found: Option<(bytes::Bytes, Stat)>) -> Result<Base, ValueError> {
        let Some((data, stat)) = found else { return Ok(Base { value: 0, version: None }) };
        let value = self.layout.decode(&data).map_err(|found| {
            let (path, layout) = (self.place.path.clone(), self.layout);
            ValueError::NoNumber { path, layout, found }
        })?;
        Ok(Base { value, version: Some(stat.version) })
    }

    /// Adds one after the other, but for those whose sum has no place in the layout.
    fn sum(&self, base: i64, deltas: &[i64]) -> Sum {
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
        Sum { after, adds }
    }
}

impl Base {
    /// What is known when a value was written over this one.
    fn followed_by(self, value: i64, applied: &Applied) -> Self {
        let version = match applied.results.as_deref() {
            Some([OpResult::SetData(stat)]) => stat.version,
            // It is the one that was compared with, and one more.
            _ => self.version.map_or(0, |version| version.wrapping_add(1)),
        };
        Self { value, version: Some(version) }
    }
}

/// Whether there is nothing to create the node below.
fn is_orphan(error: &WriteError, base: Base) -> bool {
    base.version.is_none() && error.refuses_first(&[ErrorCode::NoNode])
}

/// Whether another program was quicker: the node is not as it was when it was read.
fn is_conflict(error: &WriteError, base: Base) -> bool {
    error.refuses_first(match base.version {
        None => &[ErrorCode::NodeExists],
        Some(_) => &[ErrorCode::BadVersion, ErrorCode::NoNode],
    })
}
