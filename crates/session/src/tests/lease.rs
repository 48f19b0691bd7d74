//! What extends the lease, and how long it lasts.

use super::*;

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
    world.answer(Ok(Response::Path("/".into())));
    assert_eq!(world.deadline(), before);
    world.submit(create("/a"), 2);
    world.answer(created());
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

/// A client that was paused wrote as soon as it resumed, and took the reply for a proof: the leader had last
/// heard of the session before the pause.
#[test]
fn a_write_after_a_stall_proves_what_was_sent_before_it() {
    let mut world = World::holding();
    let stalled = world.now;
    world.pass(TIMEOUT / 2).unwrap();
    let requests = world.requests();
    let (xid, Request::Multi(_)) = requests[0] else { panic!("{requests:?}") };
    world.reply(xid, checked(1)).unwrap();
    let newest = stalled + world.timing().life_after_touch();
    assert!(world.deadline() <= Some(newest), "{:?}, paused at {stalled:?}", world.deadline());
}

/// A reply that denies the session extended a direct lease.
#[test]
fn an_answer_that_denies_the_session_proves_no_life() {
    let mut world = World::connected_with(config(LeaseMode::Direct));
    let before = world.deadline();
    world.pass(seconds(0.5)).unwrap();
    world.submit(create("/a"), 1);
    world.answer(Err(ErrorCode::SessionExpired));
    assert_eq!(world.deadline(), before);
}

#[test]
fn a_resume_with_a_shorter_timeout_shortens_the_lease() {
    let mut world = World::connected_with(config(LeaseMode::Direct));
    world.lose_connection();
    let sent = world.now;
    world.shake();
    world.answer_handshake_with(7, TIMEOUT / 3).unwrap();
    let length = Timing::of(world.session.config(), TIMEOUT / 3).lease();
    assert_eq!(world.deadline(), Some(sent + length));
}

/// A session that was granted a longer timeout when it resumed got its original timeout from the next leader.
#[test]
fn a_longer_timeout_at_a_resume_is_not_relied_on() {
    let mut world = World::connected();
    world.lose_connection();
    world.shake();
    world.answer_handshake_with(7, TIMEOUT * 2).unwrap();
    assert_eq!(world.session.timeout(), TIMEOUT);
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
        world.shake();
        world.answer_handshake_with(session, timeout).unwrap();
        is_that_of(&world, timeout);
        world.lose_connection();
    }
    world.shake();
    world.answer_handshake_with(0, Duration::ZERO).unwrap_err();
    is_that_of(&world, world.session.config().session_timeout);
}

/// An outage that was short enough still cost the lease: the first heartbeat after it did not count, because
/// replies had been late.
#[test]
fn after_an_outage_the_first_heartbeat_counts() {
    let mut world = World::holding();
    let outage = world.timing().outage();
    world.pass(world.timing().ping_interval()).unwrap();
    world.lose_connection();

    world.now = world.now + (outage - world.timing().silence_limit());
    let handshake = world.now;
    world.shake();
    world.pass(world.timing().silence_limit() - seconds(0.001)).unwrap();
    world.answer_handshake(7).unwrap();
    world.pass(Duration::ZERO).unwrap();
    let requests = world.requests();
    let (xid, Request::Multi(_)) = requests[0] else { panic!("{requests:?}") };
    let generation = world.session.lease().generation;
    world.reply(xid, checked(1)).unwrap();
    assert_eq!(world.deadline(), Some(handshake + world.timing().life_after_touch()));
    assert_eq!(world.session.lease().generation, generation, "without a gap");
}
