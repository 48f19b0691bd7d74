//! A lock delay that is due: the mark of a holder that has vanished, as others see it.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{Client, Error, ErrorCode, Listing, Reply, Stat, ZnodePath, Zxid, present};

use crate::acquire::lock_delay::{Mark, mark_of};
use crate::owner_info::OwnerInfo;

/// A lock delay that the next holder waits out, because the last one vanished without a release.
///
/// The next holder measures it from when it reaches the front of the queue and finds the mark. No server
/// records this, so others know how long the delay is, and not how much of it is left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueDelay {
    /// The node that records it, beside the lock.
    pub mark: ZnodePath,
    /// How long it is; `None` if the mark cannot be read, or a later version of the library wrote it.
    pub length: Option<Duration>,
    /// The node of the holder that vanished, which is gone; `None` if the mark cannot be read.
    pub left_by: Option<ZnodePath>,
    /// Which program that holder was, if the mark says so.
    pub owner: Option<OwnerInfo>,
    /// The transaction that wrote the mark, and its version.
    pub(super) written: Zxid,
    pub(super) version: i32,
}

/// A mark as it was read: not at all without the permission.
type ReadMark = Option<(Bytes, Stat)>;

/// The listing of a path between two reads of its lock delay's mark.
///
/// A release deletes node and mark in one transaction. So if the same mark is there before and after a
/// listing without its holder's node, that holder has vanished. One read could also mean a holder that
/// released the lock, or was granted it, between the read and the listing.
pub(super) struct PendingListing {
    before: Option<Reply<(Bytes, Stat)>>,
    listing: Reply<Listing>,
    after: Option<Reply<(Bytes, Stat)>>,
}

/// A path as it was listed.
pub(super) struct Listed {
    /// Its children, and its stat; `None` if there is no such node.
    pub(super) node: Option<Listing>,
    pub(super) delay: Option<DueDelay>,
}

impl PendingListing {
    /// Sends the requests of one round trip. `marked`: whether there may be a mark.
    pub(super) fn send(client: &Client, path: &ZnodePath, marked: bool) -> Self {
        let mark = (marked && !path.is_root()).then(|| mark_of(path));
        let before = mark.as_ref().map(|mark| client.data(mark));
        let listing = client.children(path);
        let after = mark.as_ref().map(|mark| client.data(mark));
        Self { before, listing, after }
    }

    pub(super) async fn answer(self, path: &ZnodePath) -> Result<Listed, Error> {
        let before = read_mark(self.before).await?;
        let listing = self.listing.await;
        let after = read_mark(self.after).await?;

        let node = present(listing)?;
        let names = node.as_ref().map(|(names, _)| names.as_slice()).unwrap_or_default();
        let delay = match (before, after) {
            (Some(before), Some(after)) => due(path, names, before, after),
            _ => None,
        };
        Ok(Listed { node, delay })
    }
}

/// A mark, if there is one.
async fn read_mark(asked: Option<Reply<(Bytes, Stat)>>) -> Result<Option<ReadMark>, Error> {
    let Some(asked) = asked else { return Ok(None) };
    match asked.await {
        Ok(read) => Ok(Some(Some(read))),
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(None),
        Err(error) if error.code() == Some(ErrorCode::NoAuth) => Ok(Some(None)),
        Err(error) => Err(error),
    }
}

/// The delay of a mark that was there before and after the lock's children were listed.
fn due(lock: &ZnodePath, names: &[String], before: ReadMark, after: ReadMark) -> Option<DueDelay> {
    let mark = mark_of(lock);
    let (Some((data, stat)), Some((_, later))) = (before, after) else {
        let (length, left_by, owner) = (None, None, None);
        let (written, version) = (Zxid(0), 0);
        let unread = DueDelay { mark, length, left_by, owner, written, version };
        // With contenders, it may be that of a holder among them.
        return names.is_empty().then_some(unread);
    };
    if stat.mzxid != later.mzxid {
        return None;
    }

    let found = Mark::from_data(&data);
    let is_held = match &found {
        Some(mark) => names.contains(&mark.node),
        None => !names.is_empty(),
    };
    let (written, version) = (stat.mzxid, stat.version);
    let length = found.as_ref().and_then(Mark::delay);
    let left_by = found.as_ref().and_then(|mark| lock.child(&mark.node).ok());
    let owner = found.and_then(|mark| mark.owner);
    (!is_held).then_some(DueDelay { mark, length, left_by, owner, written, version })
}
