//! Queues in the layouts of other libraries: what their programs read and write, and what is promised there too.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use bytes::Bytes;
use lockkeeper::{
    AtMostOnce, Client, CreateMode, Failure, HolderState, Item, LossReason, PutOptions, Queue,
    QueueBuilder, QueueError, QueueLayout, Raw, ZnodePath,
};
use lockkeeper_testkit::backend::{Participant, children_reach};
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_wire::OpCode;

use crate::{Clients, Observed, Pair, contract};

contract!(queue_layouts);

const JOBS: &str = "/app/jobs";
const CLAIMS: &str = "/app/claims";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(30);

const CURATOR: [QueueLayout; 4] = [
    QueueLayout::CuratorQueue,
    QueueLayout::CuratorPriority,
    QueueLayout::CuratorDelay,
    QueueLayout::CuratorId,
];
const WITHOUT_CLAIMS: [QueueLayout; 2] = [QueueLayout::CuratorSimple, QueueLayout::KazooQueue];

type Values<D = lockkeeper::AtLeastOnce> = Queue<Bytes, D>;

/// A queue with claims.
fn builder(client: &Client, layout: QueueLayout) -> QueueBuilder<Bytes> {
    let builder = Queue::<Bytes>::builder(client, JOBS).layout(layout);
    if CURATOR.contains(&layout) { builder.lock_path(CLAIMS) } else { builder }
}

fn claiming(client: &Client, layout: QueueLayout) -> Result<Values> {
    Ok(builder(client, layout).build_with(Raw)?)
}

fn taking_out(client: &Client, layout: QueueLayout) -> Result<Values<AtMostOnce>> {
    let builder = Queue::<Bytes>::builder(client, JOBS).layout(layout);
    Ok(builder.delivery(AtMostOnce).build_with(Raw)?)
}

fn with_claims() -> impl Iterator<Item = QueueLayout> {
    CURATOR.into_iter().chain([QueueLayout::KazooLocking])
}

fn entries(layout: QueueLayout) -> Result<ZnodePath> {
    let below = if layout == QueueLayout::KazooLocking { "/entries" } else { "" };
    Ok(ZnodePath::new(&format!("{JOBS}{below}"))?)
}

fn claims(layout: QueueLayout) -> Result<ZnodePath> {
    let kazoo = format!("{JOBS}/taken");
    Ok(ZnodePath::new(if layout == QueueLayout::KazooLocking { &kazoo } else { CLAIMS })?)
}

fn value(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn next(queue: &Values) -> Result<Item<Bytes>> {
    Ok(tokio::time::timeout(LONG, queue.take()).await.context("nothing is taken")??)
}

/// Deletes everything, so that the next layout begins anew.
async fn clear(client: &Client) -> Result<()> {
    for path in [JOBS, CLAIMS] {
        let mut nodes = vec![ZnodePath::new(path)?];
        while let Some(node) = nodes.last().cloned() {
            match client.children(&node).await {
                Ok((names, _)) if !names.is_empty() => {
                    for name in names {
                        nodes.push(node.child(&name)?);
                    }
                }
                Ok(_) => client.delete(&nodes.pop().context("a node")?, None).await?,
                Err(_) => drop(nodes.pop()),
            }
        }
    }
    Ok(())
}

/// Milliseconds since 1970.
fn wall_clock_ms() -> Result<u64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(u64::try_from(now.as_millis())?)
}

async fn items_of_each_layout_are_claimed_and_done((one, two): Clients) -> Result<()> {
    for layout in with_claims() {
        let (ours, theirs) = (claiming(&one, layout)?, claiming(&two, layout)?);
        let id = ours.put(&value("first")).await?;
        ours.put_all(&[value("second"), value("third")]).await?;

        let first = next(&theirs).await?;
        assert_eq!((&first.value()[..], first.attempt()), (&b"first"[..], 1), "{layout}");
        assert!(first.id() == id && first.is_held(), "{layout}");
        let claim = claims(layout)?.child(&id)?;
        let (data, stat) = one.data(&claim).await?;
        assert_eq!((data.len(), stat.ephemeral_owner), (32, two.session_id()), "{layout}");

        let second = next(&ours).await?;
        assert_eq!(&second.value()[..], b"second", "{layout}");
        let report = ours.inspect().await?;
        assert_eq!((report.waiting, report.claimed), (1, 2), "{layout}");
        assert!(report.oldest_unix_ms.is_some(), "{layout}");
        first.done().await?;
        assert!(matches!(first.done().await, Err(QueueError::Ended { .. })), "{layout}");
        second.done().await?;
        next(&ours).await?.done().await?;
        assert!(ours.try_take().await?.is_none() && theirs.try_take().await?.is_none());
        children_reach(&one, &entries(layout)?, 0).await?;
        children_reach(&one, &claims(layout)?, 0).await?;
        drop((ours, theirs));
        clear(&one).await?;
    }
    Ok(())
}

async fn items_without_claims_are_taken_out((one, two): Clients) -> Result<()> {
    for layout in CURATOR.into_iter().chain(WITHOUT_CLAIMS) {
        let (ours, theirs) = (taking_out(&one, layout)?, taking_out(&two, layout)?);
        ours.put_all(&[value("first"), value("second")]).await?;
        assert_eq!(&theirs.take().await?[..], b"first", "{layout}");
        assert_eq!(&ours.take().await?[..], b"second", "{layout}");
        assert!(theirs.try_take().await?.is_none(), "{layout}");
        clear(&one).await?;
    }
    Ok(())
}

async fn slots_are_taken_in_their_order(client: Client) -> Result<()> {
    for (layout, slots) in
        [(QueueLayout::CuratorPriority, [5, 0, -3]), (QueueLayout::KazooLocking, [999, 100, 0])]
    {
        let queue = claiming(&client, layout)?;
        for (slot, name) in slots.into_iter().zip(["last", "second", "first"]) {
            queue.put_with(&value(name), &PutOptions::new().priority(slot)).await?;
        }
        for name in ["first", "second", "last"] {
            let item = next(&queue).await?;
            assert_eq!(&item.value()[..], name.as_bytes(), "{layout}");
            item.done().await?;
        }
        clear(&client).await?;
    }

    let queue = claiming(&client, QueueLayout::CuratorId)?;
    let id = queue.put_with(&value("one"), &PutOptions::new().id("a.7")).await?;
    assert!(id.starts_with("queue-|a.7|"), "{id}");
    let item = next(&queue).await?;
    item.retry("again").await?;
    let item = next(&queue).await?;
    assert!(item.id().starts_with("queue-|a.7|") && item.id() != id, "{item:?}");
    Ok(item.done().await?)
}

async fn an_item_is_free_when_it_is_due(client: Client) -> Result<()> {
    let queue = claiming(&client, QueueLayout::CuratorDelay)?;
    let now = wall_clock_ms()?;
    queue.put_with(&value("much later"), &PutOptions::new().due_unix_ms(now + 3_600_000)).await?;
    let due = now + 700;
    queue.put_with(&value("later"), &PutOptions::new().due_unix_ms(due)).await?;
    queue.put(&value("now")).await?;
    next(&queue).await?.done().await?;
    let item = next(&queue).await?;
    assert!(&item.value()[..] == b"later" && wall_clock_ms()? >= due, "{item:?}");
    item.done().await?;
    assert!(queue.try_take().await?.is_none());
    Ok(())
}

async fn one_waits_until_something_comes_or_is_given_back((one, two): Clients) -> Result<()> {
    for layout in with_claims() {
        let (ours, theirs) = (claiming(&one, layout)?, claiming(&two, layout)?);
        let waiting = {
            let ours = ours.clone();
            tokio::spawn(async move { ours.take().await })
        };
        children_reach(&two, &ZnodePath::new(&format!("{JOBS}-__lockkeeper__"))?, 1).await?;
        theirs.put(&value("x")).await?;
        let item = tokio::time::timeout(LONG, waiting).await???;

        let waiting = tokio::spawn(async move { theirs.take().await });
        children_reach(&two, &ZnodePath::new(&format!("{JOBS}-__lockkeeper__"))?, 1).await?;
        drop(item);
        let item = tokio::time::timeout(LONG, waiting).await???;
        assert_eq!(&item.value()[..], b"x", "{layout}");
        item.done().await?;
        drop(ours);
        clear(&one).await?;
    }
    Ok(())
}

async fn lost_replies_lose_no_item_and_double_none((one, observer): Observed) -> Result<()> {
    let Participant { client, proxy, .. } = &one;
    for layout in with_claims() {
        let queue = claiming(client, layout)?;
        queue.put(&value("before")).await?;
        next(&queue).await?.done().await?;

        proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
        queue.put(&value("x")).await?;
        children_reach(&observer, &entries(layout)?, 1).await?;
        proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
        let item = next(&queue).await?;
        assert!(&item.value()[..] == b"x" && item.is_held(), "{layout}: {item:?}");
        proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
        item.done().await?;
        assert_eq!(proxy.losses_to_come(), 0, "{layout}");
        children_reach(&observer, &entries(layout)?, 0).await?;
        drop((queue, item));
        clear(&observer).await?;
    }
    for layout in WITHOUT_CLAIMS {
        let queue = taking_out(client, layout)?;
        queue.put(&value("x")).await?;
        proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
        assert_eq!(&queue.take().await?[..], b"x", "{layout}");
        assert_eq!(proxy.losses_to_come(), 0, "{layout}");
        clear(&observer).await?;
    }
    Ok(())
}

/// The claim's name is used again: what the one has begun must not end what the other one works on.
async fn who_has_lost_an_item_does_not_end_it_for_another((one, two): Pair) -> Result<()> {
    for layout in with_claims() {
        let (first, second) = (claiming(&one.client, layout)?, claiming(&two.client, layout)?);
        first.put(&value("x")).await?;
        let lost = next(&first).await?;
        one.proxy.expire_session().await?;
        let held = next(&second).await?;
        assert_eq!(lost.id(), held.id(), "{layout}");
        let done = lost.done().await;
        let session_is_over =
            matches!(done, Err(QueueError::Lost { reason: LossReason::SessionExpired, .. }));
        assert!(session_is_over, "{layout}: {done:?}");
        drop(lost);
        // Whatever it sends has come by then.
        one.client.sync(&entries(layout)?).await?;
        assert!(held.is_held(), "{layout}");
        held.done().await?;
        drop((first, second, held));
        clear(&two.client).await?;
    }
    Ok(())
}

/// The same of an end that was on its way when the session ended, and is made again in the next one.
async fn an_end_goes_with_its_session((one, two): Pair) -> Result<()> {
    for layout in with_claims() {
        let (first, second) = (claiming(&one.client, layout)?, claiming(&two.client, layout)?);
        first.put(&value("x")).await?;
        let item = next(&first).await?;
        one.proxy.refuse();
        let mut ending = Box::pin(item.done());
        let at_once = tokio::time::timeout(Duration::ZERO, &mut ending).await;
        assert!(at_once.is_err(), "{layout}: {at_once:?}");
        one.proxy.expire_session().await?;
        let held = next(&second).await?;
        one.proxy.restore();
        let done = tokio::time::timeout(LONG, ending).await?;
        assert!(matches!(done, Err(QueueError::Lost { .. })), "{layout}: {done:?}");
        held.done().await.with_context(|| layout.to_string())?;
        drop((first, second, held, item));
        clear(&two.client).await?;
    }
    Ok(())
}

async fn what_was_held_for_too_long_goes_to_another((one, two): Clients) -> Result<()> {
    let layout = QueueLayout::KazooLocking;
    let hasty = builder(&one, layout).max_run(Duration::from_millis(50)).build_with(Raw)?;
    let patient = claiming(&two, layout)?;
    hasty.put(&value("x")).await?;
    let lost = next(&hasty).await?;
    let held = next(&patient).await?;
    assert_eq!(lost.state(), HolderState::Lost(LossReason::HeldTooLong));
    assert!(lost.deadline().is_none() && held.is_held());
    let done = lost.done().await;
    assert!(matches!(done, Err(QueueError::Lost { .. })), "{done:?}");
    Ok(held.done().await?)
}

async fn what_cannot_be_read_stays_and_is_told_once(client: Client) -> Result<()> {
    let layout = QueueLayout::CuratorQueue;
    let queue = claiming(&client, layout)?;
    queue.put(&value("fine")).await?;
    let planted = [
        (entries(layout)?.child("queue-0000000000-no")?, "foreign"),
        (entries(layout)?.child("queue-0999999999")?, "no item file"),
    ];
    for (node, data) in &planted {
        client.create(node, value(data), CreateMode::Persistent).await?;
    }
    let item = next(&queue).await?;
    let told = queue.try_take().await;
    assert!(
        matches!(&told, Err(QueueError::Undecodable { id, .. }) if id == "queue-0999999999"),
        "{told:?}"
    );
    assert!(queue.try_take().await?.is_none());
    item.done().await?;

    let out = taking_out(&client, layout)?;
    let told = out.try_take().await;
    assert!(matches!(told, Err(QueueError::Undecodable { .. })), "{told:?}");
    assert!(out.try_take().await?.is_none());
    children_reach(&client, &claims(layout)?, 0).await?;
    children_reach(&client, &entries(layout)?, 2).await
}

async fn a_file_of_several_items_is_put_apart(client: Client) -> Result<()> {
    let layout = QueueLayout::CuratorPriority;
    let queue = claiming(&client, layout)?;
    queue.put(&value("other")).await?;
    let file = Bytes::from_static(b"\0\x01\0\x01\x01\0\0\0\x01a\x01\0\0\0\x01b\x02");
    let node = entries(layout)?.child("queue-0FFFFFFFF")?;
    for _ in 0..2 {
        client.create(&node, file.clone(), CreateMode::PersistentSequential).await?;
    }
    for expected in ["a", "b"] {
        let item = next(&queue).await?;
        assert!(&item.value()[..] == expected.as_bytes(), "{item:?}");
        item.done().await?;
    }
    // The same without the claims, which do not occur here.
    let out = taking_out(&client, layout)?;
    let mut values = Vec::new();
    while let Some(value) = out.try_take().await? {
        values.push(value);
    }
    assert_eq!(values, ["a", "b", "other"]);
    Ok(())
}

async fn what_a_layout_cannot_do_is_said(client: Client) -> Result<()> {
    fn refused<T: std::fmt::Debug>(result: Result<T, QueueError>, hint: &str) {
        let error = result.expect_err(hint);
        assert!(matches!(error, QueueError::NotInLayout { .. }), "{error}");
        assert!(error.to_string().contains(hint) && !error.is_retryable(), "{error}");
    }
    let plain = |layout| Queue::<Bytes>::builder(&client, JOBS).layout(layout);
    for layout in CURATOR {
        refused(plain(layout).build_with(Raw), "lock_path");
    }
    for layout in WITHOUT_CLAIMS {
        refused(plain(layout).build_with(Raw), "delivery(AtMostOnce)");
        refused(plain(layout).lock_path(CLAIMS).build_with(Raw), "leave `lock_path` out");
    }
    refused(plain(QueueLayout::CuratorId).lock_path(JOBS).build_with(Raw), "another `lock_path`");
    refused(plain(QueueLayout::KazooLocking).max_tries(3).build_with(Raw), "max_tries");

    let queue = claiming(&client, QueueLayout::CuratorQueue)?;
    queue.put(&value("x")).await?;
    refused(
        queue.put_with(&value("x"), &PutOptions::new().priority(1)).await,
        "does not support priorities",
    );
    refused(
        queue.put_with(&value("x"), &PutOptions::new().key("a")).await,
        "does not support keys",
    );
    refused(queue.cancel("x").await, "does not support cancellations");
    let item = next(&queue).await?;
    refused(item.bury("no").await, "does not support dead letters");
    assert!(item.is_held());
    refused(queue.dead_letters().await, "does not support dead letters");
    refused(queue.dead_value("x").await, "does not support dead letters");
    refused(queue.put_back("x").await, "does not support dead letters");
    refused(queue.discard("x").await, "does not support dead letters");
    refused(queue.delete().await, "does not support lists of consumers");
    item.done().await?;

    let kazoo = claiming(&client, QueueLayout::KazooLocking)?;
    let bad = kazoo.put_with(&value("x"), &PutOptions::new().priority(-1)).await;
    assert!(matches!(bad, Err(QueueError::Options { .. })), "{bad:?}");

    // Each finds the other's at its path.
    let own: Queue<Bytes> = Queue::<Bytes>::builder(&client, "/app/own").build_with(Raw)?;
    own.put(&value("x")).await?;
    let there = Queue::<Bytes>::builder(&client, "/app/own").layout(QueueLayout::KazooLocking);
    let foreign = there.build_with(Raw)?.put(&value("x")).await;
    assert!(matches!(foreign, Err(QueueError::Foreign { .. })), "{foreign:?}");
    let here = Queue::<Bytes>::builder(&client, JOBS).build_with(Raw)?.put(&value("x")).await;
    assert!(matches!(here, Err(QueueError::Foreign { .. })), "{here:?}");
    Ok(())
}
