//! One connection, as the threads share it: the data to send, and how it ends.

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod log_limiter;
pub(crate) mod origin;
pub(crate) mod tls_charge;
mod unsent;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockkeeper_tree::{CloseReason, ConnectionId, Output};
use rustix::net::Shutdown;
use tokio::sync::Notify;

use crate::clock;
use crate::connection::budget::{Account, SMALL_SHARE_BYTES};
use crate::connection::log_limiter::LogLimiter;
use crate::connection::unsent::Unsent;
use crate::metrics::counter::Latency;
use crate::metrics::ops::Op;
use crate::sockets::stream::{Outlet, Peer};

/// The memory of a waiting frame besides its bytes: its entry in a queue, and its share of the buffer into which it was
/// read.
const FRAME_OVERHEAD: usize = 64;
/// How many bytes of requests may wait to be handled before the connection is no longer read.
const READ_AHEAD: usize = 128 * 1024;
/// A connection is handled as soon as it is read while its requests take at most one part in this many of the tree
/// thread's time.
const LIGHT_SHARE: u32 = 50;
/// How much of that time it may use at once.
const LIGHT_BURST: Duration = Duration::from_millis(1);

/// A client's connection.
///
/// A thread that has data for the client writes it to the socket at once: no other thread has to be woken for a reply.
/// The connection's own task sends the bytes that the socket does not accept.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: Peer,
    /// The subject of the client's certificate.
    pub(crate) subject: Option<String>,
    /// Whether its place is reserved for a client that returns with a session.
    pub(crate) is_kept: bool,
    outlet: Outlet,
    outgoing: Mutex<Outgoing>,
    /// Notifies the connection's task that bytes are left to send, or that the connection ends.
    attention: Notify,
    /// The bytes that may wait for the client.
    max_outgoing: usize,
    log_limiter: Arc<LogLimiter>,
    /// Its share of the budget for all waiting data.
    pub(crate) account: Account,
    /// Bytes that the tree has produced for the client and that the socket has not accepted.
    owed: AtomicUsize,
    /// Bytes of frames that were delivered and are not handled yet.
    unhandled: AtomicUsize,
    /// Whether its requests wait until the client has read some replies.
    is_held_back: AtomicBool,
    /// When the client last read something while more was waiting, or sent something, in milliseconds since the
    /// connection was opened.
    moved_ms: AtomicU64,
    /// Until when the time of its requests is paid for, in microseconds since it was opened.
    paid_until_us: AtomicU64,
    opened: Instant,
    /// When it was opened, in milliseconds since 1970.
    pub(crate) opened_ms: i64,
}

struct Outgoing {
    /// The bytes that the socket has not accepted yet.
    unsent: Unsent,
    /// Whether bytes were left after the last write.
    is_left_over: bool,
    /// How many bytes the socket has accepted so far.
    taken: u64,
    life: ConnectionState,
    traffic: ConnectionTraffic,
}

/// Traffic of a connection since it was opened or since the counters were reset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionTraffic {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// The last request: its kind, and the client's number for it.
    pub(crate) last: Option<(Op, i32)>,
    /// When the last reply was sent, in milliseconds since 1970.
    pub(crate) last_reply_ms: i64,
    pub(crate) last_latency: Duration,
    pub(crate) latency: Latency,
}

impl ConnectionTraffic {
    fn answered(&mut self, took: Duration) {
        self.latency.add(took);
        self.last_latency = took;
        self.last_reply_ms = clock::now().unix_ms;
        self.sent += 1;
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Open,
    /// Buffered data is still sent, then the connection ends.
    Finishing,
    /// Everything was sent, and the peer knows that no more will follow.
    Finished,
    /// Ended at once, for any reason.
    Cut,
}

/// The events for which a connection's task has to wait.
pub(crate) struct Interest {
    pub(crate) life: ConnectionState,
    pub(crate) write: bool,
    /// Whether the client is to be read: it reads its replies, and its requests are handled.
    pub(crate) read: bool,
    /// Whether it uses so much of the budget that it is not read for a while.
    pub(crate) pause: bool,
    /// How many bytes the socket has accepted so far.
    pub(crate) taken: u64,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        (peer, subject): (Peer, Option<String>),
        outlet: Outlet,
        (max_outgoing, account): (usize, Account),
        log_limiter: Arc<LogLimiter>,
    ) -> Self {
        Self {
            id,
            peer,
            subject,
            is_kept: false,
            outlet,
            outgoing: Mutex::new(Outgoing {
                unsent: Unsent::default(),
                is_left_over: false,
                taken: 0,
                life: ConnectionState::Open,
                traffic: ConnectionTraffic::default(),
            }),
            attention: Notify::new(),
            max_outgoing,
            log_limiter,
            account,
            owed: AtomicUsize::new(0),
            unhandled: AtomicUsize::new(0),
            is_held_back: AtomicBool::new(false),
            moved_ms: AtomicU64::new(0),
            paid_until_us: AtomicU64::new(0),
            opened: Instant::now(),
            opened_ms: clock::now().unix_ms,
        }
    }

    /// Sets whether its place is reserved for a client that returns with a session.
    pub(crate) fn in_place(self, is_kept: bool) -> Self {
        Self { is_kept, ..self }
    }

    /// Counts requests, of which this is the last.
    pub(crate) fn received(&self, frames: usize, last: (Op, i32)) {
        let traffic = &mut self.lock().traffic;
        traffic.received += frames as u64;
        traffic.last = Some(last);
    }

    pub(crate) fn traffic(&self) -> ConnectionTraffic {
        self.lock().traffic
    }

    /// Resets the counters.
    pub(crate) fn reset_traffic(&self) {
        self.lock().traffic = ConnectionTraffic::default();
    }

    /// Counts bytes that the tree has produced for the client, before they enter the pipeline.
    pub(crate) fn owe(&self, output: &Output) {
        if let Output::Send(bytes) = output {
            self.owed.fetch_add(bytes.len(), Ordering::Relaxed);
            self.account.add(bytes.len());
        }
    }

    /// Subtracts bytes that were sent or will not be sent.
    fn settle(&self, bytes: usize) {
        let before = self.owed.fetch_sub(bytes, Ordering::Relaxed);
        self.account.subtract(bytes);
        // The connection's task may have stopped reading while all its replies were still on their way to the disk:
        // then nothing else would wake it. The tree thread must also learn that there is room again.
        let crossed = |mark: usize| before > mark && before - bytes <= mark;
        if crossed(self.mark()) || crossed(self.mark() / 2) {
            self.attention.notify_one();
        }
    }

    /// Counts frames that are delivered to the tree.
    pub(crate) fn deliver(&self, frames: &[Bytes]) {
        let bytes = frames.iter().map(waiting_frame).sum();
        self.unhandled.fetch_add(bytes, Ordering::Relaxed);
        self.account.add(bytes);
    }

    /// Subtracts a delivered frame that the tree is about to handle.
    pub(crate) fn handled(&self, frame: &Bytes) {
        let bytes = waiting_frame(frame);
        let before = self.unhandled.fetch_sub(bytes, Ordering::Relaxed);
        self.account.subtract(bytes);
        if before > READ_AHEAD && before - bytes <= READ_AHEAD {
            self.attention.notify_one();
        }
    }

    /// The number of unsent bytes above which the client gets no more replies until it has read some.
    fn mark(&self) -> usize {
        self.max_outgoing / 4
    }

    /// Whether the client must read some replies before more of its requests are handled.
    pub(crate) fn is_full(&self) -> bool {
        self.owes_more_than(self.mark())
    }

    /// Whether it has read enough: less than half of the limit remains. Resuming for every single request would cost a
    /// round each.
    pub(crate) fn has_room_again(&self) -> bool {
        !self.owes_more_than(self.mark() / 2)
    }

    /// Whether the unsent bytes exceed `mark`, or the memory allowed at present.
    fn owes_more_than(&self, mark: usize) -> bool {
        let owed = self.owed.load(Ordering::Relaxed);
        owed > mark || (owed > SMALL_SHARE_BYTES && !self.account.may_grow())
    }

    /// Sets whether its requests wait until the client has read some replies.
    pub(crate) fn hold_back(&self, hold: bool) {
        self.is_held_back.store(hold, Ordering::Relaxed);
    }

    /// Whether its requests are not read or not handled until the client has read some replies.
    pub(crate) fn is_held_back(&self) -> bool {
        self.is_held_back.load(Ordering::Relaxed) || self.is_full()
    }

    /// Whether its requests took so little time recently that the next ones are handled before those of clients that
    /// have sent many.
    pub(crate) fn is_light(&self, now: Instant) -> bool {
        let burst = (LIGHT_BURST * LIGHT_SHARE).as_micros() as u64;
        self.paid_until_us.load(Ordering::Relaxed) <= self.age_us(now) + burst
    }

    /// Charges the tree thread's time that its requests took.
    pub(crate) fn spend(&self, now: Instant, time: Duration) {
        let paid = self.paid_until_us.load(Ordering::Relaxed).max(self.age_us(now));
        let time = (time * LIGHT_SHARE).as_micros() as u64;
        self.paid_until_us.store(paid + time, Ordering::Relaxed);
    }

    fn age_us(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.opened).as_micros() as u64
    }

    /// Records that the client has read or sent something.
    pub(crate) fn moved(&self) {
        let now = self.opened.elapsed().as_millis() as u64;
        self.moved_ms.store(now, Ordering::Relaxed);
    }

    /// How long the client has neither read nor sent anything.
    pub(crate) fn stuck_for(&self) -> Duration {
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(moved)
    }

    /// The bytes of the budget that it uses because of its client: data that waits for the disk is not included.
    pub(crate) fn burden(&self) -> usize {
        let in_pipeline =
            self.owed.load(Ordering::Relaxed).saturating_sub(self.lock().unsent.len());
        self.account.bytes().saturating_sub(in_pipeline)
    }

    /// Accepts an output, with the time since its request; [`Connection::flush`] sends it.
    pub(crate) fn push(&self, output: Output, took: Duration) {
        let mut outgoing = self.lock();
        match output {
            Output::Send(bytes) if outgoing.life == ConnectionState::Open => {
                outgoing.unsent.push(bytes);
                outgoing.traffic.answered(took);
            }
            Output::Send(bytes) => self.settle(bytes.len()),
            Output::Close(reason) if outgoing.life == ConnectionState::Open => {
                self.log_close(&reason);
                outgoing.life = ConnectionState::Finishing;
            }
            Output::Close(_) => {}
        }
    }

    /// Sends plain bytes and then ends the connection: for peers that are not ZooKeeper clients.
    pub(crate) fn push_last(&self, bytes: Bytes) {
        let output = Output::Send(bytes);
        self.owe(&output);
        self.push(output, Duration::ZERO);
        self.lock().life = ConnectionState::Finishing;
    }

    /// Writes as much as the socket accepts without waiting. A client for which too much is left is disconnected.
    pub(crate) fn flush(&self) {
        let mut outgoing = self.lock();
        if let Err(e) = self.write(&mut outgoing) {
            tracing::debug!(peer = %self.peer, "connection lost while sending: {e}");
            self.end(&mut outgoing);
        }

        let left = outgoing.unsent.len();
        if left > self.max_outgoing {
            let allowed = self.max_outgoing;
            let what = format_args!(
                "dropped a slow client: {left} bytes wait for it, and {allowed} are allowed"
            );
            self.log_limiter.warn("slow client", Some(self.peer), &what);
            self.end(&mut outgoing);
        }

        let is_sent = outgoing.unsent.is_empty() && !self.outlet.has_backlog();
        if outgoing.life == ConnectionState::Finishing && is_sent {
            self.outlet.shutdown(Shutdown::Write);
            outgoing.life = ConnectionState::Finished;
        }

        if outgoing.life != ConnectionState::Open || !is_sent {
            self.attention.notify_one();
        }
    }

    fn write(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let sent = outgoing.unsent.send(|bytes| self.outlet.try_write(bytes))?;
        outgoing.taken += sent as u64;
        self.settle(sent);
        let is_left_over = !outgoing.unsent.is_empty();
        if is_left_over && (sent > 0 || !outgoing.is_left_over) {
            self.moved();
        }
        outgoing.is_left_over = is_left_over;
        match self.outlet.try_flush() {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(()),
        }
    }

    /// Ends the connection now; unsent data is lost.
    pub(crate) fn cut(&self) {
        self.end(&mut self.lock());
    }

    fn end(&self, outgoing: &mut Outgoing) {
        outgoing.life = ConnectionState::Cut;
        self.settle(std::mem::take(&mut outgoing.unsent).len());
        self.outlet.shutdown(Shutdown::Both);
        self.attention.notify_one();
    }

    /// The events for which its task has to wait now. Every change after this call is followed by
    /// [`Connection::attention`], which also remembers a notification that came before the wait; the end of a pause is
    /// not notified.
    pub(crate) fn wants(&self) -> Interest {
        let outgoing = self.lock();
        let is_answered = self.owed.load(Ordering::Relaxed) <= self.mark();
        let is_handled = self.unhandled.load(Ordering::Relaxed) <= READ_AHEAD;
        Interest {
            life: outgoing.life,
            write: !outgoing.unsent.is_empty() || self.outlet.has_backlog(),
            read: is_answered && is_handled,
            pause: !self.account.may_grow(),
            taken: outgoing.taken,
        }
    }

    /// Waits for a change that [`Connection::wants`] would show.
    pub(crate) async fn attention(&self) {
        self.attention.notified().await;
    }

    /// Waits until [`Connection::flush`] may send more.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.outlet.writable().await
    }

    fn log_close(&self, reason: &CloseReason) {
        let what = format_args!("connection closed: {reason}");
        match reason.kind() {
            Some(kind) => self.log_limiter.warn(kind, Some(self.peer), &what),
            None => tracing::debug!(peer = %self.peer, "{what}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of a frame that waits to be handled.
fn waiting_frame(frame: &Bytes) -> usize {
    frame.len() + FRAME_OVERHEAD
}
