//! What went wrong in the elections of other libraries, told again of ours, on every server.
//!
//! Each test names the Curator test or the report that it is based on. Faults that an election shares
//! with every lock are in `exclusive_faults.rs`; here they are tested with `Election::lead` and observers.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{
    AcquireError, Client, Election, ErrorCode, FencingToken, HolderState, Leader, Leaders,
    Leadership, LossReason, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::jeopardy::{lose_the_way, short};
use crate::{Pair, contract};

contract!(election_stories);

const ELECTION: &str = "/election/scheduler";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(60);

fn election(participant: &Participant, id: &str) -> Result<Election> {
    Ok(Election::builder(&participant.client, ELECTION).id(id).build()?)
}

fn path() -> ZnodePath {
    ZnodePath::new(ELECTION).expect("a path")
}

/// One time that a candidate leads. A handle of the leadership would put the next candidate off when the work
/// ends.
#[derive(Clone, Debug)]
struct Term {
    token: FencingToken,
    leadership: Weak<Leadership>,
}

impl Term {
    fn new(leadership: &Arc<Leadership>) -> Self {
        Self { token: leadership.token(), leadership: Arc::downgrade(leadership) }
    }

    fn is_held(&self) -> bool {
        self.leadership.upgrade().is_some_and(|leadership| leadership.is_held())
    }

    /// Waits until the candidate knows that it does not lead any more.
    async fn is_over(&self) {
        if let Some(leadership) = self.leadership.upgrade() {
            leadership.lost().await;
        }
    }
}

/// A candidate that leads, and tells each term.
struct Candidate {
    led: watch::Receiver<Vec<Term>>,
    /// Ends with what `lead` fails with.
    task: JoinHandle<AcquireError>,
}

impl Candidate {
    /// Its work counts steps for as long as it leads.
    fn start(election: Election, steps: &Arc<AtomicU32>) -> Self {
        let ((tell, led), steps) = (watch::channel(Vec::new()), Arc::clone(steps));
        let task = tokio::spawn(async move {
            let led = election.lead::<Infallible, _>(|leadership| {
                tell.send_modify(|led: &mut Vec<_>| led.push(Term::new(&leadership)));
                let steps = Arc::clone(&steps);
                async move {
                    while leadership.is_held() {
                        steps.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    works_without_it()
                }
            });
            let Err(error) = led.await;
            error
        });
        Self { led, task }
    }

    /// A candidate whose runs are not counted.
    fn of(participant: &Participant, id: &str) -> Result<Self> {
        Ok(Self::start(election(participant, id)?, &Arc::default()))
    }

    /// Waits until it has been leader so many times, and gives the last of these terms.
    async fn term(&mut self, times: usize) -> Result<Term> {
        let led = self.led.wait_for(|led| led.len() >= times);
        let led = tokio::time::timeout(LONG, led).await.context("it does not lead")?;
        let led = led.context("it has ended")?;
        led.get(times - 1).cloned().context("it has led")
    }

    /// The same, with the leadership.
    async fn leads(&mut self, times: usize) -> Result<Arc<Leadership>> {
        self.term(times).await?.leadership.upgrade().context("it does not lead any more")
    }

    fn times(&self) -> usize {
        self.led.borrow().len()
    }
}

/// What is never reached, as no work is polled without the leadership.
fn works_without_it() -> Infallible {
    panic!("it works without the leadership")
}

/// Waits until this many candidates are in the queue.
async fn in_line(client: &Client, wanted: usize) -> Result<()> {
    let reached = tokio::time::timeout(LONG, children_reach(client, &path(), wanted)).await;
    reached.with_context(|| format!("there are not {wanted} in line"))?
}

/// Returns when a candidate in the queue has seen its place, and leads if that is the first one: its requests
/// are answered before the first sync, and it makes progress before the second.
async fn sees_its_place(participant: &Participant) -> Result<()> {
    participant.client.sync(&path()).await?;
    participant.client.sync(&path()).await?;
    Ok(())
}

async fn next(leaders: &mut Leaders) -> Result<Option<Leader>> {
    Ok(tokio::time::timeout(LONG, leaders.next()).await.context("nothing changes")??)
}

/// TestLeaderLatch.testSessionInterruptionDoNotCauseBrainSplit: the node of the session that had ended was
/// taken for the own one, and two led.
///
/// Fails with every candidate let to lead at once, and with the session left out of `judge`.
async fn a_leader_whose_session_ends_does_not_lead_beside_the_next(
    (alice, bob): Pair,
) -> Result<()> {
    let mut first = Candidate::of(&alice, "alice")?;
    let old = first.leads(1).await?;
    let mut second = Candidate::of(&bob, "bob")?;
    in_line(&alice.observer().await?, 2).await?;

    alice.proxy.expire_session().await?;
    assert_eq!(old.lost().await, LossReason::SessionExpired);
    let first_token = old.token();
    drop(old);
    let new = second.term(1).await?;
    // The first one is in the queue again, behind the second.
    in_line(&alice.observer().await?, 2).await?;
    sees_its_place(&alice).await?;
    assert_eq!((first.times(), new.is_held()), (1, true));
    bob.proxy.expire_session().await?;
    new.is_over().await;
    let again = first.term(2).await?;
    assert!(first_token < new.token && new.token < again.token && again.is_held());
    Ok(())
}

/// TestLeaderSelector.testKillSessionThenCloseShouldElectNewLeader: the election had no leader any more.
///
/// Fails with a closed client taken for something that passes: `lead` does not end.
async fn a_leader_that_is_closed_after_its_session_leaves_the_place_to_another(
    (alice, bob): Pair,
) -> Result<()> {
    let mut first = Candidate::of(&alice, "alice")?;
    let old = first.term(1).await?;
    let mut second = Candidate::of(&bob, "bob")?;
    in_line(&alice.observer().await?, 2).await?;
    alice.proxy.expire_session().await?;
    alice.client.close().await;
    let new = second.term(1).await?;
    assert!(new.token > old.token && new.is_held());
    let ended = tokio::time::timeout(LONG, first.task).await??;
    assert!(!ended.is_retryable() && ended.to_string().contains("closed"), "{ended}");
    in_line(&bob.client, 1).await
}

/// TestLeaderLatch.testWatchedNodeDeletedOnReconnect: the watched node was deleted while its watcher was
/// disconnected, and the election had no leader.
///
/// Fails with no watch set again on the next connection.
async fn one_whose_predecessor_goes_while_it_is_cut_off_leads((alice, bob): Pair) -> Result<()> {
    let leadership = election(&alice, "alice")?.campaign().await?;
    let mut second = Candidate::of(&bob, "bob")?;
    let watches = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::GetData));
    bob.proxy.passes(watches).await;
    let token = leadership.token();
    bob.proxy.refuse();
    leadership.resign().await?;
    bob.proxy.restore();
    assert!(second.term(1).await?.token > token);
    Ok(())
}

/// TestLeaderLatch.testResettingOfLeadershipAfterConcurrentLeadershipChange (CURATOR-644): both made new
/// nodes at once, and each passed the other.
///
/// Fails with every candidate let to lead at once.
async fn those_whose_sessions_end_together_lead_one_after_the_other(
    (alice, bob): Pair,
) -> Result<()> {
    let observer = alice.observer().await?;
    let candidates = [Candidate::of(&alice, "alice")?, Candidate::of(&bob, "bob")?];
    in_line(&observer, 2).await?;
    for round in 1..=3 {
        let terms = || -> Vec<Term> {
            candidates.iter().flat_map(|candidate| candidate.led.borrow().clone()).collect()
        };
        let newest = terms().iter().map(|term| term.token).max();
        let (one, other) = tokio::join!(alice.proxy.expire_session(), bob.proxy.expire_session());
        one.and(other)?;

        // Both are in the queue again, and only the first one leads.
        in_line(&observer, 2).await?;
        sees_its_place(&alice).await?;
        sees_its_place(&bob).await?;
        let leads = async {
            loop {
                let terms = terms().into_iter().filter(|term| Some(term.token) > newest);
                let held = terms.filter(Term::is_held).count();
                assert!(held <= 1, "{held} lead in round {round}");
                if held == 1 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, leads).await.context("no candidate leads")?;
    }
    Ok(())
}

/// TestLeaderLatch.testLeadershipElectionWhenNodeDisappearsAfterChildrenAreRetrieved: the candidate waited
/// for ever. Here, as it waits, and as it leads.
///
/// Fails without the watch on its own node as it waits, and with `lead` that does not stand again after
/// either loss.
async fn one_whose_node_is_deleted_stands_again((alice, bob): Pair) -> Result<()> {
    let observer = alice.observer().await?;
    let leadership = election(&alice, "alice")?.campaign().await?;
    bob.proxy.hold_replies();
    let mut second = Candidate::of(&bob, "bob")?;
    in_line(&observer, 2).await?;
    let (names, _) = observer.children(&path()).await?;
    let own = names.iter().find(|name| *name != leadership.node().name()).context("bob's")?;
    let own = path().child(own)?;
    observer.delete(&own, None).await?;
    bob.proxy.restore();

    in_line(&observer, 2).await?;
    leadership.resign().await?;
    let first = second.leads(1).await?;
    assert_ne!(*first.node(), own);
    observer.delete(first.node(), None).await?;
    assert_eq!(first.lost().await, LossReason::NodeDeleted);
    let token = first.token();
    drop(first);
    assert!(second.term(2).await?.token > token);
    Ok(())
}

/// TestLeaderLatch.testGetChildrenHitsNoNode (CURATOR-724): the node above the candidates was gone, and
/// no candidate led until the program was restarted.
///
/// Fails if the parent nodes are created only once, and if a missing node is an error for the observer.
async fn an_election_whose_node_is_deleted_goes_on((alice, bob): Pair) -> Result<()> {
    let observer = alice.observer().await?;
    let mut candidate = Candidate::of(&alice, "alice")?;
    let mut leaders = election(&bob, "bob")?.observe().await?;
    for round in 0..4 {
        let before = candidate.term(candidate.times().max(1)).await?;
        let is_told = round % 2 == 0;
        if !is_told {
            alice.proxy.hold_replies();
            bob.proxy.hold_replies();
        }
        delete_election(&observer).await?;
        if !is_told {
            // Nobody makes it again before it is seen that it is gone.
            bob.proxy.restore();
            while leaders.current().is_some() {
                next(&mut leaders).await?;
            }
            alice.proxy.restore();
        }

        let newer = |led: &Term| led.token > before.token && led.is_held();
        let led = candidate.led.wait_for(|led| led.last().is_some_and(newer));
        let again = tokio::time::timeout(LONG, led).await.context("it does not lead again")??;
        let again = again.last().context("it leads")?.token;
        while leaders.current().is_none_or(|leader| leader.token < again) {
            next(&mut leaders).await?;
        }
    }
    Ok(())
}

/// Deletes the node of the election, with all that are in line.
async fn delete_election(client: &Client) -> Result<()> {
    loop {
        for name in client.children(&path()).await?.0 {
            let _ = client.delete(&path().child(&name)?, None).await;
        }
        match client.delete(&path(), None).await {
            Ok(()) => return Ok(()),
            // A candidate that notices the deletion returns at once, perhaps into a node that is about to be deleted.
            Err(error) if error.code() == Some(ErrorCode::NotEmpty) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The same race to the letter: the node is gone when the candidate lists the queue that it has entered.
///
/// Fails with `NoNode` for the list taken for a refusal: `lead` ends.
async fn one_whose_election_is_deleted_as_it_enters_stands_again(alice: Participant) -> Result<()> {
    election(&alice, "alice")?.campaign().await?.resign().await?;
    alice.proxy.refuse_next(OpCode::GetChildren2, ErrorCode::NoNode, 1);
    let mut candidate = Candidate::of(&alice, "alice")?;
    candidate.term(1).await?;
    in_line(&alice.observer().await?, 1).await
}

/// TestLeaderLatch.testCorrectWatching: the candidate that watched the leaving one must watch the one before it.
///
/// Fails with a candidate that leads when the one that it watches has left.
async fn one_that_leaves_the_middle_of_the_line_changes_no_leader(backend: Backend) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let carol = backend.participant().await?;
    let observer = backend.observer().await?;
    let leadership = election(&alice, "alice")?.campaign().await?;
    let middle = Candidate::of(&bob, "bob")?;
    in_line(&observer, 2).await?;
    let mut last = Candidate::of(&carol, "carol")?;
    in_line(&observer, 3).await?;
    let leaders = election(&alice, "alice")?.observe().await?;
    carol.proxy.passes(|passed| reads(passed) >= 1).await;

    carol.proxy.clear();
    middle.task.abort();
    in_line(&observer, 2).await?;
    let watches_again = |passed: &[Passed]| {
        let told = passed.iter().position(|passed| matches!(passed, Passed::Event(..)));
        told.is_some_and(|told| reads(&passed[told..]) >= 1)
    };
    carol.proxy.passes(watches_again).await;
    assert_eq!((last.times(), leadership.state()), (0, HolderState::Held));
    assert_eq!(leaders.current().map(|leader| leader.id.as_str()), Some("alice"));
    assert_eq!(carol.proxy.events().len(), 1, "of the one that has left");
    let token = leadership.token();
    leadership.resign().await?;
    assert!(last.term(1).await?.token > token);
    Ok(())
}

fn reads(passed: &[Passed]) -> usize {
    passed.iter().filter(|passed| **passed == Passed::Reply(OpCode::GetData)).count()
}

/// TestLeaderLatch.testCreateDeleteRace, TestLeaderSelector.testRaceAtStateChanged: a candidate that ended
/// in the middle of a step left its node behind, and blocked all others.
///
/// Fails without the deletion in `Contender::drop`, and without that of a leadership that is dropped.
async fn leading_that_is_dropped_leaves_no_candidate((alice, bob): Pair) -> Result<()> {
    let observer = alice.observer().await?;
    election(&bob, "bob")?.campaign().await?.resign().await?;

    // As it enters.
    alice.proxy.hold_replies();
    let entering = Candidate::of(&alice, "alice")?;
    in_line(&observer, 1).await?;
    entering.task.abort();
    alice.proxy.restore();
    in_line(&observer, 0).await?;

    // While it leads, and when it learns that its session has ended.
    let mut leading = Candidate::of(&alice, "alice")?;
    leading.term(1).await?;
    leading.task.abort();
    drop(leading);
    in_line(&observer, 0).await?;
    let mut losing = Candidate::of(&alice, "alice")?;
    losing.term(1).await?;
    alice.proxy.expire_session().await?;
    losing.task.abort();
    drop(losing);
    election(&bob, "bob")?.campaign_timeout(LONG).await?.resign().await?;
    in_line(&observer, 0).await
}

/// TestLeaderSelector.testInterruptLeadershipWithRequeue: one that was interrupted was not in line any more.
///
/// Fails with every candidate let to lead at once, and without the resignation after the work.
async fn one_that_is_asked_to_leave_leads_again_after_the_others((alice, bob): Pair) -> Result<()> {
    let observer = alice.observer().await?;
    let terms = Mutex::new(Vec::new());
    let terms = || terms.lock().unwrap_or_else(PoisonError::into_inner);
    let takes_turns = async {
        let election = election(&alice, "alice")?;
        for _ in 0..2 {
            let led = election.lead(|leadership| async move {
                terms().push(leadership.token());
                leadership.proclaim("in office").await.ok();
                leadership.revoke_requested().await
            });
            led.await?.map_err(|reason| anyhow::anyhow!("{reason}"))?;
        }
        anyhow::Ok(())
    };
    let asks = async {
        let mut leaders = election(&bob, "bob")?.observe().await?;
        while leaders.current().is_none_or(|leader| leader.value.is_none()) {
            next(&mut leaders).await?;
        }
        let bobs = election(&bob, "bob")?;
        let waiting = tokio::spawn(async move { bobs.campaign().await });
        in_line(&observer, 2).await?;
        let leader = leaders.current().context("alice leads")?.node.clone();
        observer.set_data(&leader, "__REVOKE__", None).await?;
        let leadership = waiting.await??;
        in_line(&observer, 2).await?;
        sees_its_place(&alice).await?;
        assert_eq!(terms().len(), 1, "alice leads beside bob");
        let token = leadership.token();
        leadership.resign().await?;

        let in_office = |leader: Option<&Leader>| {
            leader.is_some_and(|leader| leader.token > token && leader.value.is_some())
        };
        while !in_office(leaders.current()) {
            next(&mut leaders).await?;
        }
        let leader = leaders.current().context("alice leads")?.node.clone();
        observer.set_data(&leader, "__REVOKE__", None).await?;
        anyhow::Ok(token)
    };
    let both = async { tokio::try_join!(takes_turns, asks) };
    let ((), between) = tokio::time::timeout(LONG, both).await.context("it hangs")??;
    let terms = terms();
    assert!(terms[0] < between && between < terms[1], "{terms:?}, with {between} in between");
    Ok(())
}

/// FLINK-10052: each lost connection began the leader's work anew, and with it all jobs of the cluster.
/// LeaderSelector's flappingTest: leaders that came and went with their connections.
///
/// Fails if the work is dropped as soon as the connection is lost.
async fn lost_connections_do_not_begin_the_work_anew((alice, bob): Pair) -> Result<()> {
    let mut first = Candidate::of(&alice, "alice")?;
    let term = first.term(1).await?;
    let second = Candidate::of(&bob, "bob")?;
    in_line(&alice.observer().await?, 2).await?;
    for _ in 0..5 {
        for participant in [&alice, &bob] {
            participant.proxy.cut();
            // The first may be lost with the connection.
            while participant.client.sync(&path()).await.is_err() {}
        }
    }
    term.leadership.upgrade().context("its work was dropped")?.verify().await?;
    assert_eq!((first.times(), second.times()), (1, 0));
    let (names, _) = bob.client.children(&path()).await?;
    assert_eq!(names.len(), 2, "and no new node was created");
    Ok(())
}

/// A candidate that rides out outages, and counts what its work does.
fn riding(alice: &Participant, longest: Duration) -> Result<(Candidate, Arc<AtomicU32>)> {
    let builder = Election::builder(&alice.client, ELECTION).id("alice").ride_out(longest);
    let steps = Arc::default();
    Ok((Candidate::start(builder.build()?, &steps), steps))
}

/// Fails with the work dropped at each deadline, and with work that is polled in jeopardy.
async fn work_that_rides_out_an_outage_goes_on(backend: Backend) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let (mut first, steps) = riding(&alice, LONG)?;
    let leadership = first.leads(1).await?;
    let second = Candidate::of(&bob, "bob")?;
    in_line(&backend.observer().await?, 2).await?;

    lose_the_way(&alice).await;
    leadership.jeopardy().await?;
    let before = steps.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((leadership.state(), steps.load(Ordering::SeqCst)), (HolderState::Jeopardy, before));
    alice.proxy.restore();
    leadership.held_again().await?;
    let goes_on = async {
        while steps.load(Ordering::SeqCst) < before + 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, goes_on).await.context("its work does not go on")?;
    assert_eq!((first.times(), second.times()), (1, 0), "no new leadership has started");
    leadership.verify().await?;
    Ok(())
}

/// Fails without the limit, and with `lead` that does not stand again after the loss.
async fn work_that_rides_out_too_little_is_begun_anew(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let (mut candidate, _) = riding(&alice, Duration::from_millis(50))?;
    let leadership = candidate.leads(1).await?;
    lose_the_way(&alice).await;
    assert_eq!(leadership.lost().await, LossReason::DeadlinePassed);
    let token = leadership.token();
    drop(leadership);
    alice.proxy.restore();
    assert!(candidate.term(2).await?.token > token);
    Ok(())
}
