//! Deadlocks on real servers: looking for one, and leaving a line that closes one.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use lockkeeper_client::{Client, Error, Outcome, SessionId, ZnodePath, impl_failure};

use crate::admin::graph::step::{Because, WaitCycle};
use crate::admin::graph::wait_graph::WaitGraph;
use crate::admin::inspect::{Entry, LockQueues, queues};
use crate::owner_info::OwnerInfo;
use crate::token::FencingToken;

/// How long a wait lasts before it is looked for a deadlock: most waits are shorter.
const FIRST_CHECK: Duration = Duration::from_secs(1);

/// How long it takes at most from one look to the next.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Who has not closed the circle leaves if it is still there at so many looks.
const CHECKS_OF_OTHERS: u32 = 3;

/// Programs that wait for each other's locks in a circle.
///
/// Displayed as in `deadlock: backup (pid 7 on db1) waits for /locks/b, behind sync (pid 9 on db1); …`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// Each waits for the next, and the last for the first.
    pub waits: Vec<DeadlockWait>,
    /// Whether it leads through runs within runs alone: see [`WaitCycle::is_certain`].
    pub is_certain: bool,
}

/// A wait that is part of a [`Deadlock`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockWait {
    /// The lock that is waited for.
    pub lock: ZnodePath,
    /// The contender that waits.
    pub waiter: DeadlockParty,
    /// The contender ahead of it, which stays until the next one of the circle has had its turn.
    pub blocker: DeadlockParty,
    /// Why it stays.
    pub because: Because,
}

/// A contender in a [`Deadlock`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockParty {
    /// Its node.
    pub node: ZnodePath,
    /// Its session.
    pub session: SessionId,
    /// The transaction that created its node.
    pub token: FencingToken,
    /// Who it is, if one of our programs wrote that.
    pub owner: Option<OwnerInfo>,
}

/// The deadlocks among the locks at a path and below it: circles that are there at two looks. Costs what
/// [`queues`] does, and twice if there is one.
///
/// # Errors
/// If a request fails.
///
/// # Session loss
/// Fails like any [`Reply`](lockkeeper_client::Reply).
///
/// # Cancel safety
/// Safe: it only reads.
pub async fn deadlocks(client: &Client, below: &ZnodePath) -> Result<Vec<Deadlock>, Error> {
    let looks = CycleCheck::at(client, below).await?;
    let graph = WaitGraph::new(&looks.now.queues);
    Ok(looks.cycles(&graph).iter().map(|cycle| Deadlock::of(&graph, cycle)).collect())
}

/// The locks at a path and below it, looked at twice where the first look shows a circle.
#[derive(Debug)]
#[non_exhaustive]
pub struct CycleCheck {
    /// What the first look has found, if it shows a circle.
    earlier: Option<LockQueues>,
    /// What the last look has found.
    pub now: LockQueues,
}

impl CycleCheck {
    /// Reads the locks, and again if the first read shows a cycle. Costs the same as [`deadlocks`].
    ///
    /// # Errors
    /// Same as [`deadlocks`].
    ///
    /// # Session loss
    /// Same as [`deadlocks`].
    ///
    /// # Cancel safety
    /// Same as [`deadlocks`].
    pub async fn at(client: &Client, below: &ZnodePath) -> Result<Self, Error> {
        let first = queues(client, below).await?;
        match WaitGraph::new(&first.queues).cycles().is_empty() {
            true => Ok(Self { earlier: None, now: first }),
            false => Ok(Self { now: queues(client, below).await?, earlier: Some(first) }),
        }
    }

    /// The circles of the graph of the last look that the first one shows too.
    pub fn cycles(&self, graph: &WaitGraph<'_>) -> Vec<WaitCycle> {
        let earlier = self.earlier.as_ref().map(|earlier| WaitGraph::new(&earlier.queues));
        earlier.map(|earlier| graph.cycles_since(&earlier)).unwrap_or_default()
    }
}

/// Waits for `acquire`, unless that would be for ever: gives it up if a wait of this client is part of a deadlock.
///
/// It looks after a second, and again after 2 s, 4 s and so on up to 30 s. Of the programs in a circle that do so, the
/// one gives up that came last; if that one does not look, another one does, two seconds later. Only locks at `below` and
/// below it count. Costs nothing for a wait of less than a second, and for each look what [`queues`] does. So name the
/// folder of the locks if the servers keep other things too.
///
/// All tasks of a client count as one program that does one thing at a time. If one of them holds what another
/// program waits for, while a second one waits for that program, it is taken for a deadlock: give such tasks clients
/// of their own.
///
/// # Errors
/// The deadlock. That a look fails is no error: the wait goes on.
///
/// # Session loss
/// Same as for `acquire`.
///
/// # Cancel safety
/// Same as for `acquire`, which is dropped when it is given up.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Mutex, ZnodePath, graph};
///
/// let lock = Mutex::new(&client, "/locks/orders")?;
/// let folder = ZnodePath::new("/locks")?;
/// let guard = graph::unless_deadlocked(&client, &folder, lock.acquire()).await??;
/// # guard.release().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
pub async fn unless_deadlocked<T>(
    client: &Client,
    below: &ZnodePath,
    acquire: impl Future<Output = T>,
) -> Result<T, Deadlock> {
    let mut acquire = pin!(acquire);
    tokio::select! {
        biased;
        acquired = &mut acquire => Ok(acquired),
        deadlock = own_deadlock(client, below) => Err(deadlock),
    }
}

/// Waits until this client is to leave the line because of a deadlock.
async fn own_deadlock(client: &Client, below: &ZnodePath) -> Deadlock {
    let (mut rest, mut seen) = (FIRST_CHECK, 0);
    loop {
        tokio::time::sleep(rest).await;
        rest = (rest * 2).min(MAX_CHECK_INTERVAL);
        let Ok(found) = deadlocks(client, below).await else { continue };
        let session = client.session_id();
        let own = found.into_iter().find(|deadlock| deadlock.waits_in(session));
        let Some(deadlock) = own else {
            seen = 0;
            continue;
        };
        seen += 1;
        // Another one may leave first, and is not waited for long.
        rest = FIRST_CHECK;
        if seen >= CHECKS_OF_OTHERS || deadlock.was_closed_by(session) {
            return deadlock;
        }
    }
}

impl Deadlock {
    /// What a circle of a graph is.
    pub fn of(graph: &WaitGraph<'_>, cycle: &WaitCycle) -> Self {
        let waits = cycle.steps.iter().map(|step| DeadlockWait {
            lock: graph.queues()[step.waiter.lock].path.clone(),
            waiter: DeadlockParty::of(graph.contender(step.waiter)),
            blocker: DeadlockParty::of(graph.contender(step.blocker)),
            because: step.because,
        });
        Self { waits: waits.collect(), is_certain: cycle.is_certain() }
    }

    fn waits_in(&self, session: SessionId) -> bool {
        self.waits.iter().any(|wait| wait.waiter.session == session)
    }

    /// Whether the contender of this session was the last to enter its line.
    fn was_closed_by(&self, session: SessionId) -> bool {
        let youngest = self.waits.iter().max_by_key(|wait| wait.waiter.token);
        youngest.is_some_and(|wait| wait.waiter.session == session)
    }
}

impl DeadlockParty {
    fn of(entry: &Entry) -> Self {
        let Entry { node, session, token, owner, .. } = entry.clone();
        Self { node, session, token, owner }
    }
}

impl std::error::Error for Deadlock {}

impl_failure!(
    /// `is_retryable`: the others in the circle may have gone on when it is asked for again.
    Deadlock { _ => (true, Outcome::NotApplied) }
);

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_certain { "deadlock: " } else { "deadlock, as it seems: " })?;
        for (index, DeadlockWait { lock, waiter, blocker, .. }) in self.waits.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{waiter} waits for {lock}, behind {blocker}")?;
        }
        Ok(())
    }
}

impl fmt::Display for DeadlockParty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => owner.fmt(f),
            None => write!(f, "session {}", self.session),
        }
    }
}
