//! Reports the loss of a guard as a `CancellationToken`, for work that is stopped by other means than by not
//! polling it.

use std::time::Duration;

use lockkeeper_client::{
    Client, ErrorCode, EventKind, HoldProbe, SessionId, Watcher, ZnodePath, Zxid,
};
use tokio_util::sync::CancellationToken;

use super::Guard;
use crate::contender::watches::first_event;
use crate::error::LossReason;
use crate::guard::state::judge;

impl Guard {
    /// Returns a token that is cancelled when [`Guard::run`] would drop its work: as soon as the loss of the lock is
    /// known, and at the deadline at the latest. It is also cancelled when the guard is
    /// released or dropped, before its node is deleted, because the work must then stop. A timer
    /// may fire late, so work that must not run after the deadline also calls [`Guard::ensure`] before each step.
    ///
    /// All calls return clones of one token. A [jeopardy](Guard::allow_jeopardy) also cancels it. A cancelled
    /// token cannot be reset, so the next call after the lock is held again returns a new one.
    ///
    /// The first call spawns a task in the [runtime of the client](lockkeeper_client::Client::tokio_runtime). It
    /// costs one round trip for a watch on the holder's node, or on each of its nodes, and one for each
    /// change of a node.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = lockkeeper_engine::Engine::builder().start().await?;
    /// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
    /// use lockkeeper::Mutex;
    ///
    /// let guard = Mutex::new(&client, "/locks/import")?.acquire().await?;
    /// let held = guard.cancellation_token();
    /// let import = tokio::spawn(held.clone().run_until_cancelled_owned(async { /* row by row */ 42 }));
    /// assert_eq!(import.await?, Some(42));
    ///
    /// guard.release().await?;
    /// assert!(held.is_cancelled());
    /// # client.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancellation_token(&self) -> CancellationToken {
        cancellation_token(std::slice::from_ref(self))
    }
}

/// The token of guards that are held together. There must be at least one.
pub(crate) fn cancellation_token(guards: &[Guard]) -> CancellationToken {
    let first = &guards[0].0.cancellation;
    if let Some(token) = first.token()
        && !token.is_cancelled()
    {
        return token;
    }

    let token = CancellationToken::new();
    if !guards.iter().all(Guard::is_held) {
        token.cancel();
        return token;
    }
    for guard in guards {
        guard.0.cancellation.set(&token);
    }
    let nodes = guards.iter().flat_map(Guard::nodes).map(|(hold, owned)| HeldNode {
        probe: hold.probe(),
        path: owned.node.path.clone(),
        czxid: owned.node.stat.czxid,
        session: owned.session(),
    });
    let client = guards[0].client();
    let task = cancel_when_lost(client.clone(), nodes.collect(), token.clone());
    client.tokio_runtime().spawn(task);
    token
}

/// What is known about a holder's node without its guard.
struct HeldNode {
    probe: HoldProbe,
    path: ZnodePath,
    czxid: Zxid,
    session: SessionId,
}

impl HeldNode {
    /// The remaining time of the hold; `None` if it is not held.
    fn left(&self) -> Option<Duration> {
        let seen = self.probe.state();
        let deletion = seen.is_gone.then_some(LossReason::NodeDeleted);
        let (deadline, _) = judge(&seen, self.session, deletion).ok()?;
        Some(deadline.since(seen.now))
    }
}

/// Cancels the token when one of the nodes is no longer held. Ends when the token is cancelled.
async fn cancel_when_lost(client: Client, nodes: Vec<HeldNode>, token: CancellationToken) {
    let mut watches = Vec::new();
    loop {
        // Subscribed before the state is read, so that a change in between ends the wait.
        let mut status = client.status();
        let Some(left) = nodes.iter().map(HeldNode::left).min().flatten() else {
            return token.cancel();
        };
        // At most a second, because a timer does not count suspended time.
        let near = tokio::time::sleep(left.min(Duration::from_secs(1)));
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            missing = deleted(&client, &nodes, &mut watches) => {
                if let Some(missing) = missing {
                    // The guard has to report the loss too.
                    missing.probe.found_missing();
                }
            }
            _ = status.changed() => {}
            () = near => {}
        }
    }
}

/// Waits for the next event on one of the nodes, and returns the node if it was deleted. Sets missing
/// watches.
async fn deleted<'a>(
    client: &Client,
    nodes: &'a [HeldNode],
    watches: &mut Vec<(usize, Watcher)>,
) -> Option<&'a HeldNode> {
    let is_watched = |index: usize| watches.iter().any(|(watched, _)| *watched == index);
    let missing: Vec<_> = (0..nodes.len()).filter(|index| !is_watched(*index)).collect();
    let asked: Vec<_> =
        missing.into_iter().map(|index| (index, client.data_watched(&nodes[index].path))).collect();
    for (index, reply) in asked {
        match reply.await {
            Ok(((_, stat), _)) if stat.czxid != nodes[index].czxid => return Some(&nodes[index]),
            Ok((_, watcher)) => watches.push((index, watcher)),
            Err(error) if error.code() == Some(ErrorCode::NoNode) => return Some(&nodes[index]),
            // The connection is lost, and perhaps the lock too. The deadline decides.
            Err(_) => std::future::pending().await,
        }
    }

    let (index, event) = first_event(watches).await;
    drop(watches.swap_remove(index));
    let is_deletion = event.is_ok_and(|event| event.kind == EventKind::NodeDeleted);
    is_deletion.then(|| &nodes[index])
}
