//! State shared by the clones of a [`Pool`](crate::Pool): its location, and how it is read and created.

use std::collections::{BTreeSet, HashMap};

use lockkeeper_client::retry::retry_anywhere;
use lockkeeper_client::{
    Client, CreateMode, Error, ErrorCode, ReadResult, SessionId, Stat, TransactionError, ZnodePath,
    present,
};
use lockkeeper_locks::{AcquireError, OwnerInfo};

use crate::exact::Writers;
use crate::pool::decide::{HeldNow, Quota, Waiter};
use crate::pool::error::PoolError;
use crate::pool::layout::{PoolNodes, WaiterData, read_held, read_things, sort_line};
use crate::reads::{children_of, data_of};
use crate::values::Shared;

/// The number of waiters that one request reads.
const WAITERS_PER_READ: usize = 256;

/// State shared by the clones of a handle.
#[derive(Debug)]
pub(super) struct PoolCore {
    pub(super) client: Client,
    pub(super) nodes: PoolNodes,
    pub(super) set: ThingSet,
    pub(super) quota: Option<Quota>,
    pub(super) owner: OwnerInfo,
    pub(super) writers: Writers,
}

/// The set of things.
#[derive(Debug)]
pub(super) enum ThingSet {
    /// Given by the program, in this order.
    Given(Vec<String>),
    /// Stored in the pool.
    Stored(Shared<Vec<String>>),
}

/// A reading of a pool at one moment.
#[derive(Debug)]
pub(super) struct PoolView {
    /// The nodes of the waiters, in their order.
    pub(super) line: Vec<String>,
    pub(super) line_version: i32,
    pub(super) held: HeldNow,
    /// The stored set, in its order.
    pub(super) things: Vec<String>,
    /// The stored set, for lookups.
    pub(super) stored: BTreeSet<String>,
    /// The version of the stored set; `None` if nothing is stored.
    pub(super) stored_version: Option<i32>,
}

/// The waiters that were read, by their nodes; `None` for a waiter that had left.
pub(super) type KnownWaiters = HashMap<String, Option<Waiter>>;

impl PoolCore {
    pub(super) fn path(&self) -> &ZnodePath {
        &self.nodes.path
    }

    /// Reads the whole pool at one moment. Creates a missing one.
    pub(super) async fn view(&self) -> Result<PoolView, PoolError> {
        let PoolNodes { path, held, line, things } = &self.nodes;
        loop {
            let ops = [data_of(path), data_of(line), children_of(line), children_of(held)];
            let ops = ops.into_iter().chain([data_of(things)]).collect();
            let answers = match self.client.multi_read(ops).await {
                Ok(answers) => answers,
                Err(error) => {
                    self.again(error).await?;
                    continue;
                }
            };

            let mut answers = answers.into_iter();
            let mut next = || answers.next().unwrap_or(ReadResult::Error(ErrorCode::NoNode));
            let read = (next(), next(), next(), next(), next());
            match read {
                (
                    ReadResult::Data { data: mark, .. },
                    ReadResult::Data { stat, .. },
                    ReadResult::Children(mut waiting),
                    ReadResult::Children(nodes),
                    stored,
                ) => {
                    PoolNodes::ensure_mark(&mark).map_err(|found| foreign(path, found))?;
                    sort_line(&mut waiting).map_err(|node| foreign(line, node))?;
                    let held = read_held(&nodes).map_err(|node| foreign(held, node))?;
                    let (names, version) = match stored {
                        ReadResult::Data { data, stat } => {
                            let read = read_things(&data);
                            (read.map_err(|found| foreign(things, found))?, Some(stat.version))
                        }
                        _ => (Vec::new(), None),
                    };
                    return Ok(PoolView {
                        line: waiting,
                        line_version: stat.version,
                        held,
                        stored: names.iter().cloned().collect(),
                        things: names,
                        stored_version: version,
                    });
                }
                (ReadResult::Data { data, stat }, ..) => {
                    if !is_unused(&data, &stat) {
                        PoolNodes::ensure_mark(&data).map_err(|found| foreign(path, found))?;
                    }
                    // It is unused, or is being deleted.
                    self.make().await?;
                }
                _ => self.make().await?,
            }
        }
    }

    /// The waiters of a line that have not left.
    pub(super) async fn waiters(
        &self,
        line: &[String],
        known: &mut KnownWaiters,
    ) -> Result<Vec<Waiter>, PoolError> {
        let unknown: Vec<_> = line.iter().filter(|it| !known.contains_key(*it)).cloned().collect();
        for some in unknown.chunks(WAITERS_PER_READ) {
            let answers = loop {
                let ops = some.iter().map(|node| data_of(&self.nodes.waiter(node))).collect();
                match self.client.multi_read(ops).await {
                    Ok(answers) => break answers,
                    Err(error) => self.again(error).await?,
                }
            };
            for (node, answer) in some.iter().zip(answers) {
                let waiter = match answer {
                    ReadResult::Data { data, .. } => {
                        let read = WaiterData::read(&data);
                        let read = read.map_err(|found| foreign(&self.nodes.waiter(node), found));
                        Some(read?.waiter())
                    }
                    _ => None,
                };
                known.insert(node.clone(), waiter);
            }
        }
        Ok(line.iter().filter_map(|node| known.get(node).cloned().flatten()).collect())
    }

    /// Creates the nodes of the pool, unless another program is faster.
    async fn make(&self) -> Result<(), PoolError> {
        let PoolNodes { path, held, line, .. } = &self.nodes;
        let steps =
            self.client.transaction().create(path, PoolNodes::mark(), CreateMode::Persistent);
        let steps = [held, line]
            .into_iter()
            .fold(steps, |steps, node| steps.create(node, "", CreateMode::Persistent));
        match steps.commit().await {
            Ok(_) => Ok(()),
            Err(TransactionError::Failed { code: ErrorCode::NodeExists, .. }) => {
                match present(self.client.data(path).await) {
                    Ok(Some((data, stat))) if is_unused(&data, &stat) => {
                        self.mark(stat.version).await
                    }
                    Ok(Some((data, _))) => {
                        PoolNodes::ensure_mark(&data).map_err(|found| foreign(path, found))?;
                        self.complete().await
                    }
                    Ok(None) => Ok(()),
                    Err(error) => self.again(error).await,
                }
            }
            Err(TransactionError::Failed { code: ErrorCode::NoNode, .. }) => {
                let Some(parent) = path.parent() else { return Ok(()) };
                match self.client.ensure(&parent, CreateMode::Container).await {
                    Ok(()) => Ok(()),
                    Err(error) => self.again(error).await,
                }
            }
            Err(TransactionError::Request(error)) => self.again(error).await,
            Err(source) => Err(PoolError::Refused { path: path.clone(), source }),
        }
    }

    /// Turns an unused node with this version into a pool, unless another program is faster. The node keeps its
    /// access control list.
    async fn mark(&self, version: i32) -> Result<(), PoolError> {
        let PoolNodes { path, held, line, .. } = &self.nodes;
        let steps = self.client.transaction().set_data(path, PoolNodes::mark(), Some(version));
        let steps = [held, line]
            .into_iter()
            .fold(steps, |steps, node| steps.create(node, "", CreateMode::Persistent));
        match steps.commit().await {
            Ok(_) => Ok(()),
            // The next read shows its new state.
            Err(TransactionError::Failed {
                code: ErrorCode::BadVersion | ErrorCode::NoNode | ErrorCode::NodeExists,
                ..
            }) => Ok(()),
            Err(TransactionError::Request(error)) => self.again(error).await,
            Err(source) => Err(PoolError::Refused { path: path.clone(), source }),
        }
    }

    /// Creates the nodes below the pool's node that were deleted.
    async fn complete(&self) -> Result<(), PoolError> {
        for node in [&self.nodes.held, &self.nodes.line] {
            match self.client.create(node, "", CreateMode::Persistent).await {
                Ok(_) => {}
                Err(error)
                    if matches!(error.code(), Some(ErrorCode::NodeExists | ErrorCode::NoNode)) => {}
                Err(error) => self.again(error).await?,
            }
        }
        Ok(())
    }

    /// Returns when a failed request may be repeated, with the next session if the last one has ended.
    pub(super) async fn again(&self, error: Error) -> Result<(), PoolError> {
        let failed = |source| PoolError::Client { path: self.path().clone(), source };
        retry_anywhere(error).await.map_err(failed)
    }

    pub(super) fn take_error(&self, source: AcquireError) -> PoolError {
        PoolError::Take { path: self.path().clone(), source }
    }
}

/// Whether a node has neither data nor children, such as that of a lock after its last holder, until servers
/// delete it. A closed barrier never had children.
fn is_unused(data: &[u8], stat: &Stat) -> bool {
    let had_children = stat.cversion > 0;
    had_children
        && data.is_empty()
        && stat.num_children == 0
        && stat.ephemeral_owner == SessionId::NONE
}

fn foreign(path: &ZnodePath, found: String) -> PoolError {
    PoolError::Foreign { path: path.clone(), found }
}
