//! A call that was started and is no longer polled, as `select!` and hand-written futures can leave it:
//! other calls of the same handle make progress.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::{
    Added, Counter, Election, IdBlocks, Presence, Publication, Queue, Shared, WhenTaken, ZnodePath,
};
use lockkeeper_testkit::backend::{Participant, children_reach};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;

use crate::{Observed, contract};

contract!(unpolled);

/// Longer than any call takes unless it waits for a call that is not polled.
const HANGS: Duration = Duration::from_secs(20);

/// Polls it once; it is not done by then.
async fn begun<F: Future>(mut future: Pin<&mut F>) {
    let once = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context)));
    assert!(once.await.is_pending(), "nothing has been answered yet");
}

async fn goes_on<T, E>(call: impl Future<Output = Result<T, E>>) -> Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    Ok(tokio::time::timeout(HANGS, call)
        .await
        .context("it waits for a call that is not polled")??)
}

/// The one whose task had sent the write for itself and others.
async fn an_add_under_way_stalls_no_other(alice: Participant) -> Result<()> {
    let counter = Counter::new(&alice.client, "/orders")?;
    for known in [false, true] {
        let before = counter.value().await?;
        let mut held = pin!(counter.add(1));
        begun(held.as_mut()).await;
        let added = goes_on(counter.add(10)).await?;
        assert_eq!(added, Added { before: before + 1, after: before + 11 }, "{known}");
        assert_eq!(held.await?, Added { before, after: before + 1 });
    }
    Ok(())
}

/// Neither its handle nor those behind it in line, on whatever machine.
async fn a_take_that_waits_stalls_no_other((observed, client): Observed) -> Result<()> {
    let (ours, theirs) =
        (Queue::<u32>::new(&observed.client, "/jobs")?, Queue::<u32>::new(&client, "/jobs")?);
    ours.put(&0).await?;
    goes_on(ours.take()).await?.done().await?;
    let mut held = pin!(ours.take());
    begun(held.as_mut()).await;
    children_reach(&client, &ZnodePath::new("/jobs/line")?, 1).await?;
    theirs.put_all(&[1, 2, 3]).await?;
    // The first in line has one of them, and the line is free.
    children_reach(&client, &ZnodePath::new("/jobs/line")?, 0).await?;
    let (one, two) = (goes_on(theirs.take()).await?, goes_on(ours.take()).await?);
    let mut values = [*one.value(), *two.value(), *held.await?.value()];
    values.sort_unstable();
    assert_eq!(values, [1, 2, 3]);
    Ok(())
}

/// The one that was to be the next to send.
async fn an_add_that_waits_stalls_no_other(alice: Participant) -> Result<()> {
    let counter = Counter::new(&alice.client, "/orders")?;
    counter.add(0).await?;
    alice.proxy.clear();
    alice.proxy.hold_replies();
    let first = tokio::spawn({
        let counter = counter.clone();
        async move { counter.add(1).await }
    });
    alice.proxy.passes(|passed| passed.contains(&Passed::Request(OpCode::Multi))).await;
    let mut held = pin!(counter.add(10));
    begun(held.as_mut()).await;
    alice.proxy.restore();
    goes_on(async { first.await.expect("no panic") }).await?;
    assert_eq!(goes_on(counter.add(100)).await?.after, 111);

    // One that is given up is added once or not at all.
    let mut dropped = Box::pin(counter.add(1_000));
    begun(dropped.as_mut()).await;
    drop(dropped);
    let after = goes_on(counter.add(0)).await?.after;
    assert!(matches!(after, 111 | 1_111), "{after}");
    assert_eq!(held.await?, Added { before: 1, after: 11 });
    Ok(())
}

async fn numbers_stall_no_other(alice: Participant) -> Result<()> {
    let ids = IdBlocks::new(&Counter::new(&alice.client, "/orders")?, 3);
    let mut held = pin!(ids.next());
    begun(held.as_mut()).await;
    let mut seen = Vec::new();
    for _ in 0..10 {
        seen.push(goes_on(ids.next()).await?);
    }
    seen.push(held.await?);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 11, "each comes once: {seen:?}");
    Ok(())
}

async fn a_set_stalls_no_other(alice: Participant) -> Result<()> {
    let limits: Shared<Vec<u32>> = Shared::new(&alice.client, "/limits")?;
    limits.set(&vec![]).await?;
    let first = vec![0];
    let mut set = pin!(limits.set(&first));
    begun(set.as_mut()).await;
    let mut updated = pin!(limits.update(|_| vec![1]));
    begun(updated.as_mut()).await;

    goes_on(limits.set(&vec![2])).await?;
    let now = goes_on(limits.update(|old| [&old.expect("set")[..], &[3]].concat())).await?;
    assert_eq!(now.value, [2, 3]);
    assert!(set.await? < now.revision.mzxid);
    assert_eq!(updated.await?.value, [1]);
    Ok(())
}

async fn an_edition_stalls_no_other(alice: Participant) -> Result<()> {
    let routes: Publication<String> =
        Publication::builder(&alice.client, "/routes").keep(20).build()?;
    let (long, short) = ("a".repeat(1_500_000), "b".to_owned());
    routes.publish(&short).await?;
    for known in [false, true] {
        let mut published = pin!(routes.publish(&long));
        begun(published.as_mut()).await;
        let mut back = pin!(routes.rollback(1));
        begun(back.as_mut()).await;
        let number = goes_on(routes.publish(&short)).await?;
        assert_eq!(routes.current().await?.expect("one").value, short, "{known}");
        assert!(published.await? > number);
        assert!(back.await?.is_some());
    }
    Ok(())
}

/// And of two values the later one stays.
async fn a_proclamation_stalls_no_other((alice, bob): Observed) -> Result<()> {
    let election = Election::new(&alice.client, "/election")?;
    let leadership = election.campaign().await?;
    for known in [false, true] {
        let mut held = pin!(leadership.proclaim("first"));
        begun(held.as_mut()).await;
        goes_on(leadership.proclaim("second")).await?;
        held.await?;
        let leaders = Election::new(&bob, "/election")?.observe().await?;
        let told = leaders.current().expect("it leads").value.clone();
        assert_eq!(told.as_deref(), Some("second"), "{known}");
    }
    leadership.resign().await?;
    Ok(())
}

/// As of a wait for the end that was given up, in a variable that is still there.
///
/// Fails with the delete in the future of the end: the next one waited for ever.
async fn the_end_of_a_presence_stalls_no_next_one(alice: Participant) -> Result<()> {
    let start =
        || Presence::builder(&alice.client, "/workers/7").when_taken(WhenTaken::Fail).start();
    for is_under_way in [false, true] {
        let mut held = pin!(start().await?.end());
        alice.proxy.clear();
        alice.proxy.hold_replies();
        begun(held.as_mut()).await;
        let asked = |passed: &[Passed]| passed.contains(&Passed::Request(OpCode::Sync));
        tokio::select! {
            ended = held.as_mut() => bail!("nothing has been answered yet: {ended:?}"),
            () = alice.proxy.passes(asked), if is_under_way => {}
            () = std::future::ready(()), if !is_under_way => {}
        }

        alice.proxy.restore();
        let next = goes_on(start()).await?;
        held.await?;
        goes_on(next.end()).await?;
    }
    Ok(())
}
