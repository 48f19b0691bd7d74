//! Replies that are longer than the client accepts.

use super::*;

/// A server may send more than a client accepts. Closing the connection would lead to the same read again,
/// and would put everything else in doubt until then.
#[test]
fn an_answer_that_is_too_long_fails_its_read_alone() {
    let mut world = World::with_short_frames();
    world.submit(get_data("/long"), 1);
    world.submit(get_data("/short"), 2);
    let requests = world.requests();
    let long = Response::Data { data: Bytes::from(vec![7; 5_000]).into(), stat: Stat::default() };
    let len = ReplyHeader::LENGTH + 4 + 5_000 + Stat::LENGTH;
    let mut bytes = BytesMut::new();
    for (xid, response) in [(requests[0].0, long), (requests[1].0, data().unwrap())] {
        write_frame(&mut bytes, |out| {
            ReplyHeader { xid, zxid: Zxid(50), error: 0 }.encode(out);
            response.encode(out);
        });
    }

    // Independent of how the bytes are divided, and how slowly they arrive.
    let limit = world.timing().silence_limit();
    for part in bytes.chunks(700) {
        world.to_client.extend_from_slice(part);
        world.deliver().unwrap();
        assert!(world.to_client.len() <= 700, "its bytes are not kept");
        world.pass(limit.mul_f64(0.9)).unwrap();
    }
    let too_long = Err(RequestError::AnswerTooLong { len, max: 1_000 });
    assert_eq!(world.results(), [(1, too_long), (2, data().map_err(RequestError::Server))]);
    assert_eq!(world.session.contact(), Contact::Connected);
}

#[test]
fn what_is_too_long_and_no_answer_to_a_read_ends_the_connection() {
    for (name, request, other_xid, len) in [
        ("an answer to nothing", get_data("/long"), Some(1_000), 5_000),
        ("without end", get_data("/long"), None, i32::MAX),
        ("an event", get_data("/long"), Some(xid::NOTIFICATION), 5_000),
        ("to a write, which may have been applied", create("/a"), None, 5_000),
    ] {
        let mut world = World::with_short_frames();
        world.submit(request, 1);
        let (xid, _) = world.request();
        world.begin_reply(other_xid.unwrap_or(xid), len);
        let ended = world.deliver();
        assert!(matches!(ended, Err(Disconnect::Frame(_))), "{name}: {ended:?}");
    }
}

/// The reply would be equally long on the next connection, and end that one too.
#[test]
fn a_read_whose_answer_is_too_long_to_be_skipped_fails_with_its_length() {
    let mut world = World::with_short_frames();
    world.submit(get_data("/long"), 1);
    let (xid, _) = world.request();
    let len = MAX_SKIPPED_REPLY + 1;
    world.to_client.extend_from_slice(&i32::try_from(len).unwrap().to_be_bytes());
    world.deliver().unwrap();
    ReplyHeader { xid, zxid: Zxid(50), error: 0 }.encode(&mut world.to_client);
    assert!(matches!(world.deliver(), Err(Disconnect::Frame(_))));
    world.lose_connection();
    assert_eq!(world.results(), [(1, Err(RequestError::AnswerTooLong { len, max: 1_000 }))]);
}

/// Its listing is equally long on the next connection, so the retry is delayed.
#[test]
fn a_cleanup_whose_answer_is_too_long_costs_no_connection_and_goes_on() {
    let mut world = World::with_short_frames();
    world.clean_up_prefix("/locks", "_c_1", Some(1));
    let requests = world.requests();
    world.reply(requests[0].0, Ok(Response::Path("/locks".into()))).unwrap();
    world.begin_reply(requests[1].0, 5_000);
    world.to_client.extend_from_slice(&[7; 5_000 - 16]);
    world.deliver().unwrap();
    assert_eq!((world.session.contact(), world.results()), (Contact::Connected, vec![]));
    assert_eq!(world.requests(), [], "not at once");

    world.pass(world.timing().ping_interval()).unwrap();
    let is_listing = |(_, request): &(i32, Request)| matches!(request, Request::GetChildren(_));
    assert!(world.requests().iter().any(is_listing));
}

/// The rest of a reply belongs to its connection.
#[test]
fn nothing_is_skipped_on_the_next_connection() {
    let mut world = World::with_short_frames();
    world.submit(get_data("/long"), 1);
    let (xid, _) = world.request();
    world.begin_reply(xid, 5_000);
    world.deliver().unwrap();
    world.reconnect();
    assert_eq!(world.session.contact(), Contact::Connected);
}
