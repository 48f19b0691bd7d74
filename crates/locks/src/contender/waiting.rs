//! How a contender waits: it watches the nodes that block it, and its own.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{ErrorCode, EventKind, Stat, WatchedReply, Watcher, ZnodePath};

use crate::attempt::{out_of_reach, retry_acquire};
use crate::contender::node::{Contender, Front};
use crate::contender::order::{Standing, WaitQueue};
use crate::contender::watches::{Watches, first_event, own_event};
use crate::error::AcquireError;

/// How long a contender that is not next waits before it also watches its own node. Its turn comes
/// with a listing, which shows that node, so only a long wait needs the watch. The watch can cost a
/// contended lock a fifth of its hand-offs (`docs/decisions/0011-own-watch.md`).
const OWN_WATCH_AFTER: Duration = Duration::from_millis(250);

/// How often nodes of idle locks are deleted for one listing: those that appear again are in use.
const MAX_CLEARINGS: u32 = 8;

/// When a waiting contender watches its own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnWatch {
    /// From the start: for a contender that may hold without another listing, or needs the news at once.
    AtOnce,
    /// After [`OWN_WATCH_AFTER`].
    Late,
}

impl Contender {
    /// Waits until no contender ahead blocks this one, and keeps `queue` up to date. Costs one round
    /// trip and an event, for a watch on the closest one ahead, and a listing if there were more. The
    /// next contender watches its own node in the same round trip, others do so later, for one more.
    /// A contender ahead that gives up its place costs the same again.
    pub(crate) async fn wait_in(&self, queue: &mut WaitQueue) -> Result<Front, AcquireError> {
        let mut watches = Watches::default();
        loop {
            match queue.standing(self.name().unwrap_or_default()) {
                Standing::Held if watches.keep_own() || !queue.has_changed() => {
                    return Ok(Front { own: watches.own });
                }
                Standing::Gone => return Err(self.deleted()),
                Standing::WaitOn(names) => {
                    let own = match queue.is_next(self.name().unwrap_or_default(), &names) {
                        true => OwnWatch::AtOnce,
                        false => OwnWatch::Late,
                    };

                    for gone in self.outwait(names, own, &mut watches).await? {
                        queue.remove(&gone);
                    }
                }
                // `Held` without a watch on its own node: that may be gone as well.
                Standing::Held | Standing::ListAgain => {
                    let permits = queue.permits();
                    *queue = self.list().await?;
                    queue.set_permits(permits);
                }
            }
        }
    }

    /// Lists the queue again, over lost connections. Deletes nodes of idle locks in it.
    pub(crate) async fn list(&self) -> Result<WaitQueue, AcquireError> {
        let mut clearings = 0;
        loop {
            let listing = match self.client().children(self.path()).await {
                Ok(listing) => listing,
                Err(error) if error.code() == Some(ErrorCode::NoNode) => return Err(self.deleted()),
                Err(error) => {
                    retry_acquire(self.path(), error).await?;
                    continue;
                }
            };

            match self.read_queue(listing) {
                Err(AcquireError::Foreign { names, .. })
                    if clearings < MAX_CLEARINGS && self.clear(&names).await =>
                {
                    clearings += 1;
                }
                queue => return queue,
            }
        }
    }

    /// Waits until one of these nodes is gone. Watches stay for the next time.
    pub(crate) async fn outwait(
        &self,
        names: Vec<String>,
        own_watch: OwnWatch,
        watches: &mut Watches,
    ) -> Result<Vec<String>, AcquireError> {
        watches.ahead.retain(|(name, _)| names.contains(name));
        let gone = self.watch_all(names, own_watch, watches).await?;
        if !gone.is_empty() {
            return Ok(gone);
        }

        let mut long = pin!(tokio::time::sleep(OWN_WATCH_AFTER));
        loop {
            let Watches { own, ahead } = watches;
            let is_watched = own.is_some();

            tokio::select! {
                // One order, so that a simulation can be repeated; bad news first.
                biased;
                event = own_event(own) => match event.map_err(|_| self.session_ended())?.kind {
                    EventKind::NodeDeleted => return Err(self.told_deleted().await),
                    _ => watches.own = Some(self.watch_own().await?),
                },
                (index, event) = first_event(ahead) => {
                    let event = event.map_err(|_| self.session_ended())?;
                    let (name, watcher) = ahead.swap_remove(index);
                    drop(watcher);
                    if event.kind == EventKind::NodeDeleted {
                        return Ok(vec![name]);
                    }
                    let gone = self.watch_all(vec![name], own_watch, watches).await?;
                    if !gone.is_empty() {
                        return Ok(gone);
                    }
                }
                error = out_of_reach(self.client(), self.path()) => return Err(error),
                () = &mut long, if !is_watched => watches.own = Some(self.watch_own().await?),
            }
        }
    }

    /// Watches those of the nodes that are not watched yet, and perhaps the own one, in one round
    /// trip. Returns those that are gone already. Refuses to wait for a node that no program
    /// may ever delete.
    async fn watch_all(
        &self,
        names: Vec<String>,
        own_watch: OwnWatch,
        watches: &mut Watches,
    ) -> Result<Vec<String>, AcquireError> {
        let mut asked = Vec::new();
        for name in names {
            if watches.ahead.iter().all(|(watched, _)| *watched != name) {
                let node = self.path().child(&name).map_err(|_| self.deleted())?;
                let reply = self.client().data_watched(&node);
                asked.push((name, node, reply));
            }
        }

        if own_watch == OwnWatch::AtOnce && watches.own.is_none() {
            watches.own = Some(self.watch_own().await?);
        }

        let mut gone = Vec::new();
        for (name, node, reply) in asked {
            match self.watch(&node, reply).await? {
                Some(((_, stat), _)) if !self.profile().is_contender(&stat) => {
                    return Err(AcquireError::NotEphemeral { path: self.path().clone(), node });
                }
                Some((_, watcher)) => watches.ahead.push((name, watcher)),
                None => gone.push(name),
            }
        }
        Ok(gone)
    }

    /// Watches the own node, to notice its deletion by another client.
    async fn watch_own(&self) -> Result<Watcher, AcquireError> {
        let node = &self.node().ok_or_else(|| self.deleted())?.path;
        let watched = self.watch(node, self.client().data_watched(node)).await?;
        watched.map(|(_, watcher)| watcher).ok_or_else(|| self.deleted())
    }

    /// A node and a watch on it, over lost connections; `None` if it does not exist.
    ///
    /// Uses getData and not exists, which would leave a watch on a node that is gone already.
    pub(crate) async fn watch(
        &self,
        node: &ZnodePath,
        mut asked: WatchedReply<(Bytes, Stat)>,
    ) -> Result<Option<((Bytes, Stat), Watcher)>, AcquireError> {
        loop {
            match asked.await {
                Ok(found) => return Ok(Some(found)),
                Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(None),
                Err(error) => {
                    retry_acquire(self.path(), error).await?;
                    asked = self.client().data_watched(node);
                }
            }
        }
    }
}
