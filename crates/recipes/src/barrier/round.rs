//! [`Round`]: a party that is inside. `RoundWatcher` watches the other parties.

use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::retry::{closed, outlast, pause};
use lockkeeper_client::{
    CreateMode, Error, ErrorCode, EventKind, OpResult, TransactionError, WatchEvent, WatchLost,
    Watcher, ZnodePath, present,
};
use lockkeeper_locks::for_recipes::found_missing;
use lockkeeper_locks::{AcquireError, Guard, LossReason};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::barrier::core::{BarrierCore, Deaths};
use crate::barrier::entry::PartyNode;
use crate::barrier::error::BarrierError;
use crate::barrier::layout::{PartyName, RoundData, RoundState};
use crate::exact::WriteError;
use crate::reads::{children_of, names_of};

/// Longest time for which a party whose neighbour's node is gone waits before it lists the round. If all parties
/// leave at once, the end of the round is reported without a listing.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// A party that is inside a round of a [`DoubleBarrier`](crate::DoubleBarrier). The rules of [`Guard`] apply: the
/// others do not see the party die before [`Guard::deadline`], and [`Guard::lost`] returns when they may.
///
/// Dropping it without [leaving](Round::leave) counts as a death: the work is unfinished.
#[must_use = "the party dies when it is dropped"]
pub struct Round {
    // Dropped before the node.
    guard: Guard,
    party: PartyNode,
    core: Arc<BarrierCore>,
    number: u32,
    parties: Vec<PartyName>,
    seen: watch::Receiver<Seen>,
    keeper: Arc<RoundWatcherHandle>,
}

/// What is known of a round.
#[derive(Clone, Debug, Default)]
struct Seen {
    died: Vec<String>,
    is_over: bool,
    error: Option<BarrierError>,
}

/// Stops the keeper when dropped.
struct RoundWatcherHandle {
    task: AbortHandle,
    /// This party has left.
    left: Arc<Notify>,
}

impl Drop for RoundWatcherHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Round {
    pub(super) fn new(
        core: &Arc<BarrierCore>,
        number: u32,
        guard: Guard,
        party: PartyNode,
        (round, version, watcher): (RoundData, i32, Watcher),
    ) -> Self {
        let (tell, seen) = watch::channel(Seen::default());
        let left = Arc::new(Notify::new());
        let own = party.created().map(|(name, _)| name.clone());
        let parties = round.parties.clone();
        let (core, of_keeper, told) = (Arc::clone(core), Arc::clone(core), Arc::clone(&left));
        let keeper = async move {
            let Some(own) = own else { return };
            let keeper =
                RoundWatcher { core: of_keeper, number, own, tell, left: told, listed: None };
            keeper.keep(RoundReading::State(round, version, watcher)).await;
        };
        let task = core.client.tokio_runtime().spawn(keeper).abort_handle();
        let keeper = Arc::new(RoundWatcherHandle { task, left });
        Self { guard, party, core, number, parties, seen, keeper }
    }

    /// The number of the round in its barrier, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The parties that have entered, in the order in which they came.
    pub fn parties(&self) -> Vec<&str> {
        self.parties.iter().map(PartyName::name).collect()
    }

    /// The other parties that have died inside, as far as known here.
    pub fn died(&self) -> Vec<String> {
        self.seen.borrow().died.clone()
    }

    /// Returns when another party has died inside, with the names of all that have. Never returns if none dies.
    /// [`Guard::lost`] returns when this party itself is no longer inside. Makes no request.
    ///
    /// # Session loss
    /// Continues with the next session; this party has died, and [`Guard::lost`] returns.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn failed(&self) -> Vec<String> {
        let mut seen = self.seen.clone();
        let died = seen.wait_for(|seen| !seen.died.is_empty()).await.map(|seen| seen.died.clone());
        match died {
            Ok(died) => died,
            Err(_) => std::future::pending().await,
        }
    }

    /// Leaves, and returns when all others have left or died, with the names of those that have died. Costs one
    /// round trip (1 write) and one event; the last party makes one more write.
    ///
    /// # Errors
    /// [`BarrierError::PartyDied`] as soon as a party has died, unless deaths [are reported](Deaths::Report):
    /// others may die later. [`BarrierError::Lost`] if this party was no longer inside; [`BarrierError::Unknown`]
    /// if the session ended, or no server could be reached for a session timeout, before the outcome was known.
    /// Once the party has left, no outage is an error.
    ///
    /// # Session loss
    /// Fails with [`BarrierError::Lost`]; once the party has left, continues with the next session.
    ///
    /// # Cancel safety
    /// When dropped, the party has left, or leaves in the background.
    pub async fn leave(self) -> Result<Vec<String>, BarrierError> {
        let Self { guard, party, core, number, parties, mut seen, keeper } = self;
        let path = core.places.path.clone();
        let leaving = Leaving { core: Arc::clone(&core), number, guard, party, parties };
        let (runtime, left) = (core.client.tokio_runtime().clone(), Arc::clone(&keeper.left));
        let left = runtime.spawn(async move {
            let left_now = leaving.leave().await;
            left.notify_one();
            left_now
        });
        match left.await {
            Ok(left) => left?,
            // On the client's runtime.
            Err(_) => return Err(client_closed(path)),
        }

        let is_settled = |seen: &Seen| {
            let fails = core.deaths == Deaths::FailRound && !seen.died.is_empty();
            seen.is_over || fails || seen.error.is_some()
        };
        let seen = tokio::select! {
            biased;
            seen = seen.wait_for(is_settled) => seen.map(|seen| seen.clone()).unwrap_or_default(),
            () = closed(&core.client) => return Err(client_closed(path)),
        };
        drop(keeper);
        match seen {
            Seen { error: Some(error), .. } => Err(error),
            Seen { died, .. } if core.deaths == Deaths::FailRound && !died.is_empty() => {
                Err(BarrierError::PartyDied { path, died })
            }
            Seen { died, .. } => Ok(died),
        }
    }
}

impl Deref for Round {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, number) = (&self.core.places.path, self.number);
        f.debug_struct("Round").field("path", path).field("number", &number).finish_non_exhaustive()
    }
}

/// A party that is leaving.
struct Leaving {
    core: Arc<BarrierCore>,
    number: u32,
    guard: Guard,
    party: PartyNode,
    /// All parties of the round.
    parties: Vec<PartyName>,
}

impl Leaving {
    async fn leave(self) -> Result<(), BarrierError> {
        let Self { core, number, guard, mut party, parties } = self;
        let places = &core.places;
        let Some((own, _)) = party.created() else { return Ok(()) };
        let (own, node) = (own.clone(), places.party(number, own));
        let (marks, mark) = (places.left(number), places.left_mark(number, &own));
        let lost = |reason| BarrierError::Lost {
            path: places.path.clone(),
            name: own.name().to_owned(),
            reason,
        };

        let mut writer = core.writers.take();
        let left = writer.commit_in(Some(guard.session()), |steps| {
            let steps = steps.delete(&node, None).create(&mark, "", CreateMode::Persistent);
            // The version of its data counts the parties that have left.
            steps.set_data(&marks, "", None)
        });
        let applied = match left.await {
            Ok(applied) => applied,
            Err(error) if error.refuses_first(&[ErrorCode::NoNode]) => {
                party.gone();
                return Err(lost(found_missing(&guard)));
            }
            Err(WriteError::NotApplied(TransactionError::Request(error)))
                if error.is_session_expired() =>
            {
                return Err(lost(LossReason::SessionExpired));
            }
            Err(error) => return Err(BarrierError::write(&places.path, error)),
        };
        party.gone();
        drop(guard);

        let version = applied.results.iter().flatten().find_map(|result| match result {
            OpResult::SetData(stat) => usize::try_from(stat.version).ok(),
            _ => None,
        });
        if version == Some(parties.len()) {
            core.end(number, &parties).await;
        }
        Ok(())
    }
}

/// Watches a round for a party that is inside or waits for the others to leave.
struct RoundWatcher {
    core: Arc<BarrierCore>,
    number: u32,
    own: PartyName,
    tell: watch::Sender<Seen>,
    left: Arc<Notify>,
    /// The parties that were inside at the last listing; `None` before that.
    listed: Option<HashSet<String>>,
}

/// One reading of a round.
enum RoundReading {
    Over,
    State(RoundData, i32, Watcher),
}

impl RoundWatcher {
    /// Each party watches the next one inside, in a ring. So each death is noticed by the party before it, which
    /// lists the round and finds all deaths.
    async fn keep(mut self, mut followed: RoundReading) {
        loop {
            let (round, version, mut watcher) = match followed {
                RoundReading::Over => {
                    self.tell.send_modify(|seen| seen.is_over = true);
                    return;
                }
                RoundReading::State(round, version, watcher) => (round, version, watcher),
            };
            self.tell.send_if_modified(|seen| {
                let died = round.names_of_died(&self.own);
                let is_news = seen.died != died || seen.is_over != round.is_over;
                (seen.died, seen.is_over) = (died, round.is_over);
                is_news
            });
            if round.is_over {
                return;
            }

            match self.follow(&round, version, &mut watcher).await {
                Ok(true) => {
                    followed = RoundReading::Over;
                    continue;
                }
                Ok(false) => {}
                Err(error) => return self.fail(error),
            }
            followed = loop {
                match self.look().await {
                    Ok(Ok(followed)) => break followed,
                    Ok(Err(error)) => return self.fail(error),
                    Err(error) if is_permanent(&error) => {
                        return self.fail(BarrierError::read(&self.core.places.path, error));
                    }
                    Err(error) => outlast(&self.core.client, &error).await,
                }
            };
        }
    }

    fn fail(&self, error: BarrierError) {
        self.tell.send_modify(|seen| seen.error = Some(error));
    }

    async fn look(&self) -> Result<Result<RoundReading, BarrierError>, Error> {
        let directory = self.core.places.round(self.number);
        let found = present(self.core.client.data_watched(&directory).await)?;
        let Some(((data, stat), watcher)) = found else { return Ok(Ok(RoundReading::Over)) };
        Ok(self.core.read(&data).map(|state| match state {
            RoundState::Opened(round) => RoundReading::State(round, stat.version, watcher),
            RoundState::Waits => RoundReading::Over,
        }))
    }

    /// Returns when the round is worth another read. Returns `true` if it is over.
    async fn follow(
        &mut self,
        round: &RoundData,
        version: i32,
        watcher: &mut Watcher,
    ) -> Result<bool, BarrierError> {
        let client = &self.core.client;
        let is_listed = |party: &PartyName| match &self.listed {
            Some(listed) => listed.contains(party.as_str()),
            None => !round.died.contains(party),
        };
        let next = round.next_inside(&self.own, is_listed);
        let next = next.map(|party| self.core.places.party(self.number, party));
        let mut next_watcher = match &next {
            Some(node) => match present(client.data_watched(node).await) {
                Ok(found) => found.map(|(_, watcher)| watcher),
                Err(error) if is_permanent(&error) => {
                    return Err(BarrierError::read(&self.core.places.path, error));
                }
                Err(error) => {
                    outlast(client, &error).await;
                    return Ok(false);
                }
            },
            None => None,
        };
        if next_watcher.is_none() {
            if next.is_some()
                && let Some(is_over) = changes_soon(watcher).await
            {
                return Ok(is_over);
            }
            if self.judge(round, version).await? {
                return Ok(false);
            }
        }
        let watches_next = next_watcher.is_some();

        let next_goes = async {
            match &mut next_watcher {
                Some(watcher) => drop(watcher.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A fixed order makes simulations reproducible.
            biased;
            event = watcher.changed() => {
                return Ok(is_end(event));
            }
            // With no party to watch, no other event might come.
            () = self.left.notified(), if !watches_next => return Ok(false),
            () = next_goes => {}
        }
        Ok(changes_soon(watcher).await.unwrap_or(false))
    }

    /// Lists the parties inside, and records those that have died, or the end of the round. Returns whether the
    /// round must be read again.
    async fn judge(&mut self, round: &RoundData, version: i32) -> Result<bool, BarrierError> {
        let core = Arc::clone(&self.core);
        let (client, places) = (&core.client, &core.places);
        let (directory, marks) = (places.round(self.number), places.left(self.number));

        let listings = vec![children_of(&directory), children_of(&marks)];
        let read = match client.multi_read(listings).await {
            Ok(read) => read,
            Err(error) if is_permanent(&error) => {
                return Err(BarrierError::read(&places.path, error));
            }
            Err(error) => {
                outlast(client, &error).await;
                return Ok(true);
            }
        };
        let mut names = read.into_iter().map(names_of);
        // Without its directory, the round is over.
        let (Some(present), Some(left)) = (names.next().flatten(), names.next().flatten()) else {
            pause().await;
            return Ok(true);
        };

        let judged = round.judged(&present, &left);
        self.listed = Some(present.into_iter().collect());
        match judged {
            Some(RoundData { is_over: true, ref died, ref parties }) if died.is_empty() => {
                if !core.end(self.number, parties).await {
                    pause().await;
                }
                Ok(true)
            }
            Some(judged) => {
                let written = client.set_data(&directory, judged.to_data(), Some(version)).await;
                match written {
                    Ok(_) => {}
                    // Another party was faster.
                    Err(error) if error.code().is_some_and(is_of_another) => {}
                    Err(error) if is_permanent(&error) => {
                        return Err(BarrierError::read(&places.path, error));
                    }
                    Err(error) => outlast(client, &error).await,
                }
                Ok(true)
            }
            None => {
                let listed = self.listed.as_ref();
                let is_inside =
                    |party: &PartyName| listed.is_some_and(|it| it.contains(party.as_str()));
                Ok(round.next_inside(&self.own, is_inside).is_some())
            }
        }
    }
}

/// The error of a wait that cannot continue because the client is closed.
fn client_closed(path: ZnodePath) -> BarrierError {
    BarrierError::enter(&path.clone(), AcquireError::ClientClosed { path })
}

/// Whether another party has written, or ended the round.
fn is_of_another(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::BadVersion | ErrorCode::NoNode)
}

/// Whether the round has ended without a death.
fn is_end(event: Result<WatchEvent, WatchLost>) -> bool {
    event.is_ok_and(|event| event.kind == EventKind::NodeDeleted)
}

/// Waits a short time after a party has gone. If the round's node changes, returns whether the round is over.
async fn changes_soon(watcher: &mut Watcher) -> Option<bool> {
    let settles = SETTLE_TIME.mul_f64(0.5 + fastrand::f64() / 2.0);
    tokio::select! {
        biased;
        event = watcher.changed() => Some(is_end(event)),
        () = tokio::time::sleep(settles) => None,
    }
}

/// Whether the error is permanent.
fn is_permanent(error: &Error) -> bool {
    !error.is_retryable() && !error.is_session_expired()
}
