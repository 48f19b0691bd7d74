//! The differences that are known and wanted, all of them: `docs/engine.md` says why.
//!
//! Each is removed from what was seen by a rule as narrow as it can be; what no rule covers fails
//! the run. The rules for 3.8 are about what later versions of ZooKeeper do as we do. `generate`
//! names what is never asked.

use anyhow::{Context, Result};
use bytes::Bytes;
use lockkeeper_wire::{ErrorCode, OpCode, OpResult, Request, Response};

use crate::connection::{Connection, PATIENCE};
use crate::step::Ask;
use crate::view::{Body, Seen};

/// Which ZooKeeper the engine is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Debian's.
    V38,
    /// 3.9 or newer: what the engine is like.
    Later,
}

/// Whether a client that connects with a session's id and a wrong password disconnects the session's
/// own client: on ZooKeeper, and on the engine.
pub(crate) const CUT_BY_A_WRONG_PASSWORD: [bool; 2] = [true, false];

/// Drops a connection so that ZooKeeper has noticed before its session comes back.
///
/// ZooKeeper keeps one connection for each session, and forgets the session's current connection when any of its
/// connections ends. If the session has reconnected by then, which requires that another
/// thread runs in between, it forgets the new connection, which stays open when the session reconnects again.
pub(crate) fn drop_for_zookeeper(mut connection: Connection) -> Result<()> {
    connection.finish()?;
    connection.expect_end(PATIENCE).context("dropped by the client")
}

/// Answers whether reading this path is refused to the session, by asking both servers.
pub(crate) type IsRefused<'a> = &'a mut dyn FnMut(&str) -> Result<bool>;

/// Removes the known differences.
pub(crate) fn settle(
    version: Version,
    asked: &[Ask],
    zookeeper: &mut Vec<Seen>,
    engine: &mut [Seen],
    is_refused: IsRefused<'_>,
) -> Result<()> {
    if version == Version::V38 {
        forget_event_zxids(zookeeper, engine);
    }
    forget_leaked_catch_up(asked, zookeeper, engine, is_refused)?;
    let replies = |seen: &Seen| matches!(seen, Seen::Reply { .. });
    let theirs = zookeeper.iter_mut().filter(|seen| replies(seen));
    let ours = engine.iter_mut().filter(|seen| replies(seen));
    for ((ask, theirs), ours) in asked.iter().zip(theirs).zip(ours) {
        if version == Version::V38 {
            settle_reply_of_3_8(ask, theirs, ours);
        }
        settle_reply(ask, theirs, ours);
    }
    Ok(())
}

/// In 3.8 an event does not contain its transaction.
fn forget_event_zxids(zookeeper: &mut [Seen], engine: &mut [Seen]) {
    for seen in zookeeper.iter_mut().chain(engine) {
        if let Seen::Event { zxid, .. } = seen {
            *zxid = -1;
        }
    }
}

/// ZooKeeper reports changes of nodes in the reply to `setWatches`, even if the client may not read them.
fn forget_leaked_catch_up(
    asked: &[Ask],
    zookeeper: &mut Vec<Seen>,
    engine: &[Seen],
    is_refused: IsRefused<'_>,
) -> Result<()> {
    let [Ask::Good(Request::SetWatches(_) | Request::SetWatches2(_))] = asked else {
        return Ok(());
    };
    let mut expected = engine.iter().peekable();
    let mut kept = Vec::with_capacity(zookeeper.len());
    for seen in zookeeper.drain(..) {
        let is_next = expected.next_if(|next| **next == seen).is_some();
        let leaked = match &seen {
            Seen::Event { path, .. } if !is_next => is_refused(path)?,
            _ => false,
        };
        if !leaked {
            kept.push(seen);
        }
    }
    *zookeeper = kept;
    Ok(())
}

fn settle_reply(ask: &Ask, theirs: &mut Seen, ours: &mut Seen) {
    let Seen::Reply { error: their_error @ Some(_), body, .. } = theirs else { return };
    // ZooKeeper sends an empty list of results along with the error of the whole request.
    if let Seen::Reply { error, .. } = ours
        && ask.op() == Some(OpCode::MultiRead)
        && error == their_error
    {
        *body = Body::Bytes(Bytes::new());
    }
}

fn settle_reply_of_3_8(ask: &Ask, theirs: &mut Seen, ours: &mut Seen) {
    let (
        Seen::Reply { error: their_error, body: their_body, .. },
        Seen::Reply { error: our_error, body: our_body, .. },
    ) = (theirs, ours)
    else {
        return;
    };
    let forgiven = match ask.op() {
        // `exists` needs no permission.
        Some(OpCode::Exists) => Some(ErrorCode::NoAuth),
        // `checkWatches` finds the watches of other clients too.
        Some(OpCode::CheckWatches) => Some(ErrorCode::NoWatcher),
        _ => None,
    };
    if forgiven.is_some() && their_error.is_none() && *our_error == forgiven {
        *their_error = forgiven;
        their_body.clone_from(our_body);
    }
    if let (Body::Read(Response::Multi(theirs)), Body::Read(Response::Multi(ours))) =
        (their_body, our_body)
    {
        ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| forget_stat(ours, theirs));
    }
}

/// Within a `multi`, `create2` is answered as `create`.
fn forget_stat(ours: &mut OpResult, theirs: &OpResult) {
    if let (OpResult::Create2 { path, .. }, OpResult::Create { .. }) = (&mut *ours, theirs) {
        *ours = OpResult::Create { path: std::mem::take(path) };
    }
}
