//! The proof that a lock is held: a committed check of its node, and how a grant waits for one that shows
//! enough.

use std::time::Duration;

use lockkeeper_client::retry::{Backoff, is_transient};
use lockkeeper_client::{Client, ErrorCode, Transaction, TransactionError};

use crate::error::AcquireError;
use crate::guard::owned_node::OwnedNode;

/// How many proofs in a row may take too long before a grant is given up.
const MAX_SLOW_PROOFS: u32 = 3;

/// What a committed check shows.
pub(super) enum Proof {
    Held,
    NodeGone,
}

/// Commits checks of nodes: whoever led a quorum after they were sent has seen the nodes. If others can
/// have the name of this one, a look behind the checks shows whose it is.
pub(super) async fn prove(
    checks: Transaction,
    owned: &OwnedNode,
) -> Result<Proof, TransactionError> {
    // In a later session, the node would be missing for another reason.
    let checks = checks.in_session(owned.session());
    // Sent in one go, and in this order.
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

/// Returns when a committed write that is sent now shows that the session lives for `left` more; or at once
/// if only an answer to a request can lead there. After this program or the servers stood still, that is a
/// [relay](lockkeeper_client::Timing::relay) after the first answer.
///
/// Returns whether such a write shows it.
pub(super) async fn until_a_proof_counts(client: &Client, left: Duration) -> bool {
    // A timer goes by another clock than leases do.
    while let Some(time) = client.time_to_proof(left) {
        if time.is_zero() {
            return true;
        }
        tokio::time::sleep(time).await;
    }
    false
}

/// What a proof shows at the most that the servers answer in time: for a grant, and a margin for the answer.
pub(super) fn shown_by_a_proof(client: &Client) -> Duration {
    client.timing().always_left() + client.timing().slowest_answer()
}

/// The proofs of one grant.
pub(super) struct Proofs {
    backoff: Backoff,
    /// How many in a row were slow.
    slow: u32,
    /// How long the last one took.
    took: Duration,
}

impl Proofs {
    pub(super) fn new() -> Self {
        Self { backoff: Backoff::default(), slow: 0, took: Duration::ZERO }
    }

    /// Has the servers commit a check of the node, as soon as that can show enough for a grant, and over as
    /// many connections as it takes while the session lives.
    ///
    /// # Errors
    /// If the node or the session is gone, no server can be reached for a session timeout, one refuses the
    /// check, or the last ones were too slow.
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
                // The next connection may be lost as soon, so it is not asked without a pause.
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
