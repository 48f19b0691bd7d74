//! Time, the links, and the faults.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_session::{Contact, Timing};
use lockkeeper_wire::{
    ConnectResponse, Decoder, ErrorCode, MAX_FRAME, OpResult, PASSWORD_LEN, Record as _,
    ReplyHeader, Request, RequestHeader, Response, SessionId, Stat, Zxid, split_frame, write_frame,
};

use crate::client::Client;
use crate::ensemble::{Ensemble, Outcome, SERVERS};

/// The maximum number of lines of a story.
const STORY: usize = 120;

const SESSION: SessionId = SessionId(7);

/// The faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Anything,
    /// Outages that must be survived, with time to recover in between.
    Outages,
    /// Every reply takes the maximum time.
    SlowAnswers,
}

#[derive(Clone, Debug)]
enum Event {
    ToServer {
        connection: u64,
        frame: Bytes,
    },
    ToClient {
        connection: u64,
        bytes: Bytes,
    },
    Closed {
        connection: u64,
    },
    Connect,
    Relay(usize),
    Chat,
    Goes {
        wrong: bool,
    },
    /// Of one server, or of all.
    Resume(Option<usize>),
    Isolate(usize),
    Leave(usize),
    Heal(usize),
    Elect,
    /// For the story.
    LeaseEnds,
}

struct Connection {
    number: u64,
    server: usize,
    is_accepted: bool,
    /// A request hangs, and so do all that come after it.
    hangs: bool,
    /// When the last message arrives, in each direction.
    at_server: Duration,
    at_client: Duration,
}

pub(crate) struct World {
    now: Duration,
    random: fastrand::Rng,
    trouble: Trouble,
    timing: Timing,
    queue: BTreeMap<(Duration, u64), Event>,
    events: u64,
    client: Client,
    ensemble: Ensemble,
    connection: Option<Connection>,
    connections: u64,
    /// No message passes until then; the client does nothing until `client_paused`.
    link_cut: Duration,
    client_paused: Duration,
    /// Every connection attempt is refused until then.
    refused: Duration,
    /// The messages that wait for a paused server.
    backlog: [Vec<Event>; SERVERS],
    is_proven: bool,
    is_interrupted: bool,
    least_left: Duration,
    /// The remaining lease below which a run ends, so that the story shows the reason.
    least_allowed: Duration,
    story: VecDeque<(Duration, Event)>,
}

impl World {
    pub(crate) fn new(seed: u64, timing: Timing, trouble: Trouble) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let client = Client::new(timing, timing.relay() * 2, &mut random);
        let mut world = Self {
            now: Duration::ZERO,
            trouble,
            timing,
            queue: BTreeMap::new(),
            events: 0,
            client,
            ensemble: Ensemble::new(timing.timeout()),
            connection: None,
            connections: 0,
            link_cut: Duration::ZERO,
            client_paused: Duration::ZERO,
            refused: Duration::ZERO,
            backlog: Default::default(),
            is_proven: false,
            is_interrupted: false,
            least_left: timing.timeout(),
            least_allowed: Duration::ZERO,
            story: VecDeque::new(),
            random,
        };
        world.schedule(Duration::ZERO, Event::Connect);
        for server in 0..SERVERS {
            let phase = world.share(timing.relay());
            world.schedule(phase, Event::Relay(server));
        }
        world.schedule(Duration::ZERO, Event::Chat);
        let first = world.share(timing.timeout());
        world.schedule(timing.timeout() / 2 + first, Event::Goes { wrong: true });
        world
    }

    /// Ends runs when less of a lease remains.
    pub(crate) fn allow_least(&mut self, least: Duration) {
        self.least_allowed = least;
    }

    /// Advances the time until the session has expired at the latest.
    pub(crate) fn run(&mut self, end: Duration) {
        while self.now < end
            && self.ensemble.expired().is_none()
            && self.least_left >= self.least_allowed
        {
            let queued = self.queue.first_key_value().map_or(end, |((at, _), _)| *at);
            let wakes = self.client.wakes_at().unwrap_or(end).max(self.client_paused);
            let next = queued.min(wakes).min(self.ensemble.expiry().max(self.now)).max(self.now);
            self.note_left(next);
            self.now = next;
            self.ensemble.expire(self.now);
            if queued <= self.now
                && let Some((_, event)) = self.queue.pop_first()
            {
                self.handle(event);
            } else if wakes <= self.now && self.client.timeout(self.now).is_err() {
                self.drop_connection();
            } else if next < wakes.min(queued) && self.ensemble.expired().is_none() {
                // Without a quorum, the session cannot expire yet.
                self.now = wakes.min(queued);
            }
            self.transmit();
        }
    }

    /// The latest deadline that the client had, and when the session was expired, if it was.
    pub(crate) fn deadline_and_expiry(&self) -> Option<(Duration, Duration)> {
        Some((self.client.deadline(), self.ensemble.expired()?))
    }

    /// Whether the lease was never interrupted.
    pub(crate) fn is_held_through(&self) -> bool {
        self.is_proven && !self.is_interrupted && self.ensemble.expired().is_none()
    }

    pub(crate) fn least_left(&self) -> Duration {
        self.least_left
    }

    /// The last events.
    pub(crate) fn story(&self) -> String {
        let Self { timing, ensemble, story, .. } = self;
        let lines: Vec<_> = story.iter().map(|(at, event)| format!("{at:?} {event:?}")).collect();
        format!("{}\n{timing:?}\n{ensemble:?}", lines.join("\n"))
    }

    // ----- events -----------------------------------------------------------------------------

    fn handle(&mut self, event: Event) {
        if !matches!(event, Event::Relay(_) | Event::Chat) {
            self.tell(event.clone());
        }
        match event {
            Event::ToServer { connection, frame } => self.arrive(connection, frame),
            Event::ToClient { connection, ref bytes } => {
                if self.client_paused > self.now {
                    return self.schedule(self.client_paused, event);
                }
                if self.is_current(connection) && self.client.receive(self.now, bytes).is_err() {
                    self.drop_connection();
                }
            }
            Event::Closed { connection } if self.is_current(connection) => self.drop_connection(),
            Event::Closed { .. } => {}
            Event::Connect => self.connect(),
            Event::Relay(server) => {
                self.ensemble.relay(server, self.now);
                self.schedule(self.timing.relay(), Event::Relay(server));
            }
            Event::Chat => {
                // A write of the program, in runs that allow it.
                if self.trouble == Trouble::Anything && self.client_paused <= self.now {
                    self.client.chat(self.now, &mut self.random);
                }
                let pause = self.share(self.timing.timeout());
                self.schedule(pause, Event::Chat);
            }
            Event::Goes { wrong } => self.go_wrong(wrong),
            Event::Resume(server) => self.resume(server),
            Event::LeaseEnds => {}
            Event::Isolate(server) => self.ensemble.isolate(server),
            Event::Leave(server) => {
                self.ensemble.leave(server);
                self.close_if_refused(server);
            }
            Event::Heal(server) => {
                let is_elected = self.ensemble.heal(server, self.now);
                self.close_all_on(server);
                self.follow(is_elected);
            }
            Event::Elect => {
                let is_elected = self.ensemble.elect(self.now);
                self.follow(is_elected);
            }
        }
    }

    fn go_wrong(&mut self, wrong: bool) {
        if !wrong {
            return;
        }
        let timeout = self.timing.timeout();
        let again = match self.trouble {
            Trouble::Anything => {
                self.anything();
                self.share(timeout)
            }
            Trouble::Outages => {
                let outage = self.timing.outage().mul_f64(0.5 + self.random.f64() * 0.499);
                self.outage(outage);
                outage + self.recovery() + self.share(timeout)
            }
            Trouble::SlowAnswers => return,
        };
        self.schedule(again, Event::Goes { wrong: true });
    }

    /// The minimum time between two outages: messages sent during an outage arrive late, the server reports
    /// them to its leader, and a heartbeat proves that.
    fn recovery(&self) -> Duration {
        let timing = &self.timing;
        timing.silence_limit() + timing.relay() + timing.renewal_interval()
    }

    fn anything(&mut self) {
        let timeout = self.timing.timeout();
        let server = self.random.usize(0..SERVERS);
        let lasts = self.share(timeout * 2);
        match self.random.u8(0..8) {
            0..3 => self.isolate(server, Duration::ZERO, lasts),
            3 => self.pause(server, lasts / 2),
            4 => {
                let (pause, moment) = (lasts / 4, Duration::from_millis(self.random.u64(1..500)));
                self.pause(server, pause);
                self.isolate(server, pause + moment, lasts);
            }
            5 => self.client_paused = self.now + lasts / 2,
            6 => self.link_cut = self.now + lasts / 2,
            _ => self.drop_connection(),
        }
    }

    fn outage(&mut self, lasts: Duration) {
        let end = self.now + lasts;
        match self.random.u8(0..3) {
            0 => self.link_cut = end,
            1 => {
                self.refused = end;
                self.drop_connection();
            }
            _ => {
                (0..SERVERS).for_each(|server| self.ensemble.set_paused(server, true, self.now));
                self.schedule(lasts, Event::Resume(None));
            }
        }
    }

    /// Cuts a server off from the others. All of them notice, sooner or later.
    fn isolate(&mut self, server: usize, after: Duration, lasts: Duration) {
        let notices = after + Duration::from_millis(100) + self.share(self.timing.timeout() * 2);
        self.schedule(after, Event::Isolate(server));
        self.schedule(notices, Event::Leave(server));
        let elected = after + Duration::from_millis(100) + self.share(self.timing.timeout() / 2);
        self.schedule(elected, Event::Elect);
        self.schedule(notices.max(after + lasts), Event::Heal(server));
    }

    fn pause(&mut self, server: usize, lasts: Duration) {
        if self.ensemble.is_paused(server) {
            return;
        }
        self.ensemble.set_paused(server, true, self.now);
        self.schedule(lasts, Event::Resume(Some(server)));
        if self.trouble == Trouble::Anything && self.random.bool() {
            let elected = self.share(lasts);
            self.schedule(elected, Event::Elect);
            let notices = self.share(self.timing.timeout());
            self.schedule(lasts + notices, Event::Leave(server));
            self.schedule(lasts + notices, Event::Heal(server));
        }
    }

    fn resume(&mut self, server: Option<usize>) {
        let which = match server {
            Some(server) => server..server + 1,
            None => 0..SERVERS,
        };
        // All of them first: a write waits until there is a quorum.
        which.clone().for_each(|server| self.ensemble.set_paused(server, false, self.now));
        for server in which {
            for event in std::mem::take(&mut self.backlog[server]) {
                self.handle(event);
            }
        }
    }

    // ----- connections ------------------------------------------------------------------------

    fn is_current(&self, number: u64) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.number == number)
    }

    fn connect(&mut self) {
        if self.connection.is_some() {
            return;
        }
        if self.refused > self.now || self.client_paused > self.now {
            let pause = self.timing.retry_interval();
            return self.schedule(pause, Event::Connect);
        }
        let server = self.random.usize(0..SERVERS);
        self.connections += 1;
        let (number, now) = (self.connections, self.now);
        let (is_accepted, hangs, at_server, at_client) = (false, false, now, now);
        let connection = Connection { number, server, is_accepted, hangs, at_server, at_client };
        self.connection = Some(connection);
        self.client.connected(self.now);
    }

    fn drop_connection(&mut self) {
        if self.connection.take().is_some() {
            self.client.disconnected(self.now);
            let pause = self.share(self.timing.retry_interval());
            self.schedule(pause, Event::Connect);
        }
    }

    fn close_all_on(&mut self, server: usize) {
        if let Some(connection) = self.connection.as_ref().filter(|c| c.server == server) {
            let closed = Event::Closed { connection: connection.number };
            self.schedule(Duration::from_millis(1), closed);
        }
    }

    fn close_if_refused(&mut self, server: usize) {
        if self.ensemble.read(server, self.now) == Outcome::Refused {
            self.close_all_on(server);
        }
    }

    /// Servers that follow another leader now close their clients' connections.
    fn follow(&mut self, is_elected: bool) {
        if is_elected {
            (0..SERVERS).for_each(|server| self.close_unless_deposed(server));
        }
    }

    /// A server that changes its leader closes its connections; a deposed leader does not know yet.
    fn close_unless_deposed(&mut self, server: usize) {
        let is_well = !self.ensemble.is_paused(server);
        if is_well && self.ensemble.write(server, self.now) == Outcome::Answered {
            self.close_all_on(server);
        }
    }

    fn transmit(&mut self) {
        let mut bytes = self.client.transmits();
        if bytes.is_empty() {
            return;
        }
        let delay = Duration::from_micros(self.random.u64(100..3_000));
        let passes = self.passes_at();
        let Some(connection) = &mut self.connection else { return };
        let number = connection.number;
        let arrival = (passes + delay).max(connection.at_server);
        connection.at_server = arrival;
        while let Ok(Some(frame)) = split_frame(&mut bytes, MAX_FRAME) {
            self.schedule(arrival - self.now, Event::ToServer { connection: number, frame });
        }
    }

    /// A frame arrives at the server of a connection.
    fn arrive(&mut self, number: u64, frame: Bytes) {
        if !self.is_current(number) {
            return;
        }
        let connection = self.connection.as_mut().expect("it is the current one");
        let server = connection.server;
        if self.ensemble.is_paused(server) {
            return self.backlog[server].push(Event::ToServer { connection: number, frame });
        }
        if !connection.is_accepted {
            connection.is_accepted = true;
            let welcome = welcome(self.timing.timeout());
            return match self.ensemble.handshake(server, self.now) {
                Outcome::Answered => self.answer(|out| welcome.encode(out)),
                Outcome::Expired => self.answer(|out| ConnectResponse::expired(None).encode(out)),
                Outcome::Hangs => {}
                Outcome::Refused => self.close_all_on(server),
            };
        }

        let mut input = Decoder::new(frame);
        let header = RequestHeader::decode(&mut input).expect("our own client's bytes");
        let request = Request::decode(header.op, &mut input).expect("our own client's bytes");
        let is_write = matches!(request, Request::Multi(_) | Request::SetData(_));
        let outcome = match is_write {
            true => self.ensemble.write(server, self.now),
            false => self.ensemble.read(server, self.now),
        };
        let connection = self.connection.as_mut().expect("it is the current one");
        // A ping is answered even if an earlier request hangs.
        connection.hangs |= outcome == Outcome::Hangs;
        if connection.hangs && request != Request::Ping {
            return;
        }
        let error = match outcome {
            Outcome::Refused => return self.close_all_on(server),
            Outcome::Expired => ErrorCode::SessionExpired.code(),
            Outcome::Answered | Outcome::Hangs => 0,
        };
        let header = ReplyHeader { xid: header.xid, zxid: Zxid(1), error };
        self.answer(|out| {
            header.encode(out);
            if error == 0 {
                response(request).encode(out);
            }
        });
    }

    fn answer(&mut self, content: impl FnOnce(&mut BytesMut)) {
        let mut out = BytesMut::new();
        write_frame(&mut out, content);
        let takes = match self.trouble {
            Trouble::SlowAnswers => self.timing.slowest_answer().mul_f64(self.random.f64()),
            _ => Duration::from_micros(self.random.u64(100..10_000)),
        };
        let passes = self.passes_at();
        let Some(connection) = &mut self.connection else { return };
        let arrival = (passes + takes).max(connection.at_client);
        connection.at_client = arrival;
        let event = Event::ToClient { connection: connection.number, bytes: out.freeze() };
        self.schedule(arrival - self.now, event);
    }

    /// Records an event for the story.
    fn tell(&mut self, event: Event) {
        if self.story.len() >= STORY {
            self.story.pop_front();
        }
        self.story.push_back((self.now, event));
    }

    /// When a packet that is sent now arrives. A lost packet is retransmitted after pauses that double, so it
    /// arrives after the end of the outage, by at most the time that it has waited.
    fn passes_at(&mut self) -> Duration {
        let waits = self.link_cut.saturating_sub(self.now);
        self.now + waits + self.share(waits)
    }

    // ----- time -------------------------------------------------------------------------------

    fn schedule(&mut self, after: Duration, event: Event) {
        self.events += 1;
        self.queue.insert((self.now.max(after + self.now), self.events), event);
    }

    /// A fraction of a time.
    fn share(&mut self, of: Duration) -> Duration {
        of.mul_f64(self.random.f64())
    }

    /// Records what remains of the lease just before the next event.
    fn note_left(&mut self, next: Duration) {
        let left = self.client.left(next);
        let is_connected = self.client.session.contact() == Contact::Connected;
        if !self.is_proven && is_connected && left > Duration::ZERO {
            self.is_proven = true;
            self.client.hold(self.now);
        }
        if self.is_proven {
            self.least_left = self.least_left.min(left);
            if left.is_zero() && !self.is_interrupted {
                self.is_interrupted = true;
                self.tell(Event::LeaseEnds);
            }
        }
    }
}

fn welcome(timeout: Duration) -> ConnectResponse {
    ConnectResponse {
        protocol_version: 0,
        timeout_ms: i32::try_from(timeout.as_millis()).expect("seconds"),
        session_id: SESSION,
        password: Bytes::from_static(&[1; PASSWORD_LEN]),
        read_only: Some(false),
    }
}

fn response(request: Request) -> Response {
    match request {
        Request::Multi(ops) => Response::Multi(vec![OpResult::Check; ops.len()]),
        Request::SetData(_) => Response::Stat(Stat::default()),
        Request::Sync(sync) => Response::Path(sync.path),
        _ => Response::Empty,
    }
}
