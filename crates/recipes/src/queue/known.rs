//! A queue in a tree that is known already, as that of a cache is: no I/O.

use bytes::Bytes;
use lockkeeper_client::{SessionId, Stat, ZnodePath};
use lockkeeper_locks::OwnerInfo;
use lockkeeper_locks::inspect::KnownTree;

use crate::queue::admin::QueueReport;
use crate::queue::lanes::read_segments;
use crate::queue::layout::{ClaimName, Entry, QueueMark, QueueNodes};

impl QueueReport {
    /// The queue at a path in a tree that is known already; `None` if there is none in the layout of this library. All
    /// figures are of one moment if the tree is. No I/O.
    pub fn in_tree(tree: &impl KnownTree, path: &ZnodePath) -> Option<Self> {
        let (mark, _) = tree.node(path.as_str())?;
        QueueMark::read(&mark).ok()?;
        let nodes = QueueNodes::new(path.clone());
        let children = |node: &ZnodePath| tree.children(node.as_str());

        let claims = children(&nodes.claims);
        let claims: Vec<_> = claims.iter().filter_map(|name| ClaimName::read(name)).collect();
        let paused = claims.iter().filter(|claim| claim.free_from.is_some()).count();
        let claimed = claims.len() - paused;

        let (mut ready, mut later) = (0_usize, 0_usize);
        let mut oldest: Option<u64> = None;
        for segment in read_segments(&children(&nodes.entries)) {
            let names = children(&nodes.segment(segment));
            let entries: Vec<_> =
                names.iter().filter_map(|name| Entry::read(segment, name)).collect();
            if !segment.is_ready() {
                later += entries.len();
                continue;
            }
            ready += entries.len();
            let first = entries.iter().min_by_key(|entry| entry.number);
            let body = first.and_then(|entry| tree.node(nodes.body(&entry.id).as_str()));
            let since = body.and_then(|(_, stat)| u64::try_from(stat.ctime).ok());
            oldest = oldest.into_iter().chain(since).min();
        }

        let retries = tree.node(nodes.claims.as_str()).map_or(0, |(_, stat)| stat.version);
        Some(Self {
            waiting: ready.saturating_sub(claimed + paused),
            claimed,
            delayed: later + paused,
            dead: children(&nodes.dead).len(),
            workers: children(&nodes.workers).len(),
            idle: children(&nodes.line).len(),
            retries: u64::try_from(retries).unwrap_or_default(),
            oldest_unix_ms: oldest,
        })
    }

    /// The consumers of the queue at a path. No I/O.
    pub(crate) fn consumers(tree: &impl KnownTree, path: &ZnodePath) -> Vec<KnownConsumer> {
        let nodes = QueueNodes::new(path.clone());
        let nodes_in = |node: &ZnodePath| -> Vec<(Bytes, Stat)> {
            let names = tree.children(node.as_str()).into_iter();
            names.filter_map(|name| tree.node(node.child(&name).ok()?.as_str())).collect()
        };
        let claims = nodes_in(&nodes.claims);
        let works_on =
            |session| claims.iter().filter(|(_, claim)| claim.ephemeral_owner == session).count();
        let workers = nodes_in(&nodes.workers).into_iter().map(|(data, stat)| KnownConsumer {
            session: stat.ephemeral_owner,
            owner: OwnerInfo::from_data(&data),
            items: works_on(stat.ephemeral_owner),
        });
        workers.collect()
    }
}

/// A consumer of a queue.
pub(crate) struct KnownConsumer {
    pub(crate) session: SessionId,
    /// Its program, if its node contains it.
    pub(crate) owner: Option<OwnerInfo>,
    /// The number of items on which it works.
    pub(crate) items: usize,
}
