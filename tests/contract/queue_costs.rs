//! What a queue costs, by frames: as its documentation says.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{Bound, Client, PutOptions, Queue, ZnodePath};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode::{self, GetData, Multi, MultiRead};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::{Pair, contract};

contract!(queue_costs);

const JOBS: &str = "/app/jobs";
const LINE: &str = "/app/jobs/line";

/// How long idle consumers are observed.
const IDLE: Duration = Duration::from_secs(3);

fn jobs(client: &Client) -> Result<Queue<u32>> {
    Ok(Queue::new(client, JOBS)?)
}

fn requests(participant: &Participant) -> Vec<OpCode> {
    let requests = participant.proxy.requests();
    participant.proxy.clear();
    requests
}

async fn a_put_a_take_and_an_end_are_a_write_each((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    // The nodes that both need are there by then, and the listing is known.
    ours.put_all(&[0, 1, 2]).await?;
    theirs.take().await?.done().await?;
    for participant in [&alice, &bob] {
        participant.proxy.clear();
    }

    ours.put(&3).await?;
    assert_eq!(requests(&alice), [Multi]);
    ours.put_all(&[4, 5, 6]).await?;
    assert_eq!(requests(&alice), [Multi]);

    // The body is read in the same round trip.
    bob.proxy.hold_replies();
    let queue = theirs.clone();
    let taking = tokio::spawn(async move { queue.take().await });
    let asked = |passed: &[Passed]| {
        passed.contains(&Passed::Request(GetData)) && passed.contains(&Passed::Request(Multi))
    };
    bob.proxy.passes(asked).await;
    bob.proxy.restore();
    let item = taking.await??;
    let mut sent = requests(&bob);
    // The listing may be too old by now.
    sent.retain(|op| *op != MultiRead);
    sent.sort_unstable_by_key(|op| *op != Multi);
    assert_eq!(sent, [Multi, GetData]);

    item.done().await?;
    assert_eq!(requests(&bob), [Multi]);
    assert!(bob.proxy.events().is_empty() && alice.proxy.events().is_empty());
    Ok(())
}

/// What an item is put with costs steps, and no requests.
async fn options_are_steps_of_the_same_writes((alice, bob): Pair) -> Result<()> {
    let builder = |client| Queue::<u32>::builder(client, JOBS).bound(Bound::exactly(100));
    let ours = builder(&alice.client).build()?;
    let theirs = builder(&bob.client).at_most("gpu", 2).build()?;
    let marked = PutOptions::new().key("a").kind("gpu").priority(-1);
    let later = PutOptions::new().due_unix_ms(u64::from(u32::MAX) * 1_000);
    // What both need is there by then, and the lanes of the priority and of that time.
    ours.put_with(&0, &later).await?;
    ours.put_with(&0, &marked).await?;
    theirs.take().await?.done().await?;
    for participant in [&alice, &bob] {
        participant.proxy.clear();
    }

    ours.put_with(&1, &later).await?;
    assert_eq!(requests(&alice), [Multi]);
    ours.put_with(&2, &marked).await?;
    assert_eq!(requests(&alice), [Multi]);
    let request = ours.request_with(&3, &marked).await?;
    assert_eq!(requests(&alice), [Multi]);

    for round in 0..3 {
        let item = theirs.take().await?;
        let mut sent = requests(&bob);
        // The listing contains at most one item of each key.
        sent.retain(|op| *op != MultiRead);
        sent.sort_unstable_by_key(|op| *op != Multi);
        assert_eq!(sent, [Multi, GetData]);
        match round {
            0 => item.retry("it keeps its place").await?,
            1 => item.done().await?,
            _ => item.done_with_answer(&7).await?,
        }
        assert_eq!(requests(&bob), [Multi]);
    }
    assert_eq!(request.answer::<u32>().await?, 7);
    assert_eq!(requests(&alice), [GetData]);
    Ok(())
}

/// Those of one handle that are asked for at the same time.
async fn writes_of_many_tasks_are_one((alice, bob): Pair) -> Result<()> {
    const ITEMS: u32 = 20;
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    ours.put(&0).await?;
    theirs.take().await?.done().await?;
    alice.proxy.clear();
    bob.proxy.clear();

    // While the first is on its way, all others come.
    alice.proxy.hold_replies();
    let mut putting = JoinSet::new();
    for number in 0..ITEMS {
        let queue = ours.clone();
        putting.spawn(async move { queue.put(&number).await });
    }
    alice.proxy.passes(|passed| passed.contains(&Passed::Request(Multi))).await;
    tokio::task::yield_now().await;
    alice.proxy.restore();
    for put in putting.join_all().await {
        put?;
    }
    let writes = requests(&alice).len();
    assert!(writes <= 3, "{writes} for {ITEMS} puts");

    // A handler for each item: they are taken together, and ended together.
    let worked_on = Semaphore::new(0);
    let all = async { drop(worked_on.acquire_many(ITEMS).await) };
    let worked = theirs.work_until(ITEMS as usize, all, |_| {
        worked_on.add_permits(1);
        std::future::ready(())
    });
    worked.await?;
    children_reach(&alice.client, &ZnodePath::new("/app/jobs/bodies")?, 0).await?;
    let mut sent = requests(&bob);
    sent.retain(|op| *op == Multi);
    assert!(sent.len() <= 4, "{} writes for {ITEMS} items", sent.len());
    Ok(())
}

/// They take, end and wait again, in turns.
async fn idle_consumers_cost_nothing_and_an_item_two_events(backend: Backend) -> Result<()> {
    const ITEMS: usize = 10;
    let producer = backend.observer().await?;
    let queue = jobs(&producer)?;
    queue.put(&0).await?;
    let line = ZnodePath::new(LINE)?;
    let (mut consumers, mut working) = (VecDeque::new(), JoinSet::new());
    for count in [1, 8, 32] {
        while consumers.len() < count {
            let consumer = backend.participant().await?;
            let jobs = jobs(&consumer.client)?;
            working.spawn(async move {
                while jobs.take().await?.done().await.is_ok() {}
                anyhow::Ok(())
            });
            consumers.push_back(consumer);
            children_reach(&producer, &line, consumers.len()).await?;
        }
        if count == 1 {
            // It took all items.
            has_listed(&consumers[0], 3).await;
        }
        // After that, the consumers have no more reads to make, once the requests in flight are answered.
        one_item((&producer, &queue), &mut consumers).await?;
        tokio::time::sleep(IDLE).await;

        for consumer in &consumers {
            consumer.proxy.clear();
        }
        tokio::time::sleep(IDLE).await;
        for consumer in &consumers {
            assert_eq!((consumer.proxy.requests(), consumer.proxy.events()), (vec![], vec![]));
        }

        let mut events = 0;
        for _ in 0..ITEMS {
            events += one_item((&producer, &queue), &mut consumers).await?;
        }
        assert!(events <= 2 * ITEMS, "{events} events for {ITEMS} items and {count} consumers");
    }
    working.abort_all();
    Ok(())
}

/// An item is put, worked on by the first in line, and all is quiet again. How many events it took.
async fn one_item(
    (producer, queue): (&Client, &Queue<u32>),
    consumers: &mut VecDeque<Participant>,
) -> Result<usize> {
    for consumer in consumers.iter() {
        consumer.proxy.clear();
    }
    queue.put(&0).await?;
    // It lists when it is woken, and before it enters the queue again. The first in the queue then lists too.
    has_listed(&consumers[0], 2).await;
    let (next, times) = if consumers.len() == 1 { (0, 3) } else { (1, 1) };
    has_listed(&consumers[next], times).await;
    children_reach(producer, &ZnodePath::new(LINE)?, consumers.len()).await?;
    let events = consumers.iter().map(|it| it.proxy.events().len()).sum();
    consumers.rotate_left(1);
    Ok(events)
}

/// Returns when a consumer has listed so often.
async fn has_listed(consumer: &Participant, times: usize) {
    let listings =
        |passed: &[Passed]| passed.iter().filter(|it| **it == Passed::Reply(MultiRead)).count();
    consumer.proxy.passes(|passed| listings(passed) >= times).await;
}
