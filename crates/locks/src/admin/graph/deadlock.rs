//! Deadlocks on real servers: finding one, and leaving the queue to end one.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use lockkeeper_client::{Client, Error, Outcome, SessionId, ZnodePath, impl_failure};

use crate::admin::graph::step::{Because, WaitCycle};
use crate::admin::graph::wait_graph::WaitGraph;
use crate::admin::inspect::{Entry, LockQueues, queues};
use crate::owner_info::OwnerInfo;
use crate::token::FencingToken;

/// How long a wait lasts before the first check for a deadlock. Most waits are shorter.
const FIRST_CHECK: Duration = Duration::from_secs(1);

/// The longest time from one check to the next.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// A contender that did not close the cycle leaves if this many checks have found the cycle.
const CHECKS_OF_OTHERS: u32 = 3;

/// Programs that wait for each other's locks in a cycle.
///
/// Displayed as in `deadlock: backup (pid 7 on db1) waits for /locks/b, behind sync (pid 9 on db1); …`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// The waits of the cycle. Each waits for the next, and the last for the first.
    pub waits: Vec<DeadlockWait>,
    /// Whether every step is certain: see [`WaitCycle::is_certain`].
    pub is_certain: bool,
}

/// A wait that is part of a [`Deadlock`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockWait {
    /// The contended lock.
    pub lock: ZnodePath,
    /// The waiting contender.
    pub waiter: DeadlockParty,
    /// The contender ahead of it, which stays until the next contender in the cycle has had its turn.
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
    /// The program and host, if a Lockkeeper program wrote them.
    pub owner: Option<OwnerInfo>,
}

/// Finds the deadlocks among the locks at a path and below it: the cycles that two reads show. Costs the same as
/// [`queues`], or twice that if there is a cycle.
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

/// The queues of the locks at a path and below it, read a second time if the first read shows a cycle. Queues
/// are not all read at one moment, so a single read can show a cycle that never existed.
#[derive(Debug)]
#[non_exhaustive]
pub struct CycleCheck {
    /// The result of the first read, if it showed a cycle.
    earlier: Option<LockQueues>,
    /// The result of the last read.
    pub now: LockQueues,
}

impl CycleCheck {
    /// Reads the queues, and reads them again if there is a cycle. Costs the same as [`deadlocks`].
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

    /// The cycles in `graph`, the graph of the last read, that the first read shows too.
    pub fn cycles(&self, graph: &WaitGraph<'_>) -> Vec<WaitCycle> {
        let earlier = self.earlier.as_ref().map(|earlier| WaitGraph::new(&earlier.queues));
        earlier.map(|earlier| graph.cycles_since(&earlier)).unwrap_or_default()
    }
}

/// Waits for `acquire`, but gives it up if a wait of this client is part of a deadlock.
///
/// It checks after one second, then after 2 s, 4 s and so on, up to every 30 s. Of the programs in a cycle that
/// check, the one that entered its queue last gives up. If that program does not check, another one gives up two
/// seconds later. Only locks at `below` and below it are read. Costs nothing for a wait of less than a second. Each
/// check costs the same as [`queues`]. If the servers also keep other data, pass the parent node of the locks.
///
/// All tasks of a client count as one program that does one thing at a time. If one task holds a lock that another
/// program waits for, and a second task waits for that program, this counts as a deadlock. Give such tasks separate
/// clients.
///
/// # Errors
/// The deadlock. A check that fails is not an error; the wait continues.
///
/// # Session loss
/// Same as for `acquire`.
///
/// # Cancel safety
/// Same as for `acquire`. On a deadlock, `acquire` is dropped.
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

/// Waits until this client has to leave the queue because of a deadlock.
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
        // Another contender may leave first. The wait for that is short.
        rest = FIRST_CHECK;
        if seen >= CHECKS_OF_OTHERS || deadlock.was_closed_by(session) {
            return deadlock;
        }
    }
}

impl Deadlock {
    /// The deadlock that a cycle of a graph shows.
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

    /// Whether the contender of this session was the last to enter its queue.
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
    /// `is_retryable`: the others in the cycle may have made progress by the next attempt.
    Deadlock { _ => (true, Outcome::NotApplied) }
);

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_certain { "deadlock: " } else { "possible deadlock: " })?;
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
