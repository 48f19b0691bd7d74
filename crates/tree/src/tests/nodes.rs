//! Creating, changing and deleting nodes; stats and sequence numbers.

use super::*;
use CreateMode::*;

#[test]
fn a_new_server_has_zookeepers_nodes() {
    let (mut world, [client]) = World::with_clients();
    for (path, cversion, aversion) in [
        ("/", -1, 0),
        ("/zookeeper", -2, 0),
        ("/zookeeper/quota", 0, 0),
        ("/zookeeper/config", 0, -1),
    ] {
        let stat = world.stat(&client, path).expect(path);
        assert_eq!((stat.cversion, stat.aversion), (cversion, aversion), "{path}");
        let removed = world.ask(&client, &delete(path, -1));
        assert_eq!(removed, Err(ErrorCode::BadArguments), "{path}");
    }
    let count = Request::GetAllChildrenNumber(path("/"));
    assert_eq!(world.ask(&client, &count), Ok(Response::Count(3)));
}

#[test]
fn sequence_numbers_count_creates_and_not_deletes() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/p", Persistent);
    assert_eq!(world.create(&client, "/p/a-", PersistentSequential), "/p/a-0000000000");
    world.create(&client, "/p/plain", Persistent);
    assert_eq!(world.create(&client, "/p/b-", EphemeralSequential), "/p/b-0000000002");
    world.ask(&client, &delete("/p/b-0000000002", -1)).unwrap();
    assert_eq!(world.create(&client, "/p/", PersistentSequential), "/p/0000000003");
    let stat = world.stat(&client, "/p").unwrap();
    assert_eq!((stat.cversion, stat.num_children), (2 * 4 - 3, 3));
}

/// Sequence numbers wrapped around: the next node then sorted before all others. In ZooKeeper the count stops
/// at its maximum, so that a name is taken until its node is deleted.
#[test]
fn sequence_numbers_end_at_the_largest() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/p", Persistent);
    world.server.tree.touch("/p").unwrap().child_creates = i32::MAX;
    assert_eq!(world.create(&client, "/p/a", PersistentSequential), "/p/a2147483647");
    let again = world.ask(&client, &create("/p/a", PersistentSequential));
    assert_eq!(again, Err(ErrorCode::NodeExists));
    assert_eq!(world.create(&client, "/p/b", PersistentSequential), "/p/b2147483647");
}

#[test]
fn stats_tell_what_happened() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/p", Persistent);
    let created = world.stat(&client, "/p").unwrap();
    assert_eq!((created.czxid, created.mzxid, created.pzxid), (Zxid(2), Zxid(2), Zxid(2)));
    assert_eq!((created.ctime, created.mtime), (1_000_000, 1_000_000));
    world.pass(Duration::from_millis(5));
    world.ask(&client, &set_data("/p", 0)).unwrap();
    world.create(&client, "/p/c", Ephemeral);
    world.ask(&client, &delete("/p/c", 0)).unwrap();
    let stat = world.stat(&client, "/p").unwrap();
    assert_eq!((stat.czxid, stat.mzxid, stat.pzxid), (Zxid(2), Zxid(3), Zxid(5)));
    assert_eq!((stat.ctime, stat.mtime), (1_000_000, 1_000_005));
    assert_eq!((stat.version, stat.cversion, stat.aversion), (1, 2, 0));
    assert_eq!((stat.data_length, stat.num_children), (5, 0));
}

#[test]
fn only_ephemerals_have_an_owner() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/e", Ephemeral);
    assert_eq!(world.stat(&client, "/e").unwrap().ephemeral_owner, client.session);
    let container = Request::CreateContainer(new_node("/c", Container));
    let Ok(Response::Created { stat, .. }) = world.ask(&client, &container) else { panic!() };
    assert_eq!(stat.ephemeral_owner, SessionId::NONE);
}

#[test]
fn errors_of_create() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/e", Ephemeral);
    for (path, mode, error) in [
        ("/", Persistent, ErrorCode::NodeExists),
        ("", Persistent, ErrorCode::BadArguments),
        ("a", Persistent, ErrorCode::BadArguments),
        ("/a\0", Persistent, ErrorCode::BadArguments),
        ("/a/", Persistent, ErrorCode::NoNode),
        ("/..", Persistent, ErrorCode::BadArguments),
        ("/\u{1f512}", Persistent, ErrorCode::BadArguments),
        ("/no/a", Persistent, ErrorCode::NoNode),
        ("/e", Persistent, ErrorCode::NodeExists),
        ("/e/a", Persistent, ErrorCode::NoChildrenForEphemerals),
        ("/t", PersistentTtl, ErrorCode::BadArguments),
    ] {
        assert_eq!(world.ask(&client, &create(path, mode)), Err(error), "{path:?}");
    }
    for (acl, flags, error) in
        [(vec![], 0, ErrorCode::InvalidAcl), (Acl::open(), 99, ErrorCode::BadArguments)]
    {
        let request = CreateRequest { acl: acl.into(), flags, ..new_node("/no/a", Persistent) };
        assert_eq!(world.ask(&client, &Request::Create(request)), Err(error));
    }
}

#[test]
fn errors_of_set_data_and_delete() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/p", Persistent);
    world.create(&client, "/p/c", Persistent);
    for (request, error) in [
        (set_data("/no", -1), ErrorCode::NoNode),
        (set_data("no", -1), ErrorCode::BadArguments),
        (set_data("/p", 1), ErrorCode::BadVersion),
        (delete("/no", -1), ErrorCode::NoNode),
        (delete("/no/no", -1), ErrorCode::NoNode),
        (delete("no", -1), ErrorCode::BadArguments),
        (delete("/p", 1), ErrorCode::BadVersion),
        (delete("/p", 0), ErrorCode::NotEmpty),
    ] {
        assert_eq!(world.ask(&client, &request), Err(error), "{request:?}");
    }
}

#[test]
fn ttl_nodes_only_where_they_are_enabled() {
    let mut world = World::with(Config::default());
    let client = world.client();
    let ttl = |ttl_ms, mode| Request::CreateTtl(new_node("/t", mode).with_ttl(ttl_ms));
    assert_eq!(world.ask(&client, &ttl(5, PersistentTtl)), Err(ErrorCode::Unimplemented));
    world.server.config.ttl_nodes = true;
    for (request, error) in [
        (ttl(0, PersistentTtl), ErrorCode::BadArguments),
        (ttl(1 << 40, PersistentTtl), ErrorCode::BadArguments),
        (ttl(5, Persistent), ErrorCode::BadArguments),
    ] {
        assert_eq!(world.ask(&client, &request), Err(error), "{request:?}");
    }
    let Ok(Response::Created { stat, .. }) = world.ask(&client, &ttl(5, PersistentTtl)) else {
        panic!("not created");
    };
    assert_eq!(stat.ephemeral_owner, SessionId::NONE);
}

#[test]
fn a_failed_write_takes_a_transaction_number_and_a_read_does_not() {
    let (mut world, [client]) = World::with_clients();
    assert_eq!(world.last_zxid(), 1);
    world.ask(&client, &delete("/no", -1)).unwrap_err();
    assert_eq!(world.last_zxid(), 2);
    world.ask(&client, &exists("/no", false)).unwrap_err();
    world.ask(&client, &Request::Ping).unwrap();
    assert_eq!(world.last_zxid(), 2);
    let (header, _) = world.reply(&client, 9, &get_data("/", false));
    assert_eq!((header.xid, header.zxid), (9, Zxid(2)));
}

#[test]
fn the_counter_rolls_over_into_the_epoch() {
    let (mut world, [client]) = World::with_clients();
    world.server.last_zxid = Zxid(0xffff_fffe);
    world.create(&client, "/a", Persistent);
    world.create(&client, "/b", Persistent);
    assert_eq!(world.stat(&client, "/a").unwrap().czxid, Zxid(0xffff_ffff));
    assert_eq!(world.stat(&client, "/b").unwrap().czxid, Zxid(0x1_0000_0001));
}

#[test]
fn data_in_the_tree_does_not_pin_the_frame() {
    let (mut world, [client]) = World::with_clients();
    let mut frame = BytesMut::new();
    create("/a", Persistent).encode(1, &mut frame);
    let frame = frame.freeze();
    world.frame(client.connection, frame.clone());
    assert!(frame.is_unique(), "the tree still references the frame");
}

/// Tables keep the capacity of their largest size unless they are shrunk.
#[test]
fn what_a_load_has_left_free_is_given_back() {
    let (mut world, [staying]) = World::with_clients();
    world.create(&staying, "/stays", Ephemeral);
    let clients: Vec<Client> = (0..100).map(|_| world.client()).collect();
    for (i, client) in clients.iter().enumerate() {
        for k in 0..50 {
            let container = new_node(&format!("/c-{i}-{k}"), Container);
            world.ask(client, &Request::CreateContainer(container)).unwrap();
            // A container is reaped after it has been used.
            world.create(client, &format!("/c-{i}-{k}/used"), Persistent);
            world.ask(client, &delete(&format!("/c-{i}-{k}/used"), -1)).unwrap();
            world.create(client, &format!("/e-{i}-{k}"), Ephemeral);
            world.ask(client, &exists(&format!("/e-{i}-{k}/gone"), true)).unwrap_err();
        }
    }
    for (i, client) in clients.iter().enumerate() {
        for k in 0..50 {
            world.ask(client, &delete(&format!("/c-{i}-{k}"), -1)).unwrap();
        }
        world.ask(client, &Request::CloseSession).unwrap();
        world.server.disconnected(client.connection);
    }
    let _ = world.server.take_changes();
    let before = (world.server.tree.room(), world.server.watches.room());
    world.server.shrink();
    let after = (world.server.tree.room(), world.server.watches.room());
    let little = |before: &[usize], after: &[usize]| {
        before.iter().zip(after).all(|(before, after)| *before > 20 && after * 3 < *before)
    };
    assert!(little(&before.0[..2], &after.0[..2]), "{before:?} {after:?}");
    assert!(little(&before.1, &after.1), "{before:?} {after:?}");
    assert!(after.0.iter().sum::<usize>() < 200, "{before:?} {after:?}");
    assert!(world.stat(&staying, "/stays").is_some());
    assert_eq!(world.create(&staying, "/stays-too", Ephemeral), "/stays-too");
}
