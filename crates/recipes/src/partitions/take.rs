//! Creating the nodes of items, many in one transaction, and watching them.

use std::sync::Arc;

use futures_util::future::join_all;
use lockkeeper_client::retry::{is_transient, outlast};
use lockkeeper_client::{
    Client, CreateMode, Created, Error, ErrorCode, EventKind, NameUse, Outcome, SessionId, Stat,
    TransactionError, Watcher, ZnodePath, Zxid, present,
};
use lockkeeper_locks::AcquireError;
use lockkeeper_locks::for_recipes::grant;

use crate::partitions::assignment::HeldItem;
use crate::partitions::error::TakeError;
use crate::partitions::item_node::ItemNode;
use crate::partitions::layout::{OwnerRecord, PartitionNodes};

/// The outcome for an item's node.
pub(super) enum TakeOutcome {
    Made(Arc<HeldItem>),
    /// Another member has created it.
    ByOthers,
    /// The session has ended.
    SessionOver,
    Failed(TakeError),
}

/// Takes items in one transaction if none of them has a node, and one by one otherwise. The answers are in the
/// order of the nodes.
pub(super) async fn take(
    client: &Client,
    places: &PartitionNodes,
    member: &str,
    session: SessionId,
    nodes: Vec<ZnodePath>,
) -> Vec<TakeOutcome> {
    // Created before the request is sent, so that the nodes are deleted whatever its outcome.
    let claims: Vec<_> = nodes
        .into_iter()
        .map(|node| {
            let data = OwnerRecord { member, mark: client.unique_id().to_string() }.to_data();
            ItemNode::new(client, node, session, data)
        })
        .collect();

    let Some(zxid) = make_together(client, places, session, &claims).await else {
        let each = claims.into_iter().map(|claim| take_one(client, places, session, claim));
        return join_all(each).await;
    };
    let mut taken = Vec::with_capacity(claims.len());
    for claim in claims {
        taken.push(granted(client, places, session, claim, zxid).await);
    }
    taken
}

/// Creates the nodes together; `None` if they were not created, or it is unknown.
async fn make_together(
    client: &Client,
    places: &PartitionNodes,
    session: SessionId,
    claims: &[ItemNode],
) -> Option<Zxid> {
    if claims.len() < 2 {
        return None;
    }
    loop {
        match make(client, session, claims).await {
            Ok(zxid) => return Some(zxid),
            Err(TransactionError::Failed { code: ErrorCode::NoNode, .. }) => {
                client.ensure(&places.owners, CreateMode::Container).await.ok()?;
            }
            Err(_) => return None,
        }
    }
}

async fn make(
    client: &Client,
    session: SessionId,
    claims: &[ItemNode],
) -> Result<Zxid, TransactionError> {
    let steps = claims.iter().fold(client.transaction(), |steps, claim| {
        steps.create(claim.node(), claim.data().clone(), CreateMode::Ephemeral)
    });
    steps.in_session(session).commit_numbered().await.map(|(_, zxid)| zxid)
}

/// Takes one item, whose node an earlier try may have created.
async fn take_one(
    client: &Client,
    places: &PartitionNodes,
    session: SessionId,
    claim: ItemNode,
) -> TakeOutcome {
    loop {
        let failed = match make(client, session, std::slice::from_ref(&claim)).await {
            Ok(zxid) => return granted(client, places, session, claim, zxid).await,
            Err(TransactionError::Failed { code: ErrorCode::NodeExists, .. }) => {
                // A lagging server may not show it yet.
                let (synced, seen) = tokio::join!(
                    biased; client.sync(claim.node()), client.data(claim.node())
                );
                match synced.and_then(|()| present(seen)) {
                    Ok(None) => continue,
                    Ok(Some((data, stat))) if data == *claim.data() => {
                        return granted(client, places, session, claim, stat.czxid).await;
                    }
                    Ok(Some(_)) => {
                        claim.over();
                        return TakeOutcome::ByOthers;
                    }
                    Err(error) => error,
                }
            }
            Err(TransactionError::Failed { code: ErrorCode::NoNode, .. }) => {
                match client.ensure(&places.owners, CreateMode::Container).await {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            Err(TransactionError::Request(error)) => error,
            Err(refused) => return TakeOutcome::Failed(refused.into()),
        };

        if client.session_id() != session || failed.is_session_expired() {
            claim.over();
            return TakeOutcome::SessionOver;
        }
        if !passes(client, &failed) {
            return TakeOutcome::Failed(failed.into());
        }
        outlast(client, &failed).await;
    }
}

/// The right to an item whose node was created by this transaction.
async fn granted(
    client: &Client,
    places: &PartitionNodes,
    session: SessionId,
    claim: ItemNode,
    zxid: Zxid,
) -> TakeOutcome {
    let created = Created { path: claim.node().clone(), stat: Stat::of_new(zxid, session) };
    match grant(client, &places.path, created, NameUse::Watched(zxid)).await {
        Ok(guard) => TakeOutcome::Made(Arc::new(HeldItem::new(guard, claim))),
        Err(AcquireError::SessionExpired { .. }) => TakeOutcome::SessionOver,
        Err(error) => TakeOutcome::Failed(error.into()),
    }
}

/// The node of an item, with a watch; `None` if it is missing, or the session has ended.
pub(super) async fn look(
    client: &Client,
    node: &ZnodePath,
) -> Result<Option<(Stat, Watcher)>, TakeError> {
    loop {
        match watched(client, node).await {
            Err(error) if error.is_session_expired() => return Ok(None),
            Err(error) if passes(client, &error) => outlast(client, &error).await,
            looked => return Ok(looked?),
        }
    }
}

/// Returns when the node created by this transaction is gone, or its session may have ended. `watcher`: a watch on
/// it.
pub(super) async fn gone(
    client: &Client,
    node: &ZnodePath,
    czxid: Zxid,
    mut watcher: Option<Watcher>,
) {
    loop {
        let mut watcher = match watcher.take() {
            Some(watcher) => watcher,
            None => match look(client, node).await {
                Ok(Some((stat, watcher))) if stat.czxid == czxid => watcher,
                _ => return,
            },
        };
        match watcher.changed().await {
            Ok(event) if event.kind != EventKind::NodeDeleted => {}
            _ => return,
        }
    }
}

/// A node with a watch, which is set even if the node may not be read; `None` if it is missing.
async fn watched(client: &Client, node: &ZnodePath) -> Result<Option<(Stat, Watcher)>, Error> {
    match client.data_watched(node).await {
        Ok(((_, stat), watcher)) => Ok(Some((stat, watcher))),
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(None),
        Err(error) if error.code() == Some(ErrorCode::NoAuth) => {
            let (stat, watcher) = client.exists_watched(node).await?;
            Ok(stat.map(|stat| (stat, watcher)))
        }
        Err(error) => Err(error),
    }
}

/// Whether a request may succeed when it is repeated in this session.
fn passes(client: &Client, error: &Error) -> bool {
    (is_transient(error) || error.is_unreachable() || error.outcome() == Outcome::Unknown)
        && !error.is_session_expired()
        && !client.is_closed()
}
