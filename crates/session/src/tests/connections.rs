//! The connections of a session: how it starts, when a server is given up, and how it ends.

use super::*;

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
fn bytes_that_are_no_protocol_end_the_connection() {
    let mut world = World::new(config(LeaseMode::Quorum));
    world.session.handle_connected(world.now);
    world.to_client.extend_from_slice(b"SSH-2.0-OpenSSH_9.2\r\n");
    assert!(matches!(world.deliver(), Err(Disconnect::Frame(_))));
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

/// A server without unanswered requests may be silent for any time.
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

/// One of three servers hung. The first connection requested a timeout of a minute, of which servers grant at
/// most 40 s, and took longer than a caller waits for it.
#[test]
fn a_wish_for_a_long_session_is_no_patience_with_a_server_that_hangs() {
    let session_timeout = seconds(3_600.0);
    let mut world = World::new(Config { session_timeout, ..config(LeaseMode::Quorum) });
    world.session.handle_connected(world.now);
    assert_eq!(world.session.poll_timeout(), Some(world.now + seconds(4.0)));
    assert_eq!(world.pass(seconds(4.0)), Err(Disconnect::Silent));
    assert!(world.timing().retry_interval() <= seconds(2.0), "the next server is tried in time");
}

#[test]
fn an_expired_session_fails_everything_and_the_next_connection_is_a_new_one() {
    let mut world = World::connected();
    world.session.submit_watching(world.now, exists("/a"), WatchKind::Exists, 1);
    world.answer(Err(ErrorCode::NoNode));
    world.events();
    world.hold("/held");
    world.lose_connection();
    world.submit(create("/a"), 2);
    world.clean_up_node("/c", Some(3));
    let generation = world.session.lease().generation;
    world.expire();

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

/// N19: a request right after the reported end of the session failed with "no server could be reached".
#[test]
fn n19_an_expiry_that_is_told_after_a_long_outage_is_contact() {
    let mut world = World::connected();
    world.lose_connection();
    world.pass(TIMEOUT).unwrap();
    assert_eq!(world.session.contact(), Contact::Unreachable);
    world.expire();
    assert_eq!(world.session.contact(), Contact::Disconnected);
    world.submit(create("/a"), 1);
    world.clean_up_node("/b", Some(2));
    assert_eq!(world.results(), [], "the requests wait for the next session");

    world.connect(8);
    let sent: Vec<_> = world.requests().into_iter().map(|(_, request)| request).collect();
    assert_eq!(sent, [create("/a"), delete("/b")]);

    // The client is unreachable again if the next session is late.
    let mut world = World::connected();
    world.expire();
    world.pass(TIMEOUT).unwrap();
    assert_eq!(world.session.contact(), Contact::Unreachable);
}

/// R8: a resume silently replaced the session.
#[test]
fn r8_a_resume_that_answers_with_another_session_is_an_expiry() {
    let mut world = World::connected();
    world.lose_connection();
    world.events();
    assert_eq!(world.connect(9).session_id, SessionId(7));
    let begun = Event::Connected { session: SessionId(9), is_new: true };
    assert_eq!(world.events(), [Event::Expired { session: SessionId(7) }, begun]);
}

#[test]
fn closing_waits_for_cleanups_and_ends_the_session() {
    let mut world = World::connected();
    world.clean_up_node("/a", None);
    world.session.close(world.now);
    world.submit(create("/b"), 1);
    assert_eq!(world.results(), [(1, Err(RequestError::Closed))]);
    assert!(matches!(world.answer(Ok(Response::Empty)), Request::Delete(_)));
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

/// The session is no longer driven: requests in flight may be applied, and all requests fail.
#[test]
fn an_abandoned_session_answers_everything() {
    let mut world = World::connected();
    world.submit(create("/a"), 1);
    world.requests();
    world.session.abandon(world.now);
    assert_eq!(world.results(), [(1, Err(RequestError::ConnectionLost(Outcome::Unknown)))]);
    assert_eq!(world.session.contact(), Contact::Closed);
    world.submit(create("/b"), 2);
    assert_eq!(world.results(), [(2, Err(RequestError::Closed))]);

    // A session without a connection, and one that is closed.
    let mut world = World::connected();
    world.lose_connection();
    world.submit(create("/a"), 1);
    for _ in 0..2 {
        world.session.abandon(world.now);
    }
    assert_eq!(world.results(), [(1, Err(RequestError::Closed))]);
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
    // Servers answer credentials before requests that are in progress.
    assert_eq!(world.results(), [(1, Err(RequestError::AuthFailed(Outcome::Unknown)))]);
}
