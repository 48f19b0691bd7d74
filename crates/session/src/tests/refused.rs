//! Servers that are behind what the session has seen, and refuse it.

use super::*;

impl World {
    /// A session that has seen transaction 50, and was disconnected.
    fn ahead() -> Self {
        let mut world = Self::connected();
        world.submit(get_data("/a"), 1);
        world.answer(data());
        world.lose_connection();
        world.events();
        world
    }

    fn is_refused(&mut self) -> ConnectRequest {
        let request = self.shake();
        self.session.handle_refused(self.now);
        request
    }

    /// Tries every second for this long, unless the session is given up.
    fn is_refused_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.pass(seconds(1.0)).unwrap();
            let request = self.is_refused();
            let expected = (SessionId(7), Zxid(50));
            assert_eq!((request.session_id, request.last_zxid_seen), expected);
        }
    }

    /// A ping is answered by a server at this transaction.
    fn is_at(&mut self, zxid: i64) {
        self.pass(self.timing().ping_interval()).unwrap();
        self.requests();
        self.reply_at(xid::PING, zxid, Ok(Response::Empty)).unwrap();
    }
}

/// F6: a client was refused forever with its old transaction, although its session had long expired.
#[test]
fn f6_a_session_that_was_refused_until_it_is_over_takes_its_zxid_with_it() {
    let mut world = World::ahead();
    world.is_refused();
    let over = world.timing().certainly_over();
    assert!(over > TIMEOUT);
    world.is_refused_for(over - seconds(1.0));
    assert!(!world.events().contains(&Event::Expired { session: SessionId(7) }));
    world.pass(seconds(1.0)).unwrap();
    world.is_refused();
    world.events();

    let request = world.connect(8);
    assert_eq!((request.session_id, request.last_zxid_seen), (SessionId::NONE, Zxid(0)));
    let expired = Event::Expired { session: SessionId(7) };
    let connected = Event::Connected { session: SessionId(8), is_new: true };
    assert_eq!(world.events(), [expired, connected]);
    world.is_at(3);
    assert_eq!(world.events(), [Event::Rewound { seen: Zxid(50), now: Zxid(3) }]);
    world.is_at(4);
    assert_eq!(world.events(), [], "told once");
}

/// A server without a quorum closes every handshake, and when there is a quorum again, the leader gives each
/// session its whole timeout: a live session was given up, with a lock in jeopardy.
#[test]
fn a_session_that_no_server_can_take_is_not_over() {
    let mut world = World::ahead();
    world.is_refused();
    world.is_refused_for(world.timing().certainly_over() - seconds(1.0));
    world.pass(seconds(1.0)).unwrap();
    world.is_refused();

    let mut new = 0;
    for _ in 0..800 {
        world.pass(seconds(1.0)).unwrap();
        let request = world.is_refused();
        match request.session_id {
            SessionId::NONE => new += 1,
            own => assert_eq!((own, request.last_zxid_seen), (SessionId(7), Zxid(50))),
        }
    }
    assert_eq!(new, 100, "a new one is requested sometimes, in case all servers are behind");
    world.events();

    // The last of eight was not followed by another one.
    world.is_refused();
    world.connect(7);
    assert_eq!(world.events(), [Event::Connected { session: SessionId(7), is_new: false }]);
}

/// A server that refuses new sessions says nothing about the old one.
#[test]
fn a_new_session_that_is_refused_in_words_ends_no_old_one() {
    let mut world = World::ahead();
    world.is_refused();
    world.is_refused_for(world.timing().certainly_over() - seconds(1.0));
    world.pass(seconds(1.0)).unwrap();
    world.is_refused();
    assert_eq!(world.shake().session_id, SessionId::NONE);
    assert_eq!(world.answer_handshake(0), Err(Disconnect::Refused));
    assert_eq!(world.session.id(), SessionId(7));
}

/// After servers were wiped, a follower kept the old value forever if its next session lost its first
/// connection before any reply: on another connection only the reply to a `sync` shows the rewind.
///
/// Fails if a `sync` is not compared.
#[test]
fn servers_that_are_behind_are_found_by_a_sync_on_a_later_connection() {
    let mut world = World::ahead();
    world.expire();
    world.shake();
    world.answer_handshake(8).unwrap();
    world.lose_connection();
    world.connect(8);
    world.events();
    world.is_at(3);
    assert_eq!(world.events(), [], "this server may not have heard of the session");
    assert_eq!(world.session.newest_zxid(), Zxid(50));

    for (zxid, rewinds) in [(4, 1), (5, 0)] {
        world.submit(Request::Sync(PathRequest { path: "/".to_owned() }), 1);
        let (xid, _) = world.request();
        world.reply_at(xid, zxid, Ok(Response::Path("/".to_owned()))).unwrap();
        let rewound = |event: &Event<u32>| matches!(event, Event::Rewound { seen: Zxid(50), .. });
        assert_eq!(world.events().iter().filter(|event| rewound(event)).count(), rewinds);
    }
    assert_eq!(world.session.newest_zxid(), Zxid(5));
}

#[test]
fn a_session_that_a_server_takes_in_between_is_not_over() {
    let mut world = World::ahead();
    world.is_refused();
    world.is_refused_for(TIMEOUT);
    world.connect(7);
    world.lose_connection();
    world.is_refused_for(TIMEOUT);
    assert_eq!(world.session.id(), SessionId(7));
}

/// The servers were unreachable in between, and give the session its full timeout afterwards.
#[test]
fn refusals_that_are_far_apart_end_no_session() {
    let mut world = World::ahead();
    for _ in 0..10 {
        world.is_refused();
        world.pass(world.timing().certainly_over() + seconds(1.0)).unwrap();
    }
    assert_eq!(world.session.id(), SessionId(7));
}

/// An unreachable server may still have the session.
#[test]
fn connections_that_are_lost_end_no_session() {
    let mut world = World::ahead();
    for _ in 0..100 {
        world.shake();
        world.lose_connection();
        world.pass(seconds(1.0)).unwrap();
    }
    assert_eq!(world.session.id(), SessionId(7));
}

#[test]
fn a_server_that_goes_on_where_others_were_is_no_rewind() {
    let mut world = World::ahead();
    world.expire();
    world.connect(8);
    world.events();
    world.is_at(51);
    assert_eq!(world.events(), []);
}

/// A server that does not know the session yet says nothing about lost data.
#[test]
fn only_the_connection_on_which_a_session_began_tells_a_rewind() {
    let mut world = World::ahead();
    world.expire();
    world.connect(8);
    world.lose_connection();
    world.connect(8);
    world.events();
    world.is_at(3);
    assert_eq!(world.events(), []);
}

#[test]
fn a_new_session_that_is_refused_stays_what_it_is() {
    let mut world = World::new(config(LeaseMode::Quorum));
    for _ in 0..100 {
        world.is_refused();
        world.pass(seconds(1.0)).unwrap();
    }
    assert!(!world.events().iter().any(|event| matches!(event, Event::Expired { .. })));
}
