//! Contenders whose nodes are created in a caller's transaction, and not by
//! [`Contender::enter`](super::Contender::enter).

use lockkeeper_client::retry::retry_pause;
use lockkeeper_client::{CreateMode, Created, ErrorCode, Listing, Transaction, TransactionError};

use super::Contender;
use crate::attempt::Attempt;
use crate::contender::order::WaitQueue;

impl Contender {
    /// Completes a contender whose node was created in a transaction, with a listing of the queue.
    pub(crate) async fn placed(
        mut self,
        node: Created,
        listing: Listing,
    ) -> Result<(Self, WaitQueue), Attempt> {
        self.0.node = Some(node);
        let queue = self.read_or_list(listing).await;
        self.entered(queue)
    }

    /// Leaves the deletion to the caller.
    pub(crate) fn disarm(&mut self) {
        self.0.armed = false;
    }

    /// Creates a reserved contender's node, as the first step of a transaction that may have more steps:
    /// no client sees one without the others. Costs one round trip.
    ///
    /// # Errors
    /// [`TransactionError::Failed`] with an index above 0 if one of the other steps failed.
    pub(crate) async fn take_place(
        &mut self,
        more: impl Fn(Transaction) -> Transaction,
    ) -> Result<(), TransactionError> {
        let node = self.0.settings.path.child(&self.0.prefix);
        let node = node.unwrap_or_else(|_| self.0.settings.path.clone());

        loop {
            let (data, mode) = (self.0.data.clone(), CreateMode::Ephemeral);
            let create = self.0.client.transaction().create(&node, data, mode);
            // Sent together. ZooKeeper leaves the stat out of a transaction's reply.
            let (committed, made) = tokio::join! {
                biased;
                more(create).commit(),
                self.0.client.exists(&node),
            };

            if let Ok(Some(stat)) = made {
                // Created by this attempt or, if its reply was lost, by an earlier one: the name is unique to this
                // contender.
                self.0.node = Some(Created { path: node, stat });
                return Ok(());
            }

            match committed {
                Ok(_) => {}
                Err(TransactionError::Failed { code: ErrorCode::NodeExists, index: 0, .. }) => {}
                Err(TransactionError::Request(error)) => retry_pause(error).await?,
                Err(error) => return Err(error),
            }
        }
    }
}
