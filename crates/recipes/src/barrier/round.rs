//! [`Round`]: a party that is inside. `Keeper` follows what becomes of the others.

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

/// How long a party that sees another one go waits before it looks why, at most: all may leave at once, and then the end
/// of the round is told without that.
const SETTLES: Duration = Duration::from_millis(200);

/// A party that is inside a round of a [`DoubleBarrier`](crate::DoubleBarrier). What it may believe and do is described at
/// [`Guard`]: the others do not see it die before [`Guard::deadline`], and [`Guard::lost`] tells when they may.
///
/// Dropping it without [leaving](Round::leave) is a death to the others: the work was not done.
#[must_use = "the party dies when it is dropped"]
pub struct Round {
    // Ended before the node goes.
    guard: Guard,
    party: PartyNode,
    core: Arc<BarrierCore>,
    number: u32,
    parties: Vec<PartyName>,
    seen: watch::Receiver<Seen>,
    keeper: Arc<KeeperHandle>,
}

/// What is known of a round.
#[derive(Clone, Debug, Default)]
struct Seen {
    died: Vec<String>,
    is_over: bool,
    error: Option<BarrierError>,
}

/// Ends the keeper when it is dropped.
struct KeeperHandle {
    task: AbortHandle,
    /// This party has left.
    left: Arc<Notify>,
}

impl Drop for KeeperHandle {
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
            let keeper = Keeper { core: of_keeper, number, own, tell, left: told, listed: None };
            keeper.keep(Followed::State(round, version, watcher)).await;
        };
        let task = core.client.tokio_runtime().spawn(keeper).abort_handle();
        let keeper = Arc::new(KeeperHandle { task, left });
        Self { guard, party, core, number, parties, seen, keeper }
    }

    /// The number of the round, from 0, among those of its barrier.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Who has entered, in the order in which they came.
    pub fn parties(&self) -> Vec<&str> {
        self.parties.iter().map(PartyName::name).collect()
    }

    /// Who else has died inside, as far as it is known here.
    pub fn died(&self) -> Vec<String> {
        self.seen.borrow().died.clone()
    }

    /// Returns when another party has died inside, with the names of all that have. Never if none does; whether this one is
    /// still inside, [`Guard::lost`] tells. Makes no request.
    ///
    /// # Session loss
    /// Goes on with the next session; this party has died, as [`Guard::lost`] tells.
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

    /// Leaves, and returns when all others have left or died, with the names of those who have died. Costs one round trip
    /// (1 write) and one event; the last one makes a write more.
    ///
    /// # Errors
    /// [`BarrierError::PartyDied`] as soon as somebody has died, unless deaths [are told](Deaths::AreTold): others may die
    /// later. [`BarrierError::Lost`] if this party was not inside any more; [`BarrierError::Unknown`] if the session ended, or
    /// no server could be reached for as long as it lasts, before that was known. Once it has left, no outage is an error.
    ///
    /// # Session loss
    /// Fails with [`BarrierError::Lost`]; if it has left, it goes on with the next session.
    ///
    /// # Cancel safety
    /// When dropped, it has left, or leaves in the background.
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
            // With the client's runtime.
            Err(_) => return Err(client_closed(path)),
        }

        let is_settled = |seen: &Seen| {
            let fails = core.deaths == Deaths::FailTheRound && !seen.died.is_empty();
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
            Seen { died, .. } if core.deaths == Deaths::FailTheRound && !died.is_empty() => {
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

/// A party on its way out.
struct Leaving {
    core: Arc<BarrierCore>,
    number: u32,
    guard: Guard,
    party: PartyNode,
    /// All of the round.
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
            // Its version counts who has left.
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

/// Follows a round for a party that is inside, or waits for the others to leave.
struct Keeper {
    core: Arc<BarrierCore>,
    number: u32,
    own: PartyName,
    tell: watch::Sender<Seen>,
    left: Arc<Notify>,
    /// Who was inside at the last look; `None` before that.
    listed: Option<HashSet<String>>,
}

/// A look at a round.
enum Followed {
    Over,
    State(RoundData, i32, Watcher),
}

impl Keeper {
    /// Each party watches the one that is next inside, in a ring. So one that dies is seen by whoever is before it, and
    /// who looks finds all that have.
    async fn keep(mut self, mut followed: Followed) {
        loop {
            let (round, version, mut watcher) = match followed {
                Followed::Over => {
                    self.tell.send_modify(|seen| seen.is_over = true);
                    return;
                }
                Followed::State(round, version, watcher) => (round, version, watcher),
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
                    followed = Followed::Over;
                    continue;
                }
                Ok(false) => {}
                Err(error) => return self.fail(error),
            }
            followed = loop {
                match self.look().await {
                    Ok(Ok(followed)) => break followed,
                    Ok(Err(error)) => return self.fail(error),
                    Err(error) if is_for_good(&error) => {
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

    async fn look(&self) -> Result<Result<Followed, BarrierError>, Error> {
        let directory = self.core.places.round(self.number);
        let found = present(self.core.client.data_watched(&directory).await)?;
        let Some(((data, stat), watcher)) = found else { return Ok(Ok(Followed::Over)) };
        Ok(self.core.read(&data).map(|state| match state {
            RoundState::Opened(round) => Followed::State(round, stat.version, watcher),
            RoundState::Waits => Followed::Over,
        }))
    }

    /// Returns when there is something to look at, or the round is over.
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
                Err(error) if is_for_good(&error) => {
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
                && let Some(is_over) = told_soon(watcher).await
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
            // One order, so that a simulation can be repeated.
            biased;
            event = watcher.changed() => {
                return Ok(is_end(event));
            }
            // Without anybody to watch, nothing else might be to come.
            () = self.left.notified(), if !watches_next => return Ok(false),
            () = next_goes => {}
        }
        Ok(told_soon(watcher).await.unwrap_or(false))
    }

    /// Looks who is inside, and writes down who has died, or that the round is over. Says whether there is something else
    /// to look at.
    async fn judge(&mut self, round: &RoundData, version: i32) -> Result<bool, BarrierError> {
        let core = Arc::clone(&self.core);
        let (client, places) = (&core.client, &core.places);
        let (directory, marks) = (places.round(self.number), places.left(self.number));

        let listings = vec![children_of(&directory), children_of(&marks)];
        let read = match client.multi_read(listings).await {
            Ok(read) => read,
            Err(error) if is_for_good(&error) => {
                return Err(BarrierError::read(&places.path, error));
            }
            Err(error) => {
                outlast(client, &error).await;
                return Ok(true);
            }
        };
        let mut names = read.into_iter().map(names_of);
        // Without its directory it is over.
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
                    // Somebody else was quicker.
                    Err(error) if error.code().is_some_and(is_of_another) => {}
                    Err(error) if is_for_good(&error) => {
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

/// That nothing is waited for any more.
fn client_closed(path: ZnodePath) -> BarrierError {
    BarrierError::enter(&path.clone(), AcquireError::ClientClosed { path })
}

/// Whether another party has written, or ended the round.
fn is_of_another(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::BadVersion | ErrorCode::NoNode)
}

/// Whether the round has ended, and nobody had died.
fn is_end(event: Result<WatchEvent, WatchLost>) -> bool {
    event.is_ok_and(|event| event.kind == EventKind::NodeDeleted)
}

/// Waits for a while after a party has gone. If the round's node changes, says whether that is the end of it.
async fn told_soon(watcher: &mut Watcher) -> Option<bool> {
    let settles = SETTLES.mul_f64(0.5 + fastrand::f64() / 2.0);
    tokio::select! {
        biased;
        event = watcher.changed() => Some(is_end(event)),
        () = tokio::time::sleep(settles) => None,
    }
}

/// Whether no later request can be answered otherwise.
fn is_for_good(error: &Error) -> bool {
    !error.is_retryable() && !error.is_session_expired()
}
