//! [`PoolReport`]: the holders and the waiters of a pool.

use std::collections::BTreeSet;

use lockkeeper_client::{ReadResult, SessionId, Stat, ZnodePath};
use lockkeeper_locks::inspect::KnownTree;
use lockkeeper_locks::{FencingToken, OwnerInfo};

use crate::pool::core::{PoolCore, ThingSet};
use crate::pool::error::PoolError;
use crate::pool::layout::{HeldData, PoolNodes, WaiterData, read_held, read_things, sort_line};
use crate::reads::data_of;

/// The state of a [`Pool`](crate::Pool) when it was read. It may have changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolReport {
    /// The things of the set that are free, in its order.
    pub free: Vec<String>,
    /// The held things, by name. They may have been removed from the set.
    pub held: Vec<HeldThing>,
    /// The waiters, in their order.
    pub waiting: Vec<PoolWaiter>,
}

/// A held thing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldThing {
    /// The name of the thing.
    pub name: String,
    /// The holder that [a limit](crate::PoolBuilder::at_most) names.
    pub holder: Option<String>,
    /// The program that holds it; `None` if another kind of program created the node.
    pub info: Option<OwnerInfo>,
    /// Its token.
    pub token: FencingToken,
    /// Since when it is held, in milliseconds since 1970 by the clock of the servers.
    pub since_unix_ms: u64,
    /// The session of its holder. [`SessionId::NONE`] if the node was created by hand: the thing is out of use
    /// until that node is deleted.
    pub session: SessionId,
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolWaiter {
    /// The holder that [a limit](crate::PoolBuilder::at_most) names.
    pub holder: Option<String>,
    /// The things that it takes; `None` for any of the stored set.
    pub only: Option<BTreeSet<String>>,
    /// The program that waits.
    pub info: OwnerInfo,
    /// When it began to wait, in milliseconds since 1970 by the clock of the servers.
    pub since_unix_ms: u64,
    /// Its session.
    pub session: SessionId,
}

impl PoolReport {
    /// The pool at a path in a tree that is known already; `None` if there is none. [`PoolReport::free`] has the things
    /// of a stored set: those of a set that programs were given are not in the tree. No I/O.
    pub fn in_tree(tree: &impl KnownTree, path: &ZnodePath) -> Option<Self> {
        let (mark, _) = tree.node(path.as_str())?;
        PoolNodes::ensure_mark(&mark).ok()?;
        let nodes = PoolNodes::new(path.clone());
        let mut line = tree.children(nodes.line.as_str());
        sort_line(&mut line).ok()?;
        let held = read_held(&tree.children(nodes.held.as_str())).ok()?.things;

        let stored = tree.node(nodes.things.as_str());
        let stored = stored.and_then(|(data, _)| read_things(&data).ok()).unwrap_or_default();
        let free = stored.into_iter().filter(|name| !held.contains(name)).collect();
        let mut report = Self { free, ..Self::default() };
        for name in held {
            let Some((data, stat)) = tree.node(nodes.thing(&name).ok()?.as_str()) else { continue };
            report.held.push(HeldThing::new(name, &data, &stat));
        }
        let waiters = line.iter().filter_map(|node| tree.node(nodes.waiter(node).as_str()));
        report.waiting =
            waiters.filter_map(|(data, stat)| PoolWaiter::read(&data, &stat)).collect();
        Some(report)
    }
}

impl HeldThing {
    fn new(name: String, data: &[u8], stat: &Stat) -> Self {
        Self {
            name,
            holder: HeldData::read(data).and_then(|it| it.holder),
            info: OwnerInfo::from_data(data),
            token: FencingToken::new(stat.czxid),
            since_unix_ms: u64::try_from(stat.ctime).unwrap_or_default(),
            session: stat.ephemeral_owner,
        }
    }
}

impl PoolWaiter {
    fn read(data: &[u8], stat: &Stat) -> Option<Self> {
        let WaiterData { holder, only, info, .. } = WaiterData::read(data).ok()?;
        let since_unix_ms = u64::try_from(stat.ctime).unwrap_or_default();
        Some(Self { holder, only, info, since_unix_ms, session: stat.ephemeral_owner })
    }
}

impl PoolCore {
    pub(super) async fn report(&self) -> Result<PoolReport, PoolError> {
        let view = self.view().await?;
        let held: Vec<_> = view.held.things.iter().collect();
        let held_nodes: Vec<_> =
            held.iter().map(|name| self.nodes.thing(name)).collect::<Result<_, _>>()?;
        let waiting = view.line.iter().map(|node| self.nodes.waiter(node));
        let answers = loop {
            let nodes = held_nodes.iter().cloned().chain(waiting.clone());
            match self.client.multi_read(nodes.map(|node| data_of(&node)).collect()).await {
                Ok(answers) => break answers,
                Err(error) => self.again(error).await?,
            }
        };

        let set = match &self.set {
            ThingSet::Given(things) => things,
            ThingSet::Stored(_) => &view.things,
        };
        let free = set.iter().filter(|name| !view.held.things.contains(*name)).cloned().collect();
        let mut report = PoolReport { free, ..PoolReport::default() };
        for (index, answer) in answers.into_iter().enumerate() {
            // The others were given back, or have left, since the first read.
            let ReadResult::Data { data, stat } = answer else { continue };
            match held.get(index) {
                Some(name) => report.held.push(HeldThing::new((*name).clone(), &data, &stat)),
                None => report.waiting.extend(PoolWaiter::read(&data, &stat)),
            }
        }
        Ok(report)
    }
}
