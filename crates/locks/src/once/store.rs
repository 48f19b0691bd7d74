//! The znodes with the records of a lock.

use std::time::Duration;

use lockkeeper_client::retry::{Backoff, retry_pause};
use lockkeeper_client::{
    Client, CreateMode, Error, ErrorCode, Stat, TransactionError, ZnodePath, present,
};

use crate::error::LossReason;
use crate::guard::Guard;
use crate::guard::state::HolderState;
use crate::once::error::OnceError;
use crate::once::key::{OnceKey, Tick};
use crate::once::record::{Floor, IfUnfinished, Written, surplus};

/// The largest number of requests in flight.
pub(super) const MAX_REQUESTS_IN_FLIGHT: usize = 256;

/// Access to the records of a lock.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) client: Client,
    pub(super) lock: ZnodePath,
    /// The node above the records.
    pub(super) path: ZnodePath,
    pub(super) options: Options,
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) if_unfinished: IfUnfinished,
    pub(super) keep: u32,
    pub(super) ahead: Duration,
    pub(super) label: Option<String>,
}

/// What was read before work is started.
pub(super) struct SeenRecord {
    pub(super) floor: Option<Tick>,
    /// The stat of the node above the records.
    pub(super) above: Stat,
    pub(super) record: Option<(Written, Stat)>,
    /// A time that the servers' clock has certainly reached, in milliseconds since 1970.
    pub(super) reached_ms: u64,
}

impl Store {
    /// Reads the records, and creates the node above them if it is missing.
    pub(super) async fn look(
        &self,
        guard: &Guard,
        node: &ZnodePath,
    ) -> Result<SeenRecord, OnceError> {
        let mut backoff = Backoff::default();
        loop {
            // All requests are sent together.
            let above = self.client.data(&self.path);
            let record = self.client.data(node);
            let own = self.client.stat(guard.node());
            let (above, record, own) = (above.await, record.await, own.await);

            let read =
                |()| -> Result<_, Error> { Ok((present(above)?, present(record)?, present(own)?)) };
            let (above, record, own) = match read(()) {
                Ok(read) => read,
                Err(error) => {
                    still_held(guard)?;
                    retry_pause(error).await?;
                    continue;
                }
            };
            let Some((floor, above)) = above else {
                let made = self.make_above().await.map_err(TransactionError::from);
                self.outlast(guard, made, &mut backoff).await?;
                continue;
            };

            let record = match record {
                None => None,
                Some((data, stat)) => {
                    let foreign = || OnceError::Foreign { node: node.clone() };
                    Some((Written::read(&data).ok_or_else(foreign)?, stat))
                }
            };
            let times = [Some(above.mtime), own.map(|stat| stat.ctime)];
            let reached = times.into_iter().flatten().max().unwrap_or_default();
            let reached_ms = u64::try_from(reached).unwrap_or_default();
            return Ok(SeenRecord {
                floor: self.read_floor(&floor)?.tick(),
                above,
                record,
                reached_ms,
            });
        }
    }

    async fn make_above(&self) -> Result<(), Error> {
        if let Some(parent) = self.path.parent() {
            self.client.ensure(&parent, CreateMode::Container).await?;
        }
        let made =
            self.client.create(&self.path, Floor::of(None).to_data(), CreateMode::Persistent);
        match made.await {
            Err(error) if error.code() != Some(ErrorCode::NodeExists) => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn read_floor(&self, data: &[u8]) -> Result<Floor, OnceError> {
        Floor::read(data).ok_or_else(|| OnceError::Foreign { node: self.path.clone() })
    }

    /// How far a tick is ahead of the servers' clock, if it is too far ahead.
    pub(super) fn ahead(&self, tick: Tick, seen: &SeenRecord) -> Option<Duration> {
        let by = Duration::from_millis(tick.unix_ms().saturating_sub(seen.reached_ms));
        (by > self.options.ahead).then_some(by)
    }

    /// Reads the servers' clock with a write that leaves the data unchanged.
    pub(super) async fn measure(
        &self,
        guard: &Guard,
        seen: &SeenRecord,
        backoff: &mut Backoff,
    ) -> Result<(), OnceError> {
        let (floor, version) = (Floor::of(seen.floor).to_data(), seen.above.version);
        let written = self.client.set_data(&self.path, floor, Some(version)).await;
        self.outlast(guard, written.map(drop).map_err(TransactionError::from), backoff).await
    }

    /// Returns when a failed write may be repeated after another read.
    pub(super) async fn outlast(
        &self,
        guard: &Guard,
        written: Result<(), TransactionError>,
        backoff: &mut Backoff,
    ) -> Result<(), OnceError> {
        let Err(error) = written else { return Ok(()) };
        still_held(guard)?;
        match error {
            TransactionError::Request(error) if error.is_session_expired() => {
                Err(lost(guard, LossReason::SessionExpired))
            }
            error if is_overtaken(&error) => {
                backoff.pause().await;
                Ok(())
            }
            TransactionError::Request(error) => {
                Ok(retry_pause(error).await.map_err(TransactionError::from)?)
            }
            error => Err(error.into()),
        }
    }

    /// The keys and paths of the records with these names.
    pub(super) fn nodes(&self, names: &[String]) -> Vec<(OnceKey, ZnodePath)> {
        let keys = names.iter().filter_map(|name| OnceKey::of(name));
        keys.filter_map(|key| key.node(&self.path).ok().map(|node| (key, node))).collect()
    }

    /// Deletes the oldest records beyond the kept number. Failed deletions are left to the next run.
    pub(super) async fn trim(&self, records: usize) -> Result<(), Error> {
        let keep = usize::try_from(self.options.keep).unwrap_or(usize::MAX);
        if records <= keep.saturating_add(keep / 8) {
            return Ok(());
        }
        let Some((names, _)) = present(self.client.children(&self.path).await)? else {
            return Ok(());
        };
        let found = self.nodes(&names);
        let mut dated = Vec::with_capacity(found.len());
        for found in found.chunks(MAX_REQUESTS_IN_FLIGHT) {
            let asked: Vec<_> = found.iter().map(|(_, node)| self.client.stat(node)).collect();
            for ((key, _), asked) in found.iter().zip(asked) {
                if let Some(stat) = present(asked.await)? {
                    dated.push((key.clone(), stat.czxid));
                }
            }
        }
        let old = surplus(dated, keep);
        for old in old.chunks(MAX_REQUESTS_IN_FLIGHT) {
            let nodes = old.iter().filter_map(|key| key.node(&self.path).ok());
            let asked: Vec<_> = nodes.map(|node| self.client.delete(&node, None)).collect();
            for asked in asked {
                present(asked.await)?;
            }
        }
        Ok(())
    }
}

/// Whether the error means that another client was faster, or that an earlier attempt of this one was applied.
fn is_overtaken(error: &TransactionError) -> bool {
    use ErrorCode::{BadVersion, NoNode, NodeExists};
    let code = match error {
        TransactionError::Request(error) => error.code(),
        TransactionError::Failed { code, .. } => Some(*code),
        _ => None,
    };
    matches!(code, Some(BadVersion | NoNode | NodeExists))
}

pub(super) fn still_held(guard: &Guard) -> Result<(), OnceError> {
    match guard.state() {
        HolderState::Lost(reason) => Err(lost(guard, reason)),
        _ => Ok(()),
    }
}

fn lost(guard: &Guard, reason: LossReason) -> OnceError {
    OnceError::Lost { path: guard.path().clone(), reason }
}
