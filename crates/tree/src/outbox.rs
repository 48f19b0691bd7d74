//! Outbox: frames for connections, buffered until the state that they show is durable.

use bytes::BytesMut;
use lockkeeper_wire::write_frame;

use crate::fan_out::{EVENT_WEIGHT, FanOut, Share};
use crate::hash::{self, HashMap};
use crate::output::{CloseReason, ConnectionId, Output};

#[derive(Default)]
struct Pending {
    frames: BytesMut,
    close: Option<CloseReason>,
    /// The connection's share of the events of the current transaction.
    share: Share,
}

/// A connection would receive more events of one transaction than its share.
#[derive(Debug)]
pub(crate) struct OverShare;

/// One buffer per connection, in the order of their first frames.
#[derive(Default)]
pub(crate) struct Outbox {
    pending: Vec<(ConnectionId, Pending)>,
    index: HashMap<ConnectionId, usize>,
    /// The number of bytes written since the last [`Outbox::take`].
    written: usize,
    fan_out: FanOut,
}

impl Outbox {
    pub(crate) fn frame(&mut self, connection: ConnectionId, content: impl FnOnce(&mut BytesMut)) {
        // No content is longer than that.
        let _ = self.frame_within(connection, usize::MAX, content);
    }

    /// Adds a frame unless its content is longer than `max` bytes; the error is then its length.
    pub(crate) fn frame_within(
        &mut self,
        connection: ConnectionId,
        max: usize,
        content: impl FnOnce(&mut BytesMut),
    ) -> Result<(), usize> {
        let pending = entry(&mut self.pending, &mut self.index, connection);
        if pending.close.is_some() {
            return Ok(());
        }
        let before = pending.frames.len();
        let len = write_frame(&mut pending.frames, content);
        if len <= max {
            self.written += len;
            return Ok(());
        }
        // A new buffer: truncating would keep the capacity of the removed frame, which is not accounted for.
        pending.frames = BytesMut::from(&pending.frames[..before]);
        Err(len)
    }

    pub(crate) fn close(&mut self, connection: ConnectionId, reason: CloseReason) {
        let pending = entry(&mut self.pending, &mut self.index, connection);
        pending.close.get_or_insert(reason);
    }

    /// Starts the events of a transaction, whose total size may be `max`.
    pub(crate) fn begin_transaction(&mut self, max: usize) {
        self.fan_out.next(max);
    }

    /// The total size of the events of the last transaction.
    pub(crate) fn weight(&self) -> usize {
        self.fan_out.taken()
    }

    /// Adds an event frame, which fires this many watches of the connection.
    ///
    /// # Errors
    /// If the connection would receive more of this transaction than its share. All its events of this
    /// transaction are then removed: after a reconnect, the client has seen either the state before the
    /// transaction or the state after it.
    pub(crate) fn event(
        &mut self,
        connection: ConnectionId,
        frame: &[u8],
        watches: usize,
    ) -> Result<(), OverShare> {
        let pending = entry(&mut self.pending, &mut self.index, connection);
        let more = frame.len() + watches * EVENT_WEIGHT;
        let counted = self.fan_out.count(&mut pending.share, pending.frames.len(), more);
        if let Err(begin) = counted {
            // A new buffer, as above.
            pending.frames = BytesMut::from(&pending.frames[..begin]);
            return Err(OverShare);
        }
        pending.frames.extend_from_slice(frame);
        self.written += frame.len();
        Ok(())
    }

    /// Drops the frames of a connection that is gone.
    pub(crate) fn discard(&mut self, connection: ConnectionId) {
        if let Some(index) = self.index.get(&connection) {
            self.pending[*index].1 = Pending::default();
        }
    }

    /// Frees memory that is reserved for more connections than were used since the last [`Outbox::take`].
    pub(crate) fn shrink(&mut self) {
        self.pending.shrink_to_fit();
        hash::shrink(&mut self.index);
    }

    /// The number of bytes written since the last [`Outbox::take`], including those of connections that are
    /// gone.
    pub(crate) fn written(&self) -> usize {
        self.written
    }

    pub(crate) fn take(&mut self) -> Vec<(ConnectionId, Output)> {
        self.written = 0;
        self.index.clear();
        let mut outputs = Vec::with_capacity(self.pending.len());
        for (connection, pending) in self.pending.drain(..) {
            if !pending.frames.is_empty() {
                outputs.push((connection, Output::Send(pending.frames.freeze())));
            }
            if let Some(reason) = pending.close {
                outputs.push((connection, Output::Close(reason)));
            }
        }
        outputs
    }
}

fn entry<'a>(
    pending: &'a mut Vec<(ConnectionId, Pending)>,
    index: &mut HashMap<ConnectionId, usize>,
    connection: ConnectionId,
) -> &'a mut Pending {
    let index = *index.entry(connection).or_insert_with(|| {
        pending.push((connection, Pending::default()));
        pending.len() - 1
    });
    &mut pending[index].1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refused frame must not be sent or keep its capacity, which would not be accounted for. Fails with a
    /// buffer that is only truncated.
    #[test]
    fn a_frame_that_is_too_long_leaves_nothing_behind() {
        let mut outbox = Outbox::default();
        let connection = ConnectionId(1);
        let content = |len: usize| move |out: &mut BytesMut| out.resize(out.len() + len, 7);
        assert_eq!(outbox.frame_within(connection, 300, content(200)), Ok(()));
        assert_eq!(outbox.frame_within(connection, 300, content(1_000_000)), Err(1_000_000));
        assert_eq!(outbox.written(), 200);
        let Some((_, Output::Send(bytes))) = outbox.take().pop() else { panic!("nothing") };
        assert_eq!(bytes.len(), 4 + 200);
        let room = BytesMut::from(bytes).capacity();
        assert!(room < 1_000, "{room} bytes of room");
        assert_eq!(outbox.written(), 0);
    }
}
