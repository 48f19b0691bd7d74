//! Watches: which clients receive which events, once, and before which reply.

use lockkeeper_wire::{AddWatchRequest, RemoveWatchesRequest, SetWatchesRequest};

use super::*;
use crate::rearming::PORTION;
use CreateMode::*;

const PERSISTENT: i32 = 0;
const RECURSIVE: i32 = 1;

fn add_watch(path: &str, mode: i32) -> Request {
    Request::AddWatch(AddWatchRequest { path: path.to_owned(), mode })
}

fn removal(path: &str, kind: i32) -> RemoveWatchesRequest {
    RemoveWatchesRequest { path: path.to_owned(), kind }
}

#[test]
fn the_event_comes_before_the_reply_that_shows_the_change() {
    let (mut world, [client]) = World::with_clients();
    let _ = world.ask(&client, &exists("/a", true));
    world.send(&client, 1, &create("/a", Persistent));
    assert_eq!(world.received(&client), ["NodeCreated /a", "reply 0"]);
}

/// One request with 43,000 paths took 50 to 115 ms, during which no other client was served. Other requests
/// are handled between its portions, and no event is missed: a change before a path's watch is set fires when
/// it is set.
#[test]
fn a_long_re_arming_goes_in_portions() {
    let (mut world, [watcher, other]) = World::with_clients();
    let paths: Vec<String> = (0..3 * PORTION).map(|n| format!("/n-{n}")).collect();
    let (first, last) = (paths[0].clone(), paths[paths.len() - 1].clone());
    let (exist, relative_zxid) = (paths.clone(), Zxid(world.last_zxid()));
    let request = SetWatchesRequest { exist, relative_zxid, ..Default::default() };
    let mut frame = BytesMut::new();
    Request::SetWatches(request).encode(xid::SET_WATCHES, &mut frame);

    let (now, connection) = (world.now, watcher.connection);
    let rest = world.server.handle_part(now, connection, frame.freeze()).expect("more portions");
    world.collect();
    assert_eq!(world.server.stats().watches, PORTION);
    assert!(world.received(&watcher).is_empty(), "the reply follows the last portion");
    world.create(&other, &first, Persistent);
    world.create(&other, &last, Persistent);
    assert_eq!(world.received(&watcher), [format!("NodeCreated {first}")]);

    let rest = world.server.handle_part(now, connection, rest).expect("one more portion");
    world.collect();
    assert!(world.received(&watcher).is_empty());
    assert_eq!(world.server.handle_part(now, connection, rest), None);
    world.collect();
    let event = format!("NodeCreated {last}");
    assert_eq!(world.received(&watcher), [event, "reply 0".to_owned()]);
    assert_eq!(world.server.stats().watches, 3 * PORTION - 2);
}

/// The limits apply to the whole request: if it exceeds them, none of its watches is set.
#[test]
fn a_long_re_arming_is_refused_as_a_whole() {
    let mut world = World::with(Config { max_watches: 2 * PORTION, ..Config::default() });
    let watcher = world.client();
    let exist = (0..2 * PORTION + 1).map(|n| format!("/n-{n}")).collect();
    let request = Request::SetWatches(SetWatchesRequest { exist, ..Default::default() });
    world.send(&watcher, xid::SET_WATCHES, &request);
    assert_eq!(world.server.stats().watches, 0);
    let (count, max) = (2 * PORTION + 1, 2 * PORTION);
    let reason = CloseReason::TooManyWatches { count, max };
    assert_eq!(world.received(&watcher), [format!("closed {reason:?}")]);
}

#[test]
fn events_carry_the_transaction() {
    let (mut world, [watcher, other]) = World::with_clients();
    let _ = world.ask(&watcher, &exists("/a", true));
    world.create(&other, "/a", Persistent);
    let Some(Received::Event(zxid, _)) = world.next(watcher.connection) else { panic!() };
    assert_eq!(zxid.0, world.last_zxid());
}

#[test]
fn one_shot_watches_fire_once() {
    let (mut world, [watcher, other]) = World::with_clients();
    world.create(&other, "/a", Persistent);
    for (watch, change, expected) in [
        (get_data("/a", true), set_data("/a", -1), "NodeDataChanged /a"),
        (exists("/a", true), set_data("/a", -1), "NodeDataChanged /a"),
        (get_children("/a", true), create("/a/c", Persistent), "NodeChildrenChanged /a"),
        (get_children("/a", true), delete("/a/c", -1), "NodeChildrenChanged /a"),
        (get_data("/a", true), delete("/a", -1), "NodeDeleted /a"),
        (exists("/a", true), create("/a", Persistent), "NodeCreated /a"),
        (get_children("/a", true), delete("/a", -1), "NodeDeleted /a"),
    ] {
        let _ = world.ask(&watcher, &watch);
        world.ask(&other, &change).unwrap();
        assert_eq!(world.received(&watcher), [expected], "{change:?}");
        assert_eq!(world.server.stats().watches, 0);
    }
}

#[test]
fn only_exists_may_watch_a_missing_node() {
    let (mut world, [client]) = World::with_clients();
    for (request, watches) in
        [(get_data("/no", true), 0), (get_children("/no", true), 0), (exists("/no", true), 1)]
    {
        assert_eq!(world.ask(&client, &request), Err(ErrorCode::NoNode));
        assert_eq!(world.server.stats().watches, watches, "{request:?}");
    }
}

#[test]
fn a_deletion_is_told_once_to_who_watches_data_and_children() {
    let (mut world, [watcher, other]) = World::with_clients();
    world.create(&other, "/a", Persistent);
    world.watch_all(
        &watcher,
        [get_data("/a", true), get_children("/a", true), get_children("/", true)],
    );
    world.ask(&other, &delete("/a", -1)).unwrap();
    assert_eq!(world.received(&watcher), ["NodeDeleted /a", "NodeChildrenChanged /"]);
}

#[test]
fn persistent_watches_stay() {
    let (mut world, [watcher, other]) = World::with_clients();
    let _ = world.ask(&watcher, &add_watch("/a", PERSISTENT));
    let _ = world.ask(&watcher, &exists("/a", true));
    world.ask_all(
        &other,
        [
            create("/a", Persistent),
            set_data("/a", -1),
            create("/a/b", Persistent),
            set_data("/a/b", -1),
            delete("/a/b", -1),
            delete("/a", -1),
        ],
    );
    let expected = [
        "NodeCreated /a",
        "NodeDataChanged /a",
        "NodeChildrenChanged /a",
        "NodeChildrenChanged /a",
        "NodeDeleted /a",
    ];
    assert_eq!(world.received(&watcher), expected);
}

/// S1: events carried the watched path instead of the changed one.
#[test]
fn s1_recursive_watches_name_the_changed_node_and_never_its_children() {
    let (mut world, [watcher, other]) = World::with_clients();
    world.watch_all(
        &watcher,
        [add_watch("/a", RECURSIVE), add_watch("/", RECURSIVE), exists("/a/b", true)],
    );
    world.ask_all(
        &other,
        [
            create("/a", Persistent),
            create("/a/b", Persistent),
            set_data("/a/b", -1),
            delete("/a/b", -1),
            create("/ab", Persistent),
        ],
    );
    let expected = [
        "NodeCreated /a",
        "NodeCreated /a/b",
        "NodeDataChanged /a/b",
        "NodeDeleted /a/b",
        "NodeCreated /ab",
    ];
    assert_eq!(world.received(&watcher), expected);
}

/// S7: a persistent watch sent paths to clients that may not read them.
#[test]
fn s7_events_of_unreadable_nodes_are_not_told() {
    let (mut world, [watcher, owner]) = World::with_clients();
    world.ask(&owner, &auth("digest", "u:p")).unwrap();
    let _ = world.ask(&watcher, &add_watch("/", RECURSIVE));
    world.ask(&owner, &Request::Create(with_acl("/secret", Acl::creator_all()))).unwrap();
    world.ask(&owner, &set_data("/secret", -1)).unwrap();
    world.create(&owner, "/open", Persistent);
    world.ask(&owner, &delete("/secret", -1)).unwrap();
    assert_eq!(world.received(&watcher), ["NodeCreated /open"]);
}

#[test]
fn watches_are_removed_by_kind() {
    let (mut world, [client, other]) = World::with_clients();
    world.create(&other, "/a", Persistent);
    let arm = |world: &mut World| {
        world.watch_all(
            &client,
            [
                get_data("/a", true),
                get_children("/a", true),
                add_watch("/a", PERSISTENT),
                add_watch("/a", RECURSIVE),
            ],
        );
    };
    for (kind, left) in [(1, 3), (2, 3), (4, 3), (5, 3), (3, 0)] {
        arm(&mut world);
        assert_eq!(world.server.stats().watches, 4);
        let found = Ok(Response::Empty);
        assert_eq!(world.ask(&client, &Request::CheckWatches(removal("/a", kind))), found);
        assert_eq!(world.ask(&client, &Request::RemoveWatches(removal("/a", kind))), found);
        assert_eq!(world.server.stats().watches, left, "{kind}");
        let gone = Err(ErrorCode::NoWatcher);
        assert_eq!(world.ask(&client, &Request::CheckWatches(removal("/a", kind))), gone);
        assert_eq!(world.ask(&client, &Request::RemoveWatches(removal("/a", kind))), gone);
    }
    let wrong = Err(ErrorCode::MarshallingError);
    assert_eq!(world.ask(&client, &Request::RemoveWatches(removal("/a", 9))), wrong);
    assert_eq!(world.ask(&client, &add_watch("/a", 9)), wrong);
}

#[test]
fn the_reply_to_add_watch_has_a_body() {
    let (mut world, [client]) = World::with_clients();
    let (header, body) = world.reply(&client, 3, &add_watch("/a", PERSISTENT));
    assert_eq!((header.error, &body[..]), (0, &[0; 4][..]));
}

#[test]
fn a_lost_connection_takes_its_watches_along() {
    let (mut world, [client, other]) = World::with_clients();
    world.watch_all(
        &client,
        [get_data("/", true), add_watch("/", PERSISTENT), add_watch("/", RECURSIVE)],
    );
    world.server.disconnected(client.connection);
    assert_eq!(world.server.stats().watches, 0);
    world.create(&other, "/a", Persistent);
    assert_eq!(world.received(&client), Vec::<String>::new());
}

#[test]
fn set_watches_tells_at_once_what_was_missed() {
    let (mut world, [client, other]) = World::with_clients();
    for path in ["/same", "/changed", "/deleted", "/parent"] {
        world.create(&other, path, Persistent);
    }
    let seen = Zxid(world.last_zxid());
    world.ask_all(
        &other,
        [
            set_data("/changed", -1),
            delete("/deleted", -1),
            create("/created", Persistent),
            create("/parent/child", Persistent),
        ],
    );
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    let request = SetWatchesRequest {
        relative_zxid: seen,
        data: paths(&["/same", "/changed", "/deleted"]),
        exist: paths(&["/missing", "/created"]),
        child: paths(&["/same", "/parent", "/deleted"]),
        persistent: paths(&["/changed"]),
        persistent_recursive: paths(&["/parent"]),
    };
    let client = world.reconnect(&client);
    world.send(&client, xid::SET_WATCHES, &Request::SetWatches2(request));
    let expected = [
        "NodeDataChanged /changed",
        "NodeDeleted /deleted",
        "NodeCreated /created",
        "NodeChildrenChanged /parent",
        "NodeDeleted /deleted",
        "reply 0",
    ];
    assert_eq!(world.received(&client), expected);
    world.ask_all(
        &other,
        [
            set_data("/same", -1),
            create("/same/c", Persistent),
            create("/missing", Persistent),
            set_data("/changed", -1),
            set_data("/parent/child", -1),
        ],
    );
    let expected = [
        "NodeDataChanged /same",
        "NodeChildrenChanged /same",
        "NodeCreated /missing",
        "NodeDataChanged /changed",
        "NodeDataChanged /parent/child",
    ];
    assert_eq!(world.received(&client), expected);
}

#[test]
fn set_watches_does_not_tell_of_unreadable_nodes() {
    let (mut world, [client, owner]) = World::with_clients();
    world.ask(&owner, &auth("digest", "u:p")).unwrap();
    world.ask(&owner, &Request::Create(with_acl("/secret", Acl::creator_all()))).unwrap();
    let [data, exist, child] = [(); 3].map(|()| vec!["/secret".to_owned()]);
    let request = SetWatchesRequest { data, exist, child, ..Default::default() };
    world.send(&client, xid::SET_WATCHES, &Request::SetWatches(request));
    assert_eq!(world.received(&client), ["reply 0"]);
}
