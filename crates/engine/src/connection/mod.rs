//! One connection, as the threads share it: what is still to be sent, and how it ends.

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
use crate::connection::budget::{Account, LITTLE};
use crate::connection::log_limiter::LogLimiter;
use crate::connection::unsent::Unsent;
use crate::metrics::counter::Latency;
use crate::metrics::ops::Op;
use crate::sockets::stream::{Outlet, Peer};

/// What a frame that waits takes besides its bytes: itself in a queue, and its part of what it was read
/// into.
const FRAME_OVERHEAD: usize = 64;
/// How many bytes of requests may wait to be handled before the connection is not read.
const READ_AHEAD: usize = 128 * 1024;
/// A connection is handled as soon as it is read, as long as its requests take no more of the tree
/// thread's time than one part in so many.
const LIGHT_SHARE: u32 = 50;
/// How much of that time it may take at once.
const LIGHT_BURST: Duration = Duration::from_millis(1);

/// A client's connection.
///
/// Whichever thread has something for the client writes it to the socket at once: no thread has to
/// be woken for a reply. What the socket does not take is left to the connection's own task.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) peer: Peer,
    /// The subject of the certificate that the client has shown.
    pub(crate) subject: Option<String>,
    /// Whether its place is kept for a client that comes back with a session.
    pub(crate) is_kept: bool,
    outlet: Outlet,
    outgoing: Mutex<Outgoing>,
    /// Tells the connection's task that bytes are left over, or that the end has come.
    attention: Notify,
    /// How many bytes may wait for the client at all.
    max_outgoing: usize,
    log_limiter: Arc<LogLimiter>,
    /// What it has of the memory for all.
    pub(crate) account: Account,
    /// Bytes that the tree has made for the client, up to those that the socket has taken.
    owed: AtomicUsize,
    /// Bytes of frames that were delivered, and not handled yet.
    unhandled: AtomicUsize,
    /// Whether requests of it wait until it has taken something.
    is_held_back: AtomicBool,
    /// When the client last took something while more was waiting, or sent something, in
    /// milliseconds since it was opened.
    moved_ms: AtomicU64,
    /// Until when the time that its requests took is paid for, in microseconds since it was opened.
    paid_until_us: AtomicU64,
    opened: Instant,
    /// When it was opened, in milliseconds since 1970.
    pub(crate) opened_ms: i64,
}

struct Outgoing {
    /// What the socket has not taken yet.
    unsent: Unsent,
    /// Whether anything was left the last time.
    is_left_over: bool,
    /// How many bytes it has taken so far.
    taken: u64,
    life: ConnectionState,
    traffic: ConnectionTraffic,
}

/// What went through a connection since it was opened, or since the operator began anew.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionTraffic {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// The last request, by kind and by the number that the client gave it.
    pub(crate) last: Option<(Op, i32)>,
    /// When the last reply left, in milliseconds since 1970.
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

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Open,
    /// What is buffered is still sent, then the connection ends.
    Finishing,
    /// Everything was sent, and the peer knows that nothing will follow.
    Finished,
    /// Ended at once, by whom or whatever.
    Cut,
}

/// What a connection's task has to wait for.
pub(crate) struct Interest {
    pub(crate) life: ConnectionState,
    pub(crate) write: bool,
    /// Whether the client takes its replies, and its requests are handled: otherwise it is not read.
    pub(crate) read: bool,
    /// Whether it has so much of the memory for all that it is not read for a while.
    pub(crate) pause: bool,
    /// How many bytes the socket has taken so far.
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

    /// Says whether its place is kept for a client that comes back with a session.
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

    /// Begins counting anew.
    pub(crate) fn reset_traffic(&self) {
        self.lock().traffic = ConnectionTraffic::default();
    }

    /// Counts bytes that the tree has made for the client: before they go to the pipeline.
    pub(crate) fn owe(&self, output: &Output) {
        if let Output::Send(bytes) = output {
            self.owed.fetch_add(bytes.len(), Ordering::Relaxed);
            self.account.add(bytes.len());
        }
    }

    /// Bytes have left, or will not be sent any more.
    fn settle(&self, bytes: usize) {
        let before = self.owed.fetch_sub(bytes, Ordering::Relaxed);
        self.account.subtract(bytes);
        // Its task may have found that it is not to be read, when all that it is owed was still on its
        // way to the disk: then nothing else would wake it.
        // The tree thread hears from it when it has room again.
        let crossed = |mark: usize| before > mark && before - bytes <= mark;
        if crossed(self.mark()) || crossed(self.mark() / 2) {
            self.attention.notify_one();
        }
    }

    /// Counts frames that go to the tree.
    pub(crate) fn deliver(&self, frames: &[Bytes]) {
        let bytes = frames.iter().map(waiting_frame).sum();
        self.unhandled.fetch_add(bytes, Ordering::Relaxed);
        self.account.add(bytes);
    }

    /// The tree is about to handle a frame that was delivered.
    pub(crate) fn handled(&self, frame: &Bytes) {
        let bytes = waiting_frame(frame);
        let before = self.unhandled.fetch_sub(bytes, Ordering::Relaxed);
        self.account.subtract(bytes);
        if before > READ_AHEAD && before - bytes <= READ_AHEAD {
            self.attention.notify_one();
        }
    }

    /// From how many bytes on the client gets no more replies before it has taken some.
    fn mark(&self) -> usize {
        self.max_outgoing / 4
    }

    /// Whether the client is to take something before more of its requests are handled.
    pub(crate) fn is_full(&self) -> bool {
        self.owes_more_than(self.mark())
    }

    /// Whether it has taken enough. Less than half of what it was held back for: each request one by
    /// one would cost a turn each.
    pub(crate) fn has_room_again(&self) -> bool {
        !self.owes_more_than(self.mark() / 2)
    }

    /// Whether the client is owed more than so much, or more than memory allows at present.
    fn owes_more_than(&self, mark: usize) -> bool {
        let owed = self.owed.load(Ordering::Relaxed);
        owed > mark || (owed > LITTLE && !self.account.may_grow())
    }

    /// Notes whether requests of it wait until it has taken something.
    pub(crate) fn hold_back(&self, hold: bool) {
        self.is_held_back.store(hold, Ordering::Relaxed);
    }

    /// Whether requests of it are not read or not handled before it has taken something.
    pub(crate) fn is_held_back(&self) -> bool {
        self.is_held_back.load(Ordering::Relaxed) || self.is_full()
    }

    /// Whether its requests took so little time lately that the next go before those of others who
    /// have sent many.
    pub(crate) fn is_light(&self, now: Instant) -> bool {
        let burst = (LIGHT_BURST * LIGHT_SHARE).as_micros() as u64;
        self.paid_until_us.load(Ordering::Relaxed) <= self.age_us(now) + burst
    }

    /// Its requests took so much of the tree thread's time.
    pub(crate) fn spend(&self, now: Instant, time: Duration) {
        let paid = self.paid_until_us.load(Ordering::Relaxed).max(self.age_us(now));
        let time = (time * LIGHT_SHARE).as_micros() as u64;
        self.paid_until_us.store(paid + time, Ordering::Relaxed);
    }

    fn age_us(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.opened).as_micros() as u64
    }

    /// The client has taken or sent something.
    pub(crate) fn moved(&self) {
        let now = self.opened.elapsed().as_millis() as u64;
        self.moved_ms.store(now, Ordering::Relaxed);
    }

    /// For how long the client has neither taken nor sent anything.
    pub(crate) fn stuck_for(&self) -> Duration {
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(moved)
    }

    /// How many bytes it has of the memory for all because of its client: what waits for the disk is
    /// not counted.
    pub(crate) fn burden(&self) -> usize {
        let in_pipeline =
            self.owed.load(Ordering::Relaxed).saturating_sub(self.lock().unsent.len());
        self.account.bytes().saturating_sub(in_pipeline)
    }

    /// Takes an output in, so long after what it answers; [`Connection::flush`] sends it.
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

    /// Sends plain bytes, then ends the connection: for peers that are no ZooKeeper clients.
    pub(crate) fn push_last(&self, bytes: Bytes) {
        let output = Output::Send(bytes);
        self.owe(&output);
        self.push(output, Duration::ZERO);
        self.lock().life = ConnectionState::Finishing;
    }

    /// Writes as much as the socket takes without waiting. A client for which too much is left
    /// over is dropped.
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
                "dropped a slow client: {left} bytes wait for it, {allowed} are allowed"
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

    /// Ends the connection now; what was not sent is lost.
    pub(crate) fn cut(&self) {
        self.end(&mut self.lock());
    }

    fn end(&self, outgoing: &mut Outgoing) {
        outgoing.life = ConnectionState::Cut;
        self.settle(std::mem::take(&mut outgoing.unsent).len());
        self.outlet.shutdown(Shutdown::Both);
        self.attention.notify_one();
    }

    /// What its task has to wait for now. Any change after this call is followed by
    /// [`Connection::attention`], which remembers one that came before it was waited for; but the end
    /// of a pause is not.
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

    /// Waits until [`Connection::flush`] may get on.
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

/// What a frame takes while it waits to be handled.
fn waiting_frame(frame: &Bytes) -> usize {
    frame.len() + FRAME_OVERHEAD
}
