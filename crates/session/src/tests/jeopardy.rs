//! Holds that outlast the deadline: what proves them again, and what does not.

use super::*;

/// A session with a hold that rides out outages, some time after its grant.
fn holding(lease: LeaseMode) -> (World, HoldId) {
    let mut world = World::connected_with(config(lease));
    let id = world.hold(NODE);
    world.idle(TIMEOUT / 4);
    assert!(world.session.ride_out(world.now, id, CZXID));
    world.events();
    (world, id)
}

#[test]
fn a_committed_check_and_a_look_at_the_same_node_prove_a_hold_again() {
    for lease in [LeaseMode::Quorum, LeaseMode::Direct] {
        let (mut world, id) = holding(lease);
        world.outage();
        assert!(!world.is_proven(id), "{lease:?}: a handshake proves nothing");
        let (check, look) = world.proof();
        world.reply_at(check, 51, checked(1)).unwrap();
        assert!(world.session.lease().is_running(world.now), "the session is alive");
        assert!(!world.is_proven(id), "{lease:?}: a check names a path");
        assert_eq!(world.events(), []);
        world.reply_at(look, 51, stat(CZXID, 7)).unwrap();
        assert!(world.is_proven(id), "{lease:?}");
        assert_eq!(world.events(), [Event::HeldAgain { id }]);
    }
}

#[test]
fn a_hold_that_was_not_told_to_ends_at_the_deadline() {
    let mut world = World::connected();
    let id = world.hold(NODE);
    world.idle(TIMEOUT / 4);
    world.outage();
    assert!(!world.session.ride_out(world.now, id, CZXID), "too late");
    world.pass(Duration::ZERO).unwrap();
    let (check, heartbeat) = world.request();
    assert!(matches!(heartbeat, Request::Multi(_)));
    world.reply_at(check, 51, checked(1)).unwrap();
    assert!(world.session.lease().is_running(world.now) && !world.is_proven(id));
    assert_eq!(world.events(), []);
    assert!(!world.session.ride_out(world.now, id, CZXID), "it was interrupted");
}

/// The paths of exclusive nodes and of claims are reused.
#[test]
fn another_node_of_the_same_path_is_not_the_hold() {
    for other in [stat(Zxid(41), 7), stat(CZXID, 8), Err(ErrorCode::NoNode)] {
        let (mut world, id) = holding(LeaseMode::Quorum);
        world.outage();
        world.answer_proof(51, checked(1), other);
        assert_eq!(world.events(), [Event::NodeGone { id }]);
        assert_eq!((world.is_proven(id), world.session.proof(id)), (false, None));
    }
}

/// A server that lags behind, or a deposed leader, still has the node.
#[test]
fn a_look_without_a_committed_check_proves_nothing() {
    let (mut world, id) = holding(LeaseMode::Direct);
    world.outage();
    world.answer_proof(51, Err(ErrorCode::ThrottledOp), stat(CZXID, 7));
    assert!(world.session.lease().is_running(world.now), "any reply extends a direct lease");
    assert!(!world.is_proven(id));
    assert_eq!(world.events(), []);

    // It is tried again.
    world.pass(world.timing().renewal_interval()).unwrap();
    world.answer_proof(52, checked(1), stat(CZXID, 7));
    assert!(world.is_proven(id));
}

#[test]
fn a_check_of_another_connection_does_not_count_for_a_look() {
    let (mut world, id) = holding(LeaseMode::Direct);
    world.outage();
    let (check, _) = world.proof();
    world.reply_at(check, 51, checked(1)).unwrap();
    world.reconnect();
    world.events();
    world.answer_proof(52, Err(ErrorCode::ThrottledOp), stat(CZXID, 7));
    assert!(!world.is_proven(id));
    assert_eq!(world.events(), []);
}

/// The client was paused for longer than its lease, and the connection stayed. The reply to its last request
/// is late, so the server may have been paused too. Requests sent before the server can have reported to its
/// leader do not count.
#[test]
fn a_proof_that_was_sent_in_doubt_does_not_count() {
    let (mut world, id) = holding(LeaseMode::Quorum);
    world.session.handle_timeout(world.session.poll_timeout().unwrap()).unwrap();
    let late = world.requests();
    world.now = world.now + TIMEOUT;
    for (xid, request) in late {
        match request {
            Request::Multi(_) => world.reply_at(xid, 51, checked(1)).unwrap(),
            _ => world.reply_at(xid, 51, Ok(Response::Empty)).unwrap(),
        }
    }
    assert!(!world.is_proven(id));
    world.answer_proof(52, checked(1), stat(CZXID, 7));
    assert_eq!(world.events(), [], "the first reply proves nothing yet");

    let wait = world.session.lease().sure_from.since(world.now);
    assert!(wait > Duration::ZERO);
    world.pass(wait).unwrap();
    world.answer_proof(53, checked(1), stat(CZXID, 7));
    assert_eq!(world.events(), [Event::HeldAgain { id }]);
    assert!(world.is_proven(id));
}

/// Servers that were restored from older data have the session and the node of that time, whatever happened
/// since.
#[test]
fn servers_that_are_behind_what_was_seen_prove_nothing() {
    let (mut world, id) = holding(LeaseMode::Quorum);
    assert_eq!(world.session.last_zxid(), Zxid(50));
    world.outage();
    let (check, look) = world.proof();
    world.reply_at(check, 45, checked(1)).unwrap();
    assert_eq!(world.events(), [Event::Rewound { seen: Zxid(50), now: Zxid(45) }]);
    world.reply_at(look, 45, stat(CZXID, 7)).unwrap();
    assert!(!world.is_proven(id));

    // Not after they have caught up either.
    world.pass(world.timing().renewal_interval()).unwrap();
    for (xid, request) in world.requests() {
        match request {
            Request::Multi(_) => world.reply_at(xid, 60, checked(1)).unwrap(),
            Request::Ping => world.reply_at(xid, 60, Ok(Response::Empty)).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    assert!(world.session.lease().is_running(world.now) && !world.is_proven(id));
}

#[test]
fn many_holds_in_jeopardy_are_proven_by_one_transaction() {
    let mut world = World::connected();
    let names = ["/locks/a-0001", "/locks/b-0001"];
    let ids = names.map(|name| world.hold(name));
    assert!(ids.iter().all(|id| world.session.ride_out(world.now, *id, CZXID)));
    world.outage();
    world.pass(Duration::ZERO).unwrap();
    let requests = world.requests();
    assert!(matches!(&requests[0].1, Request::Multi(ops) if ops.len() == 2), "{requests:?}");
    world.reply_at(requests[0].0, 51, checked(2)).unwrap();
    for (xid, _) in &requests[1..] {
        world.reply_at(*xid, 51, stat(CZXID, 7)).unwrap();
    }
    assert!(ids.iter().all(|id| world.is_proven(*id)));
}

#[test]
fn a_hold_that_is_told_to_end_at_the_deadline_does() {
    let (mut world, id) = holding(LeaseMode::Quorum);
    world.outage();
    world.session.end_at_deadline(id);
    world.pass(Duration::ZERO).unwrap();
    let (check, _) = world.request();
    world.reply_at(check, 51, checked(1)).unwrap();
    assert!(!world.is_proven(id));
}

#[test]
fn a_direct_lease_needs_no_heartbeat_but_in_jeopardy() {
    let (mut world, id) = holding(LeaseMode::Direct);
    world.outage();
    world.answer_proof(51, checked(1), stat(CZXID, 7));
    assert!(world.is_proven(id));
    world.pass(world.timing().renewal_interval()).unwrap();
    let sent = world.requests();
    assert!(sent.iter().all(|(_, request)| *request == Request::Ping), "{sent:?}");
}

/// If the connection is lost right after a grant, no heartbeat was due at that time.
///
/// Fails if a handshake that continues the lease does not request a proof: the hold then stayed in jeopardy
/// forever.
#[test]
fn a_hold_that_begins_in_an_outage_is_proven_after_it() {
    for lease in [LeaseMode::Quorum, LeaseMode::Direct] {
        let mut world = World::connected_with(config(lease));
        world.lose_connection();
        let id = world.hold(NODE);
        assert!(world.session.ride_out(world.now, id, CZXID));
        let deadline = world.deadline().expect("proven");
        world.pass(deadline.since(world.now) + seconds(0.1)).unwrap();
        world.connect(7);
        world.answer_proof(51, checked(1), stat(CZXID, 7));
        assert!(world.is_proven(id), "{lease:?}");
    }
}

#[test]
fn a_request_that_is_bound_to_a_hold_is_sent_while_it_is_believed_in() {
    let (mut world, id) = holding(LeaseMode::Quorum);
    world.bind(id);
    world.submit(create("/a"), 1);
    world.request();
    world.lose_connection();
    world.results();
    world.submit(create("/b"), 2);
    world.session.bind(Vec::new());
    world.connect(7);
    let sent = world.requests();
    assert!(sent.iter().any(|(_, request)| *request == create("/b")), "a short outage: {sent:?}");
}

/// Requests of an outage would be sent at its end, without the lock.
#[test]
fn a_request_that_is_bound_to_a_hold_in_jeopardy_is_refused() {
    let (mut world, id) = holding(LeaseMode::Quorum);
    world.lose_connection();
    world.bind(id);
    world.submit(create("/a"), 1);
    world.session.bind(Vec::new());
    world.submit(create("/b"), 2);
    let left = world.deadline().expect("proven").since(world.now);
    world.pass(left + seconds(0.1)).unwrap();
    assert_eq!(world.results(), [], "they wait");

    world.connect(7);
    let sent = world.requests();
    let sent = sent.into_iter().map(|(_, request)| request);
    let created: Vec<_> = sent.filter(|request| request.op() == OpCode::Create2).collect();
    assert_eq!(created, [create("/b")]);
    assert_eq!(world.results(), [(1, Err(RequestError::NotHeld))]);

    world.bind(id);
    world.submit(create("/c"), 3);
    world.session.submit_borrowed(world.now, borrowed(), 4);
    world.session.bind(Vec::new());
    let refused = [(3, Err(RequestError::NotHeld)), (4, Err(RequestError::NotHeld))];
    assert_eq!(world.results(), refused, "not before the hold is proven");
}

/// A waiting write of the previous holder would be sent under the next one, because the node is the same.
#[test]
fn a_request_that_is_bound_to_the_holder_before_is_refused() {
    let (mut world, id) = holding(LeaseMode::Quorum);
    world.lose_connection();
    world.results();
    world.bind(id);
    world.submit(create("/a"), 1);
    world.session.hand_over(id);
    world.bind(id);
    world.submit(create("/b"), 2);
    world.session.bind(Vec::new());

    world.connect(7);
    let sent = world.requests().into_iter().map(|(_, request)| request);
    let created: Vec<_> = sent.filter(|request| request.op() == OpCode::Create2).collect();
    assert_eq!(created, [create("/b")]);
    assert_eq!(world.results(), [(1, Err(RequestError::NotHeld))]);
}
