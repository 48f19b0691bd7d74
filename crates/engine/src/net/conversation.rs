//! The task of one connection: it reads frames, and sends the data that other threads could not send.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{FrameError, split_frame};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::admin::four_letter;
use crate::connection::admission::Slot;
use crate::connection::budget::{Account, CHECK_INTERVAL, Pressure, SMALL_SHARE_BYTES};
use crate::connection::tls_charge::{NoRoom, TlsCharge};
use crate::connection::{Connection, ConnectionState, Interest};
use crate::shared::Shared;
use crate::sockets::stream::{Accepted, Incoming, Opened, Peer};
use crate::tree_loop::Event;

/// The largest handshake, in bytes: far above real ones (45), and too small to do harm.
const MAX_HANDSHAKE: usize = 4 * 1024;
/// The first bytes of a TLS client, of any version: the type of the record, and the first half of its version.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];
/// The buffer space of a read, initially and at most, in bytes.
const SMALL_READ: usize = 2 * 1024;
const LARGE_READ: usize = 64 * 1024;
/// How long a peer may take to notice the end of the connection: without reading any of the last replies, and then with
/// further sending.
const LINGER: Duration = Duration::from_secs(1);
/// How long the handshake may take on a connection whose place is reserved for returning clients.
const KEPT_TIME: Duration = Duration::from_secs(2);
/// How often a client that is not read, but reads its replies, counts as alive.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum CloseCause {
    #[error("the peer closed the connection")]
    ByPeer,
    #[error("the peer closed the connection in the middle of a frame")]
    CutOff,
    #[error("{0}")]
    Lost(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("the peer did not read the last replies")]
    LastNotTaken,
    #[error("too little memory for the answer to a four-letter word")]
    NoRoomForAnswer,
    #[error(
        "no answer to a four-letter word within {0:?}: earlier words were still being answered"
    )]
    NoAnswer(Duration),
    #[error("disconnected a client that read no replies for {0:?}")]
    NotTaken(Duration),
    #[error("the TLS handshake failed: {0}")]
    NoTls(io::Error),
    #[error("{0}")]
    NoRoomForTls(NoRoom),
    #[error("no handshake within {0:?}")]
    TooLate(Duration),
    #[error("{0}")]
    NoClient(String),
}

impl CloseCause {
    /// The error of a failed handshake.
    fn no_tls(error: io::Error) -> Self {
        match error.downcast::<NoRoom>() {
            Ok(no_room) => Self::NoRoomForTls(no_room),
            Err(error) => Self::NoTls(error),
        }
    }
}

/// The first bytes of a connection.
enum FirstBytes {
    Handshake(Bytes),
    /// A four-letter word, and its argument if it takes one.
    Word([u8; 4], i64),
    /// The hello of a TLS client at a port without TLS.
    Tls,
}

/// Serves one connection from its first byte to its last.
#[tracing::instrument(name = "connection", level = "debug", skip_all, fields(%peer, id))]
pub(crate) async fn serve_connection(
    shared: Arc<Shared>,
    peer: Peer,
    accepted: Accepted,
    slot: Slot,
) {
    let mut time = shared.plan.limits.handshake_time;
    if slot.is_kept() {
        time = time.min(KEPT_TIME);
    }
    let until = (Instant::now() + time, time);
    // The charge lasts as long as the connection.
    let (opened, _charge) = match in_time(until, open(&shared, accepted, &slot)).await {
        Ok(opened) => opened,
        Err(ended) => {
            shared.metrics.counters.tls_failed.add(1);
            return log_end(&shared, peer, &ended);
        }
    };

    let id = shared.next_connection();
    tracing::Span::current().record("id", id.0);
    let who = (peer, opened.subject);
    let room = (shared.plan.limits.max_outgoing, Account::new(shared.budget.clone()));
    let connection = Connection::new(id, who, opened.outlet, room, shared.log_limiter.clone());
    let connection = Arc::new(connection.in_place(slot.is_kept()));

    let mut reader = Reader::new(opened.incoming);
    let ended = match in_time(until, reader.first_bytes()).await {
        Ok(FirstBytes::Handshake(frame)) => serve(&shared, &mut reader, &connection, frame).await,
        Ok(FirstBytes::Word(word, mask)) => {
            answer_word(&shared, &connection, (word, mask), until).await
        }
        Ok(FirstBytes::Tls) => refuse_tls(&shared, &connection).await,
        Err(ended) => Err(ended),
    };

    if let Err(ended) = ended {
        log_end(&shared, peer, &ended);
        connection.cut();
    }

    if connection.wants().life == ConnectionState::Finished {
        reader.linger().await;
    }
    drop(slot);
}

/// Prepares a connection for the first byte of the protocol. With TLS, the handshake is charged from the client's first
/// byte on, and is done on a thread of its own.
async fn open(
    shared: &Shared,
    accepted: Accepted,
    slot: &Slot,
) -> Result<(Opened, Option<Arc<TlsCharge>>), CloseCause> {
    let (Some(handshakes), true) = (&shared.handshakes, accepted.is_tls()) else {
        let opened = accepted.open(|_| Ok(())).await;
        return Ok((opened.map_err(CloseCause::no_tls)?, None));
    };

    accepted.begins().await.map_err(CloseCause::NoTls)?;
    let charge =
        TlsCharge::begin(&shared.budget, &slot.tls).await.map_err(CloseCause::NoRoomForTls)?;
    let charged = charge.clone();
    let on_read = move |bytes| charged.grow(bytes).map_err(io::Error::other);
    let opened = handshakes.run(slot.tls.turn(), accepted.open(on_read)).await;
    let opened = opened.unwrap_or_else(|| Err(io::ErrorKind::ConnectionAborted.into()));
    let opened = opened.map_err(CloseCause::no_tls)?;
    charge.finish().map_err(CloseCause::NoRoomForTls)?;
    Ok((opened, Some(charge)))
}

/// Waits for a step that a client must complete in time.
async fn in_time<T>(
    (deadline, time): (Instant, Duration),
    opening: impl Future<Output = Result<T, CloseCause>>,
) -> Result<T, CloseCause> {
    timeout_at(deadline, opening).await.unwrap_or(Err(CloseCause::TooLate(time)))
}

async fn answer_word(
    shared: &Shared,
    connection: &Connection,
    (word, mask): ([u8; 4], i64),
    until: (Instant, Duration),
) -> Result<(), CloseCause> {
    let answer = async { Ok(four_letter::answer(word, mask, connection.peer, shared).await) };
    let Some(answer) = in_time(until, answer).await.map_err(|_| CloseCause::NoAnswer(until.1))?
    else {
        let word = String::from_utf8_lossy(&word).into_owned();
        let what = format!("neither a ZooKeeper handshake nor a known four-letter word: {word:?}");
        return Err(CloseCause::NoClient(what));
    };
    send_last(shared, connection, answer.into()).await
}

/// Sends a plain-text refusal, which every TLS library reports at once. A client that only saw the connection end would
/// assume that the engine is starting, and try again.
async fn refuse_tls(shared: &Shared, connection: &Connection) -> Result<(), CloseCause> {
    let what = "connection closed: a client uses TLS, which this address does not support";
    shared.log_limiter.warn("TLS at a plain port", Some(connection.peer), &what);
    let refusal = Bytes::from_static(b"this port does not speak TLS\n");
    send_last(shared, connection, refusal).await
}

/// Sends plain bytes and ends the connection, for a peer that is not a client. The peer is not read: `nc` has already
/// closed its side. It must read all bytes within the send timeout, so that it cannot hold memory by reading a byte now
/// and then.
async fn send_last(
    shared: &Shared,
    connection: &Connection,
    bytes: Bytes,
) -> Result<(), CloseCause> {
    connection.push_last(bytes);
    connection.flush();
    let time = shared.plan.limits.send_timeout;
    let send = async {
        let mut stall = StallDetector::default();
        loop {
            let wants = connection.wants();
            if wants.life != ConnectionState::Finishing {
                return Ok(());
            }
            // Load is shed among the connections that the tree knows, and this is not one of them.
            if wants.pause && shared.budget.pressure() == Pressure::Full {
                return Err(CloseCause::NoRoomForAnswer);
            }
            let limit = stall.limit(&wants, time);
            tokio::select! {
                sent = send(connection, &wants, limit) => sent?,
                () = sleep(CHECK_INTERVAL), if wants.pause => {}
            }
        }
    };
    timeout(time, send).await.unwrap_or(Err(CloseCause::LastNotTaken))
}

/// Passes frames to the tree until either side ends the connection.
async fn serve(
    shared: &Shared,
    reader: &mut Reader,
    connection: &Arc<Connection>,
    handshake: Bytes,
) -> Result<(), CloseCause> {
    // The tree thread normally outlives its connections; otherwise the event is not needed.
    let _ = shared.events.send(Event::Connected(connection.clone(), handshake));
    let ended = exchange(shared, reader, connection).await;
    let _ = shared.events.send(Event::Disconnected(connection.id));
    ended
}

async fn exchange(
    shared: &Shared,
    reader: &mut Reader,
    connection: &Connection,
) -> Result<(), CloseCause> {
    // The client may have sent its first requests together with the handshake.
    reader.deliver(shared, connection)?;
    let mut stall = StallDetector::default();
    let mut lived = Instant::now();

    loop {
        let wants = connection.wants();
        if !matches!(wants.life, ConnectionState::Open | ConnectionState::Finishing) {
            return Ok(());
        }
        let full = shared.pipeline.is_full();

        // The client is alive although it is not read.
        let is_alive = stall.has_taken(&wants) && connection.is_held_back();
        if is_alive && (lived.elapsed() > SIGN_OF_LIFE || connection.has_room_again()) {
            lived = Instant::now();
            let _ = shared.events.send(Event::Taken(connection.id));
        }

        let limit = stall.limit(&wants, shared.plan.limits.send_timeout);
        tokio::select! {
            sent = send(connection, &wants, limit) => sent?,
            read = reader.fill(), if wants.read && !wants.pause && !full => {
                read?;
                reader.deliver(shared, connection)?;
                if reader.is_flooded() {
                    // Without this the tree would not run before the socket is empty, which may be never: one read per
                    // round and connection.
                    yield_now().await;
                }
            }
            () = sleep(CHECK_INTERVAL), if wants.pause => {}
            () = shared.pipeline.room(), if full => {}
        }
    }
}

/// Sends waiting data to the peer, and returns when there is something new to check. A peer that reads nothing for too
/// long is disconnected. Cancel-safe.
async fn send(
    connection: &Connection,
    wants: &Interest,
    limit: Option<StallLimit>,
) -> Result<(), CloseCause> {
    tokio::select! {
        () = connection.attention() => {}
        ready = connection.writable(), if wants.write => {
            ready?;
            connection.flush();
        }
        patience = run_out(limit) => {
            // Another thread may have sent some of it.
            if connection.wants().taken == wants.taken {
                return Err(match wants.life {
                    ConnectionState::Finishing => CloseCause::LastNotTaken,
                    _ => CloseCause::NotTaken(patience),
                });
            }
        }
    }
    Ok(())
}

/// Detects a peer that reads none of the data that waits for it. Its requests do not extend the time.
#[derive(Default)]
struct StallDetector {
    since: Option<Instant>,
    /// How much the peer had read by then.
    taken: u64,
    is_ending: bool,
}

impl StallDetector {
    fn has_taken(&self, wants: &Interest) -> bool {
        self.taken != wants.taken
    }

    /// Records how much the peer has read now. `None` if no data waits for it.
    fn limit(&mut self, wants: &Interest, send_timeout: Duration) -> Option<StallLimit> {
        let is_ending = wants.life == ConnectionState::Finishing;
        let waits = wants.write || is_ending;
        if !waits || self.has_taken(wants) || self.is_ending != is_ending {
            self.since = None;
        }
        (self.taken, self.is_ending) = (wants.taken, is_ending);
        if waits {
            self.since.get_or_insert_with(Instant::now);
        }
        let patience = if is_ending { LINGER } else { send_timeout };
        self.since.map(|since| StallLimit { since, patience })
    }
}

/// Waits until the time of a peer that reads nothing is over, and returns its length.
async fn run_out(limit: Option<StallLimit>) -> Duration {
    let Some(StallLimit { since, patience }) = limit else { return pending().await };
    sleep_until(since + patience).await;
    patience
}

/// How long a peer may read nothing.
#[derive(Clone, Copy)]
struct StallLimit {
    since: Instant,
    patience: Duration,
}

/// Normal ends are only logged for debugging.
fn log_end(shared: &Shared, peer: Peer, ended: &CloseCause) {
    if let CloseCause::Frame(FrameError::TooLong { .. }) = ended {
        shared.metrics.counters.too_large.add(1);
    }

    let kind = match ended {
        CloseCause::ByPeer | CloseCause::Lost(_) => {
            return tracing::debug!(%peer, "connection closed: {ended}");
        }
        CloseCause::CutOff => "frame cut off",
        CloseCause::Frame(FrameError::TooLong { .. }) => "long frame",
        CloseCause::Frame(_) => "negative frame",
        CloseCause::LastNotTaken => "last replies",
        CloseCause::NoRoomForAnswer => "answer memory",
        CloseCause::NoAnswer(_) => "late answer",
        CloseCause::NotTaken(_) => "slow client",
        CloseCause::NoTls(_) => "TLS handshake",
        CloseCause::NoRoomForTls(_) => "TLS memory",
        CloseCause::TooLate(_) => "late handshake",
        CloseCause::NoClient(_) => "no client",
    };

    shared.log_limiter.warn(kind, Some(peer), &format_args!("connection closed: {ended}"));
}

/// The bytes that have arrived and do not form a complete frame yet.
struct Reader {
    incoming: Incoming,
    buffer: BytesMut,
    /// The buffer space for the next read: more for a client that fills it.
    room: usize,
    /// How much of the buffer is charged to the connection's account.
    charged: usize,
}

impl Reader {
    fn new(incoming: Incoming) -> Self {
        Self { incoming, buffer: BytesMut::new(), room: SMALL_READ, charged: 0 }
    }

    /// Waits for bytes. Cancel-safe.
    async fn fill(&mut self) -> Result<(), CloseCause> {
        self.buffer.reserve(self.room);
        let room = self.buffer.capacity() - self.buffer.len();
        let count = self.incoming.read(&mut self.buffer).await?;
        match count {
            0 if self.buffer.is_empty() => return Err(CloseCause::ByPeer),
            0 => return Err(CloseCause::CutOff),
            _ => {}
        }
        self.room = match count == room {
            true => LARGE_READ,
            false => SMALL_READ,
        };
        Ok(())
    }

    /// Whether more data had arrived than the last read could hold.
    fn is_flooded(&self) -> bool {
        self.room == LARGE_READ
    }

    /// Delivers all complete frames that have arrived.
    fn deliver(&mut self, shared: &Shared, connection: &Connection) -> Result<(), CloseCause> {
        let mut frames = Vec::new();
        let outcome = loop {
            match split_frame(&mut self.buffer, shared.plan.config.max_frame) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break Ok(()),
                Err(e) => break Err(e.into()),
            }
        };

        let is_large = self.charged > 2 * LARGE_READ;
        let goes_on = is_large && !frames.is_empty() && self.buffer.len() <= LARGE_READ;
        let is_over = !self.is_flooded() && self.buffer.len() <= SMALL_READ;
        if goes_on || (is_over && self.buffer.capacity() > SMALL_SHARE_BYTES) {
            // The buffer of a large request, or of many requests, is released with it. Otherwise an idle client would
            // be counted as a large one.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }

        self.charge(connection);
        // The requests before a bad frame are still valid.
        if !frames.is_empty() {
            connection.deliver(&frames);
            let _ = shared.events.send(Event::Frames(connection.id, frames));
        }
        outcome
    }

    /// Charges the buffer's memory to the connection's account.
    fn charge(&mut self, connection: &Connection) {
        let bytes = self.buffer.capacity();
        match bytes.checked_sub(self.charged) {
            Some(more) => connection.account.add(more),
            None => connection.account.subtract(self.charged - bytes),
        }
        self.charged = bytes;
        if self.buffer.len() > SMALL_SHARE_BYTES {
            connection.moved();
        }
    }

    /// Reads the first frame, or the four-letter word in its place.
    async fn first_bytes(&mut self) -> Result<FirstBytes, CloseCause> {
        loop {
            if let Some(word) = self.buffer.first_chunk::<4>().copied()
                && word.iter().all(u8::is_ascii_alphabetic)
            {
                match self.argument(word) {
                    Some(mask) => return Ok(FirstBytes::Word(word, mask)),
                    None => {
                        self.fill().await?;
                        continue;
                    }
                }
            }

            // Taken as a length, it would be far above the limit.
            if self.buffer.starts_with(&TLS_HANDSHAKE) {
                return Ok(FirstBytes::Tls);
            }

            if let Some(frame) = split_frame(&mut self.buffer, MAX_HANDSHAKE)? {
                return Ok(FirstBytes::Handshake(frame));
            }
            self.fill().await?;
        }
    }

    /// The argument of a word: a mask after `stmk`, and nothing after the others. `None` if it has not arrived.
    fn argument(&self, word: [u8; 4]) -> Option<i64> {
        if word != *b"stmk" {
            return Some(0);
        }
        self.buffer.get(word.len()..)?.first_chunk().map(|bytes| i64::from_be_bytes(*bytes))
    }

    /// Reads and discards data for a moment: if a socket with unread bytes is closed, the operating system may discard
    /// the last reply.
    async fn linger(&mut self) {
        let drain = async {
            self.buffer.clear();
            while self.fill().await.is_ok() {
                self.buffer.clear();
            }
        };
        let _ = timeout(LINGER, drain).await;
    }
}
