//! Clients of an earlier and of a later version beside ours: what they wrote is made by hand.
//!
//! See "The versions of our own layouts" in `docs/interop.md`.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use lockkeeper::{
    AcquireError, Client, CreateMode, Election, Mutex, ProclaimError, Publication, Semaphore,
    ValueChange, ValueError, ZnodePath, inspect::LockQueue,
};
use lockkeeper_testkit::backend::children_reach;

use crate::{LOCK, Observed, contract, lock_path};

contract!(versions);

/// Long enough to tell from a busy machine's pauses.
const DELAY: Duration = Duration::from_millis(1_500);

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).expect("a path")
}

/// A contender of another version in the line of a semaphore.
async fn stands(client: &Client, name: &str, data: &'static str) -> Result<ZnodePath> {
    let front = lock_path().child(name)?;
    Ok(client.create(&front, data, CreateMode::EphemeralSequential).await?.path)
}

const ID: &str = "5e1d0b5c-7a5e-4d2c-9f0e-0123456789ab";

/// One permit each, of two: an earlier client that says nothing of itself, ours, a later one that says
/// more than we know, and ours again. Each gets its turn in the order of the line.
async fn old_and_new_clients_stand_in_one_line((alice, others): Observed) -> Result<()> {
    others.create(&path("/locks"), "", CreateMode::Persistent).await?;
    others.create(&lock_path(), "2", CreateMode::Container).await?;
    let earlier = stands(&others, &format!("_c_{ID}-1-permits-"), "").await?;
    let first = Semaphore::new(&alice.client, LOCK, 2)?.acquire().await?;
    const LATER: &str = r#"{"v":2,"host":"db1","pid":7,"program":"later","zone":{"name":"b"}}"#;
    let later = stands(&others, &format!("_c_{ID}-1-permits-"), LATER).await?;

    let waits = Semaphore::new(&alice.client, LOCK, 2)?;
    let waiting = tokio::spawn(async move { waits.acquire().await });
    children_reach(&others, &lock_path(), 4).await?;
    let queue = LockQueue::inspect(&others, &lock_path()).await?.context("there is a line")?;
    let holds: Vec<_> = queue.entries.iter().map(|entry| entry.holds).collect();
    assert_eq!((holds, queue.foreign.len()), (vec![true, true, false, false], 0));
    let owner = queue.entries[2].owner.as_ref().context("what is known of it is read")?;
    assert_eq!((owner.program.as_str(), owner.pid), ("later", 7));
    assert!(queue.entries[0].owner.is_none());

    // The later one is next, then ours.
    others.delete(&earlier, None).await?;
    first.release().await?;
    let last = waiting.await??;
    let queue = LockQueue::inspect(&others, &lock_path()).await?.context("there is a line")?;
    assert!(queue.entries.iter().all(|entry| entry.holds) && queue.entries[0].node == later);
    last.release().await?;
    Ok(())
}

/// Neither with a contender of another kind, nor with a number in a later format.
async fn a_later_layout_of_a_semaphore_keeps_older_clients_out(
    (alice, others): Observed,
) -> Result<()> {
    let semaphore = Semaphore::new(&alice.client, LOCK, 2)?;
    semaphore.acquire().await?.release().await?;
    let later = stands(&others, &format!("_c_{ID}-1-permits2-"), "").await?;
    let refused = semaphore.acquire().await.err();
    let Some(AcquireError::Foreign { names, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(names, [later.name()]);
    assert!(others.exists(&later).await?.is_some(), "it is left alone");
    others.delete(&later, None).await?;

    others.set_data(&lock_path(), "2 of weight 3", None).await?;
    let refused = Semaphore::new(&alice.client, LOCK, 2)?.acquire().await.err();
    let Some(AcquireError::BadPermits { found, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(found, "2 of weight 3");
    assert_eq!(&others.data(&lock_path()).await?.0[..], b"2 of weight 3");
    Ok(())
}

/// Fails with a later mark taken for what it seems to say.
async fn a_mark_of_another_version_is_waited_for((alice, others): Observed) -> Result<()> {
    others.create(&path("/locks"), "", CreateMode::Persistent).await?;
    let mark = path(&format!("{LOCK}-__delay__"));
    let long = DELAY.as_millis();
    let marks = [
        // An earlier version's, and our own: as long as they say.
        (format!(r#"{{"node":"x","delay_ms":{long}}}"#), Duration::from_millis(1), true),
        (r#"{"node":"x","delay_ms":1}"#.to_owned(), DELAY * 100, false),
        (r#"{"v":1,"node":"x","delay_ms":1,"more":[]}"#.to_owned(), DELAY * 100, false),
        // A later version's, known in part or not at all: not shorter than our own.
        (r#"{"v":2,"node":"x","delay_ms":1}"#.to_owned(), DELAY, true),
        (format!(r#"{{"v":2,"node":"x","delay_ms":{long}}}"#), Duration::from_millis(1), true),
        (r#"{"v":2,"until":"noon"}"#.to_owned(), DELAY, true),
    ];
    for (left, own, is_long) in marks {
        others.create(&mark, left.clone(), CreateMode::Persistent).await?;
        let lock = Mutex::builder(&alice.client, LOCK).lock_delay(own).build()?;
        let start = alice.client.now();
        let guard = lock.acquire().await?;
        let took = alice.client.now().since(start);
        assert_eq!(took >= DELAY, is_long, "{left}: {took:?}");
        let written = String::from_utf8(others.data(&mark).await?.0.to_vec())?;
        assert!(written.starts_with(r#"{"v":1,"#), "{written}");
        guard.release().await?;
    }
    Ok(())
}

async fn observers_read_what_they_know_of_a_later_record((alice, others): Observed) -> Result<()> {
    let election = Election::builder(&alice.client, "/election/a").id("alice").build()?;
    let leadership = election.campaign().await?;
    leadership.proclaim("here").await?;
    let record = path("/election/a-__leader__");
    let written = String::from_utf8(others.data(&record).await?.0.to_vec())?;
    assert!(written.starts_with(r#"{"v":1,"#), "{written}");

    let node = leadership.node().name();
    let later = format!(r#"{{"v":2,"node":"{node}","value":"there","zone":"b"}}"#);
    others.set_data(&record, later, None).await?;
    let leaders = election.observe().await?;
    assert_eq!(leaders.current().and_then(|leader| leader.value.as_deref()), Some("there"));
    leadership.resign().await?;

    // Unreadable data is not a value, and is not overwritten.
    let unknown = Bytes::from_static(br#"{"v":3,"values":["there"]}"#);
    others.set_data(&record, unknown.clone(), None).await?;
    let leadership = election.campaign().await?;
    let leaders = election.observe().await?;
    assert!(leaders.current().is_some_and(|leader| leader.value.is_none()));
    let refused = leadership.proclaim("here").await;
    assert_eq!(refused, Err(ProclaimError::Foreign { node: record.clone() }));
    assert_eq!(others.data(&record).await?.0, unknown);
    Ok(())
}

async fn a_publication_of_a_later_version_is_left_alone((alice, others): Observed) -> Result<()> {
    let routes = Publication::<String>::new(&alice.client, "/routes")?;
    routes.publish(&"first".to_owned()).await?;
    let written = others.data(routes.path()).await?.0;
    assert!(written.starts_with(br#"{"lockkeeper_publication":1,"#), "{written:?}");

    let later = Bytes::from_static(b"{\"lockkeeper_publication\":2,\"zones\":{}}\n");
    others.set_data(routes.path(), later.clone(), None).await?;
    let refused = routes.publish(&"second".to_owned()).await.err();
    let Some(error @ ValueError::Undecodable { .. }) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("later version"), "{error}");
    alice.client.sync(routes.path()).await?;
    let mut followed = routes.follow();
    assert!(matches!(followed.next().await?, ValueChange::Invalid { .. }));
    assert_eq!(others.data(routes.path()).await?.0, later);
    Ok(())
}
