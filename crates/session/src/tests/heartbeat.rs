//! The committed writes that prove holds: when they are sent, and what they prove.

use super::*;

#[test]
fn held_nodes_are_proven_by_committed_checks() {
    let mut world = World::connected();
    world.idle(TIMEOUT / 2);
    let _kept = world.hold("/kept");
    let lost = world.hold("/lost");
    world.pass(Duration::ZERO).unwrap();
    let (xid, Request::Multi(ops)) = world.request() else { panic!("due at once") };
    assert_eq!(ops.len(), 2);
    world.reply(xid, checked(2)).unwrap();
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
    assert_eq!(ops.len(), 1, "the other hold is proven at once");
}

/// Symptom: one node without permission to check it failed every heartbeat, so all holds were lost.
#[test]
fn a_check_that_is_refused_ends_its_hold_and_no_other() {
    let mut world = World::connected();
    let (_kept, hidden) = (world.hold("/kept"), world.hold("/hidden"));
    world.pass(world.timing().renewal_interval()).unwrap();
    let (xid, Request::Multi(_)) = world.request() else { panic!("due") };
    let failed = vec![OpResult::Error(None), OpResult::Error(Some(ErrorCode::NoAuth))];
    world.reply(xid, Ok(Response::Multi(failed))).unwrap();
    let (path, code) = (ZnodePath::new("/hidden").unwrap(), ErrorCode::NoAuth);
    assert_eq!(world.events(), [Event::CheckRefused { id: hidden, path, code }]);
    assert_eq!(world.session.proof(hidden), None);

    world.pass(Duration::ZERO).unwrap();
    let (_, Request::Multi(ops)) = world.request() else { panic!() };
    assert_eq!(ops.len(), 1, "the other hold is proven at once");
}

/// F1: a lock that was granted after a wait was lost on a healthy server. The first heartbeat was due an
/// interval after the grant, regardless of the age of the newest proof.
#[test]
fn the_first_heartbeat_of_a_hold_is_due_an_interval_after_the_newest_proof() {
    let timing = World::connected().timing();
    for share in 0..=20 {
        let mut world = World::connected();
        world.idle(timing.lease() * share / 20);
        world.hold("/held");
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

/// A new session has the longest lease and needs no proof for some time. A deletion of the node was only
/// noticed then.
///
/// Fails if the first heartbeat is due only when the lease needs it.
#[test]
fn the_first_heartbeat_of_a_hold_is_due_a_renewal_interval_after_the_grant_at_the_latest() {
    let mut world = World::connected();
    let id = world.hold(NODE);
    world.pass(world.timing().renewal_interval()).unwrap();
    let (xid, Request::Multi(_)) = world.request() else { panic!("no heartbeat was sent") };
    let gone = vec![OpResult::Error(Some(ErrorCode::NoNode))];
    world.reply(xid, Ok(Response::Multi(gone))).unwrap();
    assert_eq!(world.events(), [Event::NodeGone { id }]);
}

/// Another client deleted the node, and the next one created a node with the same name. Both held it as long
/// as their sessions lived, because the check of the path continued to succeed.
///
/// Fails if only nodes in jeopardy are read.
#[test]
fn a_node_whose_name_is_used_again_is_looked_at_behind_each_check() {
    for other in [stat(Zxid(41), 7), stat(CZXID, 8), Err(ErrorCode::NoNode)] {
        let mut world = World::connected();
        let id = world.session.hold(world.now, path(NODE), NameUse::Reused(CZXID));
        for _ in 0..3 {
            world.now = world.now + world.timing().renewal_interval();
            world.answer_proof(51, checked(1), stat(CZXID, 7));
            assert!(world.is_proven(id));
        }
        assert_eq!(world.events(), [], "it was held without interruption");

        world.now = world.now + world.timing().renewal_interval();
        world.answer_proof(51, checked(1), other);
        assert_eq!(world.events(), [Event::NodeGone { id }]);
        assert_eq!((world.is_proven(id), world.session.proof(id)), (false, None));
    }
}

/// Symptom: a session with a thousand nodes sent a thousand checks with each heartbeat.
#[test]
fn of_nodes_that_their_holders_watch_one_is_checked() {
    /// The next heartbeat, which checks only this node.
    fn beats_for(world: &mut World, node: &str) -> i32 {
        world.pass(Duration::ZERO).unwrap();
        let requests = world.requests();
        for (xid, request) in requests {
            match request {
                Request::Multi(checks) => {
                    let shown = format!("{checks:?}");
                    assert!(checks.len() == 1 && shown.contains(&format!("{node:?}")), "{shown}");
                    return xid;
                }
                Request::Ping => world.reply(xid::PING, Ok(Response::Empty)).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        panic!("no check was sent");
    }

    let mut world = World::connected();
    let nodes = ["/n-0", "/n-1", "/n-2"];
    let ids = nodes.map(|node| world.session.hold(world.now, path(node), NameUse::Watched(CZXID)));
    let are_proven = |world: &World| ids.iter().all(|id| world.is_proven(*id));
    for _ in 0..3 {
        world.now = world.now + world.timing().renewal_interval();
        let xid = beats_for(&mut world, "/n-0");
        world.reply(xid, checked(1)).unwrap();
        assert!(are_proven(&world));
    }

    // The check of another node proves this one too.
    let other = world.hold(NODE);
    world.now = world.now + world.timing().renewal_interval();
    let xid = beats_for(&mut world, NODE);
    world.reply(xid, checked(1)).unwrap();
    assert!(are_proven(&world));
    world.session.unhold(other);

    // A missing node is reported, and another one is checked instead.
    world.now = world.now + world.timing().renewal_interval();
    let xid = beats_for(&mut world, "/n-0");
    let gone = vec![OpResult::Error(Some(ErrorCode::NoNode))];
    world.reply(xid, Ok(Response::Multi(gone))).unwrap();
    assert_eq!(world.events(), [Event::NodeGone { id: ids[0] }]);
    beats_for(&mut world, "/n-1");
}

/// A hold that does not ride out an outage is lost at the deadline, whatever a later read shows.
#[test]
fn a_look_at_the_same_node_brings_nothing_back_that_was_lost() {
    let mut world = World::connected();
    let id = world.session.hold(world.now, path(NODE), NameUse::Reused(CZXID));
    world.outage();
    world.answer_proof(51, checked(1), stat(CZXID, 7));
    assert!(world.session.lease().is_running(world.now) && !world.is_proven(id));
    assert_eq!(world.events(), []);
}

/// After a late reply, writes count only after a relay delay, so the next heartbeat is sent exactly then.
#[test]
fn a_late_answer_makes_the_next_heartbeat_come_early() {
    let mut world = World::holding();
    let late = world.timing().silence_limit() + seconds(0.001);
    world.submit(Request::Sync(PathRequest { path: "/".into() }), 1);
    let (xid, _) = world.request();
    world.now = world.now + late;
    world.reply(xid, Ok(Response::Path("/".into()))).unwrap();
    let sure_from = world.session.lease().sure_from;
    assert_eq!(sure_from, world.now + world.timing().relay());
    while world.session.poll_timeout().unwrap() < sure_from {
        let next = world.session.poll_timeout().unwrap();
        world.pass(next - world.now).unwrap();
        let pings = world.requests().iter().filter(|(xid, _)| *xid == xid::PING).count();
        (0..pings).for_each(|_| world.reply(xid::PING, Ok(Response::Empty)).unwrap());
    }
    assert_eq!(world.session.poll_timeout(), Some(sure_from));
}

/// A heartbeat that is sent just before writes count is useless. If its reply came just after that, the next
/// one was sent an interval later, and the lease was that much shorter when the next outage began.
///
/// Fails if the next heartbeat is not due at that moment.
#[test]
fn a_heartbeat_that_does_not_count_delays_none_that_does() {
    for share in 0..20 {
        let mut world = World::holding();
        world.idle(world.timing().renewal_interval() * share / 20);
        world.submit(Request::Sync(PathRequest { path: "/".into() }), 1);
        let (xid, _) = world.request();
        world.now = world.now + world.timing().silence_limit() + seconds(0.001);
        world.reply(xid, Ok(Response::Path("/".into()))).unwrap();
        let sure_from = world.session.lease().sure_from;

        while let Some(next) = world.session.poll_timeout().filter(|next| *next < sure_from) {
            world.pass(next.since(world.now)).unwrap();
        }
        world.requests();
        world.pass(sure_from.since(world.now)).unwrap();
        assert!(world.requests().iter().any(is_multi), "{share} of 20");
    }
}

/// Nothing can be sent during a handshake. If its reply is slow, the next message is sent later than
/// `Timing::newest_answer` allows for. A heartbeat just before writes count would cost the lease an interval
/// more than `Timing::always_left` allows for.
///
/// Fails if the next heartbeat is not due at that moment.
#[test]
fn after_a_slow_handshake_a_heartbeat_comes_when_it_counts() {
    for (share, counts) in (0..20).flat_map(|share| [(share, true), (share, false)]) {
        let mut world = World::holding();
        let timing = world.timing();
        world.lose_connection();
        world.shake();
        let slow = if counts { timing.slowest_answer() } else { timing.newest_answer() };
        world.now = world.now + slow;
        world.answer_handshake(7).unwrap();

        world.pass(Duration::ZERO).unwrap();
        let (first, Request::Multi(_)) = world.requests()[0] else {
            panic!("no heartbeat was sent")
        };
        world.now = world.now + timing.slowest_answer() * share / 20;
        world.reply(first, checked(1)).unwrap();
        let told = world.now + timing.relay();
        while let Some(next) = world.session.poll_timeout().filter(|next| *next < told) {
            world.pass(next.since(world.now)).unwrap();
        }
        world.requests();
        world.pass(told.since(world.now)).unwrap();
        assert_eq!(world.requests().iter().any(is_multi), counts, "{share} of 20");
    }
}

/// After a short outage, packets are retransmitted after pauses that double. So replies were late on a
/// connection that had not been silent long enough to be given up, writes over it did not count for a relay
/// delay, and the lease ended before they did.
///
/// Fails if a server is given up only for its silence.
#[test]
fn a_server_is_left_over_which_the_lease_cannot_be_proven_in_time() {
    let moment = seconds(0.001);
    let timing = World::connected().timing();
    for (left, is_left) in [
        (timing.relay() + timing.slowest_answer() + moment, false),
        (timing.relay() + timing.slowest_answer(), true),
        (moment, true),
        (Duration::ZERO, false),
    ] {
        let mut world = World::holding();
        world.submit(Request::Sync(PathRequest { path: "/".into() }), 1);
        let (xid, _) = world.request();
        let before = world.session.lease();
        world.now = before.deadline.unwrap();
        world.now = world.now.saturating_sub(left);
        let reply = world.reply(xid, Ok(Response::Path("/".into())));
        assert_eq!(reply.is_err(), is_left, "{left:?}: {reply:?}");
        if !is_left {
            continue;
        }

        assert_eq!(reply, Err(Disconnect::TooLate));
        world.lose_connection();
        let handshake = world.now;
        world.shake();
        world.answer_handshake(7).expect("not again");
        world.pass(Duration::ZERO).unwrap();
        let (xid, Request::Multi(_)) = world.requests()[0] else { panic!("no heartbeat was sent") };
        world.reply(xid, checked(1)).expect("not again");
        assert_eq!(world.deadline(), Some(handshake + timing.life_after_touch()));
        assert_eq!(world.session.lease().generation, before.generation, "without a gap");
    }
}

/// On a slow link, a heartbeat that was queued behind all the writes of a program came too late.
#[test]
fn a_heartbeat_waits_for_little_of_what_the_caller_sends() {
    let mut world = World::holding();
    const BYTES: usize = 300_000;
    for number in 0..50 {
        world.submit(large(format!("/large-{number}"), BYTES), number);
    }
    world.clean_up_prefix("/", "large-49", None);
    world.session.close(world.now);

    world.pass(world.timing().renewal_interval()).unwrap();
    let mut waiting = world.requests();
    let beat = waiting.iter().position(is_multi);
    assert!(beat.is_some_and(|behind| behind * BYTES <= 2 << 20), "{beat:?}");

    // The rest follows as replies arrive, in order, and the search for a node comes last.
    let (mut answered, mut others) = (Vec::new(), Vec::new());
    while !waiting.is_empty() {
        for (xid, request) in std::mem::take(&mut waiting) {
            let response = match request {
                Request::Create(create) => {
                    answered.push(create.path);
                    Response::Path("/".into())
                }
                Request::Multi(ops) => Response::Multi(vec![OpResult::Check; ops.len()]),
                Request::Sync(sync) => {
                    others.push(answered.len());
                    Response::Path(sync.path)
                }
                Request::GetChildren(_) => Response::Names(Vec::new()),
                other => {
                    others.extend((other == Request::CloseSession).then_some(answered.len()));
                    continue;
                }
            };
            world.reply(xid, Ok(response)).unwrap();
        }
        waiting = world.requests();
    }
    let expected: Vec<_> = (0..50).map(|number| format!("/large-{number}")).collect();
    assert_eq!(answered, expected);
    assert_eq!(others, [50, 50], "the search, and the end of the session");
    assert_eq!(world.results().len(), 50);
}

/// Slow servers do not get additional heartbeats.
#[test]
fn only_so_many_heartbeats_wait_for_an_answer() {
    let mut world = World::holding();
    let mut sent = 0;
    let limit = world.timing().silence_limit();
    let end = world.now + limit + limit;
    while world.now < end {
        let next = world.session.poll_timeout().unwrap();
        world.now = next;
        if world.session.handle_timeout(next).is_err() {
            break;
        }
        sent += world.requests().into_iter().filter(is_multi).count();
        // An answered request, so that the server does not count as silent.
        world.reply(xid::PING, Ok(Response::Empty)).unwrap();
    }
    assert_eq!(sent, 3, "in {:?}", limit * 2);
}

/// A thousand long paths made a heartbeat that every server refuses, so the lease ran out. And a request that
/// was refused in this way took the reply to another heartbeat for its own.
#[test]
fn heartbeats_of_many_long_paths_are_small_and_know_what_they_prove() {
    let mut world = World::connected();
    let long = |n: u32| path(&format!("/{n:05}{}", "x".repeat(2_000)));
    let hold = |n| world.session.hold(world.now, long(n), NameUse::Once);
    let holds: Vec<_> = (0..1_000).map(hold).collect();
    let left = world.session.lease().remaining(world.now);
    world.pass(left - world.timing().left_at_grant()).unwrap();
    let beats = world.requests().into_iter().filter_map(|(xid, request)| match request {
        Request::Multi(ops) => Some((xid, ops.len())),
        _ => None,
    });
    let beats: Vec<_> = beats.collect();
    assert_eq!(beats.iter().map(|(_, checks)| checks).sum::<usize>(), holds.len());
    let last = beats.len() - 1;
    for (index, (xid, checks)) in beats.into_iter().enumerate() {
        assert!(checks * 2_006 < MAX_FRAME / 4, "{checks}");
        let mut results = vec![OpResult::Error(None); checks];
        if index == last {
            results[checks - 1] = OpResult::Error(Some(ErrorCode::NoNode));
        }
        world.reply(xid, Ok(Response::Multi(results))).unwrap();
    }
    let gone = world.events();
    assert_eq!(gone, [Event::NodeGone { id: holds[holds.len() - 1] }]);
}
