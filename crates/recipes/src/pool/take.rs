//! How a thing is claimed, and how a program waits in line.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::{FutureExt as _, join_all, select_all};
use lockkeeper_client::{
    CreateMode, Created, ErrorCode, Stat, Transaction, TransactionError, Watcher, ZnodePath,
    present,
};
use lockkeeper_locks::AcquireError;
use lockkeeper_locks::for_recipes::{grant_owned, out_of_reach};

use crate::exact::{AttemptNode, WriteError};
use crate::pool::core::{KnownWaiters, PoolCore, PoolView, ThingSet};
use crate::pool::decide::{Decision, Known, Waiter, Wants, Watched, decide};
use crate::pool::error::PoolError;
use crate::pool::guard::PoolGuard;
use crate::pool::layout::{HeldData, WaiterData, waiter_prefix};
use crate::waits::{AbortOnDrop, connected_again};

/// The choices of a handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    /// The preferred things, in this order.
    pub(super) prefer: Vec<String>,
    /// The only things that it takes; `None` for any.
    pub(super) only: Option<Vec<String>>,
}

/// The result of a read of the pool.
enum ViewOutcome {
    Taken(PoolGuard),
    /// No thing is for this waiter until one of these changes.
    Nothing(BTreeSet<Watched>),
    /// The pool has changed since: read again.
    Stale,
    /// This waiter is no longer in line.
    NotInLine,
}

/// A step of a claim that may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimStep {
    /// No waiter has come, or the stored set has not changed.
    Unchanged,
    Thing,
    Place,
    Leaves,
}

impl PoolCore {
    /// Takes a thing; without `waits`, returns `None` if none is free now. Runs in its own task, because a caller
    /// that is not polled must not block the waiters behind it.
    pub(super) async fn take(
        self: &Arc<Self>,
        wish: &Arc<Wish>,
        waits: bool,
    ) -> Result<Option<PoolGuard>, PoolError> {
        self.ensure_wanted(wish)?;
        loop {
            let (core, wish) = (Arc::clone(self), Arc::clone(wish));
            let taking = async move {
                match waits {
                    true => core.take_waiting(&wish).await.map(Some),
                    false => core.take_now(&wish).await,
                }
            };
            let mut task = AbortOnDrop(self.client.tokio_runtime().spawn(taking));
            match (&mut task.0).await {
                // This caller, or the whole program, may have been suspended since the grant. A guard that is
                // already lost is not returned.
                Ok(Ok(Some(guard))) if !guard.is_held() => {}
                Ok(taken) => return taken,
                Err(error) if error.is_panic() => {
                    return Err(PoolError::Panicked { path: self.path().clone() });
                }
                // The task has ended with the client's runtime.
                Err(_) => {
                    let path = self.path().clone();
                    return Err(self.take_error(AcquireError::ClientClosed { path }));
                }
            }
        }
    }

    /// Fails if no thing can ever be taken.
    fn ensure_wanted(&self, wish: &Wish) -> Result<(), PoolError> {
        let (is_wanted, things) = match &self.set {
            ThingSet::Given(things) => {
                (things.iter().any(|thing| wish.allows(thing)), Some(things.clone()))
            }
            // Things may be added to the stored set later.
            ThingSet::Stored(_) => (wish.only.as_ref().is_none_or(|only| !only.is_empty()), None),
        };
        match is_wanted {
            true => Ok(()),
            false => Err(PoolError::NothingWanted {
                path: self.path().clone(),
                things,
                only: wish.only.clone().unwrap_or_default(),
            }),
        }
    }

    /// This program as a waiter in line.
    fn own(&self, wish: &Wish) -> Waiter {
        let wants = match &self.set {
            ThingSet::Given(things) => {
                let only = things.iter().filter(|thing| wish.allows(thing)).cloned().collect();
                Wants { stored: false, only: Some(only) }
            }
            ThingSet::Stored(_) => {
                let only = wish.only.as_ref().map(|only| only.iter().cloned().collect());
                Wants { stored: true, only }
            }
        };
        Waiter { wants, quota: self.quota.clone() }
    }

    async fn take_now(self: &Arc<Self>, wish: &Wish) -> Result<Option<PoolGuard>, PoolError> {
        let (own, mut known) = (self.own(wish), KnownWaiters::new());
        loop {
            // A lagging server may show things that are no longer held. Pipelined.
            let synced = self.client.sync(self.path());
            let (synced, view) = tokio::join!(biased; synced, self.view());
            if let Err(error) = synced {
                self.again(error).await?;
                continue;
            }
            let mut view = view?;
            let earlier = self.waiters(&view.line, &mut known).await?;
            match self.look(wish, &own, &mut view, &earlier, None).await? {
                ViewOutcome::Taken(guard) => return Ok(Some(guard)),
                ViewOutcome::Nothing(_) => return Ok(None),
                ViewOutcome::Stale | ViewOutcome::NotInLine => {}
            }
        }
    }

    async fn take_waiting(self: &Arc<Self>, wish: &Wish) -> Result<PoolGuard, PoolError> {
        let (own, mut known) = (self.own(wish), KnownWaiters::new());
        let mut view = self.view().await?;
        let earlier = self.waiters(&view.line, &mut known).await?;
        if let ViewOutcome::Taken(guard) = self.look(wish, &own, &mut view, &earlier, None).await? {
            return Ok(guard);
        }
        loop {
            if let Some(guard) = self.wait_in_line(wish, &own, &mut known).await? {
                return Ok(guard);
            }
        }
    }

    /// Enters the line and waits there; `None` if the position was lost.
    async fn wait_in_line(
        self: &Arc<Self>,
        wish: &Wish,
        own: &Waiter,
        known: &mut KnownWaiters,
    ) -> Result<Option<PoolGuard>, PoolError> {
        let (prefix, Some(mut entry)) = self.enter(own).await? else { return Ok(None) };
        let mut watches = PoolWatches::default();
        loop {
            let status = self.client.status();
            let mut view = self.view().await?;
            let place = view.line.iter().position(|node| node.starts_with(&prefix));
            // With its session, its node is gone, or will be.
            let Some(place) = place.filter(|_| self.client.session_id() == entry.session()) else {
                return Ok(None);
            };
            let own_node = self.nodes.waiter(&view.line[place]);
            entry.found(own_node.clone());

            let before = view.line[..place].to_vec();
            known.retain(|node, _| before.contains(node));
            let earlier = self.waiters(&before, known).await?;
            let watched =
                match self.look(wish, own, &mut view, &earlier, Some((&entry, &own_node))).await? {
                    ViewOutcome::Taken(guard) => {
                        entry.gone();
                        return Ok(Some(guard));
                    }
                    ViewOutcome::NotInLine => return Ok(None),
                    ViewOutcome::Stale => continue,
                    ViewOutcome::Nothing(watched) => watched,
                };

            // Positions are among the waiters that have not left since.
            let standing: Vec<_> = before
                .iter()
                .filter(|node| known.get(*node).is_some_and(Option::is_some))
                .collect();
            let nodes = watched.iter().map(|it| self.watched_node(it, &standing));
            let nodes: BTreeSet<_> = nodes.collect::<Result<_, _>>()?;
            // A change before the watch was set is found by another read.
            if watches.set(self, nodes).await? {
                continue;
            }
            tokio::select! {
                // A fixed order makes simulations reproducible.
                biased;
                () = watches.changed() => {}
                () = connected_again(status) => {}
                error = out_of_reach(&self.client, self.path()) => {
                    return Err(self.take_error(error));
                }
            }
        }
    }

    /// Goes to the end of the line. Returns the prefix of the own node's name; no node if the caller must start over.
    async fn enter(&self, own: &Waiter) -> Result<(String, Option<AttemptNode>), PoolError> {
        let line = &self.nodes.line;
        let prefix = waiter_prefix(self.client.unique_id());
        let node = line.child(&prefix).expect("hexadecimal digits");
        let data = WaiterData::written(&self.owner, &own.wants, own.quota.as_ref());
        let mut entry = AttemptNode::numbered(&self.client, line.clone(), prefix.clone());

        let mut writer = self.writers.take();
        // This refuses the claim of a program outside of the line that has not seen this waiter.
        let written = writer.commit(|steps| {
            let steps = steps.set_data(line, "", None);
            steps.create(&node, data.clone(), CreateMode::EphemeralSequential)
        });
        match written.await {
            Ok(applied) => {
                entry.made(&Stat::of_new(applied.zxid, writer.marked_session()));
                Ok((prefix, Some(entry)))
            }
            Err(error) => {
                self.not_written(error, &mut [&mut entry]).await?;
                Ok((prefix, None))
            }
        }
    }

    /// Takes the thing that is for this program, according to a new read of the pool. `place`: its node in line.
    async fn look(
        &self,
        wish: &Wish,
        own: &Waiter,
        view: &mut PoolView,
        earlier: &[Waiter],
        place: Option<(&AttemptNode, &ZnodePath)>,
    ) -> Result<ViewOutcome, PoolError> {
        let set = match &self.set {
            ThingSet::Given(things) => things,
            ThingSet::Stored(_) => &view.things,
        };
        let choices = wish.choices(set);
        loop {
            let known = Known { earlier, held: &view.held, stored: &view.stored };
            let (thing, number) = match decide(own, &choices, known) {
                Decision::Wait(watched) => return Ok(ViewOutcome::Nothing(watched)),
                Decision::Take { thing, place } => (thing, place),
            };
            match self.claim(&thing, number, view, place).await? {
                Ok(looked) => return Ok(looked),
                // Another program was faster.
                Err(ClaimStep::Place) => {
                    let holder = own.quota.iter().map(|quota| &quota.holder);
                    for holder in holder {
                        view.held.places.entry(holder.clone()).or_default().extend(number);
                    }
                }
                Err(_) => drop(view.held.things.insert(thing)),
            }
        }
    }

    /// Claims a thing, and leaves the line in the same transaction. The inner error is a step that another
    /// program made impossible.
    async fn claim(
        &self,
        thing: &str,
        number: Option<u32>,
        view: &PoolView,
        place: Option<(&AttemptNode, &ZnodePath)>,
    ) -> Result<Result<ViewOutcome, ClaimStep>, PoolError> {
        let (client, nodes) = (&self.client, &self.nodes);
        let node = nodes.thing(thing)?;
        let quota = self.quota.as_ref().zip(number);
        let share = quota.map(|(quota, number)| nodes.place(&quota.holder, number)).transpose()?;
        let data = HeldData::written(&self.owner, self.quota.as_ref(), client.unique_id());

        // Created before the request is sent, so that the nodes are deleted whatever its outcome.
        let mut own_thing = AttemptNode::named(client, node.clone(), data.clone());
        let mut own_share =
            share.as_ref().map(|share| AttemptNode::named(client, share.clone(), data.clone()));
        let stored = match self.set {
            ThingSet::Stored(_) => view.stored_version,
            ThingSet::Given(_) => None,
        };
        let unchanged = [
            // For a program in line, no other can come before it.
            place.is_none().then_some((&nodes.line, view.line_version)),
            stored.map(|version| (&nodes.things, version)),
        ];
        let unchanged: Vec<_> = unchanged.into_iter().flatten().collect();
        let kinds =
            std::iter::repeat_n(ClaimStep::Unchanged, unchanged.len()).chain([ClaimStep::Thing]);
        let kinds = kinds.chain(share.iter().map(|_| ClaimStep::Place));
        let kinds: Vec<_> = kinds.chain(place.map(|_| ClaimStep::Leaves)).collect();

        let mut writer = self.writers.take();
        let session = place.map(|(entry, _)| entry.session());
        let written = writer.commit_in(session, |steps: Transaction| {
            let check = |steps: Transaction, (node, version): &(&ZnodePath, i32)| {
                steps.check(node, Some(*version))
            };
            let steps = unchanged.iter().fold(steps, check);
            let create = |steps: Transaction, node: &ZnodePath| {
                steps.create(node, data.clone(), CreateMode::Ephemeral)
            };
            let steps = create(steps, &node);
            let steps = share.iter().fold(steps, create);
            place.iter().fold(steps, |steps, (_, own)| steps.delete(own, None))
        });

        let error = match written.await {
            Ok(applied) => {
                let stat = Stat::of_new(applied.zxid, writer.marked_session());
                own_share.iter_mut().for_each(|it| it.made(&stat));
                own_thing.gone();
                let created = Created { path: node, stat };
                return match grant_owned(client, self.path(), created, data).await {
                    Ok(guard) => Ok(Ok(ViewOutcome::Taken(PoolGuard::new(
                        thing.to_owned(),
                        guard,
                        own_share,
                    )))),
                    Err(AcquireError::SessionExpired { .. }) => Ok(Ok(ViewOutcome::NotInLine)),
                    Err(error) => Err(self.take_error(error)),
                };
            }
            Err(error) => error,
        };

        let mut made: Vec<_> = [&mut own_thing].into_iter().chain(&mut own_share).collect();
        let refused = self.not_written(error, &mut made).await?;
        Ok(match refused.and_then(|(index, code)| Some((*kinds.get(index)?, code))) {
            Some((step @ (ClaimStep::Thing | ClaimStep::Place), ErrorCode::NodeExists)) => {
                Err(step)
            }
            Some((ClaimStep::Leaves, _)) => Ok(ViewOutcome::NotInLine),
            // The session of a position in line may have ended, which the next read shows.
            _ => Ok(ViewOutcome::Stale),
        })
    }

    /// Evaluates a failed write: the step that was refused, because others were faster; `None` if the write is
    /// worth another try, with the next session if the last one has ended.
    async fn not_written(
        &self,
        error: WriteError,
        nodes: &mut [&mut AttemptNode],
    ) -> Result<Option<(usize, ErrorCode)>, PoolError> {
        // Otherwise they may have been created: the end of the session, or the cleanup, deletes them.
        if let WriteError::NotApplied(_) | WriteError::TooLong(_) = &error {
            nodes.iter_mut().for_each(|node| node.gone());
        }
        match error {
            WriteError::NotApplied(TransactionError::Failed {
                index,
                code: code @ (ErrorCode::NodeExists | ErrorCode::NoNode | ErrorCode::BadVersion),
                ..
            }) => Ok(Some((index, code))),
            WriteError::NotApplied(TransactionError::Request(error))
            | WriteError::Unknown(TransactionError::Request(error)) => {
                self.again(error).await.map(|()| None)
            }
            // Another client has deleted the outcome marker.
            WriteError::Unknown(TransactionError::Failed { .. }) => Ok(None),
            error => Err(PoolError::write(self.path(), error)),
        }
    }

    fn watched_node(
        &self,
        watched: &Watched,
        standing: &[&String],
    ) -> Result<(WatchKind, ZnodePath), PoolError> {
        let nodes = &self.nodes;
        Ok(match watched {
            Watched::Leaves(place) => (WatchKind::Data, nodes.waiter(standing[*place])),
            Watched::Thing(thing) => (WatchKind::Data, nodes.thing(thing)?),
            Watched::Held => (WatchKind::Children, nodes.held.clone()),
            Watched::Set => (WatchKind::Existence, nodes.things.clone()),
        })
    }
}

impl Wish {
    fn allows(&self, thing: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|it| it == thing))
    }

    /// The things that it would take of a set, the best first.
    fn choices(&self, set: &[String]) -> Vec<String> {
        let preferred = self.prefer.iter().filter(|thing| set.contains(thing));
        let others = set.iter().filter(|thing| !self.prefer.contains(thing));
        preferred.chain(others).filter(|thing| self.allows(thing)).cloned().collect()
    }
}

/// How a node is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WatchKind {
    Data,
    Children,
    /// Also if the node is missing.
    Existence,
}

/// The watches of a waiter.
#[derive(Default)]
struct PoolWatches(BTreeMap<(WatchKind, ZnodePath), Watcher>);

impl PoolWatches {
    /// Watches these nodes and no others. Returns whether one of them was not watched before.
    async fn set(
        &mut self,
        core: &PoolCore,
        nodes: BTreeSet<(WatchKind, ZnodePath)>,
    ) -> Result<bool, PoolError> {
        self.0.retain(|node, _| nodes.contains(node));
        let client = &core.client;
        let new = nodes.into_iter().filter(|node| !self.0.contains_key(node));
        // Pipelined.
        let new = new.map(|(sort, node)| async move {
            let watcher = match sort {
                WatchKind::Data => {
                    present(client.data_watched(&node).await).map(|it| it.map(|it| it.1))
                }
                WatchKind::Children => {
                    present(client.children_watched(&node).await).map(|it| it.map(|it| it.1))
                }
                WatchKind::Existence => client.exists_watched(&node).await.map(|it| Some(it.1)),
            };
            ((sort, node), watcher)
        });
        let new: Vec<_> = join_all(new).await;

        let is_new = !new.is_empty();
        for (node, watcher) in new {
            match watcher {
                // A missing node has changed.
                Ok(watcher) => self.0.extend(watcher.map(|watcher| (node, watcher))),
                Err(error) => core.again(error).await?,
            }
        }
        Ok(is_new)
    }

    /// Returns with the first event, or when the session has ended.
    async fn changed(&mut self) {
        let changes = self
            .0
            .iter_mut()
            .map(|(node, watcher)| watcher.changed().map(|_| node.clone()).boxed());
        let changed = match changes.len() {
            0 => std::future::pending().await,
            _ => select_all(changes).await.0,
        };
        self.0.remove(&changed);
    }
}
