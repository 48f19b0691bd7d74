//! Quotas: the number of nodes and bytes that a subtree has and may have.
//!
//! ZooKeeper's layout. The quota of `/a/b` is in `/zookeeper/quota/a/b/zookeeper_limits`, and the usage in
//! the sibling `zookeeper_stats`. The server keeps the usage up to date without changing the version of that
//! node, and compares the two if enforcement is enabled. Of several quotas above a node only the nearest one
//! applies, as in ZooKeeper.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_wire::ErrorCode;

use crate::nodes::Tree;
use crate::notices::{Notice, Notices};

const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";

/// The maximum length of a record. A real one has less than 130 bytes, and it is parsed for each change.
const MAX_RECORD: usize = 256;

/// A record of limits or usage; -1 means not set. ZooKeeper's text format, such as
/// `count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Track {
    count: i64,
    bytes: i64,
    count_hard: i64,
    bytes_hard: i64,
}

impl Track {
    /// An invalid record does not limit anything: a typing error must not lock clients out. The same applies
    /// to a text that is too long.
    fn parse(data: &[u8]) -> Self {
        let mut track = Self { count: -1, bytes: -1, count_hard: -1, bytes_hard: -1 };
        if data.len() > MAX_RECORD {
            return track;
        }
        let text = String::from_utf8_lossy(data);

        for pair in text.split([',', ';']) {
            let mut parts = pair.split('=');
            let (key, value) = (parts.next(), parts.next());
            let value = value.and_then(|value| value.trim().parse().ok()).unwrap_or(-1);
            match key.map(str::trim) {
                Some("count") => track.count = value,
                Some("bytes") => track.bytes = value,
                Some("countHardLimit") => track.count_hard = value,
                Some("byteHardLimit") => track.bytes_hard = value,
                _ => {}
            }
        }
        track
    }
}

/// Whether a request may change a quota, or the usage by its own path.
pub(crate) fn is_named_in(frame: &[u8]) -> bool {
    frame.windows(ROOT.len()).any(|part| part == ROOT.as_bytes())
}

impl fmt::Display for Track {
    /// Only the counts: the server does not write anything else.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count={},bytes={}", self.count, self.bytes)
    }
}

/// Fails if a change of this many bytes and nodes at `path` exceeds a hard limit. An exceeded soft limit is
/// only recorded.
pub(crate) fn check(
    tree: &Tree,
    path: &str,
    (bytes, count): (i64, i64),
    notices: &Notices,
) -> Result<(), ErrorCode> {
    let Some(root) = nearest(tree, path) else {
        return Ok(());
    };
    let (Some(limits), Some(present)) = (read(tree, root, LIMITS), read(tree, root, STATS)) else {
        return Ok(());
    };

    let checks = [
        ("nodes", count, present.count, limits.count, limits.count_hard),
        ("bytes", bytes, present.bytes, limits.bytes, limits.bytes_hard),
    ];
    for (what, change, present, soft, hard) in checks {
        // A hard limit replaces the soft one.
        let (kind, limit) = if hard > -1 { ("hard", hard) } else { ("soft", soft) };
        let present = present.saturating_add(change);
        if change == 0 || limit < 0 || present <= limit {
            continue;
        }

        let refused = hard > -1;
        let path = root.to_owned();
        notices.add(Notice::QuotaExceeded { path, what, kind, present, limit, refused });
        if refused {
            return Err(ErrorCode::QuotaExceeded);
        }
    }
    Ok(())
}

/// The subtree to count when a node is created at `path`, if any.
pub(crate) fn weighed_by(path: &str) -> Option<&str> {
    quota_of(path, STATS)
}

/// Updates the usage after a node was created.
pub(crate) fn created(tree: &mut Tree, path: &str, data: usize) {
    if let Some(root) = quota_of(path, LIMITS) {
        tree.quotas.or_insert_with(root.into(), || ());
    }
    if let Some(root) = weighed_by(path) {
        let (count, bytes) = tree.weigh(root);
        write(tree, root, |track| (track.count, track.bytes) = (count, bytes));
    }
    changed(tree, path, data as i64, 1);
}

/// Updates the usage after a node was deleted.
pub(crate) fn deleted(tree: &mut Tree, path: &str, data: usize) {
    if let Some(root) = quota_of(path, LIMITS) {
        tree.quotas.remove(root);
    }
    changed(tree, path, -(data as i64), -1);
}

/// Updates the usage after the data of a subtree changed at `path`.
pub(crate) fn changed(tree: &mut Tree, path: &str, bytes: i64, count: i64) {
    let Some(root) = nearest(tree, path) else {
        return;
    };
    let root = root.to_owned();
    write(tree, &root, |track| {
        track.count = track.count.saturating_add(count);
        track.bytes = track.bytes.saturating_add(bytes);
    });
}

/// Finds the quotas of a restored tree. The usage was stored along with it.
pub(crate) fn find(tree: &mut Tree) {
    let mut open: Vec<Arc<str>> = vec![ROOT.into()];
    while let Some(path) = open.pop() {
        let Some(node) = tree.get(&path) else { continue };
        open.extend(node.children.iter().cloned());
        if let Some(root) = quota_of(&path, LIMITS) {
            tree.quotas.or_insert_with(root.into(), || ());
        }
    }
}

/// The node whose quota applies to `path`: the node itself, or the nearest ancestor with a quota.
fn nearest<'a>(tree: &'a Tree, path: &'a str) -> Option<&'a str> {
    tree.quotas.above(path).last().map(|(root, ())| root)
}

/// The node whose limits or usage are stored at `path`, if any.
fn quota_of<'a>(path: &'a str, name: &str) -> Option<&'a str> {
    let parent = path.strip_suffix(name)?.strip_suffix('/')?;
    parent.strip_prefix(ROOT).filter(|root| root.starts_with('/'))
}

fn read(tree: &Tree, root: &str, name: &str) -> Option<Track> {
    tree.get(&format!("{ROOT}{root}/{name}")).map(|node| Track::parse(&node.data))
}

/// Changes the usage, if its node exists. The version and zxid do not change, as in ZooKeeper.
fn write(tree: &mut Tree, root: &str, change: impl FnOnce(&mut Track)) {
    let path = format!("{ROOT}{root}/{STATS}");
    let Some(node) = tree.get(&path) else { return };
    let mut track = Track::parse(&node.data);
    change(&mut track);
    tree.set_data(&path, Bytes::from(track.to_string()).into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zookeepers_texts_are_read() {
        let track =
            |count, bytes, count_hard, bytes_hard| Track { count, bytes, count_hard, bytes_hard };
        for (text, expected) in [
            ("", track(-1, -1, -1, -1)),
            ("count=5,bytes=7", track(5, 7, -1, -1)),
            ("count=5,bytes=-1=;byteHardLimit=9;countHardLimit=10", track(5, -1, 10, 9)),
            ("count=many,=,,;countHardLimit", track(-1, -1, -1, -1)),
        ] {
            assert_eq!(Track::parse(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(track(3, 4, 5, 6).to_string(), "count=3,bytes=4");
    }

    #[test]
    fn which_places_are_quotas() {
        assert_eq!(quota_of("/zookeeper/quota/a/b/zookeeper_limits", LIMITS), Some("/a/b"));
        assert_eq!(quota_of("/zookeeper/quota/zookeeper_limits", LIMITS), None);
        assert_eq!(quota_of("/a/zookeeper_limits", LIMITS), None);
        assert_eq!(quota_of("/zookeeper/quotax/zookeeper_limits", LIMITS), None);
    }
}
