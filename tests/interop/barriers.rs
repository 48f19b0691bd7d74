//! Lockkeeper's barrier together with Curator's `DistributedBarrier` and kazoo's `Barrier` on the same path. Also how
//! their double barriers handle faults, compared with Lockkeeper's on the same server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper::{
    Acl, Barrier, BarrierError, Client, CountDownLatch, CreateMode, DefaultAcl, DoubleBarrier,
    Missing, Permissions, Round, ZnodePath,
};
use lockkeeper_testkit::proxy::{Loss, Proxy};
use lockkeeper_wire::OpCode;
use tokio::task::JoinHandle;

use crate::theirs::Language::{self, Java, Python};
use crate::theirs::{LIMIT, Place, SESSION_MS, Steps, until};

const GATE: &str = "/barriers/gate";
const THEIRS: &str = "/barriers/theirs";
const OURS: &str = "/barriers/ours";

/// Longer than everything that happens during such a wait.
const PATIENCE: Duration = Duration::from_secs(6);
const PATIENCE_MS: &str = "6000";

fn gate(language: Language, connect: &str) -> Result<Steps> {
    Steps::start(language, "Barrier", &[connect, SESSION_MS, GATE, "1"])
}

/// A party of a double barrier that needs two.
fn party(language: Language, connect: &str) -> Result<Steps> {
    Steps::start(language, "Barrier", &[connect, SESSION_MS, THEIRS, "2"])
}

/// A participant that closes a barrier, opens it, and waits, with a connection of its own.
enum Participant {
    Ours(Barrier),
    Theirs(Box<Steps>),
}

/// A waiting participant.
enum Waiting {
    Ours(JoinHandle<Result<(), BarrierError>>),
    Theirs,
}

impl Participant {
    async fn close(&mut self) -> Result<()> {
        match self {
            Self::Ours(barrier) => barrier.close().await?,
            Self::Theirs(steps) => drop(steps.take("close").await?),
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<()> {
        match self {
            Self::Ours(barrier) => barrier.open().await?,
            Self::Theirs(steps) => drop(steps.take("open").await?),
        }
        Ok(())
    }

    fn begin_to_wait(&mut self) -> Result<Waiting> {
        match self {
            Self::Ours(barrier) => {
                let barrier = barrier.clone();
                Ok(Waiting::Ours(tokio::spawn(async move { barrier.wait().await })))
            }
            Self::Theirs(steps) => steps.begin("wait").map(|()| Waiting::Theirs),
        }
    }

    fn waits(&self, waiting: &Waiting) -> bool {
        match (self, waiting) {
            (Self::Theirs(steps), _) => steps.waits(),
            (Self::Ours(_), Waiting::Ours(waiting)) => !waiting.is_finished(),
            (Self::Ours(_), Waiting::Theirs) => false,
        }
    }

    async fn passes(&mut self, waiting: Waiting) -> Result<()> {
        match (self, waiting) {
            (Self::Theirs(steps), _) => {
                let came = steps.done().await?;
                ensure!(came == "true", "it did not wait: {came}");
            }
            (Self::Ours(_), Waiting::Ours(waiting)) => {
                tokio::time::timeout(LIMIT, waiting).await???;
            }
            (Self::Ours(_), Waiting::Theirs) => {}
        }
        Ok(())
    }
}

/// All of them, each behind a proxy.
async fn participants(place: &Place) -> Result<Vec<(Proxy, Participant)>> {
    let mut participants = Vec::new();
    let (proxy, through) = place.proxy().await?;
    let barrier = Barrier::new(&Client::connect(&through).await?, GATE)?;
    participants.push((proxy, Participant::Ours(barrier)));
    for language in [Java, Python] {
        let (proxy, through) = place.proxy().await?;
        let steps = Box::new(gate(language, &through)?);
        participants.push((proxy, Participant::Theirs(steps)));
    }
    Ok(participants)
}

/// Returns when its request is there that looks at the barrier.
async fn waits_at(proxy: &Proxy) -> Result<()> {
    until(async || Ok(proxy.watches() > 0)).await.context("no client watches the barrier")
}

#[tokio::test]
async fn a_barrier_with_curator_and_kazoo() -> Result<()> {
    let Some(place) = Place::with("barriers", &[Java, Python]).await? else { return Ok(()) };
    let looks = Barrier::new(&place.client, GATE)?;
    let mut participants = participants(&place).await?;
    let count = participants.len();
    for (closing, opening) in (0..count * count).map(|turn| (turn / count, turn % count)) {
        let turn = || format!("{closing} closes, and {opening} opens");
        participants[closing].1.close().await?;
        ensure!(looks.is_closed().await?, "{}", turn());
        let mut waiting = Vec::new();
        for index in (0..count).filter(|index| *index != opening) {
            let (proxy, participant) = &mut participants[index];
            proxy.clear();
            waiting.push((index, participant.begin_to_wait()?));
            waits_at(proxy).await.with_context(turn)?;
        }
        for (index, waiting) in &waiting {
            ensure!(participants[*index].1.waits(waiting), "{index} does not wait: {}", turn());
        }

        participants[opening].1.open().await?;
        ensure!(!looks.is_closed().await?, "{}", turn());
        for (index, waiting) in waiting {
            participants[index].1.passes(waiting).await.with_context(turn)?;
        }
    }
    for (_, participant) in participants {
        if let Participant::Theirs(steps) = participant {
            steps.end().await?;
        }
    }
    Ok(())
}

/// Only Lockkeeper's barrier can be closed by a guard. It opens when the guard's session ends, and the guard reports if
/// a program of another library has opened it.
#[tokio::test]
async fn a_barrier_that_we_hold_stops_curator_and_kazoo() -> Result<()> {
    let Some(place) = Place::with("barriers", &[Java, Python]).await? else { return Ok(()) };
    let (holder, through) = place.proxy().await?;
    let barrier = Barrier::new(&Client::connect(&through).await?, GATE)?;
    let held = barrier.close_while_held().await?;
    let mut theirs = Vec::new();
    for language in [Java, Python] {
        let (proxy, through) = place.proxy().await?;
        let mut steps = gate(language, &through)?;
        steps.begin("wait")?;
        waits_at(&proxy).await?;
        theirs.push((proxy, steps));
    }
    ensure!(theirs.iter().all(|(_, steps)| steps.waits()));
    holder.expire_session().await?;
    for (_, steps) in &mut theirs {
        ensure!(steps.done().await? == "true");
    }
    held.lost().await;

    for (_, steps) in &mut theirs {
        let barrier = Barrier::new(&place.client, GATE)?;
        let held = barrier.close_while_held().await?;
        steps.take("close").await?;
        ensure!(barrier.is_closed().await?);
        steps.take("open").await?;
        tokio::time::timeout(LIMIT, held.lost()).await.context("the guard is not told")?;
        ensure!(!barrier.is_closed().await?);
    }
    for (_, steps) in theirs {
        steps.end().await?;
    }
    Ok(())
}

fn double(client: &Client) -> Result<DoubleBarrier> {
    Ok(DoubleBarrier::new(client, OURS, 2)?)
}

/// Nobody has come but this one.
fn is_alone(entered: &Result<Round, BarrierError>) -> Result<()> {
    let is_alone =
        matches!(entered, Err(BarrierError::TimedOut { missing: Missing::Count(1), .. }));
    ensure!(is_alone, "{entered:?}");
    Ok(())
}

/// CURATOR-318. Theirs: the node of a party that has given up stays, and counts: the next one passes alone.
#[tokio::test]
async fn a_party_of_curators_that_has_timed_out_counts() -> Result<()> {
    let Some(place) = Place::with("barriers", &[Java]).await? else { return Ok(()) };
    let mut first = party(Java, &place.connect)?;
    ensure!(first.take("enter 200").await? == "false");
    let mut second = party(Java, &place.connect)?;
    ensure!(second.take("enter 30000").await? == "true", "it has waited");
    first.end().await?;
    second.end().await?;

    let ours = double(&place.client)?;
    for name in ["first", "second"] {
        is_alone(&ours.enter_timeout(name, Duration::from_millis(200)).await)?;
    }
    ensure!(ours.inspect().await?.waiting.is_empty());
    Ok(())
}

tests! {
    /// gh 1290. Curator: a connection that is lost while the parties are listed wakes the wait that follows, and
    /// the woken party passes without another check: alone.
    fn a_timed_party_of_curators_passes_alone_after_a_lost_connection() = passes_alone("enter 60000");
    /// The same without a limit.
    fn a_party_of_curators_passes_alone_after_a_lost_connection() = passes_alone("enter");
}

async fn passes_alone(enter: &str) -> Result<()> {
    let Some(place) = Place::with("barriers", &[Java]).await? else { return Ok(()) };
    let (proxy, through) = place.proxy().await?;
    let mut theirs = party(Java, &through)?;
    proxy.lose_next(OpCode::GetChildren2, Loss::BeforeRequest);
    ensure!(theirs.take(enter).await? == "true");
    let names = place.client.children(&ZnodePath::new(THEIRS)?).await?.0;
    ensure!(proxy.losses_to_come() == 0 && names.len() == 1, "{names:?}");
    theirs.end().await?;

    let ours = double(&Client::connect(&through).await?)?;
    // Makes the barrier.
    ours.inspect().await?;
    proxy.lose_next(OpCode::GetChildren2, Loss::BeforeRequest);
    is_alone(&ours.enter_timeout("ours", PATIENCE).await)?;
    ensure!(proxy.losses_to_come() == 0);
    Ok(())
}

/// Theirs: a connection that is lost in a healthy wait ends it with an error. The node stays, and counts: the next one
/// passes alone. Ours waits on, and enters with the next one.
#[tokio::test]
async fn a_lost_connection_ends_a_wait_of_curators_whose_node_counts() -> Result<()> {
    let Some(place) = Place::with("barriers", &[Java]).await? else { return Ok(()) };
    let (proxy, through) = place.proxy().await?;
    let mut first = party(Java, &through)?;
    first.begin("enter")?;
    let listed = async || Ok(proxy.requests().contains(&OpCode::GetChildren2));
    until(listed).await.with_context(|| first.program.process.tail())?;
    until(async || Ok(!place.client.children(&ZnodePath::new(THEIRS)?).await?.0.is_empty()))
        .await?;
    proxy.cut();
    let came = first.done().await?;
    ensure!(came == "ConnectionLossException", "{came}");
    let mut second = party(Java, &place.connect)?;
    ensure!(second.take("enter").await? == "true", "it has waited");
    first.end().await?;
    second.end().await?;

    let client = Client::connect(&through).await?;
    let waiting = waits_as(&double(&client)?, "first").await?;
    proxy.cut();
    both_enter(&double(&place.client)?, waiting).await
}

/// One of ours that waits for another.
async fn waits_as(barrier: &DoubleBarrier, name: &'static str) -> Result<Entering> {
    let entering = barrier.clone();
    let entering = tokio::spawn(async move { entering.enter(name).await });
    until(async || Ok(barrier.inspect().await?.waiting == [name])).await?;
    Ok(entering)
}

type Entering = JoinHandle<Result<Round, BarrierError>>;

/// Enters as the second one, and leaves with the first.
async fn both_enter(barrier: &DoubleBarrier, first: Entering) -> Result<()> {
    let second = tokio::time::timeout(LIMIT, barrier.enter("second")).await??;
    let first = tokio::time::timeout(LIMIT, first).await???;
    ensure!(first.number() == second.number() && first.parties() == second.parties());
    let (first, second) = tokio::join!(first.leave(), second.leave());
    ensure!(first?.is_empty() && second?.is_empty());
    Ok(())
}

tests! {
    fn a_round_of_curators_that_ended_badly_lets_the_next_one_through() = ended_badly(Java);
    fn a_round_of_kazoos_that_ended_badly_lets_the_next_one_through() = ended_badly(Python);
}

/// Theirs: the node `ready` of a round whose parties have died is there for the next round: the first one that comes
/// passes alone.
async fn ended_badly(language: Language) -> Result<()> {
    let Some(place) = Place::with("barriers", &[language]).await? else { return Ok(()) };
    let theirs = ZnodePath::new(THEIRS)?;
    let mut parties = Vec::new();
    for _ in 0..2 {
        let mut theirs = party(language, &place.connect)?;
        theirs.begin("enter")?;
        parties.push(theirs);
    }
    for mut theirs in parties {
        ensure!(theirs.done().await? == "true");
        theirs.program.process.kill();
    }
    until(async || Ok(place.client.children(&theirs).await?.0 == ["ready"])).await?;
    let mut next = party(language, &place.connect)?;
    ensure!(next.take("enter").await? == "true");
    let names = place.client.children(&theirs).await?.0;
    ensure!(names.len() == 2 && names.iter().any(|name| name == "ready"), "{names:?}");
    next.end().await?;

    // On their path ours refuse.
    let entered = DoubleBarrier::new(&place.client, THEIRS, 2)?.enter("ours").await;
    ensure!(matches!(entered, Err(BarrierError::Foreign { .. })), "{entered:?}");
    let counted = CountDownLatch::new(&place.client, THEIRS, 2)?.count_down().await;
    ensure!(matches!(counted, Err(BarrierError::Foreign { .. })), "{counted:?}");

    let (proxy, through) = place.proxy().await?;
    let inside = double(&Client::connect(&through).await?)?;
    let (first, second) = tokio::join!(inside.enter("first"), inside.enter("second"));
    let rounds = (first?, second?);
    proxy.expire_session().await?;
    let ours = double(&place.client)?;
    is_alone(&ours.enter_timeout("next", Duration::from_millis(200)).await)?;
    drop(rounds);
    both_enter(&ours, waits_as(&ours, "next").await?).await
}

/// Curator: rounds on one path are not distinguished. A party that is slow to leave waits for parties that have
/// left and entered again, and they wait for it.
#[tokio::test]
async fn a_party_of_curators_that_is_slow_to_leave_waits_for_the_next_round() -> Result<()> {
    let Some(place) = Place::with("barriers", &[Java]).await? else { return Ok(()) };
    let nodes = ZnodePath::new(THEIRS)?;
    let names = async || {
        let listed = place.client.children(&nodes).await.map(|(names, _)| names);
        let names = listed.unwrap_or_default().into_iter().filter(|name| name != "ready");
        anyhow::Ok(names.collect::<Vec<_>>())
    };
    let mut parties = Vec::new();
    for before in 0..3 {
        let (proxy, through) = place.proxy().await?;
        // It outlasts a while without replies.
        let arguments = [&through, "30000", THEIRS, "3"];
        let mut theirs = Steps::start(Java, "Barrier", &arguments)?;
        let others = names().await?;
        theirs.begin("enter")?;
        until(async || Ok(names().await?.len() > before)).await?;
        let own = names().await?.into_iter().find(|name| !others.contains(name));
        parties.push((own.context("its node")?, proxy, theirs));
    }
    for (_, _, theirs) in &mut parties {
        ensure!(theirs.done().await? == "true");
    }
    // The node of the lowest name goes last.
    parties.sort_by(|one, other| one.0.cmp(&other.0));
    let (_, proxy, mut slow) = parties.pop().context("three")?;
    slow.begin(&format!("leave {PATIENCE_MS}"))?;
    until(async || Ok(names().await?.len() == 2)).await?;
    proxy.hold_replies();
    for (_, _, theirs) in &mut parties {
        theirs.begin("leave")?;
    }
    for (_, _, theirs) in &mut parties {
        ensure!(theirs.done().await? == "true");
        theirs.begin("enter")?;
    }
    until(async || Ok(names().await?.len() == 2)).await?;
    proxy.restore();
    ensure!(slow.done().await? == "false", "it has left");
    ensure!(parties.iter().all(|(_, _, theirs)| theirs.waits()));

    let (proxy, through) = place.proxy().await?;
    let client = Client::builder().session_timeout(Duration::from_secs(30));
    let three = |client: &Client| DoubleBarrier::new(client, OURS, 3);
    let (slow, others) = (three(&client.connect(&through).await?)?, three(&place.client)?);
    let (slow_inside, a, b) =
        tokio::join!(slow.enter("slow"), others.enter("a"), others.enter("b"));
    let slow_inside = slow_inside?;
    proxy.clear();
    let leaving = tokio::spawn(async move { slow_inside.leave().await });
    until(async || Ok(proxy.requests().contains(&OpCode::Multi))).await?;
    proxy.hold_replies();
    let (a, b) = tokio::join!(a?.leave(), b?.leave());
    ensure!(a?.is_empty() && b?.is_empty());
    let next = others.clone();
    let next = tokio::spawn(async move { tokio::join!(next.enter("a"), next.enter("b")) });
    until(async || Ok(others.inspect().await?.waiting.len() == 2)).await?;
    proxy.restore();
    ensure!(tokio::time::timeout(LIMIT, leaving).await???.is_empty());
    let inside = tokio::time::timeout(LIMIT, slow.enter("slow")).await??;
    let (a, b) = tokio::time::timeout(LIMIT, next).await??;
    ensure!(inside.number() == 1 && a?.number() == 1 && b?.number() == 1);
    Ok(())
}

/// Theirs: a lost connection uses the watch up, which `wait` does not look at. It waits on at an open barrier.
#[tokio::test]
async fn kazoos_wait_waits_on_after_a_lost_connection() -> Result<()> {
    let Some(place) = Place::with("barriers", &[Python]).await? else { return Ok(()) };
    let barrier = Barrier::new(&place.client, GATE)?;
    let (proxy, through) = place.proxy().await?;
    let mut theirs = gate(Python, &through)?;
    barrier.close().await?;
    theirs.begin(&format!("wait {PATIENCE_MS}"))?;
    waits_at(&proxy).await?;
    is_cut(&proxy, &theirs).await?;
    barrier.open().await?;
    ensure!(theirs.done().await? == "false", "it was told");
    ensure!(theirs.take("wait").await? == "true", "it is open");
    theirs.end().await?;

    barrier.close().await?;
    let (client, waits) = (Client::connect(&through).await?, PATIENCE);
    proxy.clear();
    let ours = Barrier::new(&client, GATE)?;
    let waiting = tokio::spawn(async move { ours.wait_timeout(waits).await });
    waits_at(&proxy).await?;
    proxy.cut();
    barrier.open().await?;
    ensure!(waiting.await??, "it was not told");
    Ok(())
}

/// The same for `enter`, which does not take a time limit: the other party is inside, and this one keeps waiting.
#[tokio::test]
async fn kazoos_enter_waits_on_after_a_lost_connection() -> Result<()> {
    let Some(place) = Place::with("barriers", &[Python]).await? else { return Ok(()) };
    let (proxy, through) = place.proxy().await?;
    let mut first = party(Python, &through)?;
    first.begin(&format!("enter {PATIENCE_MS}"))?;
    waits_at(&proxy).await?;
    let listed = async || Ok(proxy.requests().contains(&OpCode::GetChildren));
    until(listed).await.with_context(|| first.program.process.tail())?;
    is_cut(&proxy, &first).await?;
    let mut second = party(Python, &place.connect)?;
    ensure!(second.take("enter").await? == "true");
    ensure!(second.take("entered").await? == "true");
    ensure!(first.done().await? == "false", "it was told");
    ensure!(first.take("entered").await? == "false");

    let client = Client::connect(&through).await?;
    let waiting = waits_as(&double(&client)?, "first").await?;
    proxy.cut();
    both_enter(&double(&place.client)?, waiting).await
}

/// Cuts a connection of kazoo's. Returns when there is another one.
async fn is_cut(proxy: &Proxy, theirs: &Steps) -> Result<()> {
    proxy.cut();
    let states = ["CONNECTED", "SUSPENDED", "CONNECTED"];
    let is_back = async || Ok(theirs.program.said("STATE ") == states);
    until(is_back).await.with_context(|| theirs.program.process.tail())
}

/// Theirs: `enter` returns as if it had entered, at once, although its node was refused.
#[tokio::test]
async fn kazoos_enter_returns_without_having_entered() -> Result<()> {
    let Some(place) = Place::with("barriers", &[Python]).await? else { return Ok(()) };
    let read = Acl { permissions: Permissions::READ, scheme: "world".into(), id: "anyone".into() };
    let closed = place.client.with_default_acl(&DefaultAcl::List(vec![read]));
    closed.ensure(&ZnodePath::new("/barriers")?, CreateMode::Persistent).await?;
    let mut theirs = party(Python, &place.connect)?;
    ensure!(theirs.take("enter").await? == "true", "it waits");
    ensure!(theirs.take("entered").await? == "false");
    theirs.end().await?;

    let ours = double(&place.client)?.enter_timeout("ours", PATIENCE).await;
    ensure!(
        ours.as_ref().is_err_and(|error| !matches!(error, BarrierError::TimedOut { .. })),
        "{ours:?}"
    );
    Ok(())
}
