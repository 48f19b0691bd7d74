//! Outbox: frames for connections that wait until the state which they show is durable.

use bytes::BytesMut;
use lockkeeper_wire::write_frame;

use crate::fan_out::{EVENT_WEIGHT, FanOut, Share};
use crate::hash::{self, HashMap};
use crate::output::{CloseReason, ConnectionId, Output};

#[derive(Default)]
struct Pending {
    frames: BytesMut,
    close: Option<CloseReason>,
    /// Its share of the events of the present transaction.
    share: Share,
}

/// A connection would get more of the events of one transaction than its share.
#[derive(Debug)]
pub(crate) struct TooMuch;

/// One buffer per connection, in the order in which they were first written to.
#[derive(Default)]
pub(crate) struct Outbox {
    pending: Vec<(ConnectionId, Pending)>,
    index: HashMap<ConnectionId, usize>,
    /// How many bytes were written since the last [`Outbox::take`].
    written: usize,
    fan_out: FanOut,
}

impl Outbox {
    pub(crate) fn frame(&mut self, connection: ConnectionId, content: impl FnOnce(&mut BytesMut)) {
        // No content is longer than that.
        let _ = self.frame_within(connection, usize::MAX, content);
    }

    /// Adds a frame unless its content is longer than `max` bytes; its length is then the error.
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
        // Anew: what is sent would otherwise carry along the room of what was not, uncounted.
        pending.frames = BytesMut::from(&pending.frames[..before]);
        Err(len)
    }

    pub(crate) fn close(&mut self, connection: ConnectionId, reason: CloseReason) {
        let pending = entry(&mut self.pending, &mut self.index, connection);
        pending.close.get_or_insert(reason);
    }

    /// Begins with the events of a transaction, which may weigh `max`.
    pub(crate) fn begin_transaction(&mut self, max: usize) {
        self.fan_out.next(max);
    }

    /// What the events of the last transaction weighed.
    pub(crate) fn weight(&self) -> usize {
        self.fan_out.taken()
    }

    /// Adds a frame with an event, which has met this many watches of the connection.
    ///
    /// # Errors
    /// If the connection gets more of this transaction than its share. It then hears of nothing of this
    /// transaction: when it comes back, what it has seen is the state before or the state after.
    pub(crate) fn event(
        &mut self,
        connection: ConnectionId,
        frame: &[u8],
        watches: usize,
    ) -> Result<(), TooMuch> {
        let pending = entry(&mut self.pending, &mut self.index, connection);
        let more = frame.len() + watches * EVENT_WEIGHT;
        let counted = self.fan_out.count(&mut pending.share, pending.frames.len(), more);
        if let Err(begin) = counted {
            // Anew, as above.
            pending.frames = BytesMut::from(&pending.frames[..begin]);
            return Err(TooMuch);
        }
        pending.frames.extend_from_slice(frame);
        self.written += frame.len();
        Ok(())
    }

    /// Nothing more can reach this connection.
    pub(crate) fn discard(&mut self, connection: ConnectionId) {
        if let Some(index) = self.index.get(&connection) {
            self.pending[*index].1 = Pending::default();
        }
    }

    /// Gives memory back that is there for more connections than were written to since the last
    /// [`Outbox::take`].
    pub(crate) fn shrink(&mut self) {
        self.pending.shrink_to_fit();
        hash::shrink(&mut self.index);
    }

    /// How many bytes were written since the last [`Outbox::take`]; those of connections that are
    /// gone as well.
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

    /// What is refused is not sent, and takes no room: it would stay with what is sent, and nobody
    /// would count it. Seen to fail with a buffer that is only cut back.
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
