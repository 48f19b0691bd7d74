//! [`PoolReport`]: the holders and the waiters of a pool.

use std::collections::BTreeSet;

use lockkeeper_client::{ReadResult, SessionId};
use lockkeeper_locks::{FencingToken, OwnerInfo};

use crate::pool::core::{PoolCore, ThingSet};
use crate::pool::error::PoolError;
use crate::pool::layout::{HeldData, WaiterData};
use crate::reads::data_of;

/// What a [`Pool`](crate::Pool) was like, by a look at it. It may have changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolReport {
    /// The things of the set that are free, in its order.
    pub free: Vec<String>,
    /// The things that are held, by their names. They may have been removed from the set.
    pub held: Vec<HeldThing>,
    /// The waiters, in their order.
    pub waiting: Vec<WaitingForThing>,
}

/// A thing that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldThing {
    /// The name of the thing.
    pub name: String,
    /// The holder that [a limit](crate::PoolBuilder::at_most) names.
    pub holder: Option<String>,
    /// What its program says about itself; `None` if a program of another kind created the node.
    pub info: Option<OwnerInfo>,
    /// Its token.
    pub token: FencingToken,
    /// Since when it is held, in milliseconds since 1970 by the clock of the servers.
    pub since_unix_ms: u64,
    /// The session of its holder. [`SessionId::NONE`] if the node was created by hand: the thing is out of use until that
    /// node is deleted.
    pub session: SessionId,
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingForThing {
    /// The holder that [a limit](crate::PoolBuilder::at_most) names.
    pub holder: Option<String>,
    /// What it takes; `None`: anything of the stored set.
    pub only: Option<BTreeSet<String>>,
    /// What its program says about itself.
    pub info: OwnerInfo,
    /// When it began to wait, in milliseconds since 1970 by the clock of the servers.
    pub since_unix_ms: u64,
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
            let since_unix_ms = u64::try_from(stat.ctime).unwrap_or_default();
            match held.get(index) {
                Some(name) => report.held.push(HeldThing {
                    name: (*name).clone(),
                    holder: HeldData::read(&data).and_then(|it| it.holder),
                    info: OwnerInfo::from_data(&data),
                    token: FencingToken::new(stat.czxid),
                    since_unix_ms,
                    session: stat.ephemeral_owner,
                }),
                None => {
                    report.waiting.extend(WaiterData::read(&data).ok().map(|it| WaitingForThing {
                        holder: it.holder,
                        only: it.only,
                        info: it.info,
                        since_unix_ms,
                    }))
                }
            }
        }
        Ok(report)
    }
}
