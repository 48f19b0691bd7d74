//! One connection, as the threads share it: what is still to be sent, and how it ends.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use lockkeeper_tree::{CloseReason, ConnectionId, Output};
use rustix::net::Shutdown;
use tokio::sync::Notify;

use crate::clock;
use crate::complaints::Complaints;
use crate::ops::Op;
use crate::socket::{Outlet, Peer};

/// A buffer that grew beyond this for a large reply is given back once no more than this is left.
const KEPT_BUFFER: usize = 8 * 1024;

/// A client's connection.
///
/// Whichever thread has something for the client writes it to the socket at once: no thread has to
/// be woken for a reply. What the socket does not take is left to the connection's own task.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: Peer,
    /// The subject of the certificate that the client has shown.
    pub(crate) subject: Option<String>,
    outlet: Outlet,
    outgoing: Mutex<Outgoing>,
    /// Tells the connection's task that bytes are left over, or that the end has come.
    attention: Notify,
    /// How many bytes may wait for a client that does not read.
    max_outgoing: usize,
    complaints: Arc<Complaints>,
    /// When it was opened, in milliseconds since 1970.
    pub(crate) opened_ms: i64,
}

struct Outgoing {
    /// What the socket has not taken yet.
    buffer: BytesMut,
    life: Life,
    traffic: Traffic,
}

/// What went through a connection since it was opened, or since the operator began anew.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// The last request, by kind and by the number that the client gave it.
    pub(crate) last: Option<(Op, i32)>,
    /// When the last reply left, in milliseconds since 1970.
    pub(crate) last_reply_ms: i64,
    pub(crate) last_latency: Duration,
    pub(crate) min_latency: Duration,
    pub(crate) max_latency: Duration,
    pub(crate) total_latency: Duration,
}

impl Traffic {
    fn answered(&mut self, took: Duration) {
        self.min_latency = if self.sent == 0 { took } else { self.min_latency.min(took) };
        self.max_latency = self.max_latency.max(took);
        self.total_latency += took;
        self.last_latency = took;
        self.last_reply_ms = clock::now().unix_ms;
        self.sent += 1;
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    /// What is buffered is still sent, then the connection ends.
    Finishing,
    /// Everything was sent, and the peer knows that nothing will follow.
    Finished,
    /// Ended at once, by whom or whatever.
    Cut,
}

/// What a connection's task has to wait for.
pub(crate) struct Wants {
    pub(crate) life: Life,
    pub(crate) write: bool,
    /// Whether the client takes its replies: one that does not is not read either.
    pub(crate) read: bool,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        (peer, subject): (Peer, Option<String>),
        outlet: Outlet,
        max_outgoing: usize,
        complaints: Arc<Complaints>,
    ) -> Self {
        Self {
            id,
            peer,
            subject,
            outlet,
            outgoing: Mutex::new(Outgoing {
                buffer: BytesMut::new(),
                life: Life::Open,
                traffic: Traffic::default(),
            }),
            attention: Notify::new(),
            max_outgoing,
            complaints,
            opened_ms: clock::now().unix_ms,
        }
    }

    /// Counts requests, of which this is the last.
    pub(crate) fn received(&self, frames: usize, last: (Op, i32)) {
        let traffic = &mut self.lock().traffic;
        traffic.received += frames as u64;
        traffic.last = Some(last);
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.lock().traffic
    }

    /// Begins counting anew.
    pub(crate) fn reset_traffic(&self) {
        self.lock().traffic = Traffic::default();
    }

    /// Takes an output in, so long after what it answers; [`Connection::flush`] sends it.
    pub(crate) fn push(&self, output: Output, took: Duration) {
        let mut outgoing = self.lock();
        if outgoing.life != Life::Open {
            return;
        }
        match output {
            Output::Send(bytes) => {
                if outgoing.buffer.is_empty() && bytes.len() > KEPT_BUFFER {
                    // A long one goes as it is: copied, it would take as much room again.
                    outgoing.buffer = bytes.into();
                } else {
                    outgoing.buffer.extend_from_slice(&bytes);
                }
                outgoing.traffic.answered(took);
            }
            Output::Close(reason) => {
                self.log_close(&reason);
                outgoing.life = Life::Finishing;
            }
        }
    }

    /// Sends plain bytes, then ends the connection: for peers that are no ZooKeeper clients.
    pub(crate) fn push_last(&self, bytes: &[u8]) {
        let mut outgoing = self.lock();
        outgoing.buffer.extend_from_slice(bytes);
        outgoing.life = Life::Finishing;
    }

    /// Writes as much as the socket takes without waiting. A client for which too much is left
    /// over is dropped.
    pub(crate) fn flush(&self) {
        let mut outgoing = self.lock();
        if let Err(e) = self.write(&mut outgoing) {
            tracing::debug!(peer = %self.peer, "connection lost while sending: {e}");
            self.end(&mut outgoing);
        }
        let left = outgoing.buffer.len();
        if left > self.max_outgoing {
            let allowed = self.max_outgoing;
            let what = format_args!(
                "dropped a slow client: {left} bytes wait for it, {allowed} are allowed"
            );
            self.complaints.warn("slow client", Some(self.peer), &what);
            self.end(&mut outgoing);
        }
        let is_sent = outgoing.buffer.is_empty() && !self.outlet.has_backlog();
        if outgoing.life == Life::Finishing && is_sent {
            self.outlet.shutdown(Shutdown::Write);
            outgoing.life = Life::Finished;
        }
        if outgoing.life != Life::Open || !is_sent {
            self.attention.notify_one();
        }
    }

    fn write(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let buffer = &mut outgoing.buffer;
        while !buffer.is_empty() {
            match self.outlet.try_write(buffer) {
                Ok(written) => buffer.advance(written),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    give_room_back(buffer);
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        match self.outlet.try_flush() {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
            _ => {}
        }
        give_room_back(buffer);
        Ok(())
    }

    /// Ends the connection now; what was not sent is lost.
    pub(crate) fn cut(&self) {
        self.end(&mut self.lock());
    }

    fn end(&self, outgoing: &mut Outgoing) {
        outgoing.life = Life::Cut;
        outgoing.buffer = BytesMut::new();
        self.outlet.shutdown(Shutdown::Both);
        self.attention.notify_one();
    }

    /// What its task has to wait for now. Any change after this call is followed by
    /// [`Connection::attention`], which remembers one that came before it was waited for.
    pub(crate) fn wants(&self) -> Wants {
        let outgoing = self.lock();
        Wants {
            life: outgoing.life,
            write: !outgoing.buffer.is_empty() || self.outlet.has_backlog(),
            read: outgoing.buffer.len() <= self.max_outgoing / 4,
        }
    }

    /// Waits for a change that [`Connection::wants`] would show.
    pub(crate) async fn attention(&self) {
        self.attention.notified().await;
    }

    /// Waits until [`Connection::flush`] may get on.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.outlet.writable().await
    }

    fn log_close(&self, reason: &CloseReason) {
        let what = format_args!("connection closed: {reason}");
        match complaint(reason) {
            Some(kind) => self.complaints.warn(kind, Some(self.peer), &what),
            None => tracing::debug!(peer = %self.peer, "{what}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives up the room of a large reply of which little or nothing is left to send.
fn give_room_back(buffer: &mut BytesMut) {
    // Not by its capacity, which does not count the room of what has been sent.
    if buffer.len() <= KEPT_BUFFER && buffer.try_reclaim(KEPT_BUFFER + 1) {
        *buffer = BytesMut::from(&buffer[..]);
    }
}

/// The kind of a refusal, for whoever runs the engine; `None` for everyday ends, which are of
/// interest to whoever debugs.
fn complaint(reason: &CloseReason) -> Option<&'static str> {
    match reason {
        // Of the quiet time the log tells once, and each client asks again and again.
        CloseReason::SessionClosed
        | CloseReason::SessionExpired
        | CloseReason::Reconnected
        | CloseReason::Stopping
        | CloseReason::Quiet { .. } => None,
        CloseReason::ClientAhead { .. } => Some("client ahead"),
        CloseReason::TooManySessions { .. } => Some("sessions"),
        CloseReason::TooManyWatches { .. } => Some("watches of a session"),
        CloseReason::AuthFailed => Some("authentication"),
        CloseReason::TooManyIdentities { .. } => Some("identities"),
        CloseReason::BadHandshake(_) => Some("handshake"),
        CloseReason::BadFrame(_) => Some("frame"),
        CloseReason::UnknownOp(_) => Some("op code"),
        CloseReason::FrameTooLong { .. } => Some("long frame"),
        _ => Some("connection closed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that took all but the last byte of a long reply kept the room of all of it, and one
    /// byte was counted. Seen to fail with a look at the capacity.
    #[test]
    fn the_room_of_a_long_reply_goes_when_little_of_it_is_left() {
        for left in [0, 1, KEPT_BUFFER] {
            let mut buffer = BytesMut::from(&vec![7; 1024 * 1024][..]);
            buffer.advance(buffer.len() - left);
            give_room_back(&mut buffer);
            assert_eq!(buffer, vec![7; left]);
            assert!(!buffer.try_reclaim(1), "there is room for more than {left} bytes");
        }
    }

    #[test]
    fn a_small_buffer_is_kept() {
        let mut buffer = BytesMut::with_capacity(KEPT_BUFFER);
        let place = buffer.as_ptr();
        buffer.extend_from_slice(b"sent");
        buffer.advance(4);
        give_room_back(&mut buffer);
        assert!(buffer.try_reclaim(KEPT_BUFFER));
        assert_eq!(buffer.as_ptr(), place);
    }
}
