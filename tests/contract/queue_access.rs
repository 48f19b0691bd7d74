//! Queues with roles: a putter cannot take, a taker cannot put, and others can do neither.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper::{
    Bound, Client, CreateMode, DefaultAcl, ErrorCode, PutOptions, Queue, QueueError,
    TransactionError, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};

use crate::contract;

contract!(queue_access);

const JOBS: &str = "/app/jobs";
const MARKERS: &str = "/app/outcomes";

/// The lists of `docs/queues.md`. The ids are of users with the password `secret`: Ann puts, Bob takes, and Carol
/// has made the queue.
const ANN: &str = "digest:ann:7RJfAeIvrl4zdj6sS2fXrQHDvHM=";
const BOB: &str = "digest:bob:fyVmFCwVbTJYrznoSu1koqYEYF0=";
const CAROL: &str = "digest:carol:jtnODfqZfOMu7mWFjLLprKJk7Wo=:cdrwa";

/// What waits at all waits for less.
const LONG: Duration = Duration::from_secs(30);

fn node(name: &str) -> ZnodePath {
    ZnodePath::new(&format!("{JOBS}{name}")).expect("a path")
}

/// What Ann and what Bob may do; Carol may do everything.
fn list(ann: &str, bob: &str) -> Result<DefaultAcl> {
    let both = [(ANN, ann), (BOB, bob)].map(|(user, may)| match may {
        "" => String::new(),
        may => format!("{user}:{may},"),
    });
    Ok(format!("{}{CAROL}", both.concat()).parse()?)
}

/// What all handles of the queue give to the znodes that they make.
fn usual() -> Result<DefaultAcl> {
    list("crw", "cdrw")
}

async fn user(backend: &Backend, name: &str) -> Result<Participant> {
    backend.participant_with(Client::builder().digest(name, "secret")).await
}

fn jobs(participant: &Participant, list: &DefaultAcl) -> Result<Queue<u32>> {
    Ok(Queue::<u32>::builder(&participant.client, JOBS).acl(list).markers(MARKERS).build()?)
}

/// Carol makes a queue in which Ann may put and Bob may take.
async fn made(backend: &Backend) -> Result<Participant> {
    let carol = user(backend, "carol").await?;
    let client = &carol.client;
    client.create(&node("").parent().context("/app")?, "", CreateMode::Persistent).await?;
    // To look for an item makes the queue.
    ensure!(jobs(&carol, &usual()?)?.try_take().await?.is_none());
    for line in ["/line", "/putters"] {
        client.with_default_acl(&usual()?).create(&node(line), "", CreateMode::Persistent).await?;
    }
    client
        .with_default_acl(&usual()?)
        .ensure(&ZnodePath::new(MARKERS)?, CreateMode::Persistent)
        .await?;
    for (place, list) in [
        ("", list("r", "r")?),
        ("/bodies", list("c", "d")?),
        ("/claims", list("r", "cdrw")?),
        ("/workers", list("r", "cdrw")?),
        ("/line", list("r", "cdrw")?),
        ("/dead", list("r", "cdrw")?),
        ("/busy", list("r", "cdrw")?),
        ("/ids", list("c", "d")?),
        ("/answers", list("cdr", "r")?),
        ("/slots", list("cr", "d")?),
        ("/putters", list("cdrw", "r")?),
        ("/parts", list("cdr", "d")?),
    ] {
        client.set_acl(&node(place), list.entries(), None).await?;
    }
    Ok(carol)
}

/// Whether servers have refused it because of a list.
fn is_refused<T>(result: Result<T, QueueError>) -> bool {
    match result {
        Err(QueueError::Refused { source: TransactionError::Failed { code, .. }, .. }) => {
            code == ErrorCode::NoAuth
        }
        Err(QueueError::Client { source, .. }) => source.code() == Some(ErrorCode::NoAuth),
        _ => false,
    }
}

async fn a_producer_cannot_take_and_a_consumer_cannot_put(backend: Backend) -> Result<()> {
    let _carol = made(&backend).await?;
    let (ann, bob) = (user(&backend, "ann").await?, user(&backend, "bob").await?);
    let (producer, consumer) = (jobs(&ann, &usual()?)?, jobs(&bob, &usual()?)?);

    let id = producer.put(&7).await?;
    ensure!(is_refused(producer.try_take().await), "a producer took");
    ensure!(is_refused(consumer.put(&8).await), "a consumer put");
    let report = producer.inspect().await?;
    assert_eq!((report.waiting, report.claimed), (1, 0));

    // Nor by hand.
    let may_not = |code: Option<ErrorCode>| code == Some(ErrorCode::NoAuth);
    let claim = node("/claims/mine");
    for (client, node) in [(&ann.client, &claim), (&bob.client, &node(&format!("/bodies/{id}x")))] {
        let Err(error) = client.create(node, "", CreateMode::Ephemeral).await else {
            bail!("{node} was made");
        };
        ensure!(may_not(error.code()), "{error}");
    }
    let segment = node("/entries/0000000000");
    let (entries, _) = ann.client.children(&segment).await?;
    for node in [segment.child(&entries[0])?, node(&format!("/bodies/{id}"))] {
        let Err(error) = ann.client.delete(&node, None).await else { bail!("{node} was deleted") };
        ensure!(may_not(error.code()), "{error}");
    }

    let item = consumer.try_take().await?.context("it was put")?;
    assert_eq!((item.id(), *item.value(), item.attempt()), (id.as_str(), 7, 1));
    Ok(item.done().await?)
}

async fn each_role_can_do_its_part(backend: Backend) -> Result<()> {
    let carol = made(&backend).await?;
    let (ann, bob) = (user(&backend, "ann").await?, user(&backend, "bob").await?);
    let (producer, consumer) = (jobs(&ann, &usual()?)?, jobs(&bob, &usual()?)?);

    // A consumer that waits is woken by a put.
    let waiting = consumer.clone();
    let waiting = tokio::spawn(async move { waiting.take().await });
    children_reach(&carol.client, &node("/line"), 1).await?;
    producer.put(&0).await?;
    let item = tokio::time::timeout(LONG, waiting).await???;
    item.retry("once more").await?;
    drop(consumer.take().await?);
    let item = consumer.take().await?;
    assert_eq!(*item.value(), 0);
    item.bury("of no use").await?;
    assert_eq!(producer.dead_letters().await?.len(), 1);

    // Over the end of a segment, which a producer closes.
    producer.put_all(&(1..=300).collect::<Vec<_>>()).await?;
    producer.put(&301).await?;
    let (segments, _) = ann.client.children(&node("/entries")).await?;
    assert_eq!(segments.len(), 2);
    for number in 1..=301 {
        let item = consumer.try_take().await?.context("it was put")?;
        assert_eq!(*item.value(), number);
        item.done().await?;
    }
    assert_eq!(consumer.inspect().await?.waiting, 0);
    Ok(())
}

/// Also what is put with options.
async fn each_role_can_do_its_part_with_options(backend: Backend) -> Result<()> {
    let _carol = made(&backend).await?;
    let (ann, bob) = (user(&backend, "ann").await?, user(&backend, "bob").await?);
    let builder = |user: &Participant| {
        let builder = Queue::<String>::builder(&user.client, JOBS).markers(MARKERS);
        anyhow::Ok(builder.acl(&usual()?).bound(Bound::exactly(3)).at_most("gpu", 1))
    };
    let (producer, consumer) = (builder(&ann)?.build()?, builder(&bob)?.build()?);
    let options = PutOptions::new().key("a").kind("gpu").priority(-1).id("seven");
    let request = producer.request_with(&"x".repeat(600_000), &options).await?;
    let later = options.id("eight").delay(Duration::from_millis(100));
    producer.put_with(&"later".to_owned(), &later).await?;

    let item = consumer.take().await?;
    item.retry("once more").await?;
    let item = consumer.take().await?;
    ensure!(item.value().len() == 600_000 && item.note("half").await?);
    item.done_with_answer(&7).await?;
    assert_eq!(tokio::time::timeout(LONG, request.answer::<u32>()).await??, 7);
    let item = tokio::time::timeout(LONG, consumer.take()).await??;
    assert_eq!(item.value(), "later");
    Ok(item.done().await?)
}

/// A take writes to the entry, which the producer has made.
async fn a_producer_must_let_consumers_in(backend: Backend) -> Result<()> {
    let _carol = made(&backend).await?;
    let (ann, bob) = (user(&backend, "ann").await?, user(&backend, "bob").await?);
    jobs(&ann, &list("crw", "")?)?.put(&7).await?;
    let consumer = jobs(&bob, &usual()?)?;
    ensure!(is_refused(consumer.try_take().await), "the list of the entry keeps him out");
    assert_eq!(consumer.inspect().await?.waiting, 1);
    Ok(())
}

async fn a_stranger_can_do_neither(backend: Backend) -> Result<()> {
    let _carol = made(&backend).await?;
    let participant = user(&backend, "eve").await?;
    let eve = jobs(&participant, &usual()?)?;
    ensure!(is_refused(eve.put(&7).await), "a stranger put");
    ensure!(is_refused(eve.try_take().await), "a stranger took");
    ensure!(is_refused(eve.inspect().await), "a stranger looked");
    ensure!(is_refused(eve.delete().await), "a stranger deleted");
    Ok(())
}
