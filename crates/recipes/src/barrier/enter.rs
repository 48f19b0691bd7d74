//! How a party comes into a round of a [`DoubleBarrier`](crate::DoubleBarrier), waits for the others, or gives up.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::retry::{pause, reachable};
use lockkeeper_client::{
    CreateMode, Created, ErrorCode, NameUse, OpResult, Stat, Transaction, TransactionError, Watcher,
};
use lockkeeper_locks::AcquireError;
use lockkeeper_locks::for_recipes::{grant, out_of_reach};
use tokio::time::Instant;

use crate::barrier::core::{BarrierCore, Look};
use crate::barrier::entry::PartyNode;
use crate::barrier::error::{BarrierError, Missing};
use crate::barrier::layout::{Parties, PartyName, RoundData, RoundState, prefix};
use crate::barrier::round::Round;
use crate::exact::WriteError;
use crate::exact::shared_write::lock;

/// How long a round that is complete may take to open before others than the last one that came open it.
const OPENS: Duration = Duration::from_millis(200);

/// What came of waiting.
enum Waited {
    /// The round has opened with this party: its data, the version of that, and a watch on it.
    Opened(RoundData, i32, Watcher),
    /// It has opened without it.
    WithoutUs,
    /// The party's node is gone, with its session or otherwise.
    Gone,
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
                Err(error) if until.is_some() && error.passes() && !self.client.is_closed() => {
                    let outlast = async {
                        reachable(&self.client).await;
                        pause().await;
                    };
                    if self.until(until, outlast).await.is_none() {
                        return Err(self.timed_out(self.parties.all_but(name)));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Comes into a round, and waits; `None` if that has to begin anew.
    async fn try_enter(
        self: &Arc<Self>,
        name: &str,
        until: Option<Instant>,
    ) -> Result<Option<Round>, BarrierError> {
        let number = match self.until(until, self.round()).await {
            Some(number) => number?,
            None => return Err(self.timed_out(self.parties.all_but(name))),
        };
        let directory = self.places.round(number);
        let own = prefix(name, self.client.unique_id())?;
        let mut party = PartyNode::new(&self.client, directory, own);
        let Some(look) = self.come(number, &mut party).await? else { return Ok(None) };

        let mut missing = self.parties.all_but(name);
        let waited = self.wait_in(number, &party, look, &mut missing);
        let waited = match self.until(until, waited).await {
            Some(waited) => waited?,
            None => match self.withdraw(number, &mut party).await? {
                Some(waited) => waited,
                None => return Err(self.timed_out(missing)),
            },
        };
        match waited {
            Waited::Opened(round, version, watcher) => {
                self.note_newest(number + 1);
                self.inside(number, party, (round, version, watcher)).await
            }
            Waited::WithoutUs => {
                self.note_newest(number + 1);
                Ok(None)
            }
            Waited::Gone => Ok(None),
        }
    }

    /// Creates the party's node, and looks at the round; `None` if that has to begin anew.
    async fn come(
        &self,
        number: u32,
        party: &mut PartyNode,
    ) -> Result<Option<Option<Look>>, BarrierError> {
        let directory = self.places.round(number);
        let node = directory.child(party.prefix()).expect("it was looked at before");
        let mut writer = self.writers.take();
        if let Err(error) = writer.prepare().await {
            return self.begin_anew(error).await;
        }

        // Sent in one go, and in this order: whoever comes last sees all the others.
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
                    // Others are further, or somebody has deleted the barrier.
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
        let created = applied.results.iter().flatten().find_map(|result| match result {
            OpResult::Create { path } | OpResult::Create2 { path, .. } => {
                path.rsplit_once('/').and_then(|(_, name)| PartyName::read(name))
            }
            _ => None,
        });
        let look = look.unwrap_or_default();
        let listed = || {
            let names = look.iter().flat_map(|(_, _, _, names)| names);
            names.filter_map(|name| PartyName::read(name)).find(|it| it.has_prefix(party.prefix()))
        };
        if let Some(name) = created.or_else(listed) {
            party.made(name, stat);
            return Ok(Some(look));
        }
        // The reply was lost, and with it the name.
        loop {
            match self.look(&directory, true).await {
                Ok(look) => {
                    let names = look.iter().flat_map(|(_, _, _, names)| names);
                    let mut names = names.filter_map(|name| PartyName::read(name));
                    let Some(name) = names.find(|it| it.has_prefix(party.prefix())) else {
                        return Ok(None);
                    };
                    party.made(name, stat);
                    return Ok(Some(look));
                }
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// Waits until the round has opened, and opens it if it is complete.
    async fn wait_in(
        self: &Arc<Self>,
        number: u32,
        party: &PartyNode,
        mut look: Option<Look>,
        missing: &mut Missing,
    ) -> Result<Waited, BarrierError> {
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
                    return Ok(Waited::Gone);
                }
                Err(error) => {
                    self.again(error).await?;
                    continue;
                }
            };
            // Its nodes are gone by then, or will be.
            if self.client.session_id() != party.session() {
                return Ok(Waited::Gone);
            }
            match self.read(&data)? {
                RoundState::Opened(round) if round.has(party.prefix()) => {
                    return Ok(Waited::Opened(round, stat.version, watcher));
                }
                RoundState::Opened(_) => return Ok(Waited::WithoutUs),
                RoundState::Waits if !lists => {
                    lists = true;
                    continue;
                }
                RoundState::Waits => {}
            }
            if !names.iter().any(|name| name.starts_with(party.prefix())) {
                // The first look may have come before the node.
                if was_before {
                    continue;
                }
                return Ok(Waited::Gone);
            }
            match self.parties.standing(&names) {
                Ok(parties) => {
                    // The one that came last opens it. If it does not, the others do.
                    let comes_last = parties.last().is_some_and(|it| it.has_prefix(party.prefix()));
                    let opens = tokio::time::timeout(OPENS, watcher.changed());
                    if comes_last || opens.await.is_err() {
                        self.open(number, parties).await?;
                    }
                    lists = false;
                    continue;
                }
                Err(those) => *missing = those,
            }
            tokio::select! {
                // One order, so that a simulation can be repeated.
                biased;
                // It is told that the round has opened, and needs no names then.
                _ = watcher.changed() => lists = false,
                error = out_of_reach(&self.client, &self.places.path) => {
                    return Err(BarrierError::enter(&self.places.path, error));
                }
            }
        }
    }

    /// Opens a round with these parties, unless one of them has gone, or it has opened. Returns when it is worth a look.
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
            Ok(applied) => {
                self.sweep_now_and_then(number, applied.at_unix_ms);
                Ok(())
            }
            Err(WriteError::NotApplied(TransactionError::Failed {
                code: ErrorCode::NoNode | ErrorCode::BadVersion,
                ..
            })) => Ok(()),
            Err(WriteError::NotApplied(TransactionError::Request(error))) => {
                self.again(error).await
            }
            // The session is over, or the look tells.
            Err(WriteError::Unknown(_)) => Ok(()),
            Err(error) => Err(BarrierError::write(&places.path, error)),
        }
    }

    /// Takes the party out of the round, unless that has opened; `None` if it is out.
    async fn withdraw(
        &self,
        number: u32,
        party: &mut PartyNode,
    ) -> Result<Option<Waited>, BarrierError> {
        let directory = self.places.round(number);
        let Some((name, _)) = party.created() else { return Ok(None) };
        let node = self.places.party(number, name);
        let session = party.session();
        let mut writer = self.writers.take();
        let withdrawn = writer
            .commit_in(Some(session), |steps| steps.check(&directory, Some(0)).delete(&node, None));
        match withdrawn.await {
            Ok(_) => {
                party.gone();
                return Ok(None);
            }
            Err(error) if error.refuses_first(&[ErrorCode::BadVersion]) => {}
            // It is gone.
            Err(WriteError::NotApplied(TransactionError::Failed { .. })) => return Ok(None),
            Err(
                WriteError::NotApplied(TransactionError::Request(error))
                | WriteError::Unknown(TransactionError::Request(error)),
            ) if error.is_session_expired() => return Ok(None),
            Err(WriteError::NotApplied(source)) => {
                return Err(BarrierError::Unknown { path: self.places.path.clone(), source });
            }
            Err(error) => return Err(BarrierError::write(&self.places.path, error)),
        }
        loop {
            match self.look(&directory, false).await {
                Ok(Some((data, stat, watcher, _))) => match self.read(&data)? {
                    RoundState::Opened(round) if round.has(party.prefix()) => {
                        let opened = Waited::Opened(round, stat.version, watcher);
                        return Ok(Some(opened));
                    }
                    _ => return Ok(None),
                },
                Ok(None) => return Ok(None),
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// A party that is inside; `None` if its session is over already.
    async fn inside(
        self: &Arc<Self>,
        number: u32,
        party: PartyNode,
        opened: (RoundData, i32, Watcher),
    ) -> Result<Option<Round>, BarrierError> {
        let Some((name, stat)) = party.created() else { return Ok(None) };
        let created = Created { path: self.places.party(number, name), stat };
        match grant(&self.client, &self.places.path, created, NameUse::Once).await {
            Ok(guard) => Ok(Some(Round::new(self, number, guard, party, opened))),
            Err(AcquireError::SessionExpired { .. }) => Ok(None),
            Err(error) => Err(BarrierError::enter(&self.places.path, error)),
        }
    }

    /// The same for a write of a party that comes: with the next session, if it was of the last.
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

    /// What comes of it before this time.
    async fn until<T>(&self, until: Option<Instant>, wait: impl Future<Output = T>) -> Option<T> {
        match until {
            Some(until) => tokio::time::timeout_at(until, wait).await.ok(),
            None => Some(wait.await),
        }
    }

    fn timed_out(&self, missing: Missing) -> BarrierError {
        BarrierError::TimedOut { path: self.places.path.clone(), missing }
    }
}
