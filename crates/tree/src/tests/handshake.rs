//! The first frame.

use super::*;

#[test]
fn timeouts_are_clamped_to_2_and_20_ticks() {
    for (wished, granted) in
        [(0, 4000), (-5, 4000), (4000, 4000), (9000, 9000), (40_000, 40_000), (50_000, 40_000)]
    {
        let mut world = World::new();
        let response = world.arrive(&ConnectRequest { timeout_ms: wished, ..hello() });
        assert_eq!(response.timeout_ms, granted, "{wished}");
        assert_ne!(response.session_id, SessionId::NONE);
        assert_eq!(response.password.len(), 16);
    }
}

#[test]
fn the_read_only_byte_is_sent_only_to_who_sent_one() {
    for (asked, answered) in [(None, None), (Some(false), Some(false)), (Some(true), Some(false))] {
        let mut world = World::new();
        let response = world.arrive(&ConnectRequest { read_only: asked, ..hello() });
        assert_eq!(response.read_only, answered);
        let gone = ConnectRequest { session_id: SessionId(5), read_only: asked, ..hello() };
        assert_eq!(world.arrive(&gone), ConnectResponse::expired(answered));
    }
}

#[test]
fn an_unknown_session_and_a_wrong_password_look_the_same() {
    let (mut world, [client]) = World::with_clients();
    let wrong = Bytes::from_static(&[99; 16]);
    for (session_id, password) in [
        (SessionId(12345), client.password.clone()),
        (client.session, wrong),
        (client.session, Bytes::new()),
        (client.session, client.password.slice(..15)),
    ] {
        let connection = world.open();
        let request = ConnectRequest { session_id, password, ..hello() };
        let response = world.shake(connection, &request);
        assert_eq!(response, ConnectResponse::expired(Some(false)));
        assert_eq!(response.password, [0; 16][..]);
        // The log may contain it.
        let reason = match session_id == client.session {
            true => CloseReason::WrongPassword { session: session_id },
            false => CloseReason::SessionExpired,
        };
        assert_eq!(world.next(connection), Some(Received::Closed(reason)));
    }
    assert!(world.ask(&client, &Request::Ping).is_ok(), "the owner is not affected");
}

#[test]
fn a_client_from_the_future_is_refused_and_told_why() {
    let mut world = World::new();
    let connection = world.open();
    let request = ConnectRequest { last_zxid_seen: Zxid(1), ..hello() };
    let closed = world.try_shake(connection, &request);
    let Some(Received::Closed(reason)) = closed else { panic!("not closed: {closed:?}") };
    assert!(matches!(reason, CloseReason::ClientAhead { client: Zxid(1), server: Zxid(0) }));
    let text = reason.to_string();
    assert!(text.contains("data directory") && text.contains("restore"), "{text}");
}

#[test]
fn reconnecting_closes_the_older_connection() {
    let (mut world, [old]) = World::with_clients();
    let new = world.reconnect(&old);
    assert_eq!(world.received(&old), ["closed Reconnected"]);
    world.server.disconnected(old.connection);
    assert!(world.ask(&new, &Request::Ping).is_ok());
    assert_eq!(world.server.sessions()[0].connection, Some(new.connection));
    assert_eq!(world.server.stats().connections, 1);
}

#[test]
fn a_reconnect_negotiates_the_timeout_again() {
    let (mut world, [client]) = World::with_clients();
    let request = ConnectRequest { timeout_ms: 20_000, ..client.resumes() };
    assert_eq!(world.arrive(&request).timeout_ms, 20_000);
    assert_eq!(world.server.sessions()[0].timeout, Duration::from_secs(20));
}

#[test]
fn sessions_have_ids_and_passwords_of_their_own() {
    let (world, [a, b]) = World::with_clients();
    assert_ne!(a.session, b.session);
    assert_ne!(a.password, b.password);
    assert_eq!(world.last_zxid(), 2, "each is a transaction");
}

#[test]
fn what_is_no_handshake_closes_the_connection() {
    let mut world = World::new();
    for frame in [&b""[..], b"ruok", &[0; 20]] {
        let connection = world.open();
        world.frame(connection, frame.to_vec());
        let closed = world.next(connection);
        assert!(matches!(closed, Some(Received::Closed(CloseReason::BadHandshake(_)))));
        world.frame(connection, frame.to_vec());
        assert_eq!(world.next(connection), None, "further frames are ignored");
    }
}
