//! Configuration of any size, published as a whole.

use anyhow::Result;
use bytes::Bytes;
use lockkeeper::{
    Acl, Client, CreateMode, Editions, Permissions, Publication, ValueChange, ValueError,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::{ErrorCode, OpCode};

use crate::{Observed, Pair, contract, gets, next_session};

contract!(publication);

const ROUTES: &str = "/routes";

/// Longer than a server takes in one request.
const LONG: usize = 1_500_000;

type Routes = Publication<String>;

fn routes(client: &Client) -> Result<Routes> {
    Ok(Publication::builder(client, ROUTES).keep(2).build()?)
}

fn long(letter: &str) -> String {
    letter.repeat(LONG)
}

async fn next(editions: &mut Editions<String>) -> Result<String> {
    match editions.next().await? {
        ValueChange::Set(now) => Ok(now.value),
        other => panic!("{other:?}"),
    }
}

/// The nodes of editions, as soon as there are so many.
async fn kept(participant: &Participant, routes: &Routes, wanted: usize) -> Result<()> {
    children_reach(&participant.observer().await?, routes.path(), wanted).await
}

fn count(participant: &Participant, op: OpCode) -> usize {
    participant.proxy.passed().iter().filter(|passed| **passed == Passed::Request(op)).count()
}

async fn editions_are_followed((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (routes(&alice.client)?, routes(&bob.client)?);
    let mut followed = theirs.follow();
    assert_eq!(followed.next().await?, ValueChange::Absent);
    assert_eq!(theirs.current().await?, None);
    for number in 1..5 {
        assert_eq!(ours.publish(&number.to_string()).await?, number);
        assert_eq!(next(&mut followed).await?, number.to_string());
        assert_eq!(theirs.current().await?.expect("one").value, number.to_string());
    }
    assert_eq!(theirs.editions().await?, [3, 4]);
    kept(&alice, &ours, 2).await?;
    // A burst is one event and one read, and the last edition is reported.
    bob.proxy.clear();
    bob.proxy.hold_replies();
    for number in 5..9 {
        ours.publish(&number.to_string()).await?;
    }
    bob.proxy.restore();
    assert_eq!(next(&mut followed).await?, "8");
    assert_eq!(bob.proxy.requests(), [OpCode::GetData]);
    Ok(())
}

async fn a_long_edition_is_seen_whole((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (routes(&alice.client)?, routes(&bob.client)?);
    let mut followed = theirs.follow();
    ours.publish(&long("a")).await?;
    assert!(next(&mut followed).await? == long("a"));
    bob.proxy.clear();
    ours.publish(&long("b")).await?;
    assert!(next(&mut followed).await? == long("b"));
    assert_eq!(gets(&bob.proxy.passed()), 4, "the news, and three parts");
    assert!(theirs.current().await?.expect("one").value == long("b"));
    // The nodes of what is not kept go.
    ours.publish(&"short".to_owned()).await?;
    assert_eq!(next(&mut followed).await?, "short");
    ours.publish(&long("c")).await?;
    kept(&alice, &ours, 2).await
}

async fn no_follower_sees_half_of_one((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (routes(&alice.client)?, routes(&bob.client)?);
    let following = tokio::spawn(async move {
        let mut followed = theirs.follow();
        let mut last = String::new();
        while last != "end" {
            if let ValueChange::Set(now) = followed.next().await? {
                let first = now.chars().next().expect("not empty");
                assert!(now.value == "end" || now.chars().all(|letter| letter == first));
                last = now.value;
            }
        }
        Ok::<_, ValueError>(())
    });
    for letter in ["a", "b", "c", "d", "e"] {
        ours.publish(&long(letter)).await?;
    }
    ours.publish(&"end".to_owned()).await?;
    following.await??;
    Ok(())
}

async fn a_lost_reply_publishes_once(alice: Participant) -> Result<()> {
    let routes = routes(&alice.client)?;
    assert_eq!(routes.publish(&"a".to_owned()).await?, 1);
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    assert_eq!(routes.publish(&"b".to_owned()).await?, 2);
    for loss in [Loss::BeforeReply, Loss::BeforeReply, Loss::BeforeRequest] {
        // Among the parts.
        alice.proxy.lose_next(OpCode::Multi, loss);
        alice.proxy.lose_next(OpCode::Multi, loss);
    }
    assert_eq!(routes.publish(&long("c")).await?, 3);
    assert!(routes.current().await?.expect("one").value == long("c"));
    assert_eq!(routes.editions().await?, [2, 3]);
    kept(&alice, &routes, 2).await
}

async fn publishers_take_turns(backend: Backend) -> Result<()> {
    const EACH: u64 = 8;
    let mut tasks = Vec::new();
    for name in ["a", "b", "c"] {
        let participant = backend.participant().await?;
        tasks.push(tokio::spawn(async move {
            // The proxy goes with it.
            let participant = participant;
            let routes = routes(&participant.client)?;
            let mut numbers = Vec::new();
            for _ in 0..EACH {
                numbers.push(routes.publish(&name.to_owned()).await?);
            }
            Ok::<_, anyhow::Error>(numbers)
        }));
    }
    let mut numbers = Vec::new();
    for task in tasks {
        numbers.extend(task.await??);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=3 * EACH).collect::<Vec<_>>());
    kept(&backend.participant().await?, &routes(&backend.observer().await?)?, 2).await
}

async fn a_rollback_is_an_edition(alice: Participant) -> Result<()> {
    let routes = routes(&alice.client)?;
    routes.publish(&long("a")).await?;
    routes.publish(&"b".to_owned()).await?;
    let mut followed = routes.follow();
    assert_eq!(next(&mut followed).await?, "b");
    assert_eq!(routes.rollback(1).await?, Some(3));
    assert!(next(&mut followed).await? == long("a"));
    assert_eq!(routes.editions().await?, [2, 3]);
    assert_eq!(routes.edition(2).await?.as_deref(), Some("b"));
    assert!(routes.edition(3).await? == Some(long("a")) && routes.edition(1).await?.is_none());
    assert_eq!(routes.rollback(2).await?, Some(4));
    assert_eq!(next(&mut followed).await?, "b");
    assert_eq!(routes.rollback(1).await?, None, "it is not kept any more");
    // The nodes are shared by editions with the same content, and go with the last of them.
    routes.publish(&"c".to_owned()).await?;
    routes.publish(&long("d")).await?;
    assert_eq!(routes.editions().await?, [5, 6]);
    kept(&alice, &routes, 2).await
}

/// Parts are written again, readers do not see them before the end, and the parts of the first try are deleted.
async fn the_end_of_the_session_between_parts((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (routes(&alice.client)?, routes(&bob.client)?);
    ours.publish(&"a".to_owned()).await?;
    let old = alice.client.session_id();
    let before = count(&alice, OpCode::Multi);
    alice.proxy.hold_replies();
    let publishing = tokio::spawn({
        let ours = ours.clone();
        async move { ours.publish(&long("b")).await }
    });
    // The pointer is read, the node above is there, the directory is made, and the first part is on its
    // way.
    let sent = |passed: &[Passed]| {
        passed.iter().filter(|p| **p == Passed::Request(OpCode::Multi)).count() - before
    };
    let mut seen = 0;
    loop {
        alice.proxy.passes(|passed| passed.len() > seen).await;
        let passed = alice.proxy.passed();
        if sent(&passed) == 3 {
            break;
        }
        seen = passed.len();
        alice.proxy.answer();
    }
    assert_eq!(theirs.current().await?.expect("one").value, "a");
    alice.proxy.refuse();
    alice.proxy.expire_session().await?;
    alice.proxy.restore();
    next_session(&alice, old).await?;
    assert_eq!(publishing.await??, 2);
    assert!(theirs.current().await?.expect("one").value == long("b"));
    kept(&alice, &ours, 2).await
}

/// Servers that were set back to a backup have ended the session: what they have by then may have the same
/// version as what was there before.
async fn what_is_remembered_is_of_this_session((alice, bob): Observed) -> Result<()> {
    let ours = routes(&alice.client)?;
    ours.publish(&"a".to_owned()).await?;
    for name in bob.children(ours.path()).await?.0 {
        bob.delete(&ours.path().child(&name)?, None).await?;
    }
    bob.delete(ours.path(), None).await?;
    routes(&bob)?.publish(&"b".to_owned()).await?;
    let old = alice.client.session_id();
    alice.proxy.expire_session().await?;
    next_session(&alice, old).await?;
    assert_eq!(ours.publish(&"c".to_owned()).await?, 2);
    assert_eq!(ours.rollback(1).await?, Some(3), "b is there");
    assert_eq!(ours.current().await?.expect("one").value, "b");
    Ok(())
}

async fn what_is_something_else_stays(alice: Participant) -> Result<()> {
    let routes = routes(&alice.client)?;
    let foreign = Bytes::from_static(b"limits: 5");
    alice.client.create(routes.path(), foreign.clone(), CreateMode::Persistent).await?;
    for text in ["short".to_owned(), long("a")] {
        let error = routes.publish(&text).await.expect_err("something else is there");
        assert!(matches!(error, ValueError::Undecodable { .. }), "{error:?}");
    }
    assert!(matches!(routes.follow().next().await?, ValueChange::Invalid { .. }));
    assert_eq!(alice.client.data(routes.path()).await?.0, foreign);
    let below = alice.client.children(routes.path()).await?.0;
    assert!(below.is_empty(), "nothing is written below it: {below:?}");
    Ok(())
}

/// Every program that published something panicked.
///
/// Fails with names and numbers that were taken for those of editions, whatever they were.
async fn editions_that_nobody_published_are_refused(alice: Participant) -> Result<()> {
    // The next edition deletes the node of the last one.
    let routes: Routes = Publication::builder(&alice.client, ROUTES).keep(1).build()?;
    let good = "0c1f7a4e-95d4-4d1c-9a75-3f0c7d0c2a11";
    alice.client.create(routes.path(), "", CreateMode::Persistent).await?;
    for (number, id) in [(1, "a/b"), (1, ".."), (u64::MAX, good)] {
        let editions = format!(r#"[{{"number":{number},"id":"{id}","parts":0,"bytes":2}}]"#);
        let line = format!(
            r#"{{"lockkeeper_publication":1,"editions":{editions},"inline":false}}{}"#,
            '\n'
        );
        alice.client.set_data(routes.path(), line.clone(), None).await?;

        for error in [
            routes.publish(&"a".to_owned()).await.expect_err("that edition was not published"),
            routes.publish(&long("a")).await.expect_err("that edition was not published"),
            routes.rollback(number).await.expect_err("that edition was not published"),
        ] {
            assert!(matches!(error, ValueError::Undecodable { .. }), "{error:?}");
        }
        assert!(matches!(routes.follow().next().await?, ValueChange::Invalid { .. }));
        assert_eq!(alice.client.data(routes.path()).await?.0, line);
    }
    Ok(())
}

async fn a_missing_parent_is_made(alice: Participant) -> Result<()> {
    for (path, text) in [("/shop/routes", "short".to_owned()), ("/store/routes", long("a"))] {
        let orphan: Routes = Publication::new(&alice.client, path)?;
        assert_eq!(orphan.publish(&text).await?, 1);
        assert!(orphan.current().await?.expect("one").value == text);
    }
    Ok(())
}

/// Servers compare nothing with -1: an edition could be lost.
async fn a_version_that_has_come_around_is_told(alice: Participant) -> Result<()> {
    let routes = routes(&alice.client)?;
    routes.publish(&"a".to_owned()).await?;
    alice.proxy.show_version(Some(-1));
    // Another handle, which reads the present state.
    let other = self::routes(&alice.client)?;
    alice.proxy.clear();
    for error in [
        other.publish(&"b".to_owned()).await.expect_err("unsafe"),
        other.publish(&long("b")).await.expect_err("unsafe"),
        other.rollback(1).await.expect_err("unsafe"),
    ] {
        assert!(matches!(error, ValueError::VersionWrapped { .. }), "{error:?}");
    }
    assert!(!alice.proxy.requests().contains(&OpCode::Multi), "nothing was sent");
    alice.proxy.show_version(None);
    assert_eq!(other.editions().await?, [1]);
    Ok(())
}

/// It was said not to be kept, or all followers were sent to what is not there.
async fn a_damaged_edition_is_no_place_to_go_back_to(alice: Participant) -> Result<()> {
    let routes: Routes = Publication::new(&alice.client, ROUTES)?;
    routes.publish(&"a".to_owned()).await?;
    let short = alice.client.children(routes.path()).await?.0.remove(0);
    routes.publish(&long("b")).await?;
    let mut names = alice.client.children(routes.path()).await?.0;
    names.retain(|name| *name != short);
    routes.publish(&"c".to_owned()).await?;

    alice.client.delete(&routes.path().child(&short)?, None).await?;
    let part = routes.path().child(&names[0])?.child("00001")?;
    alice.client.delete(&part, None).await?;
    for number in [1, 2] {
        let error = routes.rollback(number).await.expect_err("it is damaged");
        assert!(error.to_string().contains(&format!("edition {number}")), "{error}");
    }
    assert_eq!(routes.current().await?.expect("one").value, "c");
    assert_eq!(routes.rollback(3).await?, Some(4));
    Ok(())
}

/// What is said of each edition would not have fitted into a request after some thousands, and then
/// nothing could be published any more.
async fn more_than_can_be_kept_is_not(alice: Participant) -> Result<()> {
    let routes: Routes = Publication::builder(&alice.client, ROUTES).keep(u16::MAX).build()?;
    routes.publish(&String::new()).await?;
    // A thousand editions of one node are as long a list as any.
    let (data, _) = alice.client.data(routes.path()).await?;
    let line = data.split(|byte| *byte == b'\n').next().expect("a line");
    let mut header: serde_json::Value = serde_json::from_slice(line)?;
    let entry = header["editions"][0].clone();
    let editions = (0..1_200_u64).map(|number| {
        let mut entry = entry.clone();
        entry["number"] = (u64::MAX / 2 + number).into();
        entry
    });
    header["editions"] = editions.collect();
    header["inline"] = false.into();
    alice.client.set_data(routes.path(), format!("{header}\n"), None).await?;

    let longest = "x".repeat(256 * 1024 - 2);
    for _ in 0..2 {
        routes.publish(&longest).await?;
        assert_eq!(routes.editions().await?.len(), 1_000);
    }
    Ok(())
}

/// The remains of long editions are swept. Another node below belongs to another program.
async fn a_node_of_others_below_stays(alice: Participant) -> Result<()> {
    let routes = routes(&alice.client)?;
    routes.publish(&"a".to_owned()).await?;
    let theirs = routes.path().child("locks")?;
    alice.client.create(&theirs, Bytes::from_static(b"x"), CreateMode::Persistent).await?;
    for letter in ["b", "c", "d"] {
        routes.publish(&long(letter)).await?;
    }
    assert!(alice.client.exists(&theirs).await?.is_some());
    kept(&alice, &routes, 3).await
}

/// The connection was lost between the news and the parts, and the next server did not know them yet.
async fn a_server_that_is_behind_hides_no_edition((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (routes(&alice.client)?, routes(&bob.client)?);
    ours.publish(&long("a")).await?;

    bob.proxy.hold_replies();
    let before = count(&bob, OpCode::GetData);
    let following = tokio::spawn(async move {
        let mut followed = theirs.follow();
        next(&mut followed).await
    });
    let asked = |wanted| {
        move |passed: &[Passed]| {
            let asked = passed.iter().filter(|p| **p == Passed::Request(OpCode::GetData));
            asked.count() >= before + wanted
        }
    };
    // A look at another session's state is behind a sync.
    bob.proxy.passes(|passed| passed.contains(&Passed::Request(OpCode::Sync))).await;
    bob.proxy.answer();
    bob.proxy.passes(asked(1)).await;
    bob.proxy.answer();
    bob.proxy.passes(asked(4)).await;

    bob.proxy.refuse_next(OpCode::GetData, ErrorCode::NoNode, 3);
    bob.proxy.cut();
    bob.proxy.restore();
    assert!(following.await?? == long("a"));
    Ok(())
}

/// Who may read the parts of the only edition.
async fn permit(other: &Client, routes: &Routes, permissions: Permissions) -> Result<()> {
    let edition = other.children(routes.path()).await?.0.remove(0);
    let part = routes.path().child(&edition)?.child("00001")?;
    other.set_acl(&part, Acl::world(permissions), None).await?;
    Ok(())
}

/// A follower was stuck on it for good. Yet it is not lost either: it may be readable by then.
///
/// Fails if only reported editions are skipped: each call failed.
async fn an_edition_that_may_not_be_read_hides_no_other((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (routes(&alice.client)?, routes(&bob.client)?);
    ours.publish(&long("a")).await?;
    permit(&alice.client, &ours, Permissions::ADMIN | Permissions::DELETE).await?;
    bob.client.sync(theirs.path()).await?;
    let (mut first, mut second) = (theirs.follow(), theirs.follow());
    for followed in [&mut first, &mut second] {
        for _ in 0..2 {
            let error = followed.next().await.expect_err("it may not be read");
            assert!(!error.is_retryable() && !followed.is_current(), "{error}");
        }
    }

    permit(&alice.client, &ours, Permissions::ALL).await?;
    bob.client.sync(theirs.path()).await?;
    assert!(next(&mut first).await? == long("a"));
    assert!(first.is_current());

    permit(&alice.client, &ours, Permissions::ADMIN | Permissions::DELETE).await?;
    ours.publish(&"b".to_owned()).await?;
    // The event is there before the answer.
    bob.client.sync(theirs.path()).await?;
    assert_eq!(next(&mut second).await?, "b");
    assert_eq!(next(&mut first).await?, "b");
    Ok(())
}

/// A follower was stuck on it for good, and asked for the parts at each call.
///
/// Fails with an error instead of a change: each call failed.
async fn an_edition_with_parts_that_are_too_long_is_told_once(backend: Backend) -> Result<()> {
    let alice = backend.participant().await?;
    let client = Client::builder().max_frame(100_000).connect(&backend.connect_string()).await?;
    let (ours, theirs) = (routes(&alice.client)?, routes(&client)?);
    let mut followed = theirs.follow();
    ours.publish(&"a".to_owned()).await?;
    client.sync(theirs.path()).await?;
    assert_eq!(next(&mut followed).await?, "a");
    ours.publish(&long("b")).await?;
    match followed.next().await? {
        ValueChange::Invalid { reason, .. } => assert!(reason.contains("100000"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(followed.is_current());
    assert_eq!(followed.latest().expect("one").value, "a");
    ours.publish(&"c".to_owned()).await?;
    assert_eq!(next(&mut followed).await?, "c");
    client.close().await;
    Ok(())
}

/// Publishes a long edition, until this many transactions are in flight and the last one is
/// unanswered.
async fn publishing(
    alice: &Participant,
    routes: &Routes,
    transactions: usize,
) -> tokio::task::JoinHandle<Result<u64, ValueError>> {
    let before = count(alice, OpCode::Multi);
    alice.proxy.hold_replies();
    let publishing = tokio::spawn({
        let routes = routes.clone();
        async move { routes.publish(&long("z")).await }
    });

    let mut seen = 0;
    loop {
        alice.proxy.passes(|passed| passed.len() > seen).await;
        if count(alice, OpCode::Multi) - before == transactions {
            return publishing;
        }
        seen = alice.proxy.passed().len();
        alice.proxy.answer();
    }
}

/// Symptom: its nodes stayed until the session's end and longer, because the node that marks a write in progress
/// kept all clients from sweeping them.
///
/// Fails without `Unfinished`: its nodes stayed.
async fn one_that_is_dropped_leaves_nothing(alice: Participant) -> Result<()> {
    let routes = routes(&alice.client)?;
    routes.publish(&"a".to_owned()).await?;
    // What is above, the directory, and each of three parts; the sixth makes it an edition.
    for transactions in 1..=5 {
        let publishing = publishing(&alice, &routes, transactions).await;
        publishing.abort();
        assert!(publishing.await.expect_err("it is dropped").is_cancelled());
        alice.proxy.restore();
        kept(&alice, &routes, 1).await?;
    }
    assert_eq!(routes.editions().await?, [1]);

    let publishing = publishing(&alice, &routes, 6).await;
    publishing.abort();
    assert!(publishing.await.expect_err("it is dropped").is_cancelled());
    alice.proxy.restore();
    // It was published, and so it stays whole.
    alice.client.sync(routes.path()).await?;
    assert!(routes.current().await?.expect("one").value == long("z"));
    kept(&alice, &routes, 2).await
}

/// On servers with little room that took the room from every other edition, too.
///
/// Fails without `Unfinished`: its nodes stayed.
async fn one_that_is_refused_half_way_leaves_nothing(alice: Participant) -> Result<()> {
    let routes = routes(&alice.client)?;
    routes.publish(&"a".to_owned()).await?;
    // The second part is there, and the third one is refused.
    let publishing = publishing(&alice, &routes, 4).await;
    let other = alice.observer().await?;
    other.sync(routes.path()).await?;
    for name in other.children(routes.path()).await?.0 {
        let full = Acl::world(Permissions::READ | Permissions::DELETE);
        other.set_acl(&routes.path().child(&name)?, full, None).await?;
    }
    alice.proxy.restore();
    let error = publishing.await?.expect_err("it is refused");
    assert!(matches!(error, ValueError::Refused { .. }), "{error:?}");
    kept(&alice, &routes, 1).await?;
    assert_eq!(routes.publish(&long("b")).await?, 2);
    kept(&alice, &routes, 2).await
}

/// It was swept behind a successful edition only, for which servers with little room had none.
///
/// Fails with a sweep behind the edition alone: what was left was there still.
async fn what_is_left_of_one_goes_before_parts_are_written((alice, other): Observed) -> Result<()> {
    let routes = routes(&alice.client)?;
    routes.publish(&"a".to_owned()).await?;
    let left = routes.path().child("0c1f7a4e-95d4-4d1c-9a75-3f0c7d0c2a11")?;
    other.create(&left, "", CreateMode::Persistent).await?;
    other.create(&left.child("00000")?, "part", CreateMode::Persistent).await?;
    // An edition that another client is writing.
    let theirs = routes.path().child("7d3b5b0a-2f27-4b62-8a4c-5b1f1f6f0e22")?;
    other.create(&theirs, "", CreateMode::Persistent).await?;
    other.create(&theirs.child("00000")?, "part", CreateMode::Persistent).await?;
    other.create(&theirs.child("writing")?, "", CreateMode::Ephemeral).await?;

    // The sweep, and what is above the first part: that one is not sent yet.
    let publishing = publishing(&alice, &routes, 2).await;
    assert_eq!(other.exists(&left).await?, None);
    assert!(other.exists(&theirs.child("00000")?).await?.is_some());
    alice.proxy.restore();
    assert_eq!(publishing.await??, 2);
    kept(&alice, &routes, 3).await
}

async fn what_publishing_costs(backend: Backend) -> Result<()> {
    use OpCode::{GetChildren2, GetData, Multi};
    let alice = backend.participant().await?;
    let routes = routes(&alice.client)?;
    routes.publish(&"a".to_owned()).await?;
    for text in ["b", "c", "d"] {
        alice.proxy.clear();
        routes.publish(&text.to_owned()).await?;
        assert_eq!(alice.proxy.requests(), [Multi, GetData], "also with an old one to delete");
    }
    alice.proxy.clear();
    assert_eq!(routes.current().await?.expect("one").value, "d");
    assert_eq!(alice.proxy.requests(), [GetData]);

    // The pointer and what is below it, what is above the parts, the directory, three parts, the turn; and
    // then the sweep looks.
    routes.publish(&long("a")).await?;
    alice.proxy.clear();
    routes.publish(&long("b")).await?;
    let requests = alice.proxy.requests();
    assert_eq!(requests[..2], [GetData, GetChildren2]);
    assert_eq!(requests[2..9], [Multi, Multi, Multi, Multi, Multi, Multi, GetData]);
    Ok(())
}
