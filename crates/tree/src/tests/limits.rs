//! What one client may take, and what it hears when it wants more.

use lockkeeper_wire::{AddWatchRequest, Op, OpResult, ReadOp, SetWatchesRequest};

use super::*;
use crate::Notice;
use CreateMode::*;

fn with(change: impl FnOnce(&mut Config)) -> World {
    let mut config = Config::default();
    change(&mut config);
    World::with(config)
}

#[test]
fn a_reply_that_is_too_long_is_an_error_and_a_notice() {
    let mut world = with(|config| config.max_frame = 300);
    let client = world.client();
    world.create(&client, "/p", Persistent);
    for i in 0..20 {
        world.create(&client, &format!("/p/child-number-{i}"), Persistent);
    }
    let reply = world.ask(&client, &get_children("/p", false));
    assert_eq!(reply, Err(ErrorCode::MarshallingError));
    let notices = world.server.take_notices();
    let [Notice::ReplyTooLong { connection, len: 300.., max: 300 }] = notices[..] else {
        panic!("{notices:?}");
    };
    assert_eq!(connection, client.connection);
    assert!(world.stat(&client, "/p").is_some(), "the connection goes on");
    assert!(world.server.take_notices().is_empty());
}

/// A multi is refused before it is applied if its results might not fit: an error after the fact
/// would tell the client that nothing has happened.
#[test]
fn a_multi_whose_reply_might_be_too_long_changes_nothing() {
    let mut world = with(|config| config.max_frame = 600);
    let client = world.client();
    let op = |i: usize| Op::Create2(new_node(&format!("/n{i}"), Persistent));
    let reply = world.ask(&client, &Request::Multi((0..8).map(op).collect()));
    assert_eq!(reply, Err(ErrorCode::MarshallingError));
    assert_eq!(world.server.stats().nodes, 4);
    assert_eq!(world.server.take_notices().len(), 1);

    let reply = world.ask(&client, &Request::Multi((0..4).map(op).collect()));
    let Ok(Response::Multi(results)) = reply else { panic!("{reply:?}") };
    assert!(matches!(results[..], [OpResult::Create2 { .. }, ..]));
}

#[test]
fn a_multi_has_a_limited_number_of_operations() {
    let mut world = with(|config| config.max_ops = 3);
    let client = world.client();
    let op = |i: usize| Op::Create(new_node(&format!("/n{i}"), Persistent));
    let before = world.last_zxid();
    let reply = world.ask(&client, &Request::Multi((0..4).map(op).collect()));
    assert_eq!(reply, Err(ErrorCode::BadArguments));
    assert_eq!(world.last_zxid(), before + 1, "like every write that fails");
    let reads = (0..4).map(|_| ReadOp::GetData(path("/"))).collect();
    assert_eq!(world.ask(&client, &Request::MultiRead(reads)), Err(ErrorCode::BadArguments));
    assert_eq!(world.server.take_notices().len(), 2);
    assert!(world.ask(&client, &Request::Multi((0..3).map(op).collect())).is_ok());
}

#[test]
fn a_connection_watches_a_limited_number_of_paths() {
    let mut world = with(|config| config.max_watches = 2);
    let (client, other) = (world.client(), world.client());
    world.create(&client, "/a", Persistent);
    world.ask(&client, &get_data("/a", true)).unwrap();
    assert_eq!(world.ask(&client, &exists("/b", true)), Err(ErrorCode::NoNode));
    assert_eq!(world.ask(&client, &exists("/c", true)), Err(ErrorCode::ThrottledOp));
    assert_eq!(world.ask(&client, &get_children("/", true)), Err(ErrorCode::ThrottledOp));
    let recursive = Request::AddWatch(AddWatchRequest { path: "/".to_owned(), mode: 1 });
    assert_eq!(world.ask(&client, &recursive), Err(ErrorCode::ThrottledOp));
    assert_eq!(world.server.take_notices().len(), 3);
    // Another kind of watch on the same path, no watch at all, another connection.
    world.ask(&client, &get_children("/a", true)).unwrap();
    world.ask(&client, &get_data("/", false)).unwrap();
    world.ask(&other, &get_data("/", true)).unwrap();
    // A watch that has fired makes room.
    world.ask(&other, &delete("/a", -1)).unwrap();
    assert_eq!(world.received(&client), ["NodeDeleted /a"]);
    world.ask(&client, &get_data("/", true)).unwrap();
}

#[test]
fn whoever_comes_back_with_too_many_watches_is_closed() {
    let mut world = with(|config| config.max_watches = 2);
    let client = world.client();
    let paths = |n: usize| (0..n).map(|i| format!("/n{i}")).collect();
    let request = SetWatchesRequest {
        relative_zxid: Zxid(0),
        data: Vec::new(),
        exist: paths(3),
        child: Vec::new(),
        persistent: Vec::new(),
        persistent_recursive: Vec::new(),
    };
    let two = SetWatchesRequest { exist: paths(2), ..request.clone() };
    world.ask(&client, &Request::SetWatches(two)).unwrap();
    let again = world.reconnect(&client);
    world.received(&client);
    world.send(&again, 7, &Request::SetWatches(request));
    assert_eq!(world.received(&again), ["closed TooManyWatches { count: 3, max: 2 }"]);
    assert_eq!(world.server.stats().watches, 0);
}

#[test]
fn there_is_a_limited_number_of_sessions() {
    let mut world = with(|config| config.max_sessions = 2);
    let (first, _second) = (world.client(), world.client());
    let connection = world.open();
    let mut frame = BytesMut::new();
    hello().encode(&mut frame);
    world.frame(connection, frame.clone());
    let refused = Received::Closed(CloseReason::TooManySessions { max: 2 });
    assert_eq!(world.next(connection), Some(refused));
    // Coming back is no new session.
    let first = world.reconnect(&first);
    world.ask(&first, &Request::CloseSession).unwrap();
    world.client();
}
