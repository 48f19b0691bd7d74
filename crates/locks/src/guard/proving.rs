//! The proof that a lock is held: a committed check of its node. A grant waits for a proof that shows a long enough
//! lease.

use std::time::Duration;

use lockkeeper_client::retry::{Backoff, is_transient};
use lockkeeper_client::{Client, ErrorCode, Transaction, TransactionError};

use crate::error::AcquireError;
use crate::guard::owned_node::OwnedNode;

/// How many proofs in a row may take too long before the grant is given up.
const MAX_SLOW_PROOFS: u32 = 3;

/// What a committed check shows.
pub(super) enum Proof {
    Held,
    NodeGone,
}

/// Commits checks of nodes, which proves that the leader of a quorum has seen the nodes after the checks were sent. If
/// other nodes can have the same name, a read after the checks shows which node it is.
pub(super) async fn prove(
    checks: Transaction,
    owned: &OwnedNode,
) -> Result<Proof, TransactionError> {
    // In a later session, the node would be missing for a different reason.
    let checks = checks.in_session(owned.session());
    // Sent together, and in this order.
    let (checked, is_same) = tokio::join! { biased; checks.commit(), owned.is_same() };
    match (checked, is_same) {
        (Err(TransactionError::Request(error)), _) if error.is_session_expired() => {
            Err(error.into())
        }
        (Err(TransactionError::Failed { code: ErrorCode::NoNode, .. }), _) | (_, Ok(false)) => {
            Ok(Proof::NodeGone)
        }
        (Err(error), _) => Err(error),
        (Ok(_), Err(error)) => Err(error.into()),
        (Ok(_), Ok(true)) => Ok(Proof::Held),
    }
}

/// Returns when a committed write sent now would show that the session lives for another `left`. Returns at once
/// if only the reply to a request can lead to that. After this program or the servers were suspended, this is a
/// [relay](lockkeeper_client::Timing::relay) after the first reply.
///
/// Returns whether such a write shows it.
pub(super) async fn until_a_proof_counts(client: &Client, left: Duration) -> bool {
    // A timer uses a different clock than leases.
    while let Some(time) = client.time_to_proof(left) {
        if time.is_zero() {
            return true;
        }
        tokio::time::sleep(time).await;
    }
    false
}

/// The lease that a proof shows at most if the servers reply in time: enough for a grant, and a margin for the reply.
pub(super) fn shown_by_a_proof(client: &Client) -> Duration {
    client.timing().always_left() + client.timing().slowest_answer()
}

/// The proofs of one grant.
pub(super) struct Proofs {
    backoff: Backoff,
    /// The number of consecutive slow proofs.
    slow: u32,
    /// The duration of the last proof.
    took: Duration,
}

impl Proofs {
    pub(super) fn new() -> Self {
        Self { backoff: Backoff::default(), slow: 0, took: Duration::ZERO }
    }

    /// Commits a check of the node as soon as it can show enough for a grant. Retries over as
    /// many connections as needed while the session lives.
    ///
    /// # Errors
    /// If the node or the session is gone, no server can be reached for a session timeout, a server refuses the
    /// check, or the last proofs were too slow.
    pub(super) async fn next(&mut self, owned: &OwnedNode) -> Result<(), AcquireError> {
        let client = &owned.client;
        let most = client.timing().slowest_answer();
        if self.slow == MAX_SLOW_PROOFS {
            let (path, took) = (owned.path.clone(), self.took);
            return Err(AcquireError::LeaseTooShort { path, took, most });
        }

        loop {
            until_a_proof_counts(client, shown_by_a_proof(client)).await;
            let sent = client.now();
            let check = client.transaction().check(&owned.node.path, None);
            match prove(check, owned).await {
                Ok(Proof::Held) => {
                    self.took = client.now().since(sent);
                    self.slow = if self.took > most { self.slow + 1 } else { 0 };
                    return Ok(());
                }
                Ok(Proof::NodeGone) => {
                    return Err(AcquireError::NodeDeleted { node: owned.node.path.clone() });
                }
                // The next connection may be lost as quickly, so there is a pause before the next try.
                Err(TransactionError::Request(error)) if is_transient(&error) => {
                    self.backoff.pause().await;
                }
                Err(TransactionError::Request(error)) => {
                    return Err(AcquireError::from_client(&owned.path, error));
                }
                Err(source) => {
                    return Err(AcquireError::Refused { path: owned.path.clone(), source });
                }
            }
        }
    }
}
