//! [`Queue`]: putting and taking items, and its options.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{Client, ZnodePath};

use crate::exact::DEFAULT_MARKERS;
use crate::exact::shared_write::lock;
use crate::queue::bound::Bound;
use crate::queue::core::{Core, Options};
use crate::queue::delivery::{AtLeastOnce, AtMostOnce, Delivery};
use crate::queue::error::QueueError;
use crate::queue::item::{Item, end_cancelled, pass_on};
use crate::queue::layout::QueueNodes;
use crate::queue::options::{Backoff, PutOptions};
use crate::queue::peer_layouts::QueueLayout;
use crate::queue::take::{DecodeCheck, TakeMode, TakenItem};
use crate::values::place::checked;
use crate::values::{Codec, Json};
use crate::waits::within;

/// A queue of items, each of which is worked on by one consumer at a time. Cheap to clone; clones share their
/// listing and their requests.
///
/// For thousands of coordinated jobs, not as a message bus. The page `docs/queues.md` names alternatives.
///
/// # Guarantees
///
/// - An item whose [put](Queue::put) was confirmed stays in the queue until it is recorded done, once, or is a dead
///   letter. No lost reply, lost connection or ended session changes that, for a put or an end.
/// - One consumer has an item at a time, by lease and by token: the claim lives as long as its session, so no
///   visibility time-out must be guessed, and only its holder can end the item. A holder that has lost it learns
///   so, by a failed [`Item::done`] at the latest.
/// - The writes of [`Item::done_with`] are applied once for each item.
/// - While a consumer waits in [`Queue::take`] and can reach a server, no item that can be taken stays, including
///   items of consumers that have died.
/// - Items are taken in the order in which they were put: strictly by a single consumer program, or [if
///   requested](QueueBuilder::strictly_in_order). Several consumers take from the oldest few hundred; one that was
///   killed counts until its session has ended.
/// - A put wakes one of the waiting consumers, and that one the next.
/// - Of the items with the same [key](PutOptions::key), one is worked on at a time, and no younger one before it
///   has ended, unless [retries pass](QueueBuilder::retries_pass).
/// - No item is taken before it is [due](PutOptions::delay) by the servers' clock. A waiting consumer takes it
///   then.
///
/// # Not guaranteed
///
/// - Effects outside of znodes may happen twice, if a consumer is lost after it had them. Let the target reject the
///   lower [token](lockkeeper_locks::Guard::token), or the second use of an [id](Item::id).
/// - An item that was taken for a call that is not polled waits for it, or for the end of its session.
/// - A retry comes after the items that were put before it, unless it has a key. An item that was given back keeps
///   its place.
/// - Items are not safe from programs that delete or write their znodes directly.
/// - Servers before 3.6 cannot answer several listings in one request, and refuse every take.
///
/// # Session loss
///
/// Items of the session go to other consumers. A waiting call continues with the next session. A put or an end in
/// flight is [`QueueError::Unknown`] if the session ends before it is answered.
///
/// # Znodes
///
/// `<path>`, with the version of the layout. Below it, for an item with the id `<id>`, 32 hexadecimal digits:
///
/// - `entries/<segment>/<id>.<tries>-<number>`: its place. The data is JSON: the consumer that took it last. Each
///   take raises the version, which distinguishes takes. A segment has about 256 entries; a full one is closed by a
///   write. The [options](PutOptions) of the item are in the name, after the tries, as `.<letter><value>`. The
///   segments of a priority begin with `p<priority>.`, those of a minute in which items are due with `t<minute>.`.
///   If the putter has set an id, `<id>` is another one, and `ids/<its id>` refers to it.
/// - `bodies/<id>`: its value, as JSON or in another codec. A long value is in `parts/<upload>/<number>`.
/// - `claims/<segment>-<number>.<version>`, ephemeral: a consumer works on it. With `~<time>`: it will be retried
///   then.
/// - `busy/k<key>` and `busy/n<kind>.<place>`, ephemeral: the key, and a place of the limited kind, are in use.
/// - `dead/<id>`: it is a dead letter.
/// - `answers/<id>`: the answer for its [requester](Queue::request).
/// - `slots/<number>`: its place in a queue with an [exact bound](Bound::exactly).
///
/// Also `workers/<name>.<number>`, ephemeral, for each session of a consumer; `line/` with the waiting consumers,
/// and `putters/` with the puts that wait for room. Outcome markers are in `/lockkeeper-outcomes`, or in [another
/// directory](QueueBuilder::markers).
///
/// To share a queue with programs on Curator or kazoo, choose [their layout](QueueBuilder::layout). [`QueueLayout`]
/// lists the limits of each.
///
/// # Cost
///
/// - A put costs 1 write, a take 1, an end 1, each 1 round trip. Concurrent requests of tasks with one handle share
///   1 write. One put in 256 costs 1 more.
/// - A listing of some hundred entries costs 1 read, and serves many takes, for 2 seconds at most.
/// - Keys, kinds and answers are steps of the same writes. A delayed item is moved when it is due: 1 read and 1
///   write for up to 100.
/// - A consumer that finds no item waits in line, which costs 1 write, and at the front 2 reads. Then it costs
///   nothing until an item can be taken: 2 events for each item, for any number of waiting consumers. If it finds
///   only the share of other consumers, it leaves that to them for 0.1 s, and lists again: 1 read.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::Queue;
///
/// let queue: Queue<String> = Queue::new(&client, "/jobs")?;
/// queue.put(&"resize cat.jpg".to_owned()).await?;
///
/// let item = queue.take().await?;
/// assert_eq!((item.value().as_str(), item.attempt()), ("resize cat.jpg", 1));
/// println!("{} with token {}", item.id(), item.token());
/// item.done().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "DistributedQueue")]
#[doc(alias = "SimpleDistributedQueue")]
#[doc(alias = "LockingQueue")]
pub struct Queue<T, D = AtLeastOnce> {
    pub(super) core: Arc<Core>,
    codec: Arc<dyn Codec<T>>,
    delivery: PhantomData<fn() -> D>,
}

/// Displays its path.
impl<T, D> std::fmt::Debug for Queue<T, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.path())
    }
}

impl<T, D> Clone for Queue<T, D> {
    fn clone(&self) -> Self {
        let (core, codec) = (Arc::clone(&self.core), Arc::clone(&self.codec));
        Self { core, codec, delivery: PhantomData }
    }
}

/// Options of a [`Queue`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct QueueBuilder<T, D = AtLeastOnce> {
    client: Client,
    path: String,
    layout: QueueLayout,
    lock_path: Option<String>,
    markers: Option<String>,
    options: Options,
    types: PhantomData<fn() -> (T, D)>,
}

impl<T, D> QueueBuilder<T, D> {
    lockkeeper_client::setters! {
        /// Sets the layout: Lockkeeper's own, or that of another library, whose programs then share the queue.
        /// Default: Lockkeeper's.
        pub fn layout(self, layout: QueueLayout) => self.layout = layout;

        /// Sets the path of the claims, in a layout of Curator: the `lockPath` of its `QueueBuilder`. All programs
        /// of the queue must have the same one, or all none: then they can only take [`AtMostOnce`]. Default: none.
        pub fn lock_path(self, path: &str) => self.lock_path = Some(path.to_owned());

        /// Sets how often an item is taken at most, at least 1; after that it becomes a dead letter. A take counts
        /// if the consumer gave the item back, was lost with it, or asked for a retry, so leave room for consumers
        /// that are killed. The limit of the taking consumer counts; programs that only put need none. Default: 16;
        /// in the layouts of other libraries, no limit, because they do not count takes.
        pub fn max_tries(self, tries: u32) => self.options.most_tries = Some(tries.max(1));

        /// Sets how long an item is held at most: after that it is lost, and taken by another consumer, although
        /// the session lives. For handlers that may hang in a live process. The holder learns of it first; the item
        /// is free when the last reported [deadline](lockkeeper_locks::Guard::deadline) has passed. Default: no
        /// limit.
        pub fn max_run(self, time: Duration) => self.options.max_run = Some(time);

        /// Sets whether this consumer always takes the oldest item, even if other consumers do the same. This costs
        /// a listing for each item, and consumers often try the same one. If all consumers set it, items are taken
        /// for the first time in the order in which they were put. Default: `false`.
        pub fn strictly_in_order(self, wanted: bool) => self.options.strictly = wanted;

        /// Sets the delay of retries, by the servers' clock: `first` after the first take, doubled after each
        /// further one, up to `longest`. The consumer that asks for the retry decides. Default: no delay.
        pub fn backoff(self, first: Duration, longest: Duration) =>
            self.options.backoff = Some(Backoff { first, longest });

        /// Sets whether a retry of an item with a [key](PutOptions::key) goes to the end of the queue, so that
        /// those behind it pass. By default it keeps its place, and other items with its key wait, because a key
        /// preserves order.
        pub fn retries_pass(self, wanted: bool) => self.options.retries_pass = wanted;

        /// Sets how many items of this [kind](PutOptions::kind) are worked on at the same time by all consumers of
        /// the queue. They must use the same limit, because each applies its own. With 0, this consumer takes none.
        /// Each listing becomes longer by as many names. Default: no limit.
        pub fn at_most(self, kind: &str, limit: u32) =>
            _ = self.options.limits.insert(kind.to_owned(), limit);

        /// Sets the maximum number of items in the queue, for puts of this handle. Default: no limit.
        pub fn bound(self, bound: Bound) => self.options.bound = Some(bound);

        /// Sets the size of a part of a long value, in bytes, so that tests can have long values cheaply.
        #[doc(hidden)]
        pub fn part_bytes(self, bytes: usize) => self.options.part = Some(bytes.max(1));

        /// Sets a label that others see with an item that this program works on. Default: only host, process and
        /// program.
        pub fn label(self, label: impl Into<String>) => self.options.label = Some(label.into());

        /// Sets the access control list of the created nodes. Default: that of the client; see
        /// [`DefaultAcl`](lockkeeper_client::DefaultAcl).
        pub fn acl(self, acl: &lockkeeper_client::DefaultAcl) =>
            self.client = self.client.with_default_acl(acl);

        /// Sets the directory of the outcome markers: a node below which this client may create others, and that no
        /// program lists or watches for other purposes. Default: `/lockkeeper-outcomes`. It is created if missing,
        /// as a container.
        pub fn markers(self, directory: &str) => self.markers = Some(directory.to_owned());
    }

    /// Sets what happens to an item when it is taken: [`AtLeastOnce`], the default, or [`AtMostOnce`]. Each
    /// consumer decides; programs that only put need not set it.
    pub fn delivery<E>(self, delivery: E) -> QueueBuilder<T, E> {
        let _ = delivery;
        let Self { client, path, layout, lock_path, markers, options, .. } = self;
        QueueBuilder { client, path, layout, lock_path, markers, options, types: PhantomData }
    }
}

impl<T, D: Delivery> QueueBuilder<T, D> {
    /// Creates the handle, for values that are encoded as JSON. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a queue; [`QueueError::NotInLayout`] if the layout does not support an option.
    pub fn build(self) -> Result<Queue<T, D>, QueueError>
    where
        Json: Codec<T>,
    {
        self.build_with(Json)
    }

    /// Creates the handle, for values that are encoded with this codec. No I/O.
    ///
    /// # Errors
    /// As [`QueueBuilder::build`].
    pub fn build_with(self, codec: impl Codec<T> + 'static) -> Result<Queue<T, D>, QueueError> {
        let path = checked(&self.client, &self.path)?;
        let markers = checked(&self.client, self.markers.as_deref().unwrap_or(DEFAULT_MARKERS))?;
        let places = self.places(path)?;
        let core = Core::new(self.client, places, markers, self.options);
        Ok(Queue { core, codec: Arc::new(codec), delivery: PhantomData })
    }

    /// The nodes of the queue, if the layout supports the options.
    fn places(&self, path: ZnodePath) -> Result<QueueNodes, QueueError> {
        let layout = self.layout;
        let without = |what, instead| {
            Err(QueueError::NotInLayout { path: path.clone(), layout, what, instead })
        };
        let lock_path = match &self.lock_path {
            Some(_) if !layout.takes_lock_path() => {
                return without("a path for its claims", ": leave `lock_path` out");
            }
            Some(lock_path) => Some(checked(&self.client, lock_path)?),
            None => None,
        };
        // Each item would be its own claim.
        if lock_path.as_ref() == Some(&path) {
            return without("claims among its items", ": choose another `lock_path`");
        }
        if layout.is_own() {
            return Ok(QueueNodes::new(path));
        }
        if self.options.most_tries.is_some() {
            return without("limits of tries", ": leave `max_tries` out");
        }
        let claims = layout.claims(&path, lock_path);
        if D::CLAIMS && claims.is_none() {
            return without(
                "claims",
                match layout.takes_lock_path() {
                    true => {
                        ": set the `lock_path` that the Java programs have, or `delivery(AtMostOnce)`"
                    }
                    false => ": set `delivery(AtMostOnce)`, also for programs that only put",
                },
            );
        }
        Ok(QueueNodes::of_peers(layout, path, claims))
    }
}

impl<T> Queue<T> {
    /// A queue at a path such as `/jobs`, for values that are encoded as JSON. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a queue.
    pub fn new(client: &Client, path: &str) -> Result<Self, QueueError>
    where
        Json: Codec<T>,
    {
        Queue::<T>::builder(client, path).build()
    }

    /// The options of a queue.
    pub fn builder(client: &Client, path: &str) -> QueueBuilder<T> {
        let options = Options::default();
        let (client, path, layout) = (client.clone(), path.to_owned(), QueueLayout::default());
        let (lock_path, markers) = (None, None);
        QueueBuilder { client, path, layout, lock_path, markers, options, types: PhantomData }
    }

    /// Takes the next item, and waits until there is one. Costs one round trip (1 write) if the last listing has
    /// one, and [more](Queue#cost) on first use and while the queue is empty.
    ///
    /// # Errors
    /// If the queue was deleted, the path has other data, or a request is refused; if no server can be reached for
    /// a session timeout; [`QueueError::Undecodable`] if an item cannot be decoded: it goes to the end of the
    /// queue, and this handle skips it from now on.
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// Safe: an item that was already taken is given back.
    pub async fn take(&self) -> Result<Item<T>, QueueError> {
        loop {
            if let Some(item) = self.some_items(1, true).await?.pop() {
                return Ok(item);
            }
        }
    }

    /// [`Queue::take`], with a time limit that includes outages; `None` if no item could be taken in time. With
    /// less than 10 ms it tries once. Costs the same.
    ///
    /// # Errors
    /// As [`Queue::take`].
    ///
    /// # Session loss
    /// As [`Queue::take`].
    ///
    /// # Cancel safety
    /// As [`Queue::take`].
    pub async fn take_timeout(&self, timeout: Duration) -> Result<Option<Item<T>>, QueueError> {
        let client = &self.core.client;
        within(client, timeout, self.try_take(), || self.take(), QueueError::passes).await
    }

    /// Takes the next item if there is one. Costs 2 round trips, or 1 if the last listing has one.
    ///
    /// # Errors
    /// As [`Queue::take`].
    ///
    /// # Session loss
    /// As [`Queue::take`].
    ///
    /// # Cancel safety
    /// As [`Queue::take`].
    pub async fn try_take(&self) -> Result<Option<Item<T>>, QueueError> {
        Ok(self.some_items(1, false).await?.pop())
    }

    /// Takes up to `most` items, all in one round trip if the last listing has them.
    pub(super) async fn some_items(
        &self,
        most: usize,
        waits: bool,
    ) -> Result<Vec<Item<T>>, QueueError> {
        loop {
            let taken = self.core.take(TakeMode::Claim, most, waits).await?;
            let (was_any, mut failed) = (!taken.is_empty(), None);
            let mut items = Vec::with_capacity(taken.len());
            for TakenItem { entry, version, body, held } in taken {
                let Some(held) = held else { continue };
                if body.is_none() && self.core.layout().is_own() {
                    end_cancelled(&self.core, entry, version, held);
                    continue;
                }
                let data = body.clone().unwrap_or_default();
                match self.decode(&entry.id, body) {
                    Ok(value) => {
                        items.push(Item::new(&self.core, entry, version, held, (value, data)));
                    }
                    Err(error) => {
                        pass_on(&self.core, entry, version, held);
                        failed = Some(error);
                    }
                }
            }
            match failed {
                Some(error) if items.is_empty() => return Err(error),
                // All of them were cancelled.
                None if was_any && items.is_empty() => {}
                _ => return Ok(items),
            }
        }
    }
}

impl<T: 'static> Queue<T, AtMostOnce> {
    /// Takes the next value out of the queue, and waits until there is one. Costs 2 round trips (1 read, 1 write)
    /// if the last listing has one, and [more](Queue#cost) on first use and while the queue is empty.
    ///
    /// # Errors
    /// As [`Queue::take`]; [`QueueError::Unknown`] if the session ended before it was known whether the value was
    /// removed: it is lost then, or still in the queue. [`QueueError::Undecodable`] if a value cannot be decoded:
    /// it stays, and the next call skips it.
    ///
    /// # Session loss
    /// Continues with the next session, unless the outcome is unknown.
    ///
    /// # Cancel safety
    /// When dropped, a value may be lost.
    pub async fn take(&self) -> Result<T, QueueError> {
        loop {
            let taken = self.core.take(TakeMode::Remove(self.reads()), 1, true).await?;
            if let Some(TakenItem { entry, body, .. }) = taken.into_iter().next() {
                return self.decode(&entry.id, body);
            }
        }
    }

    /// Like `take`, with a time limit that includes outages; `None` if no value could be taken in time. With less
    /// than 10 ms it tries once. Costs the same.
    ///
    /// # Errors
    /// As `take`.
    ///
    /// # Session loss
    /// As `take`.
    ///
    /// # Cancel safety
    /// When dropped, a value may be lost; also when the time is over during a take.
    pub async fn take_timeout(&self, timeout: Duration) -> Result<Option<T>, QueueError> {
        let client = &self.core.client;
        within(client, timeout, self.try_take(), || self.take(), QueueError::passes).await
    }

    /// Takes the next value out of the queue if there is one. Costs up to 3 round trips.
    ///
    /// # Errors
    /// As `take`.
    ///
    /// # Session loss
    /// As `take`.
    ///
    /// # Cancel safety
    /// When dropped, a value may be lost.
    pub async fn try_take(&self) -> Result<Option<T>, QueueError> {
        let taken = self.core.take(TakeMode::Remove(self.reads()), 1, false).await?;
        match taken.into_iter().next() {
            Some(TakenItem { entry, body, .. }) => self.decode(&entry.id, body).map(Some),
            None => Ok(None),
        }
    }

    /// Whether an item can be decoded, checked before it is removed.
    fn reads(&self) -> Arc<DecodeCheck> {
        let queue = self.clone();
        Arc::new(move |id, body| queue.decode(id, Some(body.clone())).map(drop))
    }
}

impl<T, D> Queue<T, D> {
    /// The queue's path.
    pub fn path(&self) -> &ZnodePath {
        self.core.path()
    }

    /// Puts an item at the end of the queue, and returns its id. Costs one round trip (1 write), and [a few
    /// more](Queue#cost) before the first.
    ///
    /// # Errors
    /// If the value cannot be encoded, is too large, or the request is refused; then nothing was put.
    /// [`QueueError::Unknown`] if the session ended, no server could be reached for a session timeout, or the
    /// outcome marker was deleted, after the write was sent and before the answer came.
    ///
    /// # Session loss
    /// A write that was not sent yet continues in the next session.
    ///
    /// # Cancel safety
    /// When dropped, it is put once or not at all.
    pub async fn put(&self, value: &T) -> Result<String, QueueError> {
        let ids = self.put_all(std::slice::from_ref(value)).await?;
        Ok(ids.into_iter().next().unwrap_or_default())
    }

    /// Puts items at the end of the queue, in their order and in one transaction: all of them, or none. Returns
    /// their ids. Costs one round trip (1 write). Servers accept and return about 1 MiB at once: each item is about
    /// 300 bytes longer than its value, and the limit of the answer is about 3,000 items.
    ///
    /// # Errors
    /// As [`Queue::put`].
    ///
    /// # Session loss
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    /// As [`Queue::put`].
    pub async fn put_all(&self, values: &[T]) -> Result<Vec<String>, QueueError> {
        let bodies = self.encode(values)?;
        match bodies.is_empty() {
            true => Ok(Vec::new()),
            false => self.core.put(&bodies, &PutOptions::new()).await,
        }
    }

    /// [`Queue::put`] with [options](PutOptions): a delay, a key, a priority. Costs the same; with a delay, a write
    /// more in a minute; 2 round trips more for the first item of a priority, and of the minute in which it is due.
    ///
    /// # Errors
    /// As [`Queue::put`]; [`QueueError::Options`] if an option is invalid, [`QueueError::Exists`] if the queue has
    /// an item with this id, [`QueueError::NotInLayout`] if the layout does not support an option.
    ///
    /// # Session loss
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    /// As [`Queue::put`].
    pub async fn put_with(&self, value: &T, options: &PutOptions) -> Result<String, QueueError> {
        let bodies = self.encode(std::slice::from_ref(value))?;
        let ids = self.core.put(&bodies, options).await?;
        Ok(ids.into_iter().next().unwrap_or_default())
    }

    pub(super) fn encode(&self, values: &[T]) -> Result<Vec<Bytes>, QueueError> {
        let bodies: Result<Vec<_>, _> = values.iter().map(|it| self.codec.encode(it)).collect();
        bodies.map_err(|error| QueueError::Unencodable {
            path: self.path().clone(),
            reason: error.to_string(),
        })
    }

    /// Decodes the value of an item. An item that cannot be decoded is skipped from now on.
    pub(super) fn decode(&self, id: &str, body: Option<Bytes>) -> Result<T, QueueError> {
        let decoded = match body.map(|body| self.core.layout().values(&body)) {
            Some(Ok(values)) => match values.first() {
                Some(value) => self.codec.decode(value).map_err(|error| error.to_string()),
                None => Err("it has no value".to_owned()),
            },
            Some(Err(reason)) => Err(reason),
            None => Err("its body is missing".to_owned()),
        };
        decoded.map_err(|reason| {
            lock(&self.core.picks).skip(id);
            tracing::warn!(queue = %self.path(), id, reason, "an item cannot be decoded");
            QueueError::Undecodable { path: self.path().clone(), id: id.to_owned(), reason }
        })
    }
}
lockkeeper_client::impl_debug!(QueueBuilder<T, D>, self => path: self.path);
