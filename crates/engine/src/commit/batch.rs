//! A batch of the tree's output: changes to make durable, and the replies that wait for them.

use std::sync::Arc;
use std::time::Instant;

use lockkeeper_tree::{Changes, Output};

use crate::connection::Connection;
use crate::metrics::Metrics;
use crate::metrics::ops::OpCounts;

/// The output of the tree for a round of requests, or for a part of one.
pub(crate) struct CommitBatch {
    pub(crate) changes: Changes,
    pub(crate) replies: Vec<(Arc<Connection>, Output)>,
    /// The requests in it.
    pub(crate) ops: OpCounts,
    /// Whether sessions ended or nodes were reaped in it.
    pub(crate) timeouts: bool,
    /// When the round began.
    pub(crate) since: Instant,
}

impl CommitBatch {
    /// The approximate memory that it holds.
    pub(super) fn bytes(&self) -> usize {
        let replies = self.replies.iter().map(|(_, output)| match output {
            Output::Send(bytes) => bytes.len() + 64,
            Output::Close(_) => 64,
        });
        self.changes.bytes() + 64 * self.changes.len() + replies.sum::<usize>()
    }

    /// Sends the replies; everything that this batch depends on is durable.
    pub(super) fn release(self, metrics: &Metrics) {
        let mut touched: Vec<Arc<Connection>> = Vec::new();
        let took = self.since.elapsed();
        let sent = self.replies.iter().map(|(_, output)| output_size(output));
        let sent = sent.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        metrics.answered(&self.ops, sent, took);

        for (connection, output) in self.replies {
            connection.push(output, took);
            // The replies to one client are mostly adjacent, so most repetitions are found here; a missed repetition
            // only costs a second flush of an empty buffer.
            if touched.last().is_none_or(|last| last.id != connection.id) {
                touched.push(connection);
            }
        }

        for connection in touched {
            connection.flush();
        }
    }
}

/// The number of frames that an output sends, and of bytes.
fn output_size(output: &Output) -> (usize, usize) {
    let Output::Send(bytes) = output else {
        return (0, 0);
    };
    let (mut rest, mut frames) = (&bytes[..], 0);
    while let Some((prefix, content)) = rest.split_first_chunk::<4>() {
        let len = u32::from_be_bytes(*prefix) as usize;
        rest = content.get(len..).unwrap_or_default();
        frames += 1;
    }
    (frames, bytes.len())
}
