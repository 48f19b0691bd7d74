//! The session against a scripted server: bytes in, bytes out, time passed by hand.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Create, CreateMode, CreateRequest, Decoder, DeleteRequest,
    ErrorCode, EventKind, KeeperState, MAX_FRAME, OpCode, OpResult, Outgoing as _, PathRequest,
    PathWatchRequest, Record, ReplyHeader, Request, RequestHeader, Response, SessionId, Stat,
    WatchEvent as Notification, ZnodePath, Zxid, split_frame, write_frame, xid,
};

use crate::*;

mod jeopardy;
mod refused;
mod replace;
mod watches;

const TIMEOUT: Duration = Duration::from_secs(12);

/// A session, the server that it talks to, and the time.
struct World {
    session: Session<u32>,
    now: Instant,
    to_server: BytesMut,
    to_client: BytesMut,
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn config(lease: LeaseMode) -> Config {
    Config { session_timeout: TIMEOUT, lease, ..Config::default() }
}

impl World {
    fn new(config: Config) -> Self {
        let now = Instant::from_start(seconds(100.0));
        Self {
            session: Session::new(config, now),
            now,
            to_server: BytesMut::new(),
            to_client: BytesMut::new(),
        }
    }

    /// A world whose session is connected, with the events of that taken.
    fn connected() -> Self {
        Self::connected_with(config(LeaseMode::Quorum))
    }

    fn connected_with(config: Config) -> Self {
        let mut world = Self::new(config);
        world.connect(7);
        world.events();
        world
    }

    fn connect(&mut self, session: i64) -> ConnectRequest {
        self.session.handle_connected(self.now);
        let request = self.take_handshake();
        self.answer_handshake(session).unwrap();
        request
    }

    fn take_handshake(&mut self) -> ConnectRequest {
        self.transmit();
        let frame = split_frame(&mut self.to_server, MAX_FRAME).unwrap().unwrap();
        ConnectRequest::decode(&mut Decoder::new(frame)).unwrap()
    }

    fn answer_handshake(&mut self, session: i64) -> Result<(), Disconnect> {
        self.answer_handshake_with(session, TIMEOUT)
    }

    fn answer_handshake_with(&mut self, session: i64, timeout: Duration) -> Result<(), Disconnect> {
        let response = if session == 0 {
            ConnectResponse::expired(Some(false))
        } else {
            ConnectResponse {
                protocol_version: 0,
                timeout_ms: i32::try_from(timeout.as_millis()).unwrap(),
                session_id: SessionId(session),
                password: Bytes::from_static(b"0123456789abcdef"),
                read_only: Some(false),
            }
        };
        write_frame(&mut self.to_client, |out| response.encode(out));
        self.deliver()
    }

    fn lose_connection(&mut self) {
        self.to_client.clear();
        self.to_server.clear();
        self.session.handle_disconnected(self.now);
    }

    fn transmit(&mut self) {
        while let Some(bytes) = self.session.poll_transmit() {
            self.to_server.extend_from_slice(&bytes);
        }
    }

    fn deliver(&mut self) -> Result<(), Disconnect> {
        self.session.handle_input(self.now, &mut self.to_client)
    }

    /// What the client has sent and the server not yet seen.
    fn requests(&mut self) -> Vec<(i32, Request)> {
        self.transmit();
        let mut requests = Vec::new();
        while let Some(frame) = split_frame(&mut self.to_server, MAX_FRAME).unwrap() {
            let mut input = Decoder::new(frame);
            let header = RequestHeader::decode(&mut input).unwrap();
            requests.push((header.xid, Request::decode(header.op, &mut input).unwrap()));
        }
        requests
    }

    fn request(&mut self) -> (i32, Request) {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0)
    }

    fn reply(&mut self, xid: i32, result: Result<Response, ErrorCode>) -> Result<(), Disconnect> {
        let error = result.as_ref().err().map_or(0, |code| code.code());
        let header = ReplyHeader { xid, zxid: Zxid(50), error };
        write_frame(&mut self.to_client, |out| {
            header.encode(out);
            if let Ok(response) = &result {
                response.encode(out);
            }
        });
        self.deliver()
    }

    fn notify(&mut self, kind: EventKind, path: &str) {
        self.notify_at(Zxid(-1), kind, path);
    }

    fn notify_at(&mut self, zxid: Zxid, kind: EventKind, path: &str) {
        let header = ReplyHeader { xid: xid::NOTIFICATION, zxid, error: 0 };
        let event = Notification { kind, state: KeeperState::SyncConnected, path: path.into() };
        write_frame(&mut self.to_client, |out| {
            header.encode(out);
            event.encode(out);
        });
        self.deliver().unwrap();
    }

    fn pass(&mut self, time: Duration) -> Result<(), Disconnect> {
        self.now = self.now + time;
        self.session.handle_timeout(self.now)
    }

    /// Lets time pass on a healthy connection, where pings and heartbeats are answered at once.
    fn idle(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let next = self.session.poll_timeout().unwrap_or(end).min(end);
            self.pass(next - self.now).unwrap();
            for (xid, request) in self.requests() {
                let response = match request {
                    Request::Multi(ops) => Response::Multi(vec![OpResult::Check; ops.len()]),
                    _ => Response::Empty,
                };
                self.reply(xid, Ok(response)).unwrap();
            }
        }
    }

    fn timing(&self) -> Timing {
        self.session.timing()
    }

    fn events(&mut self) -> Vec<Event<u32>> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    fn submit(&mut self, request: Request, token: u32) {
        self.session.submit(self.now, request, token);
    }

    fn results(&mut self) -> Vec<(u32, Result<Response, RequestError>)> {
        let replies = self.events().into_iter().filter_map(|event| match event {
            Event::Reply { token, result, .. } => Some((token, result)),
            _ => None,
        });
        replies.collect()
    }

    fn deadline(&self) -> Option<Instant> {
        self.session.lease().deadline
    }
}

fn create(path: &str) -> Request {
    let request = CreateRequest {
        path: path.into(),
        data: Bytes::new().into(),
        acl: vec![].into(),
        flags: 3,
    };
    Request::Create2(request)
}

fn get_data(path: &str) -> Request {
    Request::GetData(PathWatchRequest { path: path.into(), watch: false })
}

fn exists(path: &str) -> Request {
    Request::Exists(PathWatchRequest { path: path.into(), watch: false })
}

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).unwrap()
}

fn created() -> Result<Response, ErrorCode> {
    Ok(Response::Created { path: "/a".into(), stat: Stat::default() })
}

fn data() -> Result<Response, ErrorCode> {
    Ok(Response::Data { data: Bytes::new().into(), stat: Stat::default() })
}

#[test]
fn a_new_session_asks_for_one_and_takes_what_it_gets() {
    let mut world = World::new(config(LeaseMode::Quorum));
    assert_eq!(world.session.contact(), Contact::Disconnected);
    let request = world.connect(7);
    assert_eq!((request.session_id, request.timeout_ms), (SessionId::NONE, 12_000));
    assert_eq!(world.events(), [Event::Connected { session: SessionId(7), is_new: true }]);
    assert_eq!((world.session.id(), world.session.contact()), (SessionId(7), Contact::Connected));
}

#[test]
fn requests_are_pipelined_and_answered_in_order() {
    let mut world = World::connected();
    world.submit(create("/a"), 1);
    world.submit(get_data("/a"), 2);
    let requests = world.requests();
    assert_eq!(requests.len(), 2, "both in one go");
    world.reply(requests[0].0, created()).unwrap();
    world.reply(requests[1].0, Err(ErrorCode::NoNode)).unwrap();
    let results = world.results();
    assert_eq!(results[0], (1, created().map_err(RequestError::Server)));
    assert_eq!(results[1], (2, Err(RequestError::Server(ErrorCode::NoNode))));
}

#[test]
fn a_reply_out_of_order_ends_the_connection() {
    let mut world = World::connected();
    world.submit(create("/a"), 1);
    world.submit(get_data("/a"), 2);
    let requests = world.requests();
    let result = world.reply(requests[1].0, data());
    assert!(matches!(result, Err(Disconnect::OutOfOrder { .. })), "{result:?}");
}

#[test]
fn bytes_that_are_no_protocol_end_the_connection() {
    let mut world = World::new(config(LeaseMode::Quorum));
    world.session.handle_connected(world.now);
    world.to_client.extend_from_slice(b"SSH-2.0-OpenSSH_9.2\r\n");
    assert!(matches!(world.deliver(), Err(Disconnect::Frame(_))));
}

#[test]
fn a_lost_connection_tells_what_may_have_been_applied() {
    let mut world = World::connected();
    world.submit(create("/a"), 1);
    world.submit(get_data("/a"), 2);
    world.lose_connection();
    let results = world.results();
    assert_eq!(results[0], (1, Err(RequestError::ConnectionLost(Outcome::Unknown))));
    assert_eq!(results[1], (2, Err(RequestError::ConnectionLost(Outcome::NotApplied))));
}

#[test]
fn unsent_requests_wait_for_the_next_connection() {
    let mut world = World::connected();
    world.lose_connection();
    world.submit(create("/a"), 1);
    assert_eq!(world.results(), []);
    let request = world.connect(7);
    assert_eq!(
        (request.session_id, &request.password[..]),
        (SessionId(7), &b"0123456789abcdef"[..])
    );
    assert!(matches!(world.request(), (_, Request::Create2(_))));
}

#[test]
fn requests_wait_for_a_session_timeout_and_no_longer() {
    let mut world = World::connected();
    world.lose_connection();
    world.submit(create("/a"), 1);
    world.pass(TIMEOUT - seconds(0.1)).unwrap();
    assert_eq!(world.results(), []);
    assert_eq!(world.session.poll_timeout(), Some(world.now + seconds(0.1)));
    world.pass(seconds(0.1)).unwrap();
    assert_eq!(world.session.contact(), Contact::Unreachable);
    world.submit(create("/b"), 2);
    let unreachable = || Err(RequestError::Unreachable);
    assert_eq!(world.results(), [(1, unreachable()), (2, unreachable())]);
    world.connect(7);
    assert_eq!(world.session.contact(), Contact::Connected, "the session may have lived on");
}

/// Whoever released a lock without a server waited until there was one again.
#[test]
fn nobody_waits_for_a_cleanup_longer_than_for_requests_and_it_goes_on() {
    let mut world = World::connected();
    world.lose_connection();
    world.session.clean_up(world.now, Cleanup::Node(path("/a")), Some(1));
    world.pass(TIMEOUT).unwrap();
    world.session.clean_up(world.now, Cleanup::Node(path("/b")), Some(2));
    let unreachable = || Err(RequestError::Unreachable);
    assert_eq!(world.results(), [(1, unreachable()), (2, unreachable())]);

    world.connect(7);
    let deleted = world.requests().into_iter().filter_map(|(_, request)| match request {
        Request::Delete(delete) => Some(delete.path),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), ["/a", "/b"]);
}

#[test]
fn an_expired_session_fails_everything_and_the_next_connection_is_a_new_one() {
    let mut world = World::connected();
    world.session.submit_watching(world.now, exists("/a"), WatchKind::Exists, 1);
    let (xid, _) = world.request();
    world.reply(xid, Err(ErrorCode::NoNode)).unwrap();
    world.events();
    world.session.hold(world.now, path("/held"));
    world.lose_connection();
    world.submit(create("/a"), 2);
    world.session.clean_up(world.now, Cleanup::Node(path("/c")), Some(3));
    let generation = world.session.lease().generation;
    world.session.handle_connected(world.now);
    world.take_handshake();
    assert_eq!(world.answer_handshake(0), Err(Disconnect::SessionExpired));
    world.lose_connection();

    let expired = || Err(RequestError::SessionExpired(Outcome::NotApplied));
    let events = world.events();
    assert!(events.contains(&Event::Expired { session: SessionId(7) }));
    assert!(events.contains(&Event::Reply { token: 2, result: expired(), zxid: Zxid(0) }));
    assert!(events.contains(&Event::Reply { token: 3, result: expired(), zxid: Zxid(0) }));
    assert_eq!(world.session.lease().deadline, None);
    assert_ne!(world.session.lease().generation, generation);

    assert_eq!(world.connect(8).session_id, SessionId::NONE);
    assert_eq!(world.requests(), [], "no watch, hold or delete of the old session lives on");
    assert_eq!(world.events(), [Event::Connected { session: SessionId(8), is_new: true }]);
}

/// R8: a resume that silently swapped the session.
#[test]
fn r8_a_resume_that_answers_with_another_session_is_an_expiry() {
    let mut world = World::connected();
    world.lose_connection();
    world.events();
    assert_eq!(world.connect(9).session_id, SessionId(7));
    assert_eq!(
        world.events(),
        [
            Event::Expired { session: SessionId(7) },
            Event::Connected { session: SessionId(9), is_new: true }
        ]
    );
}

/// A server sends also what a client does not take. To leave it would be to read the same again, and to
/// have everything in doubt meanwhile.
#[test]
fn an_answer_that_is_too_long_fails_its_read_alone() {
    let mut world = World::connected_with(Config { max_frame: 1_000, ..config(LeaseMode::Quorum) });
    world.submit(get_data("/long"), 1);
    world.submit(get_data("/short"), 2);
    let requests = world.requests();
    let long = Response::Data { data: Bytes::from(vec![7; 5_000]).into(), stat: Stat::default() };
    let len = 16 + 4 + 5_000 + 68;
    let header = |xid| ReplyHeader { xid, zxid: Zxid(50), error: 0 };
    let mut bytes = BytesMut::new();
    for (xid, response) in [(requests[0].0, long), (requests[1].0, data().unwrap())] {
        write_frame(&mut bytes, |out| {
            header(xid).encode(out);
            response.encode(out);
        });
    }

    // However the bytes come in, and however slowly, as long as they come.
    let limit = world.timing().silence_limit();
    for part in bytes.chunks(700) {
        world.to_client.extend_from_slice(part);
        world.deliver().unwrap();
        assert!(world.to_client.len() <= 700, "nothing is kept of it");
        world.pass(limit.mul_f64(0.9)).unwrap();
    }
    let too_long = Err(RequestError::AnswerTooLong { len, max: 1_000 });
    assert_eq!(world.results(), [(1, too_long), (2, data().map_err(RequestError::Server))]);
    assert_eq!(world.session.contact(), Contact::Connected);
}

#[test]
fn what_is_too_long_and_no_answer_to_a_read_ends_the_connection() {
    for (name, other_xid, len) in [
        ("an answer to nothing", Some(1_000), 5_000),
        ("without end", None, i32::MAX),
        ("an event", Some(xid::NOTIFICATION), 5_000),
    ] {
        let mut world =
            World::connected_with(Config { max_frame: 1_000, ..config(LeaseMode::Quorum) });
        world.submit(get_data("/long"), 1);
        let (xid, _) = world.request();
        world.to_client.extend_from_slice(&len.to_be_bytes());
        ReplyHeader { xid: other_xid.unwrap_or(xid), zxid: Zxid(50), error: 0 }
            .encode(&mut world.to_client);
        let ended = world.deliver();
        assert!(matches!(ended, Err(Disconnect::Frame(_))), "{name}: {ended:?}");
    }

    // A write may have been applied.
    let mut world = World::connected_with(Config { max_frame: 1_000, ..config(LeaseMode::Quorum) });
    world.submit(create("/a"), 1);
    let (xid, _) = world.request();
    world.to_client.extend_from_slice(&5_000_i32.to_be_bytes());
    ReplyHeader { xid, zxid: Zxid(50), error: 0 }.encode(&mut world.to_client);
    assert!(matches!(world.deliver(), Err(Disconnect::Frame(_))));
}

/// It would be as long on the next connection, and end that one too.
#[test]
fn a_read_whose_answer_is_too_long_to_be_skipped_fails_with_its_length() {
    let mut world = World::connected_with(Config { max_frame: 1_000, ..config(LeaseMode::Quorum) });
    world.submit(get_data("/long"), 1);
    let (xid, _) = world.request();
    let len = MOST_SKIPPED + 1;
    world.to_client.extend_from_slice(&i32::try_from(len).unwrap().to_be_bytes());
    world.deliver().unwrap();
    ReplyHeader { xid, zxid: Zxid(50), error: 0 }.encode(&mut world.to_client);
    assert!(matches!(world.deliver(), Err(Disconnect::Frame(_))));
    world.lose_connection();
    assert_eq!(world.results(), [(1, Err(RequestError::AnswerTooLong { len, max: 1_000 }))]);
}

/// Its listing is as long on the next connection, so it waits for a while.
#[test]
fn a_cleanup_whose_answer_is_too_long_costs_no_connection_and_goes_on() {
    let mut world = World::connected_with(Config { max_frame: 1_000, ..config(LeaseMode::Quorum) });
    let target = Cleanup::ByPrefix { parent: path("/locks"), prefix: "_c_1".into() };
    world.session.clean_up(world.now, target, Some(1));
    let requests = world.requests();
    world.reply(requests[0].0, Ok(Response::Path("/locks".into()))).unwrap();
    world.to_client.extend_from_slice(&5_000_i32.to_be_bytes());
    ReplyHeader { xid: requests[1].0, zxid: Zxid(50), error: 0 }.encode(&mut world.to_client);
    world.to_client.extend_from_slice(&[7; 5_000 - 16]);
    world.deliver().unwrap();
    assert_eq!((world.session.contact(), world.results()), (Contact::Connected, vec![]));
    assert_eq!(world.requests(), [], "not at once");

    world.pass(world.timing().ping_interval()).unwrap();
    let is_listing = |(_, request): &(i32, Request)| matches!(request, Request::GetChildren(_));
    assert!(world.requests().iter().any(is_listing));
}

/// The rest of an answer belongs to its connection.
#[test]
fn nothing_is_skipped_on_the_next_connection() {
    let mut world = World::connected_with(Config { max_frame: 1_000, ..config(LeaseMode::Quorum) });
    world.submit(get_data("/long"), 1);
    let (xid, _) = world.request();
    world.to_client.extend_from_slice(&5_000_i32.to_be_bytes());
    ReplyHeader { xid, zxid: Zxid(50), error: 0 }.encode(&mut world.to_client);
    world.deliver().unwrap();
    world.lose_connection();
    world.connect(7);
    assert_eq!(world.session.contact(), Contact::Connected);
}

#[test]
fn a_silent_server_is_pinged_and_then_left() {
    let mut world = World::connected();
    let (ping, limit) = (world.timing().ping_interval(), world.timing().silence_limit());
    assert_eq!(world.session.poll_timeout(), Some(world.now + ping));
    world.pass(ping).unwrap();
    assert_eq!(world.request(), (xid::PING, Request::Ping));
    world.pass(limit - seconds(0.001)).unwrap();
    assert_eq!(world.pass(seconds(0.001)), Err(Disconnect::Silent));
}

/// A server that has nothing to answer owes nothing, however long ago it said something.
#[test]
fn a_server_that_answers_late_is_not_taken_for_a_silent_one() {
    let mut world = World::connected();
    let slowest = world.timing().slowest_answer();
    for _ in 0..20 {
        world.pass(world.timing().ping_interval()).unwrap();
        let pings = world.requests().len();
        world.pass(slowest).unwrap();
        (0..pings).for_each(|_| world.reply(xid::PING, Ok(Response::Empty)).unwrap());
    }
}

#[test]
fn a_handshake_that_is_not_answered_is_given_up() {
    let mut world = World::new(config(LeaseMode::Quorum));
    world.session.handle_connected(world.now);
    assert_eq!(world.pass(world.timing().silence_limit()), Err(Disconnect::Silent));
}

#[test]
fn pings_move_a_direct_lease_and_not_a_quorum_lease() {
    for (mode, moves) in [(LeaseMode::Direct, true), (LeaseMode::Quorum, false)] {
        let mut world = World::connected_with(config(mode));
        let before = world.deadline().unwrap();
        world.pass(world.timing().ping_interval()).unwrap();
        let sent = world.now;
        world.now = world.now + seconds(0.5);
        world.reply(xid::PING, Ok(Response::Empty)).unwrap();
        let expected = if moves { sent + world.timing().lease() } else { before };
        assert_eq!(world.deadline(), Some(expected), "{mode:?}");
    }
}

#[test]
fn a_sync_moves_no_quorum_lease_and_a_write_does() {
    let mut world = World::connected();
    let before = world.deadline();
    world.idle(TIMEOUT / 2);
    world.submit(Request::Sync(PathRequest { path: "/".into() }), 1);
    let (xid, _) = world.request();
    world.reply(xid, Ok(Response::Path("/".into()))).unwrap();
    assert_eq!(world.deadline(), before);
    world.submit(create("/a"), 2);
    let (xid, _) = world.request();
    world.reply(xid, created()).unwrap();
    assert!(world.session.lease().remaining(world.now) >= world.timing().lease());
}

#[test]
fn a_resumed_session_has_proven_nothing_to_a_quorum_lease() {
    let mut world = World::connected();
    let before = world.deadline();
    world.lose_connection();
    world.now = world.now + seconds(1.0);
    world.connect(7);
    assert_eq!(world.deadline(), before);
}

/// A client that stalled wrote as soon as it went on, and took the answer for a proof: the leader
/// had last heard of the session before the stall.
#[test]
fn a_write_after_a_stall_proves_what_was_sent_before_it() {
    let mut world = World::connected();
    world.session.hold(world.now, path("/held"));
    world.idle(TIMEOUT);
    let stalled = world.now;
    world.pass(TIMEOUT / 2).unwrap();
    let requests = world.requests();
    let (xid, Request::Multi(_)) = requests[0] else { panic!("{requests:?}") };
    world.reply(xid, Ok(Response::Multi(vec![OpResult::Check]))).unwrap();
    let newest = stalled + world.timing().life_after_touch();
    assert!(world.deadline() <= Some(newest), "{:?}, stalled at {stalled:?}", world.deadline());
}

/// After a late answer, writes count only when the news had the time to travel, so the next
/// heartbeat comes just then.
#[test]
fn a_late_answer_makes_the_next_heartbeat_come_early() {
    let mut world = World::connected();
    let late = world.timing().silence_limit() + seconds(0.001);
    world.session.hold(world.now, path("/held"));
    world.idle(TIMEOUT);
    world.submit(Request::Sync(PathRequest { path: "/".into() }), 1);
    let (xid, _) = world.request();
    world.now = world.now + late;
    world.reply(xid, Ok(Response::Path("/".into()))).unwrap();
    let sure_from = world.session.lease().sure_from;
    assert_eq!(sure_from, world.now + world.timing().relay());
    while world.session.poll_timeout().unwrap() < sure_from {
        let next = world.session.poll_timeout().unwrap();
        world.pass(next - world.now).unwrap();
        world.requests().iter().for_each(|(xid, _)| {
            if *xid == xid::PING {
                world.reply(*xid, Ok(Response::Empty)).unwrap();
            }
        });
    }
    assert_eq!(world.session.poll_timeout(), Some(sure_from));
}

/// An outage that was survived did cost the lease all the same: the first heartbeat after it was
/// not counted, as answers had been late.
#[test]
fn after_an_outage_the_first_heartbeat_counts() {
    let mut world = World::connected();
    world.session.hold(world.now, path("/held"));
    world.idle(TIMEOUT);
    let outage = world.timing().outage();
    world.pass(world.timing().ping_interval()).unwrap();
    world.lose_connection();

    world.now = world.now + (outage - world.timing().silence_limit());
    world.session.handle_connected(world.now);
    let handshake = world.now;
    world.take_handshake();
    world.pass(world.timing().silence_limit() - seconds(0.001)).unwrap();
    world.answer_handshake(7).unwrap();
    world.pass(Duration::ZERO).unwrap();
    let requests = world.requests();
    let (xid, Request::Multi(_)) = requests[0] else { panic!("{requests:?}") };
    let generation = world.session.lease().generation;
    world.reply(xid, Ok(Response::Multi(vec![OpResult::Check]))).unwrap();
    assert_eq!(world.deadline(), Some(handshake + world.timing().life_after_touch()));
    assert_eq!(world.session.lease().generation, generation, "without a gap");
}

/// F1: a lock that was granted after a wait was lost on a healthy server. The first heartbeat was
/// due an interval after the grant, however old the newest proof was by then.
#[test]
fn the_first_heartbeat_of_a_hold_is_due_an_interval_after_the_newest_proof() {
    let timing = World::connected().timing();
    for share in 0..=20 {
        let mut world = World::connected();
        world.idle(timing.lease() * share / 20);
        world.session.hold(world.now, path("/held"));
        let left = world.session.lease().remaining(world.now);
        let moment = seconds(0.001);
        world.idle(left.saturating_sub(timing.left_at_grant()) + moment);
        for _ in 0..100 {
            let left = world.session.lease().remaining(world.now);
            assert!(left + moment >= timing.left_at_grant(), "{share} of 20: {left:?}");
            world.idle(timing.lease() / 20);
        }
    }
}

/// A heartbeat that stood behind all that a program had to write came too late on a slow link.
#[test]
fn a_heartbeat_waits_for_little_of_what_the_caller_sends() {
    let mut world = World::connected();
    world.session.hold(world.now, path("/held"));
    world.idle(TIMEOUT);
    let large = Bytes::from(vec![0; 300_000]);
    for number in 0..50 {
        let path = format!("/large-{number}");
        let request =
            CreateRequest { path, data: large.clone().into(), acl: vec![].into(), flags: 0 };
        world.submit(Request::Create(request), number);
    }
    let target = Cleanup::ByPrefix { parent: path("/"), prefix: "large-49".into() };
    world.session.clean_up(world.now, target, None);
    world.session.close(world.now);

    world.pass(world.timing().renewal_interval()).unwrap();
    let mut waiting = world.requests();
    let beat = waiting.iter().position(|(_, request)| matches!(request, Request::Multi(_)));
    assert!(beat.is_some_and(|behind| behind * large.len() <= 2 << 20), "{beat:?}");

    // The rest follows as answers come, in order, and what looks for it comes last.
    let (mut answered, mut others) = (Vec::new(), Vec::new());
    while !waiting.is_empty() {
        for (xid, request) in std::mem::take(&mut waiting) {
            match request {
                Request::Create(create) => {
                    answered.push(create.path);
                    world.reply(xid, Ok(Response::Path("/".into()))).unwrap();
                }
                Request::Multi(ops) => {
                    let results = vec![OpResult::Check; ops.len()];
                    world.reply(xid, Ok(Response::Multi(results))).unwrap();
                }
                Request::Sync(sync) => {
                    others.push(answered.len());
                    world.reply(xid, Ok(Response::Path(sync.path))).unwrap();
                }
                Request::GetChildren(_) => {
                    world.reply(xid, Ok(Response::Names(Vec::new()))).unwrap();
                }
                Request::CloseSession => others.push(answered.len()),
                _ => {}
            }
        }
        waiting = world.requests();
    }
    let expected: Vec<_> = (0..50).map(|number| format!("/large-{number}")).collect();
    assert_eq!(answered, expected);
    assert_eq!(others, [50, 50], "the search, and the end of the session");
    assert_eq!(world.results().len(), 50);
}

/// Servers that take their time get no more work for it.
#[test]
fn only_so_many_heartbeats_wait_for_an_answer() {
    let mut world = World::connected();
    world.session.hold(world.now, path("/held"));
    world.idle(TIMEOUT);
    let mut sent = 0;
    let limit = world.timing().silence_limit();
    let end = world.now + limit + limit;
    while world.now < end {
        let next = world.session.poll_timeout().unwrap();
        world.now = next;
        if world.session.handle_timeout(next).is_err() {
            break;
        }
        let is_beat = |(_, request): &(i32, Request)| matches!(request, Request::Multi(_));
        sent += world.requests().iter().filter(|request| is_beat(request)).count();
        // Something that is answered, so that the server is not given up as silent.
        write_frame(&mut world.to_client, |out| {
            ReplyHeader { xid: xid::PING, zxid: Zxid(50), error: 0 }.encode(out);
        });
        world.deliver().unwrap();
    }
    assert_eq!(sent, 3, "in {:?}", limit * 2);
}

#[test]
fn a_resume_with_a_shorter_timeout_shortens_the_lease() {
    let mut world = World::connected_with(config(LeaseMode::Direct));
    world.lose_connection();
    let sent = world.now;
    world.session.handle_connected(world.now);
    world.take_handshake();
    world.answer_handshake_with(7, TIMEOUT / 3).unwrap();
    let length = Timing::of(world.session.config(), TIMEOUT / 3).lease();
    assert_eq!(world.deadline(), Some(sent + length));
}

#[test]
fn how_long_a_lease_lasts_follows_the_timeout() {
    let mut world = World::new(config(LeaseMode::Quorum));
    let is_that_of = |world: &World, timeout: Duration| {
        let timing = Timing::of(world.session.config(), timeout);
        assert_eq!((world.session.timeout(), world.session.timing()), (timeout, timing));
    };
    is_that_of(&world, world.session.config().session_timeout);
    let granted = [TIMEOUT / 2, TIMEOUT / 3, TIMEOUT];
    for (timeout, session) in granted.into_iter().zip([7, 7, 8]) {
        world.session.handle_connected(world.now);
        world.take_handshake();
        world.answer_handshake_with(session, timeout).unwrap();
        is_that_of(&world, timeout);
        world.lose_connection();
    }
    world.session.handle_connected(world.now);
    world.take_handshake();
    world.answer_handshake_with(0, Duration::ZERO).unwrap_err();
    is_that_of(&world, world.session.config().session_timeout);
}

/// An answer that denies the session moved a direct lease.
#[test]
fn an_answer_that_denies_the_session_proves_no_life() {
    let mut world = World::connected_with(config(LeaseMode::Direct));
    let before = world.deadline();
    world.pass(seconds(0.5)).unwrap();
    world.submit(create("/a"), 1);
    let (xid, _) = world.request();
    world.reply(xid, Err(ErrorCode::SessionExpired)).unwrap();
    assert_eq!(world.deadline(), before);
}

#[test]
fn held_nodes_are_proven_by_committed_checks() {
    let mut world = World::connected();
    world.idle(TIMEOUT / 2);
    let _kept = world.session.hold(world.now, path("/kept"));
    let lost = world.session.hold(world.now, path("/lost"));
    world.pass(Duration::ZERO).unwrap();
    let (xid, Request::Multi(ops)) = world.request() else { panic!("due at once") };
    assert_eq!(ops.len(), 2);
    world.reply(xid, Ok(Response::Multi(vec![OpResult::Check, OpResult::Check]))).unwrap();
    let proven = world.deadline();
    assert!(proven >= Some(world.now + world.timing().lease()));

    world.pass(world.timing().ping_interval()).unwrap();
    assert_eq!(world.request(), (xid::PING, Request::Ping));
    world.pass(world.timing().ping_interval()).unwrap();
    let requests = world.requests();
    let failed = vec![OpResult::Error(None), OpResult::Error(Some(ErrorCode::NoNode))];
    world.reply(requests[0].0, Ok(Response::Multi(failed))).unwrap();
    assert_eq!(world.deadline(), proven, "a failed multi proves nothing");
    assert_eq!(world.events(), [Event::NodeGone { id: lost }]);
    world.pass(Duration::ZERO).unwrap();
    let (_, Request::Multi(ops)) = world.request() else { panic!() };
    assert_eq!(ops.len(), 1, "the other one is proven at once");
}

/// A thousand long paths made a heartbeat that no server takes: the lease ran out. And whoever was
/// refused so took the answer to another heartbeat for its own.
#[test]
fn heartbeats_of_many_long_paths_are_small_and_know_what_they_prove() {
    let mut world = World::connected();
    let long = |n: u32| path(&format!("/{n:05}{}", "x".repeat(2_000)));
    let holds: Vec<_> = (0..1_000).map(|n| world.session.hold(world.now, long(n))).collect();
    let left = world.session.lease().remaining(world.now);
    world.pass(left - world.timing().left_at_grant()).unwrap();
    let beats: Vec<_> = world
        .requests()
        .into_iter()
        .filter_map(|(xid, request)| match request {
            Request::Multi(ops) => Some((xid, ops)),
            _ => None,
        })
        .collect();
    assert_eq!(beats.iter().map(|(_, ops)| ops.len()).sum::<usize>(), holds.len());
    let last = beats.len() - 1;
    for (index, (xid, ops)) in beats.iter().enumerate() {
        let bytes: usize = ops.iter().map(|_| 2_006).sum();
        assert!(bytes < MAX_FRAME / 4, "{bytes}");
        let mut results = vec![OpResult::Error(None); ops.len()];
        if index == last {
            results[ops.len() - 1] = OpResult::Error(Some(ErrorCode::NoNode));
        }
        world.reply(*xid, Ok(Response::Multi(results))).unwrap();
    }
    let gone = world.events();
    assert_eq!(gone, [Event::NodeGone { id: holds[holds.len() - 1] }]);
}

/// L1, L6: a delete that must happen is retried over reconnects until a server confirms it.
#[test]
fn l1_l6_a_cleanup_survives_lost_connections() {
    let mut world = World::connected();
    world.session.clean_up(world.now, Cleanup::Node(path("/locks/me")), Some(1));
    for _ in 0..3 {
        let (_, request) = world.request();
        assert_eq!(
            request,
            Request::Delete(DeleteRequest { path: "/locks/me".into(), version: -1 })
        );
        world.lose_connection();
        world.connect(7);
        assert_eq!(world.results(), [], "not done yet");
    }
    let (xid, _) = world.request();
    world.reply(xid, Err(ErrorCode::NoNode)).unwrap();
    assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
}

/// L2: the node of a create whose reply was lost is found by its prefix and deleted.
#[test]
fn l2_a_cleanup_finds_a_node_of_unknown_name() {
    let mut world = World::connected();
    let target = Cleanup::ByPrefix { parent: path("/locks"), prefix: "_c_1-lock-".into() };
    world.session.clean_up(world.now, target, Some(1));
    let requests = world.requests();
    assert!(matches!(requests[0].1, Request::Sync(_)), "the listing must not be a stale one");
    world.reply(requests[0].0, Ok(Response::Path("/locks".into()))).unwrap();
    let names = vec!["_c_2-lock-0000000001".into(), "_c_1-lock-0000000002".into()];
    world.reply(requests[1].0, Ok(Response::Names(names))).unwrap();
    let (xid, request) = world.request();
    let delete = DeleteRequest { path: "/locks/_c_1-lock-0000000002".into(), version: -1 };
    assert_eq!(request, Request::Delete(delete));
    world.reply(xid, Ok(Response::Empty)).unwrap();
    assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
}

/// L2: an attempt was given up while its create waited for a connection. The search for its node
/// went out before the create, found nothing, and the node stayed.
#[test]
fn l2_a_search_does_not_overtake_what_it_searches_for() {
    let mut world = World::connected();
    world.lose_connection();
    world.submit(create("/locks/_c_1-lock-"), 1);
    let target = Cleanup::ByPrefix { parent: path("/locks"), prefix: "_c_1-lock-".into() };
    world.session.clean_up(world.now, target, None);
    world.session.clean_up(world.now, Cleanup::Node(path("/locks/old")), None);
    world.submit(get_data("/b"), 2);
    world.connect(7);
    let sent: Vec<_> = world.requests().iter().map(|(_, request)| request.op()).collect();
    use OpCode::{Create2, Delete, GetChildren, GetData, Sync};
    assert_eq!(sent, [Create2, Sync, GetChildren, Delete, GetData]);
}

/// A release went out before the writes that its holder had made under the lock, and that still
/// waited: they were applied when somebody else had it.
#[test]
fn a_delete_does_not_overtake_what_was_submitted_before_it() {
    let mut world = World::connected();
    let large = Bytes::from(vec![0; 600_000]);
    for number in 0..4 {
        let path = format!("/large-{number}");
        let request =
            CreateRequest { path, data: large.clone().into(), acl: vec![].into(), flags: 0 };
        world.submit(Request::Create(request), number);
    }
    world.session.clean_up(world.now, Cleanup::Node(path("/locks/me")), None);
    world.submit(get_data("/later"), 9);
    let mut order = Vec::new();
    loop {
        let requests = world.requests();
        if requests.is_empty() {
            break;
        }
        for (xid, request) in requests {
            order.push(request.op());
            let response = match request {
                Request::Create(create) => Response::Path(create.path),
                Request::Delete(_) => Response::Empty,
                _ => Response::Data { data: Bytes::new().into(), stat: Stat::default() },
            };
            world.reply(xid, Ok(response)).unwrap();
        }
    }
    use OpCode::{Create, Delete, GetData};
    assert_eq!(order, [Create, Create, Create, Create, Delete, GetData]);
}

/// Answers that take long are a sign that more requests would keep a heartbeat waiting.
#[test]
fn requests_wait_while_something_is_without_an_answer_for_long() {
    let mut world = World::connected();
    world.submit(get_data("/a"), 1);
    let (xid, _) = world.request();
    world.now = world.now + TIMEOUT / 8;
    world.submit(get_data("/b"), 2);
    assert_eq!(world.requests(), []);
    let answer = || Ok(Response::Data { data: Bytes::new().into(), stat: Stat::default() });
    world.reply(xid, answer()).unwrap();
    let (xid, request) = world.request();
    assert_eq!(request, get_data("/b"));
    world.reply(xid, answer()).unwrap();
    assert_eq!(world.results().len(), 2);
}

/// A session that was granted more when it came back got what it began with from the next leader.
#[test]
fn a_longer_timeout_at_a_resume_is_not_relied_on() {
    let mut world = World::connected();
    world.lose_connection();
    world.session.handle_connected(world.now);
    world.take_handshake();
    world.answer_handshake_with(7, TIMEOUT * 2).unwrap();
    assert_eq!(world.session.timeout(), TIMEOUT);
}

/// L7: an unlock that was tried again deleted a newer lock of the same name.
#[test]
fn l7_a_name_that_is_used_again_is_looked_at_before_each_delete() {
    let mut world = World::connected();
    let expected = ExpectedNode::CreatedBy(Zxid(41));
    let target = Cleanup::IfExpected { node: path("/lock"), expected };
    world.session.clean_up(world.now, target.clone(), Some(1));
    let node = |session, czxid| {
        let (ephemeral_owner, czxid) = (SessionId(session), Zxid(czxid));
        let stat = Stat { ephemeral_owner, czxid, ..Stat::default() };
        Ok(Response::Data { data: Bytes::new().into(), stat })
    };
    let look = world.requests();
    world.reply(look[0].0, Ok(Response::Path("/lock".into()))).unwrap();
    world.reply(look[1].0, node(7, 41)).unwrap();
    assert!(matches!(world.request().1, Request::Delete(_)), "it is the one");

    // The delete was applied, its answer is lost, and somebody else has the lock by now.
    world.lose_connection();
    world.connect(7);
    for (session, czxid) in [(8, 42), (7, 42)] {
        let look = world.requests();
        assert!(matches!(look[1].1, Request::GetData(_)), "{look:?}");
        world.reply(look[0].0, Ok(Response::Path("/lock".into()))).unwrap();
        world.reply(look[1].0, node(session, czxid)).unwrap();
        assert_eq!(world.requests(), [], "this one is not deleted");
        assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
        world.session.clean_up(world.now, target.clone(), Some(1));
    }
}

/// Between the look and the delete the node was asked for, taken by force and made again by the
/// next holder: the delete names the version that was seen, which the new node does not have.
#[test]
fn l7_a_name_that_was_taken_by_force_after_the_look_is_not_deleted() {
    let mut world = World::connected();
    let expected = ExpectedNode::CreatedBy(Zxid(41));
    let target = Cleanup::IfExpected { node: path("/lock"), expected };
    world.session.clean_up(world.now, target, Some(1));
    for (czxid, version) in [(41, 1), (42, 0)] {
        let look = world.requests();
        assert!(matches!(look[1].1, Request::GetData(_)), "{look:?}");
        let (ephemeral_owner, czxid) = (SessionId(7), Zxid(czxid));
        let stat = Stat { ephemeral_owner, czxid, version, ..Stat::default() };
        world.reply(look[0].0, Ok(Response::Path("/lock".into()))).unwrap();
        world.reply(look[1].0, Ok(Response::Data { data: Bytes::new().into(), stat })).unwrap();
        if version == 1 {
            let (xid, request) = world.request();
            let delete = DeleteRequest { path: "/lock".into(), version };
            assert_eq!(request, Request::Delete(delete));
            world.reply(xid, Err(ErrorCode::BadVersion)).unwrap();
            assert_eq!(world.results(), [], "it is looked at again");
        }
    }
    assert_eq!(world.requests(), [], "this one is somebody else's");
    assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
}

/// An answer that could not be read ended the cleanup, although nobody knew what was left.
#[test]
fn l1_a_cleanup_survives_an_answer_that_nobody_understands() {
    let mut world = World::connected();
    let target = Cleanup::ByPrefix { parent: path("/locks"), prefix: "_c_1-lock-".into() };
    world.session.clean_up(world.now, target, Some(1));
    let look = world.requests();
    world.reply(look[0].0, Ok(Response::Path("/locks".into()))).unwrap();
    let fault = world.reply(look[1].0, Ok(Response::Empty));
    assert!(matches!(fault, Err(Disconnect::Message(_))), "{fault:?}");
    world.lose_connection();
    assert_eq!(world.results(), [], "not done yet");
    world.connect(7);
    let look = world.requests();
    assert!(matches!(look[1].1, Request::GetChildren(_)), "{look:?}");
}

#[test]
fn a_transaction_of_deletes_is_done_when_its_first_node_is_gone() {
    for (results, goes_on) in [
        (vec![OpResult::Delete, OpResult::Delete], false),
        (vec![OpResult::Error(Some(ErrorCode::NoNode)), OpResult::Error(None)], false),
        (vec![OpResult::Error(None), OpResult::Error(Some(ErrorCode::NoNode))], true),
    ] {
        let mut world = World::connected();
        let (first, others) = (path("/lock/me"), vec![path("/mark")]);
        let target = Cleanup::Transaction { first, others };
        world.session.clean_up(world.now, target, Some(1));
        let (xid, request) = world.request();
        assert!(matches!(request, Request::Multi(ops) if ops.len() == 2));
        world.reply(xid, Ok(Response::Multi(results))).unwrap();
        if goes_on {
            let (xid, request) = world.request();
            let delete = DeleteRequest { path: "/lock/me".into(), version: -1 };
            assert_eq!(request, Request::Delete(delete), "without the other one");
            world.reply(xid, Ok(Response::Empty)).unwrap();
        }
        assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
    }
}

#[test]
fn watches_are_armed_again_before_anything_else() {
    let mut world = World::connected();
    let data_watch = world.session.submit_watching(world.now, get_data("/a"), WatchKind::Data, 1);
    let (xid, request) = world.request();
    assert_eq!(request, Request::GetData(PathWatchRequest { path: "/a".into(), watch: true }));
    world.reply(xid, data()).unwrap();
    world.lose_connection();
    world.submit(create("/b"), 2);
    world.connect(7);
    let requests = world.requests();
    let (xid::SET_WATCHES, Request::SetWatches(watches)) = &requests[0] else {
        panic!("{requests:?}")
    };
    assert_eq!((watches.relative_zxid, watches.data.len()), (Zxid(50), 1));
    assert!(matches!(requests[1].1, Request::Create2(_)));
    world.events();
    world.notify(EventKind::NodeDeleted, "/a");
    assert!(matches!(world.events()[..], [Event::Watch { id, .. }] if id == data_watch));
}

/// A server that is overloaded answers so. Whoever waited for an event had no watch any more, and
/// waited for ever.
#[test]
fn a_connection_on_which_watches_are_not_armed_again_is_given_up() {
    let mut world = World::connected();
    let watch = world.session.submit_watching(world.now, get_data("/a"), WatchKind::Data, 1);
    let (xid, _) = world.request();
    world.reply(xid, data()).unwrap();
    world.lose_connection();
    world.connect(7);
    world.events();
    let refused = world.reply(xid::SET_WATCHES, Err(ErrorCode::ThrottledOp));
    assert_eq!(refused, Err(Disconnect::Unwatched(ErrorCode::ThrottledOp)));

    world.lose_connection();
    world.connect(7);
    assert!(matches!(world.requests()[..], [(xid::SET_WATCHES, Request::SetWatches(_))]));
    world.events();
    world.reply(xid::SET_WATCHES, Ok(Response::Empty)).unwrap();
    world.notify(EventKind::NodeDeleted, "/a");
    assert!(matches!(world.events()[..], [Event::Watch { id, .. }] if id == watch));
}

#[test]
fn a_watch_that_nobody_wants_is_removed_from_the_server() {
    let mut world = World::connected();
    let id = world.session.submit_watching(world.now, get_data("/a"), WatchKind::Data, 1);
    world.requests();
    world.session.unwatch(world.now, id);
    assert!(matches!(world.request().1, Request::RemoveWatches(_)));

    world.lose_connection();
    let id = world.session.submit_watching(world.now, get_data("/a"), WatchKind::Data, 2);
    world.session.unwatch(world.now, id);
    world.connect(7);
    let unwatched = PathWatchRequest { path: "/a".into(), watch: false };
    assert_eq!(world.request().1, Request::GetData(unwatched), "never asked for");
}

/// The first watcher went away while the second one's request was on its way; that request
/// failed, and nobody told the server that its watch was not wanted any more.
#[test]
fn l8_a_watch_that_outlived_its_watcher_is_removed_when_the_last_request_fails() {
    let mut world = World::connected();
    let first = world.session.submit_watching(world.now, get_data("/a"), WatchKind::Data, 1);
    let (xid, _) = world.request();
    world.reply(xid, data()).unwrap();
    world.session.submit_watching(world.now, get_data("/a"), WatchKind::Data, 2);
    let (xid, _) = world.request();
    world.session.unwatch(world.now, first);
    assert_eq!(world.requests(), [], "the second one may need it");
    world.reply(xid, Err(ErrorCode::NoAuth)).unwrap();
    let (xid, request) = world.request();
    assert!(matches!(request, Request::RemoveWatches(_)), "{request:?}");
    world.reply(xid, Ok(Response::Empty)).unwrap();

    // Alone, a request that fails has left nothing.
    world.session.submit_watching(world.now, get_data("/a"), WatchKind::Data, 3);
    let (xid, _) = world.request();
    world.reply(xid, Err(ErrorCode::NoNode)).unwrap();
    assert_eq!(world.requests(), []);
}

#[test]
fn closing_waits_for_cleanups_and_ends_the_session() {
    let mut world = World::connected();
    world.session.clean_up(world.now, Cleanup::Node(path("/a")), None);
    world.session.close(world.now);
    world.submit(create("/b"), 1);
    assert_eq!(world.results(), [(1, Err(RequestError::Closed))]);
    let (xid, request) = world.request();
    assert!(matches!(request, Request::Delete(_)));
    world.reply(xid, Ok(Response::Empty)).unwrap();
    let (xid, request) = world.request();
    assert_eq!(request, Request::CloseSession);
    assert_eq!(world.reply(xid, Ok(Response::Empty)), Err(Disconnect::Closed));
    assert_eq!(world.events(), [Event::Closed]);
    assert_eq!(world.session.contact(), Contact::Closed);
}

#[test]
fn closing_without_a_server_ends_when_the_session_is_unreachable() {
    let mut world = World::connected();
    world.lose_connection();
    world.session.close(world.now);
    assert_ne!(world.session.contact(), Contact::Closed, "the session may still be ended");
    world.pass(TIMEOUT).unwrap();
    assert_eq!(world.session.contact(), Contact::Closed);
}

#[test]
fn a_request_over_the_limit_is_refused_and_harms_no_other() {
    let mut world = World::connected();
    let data = Bytes::from(vec![0; MAX_FRAME]).into();
    let large = CreateRequest { path: "/a".into(), data, acl: vec![].into(), flags: 0 };
    world.submit(Request::Create(large), 1);
    world.submit(get_data("/a"), 2);
    let results = world.results();
    assert!(matches!(results[..], [(1, Err(RequestError::TooLarge { .. }))]), "{results:?}");
    assert!(matches!(world.request().1, Request::GetData(_)));
}

/// A create that is written from where its parts are.
fn borrowed() -> Create<'static> {
    static NOTHING: Bytes = Bytes::new();
    Create { path: "/b", data: &NOTHING, mode: CreateMode::Persistent, acl: None }
}

#[test]
fn a_borrowed_request_waits_in_line_like_any_other() {
    let mut world = World::new(config(LeaseMode::Quorum));
    world.submit(get_data("/a"), 1);
    world.session.submit_borrowed(world.now, borrowed(), 2);
    world.submit(get_data("/c"), 3);
    world.connect(7);
    world.session.submit_borrowed(world.now, borrowed(), 4);
    let sent: Vec<_> = world.requests().into_iter().map(|(_, request)| request).collect();
    let create = borrowed().into_request();
    assert_eq!(sent, [get_data("/a"), create.clone(), get_data("/c"), create]);
}

#[test]
fn a_borrowed_request_is_refused_once_the_session_is_closing() {
    let mut world = World::connected();
    world.session.clean_up(world.now, Cleanup::Node(path("/a")), None);
    world.session.close(world.now);
    world.session.submit_borrowed(world.now, borrowed(), 1);
    assert_eq!(world.results(), [(1, Err(RequestError::Closed))]);
    assert!(matches!(world.request().1, Request::Delete(_)));
}

#[test]
fn a_borrowed_request_over_the_limit_is_refused_and_harms_no_other() {
    let mut world = World::connected();
    let data = Bytes::from(vec![0; MAX_FRAME]);
    let large = Create { data: &data, ..borrowed() };
    world.session.submit_borrowed(world.now, large, 1);
    world.session.submit_borrowed(world.now, borrowed(), 2);
    let results = world.results();
    assert!(matches!(results[..], [(1, Err(RequestError::TooLarge { .. }))]), "{results:?}");
    assert_eq!(world.request().1, borrowed().into_request());
}

#[test]
fn refused_credentials_end_the_session() {
    let mut config = config(LeaseMode::Quorum);
    let credentials = Credentials { scheme: "x".into(), secret: Bytes::from_static(b"secret") };
    assert!(!format!("{credentials:?}").contains("secret\""), "S9: no secrets in logs");
    config.credentials.push(credentials);
    let mut world = World::connected_with(config);
    assert!(matches!(world.request(), (xid::AUTH, Request::Auth(_))));
    world.submit(create("/a"), 1);
    let result = world.reply(xid::AUTH, Err(ErrorCode::AuthFailed));
    assert_eq!(result, Err(Disconnect::AuthFailed));
    assert_eq!(world.results(), [(1, Err(RequestError::AuthFailed))]);
}
