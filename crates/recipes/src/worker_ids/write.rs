//! Reading and writing reservations.

use std::sync::Weak;

use lockkeeper_client::retry::retry_pause;
use lockkeeper_client::{
    Client, CreateMode, Error, ErrorCode, OpResult, Stat, TransactionError, ZnodePath, present,
};
use lockkeeper_locks::{HolderState, NameClaim};

use crate::worker_ids::error::WorkerIdError;
use crate::worker_ids::reservation::ReservationData;

/// The number of steps before the one on the reservation: the check that the claim exists.
const CHECKS: usize = 1;

/// A reservation that was read. Only the holder of the number writes it.
#[derive(Clone, Debug)]
pub(super) struct LastReservation {
    pub(super) reservation: ReservationData,
    pub(super) version: i32,
    /// When it was written, in milliseconds since 1970 by the servers' clock.
    pub(super) at_unix_ms: u64,
}

impl LastReservation {
    /// # Errors
    /// [`WorkerIdError::Foreign`].
    pub(super) fn new(node: &ZnodePath, data: &[u8], stat: &Stat) -> Result<Self, WorkerIdError> {
        let foreign = || WorkerIdError::Foreign { node: node.clone() };
        let reservation = ReservationData::read(data).ok_or_else(foreign)?;
        Ok(Self { reservation, version: stat.version, at_unix_ms: unix_ms(stat.mtime) })
    }
}

pub(super) fn unix_ms(time: i64) -> u64 {
    u64::try_from(time).unwrap_or_default()
}

/// A reservation that this program has written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Confirmed {
    pub(super) until_unix_ms: u64,
    pub(super) version: i32,
    /// As in [`LastReservation`]; `None` if no answer has the time.
    pub(super) at_unix_ms: Option<u64>,
}

/// Why a reservation was not written, or not confirmed.
#[derive(Debug)]
pub(super) enum ReserveFailure {
    /// The number is lost.
    Lost,
    /// Another program has written it, or another client has deleted it.
    Overtaken(Option<LastReservation>),
    Failed(WorkerIdError),
}

impl From<WorkerIdError> for ReserveFailure {
    fn from(error: WorkerIdError) -> Self {
        Self::Failed(error)
    }
}

/// Writes the reservations of a number.
#[derive(Clone, Debug)]
pub(super) struct ReservationWriter {
    pub(super) client: Client,
    pub(super) node: ZnodePath,
    pub(super) claim: Weak<NameClaim>,
    /// A unique id, by which an own write is recognised after a lost reply.
    pub(super) by: String,
}

impl ReservationWriter {
    /// Reserves until then, over the reservation with this version, or as the first one. A write of an earlier call
    /// whose reply was lost counts too.
    pub(super) async fn write(
        &self,
        version: Option<i32>,
        until_unix_ms: u64,
    ) -> Result<Confirmed, ReserveFailure> {
        let data = ReservationData::new(until_unix_ms, &self.by).data();
        loop {
            let Some(claim) = self.claim.upgrade() else { return Err(ReserveFailure::Lost) };
            if let HolderState::Lost(_) = claim.state() {
                return Err(ReserveFailure::Lost);
            }
            let steps = claim.transaction();
            // Its owner may give it back at the same time.
            drop(claim);
            let steps = match version {
                Some(version) => steps.set_data(&self.node, data.clone(), Some(version)),
                None => steps.create(&self.node, data.clone(), CreateMode::Persistent),
            };

            match steps.commit().await {
                Ok(results) => return Ok(written(until_unix_ms, &results)),
                Err(TransactionError::Failed { index: 0, code: ErrorCode::NoNode, .. }) => {
                    return Err(ReserveFailure::Lost);
                }
                Err(TransactionError::Failed { index: CHECKS, code, .. })
                    if code == ErrorCode::BadVersion || code == ErrorCode::NodeExists =>
                {
                    return self.written_before().await;
                }
                Err(TransactionError::Failed {
                    index: CHECKS, code: ErrorCode::NoNode, ..
                }) => match version {
                    Some(_) => return Err(ReserveFailure::Overtaken(None)),
                    None => self.make_parent().await?,
                },
                Err(TransactionError::Request(error)) => self.again(error).await?,
                Err(source) => return Err(self.refused(source)),
            }
        }
    }

    /// The current reservation; `None` if it is missing.
    async fn read(&self) -> Result<Option<LastReservation>, ReserveFailure> {
        loop {
            match present(self.client.data(&self.node).await) {
                Ok(None) => return Ok(None),
                Ok(Some((data, stat))) => {
                    return Ok(Some(LastReservation::new(&self.node, &data, &stat)?));
                }
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// The reservation has changed: by an own write, or by another program.
    async fn written_before(&self) -> Result<Confirmed, ReserveFailure> {
        match self.read().await? {
            Some(found) if found.reservation.is_by(&self.by) => Ok(Confirmed {
                until_unix_ms: found.reservation.until_unix_ms,
                version: found.version,
                at_unix_ms: Some(found.at_unix_ms),
            }),
            other => Err(ReserveFailure::Overtaken(other)),
        }
    }

    async fn make_parent(&self) -> Result<(), ReserveFailure> {
        let Some(parent) = self.node.parent() else { return Ok(()) };
        match self.client.ensure(&parent, CreateMode::Persistent).await {
            Ok(()) => Ok(()),
            Err(error) => self.again(error).await,
        }
    }

    /// Returns when a failed request may be repeated.
    async fn again(&self, error: Error) -> Result<(), ReserveFailure> {
        if error.is_session_expired() {
            return Err(ReserveFailure::Lost);
        }
        retry_pause(error).await.map_err(|error| self.refused(error.into()))
    }

    fn refused(&self, source: TransactionError) -> ReserveFailure {
        ReserveFailure::Failed(WorkerIdError::Refused { node: self.node.clone(), source })
    }
}

/// The result of a transaction.
fn written(until_unix_ms: u64, results: &[OpResult]) -> Confirmed {
    let stat = match results.get(CHECKS) {
        Some(OpResult::SetData(stat) | OpResult::Create2 { stat, .. }) => Some(stat),
        _ => None,
    };
    Confirmed {
        until_unix_ms,
        version: stat.map_or(0, |stat| stat.version),
        at_unix_ms: stat.map(|stat| unix_ms(stat.mtime)),
    }
}
