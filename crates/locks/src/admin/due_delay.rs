//! A lock delay that is due: the mark of a vanished holder, as seen by other programs.

use std::time::Duration;

use lockkeeper_client::{Client, Error, ErrorCode, Listing, Reply, Stat, ZnodePath, Zxid, present};

use crate::acquire::lock_delay::{DelayMark, mark_of};
use crate::owner_info::OwnerInfo;

/// A lock delay that the next holder waits out, because the last one vanished without a release.
///
/// The next holder measures the delay from the moment when it reaches the front of the queue and finds the mark. The
/// servers do not record that moment, so other programs know the length of the delay, but not how much of it is left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueDelay {
    /// The node that records it, a sibling of the lock's node.
    pub mark: ZnodePath,
    /// The length of the delay; `None` if the mark cannot be read, or a later version of the library wrote it.
    pub length: Option<Duration>,
    /// The deleted node of the vanished holder; `None` if the mark cannot be read.
    pub left_by: Option<ZnodePath>,
    /// The program of that holder, if the mark contains it.
    pub owner: Option<OwnerInfo>,
    /// The transaction that wrote the mark, and its version.
    pub(super) written: Zxid,
    pub(super) version: i32,
}

/// The pending listing of a path, with reads of its delay mark before and after.
///
/// A release deletes the node and the mark in one transaction. If the same mark exists before and after a
/// listing that lacks its holder's node, that holder has vanished. A single read is not enough: a holder may have
/// released the lock, or may have been granted it, between the read and the listing.
pub(super) struct PendingListing {
    before: Option<Reply<Stat>>,
    listing: Reply<Listing>,
}

/// The listing of a path.
pub(super) struct PathListing {
    /// Its children and its stat; `None` if the node does not exist.
    pub(super) node: Option<Listing>,
    pub(super) delay: Option<DueDelay>,
}

impl PendingListing {
    /// Sends the requests, which take one round trip. `marked`: whether there may be a mark.
    pub(super) fn send(client: &Client, path: &ZnodePath, marked: bool) -> Self {
        let before = (marked && !path.is_root()).then(|| client.stat(&mark_of(path)));
        Self { before, listing: client.children(path) }
    }

    /// Waits for the replies. Costs one more round trip if there is a mark.
    pub(super) async fn answer(
        self,
        client: &Client,
        path: &ZnodePath,
    ) -> Result<PathListing, Error> {
        let before = match self.before {
            Some(asked) => present(asked.await)?,
            None => None,
        };
        let node = present(self.listing.await)?;
        let names = node.as_ref().map(|(names, _)| names.as_slice()).unwrap_or_default();
        let delay = match before {
            Some(before) => due(client, path, names, before).await?,
            None => None,
        };
        Ok(PathListing { node, delay })
    }
}

/// The delay of a mark that existed before the lock's children were listed, if it is due.
async fn due(
    client: &Client,
    lock: &ZnodePath,
    names: &[String],
    before: Stat,
) -> Result<Option<DueDelay>, Error> {
    let mark = mark_of(lock);
    let found = match client.data(&mark).await {
        Ok((_, stat)) if stat.mzxid != before.mzxid => return Ok(None),
        Ok((data, _)) => DelayMark::from_data(&data),
        Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(None),
        Err(error) if error.code() == Some(ErrorCode::NoAuth) => None,
        Err(error) => return Err(error),
    };

    Ok(of_mark(lock, names, found, before))
}

/// The delay of a lock's mark, if it is due for a lock with these children.
pub(super) fn of_mark(
    lock: &ZnodePath,
    names: &[String],
    found: Option<DelayMark>,
    stat: Stat,
) -> Option<DueDelay> {
    let is_held = match &found {
        Some(mark) => names.contains(&mark.node),
        // The mark may belong to a holder among them.
        None => !names.is_empty(),
    };
    if is_held {
        return None;
    }
    let length = found.as_ref().and_then(DelayMark::delay);
    let left_by = found.as_ref().and_then(|mark| lock.child(&mark.node).ok());
    let owner = found.and_then(|mark| mark.owner);
    let (mark, written, version) = (mark_of(lock), stat.mzxid, stat.version);
    Some(DueDelay { mark, length, left_by, owner, written, version })
}
