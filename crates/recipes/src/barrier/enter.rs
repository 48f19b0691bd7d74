//! How a party enters a round of a [`DoubleBarrier`](crate::DoubleBarrier): it comes, waits for the others, or
//! times out.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::retry::retry_anywhere;
use lockkeeper_client::{
    CreateMode, Created, Error, ErrorCode, NameUse, Stat, Transaction, TransactionError, Watcher,
};
use lockkeeper_locks::for_recipes::{grant, out_of_reach};
use lockkeeper_locks::{AcquireError, LossReason};
use tokio::time::Instant;

use crate::barrier::core::{BarrierCore, RoundListing};
use crate::barrier::entry::PartyNode;
use crate::barrier::error::{BarrierError, Missing};
use crate::barrier::layout::{Parties, PartyName, RoundData, RoundState, prefix};
use crate::barrier::requests::outlast;
use crate::barrier::round::Round;
use crate::exact::shared_write::lock;
use crate::exact::{WriteError, created_name};

/// How long the party that came last has to open a complete round before the other parties open it.
const OPEN_TIME: Duration = Duration::from_millis(200);

/// The outcome of a wait.
enum WaitOutcome {
    /// The round has opened with this party: the data of its node, the data's version, and a watch.
    Opened(RoundData, i32, Watcher),
    /// The round has opened without this party.
    WithoutUs,
    /// The party's node is gone: its session has ended, or the node was deleted.
    Gone,
}

/// The outcome of a withdrawal.
enum WithdrawOutcome {
    /// The party has withdrawn. The names of the parties that wait, if they could be read.
    Yes(Option<Vec<String>>),
    /// The round had already opened.
    No(WaitOutcome),
}

impl BarrierCore {
    pub(super) async fn enter(
        self: &Arc<Self>,
        name: &str,
        until: Option<Instant>,
    ) -> Result<Round, BarrierError> {
        if let Parties::Names(names) = &self.parties
            && !names.iter().any(|it| it == name)
        {
            let (path, name) = (self.places.path.clone(), name.to_owned());
            return Err(BarrierError::NotDeclared { path, name, parties: names.clone() });
        }
        loop {
            match self.try_enter(name, until).await {
                Ok(Some(round)) => return Ok(round),
                Ok(None) => {}
                Err(error) if until.is_some() => {
                    match self.until(until, outlast(&self.client, error)).await {
                        Some(outlasted) => outlasted?,
                        None => return Err(self.timed_out(None, name)),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Enters a round and waits; `None` if the caller must start over.
    async fn try_enter(
        self: &Arc<Self>,
        name: &str,
        until: Option<Instant>,
    ) -> Result<Option<Round>, BarrierError> {
        let number = match self.until(until, self.round()).await {
            Some(number) => number?,
            None => return Err(self.timed_out(None, name)),
        };
        let directory = self.places.round(number);
        let own = prefix(name, &self.parties, self.client.unique_id())?;
        let mut party = PartyNode::new(&self.client, directory, own);
        let is_patient = until.is_some();
        let Some(mut look) = self.come(number, &mut party, is_patient).await? else {
            return Ok(None);
        };

        let waited = async {
            loop {
                match self.wait_in(number, &party, look.take()).await {
                    // The party's node may exist, and the round may open with it.
                    Err(error) if is_patient => outlast(&self.client, error).await?,
                    waited => return waited,
                }
            }
        };
        let waited = match self.until(until, waited).await {
            Some(waited) => waited?,
            None => match self.withdraw(number, &mut party).await? {
                WithdrawOutcome::No(waited) => waited,
                WithdrawOutcome::Yes(names) => return Err(self.timed_out(names, name)),
            },
        };
        match waited {
            WaitOutcome::Opened(round, version, watcher) => {
                self.note_newest(number + 1);
                self.inside(number, party, (round, version, watcher), until).await
            }
            WaitOutcome::WithoutUs => {
                self.note_newest(number + 1);
                Ok(None)
            }
            WaitOutcome::Gone => Ok(None),
        }
    }

    /// Creates the party's node and reads the round; `None` if the caller must start over. `is_patient`: retries
    /// through an outage of any length.
    async fn come(
        &self,
        number: u32,
        party: &mut PartyNode,
        is_patient: bool,
    ) -> Result<Option<Option<RoundListing>>, BarrierError> {
        let directory = self.places.round(number);
        let node = directory.child(party.prefix()).expect("checked by `prefix`");
        let mut writer = self.writers.take();
        if let Err(error) = writer.prepare().await {
            return self.begin_anew(error).await;
        }

        // Pipelined in this order: the party that comes last sees all the others.
        party.sent();
        let (written, look) = {
            let steps = |steps: Transaction| {
                let steps = steps.check(&directory, Some(0));
                steps.create(&node, self.owner.clone(), CreateMode::EphemeralSequential)
            };
            tokio::join!(biased; writer.commit(steps), self.look(&directory, true))
        };
        let applied = match written {
            Ok(applied) => applied,
            Err(error) => {
                if matches!(error, WriteError::NotApplied(_)) {
                    party.gone();
                }
                return match error {
                    error if error.refuses_first(&[ErrorCode::BadVersion]) => {
                        self.note_newest(number + 1);
                        Ok(None)
                    }
                    // Other parties are in a later round, or the barrier was deleted.
                    WriteError::NotApplied(TransactionError::Failed {
                        code: ErrorCode::NoNode,
                        ..
                    }) => {
                        *lock(&self.newest) = None;
                        Ok(None)
                    }
                    error => self.begin_anew(error).await,
                };
            }
        };

        let stat = Stat::of_new(applied.zxid, writer.marked_session());
        let created = applied.results.iter().flatten().filter_map(created_name);
        let created = created.filter_map(PartyName::read).next();
        let look = look.unwrap_or_default();
        if let Some(name) = created.or_else(|| listed(&look, party.prefix())) {
            party.made(name, stat);
            return Ok(Some(look));
        }

        // The reply was lost, and the name with it.
        loop {
            match self.look(&directory, true).await {
                Ok(look) => {
                    let Some(name) = listed(&look, party.prefix()) else { return Ok(None) };
                    party.made(name, stat);
                    return Ok(Some(look));
                }
                Err(error) if is_patient => self.outlast_read(error).await?,
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// Waits until the round has opened. Opens it if it is complete.
    async fn wait_in(
        self: &Arc<Self>,
        number: u32,
        party: &PartyNode,
        mut look: Option<RoundListing>,
    ) -> Result<WaitOutcome, BarrierError> {
        let directory = self.places.round(number);
        let mut lists = true;
        loop {
            let was_before = look.is_some();
            let looked = match look.take() {
                Some(look) => Ok(Some(look)),
                None => self.look(&directory, lists).await,
            };
            let (data, stat, mut watcher, names) = match looked {
                Ok(Some(look)) => look,
                Ok(None) => {
                    *lock(&self.newest) = None;
                    return Ok(WaitOutcome::Gone);
                }
                Err(error) => {
                    self.again(error).await?;
                    continue;
                }
            };

            // The party's nodes are gone by then, or will be.
            if self.client.session_id() != party.session() {
                return Ok(WaitOutcome::Gone);
            }
            match self.read(&data)? {
                RoundState::Opened(round) if round.has(party.prefix()) => {
                    return Ok(WaitOutcome::Opened(round, stat.version, watcher));
                }
                RoundState::Opened(_) => return Ok(WaitOutcome::WithoutUs),
                RoundState::Waits if !lists => {
                    lists = true;
                    continue;
                }
                RoundState::Waits => {}
            }

            if !names.iter().any(|name| name.starts_with(party.prefix())) {
                // The first read may be older than the node.
                if was_before {
                    continue;
                }
                return Ok(WaitOutcome::Gone);
            }

            if let Ok(parties) = self.parties.standing(&names) {
                // The party that came last opens the round. If it does not, the others do.
                let comes_last = parties.last().is_some_and(|it| it.has_prefix(party.prefix()));
                let opens = tokio::time::timeout(OPEN_TIME, watcher.changed());
                if comes_last || opens.await.is_err() {
                    self.open(number, parties).await?;
                }
                lists = false;
                continue;
            }

            tokio::select! {
                // A fixed order makes simulations reproducible.
                biased;
                // The event reports the opening, and names are not needed then.
                _ = watcher.changed() => lists = false,
                error = out_of_reach(&self.client, &self.places.path) => {
                    return Err(BarrierError::enter(&self.places.path, error));
                }
            }
        }
    }

    /// Opens a round with these parties, unless one of them is gone or the round is open. Returns when the round
    /// is worth another read.
    async fn open(
        self: &Arc<Self>,
        number: u32,
        parties: Vec<PartyName>,
    ) -> Result<(), BarrierError> {
        let places = &self.places;
        let nodes: Vec<_> = parties.iter().map(|party| places.party(number, party)).collect();
        let data = RoundData::opening(parties).to_data();
        let (directory, next) = (places.round(number), places.round(number + 1));
        let left = places.left(number);
        let mut writer = self.writers.take();
        let opened = writer.commit(|steps| {
            let steps = nodes.iter().fold(steps, |steps, node| steps.check(node, None));
            let steps = steps.set_data(&directory, data.clone(), Some(0));
            let steps = steps.create(&next, "", CreateMode::Persistent);
            steps.create(&left, "", CreateMode::Persistent)
        });
        match opened.await {
            Ok(_) => {
                self.sweep_periodically(number);
                Ok(())
            }
            Err(WriteError::NotApplied(TransactionError::Failed {
                code: ErrorCode::NoNode | ErrorCode::BadVersion,
                ..
            })) => Ok(()),
            Err(WriteError::NotApplied(TransactionError::Request(error))) => {
                self.again(error).await
            }
            // The session has ended, or the next read shows the result.
            Err(WriteError::Unknown(_)) => Ok(()),
            Err(error) => Err(BarrierError::write(&places.path, error)),
        }
    }

    /// Takes the party out of the round, unless the round has opened.
    ///
    /// # Errors
    /// [`BarrierError::Unknown`] if the outcome is unknown; [`BarrierError::Lost`] if the party was inside and
    /// has died.
    async fn withdraw(
        &self,
        number: u32,
        party: &mut PartyNode,
    ) -> Result<WithdrawOutcome, BarrierError> {
        let directory = self.places.round(number);
        let Some((name, _)) = party.created() else { return Ok(WithdrawOutcome::Yes(None)) };
        let node = self.places.party(number, name);
        let session = party.session();

        let mut writer = self.writers.take();
        let steps = |steps: Transaction| steps.check(&directory, Some(0)).delete(&node, None);
        // Pipelined.
        let withdrawn = tokio::join!(
            biased;
            writer.commit_in(Some(session), steps),
            self.client.children(&directory)
        );
        let is_lost = match withdrawn {
            (Ok(_), names) => {
                party.gone();
                return Ok(WithdrawOutcome::Yes(names.ok().map(|(names, _)| names)));
            }
            (Err(error), _) if error.refuses_first(&[ErrorCode::BadVersion]) => false,
            // The party is out already.
            (Err(WriteError::NotApplied(TransactionError::Failed { .. })), names) => {
                return Ok(WithdrawOutcome::Yes(names.ok().map(|(names, _)| names)));
            }
            // The node is deleted with the session, and the party may have been inside.
            (
                Err(
                    WriteError::NotApplied(TransactionError::Request(error))
                    | WriteError::Unknown(TransactionError::Request(error)),
                ),
                _,
            ) if error.is_session_expired() => true,
            (Err(WriteError::NotApplied(source) | WriteError::Unknown(source)), _) => {
                return Err(self.unknown(source));
            }
            (Err(error), _) => return Err(BarrierError::write(&self.places.path, error)),
        };

        loop {
            match self.look(&directory, true).await {
                Ok(Some((data, stat, watcher, names))) => match self.read(&data)? {
                    RoundState::Opened(round) if round.has(party.prefix()) => {
                        if is_lost {
                            return Err(self.died(name));
                        }
                        return Ok(WithdrawOutcome::No(WaitOutcome::Opened(
                            round,
                            stat.version,
                            watcher,
                        )));
                    }
                    RoundState::Opened(_) => return Ok(WithdrawOutcome::Yes(None)),
                    RoundState::Waits => return Ok(WithdrawOutcome::Yes(Some(names))),
                },
                Ok(None) => return Ok(WithdrawOutcome::Yes(None)),
                Err(error) => match retry_anywhere(error).await {
                    Ok(()) => {}
                    Err(error) => return Err(self.unknown(TransactionError::Request(error))),
                },
            }
        }
    }

    /// The [`Round`] of a party that is inside; `None` if its session has ended and there is time to enter again.
    async fn inside(
        self: &Arc<Self>,
        number: u32,
        party: PartyNode,
        opened: (RoundData, i32, Watcher),
        until: Option<Instant>,
    ) -> Result<Option<Round>, BarrierError> {
        let path = &self.places.path;
        let Some((name, stat)) = party.created() else { return Ok(None) };
        loop {
            let created = Created { path: self.places.party(number, name), stat };
            let error = match grant(&self.client, path, created, NameUse::Once).await {
                Ok(guard) => return Ok(Some(Round::new(self, number, guard, party, opened))),
                Err(AcquireError::SessionExpired { .. }) => {
                    return match until {
                        Some(until) if Instant::now() >= until => Err(self.died(name)),
                        _ => Ok(None),
                    };
                }
                Err(error) => BarrierError::enter(path, error),
            };
            match until {
                // The party has entered, no matter how long the answer takes.
                Some(_) => outlast(&self.client, error).await?,
                None => return Err(error),
            }
        }
    }

    /// The error of a party that has entered and whose session ended before it learned of that.
    fn died(&self, party: &PartyName) -> BarrierError {
        let (path, name) = (self.places.path.clone(), party.name().to_owned());
        BarrierError::Lost { path, name, reason: LossReason::SessionExpired }
    }

    fn unknown(&self, source: TransactionError) -> BarrierError {
        BarrierError::Unknown { path: self.places.path.clone(), source }
    }

    async fn outlast_read(&self, error: Error) -> Result<(), BarrierError> {
        match self.again(error).await {
            Err(error) => outlast(&self.client, error).await,
            again => again,
        }
    }

    /// Like `again`, for a write of a party that enters: continues with the next session if the
    /// last one has ended.
    async fn begin_anew<T>(&self, error: WriteError) -> Result<Option<T>, BarrierError> {
        match error {
            WriteError::NotApplied(TransactionError::Request(error)) => {
                self.again(error).await.map(|()| None)
            }
            WriteError::Unknown(TransactionError::Request(error)) if error.is_session_expired() => {
                Ok(None)
            }
            error => Err(BarrierError::write(&self.places.path, error)),
        }
    }

    /// Runs a future until this time.
    async fn until<T>(&self, until: Option<Instant>, wait: impl Future<Output = T>) -> Option<T> {
        match until {
            Some(until) => tokio::time::timeout_at(until, wait).await.ok(),
            None => Some(wait.await),
        }
    }

    /// `names`: the parties that wait, if a server could be asked.
    fn timed_out(&self, names: Option<Vec<String>>, own: &str) -> BarrierError {
        let (missing, others) = match names {
            None => (Missing::Unknown, Vec::new()),
            Some(names) => (self.parties.missing(&names, own), self.parties.others(&names)),
        };
        BarrierError::TimedOut { path: self.places.path.clone(), missing, others }
    }
}

/// The party whose node has this prefix, if the listing has it.
fn listed(look: &Option<RoundListing>, prefix: &str) -> Option<PartyName> {
    let names = look.iter().flat_map(|(_, _, _, names)| names);
    names.filter_map(|name| PartyName::read(name)).find(|party| party.has_prefix(prefix))
}
