//! A waiting contender watches the nodes that block it, and its own node.

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
/// with a listing, which shows that node, so only a long wait needs the watch. The watch can reduce the
/// hand-offs of a contended lock by a fifth (`docs/decisions/0011-own-watch.md`).
const OWN_WATCH_AFTER: Duration = Duration::from_millis(250);

/// How often nodes of idle locks are deleted for one listing. Nodes that appear again are in use.
const MAX_CLEARINGS: u32 = 8;

/// When a waiting contender watches its own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnWatch {
    /// From the start: for a contender that may hold without another listing, or must learn of a deletion at once.
    AtOnce,
    /// After [`OWN_WATCH_AFTER`].
    Late,
}

impl Contender {
    /// Waits until no contender ahead blocks this one, and keeps `queue` up to date. Costs one round
    /// trip and an event for the watch on the closest contender ahead, and a listing if there were more ahead. The
    /// next contender watches its own node in the same round trip. Others do so later, for one more round trip.
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
                // With `Held` but without a watch on its own node, that node may be gone as well.
                Standing::Held | Standing::ListAgain => {
                    let permits = queue.permits();
                    *queue = self.list().await?;
                    queue.set_permits(permits);
                }
            }
        }
    }

    /// Lists the queue again, and retries after lost connections. Deletes nodes of idle locks in it.
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

    /// Waits until one of these nodes is gone. The other watches are kept for the next call.
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
                // A fixed order makes simulations repeatable. Failures come first.
                biased;
                event = own_event(own) => match event.map_err(|_| self.session_ended())?.kind {
                    EventKind::NodeDeleted => return Err(self.deleted_by_event().await),
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

    /// Watches the nodes that are not watched yet, and the own node if requested, in one round
    /// trip. Returns the nodes that are already gone. Fails for a node that may never
    /// be deleted.
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

    /// Watches the contender's own node, to notice its deletion by another client.
    async fn watch_own(&self) -> Result<Watcher, AcquireError> {
        let node = &self.node().ok_or_else(|| self.deleted())?.path;
        let watched = self.watch(node, self.client().data_watched(node)).await?;
        watched.map(|(_, watcher)| watcher).ok_or_else(|| self.deleted())
    }

    /// Reads a node and sets a watch on it, and retries after lost connections; `None` if it does not exist.
    ///
    /// Uses getData and not exists, which would leave a watch on a node that is already gone.
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
