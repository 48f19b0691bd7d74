//! What a double barrier promises, on every server.

use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{
    BarrierError, Client, Contact, CreateMode, Deaths, DoubleBarrier, Missing, Round, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;
use tokio::task::{JoinHandle, JoinSet};

use crate::jeopardy::short;
use crate::{Clients, Observed, Pair, contract};

contract!(double_barrier);

const STEP: &str = "/app/step";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(20);

/// Too short for another party to come.
const SHORT: Duration = Duration::from_millis(400);

type Entering = JoinHandle<Result<Round, BarrierError>>;

fn step(client: &Client, parties: usize) -> Result<DoubleBarrier> {
    Ok(DoubleBarrier::new(client, STEP, parties)?)
}

/// In the background.
fn enter(barrier: &DoubleBarrier, name: &'static str) -> Entering {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.enter_timeout(name, LONG).await })
}

/// Returns when so many wait.
async fn wait(barrier: &DoubleBarrier, count: usize) -> Result<()> {
    let waits = async {
        while barrier.inspect().await?.waiting.len() != count {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(LONG, waits).await.with_context(|| format!("{count} do not wait"))?
}

/// Both enter.
async fn both(ours: &DoubleBarrier, theirs: &DoubleBarrier) -> Result<(Round, Round)> {
    let (one, two) = tokio::join!(enter(ours, "one"), enter(theirs, "two"));
    Ok((one??, two??))
}

async fn both_leave(one: Round, two: Round) -> Result<()> {
    let (one, two) = tokio::join!(one.leave(), two.leave());
    one?;
    two?;
    Ok(())
}

fn node(below: &str) -> ZnodePath {
    ZnodePath::new(&format!("{STEP}/{below}")).expect("a path")
}

async fn all_enter_and_all_leave_together((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (step(&one, 3)?, step(&two, 3)?);
    for number in 0..3 {
        let mut entering = JoinSet::new();
        for (barrier, name) in [(&ours, "a"), (&theirs, "b")] {
            let barrier = barrier.clone();
            entering.spawn(async move { barrier.enter(name).await });
        }
        wait(&ours, 2).await?;
        let report = theirs.inspect().await?;
        assert_eq!((report.round, report.missing), (number, Missing::Count(1)));
        assert!(entering.try_join_next().is_none());

        let third = theirs.enter("c").await?;
        let mut names = third.parties();
        names.sort_unstable();
        assert_eq!((third.number(), names), (number, vec!["a", "b", "c"]));
        let mut leaving = JoinSet::new();
        for round in entering.join_all().await {
            let round = round?;
            assert_eq!((round.number(), round.parties()), (number, third.parties()));
            assert!(round.is_held());
            leaving.spawn(round.leave());
        }
        children_reach(&one, &node(&format!("rounds/{number:010}")), 1).await?;
        assert!(leaving.try_join_next().is_none());
        assert_eq!(third.leave().await?, Vec::<String>::new());
        for left in leaving.join_all().await {
            assert_eq!(left?, Vec::<String>::new());
        }
        // Only the next round is left.
        assert_eq!(one.children(&node("rounds")).await?.0, [format!("{:010}", number + 1)]);
        assert!(one.children(&node("left")).await?.0.is_empty());
    }
    Ok(())
}

async fn a_round_of_one_opens(alice: Client) -> Result<()> {
    let barrier = step(&alice, 1)?;
    for _ in 0..3 {
        barrier.enter("a").await?.leave().await?;
    }
    Ok(())
}

/// Entering is a write and what is read behind it; the last one opens; the others have an event, and leave by a write.
async fn what_a_round_costs((alice, bob): Pair) -> Result<()> {
    use OpCode::{GetChildren2, GetData, Multi, MultiRead};
    let (ours, theirs) = (step(&alice.client, 2)?, step(&bob.client, 2)?);
    // The markers, the barrier and its round are known from then on.
    let (one, two) = both(&ours, &theirs).await?;
    both_leave(one, two).await?;
    alice.proxy.clear();
    bob.proxy.clear();

    let entering = enter(&ours, "one");
    wait(&theirs, 1).await?;
    assert_eq!(alice.proxy.requests(), [Multi, GetData, GetChildren2]);
    bob.proxy.clear();
    alice.proxy.hold_replies();
    let two = theirs.enter("two").await?;
    // Its own entry, the opening, and the look that shows it. Then it watches the others.
    assert_eq!(bob.proxy.requests()[..5], [Multi, GetData, GetChildren2, Multi, GetData]);
    alice.proxy.restore();
    let one = entering.await??;
    assert_eq!(alice.proxy.events().len(), 1);
    assert_eq!(alice.proxy.requests()[3], GetData);

    let watches =
        |passed: &[Passed]| passed.iter().filter(|it| **it == Passed::Reply(GetData)).count() >= 3;
    alice.proxy.passes(watches).await;
    // Nobody lists what has opened. Who opens looks now and then what old rounds have left.
    for (participant, most) in [(&alice, 1), (&bob, 2)] {
        let requests = participant.proxy.requests();
        let lists = requests.iter().filter(|op| [GetChildren2, MultiRead].contains(op));
        assert!(lists.count() <= most, "{requests:?}");
    }
    alice.proxy.clear();
    bob.proxy.clear();
    let leaving = tokio::spawn(one.leave());
    children_reach(&bob.client, &node("rounds/0000000001"), 1).await?;
    bob.proxy.clear();
    two.leave().await?;
    leaving.await??;
    assert_eq!(alice.proxy.requests().first(), Some(&Multi));
    // The mark that it has left, and the end of the round.
    let writes = bob.proxy.requests().into_iter().filter(|op| *op == Multi);
    assert_eq!(writes.count(), 2);
    Ok(())
}

async fn who_gives_up_has_not_entered((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (step(&participant.client, 2)?, step(&other, 2)?);
    let late = ours.enter_timeout("a", SHORT).await.err().context("it has entered alone")?;
    let (path, missing, others) = (ZnodePath::new(STEP)?, Missing::Count(1), Vec::new());
    assert_eq!(late, BarrierError::TimedOut { path, missing, others });
    assert!(late.to_string().contains("1 missing"), "{late}");
    // Nothing is left of it that would count.
    assert!(theirs.inspect().await?.waiting.is_empty());
    let alone = theirs.enter_timeout("b", SHORT).await;
    assert!(matches!(alone, Err(BarrierError::TimedOut { .. })), "{alone:?}");

    // Also after the call is dropped.
    let dropped = enter(&ours, "a");
    wait(&theirs, 1).await?;
    dropped.abort();
    wait(&theirs, 0).await?;
    Ok(())
}

/// The round opens when the time is just over: then it has entered.
async fn a_time_out_that_comes_too_late_has_entered((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (step(&alice.client, 2)?, step(&bob.client, 2)?);
    let (one, two) = both(&ours, &theirs).await?;
    both_leave(one, two).await?;

    let barrier = ours.clone();
    alice.proxy.clear();
    let entering =
        tokio::spawn(async move { barrier.enter_timeout("one", Duration::from_millis(300)).await });
    let is_listed = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::GetChildren2));
    alice.proxy.passes(is_listed).await;
    // It does not hear of the opening, and asks for its end.
    alice.proxy.hold_replies();
    let two = theirs.enter("two").await?;
    let withdraws = |passed: &[Passed]| {
        passed.iter().filter(|it| **it == Passed::Request(OpCode::Multi)).count() == 2
    };
    alice.proxy.passes(withdraws).await;
    alice.proxy.restore();
    let one = entering.await??;
    assert_eq!((one.number(), one.parties()), (1, two.parties()));
    both_leave(one, two).await?;
    Ok(())
}

async fn who_comes_too_many_waits_for_the_next_round((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (step(&one, 2)?, step(&two, 2)?);
    let (a, b) = both(&ours, &theirs).await?;
    let third = enter(&ours, "three");
    wait(&theirs, 1).await?;
    both_leave(a, b).await?;
    assert!(!third.is_finished());
    let fourth = theirs.enter("four").await?;
    let third = third.await??;
    assert_eq!((third.number(), third.parties()), (1, vec!["three", "four"]));
    both_leave(third, fourth).await?;
    Ok(())
}

/// An earlier run of a program, whose session has not ended, is not a second party.
async fn a_name_counts_once((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (step(&one, 2)?, step(&two, 2)?);
    let first = enter(&ours, "a");
    wait(&theirs, 1).await?;
    let second = enter(&theirs, "a");
    wait(&theirs, 2).await?;
    assert_eq!(theirs.inspect().await?.missing, Missing::Count(1));
    let other = theirs.enter("b").await?;
    let first = first.await??;
    assert_eq!(other.parties(), ["a", "b"]);
    assert!(!second.is_finished());
    both_leave(first, other).await?;
    let other = ours.enter("b").await?;
    let (a, b) = tokio::join!(second.await??.leave(), other.leave());
    a?;
    b?;
    Ok(())
}

async fn it_is_said_who_is_missing((one, two): Clients) -> Result<()> {
    let declared =
        |client: &Client| DoubleBarrier::builder(client, STEP).names(["a", "b", "c"]).build();
    let (ours, theirs) = (declared(&one)?, declared(&two)?);
    let stranger = ours.enter("x").await.err().context("a stranger has entered")?;
    assert_eq!(stranger.to_string(), "\"x\" is not one of the parties of /app/step: a, b, c");

    let late = ours.enter_timeout("b", SHORT).await.err().context("it has entered alone")?;
    assert!(late.to_string().contains("in time: a, c missing"), "{late}");
    // As it is when the time is over, and not when it came.
    let patient = ours.clone();
    let late = tokio::spawn(async move { patient.enter_timeout("b", 2 * SHORT).await });
    wait(&theirs, 1).await?;
    let waits = enter(&theirs, "a");
    let late = late.await?.err().context("it has entered without c")?;
    assert!(late.to_string().contains("in time: c missing"), "{late}");
    waits.abort();
    wait(&theirs, 0).await?;

    let waiting = enter(&ours, "b");
    wait(&theirs, 1).await?;
    let missing = Missing::Names(["a", "c"].map(str::to_owned).to_vec());
    assert_eq!(theirs.inspect().await?.missing, missing);
    let a = enter(&theirs, "a");
    let c = ours.enter("c").await?;
    let (a, b, c) = tokio::join!(a.await??.leave(), waiting.await??.leave(), c.leave());
    a?;
    b?;
    c?;
    Ok(())
}

async fn who_dies_inside_fails_the_round((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (step(&participant.client, 3)?, step(&other, 3)?);
    let (a, b) = (enter(&theirs, "a"), enter(&theirs, "b"));
    let dying = ours.enter("c").await?;
    let (a, b) = (a.await??, b.await??);
    participant.proxy.refuse();
    participant.proxy.expire_session().await?;
    // Both get the failure, whichever of them has noticed it.
    assert_eq!(tokio::time::timeout(LONG, a.failed()).await?, ["c"]);
    assert_eq!(tokio::time::timeout(LONG, b.failed()).await?, ["c"]);
    assert_eq!(a.died(), ["c"]);
    // It does not wait for the other one.
    let failed = a.leave().await.err().context("it has left")?;
    let (path, died) = (ZnodePath::new(STEP)?, vec!["c".to_owned()]);
    assert_eq!(failed, BarrierError::PartyDied { path, died });
    assert!(b.leave().await.is_err());

    participant.proxy.restore();
    dying.lost().await;
    let lost = dying.leave().await.err().context("it has left")?;
    assert!(matches!(lost, BarrierError::Lost { .. }), "{lost}");

    // What has failed does not reach the next round.
    let (a, b) = (enter(&theirs, "a"), enter(&theirs, "b"));
    let c = ours.enter("c").await?;
    assert_eq!(c.number(), 1);
    let (a, b, c) = tokio::join!(a.await??.leave(), b.await??.leave(), c.leave());
    a?;
    b?;
    c?;
    Ok(())
}

async fn deaths_can_be_told_and_nothing_else((one, two): Clients) -> Result<()> {
    let told = |client: &Client| {
        DoubleBarrier::builder(client, STEP).count(3).deaths(Deaths::Report).build()
    };
    let (ours, theirs) = (told(&one)?, told(&two)?);
    let (a, b) = (enter(&ours, "a"), enter(&ours, "b"));
    let c = theirs.enter("c").await?;
    let (a, b) = (a.await??, b.await??);
    let leaving = tokio::spawn(a.leave());
    // Without leaving.
    drop(c);
    assert_eq!(tokio::time::timeout(LONG, b.failed()).await?, ["c"]);
    assert!(!leaving.is_finished(), "one is inside");
    assert_eq!(b.leave().await?, ["c"]);
    assert_eq!(leaving.await??, ["c"]);
    Ok(())
}

/// The last one inside dies, and all others have left.
async fn the_end_is_told_by_whoever_is_there((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (step(&participant.client, 3)?, step(&other, 3)?);
    let (a, b) = (enter(&theirs, "a"), enter(&theirs, "b"));
    let dying = ours.enter("c").await?;
    let leaving = [tokio::spawn(a.await??.leave()), tokio::spawn(b.await??.leave())];
    children_reach(&other, &node("rounds/0000000000"), 1).await?;
    participant.proxy.refuse();
    participant.proxy.expire_session().await?;
    for left in leaving {
        let failed = tokio::time::timeout(LONG, left).await??;
        assert!(matches!(failed, Err(BarrierError::PartyDied { .. })), "{failed:?}");
    }
    participant.proxy.restore();
    drop(dying);
    Ok(())
}

/// The last one has left, and is gone before it has ended the round.
async fn a_round_that_its_last_party_has_not_ended_ends(
    (participant, other): Observed,
) -> Result<()> {
    let (ours, theirs) = (step(&participant.client, 2)?, step(&other, 2)?);
    let (one, two) = both(&ours, &theirs).await?;
    let leaving = tokio::spawn(two.leave());
    children_reach(&other, &node("rounds/0000000000"), 1).await?;
    // Its mark is made, and it does not hear of it.
    participant.proxy.clear();
    participant.proxy.hold_replies();
    let last = tokio::spawn(one.leave());
    children_reach(&other, &node("left/0000000000"), 2).await.or_else(|error| {
        // The other one may have ended the round already.
        if leaving.is_finished() { Ok(()) } else { Err(error) }
    })?;
    assert_eq!(tokio::time::timeout(LONG, leaving).await???, Vec::<String>::new());
    participant.proxy.restore();
    assert_eq!(tokio::time::timeout(LONG, last).await???, Vec::<String>::new());
    Ok(())
}

async fn lost_replies_neither_kill_nor_count((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (step(&participant.client, 2)?, step(&other, 2)?);
    for (number, loss) in (0..).zip([Loss::BeforeRequest, Loss::BeforeReply, Loss::BeforeReply]) {
        let theirs_enters = enter(&theirs, "two");
        wait(&theirs, 1).await?;
        // The entry, and the opening.
        for _ in 0..2 {
            participant.proxy.lose_next(OpCode::Multi, loss);
        }
        let one = ours.enter_timeout("one", LONG).await?;
        let two = theirs_enters.await??;
        assert_eq!((one.number(), two.number()), (number, number));
        participant.proxy.lose_next(OpCode::Multi, loss);
        let (one, two) = tokio::join!(one.leave(), two.leave());
        assert_eq!((one?, two?), (Vec::new(), Vec::new()), "{loss:?}");
        participant.proxy.lose_no_more();
    }
    Ok(())
}

async fn who_waits_comes_anew_in_the_next_session((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (step(&participant.client, 2)?, step(&other, 2)?);
    let entering = enter(&ours, "one");
    wait(&theirs, 1).await?;
    participant.proxy.expire_session().await?;
    let two = theirs.enter_timeout("two", LONG).await?;
    let one = entering.await??;
    assert_eq!(two.parties().len(), 2);
    assert_eq!(one.session(), participant.client.session_id());
    both_leave(one, two).await?;
    Ok(())
}

async fn bad_names_and_places_are_refused(backend: Backend) -> Result<()> {
    let client = backend.observer().await?;
    let barrier = step(&client, 2)?;
    for bad in ["", "a/b", "a\u{0}b"] {
        let refused = barrier.enter(bad).await.err().context("it has entered")?;
        assert!(matches!(refused, BarrierError::Name { .. }), "{refused}");
    }
    let path = ZnodePath::new("/other")?;
    client.create(&path, "10.0.0.1", CreateMode::Persistent).await?;
    let foreign = DoubleBarrier::new(&client, "/other", 2)?.enter("a").await;
    assert!(matches!(foreign, Err(BarrierError::Foreign { .. })), "{foreign:?}");
    let twice = DoubleBarrier::builder(&client, STEP).names(["a", "b", "a"]).build();
    assert!(matches!(twice, Err(BarrierError::Name { .. })), "{twice:?}");
    step(&client, 1)?.enter_timeout("a", Duration::MAX).await?.leave().await?;
    let empty = DoubleBarrier::builder(&client, STEP).names(Vec::<String>::new()).build();
    for nobody in [empty, DoubleBarrier::new(&client, STEP, 0)] {
        assert_eq!(nobody.err(), Some(BarrierError::Nobody), "its rounds are always complete");
    }
    Ok(())
}

/// Programs that do not agree on the parties do not enter one round, and get an error.
async fn who_waits_for_others_is_not_counted((one, two): Clients) -> Result<()> {
    let (two_parties, three_parties) = (step(&one, 2)?, step(&two, 3)?);
    let named = DoubleBarrier::builder(&two, STEP).names(["a", "d"]).build()?;
    let waits = enter(&three_parties, "a");
    wait(&two_parties, 1).await?;
    let alone = enter(&named, "d");
    wait(&two_parties, 2).await?;
    let report = two_parties.inspect().await?;
    assert_eq!((report.missing, report.others.len()), (Missing::Count(2), 2));

    let late = two_parties.enter_timeout("b", SHORT).await.err().context("it has entered")?;
    let told =
        "1 missing. a, d waited there with another list or number of parties; all programs must";
    assert!(late.to_string().contains(told), "{late}");
    let b = enter(&two_parties, "b");
    let c = two_parties.enter("c").await?;
    let mut parties = c.parties();
    parties.sort_unstable();
    assert_eq!(parties, ["b", "c"]);
    let (b, c) = tokio::join!(b.await??.leave(), c.leave());
    b?;
    c?;
    assert!(!waits.is_finished() && !alone.is_finished());
    Ok(())
}

/// Who has left waits for the others, however long no server can be reached.
async fn who_has_left_outlasts_an_outage(backend: Backend) -> Result<()> {
    let (participant, other) = (short(&backend).await?, backend.observer().await?);
    let (ours, theirs) = (step(&participant.client, 2)?, step(&other, 2)?);
    let (one, two) = both(&ours, &theirs).await?;
    participant.proxy.clear();
    let leaving = tokio::spawn(one.leave());
    let has_left = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::Multi));
    participant.proxy.passes(has_left).await;
    participant.proxy.refuse();
    participant.client.status().wait_for(|it| it.contact == Contact::Unreachable).await?;
    two.leave().await?;
    assert!(!leaving.is_finished());
    participant.proxy.restore();
    assert_eq!(tokio::time::timeout(LONG, leaving).await???, Vec::<String>::new());
    Ok(())
}

/// Whether the round has opened cannot be asked, so it is not said that the party has not entered.
async fn a_time_out_in_an_outage_claims_nothing(backend: Backend) -> Result<()> {
    let (participant, other) = (short(&backend).await?, backend.observer().await?);
    let (ours, theirs) = (step(&participant.client, 2)?, step(&other, 2)?);
    let barrier = ours.clone();
    let entering = tokio::spawn(async move { barrier.enter_timeout("one", SHORT).await });
    wait(&theirs, 1).await?;
    participant.proxy.refuse();
    let two = theirs.enter_timeout("two", LONG).await;
    let one = entering.await?;
    match &one {
        // The session had ended before the other one came.
        Err(BarrierError::TimedOut { .. }) => assert!(two.is_err(), "{two:?}"),
        one => assert!(one.is_err(), "{one:?}"),
    }
    participant.proxy.restore();
    Ok(())
}
