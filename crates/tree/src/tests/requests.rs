//! Requests other than creates and deletes.

use super::*;

fn raw(op: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = 5_i32.to_be_bytes().to_vec();
    frame.extend(op.to_be_bytes());
    frame.extend(body);
    frame
}

#[test]
fn unknown_operations_are_unimplemented_and_end_the_connection() {
    let (mut world, [mut client]) = World::with_clients();
    // 13 is `check`, which is valid only in a `multi`; 20 and the negative ones are used only by servers.
    for op in [0, 10, 13, 20, 99, 108, -1, -10, i32::MIN] {
        world.frame(client.connection, raw(op, &[0, 0, 0, 1, b'/', 0, 0, 0, 0]));
        let (header, _) = world.next_reply(&client);
        assert_eq!((header.xid, header.error), (5, ErrorCode::Unimplemented.code()), "{op}");
        assert_eq!(header.zxid, Zxid(-1), "it is not part of the order");
        let closed = Received::Closed(CloseReason::UnknownOp(op));
        assert_eq!(world.next(client.connection), Some(closed));
        client = world.reconnect(&client);
    }
}

/// An empty path was taken for a missing node; ZooKeeper has its root under two names.
#[test]
fn the_empty_path_is_another_name_of_the_root() {
    let (mut world, [client]) = World::with_clients();
    let root = world.ask(&client, &get_data("/", false));
    assert_eq!(world.ask(&client, &get_data("", true)), root);
    assert_eq!(
        world.ask(&client, &get_children("", false)),
        world.ask(&client, &get_children("/", false))
    );
    assert_eq!(
        world.ask(&client, &Request::GetAllChildrenNumber(path(""))),
        Ok(Response::Count(4))
    );
    assert_eq!(world.ask(&client, &set_data("", -1)), Err(ErrorCode::BadArguments));
    assert_eq!(world.ask(&client, &delete("", -1)), Err(ErrorCode::BadArguments));
}

#[test]
fn a_body_that_cannot_be_read_is_a_marshalling_error() {
    let (mut world, [client]) = World::with_clients();
    for (op, zxids) in [(1, 0), (4, 0), (14, 1), (22, 0), (101, 0), (106, 0)] {
        let before = world.last_zxid();
        world.frame(client.connection, raw(op, &[0xff, 0xff, 0]));
        let (header, _) = world.next_reply(&client);
        assert_eq!(header.error, ErrorCode::MarshallingError.code(), "{op}");
        assert_eq!(world.last_zxid() - before, zxids, "{op}");
    }
}

#[test]
fn frames_without_a_header_or_too_long_close_the_connection() {
    for frame in [vec![], vec![0; 7], vec![0; MAX_FRAME + 1]] {
        let (mut world, [client]) = World::with_clients();
        world.frame(client.connection, frame);
        assert!(matches!(world.next(client.connection), Some(Received::Closed(_))));
        assert_eq!(world.server.stats().connections, 0);
    }
}

#[test]
fn reconfig_is_disabled_and_sasl_proves_nothing() {
    let (mut world, [client]) = World::with_clients();
    let reconfig = Request::Reconfig(lockkeeper_wire::ReconfigRequest {
        joining: String::new(),
        leaving: String::new(),
        new_members: String::new(),
        config_id: -1,
    });
    assert_eq!(world.ask(&client, &reconfig), Err(ErrorCode::ReconfigDisabled));
    let sasl = Request::Sasl(lockkeeper_wire::SaslRequest { token: Bytes::new() });
    assert_eq!(world.ask(&client, &sasl), Ok(Response::Sasl(None)));
    let Ok(Response::Identities(identities)) = world.ask(&client, &Request::WhoAmI) else {
        panic!("nobody")
    };
    assert_eq!(identities.len(), 1, "the address alone");
}

#[test]
fn pings_are_answered_with_their_own_xid() {
    let (mut world, [client]) = World::with_clients();
    let (header, body) = world.reply(&client, 1234, &Request::Ping);
    assert_eq!((header.xid, header.error, body.len()), (xid::PING, 0, 0));
}

#[test]
fn listings() {
    let (mut world, [client]) = World::with_clients();
    for path in ["/b", "/a", "/a/x", "/a/y"] {
        world.create(&client, path, CreateMode::Persistent);
    }
    world.create(&client, "/a/x/e", CreateMode::Ephemeral);
    world.create(&client, "/ab", CreateMode::Ephemeral);
    let names = |names: &[&str]| Response::Names(names.iter().map(|n| (*n).to_owned()).collect());
    for (request, expected) in [
        (get_children("/", false), names(&["a", "ab", "b", "zookeeper"])),
        (get_children("/a", false), names(&["x", "y"])),
        (Request::GetAllChildrenNumber(path("/a")), Response::Count(3)),
        (Request::GetAllChildrenNumber(path("/")), Response::Count(9)),
        (Request::GetEphemerals(path("/")), names(&["/a/x/e", "/ab"])),
        (Request::GetEphemerals(path("/a/")), names(&["/a/x/e"])),
        (Request::GetEphemerals(path("/a")), names(&["/a/x/e", "/ab"])),
        (Request::Sync(path("/whatever")), Response::Path("/whatever".to_owned())),
    ] {
        assert_eq!(world.ask(&client, &request), Ok(expected), "{request:?}");
    }
    let Ok(Response::Children { stat, names }) =
        world.ask(&client, &Request::GetChildren2(watched("/a", false)))
    else {
        panic!("no children")
    };
    assert_eq!((stat.num_children, names.len()), (2, 2));
}
