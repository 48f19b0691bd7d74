//! The limits of one client, and its errors above them.

use lockkeeper_wire::{AddWatchRequest, CheckRequest, ReadOp, SetWatchesRequest};

use super::*;
use crate::multi;
use crate::notices::Notice;
use CreateMode::*;

#[test]
fn a_reply_that_is_too_long_is_an_error_and_a_notice() {
    let (mut world, [client]) = World::limited(|config| config.max_frame = 300);
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
    assert!(world.stat(&client, "/p").is_some(), "the connection stays open");
    assert!(world.server.take_notices().is_empty());
}

/// A request of 54 KB for 3,000 times the same megabyte produced 2.9 GB before the limit was checked. The
/// computation must stop at the first result above the limit: fails if only the total is checked.
#[test]
fn a_reply_stops_growing_at_the_limit() {
    const DATA: usize = 40_000;
    let (mut world, [client]) = World::limited(|config| config.max_frame = 5 * DATA / 2);
    let data = Bytes::from(vec![7; DATA]);
    let large =
        Request::Create(CreateRequest { data: data.into(), ..new_node("/large", Persistent) });
    world.ask(&client, &large).unwrap();
    for i in 0..100 {
        world.create(&client, &format!("/large/child-{i}"), Persistent);
    }
    let reads: [fn(PathRequest) -> ReadOp; 2] = [ReadOp::GetData, ReadOp::GetChildren];
    for read in reads {
        let multi = |count| Request::MultiRead((0..count).map(|_| read(path("/large"))).collect());
        let Ok(Response::MultiRead(results)) = world.ask(&client, &multi(2)) else { panic!() };
        assert_eq!(results.len(), 2);
        assert_eq!(world.ask(&client, &multi(3_000)), Err(ErrorCode::MarshallingError));
        let notices = world.server.take_notices();
        let [Notice::ReplyTooLong { len, max, .. }] = notices[..] else { panic!("{notices:?}") };
        assert!((max..max + 2 * DATA).contains(&len), "{len} bytes were computed");
    }
}

/// The computed length of a reply is its real length: at the exact limit it is sent, and with a limit one
/// byte below it is refused.
#[test]
fn the_length_of_a_reply_is_computed_exactly() {
    let requests = |world: &mut World, client: &Client| {
        world.create(client, "/p", Persistent);
        for name in ["a", "bcd", "lock-"] {
            world.create(client, &format!("/p/{name}"), EphemeralSequential);
        }
        let both = vec![
            ReadOp::GetData(path("/p")),
            ReadOp::GetChildren(path("/p")),
            ReadOp::GetData(path("/missing")),
        ];
        vec![
            get_data("/p", false),
            get_children("/p", false),
            Request::GetChildren2(watched("/p", false)),
            Request::GetEphemerals(path("/p")),
            Request::MultiRead(both),
        ]
    };
    let lengths: Vec<usize> = {
        let (mut world, [client]) = World::with_clients();
        let all = requests(&mut world, &client);
        all.iter().map(|request| 16 + world.reply(&client, 7, request).1.len()).collect()
    };
    for (index, len) in lengths.into_iter().enumerate() {
        for (max, fits) in [(len, true), (len - 1, false)] {
            let (mut world, [client]) = World::limited(|config| config.max_frame = 300);
            let request = requests(&mut world, &client).swap_remove(index);
            world.server.config.max_frame = max;
            let reply = world.ask(&client, &request);
            assert_eq!(reply.is_ok(), fits, "{request:?} with {max}: {reply:?}");
            assert_eq!(world.server.take_notices().len(), usize::from(!fits));
        }
    }
}

/// The same for the results of a `multi`, which were overestimated: 10,001 plain creates were refused,
/// although their reply has a third of the limit.
#[test]
fn the_length_of_a_multis_reply_is_computed_exactly() {
    let op = |number: usize| {
        let (path, mode) = match number % 6 {
            0 | 1 => (format!("/p{number}"), Persistent),
            2 | 3 => ("/s-".to_owned(), PersistentSequential),
            _ => (format!("/c{number}"), Container),
        };
        match number % 2 {
            0 => Op::Create(new_node(&path, mode)),
            _ => Op::Create2(new_node(&path, mode)),
        }
    };
    let (path, version, data) = ("/p0".to_owned(), -1, Bytes::new().into());
    let more = [
        Op::SetData(SetDataRequest { path: path.clone(), data, version }),
        Op::Check(CheckRequest { path: path.clone(), version }),
        Op::Delete(DeleteRequest { path, version }),
    ];
    let ops: Vec<Op> = (0..12).map(op).chain(more).collect();
    let (mut world, [client]) = World::with_clients();
    let (header, body) = world.reply(&client, 7, &Request::Multi(ops.clone()));
    assert_eq!(header.error, 0);
    assert_eq!(multi::reply_len(&ops), 16 + body.len());
}

#[test]
fn a_multi_of_thirteen_thousand_plain_creates_passes() {
    let (mut world, [client]) = World::with_clients();
    let op = |i: usize| Op::Create(new_node(&format!("/n{i:05}"), Persistent));
    assert_eq!(world.multi(&client, (0..13_000).map(op)).len(), 13_000);
}

/// Symptom: short requests made the server visit every node of the tree.
#[test]
fn a_count_of_very_many_nodes_is_refused() {
    const MOST: usize = 25_000;
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/p", Persistent);
    let op = |i: usize| Op::Create(new_node(&format!("/p/{i}"), Persistent));
    for from in (0..MOST).step_by(5_000) {
        world.multi(&client, (from..from + 5_000).map(op));
    }
    let count = |path_: &str| Request::GetAllChildrenNumber(path(path_));
    assert_eq!(world.ask(&client, &count("/p")), Ok(Response::Count(MOST as i32)));
    world.create(&client, "/p/one-more", Persistent);
    assert_eq!(world.ask(&client, &count("/p")), Err(ErrorCode::ThrottledOp));
    assert!(matches!(world.server.take_notices()[..], [Notice::TooMuchToCount { .. }]));
    let all = MOST as i32 + 5;
    assert_eq!(world.ask(&client, &count("/")), Ok(Response::Count(all)), "is known");
}

/// A multi is refused before it is applied if its results do not fit: a later error would suggest to the
/// client that nothing has changed.
#[test]
fn a_multi_whose_reply_would_be_too_long_changes_nothing() {
    let (mut world, [client]) = World::limited(|config| config.max_frame = 600);
    let op = |i: usize| Op::Create2(new_node(&format!("/n{i}"), Persistent));
    let reply = world.ask(&client, &Request::Multi((0..8).map(op).collect()));
    assert_eq!(reply, Err(ErrorCode::MarshallingError));
    assert_eq!(world.server.stats().nodes, 4);
    assert_eq!(world.server.take_notices().len(), 1);

    let results = world.multi(&client, (0..4).map(op));
    assert!(matches!(results[..], [OpResult::Create2 { .. }, ..]));
}

#[test]
fn a_multi_has_a_limited_number_of_operations() {
    let (mut world, [client]) = World::limited(|config| config.max_ops = 3);
    let op = |i: usize| Op::Create(new_node(&format!("/n{i}"), Persistent));
    let before = world.last_zxid();
    let reply = world.ask(&client, &Request::Multi((0..4).map(op).collect()));
    assert_eq!(reply, Err(ErrorCode::BadArguments));
    assert_eq!(world.last_zxid(), before + 1, "as for every failed write");
    let reads = (0..4).map(|_| ReadOp::GetData(path("/"))).collect();
    assert_eq!(world.ask(&client, &Request::MultiRead(reads)), Err(ErrorCode::BadArguments));
    assert_eq!(world.server.take_notices().len(), 2);
    assert!(world.ask(&client, &Request::Multi((0..3).map(op).collect())).is_ok());
}

#[test]
fn a_connection_watches_a_limited_number_of_paths() {
    let (mut world, [client, other]) = World::limited(|config| config.max_watches = 2);
    world.create(&client, "/a", Persistent);
    world.ask(&client, &get_data("/a", true)).unwrap();
    assert_eq!(world.ask(&client, &exists("/b", true)), Err(ErrorCode::NoNode));
    assert_eq!(world.ask(&client, &exists("/c", true)), Err(ErrorCode::ThrottledOp));
    assert_eq!(world.ask(&client, &get_children("/", true)), Err(ErrorCode::ThrottledOp));
    let recursive = Request::AddWatch(AddWatchRequest { path: "/".to_owned(), mode: 1 });
    assert_eq!(world.ask(&client, &recursive), Err(ErrorCode::ThrottledOp));
    assert_eq!(world.server.take_notices().len(), 3);
    // Another kind of watch on the same path, a read without a watch, another connection.
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
    let (mut world, [client]) = World::limited(|config| config.max_watches = 2);
    let paths = |n: usize| (0..n).map(|i| format!("/n{i}")).collect();
    let request = |count| {
        Request::SetWatches(SetWatchesRequest { exist: paths(count), ..Default::default() })
    };
    world.ask(&client, &request(2)).unwrap();
    let again = world.reconnect(&client);
    world.received(&client);
    world.send(&again, 7, &request(3));
    assert_eq!(world.received(&again), ["closed TooManyWatches { count: 3, max: 2 }"]);
    assert_eq!(world.server.stats().watches, 0);
}

#[test]
fn there_is_a_limited_number_of_sessions() {
    let (mut world, [first, _second]) = World::limited(|config| config.max_sessions = 2);
    let connection = world.open();
    let refused = Received::Closed(CloseReason::TooManySessions { max: 2 });
    assert_eq!(world.try_shake(connection, &hello()), Some(refused));
    // Resuming a session is not a new session.
    let first = world.reconnect(&first);
    world.ask(&first, &Request::CloseSession).unwrap();
    world.client();
}

/// With a quota or a recursive watch anywhere, a change took time that grew with the square of the depth of
/// its path: 300 changes at 1,700 levels took 23 ms, and 20,000 levels were possible.
#[test]
fn paths_have_a_greatest_depth() {
    let (mut world, [client]) = World::with_clients();
    for level in 1..=250 {
        world.create(&client, &"/x".repeat(level), CreateMode::Persistent);
    }
    let deeper = create(&"/x".repeat(251), CreateMode::Persistent);
    assert_eq!(world.ask(&client, &deeper), Err(ErrorCode::BadArguments));
}

/// Each table of paths hashes a few hundred at once when it grows, and each level of a path of a megabyte was
/// hashed from its beginning: one change at 250 levels took 45 to 104 ms. Fails without the limit.
#[test]
fn paths_have_a_greatest_length() {
    let (mut world, [client]) = World::with_clients();
    let longest = format!("/{}", "x".repeat(80 * 1024 - 1));
    let longer = format!("{longest}x");
    assert!(world.ask(&client, &create(&longest, Persistent)).is_ok());
    let refused = Err(ErrorCode::BadArguments);
    assert_eq!(world.ask(&client, &create(&longer, Persistent)), refused);
    let numbered = create(&longest[1..], PersistentSequential);
    assert_eq!(world.ask(&client, &numbered), refused);

    let recursive = |path: &str| AddWatchRequest { path: path.to_owned(), mode: 1 };
    let again =
        |path: &str| SetWatchesRequest { exist: vec![path.to_owned()], ..Default::default() };
    let missing = longest.replace('x', "y");
    for (path, fits) in [(&missing, true), (&longer, false)] {
        for request in [
            Request::AddWatch(recursive(path)),
            Request::SetWatches(again(path)),
            exists(path, true),
        ] {
            let (header, _) = world.reply(&client, 7, &request);
            assert_eq!(header.error != ErrorCode::BadArguments.code(), fits, "{header:?}");
        }
    }
    assert_eq!(world.ask(&client, &exists(&longer, false)), Err(ErrorCode::NoNode));
}
