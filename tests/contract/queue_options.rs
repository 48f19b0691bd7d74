//! Items that come later, wait for others of their key or kind, or are cancelled.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper::{
    AtMostOnce, Bound, Client, Failure, Item, Outcome, PutOptions, Queue, QueueBuilder, QueueError,
    Verdict, ZnodePath,
};
use lockkeeper_testkit::backend::children_reach;
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_wire::OpCode;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{Clients, Pair, contract, next_session};

contract!(queue_options);

const JOBS: &str = "/app/jobs";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(30);

/// A delay that is over soon.
const SOON: Duration = Duration::from_millis(300);

/// One that never is.
const LATER: Duration = Duration::from_secs(24 * 3_600);

fn node(name: &str) -> ZnodePath {
    ZnodePath::new(&format!("{JOBS}{name}")).expect("a path")
}

fn builder(client: &Client) -> QueueBuilder<u32> {
    Queue::<u32>::builder(client, JOBS)
}

fn jobs(client: &Client) -> Result<Queue<u32>> {
    Ok(builder(client).build()?)
}

fn options() -> PutOptions {
    PutOptions::new()
}

async fn take(queue: &Queue<u32>) -> Result<Item<u32>> {
    Ok(timeout(LONG, queue.take()).await.context("nothing is taken")??)
}

/// Takes all items, and records them as done.
async fn drained(queue: &Queue<u32>) -> Result<Vec<u32>> {
    let mut values = Vec::new();
    while let Some(item) = queue.try_take().await? {
        values.push(*item.value());
        item.done().await?;
    }
    Ok(values)
}

async fn nothing_is_left(client: &Client) -> Result<()> {
    for part in ["/bodies", "/claims", "/busy", "/line"] {
        children_reach(client, &node(part), 0).await?;
    }
    Ok(())
}

async fn what_is_delayed_comes_when_it_is_due((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    ours.put_with(&1, &options().delay(LATER)).await?;
    ours.put_with(&2, &options().delay(SOON * 2)).await?;
    ours.put_with(&3, &options().delay(SOON)).await?;
    ours.put_with(&4, &options().delay(Duration::ZERO)).await?;
    ours.put(&5).await?;
    assert_eq!(drained(&theirs).await?, [4, 5]);
    let report = ours.inspect().await?;
    assert_eq!((report.delayed, report.waiting), (3, 0));

    // A waiter gets no event, and takes the item nevertheless.
    for value in [3, 2] {
        let item = take(&theirs).await?;
        assert_eq!((*item.value(), item.attempt()), (value, 1));
        item.done().await?;
    }
    assert_eq!(ours.inspect().await?.delayed, 1);
    Ok(())
}

/// In the order of puts, even if no consumer was there when they became due.
async fn what_is_due_at_once_comes_in_the_order_of_puts((one, two): Clients) -> Result<()> {
    let ours = jobs(&one)?;
    ours.put(&0).await?;
    let due = ours.inspect().await?.oldest_unix_ms.context("an item")? + 1_500;
    for value in 1..30 {
        ours.put_with(&value, &options().due_unix_ms(due)).await?;
    }
    assert_eq!(ours.inspect().await?.delayed, 29);
    let theirs = jobs(&two)?;
    let first = take(&theirs).await?;
    assert_eq!(*first.value(), 0);
    first.done().await?;
    let mut values = Vec::new();
    while values.len() < 29 {
        let item = take(&theirs).await?;
        values.push(*item.value());
        item.done().await?;
    }
    assert_eq!(values, (1..30).collect::<Vec<_>>());
    nothing_is_left(&one).await
}

async fn a_lost_reply_to_a_put_with_options_changes_nothing((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    ours.put(&0).await?;
    theirs.take().await?.done().await?;
    let mut value = 0;
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        for given in [options().delay(SOON), options().key("k"), options().priority(3).id("seven")]
        {
            value += 1;
            alice.proxy.lose_next(OpCode::Multi, loss);
            ours.put_with(&value, &given).await?;
            bob.proxy.lose_next(OpCode::Multi, loss);
            let item = take(&theirs).await?;
            assert_eq!(*item.value(), value);
            bob.proxy.lose_next(OpCode::Multi, loss);
            item.retry_after(SOON, "later").await?;
            let item = take(&theirs).await?;
            assert_eq!((*item.value(), item.attempt()), (value, 2));
            item.done().await?;
        }
    }
    nothing_is_left(&alice.client).await
}

async fn a_retry_waits_for_its_time((one, two): Clients) -> Result<()> {
    let ours = jobs(&one)?;
    let theirs = builder(&two).backoff(SOON, LATER).build()?;
    ours.put_all(&[1, 2]).await?;
    let first = take(&theirs).await?;
    first.retry("not yet").await?;
    let second = take(&theirs).await?;
    assert_eq!(*second.value(), 2);
    second.retry_after(LATER, "much later").await?;
    assert!(theirs.try_take().await?.is_none());

    let again = take(&theirs).await?;
    assert_eq!((*again.value(), again.attempt()), (1, 2));
    again.bury("for good").await?;
    let report = ours.inspect().await?;
    assert_eq!((report.delayed, report.waiting, report.dead, report.retries), (1, 0, 1, 2));
    Ok(())
}

async fn lower_priorities_come_first((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    for (value, priority) in [(1, 0), (2, 7), (3, -7), (4, 0), (5, 7), (6, -7)] {
        ours.put_with(&value, &options().priority(priority)).await?;
    }
    assert_eq!(drained(&theirs).await?, [3, 6, 1, 4, 2, 5]);
    // Delayed and tried again, it keeps its priority.
    ours.put_with(&7, &options().priority(-7).delay(SOON)).await?;
    let item = take(&theirs).await?;
    ours.put(&8).await?;
    item.retry("again").await?;
    assert_eq!(drained(&theirs).await?, [7, 8]);
    // And as a dead letter.
    let id = ours.put_with(&9, &options().priority(-7).key("k")).await?;
    take(&theirs).await?.bury("why not").await?;
    ours.put(&10).await?;
    assert!(ours.put_back(&id).await?);
    assert_eq!(drained(&theirs).await?, [9, 10]);
    Ok(())
}

/// The first item of a priority, which the consumer has listed nothing of.
async fn a_new_priority_comes_first((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, builder(&two).strictly_in_order(true).build()?);
    ours.put_all(&[1, 2]).await?;
    take(&theirs).await?.done().await?;
    ours.put_with(&3, &options().priority(-7)).await?;
    assert_eq!(drained(&theirs).await?, [3, 2]);
    Ok(())
}

async fn items_of_a_key_are_worked_on_one_at_a_time((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    for (value, key) in [(1, "a"), (2, "a"), (3, "b"), (4, "a")] {
        ours.put_with(&value, &options().key(key)).await?;
    }
    let (first, other) = (take(&ours).await?, take(&theirs).await?);
    assert_eq!([*first.value(), *other.value()], [1, 3], "a busy key blocks no other item");
    assert!(ours.try_take().await?.is_none() && theirs.try_take().await?.is_none());

    // Whoever waits is woken by the end that frees the key.
    let queue = theirs.clone();
    let waiting = tokio::spawn(async move { queue.take().await });
    children_reach(&one, &node("/line"), 1).await?;
    first.done().await?;
    let second = timeout(LONG, waiting).await???;
    assert_eq!(*second.value(), 2);
    // What is dropped keeps its place.
    drop(second);
    let again = take(&ours).await?;
    assert_eq!((*again.value(), again.attempt()), (2, 2));
    again.done().await?;
    take(&ours).await?.done().await?;
    other.done().await?;
    assert_eq!(drained(&ours).await?, [0; 0]);
    nothing_is_left(&one).await
}

async fn a_retry_keeps_back_its_key_unless_others_may_pass((one, two): Clients) -> Result<()> {
    let ours = jobs(&one)?;
    let passing = builder(&two).retries_pass(true).build()?;
    let put = async |value| ours.put_with(&value, &options().key("a")).await;
    put(1).await?;
    put(2).await?;
    take(&ours).await?.retry_after(SOON, "soon").await?;
    assert!(ours.try_take().await?.is_none(), "the second waits too");
    let again = take(&ours).await?;
    assert_eq!((*again.value(), again.attempt()), (1, 2));
    again.retry("at once").await?;
    let again = take(&ours).await?;
    assert_eq!((*again.value(), again.attempt()), (1, 3));
    drop(again);

    let again = take(&passing).await?;
    assert_eq!((*again.value(), again.attempt()), (1, 4));
    again.retry_after(SOON, "others may go on").await?;
    for value in [2, 1] {
        let item = take(&passing).await?;
        assert_eq!(*item.value(), value);
        item.done().await?;
    }
    nothing_is_left(&one).await
}

/// What worked on it is gone, and the next of its key waits for nothing else.
async fn a_key_is_free_when_its_holder_dies((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    for value in [1, 2] {
        ours.put_with(&value, &options().key("a").kind("gpu")).await?;
    }
    let lost = take(&theirs).await?;
    bob.proxy.refuse();
    bob.proxy.expire_session().await?;
    let again = take(&ours).await?;
    assert_eq!((*again.value(), again.attempt()), (1, 2));
    assert!(again.token() > lost.token());
    again.done().await?;
    take(&ours).await?.done().await?;
    bob.proxy.restore();
    nothing_is_left(&alice.client).await
}

async fn no_more_of_a_kind_are_worked_on_than_may_be((one, two): Clients) -> Result<()> {
    let limited = |client| builder(client).at_most("gpu", 2).build();
    let (ours, theirs) = (limited(&one)?, limited(&two)?);
    for value in 1..=4 {
        ours.put_with(&value, &options().kind("gpu")).await?;
    }
    ours.put(&5).await?;
    let mut items = vec![take(&ours).await?, take(&theirs).await?, take(&ours).await?];
    items.sort_by_key(|item| *item.value());
    let other = items.pop().context("three")?;
    assert_eq!(*other.value(), 5);
    let first = items.pop().context("two")?;
    assert!(ours.try_take().await?.is_none() && theirs.try_take().await?.is_none());
    let queue = theirs.clone();
    let waiting = tokio::spawn(async move { queue.take().await });
    children_reach(&one, &node("/line"), 1).await?;
    first.done().await?;
    let third = timeout(LONG, waiting).await???;
    assert!(ours.try_take().await?.is_none());
    for item in items.into_iter().chain([third, other]) {
        item.done().await?;
    }
    assert_eq!(drained(&ours).await?.len(), 1);
    nothing_is_left(&one).await
}

async fn an_id_of_the_callers_is_there_once((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    let named = options().id("order-7");
    assert_eq!(ours.put_with(&1, &named).await?, "order-7");
    let again = ours.put_with(&2, &named).await;
    assert!(matches!(&again, Err(QueueError::Exists { id, .. }) if id == "order-7"), "{again:?}");
    assert_eq!(again.map_err(|error| error.outcome()), Err(Outcome::NotApplied));
    let item = take(&theirs).await?;
    assert_eq!(item.id(), "order-7");
    item.bury("why not").await?;
    assert!(matches!(ours.put_with(&3, &named).await, Err(QueueError::Exists { .. })));
    assert!(ours.discard("order-7").await?);
    ours.put_with(&4, &named).await?;
    assert_eq!(drained(&theirs).await?, [4]);

    let long = "x".repeat(65);
    for bad in
        [options().id("a.b"), options().id(long), options().key(""), options().kind("é".repeat(22))]
    {
        let refused = ours.put_with(&5, &bad).await;
        assert!(matches!(refused, Err(QueueError::Options { .. })), "{refused:?}");
    }
    Ok(())
}

async fn what_is_cancelled_is_taken_by_nobody((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    let waiting = ours.put(&1).await?;
    let later = ours.put_with(&2, &options().delay(SOON)).await?;
    let of_key = ours.put_with(&3, &options().key("a")).await?;
    ours.put_with(&4, &options().key("a")).await?;
    for id in [&waiting, &later, &of_key] {
        assert!(ours.cancel(id).await?);
        assert!(!ours.cancel(id).await?, "it is gone");
    }
    assert!(!ours.cancel("never").await?);
    let item = take(&theirs).await?;
    assert_eq!(*item.value(), 4);

    // Its holder learns of it.
    let told = async { timeout(LONG, item.cancelled()).await };
    let (cancelled, told) = tokio::join!(ours.cancel(item.id()), told);
    ensure!(cancelled? && told.is_ok());
    let done = item.done().await;
    assert!(matches!(done, Err(QueueError::Cancelled { .. })), "{done:?}");
    assert!(item.is_ended());

    let dead = ours.put(&5).await?;
    take(&theirs).await?.bury("for good").await?;
    assert!(ours.cancel(&dead).await? && ours.dead_letters().await?.is_empty());
    tokio::time::sleep(SOON).await;
    assert_eq!(drained(&theirs).await?, [0; 0]);
    nothing_is_left(&one).await
}

/// It was due for a retry, and the next consumer takes items at most once.
async fn what_is_cancelled_leaves_nothing_of_its_retry((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, builder(&two).delivery(AtMostOnce).build()?);
    let id = ours.put_with(&1, &options().key("a")).await?;
    take(&ours).await?.retry("again").await?;
    assert!(ours.cancel(&id).await?);
    assert_eq!(theirs.try_take().await?, None);
    assert_eq!(ours.inspect().await?.delayed, 0);
    nothing_is_left(&one).await
}

/// Whatever the handlers do, and while their replies are lost.
async fn a_handler_keeps_the_order_of_keys((alice, bob): Pair) -> Result<()> {
    const KEYS: u32 = 20;
    const EACH: u32 = 6;
    let ours = jobs(&alice.client)?;
    let theirs = builder(&bob.client).backoff(Duration::from_millis(10), SOON).build()?;
    let puts = (0..EACH * KEYS).map(|value| {
        let options = options().key((value % KEYS).to_string());
        let ours = &ours;
        async move { ours.put_with(&value, &options).await }
    });
    for put in puts {
        put.await?;
    }

    let (done, mut all_done) = tokio::sync::mpsc::unbounded_channel();
    let handler = |item: std::sync::Arc<Item<u32>>| {
        let done = done.clone();
        async move {
            tokio::task::yield_now().await;
            match (item.value() % 7, item.attempt()) {
                (0, 1) => Verdict::Retry("the first time".to_owned()),
                _ => {
                    let _ = done.send(*item.value());
                    Verdict::Done
                }
            }
        }
    };
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    let mut broken = None;
    // When all were worked on, those under way are ended.
    let check = async {
        for number in 0..EACH * KEYS {
            if number % 20 == 0 {
                bob.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
            }
            let Some(value) = all_done.recv().await else { return };
            let before = last.insert(value % KEYS, value);
            if before.is_some_and(|before| before + KEYS != value) {
                broken = Some((before, value));
            }
        }
    };
    timeout(LONG * 2, theirs.work_until(8, check, handler)).await??;
    assert_eq!(broken, None);
    nothing_is_left(&alice.client).await
}

async fn a_queue_with_options_is_deleted_with_all((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    ours.put_with(&1, &options().delay(LATER)).await?;
    ours.put_with(&2, &options().priority(3).key("a")).await?;
    assert!(ours.delete().await?);
    let refused = theirs.inspect().await;
    assert!(matches!(refused, Err(QueueError::Deleted { .. })), "{refused:?}");
    // Whoever has put there before puts into another one.
    let put = ours.put_with(&3, &options().priority(3)).await;
    assert!(put.is_ok() || ours.put_with(&3, &options().priority(3)).await.is_ok());
    assert_eq!(drained(&theirs).await?, [3]);
    Ok(())
}

/// A value of several parts.
fn long(letter: char) -> String {
    String::from(letter).repeat(700_000)
}

async fn a_long_value_is_in_parts_and_goes_with_its_item((one, two): Clients) -> Result<()> {
    let queue = |client| Queue::<String>::new(client, JOBS);
    let (ours, theirs) = (queue(&one)?, queue(&two)?);
    let dead = ours.put(&long('a')).await?;
    let cancelled = ours.put_with(&long('b'), &options().priority(-1)).await?;
    ours.put_all(&[long('c'), "short".to_owned()]).await?;
    children_reach(&one, &node("/parts"), 3).await?;
    assert!(ours.cancel(&cancelled).await?);
    let item = theirs.take().await?;
    assert!(*item.value() == long('a'));
    item.bury("why not").await?;
    assert!(ours.dead_value(&dead).await? == Some(long('a')) && ours.put_back(&dead).await?);
    let item = theirs.take().await?;
    assert!(*item.value() == long('c'));
    item.retry("again").await?;
    for value in ["short".to_owned(), long('a'), long('c')] {
        let item = theirs.take().await?;
        assert!(*item.value() == value);
        item.done().await?;
    }
    children_reach(&one, &node("/parts"), 0).await?;

    // Without claims, the same.
    let once = Queue::<String>::builder(&two, JOBS).delivery(AtMostOnce).build()?;
    ours.put(&long('d')).await?;
    assert!(once.take().await? == long('d'));
    children_reach(&one, &node("/parts"), 0).await?;
    nothing_is_left(&one).await
}

async fn what_is_left_of_a_long_value_is_deleted((alice, bob): Pair) -> Result<()> {
    let ours = Queue::<String>::new(&alice.client, JOBS)?;
    let theirs = Queue::<String>::new(&bob.client, JOBS)?;
    ours.put(&"first".to_owned()).await?;
    // Its program is gone when some of the parts are there.
    bob.proxy.lose_next(OpCode::Multi, Loss::BeforeRequest);
    let putting = tokio::spawn(async move { theirs.put(&long('a')).await });
    children_reach(&alice.client, &node("/parts"), 2).await?;
    putting.abort();
    bob.proxy.refuse();
    bob.proxy.expire_session().await?;

    ours.put(&long('b')).await?;
    children_reach(&alice.client, &node("/parts"), 1).await?;
    for value in ["first".to_owned(), long('b')] {
        let item = ours.take().await?;
        assert!(*item.value() == value);
        item.done().await?;
    }
    bob.proxy.restore();
    children_reach(&alice.client, &node("/parts"), 0).await
}

async fn a_queue_has_no_more_than_its_exact_bound((alice, bob): Pair) -> Result<()> {
    const LIMIT: u32 = 5;
    let bound = Bound::exactly(LIMIT);
    let ours = builder(&alice.client).bound(bound).build()?;
    let theirs = builder(&bob.client).bound(bound).build()?;
    let is_full = |put: &Result<String, QueueError>| matches!(put, Err(QueueError::Full { .. }));
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        alice.proxy.lose_next(OpCode::Multi, loss);
    }
    let mut both = JoinSet::new();
    for number in 0..LIMIT * 2 {
        let queue = if number % 2 == 0 { ours.clone() } else { theirs.clone() };
        both.spawn(async move { queue.put(&7).await });
    }
    let puts = both.join_all().await;
    assert_eq!(puts.iter().filter(|put| put.is_ok()).count(), 5, "{puts:?}");
    assert!(puts.iter().all(|put| put.is_ok() || is_full(put)), "{puts:?}");

    // Worked on, tried again and later, it counts; done, dead or cancelled, it does not.
    let item = take(&theirs).await?;
    assert!(is_full(&ours.put(&8).await));
    item.retry_after(LATER, "later").await?;
    assert!(is_full(&ours.put(&8).await));
    take(&theirs).await?.done().await?;
    take(&theirs).await?.bury("why not").await?;
    ours.put(&8).await?;
    theirs.put(&9).await?;
    assert!(is_full(&ours.put(&10).await));

    // Whoever waits for room gets it.
    let waiting = builder(&alice.client).bound(bound.waiting()).build()?;
    let waits = tokio::spawn(async move { waiting.put(&11).await });
    children_reach(&alice.client, &node("/putters"), 1).await?;
    take(&theirs).await?.done().await?;
    timeout(LONG, waits).await???;
    assert_eq!(drained(&theirs).await?, [7, 8, 9, 11]);
    children_reach(&alice.client, &node("/slots"), 1).await
}

async fn a_queue_has_not_many_more_than_its_bound((one, two): Clients) -> Result<()> {
    let bound = Bound::about(20);
    let (ours, theirs) = (builder(&one).bound(bound).build()?, jobs(&two)?);
    let mut put = 0;
    while !matches!(ours.put(&put).await, Err(QueueError::Full { limit: 20, .. })) {
        put += 1;
    }
    assert_eq!(put, 20, "the puts of one handle are counted");
    let waiting = builder(&one).bound(bound.waiting()).build()?;
    let waits = tokio::spawn(async move { waiting.put(&99).await });
    children_reach(&one, &node("/putters"), 1).await?;
    let mut taken = drained(&theirs).await?;
    timeout(LONG, waits).await???;
    // Whoever waited may have put already while the others were taken.
    taken.extend(drained(&theirs).await?);
    assert_eq!(taken, (0..20).chain([99]).collect::<Vec<_>>());
    Ok(())
}

async fn whoever_has_asked_is_answered((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        alice.proxy.lose_next(OpCode::Multi, loss);
        let request = ours.request(&20).await?;
        let item = take(&theirs).await?;
        assert_eq!((item.id(), request.note().await?), (request.id(), None));
        assert!(item.note("half of it").await?);
        assert_eq!(request.note().await?.as_deref(), Some("half of it"));
        bob.proxy.lose_next(OpCode::Multi, loss);
        item.done_with_answer(&(item.value() + 1)).await?;
        assert_eq!(timeout(LONG, request.answer::<u32>()).await??, 21);
    }
    children_reach(&alice.client, &node("/answers"), 0).await?;

    // Whatever else becomes of it.
    let request = ours.request(&1).await?;
    take(&theirs).await?.done().await?;
    assert_eq!(request.answer::<Option<u32>>().await?, None);
    drop(request);
    let request = ours.request_with(&2, &options().key("a").delay(SOON)).await?;
    take(&theirs).await?.bury("for good").await?;
    let buried = request.answer::<u32>().await;
    assert!(matches!(&buried, Err(QueueError::Buried { reason, .. }) if reason == "for good"));
    drop(request);
    let request = ours.request(&3).await?;
    assert!(request.cancel().await?);
    assert!(theirs.try_take().await?.is_none());
    let cancelled = timeout(LONG, request.answer::<u32>()).await?;
    assert!(matches!(cancelled, Err(QueueError::Cancelled { .. })), "{cancelled:?}");
    drop(request);
    let request = ours.request(&4).await?;
    let once = builder(&bob.client).delivery(AtMostOnce).build()?;
    assert_eq!(once.take().await?, 4);
    assert_eq!(request.answer::<Option<u32>>().await?, None);
    drop(request);
    children_reach(&alice.client, &node("/answers"), 0).await
}

async fn a_requester_that_has_left_keeps_nobody((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    for value in 0..3 {
        drop(ours.request(&value).await?);
    }
    children_reach(&bob.client, &node("/answers"), 0).await?;
    let item = take(&theirs).await?;
    assert!(!item.note("half").await?);
    item.done_with_answer(&7).await?;
    take(&theirs).await?.bury("why not").await?;
    let once = builder(&bob.client).delivery(AtMostOnce).build()?;
    assert_eq!(once.take().await?, 2);
    assert!(ours.discard(&ours.dead_letters().await?[0].id).await?);

    // Its session is over.
    let request = ours.request(&3).await?;
    let kept = ours.request_with(&4, &options().keep_answer(LATER)).await?;
    alice.proxy.refuse();
    alice.proxy.expire_session().await?;
    children_reach(&bob.client, &node("/answers"), 1).await?;
    for _ in 0..2 {
        let item = take(&theirs).await?;
        item.done_with_answer(&(item.value() * 10)).await?;
    }
    alice.proxy.restore();
    let gone = timeout(LONG, request.answer::<u32>()).await?;
    assert!(matches!(gone, Err(QueueError::NoAnswer { .. })), "{gone:?}");
    let found = theirs.find_request(kept.id()).await?.context("it is kept")?;
    for request in [kept, found] {
        assert_eq!(timeout(LONG, request.answer::<u32>()).await??, 40);
    }
    assert!(theirs.find_request("never").await?.is_none());
    nothing_is_left(&bob.client).await
}

/// Its id may be used again at once, for an unrelated item.
async fn a_cancelled_item_and_the_next_of_its_id_are_two((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    let named = || options().id("seven");
    let first = ours.request_with(&1, &named().keep_answer(LATER)).await?;
    let held = take(&theirs).await?;
    assert!(ours.cancel("seven").await?);
    let second = ours.request_with(&2, &named().keep_answer(LATER * 2)).await?;
    let done = held.done_with_answer(&10).await;
    assert!(matches!(done, Err(QueueError::Cancelled { .. })), "{done:?}");
    let item = take(&theirs).await?;
    assert_eq!((*item.value(), item.id(), item.attempt()), (2, "seven", 1));
    assert!(ours.try_take().await?.is_none() && theirs.try_take().await?.is_none());
    item.done_with_answer(&20).await?;
    let cancelled = timeout(LONG, first.answer::<u32>()).await?;
    assert!(matches!(cancelled, Err(QueueError::Cancelled { .. })), "{cancelled:?}");
    assert_eq!(timeout(LONG, second.answer::<u32>()).await??, 20);
    let found = theirs.find_request("seven").await?.context("it is kept")?;
    assert_eq!((found.id(), timeout(LONG, found.answer::<u32>()).await??), ("seven", 20));

    // It is also not due at the time of the other one.
    ours.put_with(&3, &named().delay(SOON)).await?;
    assert!(ours.cancel("seven").await?);
    ours.put_with(&4, &named().delay(LATER)).await?;
    ours.put_with(&5, &options().delay(SOON * 2)).await?;
    let item = take(&theirs).await?;
    assert_eq!(*item.value(), 5);
    item.done().await?;
    children_reach(&one, &node("/bodies"), 1).await?;
    children_reach(&one, &node("/ids"), 1).await
}

async fn whoever_has_asked_is_told_at_once_that_it_was_cancelled(
    (one, two): Clients,
) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    // Nobody is there to take it.
    for options in [options(), options().delay(LATER), options().id("seven").key("a")] {
        let request = ours.request_with(&1, &options).await?;
        assert!(theirs.cancel(request.id()).await?);
        let cancelled = timeout(LONG, request.answer::<u32>()).await?;
        assert!(matches!(cancelled, Err(QueueError::Cancelled { .. })), "{cancelled:?}");
    }
    Ok(())
}

/// What another one has done was not cancelled.
async fn whoever_has_lost_an_item_is_not_told_that_it_was_cancelled(
    (alice, bob): Pair,
) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    ours.put(&1).await?;
    let lost = take(&ours).await?;
    let old = alice.client.session_id();
    alice.proxy.refuse();
    alice.proxy.expire_session().await?;
    take(&theirs).await?.done().await?;
    alice.proxy.restore();
    next_session(&alice, old).await?;
    let told = timeout(SOON, lost.cancelled()).await;
    ensure!(told.is_err(), "it was lost");
    Ok(())
}
