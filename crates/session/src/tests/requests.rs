//! Requests: their order and their outcomes.

use super::*;

#[test]
fn requests_are_pipelined_and_answered_in_order() {
    let mut world = World::asking();
    let requests = world.requests();
    assert_eq!(requests.len(), 2, "both are sent together");
    world.reply(requests[0].0, created()).unwrap();
    world.reply(requests[1].0, Err(ErrorCode::NoNode)).unwrap();
    let results = world.results();
    assert_eq!(results[0], (1, created().map_err(RequestError::Server)));
    assert_eq!(results[1], (2, Err(RequestError::Server(ErrorCode::NoNode))));
}

#[test]
fn a_reply_out_of_order_ends_the_connection() {
    let mut world = World::asking();
    let requests = world.requests();
    let result = world.reply(requests[1].0, data());
    assert!(matches!(result, Err(Disconnect::OutOfOrder { .. })), "{result:?}");
}

#[test]
fn a_lost_connection_tells_what_may_have_been_applied() {
    let mut world = World::asking();
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
    assert_eq!((request.session_id, request.password), (SessionId(7), PASSWORD));
    assert!(matches!(world.request(), (_, Request::Create2(_))));
}

/// N31: in a long outage every request failed at once with a retryable error: a program that retried made
/// 175,000 attempts per second.
#[test]
fn n31_a_retry_loop_without_servers_waits_a_session_timeout_for_each_error() {
    let mut world = World::connected();
    world.lose_connection();
    let mut failures = 0;
    world.submit(create("/a"), 0);
    for _ in 0..100 {
        world.pass(TIMEOUT / 10).unwrap();
        for (token, result) in world.results() {
            assert_eq!(result, Err(RequestError::Unreachable));
            failures += 1;
            world.submit(create("/a"), token + 1);
        }
    }
    assert_eq!(failures, 10, "in ten session timeouts");

    // Closing the client does not wait for them.
    world.session.close(world.now);
    assert_eq!(world.results(), [(10, Err(RequestError::Closed))]);
    assert_eq!(world.session.contact(), Contact::Closed);
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
    assert_eq!(world.results(), [(1, unreachable())], "the other request has its own time limit");
    world.pass(seconds(1.0)).unwrap();
    world.submit(create("/c"), 3);
    world.pass(TIMEOUT - seconds(1.1)).unwrap();
    assert_eq!(world.results(), []);
    assert_eq!(world.session.poll_timeout(), Some(world.now + seconds(0.1)));
    world.pass(seconds(0.1)).unwrap();
    assert_eq!(world.results(), [(2, unreachable())]);
    world.connect(7);
    assert_eq!(world.request().1, create("/c"));
    assert_eq!(world.session.contact(), Contact::Connected, "the session may have lived on");
}

/// Slow replies are a sign that more requests would delay a heartbeat.
#[test]
fn requests_wait_while_something_is_without_an_answer_for_long() {
    let mut world = World::connected();
    world.submit(get_data("/a"), 1);
    let (xid, _) = world.request();
    world.now = world.now + TIMEOUT / 8;
    world.submit(get_data("/b"), 2);
    assert_eq!(world.requests(), []);
    world.reply(xid, data()).unwrap();
    assert_eq!(world.answer(data()), get_data("/b"));
    assert_eq!(world.results().len(), 2);
}

#[test]
fn a_request_over_the_limit_is_refused_and_harms_no_other() {
    let mut world = World::connected();
    world.submit(large("/a".into(), MAX_FRAME), 1);
    world.submit(get_data("/a"), 2);
    let results = world.results();
    assert!(matches!(results[..], [(1, Err(RequestError::TooLarge { .. }))]), "{results:?}");
    assert!(matches!(world.request().1, Request::GetData(_)));
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
    world.clean_up_node("/a", None);
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
