//! Programs that put items into a queue, and programs that take them: they end them in every way, give them back,
//! lose them, and die with them.
//!
//! An item is a number that nobody else has. To [`crate::checker`] it is a lock too, which whoever takes it
//! holds. What an even one means to znodes is to create one of its name, in the same write as its end.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{
    AtMostOnce, Client, CreateMode, ErrorCode, Failure as _, Item, Outcome, Queue, QueueBuilder,
    QueueError, QueueReport, SessionId, State, TransactionError, Verdict, ZnodePath,
};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Scene, is_unknown_without_reason, retried};
use crate::history::{Share, What};
use crate::told::{End, Fate, Told};

/// The queue.
pub const QUEUE: &str = "/queue";

/// Where the ends of items write.
const WRITTEN: &str = "/written";

/// Nothing is there.
const MISSING: &str = "/missing";

/// No dead letter has this id.
const NO_LETTER: &str = "00000000000000000000000000000000";

/// How long to wait for something else to come.
const GLANCE: Duration = Duration::from_millis(200);

/// How many items of a handler are worked on at once.
const AT_ONCE: usize = 3;

/// More entries than a segment takes, together with a few items.
const NEARLY_FULL: usize = 250;

/// How many items wake consumers in the end, one after the other.
const WAKING: usize = 6;

/// What the queue of a run is like.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Whether there is one consumer, who does not die.
    pub alone: bool,
    /// Whether all consumers take the oldest item.
    pub strictly: bool,
    /// Whether there are consumers that want each value at most once too.
    pub at_most_once: bool,
    /// Whether segments are nearly full now and then.
    pub winds: bool,
    /// Whether there is somebody who sees to the dead letters.
    pub has_clerk: bool,
    max_run: Option<Duration>,
    max_tries: u32,
    /// Whether nothing that happens is a reason for an error.
    is_well: bool,
}

impl Terms {
    /// Any; `is_well`: no session is lost, and no server is away for as long as one lives.
    pub fn any(random: &mut fastrand::Rng, is_well: bool) -> Self {
        let order = random.u8(0..4);
        // What is held for too long is lost.
        let max_run = (!is_well && random.u8(0..4) == 0).then(|| Duration::from_millis(700));
        Self {
            alone: order == 0,
            strictly: order == 1,
            at_most_once: order > 1 && random.u8(0..3) == 0,
            winds: random.bool(),
            has_clerk: random.bool(),
            max_run,
            max_tries: random.u32(3..12),
            is_well,
        }
    }

    fn is_in_order(&self) -> bool {
        self.alone || self.strictly
    }

    fn builder(&self, client: &Client) -> QueueBuilder<u64> {
        let builder = Queue::<u64>::builder(client, QUEUE);
        let builder = builder.max_tries(self.max_tries).strictly_in_order(self.strictly);
        match self.max_run {
            Some(time) => builder.max_run(time),
            None => builder,
        }
    }

    fn open(&self, client: &Client) -> Queue<u64> {
        self.builder(client).build().expect("a path")
    }
}

/// What whoever takes an item for the first time has to do with it in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// To give it back, and take nothing any more.
    Leave,
    /// To die with it.
    Die,
}

/// What the programs of a queue know of each other.
#[derive(Debug)]
pub struct Orders {
    orders: Mutex<BTreeMap<u64, Order>>,
    /// How many consumers do nothing but work on what is left.
    settling: watch::Sender<usize>,
    is_over: watch::Sender<bool>,
}

impl Default for Orders {
    fn default() -> Self {
        let (settling, is_over) = (watch::Sender::new(0), watch::Sender::new(false));
        Self { orders: Mutex::default(), settling, is_over }
    }
}

impl Orders {
    fn give(&self, item: u64, order: Order) {
        self.orders.lock().expect("nobody panics with it").insert(item, order);
    }

    fn take(&self, item: u64) -> Option<Order> {
        self.orders.lock().expect("nobody panics with it").remove(&item)
    }

    /// Returns when nothing will be put any more, and all was taken.
    pub async fn over(&self) {
        let _ = self.is_over.subscribe().wait_for(|is_over| *is_over).await;
    }
}

/// What all programs of a queue have.
pub struct QueueProgram {
    /// Where it runs.
    pub scene: Arc<dyn Scene + Send + Sync>,
    /// Its client.
    pub client: Client,
    /// What it is called.
    pub name: String,
    /// What follows from the seed.
    pub random: Mutex<fastrand::Rng>,
    /// What the queue is like.
    pub terms: Terms,
}

impl QueueProgram {
    /// Puts items, one or some at once, and sometimes two puts at a time.
    pub async fn put(self) {
        let queue = self.terms.open(&self.client);
        while self.pause().await {
            match self.below(3) {
                0 => self.put_beside_a_refusal(&queue).await,
                _ => drop(self.put_some(&queue).await),
            }
        }
    }

    /// Two puts, and a write that is refused: each comes to its own end, although they may be made together.
    async fn put_beside_a_refusal(&self, queue: &Queue<u64>) {
        let refused = async {
            if let Ok(true) = queue.put_back(NO_LETTER).await {
                self.wrong("a dead letter was put back that is none".to_owned());
            }
        };
        tokio::join!(self.put_some(queue), self.put_some(queue), refused);
    }

    async fn put_some(&self, queue: &Queue<u64>) -> bool {
        let count = if self.below(3) == 0 { 2 + self.below(4) } else { 1 };
        let items: Vec<_> = (0..count).map(|_| self.unique()).collect();
        self.put_these(queue, items).await
    }

    /// Says whether that was confirmed.
    async fn put_these(&self, queue: &Queue<u64>, items: Vec<u64>) -> bool {
        let session = self.client.session_id();
        self.tell(Told::Puts { items: items.clone() });
        let put = match items[..] {
            [item] => queue.put(&item).await.map(drop),
            _ => queue.put_all(&items).await.map(drop),
        };
        match put {
            Ok(()) => {
                self.tell(Told::Put { items });
                return true;
            }
            Err(error) if self.is_unknown(session, "a put", &error) => {}
            Err(_) => self.tell(Told::NotPut { items }),
        }
        false
    }

    /// Brings the newest segment close to its end, by nodes that are gone at once.
    pub async fn wind(self) {
        let entries = path(&format!("{QUEUE}/entries"));
        while self.pause().await && self.pause().await {
            let Ok((mut names, _)) = self.client.children(&entries).await else { continue };
            names.sort();
            let Some(last) = names.last().and_then(|name| entries.child(name).ok()) else {
                continue;
            };
            let node = last.child("x").expect("a letter");
            let steps = self.client.transaction().check(&last, Some(0));
            let steps = (0..NEARLY_FULL).fold(steps, |steps, _| {
                steps.create(&node, "", CreateMode::Persistent).delete(&node, None)
            });
            // Others have closed the segment, or there is no server.
            let _ = steps.commit().await;
        }
    }

    /// Puts dead letters back, or discards them, or tries both at once.
    pub async fn see_to_letters(self) {
        let queue = self.terms.open(&self.client);
        while self.pause().await {
            let Ok(letters) = queue.dead_letters().await else { continue };
            for letter in &letters {
                // It may be none any more.
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
        self.tell(Told::Sends { attempt, item, fate });
        let sent = match fate {
            Fate::PutBack => queue.put_back(id).await,
            Fate::Discard => queue.discard(id).await,
        };
        match sent {
            Ok(true) => self.tell(Told::Sent { attempt }),
            Err(error) if self.is_unknown(session, "the end of a letter", &error) => {}
            Ok(false) | Err(_) => self.tell(Told::NotSent { attempt }),
        }
    }

    /// Takes values out of the queue.
    pub async fn remove(self) {
        let builder = self.terms.builder(&self.client).delivery(AtMostOnce);
        let queue: Queue<u64, AtMostOnce> = builder.build().expect("a path");
        while self.pause().await {
            let (attempt, session) = (self.unique(), self.client.session_id());
            self.tell(Told::Removes { attempt });
            let removed = match self.below(2) {
                0 => queue.try_take().await,
                // When the time is over, nobody knows.
                _ => match timeout(self.upto(2.0), queue.take()).await {
                    Ok(taken) => taken.map(Some),
                    Err(_) => continue,
                },
            };
            match removed {
                Ok(Some(item)) => self.tell(Told::Removed { attempt, item }),
                Ok(None) => self.tell(Told::NotRemoved { attempt }),
                Err(error) if self.is_unknown(session, "a removal", &error) => {}
                Err(_) => self.tell(Told::NotRemoved { attempt }),
            }
        }
    }

    /// A number that nobody else has, whatever seeds they have.
    fn unique(&self) -> u64 {
        self.client.unique_id().as_u64_pair().0
    }

    /// Whether nobody knows what came of something.
    fn is_unknown(&self, session: SessionId, what: &str, error: &QueueError) -> bool {
        let is_unknown = error.outcome() == Outcome::Unknown;
        let same_session = self.client.session_id() == session && session != SessionId::NONE;
        let without_reason =
            error.source().is_none_or(|source| is_unknown_without_reason(source, same_session));
        if is_unknown && without_reason || self.terms.is_well {
            self.wrong(format!("{what} in one session: {error:?}"));
        }
        is_unknown
    }

    fn below(&self, end: usize) -> usize {
        self.random.lock().expect("nobody panics with it").usize(0..end)
    }

    /// Some share of the pace.
    fn upto(&self, most: f64) -> Duration {
        let share = self.random.lock().expect("nobody panics with it").f64();
        self.scene.pace().mul_f64(most * share)
    }

    /// Returns whether there is time for more.
    async fn pause(&self) -> bool {
        sleep(self.upto(1.0)).await;
        self.scene.goes_on()
    }

    fn tell(&self, told: Told) {
        self.scene.note(&self.name, What::Told(told));
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

/// A program that works on items.
pub struct Consumer {
    /// What it has as all others.
    pub program: QueueProgram,
    /// What it has to do in the end.
    pub orders: Arc<Orders>,
    /// Ends the program where it stands: nothing of it runs after that. Told whether another one is to come in its
    /// place.
    pub die: Box<dyn Fn(bool) + Send + Sync>,
    /// Cuts its machine off, for a little longer than its session lives.
    pub cut_off: Box<dyn Fn() + Send + Sync>,
}

impl Consumer {
    /// Works on items until nothing is put any more, and all was taken.
    pub async fn consume(self) {
        let queue = self.terms.open(&self.client);
        if !self.terms.is_in_order() && self.below(3) == 0 {
            self.handle(&queue).await;
        }
        while self.scene.goes_on() {
            let session = self.client.session_id();
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

    /// Takes an item, in any way, or nothing.
    async fn take_once(&self, queue: &Queue<u64>) -> Result<Option<Item<u64>>, QueueError> {
        match self.below(7) {
            0 => {
                sleep(self.upto(0.3)).await;
                queue.try_take().await
            }
            1 => queue.take_timeout(self.upto(1.0)).await,
            // In the middle of it too.
            2 => timeout(self.upto(0.2), queue.take())
                .await
                .map_or(Ok(None), |taken| taken.map(Some)),
            // Not polled for a while, in which it may have taken something, and have lost it again.
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

    /// Has a handler work on items, some at once.
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
            if self.below(4) == 0 {
                self.is_refused(item).await;
            }

            // To end it says so.
            std::mem::forget(believes);
            let how = match self.below(8) {
                0 => End::Retry,
                1 => End::Bury,
                _ => End::Done,
            };
            let reason = "by the handler".to_owned();
            if self.below(4) > 0 {
                self.end(item, how).await;
                // One that was not ended is tried again.
                return Verdict::Retry(reason);
            }
            // Nobody tells what comes of a verdict.
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

    /// In the end: works on whatever is left, and follows orders.
    async fn settle(&self, queue: &Queue<u64>) {
        self.orders.settling.send_modify(|settling| *settling += 1);
        let work = async {
            loop {
                // Without a limit: whoever asks again and again need not be woken.
                match queue.take().await {
                    Ok(item) => match self.work(item).await {
                        Next::Goes => {}
                        // Its handle stays, so that nobody hears of its going.
                        Next::Leaves | Next::Dies => return std::future::pending().await,
                    },
                    // A session that was lost in the last moments shows itself first.
                    Err(_) => sleep(GLANCE).await,
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
            None => {}
        }

        // In the end, what is left is to be done soon.
        if self.scene.goes_on() {
            self.look(&item).await;
        }
        let goes_on = self.scene.goes_on();
        match self.below(16) {
            0 if goes_on && !self.terms.alone => return self.die(item, true).await,
            1 | 2 if goes_on => self.gives_back(&item),
            3 | 4 if goes_on => self.end(&item, End::Retry).await,
            5 => self.end(&item, End::Bury).await,
            // When that is sent, in the next session, somebody else may have the item.
            6 if goes_on && !self.terms.is_well => {
                (self.cut_off)();
                self.end(&item, End::Done).await;
            }
            7 | 8 => {
                self.is_refused(&item).await;
                self.end(&item, End::Done).await;
            }
            _ => self.end(&item, End::Done).await,
        }
        Next::Goes
    }

    /// Ends with an item in its hands.
    async fn die(&self, item: Item<u64>, is_replaced: bool) -> Next {
        self.scene.note(&self.name, What::Died);
        (self.die)(is_replaced);
        // What is dropped is given back.
        std::future::pending::<()>().await;
        drop(item);
        Next::Dies
    }

    /// Says what it has.
    async fn begin(&self, item: &Item<u64>) {
        let (lock, token) = (lock(item), item.token().to_u128());
        self.scene.note(&self.name, What::Granted { lock, token, share: Share::Alone });
        self.still_holds(item);

        let put = match self.terms.is_in_order() {
            true => self.put_by(item).await,
            false => None,
        };
        self.tell(Told::Takes { item: *item.value(), token, tries: item.attempt(), put });
    }

    /// The transaction that put an item.
    async fn put_by(&self, item: &Item<u64>) -> Option<i64> {
        let body = path(&format!("{QUEUE}/bodies/{}", item.id()));
        self.client.data(&body).await.ok().map(|(_, stat)| stat.czxid.0)
    }

    /// Works on an item for a while, and looks whether it is its own.
    async fn look(&self, item: &Item<u64>) {
        let looks = self.below(4);
        for _ in 0..looks {
            sleep(self.upto(0.2)).await;
            if !self.still_holds(item) {
                return;
            }
        }
    }

    /// Says until when nobody else can have it, or that it has lost it.
    fn still_holds(&self, item: &Item<u64>) -> bool {
        let (lock, token) = (lock(item), item.token().to_u128());
        // Asked for first: what it says must be true although time has passed since.
        let deadline = item.deadline();
        let until = deadline.and_then(|deadline| self.scene.true_time(deadline));
        match (item.state(), until) {
            (State::Lost(reason), _) => {
                let reason = format!("{reason:?}");
                self.scene.note(&self.name, What::Lost { lock, token, reason });
                false
            }
            (_, Some(until)) => {
                self.scene.note(&self.name, What::Claimed { lock, token, until });
                true
            }
            (_, None) => deadline.is_some(),
        }
    }

    fn gives_back(&self, item: &Item<u64>) {
        self.scene
            .note(&self.name, What::GaveBack { lock: lock(item), token: item.token().to_u128() });
    }

    /// Ends an item.
    async fn end(&self, item: &Item<u64>, how: End) {
        let (id, token, session) =
            (*item.value(), item.token().to_u128(), self.client.session_id());
        self.begin_end(item, how);
        let ended = match how {
            End::Done if id.is_multiple_of(2) => {
                let node = path(&format!("{WRITTEN}/{id}"));
                let steps = self.client.transaction();
                item.done_with(steps.create(&node, "", CreateMode::Persistent)).await
            }
            End::Done => item.done().await,
            End::Retry => item.retry("again").await,
            End::Bury => item.bury("for good").await,
        };
        match ended {
            Ok(()) => self.tell(Told::Ended { item: id, token }),
            Err(QueueError::Lost { .. } | QueueError::Ended { .. }) if !self.terms.is_well => {
                self.tell(Told::NotEnded { item: id, token });
            }
            Err(QueueError::Refused {
                source: source @ TransactionError::Failed { .. }, ..
            }) => {
                self.wrong(format!("{how:?} of {id}: {source}"));
            }
            Err(error) if self.is_unknown(session, "an end", &error) => {}
            Err(_) => self.tell(Told::NotEnded { item: id, token }),
        }
    }

    fn begin_end(&self, item: &Item<u64>, how: End) {
        self.tell(Told::Ends { item: *item.value(), token: item.token().to_u128(), how });
        self.gives_back(item);
    }

    /// Asks for an end with a write that is refused.
    async fn is_refused(&self, item: &Item<u64>) {
        let steps = self.client.transaction().delete(&path(MISSING), None);
        if item.done_with(steps).await.is_ok() {
            self.wrong(format!("{} was done with a write that is refused", item.value()));
        }
    }
}

/// Makes what all programs of a queue need.
pub async fn prepare(client: &Client) {
    let written = path(WRITTEN);
    retried(GLANCE, || client.ensure(&written, CreateMode::Persistent)).await;
}

/// After the faults: returns when all was taken, also what somebody gives back who takes nothing more, and what
/// somebody has who dies, and says what there is. There are so many consumers.
pub async fn settle(program: &QueueProgram, orders: &Orders, consumers: usize) {
    let queue = program.terms.open(&program.client);
    let asked: &[_] = match program.terms.alone {
        true => &[None],
        false => &[Some(Order::Leave), Some(Order::Die), None],
    };
    program.until_empty(&queue).await;
    let _ = orders.settling.subscribe().wait_for(|settling| *settling == consumers).await;
    program.wake(&queue).await;
    for order in asked {
        let item = program.unique();
        order.iter().for_each(|order| orders.give(item, *order));
        while !program.put_these(&queue, vec![item]).await {
            sleep(GLANCE).await;
        }
        program.until_empty(&queue).await;
    }

    let mut dead = Vec::new();
    let letters = retried(GLANCE, || queue.dead_letters()).await;
    for letter in &letters {
        dead.extend(retried(GLANCE, || queue.dead_value(&letter.id)).await);
    }
    let written = program.names_in(WRITTEN).await;
    let written = written.iter().filter_map(|name| name.parse().ok()).collect();
    program.tell(Told::Emptied { dead, written });

    let bodies = program.names_in(&format!("{QUEUE}/bodies")).await;
    let is_left = |id: &&String| !letters.iter().any(|letter| letter.id == **id);
    if let Some(left) = bodies.iter().find(is_left) {
        program.scene.note("world", What::Left(format!("{QUEUE}/bodies/{left}")));
    }
    orders.is_over.send_replace(true);
}

/// How the queue stands, for people.
pub async fn look(program: &QueueProgram) -> String {
    let report = program.terms.open(&program.client).inspect().await;
    let claims = program.names_in(&format!("{QUEUE}/claims")).await;
    let line = program.names_in(&format!("{QUEUE}/line")).await;
    format!("{report:?}, claims {claims:?}, in line {line:?}")
}

impl QueueProgram {
    /// Waits until nothing is to be taken, and nobody has anything.
    async fn until_empty(&self, queue: &Queue<u64>) {
        self.until(queue, |report| report.waiting + report.claimed == 0).await;
    }

    /// Waits until the queue stands so, or was never made.
    async fn until(&self, queue: &Queue<u64>, is_so: impl Fn(&QueueReport) -> bool) {
        loop {
            let root = path(QUEUE);
            retried(GLANCE, || self.client.sync(&root)).await;
            match queue.inspect().await {
                Ok(report) if is_so(&report) => return,
                // Nothing was ever put.
                Err(QueueError::Deleted { .. }) => return,
                _ => sleep(GLANCE).await,
            }
        }
    }

    /// Puts items while all consumers wait, and says how many events told these of it. What is held for too long
    /// comes back, and whoever comes or goes wakes others too: then it says nothing.
    async fn wake(&self, queue: &Queue<u64>) {
        let all_wait = |report: &QueueReport| {
            report.waiting + report.claimed == 0 && report.idle == report.workers
        };
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
            self.tell(Told::Woke { items: WAKING, events });
        }
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

/// A handler with an item. One that is dropped, as the item is lost, believes nothing any more.
struct Believes<'a>(&'a Consumer, &'a Item<u64>);

impl Drop for Believes<'_> {
    fn drop(&mut self) {
        self.0.gives_back(self.1);
    }
}

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).expect("a path")
}

/// What an item is called as a lock.
fn lock(item: &Item<u64>) -> String {
    format!("{QUEUE}/{}", item.value())
}
