//! Items that the members of a group share: each has one owner, and only those move that must.

use std::collections::BTreeMap;
use std::task::{Context, Waker};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lockkeeper::{
    Assignment, Client, CreateMode, ErrorCode, Failure as _, FencingToken, HolderState, LossReason,
    Member, PartitionMember, Partitions, PartitionsBuilder, PartitionsError, ReleaseError,
    SessionId, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::jeopardy::short;
use crate::{Clients, Observed, Pair, contract, shut};

contract!(partitions);

const CRAWL: &str = "/app/crawl";
const OWNERS: &str = "/app/crawl/owners";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(20);

/// In which nothing happens.
const SHORT: Duration = Duration::from_millis(50);

fn node(path: &str) -> ZnodePath {
    ZnodePath::new(path).expect("a path")
}

fn items(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("item-{n:04}")).collect()
}

fn sharing(client: &Client, n: usize) -> PartitionsBuilder {
    Partitions::builder(client, CRAWL).items(items(n))
}

async fn join(client: &Client, name: &str, n: usize) -> Result<PartitionMember> {
    Ok(sharing(client, n).build()?.join(name).await?)
}

type Held = BTreeMap<String, Assignment>;

async fn next(member: &PartitionMember) -> Result<Assignment> {
    Ok(tokio::time::timeout(LONG, member.next()).await.context("no item")??)
}

async fn gather(member: &PartitionMember, n: usize) -> Result<Held> {
    let mut held = Held::new();
    while held.len() < n {
        let assignment = next(member).await?;
        ensure!(held.insert(assignment.item().to_owned(), assignment).is_none(), "twice");
    }
    assert_eq!(member.owned(), held.keys().cloned().collect::<Vec<_>>());
    Ok(held)
}

fn tokens(held: &Held) -> BTreeMap<String, FencingToken> {
    held.iter().map(|(item, assignment)| (item.clone(), assignment.token())).collect()
}

/// Whether an item is to go to another member, as far as is known.
fn is_moving(item: &Assignment) -> bool {
    std::pin::pin!(item.moving()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Those that move; it returns when so many do.
async fn moving(held: &mut Held, n: usize) -> Result<Held> {
    let mut moving = Held::new();
    tokio::time::timeout(LONG, async {
        while moving.len() < n {
            tokio::task::yield_now().await;
            moving.extend(held.extract_if(.., |_, item| is_moving(item)));
        }
    })
    .await
    .with_context(|| format!("{} of {n} move", moving.len()))?;
    Ok(moving)
}

async fn release_all(held: Held) -> Result<()> {
    for assignment in held.into_values() {
        assignment.release().await?;
    }
    Ok(())
}

/// How many of the items are the second member's, of these two and their weights.
async fn waits_for(member: &PartitionMember) -> usize {
    let mut waited = 0;
    for _ in 0..1000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = member.waited().len();
        if now > 0 && now == waited {
            break;
        }
        waited = now;
    }
    waited
}

/// Waits until something is so.
async fn until(is_so: impl Fn() -> bool) -> Result<()> {
    tokio::time::timeout(LONG, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .context("it never is so")
}

async fn only_what_must_moves_when_a_member_comes_and_goes((one, two): Clients) -> Result<()> {
    let alice = join(&one, "alice", 40).await?;
    let mut hers = gather(&alice, 40).await?;
    let before = tokens(&hers);

    let bob = join(&two, "bob", 40).await?;
    let his_share = waits_for(&bob).await;
    assert!((8..32).contains(&his_share), "{his_share}");
    let moves = moving(&mut hers, his_share).await?;
    let moved: Vec<_> = moves.keys().cloned().collect();
    assert_eq!(bob.waited().iter().map(|it| it.item.clone()).collect::<Vec<_>>(), moved);
    assert!(bob.waited().iter().all(|item| item.session == one.session_id()));
    assert!(moves.values().all(|item| item.is_held()), "they may be finished");
    release_all(moves).await?;
    let his = gather(&bob, his_share).await?;
    assert_eq!(his.keys().cloned().collect::<Vec<_>>(), moved);
    assert!(his.iter().all(|(item, held)| held.token() > before[item]));
    assert!(hers.values().all(|item| item.is_held()), "the others stay");

    let his_tokens = tokens(&his);
    let leaving = tokio::spawn(bob.leave());
    for (_, item) in his {
        tokio::time::timeout(LONG, item.moving()).await?;
        item.release().await?;
    }
    leaving.await??;
    for _ in 0..his_share {
        let assignment = next(&alice).await?;
        assert!(assignment.token() > his_tokens[assignment.item()]);
        hers.insert(assignment.item().to_owned(), assignment);
    }
    assert!(hers.len() == 40 && hers.values().all(|item| item.is_held()));
    drop(hers);
    alice.leave().await?;
    children_reach(&two, &node(OWNERS), 0).await
}

/// An item that no task waits for is released without the help of a task.
async fn items_that_nobody_asked_for_move_by_themselves((one, two): Clients) -> Result<()> {
    let alice = join(&one, "alice", 40).await?;
    until(|| alice.owned().len() == 40).await?;
    let bob = join(&two, "bob", 40).await?;
    until(|| !bob.owned().is_empty() && alice.owned().len() + bob.owned().len() == 40).await?;
    let (hers, his) = (alice.owned(), bob.owned());
    assert!(hers.iter().all(|item| !his.contains(item)));
    bob.leave().await?;
    gather(&alice, 40).await?;
    Ok(())
}

async fn a_member_that_is_dropped_leaves((one, two): Clients) -> Result<()> {
    let alice = join(&one, "alice", 10).await?;
    let hers = gather(&alice, 10).await?;
    let bob = join(&two, "bob", 10).await?;
    drop(alice);
    for item in hers.into_values() {
        tokio::time::timeout(LONG, item.moving()).await?;
        drop(item);
    }
    gather(&bob, 10).await?;
    Ok(())
}

/// The next owner has the item when the first one cannot believe any more that it has it.
async fn a_grace_that_is_over_ends_an_item(backend: Backend) -> Result<()> {
    let (alice, two) = (short(&backend).await?, backend.observer().await?);
    let grace = Duration::from_millis(200);
    let ours = sharing(&alice.client, 8).grace(grace).build()?.join("alice").await?;
    let mut hers = gather(&ours, 8).await?;
    let theirs = join(&two, "bob", 8).await?;
    let mut moves = moving(&mut hers, 1).await?;
    let (_, item) = moves.pop_first().context("one")?;
    // Those are given back.
    drop(moves);
    let until = tokio::time::timeout(LONG, item.moving()).await?;
    assert!(until.since(alice.client.now()) <= grace);
    let deadline = item.deadline().context("it is held until then")?;

    let lost = tokio::time::timeout(LONG, item.lost()).await?;
    assert_eq!(lost, LossReason::HeldTooLong);
    assert!(alice.client.now() >= until);
    let mut moved = next(&theirs).await?;
    while moved.item() != item.item() {
        moved = next(&theirs).await?;
    }
    assert!(alice.client.now() >= deadline, "it could have been believed in");
    assert!(moved.token() > item.token());
    assert_eq!(item.release().await, Err(ReleaseError::Lost(LossReason::HeldTooLong)));
    Ok(())
}

async fn items_of_a_lost_session_come_again((participant, other): Observed) -> Result<()> {
    let alice = join(&participant.client, "alice", 20).await?;
    let hers = gather(&alice, 20).await?;
    let session = participant.client.session_id();
    participant.proxy.expire_session().await?;
    for item in hers.values() {
        let lost = tokio::time::timeout(LONG, item.lost()).await?;
        assert_eq!(lost, LossReason::SessionExpired);
    }
    let again = gather(&alice, 20).await?;
    assert_ne!(participant.client.session_id(), session);
    assert!(again.iter().all(|(item, held)| held.token() > hers[item].token()));
    drop(hers);
    assert!(again.values().all(|item| item.is_held()));
    for item in again.values() {
        item.verify().await?;
    }
    assert_eq!(other.children(&node(OWNERS)).await?.0.len(), 20);
    Ok(())
}

async fn replies_that_are_lost_change_nothing((participant, other): Observed) -> Result<()> {
    for (n, loss) in [Loss::BeforeRequest, Loss::BeforeReply].into_iter().enumerate() {
        for op in [OpCode::Multi, OpCode::GetData, OpCode::CreateContainer] {
            participant.proxy.lose_next(op, loss);
            let alice = join(&participant.client, &format!("alice-{n}"), 20).await?;
            let mut held = gather(&alice, 20).await?;
            for item in held.values() {
                item.verify().await.with_context(|| format!("{op:?} {loss:?}"))?;
            }
            assert_eq!(other.children(&node(OWNERS)).await?.0.len(), 20);
            participant.proxy.lose_no_more();
            for op in [OpCode::GetData, OpCode::Delete] {
                let (item, given_back) = held.pop_first().context("twenty")?;
                participant.proxy.lose_next(op, loss);
                given_back.release().await.with_context(|| format!("{op:?} {loss:?}"))?;
                participant.proxy.lose_no_more();
                held.insert(item, next(&alice).await?);
            }
            drop(held);
            alice.leave().await?;
            children_reach(&other, &node(OWNERS), 0).await?;
        }
    }
    Ok(())
}

async fn an_item_that_is_given_back_is_offered_again(client: Client) -> Result<()> {
    let alice = join(&client, "alice", 2).await?;
    let mut hers = gather(&alice, 2).await?;
    let (_, first) = hers.pop_first().context("two")?;
    let (item, token) = (first.item().to_owned(), first.token());
    drop(first);
    let again = next(&alice).await?;
    assert!(again.item() == item && again.token() > token);
    again.release().await?;
    assert_eq!(next(&alice).await?.item(), item);
    assert!(hers.values().all(|item| item.is_held()));
    Ok(())
}

/// At once, and without a task that waits for it.
async fn a_deletion_by_others_is_told((one, two): Clients) -> Result<()> {
    let alice = join(&one, "alice", 3).await?;
    let mut hers = gather(&alice, 3).await?;
    let (item, first) = hers.pop_first().context("three")?;
    two.delete(first.node(), None).await?;
    let again = next(&alice).await?;
    assert_eq!(first.state(), HolderState::Lost(LossReason::NodeDeleted));
    assert!(again.item() == item && again.token() > first.token());
    drop(first);
    again.verify().await?;
    assert!(hers.values().all(|item| item.is_held()));
    Ok(())
}

async fn members_with_other_items_are_named((one, two): Clients) -> Result<()> {
    let alice = join(&one, "alice", 3).await?;
    let mut hers = gather(&alice, 3).await?;
    let with_one_more = sharing(&two, 4).build()?.join("bob").await?;
    let names = |others: Vec<Member>| others.into_iter().map(|it| it.id).collect::<Vec<_>>();
    // Nothing of hers moves, and what is new has an owner.
    let new = next(&with_one_more).await?;
    assert_eq!(new.item(), "item-0003");
    until(|| !alice.members_with_other_items().is_empty()).await?;
    assert_eq!(names(alice.members_with_other_items()), ["bob"]);
    assert_eq!(names(with_one_more.members_with_other_items()), ["alice"]);
    assert_eq!(with_one_more.waited().len(), 3);
    assert!(hers.values().all(|item| item.is_held()));

    // The old set ends with its last member.
    let leaving = tokio::spawn(alice.leave());
    while let Some((_, item)) = hers.pop_first() {
        tokio::time::timeout(LONG, item.moving()).await?;
        item.release().await?;
    }
    leaving.await??;
    for _ in 0..3 {
        next(&with_one_more).await?.verify().await?;
    }
    Ok(())
}

/// A member that this version cannot read has other items.
async fn members_that_cannot_be_read_are_named((one, two): Clients) -> Result<()> {
    let alice = join(&one, "alice", 1).await?;
    let stranger = lockkeeper::Group::new(&two, "/app/crawl/members")?;
    let _stranger = stranger.join("bob", r#"{"format":2}"#).await?;
    until(|| alice.members_with_other_items().len() == 1).await?;
    next(&alice).await?.verify().await?;
    Ok(())
}

async fn any_text_is_an_item(client: Client) -> Result<()> {
    let texts = ["", ".", "..", "a/b", "é\0", "%", "zookeeper", "lock-0000000001", " "];
    let partitions = Partitions::builder(&client, CRAWL).items(texts).build()?;
    let alice = partitions.join("alice").await?;
    let held = gather(&alice, texts.len()).await?;
    let mut sorted = texts.to_vec();
    sorted.sort_unstable();
    assert_eq!(held.keys().collect::<Vec<_>>(), sorted);
    for item in held.values() {
        item.verify().await?;
    }
    Ok(())
}

async fn a_node_that_is_in_the_way_is_named((one, two): Clients) -> Result<()> {
    two.ensure(&node(OWNERS), CreateMode::Persistent).await?;
    let foreign = node(&format!("{OWNERS}/item-0001"));
    two.create(&foreign, "mine", CreateMode::Persistent).await?;
    let alice = join(&one, "alice", 3).await?;
    let held = gather(&alice, 2).await?;
    let waited = alice.waited();
    assert!(waited.len() == 1 && waited[0].item == "item-0001", "{waited:?}");
    assert_eq!(waited[0].session, SessionId::NONE);
    // Changes of the foreign node are not a reason to take the item.
    two.set_data(&foreign, "still mine", None).await?;
    assert!(tokio::time::timeout(SHORT, alice.next()).await.is_err());
    two.delete(&foreign, None).await?;
    assert_eq!(next(&alice).await?.item(), "item-0001");
    assert!(held.values().all(|item| item.is_held()));
    Ok(())
}

async fn shares_go_by_the_weights((one, two): Clients) -> Result<()> {
    let alice = sharing(&one, 200).weight(3).build()?.join("alice").await?;
    let bob = sharing(&two, 200).weight(1).build()?.join("bob").await?;
    until(|| bob.owned().len() > 10 && alice.owned().len() + bob.owned().len() == 200).await?;
    let hers = alice.owned().len();
    assert!((120..180).contains(&hers), "{hers} of 200");
    Ok(())
}

async fn an_item_moves_when_the_members_are_quiet((one, two): Clients) -> Result<()> {
    let settle = Duration::from_millis(300);
    let alice = sharing(&one, 20).settle(settle).build()?.join("alice").await?;
    let hers = gather(&alice, 20).await?;
    // It comes, and goes in time.
    let bob = join(&two, "bob", 20).await?;
    bob.leave().await?;
    tokio::time::sleep(settle * 2).await;
    assert_eq!(alice.owned().len(), 20);
    assert!(!hers.values().any(is_moving));
    Ok(())
}

async fn a_name_that_another_program_has_is_told(backend: Backend) -> Result<()> {
    let (alice, other) = (short(&backend).await?, backend.observer().await?);
    let theirs = join(&other, "worker", 3).await?;
    let _held = gather(&theirs, 3).await?;
    let ours = join(&alice.client, "worker", 3).await?;
    let refused = tokio::time::timeout(LONG, ours.next()).await?.err().context("two")?;
    assert!(refused.is_retryable(), "{refused}");
    let PartitionsError::Taken { owner, .. } = &refused else { anyhow::bail!("{refused}") };
    let owner = owner.as_ref().context("its program is not named")?;
    assert_eq!(owner.pid, std::process::id());
    assert!(refused.to_string().contains(&format!("pid {}", owner.pid)), "{refused}");
    assert!(ours.owned().is_empty());

    drop((theirs, _held));
    let held = gather(&ours, 3).await?;
    let again = join(&alice.client, "worker", 3).await.err().context("twice")?;
    assert!(again.to_string().contains("already"), "{again}");
    drop(held);
    Ok(())
}

async fn what_cannot_be_shared_is_refused(client: Client) -> Result<()> {
    let build = |builder: PartitionsBuilder| builder.build().err().map(|error| error.to_string());
    for (builder, why) in [
        (Partitions::builder(&client, "crawl"), "the path of partitions looks like"),
        (Partitions::builder(&client, "/"), "use another path, such as /crawl"),
        (sharing(&client, 1).weight(0), "is not from 1 to 100"),
        (sharing(&client, 1).weight(101), "is not from 1 to 100"),
        (Partitions::builder(&client, CRAWL).items(["x".repeat(70_000)]), "cannot share the item"),
    ] {
        let refused = build(builder).context("it is taken")?;
        assert!(refused.contains(why), "{refused}");
    }
    let nothing = Partitions::builder(&client, CRAWL).build()?.join("alice").await?;
    assert!(nothing.owned().is_empty());
    nothing.leave().await?;
    Ok(())
}

/// A refused request is reported, and tried again.
async fn an_item_that_cannot_be_taken_is_told(participant: Participant) -> Result<()> {
    participant.proxy.refuse_next(OpCode::GetData, ErrorCode::NoAuth, 1);
    let alice = join(&participant.client, "alice", 1).await?;
    assert_eq!(next(&alice).await?.item(), "item-0000", "it needs no READ");

    let others = node("/app/other/owners");
    participant.client.ensure(&others, CreateMode::Persistent).await?;
    shut(&participant.client, &others).await?;
    let bob = Partitions::builder(&participant.client, "/app/other").items(["x"]).build()?;
    let bob = bob.join("bob").await?;
    for _ in 0..2 {
        let refused = tokio::time::timeout(LONG, bob.next()).await?.err().context("it is taken")?;
        assert!(matches!(&refused, PartitionsError::Take { item, .. } if item == "x"), "{refused}");
    }
    participant.client.delete(&others, None).await?;
    loop {
        match tokio::time::timeout(LONG, bob.next()).await? {
            Ok(item) => return Ok(item.verify().await?),
            Err(error) => ensure!(matches!(error, PartitionsError::Take { .. }), "{error}"),
        }
    }
}

async fn a_closed_client_ends_everything(client: Client) -> Result<()> {
    let alice = join(&client, "alice", 2).await?;
    let held = gather(&alice, 2).await?;
    client.close().await;
    assert!(held.values().all(|item| !item.is_held()));
    let ended = tokio::time::timeout(LONG, alice.next()).await?.err().context("it goes on")?;
    assert!(!ended.is_retryable(), "{ended}");
    drop(held);
    let _ = tokio::time::timeout(LONG, alice.leave()).await?;
    Ok(())
}

/// Writes, reads, and events of items.
fn counted(passed: &[Passed]) -> (usize, usize, usize) {
    let count = |is_one: &dyn Fn(&Passed) -> bool| passed.iter().filter(|it| is_one(it)).count();
    let writes = [OpCode::Multi, OpCode::Delete, OpCode::Create2, OpCode::CreateContainer];
    (
        count(&|it| matches!(it, Passed::Request(op) if writes.contains(op))),
        count(&|it| *it == Passed::Request(OpCode::GetData)),
        count(&|it| matches!(it, Passed::Event(_, path) if path.contains("/owners/"))),
    )
}

async fn an_item_that_moves_is_two_writes_and_an_event((alice, bob): Pair) -> Result<()> {
    let ours = join(&alice.client, "alice", 40).await?;
    let mut hers = gather(&ours, 40).await?;
    let theirs = join(&bob.client, "bob", 40).await?;
    let share = waits_for(&theirs).await;
    let moves = moving(&mut hers, share).await?;
    for participant in [&alice, &bob] {
        participant.proxy.clear();
    }
    let mut his = Vec::new();
    for item in moves.into_values() {
        item.release().await?;
        his.push(next(&theirs).await?);
    }
    // One read before the deletion, and one with a watch after the creation, which tells the owner as well.
    for participant in [&alice, &bob] {
        let is_all = |passed: &[Passed]| counted(passed) == (share, share, share);
        tokio::time::timeout(LONG, participant.proxy.passes(is_all))
            .await
            .with_context(|| format!("{share}: {:?}", counted(&participant.proxy.passed())))?;
    }
    Ok(())
}

async fn a_thousand_items_are_taken_in_ten_writes_and_cost_one_a_heartbeat(
    backend: Backend,
) -> Result<()> {
    let alice = backend.participant().await?;
    alice.client.ensure(&node(OWNERS), CreateMode::Container).await?;
    let nothing = join(&alice.client, "alice", 0).await?;
    alice.proxy.clear();
    nothing.leave().await?;
    let ours = join(&alice.client, "alice", 1000).await?;
    let held = gather(&ours, 1000).await?;
    // With the leaving and the joining.
    let writes = counted(&alice.proxy.passed()).0;
    assert!(writes <= 10 + 3, "{writes}");
    drop(held);
    ours.leave().await?;

    let bob = short(&backend).await?;
    let theirs = join(&bob.client, "bob", 1000).await?;
    let held = gather(&theirs, 1000).await?;
    // Every watch is set.
    bob.proxy.passes(|passed| counted(passed).1 >= 2000).await;
    bob.proxy.clear();
    let beats = |passed: &[Passed]| {
        passed.iter().filter(|it| **it == Passed::Reply(OpCode::Multi)).count() >= 5
    };
    bob.proxy.passes(beats).await;
    let mut others = bob.proxy.requests();
    others.retain(|op| *op != OpCode::Multi);
    assert_eq!(others, []);
    assert!(held.values().all(|item| item.is_held()));
    Ok(())
}
