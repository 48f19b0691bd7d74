//! Producers and consumers of a queue. The consumers end items in every way: they complete them, give them back, lose
//! them, and crash while they hold them.
//!
//! An item is a unique number. For [`crate::checker`] an item is also a lock, which its consumer holds. An even item
//! creates a znode of the same name in the transaction that ends it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error as _;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{
    AtMostOnce, Bound, Client, CreateMode, ErrorCode, Failure as _, HolderState, Item, Outcome,
    PutOptions, Queue, QueueBuilder, QueueError, QueueReport, Request, SessionId, TransactionError,
    Verdict, ZnodePath,
};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub use super::items::QUEUE;
use super::padded::{PART, Padded};
use super::{Scene, is_unknown_without_reason, retried};
use crate::data_event::{Asked, DataEvent, End, Fate};
use crate::history::{Share, What};

/// The parent of the znodes that the ends of items create.
const WRITTEN: &str = "/written";

/// A node that does not exist.
const MISSING: &str = "/missing";

/// An id that belongs to no item.
const NO_ITEM: &str = "00000000000000000000000000000000";

/// The parent of the outcome markers, for the program that deletes them.
const MARKERS: &str = "/outcomes";

/// The kind of the items whose number at work is limited.
const KIND: &str = "few";

/// The priorities in use besides 0.
const PRIORITIES: [i32; 8] = [-40, -20, -9, -5, -3, -1, 2, 4];

/// How many puts of a task run concurrently with as many refused writes.
const BESIDE_REFUSALS: usize = 2;

/// As a share of the pace: about the time that writing a long value takes.
const SHORTLY: f64 = 0.05;

/// How many searches for leftover parts of long values are made after the faults.
const LOOKS_FOR_PARTS: usize = 5;

/// The longest delay of an item.
const LONGEST_DELAY: Duration = Duration::from_secs(15);

/// How many of the latest items may be cancelled.
const CANCELLABLE: usize = 12;

/// The interval between two looks at the queue.
const GLANCE: Duration = Duration::from_millis(200);

/// Longer than waiting consumers need to find that a key is in use.
const WHILE: Duration = Duration::from_secs(3);

/// Longer than a notification takes, and shorter than [`WHILE`].
const SOON: Duration = Duration::from_secs(2);

/// The key of the items of which one is ended late.
const LATE: &str = "late";

/// How many items a handler works on at once.
const AT_ONCE: usize = 3;

/// The number of entries at which a few more items fill a segment.
const NEARLY_FULL: usize = 250;

/// How many items are put, one after the other, to count the events that wake consumers.
const WAKING: usize = 6;

/// The settings of the queue in a run.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Whether there is a single consumer, which never crashes.
    pub alone: bool,
    /// Whether every consumer takes the oldest item first.
    pub strictly: bool,
    /// Whether some consumers also remove values (delivery at most once).
    pub at_most_once: bool,
    /// Whether a program brings segments close to their limit now and then.
    pub winds: bool,
    /// Whether a program puts dead letters back or discards them.
    pub has_clerk: bool,
    max_run: Option<Duration>,
    max_tries: u32,
    /// Whether a program deletes outcome markers.
    pub loses_markers: bool,
    /// Whether the server's clock is never changed: only then can an early delivery be detected.
    pub has_steady_clock: bool,
    extras: Option<Extras>,
    /// Whether the run contains no fault that would justify an error.
    is_well: bool,
    /// Whether no server lags behind another.
    is_prompt: bool,
}

/// The options that items are put with, and how consumers handle these.
#[derive(Clone, Copy, Debug)]
struct Extras {
    /// How many keys there are.
    keys: usize,
    /// Whether the items of one key are taken in order: none has a delay or a priority, and none is overtaken.
    in_order: bool,
    /// How many items of a kind may be worked on at once.
    at_most: Option<u32>,
    has_priorities: bool,
    has_delays: bool,
    backoff: Option<Duration>,
    retries_pass: bool,
    has_ids: bool,
    cancels: bool,
    /// Whether some producers wait for the outcome of their items.
    asks: bool,
    bound: Option<Bounded>,
    /// Whether some values are long.
    has_long: bool,
}

/// The bound on the number of items.
#[derive(Clone, Copy, Debug)]
struct Bounded {
    limit: u32,
    /// Whether puts wait for room.
    waits: bool,
    is_exact: bool,
}

impl Bounded {
    fn any(random: &mut fastrand::Rng) -> Self {
        Self { limit: random.u32(6..14), waits: random.bool(), is_exact: random.u8(0..3) > 0 }
    }

    /// `may_wait`: delays are short, so that there is room again soon.
    fn bound(&self, may_wait: bool) -> Bound {
        let bound = match self.is_exact {
            true => Bound::exactly(self.limit),
            false => Bound::about(self.limit),
        };
        if self.waits && may_wait { bound.waiting() } else { bound }
    }
}

impl Extras {
    /// `alone`: there is one consumer, so the order in which it takes is known.
    fn any(random: &mut fastrand::Rng, alone: bool) -> Self {
        let in_order = random.bool();
        Self {
            keys: random.usize(0..4),
            in_order,
            at_most: random.bool().then(|| random.u32(1..4)),
            has_priorities: alone || random.u8(0..3) > 0,
            has_delays: random.u8(0..3) > 0,
            backoff: random.bool().then(|| Duration::from_millis(random.u64(50..1_000))),
            retries_pass: !in_order && random.bool(),
            has_ids: random.bool(),
            cancels: random.u8(0..3) > 0,
            asks: random.bool(),
            bound: (random.u8(0..5) < 2).then(|| Bounded::any(random)),
            has_long: random.bool(),
        }
    }

    /// `may_wait`: see [`Bounded::bound`].
    fn ask(&self, builder: QueueBuilder<u64>, may_wait: bool) -> QueueBuilder<u64> {
        let builder = builder.retries_pass(self.retries_pass).part_bytes(PART);
        let builder = match self.backoff {
            Some(first) => builder.backoff(first, first * 6),
            None => builder,
        };
        let builder = match self.bound {
            Some(bounded) => builder.bound(bounded.bound(may_wait)),
            None => builder,
        };
        match self.at_most {
            Some(limit) => builder.at_most(KIND, limit),
            None => builder,
        }
    }
}

impl Terms {
    /// Chooses settings at random. `is_well`: no session is lost, and every outage is shorter than a session's
    /// lifetime. `is_prompt`: no server lags behind another.
    pub fn any(random: &mut fastrand::Rng, is_well: bool, is_prompt: bool) -> Self {
        let order = random.u8(0..4);
        // An item that is held for longer than its limit is lost.
        let max_run = (!is_well && random.u8(0..4) == 0).then(|| Duration::from_millis(700));
        Self {
            alone: order == 0,
            strictly: order == 1,
            at_most_once: order > 1 && random.bool(),
            winds: random.bool(),
            has_clerk: random.bool(),
            max_run,
            max_tries: random.u32(3..12),
            loses_markers: !is_well && random.u8(0..3) == 0,
            extras: random.bool().then(|| Extras::any(random, order == 0)),
            has_steady_clock: random.bool(),
            is_well,
            is_prompt,
        }
    }

    /// Whether a program cancels items.
    pub fn has_cancels(&self) -> bool {
        self.extras.is_some_and(|extras| extras.cancels)
    }

    fn is_in_order(&self) -> bool {
        self.alone || self.strictly
    }

    fn builder(&self, client: &Client) -> QueueBuilder<u64> {
        let builder = Queue::<u64>::builder(client, QUEUE);
        let builder = builder.max_tries(self.max_tries).strictly_in_order(self.strictly);
        let builder = match self.loses_markers {
            true => builder.markers(MARKERS),
            false => builder,
        };
        let builder = match &self.extras {
            Some(extras) => extras.ask(builder, self.has_steady_clock),
            None => builder,
        };
        match self.max_run {
            Some(time) => builder.max_run(time),
            None => builder,
        }
    }

    fn open(&self, client: &Client) -> Queue<u64> {
        self.builder(client).build_with(self.codec()).expect("a valid path")
    }

    fn codec(&self) -> Padded {
        Padded { has_long: self.has_long() }
    }

    fn has_long(&self) -> bool {
        self.extras.is_some_and(|extras| extras.has_long)
    }
}

/// What the first consumer of an item has to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Give it back and take no further item.
    Leave,
    /// Crash while holding it.
    Die,
    /// End it after a delay and take no further item.
    EndLate,
    /// End it after a delay.
    Linger,
}

/// State that the programs of a queue share.
#[derive(Debug)]
pub struct Orders {
    orders: Mutex<BTreeMap<u64, Order>>,
    /// The options that each item was put with.
    asked: Mutex<BTreeMap<u64, Asked>>,
    /// The latest items that may be cancelled, with their ids.
    latest: Mutex<VecDeque<(u64, String)>>,
    /// Items for which a cancellation was attempted.
    cancelled: Mutex<BTreeSet<u64>>,
    /// How many consumers only work off the remaining items.
    settling: watch::Sender<usize>,
    is_over: watch::Sender<bool>,
}

impl Default for Orders {
    fn default() -> Self {
        let (settling, is_over) = (watch::Sender::new(0), watch::Sender::new(false));
        Self {
            orders: Mutex::default(),
            asked: Mutex::default(),
            latest: Mutex::default(),
            cancelled: Mutex::default(),
            settling,
            is_over,
        }
    }
}

impl Orders {
    fn give(&self, item: u64, order: Order) {
        self.orders.lock().expect("not poisoned").insert(item, order);
    }

    fn take(&self, item: u64) -> Option<Order> {
        self.orders.lock().expect("not poisoned").remove(&item)
    }

    fn ask(&self, item: u64, asked: Asked) {
        self.asked.lock().expect("not poisoned").insert(item, asked);
    }

    fn asked(&self, item: u64) -> Asked {
        self.asked.lock().expect("not poisoned").get(&item).cloned().unwrap_or_default()
    }

    fn put(&self, item: u64, id: String) {
        let mut latest = self.latest.lock().expect("not poisoned");
        latest.push_front((item, id));
        latest.truncate(CANCELLABLE);
    }

    /// One of the latest items and its id.
    fn any_of_latest(&self, random: &mut fastrand::Rng) -> Option<(u64, String)> {
        let latest = self.latest.lock().expect("not poisoned");
        let some = latest.get(random.usize(0..latest.len().max(1))).cloned();
        some.inspect(|(item, _)| self.cancel(*item))
    }

    fn cancel(&self, item: u64) {
        self.cancelled.lock().expect("not poisoned").insert(item);
    }

    fn may_be_cancelled(&self, item: u64) -> bool {
        self.cancelled.lock().expect("not poisoned").contains(&item)
    }

    /// Returns when no more items will be put and all of them were taken.
    pub async fn over(&self) {
        let _ = self.is_over.subscribe().wait_for(|is_over| *is_over).await;
    }
}

/// What every program of a queue has.
pub struct QueueProgram {
    /// The environment in which it runs.
    pub scene: Arc<dyn Scene + Send + Sync>,
    /// Its client.
    pub client: Client,
    /// Its name in the history.
    pub name: String,
    /// The source of its decisions, which follow from the seed.
    pub random: Mutex<fastrand::Rng>,
    /// The settings of the queue.
    pub terms: Terms,
    /// The state that all programs of the queue share.
    pub orders: Arc<Orders>,
}

/// How an item is to be put.
#[derive(Clone, Debug, Default)]
struct Wanted {
    options: PutOptions,
    asked: Asked,
    has_id: bool,
}

impl QueueProgram {
    /// Puts items, one or several at once, and sometimes runs two puts concurrently.
    pub async fn put(self) {
        let queue = self.terms.open(&self.client);
        let bound = self.terms.extras.and_then(|extras| extras.bound);
        if let Some(Bounded { limit: items, is_exact: true, .. }) = bound {
            self.tell(DataEvent::Bounds { items });
        }
        while self.pause().await {
            match self.below(3) {
                0 => self.put_beside_a_refusal(&queue).await,
                1 if bound.is_some() => self.fill(&queue, bound).await,
                _ if self.terms.has_long() => self.put_and_look(&queue).await,
                _ => drop(self.put_some(&queue).await),
            }
        }
    }

    /// Puts one item after the other while there is room or soon will be.
    async fn fill(&self, queue: &Queue<u64>, bound: Option<Bounded>) {
        let most = bound.map_or(0, |bound| bound.limit + 2);
        for _ in 0..most {
            if !self.scene.goes_on() || !self.put_these(queue, vec![self.unique()]).await {
                return;
            }
        }
    }

    /// Runs puts concurrently with writes that are refused: each has its own outcome, although one transaction may
    /// carry several.
    async fn put_beside_a_refusal(&self, queue: &Queue<u64>) {
        let puts = async || {
            for _ in 0..BESIDE_REFUSALS {
                self.put_some(queue).await;
            }
        };
        let refused = async {
            for _ in 0..BESIDE_REFUSALS {
                if let Ok(true) = queue.cancel(NO_ITEM).await {
                    self.wrong("an item that does not exist was cancelled".to_owned());
                }
            }
        };
        tokio::join!(puts(), puts(), refused);
    }

    /// A put by a handle that searches for leftover parts of long values, or a put that is dropped half-way.
    async fn put_and_look(&self, queue: &Queue<u64>) {
        match self.below(3) {
            0 => drop(self.put_some(&self.terms.open(&self.client)).await),
            1 if !self.terms.is_well => {
                let put = self.put_these(queue, self.some_items());
                drop(timeout(self.upto(SHORTLY), put).await);
            }
            _ => drop(self.put_some(queue).await),
        }
    }

    async fn put_some(&self, queue: &Queue<u64>) -> bool {
        if let Some(extras) = self.terms.extras
            && self.below(4) > 0
        {
            return self.put_with(queue, &extras).await;
        }
        self.put_these(queue, self.some_items()).await
    }

    /// Creates new items.
    fn some_items(&self) -> Vec<u64> {
        let count = if self.below(3) == 0 { 2 + self.below(4) } else { 1 };
        (0..count).map(|_| self.unique()).collect()
    }

    /// Returns whether the put was confirmed.
    async fn put_these(&self, queue: &Queue<u64>, items: Vec<u64>) -> bool {
        let session = self.client.session_id();
        self.tell(DataEvent::Puts { items: items.clone() });
        let put = match items[..] {
            [item] => queue.put(&item).await.map(|id| vec![id]),
            _ => queue.put_all(&items).await,
        };
        match put {
            Ok(ids) => {
                items.iter().zip(ids).for_each(|(item, id)| self.orders.put(*item, id));
                self.tell(DataEvent::Put { items });
                return true;
            }
            Err(error) if self.is_unknown(session, "a put", &error) => {}
            Err(_) => self.tell(DataEvent::NotPut { items }),
        }
        false
    }

    /// Puts an item that may have a key. Returns whether the put was confirmed.
    async fn put_of_key(&self, queue: &Queue<u64>, item: u64, key: Option<&str>) -> bool {
        let Some(key) = key else { return self.put_these(queue, vec![item]).await };
        let asked = Asked { key: Some(key.to_owned()), in_order: true, ..Asked::default() };
        self.orders.ask(item, asked.clone());
        self.tell(DataEvent::Asks { item, asked });
        self.tell(DataEvent::Puts { items: vec![item] });
        let put = queue.put_with(&item, &PutOptions::new().key(key)).await.is_ok();
        if put {
            self.tell(DataEvent::Put { items: vec![item] });
        }
        put
    }

    /// Puts an item with options. If the outcome is unknown and the item has an id, the put is repeated with that id.
    /// Returns whether the item is or was in the queue.
    async fn put_with(&self, queue: &Queue<u64>, extras: &Extras) -> bool {
        let Wanted { options, asked, has_id } = self.wanted(extras);
        let mut item = self.unique();
        if has_id {
            // An odd item creates no node at its end: such an item may be put twice, one after the other.
            item |= 1;
        }
        let options = if has_id { options.id(format!("{item:x}")) } else { options };
        self.orders.ask(item, asked.clone());
        self.tell(DataEvent::Asks { item, asked });
        self.tell(DataEvent::Puts { items: vec![item] });
        if extras.asks && !has_id && self.below(2) == 0 {
            return self.ask(queue, item, &options).await;
        }

        let mut is_again = false;
        loop {
            let session = self.client.session_id();
            let refused = match is_again {
                true => DataEvent::NotPutAgain { item },
                false => DataEvent::NotPut { items: vec![item] },
            };
            match queue.put_with(&item, &options).await {
                Ok(id) => {
                    self.orders.put(item, id);
                    self.tell(DataEvent::Put { items: vec![item] });
                    return true;
                }
                Err(QueueError::Exists { .. }) if is_again => {
                    self.tell(refused);
                    self.tell(DataEvent::Put { items: vec![item] });
                    return true;
                }
                Err(error) if self.is_unknown(session, "a put", &error) => {}
                Err(_) => {
                    self.tell(refused);
                    if !is_again {
                        return false;
                    }
                }
            }

            sleep(self.upto(0.2)).await;
            if !has_id || !self.scene.goes_on() {
                return false;
            }
            is_again = true;
            self.tell(DataEvent::PutsAgain { item });
        }
    }

    /// Puts an item and waits for a while for its outcome. Returns whether the put was confirmed.
    async fn ask(&self, queue: &Queue<u64>, item: u64, options: &PutOptions) -> bool {
        let session = self.client.session_id();
        let request = match queue.request_with(&item, options).await {
            Ok(request) => request,
            Err(error) => {
                if !self.is_unknown(session, "a put", &error) {
                    self.tell(DataEvent::NotPut { items: vec![item] });
                }
                return false;
            }
        };
        self.orders.put(item, request.id().to_owned());
        self.tell(DataEvent::Put { items: vec![item] });
        if let Ok(answer) = timeout(self.upto(4.0), request.answer::<Option<u64>>()).await {
            self.answered(item, &request, answer);
        }
        true
    }

    fn answered(&self, item: u64, request: &Request, answer: Result<Option<u64>, QueueError>) {
        match answer {
            Ok(answer) => self.tell(DataEvent::Answered { item, answer }),
            Err(QueueError::Buried { .. }) => {}
            Err(QueueError::Cancelled { .. }) if self.orders.may_be_cancelled(item) => {}
            Err(QueueError::NoAnswer { .. }) if !self.terms.is_well => {}
            Err(error) => self.wrong(format!("the answer to {}: {error:?}", request.id())),
        }
    }

    fn wanted(&self, extras: &Extras) -> Wanted {
        let Wanted { mut options, mut asked, .. } = Wanted::default();
        if extras.has_priorities && self.below(3) == 0 {
            // Nothing else may delay it.
            asked.priority = self.priority();
            return Wanted { options: options.priority(asked.priority), asked, has_id: false };
        }

        if extras.keys > 0 && self.below(3) > 0 {
            let key = format!("k{}", self.below(extras.keys));
            options = options.key(&key);
            (asked.key, asked.in_order) = (Some(key), extras.in_order);
        }
        if extras.at_most.is_some() && self.below(2) == 0 {
            options = options.kind(KIND);
            asked.kind = Some(KIND.to_owned());
        }
        if extras.has_priorities && !asked.in_order && self.below(3) > 0 {
            asked.priority = self.priority();
            options = options.priority(asked.priority);
        }

        if extras.has_delays && !asked.in_order && self.below(2) == 0 {
            let delay = match self.below(4) {
                0 => Duration::ZERO,
                _ => self.delay(),
            };
            let delay_ms = millis(delay);
            match self.scene.server_unix_ms() {
                Some(now) if self.below(2) == 0 => {
                    asked.due_unix_ms = Some(now + delay_ms);
                    options = options.due_unix_ms(now + delay_ms);
                }
                _ => {
                    asked.delay_ms = Some(delay_ms);
                    options = options.delay(delay);
                }
            }
        }
        Wanted { options, asked, has_id: extras.has_ids && self.below(3) == 0 }
    }

    fn priority(&self) -> i32 {
        PRIORITIES[self.below(PRIORITIES.len())]
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(millis(self.upto(2.5).min(LONGEST_DELAY)))
    }

    /// Cancels items, whatever their state.
    pub async fn cancel(self) {
        let queue = self.terms.open(&self.client);
        while self.pause().await {
            let latest = {
                let mut random = self.random.lock().expect("not poisoned");
                self.orders.any_of_latest(&mut random)
            };
            let Some((item, id)) = latest else { continue };
            let (attempt, session) = (self.unique(), self.client.session_id());
            self.tell(DataEvent::Cancels { attempt, item });
            match queue.cancel(&id).await {
                Ok(true) => self.tell(DataEvent::Cancelled { attempt }),
                Err(error) if self.is_unknown(session, "a cancellation", &error) => {}
                Ok(false) | Err(_) => self.tell(DataEvent::NotCancelled { attempt }),
            }
        }
    }

    /// Deletes outcome markers repeatedly.
    pub async fn delete_markers(self) {
        let markers = path(MARKERS);
        while self.scene.goes_on() {
            sleep(self.upto(0.1)).await;
            let Ok((names, _)) = self.client.children(&markers).await else { continue };
            for name in names {
                let marker = markers.child(&name).expect("a listed name is valid");
                // The marker may be gone, or no server may be reachable.
                let _ = self.client.delete(&marker, None).await;
            }
        }
    }

    /// Brings the newest segment close to its limit with nodes that are deleted at once.
    pub async fn wind(self) {
        let entries = path(&format!("{QUEUE}/entries"));
        while self.pause().await && self.pause().await {
            let Ok((mut names, _)) = self.client.children(&entries).await else { continue };
            // Only the names of items without options.
            names.retain(|name| !name.contains('.'));
            names.sort();
            let Some(last) = names.last().and_then(|name| entries.child(name).ok()) else {
                continue;
            };
            let node = last.child("x").expect("a letter");
            let steps = self.client.transaction().check(&last, Some(0));
            let steps = (0..NEARLY_FULL).fold(steps, |steps, _| {
                steps.create(&node, "", CreateMode::Persistent).delete(&node, None)
            });
            // Another program may have closed the segment, or no server may be reachable.
            let _ = steps.commit().await;
        }
    }

    /// Puts dead letters back, discards them, or tries both concurrently.
    pub async fn see_to_letters(self) {
        let queue = self.terms.open(&self.client);
        while self.pause().await {
            let Ok(letters) = queue.dead_letters().await else { continue };
            for letter in &letters {
                // It may no longer be a dead letter.
                let Ok(Some(item)) = queue.dead_value(&letter.id).await else { continue };
                let send = |fate| self.send(&queue, &letter.id, item, fate);
                match self.below(6) {
                    0 | 1 => send(Fate::PutBack).await,
                    2 => send(Fate::Discard).await,
                    3 => drop(tokio::join!(send(Fate::PutBack), send(Fate::Discard))),
                    _ => {}
                }
            }
        }
    }

    async fn send(&self, queue: &Queue<u64>, id: &str, item: u64, fate: Fate) {
        let (attempt, session) = (self.unique(), self.client.session_id());
        self.tell(DataEvent::Sends { attempt, item, fate });
        let sent = match fate {
            Fate::PutBack => queue.put_back(id).await,
            Fate::Discard => queue.discard(id).await,
        };
        match sent {
            Ok(true) => self.tell(DataEvent::Sent { attempt }),
            Err(error) if self.is_unknown(session, "the end of a letter", &error) => {}
            Ok(false) | Err(_) => self.tell(DataEvent::NotSent { attempt }),
        }
    }

    /// Removes values from the queue.
    pub async fn remove(self) {
        let builder = self.terms.builder(&self.client).delivery(AtMostOnce);
        let queue: Queue<u64, AtMostOnce> =
            builder.build_with(self.terms.codec()).expect("a valid path");
        while self.pause().await {
            let (attempt, session) = (self.unique(), self.client.session_id());
            self.tell(DataEvent::Removes { attempt });
            let removed = match self.below(2) {
                0 => queue.try_take().await,
                // After a timeout the outcome is unknown.
                _ => match timeout(self.upto(2.0), queue.take()).await {
                    Ok(taken) => taken.map(Some),
                    Err(_) => continue,
                },
            };
            match removed {
                Ok(Some(item)) => self.tell(DataEvent::Removed { attempt, item }),
                Ok(None) => self.tell(DataEvent::NotRemoved { attempt }),
                Err(error) if self.is_unknown(session, "a removal", &error) => {}
                Err(_) => self.tell(DataEvent::NotRemoved { attempt }),
            }
        }
    }

    /// A number that no other program uses, whatever its seed.
    fn unique(&self) -> u64 {
        self.client.unique_id().as_u64_pair().0
    }

    /// Returns whether the outcome is unknown; reports errors that must not occur.
    fn is_unknown(&self, session: SessionId, what: &str, error: &QueueError) -> bool {
        // A full queue is an expected error.
        if matches!(error, QueueError::Full { .. }) {
            return false;
        }
        // Only valid values are put, ids are new, and the queue is never deleted.
        if let QueueError::Undecodable { .. }
        | QueueError::Exists { .. }
        | QueueError::Deleted { .. } = error
        {
            self.wrong(format!("{what}: {error}"));
        }
        let is_unknown = error.outcome() == Outcome::Unknown;
        let same_session = self.client.session_id() == session && session != SessionId::NONE;
        let without_reason =
            error.source().is_none_or(|source| is_unknown_without_reason(source, same_session));
        if is_unknown && without_reason && !self.terms.loses_markers || self.terms.is_well {
            self.wrong(format!("{what} in one session: {error:?}"));
        }
        is_unknown
    }

    fn below(&self, end: usize) -> usize {
        self.random.lock().expect("not poisoned").usize(0..end)
    }

    /// A random time, up to this share of the pace.
    fn upto(&self, most: f64) -> Duration {
        let share = self.random.lock().expect("not poisoned").f64();
        self.scene.pace().mul_f64(most * share)
    }

    /// Returns whether there is time for another step.
    async fn pause(&self) -> bool {
        sleep(self.upto(1.0)).await;
        self.scene.goes_on()
    }

    fn tell(&self, told: DataEvent) {
        self.scene.note(&self.name, What::Data(told));
    }

    fn wrong(&self, what: String) {
        self.scene.note(&self.name, What::WrongItem(what));
    }
}

/// What a consumer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Goes,
    Leaves,
    Dies,
}

/// The delay after which an item is to come back.
#[derive(Clone, Copy, Debug)]
struct Later {
    /// The delay that was requested.
    asked: Option<Duration>,
    /// The shortest delay allowed: the requested one, or the back-off of the queue.
    at_least: Duration,
}

/// A program that works on items.
pub struct Consumer {
    /// What it shares with every program of a queue.
    pub program: QueueProgram,
    /// Ends the program immediately: none of its code runs afterwards. The argument says whether a replacement is to be
    /// started.
    pub die: Box<dyn Fn(bool) + Send + Sync>,
    /// Cuts its machine off for a little longer than its session lives.
    pub cut_off: Box<dyn Fn() + Send + Sync>,
}

impl Consumer {
    /// Works on items until no more are put and all were taken.
    pub async fn consume(self) {
        let queue = self.terms.open(&self.client);
        if !self.terms.is_in_order() && self.below(3) == 0 {
            self.handle(&queue).await;
        }
        while self.scene.goes_on() {
            let session = self.client.session_id();
            if self.terms.alone && self.terms.is_prompt {
                self.tell(DataEvent::LooksForItem);
            }
            match self.take_once(&queue).await {
                Ok(Some(item)) => drop(self.work(item).await),
                Ok(None) => {}
                Err(error) => {
                    self.is_unknown(session, "a take", &error);
                    sleep(GLANCE).await;
                }
            }
        }
        self.settle(&queue).await;
    }

    /// Takes an item in any of the ways, or none.
    async fn take_once(&self, queue: &Queue<u64>) -> Result<Option<Item<u64>>, QueueError> {
        // Successive takes show what a dropped one leaves to the next.
        if self.terms.alone && self.below(3) == 0 {
            let taken = timeout(self.upto(0.1), queue.take()).await;
            return taken.map_or(Ok(None), |taken| taken.map(Some));
        }
        match self.below(7) {
            0 => {
                sleep(self.upto(0.3)).await;
                queue.try_take().await
            }
            1 => queue.take_timeout(self.upto(1.0)).await,
            // Also dropped half-way.
            2 => timeout(self.upto(0.2), queue.take())
                .await
                .map_or(Ok(None), |taken| taken.map(Some)),
            // The future is not polled for a while. During that time it may have taken an item and lost it again.
            3 if !self.terms.is_well => {
                let mut take = pin!(queue.take());
                if let Ok(taken) = timeout(self.upto(0.2), &mut take).await {
                    return taken.map(Some);
                }
                sleep(self.upto(4.0)).await;
                timeout(self.scene.pace(), take).await.map_or(Ok(None), |taken| taken.map(Some))
            }
            _ => {
                let most = self.scene.pace() * 3;
                timeout(most, queue.take()).await.map_or(Ok(None), |taken| taken.map(Some))
            }
        }
    }

    /// Runs a handler that works on items, some at once.
    async fn handle(&self, queue: &Queue<u64>) {
        let stop = async {
            while self.scene.goes_on() && self.below(8) > 0 {
                sleep(self.scene.pace()).await;
            }
        };

        let handler = async |item: Arc<Item<u64>>| {
            let item = &*item;
            let believes = Believes(self, item);
            self.begin(item).await;
            self.look(item).await;
            if self.below(4) == 0 && !self.stays_after_refusal(item).await {
                return Verdict::Done;
            }

            // The end itself is recorded.
            std::mem::forget(believes);
            let how = match self.below(8) {
                0 => End::Retry,
                1 => End::Bury,
                _ => End::Done,
            };
            let reason = "by the handler".to_owned();
            if self.below(4) > 0 {
                self.end(item, how).await;
                // A handler whose item was not ended asks for a retry.
                return Verdict::Retry(reason);
            }
            // The outcome of a verdict is not reported.
            self.begin_end(item, how);
            match how {
                End::Done => Verdict::Done,
                End::Retry => Verdict::Retry(reason),
                End::Bury => Verdict::Bury(reason),
            }
        };

        if let Err(error) = queue.work_until(AT_ONCE, stop, handler).await {
            self.wrong(format!("the work ended: {error:?}"));
        }
    }

    /// After the faults: works off the remaining items and follows orders.
    async fn settle(&self, queue: &Queue<u64>) {
        self.orders.settling.send_modify(|settling| *settling += 1);
        let work = async {
            loop {
                // Without a timeout: a consumer that asks repeatedly would not depend on being woken.
                match queue.take().await {
                    Ok(item) => match self.work(item).await {
                        Next::Goes => {}
                        // Its handle is kept, so that no other consumer learns of its departure.
                        Next::Leaves | Next::Dies => return std::future::pending().await,
                    },
                    // A session that was lost in the last moments is reported by the first call.
                    Err(error) => {
                        if matches!(error, QueueError::Undecodable { .. }) {
                            self.wrong(format!("a take: {error}"));
                        }
                        sleep(GLANCE).await;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = self.orders.over() => {}
            () = work => {}
        }
    }

    async fn work(&self, item: Item<u64>) -> Next {
        if !item.is_held() {
            self.wrong(format!("{} was lost when it was handed over", item.value()));
        }
        self.begin(&item).await;
        let order = match item.attempt() {
            1 => self.orders.take(*item.value()),
            _ => None,
        };
        match order {
            Some(Order::Leave) => {
                self.gives_back(&item);
                return Next::Leaves;
            }
            Some(Order::Die) => return self.die(item, false).await,
            Some(Order::EndLate) => {
                sleep(WHILE).await;
                self.end(&item, End::Done).await;
                return Next::Leaves;
            }
            Some(Order::Linger) => {
                sleep(WHILE).await;
                self.end(&item, End::Done).await;
                return Next::Goes;
            }
            None => {}
        }

        // After the faults, the remaining items are to be finished soon.
        if self.scene.goes_on() {
            self.look(&item).await;
        }
        let goes_on = self.scene.goes_on();
        match self.below(16) {
            0 if goes_on && !self.terms.alone => {
                if self.terms.has_long() && !self.terms.is_well && self.below(2) == 0 {
                    self.begin_put().await;
                }
                return self.die(item, true).await;
            }
            1 | 2 if goes_on => self.gives_back(&item),
            3 | 4 | 9 if goes_on => self.end(&item, End::Retry).await,
            5 => self.end(&item, End::Bury).await,
            // When that is sent in the next session, another consumer may have the item.
            6 | 10 if goes_on && !self.terms.is_well => {
                (self.cut_off)();
                self.end(&item, End::Done).await;
            }
            7 | 8 => {
                if self.stays_after_refusal(&item).await {
                    self.end(&item, End::Done).await;
                }
            }
            _ => self.end(&item, End::Done).await,
        }
        Next::Goes
    }

    /// Starts a put and drops it half-way.
    async fn begin_put(&self) {
        let queue = self.terms.open(&self.client);
        let put = self.put_these(&queue, vec![self.unique()]);
        drop(timeout(self.upto(SHORTLY), put).await);
    }

    /// Crashes while holding an item.
    async fn die(&self, item: Item<u64>, is_replaced: bool) -> Next {
        self.scene.note(&self.name, What::Died);
        (self.die)(is_replaced);
        // Dropping the item would give it back.
        std::future::pending::<()>().await;
        drop(item);
        Next::Dies
    }

    /// Records what it has.
    async fn begin(&self, item: &Item<u64>) {
        let token = item.token().to_u128();
        for (who, lock, share) in self.locks(item) {
            self.scene.note(&who, What::Granted { lock, token, share });
        }
        self.still_holds(item);

        let put = match self.terms.is_in_order() || self.orders.asked(*item.value()).in_order {
            true => self.put_by(item).await,
            false => None,
        };
        self.tell(DataEvent::Takes { item: *item.value(), token, tries: item.attempt(), put });
    }

    /// The transaction that put an item.
    async fn put_by(&self, item: &Item<u64>) -> Option<i64> {
        for part in ["bodies", "ids"] {
            let node = path(&format!("{QUEUE}/{part}/{}", item.id()));
            if let Ok((_, stat)) = self.client.data(&node).await {
                return Some(stat.czxid.0);
            }
        }
        None
    }

    /// Works on an item for a while and checks whether it still holds it.
    async fn look(&self, item: &Item<u64>) {
        let looks = self.below(4);
        for _ in 0..looks {
            let time = self.upto(0.2);
            match self.terms.has_cancels() {
                true => self.is_cancelled_within(item, time).await,
                false => sleep(time).await,
            }
            if !self.still_holds(item) {
                return;
            }
        }
    }

    /// Waits for this time, or until it learns that the item was cancelled.
    async fn is_cancelled_within(&self, item: &Item<u64>, time: Duration) {
        if timeout(time, item.cancelled()).await.is_ok()
            && !self.orders.may_be_cancelled(*item.value())
        {
            self.wrong(format!("{} was reported as cancelled and was not", item.value()));
        }
    }

    /// The resources that an item occupies, with the item's entry for each: the item itself, its key, and one of the
    /// places of its kind. One transaction may take several of these places.
    fn locks(&self, item: &Item<u64>) -> Vec<(String, String, Share)> {
        let Asked { key, kind, .. } = self.orders.asked(*item.value());
        let limit = self.terms.extras.and_then(|extras| extras.at_most);
        let who = || self.name.clone();
        let own = (who(), format!("{QUEUE}/{}", item.value()), Share::Alone);
        let key = key.map(|key| (who(), format!("{QUEUE}/key/{key}"), Share::Alone));
        let kind = kind.zip(limit).map(|(kind, of)| {
            let who = format!("{} with {}", self.name, item.value());
            (who, format!("{QUEUE}/kind/{kind}"), Share::Permits { taken: 1, of })
        });
        [own].into_iter().chain(key).chain(kind).collect()
    }

    /// Records until when no other consumer can have the item, or that it was lost.
    fn still_holds(&self, item: &Item<u64>) -> bool {
        let token = item.token().to_u128();
        // Read first: its answer must be true although time has passed since.
        let deadline = item.deadline();
        let until = deadline.and_then(|deadline| self.scene.true_time(deadline));
        match (item.state(), until) {
            (HolderState::Lost(reason), _) => {
                for (who, lock, _) in self.locks(item) {
                    let reason = format!("{reason:?}");
                    self.scene.note(&who, What::Lost { lock, token, reason });
                }
                false
            }
            (_, Some(until)) => {
                for (who, lock, _) in self.locks(item) {
                    self.scene.note(&who, What::Claimed { lock, token, until });
                }
                true
            }
            (_, None) => deadline.is_some(),
        }
    }

    fn gives_back(&self, item: &Item<u64>) {
        let token = item.token().to_u128();
        for (who, lock, _) in self.locks(item) {
            self.scene.note(&who, What::GaveBack { lock, token });
        }
    }

    /// Ends an item.
    async fn end(&self, item: &Item<u64>, how: End) {
        let (id, token, session) =
            (*item.value(), item.token().to_u128(), self.client.session_id());
        let later = match self.terms.extras {
            Some(extras) if how == End::Retry => self.later(&extras),
            _ => None,
        };
        if let Some(Later { at_least, .. }) = later {
            let delay_ms = millis(at_least);
            self.tell(DataEvent::Delays { item: id, token, delay_ms });
        }
        self.begin_end(item, how);

        let ended = match how {
            End::Done if id.is_multiple_of(2) => {
                let node = path(&format!("{WRITTEN}/{id}"));
                let steps = self.client.transaction();
                item.done_with(steps.create(&node, "", CreateMode::Persistent)).await
            }
            End::Done => item.done_with_answer(&id).await,
            End::Retry => match later.and_then(|later| later.asked) {
                Some(delay) => item.retry_after(delay, "later").await,
                None => item.retry("again").await,
            },
            End::Bury => item.bury("for good").await,
        };

        match ended {
            Ok(()) => self.tell(DataEvent::Ended { item: id, token }),
            Err(QueueError::Cancelled { .. }) => {
                self.tell(DataEvent::EndCancelled { item: id, token })
            }
            Err(QueueError::Lost { .. } | QueueError::Ended { .. }) if !self.terms.is_well => {
                self.tell(DataEvent::NotEnded { item: id, token });
            }
            Err(QueueError::Refused {
                source: source @ TransactionError::Failed { .. }, ..
            }) => {
                self.wrong(format!("{how:?} of {id}: {source}"));
            }
            Err(error) if self.is_unknown(session, "an end", &error) => {}
            Err(_) => self.tell(DataEvent::NotEnded { item: id, token }),
        }
    }

    /// After which delay a retried item comes back, if it does.
    fn later(&self, extras: &Extras) -> Option<Later> {
        let may_ask = extras.has_delays || extras.in_order;
        let asked = (may_ask && self.below(2) == 0).then(|| self.delay());
        let at_least = asked.or(extras.backoff)?;
        Some(Later { asked, at_least })
    }

    fn begin_end(&self, item: &Item<u64>, how: End) {
        self.tell(DataEvent::Ends { item: *item.value(), token: item.token().to_u128(), how });
        self.gives_back(item);
    }

    /// Requests an end with a write that is refused. Returns whether the item still exists: it does not if it was
    /// cancelled.
    async fn stays_after_refusal(&self, item: &Item<u64>) -> bool {
        let asked = self.orders.asked(*item.value());
        // If the item was cancelled, this ends it, and other consumers get its key before the answer arrives.
        if self.terms.has_cancels() && (asked.key.is_some() || asked.kind.is_some()) {
            return true;
        }
        let steps = self.client.transaction().delete(&path(MISSING), None);
        match item.done_with(steps).await {
            Ok(()) => self.wrong(format!("{} was done with a refused write", item.value())),
            Err(QueueError::Cancelled { .. }) => {
                self.gives_back(item);
                let (item, token) = (*item.value(), item.token().to_u128());
                self.tell(DataEvent::EndCancelled { item, token });
                return false;
            }
            Err(_) => {}
        }
        true
    }
}

/// Creates the znodes that all programs of a queue need.
pub async fn prepare(client: &Client) {
    let written = path(WRITTEN);
    retried(GLANCE, || client.ensure(&written, CreateMode::Persistent)).await;
}

/// After the faults: returns when all items were taken, including those that a departing consumer gives back and those
/// of a crashed one, and records the final state. `consumers` is their number.
pub async fn settle(program: &QueueProgram, consumers: usize) {
    let orders = &program.orders;
    let queue = program.terms.open(&program.client);
    // A consumer that leaves must leave something to the others: an item, or those behind it.
    let leaves = match program.terms.extras {
        Some(extras) if extras.keys > 0 => Order::EndLate,
        _ => Order::Leave,
    };
    let asked: &[_] = match program.terms.alone {
        true => &[None],
        false => &[Some(leaves), Some(Order::Die), None],
    };
    program.until_empty(&queue).await;
    let _ = orders.settling.subscribe().wait_for(|settling| *settling == consumers).await;
    program.wake(&queue).await;
    for order in asked {
        let item = program.unique();
        order.iter().for_each(|order| orders.give(item, *order));
        let of_key = [item, program.unique()];
        let (items, key) = match order {
            Some(Order::EndLate) => (&of_key[..], Some(LATE)),
            _ => (&of_key[..1], None),
        };
        for item in items {
            while !program.put_of_key(&queue, *item, key).await {
                sleep(GLANCE).await;
            }
        }
        program.until_empty(&queue).await;
    }

    if program.terms.extras.is_some_and(|extras| extras.asks) && program.terms.max_run.is_none() {
        program.cancel_what_is_asked_for(&queue).await;
    }
    if program.terms.has_long() {
        program.look_for_parts().await;
    }

    let mut dead = Vec::new();
    let letters = retried(GLANCE, || queue.dead_letters()).await;
    for letter in &letters {
        dead.extend(retried(GLANCE, || queue.dead_value(&letter.id)).await);
    }
    let written = program.names_in(WRITTEN).await;
    let written = written.iter().filter_map(|name| name.parse().ok()).collect();
    program.tell(DataEvent::Emptied { dead, written });

    let mut left = Vec::new();
    let buried = program.names_in(&format!("{QUEUE}/dead")).await;
    for part in ["bodies", "claims", "busy", "ids", "answers", "slots"] {
        let names = program.names_in(&format!("{QUEUE}/{part}")).await;
        let is_left = |id: &String| match part {
            "bodies" => !buried.contains(id),
            "ids" => !letters.iter().any(|it| it.id == *id),
            _ => true,
        };
        left.extend(names.into_iter().filter(is_left).map(|name| format!("{QUEUE}/{part}/{name}")));
    }
    let entries = format!("{QUEUE}/entries");
    for segment in program.names_in(&entries).await {
        let names = program.names_in(&format!("{entries}/{segment}")).await;
        left.extend(names.into_iter().map(|name| format!("{entries}/{segment}/{name}")));
    }
    if let Some(left) = left.into_iter().next() {
        program.scene.note("world", What::Left(left));
    }
    orders.is_over.send_replace(true);
}

/// Waits for an item that never comes, until the program dies.
pub async fn wait_in_vain(program: QueueProgram) {
    loop {
        drop(program.terms.open(&program.client).take().await);
    }
}

/// Returns when a consumer waits.
pub async fn until_one_waits(program: &QueueProgram) {
    let queue = program.terms.open(&program.client);
    program.until(&queue, |report| report.idle == 1).await;
}

/// Puts as many items as there are consumers, and takes them all, one after the other.
pub async fn put_and_take(program: &QueueProgram, consumers: u64) {
    let queue = program.terms.open(&program.client);
    let values: Vec<_> = (0..consumers).collect();
    drop(retried(GLANCE, || queue.put_all(&values)).await);
    for _ in values {
        let item = retried(GLANCE, || queue.take()).await;
        retried(GLANCE, || item.done()).await;
    }
}

/// The state of the queue as readable text.
pub async fn look(program: &QueueProgram) -> String {
    let report = program.terms.open(&program.client).inspect().await;
    let claims = program.names_in(&format!("{QUEUE}/claims")).await;
    let line = program.names_in(&format!("{QUEUE}/line")).await;
    let entries = format!("{QUEUE}/entries");
    let mut all = Vec::new();
    for segment in program.names_in(&entries).await {
        let names = program.names_in(&format!("{entries}/{segment}")).await;
        all.extend(names.into_iter().map(|name| format!("{segment}/{name}")));
    }
    format!("{report:?}, claims {claims:?}, in line {line:?}, entries {all:?}")
}

impl QueueProgram {
    /// Waits until no item is to be taken, now or later, and none is held.
    async fn until_empty(&self, queue: &Queue<u64>) {
        self.until(queue, is_empty).await;
    }

    /// Waits until the queue is in such a state or turns out never to have been created.
    async fn until(&self, queue: &Queue<u64>, is_so: impl Fn(&QueueReport) -> bool) {
        loop {
            let root = path(QUEUE);
            retried(GLANCE, || self.client.sync(&root)).await;
            match queue.inspect().await {
                Ok(report) if is_so(&report) => return,
                // No item was ever put.
                Err(QueueError::Deleted { .. }) => return,
                _ => sleep(GLANCE).await,
            }
        }
    }

    /// Puts items while all consumers wait, and records how many events woke them. Where items held for too long come
    /// back, or consumers come and go, other events wake consumers too; then nothing is recorded.
    async fn wake(&self, queue: &Queue<u64>) {
        let all_wait = |report: &QueueReport| is_empty(report) && report.idle == report.workers;
        let workers = format!("{QUEUE}/workers");
        if self.terms.max_run.is_some() {
            return;
        }
        self.until(queue, all_wait).await;
        let there = self.names_in(&workers).await;
        let Some(before) = self.scene.queue_events() else { return };
        for _ in 0..WAKING {
            if !self.put_these(queue, vec![self.unique()]).await {
                return;
            }
            self.until(queue, all_wait).await;
        }
        if self.names_in(&workers).await == there {
            let events = self.scene.queue_events().unwrap_or_default() - before;
            self.tell(DataEvent::Woke { items: WAKING, events });
        }
    }

    /// Cancels an item that a consumer works on: the program that waits for its outcome is notified at once and does
    /// not wait for the end.
    async fn cancel_what_is_asked_for(&self, queue: &Queue<u64>) {
        let (item, request) = loop {
            let item = self.unique();
            self.orders.give(item, Order::Linger);
            self.tell(DataEvent::Puts { items: vec![item] });
            match queue.request(&item).await {
                Ok(request) => break (item, request),
                Err(_) => sleep(GLANCE).await,
            }
        };
        self.tell(DataEvent::Put { items: vec![item] });
        self.until(queue, |report| report.claimed > 0).await;

        let attempt = self.unique();
        self.orders.cancel(item);
        self.tell(DataEvent::Cancels { attempt, item });
        if let Ok(true) = request.cancel().await {
            self.tell(DataEvent::Cancelled { attempt });
            match timeout(SOON, request.answer::<Option<u64>>()).await {
                Ok(Err(QueueError::Cancelled { .. })) => {}
                other => self.wrong(format!("{item} was cancelled, and its answer is {other:?}")),
            }
        }
        self.until_empty(queue).await;
    }

    /// Has the producers of long values delete leftover parts, and reports an error if any remain. On healthy servers
    /// none remain.
    async fn look_for_parts(&self) {
        let mut left = self.parts_left().await;
        if !self.terms.is_well {
            for _ in 0..LOOKS_FOR_PARTS {
                // A new handle searches.
                let queue = self.terms.open(&self.client);
                let mut items = std::iter::repeat_with(|| self.unique());
                let long = items.find(|item| self.terms.codec().is_long(*item));
                while !self.put_these(&queue, long.into_iter().collect()).await {
                    sleep(GLANCE).await;
                }
                self.until_empty(&queue).await;
                left = self.parts_left().await;
                if left.is_empty() {
                    break;
                }
                sleep(GLANCE).await;
            }
        }
        if let Some(left) = left.into_iter().next() {
            self.scene.note("world", What::Left(left));
        }
    }

    /// The parts of long values, except those of dead letters.
    async fn parts_left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let buried = self.names_in(&format!("{QUEUE}/dead")).await;
        for upload in self.names_in(&format!("{QUEUE}/parts")).await {
            let node = format!("{QUEUE}/parts/{upload}");
            let id = match self.client.data(&path(&node)).await {
                Ok((data, _)) => String::from_utf8_lossy(&data).into_owned(),
                // It may be gone by now, or the outcome is unknown.
                Err(_) => String::new(),
            };
            if !buried.contains(&id) {
                left.push(node);
            }
        }
        left
    }

    async fn names_in(&self, node: &str) -> Vec<String> {
        let node = path(node);
        let names = async || match self.client.children(&node).await {
            Ok((names, _)) => Ok(names),
            Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        retried(GLANCE, names).await
    }
}

impl std::ops::Deref for Consumer {
    type Target = QueueProgram;

    fn deref(&self) -> &QueueProgram {
        &self.program
    }
}

/// A handler with an item. Dropping it, because the item was lost, records that it no longer claims the item.
struct Believes<'a>(&'a Consumer, &'a Item<u64>);

impl Drop for Believes<'_> {
    fn drop(&mut self) {
        self.0.gives_back(self.1);
    }
}

/// Whole milliseconds.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).expect("a valid path")
}

/// Whether no item is to be taken, now or later, and none is held.
fn is_empty(report: &QueueReport) -> bool {
    report.waiting + report.claimed + report.delayed == 0
}
